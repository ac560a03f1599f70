"""What a context offers: the joint law of the n keys of one attention row."""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt32

from scaling._check import unit_vector
from scaling.d2q import AbstractD2Q
from scaling.density import AbstractDensity
from scaling.random import Stream


class AbstractContext(eqx.Module):
    """The joint law of the keys of a row, numbered from 0.

    `keys` is a pure function of (stream, index) that may be jitted and mapped over streams; the other methods work on the host.
    """

    density: eqx.AbstractVar[AbstractDensity]  # the marginal law of one key

    @property
    @abc.abstractmethod
    def d(self) -> int:
        """The dimension of the space that the keys and the query live in."""

    @abc.abstractmethod
    def keys(self, stream: Stream, index: UInt32[Array, " m"], dtype: Any = jnp.float32) -> Float[Array, "m d"]:
        """The keys with the numbers `index`, unit vectors [m, d]; the numbers must be consecutive.

        A key does not depend on the block it is drawn in.
        """

    @abc.abstractmethod
    def d2q(self, query: np.ndarray) -> AbstractD2Q | None:
        """The law of the D2Qs at a query where they are independent and have one law; None where they are not."""

    @abc.abstractmethod
    def marginal(self, query: np.ndarray) -> AbstractD2Q:
        """The law of the D2Q of one key at a query, whatever the other keys do; under RoPE that of a key at position 0."""

    @abc.abstractmethod
    def describe(self) -> dict[str, Any]:
        """The kind and parameters as JSON-able values: what is hashed into the random stream and kept in stores."""


def query_of(query, d: int) -> Float[np.ndarray, " d"]:
    """The query as a float64 unit vector [d]; the first axis where none is given. Raises `ValueError` unless it is a finite
    unit vector."""
    if query is None:
        return np.eye(1, d)[0]
    return unit_vector("query", query, d)
