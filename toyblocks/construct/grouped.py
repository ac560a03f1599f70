"""Weights that solve the grouped task: the sink and the diagonal of Theorem D.1, at any coherence phi with 2 C phi < 1."""

import numpy as np
from jaxtyping import Float
from scipy.optimize import root_scalar

from scaling import _check
from toyblocks.block import Block, factors
from toyblocks.task import Grouped

Array = np.ndarray


def sink(task: Grouped, kappa: float, variant: str) -> Block:
    """Dormant tokens attend to BOS, whose value is 0; W_O W_V = v T and the MLP is the linear map w T of one ReLU region, where T
    (`T_base`) is the identity on dormant tokens and 0 on the others. Dormant tokens get w times themselves, copy tokens
    v (1 + w/R) times the mean of their group, with R sqrt(d) the norm of their state.

    `printed`: v = 1/2, w = 1 + epsilon. Otherwise w = 1 - epsilon and the least v that the labels allow. Smallest margin kappa.
    Raises `ValueError` where epsilon is so small that the labels cannot be met.
    """
    lam, unit, groups = task.centroid_weight, _unit(task, kappa), range(task.groups)
    m = np.zeros((len(task.special),) * 2)
    m[1:, 0] = unit / lam
    for c in groups:
        m[1 + task.groups + c, 1 + c] = unit * (1 + lam) / lam**2
    dual, base = _dual(task), _base(task)
    value, mlp = (0.5, 1 + task.epsilon) if variant == "printed" else _least_value(task)
    _require_labels(task, value, mlp)
    w_2, w_1 = factors(mlp * base)
    b_1 = np.linalg.norm(w_1, axis=1) * np.sqrt(task.dim)  # every state has norm sqrt(d), so that no unit is ever off
    return _block(task, dual.T @ m @ dual, value * base, w_1, b_1, w_2, -w_2 @ b_1)


def diagonal(task: Grouped, kappa: float) -> Block:
    """Every token attends to itself, but for copy tokens with their group before them; W_O W_V = (1 - epsilon) T, without an MLP.

    The noise part of W_QK is 2 kappa sqrt(d)/Delta_diag times the projection on the noise (0 if no group has two distinct
    tokens). Smallest margin kappa.
    """
    lam, unit = task.centroid_weight, _unit(task, kappa)
    m = np.zeros((len(task.special),) * 2)
    for c in range(1, 1 + task.groups):
        copy = task.groups + c
        m[c, c], m[copy, copy], m[copy, c] = unit / lam**2, unit, 2 * unit / lam
    dual = _dual(task)
    w_qk = dual.T @ m @ dual + 2 * kappa / (task.logit_scale * task.separation) * _noise_projector(task)
    nothing = np.zeros((task.dim, task.dim))
    return _block(task, w_qk, (1 - task.epsilon) * _base(task), nothing, np.zeros(task.dim), nothing, np.zeros(task.dim))


def norm_range(task: Grouped, value: float) -> tuple[float, float]:
    """Bounds on the norm R of a copy token's state c + v mu, over sqrt(d): mu is a mean of tokens of its group, so that
    lambda^2 d <= |mu|^2 <= d and <c, mu> = lambda phi d."""
    lam, cross = task.centroid_weight, 2 * value * task.centroid_weight * task.coherence
    return float(np.sqrt(1 + (value * lam) ** 2 + cross)), float(np.sqrt(1 + value**2 + cross))


def printed_fits(task: Grouped) -> bool:
    """Whether the labels' epsilon allows v = 1/2, w = 1 + epsilon, as it does under the assumptions of Theorem D.1."""
    return _fits(task, 0.5, 1 + task.epsilon)


def _fits(task: Grouped, value: float, mlp: float) -> bool:
    low, high = norm_range(task, value)
    rounding = 1e-13
    return value * (1 + mlp / high) >= 1 - task.epsilon - rounding and value * (1 + mlp / low) <= 1 + task.epsilon + rounding


def _require_labels(task: Grouped, value: float, mlp: float) -> None:
    must = "be larger: the labels are too tight for this construction"
    _check.require(_fits(task, value, mlp), "epsilon", must, task.epsilon)


def _least_value(task: Grouped) -> tuple[float, float]:
    mlp = 1 - task.epsilon

    def excess(value: float) -> float:
        return value * (1 + mlp / norm_range(task, value)[1]) - (1 - task.epsilon)

    return float(root_scalar(excess, bracket=(0.0, 1.0), xtol=1e-15).root), mlp


def _unit(task: Grouped, kappa: float) -> float:
    """What makes kappa of a logit between special vectors: kappa/sqrt(d) with the standard scaling."""
    return kappa / (task.dim * task.logit_scale)


def _dual(task: Grouped) -> Float[Array, "special d"]:
    """Pi: the coefficients of the special vectors, over their norm."""
    return np.linalg.pinv(task.special.T / np.sqrt(task.dim))


def _noise_projector(task: Grouped) -> Float[Array, "d d"]:
    rank = task.noise_rank
    basis = np.linalg.svd(task.etas.reshape(-1, task.dim), full_matrices=False)[2][:rank]
    return basis.T @ basis


def _base(task: Grouped) -> Float[Array, "d d"]:
    """T_base = P_eta + U D_cent Pi."""
    centroids = slice(1, 1 + task.groups)
    return _noise_projector(task) + task.special[centroids].T / np.sqrt(task.dim) @ _dual(task)[centroids]


def _block(
    task: Grouped,
    w_qk: Float[Array, "d d"],
    value: Float[Array, "d d"],
    w_1: Float[Array, "width d"],
    b_1: Float[Array, "width"],
    w_2: Float[Array, "d width"],
    b_2: Float[Array, "d"],
) -> Block:
    w_q, w_k = factors(w_qk)
    w_o, w_v = factors(value)
    return Block(w_q.T, w_k, w_v, w_o, w_1, b_1, w_2, b_2, task.logit_scale)
