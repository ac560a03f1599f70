"""The optimum by an interior-point method: cvxpy with Clarabel, on the dual program."""

import warnings

import numpy as np
from jaxtyping import Float

from toyblocks.optimum.program import Program
from toyblocks.task import require_room

MISSING = 'Argument `method` must not be `exact` without cvxpy: pip install "attention-scaling-limits[exact]".'


class NotSolvedError(ValueError):
    """The interior-point method ended without a point."""


def installed() -> bool:
    """Whether cvxpy can be imported."""
    try:
        import cvxpy  # noqa: F401
    except ImportError:
        return False
    return True


def solve_exact(program: Program) -> tuple[list[Float[np.ndarray, "_ _"]], Float[np.ndarray, "cases keys"]]:
    """A primal and a dual point, optimal to about 1e-8; neither is a certificate before `Program.primal` and `Program.dual`.

    It solves max sum a subject to [[c I, G], [G^T, c I]] >= 0 for every block, which has one semidefinite cone of rows + columns
    and no variables but the multipliers a >= 0 of pairs (target, other key); W is the dual variable of the cone. That is three to
    five times faster than the primal program. Raises `ValueError` if cvxpy is not installed, for a program that does not fit in
    memory, and, as `NotSolvedError`, where Clarabel ends without a point.
    """
    try:
        import cvxpy as cp
    except ImportError as error:
        raise ValueError(MISSING) from error
    import scipy.sparse as sparse

    first = program.target & (np.cumsum(program.target, axis=1) == 1)
    winners = np.where(program.tied[:, None], first, program.target)
    case, target, other = np.nonzero(winners[:, :, None] & program.other[:, None, :])
    require_room("method", "exact", len(case), sum(int(np.prod(each.shape)) for each in program.components))
    wins, loses, equal = program.operator(case, target), program.operator(case, other), program.equalities
    rows = sparse.csr_matrix(np.where(np.abs(wins - loses) > 1e-15, wins - loses, 0.0))
    multipliers, free = cp.Variable(len(case), nonneg=True), cp.Variable(max(len(equal), 1))
    pulled = rows.T @ multipliers + (sparse.csr_matrix(equal).T @ free if len(equal) else 0)
    cones, start = [], 0
    for each in program.components:
        stop = start + int(np.prod(each.shape))
        gradient = cp.reshape(pulled[start:stop], each.shape, order="C")
        here, there = (each.copies * np.eye(size) for size in each.shape)
        cones.append(cp.bmat([[here, gradient], [gradient.T, there]]) >> 0)
        start = stop
    problem = cp.Problem(cp.Maximize(cp.sum(multipliers)), cones)
    tight = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a solution may be inaccurate is for the certificates to say
        try:
            problem.solve(solver=cp.CLARABEL, **tight)
        except cp.SolverError:
            pass  # cvxpy raises for some failures, and leaves no values for others
    if multipliers.value is None or any(cone.dual_value is None for cone in cones):
        raise NotSolvedError(
            f"Argument `method` must not be `exact` for this program: Clarabel ended with {problem.status or 'an error'}."
        )
    parts = [
        -2 * np.asarray(cone.dual_value)[: each.shape[0], each.shape[0] :]
        for cone, each in zip(cones, program.components, strict=True)
    ]

    table = np.zeros(program.target.shape)
    weight = np.maximum(np.asarray(multipliers.value), 0.0)
    np.add.at(table, (case, target), weight)
    np.add.at(table, (case, other), -weight)
    if len(equal):
        values = np.asarray(free.value)
        tie_case, tie_key = np.nonzero(program.target & program.tied[:, None] & ~first)
        np.add.at(table, (tie_case, tie_key), values[: len(tie_case)])
        np.add.at(table, (tie_case, program.target.argmax(axis=1)[tie_case]), -values[: len(tie_case)])
        table[program.zero] = values[len(tie_case) :]
    return parts, table
