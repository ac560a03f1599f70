"""The convex program behind the attention cost of a pattern, and what certifies a number about it.

With hard attention W_Q and W_K enter a block through margins alone, and |W_Q|_F^2 + |W_K|_F^2 >= 2 |W_Q^T W_K|_*, with equality
for some factors. So the least cost at margin kappa is 2 kappa times

    min |W|_*   subject to   L_t >= 1 + L_o   for all targets t and other keys o of every case,   L_k = x_q^T W x_k,

a convex program, with equalities where targets must tie. Its dual: a table Y [cases keys], for every case >= 0 on targets (of any
sign if they are tied), <= 0 on other keys, free where a logit must be 0, else 0, with s_c = (sum over targets) = -(sum over
other keys) >= 0. Then sum_c s_c <= sum_c s_c (min_t L_t - max_o L_o) <= <Y, L> = <G, W> <= |G|_2 |W|_*
for G = sum Y_ck x_q(c) x_k^T: whatever Y is, sum_c s_c / |G|_2 is below the optimum, whatever feasible W is, |W|_* is above it.
"""

from collections.abc import Sequence

import equinox as eqx
import numpy as np
from jaxtyping import Bool, Float

_EPS = float(np.finfo(np.float64).eps)

Parts = Sequence[Float[np.ndarray, "_ _"]]


class Component(eqx.Module):
    """A block A [rows columns] of W = sum_m left_m^T A right_m, whose nuclear norm is `copies` times that of A.

    `query` [cases copies rows] and `key` [keys copies columns] are the coordinates of queries and keys; `left` [copies rows d]
    and `right` [copies columns d] map coordinates to R^d, isometrically on what the tokens span and by 0 on the rest, if there
    are more coordinates than the span has dimensions: then |W|_* is at most that of A, and equal for the best A. Dimensionless.
    """

    query: Float[np.ndarray, "cases copies rows"]
    key: Float[np.ndarray, "keys copies columns"]
    left: Float[np.ndarray, "copies rows d"]
    right: Float[np.ndarray, "copies columns d"]

    @property
    def copies(self) -> int:
        """How often the block occurs in W."""
        return self.left.shape[0]

    @property
    def shape(self) -> tuple[int, int]:
        """Of the block."""
        return self.left.shape[1], self.right.shape[1]


