"""The closed subgroup of the torus that the phases of an orbit fill, from the integer relations between its frequencies."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float64, UInt64

from scaling._check import reject, require, whole
from scaling.rope import _lattice
from scaling.rope.frequencies import AbstractFrequencies, GivenFrequencies
from scaling.rope.search import TERMS, search_relations

_TURN_ERROR = Fraction(1, 2**96)  # of `turns` that stand for irrational numbers
_ANGLE_ERROR = Fraction(1, 2**52)  # relative, of angles computed in float64: a unit in the last place
_SMALL = 1 << 32  # components whose products fit 64 bits


class Subgroup(eqx.Module):
    """H, the closure of {i theta mod 1: i integer} in the torus (R/Z)^L: `components` translates of a subtorus.

    H = {j offset / components + sum_m z_m directions[m] mod 1: j = 0 ... components - 1, z_m in R/Z}, which is the annihilator of
    the integer vectors k with k . theta an integer. The theory: 1 and the theta_l generate a free module over the integers; a
    basis of it is 1/components and numbers omega_m independent of it, and theta_l = offset_l / components + sum_m omega_m
    directions[m][l]. Its rows (components, offset) and (0, directions[m]) span the integer vectors orthogonal to all relations
    (k_0, k), k_0 + k . theta = 0: no approximate number takes part.

    Source: "Scaling Limits of Long-Context Transformers", Appendix F (H_q) and the proof of Proposition F.7.
    """

    components: int = eqx.field(static=True)
    """The number of connected components, a cyclic group."""
    offset: tuple[int, ...] = eqx.field(static=True)
    directions: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    origin: str = eqx.field(static=True)
    """How the relations are known, and what was searched where they are not."""

    @classmethod
    def from_relations(cls, planes: int, relations: Sequence[Sequence[int]], origin: str = "given") -> "Subgroup":
        """The subgroup of `planes` phases in which exactly the rational combinations of these integer vectors (k_0, k_1 ... k_L)
        are relations, k_0 + k . theta = 0. Raises `ValueError` for vectors of another length and where 1 = 0 follows."""
        rows = _vectors(relations, whole("planes", planes, 0))
        basis = _lattice.kernel(rows, planes + 1)
        consistent = any(v[0] for v in basis)
        require(consistent, "relations", "be relations that some frequencies satisfy", [list(row) for row in rows])
        return cls._from_basis(basis, origin)

    @classmethod
    def _from_basis(cls, basis, origin: str) -> "Subgroup":
        head, rest = _lattice.first_column(basis)
        return cls(head[0], tuple(c % head[0] for c in head[1:]), tuple(v[1:] for v in rest), origin)

    @classmethod
    def of(
        cls,
        frequencies: AbstractFrequencies,
        *,
        planes: Sequence[int] | None = None,
        relations: Sequence[Sequence[int]] | None = None,
        search_bound: int | float | None = None,
    ) -> "Subgroup":
        """The subgroup of these frequencies, or its projection on some of the planes (by number; default all).

        Where the frequencies know their relations, these are used. Otherwise they have to be given, all of them
        (`relations`: integer vectors (k_0, k_1 ... k_L), an empty list for independent frequencies), or searched among the
        integer vectors with at most three non-zero k_l, |k_l| <= `search_bound`, of the planes asked for; or both. A search that
        finds nothing proves independence up to its bound only, which `origin` states.

        Raises `ValueError` where relations are neither known, given nor searched; for given ones that the frequencies, to the
        precision they have (2^-96 of a turn; for given angles a unit in the last place of float64), do not satisfy, or where
        they know their own; and for bounds that the precision does not carry (see `search_relations`).
        """
        chosen = list(range(frequencies.planes)) if planes is None else [int(plane) for plane in planes]
        known = frequencies.relations()
        if known is not None:
            require(relations is None, "relations", "be left out: these frequencies know their own", relations)
            return cls.from_relations(frequencies.planes, known, "known").restricted(chosen)
        if relations is None and search_bound is None and chosen:
            reject(
                "relations",
                "be given (integer vectors [k_0, k_1 ... k_L] with k_0 + sum k_l theta_l = 0, an empty list for independent"
                " frequencies) or searched (`search_bound`), since these frequencies do not know theirs",
                None,
            )
        turns, errors = frequencies.turns, turn_errors(frequencies)
        given = _vectors(() if relations is None else relations, frequencies.planes)
        for row in given:
            _verify(row, turns, errors)
        group = cls.from_relations(frequencies.planes, given, "given" if given else "given as independent").restricted(chosen)
        if search_bound is None or not chosen:
            return group
        bound = whole("search_bound", search_bound, 1)
        found = search_relations([turns[p] for p in chosen], bound, [errors[p] for p in chosen])
        origin = f"searched: integer vectors with at most {TERMS} non-zero entries of size at most {bound}"
        known_too = "" if relations is None else "given and "
        return cls.from_relations(len(chosen), [*group.relations(), *found], known_too + origin)

    @property
    def planes(self) -> int:
        """The number L of phases."""
        return len(self.offset)

    @property
    def dimension(self) -> int:
        """The dimension of H as a manifold."""
        return len(self.directions)

    @property
    def order(self) -> int | None:
        """The number of elements, the period of the orbit; None where H is not finite."""
        return None if self.dimension else self.components

    def relations(self) -> tuple[tuple[int, ...], ...]:
        """A basis of all integer vectors (k_0, k) with k_0 + k . theta = 0."""
        return tuple(_lattice.shortened(_lattice.kernel(self._basis(), self.planes + 1)))

    def annihilates(self, k: Sequence[int]) -> bool:
        """Whether k . theta is an integer: whether the character e^{2 pi i k . x} is 1 on H (otherwise its Haar mean is 0).

        Raises `ValueError` unless k is an integer vector [plane].
        """
        (vector,) = _vectors([[0, *k]], self.planes)
        products = [sum(x * y for x, y in zip(vector, row, strict=True)) for row in self._basis()]
        return products[0] % self.components == 0 and not any(products[1:])

    def restricted(self, planes: Sequence[int]) -> "Subgroup":
        """The projection of H on some of the planes: the subgroup of their frequencies alone."""
        if list(planes) == list(range(self.planes)):
            return self
        columns = len(planes) + 1
        rows = [[row[0], *(row[1 + plane] for plane in planes)] for row in self._basis()]
        rows = _lattice.kernel(_lattice.kernel(rows, columns), columns)
        return self._from_basis(rows, self.origin)

    def factors(self) -> list[tuple[list[int], "Subgroup"]]:
        """H as a direct product: groups of planes and the projections on them. Planes of one group share a direction, or a chain
        of such; those that the components move are all in one."""
        joined = [{plane} for plane in range(self.planes)]
        for row in self._basis():
            planes = {plane for plane, entry in enumerate(row[1:]) if entry}
            apart = [block for block in joined if not block & planes]
            together = set().union(*(block for block in joined if block & planes))
            joined = [*apart, together] if together else apart
        groups = sorted(sorted(block) for block in joined)
        return [(planes, self.restricted(planes)) for planes in groups]

    def points(
        self, component: UInt64[np.ndarray, " m"] | np.ndarray, z: UInt64[np.ndarray, "m dimension"]
    ) -> Float64[np.ndarray, "m plane"]:
        """The elements j offset / components + sum_m z_m directions[m], in turns, [-1/2, 1/2].

        component: j in [0, components), integers (objects beyond 64 bits). z: 64-bit fractions of a turn, whose integer products
        drop whole turns exactly, however large the directions.
        """
        wrapped = np.array([[w % 2**64 for w in row] for row in self.directions], np.uint64).reshape(self.dimension, self.planes)
        phase = (z @ wrapped).view(np.int64) * 2.0**-64
        if self.components > 1:
            small = self.components < _SMALL
            kind, size = (np.uint64, np.uint64(self.components)) if small else (object, self.components)
            j, c = component.astype(kind)[:, None], np.array(self.offset, kind)
            phase = phase + np.asarray((j * c % size) / self.components, np.float64)
        return phase - np.round(phase)

    def sample(self, rng: np.random.Generator, count: int) -> Float64[np.ndarray, "count plane"]:
        """Independent elements with the Haar (uniform) law of H, in turns. Raises `ValueError` unless count >= 0."""
        size = whole("count", count, 0)
        z = rng.integers(0, 2**64, (size, self.dimension), np.uint64)
        return self.points(self.draw_components(rng, size), z)

    def draw_components(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Uniform integers below `components`; objects beyond 64 bits, uniform up to 2^-64."""
        if self.components <= 2**63:
            return rng.integers(0, self.components, count, np.uint64)
        width = self.components.bit_length() // 8 + 9
        draws = [int.from_bytes(rng.bytes(width), "little") % self.components for _ in range(count)]
        return np.array(draws, object)

    def describe(self) -> dict[str, Any]:
        """Dimension, components and the origin of the relations as JSON-able values."""
        return {"planes": self.planes, "dimension": self.dimension, "components": self.components, "relations": self.origin}

    def _basis(self) -> list[tuple[int, ...]]:
        return [(self.components, *self.offset), *((0, *row) for row in self.directions)]


