"""Expected sums over the keys, by 1/Z^p = 1/Gamma(p) int s^{p-1} e^{-sZ} ds.

With s = e^u, v = u - y, mu the count density of y and n G(u) = int (1 - exp(-e^v)) mu(dy), one key gives

    E sum A^p h(T) = 1/Gamma(p) int du int mu(dy) h e^{pv} exp(-e^v) (1 - G)^{n-1},

and two keys give the second moments: E (sum A^p h)^2 = 1/Gamma(2p) int du [<h^2>_{2p} (1 - G)^{n-1} + (1 - 1/n) <h>_p^2 (1 -
G)^{n-2}], where <h>_p is the inner integral. At p = 1, h = 1 this is sum A = 1: the measure under which -E u is E log Z - psi(1)
and -E v is E entropy - psi(1). The second difference cancels far above criticality; integration by parts gives
the entropy as an integral of positive terms, with g(r) = Ein(r) - (1 - e^{-r}) (log r - psi(1)), r = e^v:

    E entropy = (1 - 1/n) int du <1>_1 (1 - G)^{n-2} int mu(dy) g(e^v).

In the critical limit (Theorem 3.2) the powers of 1 - G become e^{-nG}, and 1 - 1/n becomes 1.
"""

import math

import numpy as np
from scipy.special import digamma, exp1

from scaling.exact.ordered import Kernel, log_survival

_MOMENTS = {"ipr": 2, "sum_cubes": 3, "sum_fourths": 4}
NAMES = (
    *_MOMENTS, "entropy", "log_partition", "mean_d2q", "tangential_square", "tangential_square_given_d2q", "output_square",
    "ipr_squared", "mean_d2q_squared",
)  # fmt: skip


def sums(kernel: Kernel, names: set[str]) -> dict[str, float]:
    """Contributions of one window to the expected values of those `names` that are in `NAMES`; also "unit", which adds up to
    1."""
    points, window = kernel.points, kernel.window
    du = window.du
    one = np.exp(log_survival(points, kernel.g, 1)) * du
    density = kernel.tilted * kernel.k
    unit = _inner(density)
    answers = {"unit": float(unit @ one)}

    pair = _pairs(kernel) * du
    if "entropy" in names:
        answers["entropy"] = float((unit * _inner(kernel.tilted * _entropy_kernel(kernel.ev, window.v))) @ pair)
    if "log_partition" in names:
        answers["log_partition"] = float((digamma(1.0) - window.u) * unit @ one)

    if names.isdisjoint(_WEIGHTED):
        return answers
    square = density * kernel.ev
    power, density_p = {2: _inner(square)}, square
    for p in (3, 4):
        density_p = density_p * kernel.ev
        power[p] = _inner(density_p)
    for name, p in _MOMENTS.items():
        answers[name] = float(power[p] @ one) / math.gamma(p)

    first = _inner(density * window.t)
    second = _inner(square * window.t)
    third = _inner(square * window.t**2)
    answers["mean_d2q"] = float(first @ one)
    answers["mean_d2q_squared"] = float(third @ one + first**2 @ pair)
    answers["ipr_squared"] = float(power[4] @ one + power[2] ** 2 @ pair) / math.gamma(4)
    # |P_q x|^2 = 2T - T^2; in the limit T^2 is of lower order, and what is computed is the limit of beta times this.
    tangential = float((2 * second) @ one) if points.limit else float((2 * second - third) @ one)
    answers["tangential_square"] = answers["tangential_square_given_d2q"] = tangential
    if not points.limit and "output_square" in names:
        along = _inner(density * (1 - window.t))
        answers["output_square"] = tangential + float(_inner(square * (1 - window.t) ** 2) @ one + along**2 @ pair)
    return answers


_WEIGHTED = frozenset(NAMES) - {"entropy", "log_partition"}


def top_gap(kernel: Kernel) -> float:
    """Contribution of one window to E (1 - A_(1)), as the expected weight of the keys beyond the first: no digits are lost to 1 -
    A_(1)."""
    mass = np.exp(np.minimum(kernel.window.log_mass, 600.0)) * kernel.k
    below, _ = kernel.running(mass)
    weight, total = kernel.running(kernel.tilted * kernel.k)
    beyond = np.maximum(total[:, None, None] - weight, 0.0)
    b = np.minimum(kernel.g[:, None, None] + np.maximum(below, 0.0), 1e300)
    power = log_survival(kernel.points, b, 2)
    share = 1.0 if kernel.points.limit else 1 - 1 / kernel.points.n
    return share * float(np.einsum("i,ijk,ijk,ijk->", kernel.window.du, mass + np.zeros_like(beyond), beyond, np.exp(power)))


# (-1)^{k+1} / (k k!), the series of Ein.
_EIN = np.array([(-1) ** (k + 1) / (k * math.factorial(k)) for k in range(1, 21)])


def _entropy_kernel(r: np.ndarray, log_r: np.ndarray) -> np.ndarray:
    """g(r) / r, where g(r) = int_0^r e^{-s} (psi(1) - log s) ds >= 0."""
    small = np.minimum(r, 1.5)
    ratio = -np.expm1(-small) / np.maximum(small, 1e-300)
    value = np.polynomial.polynomial.polyval(small, _EIN) - (log_r - digamma(1.0)) * ratio
    large = r > 1.5
    s = r[large]
    value[large] = (exp1(s) + np.exp(-s) * (np.log(s) - digamma(1.0))) / s
    return value


def _pairs(kernel: Kernel) -> np.ndarray:
    """(1 - 1/n) (1 - G)^{n-2}: the factor of two different keys."""
    share = 1.0 if kernel.points.limit else 1 - 1 / kernel.points.n
    return share * np.exp(log_survival(kernel.points, kernel.g, 2))


def _inner(density: np.ndarray) -> np.ndarray:
    return density.sum(axis=(1, 2))
