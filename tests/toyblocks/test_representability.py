"""Half-spaces and their margins against closed forms and brute force; Proposition 4.1 in both directions."""

import numpy as np
import pytest
from scipy import optimize

from toyblocks.hull import HalfSpace, half_space, nearest_point
from toyblocks.representability import representability

RNG = np.random.default_rng(0)


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def cone(n: int, d: int, height: float) -> np.ndarray:
    """Unit vectors with first coordinate `height`, symmetric about it: the margin is `height`."""
    side = RNG.standard_normal((n // 2, d - 1))
    side = np.sqrt(1 - height**2) * unit(np.concatenate([side, -side]))
    return np.concatenate([np.full((len(side), 1), height), side], axis=1)


def assert_certified(found: HalfSpace, vectors: np.ndarray):
    """Both certificates, recomputed."""
    assert found.weights.min() >= 0 and found.weights.sum() == pytest.approx(1, abs=1e-12)
    assert np.linalg.norm(found.weights @ unit(vectors)) == pytest.approx(found.upper, rel=1e-9, abs=1e-14)
    if found.exists:
        assert np.linalg.norm(found.normal) == pytest.approx(1, abs=1e-12)
        assert (unit(vectors) @ found.normal).min() == pytest.approx(found.margin, rel=1e-6)
    assert not (found.exists and found.excluded)


@pytest.mark.parametrize(("height", "gap"), [(0.9, 1e-12), (0.1, 1e-12), (1e-3, 1e-10), (1e-6, 1e-6), (1e-8, 1e-3)])
def test_margin_of_a_cone(height, gap):
    # Lengths that spread over twelve decades: a half-space knows directions alone.
    vectors = cone(60, 9, height) * np.exp(RNG.uniform(-14, 14, 60))[:, None]
    found = half_space(vectors)
    assert_certified(found, vectors)
    assert found.exists and found.margin <= height * (1 + gap) and found.upper >= height * (1 - gap)
    assert found.upper - found.margin <= gap * height


def test_half_spaces_are_those_of_linear_programming():
    """The decision against a linear program, on both sides of it and at every number of vectors to a dimension."""
    outcomes = []
    for case in range(30):
        d = 2 + case % 5
        vectors = unit(RNG.standard_normal((d + 1 + case // 5, d)) + 0.3 * np.eye(d)[0])
        found = half_space(vectors)
        assert_certified(found, vectors)
        program = optimize.linprog(
            np.append(np.zeros(d), -1.0),
            A_ub=np.hstack([-vectors, np.ones((len(vectors), 1))]),
            b_ub=np.zeros(len(vectors)),
            bounds=[(-1, 1)] * d + [(None, None)],
        )
        assert found.exists == (-program.fun > 1e-7) and found.exists != found.excluded
        outcomes.append(found.exists)
    assert 5 < sum(outcomes) < 25


def test_margin_is_the_best_over_directions():
    """Against the largest smallest inner product by a general optimiser over directions, from many starts."""
    for _ in range(3):
        vectors = RNG.standard_normal((7, 3)) + [1.5, 0.0, 0.0]
        found = half_space(vectors)
        assert_certified(found, vectors)

        rows = unit(vectors)

        def worst(u, rows=rows):
            return -(rows @ unit(u)).min()

        best = -min(optimize.minimize(worst, start, method="Nelder-Mead").fun for start in RNG.standard_normal((6, 3)))
        assert best <= found.upper + 1e-12
        assert found.margin == pytest.approx(max(best, 0), abs=1e-4)


def test_no_half_space_and_a_combination_that_vanishes():
    simplex = np.concatenate([np.eye(5), -np.ones((1, 5))])  # the one combination that vanishes takes all six
    found = half_space(simplex)
    assert_certified(found, simplex)
    assert found.excluded and not found.exists and found.margin == 0
    assert np.abs(found.weights @ unit(simplex)).max() < 1e-14 and found.weights.min() > 0.1
    assert half_space(simplex[:5]).margin == pytest.approx(5**-0.5, rel=1e-12)
    opposite = half_space(np.array([[1.0, 2.0], [-3.0, -6.0], [1.0, 0.0]]))
    np.testing.assert_allclose(opposite.weights, [0.5, 0.5, 0], atol=1e-14)
    assert opposite.excluded
    zero = half_space(np.array([[1.0, 2.0], [0.0, 0.0]]))
    assert zero.excluded and zero.weights.tolist() == [0, 1]


def test_nearest_point_of_raw_points():
    """The distance of a triangle's edge, in the units of the points; units from 1e-8 to 1e8."""
    points = np.array([[1.0, 3.0], [2.0, -1.0], [5.0, 5.0]])
    distance = 7 / np.sqrt(17)  # of the line 4x + y = 7 through the first two
    for scale in (1e-8, 1.0, 1e8):
        found = nearest_point(scale * points)
        assert found.lower == pytest.approx(scale * distance, rel=1e-12) == found.upper
        np.testing.assert_allclose(found.weights @ points, distance**2 / 7 * np.array([4.0, 1.0]), atol=1e-12)


def brute_force(z: np.ndarray, attending: np.ndarray) -> bool:
    """Whether any W of any rank separates: the linear program over all d x d entries, which the proposition saves."""
    products = np.concatenate([np.einsum("a,ib->iab", z[j], z[0] - z[1:]).reshape(len(z) - 1, -1) for j in attending])
    size = products.shape[1]
    result = optimize.linprog(
        np.append(np.zeros(size), -1.0),
        A_ub=np.hstack([-products, np.ones((len(products), 1))]),
        b_ub=np.zeros(len(products)),
        bounds=[(-1, 1)] * (size + 1),
    )
    return -result.fun > 1e-9


def test_proposition_4_1_against_all_matrices():
    outcomes = []
    for case in range(40):
        d = 2 + case % 2
        z = RNG.standard_normal((5, d)) + (0.8 * case / 40) * np.eye(d)[0]
        z[0] *= (0.5, 1, 2)[case % 3]
        attending = np.sort(RNG.choice(np.arange(1, 5), size=2 + case % 3, replace=False))
        found = representability(z, attending)
        outcomes.append((found.sink.exists, found.attending.exists))
        assert found.representable == brute_force(z, attending) and found.representable != found.excluded
        if found.representable:
            logits = z @ found.w_qk @ z.T
            gap = (logits[attending, :1] - logits[attending][:, 1:]).min()
            assert gap > 0 and found.smallest_gap == pytest.approx(gap / np.mean(np.sum(z**2, axis=1)), rel=1e-9)
    assert {(True, True), (True, False), (False, True)} <= set(outcomes)  # each condition alone fails somewhere


def test_linear_independence_makes_it_automatic():
    z = RNG.standard_normal((12, 12))
    z[1:] += 3 * z[0]  # all of them close to the sink
    found = representability(z)
    assert found.automatic and found.representable and found.cosine.min() > 0.5 and not found.strictly_opposite
    assert not representability(np.concatenate([z, z[1:2] + z[2:3]])).automatic
    np.testing.assert_allclose(found.cosine, unit(z[1:]) @ unit(z[0]), atol=1e-14)
    assert representability(z, sink=3).representable


def test_section_4_needs_a_strict_inequality():
    z = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])  # cosine 0 with the sink, opposite to each other
    found = representability(z)
    assert found.cosine.max() == 0 and not found.strictly_opposite
    assert found.sink.exists and found.attending.excluded and not brute_force(z, np.array([1, 2]))
    z[1:, 0] = -1e-3
    found = representability(z)
    assert found.strictly_opposite and found.representable


def test_refusals(unchecked):
    z = RNG.standard_normal((4, 3))
    with pytest.raises(ValueError, match="Argument `z` must be finite, but was of value nan in row 2, column 1"):
        representability(np.where(np.arange(12).reshape(4, 3) == 7, np.nan, z))
    with pytest.raises(ValueError, match="Argument `z` must have at least 2 tokens"):
        representability(z[:1])
    for rows in ([], [0, 1], [1, 1], [4], [-1]):
        with pytest.raises(ValueError, match="Argument `attending` must be different rows"):
            representability(z, np.array(rows, dtype=int))
    with pytest.raises(ValueError, match="Argument `sink` must"):
        representability(z, sink=4)
    with pytest.raises(
        ValueError, match=r"Argument `vectors` must have entries of at most 1e\+150 in size, but was of size 1e\+200"
    ):
        half_space(1e200 * np.eye(2))
    with pytest.raises(ValueError, match="Argument `points` must be a matrix with rows"):
        nearest_point(np.zeros((0, 3)))
