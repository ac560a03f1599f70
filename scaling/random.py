"""Random numbers by address: a draw is a pure function of a stream and a counter.

The library never splits keys inside a loop. A `Stream` is the key of one replicate; `words(stream, i, j)` are the two 32-bit
words at address (i, j) of it. So the value of a draw does not depend on how many draws stand around it, on block sizes, devices
or order. The generator is JAX's own (threefry2x32): a stream is what `jax.random.fold_in` returns, and the words are the ones
that `jax.random.bits` mixes. It is written out here because XLA then fuses it with what consumes it, 5 to 8 times as fast on a
CPU as the primitive, which loops over rounds in memory (measured in `benchmarks/`).

The transforms take raw bits and are accurate at both ends of the distribution: `jax.random.uniform` in float32 has 2^23 values
and returns 0, and `jax.random.exponential` and `jax.random.normal` inherit that.
"""

import hashlib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, UInt32

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_UNROLLED = 3  # normals of an index, up to which each pair has code of its own
_LOOPED = 16  # normals of an index, from which on their pairs are drawn one after the other

# erfinv(v) / v in float32, highest power first. Below w = -log(1 - v^2) = 5: M. Giles, "Approximating the erfinv function"
# (2010), in w - 2.5. Above: our own Chebyshev fit in sqrt(w) - 3.5 on [sqrt 5, 4.75], relative error 3e-8, since Giles' tail
# stops
# at 1 - v = 6e-8 and the 31 bits used here reach 2e-10.
_ERFINV_CENTRE = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
    0.246640727, 1.50140941,
)  # fmt: skip
_ERFINV_TAIL = (
    -1.87406451e-05, 2.74920736e-05, 8.35632288e-05, -0.000271664312, 0.000428044354, -0.000649820045, 0.00109422442,
    -0.00207125782, 0.00327677446, 1.00736943, 3.33548572,
)  # fmt: skip


Words = UInt32[Array, "..."] | UInt32[np.ndarray, "..."] | np.uint32


class Stream(eqx.Module):
    """The random numbers of one replicate, or of an array of replicates: a threefry key as two words."""

    first: Words
    second: Words

    @classmethod
    def of(cls, rng: Key[Array, ""]) -> "Stream":
        """The stream of one JAX key (threefry2x32)."""
        data = jax.random.key_data(rng)
        return cls(data[..., 0], data[..., 1])

    def fold_in(self, index: Words) -> "Stream":
        """The streams with numbers `index`; the same keys as `jax.random.fold_in`."""
        return Stream(*words(self, index ^ index, index))


def root(seed: int, *names: str) -> Stream:
    """The stream of (seed, names...): `fold_in` of the names' SHA-256 into the key of `seed`, one after the other. Computed on
    the host."""
    stream = Stream(np.zeros(1, np.uint32), np.full(1, seed, np.uint32))  # what jax.random.key(seed) holds
    for name in names:
        stream = stream.fold_in(np.full(1, stable_hash(name), np.uint32))
    return Stream(np.asarray(stream.first)[0], np.asarray(stream.second)[0])


