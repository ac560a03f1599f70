"""Frequencies of rotary position embedding: how far each plane turns from one position to the next."""

import abc
import functools
import math
import re
from collections.abc import Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import equinox as eqx

from scaling._check import finite_above, finite_at_least, real_array, reject, require, whole
from scaling.rope.relations import Relation, class_relations, perfect_power

_CONTEXT = Context(prec=80)
_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798215")
_LARGEST_ANGLE = 1e15  # radians per position: 64 digits of its fraction of a turn are left

_FRACTION = re.compile(r"\s*[+-]?(\d{1,30}(/\d{1,30})?|\d{0,9}\.\d{1,30})\s*")  # no exponent, which may be of any size


class AbstractFrequencies(eqx.Module):
    """One frequency a plane: theta_l = vartheta_l / (2 pi) turns per position, modulo one turn (dimensionless)."""

    planes: eqx.AbstractVar[int]  # the number L of planes

    @property
    @abc.abstractmethod
    def turns(self) -> tuple[Fraction, ...]:
        """theta_l in [0, 1): exact where `exact`, otherwise within 2^-100."""

    @property
    @abc.abstractmethod
    def exact(self) -> bool:
        """Whether `turns` are the frequencies themselves, not approximations of irrational ones."""

    @abc.abstractmethod
    def relations(self) -> tuple[Relation, ...] | None:
        """A basis of all integer vectors (k_0, k_1, ..., k_L) with k_0 + sum_l k_l theta_l = 0, or None where they are not known.

        They span every such vector by integer combinations, so that the orbit closure of Theorem F.3 is their annihilator.
        """

    @abc.abstractmethod
    def describe(self) -> dict[str, Any]:
        """The kind and parameters as JSON-able values."""


class Geometric(AbstractFrequencies):
    """vartheta_l = base^{-l/L} radians per position, l = 0..L-1 (RoFormer; d/2 = L planes give base^{-2l/d}).

    base > 1 and finite, planes >= 1; `ValueError` otherwise.
    """

    base: float = eqx.field(static=True)
    planes: int = eqx.field(static=True)

    def __init__(self, base: float | int, planes: int):
        self.base = finite_above("base", base, 1.0)
        self.planes = whole("planes", planes, 1)

    @property
    def turns(self) -> tuple[Fraction, ...]:
        return _scaled_geometric(self.base, (Fraction(1),) * self.planes)

    @property
    def exact(self) -> bool:
        return False

    def relations(self) -> tuple[Relation, ...] | None:
        """Known for an integer base: all of them come from powers of the base that are rational, since pi is transcendental."""
        return _geometric_relations(self.base, (Fraction(1),) * self.planes)

    def describe(self) -> dict[str, Any]:
        return {"kind": "geometric", "base": self.base, "planes": self.planes}


class Yarn(AbstractFrequencies):
    """Geometric frequencies stretched for contexts longer than those of training: YaRN's "NTK-by-parts" (Peng et al. 2023,
    arXiv:2309.00071, section 3.2).

    vartheta_l = base^{-l/L} (1 - r_l + r_l / factor). The ramp r_l is 0 for planes that turn more than beta_fast times in
    `original_length` positions, 1 for those that turn less than beta_slow times, and linear in l between, with the ends rounded
    outwards to whole planes: the form of the released code and of transformers (the paper writes it linear in the number of
    turns). YaRN's attention temperature is not a frequency: it multiplies beta.

    base > 1, planes >= 1, factor >= 1, beta_fast >= beta_slow > 0 and original_length >= 2 pi beta_slow; `ValueError` otherwise.
    """

    base: float = eqx.field(static=True)
    planes: int = eqx.field(static=True)
    factor: float = eqx.field(static=True)
    original_length: int = eqx.field(static=True)
    beta_fast: float = eqx.field(static=True)
    beta_slow: float = eqx.field(static=True)

    def __init__(
        self,
        base: float | int,
        planes: int,
        factor: float | int,
        original_length: int | float,
        beta_fast: float | int = 32,
        beta_slow: float | int = 1,
    ):
        self.base = finite_above("base", base, 1.0)
        self.planes = whole("planes", planes, 1)
        self.factor = finite_at_least("factor", factor, 1.0)
        self.beta_slow = finite_above("beta_slow", beta_slow, 0.0)
        self.beta_fast = finite_at_least("beta_fast", beta_fast, self.beta_slow)
        self.original_length = whole("original_length", original_length, 1)
        least = 2 * math.pi * self.beta_slow
        must = f"be >= 2 pi beta_slow = {least:.6g}"
        require(self.original_length >= least, "original_length", must, original_length)

    @property
    def turns(self) -> tuple[Fraction, ...]:
        return _scaled_geometric(self.base, self.scales)

    @property
    def scales(self) -> tuple[Fraction, ...]:
        """What each plane's frequency is multiplied with, between 1/factor and 1."""
        # Lengths for which the released code's ends cross (every plane fast) leave all planes as they are here.
        low = max(math.floor(self._plane(self.beta_fast)), 0)
        high = min(math.ceil(self._plane(self.beta_slow)), 2 * self.planes - 1)
        width = Fraction(high - low) if high > low else Fraction(1, 1000)  # as in the released code where the ends meet
        ramps = [min(max((plane - low) / width, Fraction(0)), Fraction(1)) for plane in range(self.planes)]
        return tuple(1 - ramp + ramp / Fraction(self.factor) for ramp in ramps)

    def _plane(self, rotations: float) -> float:
        """The plane, not rounded, that turns `rotations` times in the original length."""
        return self.planes * math.log(self.original_length / (2 * math.pi * rotations)) / math.log(self.base)

    @property
    def exact(self) -> bool:
        return False

    def relations(self) -> tuple[Relation, ...] | None:
        """Known for an integer base and an integer factor: the ramp is rational."""
        return _geometric_relations(self.base, self.scales) if self.factor.is_integer() else None

    def describe(self) -> dict[str, Any]:
        names = ("base", "planes", "factor", "original_length", "beta_fast", "beta_slow")
        return {"kind": "yarn"} | {name: getattr(self, name) for name in names}


