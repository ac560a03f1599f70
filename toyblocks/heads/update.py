"""Theorem 5.1 for every head of a layer: what is predicted and measured of the average cosine similarity.

The definitions are those of `toyblocks.oversmoothing`, whose functions take one head in float64. Here the residual stream is
used as it is stored, is never copied, and is passed through three times a head, all as matrix products; what is summed
over tokens is summed in float64. A head that nearly cancels the residual stream of a token is computed in float64 instead, since
what is left is small beside the rounding of the products. Rows are tokens; BOS is left out of every average.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float

from scaling import _check
from scaling.tensors import Layer
from toyblocks.oversmoothing import Regime, Traces, interpolate, regime, rho_hat
from toyblocks.oversmoothing.theorem import unseen

_CHUNK = 1024  # tokens whose sums are in the stored precision
_SMALLEST = 1e-150  # of a norm: squares are floats
_SMALL, _LARGE = 1e-30, 1e60  # squares of tokens between which products and inverse norms in float32 are far from its range
_CANCELS = 1e-2  # |x + Wu|^2 over |x|^2 below which an update is computed in float64
_ROUNDING = 64  # units of rounding below which |x + Wu| over |x| is 0

Stored = Float[np.ndarray, "sequences tokens d"]
PerHead = Float[np.ndarray, "sequences tokens value_dim"]


class Vanishes(ValueError):
    """Why the similarities of a head are not known: what they divide by is 0."""


@dataclasses.dataclass(frozen=True, eq=False)
class Stream:
    """Residual stream `x` and its norm `z` [S T d] of a layer without BOS, as stored, or in float64 where they are so small that
    float32 products of them are not normal numbers, and what all of its heads need: `squares` |X_i|^2 [S T], `beta` and
    `beta_spread`, the mean of |X_i| / |Z_i| and its standard deviation over the mean, `b` = tr(B) and `c` = tr(C) of Theorem 5.1,
    `rho` of X, the mean over sequences."""

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
    rho `measured` of X + WZ, X + W Z A^T and X + W Z A_u^T in every sequence, and `rescaled` by (11), None without it."""

    traces: Traces
    regime: Regime
    predicted: Float[np.ndarray, "2"]
    measured: Float[np.ndarray, "3 sequences"]
    rescaled: Float[np.ndarray, "3 sequences"] | None


def stream(layer: Layer) -> Stream:
    """The residual stream of a layer whose X and Z are there. Raises `ValueError` for zero vectors, naming the first, and for
    fewer than three tokens, of which BOS is one."""
    assert layer.x is not None and layer.z is not None
    _check.require(layer.n >= 3, f"X of layer {layer.index}", "have at least 3 positions", f"of shape {layer.x.shape}")
    x, z = layer.x[:, 1:], layer.z[:, 1:]
    squares, own = (
        squared_norms(each, f"{name} of layer {layer.index}", first=1) for each, name in ((x, "X"), (z, "Z"))
    )
    x, z = (each if least >= _SMALL else each.astype(np.float64) for each, least in ((x, squares.min()), (z, own.min())))
    ratio = np.sqrt(squares) / np.sqrt(own)
    cross = _pairs(z.sum(axis=1, dtype=np.float64), own)
    beta = float(ratio.mean())
    totals = np.stack([weighted_sums(each, root[None])[0] for each, root in zip(x, 1 / np.sqrt(squares), strict=True)])
    rho = float(np.clip(_pairs(totals, np.ones(squares.shape)), -1.0, 1.0).mean())
    c = float(cross.mean())
    return Stream(x, z, squares, beta, float(ratio.std()) / beta, max(float(own.mean()) - c, 0.0), c, rho)


