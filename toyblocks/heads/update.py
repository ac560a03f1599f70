"""Theorem 5.1 for every head of a layer: what is predicted and measured of the average cosine similarity.

The definitions are those of `toyblocks.oversmoothing`, whose functions take one head in float64. Here the residual stream is
used as it is stored, is never copied, and is passed through three times a head, all as matrix products; what is summed
over tokens is summed in float64. Rows are tokens; BOS is left out of every average.
"""

import dataclasses

import numpy as np
from jaxtyping import Float

from scaling import _check
from scaling.tensors import Layer
from toyblocks.oversmoothing import Regime, Traces, interpolate, regime, rho_hat

_CHUNK = 1024  # tokens whose sums are in the stored precision

Stored = Float[np.ndarray, "sequences tokens d"]
PerHead = Float[np.ndarray, "sequences tokens value_dim"]


@dataclasses.dataclass(frozen=True, eq=False)
class Stream:
    """Residual stream `x` and its norm `z` [S T d] of a layer without BOS, and what all of its heads need: `squares` |X_i|^2
    [S T], `beta` and `beta_spread`, the mean of |X_i| / |Z_i| and its standard deviation over the mean, `b` = tr(B) and `c` =
    tr(C) of Theorem 5.1, `rho` of X, the mean over sequences."""

    x: Stored
    z: Stored
    squares: Float[np.ndarray, "sequences tokens"]
    beta: float
    beta_spread: float
    b: float
    c: float
    rho: float


@dataclasses.dataclass(frozen=True, eq=False)
class Update:
    """Theorem 5.1 for one head: its `traces` and `regime`; rho-hat `predicted` for lambda = 0 and 1, of X + WZ and X + W Z A_u^T;
    rho `measured` of X + WZ, X + W Z A^T and X + W Z A_u^T, and `rescaled` by (11), None without it."""

    traces: Traces
    regime: Regime
    predicted: Float[np.ndarray, "2"]
    measured: Float[np.ndarray, "3"]
    rescaled: Float[np.ndarray, "3"] | None


def stream(layer: Layer) -> Stream:
    """The residual stream of a layer whose X and Z are there. Raises `ValueError` for zero vectors, naming the first, and for
    fewer than three tokens, of which BOS is one."""
    assert layer.x is not None and layer.z is not None
    _check.require(layer.n >= 3, f"X of layer {layer.index}", "have at least 3 positions", f"of shape {layer.x.shape}")
    x, z = layer.x[:, 1:], layer.z[:, 1:]
    squares, own = (_squares(each, f"{name} of layer {layer.index}") for each, name in ((x, "X"), (z, "Z")))
    ratio = np.sqrt(squares / own)
    cross = _pairs(np.stack([weighted_sums(each, np.ones((1, len(each))))[0] for each in z]), own)
    beta = float(ratio.mean())
    totals = np.stack([weighted_sums(each, root[None])[0] for each, root in zip(x, 1 / np.sqrt(squares), strict=True)])
    rho = float(_pairs(totals, np.ones(squares.shape)).mean())
    c = float(cross.mean())
    return Stream(x, z, squares, beta, float(ratio.std()) / beta, max(float(own.mean()) - c, 0.0), c, rho)


def update(
    of: Stream, values: PerHead, mixed: PerHead, w_o: Float[np.ndarray, "d value_dim"], scale: float | int | None = None
) -> Update:
    """Theorem 5.1 for the head with these values V [S T value_dim], values after its attention A V, and W_O.

    V and A V are without BOS' row; A attended to BOS, A_u is uniform over the other tokens. `scale` is s of (11). Raises
    `ValueError` where an update leaves a token at 0.
    """
    v, m = np.asarray(values, np.float64), np.asarray(mixed, np.float64)
    wide = np.asarray(w_o, np.float64)
    gram, narrow = wide.T @ wide, np.asarray(w_o, of.x.dtype)
    traces = _traces(of, v, narrow, gram)
    along = np.asarray(of.x @ narrow, np.float64)
    moves = [v, m, interpolate(v, 1.0)]
    found = _rho_after(of, moves if scale is None else [*moves, *(scale * move for move in moves)], along, gram, wide)
    predicted = rho_hat(traces, v.shape[1], np.array([0.0, 1.0]))
    return Update(traces, regime(traces), predicted, found[:3], None if scale is None else found[3:])


