"""What a task is: tokens, which keys each of them must attend to under a pattern, and the outputs that the block owes them."""

import abc
import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from scaling import _check

Matrix = Array | np.ndarray
PATTERNS = ("diagonal", "sink")
SCALINGS = ("extra", "standard")
LEAST_KAPPA, LARGEST_KAPPA = 1e-100, 1e100
LARGEST = 2**27  # numbers of an array: 1 GiB in float64, and several arrays of that size are there at a time


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


def require_room(argument: str, value: int | str, *shape: int) -> None:
    """Raises `ValueError`, with the argument that makes it large, if an array of this shape has more than 2^27 numbers."""
    must = f"be small enough for memory (no array may have more than {LARGEST:.2g} numbers)"
    _check.require(math.prod(shape) <= LARGEST, argument, must, value)


def checked_kappa(kappa: Any) -> float:
    """The margin kappa as a float. Raises `ValueError` unless it is a number between 1e-100 and 1e100, so that its square is one,
    too, whatever it is multiplied by."""
    margin = _check.finite_above("kappa", kappa, 0.0)
    _check.require(LEAST_KAPPA <= margin <= LARGEST_KAPPA, "kappa", f"be between {LEAST_KAPPA:g} and {LARGEST_KAPPA:g}", kappa)
    return margin


def require_task(task: Any) -> None:
    """Raises `ValueError` unless it is a task."""
    _check.require(isinstance(task, AbstractTask), "task", "be a task, such as Backcopy() or Grouped()", task)


def rotated(tokens: Float[np.ndarray, "tokens d"], rotation: Any) -> Float[np.ndarray, "tokens d"]:
    """The tokens in another orthonormal basis. Raises `ValueError` unless `rotation` is an orthogonal matrix [d d] of real
    numbers; to 1e-10, or to 1e-5, with which float32 comes, and then the orthogonal matrix next to it is used."""
    if rotation is None:
        return tokens
    dim = tokens.shape[1]
    must = f"be an orthogonal matrix of shape ({dim}, {dim})"
    matrix = _check.real_array("rotation", rotation, must)
    _check.require(matrix.shape == (dim, dim), "rotation", must, f"of shape {matrix.shape}")
    _check.require(bool(np.all(np.abs(matrix) < 1.1)), "rotation", must, f"of size {np.abs(matrix).max():g}")
    error = np.abs(matrix @ matrix.T - np.eye(dim)).max()
    _check.require(error <= 1e-5, "rotation", must, f"of rows with inner products wrong by {error:.2g}")
    if error > 1e-10:
        left, _, right = np.linalg.svd(matrix)
        matrix = left @ right
    return tokens @ matrix.T


def label_error(
    update: Float[Matrix, "rows d"], owed: Float[Matrix, "rows d"], epsilon: float
) -> tuple[Float[Array, "rows d"], Float[Array, "rows d"]]:
    """What an update lacks to the nearest phi u, |phi - 1| <= epsilon, and that phi u; `owed` is u. Rows with u = 0 owe 0."""
    square = jnp.sum(owed**2, axis=-1, keepdims=True)
    phi = jnp.sum(update * owed, axis=-1, keepdims=True) / jnp.where(square > 0, square, 1.0)
    nearest = jnp.clip(phi, 1.0 - epsilon, 1.0 + epsilon) * owed
    return jnp.asarray(update - nearest), nearest

