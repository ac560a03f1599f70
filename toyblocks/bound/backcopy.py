"""Theorem 7.1: when a sink is provably cheaper than a diagonal for backcopy, as printed and corrected; section 7's example.

Corrected are: nuclear norms, which count twice (|A|_F^2 + |B|_F^2 >= 2 |A B|_*) beside |W_1|_F^2 + |W_2|_F^2, which counts once;
the nuclear norm of (8), d - 2; and the lower bound, a factor sqrt(2) better since every row of the proof can serve, not one half
of them. With n = |C| + |D|, m = min(|C|, |D|), and a unit cost k = kappa/sqrt(d), or kappa where the logits are divided by d.
"""

import math

import equinox as eqx

from scaling import _check
from toyblocks.task import GEOMETRIES, SCALINGS, Backcopy, checked_kappa

FORMS = ("corrected", "printed")


class BackcopyBound(eqx.Module):
    """Bounds on total costs, dimensionless, at smallest margin kappa.

    `sink_upper`: 4k (sqrt(2|D|) + T - 1) + 2(d - 2) + 4d|C| + 2(T + |D|), what (7)-(10) cost; d - 1 in place of d - 2 in the
    `compact` geometry, where only BOS is left out of (8). `diagonal_lower`: 2k sqrt(2 m T (T^2 - 1)/3), by the printed proof, in
    whose data a copy token can be fetched from every position, the first as well. `diagonal_lower_first_dormant`: proven where
    position 1 is dormant, as in `Backcopy`, see `_first_dormant`. `sink_upper_printed`, `diagonal_lower_printed`: the two sides
    of (3), with c_1 = max(1, d/(T + n + 2)), since its geometry is the orthonormal one. `sink_cheaper`: provably, that is
    `sink_upper` is below both lower bounds; `sink_cheaper_printed`: (3) holds.
    """

    sink_upper: float
    diagonal_lower: float
    diagonal_lower_first_dormant: float
    sink_upper_printed: float
    diagonal_lower_printed: float
    sink_cheaper: bool
    sink_cheaper_printed: bool


class IdentityCosts(eqx.Module):
    """Costs of W_QK in section 7's example, dimensionless: `*_printed` its nuclear norm, the others twice that (two factors)."""

    sink: float
    diagonal: float
    sink_printed: float
    diagonal_printed: float


def identity_costs(context_length: int, kappa: float | int = 10.0) -> IdentityCosts:
    """A sequence that is the identity of size T + 1: the sink kappa 1 e_1^T has one singular value, kappa sqrt(T + 1), the
    diagonal kappa I has T + 1 of them, kappa each. Raises `ValueError` for T < 1 or kappa outside [1e-100, 1e100]."""
    tokens = _check.whole("context_length", context_length, 1) + 1
    margin = checked_kappa(kappa)
    sink, diagonal = margin * math.sqrt(tokens), margin * tokens
    return IdentityCosts(2 * sink, 2 * diagonal, sink, diagonal)


def backcopy_bound(task: Backcopy, kappa: float) -> BackcopyBound:
    """The bounds for a task."""
    shape = (task.dormant, task.copy, kappa, task.scaling, task.dim - task.context_length - task.kinds, task.geometry)
    length = task.context_length
    upper, lower = _sides(length, *shape, form="corrected")
    upper_printed, lower_printed = _sides(length, *shape, form="printed")
    proven = _first_dormant(length, min(task.dormant, task.copy), _unit(task.dim, kappa, task.scaling))
    cheaper = upper < min(lower, proven)
    return BackcopyBound(upper, lower, proven, upper_printed, lower_printed, cheaper, upper_printed < lower_printed)


