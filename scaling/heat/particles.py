"""What moves: particles along grad log rho, and the density of infinitely many tokens at finite beta."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from scaling._check import reject, require, whole
from scaling.heat import harmonic
from scaling.heat.equation import Points, Spectrum, attention_window, positive_until, unit_points

_LONGEST_STEP = 0.01  # of RK4

Times = Sequence[float | int] | Float[np.ndarray, " time"]


def flow(
    density: Spectrum, tokens: Points, times: Times, *, frozen: bool = False, beta: float | int | None = None
) -> Float[np.ndarray, "time point 3"]:
    """Particles moved by q' = grad log rho_t(q) from `tokens`, unit vectors [m, 3], at ascending times >= 0: [time, m, 3].

    rho_t is the solution backward in time from `density`, so that particles drawn from it are distributed as rho_t. With `frozen`
    it is `density` itself at all times: the flow of one test token in a cloud that stays (Proposition 4.4 as it stands). With
    `beta` it is what attention at that inverse temperature sees of a cloud of infinitely many tokens, K_beta * rho_t of
    `mean_field_spectra`. RK4 with steps of at most 0.01.

    Raises `ValueError` for times that do not ascend from >= 0, for `beta` with `frozen`, and where the backward solution is not
    positive up to the last time.
    """
    x, at = unit_points(tokens), _ascending(times)
    require(not (frozen and beta is not None), "beta", "be left out where the density is frozen", beta)
    if not frozen and beta is None and at[-1] > 0:
        end = positive_until(density, float(at[-1]))
        if end < at[-1]:
            reject("times", f"be below {end:.4g}, where the backward solution ceases to be positive", float(at[-1]))
    seen = None if beta is None else _Seen(density, beta, at)

    def velocity(q, time):
        q = q / np.linalg.norm(q, axis=1, keepdims=True)
        if seen is not None:
            return seen.at(time).log_gradient(q)
        return (density if frozen else density.at(-time)).log_gradient(q)

    kept, now = [], 0.0
    for time in at:
        for start, h in _steps(now, float(time)):
            x = _runge_kutta(velocity, x, start, h)
            x = x / np.linalg.norm(x, axis=1, keepdims=True)
        now = float(time)
        kept.append(x)
    return np.stack(kept)


def mean_field_spectra(density: Spectrum, beta: float | int, times: Times, band_limit: int | None = None) -> list[Spectrum]:
    """The density of a cloud of infinitely many tokens at finite beta, at ascending times >= 0 of layer * step / beta, for small
    steps: rho' = -div(rho grad log(K_beta * rho)).

    Unlike the limit it is well posed. `band_limit` is by default that of the density, and at least 16. With u = log(K_beta *
    rho): rho' = -(Laplacian(rho u) + rho Laplacian u - u Laplacian rho) / 2. Products are taken on a grid of half as many
    latitudes again as there are degrees, RK4 with steps of at most 0.01.
    """
    at = _ascending(times)
    limit = max(16, density.band_limit) if band_limit is None else whole("band_limit", band_limit, 2)
    fine = limit + limit // 2
    basis, degree = harmonic.real_basis(harmonic.grid(fine), limit)
    analysis = (basis * harmonic.quadrature(fine)[:, None]).T
    window, laplacian = attention_window(limit, beta)[degree], -degree * (degree + 1)

    def slope(c):
        rho, log_seen = basis @ c, np.log(basis @ (window * c))
        u = analysis @ log_seen
        crossed = analysis @ (rho * (basis @ (laplacian * u)) - log_seen * (basis @ (laplacian * c)))
        return -(laplacian * (analysis @ (rho * log_seen)) + crossed) / 2

    c, now, kept = harmonic.to_real(harmonic.resized(density.coefficients, limit)), 0.0, []
    for time in at:
        for _, h in _steps(now, float(time)):
            c = _runge_kutta(lambda x, _: slope(x), c, 0.0, h)
        now = float(time)
        kept.append(Spectrum(harmonic.from_real(c, limit), np.zeros(0)))
    return kept


class _Seen:
    """K_beta * rho_t at the times at which RK4 asks for it: the ends and middles of its steps."""

    def __init__(self, density: Spectrum, beta: float | int, times):
        ends = np.concatenate([[0.0], times])
        steps = [step for low, high in zip(ends[:-1], ends[1:], strict=True) for step in _steps(float(low), float(high))]
        self.times = np.unique([0.0, *(start + share * h for start, h in steps for share in (0, 0.5, 1))])
        self.spectra = [spectrum.seen_at(beta) for spectrum in mean_field_spectra(density, beta, self.times)]

    def at(self, time: float) -> Spectrum:
        return self.spectra[int(np.argmin(np.abs(self.times - time)))]


def _steps(now: float, time: float) -> list[tuple[float, float]]:
    """Starts and lengths of the steps of RK4 from one time to another."""
    count = math.ceil((time - now) / _LONGEST_STEP - 1e-9)
    return [(now + (time - now) * i / count, (time - now) / count) for i in range(count)]


def _runge_kutta(velocity, x, time: float, h: float):
    k1 = velocity(x, time)
    k2 = velocity(x + h / 2 * k1, time + h / 2)
    k3 = velocity(x + h / 2 * k2, time + h / 2)
    return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + velocity(x + h * k3, time + h))


def _ascending(times) -> Float[np.ndarray, " time"]:
    at = np.asarray(times, np.float64)
    sound = at.ndim == 1 and at.size >= 1 and bool(np.all(np.isfinite(at)) and at[0] >= 0 and np.all(np.diff(at) >= 0))
    require(sound, "times", "ascend from a number >= 0", np.asarray(times).tolist())
    return at
