"""Supports: caps and their D2Q laws at any query, the corrected exponent off the support, subspheres."""

import functools
import json
import math

import numpy as np
import pytest
from scipy import special

from scaling.context import Subsphere
from scaling.d2q import CapD2Q, UniformD2Q
from scaling.density import SphericalCap, Uniform
from scaling.law import Critical, OffSupportCritical, log_boundary_intensity
from scaling.verify import Constants, Setup
from scaling.verify import structure as statement
from tests import stat
from tests.scaling.points import unit

HALF = math.pi / 2
# d, angle of the cap, angle of the query
CASES = (
    (2, 1.0, 0.4), (2, 2.5, 2.8), (3, HALF, 2.3), (4, 1.1, 1.1), (5, 2.2, 1.4), (8, 1.2, 0.2), (4, 1.0, math.pi), (3, 0.7, 0.0),
)  # fmt: skip
LEGENDRE = np.polynomial.legendre.leggauss(60)


@functools.cache
def law_at(d: int, angle: float, query_angle: float) -> CapD2Q:
    return CapD2Q(d, angle, query_angle)


def at_angle(axis: np.ndarray, angle: float, seed: int = 9) -> np.ndarray:
    """A unit vector at this angle from the axis."""
    across = unit(len(axis), seed)
    across -= (across @ axis) * axis
    return math.cos(angle) * axis + math.sin(angle) * across / np.linalg.norm(across)


