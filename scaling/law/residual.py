"""Proposition 4.4 and Corollary E.8: what one layer of attention does to a token, and to the cosine similarity of two."""

import math
from typing import ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Float

from scaling import _check
from scaling.law.base import PAPER, exp
from scaling.law.local import LocalDensity, checked
from scaling.law.subcritical_output import SubcriticalOutput, part_of


class ResidualUpdate(eqx.Module):
    """q' = normalise(q + gamma Y_n(q)) for V = Id, (4.4), in the drift part of Theorem 4.3: beta (q' - q) -> gamma grad log
    rho(q) in probability, (4.5).

    So a layer is a step of length gamma / beta (`time_step`) of Euler's method for the flow q' = grad log rho(q). The drift's
    part along q is taken out by the normalisation. At a critical point of the density the limit is zero: to first order that
    query does not move.
    """

    theorem: ClassVar[str] = "4.4"
    source: ClassVar[str] = f"{PAPER}, Proposition 4.4 (4.5)"

    local: LocalDensity
    step: float
    """gamma of (4.4), > 0."""
    log_scale: float
    """log beta, the scale of (4.5)."""

    @classmethod
    def at(cls, local: LocalDensity, n: float | int, beta: float | int, *, step: float | int = 1.0) -> "ResidualUpdate":
        """The law of a row of n keys at inverse temperature beta > 0; `n` is only checked. Raises `ValueError` naming the
        argument that is out of range."""
        local = checked("local", local)
        _check.context_length(n)
        log_beta = math.log(_check.finite_above("beta", beta, 0.0))
        step = _check.finite_above("step", step, 0.0)
        log_slope = math.log(max(1.0, float(np.max(np.abs(local.gradient)))))
        must = "be smaller: step / beta, or the update, is out of range"
        _check.require(math.log(step) + log_slope - min(log_beta, 0.0) < 700, "step", must, step)
        return cls(local, step, log_beta)

    @classmethod
    def regime(cls, d: int, n: float | int, beta: float | int, *, log_intensity: float | None = None) -> bool:
        """That of the drift part: Theorem 4.3's regime, and tau = beta^{1+alpha} n^{-alpha} < 0.1."""
        return SubcriticalOutput.regime(d, n, beta, log_intensity=log_intensity) and part_of(d, n, beta) == "drift"

    @property
    def time_step(self) -> float:
        """gamma / beta: the time of the flow q' = grad log rho(q) that one layer takes."""
        return self.step * exp(-self.log_scale)

    def mean(self) -> Float[np.ndarray, " d"]:
        """gamma grad log rho(q), the limit of beta (q' - q): a tangent vector, and not random."""
        return self.step * self.local.gradient

    def update(self) -> Float[np.ndarray, " d"]:
        """The query after the layer to first order, normalise(q + time_step grad log rho(q))."""
        moved = self.local.query + self.time_step * self.local.gradient
        moved /= np.max(np.abs(moved))  # its square may overflow
        return moved / np.linalg.norm(moved)


def similarity_rate(first: LocalDensity, second: LocalDensity, step: float | int = 1.0) -> float:
    """The limit of beta (<q1', q2'> - <q1, q2>) for two queries updated by one layer, V = Id, in probability, (E.14):

    gamma (<grad log rho(q1), q2> + <q1, grad log rho(q2)>); dimensionless, gamma = `step`.

    Corollary E.8: for q1 near a critical point q2 of the density it is -gamma theta^2 <Hess log rho(q2) u, u> + o(theta^2), theta
    the angle between them and u the direction: positive near a maximum and negative near a minimum. The corollary asks for a
    strict one, but its proof for a definite Hessian, and so it must: log rho = -theta^6 (2 + sin(1/theta)) + const, C^2 with a
    strict maximum at theta = 0, has a gradient of either sign at every distance.

    Raises `ValueError` unless both are of one dimension and `step` is > 0.
    """
    first, second = checked("first", first), checked("second", second)
    _check.require(first.d == second.d, "second", f"have d = {first.d}", f"of d = {second.d}")
    step = _check.finite_above("step", step, 0.0)
    return step * float(first.gradient @ second.query + first.query @ second.gradient)
