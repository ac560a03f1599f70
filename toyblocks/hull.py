"""Convex hulls and the origin: do vectors lie in a half-space, or does a convex combination of them vanish?

Exactly one of the two holds (Gordan's alternative), and both are questions about the point of the convex hull nearest to 0: if it
is p != 0, then <p, x> >= |p|^2 for every x in the hull. A unit vector u proves |p| >= min_i <u, x_i>, and convex weights w prove
|p| <= |sum_i w_i x_i|. Both are recomputed from u and w here, so they hold up to rounding whatever found u and w.
"""

import equinox as eqx
import numpy as np
from jaxtyping import Float
from scipy import optimize

from scaling import _check

ROUNDING = 1e-12  # of unit vectors: lengths and inner products below it are 0 as far as float64 can tell
LARGEST = 1e150  # of an entry: squares are floats


class Nearest(eqx.Module):
    """The point of a convex hull nearest to 0, between two certificates; in the units of the points.

    The distance is at least `lower`, since <`direction`, x_i> >= `lower` for all i (a unit vector [d]; 0, and `lower` 0, if none
    was found), and at most `upper` = |sum_i `weights`_i x_i| (convex weights [n]).
    """

    direction: Float[np.ndarray, "d"]
    weights: Float[np.ndarray, "n"]
    lower: float
    upper: float


class HalfSpace(eqx.Module):
    """Whether vectors lie in an open half-space through 0, and how far inside; dimensionless.

    The margin is the largest smallest inner product of a unit vector with the vectors made unit, 0 if there is no half-space. It
    is between `margin`, which the unit vector `normal` [d] attains (0 and 0 if none was found), and `upper`, the length of the
    convex combination `weights` [n] of the vectors made unit. `exists`: `margin` is more than rounding; `excluded`: `upper` is
    not, so that a combination vanishes. Neither: float64 cannot tell.
    """

    normal: Float[np.ndarray, "d"]
    weights: Float[np.ndarray, "n"]
    margin: float
    upper: float

    @property
    def exists(self) -> bool:
        """Whether `normal` has a positive inner product with every vector."""
        return self.margin > ROUNDING

    @property
    def excluded(self) -> bool:
        """Whether the combination `weights` vanishes, which rules a half-space out."""
        return self.upper <= ROUNDING


def nearest_point(points: Float[np.ndarray, "n d"]) -> Nearest:
    """The point of the convex hull of the rows nearest to 0: an active-set method, then one least-squares step on its active set.

    Raises `ValueError` for no points and for entries that are not finite.
    """
    points = checked_rows("points", points)
    lengths = np.linalg.norm(points, axis=1)
    if lengths.min() == 0:
        return Nearest(np.zeros(points.shape[1]), _one_hot(int(lengths.argmin()), len(points)), 0.0, 0.0)
    # min |sum a_i x_i|^2 + (1 - sum a_i)^2 over a >= 0 points where the nearest point does, for a = s w with convex weights w
    # minimises s^2 |p|^2 + (1 - s)^2. The second term needs the size of the first.
    scale = float(lengths.min())
    x = points / scale
    n, d = x.shape
    found, _ = optimize.nnls(np.vstack([x.T, np.ones(n)]), np.append(np.zeros(d), 1.0), maxiter=50 * n + 1000)
    weights = found / found.sum()
    p = weights @ x
    # p = sum w_i x_i cancels where the distance is small; u with <u, x_i> = 1 on the active set has the same direction.
    polished = np.linalg.lstsq(x[weights > 0], np.ones(int(np.sum(weights > 0))), rcond=None)[0]
    direction, lower = _best_direction(x, [p, polished])
    return Nearest(direction, weights, scale * lower, scale * float(np.linalg.norm(p)))


def half_space(vectors: Float[np.ndarray, "n d"]) -> HalfSpace:
    """Whether the rows lie in an open half-space, and the margin.

    Both come from the nearest point of the hull of the unit vectors. A linear program (u in the unit cube with the largest
    smallest inner product) would decide as well, 50 times slower, and without the margin. A vector 0 lies in no open half-space.
    Raises `ValueError` for no vectors and for entries that are not finite.
    """
    vectors = checked_rows("vectors", vectors)
    largest = np.abs(vectors).max(axis=1)
    if largest.min() == 0:
        return HalfSpace(np.zeros(vectors.shape[1]), _one_hot(int(largest.argmin()), len(vectors)), 0.0, 0.0)
    unit = vectors / largest[:, None]  # first, so that no square overflows or is 0
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    nearest = nearest_point(unit)
    return HalfSpace(nearest.direction, nearest.weights, nearest.lower, nearest.upper)


def checked_rows(argument: str, rows: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """The rows in float64. Raises `ValueError` for no rows, no columns, entries that are not finite, naming the first, and
    entries whose squares are not."""
    rows = _check.real_array(argument, rows, "be a matrix of real numbers")
    _check.require(rows.ndim == 2 and rows.size > 0, argument, "be a matrix with rows", f"of shape {rows.shape}")
    bad = np.argwhere(~np.isfinite(rows))
    if len(bad):
        row, column = bad[0]
        _check.reject(argument, "be finite", f"of value {rows[row, column]} in row {row}, column {column}")
    size = float(np.abs(rows).max())
    _check.require(size <= LARGEST, argument, f"have entries of at most {LARGEST:g} in size", f"of size {size:g}")
    return rows


def rank(rows: Float[np.ndarray, "n d"], tolerance: float | int = 1e-9) -> int:
    """The number of singular values above `tolerance` times the largest; 0 for a matrix of zeros."""
    values = np.linalg.svd(rows, compute_uv=False)
    return int(np.sum(values > tolerance * values[0])) if len(values) and values[0] > 0 else 0


def _best_direction(
    x: Float[np.ndarray, "n d"], candidates: list[Float[np.ndarray, "d"]]
) -> tuple[Float[np.ndarray, "d"], float]:
    """Of the candidates made unit, the one with the largest smallest inner product, which is returned; 0 and 0 if none is > 0."""
    best, lower = np.zeros(x.shape[1]), 0.0
    for each in candidates:
        length = float(np.linalg.norm(each))
        if length > 0:
            smallest = float((x @ (each / length)).min())
            if smallest > lower:
                best, lower = each / length, smallest
    return best, lower


def _one_hot(index: int, n: int) -> Float[np.ndarray, "n"]:
    weights = np.zeros(n)
    weights[index] = 1.0
    return weights
