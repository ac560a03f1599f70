"""The backcopy task of Theorem 7.1: copy tokens fetch the token before them, dormant tokens switch attention off."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key
from numpy.typing import ArrayLike

from scaling import _check
from toyblocks.task.base import SCALINGS, AbstractTask, Matrix, Routing, Situations, known_pattern, require_room, rotated

GEOMETRIES = ("compact", "orthonormal")


class Backcopy(AbstractTask):
    """Tokens x_ti = sqrt(d/2) (h_i + p_t) at positions t = 1, ..., T, with contents i of `dormant` + `copy` kinds.

    A dormant token owes 2x, a copy token x + the token before it, BOS itself. Position 1 is dormant: a copy token there would
    copy BOS. h_i and p_t are orthonormal, and BOS is

    - `orthonormal` geometry, d >= T + |C| + |D| + 2: sqrt(d/2) (h_0 + p_0), two more orthonormal vectors;
    - `compact` geometry, d >= T + |C| + |D|: sqrt(d) (sum_i h_i - sum_t p_t) / sqrt(|C| + |D| + T), which is orthogonal to every
      token, so that inner products of tokens are the same (Figure 3 has d = T + |C| + |D|).

    Without `dim` d = T + |C| + |D|; without `geometry` the orthonormal one where it fits. Coordinates: h (dormant, then copy), p,
    and (h_0, p_0), unless a `rotation` [d d] turns them. Source: section 7, Theorem 7.1.
    """

    name: ClassVar[str] = "backcopy"
    context_length: int = eqx.field(static=True)
    dormant: int = eqx.field(static=True)
    copy: int = eqx.field(static=True)
    dim: int = eqx.field(static=True)
    scaling: str = eqx.field(static=True)
    geometry: str = eqx.field(static=True)
    epsilon: float = eqx.field(static=True)
    tokens: Float[np.ndarray, "tokens d"]
    contents: Float[np.ndarray, "kinds d"]
    positions: Float[np.ndarray, "positions d"]

    def __init__(
        self,
        context_length: int = 64,
        dormant: int = 5,
        copy: int = 5,
        dim: int | None = None,
        scaling: str = "extra",
        geometry: str | None = None,
        rotation: ArrayLike | None = None,
    ):
        self.context_length = _check.whole("context_length", context_length, 2)
        self.dormant = _check.whole("dormant", dormant, 1)
        self.copy = _check.whole("copy", copy, 1)
        kinds, used = self.dormant + self.copy, self.context_length + self.dormant + self.copy
        self.dim = used if dim is None else _check.whole("dim", dim, 1)
        self.scaling = _check.known("scaling", scaling, SCALINGS)
        chosen = geometry if geometry is not None else "orthonormal" if self.dim >= used + 2 else "compact"
        self.geometry = _check.known("geometry", chosen, GEOMETRIES)
        least = used + 2 if self.geometry == "orthonormal" else used
        _check.require(self.dim >= least, "dim", f"be >= {least} for the geometry {self.geometry}", self.dim)
        rows = max(self.context_length * kinds, used)
        require_room(*self._largest, rows, used)
        require_room("dim", self.dim, max(rows, self.dim), self.dim)
        self.epsilon = 0.0
        axes = rotated(np.eye(self.dim), rotation)
        self.contents, self.positions = axes[:kinds], axes[kinds:used]
        if self.geometry == "orthonormal":
            bos = np.sqrt(self.dim / 2) * (axes[used] + axes[used + 1])
        else:
            bos = np.sqrt(self.dim / used) * (self.contents.sum(axis=0) - self.positions.sum(axis=0))
        content, position = self.content_of[1:], self.position_of[1:]
        rest = np.sqrt(self.dim / 2) * (self.contents[content] + self.positions[position - 1])
        self.tokens = np.concatenate([bos[None], rest])

    @property
    def _largest(self) -> tuple[str, int]:
        """The setting that makes the task large, and its value."""
        return max(((name, getattr(self, name)) for name in ("context_length", "dormant", "copy")), key=lambda pair: pair[1])

    @property
    def kinds(self) -> int:
        """|C| + |D|."""
        return self.dormant + self.copy

    @property
    def content_of(self) -> Int[np.ndarray, "tokens"]:
        """Content of every token, dormant ones below `dormant`; -1 for BOS."""
        later = np.tile(np.arange(self.kinds), self.context_length - 1)
        return np.concatenate([[-1], np.arange(self.dormant), later])

    @property
    def position_of(self) -> Int[np.ndarray, "tokens"]:
        """Position of every token; 0 for BOS."""
        later = np.repeat(np.arange(2, self.context_length + 1), self.kinds)
        return np.concatenate([[0], np.ones(self.dormant, int), later])

    def index(self, position: Int[Matrix, "..."], content: Int[Matrix, "..."]):
        """Row of `tokens` of a content at a position >= 1."""
        return 1 + content + (position > 1) * (self.dormant + (position - 2) * self.kinds)

    def config(self) -> dict[str, str | int | float | bool]:
        names = ("context_length", "dormant", "copy", "dim", "scaling", "geometry")
        return {"task": self.name, **{name: getattr(self, name) for name in names}}

    def routing(self, pattern: str) -> Routing:
        known_pattern(pattern)
        require_room(*self._largest, len(self.tokens), len(self.tokens))
        position, dormant = self.position_of, self.content_of < self.dormant
        key, query = position[None, :], position[1:, None]
        itself = np.eye(len(position), dtype=bool)[1:]
        bos, asleep = key == 0, dormant[1:, None]
        if pattern == "sink":
            target, other = bos & (query > 0), ((key > 0) & (key < query)) | itself
        else:
            target, other = itself, key < query
        copies, losers = key == query - 1, (key < query - 1) | itself
        return Routing(
            np.arange(1, len(position)),
            np.where(asleep, target, copies),
            np.where(asleep, other, losers),
            np.zeros(len(position) - 1, bool),
        )

    def sample(self, rng: Key[Array, ""], sequences: int) -> Int[Array, "sequences length"]:
        first, rest = jax.random.split(rng)
        asleep = jax.random.randint(first, (sequences, 1), 0, self.dormant)
        later = jax.random.randint(rest, (sequences, self.context_length - 1), 0, self.kinds)
        content = jnp.concatenate([asleep, later], axis=1)
        tokens = self.index(jnp.arange(1, self.context_length + 1), content)
        return jnp.pad(tokens, ((0, 0), (1, 0)))

    def teacher(self, sequences: Int[Matrix, "sequences length"], pattern: str) -> Float[Array, "sequences length length"]:
        known_pattern(pattern)
        place = jnp.arange(sequences.shape[1])
        asleep = 0 if pattern == "sink" else place
        attended = jnp.where(self._copies(sequences), place - 1, asleep)
        return jax.nn.one_hot(attended, sequences.shape[1])

    def updates(self, sequences: Int[Matrix, "sequences length"]) -> Float[Array, "sequences length d"]:
        x = jnp.asarray(self.tokens)[sequences]
        before = jnp.pad(x[:, :-1], ((0, 0), (1, 0), (0, 0)))
        owed = jnp.where(self._copies(sequences)[..., None], before, x)
        return owed.at[:, 0].set(0.0)

    def situations(self, pattern: str, rng: Key[Array, ""] | None = None, sequences: int = 64) -> Situations:
        """Every row that can occur: BOS, the dormant tokens, and the copy tokens after each token that can stand before."""
        known_pattern(pattern)
        require_room(*self._largest, self.context_length * (self.dormant + self.copy * self.kinds), self.dim)
        require_room(*self._largest, len(self.tokens), len(self.tokens))
        position, content = self.position_of, self.content_of
        asleep = np.flatnonzero((position > 0) & (content < self.dormant))
        copy, before = np.nonzero((content[:, None] >= self.dormant) & (position[:, None] - 1 == position[None, :]))
        query = np.concatenate([[0], asleep, copy])
        attended = np.concatenate([[0], np.zeros_like(asleep) if pattern == "sink" else asleep, before])
        owed = self.tokens[np.concatenate([[0], asleep, before])]
        owed[0] = 0.0
        return Situations(self.tokens[query], self.tokens[attended], owed)

    def _copies(self, sequences: Int[Matrix, "sequences length"]):
        return jnp.asarray(self.content_of >= self.dormant)[sequences]
