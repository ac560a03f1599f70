"""Section 5: cosine similarities, Theorem 5.1 and the constructions of Appendix B, each against a road of its own."""

import numpy as np
import pytest

from tests.stat import assert_mean
from toyblocks.oversmoothing import (
    TokenLaw,
    Traces,
    assess,
    estimate,
    expected_product,
    interpolate,
    keeping,
    layer,
    mean_norm,
    moving,
    pair_moments,
    regime,
    rescaling,
    rho,
    rho_after,
    rho_hat,
    span_rotation,
    token_law,
    turning,
    uniformity,
    uniformity_of_entropies,
)

RNG = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def _own_numbers():
    """The same numbers for a test whichever others ran before it."""
    RNG.bit_generator.state = np.random.default_rng(5).bit_generator.state


def uniform_attention(tokens: int, mixing: float = 1.0) -> np.ndarray:
    """(1 - lambda) I + lambda A_u, entry by entry."""
    a = np.array([[1 / (i + 1) if j <= i else 0.0 for j in range(tokens)] for i in range(tokens)])
    return (1 - mixing) * np.eye(tokens) + mixing * a


def average_cosine(y: np.ndarray) -> float:
    """rho of one sequence by a loop over its pairs."""
    pairs = [(i, j) for j in range(len(y)) for i in range(j)]
    return float(np.mean([y[i] @ y[j] / (np.linalg.norm(y[i]) * np.linalg.norm(y[j])) for i, j in pairs]))


def orthogonal(size: int) -> np.ndarray:
    return np.linalg.qr(RNG.standard_normal((size, size))).Q


class Setting:
    """A law of exchangeable tokens: eps_i = G (own_i - a mean(own)) + H common, and a W that is not symmetric."""

    def __init__(self, tokens: int, d: int, pull: float):
        self.tokens, self.shared = tokens, RNG.uniform(0, 1.5)
        self.beta, self.z_bar = RNG.uniform(0, 3), RNG.uniform(0.5, 1.5) * RNG.standard_normal(d)
        self.g, self.h = (RNG.standard_normal((d, d)) / np.sqrt(d) for _ in range(2))
        self.w = 0.7 * RNG.standard_normal((d, d)) / np.sqrt(d) + pull * np.eye(d)

    @property
    def covariances(self) -> tuple[np.ndarray, np.ndarray]:
        """Sigma_V and Sigma_C."""
        own, common = self.g @ self.g.T, self.h @ self.h.T
        less = (self.shared**2 - 2 * self.shared) / self.tokens
        return own * (1 + less) + common, own * less + common

    @property
    def law(self) -> TokenLaw:
        variance, covariance = self.covariances
        return TokenLaw(self.beta, self.z_bar, variance - covariance, np.outer(self.z_bar, self.z_bar) + covariance)

    def draw(self, replicates: int) -> np.ndarray:
        """[R T d], from uniform variables."""
        d = len(self.z_bar)
        own, common = (RNG.uniform(-np.sqrt(3), np.sqrt(3), (replicates, t, d)) for t in (self.tokens, 1))
        return self.z_bar + (own - self.shared * own.mean(axis=1, keepdims=True)) @ self.g.T + common @ self.h.T


def test_rho_is_the_mean_over_pairs():
    x = RNG.standard_normal((2, 3, 7, 5)) + 0.5
    expected = [[average_cosine(sequence) for sequence in batch] for batch in x]
    np.testing.assert_allclose(rho(x), expected, rtol=0, atol=1e-14)
    np.testing.assert_allclose(rho(x * np.array([1e-250, 1, 1e250, 3, 1e-320, 1, 1e9])[:, None]), expected, atol=1e-3)
    assert rho(np.eye(4)) == 0 and rho(np.ones((3, 2), np.float32)) == pytest.approx(1, abs=1e-15)
    with pytest.raises(ValueError, match=r"Argument `x` must have no zero vector, but was of one at \(1,\)."):
        rho(np.eye(3) * np.array([1.0, 0.0, 1.0])[:, None])
    with pytest.raises(ValueError, match=r"Argument `x` must be finite, but was of nan at \(0, 1\)."):
        rho(np.array([[1.0, np.nan], [1.0, 1.0]]))
    with pytest.raises(ValueError, match="with at least 2 tokens"):
        rho(np.ones((1, 4)))


