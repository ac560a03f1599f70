"""A cloud that attends to itself, against the same layers in float64 and against the density of infinitely many tokens."""

import jax
import numpy as np
import pytest

import scaling
from scaling import dynamics, heat
from scaling.heat import harmonic
from tests import stat

PAPER = np.array([[0, 0.5, 0], [0.5, 0, 0], [0, 0, 0]])


def cloud(n: int, d: int = 3) -> np.ndarray:
    x = np.random.default_rng(n).normal(size=(n, d)) + 0.3
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def reference(tokens, beta, step, layers, value):
    x, kept = tokens.astype(np.float64), [tokens.astype(np.float64)]
    for _ in range(layers):
        w = np.exp(beta * (x @ x.T - 1))
        moved = x + step * (w @ x / w.sum(1, keepdims=True) - x) @ value.T
        x = moved / np.linalg.norm(moved, axis=1, keepdims=True)
        kept.append(x)
    return np.array(kept)


@pytest.mark.parametrize("beta, step", [([3.0, 40.0, 0.0], [1.0, -0.5, 2.0]), ([1e4, 10.0, 2.0], 0.7)])
def test_layers_in_float64(beta, step):
    tokens, value = cloud(523), np.array([[1.0, 0.4, 0.0], [-0.3, 0.8, 0.2], [0.1, 0.0, 1.1]])
    found = scaling.evolve(tokens, beta, step, 3, value)
    assert found.clouds.shape == (len(beta), 4, 523, 3)
    for i, (b, s) in enumerate(zip(found.beta, found.step, strict=True)):
        np.testing.assert_allclose(found.clouds[i], reference(tokens, b, s, 3, value), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(found.clouds, axis=3), 1, atol=1e-6)


def test_last_layer_times_and_dimension():
    tokens = cloud(70, 5)
    found = scaling.evolve(tokens, [2.0, 4.0], 0.5, 4)
    last = scaling.evolve(tokens, [2.0, 4.0], 0.5, 4, keep="last")
    assert last.clouds.shape == (2, 1, 70, 5)
    np.testing.assert_array_equal(last.clouds[:, 0], found.clouds[:, -1])
    np.testing.assert_allclose(found.time, np.arange(5) * np.array([[0.25], [0.125]]))
    np.testing.assert_allclose(last.time, [[1.0], [0.5]])
    assert scaling.evolve(tokens, 0.0, 1.0, 1).time.tolist() == [[0.0, np.inf]]


def test_a_trajectory_does_not_depend_on_the_others():
    tokens = cloud(130)
    both = scaling.evolve(tokens, [5.0, 30.0], [0.5, 0.2], 2)
    alone = scaling.evolve(tokens, 30.0, 0.2, 2)
    np.testing.assert_allclose(both.clouds[1], alone.clouds[0], atol=1e-6)


def test_pairs_share_a_compilation():
    tokens = cloud(130)
    scaling.evolve(tokens, [1.0, 2.0], [0.1, 0.2], 2)
    before = dynamics._layer._cached._cache_size()
    scaling.evolve(tokens, [50.0, 20.0], [-1.0, 2.0], 3, keep="last")
    assert dynamics._layer._cached._cache_size() == before


def test_the_cloud_follows_the_density_of_infinitely_many_tokens():
    # Replicates are whole clouds. Bias: 1 / m_window of the ratio of sums, and half a step of the Euler scheme.
    density, beta, step, layers, n = scaling.Quadratic(PAPER), 10.0, 0.1, 4, 1000
    start = heat.spectrum(density)
    expected = heat.mean_field_spectra(start, beta, [layers * step / beta])[0]
    direction = harmonic.to_real(harmonic.resized(start.coefficients, 3))[1:]
    direction /= np.linalg.norm(direction)
    growth = []
    for seed in range(30):
        tokens = np.asarray(density.sample(jax.random.key(seed), n))
        clouds = scaling.evolve(tokens, beta, step, layers).clouds[0, [0, -1]].astype(float)
        # The same linear functional before and after: the sampling noise of the start is in both.
        ends = [harmonic.to_real(heat.cloud_spectrum(c, 3).coefficients)[1:] @ direction for c in clouds]
        growth.append(ends[1] - ends[0])
    first, last = (harmonic.to_real(harmonic.resized(s.coefficients, 3))[1:] @ direction for s in (start, expected))
    assert 1.15 < last / first < np.exp(6 * 0.04)  # the window of beta = 10 takes a quarter of the growth
    stat.assert_mean(np.array(growth), last - first, error=0.05 * (last - first), sees=0.7 * (last - first))


def test_bad_input():
    tokens = cloud(20)
    with pytest.raises(ValueError, match=r"^Argument `tokens` must have rows of norm 1"):
        scaling.evolve(3 * tokens, 1.0, 1.0, 1)
    with pytest.raises(ValueError, match=r"^Argument `tokens` must have shape \[n >= 1, d >= 2\]"):
        scaling.evolve(tokens[:0], 1.0, 1.0, 1)
    with pytest.raises(ValueError, match=r"^Argument `beta` must be finite and >= 0"):
        scaling.evolve(tokens, -1.0, 1.0, 1)
    with pytest.raises(ValueError, match=r"^Argument `step` must be a finite number"):
        scaling.evolve(tokens, 1.0, np.inf, 1)
    with pytest.raises(ValueError, match=r"^Argument `step` must have the length of `beta`, 2, or 1, but was of length 3"):
        scaling.evolve(tokens, [1.0, 2.0], [1.0, 2.0, 3.0], 1)
    with pytest.raises(ValueError, match=r"^Argument `layers` must be an integer >= 1"):
        scaling.evolve(tokens, 1.0, 1.0, 0)
    with pytest.raises(ValueError, match=r"^Argument `value` must have shape \(3, 3\)"):
        scaling.evolve(tokens, 1.0, 1.0, 1, np.ones((2, 3)))
    # Two antipodal tokens at beta = 0: Y = -q, so step 1 moves both to 0.
    poles = np.array([[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]])
    with pytest.raises(ValueError, match=r"^Argument `step` must move every token to a finite point other than 0, but 1 does"):
        scaling.evolve(poles, 0.0, 1.0, 1)
    with pytest.raises(ValueError, match=r"^Argument `beta` must be at most 8\.51e\+37 in float32, but was 1e\+39"):
        scaling.evolve(tokens, 1e39, 1.0, 1)


def test_a_huge_step_keeps_unit_vectors():
    norms = np.linalg.norm(scaling.evolve(cloud(20), 1.0, 1e30, 1).clouds[0, 1], axis=1)
    np.testing.assert_allclose(norms, 1, rtol=1e-6)