def first_context_length(
    dormant: int = 5,
    copy: int = 5,
    kappa: float | int = 10.0,
    scaling: str = "extra",
    spare: int = 0,
    form: str = "corrected",
) -> int | None:
    """The least T >= 2 at which a sink is provably cheaper, d = T + |C| + |D| + `spare`; None if there is none.

    `form`: `corrected` or `printed`, `sink_cheaper` or `sink_cheaper_printed` of `BackcopyBound`; the geometry is `compact` for
    spare < 2. With A = sqrt(2|D|) - 1 the sides, times sqrt(d) for `standard`, are a multiple of T + A plus (a T + b) sqrt(d) (no
    root for `extra`) on the left, c T^{3/2} or c sqrt(T^3 - T) on the right. Over the right side each term falls in T, as
    A, b >= 0, so the sides cross once at most: for `extra` always; for `standard` if and only if c > a, the limits of the sides
    over T sqrt(d), by more than 1e-12 of themselves, since floats tell no less apart. Beyond 1e15 T is right but for
    what rounding does to the sides. Raises `ValueError` for bad arguments.
    """
    dormant, copy = _check.whole("dormant", dormant, 1), _check.whole("copy", copy, 1)
    margin, spare = checked_kappa(kappa), _check.whole("spare", spare, 0)
    _check.known("scaling", scaling, SCALINGS)
    printed = _check.known("form", form, FORMS) == "printed"
    geometry = GEOMETRIES[1] if spare >= 2 else GEOMETRIES[0]
    few = min(dormant, copy)
    if scaling == "standard":
        slope = (3 if printed else 4) + 4 * copy
        if margin * (math.sqrt(few / 3) if printed else math.sqrt(8 * few / 3)) <= slope * (1 + 1e-12):
            return None

    def cheaper(length: int) -> bool:
        upper, lower = _sides(length, dormant, copy, margin, scaling, spare, geometry, form)
        return upper < lower

    high = 2
    while not cheaper(high):
        high *= 2
    low = high // 2
    while high - low > 1 and high > 2:
        middle = (low + high) // 2
        low, high = (low, middle) if cheaper(middle) else (middle, high)
    if printed:
        return high
    while True:  # the proof for a dormant first position lags behind where T is small against m
        upper, lower = _sides(high, dormant, copy, margin, scaling, spare, geometry, form)
        unit = _unit(high + dormant + copy + spare, margin, scaling)
        if upper < min(lower, _first_dormant(high, few, unit)):
            return high
        high += 1 + (high >> 50)  # floats do not see a single step there


def _unit(dim: int, kappa: float, scaling: str) -> float:
    return kappa / math.sqrt(dim) if scaling == "standard" else kappa


def _sides(
    length: int, dormant: int, copy: int, kappa: float, scaling: str, spare: int, geometry: str, form: str
) -> tuple[float, float]:
    """The upper bound on the sink and the lower bound on the diagonal."""
    dim, few = length + dormant + copy + spare, min(dormant, copy)
    unit = _unit(dim, kappa, scaling)
    routing = 2 * unit * (math.sqrt(2 * dormant) + length - 1)
    if form == "printed":
        gate = 4 * max(dim, length + dormant + copy + 2) * copy
        return routing + 3 * length + 3 * dormant + copy + gate - 2, unit * math.sqrt(few / 3) * math.sqrt(length) * length
    value = dim - (1 if geometry == "compact" else 2)
    lower = 2 * unit * math.sqrt(2 * few / 3) * math.sqrt(length) * math.sqrt(length - 1) * math.sqrt(length + 1)
    return 2 * routing + 2 * value + 4 * dim * copy + 2 * (length + dormant), lower


def _first_dormant(length: int, few: int, unit: float) -> float:
    """A lower bound on the diagonal where no copy token stands at position 1, so that the proof's step from row 1 to row 2 fails.

    In units of k, write W for the matrix with keys in rows; every margin reads (key - other)^T W (h + p) >= 2, keys h + p. For
    pairs l = 1..m of contents (d, a) in D x C let u_l = (h_d - h_a)/sqrt(2) and v_t = p_t^T W u_l; the printed proof gives
    v_t - v_{t-1} >= 2 sqrt(2) =: g for t >= 3.

    (i) The step to t = 2, with a dormant key d at position 1, reads v_2 - v_1 + x >= g with x = u_l^T W p_2 + u_l^T W h_a,
    entries of their own. Least |W|_F^2, over x and v (arithmetic from t = 2): m g^2 T (T - 1) ((T - 2)/12 + T/(4 (3T - 2))).

    (ii) Let Z_1 = z (sum_l u_l)^T/sqrt(m) with z the normalised arithmetic sequence on p_2..p_T, of step
    zeta = sqrt(12/((T-1) T (T-2))): <W, Z_1> >= sqrt(m) g/zeta. A copy query at t prefers t - 1 to itself, at t + 1 it prefers
    t to t - 1, with the same content of the keys: (p_t - p_{t-1})^T W (p_{t+1} - p_t) >= 4 for t = 3..T-1. Let Z_2 be the sum of
    (p_t - p_{t-1})(p_{t+1} - p_t)^T over these t, over 4: |Z_2|_2 <= 1, its rows are orthogonal to those of Z_1, and
    |Z_2^T z| = zeta sqrt(2)/4. So |Z_1 + Z_2|_2^2 <= 1 + zeta sqrt(2)/4, and |W|_* >= <W, Z_1 + Z_2>/|Z_1 + Z_2|_2.
    """
    step = 2 * math.sqrt(2)
    roots = math.sqrt(length) * math.sqrt(length - 1)  # one by one: T^3 may be too large for a float
    first = step * math.sqrt(few) * roots * math.sqrt((length - 2) / 12 + length / (4 * (3 * length - 2)))
    if length < 4:
        return 2 * unit * first
    zeta = math.sqrt(12) / roots / math.sqrt(length - 2)
    second = (math.sqrt(few) * step / zeta + length - 3) / math.sqrt(1 + zeta * math.sqrt(2) / 4)
    return 2 * unit * max(first, second)
