"""Checks of Theorem F.3 and Remarks F.4 and F.5: under RoPE the average C-bar(q) along the orbit takes the place of C(q).

Keys are von Mises-Fisher with a mean that is not the query, so that C-bar is 3 to 4 times C: on the full torus of two independent
frequencies, and on an orbit of period 5.
"""

import math
from collections.abc import Iterator

import numpy as np
from scipy import special

from scaling.context import Independent, Rotary
from scaling.density import VonMisesFisher
from scaling.law import Critical, OrbitCritical, Supercritical
from scaling.rope import FractionsOfATurn, PhaseLaw, Rope, empirical_mean, log_orbit_intensity
from scaling.verify.check import Check, Setup, approach, context_rows, equal, mean_check

_D = 4
_CONCENTRATION = 2.0
MEAN = np.array([0.3, -0.5, 0.7, 0.2]) / math.sqrt(0.87)
QUERY = np.array([0.5, 0.5, -0.5, 0.5])
DENSITY = VonMisesFisher(MEAN, _CONCENTRATION)
ROPES = {
    "independent frequencies": Rope.geometric(_D, 3),  # 1 and 3^{-1/2} radians
    "orbit of period 5": Rope(_D, FractionsOfATurn(["1/5", "2/5"])),
}
_KEYS = ("independent frequencies",)  # the orbit for which every key is drawn, too: a compilation
STATISTICS = ("top_weight", "second_weight", "ipr", "entropy")
_FAR, _NEAR = 1e12, 65536.0  # n of the engines `extremes` and `keys`
_GAMMA, _ABOVE = 1.0, 30.0  # beta n^{-alpha}
_BETAS = (1e2, 1e3, 1e4)
_LENGTH = 10**5
_GRID = 64  # per phase, in Fourier coefficients


def rope(setup: Setup) -> Iterator[Check]:
    """Theorem F.3 and Remark F.4 for both orbits: E e^{-beta T} averaged along the orbit on its way to the power law (Lemma D.1),
    and rows at, and far above, the critical inverse temperature."""
    for name, rotation in ROPES.items():
        log_c = _log_intensity(setup, rotation)
        a = (_D - 1) / 2
        exact = [_transform(rotation, beta) for beta in _BETAS]
        law = [math.exp(setup.constants.log_window(_D, 1.0, beta, log_c) + math.lgamma(a + 1)) for beta in _BETAS]
        yield from approach("F.4, D.1", f"{name}, beta=100..1e4", "E exp(-beta T)", _BETAS, exact, law, 1.0)
        if setup.simulate:
            yield from _rows(setup, name, rotation, log_c)


def orbit_average(setup: Setup) -> Iterator[Check]:
    """Remark F.5: the average of the local intensities over the first n targets tends to C-bar(q), like 1/n; in closed form on
    the full torus; and C-bar(q) = C(q) where the density does not change along the orbit."""
    torus, finite = ROPES["independent frequencies"], ROPES["orbit of period 5"]
    here = DENSITY.d2q(QUERY).log_intensity
    for name, rotation in ROPES.items():
        found = empirical_mean(rotation, QUERY, _relative_density, _LENGTH)
        predicted = math.exp(_log_intensity(setup, rotation) - here)
        # The rounding of the phase law's quadrature.
        error = 1e-10 * predicted + (_discrepancy(torus) / _LENGTH if rotation is torus else 0.0)
        setting = f"{name}, n={_LENGTH:g}"
        yield equal("F.5", setting, "mean of C(u_i)/C(q)", predicted, found, error, "orbit / phase law")
    x = _CONCENTRATION * np.hypot(*MEAN[torus.coordinates]) * np.hypot(*QUERY[torus.coordinates])
    closed = float(np.prod(special.i0(x))) * math.exp(-_CONCENTRATION * float(QUERY @ MEAN))
    predicted = math.exp(_log_intensity(setup, torus) - here)
    yield equal("F.5", "independent frequencies", "C-bar(q)/C(q)", predicted, closed, 1e-10 * closed, "closed form / phase law")
    # A mean off the rotated planes.
    density, query = VonMisesFisher(np.eye(5)[4], 3.0), np.array([0.5, -0.4, 0.2, 0.6, 0.43588989435406733])
    rotation = Rope(5, finite.frequencies)
    local = density.d2q(query).log_intensity
    average = log_orbit_intensity(density, PhaseLaw.of(rotation, query))[0]
    yield equal("F.5", "invariant density", "log C-bar(q)", local, average, 1e-8, "phase law / local")


