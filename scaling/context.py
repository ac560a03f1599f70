"""A context: the joint law of the n keys of one attention row."""

import abc

import equinox as eqx
import numpy as np
from jaxtyping import Float

from scaling._check import reject, unit_vector
from scaling.density import AbstractDensity


class AbstractContext(eqx.Module):
    """The joint law of the keys of a row."""

    density: eqx.AbstractVar[AbstractDensity]  # the marginal law of one key

    @abc.abstractmethod
    def describe(self) -> dict:
        """The kind and parameters as JSON-able values: what is hashed into the random stream and kept in stores."""


class Independent(AbstractContext):
    """Independent keys with one density (Assumption 1)."""

    density: AbstractDensity

    def describe(self) -> dict:
        """The kind and the density's own description."""
        return {"kind": "independent", "density": self.density.describe()}


def as_context(density_or_context) -> AbstractContext:
    """A context as it is, a density as independent keys of it; raises `ValueError` for anything else."""
    if isinstance(density_or_context, AbstractContext):
        return density_or_context
    if isinstance(density_or_context, AbstractDensity):
        return Independent(density_or_context)
    reject("density_or_context", "be a density or a context", density_or_context)


def query_of(query, d: int) -> Float[np.ndarray, " d"]:
    """The query as a float64 unit vector [d]; the first axis where none is given. Raises `ValueError` unless it is a finite
    unit vector."""
    if query is None:
        return np.eye(1, d)[0]
    return unit_vector("query", query, d)