class GivenFrequencies(AbstractFrequencies):
    """Given angles vartheta_l in radians per position, taken as the exact values of their float64 numbers.

    At least one, finite, at most 1e15 in size; `ValueError` otherwise. Relations between them are not known: they have to be
    searched, with a bound, because numbers that stand for irrational ones are all multiples of one power of two.
    """

    angles: tuple[float, ...] = eqx.field(static=True)

    def __init__(self, angles: Any):
        array = real_array("angles", angles, "be a list of real numbers")
        require(array.ndim == 1 and array.size > 0, "angles", "be a list of at least one number", f"of shape {array.shape}")
        for angle in array.tolist():
            must = f"be finite and at most {_LARGEST_ANGLE:g} in size"
            require(math.isfinite(angle) and abs(angle) <= _LARGEST_ANGLE, "angles", must, angle)
        self.angles = tuple(angle + 0.0 for angle in array.tolist())  # -0.0 is 0.0

    @property
    def planes(self) -> int:
        return len(self.angles)

    @property
    def turns(self) -> tuple[Fraction, ...]:
        return tuple(Fraction(_CONTEXT.divide(Decimal(angle), _CONTEXT.multiply(2, _PI))) % 1 for angle in self.angles)

    @property
    def exact(self) -> bool:
        return False

    def relations(self) -> tuple[Relation, ...] | None:
        return None

    def describe(self) -> dict[str, Any]:
        return {"kind": "given", "angles": list(self.angles)}


class FractionsOfATurn(AbstractFrequencies):
    """Exact rational frequencies: theta_l = p/q turns per position, given as `Fraction`s, strings "p/q", pairs (p, q) or integers
    (the orbit is then periodic). Whole turns are dropped.

    At least one, with denominators other than 0; `ValueError` otherwise.
    """

    fractions: tuple[Fraction, ...] = eqx.field(static=True)

    def __init__(self, turns: Any):
        listed = isinstance(turns, Sequence) and not isinstance(turns, str | bytes)
        require(listed and len(turns) > 0, "turns", "be a list of at least one fraction", turns)
        self.fractions = tuple(fraction_of_a_turn(turn) % 1 for turn in turns)

    @property
    def planes(self) -> int:
        return len(self.fractions)

    @property
    def turns(self) -> tuple[Fraction, ...]:
        return self.fractions

    @property
    def exact(self) -> bool:
        return True

    def relations(self) -> tuple[Relation, ...] | None:
        return class_relations(self.planes, [([0, *range(1, self.planes + 1)], [Fraction(1), *self.fractions])])

    def describe(self) -> dict[str, Any]:
        return {"kind": "fractions", "turns": [str(turn) for turn in self.fractions]}


def fraction_of_a_turn(value: Any) -> Fraction:
    """A fraction from itself, an integer, a pair (p, q), or text such as "1/5" or "0.2"; `ValueError` for anything else."""
    must = "be fractions of a turn (1/5, a pair (1, 5) or a Fraction) with denominators other than 0"
    try:
        if isinstance(value, tuple | list) and len(value) == 2 and all(_whole(part) for part in value):
            return Fraction(int(value[0]), int(value[1]))
        if isinstance(value, Fraction):
            return value
        if _whole(value) or (isinstance(value, str) and _FRACTION.fullmatch(value)):
            return Fraction(value)  # pyright: ignore[reportArgumentType, reportCallIssue]
    except (ValueError, ZeroDivisionError):
        pass
    reject("turns", must, value)


def _whole(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


@functools.lru_cache(64)
def _scaled_geometric(base: float, scales: tuple[Fraction, ...]) -> tuple[Fraction, ...]:
    """scale_l base^{-l/L} / (2 pi), from 80 digits."""
    planes = len(scales)
    step = _CONTEXT.divide(_CONTEXT.ln(Decimal(base)), Decimal(planes))
    power = [_CONTEXT.exp(_CONTEXT.multiply(Decimal(-plane), step)) for plane in range(planes)]
    turn = _CONTEXT.multiply(2, _PI)
    return tuple(scale * Fraction(_CONTEXT.divide(p, turn)) for scale, p in zip(scales, power, strict=True))


def _geometric_relations(base: float, scales: tuple[Fraction, ...]) -> tuple[Relation, ...] | None:
    """All relations between the numbers scale_l b^{-l/L} / (2 pi) and 1, for an integer base b and rational scales.

    Write b = c^g with g as large as possible, h = gcd(L, g) and D = L / h. Then b^{1/L} = c^{(g/h)/D}, and x^D - c is irreducible
    over the rationals, because c is no power. So b^{-l/L} and b^{-m/L} are commensurable exactly where l = m modulo D, with ratio
    c^{(g/h)(m-l)/D}, and there are no relations across classes. None involves 1, since pi is transcendental.
    """
    if not base.is_integer():
        return None
    planes = len(scales)
    root, exponent = perfect_power(int(base))
    common = math.gcd(planes, exponent)
    ratio, period = root ** (exponent // common), planes // common
    classes = []
    for first in range(period):
        members = range(first, planes, period)
        values = [scales[plane] / Fraction(ratio) ** step for step, plane in enumerate(members)]
        classes.append(([plane + 1 for plane in members], values))
    return class_relations(planes, classes)
