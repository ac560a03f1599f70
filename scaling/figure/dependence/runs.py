"""The extremal index of moving averages in finite rows: neighbours of a near key, drawn given that key."""

import numpy as np
from jaxtyping import Float

from scaling.context import MovingAverage

_LEVELS = 40  # shares of keys below the threshold at which neighbours are drawn


def run_shares(
    context: MovingAverage, log_share: Float[np.ndarray, " level"], seed: int, draws: int
) -> Float[np.ndarray, "level run"]:
    """P(U_1 > t, ..., U_k > t | U_0 <= t), k = 0 ... m, of D2Qs U at the t below which these shares of the keys lie.

    At k = m it tends to the extremal index 1 as t does to 0. The keys have a uniform marginal law: g_l = c_l g_0 + H_l with the
    correlations c_l and with H independent of g_0, whose length is chi-distributed.
    """
    rng, a, d, m = np.random.default_rng(seed), np.asarray(context.weights, np.float64), context.d, context.m
    query = np.eye(1, d)[0]
    h = rng.standard_normal((2 * m + 1, draws, d))
    h[: m + 1] -= a[:, None, None] * np.tensordot(a, h[: m + 1], 1)
    rest = np.stack([np.tensordot(a, h[lag : lag + m + 1], 1) for lag in range(1, m + 1)])
    correlation = np.array([context.correlation(lag) for lag in range(1, m + 1)])[:, None]
    along = correlation * np.sqrt(rng.chisquare(d, draws))  # the length of c_l g_0
    log_uniform = -rng.standard_exponential(draws)
    across = rng.standard_normal((draws, d)) * (1 - query)
    across /= np.linalg.norm(across, axis=1, keepdims=True)
    on_query, on_across = rest @ query, np.sum(rest * across, axis=-1)
    squares = along**2 + np.sum(rest * rest, axis=-1)
    table = np.linspace(log_share.min() + log_uniform.min(), 0.0, 2000)
    log_quantile = np.log(context.marginal(query).quantile(table))
    found = np.ones((len(log_share), m + 1))
    for i, log_p in enumerate(log_share):
        t0, t = (np.exp(np.interp(at, table, log_quantile)) for at in (log_p + log_uniform, log_p))
        cosine, sine = 1 - t0, np.sqrt(np.maximum(t0 * (2 - t0), 0.0))
        lengths = np.sqrt(squares + 2 * along * (cosine * on_query + sine * on_across))
        far = along * cosine + on_query < (1 - t) * lengths
        found[i, 1:] = np.logical_and.accumulate(far).mean(1)
    return found


def finite_index(context: MovingAverage, n: Float[np.ndarray, " n"], seed: int, draws: int) -> Float[np.ndarray, " n"]:
    """1 / E n F(T_(1)) of rows of n > m keys, taking a key to be no nearer than t if the m before it are not, whatever is before
    those: P(T_(1) > t) = q_m (q_{m+1} / q_m)^{n-m}, where q_k = 1 - F(t) sum of the first k of `run_shares` is exact for k
    keys."""
    m, log_share = context.m, np.linspace(np.log(0.03 / n.max()), 0.0, _LEVELS)
    shares = run_shares(context, log_share, seed, draws)
    log_p = np.linspace(np.log(1e-4 / n.max()), 0.0, 1000)
    p = np.exp(log_p)
    none = np.maximum([1 - p * np.interp(log_p, log_share, shares[:, :k].sum(1)) for k in (m, m + 1)], 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_tail = np.log(none[0]) + (n[:, None] - m) * np.log(none[1] / none[0])
    tail = np.where(none[0] > 0, np.exp(log_tail), 0.0)
    return 1 / (n * (p[0] + np.trapezoid(tail, p, axis=1)))
