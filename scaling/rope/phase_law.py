"""The long-run law of the targets of a rotated query, and means over it and over finite orbits."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float64

from scaling._check import real_array, reject, require, unit_vector, whole
from scaling.d2q.uniform import uniform_log_intensity
from scaling.density import Mixture, Uniform, VonMisesFisher
from scaling.density.base import AbstractDensity
from scaling.rope._haar import bump, haar_mean, log_haar_mean
from scaling.rope.rotary import Rope
from scaling.rope.subgroup import Subgroup
from scaling.sphere import log_area

EXACT_ORBIT = 1 << 20
_BLOCK = 1 << 14
_WEIGHTLESS = 1e-12  # a query's weight in a plane, below which its turning cannot be seen
_SMALL = 1 << 9
_ROUNDING = 1e-15

Targets = Float64[np.ndarray, "m d"]
Function = Callable[[Targets], Any]


class PhaseLaw(eqx.Module):
    """pi_q: the law of u = Phi_q(x), the query turned back by phases x with the Haar law of H_q, the closed subgroup that the
    phases of the orbit u_i = R_i^T q fill.

    By Proposition F.7 of "Scaling Limits of Long-Context Transformers" the mean of a continuous f over the first n targets tends
    to the mean under pi_q; slowly where a plane is slow: base 1e4 in 64 planes needs 5.4e4 positions for one turn of its slowest
    plane. Planes in which the query has no weight (1e-12) do not move it: `group` is the projection of H_q on the others,
    `active`.
    """

    rope: Rope
    query: Float64[np.ndarray, " d"]
    active: tuple[int, ...] = eqx.field(static=True)
    group: Subgroup

    @classmethod
    def of(
        cls,
        rope: Rope,
        query: Any,
        *,
        relations: Sequence[Sequence[int]] | None = None,
        search_bound: int | float | None = None,
    ) -> "PhaseLaw":
        """The law of a rotation and a unit query [d].

        `relations` (integer vectors (k_0, k_1 ... k_L), k_0 + k . theta = 0, for all planes of the rotation) and `search_bound`
        as in `Subgroup.of`: needed only where the frequencies do not know their relations. Raises `ValueError` as that does, and
        unless `rope` is a Rope and the query a unit vector [d].
        """
        require(isinstance(rope, Rope), "rope", "be a Rope", rope)
        q = unit_vector("query", query, rope.d)
        active = active_planes(rope, q)
        group = Subgroup.of(rope.frequencies, planes=active, relations=relations, search_bound=search_bound)
        return cls(rope, q, active, group)

    @property
    def dimension(self) -> int:
        """The dimension of the orbit's closure."""
        return self.group.dimension

    @property
    def period(self) -> int | None:
        """The number of targets of a finite orbit, on which the law is uniform; None for infinite ones."""
        return self.group.order

    def targets(self, phases: Float64[np.ndarray, "m active"]) -> Targets:
        """Phi_q(x): the query turned back by phases of the active planes, in turns: [m, d]. Raises `ValueError` for phases of
        another shape."""
        count = len(self.active)
        x = real_array("phases", phases, f"be an array of real numbers with {count} columns")
        require(x.ndim == 2 and x.shape[1] == count, "phases", f"have shape (m, {count})", f"of shape {x.shape}")
        angle = 2 * math.pi * x
        cos, sin = np.cos(angle), np.sin(angle)
        first, second = self.rope.coordinates[:, list(self.active)]
        u = np.repeat(self.query[None], len(x), axis=0)
        a, b = self.query[first], self.query[second]
        u[:, first], u[:, second] = a * cos + b * sin, b * cos - a * sin
        return u

    def sample(self, seed: int, count: int | float) -> Targets:
        """Independent targets [count, d] with the law pi_q. Raises `ValueError` unless seed >= 0 and count >= 0 are integers."""
        rng = np.random.default_rng(whole("seed", seed, 0))
        return self.targets(self.group.sample(rng, whole("count", count, 0)))

    def mean(self, f: Function) -> tuple[float, float]:
        """The mean of f, [m, d] -> [m], under pi_q and an absolute error: an exact sum for periods up to 2^17, the trapezoidal
        rule in dimension 1 and 2, randomly started translations above, with a fixed seed (see `scaling.rope._haar.haar_mean`).

        The error is meant for smooth f. Raises `ValueError` where f is not a function or does not return finite numbers [m].
        """
        _require_function(f)
        return haar_mean(self.group, lambda phases: _evaluated(f, self.targets(phases)))

    def log_mean(self, log_f: Function) -> tuple[float, float]:
        """The log of the mean of e^{log_f} under pi_q and the relative error of that mean, for log_f of any size; it may be
        -inf. Raises `ValueError` where log_f is not a function."""
        _require_function(log_f)
        return log_haar_mean(self.group, lambda phases: log_f(self.targets(phases)))

    def describe(self) -> dict[str, Any]:
        """The orbit's dimension, components, period and how the relations are known, as JSON-able values."""
        return {"rope": self.rope.describe(), "active_planes": len(self.active), "period": self.period} | self.group.describe()