def turn_errors(frequencies: AbstractFrequencies) -> list[Fraction]:
    """How far `turns` may be from the frequencies that they stand for: 0 for exact ones, 2^-96 for computed ones, and a unit in
    the last place for angles that were given as float64 numbers."""
    if isinstance(frequencies, GivenFrequencies):
        turn = Fraction(710, 113)  # 2 pi, near enough for an error
        return [abs(Fraction(angle)) / turn * _ANGLE_ERROR for angle in frequencies.angles]
    return [Fraction(0) if frequencies.exact else _TURN_ERROR] * frequencies.planes


def _vectors(relations: Any, planes: int) -> list[tuple[int, ...]]:
    """The rows as tuples of Python integers."""
    must = f"be integer vectors of {planes + 1} entries, k_0 and one a plane"
    try:
        rows = [list(row) for row in relations]
    except TypeError:
        reject("relations", must, relations)
    for row in rows:
        whole_numbers = all(hasattr(k, "__index__") and not isinstance(k, bool | np.bool_) for k in row)
        require(len(row) == planes + 1 and whole_numbers, "relations", must, row)
    return [tuple(int(k) for k in row) for row in rows]


def _verify(row: Sequence[int], turns: Sequence[Fraction], errors: Sequence[Fraction]) -> None:
    residual = row[0] + sum((k * turn for k, turn in zip(row[1:], turns, strict=True)), Fraction(0))
    allowed = sum((abs(k) * error for k, error in zip(row[1:], errors, strict=True)), Fraction(0))
    must = f"hold for the frequencies to within {float(allowed):.2g} turns"
    require(abs(residual) <= allowed, "relations", must, f"of residual {float(residual):.3g} for {list(row)}")
