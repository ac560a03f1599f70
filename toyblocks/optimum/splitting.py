"""The optimum by operator splitting (ADMM): a nuclear norm on one side, the margins of single cases on the other."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from tqdm import tqdm

from toyblocks.optimum.program import Best, Parts, Program

_RELAXED = 1.7  # over-relaxation, between 1 (none) and 2
_PATIENCE = 500  # steps between changes of the penalty: changing it forever may spoil convergence
_CHECKED = 50  # steps between certificates, whose two singular value decompositions cost as much as three steps


def solve_splitting(program: Program, tolerance: float | int, steps: int, progress: bool = False) -> Best:
    """ADMM until the certified gap is at most `tolerance`, or for `steps` steps.

    It minimises |A|_* + [Z meets the margins] subject to A = B, Z = L(B): A by shrinking singular values, Z by projecting each
    case on its own, B by a linear system, diagonal in fixed coordinates. The residual of the projection is a feasible dual
    table but for its norm, so that every step comes with both certificates. The penalty follows the two residuals (Boyd et al.
    2011, 3.4.1), and the progress bar shows the gap.
    """
    best = Best(program)
    project, solve = _projection(program), _normal_equations(program)
    parts = [np.zeros(each.shape) for each in program.components]
    moved, lag, shift = parts, parts, np.zeros(program.target.shape)
    logits, rho, changed = program.logits(moved), 1.0, 0
    with tqdm(total=steps, desc="optimum", unit="step", disable=None if progress else True) as bar:
        for step in range(1, steps + 1):
            aims = [b - late for b, late in zip(moved, lag, strict=True)]
            parts = [_shrunk(aim, each.copies / rho) for aim, each in zip(aims, program.components, strict=True)]
            margins = project(logits - shift)
            relaxed = [_RELAXED * a + (1 - _RELAXED) * b + late for a, b, late in zip(parts, moved, lag, strict=True)]
            table = _RELAXED * margins + (1 - _RELAXED) * logits + shift
            before, before_logits = moved, logits
            moved = solve([a + g for a, g in zip(relaxed, program.pull(table), strict=True)])
            logits = program.logits(moved)
            lag, shift = [a - b for a, b in zip(relaxed, moved, strict=True)], table - logits
            if step % _CHECKED and step < steps:
                continue
            bar.update(_CHECKED if step % _CHECKED == 0 else step % _CHECKED)
            wanted = logits - shift
            gap = best.update(moved, rho * (project(wanted) - wanted))
            bar.set_postfix(gap=f"{gap:.1e}", refresh=False)
            if gap <= tolerance:
                break
            primal = np.hypot(_distance(parts, moved), np.linalg.norm(margins - logits))
            dual = np.hypot(_distance(moved, before), np.linalg.norm(logits - before_logits))  # over rho
            factor = 1.5 if primal > 5 * rho * dual else 1 / 1.5 if rho * dual > 5 * primal else 1.0
            if factor != 1 and step - changed >= _PATIENCE:
                rho, changed = rho * factor, step
                lag, shift = [each / factor for each in lag], shift / factor
    return best


def _shrunk(matrix: Float[np.ndarray, "rows columns"], by: float) -> Float[np.ndarray, "rows columns"]:
    u, s, v = np.linalg.svd(matrix, full_matrices=False)
    rank = int(np.sum(s > by))
    return (u[:, :rank] * (s[:rank] - by)) @ v[:rank]


def _distance(some: Parts, others: Parts) -> float:
    return float(np.sqrt(sum(np.sum((a - b) ** 2) for a, b in zip(some, others, strict=True))))


def _normal_equations(program: Program) -> Callable[[Parts], list[Float[np.ndarray, "_ _"]]]:
    """Solves (1 + L^* L) B = R, L the map from blocks to logits."""
    if len(program.components) == 1 and program.components[0].copies == 1:
        only = program.components[0]
        (rows, left), (columns, right) = (np.linalg.eigh(side[:, 0].T @ side[:, 0]) for side in (only.query, only.key))
        scale = 1 + np.outer(rows, columns)
        return lambda parts: [left @ ((left.T @ parts[0] @ right) / scale) @ right.T]
    cases, keys = program.target.shape
    rows = program.operator(np.repeat(np.arange(cases), keys), np.tile(np.arange(keys), cases))
    inverse = np.linalg.inv(np.eye(rows.shape[1]) + rows.T @ rows)
    return lambda parts: program.split(inverse @ np.concatenate([part.ravel() for part in parts]))


def _projection(program: Program) -> Callable[[Float[np.ndarray, "cases keys"]], Float[np.ndarray, "cases keys"]]:
    """The nearest logits that meet the margins, case by case.

    Targets must be >= u + 1 and other keys <= u for some u. At a given u both are clipped, and the derivative in u of the squared
    distance, sum (u + 1 - z_t)_+ - sum (z_o - u)_+, is increasing and piecewise linear; Newton's method with bisection as a guard
    finds its zero. Tied targets are first replaced by their mean, which leaves the rest of the problem as it was.
    """
    target, other, tied, zero = program.target, program.other, program.tied, program.zero
    number = np.maximum(target.sum(axis=1), 1)

    def project(logits):
        if tied.any():
            mean = np.where(target, logits, 0.0).sum(axis=1) / number
            logits = np.where(target & tied[:, None], mean[:, None], logits)
        if zero.any():
            logits = np.where(zero, 0.0, logits)
        wins = np.where(target, logits, np.inf)
        loses = np.where(other, logits, -np.inf)
        low, high = wins.min(axis=1) - 1, loses.max(axis=1)
        short = np.flatnonzero(low < high)
        if len(short):
            u = _threshold(wins[short] - 1, loses[short], low[short], high[short])[:, None]
            rows = np.where(target[short], np.maximum(logits[short], u + 1), logits[short])
            logits = logits.copy()
            logits[short] = np.where(other[short], np.minimum(rows, u), rows)
        return logits

    return project


def _threshold(
    wins: Float[np.ndarray, "cases keys"],
    loses: Float[np.ndarray, "cases keys"],
    low: Float[np.ndarray, "cases"],
    high: Float[np.ndarray, "cases"],
) -> Float[np.ndarray, "cases"]:
    """The zero of sum (u - wins)_+ - sum (loses - u)_+ between low and high; entries that do not count are infinite."""
    low, high, u = low.copy(), high.copy(), (low + high) / 2
    for _ in range(60):
        above, below = u[:, None] - wins, loses - u[:, None]
        counts = (above > 0).sum(axis=1) + (below > 0).sum(axis=1)
        value = np.maximum(above, 0.0).sum(axis=1) - np.maximum(below, 0.0).sum(axis=1)
        high, low = np.where(value > 0, np.minimum(high, u), high), np.where(value <= 0, np.maximum(low, u), low)
        newton = u - value / np.maximum(counts, 1)
        newton = np.where((newton < low) | (newton > high), (low + high) / 2, newton)
        done = np.abs(newton - u).max() <= 1e-14 * (1 + np.abs(newton).max())
        u = newton
        if done:
            break
    return u
