"""Theorem 5.1: what one head does to the average cosine similarity as its attention goes from none to uniform.

Tokens are modelled as Z_i = z_bar + eps_i with E eps_i eps_i^T = Sigma_V and E eps_j eps_i^T = Sigma_C, X_i = beta Z_i. With
B = Sigma_V - Sigma_C and C = z_bar z_bar^T + Sigma_C everything depends on beta and six traces, and these are moments of pairs:
tr(C M) = E z_i^T M z_j over i != j of one sequence, tr((B + C) M) = E z_i^T M z_i. So a head costs O(T d), and no d x d matrix.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from scaling import _check
from toyblocks.oversmoothing.similarity import Number, Tokens, interpolate, kept, norms, output_matrix, rho_after, same_shape

Numbers = Number | Float[np.ndarray, "..."]
Indices = int | Int[np.ndarray, "..."]


class Traces(eqx.Module):
    """beta and the traces that Theorem 5.1 depends on, W the head's W_VO: `b` tr(B), `c` tr(C), `bw` tr(BW), `cw` tr(CW),
    `bww` tr(B W^T W), `cww` tr(C W^T W)."""

    beta: float
    b: float
    c: float
    bw: float
    cw: float
    bww: float
    cww: float

    def __check_init__(self):
        for name, value in vars(self).items():
            _check.require(np.isfinite(value), name, "be finite", value)
        for name in ("beta", "b", "bww"):
            _check.require(getattr(self, name) >= 0, name, "be >= 0", getattr(self, name))

    @property
    def slope(self) -> float:
        """beta tr(BW) + tr(B W^T W): j times the slope of E Y_i^T Y_j in lambda, i < j."""
        return self.beta * self.bw + self.bww

    @property
    def product(self) -> float:
        """E Y_i^T Y_j at lambda = 0, i != j: beta^2 tr(C) + 2 beta tr(CW) + tr(C W^T W)."""
        return self.beta**2 * self.c + 2 * self.beta * self.cw + self.cww


class TokenLaw(eqx.Module):
    """The law of tokens that Theorem 5.1 assumes: `beta`, `z_bar` [d], `b` = Sigma_V - Sigma_C [d d],
    `c` = z_bar z_bar^T + Sigma_C [d d]. One for all heads of a layer."""

    beta: float
    z_bar: Float[np.ndarray, "d"]
    b: Float[np.ndarray, "d d"]
    c: Float[np.ndarray, "d d"]

    def traces(self, w: Float[np.ndarray, "d d"]) -> Traces:
        """The traces for W = `w`, by d x d products. Raises `ValueError` where beta or tr(B) is negative."""
        gram = w.T @ w
        pairs = ((self.b, w), (self.c, w), (self.b, gram), (self.c, gram))
        bw, cw, bww, cww = (float(np.einsum("ij,ji->", left, right)) for left, right in pairs)
        return Traces(float(self.beta), float(np.trace(self.b)), float(np.trace(self.c)), bw, cw, max(bww, 0.0), cww)


class Regime(eqx.Module):
    """Which case of Theorem 5.1 holds, and how far rho-hat is known to be monotone.

    `name`: "i" where beta tr(BW) > 0, rho-hat strictly increasing in lambda; "ii" where beta tr(BW) + tr(B W^T W) < 0, strictly
    decreasing; "middle" between them; "constant" where W does not see the differences of tokens. `increases_to`: rho-hat
    increases strictly on [0, this]: 1 in (i), lambda_* of Remark B.4 in the middle (beyond it the theorem says nothing), 0 else.
    `least_product`: the least E Y_i^T Y_j over lambda, i != j; `positive`: whether it is > 0, without which none of this follows.
    """

    name: str
    increases_to: float
    least_product: float

    @property
    def positive(self) -> bool:
        """The theorem's assumption. E|Y_k|^2 >= E Y_i^T Y_j at lambda = 0, so that it covers i = j."""
        return self.least_product > 0


class Assessment(eqx.Module):
    """Theorem 5.1 beside what is measured on the same tokens: `traces`, `regime`, rho-hat `predicted` and rho `measured` at each
    of `mixing` [lambda], and `beta_spread`, the standard deviation of |X_i| / |Z_i| over its mean (0 where X_i = beta Z_i)."""

    traces: Traces
    regime: Regime
    beta_spread: float
    mixing: Float[np.ndarray, "lambda"]
    predicted: Float[np.ndarray, "lambda"]
    measured: Float[np.ndarray, "lambda"]


