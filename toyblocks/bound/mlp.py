"""Lower bounds on the MLP of a sink, which the paper conjectures, where the value of BOS is 0."""

import numpy as np
from jaxtyping import Float

from scaling import _check
from toyblocks.task import AbstractTask, Backcopy, Grouped, effective_rank, require_task


def mlp_lower(task: AbstractTask) -> float:
    """A lower bound on |W_1|_F^2 + |W_2|_F^2, at any width, of every block that solves the task with a sink and
    W_O W_V x_BOS = 0; dimensionless. 2(T + |D| - 2) for backcopy, 2(1 - epsilon)(C n - 1) for grouped with orthonormal noise.

    A dormant token x_i attends to BOS alone, so that it meets the MLP as it is, and the MLP alone has to return y_i = phi_i x_i,
    |phi_i - 1| <= epsilon. Take weights w_ij >= 0 on pairs of dormant tokens, L the Laplacian of this graph, X = [x_1, x_2, ...],
    M = X L X^T = sum_{i<j} w_ij (x_i - x_j)(x_i - x_j)^T. Biases drop out of differences, and ReLU is 1-Lipschitz: for
    R = relu(W_1 X + b_1 1^T), tr(R L R^T) <= tr(W_1 M W_1^T) <= |W_1|_F^2 |M|_2. As Y = W_2 R + b_2 1^T,

        |Y L^{1/2}|_* <= |W_2|_F |R L^{1/2}|_F <= |W_1|_F |W_2|_F |M|_2^{1/2} <= (|W_1|_F^2 + |W_2|_F^2)/2 |M|_2^{1/2}.

    And |Y L^{1/2}|_* |M|_2^{1/2} >= <Y L^{1/2}, X L^{1/2}> = sum_{i<j} w_ij (phi_i + phi_j)/2 |x_i - x_j|^2, which is at least
    (1 - epsilon) tr M, since all |x_i| agree. Hence the cost is at least 2(1 - epsilon) tr M/|M|_2, whatever the weights w_ij.
    Here: equal weights between tokens that share a content and between those that share a position (backcopy), for which M is
    flat on T + |D| - 2 dimensions; weights within and between groups for which M is flat on C n - 1 dimensions where the noise is
    orthonormal. For other noise these, or those within alone, which give M = Sigma_D and the bound
    2(1 - epsilon) r_eff(Sigma_D), or those between alone, whichever is best.

    Blocks with W_O W_V x_BOS != 0 can be cheaper. Raises `ValueError` for a task that is neither.
    """
    require_task(task)
    if isinstance(task, Backcopy):
        return 2.0 * (task.context_length + task.dormant - 2)
    if isinstance(task, Grouped):
        if task.delta and task.noise == "orthonormal":
            return 2 * (1 - task.epsilon) * (task.groups * task.per_group - 1)
        within, between = task.noise_covariance, _between(task)
        lam = task.centroid_weight**2 * (1 - task.coherence)
        flat = task.delta**2 / (task.groups * task.per_group * lam + task.delta**2)
        best = max(effective_rank(each) for each in (within, between, within + flat * between))
        return 2 * (1 - task.epsilon) * best
    _check.reject("task", "be a Backcopy or a Grouped task", task.name)


def _between(task: Grouped) -> Float[np.ndarray, "d d"]:
    """M of the graph that joins dormant tokens of different groups."""
    x, group = task.tokens[task.is_dormant], task.group_of[task.is_dormant]
    joined = (group[:, None] != group).astype(float)
    return x.T @ (np.diag(joined.sum(axis=1)) - joined) @ x
