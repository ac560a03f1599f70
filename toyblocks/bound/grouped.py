"""Theorems 7.2 and D.1: bounds on the cost of both patterns for the grouped task, boxed, from their proofs, and by duality."""

import math

import equinox as eqx
import numpy as np
from jaxtyping import Float

from toyblocks.construct.grouped import printed_fits
from toyblocks.task import Grouped

ROUNDING = 1e-12


class GroupedBound(eqx.Module):
    """Bounds on total costs, dimensionless, at smallest margin kappa; k = kappa/sqrt(d), or kappa where logits are divided by d.

    `sink_upper` 12kC + 5(r_eta + C), `sink_lower` kC/2, `diagonal_upper` 13kC + noise + 3(r_eta + C), `diagonal_lower`
    k r_eff/delta^2 + kC/2: the boxed ones of Theorem D.1, None where an assumption is `broken` (their names). Without noise, or
    without two distinct tokens in a group, the terms in delta and Delta_diag vanish.

    `*_sharp`: the same proofs without their last estimates, with gamma, beta, s_lambda, s~_lambda, epsilon, and with the number
    of distinct pairs in place of tr Sigma_D <= 4 delta^2 d N_D, twice as good for orthonormal noise. The upper one of the sink
    needs labels that allow the construction, the lower ones keys that copy queries see by their centroid or, without
    `centroid_keys`, orthonormal noise (lambda^2 + delta^2/n in place of lambda^2); None otherwise.

    `*_dual`: lower bounds for the task as it is posed, from the operator norms themselves. Where its group is absent a copy query
    prefers BOS (itself) to a wrong group by kappa, where it is present its group to BOS (itself), hence by 2 kappa the right
    group to a wrong one, twice what the paper uses.

    `condition_left`, `condition_right`: the sides of (4). `sink_cheaper`: provably, from the sharp upper and the best lower
    bound; `sink_cheaper_printed`: (4) holds and nothing is broken. `effective_rank` r_eff, `noise_rank` r_eta, `separation`
    Delta_diag, `broken`: the assumptions of Theorem D.1 that fail.
    """

    sink_upper: float | None
    sink_lower: float | None
    diagonal_upper: float | None
    diagonal_lower: float | None
    sink_upper_sharp: float | None
    sink_lower_sharp: float | None
    diagonal_upper_sharp: float
    diagonal_lower_sharp: float | None
    sink_lower_dual: float
    diagonal_lower_dual: float
    condition_left: float
    condition_right: float
    sink_cheaper: bool
    sink_cheaper_printed: bool
    effective_rank: float
    noise_rank: int
    separation: float
    broken: tuple[str, ...]


def grouped_bound(task: Grouped, kappa: float) -> GroupedBound:
    """The bounds for a task."""
    unit, groups, phi = kappa / (task.dim * task.logit_scale), task.groups, task.coherence
    rank, noise_rank, separation = task.effective_rank, task.noise_rank, task.separation
    spread = rank / task.delta**2 if task.delta else 0.0
    apart = 4 * kappa * noise_rank / (task.logit_scale * separation)  # 0 where the separation is infinite
    left, right = 12 * unit * groups + 5 * (noise_rank + groups), unit * spread
    broken = _broken(task)
    holds = not broken

    lam = task.centroid_weight
    gamma, beta = 1 / (1 - 2 * groups * phi), math.sqrt((1 + 2 * groups * phi) / (1 - 2 * groups * phi))
    base = noise_rank + groups * beta
    sink_upper = 2 * gamma * unit * (math.sqrt(2 * groups) / lam + groups * (1 + lam) / lam**2) + (3 + 2 * task.epsilon) * base
    diagonal_upper = 2 * gamma * unit * groups * (1 + 1 / lam) ** 2 + apart + 2 * (1 - task.epsilon) * base
    sink_lower = diagonal_lower = None
    seen = _key_weight(task)
    if seen is not None:
        copying = 2 * groups**2 * unit / (1 + 2 * groups * phi)
        sink_lower = copying / s_lambda(groups, seen)
        diagonal_lower = _noise_lower(task, kappa) + copying / s_lambda_tilde(groups, seen)
    sink_dual, diagonal_dual = _dual(task, kappa)
    upper = sink_upper if printed_fits(task) else None
    best = max(diagonal_dual, diagonal_lower or 0.0)
    return GroupedBound(
        left if holds else None,
        unit * groups / 2 if holds else None,
        13 * unit * groups + apart + 3 * (noise_rank + groups) if holds else None,
        right + unit * groups / 2 if holds else None,
        upper,
        sink_lower,
        diagonal_upper,
        diagonal_lower,
        sink_dual,
        diagonal_dual,
        left,
        right,
        upper is not None and upper < best,
        holds and left < right,
        rank,
        noise_rank,
        separation,
        broken,
    )