def test_closed_forms_are_the_moments_of_a_linear_map():
    """Y is (beta I + A_lambda x W) applied to all tokens at once, whose second moment is one matrix: for every lambda, i, j."""
    tokens, d = 5, 4
    setting = Setting(tokens, d, -0.4)
    (variance, covariance), law = setting.covariances, setting.law
    blocks = np.kron(np.ones((tokens, tokens)), covariance) + np.kron(np.eye(tokens), variance - covariance)
    blocks += np.kron(np.ones((tokens, tokens)), np.outer(setting.z_bar, setting.z_bar))
    traces, position = law.traces(setting.w), np.arange(1, tokens + 1)
    for mixing in (0.0, 0.3, 1.0):
        step = setting.beta * np.eye(tokens * d) + np.kron(uniform_attention(tokens, mixing), setting.w)
        moment = np.einsum("iaja->ij", (step @ blocks @ step.T).reshape(tokens, d, tokens, d))
        np.testing.assert_allclose(expected_product(traces, mixing, position[:, None], position), moment, rtol=1e-12)
        size = np.sqrt(np.diag(moment))
        pairs = (moment / np.outer(size, size))[np.triu_indices(tokens, 1)]
        assert rho_hat(traces, tokens, mixing) == pytest.approx(pairs.mean(), rel=1e-12)
    np.testing.assert_allclose(law.c - np.outer(law.z_bar, law.z_bar), covariance, atol=1e-14)


def test_closed_forms_against_monte_carlo():
    """50 laws and matrices, every pair of positions, and the pair moments that traces are estimated from."""
    tokens, d, replicates = 4, 5, 20_000
    i, j = np.triu_indices(tokens)
    products, expected, moments, traced, size = [], [], [], [], []
    for _ in range(50):
        setting = Setting(tokens, d, RNG.choice([-1.0, 0.0, 1.0]))
        z, mixing = setting.draw(replicates), RNG.uniform()
        y = setting.beta * z + uniform_attention(tokens, mixing) @ z @ setting.w.T
        law, traces = setting.law, setting.law.traces(setting.w)
        squares = expected_product(traces, mixing, j + 1, j + 1)
        products.append(np.sum(y[:, i] * y[:, j], axis=-1) / squares)
        expected.append(expected_product(traces, mixing, i + 1, j + 1) / squares)
        own, cross = pair_moments(z, z @ setting.w.T)
        size.append(np.trace(law.b + law.c))
        moments.append(np.stack([own, cross], axis=-1) / size[-1])
        traced.append(np.array([traces.bw + traces.cw, traces.cw]) / size[-1])
    assert_mean(np.concatenate(products, axis=1), np.concatenate(expected), sees=0.07)
    assert_mean(np.concatenate(moments, axis=1), np.concatenate(traced), sees=0.07)


