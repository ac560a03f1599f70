"""The grouped task of Theorem 7.2: copy tokens collect the mean of their group, dormant tokens switch attention off."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key
from numpy.typing import ArrayLike

from scaling import _check
from toyblocks.task.base import (
    SCALINGS,
    AbstractTask,
    Matrix,
    Routing,
    Situations,
    known_pattern,
    require_room,
    rotated,
    situations_of,
)

NOISES = ("gaussian", "orthonormal")
LEAST_DELTA, LEAST_REST = 1e-4, 1e-9  # of delta, and of 1 - delta: below, margins drown in rounding, which is eps/delta^2 of them
LEAST_GAP = 1e-6  # over sqrt(d), between tokens of a group that are not the same, for the same reason
SAME = 1e-9  # over the length of the noise: tokens that are nearer are one token, up to rounding


class Grouped(AbstractTask):
    """Groups c = 1, ..., C of dormant tokens d_ci = lambda dbar_c + eta_ci, i = 1, ..., n, and one copy token c_c for each.

    A dormant token owes phi d_ci, a copy token phi times the mean of the tokens of its group before it (a multiset: repeated
    tokens count), 0 if there are none, BOS 0; |phi - 1| <= `epsilon`. S = (BOS, dbar_1, ..., dbar_C, c_1, ..., c_C) have norm
    sqrt(d) and pairwise inner products `coherence` times d; |eta_ci| = `delta` sqrt(d), orthogonal to S, lambda^2 = 1 - delta^2.
    `noise`: `orthonormal` directions, which takes d >= 1 + 2C + Cn, or independent uniform ones (`gaussian`), drawn from
    `noise_seed`. `sequence_length` tokens follow BOS, independent: with probability 1/4 a copy token, uniform over the groups,
    else a uniform dormant one. There are no positions, so identical tokens tie and share the mass.
    `centroid_keys`: copy queries see the centroid of a dormant key only, c^T W eta = 0, as the paper assumes; without it, they
    must see the keys of their group alike, which is weaker. Coordinates: S, then the noise, unless a `rotation` [d d] turns them.
    Raises `ValueError` for arguments out of range: delta is 0 or in [1e-4, 1 - 1e-9], 2 C `coherence` < 1.
    Source: section 7, Theorem 7.2.
    """

    name: ClassVar[str] = "grouped"
    groups: int = eqx.field(static=True)
    per_group: int = eqx.field(static=True)
    delta: float = eqx.field(static=True)
    dim: int = eqx.field(static=True)
    coherence: float = eqx.field(static=True)
    epsilon: float = eqx.field(static=True)
    sequence_length: int = eqx.field(static=True)
    noise: str = eqx.field(static=True)
    noise_seed: int = eqx.field(static=True)
    scaling: str = eqx.field(static=True)
    centroid_keys: bool = eqx.field(static=True)
    tokens: Float[np.ndarray, "tokens d"]
    special: Float[np.ndarray, "special d"]
    etas: Float[np.ndarray, "groups members d"]

    def __init__(
        self,
        groups: int = 3,
        per_group: int = 10,
        delta: float = 0.25,
        dim: int = 100,
        coherence: float = 0.0,
        epsilon: float = 0.05,
        sequence_length: int = 50,
        noise: str = "orthonormal",
        noise_seed: int = 0,
        scaling: str = "standard",
        centroid_keys: bool = False,
        rotation: ArrayLike | None = None,
    ):
        self.groups = _check.whole("groups", groups, 1)
        self.per_group = _check.whole("per_group", per_group, 1)
        self.delta = _below_one("delta", delta)
        good = self.delta == 0 or LEAST_DELTA <= self.delta <= 1 - LEAST_REST
        _check.require(good, "delta", f"be 0 or between {LEAST_DELTA:g} and 1 - {LEAST_REST:g}", delta)
        self.epsilon = _below_one("epsilon", epsilon)
        self.coherence = _check.finite_at_least("coherence", coherence, 0.0)
        highest = 1 / (2 * self.groups)
        _check.require(self.coherence < highest, "coherence", f"be < 1/(2 groups) = {highest:.6g}", self.coherence)
        self.sequence_length = _check.whole("sequence_length", sequence_length, 2)
        self.noise = _check.known("noise", noise, NOISES)
        self.noise_seed = _check.whole("noise_seed", noise_seed, 0)
        self.scaling = _check.known("scaling", scaling, SCALINGS)
        _check.require(isinstance(centroid_keys, bool), "centroid_keys", "be True or False", centroid_keys)
        self.centroid_keys = centroid_keys
        self.dim = _check.whole("dim", dim, 1)
        special, members = 1 + 2 * self.groups, self.groups * self.per_group
        least = special + (0 if self.delta == 0 else members if self.noise == "orthonormal" else 1)
        _check.require(self.dim >= least, "dim", f"be >= {least} for {self.noise} noise in {self.groups} groups", self.dim)
        require_room(*self._largest, 1 + members + self.groups, special)
        require_room("dim", self.dim, max(self.dim, 1 + members + self.groups), self.dim)

        axes = rotated(np.eye(self.dim), rotation)
        gram = np.full((special, special), self.coherence) + (1 - self.coherence) * np.eye(special)
        values, vectors = np.linalg.eigh(gram)  # the symmetric root: near the coordinate axes, whatever the coherence
        root = (vectors * np.sqrt(values)) @ vectors.T if self.coherence else np.eye(special)
        self.special = np.sqrt(self.dim) * root @ axes[:special]
        self.etas = self.delta * np.sqrt(self.dim) * self._directions(axes[special:]).reshape(self.groups, self.per_group, -1)
        if self.noise == "gaussian":
            apart = self.separation >= LEAST_GAP**2 * self.dim
            _check.require(apart, "noise_seed", "be another: two tokens of a group are too near to each other", self.noise_seed)
        centroids = self.special[1 : 1 + self.groups, None]
        dormant = (np.sqrt(1 - self.delta**2) * centroids + self.etas).reshape(members, self.dim)
        self.tokens = np.concatenate([self.special[:1], dormant, self.special[1 + self.groups :]])

    def _directions(self, axes: Float[np.ndarray, "rest d"]) -> Float[np.ndarray, "members d"]:
        members = self.groups * self.per_group
        if self.delta == 0:
            return np.zeros((members, self.dim))
        if self.noise == "orthonormal":
            return axes[:members]
        normal = np.random.default_rng(self.noise_seed).standard_normal((members, len(axes)))
        return normal / np.linalg.norm(normal, axis=1, keepdims=True) @ axes

    @property
    def _largest(self) -> tuple[str, int]:
        """The setting that makes the task large, and its value."""
        return ("groups", self.groups) if self.groups > self.per_group else ("per_group", self.per_group)

    @property
    def centroid_weight(self) -> float:
        """lambda = sqrt(1 - delta^2)."""
        return float(np.sqrt(1 - self.delta**2))

    @property
    def group_of(self) -> Int[np.ndarray, "tokens"]:
        """Group of every token; -1 for BOS."""
        return np.concatenate([[-1], np.repeat(np.arange(self.groups), self.per_group), np.arange(self.groups)])

    @property
    def is_copy(self) -> Bool[np.ndarray, "tokens"]:
        """Which tokens are copy tokens."""
        return np.arange(len(self.tokens)) > self.groups * self.per_group

    @property
    def is_dormant(self) -> Bool[np.ndarray, "tokens"]:
        """Which tokens are dormant."""
        return ~self.is_copy & (self.group_of >= 0)

    @property
    def noise_covariance(self) -> Float[np.ndarray, "d d"]:
        """Sigma_D: the sum over groups and pairs i < j of (d_ci - d_cj)(d_ci - d_cj)^T; both orders of every pair occur."""
        total = self.etas.sum(axis=1)
        square = np.einsum("cid,cie->de", self.etas, self.etas)
        return self.per_group * square - np.einsum("cd,ce->de", total, total)

    @property
    def effective_rank(self) -> float:
        """r_eff = tr Sigma_D / |Sigma_D|_2; 0 where Sigma_D vanishes."""
        return effective_rank(self.noise_covariance)

    @property
    def noise_rank(self) -> int:
        """r_eta: the dimension that the noise vectors span."""
        if self.delta == 0:
            return 0
        return int(np.linalg.matrix_rank(self.etas.reshape(-1, self.dim) / (self.delta * np.sqrt(self.dim))))

    @property
    def distinct(self) -> Bool[np.ndarray, "groups members members"]:
        """Which members of a group are different tokens; they coincide without noise, and where it has one dimension only."""
        return self._gaps > self._one_token

    @property
    def same(self) -> Bool[np.ndarray, "tokens tokens"]:
        """Which rows of `tokens` are one token."""
        found = np.eye(len(self.tokens), dtype=bool)
        for group, distinct in enumerate(self.distinct):
            members = slice(1 + group * self.per_group, 1 + (group + 1) * self.per_group)
            found[members, members] = ~distinct
        return found

    @property
    def separation(self) -> float:
        """Delta_diag: the least squared distance between distinct tokens of one group; infinite without such a pair."""
        gaps = self._gaps
        return float(gaps[gaps > self._one_token].min(initial=np.inf))

    @property
    def _one_token(self) -> float:
        """The squared distance up to which members are the same."""
        return (SAME * self.delta) ** 2 * self.dim

    @property
    def _gaps(self) -> Float[np.ndarray, "groups members members"]:
        # Squared distances, member by member, since all differences at once take groups members^2 d numbers.
        require_room(*self._largest, self.groups, self.per_group, self.per_group)
        each = [np.sum((self.etas - self.etas[:, [i]]) ** 2, axis=-1) for i in range(self.per_group)]
        return np.stack(each, axis=1)

    def config(self) -> dict[str, str | int | float | bool]:
        names = ("groups", "per_group", "delta", "dim", "coherence", "epsilon", "sequence_length", "noise", "noise_seed")
        return {"task": self.name, **{name: getattr(self, name) for name in (*names, "scaling", "centroid_keys")}}

    def routing(self, pattern: str) -> Routing:
        """One case for a dormant query; two for a copy query, with its group before it and without."""
        known_pattern(pattern)
        count = len(self.tokens)
        require_room(*self._largest, count, count)
        bos = np.arange(count) == 0
        dormant, copies = np.flatnonzero(self.is_dormant), np.flatnonzero(self.is_copy)
        same, group = self.same, self.group_of
        own = self.is_dormant[None, :] & (group[None, :] == group[copies, None])
        alone = same[copies]
        # Two keys beside a copy query take three tokens.
        rest = (~bos & ~own & ~alone) if self.sequence_length > 2 else np.zeros_like(own)
        nobody = ~bos & ~own & ~alone
        if pattern == "sink":
            asleep, losers = np.tile(bos, (len(dormant), 1)), np.tile(~bos, (len(dormant), 1))
            absent, others = np.tile(bos, (len(copies), 1)), nobody | alone
        else:
            asleep, losers = same[dormant], ~same[dormant]
            absent, others = alone, nobody | bos
        tied = np.full(len(copies), self.sequence_length > 2)
        return Routing(
            np.concatenate([dormant, copies, copies]),
            np.concatenate([asleep, own, absent]),
            np.concatenate([losers, rest | bos | alone, others]),
            np.concatenate([np.zeros(len(dormant), bool), tied, np.zeros(len(copies), bool)]),
        )

    def sample(self, rng: Key[Array, ""], sequences: int) -> Int[Array, "sequences length"]:
        kind, dormant, copy = jax.random.split(rng, 3)
        shape, members = (sequences, self.sequence_length), self.groups * self.per_group
        copies = 1 + members + jax.random.randint(copy, shape, 0, self.groups)
        asleep = 1 + jax.random.randint(dormant, shape, 0, members)
        tokens = jnp.where(jax.random.bernoulli(kind, 0.25, shape), copies, asleep)
        return jnp.pad(tokens, ((0, 0), (1, 0)))

    def teacher(self, sequences: Int[Matrix, "sequences length"], pattern: str) -> Float[Array, "sequences length length"]:
        known_pattern(pattern)
        length = sequences.shape[1]
        causal = jnp.tril(jnp.ones((length, length), bool))
        members, copy = self._members(sequences), jnp.asarray(self.is_copy)[sequences][..., None]
        itself = (sequences[:, :, None] == sequences[:, None, :]) & causal
        bos = jnp.broadcast_to(jnp.arange(length) == 0, itself.shape)
        asleep = bos if pattern == "sink" else itself
        chosen = jnp.where(copy & members.any(axis=-1, keepdims=True), members, asleep)
        return chosen / chosen.sum(axis=-1, keepdims=True)

    def updates(self, sequences: Int[Matrix, "sequences length"]) -> Float[Array, "sequences length d"]:
        x, members = jnp.asarray(self.tokens)[sequences], self._members(sequences)
        mean = (members @ x) / jnp.maximum(members.sum(axis=-1, keepdims=True), 1)
        owed = jnp.where(jnp.asarray(self.is_copy)[sequences][..., None], mean, x)
        return owed.at[:, 0].set(0.0)

    def situations(self, pattern: str, rng: Key[Array, ""] | None = None, sequences: int = 64) -> Situations:
        """The rows of random sequences: what a copy token may meet is too much to list."""
        require_room("sequence_length", self.sequence_length, sequences, 1 + self.sequence_length, 1 + self.sequence_length)
        require_room("dim", self.dim, sequences, 1 + self.sequence_length, self.dim)
        rng = jax.random.key(0, impl="threefry2x32") if rng is None else rng
        return situations_of(self, self.sample(rng, sequences), pattern)

    def _members(self, sequences: Int[Matrix, "sequences length"]):
        """Which keys [sequences length length] are dormant, of the query's group, and before it."""
        group, asleep = jnp.asarray(self.group_of)[sequences], jnp.asarray(self.is_dormant)[sequences]
        before = jnp.tril(jnp.ones((sequences.shape[1],) * 2, bool), -1)
        return (group[:, :, None] == group[:, None, :]) & asleep[:, None, :] & before


def _below_one(argument: str, value: float) -> float:
    number = _check.finite_at_least(argument, value, 0.0)
    _check.require(number < 1, argument, "be < 1", value)
    return number


def effective_rank(matrix: Float[np.ndarray, "d d"]) -> float:
    """tr M / |M|_2 of a positive semidefinite matrix; 0 where it vanishes."""
    values = np.linalg.eigvalsh(matrix)
    return float(values.sum() / values[-1]) if values[-1] > 1e-12 * len(matrix) else 0.0