def active_planes(rope: Rope, query: Float64[np.ndarray, " d"]) -> tuple[int, ...]:
    """The planes that turn and in which the query has a weight of at least 1e-12."""
    weights = np.hypot(*query[rope.coordinates])
    return tuple(i for i, turn in enumerate(rope.frequencies.turns) if turn and weights[i] >= _WEIGHTLESS)


def log_orbit_intensity(density: AbstractDensity, law: PhaseLaw) -> tuple[float, float]:
    """log C-bar(q) and the relative error of C-bar(q) = (2 pi)^a / Gamma(a + 1) * mean of rho under pi_q, a = (d-1)/2.

    This constant takes the place of C(q) in the limit laws under rotary embedding (Theorem F.3). It is C(q) where rho does not
    change along the orbit (Remark F.5), as for uniform keys, which are answered in closed form. Von Mises-Fisher keys (and
    mixtures): log rho is a sum over planes, so that the mean factors over groups of planes without relations across, at any d to
    about 1e-13. Other densities: `PhaseLaw.mean`, relative to the largest density seen, so that rho may be e^{+-500}.

    `(-inf, inf)` where rho is 0 at every node: on infinite orbits that proves nothing. Raises `ValueError` for a density of
    another dimension, and a law that is not a PhaseLaw.
    """
    require(isinstance(law, PhaseLaw), "law", "be a PhaseLaw", law)
    good = isinstance(density, AbstractDensity) and density.d == law.rope.d
    require(good, "density", f"be a density in dimension {law.rope.d}", density)
    log_mean, error = _log_mean(density, law)
    if not isinstance(density, Uniform):
        steep = density.lipschitz if math.isfinite(density.lipschitz) else 0.0
        error += _ROUNDING * (abs(log_mean) + steep)  # of log rho itself
    return uniform_log_intensity(density.d) + log_area(density.d) + log_mean, error


def _log_mean(density: AbstractDensity, law: PhaseLaw) -> tuple[float, float]:
    """log of the mean of rho under the law, and the relative error of the mean."""
    if isinstance(density, Uniform):
        return -log_area(density.d), 0.0
    if isinstance(density, VonMisesFisher):
        log_mean, error = _log_mean_exponential(law, density.concentration * np.asarray(density.mean, np.float64))
        return log_mean - density.concentration - density.log_normaliser, error
    if isinstance(density, Mixture):
        parts = [_log_mean(component, law) for component in density.components]
        weighted = np.array([value for value, _ in parts]) + np.log(density.weights)
        total = float(np.logaddexp.reduce(weighted))
        shares = np.exp(weighted - total) if total > -math.inf else np.ones(len(parts))
        return total, float(shares @ np.array([error for _, error in parts]))
    return law.log_mean(lambda u: _log_density(density, u))


def _log_mean_exponential(law: PhaseLaw, v: Float64[np.ndarray, " d"]) -> tuple[float, float]:
    """log of the mean of e^{<v, u>} under the law, and the relative error of the mean."""
    first, second = law.rope.coordinates[:, list(law.active)]
    q, w = law.query[[first, second]], v[[first, second]]
    still = np.ones(len(v), bool)
    still[[*first, *second]] = False
    cosine, sine = np.sum(w * q, axis=0), w[0] * q[1] - w[1] * q[0]
    log_mean, error = float(v[still] @ law.query[still]), 0.0
    for planes, factor in law.group.factors():
        c, s = cosine[planes], sine[planes]
        part, relative = log_haar_mean(factor, lambda x, c=c, s=s: np.cos(2 * math.pi * x) @ c + np.sin(2 * math.pi * x) @ s)
        log_mean, error = log_mean + part, error + relative
    return log_mean, error