def pair_moments(
    a: Float[np.ndarray, "*sequences tokens r"], b: Float[np.ndarray, "*sequences tokens r"]
) -> tuple[Float[np.ndarray, "*sequences"], Float[np.ndarray, "*sequences"]]:
    """For every sequence the means of a_i^T b_i over i and of a_i^T b_j over i != j, in O(T r)."""
    tokens = a.shape[-2]
    own = np.einsum("...ij,...ij->...", a, b)
    every = np.einsum("...j,...j->...", a.sum(axis=-2), b.sum(axis=-2))
    return np.asarray(own / tokens), np.asarray((every - own) / (tokens * (tokens - 1)))


def estimate(
    x: Tokens,
    z: Tokens,
    values: Float[np.ndarray, "*sequences tokens r"],
    output: Float[np.ndarray, "d r"] | None = None,
    *,
    leave_out: int = 1,
) -> Traces:
    """The traces of one head from a batch of sequences, unbiased, in O(T d) beside the projection Z W_O.

    `x` [... T d] the residual stream, `z` its norm's output, `values` [... T r] = Z W_V^T and `output` [d r] = W_O, so that
    W = W_O W_V is never formed; without `output`, `values` are Z W^T. beta is the mean of |X_i| / |Z_i|. The first `leave_out`
    tokens (BOS) are left out. Moments are over pairs of one sequence, then averaged over sequences (a covariance with
    1/(T - 1)). tr(BW) and tr(B W^T W) are 0 where values of one sequence are equal up to the rounding of what is given, see
    `unseen`. Raises `ValueError` for shapes that do not fit, zero vectors and numbers that are not finite.
    """
    rounding = max(_epsilon(each) for each in (x, z, values))
    x, z, v = kept("x", x, leave_out), kept("z", z, leave_out), kept("values", values, leave_out)
    same_shape("z", z, x)
    _check.require(v.shape[:-1] == z.shape[:-1], "values", f"have shape {(*z.shape[:-1], 'r')}", f"of shape {v.shape}")
    if output is None:
        same_shape("values", v, z)
        left, right, size = z, v, 1.0
    else:
        w_o = output_matrix(output, z.shape[-1], v.shape[-1])
        gram = w_o.T @ w_o
        left, right, size = z @ w_o, v @ gram, float(np.trace(gram))
    pairs = ((z, z), (left, v), (v, right))
    b, bw, bww = (_covariance(*pair) for pair in pairs)
    c, cw, cww = (float(np.mean(pair_moments(*pair)[1])) for pair in pairs)
    if unseen(bww, size * float(np.mean(np.einsum("...j,...j->...", v, v))), rounding):
        bw = bww = 0.0
    beta = float(np.mean(norms("x", x) / norms("z", z)))
    # Sample covariances are positive semidefinite, up to rounding.
    return Traces(beta, max(b, 0.0), c, bw, cw, max(bww, 0.0), cww)


def _covariance(a: Float[np.ndarray, "*sequences tokens r"], b: Float[np.ndarray, "*sequences tokens r"]) -> float:
    """The mean of a_i^T b_i less that of a_i^T b_j, i != j, from differences to the means: of equal tokens nothing is left."""
    a, b = (each - each.mean(axis=-2, keepdims=True) for each in (a, b))
    return float(np.mean(np.einsum("...ij,...ij->...", a, b))) / (a.shape[-2] - 1)


def _epsilon(array: Float[np.ndarray, "..."]) -> float:
    """The unit of rounding of what an array was stored in."""
    dtype = np.asarray(array).dtype
    return float(jnp.finfo(dtype if jnp.issubdtype(dtype, jnp.floating) else np.float64).eps)


def unseen(bww: Number, size: Number, rounding: Number) -> bool:
    """Whether W sees no difference of tokens: tr(B W^T W) = `bww` is that of values that differ by 16 units of `rounding`, at
    least 1e-12, of themselves, where `size` bounds the mean of |W z_i|^2: mean |v_i|^2 times |W_O|^2."""
    return bww <= max(1e-12, 16 * rounding) ** 2 * size


def token_law(x: Tokens, z: Tokens, *, leave_out: int = 1) -> TokenLaw:
    """beta, z-bar, B and C of a layer from a batch of sequences, as `estimate` defines them: two matrices [d d] a layer, to look
    at the assumptions; heads need `estimate` alone. z-bar is the mean over all tokens. Raises `ValueError` as `estimate` does."""
    x, z = kept("x", x, leave_out), kept("z", z, leave_out)
    same_shape("z", z, x)
    rows = z.reshape(-1, *z.shape[-2:])
    tokens = rows.shape[-2]
    own = np.einsum("sti,stj->ij", rows, rows, optimize=True) / (len(rows) * tokens)
    means = rows.mean(axis=-2)
    b = (own - means.T @ means / len(rows)) * (tokens / (tokens - 1))
    return TokenLaw(float(np.mean(norms("x", x) / norms("z", z))), means.mean(axis=0), b, own - b)