class Program(eqx.Module):
    """The program for tokens of norm 1 and logits x_q^T W x_k, W made of `components`.

    `target`, `other` [cases keys] and `tied` [cases] are as in `Routing`; `zero` [cases keys]: keys whose logit must vanish.
    """

    components: tuple[Component, ...]
    target: Bool[np.ndarray, "cases keys"]
    other: Bool[np.ndarray, "cases keys"]
    tied: Bool[np.ndarray, "cases"]
    zero: Bool[np.ndarray, "cases keys"]

    @property
    def size(self) -> int:
        """Rows + columns of the largest block, which the time of every method goes by."""
        return max(sum(each.shape) for each in self.components)

    def logits(self, parts: Parts) -> Float[np.ndarray, "cases keys"]:
        """Of every key in every case."""
        return sum(
            (_product(each.query, part, each.key) for each, part in zip(self.components, parts, strict=True)),
            start=np.zeros(self.target.shape),
        )

    def pull(self, table: Float[np.ndarray, "cases keys"]) -> list[Float[np.ndarray, "_ _"]]:
        """G: the gradient of <table, logits> with respect to the blocks."""
        return [_pulled(each.query, table, each.key) for each in self.components]

    def nuclear(self, parts: Parts) -> float:
        """|W|_*."""
        sums = [np.linalg.svd(part, compute_uv=False).sum() for part in parts]
        return float(sum(each.copies * total for each, total in zip(self.components, sums, strict=True)))

    def min_margin(self, parts: Parts) -> float:
        """The least margin over the cases, less what rounding can do to it."""
        logits = self.logits(parts)
        low = np.where(self.target, logits, np.inf).min(axis=1)
        high = np.where(self.other, logits, -np.inf).max(axis=1)
        size = self._magnitude([np.abs(part) for part in parts])
        return float((low - high).min() - 2 * self._rounding * size.max())

    def lift(self, parts: Parts) -> Float[np.ndarray, "d d"]:
        """W."""
        blocks = zip(self.components, parts, strict=True)
        return sum(
            (np.einsum("mrd,rc,mce->de", each.left, part, each.right, optimize=True) for each, part in blocks),
            start=np.zeros((self.components[0].left.shape[2],) * 2),
        )

    def operator(self, cases: np.ndarray, keys: np.ndarray) -> Float[np.ndarray, "rows variables"]:
        """The logits of given (case, key) as linear functions of the entries of all blocks, rows of blocks first."""
        rows = [np.einsum("kmr,kmc->krc", each.query[cases], each.key[keys], optimize=True) for each in self.components]
        return np.concatenate([each.reshape(len(cases), each.shape[1] * each.shape[2]) for each in rows], axis=1)

    def split(self, variables: Float[np.ndarray, "variables"]) -> list[Float[np.ndarray, "_ _"]]:
        """The blocks from all of their entries."""
        sizes = np.cumsum([int(np.prod(each.shape)) for each in self.components])
        return [part.reshape(each.shape) for part, each in zip(np.split(variables, sizes[:-1]), self.components, strict=True)]

    @property
    def equalities(self) -> Float[np.ndarray, "equalities variables"]:
        """Rows E of the equalities E a = 0 in the entries of the blocks: tied targets agree, and some logits vanish."""
        case, key = np.nonzero(self.target & self.tied[:, None])
        first = self.target.argmax(axis=1)[case]
        again = key != first
        ties = self.operator(case[again], key[again]) - self.operator(case[again], first[again])
        return np.concatenate([ties, self.operator(*np.nonzero(self.zero))])

    def primal(
        self, parts: Parts, equal: Float[np.ndarray, "equalities variables"] | None = None
    ) -> tuple[float, list[Float[np.ndarray, "_ _"]]]:
        """An upper bound on the optimum and the feasible point behind it, from any point.

        Equalities hold by projection, to rounding; margins by division by the smallest one. Infinite if that is <= 0. `equal`: an
        orthonormal basis of the rows of `equalities`, if the caller has it.
        """
        equal = orthonormal(self.equalities) if equal is None else equal
        projected = list(parts)
        if len(equal):
            variables = np.concatenate([part.ravel() for part in parts])
            for _ in range(2):  # the second takes the rounding of the first
                variables = variables - equal.T @ (equal @ variables)
            projected = self.split(variables)
        margin = self.min_margin(projected)
        if not margin > 0:
            return float("inf"), projected
        scaled = [part / margin for part in projected]
        return self.nuclear(scaled) * (1 + self._rounding), scaled

    def dual(self, table: Float[np.ndarray, "cases keys"]) -> tuple[float, Float[np.ndarray, "cases keys"]]:
        """A lower bound on the optimum and the feasible table behind it, from any table.

        Signs hold by clipping, the two sums of a case by scaling the larger, |G|_2 <= 1 by division by a bound on it that holds
        for exact arithmetic.
        """
        bound = self.target & ~self.tied[:, None]
        table = np.where(bound, np.maximum(table, 0.0), np.where(self.other, np.minimum(table, 0.0), table))
        table = np.where(self.target | self.other | self.zero, table, 0.0)
        gain, loss = np.where(self.target, table, 0.0).sum(axis=1), -np.where(self.other, table, 0.0).sum(axis=1)
        share = np.minimum(gain, loss)
        used = share > 0
        up, down = (np.where(used, share / np.where(used, each, 1.0), 0.0)[:, None] for each in (gain, loss))
        table = np.where(self.target, table * up, np.where(self.other, table * down, table))
        weight = share[used].sum() * (1 - self._rounding)
        norms = []
        for each, part in zip(self.components, self.pull(table), strict=True):
            rounding = self._rounding * np.linalg.norm(_pulled(np.abs(each.query), np.abs(table), np.abs(each.key)))
            norms.append((np.linalg.norm(part, 2) * (1 + self._rounding) + rounding) / each.copies)
        largest = float(max(norms))
        return (float(weight / largest), table / largest) if weight > 0 else (0.0, np.zeros_like(table))

    @property
    def _rounding(self) -> float:
        # Products of at most this many terms, each with relative error eps; 8 leaves room for the errors of singular values.
        longest = sum(self.target.shape) + sum(each.copies * sum(each.shape) for each in self.components)
        return 8 * longest * _EPS

    def _magnitude(self, parts):
        blocks = zip(self.components, parts, strict=True)
        return sum(
            (_product(np.abs(each.query), part, np.abs(each.key)) for each, part in blocks), start=np.zeros(self.target.shape)
        )


class Best:
    """The best certificates so far."""

    def __init__(self, program: Program):
        self.program, self._equal = program, orthonormal(program.equalities)
        self.primal, self.dual = float("inf"), 0.0
        self.parts = [np.zeros(each.shape) for each in program.components]

    @property
    def gap(self) -> float:
        """Relative; 1 as long as there is no primal point."""
        return 1 - self.dual / self.primal

    def update(self, parts: Parts, table: Float[np.ndarray, "cases keys"]) -> float:
        """Certifies a pair of points; the gap that is left."""
        primal, feasible = self.program.primal(parts, self._equal)
        if primal < self.primal:
            self.primal, self.parts = primal, feasible
        self.dual = max(self.dual, self.program.dual(table)[0])
        return self.gap


def orthonormal(vectors: Float[np.ndarray, "vectors d"]) -> Float[np.ndarray, "rank d"]:
    """An orthonormal basis of the span of some vectors; those of relative size 1e-10 count as 0."""
    if not len(vectors):
        return vectors
    _, values, basis = np.linalg.svd(vectors, full_matrices=False)
    return basis[values > 1e-10 * max(values[0], 1e-300)]


def _product(query, part, key):
    if query.shape[1] == 1:
        return query[:, 0] @ part @ key[:, 0].T
    return np.einsum("qmr,rc,kmc->qk", query, part, key, optimize=True)


def _pulled(query, table, key):
    if query.shape[1] == 1:
        return query[:, 0].T @ table @ key[:, 0]
    return np.einsum("qmr,qk,kmc->rc", query, table, key, optimize=True)