def empirical_mean(rope: Rope, query: Any, f: Function, n: int | float) -> float:
    """(1/n) sum of f(u_i) over the targets of keys 0 ... n-1, f: [m, d] -> [m].

    Every term is computed for n <= 2^20; beyond, orbits of known finite period up to 2^20 are summed by residues. Raises
    `ValueError` for larger n otherwise, where f is not a function, and where it does not return finite numbers [m].
    """
    require(isinstance(rope, Rope), "rope", "be a Rope", rope)
    _require_function(f)
    q, count = unit_vector("query", query, rope.d), whole("n", n, 1)
    if count <= EXACT_ORBIT:
        return math.fsum(np.sum(_evaluated(f, u)) for _, u in _orbit(rope, q, count)) / count
    period = _known_period(rope, q)
    must = f"be at most {EXACT_ORBIT} for orbits without a known period of at most that"
    require(period is not None and period <= EXACT_ORBIT, "n", must, n)
    assert period is not None
    turns, rest = divmod(count, period)
    sums = ((_evaluated(f, u), number < rest) for number, u in _orbit(rope, q, period))
    return math.fsum(turns / count * np.sum(v) + np.sum(v[extra]) / count for v, extra in sums)


def birkhoff_mean(rope: Rope, query: Any, f: Function, n: int | float) -> float:
    """A mean of f over the targets of keys 0 ... n-1 with weights exp(-1/(s (1-s))), s = (i + 1/2)/n, which tends to the mean
    under pi_q faster than any power of n for smooth f and Diophantine frequencies, and needs no relations.

    Das, Saiki, Sander, Yorke, "Quantitative quasiperiodicity" (Nonlinearity 30, 2017). All planes must have turned several
    times. Raises `ValueError` unless n is an integer in [1, 2^20], and where f does not return finite numbers [m].
    """
    require(isinstance(rope, Rope), "rope", "be a Rope", rope)
    _require_function(f)
    q, count = unit_vector("query", query, rope.d), whole("n", n, 1)
    require(count <= EXACT_ORBIT, "n", f"be at most {EXACT_ORBIT}", n)
    total = norm = 0.0
    for number, u in _orbit(rope, q, count):
        weight = bump(number, count)
        total, norm = total + float(weight @ _evaluated(f, u)), norm + float(np.sum(weight))
    return total / norm


def _known_period(rope: Rope, query) -> int | None:
    if rope.frequencies.relations() is None:
        return None if active_planes(rope, query) else 1
    return Subgroup.of(rope.frequencies, planes=active_planes(rope, query)).order


def _orbit(rope: Rope, query, count: int) -> Iterator[tuple[np.ndarray, Targets]]:
    """Key numbers and targets, in blocks."""
    for first in range(0, count, _BLOCK):
        number = np.arange(first, min(first + _BLOCK, count))
        yield number, rope.targets(query, number)


def _require_function(f: Any) -> None:
    require(callable(f), "f", "be a function of targets [m, d]", f)


def _evaluated(f: Function, u: Targets) -> Float64[np.ndarray, " m"]:
    must = "map targets [m, d] to finite numbers [m]"
    values = real_array("f", f(u), must)
    require(values.shape == u.shape[:1], "f", must, f"of shape {values.shape}")
    if not np.all(np.isfinite(values)):
        reject("f", must, values[~np.isfinite(values)][0])
    return values


def _log_density(density: AbstractDensity, points: Targets) -> Float64[np.ndarray, " m"]:
    """log rho in float64, on the host's CPU, in blocks of two sizes, so that there are at most two compilations a density."""
    size = _SMALL if len(points) <= _SMALL else _BLOCK
    parts = []
    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        for first in range(0, len(points), size):
            block = points[first : first + size]
            padded = np.concatenate([block, np.broadcast_to(block[:1], (size - len(block), density.d))])
            parts.append(np.asarray(_log_densities(density, padded), np.float64)[: len(block)])
    return np.concatenate(parts)


@eqx.filter_jit
def _log_densities(density, points):
    return jax.vmap(density.log_density)(points)