def expected_product(traces: Traces, mixing: Numbers, i: Indices, j: Indices) -> Float[np.ndarray, "..."]:
    """(2): E[Y_i(lambda)^T Y_j(lambda)] for positions i, j >= 1 and lambda = `mixing`, which broadcast; i = j gives E|Y_i|^2.

    Exact for every law that the theorem allows, W symmetric or not. Raises `ValueError` for a lambda outside [0, 1] and positions
    below 1.
    """
    share, first, second = _mixing(mixing), _positions("i", i), _positions("j", j)
    other = traces.product + share * traces.slope / np.maximum(first, second)
    fewer = 1 - 1 / first
    square = traces.product + traces.beta**2 * traces.b + 2 * traces.beta * traces.bw + traces.bww
    own = square - fewer * share * (2 * traces.slope - share * traces.bww)
    return np.where(first == second, own, other)


def rho_hat(traces: Traces, tokens: int, mixing: Numbers) -> Float[np.ndarray, "..."]:
    """rho-hat(Y(lambda)) of section 5 for T = `tokens` positions, at each lambda = `mixing`, in O(T): the mean over pairs i < j
    of E Y_i^T Y_j / sqrt(E|Y_i|^2 E|Y_j|^2). Dimensionless.

    Raises `ValueError` for fewer than two tokens, a lambda outside [0, 1], and where some E|Y_k|^2 is not positive.
    """
    length = _check.whole("tokens", tokens, 2)
    share = _mixing(mixing)[..., None]
    k = np.arange(1, length + 1)
    squares = expected_product(traces, share, k, k)
    _check.require(bool(np.all(squares > 0)), "traces", "make every E|Y_k|^2 > 0", f"of a least one of {squares.min():.3g}")
    inverse = 1 / np.sqrt(squares)
    earlier = np.cumsum(inverse, axis=-1)[..., :-1]  # E Y_i^T Y_j depends on the later of the two positions alone
    pairs = expected_product(traces, share, 1, k[1:]) * inverse[..., 1:] * earlier
    return np.asarray(pairs.sum(axis=-1) * 2 / (length * (length - 1)))


def regime(traces: Traces) -> Regime:
    """Which condition of Theorem 5.1 holds, lambda_* = (beta tr(BW) + tr(B W^T W)) / tr(B W^T W) where neither does, and whether
    the assumption E Y_i^T Y_j > 0 holds."""
    # Linear in lambda / j, which lies in [0, 1/2].
    least = min(traces.product, traces.product + traces.slope / 2)
    skip = traces.beta * traces.bw
    if skip > 0:
        return Regime("i", 1.0, least)
    if traces.slope < 0:
        return Regime("ii", 0.0, least)
    if traces.bww == 0:
        return Regime("constant", 0.0, least)
    return Regime("middle", traces.slope / traces.bww, least)


def assess(
    x: Tokens,
    z: Tokens,
    values: Float[np.ndarray, "*sequences tokens r"],
    output: Float[np.ndarray, "d r"] | None = None,
    *,
    mixing: Float[np.ndarray, "lambda"] | None = None,
    leave_out: int = 1,
) -> Assessment:
    """The prediction of Theorem 5.1 for one head beside rho(X + W Z ((1 - lambda) I + lambda A_u)^T) on the tokens themselves.

    Arguments as for `estimate`; `mixing` (default 0, .1, ..., 1) are the lambdas; uniform attention is over the tokens that
    are not left out. For W = 0 the agreement says nothing where |Z_i| is constant: rho-hat(X) = rho(X) is an identity under
    RMSNorm. Raises `ValueError` as `estimate` does.
    """
    grid = np.linspace(0, 1, 11) if mixing is None else _mixing(mixing)
    found = estimate(x, z, values, output, leave_out=leave_out)
    x, z, v = kept("x", x, leave_out), kept("z", z, leave_out), kept("values", values, leave_out)
    ratio = norms("x", x) / norms("z", z)
    measured = rho_after(x, (interpolate(v, float(share)) for share in grid), output, leave_out=0)
    predicted = rho_hat(found, x.shape[-2], grid)
    return Assessment(found, regime(found), float(np.std(ratio) / np.mean(ratio)), grid, predicted, measured)


def _mixing(value: Numbers) -> Float[np.ndarray, "..."]:
    share = np.asarray(value, np.float64)
    _check.require(bool(np.all((share >= 0) & (share <= 1))), "mixing", "be between 0 and 1", share.tolist())
    return share


def _positions(argument: str, value: Indices) -> Int[np.ndarray, "..."]:
    position = np.asarray(value)
    _check.require(bool(np.all(position >= 1)), argument, "be >= 1", position.tolist())
    return position
