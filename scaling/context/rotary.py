"""Rotary position embedding over the keys of another context."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt32

from scaling._check import reject, require
from scaling.context.base import AbstractContext
from scaling.context.independent import Independent, as_context
from scaling.d2q import AbstractD2Q
from scaling.density import AbstractDensity, ProjectedNormal, Uniform, VonMisesFisher
from scaling.random import Stream
from scaling.rope import Rope


class Rotary(AbstractContext):
    """Keys that a query meets through RoPE (Appendix F): <R_0 q, R_i x_i> = <u_i, x_i>, with the targets u_i = R_i^T q.

    The keys x_i are those of `context`; what turns is the query. So the D2Q of key i is U_i = 1 - <u_i, x_i>: independent keys
    have independent D2Qs, but not identical ones, unless their density does not change under the rotations.

    Raises `ValueError` unless `context` is a density or a context that does not rotate itself, and `rope` acts on its d.
    """

    context: AbstractContext
    rope: Rope

    density: AbstractDensity
    """The marginal law of x_i, before the rotation."""

    def __init__(self, context: Any, rope: Rope):
        self.context = as_context(context)
        if isinstance(context, Rotary):
            reject("context", "not be rotated already", "under RoPE")
        require(isinstance(rope, Rope), "rope", "be a Rope", rope)
        require(rope.d == self.context.d, "rope", f"have d = {self.context.d}", f"of d = {rope.d}")
        self.rope, self.density = rope, self.context.density

    @property
    def d(self) -> int:
        return self.context.d

    def keys(self, stream: Stream, index: UInt32[Array, " m"], dtype: Any = jnp.float32) -> Float[Array, "m d"]:
        """The keys before their rotation: it is the query that moves, to `rope.targets`."""
        return self.context.keys(stream, index, dtype)

    def at(self, query: np.ndarray) -> AbstractContext:
        """The context without the rotation where that has the same D2Qs in law: the rotations fix the query, or the keys are
        independent and their density does not change under them (Remark F.5). This context otherwise."""
        invariant = isinstance(self.context, Independent) and _invariant(self.density, self.rope)
        return self.context if invariant or self.rope.fixes(query) else self

    def d2q(self, query: np.ndarray) -> AbstractD2Q | None:
        at = self.at(query)
        return None if at is self else at.d2q(query)

    def marginal(self, query: np.ndarray) -> AbstractD2Q:
        return self.context.marginal(query)

    def describe(self) -> dict[str, Any]:
        """The kind, the context and the embedding."""
        return {"kind": "rotary", "context": self.context.describe(), "rope": self.rope.describe()}


def _invariant(density: AbstractDensity, rope: Rope) -> bool:
    """Whether a density is known not to change under the rotations."""
    if isinstance(density, VonMisesFisher):
        return density.concentration == 0 or rope.fixes(density.mean)
    if isinstance(density, ProjectedNormal):
        return density.norm == 0 or rope.fixes(density.direction)
    return isinstance(density, Uniform)
