"""A context from plain settings, as sweep files and the command line have them."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from scaling._check import known, reject
from scaling.context.base import AbstractContext
from scaling.context.clusters import FixedClusters, GeometricClusters
from scaling.context.independent import Independent
from scaling.context.moving_average import MovingAverage
from scaling.context.rotary import Rotary
from scaling.density import AbstractDensity, Uniform
from scaling.rope import FractionsOfATurn, Geometric, GivenFrequencies, Rope, Yarn

KINDS = ("iid", "rope", "moving-average", "clusters")
ROTATION = ("base", "angles", "turns", "factor", "original_length", "rotated", "pairing", "first")
_OWNERS = {
    "weights": "moving-average", "m": "moving-average", "drift": "moving-average", "size": "clusters", "repeat": "clusters",
}  # fmt: skip


def build_context(density: AbstractDensity, *, kind: str = "iid", **settings: Any) -> AbstractContext:
    """The context over keys of a density that these settings describe.

    `kind` is "iid", "rope" (independent keys under RoPE), "moving-average" (`weights`, or `m` for m + 1 equal ones, and the mean
    `drift` of the innovations) or "clusters" (`size`, or the probability `repeat`). RoPE takes `base` (default 10000), `angles`
    (radians a position) or `turns` (fractions of a turn), YaRN's `factor` and `original_length`, `rotated`, `pairing` and
    `first`; any of these puts it on top of moving averages and clusters, too.

    Raises `ValueError` for an unknown kind, settings that do not belong to it or together, and all that the parts raise.
    """
    known("context", kind, KINDS)
    given = {name: value for name, value in settings.items() if value is not None}
    for name in given:
        if kind == "iid" or (name not in ROTATION and _OWNERS[name] != kind):
            reject(name, f"be left out where the context is {kind}", given[name])
    rotation = {name: given.pop(name) for name in ROTATION if name in given}
    if kind == "moving-average":
        context = _moving_average(density, **given)
    elif kind == "clusters":
        context = _clusters(density, **given)
    else:
        context = Independent(density)
    return Rotary(context, rope_of(density.d, **rotation)) if rotation or kind == "rope" else context


def rope_of(
    d: int,
    *,
    base: float | int | None = None,
    angles: Sequence[float | int] | None = None,
    turns: Sequence[str | Fraction] | None = None,
    factor: float | int | None = None,
    original_length: int | None = None,
    rotated: int | None = None,
    pairing: str = "interleaved",
    first: int = 1,
) -> Rope:
    """RoPE from plain settings; geometric frequencies of base 10000 unless others are given. Raises as `build_context` does."""
    lists = {name: value for name, value in (("angles", angles), ("turns", turns)) if value is not None}
    for name in lists:
        given = {"base": base, "factor": factor, "original_length": original_length, "rotated": rotated, **lists}
        for other, value in given.items():
            if value is not None and other != name:
                reject(other, f"be left out where `{name}` gives the frequencies", value)
        if len(lists[name]) > d // 2:
            reject(name, f"have at most {d // 2} frequencies, one a plane, where d = {d}", f"of length {len(lists[name])}")
    if angles is not None:
        return Rope(d, GivenFrequencies(angles), pairing=pairing, first=first)
    if turns is not None:
        return Rope(d, FractionsOfATurn(turns), pairing=pairing, first=first)
    plain = Rope.geometric(d, 10_000.0 if base is None else base, rotated=rotated, pairing=pairing, first=first)
    if factor is None and original_length is None:
        return plain
    if factor is None or original_length is None:
        missing = "factor" if factor is None else "original_length"
        reject(missing, "be given for YaRN, which takes both `factor` and `original_length`", None)
    assert isinstance(plain.frequencies, Geometric)
    yarn = Yarn(plain.frequencies.base, plain.frequencies.planes, factor, original_length)
    return Rope(d, yarn, pairing=pairing, first=first)


def _moving_average(density: AbstractDensity, *, weights=None, m=None, drift=None) -> MovingAverage:
    if not isinstance(density, Uniform):
        must = "be uniform for moving averages, whose keys are uniform or, with a `drift`, projected normal"
        reject("density", must, density.describe()["kind"])
    if (weights is None) == (m is None):
        reject("weights", "be given for moving averages, or `m` for m + 1 equal ones, and not both", weights)
    if drift is not None and len(drift) != density.d:
        reject("drift", f"have {density.d} numbers", f"of length {len(drift)}")
    return MovingAverage.equal(density.d, m, drift) if weights is None else MovingAverage(density.d, weights, drift)


def _clusters(density: AbstractDensity, *, size=None, repeat=None) -> FixedClusters | GeometricClusters:
    if (size is None) == (repeat is None):
        reject("size", "be given for clusters, or the probability `repeat` of a geometric size, and not both", size)
    return FixedClusters(density, size) if repeat is None else GeometricClusters(density, repeat)
