"""Keys that come in clusters of equal ones, where Assumption 2(iii) fails (Remark F.2).

Source: "Scaling Limits of Long-Context Transformers", Appendix F. Where every key is repeated, points near the query come in
clusters, and the limit of the weights is that of a cluster-Poisson process.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt32

from scaling import random
from scaling._check import finite_at_least, require, whole
from scaling.context.base import AbstractContext
from scaling.d2q import AbstractD2Q
from scaling.density import AbstractDensity
from scaling.random import Stream

_LARGEST_SIZE = 1 << 24
_LONGEST = 4096  # keys that are searched for the first key of a cluster
_MISSED = 2.0**-40  # the probability with which a cluster is longer than that
LARGEST_REPEAT = math.floor(1e6 * _MISSED ** (1 / _LONGEST)) / 1e6
"""The largest probability of a repetition that `GeometricClusters` takes, 0.993253: clusters of 148 keys on average."""


class FixedClusters(AbstractContext):
    """Every key `size` times in a row: x_i = y_{floor((i + shift) / size)}, with y_0, y_1, ... independent keys of a density.

    The shift is uniform on 0 ... size - 1, one for each stream, which makes the keys stationary; so the first cluster and the
    last of a row may be cut. Raises `ValueError` unless `density` is a density and `size` an integer from 1 to 2^24.
    """

    density: AbstractDensity
    size: int = eqx.field(static=True)

    def __init__(self, density: Any, size: Any):
        self.density = _density(density)
        self.size = whole("size", size, 1)
        require(self.size <= _LARGEST_SIZE, "size", f"be at most {_LARGEST_SIZE}", size)

    @property
    def d(self) -> int:
        return self.density.d

    @property
    def extremal_index(self) -> float:
        """1 / size: the reciprocal of the mean number of equal keys, in the limit of long rows. Dimensionless."""
        return 1 / self.size

    @property
    def mean_cluster_size(self) -> float:
        """The number of equal keys in a row."""
        return float(self.size)

    def keys(self, stream: Stream, index: UInt32[Array, " m"], dtype: Any = jnp.float32) -> Float[Array, "m d"]:
        shift = jnp.uint32(0)
        for word in random.words(stream, jnp.uint32(0), jnp.uint32(0)):  # 64 bits modulo the size, eight by eight
            for place in (24, 16, 8, 0):
                shift = ((shift << 8) | ((word >> jnp.uint32(place)) & jnp.uint32(0xFF))) % jnp.uint32(self.size)
        size = jnp.uint32(self.size)
        source = index // size + (index % size + shift >= size).astype(jnp.uint32)  # i + shift might overflow
        return self.density.keys(stream.fold_in(jnp.uint32(1)), source, dtype)

    def d2q(self, query: np.ndarray) -> AbstractD2Q | None:
        """The density's law for size 1, where keys are independent; otherwise None."""
        return self.density.d2q(query) if self.size == 1 else None

    def marginal(self, query: np.ndarray) -> AbstractD2Q:
        return self.density.d2q(query)

    def describe(self) -> dict[str, Any]:
        """The kind, the size and the density's own description."""
        return {"kind": "fixed-clusters", "size": self.size, "density": self.density.describe()}


class GeometricClusters(AbstractContext):
    """x_i is x_{i-1} again with probability `repeat`, and a new key of the density otherwise: geometric cluster sizes.

    Key i is the key number s(i) of the density, s(i) the last new one among 0 ... i. So that a key can be drawn without the ones
    before it, at most 4096 are searched: longer clusters, of probability below 2^-40, are cut. Raises `ValueError` unless
    `density` is a density and `repeat` in [0, 1), at most `LARGEST_REPEAT` = 0.993253.
    """

    density: AbstractDensity
    repeat: float = eqx.field(static=True)

    def __init__(self, density: Any, repeat: Any):
        self.density = _density(density)
        self.repeat = finite_at_least("repeat", repeat, 0.0)
        require(self.repeat < 1, "repeat", "be in [0, 1)", repeat)
        must = f"be at most {LARGEST_REPEAT}, since the start of a cluster is searched among {_LONGEST} keys"
        require(self.repeat <= LARGEST_REPEAT, "repeat", must, repeat)

    @property
    def d(self) -> int:
        return self.density.d

    @property
    def extremal_index(self) -> float:
        """1 - repeat: the reciprocal of the mean number of equal keys, in the limit of long rows. Dimensionless."""
        return 1 - self.repeat

    @property
    def mean_cluster_size(self) -> float:
        """The mean number of equal keys in a row, 1 / (1 - repeat)."""
        return 1 / (1 - self.repeat)

    def keys(self, stream: Stream, index: UInt32[Array, " m"], dtype: Any = jnp.float32) -> Float[Array, "m d"]:
        """Whether a key is new is decided by 64 bits of its own."""
        return self.density.keys(stream.fold_in(jnp.uint32(1)), self._sources(stream, index), dtype)

    def _sources(self, stream: Stream, index):
        """s(i), a pure function of the stream and i: the last new key among the `reach` up to i, or the first of them."""
        if self.repeat == 0 or index.shape[0] == 0:
            return index
        doublings = max(0, math.ceil(math.log2(math.log(_MISSED) / math.log(self.repeat))))
        reach = 2**doublings
        ahead = index[0] + jnp.arange(index.shape[0] + reach - 1, dtype=jnp.uint32)  # reach - 1 more than the position
        position = ahead - jnp.uint32(reach - 1)
        threshold = int(self.repeat * 2.0**64)
        high, low = jnp.uint32(threshold >> 32), jnp.uint32(threshold & 0xFFFFFFFF)
        first, second = random.words(stream, position, jnp.uint32(0))
        new = (first > high) | ((first == high) & (second >= low)) | (position == 0)
        last = jnp.where(new & (ahead >= reach - 1), position, jnp.uint32(0))
        size = last.shape[0]

        def double(k, last):
            # A loop, since XLA would search again for each coordinate in straight code.
            before = jax.lax.dynamic_slice_in_dim(jnp.concatenate([jnp.zeros_like(last), last]), size - (1 << k), size)
            return jnp.maximum(last, before)

        last = jax.lax.fori_loop(0, doublings, double, last)[reach - 1 :]
        return jnp.maximum(last, jnp.maximum(index, jnp.uint32(reach - 1)) - jnp.uint32(reach - 1))

    def d2q(self, query: np.ndarray) -> AbstractD2Q | None:
        """The density's law where nothing is repeated; otherwise None."""
        return self.density.d2q(query) if self.repeat == 0 else None

    def marginal(self, query: np.ndarray) -> AbstractD2Q:
        return self.density.d2q(query)

    def describe(self) -> dict[str, Any]:
        """The kind, the probability of a repetition and the density's own description."""
        return {"kind": "geometric-clusters", "repeat": self.repeat, "density": self.density.describe()}


def _density(value: Any) -> AbstractDensity:
    require(isinstance(value, AbstractDensity), "density", "be a density", value)
    return value
