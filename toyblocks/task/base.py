"""What a task is: tokens, which keys each of them must attend to under a pattern, and the outputs that the block owes them."""

import abc

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from scaling import _check

Matrix = Array | np.ndarray
PATTERNS = ("diagonal", "sink")
SCALINGS = ("extra", "standard")


class Routing(eqx.Module):
    """What a pattern asks of the attention logits, in cases: every target beats every other key by a margin.

    `query` [cases]: token of the query; `target`, `other` [cases tokens]: keys that must win, keys that may stand beside them
    and must lose; `tied` [cases]: several targets can be there at once and must share the mass, so that their logits agree.
    Where it is False, one target is there at a time.
    """

    query: Int[np.ndarray, "cases"]
    target: Bool[np.ndarray, "cases tokens"]
    other: Bool[np.ndarray, "cases tokens"]
    tied: Bool[np.ndarray, "cases"]

    def margins(self, logits: Float[Matrix, "tokens tokens"]) -> Float[Array, "cases"]:
        """The least logit of a target less the largest of another key, by case; `logits` has queries in rows. Infinite where
        nothing competes."""
        rows = jnp.asarray(logits)[self.query]
        lowest = jnp.min(jnp.where(self.target, rows, jnp.inf), axis=1)
        return lowest - jnp.max(jnp.where(self.other, rows, -jnp.inf), axis=1)

    def spread(self, logits: Float[Matrix, "tokens tokens"]) -> Float[Array, ""]:
        """How far apart the logits of targets are that must share the mass: the largest such difference, 0 without any."""
        rows = jnp.asarray(logits)[self.query]
        highest = jnp.max(jnp.where(self.target, rows, -jnp.inf), axis=1)
        lowest = jnp.min(jnp.where(self.target, rows, jnp.inf), axis=1)
        return jnp.max(jnp.where(self.tied, highest - lowest, 0.0), initial=0.0)


class Situations(eqx.Module):
    """Rows that the block meets after attention: the token `x`, the mean `attended` of the tokens that the pattern attends to,
    and the `update` u that it owes, each [rows d]: the output must be x + phi u for a phi within epsilon of 1."""

    x: Float[Matrix, "rows d"]
    attended: Float[Matrix, "rows d"]
    update: Float[Matrix, "rows d"]


class AbstractTask(eqx.Module):
    """Sequences of tokens in R^d, BOS first, with the outputs of one block.

    `dim` is d; `scaling` divides the logits by sqrt(d) (`standard`) or by d (`extra`, as in Figure 3 left); `epsilon` is the
    tolerance of the labels. `tokens` [tokens d] has every token that can occur, each of norm sqrt(d), BOS in row 0.
    Source: section 7 and Appendix D of "Sink vs. diagonal patterns".
    """

    name: eqx.AbstractClassVar[str]
    dim: eqx.AbstractVar[int]
    scaling: eqx.AbstractVar[str]
    epsilon: eqx.AbstractVar[float]
    tokens: eqx.AbstractVar[Float[np.ndarray, "tokens d"]]

    @property
    def logit_scale(self) -> float:
        """What multiplies <W_Q x, W_K y>: 1/sqrt(d) or 1/d."""
        return self.dim**-0.5 if self.scaling == "standard" else 1.0 / self.dim

    @abc.abstractmethod
    def config(self) -> dict[str, str | int | float | bool]:
        """The arguments that make this task again, by name, but for a rotation; for files."""

    @abc.abstractmethod
    def routing(self, pattern: str) -> Routing:
        """Every case in which a query meets its keys. Raises `ValueError` for an unknown pattern."""

    @abc.abstractmethod
    def sample(self, rng: Key[Array, ""], sequences: int) -> Int[Array, "sequences length"]:
        """Random sequences, as rows of `tokens`; the first column is BOS (0)."""

    @abc.abstractmethod
    def teacher(self, sequences: Int[Matrix, "sequences length"], pattern: str) -> Float[Array, "sequences length length"]:
        """The attention of the pattern: for every query (second axis) the weights of the keys."""

    @abc.abstractmethod
    def updates(self, sequences: Int[Matrix, "sequences length"]) -> Float[Array, "sequences length d"]:
        """What the block must add to every token, phi = 1."""

    @abc.abstractmethod
    def situations(self, pattern: str, rng: Key[Array, ""] | None = None, sequences: int = 64) -> Situations:
        """Rows for evaluation, in float64 where JAX allows it: every one that can occur if they can be listed, else those of
        random sequences."""


def situations_of(task: AbstractTask, sequences: Int[Matrix, "sequences length"], pattern: str) -> Situations:
    """The rows of given sequences, flattened."""
    x = jnp.asarray(task.tokens)[sequences]
    attended = task.teacher(sequences, pattern) @ x
    rows = (array.reshape(-1, task.dim) for array in (x, attended, task.updates(sequences)))
    return Situations(*rows)


def known_pattern(pattern: str) -> str:
    """The pattern, or `ValueError`."""
    return _check.known("pattern", pattern, PATTERNS)


def rotated(tokens: Float[np.ndarray, "tokens d"], rotation: Float[np.ndarray, "d d"] | None) -> Float[np.ndarray, "tokens d"]:
    """The tokens in another orthonormal basis. Raises `ValueError` unless `rotation` is orthogonal."""
    if rotation is None:
        return tokens
    orthogonal = np.allclose(rotation @ rotation.T, np.eye(len(rotation)), atol=1e-10)
    _check.require(orthogonal, "rotation", "be an orthogonal matrix", f"of shape {rotation.shape}")
    return tokens @ rotation.T


def label_error(
    update: Float[Matrix, "rows d"], owed: Float[Matrix, "rows d"], epsilon: float
) -> tuple[Float[Array, "rows d"], Float[Array, "rows d"]]:
    """What an update lacks to the nearest phi u, |phi - 1| <= epsilon, and that phi u; `owed` is u. Rows with u = 0 owe 0."""
    square = jnp.sum(owed**2, axis=-1, keepdims=True)
    phi = jnp.sum(update * owed, axis=-1, keepdims=True) / jnp.where(square > 0, square, 1.0)
    nearest = jnp.clip(phi, 1.0 - epsilon, 1.0 + epsilon) * owed
    return jnp.asarray(update - nearest), nearest