def update(
    of: Stream, values: PerHead, mixed: PerHead, w_o: Float[np.ndarray, "d value_dim"], scale: float | int | None = None
) -> Update:
    """Theorem 5.1 for the head with these values V [S T value_dim], values after its attention A V, and W_O.

    V and A V are without BOS' row; A attended to BOS, A_u is uniform over the other tokens. `scale` is s of (11). W does not see
    the differences of tokens, regime "constant", where the values are equal up to the rounding of what is stored. Raises
    `Vanishes` where an update leaves a token at 0 up to that rounding, or Theorem 5.1 all of them on average.
    """
    v, m = np.asarray(values, np.float64), np.asarray(mixed, np.float64)
    wide = np.asarray(w_o, np.float64)
    gram = wide.T @ wide
    rounding = max(float(np.finfo(np.asarray(each).dtype).eps) for each in (of.x, values))
    moves = [v, m, interpolate(v, 1.0)]
    moves += [] if scale is None else [scale * move for move in moves]
    along = _product(of.x, wide)
    squares = [of.squares + np.einsum("std,std->st", 2 * along + move @ gram, move) for move in moves]
    in_full = [bool(np.any(each < _CANCELS * of.squares)) or each.max() > _LARGE for each in squares]
    traces = _traces(of, v, wide, gram, rounding, precise=any(in_full))
    quick = [place for place, full in enumerate(in_full) if not full]
    found = np.empty((len(moves), len(of.x)))
    found[quick] = _rho_after(of, [moves[place] for place in quick], [squares[place] for place in quick], wide)
    for place in np.flatnonzero(in_full):
        found[place] = _rho_in_full(of, moves[place], wide, rounding)
    try:
        predicted = rho_hat(traces, v.shape[1], np.array([0.0, 1.0]))
    except ValueError as error:
        raise Vanishes("its E|Y_k|^2 is not positive") from error
    return Update(traces, regime(traces), predicted, found[:3], None if scale is None else found[3:])


def squared_norms(rows: Stored, argument: str, *, first: int) -> Float[np.ndarray, "sequences tokens"]:
    """Squared norms in float64, of tokens that count from `first`. Raises `ValueError` for zero vectors, naming one, and norms
    below 1e-150."""
    found = np.empty(rows.shape[:2])
    for sequence, part, wide in _chunks(rows):
        found[sequence, part] = np.einsum("td,td->t", wide, wide)
    small = np.argwhere(found < _SMALLEST**2)
    if len(small):
        sequence, token = (int(i) for i in small[0])
        must = f"have norms of at least {_SMALLEST:g}" if np.any(rows[sequence, token]) else "have no zero vector"
        _check.reject(argument, must, f"of one at position {token + first} of sequence {sequence}")
    return found


def cosines(rows: Stored, squares: Float[np.ndarray, "sequences tokens"]) -> Float[np.ndarray, "sequences others"]:
    """Cosines of the first token with the others, in float64, from the rows and their squared norms."""
    found = np.empty(rows.shape[:2])
    for sequence, part, wide in _chunks(rows):
        found[sequence, part] = wide @ (rows[sequence, 0].astype(np.float64) / np.sqrt(squares[sequence, 0]))
    return np.clip(found / np.sqrt(squares), -1.0, 1.0)[:, 1:]


def weighted_sums(rows: Float[np.ndarray, "tokens d"], weights: Float[np.ndarray, "sums tokens"]) -> Float[np.ndarray, "sums d"]:
    """Sums of rows with `weights`, each chunk of tokens in the precision of `rows`, the chunks in float64."""
    total = np.zeros((len(weights), rows.shape[1]))
    for start in range(0, len(rows), _CHUNK):
        part = slice(start, start + _CHUNK)
        total += weights[:, part].astype(rows.dtype) @ rows[part]
    return total


def _chunks(rows: Stored) -> Iterator[tuple[int, slice, Float[np.ndarray, "tokens d"]]]:
    """Sequence, tokens and their rows in float64, a chunk at a time."""
    for sequence, each in enumerate(rows):
        for start in range(0, len(each), _CHUNK):
            part = slice(start, start + _CHUNK)
            yield sequence, part, each[part].astype(np.float64)