def test_traces_are_estimated_from_pairs():
    """Against loops over the pairs of each sequence, with W as one matrix; BOS, an outlier, is left out unless asked for."""
    sequences, tokens, d, r = 2, 6, 5, 3
    z, w_v, w_o = RNG.standard_normal((sequences, tokens, d)) + 1, RNG.standard_normal((r, d)), RNG.standard_normal((d, r))
    z[:, 0] *= 100
    x = z * RNG.uniform(1, 3, (sequences, tokens, 1))
    w = w_o @ w_v
    for skip in (0, 1):
        rows = z[:, skip:]
        places = range(tokens - skip)
        found = estimate(x, z, z @ w_v.T, w_o, leave_out=skip)
        plain = estimate(x, z, z @ w.T, leave_out=skip)
        law = token_law(x, z, leave_out=skip)
        matrices = law.traces(w)
        for m, names in ((np.eye(d), ("b", "c")), (w, ("bw", "cw")), (w.T @ w, ("bww", "cww"))):
            own = np.mean([s[i] @ m @ s[i] for s in rows for i in places])
            cross = np.mean([s[i] @ m @ s[j] for s in rows for i in places for j in places if i != j])
            for each in (found, plain, matrices):
                assert [getattr(each, name) for name in names] == pytest.approx([own - cross, cross], rel=1e-10)
        ratio = np.linalg.norm(x[:, skip:], axis=-1) / np.linalg.norm(rows, axis=-1)
        assert found.beta == pytest.approx(ratio.mean(), rel=1e-13) and matrices.beta == pytest.approx(found.beta)
        np.testing.assert_allclose(law.z_bar, rows.mean(axis=(0, 1)), rtol=1e-12)
    default = estimate(x.astype(np.float32), z.astype(np.float32), (z @ w_v.T).astype(np.float32), w_o)
    assert default.bww == pytest.approx(found.bww, rel=1e-5)


@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_equal_tokens_have_no_regime_by_rounding(precision):
    """W sees no difference of tokens that have none, or none but rounding; small ones it sees; at any size of the values."""
    tokens, d, r, eps = 9, 16, 4, float(np.finfo(precision).eps)
    base, moved = RNG.standard_normal(d), RNG.standard_normal((2, tokens, d))
    w_v, w_o = RNG.standard_normal((r, d)), RNG.standard_normal((d, r))
    for apart, constant in ((0.0, True), (eps, True), (3e4 * eps, False)):
        z = base + apart * moved
        for size in (1e-9, 1.0, 1e9):
            update = size * z @ (w_o @ w_v).T
            differ, change = (each - each.mean(axis=1, keepdims=True) for each in (z[:, 1:], update[:, 1:]))
            exact = np.array([np.sum(differ * change), np.sum(change**2)]) / (2 * (tokens - 2))
            for values, output in ((size * z @ w_v.T, w_o), (update, None)):
                found = estimate((1.5 * z).astype(precision), z.astype(precision), values.astype(precision), output)
                assert (regime(found).name == "constant") == constant
                expected = 0 * exact if constant else exact
                np.testing.assert_allclose([found.bw, found.bww], expected, rtol=0.01)


def test_regimes_say_how_far_rho_hat_is_monotone():
    grid, tokens = np.linspace(0, 1, 101), 9
    cases = {"i": (0.2, 0.5), "ii": (-0.6, 0.5), "middle": (-0.3, 0.5), "constant": (0.0, 0.0)}
    for name, (bw, bww) in cases.items():
        traces = Traces(beta=1.5, b=1.0, c=0.8, bw=bw, cw=0.1, bww=bww, cww=0.2)
        found, steps = regime(traces), np.diff(rho_hat(traces, tokens, grid))
        assert found.name == name and found.positive
        rising = grid[1:] <= found.increases_to
        assert np.all(steps[rising] > 0) and (name != "ii" or np.all(steps < 0)) and (name != "constant" or not np.any(steps))
        if name == "middle":  # norms are least there, by a grid
            squares = expected_product(traces, grid, 5, 5)
            assert found.increases_to == pytest.approx(grid[np.argmin(squares)], abs=0.01)
            assert found.increases_to == pytest.approx(0.1, abs=1e-12)
        everywhere = [expected_product(traces, grid, 1, j).min() for j in range(2, tokens + 1)]
        assert found.least_product == pytest.approx(min(everywhere), rel=1e-12)
    # On the border beta tr(BW) = 0, without a skip connection say, norms fall up to lambda = 1.
    border = regime(Traces(beta=0.0, b=1.0, c=0.8, bw=-0.6, cw=0.1, bww=0.5, cww=0.2))
    assert (border.name, border.increases_to) == ("middle", 1.0)
    assert not regime(Traces(beta=1.0, b=1.0, c=-0.1, bw=0.2, cw=0.0, bww=0.5, cww=0.0)).positive