def weighted_sums(rows: Float[np.ndarray, "tokens d"], weights: Float[np.ndarray, "sums tokens"]) -> Float[np.ndarray, "sums d"]:
    """Sums of rows with `weights`, each chunk of tokens in the precision of `rows`, the chunks in float64."""
    total = np.zeros((len(weights), rows.shape[1]))
    for start in range(0, len(rows), _CHUNK):
        part = slice(start, start + _CHUNK)
        total += weights[:, part].astype(rows.dtype) @ rows[part]
    return total


def _traces(of: Stream, v: np.ndarray, narrow: np.ndarray, gram: np.ndarray) -> Traces:
    """As `oversmoothing.estimate`. tr(BW) is the sum over a sequence's tokens of (z_i - mean)^T W (z_i - mean) / (T - 1), so
    that nothing cancels."""
    tokens = v.shape[1]
    left = np.asarray(of.z @ narrow, np.float64)
    moments = []
    for a, b in ((left, v), (v, v @ gram)):
        own = np.einsum("std,std->st", a, b)
        cross = (tokens * np.einsum("sd,sd->s", a.mean(axis=1), b.mean(axis=1)) - own.mean(axis=1)) / (tokens - 1)
        centred = np.einsum("std,std->s", a - a.mean(axis=1, keepdims=True), b)
        moments += [float(centred.mean()) / (tokens - 1), float(cross.mean())]
    bw, cw, bww, cww = moments
    return Traces(of.beta, of.b, of.c, bw, cw, max(bww, 0.0), cww)


def _rho_after(of: Stream, moves: list[np.ndarray], along: np.ndarray, gram: np.ndarray, w_o: np.ndarray) -> np.ndarray:
    """As `oversmoothing.rho_after`, the sums over tokens of all updates together."""
    inverse = []
    for move in moves:
        squares = of.squares + np.einsum("std,std->st", 2 * along + move @ gram, move)
        least = float(squares.min())
        _check.require(least > 0, "W_O", "leave no token at 0 after an update", f"of a least square of {least:.3g}")
        inverse.append(1 / np.sqrt(squares))
    found = []
    for sequence, rows in enumerate(of.x):
        weights = np.stack([each[sequence] for each in inverse])
        total = weighted_sums(rows, weights)
        total += np.stack([each @ move[sequence] for each, move in zip(weights, moves, strict=True)]) @ w_o.T
        found.append(_pairs(total, np.ones((len(moves), rows.shape[0]))))
    return np.mean(found, axis=0)


def _squares(rows: Stored, argument: str) -> Float[np.ndarray, "sequences tokens"]:
    """Squared norms in float64. Raises `ValueError` for zero vectors, naming the first."""
    found = np.empty(rows.shape[:2])
    for sequence, each in enumerate(rows):
        for start in range(0, len(each), _CHUNK):
            part = each[start : start + _CHUNK].astype(np.float64)
            found[sequence, start : start + _CHUNK] = np.einsum("td,td->t", part, part)
    zero = np.argwhere(found <= 0)
    if len(zero):
        _check.reject(argument, "have no zero vector", f"of one at position {zero[0][1] + 1} of sequence {zero[0][0]}")
    return found


def _pairs(totals: Float[np.ndarray, "sums d"], squares: Float[np.ndarray, "sums tokens"]) -> Float[np.ndarray, "sums"]:
    """The mean of a_i^T a_j over i != j from the sum of the a_i and their squares."""
    tokens = squares.shape[1]
    return (np.sum(totals**2, axis=1) - squares.sum(axis=1)) / (tokens * (tokens - 1))