def _product(rows: Stored, w_o: np.ndarray, *, precise: bool = False) -> PerHead:
    """Rows times W_O, in float64 if `precise`, else in the precision of the rows, where the size of W_O is kept out of it."""
    if precise:
        found = np.empty((*rows.shape[:2], w_o.shape[1]))
        for sequence, part, wide in _chunks(rows):
            found[sequence, part] = wide @ w_o
        return found
    size = float(np.abs(w_o).max()) or 1.0
    return (rows @ (w_o / size).astype(rows.dtype)).astype(np.float64) * size


def _traces(of: Stream, v: np.ndarray, w_o: np.ndarray, gram: np.ndarray, rounding: float, *, precise: bool) -> Traces:
    """As `oversmoothing.estimate`. tr(BW) is the sum over a sequence's tokens of (z_i - mean)^T W (z_i - mean) / (T - 1), so
    that nothing cancels; it and tr(B W^T W) are 0 where the values differ by no more than `rounding`."""
    tokens = v.shape[1]
    left, right = _product(of.z, w_o, precise=precise), v @ gram
    apart = v - v.mean(axis=1, keepdims=True)
    pairs = ((left, v, left - left.mean(axis=1, keepdims=True)), (v, right, apart @ gram))
    moments = []
    for a, b, centred in pairs:
        own = np.einsum("std,std->st", a, b)
        cross = (tokens * np.einsum("sd,sd->s", a.mean(axis=1), b.mean(axis=1)) - own.mean(axis=1)) / (tokens - 1)
        moments += [float(np.einsum("std,std->s", centred, apart).mean()) / (tokens - 1), float(cross.mean())]
    bw, cw, bww, cww = moments
    size = float(np.einsum("std,std->st", v, v).mean()) * float(np.trace(gram))
    if unseen(bww, size, rounding):
        bw = bww = 0.0
    return Traces(of.beta, of.b, of.c, bw, cw, max(bww, 0.0), cww)


def _rho_after(
    of: Stream, moves: list[np.ndarray], squares: list[np.ndarray], w_o: np.ndarray
) -> Float[np.ndarray, "moves sequences"]:
    """As `oversmoothing.rho_after`, for every sequence, the sums over tokens of all updates together."""
    if not moves:
        return np.empty((0, len(of.x)))
    inverse, found = [1 / np.sqrt(each) for each in squares], []
    for sequence, rows in enumerate(of.x):
        weights = np.stack([each[sequence] for each in inverse])
        total = weighted_sums(rows, weights)
        total += np.stack([each @ move[sequence] for each, move in zip(weights, moves, strict=True)]) @ w_o.T
        found.append(_pairs(total, np.ones((len(moves), rows.shape[0]))))
    return np.clip(found, -1.0, 1.0).T


def _rho_in_full(of: Stream, move: PerHead, w_o: np.ndarray, rounding: float) -> Float[np.ndarray, "sequences"]:
    """The same for one update, from X + U W_O^T in float64, a chunk of tokens at a time. Raises `Vanishes`."""
    totals = np.zeros((len(of.x), of.x.shape[2]))
    for sequence, part, wide in _chunks(of.x):
        wide += move[sequence, part] @ w_o.T
        size = np.linalg.norm(wide, axis=1)
        if np.any(size <= _ROUNDING * rounding * np.sqrt(of.squares[sequence, part])):
            raise Vanishes("an update leaves a token at 0 up to rounding")
        totals[sequence] += (1 / size) @ wide
    return np.clip(_pairs(totals, np.ones(of.squares.shape)), -1.0, 1.0)


def _pairs(totals: Float[np.ndarray, "sums d"], squares: Float[np.ndarray, "sums tokens"]) -> Float[np.ndarray, "sums"]:
    """The mean of a_i^T a_j over i != j from the sum of the a_i and their squares."""
    tokens = squares.shape[1]
    return (np.sum(totals**2, axis=1) - squares.sum(axis=1)) / (tokens * (tokens - 1))