def stable_hash(name: str) -> int:
    """A 32-bit hash of a string that is the same in every process and on every machine."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")


def words(stream: Stream, i: Words, j: Words) -> tuple[Words, Words]:
    """The two 32-bit words at address (i, j): threefry2x32 with 20 rounds. All arguments broadcast; NumPy arrays stay on the
    host."""
    schedule = (stream.first, stream.second, stream.first ^ stream.second ^ np.uint32(_PARITY))
    x, y = i + schedule[0], j + schedule[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x = x + y
            y = ((y << np.uint32(rotation)) | (y >> np.uint32(32 - rotation))) ^ x
        x = x + schedule[(group + 1) % 3]
        y = y + schedule[(group + 2) % 3] + np.uint32(group + 1)
    return x, y


def exponential(word: Words, dtype=jnp.float32) -> Float[Array, "..."]:
    """Standard exponentials from 32 random bits each: -log u, with u = v or 1 - v by the top bit, v = (31 bits + 1/2) / 2^32;
    in [1.2e-10, 22.9].

    The smaller of u and 1 - u is formed without cancellation, so both ends have full relative precision. float64 takes the same
    bits, so a float64 draw differs from the float32 one by rounding only.
    """
    upper, v = _halves(word, 2.0**-32, dtype)
    return jnp.where(upper, -jnp.log1p(-v), -jnp.log(v))


def normal(word: Words, dtype=jnp.float32) -> Float[Array, "..."]:
    """Standard normals from 32 random bits each, by inversion: a sign and |x| = sqrt(2) erfinv(v), v = (31 bits + 1/2) / 2^31.

    Both v and 1 - v are formed without rounding: values near 0 keep full relative precision (jax.random.normal has a grid of
    1.5e-7 there, which a key close to the query feels), and the tail reaches 6.3.
    """
    negative, v = _halves(word, 2.0**-31, dtype)
    complement = _halves(~word, 2.0**-31, dtype)[1]
    if dtype == jnp.float64:
        size = jax.lax.erf_inv(v)
    else:
        w = -jnp.log(complement * (1 + v))
        size = v * jnp.where(w < 5, _horner(_ERFINV_CENTRE, w - 2.5), _horner(_ERFINV_TAIL, jnp.sqrt(w) - 3.5))
    return jnp.where(negative, -1, 1) * np.sqrt(2).astype(dtype) * size


def normals(stream: Stream, i: Words, first: Words | int, count: int, dtype=jnp.float32) -> Float[Array, "count ..."]:
    """Standard normals from the words at (i, first), (i, first + 1), ..., two a counter, with the count in front: loops over a
    short last axis are not vectorised.
    """
    first = jnp.asarray(first, jnp.uint32)
    if count <= _UNROLLED:  # a row of code each, which XLA fuses best
        rows = [word for c in range((count + 1) // 2) for word in words(stream, i, first + jnp.uint32(c))]
        return jnp.stack([normal(word, dtype) for word in rows[:count]])
    if count >= _LOOPED:
        # A loop, whose result XLA keeps: it would otherwise draw the normals again for each use (norm, projection, ...).
        pair = jax.lax.map(lambda c: _normal_pair(stream, i, first + c, dtype), jnp.arange((count + 1) // 2, dtype=jnp.uint32))
        return jnp.concatenate(pair)[:count]
    counters = jnp.arange((count + 1) // 2, dtype=jnp.uint32).reshape(-1, *(1,) * max(jnp.ndim(i), jnp.ndim(stream.first)))
    pairs = words(stream, i, first + counters)
    return normal(jnp.concatenate([jnp.asarray(word) for word in pairs])[:count], dtype)


def _normal_pair(stream: Stream, i: Words, j: Words, dtype):
    first, second = words(stream, i, j)
    return normal(first, dtype), normal(second, dtype)


def lower_half(word: Words, extra: Words, dtype=jnp.float32):
    """A uniform variable as (upper, v): it is v where `upper` is False and 1 - v where it is True, v in (0, 1/2) from 63 bits.

    Uniform variables that go into a quantile must keep their relative precision at both ends; two words keep it down to 1e-19.
    """
    upper = word >= jnp.uint32(1 << 31)
    high = (word & jnp.uint32(0x7FFFFFFF)).astype(dtype)
    return upper, (high + (extra.astype(dtype) + 0.5) * 2.0**-32) * 2.0**-32


def _halves(word, scale: float, dtype):
    """The top bit, and the 31 others as (m + 1/2) * scale."""
    return word >= jnp.uint32(1 << 31), ((word & jnp.uint32(0x7FFFFFFF)).astype(dtype) + 0.5) * jnp.asarray(scale, dtype)


def _horner(coefficients, x):
    """The polynomial with these coefficients, highest power first."""
    value = jnp.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        value = value * x + jnp.asarray(c, x.dtype)
    return value