def test_head_is_assessed_on_its_own_tokens():
    """Measured curves against explicit attention matrices; the factored road against one with all of W Z."""
    tokens, d, r = 8, 6, 2
    z, w_v, w_o = RNG.standard_normal((3, tokens, d)) + 0.5, RNG.standard_normal((r, d)), RNG.standard_normal((d, r))
    x, v, grid = z * RNG.uniform(1, 2, (3, tokens, 1)), z @ w_v.T, np.array([0.0, 0.4, 1.0])
    found = assess(x, z, v, w_o, mixing=grid)
    kept, length = slice(1, None), tokens - 1
    for at, mixing in enumerate(grid):
        mixed = uniform_attention(length, mixing) @ v[:, kept]
        np.testing.assert_allclose(interpolate(v[:, kept], mixing), mixed, atol=1e-14)
        y = x[:, kept] + mixed @ w_o.T
        assert found.measured[at] == pytest.approx(np.mean([average_cosine(each) for each in y]), abs=1e-12)
    np.testing.assert_array_equal(found.predicted, rho_hat(estimate(x, z, v, w_o), length, grid))
    spread = np.linalg.norm(x[:, kept], axis=-1) / np.linalg.norm(z[:, kept], axis=-1)
    assert found.beta_spread == pytest.approx(spread.std() / spread.mean()) and found.regime == regime(found.traces)
    # (11): the layer's update is the sum of two heads', and the rescaled head enters rho.
    other = RNG.standard_normal((3, tokens, d))
    head, everything = v @ w_o.T, v @ w_o.T + other
    sizes = np.array([mean_norm(v, w_o), mean_norm(other)])
    means = [np.linalg.norm(each[:, kept], axis=-1).mean() for each in (everything, head, other)]
    scale = rescaling(everything, sizes)
    assert scale == pytest.approx(means[0] / np.mean(means[1:]), rel=1e-12)
    expected = np.mean([average_cosine(each) for each in x[:, kept] + scale * head[:, kept]])
    assert rho_after(x, [v], w_o, scale=scale) == pytest.approx([expected], abs=1e-12)
    assert rho_after(x, [head], scale=scale) == pytest.approx([expected], abs=1e-12)


def test_uniformity():
    n = 5
    diagonal, uniform = np.eye(n), uniform_attention(n)
    np.testing.assert_allclose(uniformity(np.stack([diagonal, uniform])), [1 / n, 1], rtol=1e-14)
    half = uniform.copy()
    half[3] = [0.5, 0.5, 0, 0, 0]  # entropy log 2 of log 4
    assert uniformity(half) == pytest.approx((n - 1 + 0.5) / n)
    for bad in (uniform.T, 2 * uniform, uniform - 2 * diagonal):
        with pytest.raises(ValueError, match="Argument `attention` must be causal, with weights >= 0 and rows that sum to 1"):
            uniformity(bad)
    with pytest.raises(ValueError, match="Argument `entropies` must lie between 0 and log i in row i"):
        uniformity_of_entropies(np.array([0.0, 0.7, 1.2]))


@pytest.mark.parametrize("strength", [0.3, 2.0])
def test_tokens_keep_their_directions_for_100_layers(strength):
    """Proposition B.1; that the same tokens collapse without the construction; that a perturbation grows with it."""
    d = 32
    x = RNG.standard_normal((7, d)) * RNG.uniform(0.5, 5, (7, 1))
    y, mixed, near, w_vo = x, x, x + 1e-7 * RNG.standard_normal(x.shape), keeping(x, strength)
    unit = [each / np.linalg.norm(each, axis=1, keepdims=True) for each in (x, near)]
    for _ in range(100):
        y, mixed, near = layer(y, w_vo), layer(mixed, strength * np.eye(d)), layer(near, w_vo)
    unit += [each / np.linalg.norm(each, axis=1, keepdims=True) for each in (y, near)]
    assert np.linalg.norm(unit[2] - unit[0], axis=1).max() <= 1e-10
    assert rho(mixed) - rho(x) > 0.2
    assert strength < 1 or np.linalg.norm(unit[3] - unit[0]) > 10 * np.linalg.norm(unit[1] - unit[0])
    # Remark B.2's conditions, one by one.
    z = np.sqrt(d) * unit[0]
    np.testing.assert_allclose(w_vo @ z[0], strength * z[0], atol=1e-11 * strength)
    np.testing.assert_allclose(w_vo @ z[1:].T, strength * (z[1:] - z[:-1]).T, atol=1e-11 * strength)


