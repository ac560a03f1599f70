"""The conditions of Theorem C.1 and Proposition 6.1 on a data set, and whether value vectors can cancel.

Read closely, both say less than they seem to.

- Linearly independent vectors lie in an open half-space (<u, x_i> = 1 has a solution), so "full column rank or in a strict
  half-space" is the half-space alone.
- Proposition 6.1 asks that the copy-paste embeddings span the inputs. The proof needs rank(outputs) = rank(inputs), which is
  about the tokens that *are copied*: if all copy tokens copy the same few, W_VO can be 0 on the others, whatever the copy tokens
  span. Both are reported; only the second proves anything.
- Ranks are over the same positions on both sides. An immediate past token is copied, so what is particular to the last position
  is in no output: with position vectors independent of the rest, rank(outputs) < rank(inputs), and a dormant token there can
  attend to itself with value 0. The theorem is about data whose outputs span what stands in the last position, too.
"""

import equinox as eqx
import numpy as np
from jaxtyping import Bool, Float

from scaling import _check
from toyblocks.hull import ROUNDING, Nearest, checked_rows, half_space, nearest_point, rank

TOLERANCE = 1e-9  # of singular values, relative to the largest


class Conditions(eqx.Module):
    """What Theorem C.1 and Proposition 6.1 ask of a data set; ranks are numbers of dimensions, the rest is dimensionless.

    `input_rank`, `output_rank`: of all context inputs and of all outputs; `copy_rank`: of the inputs that are copy-paste tokens,
    None where they were not named. Per sequence: `full_column_rank` [sequences], and the half-space's `margin` [sequences] (see
    `HalfSpace`; 0 where there is none). Where W_VO was given, else None: `value_rank`, of all W_VO x, and `bos_value`,
    |W_VO x_0| over the root mean square of |W_VO x|, the largest over sequences.
    """

    input_rank: int
    output_rank: int
    copy_rank: int | None
    full_column_rank: Bool[np.ndarray, "sequences"]
    margin: Float[np.ndarray, "sequences"]
    value_rank: int | None
    bos_value: float | None

    @property
    def missing(self) -> int:
        """The dimensions of the inputs that no output shows to be needed: 0 under Theorem C.1."""
        return max(self.input_rank - self.output_rank, 0)

    @property
    def qualified(self) -> Bool[np.ndarray, "sequences"]:
        """Per sequence, whether it has full column rank or lies in an open half-space."""
        return self.full_column_rank | (self.margin > ROUNDING)

    @property
    def copies_span(self) -> bool | None:
        """Proposition 6.1's condition on spans, to the letter; None where copy-paste tokens were not named."""
        return None if self.copy_rank is None else self.copy_rank == self.input_rank

    @property
    def holds(self) -> bool:
        """Whether Theorem C.1 applies: equal ranks, and every sequence qualified. Then, if also W_VO x_0 = 0, every token of the
        data with output 0 attends to BOS alone."""
        return self.input_rank == self.output_rank and bool(self.qualified.all())


class Cancellation(eqx.Module):
    """Whether attention over the given value vectors, without BOS, can give 0.

    `weights` [n]: attention whose output is the shortest that was found, `nearest.upper`; 0 up to rounding if `possible`.
    `normal` [d]: unit, with <`normal`, v> > 0 for all v if `excluded`; every output is then at least `nearest.lower` long, in
    the units of the values.
    """

    possible: bool
    excluded: bool
    weights: Float[np.ndarray, "n"]
    normal: Float[np.ndarray, "d"]
    nearest: Nearest

    def mass_off_sink(self, output: float | int) -> float:
        """The most attention that a query can leave off BOS, whose value is 0, while its output has norm `output` (the units of
        the values): the output is that mass times a convex combination of the values. Raises `ValueError` for `output` < 0."""
        output = _check.finite_at_least("output", output, 0.0)
        return min(1.0, output / self.nearest.lower) if self.excluded and self.nearest.lower > 0 else 1.0


