"""Integer relations between numbers that are known to a finite precision, searched within a bound."""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from scaling._check import require, whole
from scaling.rope import _lattice

TERMS = 3
_CHANCE = 1e-6
_MOST_PAIRS = 1 << 25
_UNIT = 2**64


def search_relations(turns: Sequence[Fraction], bound: int, errors: Sequence[Fraction | float]) -> tuple[tuple[int, ...], ...]:
    """Generators of all relations k_0 + sum_l k_l theta_l = 0 in integers with 1 to 3 non-zero k_l, all |k_l| <= bound.

    turns: theta_l in turns per position, mod 1. errors: how far each may be from the number it stands for; a vector is a relation
    where its residual is at most sum_l |k_l| errors_l. Relations with more terms or larger entries are not found unless those
    found generate them. So that a residual is not small by chance: the search is refused unless the expected number of such
    accidents among all the vectors, for numbers without relations, is below 1e-6.

    Pairs of terms are looked up in a sorted table of single terms, in 64-bit integers modulo one turn; hits are verified in exact
    fractions. Raises `ValueError` for a bound that is not an integer >= 1, is too large for the precision, or needs more than
    2^25 pairs, some ten seconds.
    """
    size = whole("search_bound", bound, 1)
    thetas = [Fraction(turn) % 1 for turn in turns]
    slack = [Fraction(error) for error in errors]
    _require_precise(thetas, slack, size)
    _require_short(len(thetas), size)
    return _Search(thetas, slack, size).run()


class _Search:
    """Single terms k theta_l as 64-bit fractions of a turn, and the relations found so far."""

    def __init__(self, thetas: list[Fraction], slack: list[Fraction], bound: int):
        self.thetas, self.slack, self.planes, self.bound = thetas, slack, len(thetas), bound
        fixed = np.array([round(theta * _UNIT) % _UNIT for theta in thetas], np.uint64)
        self.k = np.array([k for k in range(-bound, bound + 1) if k], np.int64)
        self.terms = fixed[:, None] * self.k.astype(np.uint64)  # modulo one turn, by overflow
        # Half a unit a term for the rounding, and the errors themselves.
        self.window = np.uint64(math.ceil(TERMS * bound * (0.5 + max(slack, default=Fraction(0)) * _UNIT)))
        self.found: list[tuple[int, ...]] = []
        self.basis = _products(_lattice.kernel([], self.planes + 1), bound)

    def run(self) -> tuple[tuple[int, ...], ...]:
        positive = self.k > 0
        for first in range(self.planes):
            self._keep([first], self.terms[first, positive], [self.k[positive]])
        for first in range(self.planes):
            for second in range(first + 1, self.planes):
                sums = self.terms[first, positive][:, None] + self.terms[second]
                entries = [np.broadcast_to(k, sums.shape).ravel() for k in (self.k[positive][:, None], self.k)]
                self._keep([first, second], sums.ravel(), entries)
        return tuple(self.found)

    def _keep(self, places: list[int], sums: np.ndarray, entries: list[np.ndarray]) -> None:
        """Adds the relations among these sums of terms k_l theta_l, l in `places`, that vanish alone or, two terms, with a third
        one of a later plane."""
        near = np.nonzero(sums + self.window <= 2 * self.window)[0]
        if len(near):
            self._add(places, [k[near] for k in entries])
        later = self.terms[places[-1] + 1 :].ravel()
        if len(places) == 1 or not len(later):
            return
        order = np.argsort(later)
        low, high = _minus(sums) - self.window, _minus(sums) + self.window
        left, right = np.searchsorted(later, low, "left", order), np.searchsorted(later, high, "right", order)
        counts = np.where(low > high, right + len(later), right) - left  # windows around 0 wrap
        if not counts.any():
            return
        pair = np.repeat(np.arange(len(sums)), counts)
        rank = np.arange(len(pair)) - np.repeat(np.cumsum(counts) - counts, counts)
        third, column = np.divmod(order[(left[pair] + rank) % len(later)], len(self.k))
        for plane in np.unique(third):
            at = third == plane
            hits = [k[pair[at]] for k in entries]
            self._add([*places, places[-1] + 1 + int(plane)], [*hits, self.k[column[at]]])

    def _add(self, places: list[int], entries: list[np.ndarray]) -> None:
        """Verifies candidates that those found do not generate over the rationals, one after the other."""
        vectors = np.zeros((len(entries[0]), self.planes + 1), np.int64)
        for place, k in zip(places, entries, strict=True):
            vectors[:, 1 + place] = k
        vectors[:, 0] = -np.rint(vectors[:, 1:] @ np.array([float(theta) for theta in self.thetas]))
        while len(vectors := vectors[np.any(vectors @ self.basis.T != 0, axis=1)]):
            vector = [int(k) for k in vectors[0]]
            vectors = vectors[1:]
            residual = sum((k * theta for k, theta in zip(vector[1:], self.thetas, strict=True)), Fraction(vector[0]))
            if abs(residual) <= sum(abs(k) * error for k, error in zip(vector[1:], self.slack, strict=True)):
                self.found.append(tuple(vector))
                self.basis = _products(_lattice.kernel(self.found, self.planes + 1), self.bound)


def _products(basis, bound: int) -> np.ndarray:
    """The rows as 64-bit integers where their products with candidates fit, otherwise as objects."""
    largest = max((abs(x) for row in basis for x in row), default=0)
    return np.array(basis, np.int64 if largest * 8 * bound < 2**62 else object)


def _minus(x: np.ndarray) -> np.ndarray:
    return ~x + np.uint64(1)


def _accidents(planes: int, bound: int, precision: float) -> float:
    """The expected number of vectors whose residual is within the errors by chance: two times the largest allowed residual, in
    units of the smallest term, for each vector up to its sign."""
    vectors = sum(math.comb(planes, terms) * (2.0 * bound) ** terms / 2 for terms in range(1, TERMS + 1))
    return vectors * 2 * TERMS * bound * precision


def _require_precise(thetas: list[Fraction], slack: list[Fraction], bound: int) -> None:
    sizes = [min(theta, 1 - theta) for theta in thetas]
    precision = max((float(error / size) for error, size in zip(slack, sizes, strict=True) if size), default=0.0)
    allowed = bound
    while allowed and _accidents(len(thetas), allowed, precision) > _CHANCE:
        allowed = min(allowed - 1, int(allowed * 0.99))
    must = f"be at most {allowed} for {len(thetas)} frequencies known to a relative precision of {precision:.2g}"
    require(allowed == bound, "search_bound", must, bound)


def _require_short(planes: int, bound: int) -> None:
    allowed = math.isqrt(_MOST_PAIRS // max(planes * (planes - 1), 1))
    require(bound <= allowed, "search_bound", f"be at most {allowed} for a search among {planes} frequencies", bound)
