"""One entry: the certified optimum of a task under a pattern."""

import equinox as eqx
import numpy as np
from jaxtyping import Float

from scaling import _check
from toyblocks.optimum.exact import NotSolvedError, installed, solve_exact
from toyblocks.optimum.factored import solve_factored
from toyblocks.optimum.program import Best, Program
from toyblocks.optimum.reduce import program_of
from toyblocks.optimum.splitting import solve_splitting
from toyblocks.task import AbstractTask, Backcopy, checked_kappa, require_task

METHODS = ("auto", "exact", "factored", "splitting")
LARGEST_EXACT, LARGEST_DENSE = 75, 50  # rows + columns up to which the interior-point method takes seconds
LARGEST_PRECISE = 200  # rows + columns up to which a gap of 2e-3 takes less than a minute


class Optimum(eqx.Module):
    """The least |W_QK|_* at margin 1, between two certificates; dimensionless.

    `primal`: the nuclear norm of `w_qk` [d d], which has margins >= 1 on every case of the routing; `dual`: a lower bound from
    multipliers; `gap` (primal - dual) / primal; `method`: what found them. The attention cost |W_Q|_F^2 + |W_K|_F^2 at margin
    kappa is at least 2 kappa `dual` and, for W_Q, W_K the balanced factors of kappa `w_qk`, 2 kappa `primal`.
    """

    primal: float
    dual: float
    gap: float
    w_qk: Float[np.ndarray, "d d"]
    method: str = eqx.field(static=True)

    def cost(self, kappa: float | int) -> float:
        """2 kappa `primal`. Raises `ValueError` for kappa outside [1e-100, 1e100]."""
        return 2 * checked_kappa(kappa) * self.primal


def optimum(
    task: AbstractTask,
    pattern: str,
    *,
    method: str = "auto",
    tolerance: float | int | None = None,
    steps: int = 40000,
    progress: bool = False,
) -> Optimum:
    """Solves min |W|_* under margins 1 of every case of `task.routing(pattern)`, with W = W_QK = W_Q^T W_K and the logits
    x_q^T W x_k times `task.logit_scale`; the logits of tied targets agree, and c^T W eta = 0 if the task has `centroid_keys`.

    `method`: `exact` (interior point; needs the extra `exact`), to a gap of about 1e-8; `factored` (augmented Lagrangian in U
    V) or `splitting` (ADMM), until the gap is at most `tolerance` (by default 1e-4 up to T = 35 or so, 1e-2 from T = 100 on,
    2e-3 between: seconds to a minute or two) or `steps` are done; `auto`: `exact` for small programs where it is installed,
    and `splitting` where it fails, else what was measured to be faster: `factored` for backcopy from T = 36 on, `splitting`
    for others. Whatever the method, both bounds are recomputed from the points found (`Program.primal`, `Program.dual`), so
    that they hold even where it failed, and then show it by their gap. Raises `ValueError` for what is no task, an unknown
    pattern or method, `exact` without cvxpy or where it fails, and `steps` too few for any feasible point.
    Source: section 7 and Appendix D; the cost decouples, since W_Q and W_K occur in no other constraint.
    """
    require_task(task)
    _check.known("method", method, METHODS)
    steps = _check.whole("steps", steps, 1)
    program = program_of(task, pattern)
    default = 1e-4 if program.size <= LARGEST_EXACT else 2e-3 if program.size <= LARGEST_PRECISE else 1e-2
    tolerance = _check.finite_at_least("tolerance", default if tolerance is None else tolerance, 0.0)
    if method == "auto":
        best, method = _automatic(program, isinstance(task, Backcopy), tolerance, steps, progress)
    else:
        best = solve(program, method, tolerance, steps, progress)
    if method == "exact":
        _check.require(np.isfinite(best.primal), "method", "be another one (no feasible point was found)", method)
    _check.require(np.isfinite(best.primal), "steps", "be larger (no feasible point was found in so few)", steps)
    factor = 1 / (task.logit_scale * task.dim)  # from tokens of norm 1 and plain inner products
    return Optimum(best.primal * factor, best.dual * factor, best.gap, program.lift(best.parts) * factor, method)


def solve(program: Program, method: str, tolerance: float | int = 2e-3, steps: int = 40000, progress: bool = False) -> Best:
    """The certificates of a program by a method other than `auto`."""
    if method != "exact":
        iterate = solve_splitting if method == "splitting" else solve_factored
        return iterate(program, tolerance, steps, progress)
    best = Best(program)
    best.update(*solve_exact(program))
    return best


def _automatic(program: Program, positions: bool, tolerance: float, steps: int, progress: bool) -> tuple[Best, str]:
    """The certificates by the method that suits the program, and which it was. With entries far apart (a small delta) the
    interior-point method can end with nothing."""
    if program.size > (LARGEST_EXACT if positions else LARGEST_DENSE) or not installed():
        method = "factored" if positions and program.size > LARGEST_EXACT else "splitting"
        return solve(program, method, tolerance, steps, progress), method
    try:
        exact = solve(program, "exact")
    except NotSolvedError:
        return solve(program, "splitting", max(tolerance, 2e-3), steps, progress), "splitting"
    if exact.gap <= tolerance:
        return exact, "exact"
    other = solve(program, "splitting", tolerance, steps, progress)
    return (exact, "exact") if exact.gap <= other.gap else (other, "splitting")
