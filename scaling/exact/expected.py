"""`expected` and `expected_limit`: every statistic of a row, with the digits it can be trusted to."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from scaling import _check
from scaling.exact import laplace
from scaling.exact.measure import Points, check_beta, check_concentration, limit_points, log_intensity, sphere_points
from scaling.exact.ordered import Kernel, ordered_weights
from scaling.exact.ratio import ordered_ratio
from scaling.exact.windows import CHECK, FINE, Resolution, windows

_ORDERED = {"top_weight": 1, "second_weight": 2}
_PLAIN = ("top_weight", "second_weight", "top_gap", *laplace.NAMES, "top_weight_squared")
_RANKED = ("ordered_weight", "ordered_ratio", "top_mass")
# The limit of |sum A x|^2 is 1, which is no answer; see `expected_limit`.
_FINITE_ONLY = frozenset({"output_square"})
_UNBOUNDED = frozenset({
    "entropy", "log_partition", "mean_d2q", "mean_d2q_squared", "tangential_square", "tangential_square_given_d2q",
})  # fmt: skip
# Fewer digits than this are refused, not returned.
_FEWEST_DIGITS = 6
_MOST_KEYS_SUMMED = 2000


class Expected(Mapping[str, float]):
    """Expected values by name of statistic. `digits` gives, by name, how many significant digits are trusted (absolute below 1).

    Two resolutions of the quadrature are compared; the values are those of the finer one.
    """

    def __init__(self, values: Mapping[str, float], digits: Mapping[str, int]):
        self._values = dict(values)
        self.digits = dict(digits)

    def __getitem__(self, name: str) -> float:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        lines = (f"  {name}: {value:.{max(self.digits[name], 1)}g}" for name, value in self._values.items())
        return "Expected(\n" + "\n".join(lines) + "\n)"


def expected(
    d: int,
    n: float | int,
    beta: float | int,
    *,
    concentration: float | int = 0.0,
    statistics: Sequence[str] | str | None = None,
    ks: Iterable[int] = (2, 3),
) -> Expected:
    """Exact expected values of the statistics of one attention row over n keys on S^{d-1}, at inverse temperature `beta`.

    Keys are uniform, or von Mises-Fisher centred on the query with this `concentration`. All values are dimensionless; `entropy`
    and `log_partition` are in nats. Method: the Laplace representation of 1/Z^p, see `scaling.exact.laplace` and
    `scaling.exact.ordered`; nothing is random. This is the finite-n value of what Theorems 3.1 to 3.3 of "Scaling Limits of
    Long-Context Transformers" give in the limit.

    **Arguments:** `d` >= 2; `n` an integral number from 1 to 1e18; `beta` >= 0; `statistics` names as in the simulation, all by
    default; `ordered_weight(k)`, `ordered_ratio(k)` and `top_mass(k)` carry a rank, and come for all `ks` up to n by default.
    NAME_squared, a second moment, exists for the ordered weights, `ipr` and `mean_d2q`. A weight that no key is left for
    (`second_weight` at n = 1) is 0.

    **Raises:** `ValueError` naming the argument that is out of range, or a statistic whose digits cannot be vouched for.
    """
    d, n = _check.dimension(d), _check.context_length(n)
    beta, concentration = check_beta(beta), check_concentration(concentration)
    names = _names(statistics, ks, n)
    top = max([1, *(min(_rank(name), int(n)) for name in names)])
    if beta == 0 or n == 1:
        return _without_competition(names, sphere_points(d, n, concentration), beta)
    return _compare(names, beta, [(sphere_points(d, n, concentration, top, r.cut + 4), r) for r in (FINE, CHECK)])


def expected_limit(
    d: int,
    gamma: float | int,
    *,
    statistics: Sequence[str] | str | None = None,
    log_intensity: float | int | None = None,
    ks: Iterable[int] = (2, 3),
) -> Expected:
    """Expected values in the critical limit beta n^{-alpha} -> gamma (Theorem 3.2): points of a Poisson process, intensity c a
    y^{a-1}.

    a = (d-1)/2 and c = C gamma^{-a}. `mean_d2q`, `mean_d2q_squared` and `tangential_square` are the limits of beta E sum A T, of
    beta^2 E (sum A T)^2 and of beta E |P_q sum A x|^2; `output_square` (whose limit is 1) is not offered.

    **Arguments:** `d` >= 2; `gamma` > 0; `statistics`, `ks` as in `expected`; `log_intensity` log C, by default that of uniform
    keys.

    **Raises:** `ValueError` as `expected` does.
    """
    d = _check.dimension(d)
    gamma = _check.finite_above("gamma", gamma, 0.0)
    log_c = _log_uniform(d) if log_intensity is None else _check.finite_at_least("log_intensity", log_intensity, -1e6)
    names = _names(statistics, ks, math.inf)
    top = max(1, *(_rank(name) for name in names))
    log_c = float(log_c - (d - 1) / 2 * math.log(gamma))
    # E sum e^{-y} = c Gamma(a + 1); where it is that large, single weights are too small for floating point.
    log_keys = log_c + math.lgamma((d + 1) / 2)
    size = f"1e{-log_keys / math.log(10):.0f}"
    _check.require(log_keys <= 600, "gamma", f"be larger at d = {d} (weights are of order {size})", gamma)
    return _compare(names, 1.0, [(limit_points(d, log_c, top, r.cut + 4), r) for r in (FINE, CHECK)])


def _log_uniform(d: int) -> float:
    return log_intensity(d)


def _names(statistics: Sequence[str] | str | None, ks: Iterable[int], n: float) -> tuple[str, ...]:
    """The requested names, checked."""
    limit = math.isinf(n)
    if statistics is None:
        ranks = [_check.whole("ks", k, 1) for k in ks]
        ranked = [f"{name}({k})" for name in _RANKED for k in ranks if k <= n]
        return tuple(name for name in (*_PLAIN, *ranked) if not (limit and name in _FINITE_ONLY))
    names = [statistics] if isinstance(statistics, str) else list(statistics)
    _check.require(len(names) > 0, "statistics", "name at least one statistic", names)
    for name in names:
        _check_name(name, n)
    return tuple(names)


def _check_name(name: str, n: float) -> None:
    ranked = re.fullmatch(rf"({'|'.join(_RANKED)})\((\d+)\)(_squared)?", name) if isinstance(name, str) else None
    if ranked:
        k = int(ranked[2])
        offered = ranked[1] == "ordered_weight" or not ranked[3]
        _check.require(offered, "statistics", "be a first moment or that of a weight (the second is not computed)", name)
        _check.require(1 <= k <= n, "statistics", f"have a rank from 1 to n in {ranked[1]}(k)", name)
        _check.require(k <= _MOST_KEYS_SUMMED, "statistics", f"have a rank up to {_MOST_KEYS_SUMMED}", name)
        return
    choices = [*_PLAIN, "second_weight_squared", *(f"{r}(k)" for r in _RANKED)]
    _check.require(not (math.isinf(n) and name in _FINITE_ONLY), "statistics", "have a limit that is not trivial", name)
    _check.known("statistics", name, choices)


def _rank(name: str) -> int:
    """The order statistic that a name needs: 0 if none."""
    match = re.search(r"\((\d+)\)", name)
    return int(match[1]) if match else _ORDERED.get(name.removesuffix("_squared"), 0)


def _compare(names: tuple[str, ...], beta: float, levels: Sequence[tuple[Points, Resolution]]) -> Expected:
    fine, check = (_evaluate(names, beta, points, resolution) for points, resolution in levels)
    digits = {name: _digits(name, fine[name], check[name]) for name in names}
    for name in names:
        if not (math.isfinite(fine[name]) and digits[name] >= _FEWEST_DIGITS):
            _check.reject("statistics", f"leave out {name!r} here (two resolutions differ beyond 1e-{_FEWEST_DIGITS})",
            list(names))
    return Expected({name: fine[name] for name in names}, digits)


def _digits(name: str, fine: float, check: float) -> int:
    """Significant digits on which two resolutions agree; of `log_partition`, which passes through 0, decimal places below 1."""
    scale = max(abs(fine), 1.0 if name == "log_partition" else 0.0)
    error = abs(fine - check)
    if error <= 1e-13 * scale:
        return 13
    return int(max(0.0, -math.log10(error / scale))) if math.isfinite(error) else 0


def _evaluate(names: tuple[str, ...], beta: float, points: Points, resolution: Resolution) -> dict[str, float]:
    """All statistics at one resolution."""
    plain = {name for name in names if name in laplace.NAMES}
    weights = {_rank(name) for name in names if name.removesuffix("_squared") in _ORDERED or name.startswith("ordered_weight")}
    squares = {_rank(name) for name in names if name.endswith("_squared") and _rank(name)}
    masses = {_rank(name) for name in names if name.startswith("top_mass")}
    ranks = sorted(weights | set(range(1, max(masses, default=0) + 1)))
    sums: dict[str, list[float]] = {}

    def add(key: str, value: float) -> None:
        sums.setdefault(key, []).append(value)

    for window in windows(points, beta, resolution, max(ranks, default=1)):
        kernel = Kernel(points, window)
        for name, value in laplace.sums(kernel, plain).items():
            add(name, value)
        if ranks:
            first, second = ordered_weights(kernel, ranks, squares)
            for k, value in first.items():
                add(f"weight {k}", value)
            for k, value in second.items():
                add(f"square {k}", value)
        if "top_gap" in names:
            add("top_gap", laplace.top_gap(kernel))
    total = {key: math.fsum(values) for key, values in sums.items()}
    return {name: _pick(name, total, beta, points, resolution) for name in names}


def _pick(name: str, total: dict[str, float], beta: float, points: Points, resolution: Resolution) -> float:
    value = _value(name, total, beta, points, resolution)
    # Weights and their powers are at most 1: rounding may not say otherwise.
    return min(value, 1.0) if name not in _UNBOUNDED else value


def _value(name: str, total: dict[str, float], beta: float, points: Points, resolution: Resolution) -> float:
    k = _rank(name)
    if name.startswith("ordered_ratio"):
        return 1.0 if k == 1 else ordered_ratio(points, beta, k, resolution)
    if name.startswith("top_mass"):
        return 1.0 if k >= points.n else math.fsum(total[f"weight {j}"] for j in range(1, k + 1))
    if k:
        return total[f"{'square' if name.endswith('_squared') else 'weight'} {k}"]
    return total[name]


def _without_competition(names: tuple[str, ...], points: Points, beta: float) -> Expected:
    """All weights equal 1/n: beta = 0, or one key."""
    n = points.n
    z, log_mass = points.nodes(points.edges, 20)
    t, mass = points.t(z), np.exp(log_mass) / n
    mean, square = float(np.sum(mass * t)), float(np.sum(mass * t * t))
    # The uniform mean of 1 - T is 0 exactly.
    along = 0.0 if points.concentration == 0 else 1 - mean
    values = {
        "top_weight": 1 / n, "second_weight": 1 / n if n > 1 else 0.0, "top_gap": 1 - 1 / n,
        "ipr": 1 / n, "sum_cubes": n**-2, "sum_fourths": n**-3, "entropy": math.log(n),
        "log_partition": math.log(n) - beta * (1 - along), "mean_d2q": 1 - along, "tangential_square": (2 * (1 - along) - square)
        / n, "ipr_squared": n**-2, "top_weight_squared": n**-2, "mean_d2q_squared": square / n + (1 - 1 / n) * (1 - along) ** 2,
    }  # fmt: skip
    values["tangential_square_given_d2q"] = values["tangential_square"]
    values["output_square"] = 1 / n + (1 - 1 / n) * along**2
    answers = {}
    for name in names:
        k = _rank(name)
        if name.startswith("ordered_ratio"):
            answers[name] = 1.0
        elif name.startswith("top_mass"):
            answers[name] = k / n
        elif k > n:
            answers[name] = 0.0
        elif k:
            answers[name] = n**-2 if name.endswith("_squared") else 1 / n
        else:
            answers[name] = values[name]
    return Expected(answers, dict.fromkeys(names, 13))