def conditions(
    inputs: Float[np.ndarray, "sequences tokens d"],
    outputs: Float[np.ndarray, "sequences positions d"],
    is_copy: Bool[np.ndarray, "sequences positions"] | None = None,
    *,
    w_vo: Float[np.ndarray, "d d"] | None = None,
    tolerance: float | int = TOLERANCE,
) -> Conditions:
    """The conditions on a data set: what the attention layer sees, BOS in row 0 of each sequence, and what it returns at the
    positions after BOS. `is_copy`: which of these are copy-paste tokens.

    Theorem C.1 leaves the last position out of both: so does a caller who leaves it out here. Singular values up to `tolerance`
    times the largest count as 0. Raises `ValueError` for shapes that do not fit, entries that are not finite and tolerances that
    are not in (0, 1).
    """
    inputs, outputs = _stack("inputs", inputs), _stack("outputs", outputs)
    count, tokens, d = inputs.shape
    _check.require(tokens >= 2, "inputs", "have BOS and at least 1 token", f"of shape {inputs.shape}")
    wanted = (count, tokens - 1, d)
    _check.require(outputs.shape == wanted, "outputs", f"have shape {wanted}", f"of shape {outputs.shape}")
    _check.require(0 < _check.finite_above("tolerance", tolerance, 0.0) < 1, "tolerance", "be < 1", tolerance)
    context = inputs[:, 1:]
    flat = context.reshape(-1, d)
    copies = None
    if is_copy is not None:
        mask = np.asarray(is_copy)
        _check.require(mask.shape == wanted[:2], "is_copy", f"have shape {wanted[:2]}", f"of shape {mask.shape}")
        copies = rank(context[mask], tolerance) if mask.any() else 0
    value_rank = bos_value = None
    if w_vo is not None:
        w_vo = checked_rows("w_vo", w_vo)
        _check.require(w_vo.shape == (d, d), "w_vo", f"have shape {(d, d)}", f"of shape {w_vo.shape}")
        values = flat @ w_vo.T
        value_rank = rank(values, tolerance)
        size = float(np.sqrt(np.mean(np.sum(values**2, axis=1))))
        largest = float(np.linalg.norm(inputs[:, 0] @ w_vo.T, axis=1).max())
        bos_value = largest / size if size > 0 else (0.0 if largest == 0 else float("inf"))
    return Conditions(
        rank(flat, tolerance),
        rank(outputs.reshape(-1, d), tolerance),
        copies,
        np.array([rank(each, tolerance) == tokens - 1 for each in context]),
        np.array([half_space(each).margin for each in context]),
        value_rank,
        bos_value,
    )


def cancellation(values: Float[np.ndarray, "n d"]) -> Cancellation:
    """Whether a convex combination of the value vectors W_VO x_1, ..., W_VO x_t that a query can attend to, BOS left out,
    vanishes: the combination, or a vector that excludes it. Section 6's ways (i) and (ii) around a sink: (ii), a token whose own
    value is 0, is the combination of one vector.

    Raises `ValueError` for no values and for entries that are not finite.
    """
    values = checked_rows("values", values)
    nearest, side = nearest_point(values), half_space(values)
    weights = nearest.weights
    if side.excluded:  # the combination of the unit vectors, as one of the values themselves
        lengths = np.linalg.norm(values, axis=1)
        weights = side.weights if lengths.min() == 0 else side.weights / lengths
        weights = weights / weights.sum()
    return Cancellation(side.excluded, side.exists, weights, side.normal, nearest)


def _stack(argument: str, value: Float[np.ndarray, "sequences rows d"]) -> Float[np.ndarray, "sequences rows d"]:
    array = _check.real_array(argument, value, "be real numbers [sequences, rows, d]")
    _check.require(array.ndim == 3 and array.size > 0, argument, "have shape [sequences, rows, d]", f"of shape {array.shape}")
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        sequence, row, column = bad[0]
        place = f"of value {array[sequence, row, column]} in sequence {sequence}, row {row}, column {column}"
        _check.reject(argument, "be finite", place)
    return array