def _rows(setup: Setup, name: str, rotation: Rope, log_c: float) -> Iterator[Check]:
    """Simulated means against the law. What is left of finite n and beta is of the order of 1/beta, with a constant of the order
    of d and the concentration, and 1/n."""
    context = Rotary(Independent(DENSITY), rotation)
    alpha = 2 / (_D - 1)
    for n, engine, count in ((_FAR, "extremes", 40_000), (_NEAR, "keys", 100)):
        if engine == "keys" and (setup.quick or name not in _KEYS):
            continue
        betas = [gamma * n**alpha for gamma in ((_GAMMA, _ABOVE) if engine == "extremes" else (_GAMMA,))]
        statistics = [*STATISTICS, "top_gap"]
        drawn = context_rows(setup, context, QUERY, n, betas, statistics, setup.replicates(count), engine, tolerance=1e-5)
        values, bias = drawn[0]
        law = OrbitCritical(Critical(_D, setup.constants.log_window(_D, n, betas[0], log_c)))
        where = f"d={_D}, {name}, n={n:g}, beta={betas[0]:.4g}"
        for statistic, predicted in law.means(list(STATISTICS)).items():
            slack = (bias[statistic] + 1e-6 + 20 / betas[0]) * (1.0 if statistic == "entropy" else predicted)
            yield mean_check("F.3", where, statistic, f"{engine} / law", values[statistic], predicted, slack)
        if engine == "extremes":
            yield _one_key(setup, f"d={_D}, {name}, n={n:g}, beta={betas[1]:.4g}", n, betas[1], log_c, drawn[1])


def _one_key(setup: Setup, where: str, n: float, beta: float, log_c: float, drawn) -> Check:
    """The rate of Theorem 3.1 with C-bar. Its leading term is that far from the critical limit at the same window."""
    values, bias = drawn
    log_window = setup.constants.log_window(_D, n, beta, log_c)
    predicted = Supercritical(_D, log_window).mean("top_gap")
    beyond = abs(Critical(_D, log_window).mean("top_gap") - predicted)
    slack = beyond + (bias["top_gap"] + 1e-5) * predicted
    return mean_check("F.4, 3.1", where, "top_gap", "extremes / law", values["top_gap"], predicted, slack)


def _log_intensity(setup: Setup, rotation: Rope) -> float:
    """log C-bar(q), as the checks predict with it."""
    if not setup.constants.orbit:
        return DENSITY.d2q(QUERY).log_intensity
    return log_orbit_intensity(DENSITY, PhaseLaw.of(rotation, QUERY))[0]


def _relative_density(u: np.ndarray) -> np.ndarray:
    """rho(u) / rho(q) at targets [m, d]."""
    return np.exp(_CONCENTRATION * (u - QUERY) @ MEAN)


def _transform(rotation: Rope, beta: float) -> float:
    """E e^{-beta T} averaged along the orbit: at a target u it is e^{-beta} Z(|kappa m + beta u|) / Z(kappa), and Z(r) = (2 pi)^2
    I_1(r) / r at d = 4."""

    def at(u: np.ndarray) -> np.ndarray:
        cosine = u @ MEAN
        square = _CONCENTRATION**2 + 2 * _CONCENTRATION * beta * cosine
        r = np.sqrt(beta**2 + square)
        return np.exp(square / (r + beta) - _CONCENTRATION) * special.ive(1, r) / r

    return PhaseLaw.of(rotation, QUERY).mean(at)[0] * _CONCENTRATION / float(special.ive(1, _CONCENTRATION))


def _discrepancy(rotation: Rope) -> float:
    """A bound of n |mean over n targets - mean over the torus| of the relative density: sum over k of |c_k| / |sin(pi k theta)|,
    c_k its Fourier coefficients in the phases."""
    phase = np.arange(_GRID) / _GRID
    phases = np.stack(np.meshgrid(phase, phase, indexing="ij"), axis=-1).reshape(-1, 2)
    values = _relative_density(PhaseLaw.of(rotation, QUERY).targets(phases)).reshape(_GRID, _GRID)
    size = np.abs(np.fft.fft2(values)) / _GRID**2
    k = np.fft.fftfreq(_GRID, 1 / _GRID)
    theta = [float(turn) for turn in rotation.frequencies.turns]
    slope = np.abs(np.sin(math.pi * (k[:, None] * theta[0] + k * theta[1])))
    slope[0, 0], size[0, 0] = 1.0, 0.0
    return float(np.sum(size / slope))