@pytest.mark.parametrize("tokens", [4, 6])
def test_tokens_turn_together_for_100_layers(tokens):
    """Proposition B.3: X goes to sigma Q X at every layer, another Q each time; cosines stay."""
    d = 6
    start = RNG.standard_normal((tokens, d)) + 0.5
    x, target, size = start, start, 1.0
    for _ in range(100):
        q, sigma = span_rotation(x, orthogonal(tokens), orthogonal(d - tokens)), float(RNG.uniform(0.8, 1.25))
        np.testing.assert_allclose(q @ q.T, np.eye(d), atol=1e-13)
        outside = q @ x.T - x.T @ np.linalg.lstsq(x.T, q @ x.T)[0]
        assert np.abs(outside).max() <= 1e-11 * np.abs(x).max()
        x, target, size = layer(x, turning(x, q, sigma)), target @ q.T, size * sigma
    norms = np.linalg.norm(start, axis=1, keepdims=True)
    assert np.linalg.norm(x / (size * norms) - target / norms, axis=1).max() <= 1e-10
    np.testing.assert_allclose(rho(x), rho(start), atol=1e-10)
    # No orthogonal Q is out of reach, nor any change.
    change = RNG.standard_normal((tokens, d))
    np.testing.assert_allclose(layer(start, moving(start, change)) - start, change, atol=1e-11)


def test_what_is_refused(unchecked):
    x, traces = RNG.standard_normal((5, 4)), Traces(1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0)
    for call, message in (
        (lambda: keeping(x), "`x` must have linearly independent tokens, but was of 5 tokens in d = 4"),
        (lambda: keeping(np.ones((2, 4))), "`x` must have linearly independent tokens"),
        (lambda: keeping(x[:3], 0.0), "`strength` must be finite and > 0, but was 0.0"),
        (lambda: turning(x[:3], np.ones((4, 4))), "`q` must be orthogonal"),
        (lambda: span_rotation(x[:3], np.eye(3), np.eye(2)), r"`q_2` must be orthogonal, of shape \(1, 1\)"),
        (lambda: estimate(x, x[:4], x), "`z` must have shape"),
        (lambda: estimate(x, x, x[:, :2], np.ones((3, 2))), r"`output` must have shape \(4, 2\)"),
        (lambda: estimate(x[:2], x[:2], x[:2]), "`x` must have shape .* with at least 3 tokens"),
        (lambda: rho_after(x, [x[:, :2]], np.ones((4, 3))), "`updates` must have shape"),
        (lambda: rho_after(np.ones((3, 1)), [-np.ones((3, 1))], np.ones((1, 1))), "`updates` must leave no token at 0"),
        (lambda: rescaling(x, np.zeros(2)), "`head_norms` must be finite, >= 0 and not all 0"),
        (lambda: rho_hat(traces, 4, 1.5), "`mixing` must be between 0 and 1, but was 1.5"),
        (lambda: expected_product(traces, 0.5, 0, 1), "`i` must be >= 1, but was 0"),
        (lambda: Traces(-1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0), "`beta` must be >= 0, but was -1.0"),
        (lambda: rho_hat(Traces(0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0), 4, 0.5), r"`traces` must make every E\|Y_k\|\^2 > 0"),
    ):
        with pytest.raises(ValueError, match=f"Argument {message}"):
            call()