def s_lambda(groups: int, weight: float) -> float:
    """max(lambda (C + 1), sqrt(C + lambda^2)): the operator norm of N_sink in Theorem D.1."""
    return max(weight * (groups + 1), math.sqrt(groups + weight**2))


def s_lambda_tilde(groups: int, weight: float) -> float:
    """sqrt(1 + lambda^2 (C + 1)^2): the operator norm of N_lambda in Theorem D.1."""
    return math.sqrt(1 + (weight * (groups + 1)) ** 2)


def _broken(task: Grouped) -> tuple[str, ...]:
    """The assumptions of Theorem D.1 that fail, in words."""
    assumptions = {
        "2 C phi <= 1/4": 2 * task.groups * task.coherence <= 1 / 4 + ROUNDING,
        "phi <= 1/20": task.coherence <= 1 / 20 + ROUNDING,
        "delta <= 1/2": task.delta <= 1 / 2,
        "1/20 <= epsilon": task.epsilon >= 1 / 20 - ROUNDING,
        "epsilon <= 1/4": task.epsilon <= 1 / 4,
        "c^T W eta = 0": _key_weight(task) is not None,  # centroid_keys; orthonormal noise does without
    }
    return tuple(name for name, holds in assumptions.items() if not holds)


def _key_weight(task: Grouped) -> float | None:
    """The norm, over sqrt(d), of the mean key of a group that copy queries see; the proof needs no more of it. None where means
    of groups need not be as orthogonal to one another as their centroids."""
    if task.centroid_keys or not task.delta:
        return task.centroid_weight
    if task.noise == "orthonormal":
        return math.sqrt(task.centroid_weight**2 + task.delta**2 / task.per_group)
    return None


def _pairs(task: Grouped) -> int:
    """N_D: every pair of distinct tokens of a group can stand in both orders; members that coincide need no margin."""
    return int(task.distinct.sum()) // 2


def _noise_lower(task: Grouped, kappa: float) -> float:
    """2 |W_QK|_* >= 2 <W_QK, Sigma_D>/|Sigma_D|_2 with <W_QK, Sigma_D> >= 2 kappa N_D over the scale of the logits."""
    pairs = _pairs(task)
    return 4 * kappa * pairs / (task.logit_scale * _norm(task.noise_covariance)) if pairs else 0.0


def _dual(task: Grouped, kappa: float) -> tuple[float, float]:
    """2 <W_QK, B>/|B|_2 for the sums B of margins of copy queries and, for the diagonal, of dormant ones beside them."""
    groups, count = task.groups, 1 + task.groups
    keys = task.centroid_weight * task.special[1:count]
    if not task.centroid_keys:
        keys = keys + task.etas.mean(axis=1)
    copies, total = task.special[count:], keys.sum(axis=0)
    margins = kappa * groups * (1 + 2 * (groups - 1)) / task.logit_scale
    sink = copies.T @ ((groups + 1) * keys - total - task.special[0])
    routing = copies.T @ ((groups + 1) * keys - total - copies)
    size = _norm(routing)
    noise, value = task.noise_covariance, margins / size
    matrix = routing / size
    if _pairs(task):
        matrix = matrix + noise / _norm(noise)
        value += _noise_lower(task, kappa) / 2
    return 2 * margins / _norm(sink), 2 * value / _norm(matrix)


def _norm(matrix: Float[np.ndarray, "d d"]) -> float:
    return float(np.linalg.norm(matrix, 2))
