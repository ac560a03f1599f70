"""The tables of a sweep file: the grid, the density of a key, and the context."""

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, model_validator

from scaling._check import context_length, finite_at_least, whole
from scaling.config.fields import Matrix, Model, Numbers, Vector, axis, finite, one_of, turns_of
from scaling.context.build import KINDS, build_context
from scaling.rope.pairing import PAIRINGS


class Axes(Model):
    """The axes of the grid: dimensions d, context lengths n, and one axis of the inverse temperature."""

    d: axis(lambda v: whole("_", v, 2), int, integral=True)  # pyright: ignore[reportInvalidTypeForm]
    n: axis(lambda v: context_length(v), float, integral=True)  # pyright: ignore[reportInvalidTypeForm]
    beta: axis(lambda v: finite_at_least("_", v, 0.0), float) | None = None  # pyright: ignore[reportInvalidTypeForm]
    gamma: axis(lambda v: finite_at_least("_", v, 0.0), float) | None = None  # pyright: ignore[reportInvalidTypeForm]
    exponent: axis(finite, float) | None = None  # pyright: ignore[reportInvalidTypeForm]


class Uniform(Model):
    """`kind = "uniform"`: keys uniform on the sphere."""

    kind: Literal["uniform"] = "uniform"

    def build(self, d: int):
        """The density on S^{d-1}."""
        from scaling.density import Uniform

        return Uniform(d)


class VonMisesFisher(Model):
    """`kind = "vmf"`: density proportional to exp(concentration <mean, x>); the mean is the first axis where it is left out."""

    kind: Literal["vmf"]
    concentration: Annotated[float, BeforeValidator(lambda v: finite_at_least("_", v, 0.0))]
    mean: Vector | None = None

    def build(self, d: int):
        """The density on S^{d-1}."""
        from scaling.density import VonMisesFisher

        return VonMisesFisher(np.eye(1, d)[0] if self.mean is None else np.asarray(self.mean), self.concentration)


class Quadratic(Model):
    """`kind = "quadratic"`: density proportional to exp(x^T matrix x)."""

    kind: Literal["quadratic"]
    matrix: Matrix

    def build(self, d: int):
        """The density on S^{d-1}, of which the matrix is d x d."""
        from scaling.density import Quadratic

        return Quadratic(matrix=np.asarray(self.matrix))


DENSITIES: dict[str, type[Model]] = {"uniform": Uniform, "vmf": VonMisesFisher, "quadratic": Quadratic}


class Context(Model):
    """`[context]`: how the keys of a row depend on each other and on their position.

    `kind` is "iid" (independent keys), "rope" (independent keys under RoPE), "moving-average" (`weights`, or `m` for m + 1 equal
    ones; `drift` is the mean of the innovations) or "clusters" (`size`, or the probability `repeat`). RoPE has `base` (default
    10000), `angles` (radians a position) or `turns` (fractions such as "1/5"), YaRN's `factor` and `original_length`, the number
    `rotated` of rotated coordinates, the `pairing` and the position `first` of the first key; any of these puts RoPE on top of
    the other kinds, too.
    """

    kind: Annotated[str, one_of(KINDS)]
    base: Annotated[float, BeforeValidator(finite)] | None = None
    angles: Numbers | None = None
    turns: Annotated[tuple[str, ...], BeforeValidator(turns_of)] | None = None
    factor: Annotated[float, BeforeValidator(finite)] | None = None
    original_length: Annotated[int, BeforeValidator(lambda v: whole("_", v, 1))] | None = None
    rotated: Annotated[int, BeforeValidator(lambda v: whole("_", v, 0))] | None = None
    pairing: Annotated[str, one_of(PAIRINGS)] | None = None
    first: Annotated[int, BeforeValidator(lambda v: whole("_", v, 0))] | None = None
    weights: Numbers | None = None
    m: Annotated[int, BeforeValidator(lambda v: whole("_", v, 0))] | None = None
    drift: Numbers | None = None
    size: Annotated[int, BeforeValidator(lambda v: whole("_", v, 1))] | None = None
    repeat: Annotated[float, BeforeValidator(finite)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, value: Any) -> Any:
        return {"kind": value} if isinstance(value, str) else value

    @property
    def settings(self) -> dict[str, Any]:
        """The keys that were given, beside the kind."""
        return self.model_dump(exclude={"kind"}, exclude_none=True)

    def build(self, density):
        """The context of this description over keys of a density.

        Raises `ValueError` for keys that do not go together, and what the context raises, in terms of the keys.
        """
        return build_context(density, kind=self.kind, **self.settings)