def cap_share_within(d: int, angle: float, query_angle: float, t: float) -> float:
    """P(T <= t) by the other order of integration: over the angle psi from the axis, and the share of the directions around the
    axis that are within t of the query."""
    theta = math.acos(1 - t)
    inner = {x for x in (query_angle - theta, theta - query_angle, query_angle + theta, 2 * math.pi - query_angle - theta)}
    cuts = np.array(sorted({0.0, angle, *(x for x in inner if 0 < x < angle)}))
    x = (LEGENDRE[0] + 1) / 2
    share, weight = x * x * (3 - 2 * x), 6 * x * (1 - x) * LEGENDRE[1] / 2  # roots at the ends of an interval become smooth
    psi = (cuts[:-1, None] + np.diff(cuts)[:, None] * share).ravel()
    weight = (np.diff(cuts)[:, None] * weight).ravel() * np.sin(psi) ** (d - 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        least = (math.cos(theta) - math.cos(query_angle) * np.cos(psi)) / (math.sin(query_angle) * np.sin(psi))
    if d == 2:
        within = ((least <= 1) * 1.0 + (least <= -1)) / 2
    else:
        within = special.betainc((d - 2) / 2, (d - 2) / 2, np.clip((1 - least) / 2, 0, 1))
    return float(weight @ within / np.sum(weight))


@pytest.mark.parametrize("d, angle, query_angle", [case for case in CASES if 0 < case[2] < math.pi])
def test_cap_law_against_integration_around_the_axis(d, angle, query_angle):
    law = law_at(d, angle, query_angle)
    for part in (0.01, 0.2, 0.5, 0.8, 0.99):
        t = law.smallest + part * (law.largest - law.smallest)
        p = cap_share_within(d, angle, query_angle, t)
        assert float(np.exp(law.log_cdf(t))) == pytest.approx(p, rel=1e-7)
        assert float(np.exp(law.log_sf(t))) == pytest.approx(1 - p, rel=1e-7, abs=1e-12)


@pytest.mark.parametrize("d", (2, 4, 32))
def test_on_the_axis_the_cap_law_is_a_truncated_uniform_one(d):
    angle, t = 0.7, np.array([1e-12, 1e-3, 0.1, 0.2])
    whole, law = UniformD2Q(d), law_at(d, angle, 0.0)
    share = float(whole.log_cdf(1 - math.cos(angle)))
    np.testing.assert_allclose(law.log_cdf(t), whole.log_cdf(t) - share, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(law.log_pdf(t), whole.log_pdf(t) - share, rtol=1e-12)
    np.testing.assert_allclose(law.quantile([-40.0, -0.1]), whole.quantile(np.array([-40.0, -0.1]) + share), rtol=1e-12)
    assert law.log_intensity == pytest.approx(whole.log_intensity - share, abs=1e-12)
    # from the antipode T becomes 2 - T
    antipodal = law_at(d, angle, math.pi)
    np.testing.assert_allclose(antipodal.log_sf(2 - t), whole.log_cdf(2 - (2 - t)) - share, rtol=1e-9)
    assert antipodal.smallest == pytest.approx(1 + math.cos(angle), rel=1e-14) and antipodal.log_intensity == -math.inf


@pytest.mark.parametrize("d, angle, query_angle", CASES)
def test_cap_law_is_consistent_at_both_tails(d, angle, query_angle):
    law = law_at(d, angle, query_angle)
    log_p = np.array([-12.0, -5.0, -0.7, -0.1])
    deep = np.array([-300.0, *log_p])
    np.testing.assert_allclose(law.log_cdf_beyond(law.quantile_beyond(deep)), deep, rtol=1e-11, atol=1e-11)
    t, s, u = law.quantile(log_p), law.logit_quantile(log_p), law.logit_upper_quantile(log_p)
    np.testing.assert_allclose(law.smallest + law.quantile_beyond(log_p), t, rtol=1e-13)
    np.testing.assert_allclose(2 * special.expit(s), t, rtol=1e-13)
    np.testing.assert_allclose(2 * special.expit(u), law.upper_quantile(log_p), rtol=1e-13)
    np.testing.assert_allclose(law.log_cdf(t), log_p, rtol=1e-8, atol=1e-11)
    np.testing.assert_allclose(law.at_logit(u)[1], log_p, rtol=1e-8, atol=1e-11)
    p, q, log_density = law.at_logit(s)
    np.testing.assert_allclose(np.logaddexp(p, q), 0, atol=1e-14)
    h = 1e-5
    slope = (np.exp(law.at_logit(s + h)[0]) - np.exp(law.at_logit(s - h)[0])) / (2 * h)
    np.testing.assert_allclose(np.exp(log_density)[2:], slope[2:], rtol=1e-4)  # the others may be within h of the end
    np.testing.assert_allclose(law.log_pdf(t) + np.log(t * (2 - t) / 2), log_density, rtol=1e-8, atol=1e-8)
    assert law.quantile(-math.inf) == pytest.approx(law.smallest) and law.upper_quantile(-math.inf) == pytest.approx(law.largest)
    assert law.log_cdf(law.largest) == 0 and np.all(law.log_pdf([-0.1, 2.1]) == -math.inf)
    if law.smallest > 0:
        assert law.log_cdf(law.smallest * 0.99) == -math.inf and law.log_pdf(law.smallest * 0.99) == -math.inf


@pytest.mark.parametrize(
    "d, angle, query_angle, exponent",
    ((2, 1.0, 0.4, 0.5), (2, 1.0, 2.0, 1.0), (5, 2.2, 2.9, 2.5), (4, HALF, 2.0, 2.0), (4, 1.1, 1.1, 1.5), (4, HALF, HALF, 1.5))
    + ((4, 1.0, math.pi, 1.0), (3, 0.7, math.pi, 1.0), (32, 1.0, 1.8, 16.0)),
)
def test_the_law_begins_with_its_power(d, angle, query_angle, exponent):
    """Off the support d/2, not the paper's (d-1)/2; at the antipode 1 for every d. The next term is a relative s, or sqrt(s) on a
    boundary that bends."""
    law, s = law_at(d, angle, query_angle), np.array([1e-9, 1e-8])
    assert law.edge_exponent == exponent
    log_p = law.log_cdf_beyond(s)
    np.testing.assert_allclose(log_p - exponent * np.log(s), law.log_edge_intensity, atol=2e-3)
    assert np.diff(log_p)[0] / math.log(10) == pytest.approx(exponent, rel=1e-3)
    inside = UniformD2Q(d).log_intensity - float(UniformD2Q(d).log_cdf(1 - math.cos(angle)))
    if query_angle <= angle:
        assert law.log_intensity == pytest.approx(inside - (math.log(2) if query_angle == angle else 0), abs=1e-9)
    elif query_angle < math.pi:
        curvatures = np.full(d - 2, 1 / math.tan(angle))
        log_rho = float(SphericalCap(np.eye(d)[0], angle).log_peak)
        found = log_boundary_intensity(log_rho, query_angle - angle, curvatures)
        assert found == pytest.approx(law.log_edge_intensity, abs=1e-12)


def test_keys_of_a_cap_follow_its_laws(rng):
    """On, off and at the boundary of the support; and no key is outside."""
    axis = unit(4, 1)
    density = SphericalCap(axis, 1.1)
    x = np.asarray(density.sample(rng, 40_000), np.float64)
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1, atol=1e-6)
    assert np.arccos(x @ axis).max() < 1.1 + 1e-6
    outermost = x[np.argmin(x @ axis)].astype(np.float32)
    assert math.isfinite(float(density.log_density(outermost)))
    for query in (at_angle(axis, 0.6), at_angle(axis, 1.1), at_angle(axis, 2.0)):
        law = density.d2q(query)
        stat.assert_law(np.sum((x - query) ** 2, axis=1) / 2, lambda t, law=law: np.exp(law.log_cdf(t)), error=1e-5)


def test_what_a_cap_says_of_itself():
    axis = unit(5, 2)
    density, whole = SphericalCap(axis, 2.0), SphericalCap(axis, math.pi)
    assert density.log_density(at_angle(axis, 1.99)) == pytest.approx(density.log_peak, abs=1e-6)
    assert density.log_density(at_angle(axis, 2.01)) == -math.inf
    assert not np.any(density.gradient(axis)) and density.lipschitz == math.inf and whole.lipschitz == 0
    assert density.symmetric_about(-axis) and not density.symmetric_about(unit(5, 3)) and whole.symmetric_about(unit(5, 3))
    assert isinstance(whole.d2q(unit(5, 3)), UniformD2Q)
    assert json.loads(json.dumps(density.describe()))["kind"] == "cap"
    queries = np.stack([at_angle(axis, a, seed) for a in (0.3, 2.5) for seed in (5, 6)])
    average, error = density.averaged_d2q(queries, np.array([0.1, 0.2, 0.3, 0.4]))
    t = np.array([0.2, 0.9])
    parts = [np.exp(law_at(5, 2.0, a).log_cdf(t)) for a in (0.3, 2.5)]
    np.testing.assert_allclose(np.exp(average.log_cdf(t)), 0.3 * parts[0] + 0.7 * parts[1], rtol=1e-9)
    assert error == 0


@pytest.mark.parametrize("angle, message", ((0.0, "> 0"), (3.2, "at most pi"), (math.nan, "finite")))
def test_bad_caps_are_refused(angle, message):
    with pytest.raises(ValueError, match=f"Argument `angle` must .*{message}"):
        SphericalCap(unit(3, 1), angle)


def test_what_caps_cannot_do_is_refused():
    with pytest.raises(ValueError, match="Argument `axis` must have norm 1"):
        SphericalCap([1.0, 1.0], 1.0)
    with pytest.raises(ValueError, match="Argument `density` must be smooth"):
        SphericalCap(unit(3, 1), 1.0).angular(unit(3, 2))
    with pytest.raises(ValueError, match="Argument `log_intensity` must be given"):
        OffSupportCritical.at(4, 1e6, 10.0)
    with pytest.raises(ValueError, match="Argument `statistic` must be one of"):
        OffSupportCritical.at(4, 1e6, 10.0, log_intensity=0.0).mean("tangential_square")
    with pytest.raises(ValueError, match="Argument `curvatures` must be above"):
        log_boundary_intensity(0.0, 2.0, [0.1, 0.1])
    with pytest.raises(ValueError, match="Argument `query` must not be orthogonal"):
        OffSupportCritical.of(Uniform(2), [0.0, 0.0, 1.0], 1e4, 10.0, basis=np.eye(3)[:, :2])


@pytest.mark.parametrize("d, angle, query_angle", ((3, HALF, 2.3), (4, 1.0, 1.8)))
def test_weights_at_a_trillion_keys_follow_the_corrected_law(d, angle, query_angle):
    """A hemisphere and a cap, beta of n^{2/d}: rows drawn from the exact law, T_(i) = F^{-1}(Gamma_i / n). The law of dimension
    d, which the paper says holds, is far away at the same window."""
    axis = unit(d, d)
    density, n = SphericalCap(axis, angle), 1e12
    query = at_angle(axis, query_angle)
    law = law_at(d, angle, query_angle)
    beta = math.exp(2 / d * (law.log_edge_intensity + math.log(n) + 1))
    limit = OffSupportCritical.of(density, query, n, beta)
    assert limit.exponent == d / 2 and limit.log_window == pytest.approx(-1, abs=1e-9)
    assert OffSupportCritical.regime(d, n, beta, log_intensity=law.log_edge_intensity)
    rng = np.random.default_rng(5)
    log_g = np.log(np.cumsum(rng.standard_exponential((4000, 120)), axis=1))
    grid = np.linspace(log_g.min(), log_g.max(), 257)  # log s is linear in log g up to a relative n^{-2/d}
    w = np.exp(-beta * np.exp(np.interp(log_g, grid, np.log(law.quantile_beyond(grid - math.log(n))))))
    found = {"top_weight": w[:, 0] / w.sum(axis=1), "ipr": (w * w).sum(axis=1) / w.sum(axis=1) ** 2}
    paper = Critical(d, -1.0).means(list(found))
    for name, predicted in limit.means(list(found)).items():
        stat.assert_bounded_mean(found[name], predicted, 0, 1, error=1e-5, sees=abs(paper[name] - predicted) / 2)


def test_rows_of_keys_near_a_cap_against_their_quadrature():
    """Brute force: 1000 rows of 1000 keys as vectors, in NumPy, and the quadrature over the exact law that `verify` uses."""
    rng = np.random.default_rng(3)
    angle, query_angle, n, beta = 1.0, 1.8, 1000.0, 120.0
    height, turn = rng.uniform(math.cos(angle), 1, (1000, 1000)), rng.uniform(0, 2 * math.pi, (1000, 1000))
    across = np.sqrt(1 - height**2)
    x = np.stack([across * np.cos(turn), across * np.sin(turn), height], axis=-1)
    query = np.array([math.sin(query_angle), 0.0, math.cos(query_angle)])
    t = np.sum((x - query) ** 2, axis=-1) / 2
    w = np.exp(-beta * (t - t.min(axis=1, keepdims=True)))
    weights = w / w.sum(axis=1, keepdims=True)
    exact = statement.Kernel.make().ipr(law_at(3, angle, query_angle), n, beta)
    stat.assert_bounded_mean((weights**2).sum(axis=1), exact, 0, 1, error=1e-6, sees=0.06)
    limit = OffSupportCritical.of(SphericalCap([0.0, 0.0, 1.0], angle), query, n, beta)
    assert limit.mean("ipr") == pytest.approx(exact, rel=0.03)
    assert limit.means(["mean_d2q"])["mean_d2q"] == pytest.approx(float(np.mean(np.sum(weights * t, axis=1))), rel=0.01)
    # the output goes to the nearest point of the cap, not to the query
    assert limit.point is not None
    np.testing.assert_allclose(limit.point, [math.sin(angle), 0.0, math.cos(angle)], atol=1e-12)
    far = np.linalg.norm(np.einsum("rn,rnd->rd", weights, x) - limit.point, axis=1)
    assert np.mean(far) < 0.15 < 0.7 < np.linalg.norm(query - limit.point)


def test_limit_points():
    axis = unit(4, 3)
    density = SphericalCap(axis, 1.0)
    antipodal = OffSupportCritical.of(density, -axis.astype(np.float32), 1e6, 10.0)
    assert antipodal.smallest == pytest.approx(1 + math.cos(1.0))
    assert antipodal.point is None and antipodal.exponent == 1.0
    inside = at_angle(axis, 0.5)
    law = OffSupportCritical.of(density, inside, 1e6, 10.0)
    np.testing.assert_array_equal(law.point, inside)
    assert law.exponent == 1.5 and law.smallest == 0
    boundary = OffSupportCritical.of(density, at_angle(axis, 1.0).astype(np.float32), 1e6, 10.0)
    assert boundary.exponent == 1.5 and boundary.log_window == pytest.approx(law.log_window - math.log(2))
    assert law.predicts() == Critical.at(4, 1e6, 10.0, log_intensity=density.d2q(inside).log_intensity).predicts()


def test_on_a_subsphere_beta_counts_by_the_cosine():
    basis = np.linalg.qr(np.random.default_rng(7).normal(size=(6, 3)))[0]
    query, n, beta = unit(6, 8), 1e4, 3e4
    inner, cosine = Subsphere(Uniform(3), basis).effective(query)
    law = OffSupportCritical.of(Uniform(3), query, n, beta, basis=basis)
    assert law.d == 6 and law.exponent == 1.0
    assert law.log_window == pytest.approx(Critical.at(3, n, cosine * beta).log_window, abs=1e-12)
    assert law.smallest == pytest.approx(1 - cosine) and law.point is not None
    np.testing.assert_allclose(law.point, basis @ inner, atol=1e-12)
    assert law.mean("mean_d2q") == pytest.approx(1 - cosine + Critical.at(3, n, cosine * beta).mean("mean_d2q") * cosine)
    # both at once: a cap of the subsphere, and a query off the subsphere over a point off the cap
    cap = SphericalCap(at_angle(inner, 1.0), 0.4)
    both = OffSupportCritical.of(cap, query, n, beta, basis=basis)
    assert both.exponent == 1.5
    assert both.smallest == pytest.approx(1 - cosine + cosine * (1 - math.cos(0.6)))


@pytest.mark.parametrize("changed", (False, True))
def test_verify_sees_a_wrong_exponent_and_a_wrong_constant(changed, monkeypatch):
    """-1/2 is the paper's exponent (d-1)/2 off the support; the constant counts in the other cases."""
    monkeypatch.setattr(statement, "CapD2Q", law_at)
    constants = Constants(boundary=-0.5, log_intensity=0.05) if changed else Constants()
    checks = list(statement.structure(Setup(constants, quick=True, simulate=not changed)))
    failed = {(check.setting.partition(",")[0], check.statistic) for check in checks if not check.passed}
    assert len(checks) >= 26
    if not changed:
        assert not failed
    for name in ("cap", "hemisphere") if changed else ():
        assert failed >= {(name, "exponent of F"), (name, "constant of F"), (name, "ipr")}
    if changed:
        exact = {check.statistic for check in checks if "boundary" in check.setting and not check.passed}
        assert exact >= {"constant of F", "ipr"} and "exponent of F" not in exact
        assert any("d'=3" in check.setting and not check.passed for check in checks)
