"""Figures `rope` and `dependence`: their rows, their theory by a second road, and captions that say what was found."""

import json
import math

import matplotlib.image
import numpy as np
import pytest
import xarray
from scipy import special

from scaling import figure
from scaling.context import MovingAverage, query_of
from scaling.context.build import build_context
from scaling.density import Uniform, VonMisesFisher
from scaling.figure import dependence, rope, style
from scaling.figure.dependence import cases, runs
from scaling.figure.rope import orbit
from scaling.figure.rope.caption import caption, scores
from scaling.figure.rows import nearest_and_weights
from scaling.figure.style import DPI, WIDTH
from scaling.law import ClusterCritical, Critical, FixedSize, GeometricSize, OrbitCritical
from tests import stat

ORBIT = {"concentration": 8, "mean": [25, 0], "query": [35, 8], "turn": "1/5", "gamma": 0.5, "seed": 0, "n": 1000}
TINY = {
    "rope": {**ORBIT, "ranks": 3, "replicates": 300, "shown": 7, "averaged": 1000, "pixels": 24},
    "dependence": {"d": 4, "n": [100, 1000, 2], "gamma": 1, "ranks": 3, "replicates": 300, "seed": 0, "draws": 5000},
}
Q = query_of(None, 4)


def stand_in(context, query, n, beta, ranks, replicates, seed, name):
    """Rows of the limit, without a compilation: under RoPE over a density, or for the sizes of clusters of this case."""
    if name == "rope":
        weights = OrbitCritical.of(context.density, context.rope, query, n[-1], beta).sample(seed, replicates, k=ranks).T
        return np.ones((len(n), replicates)), weights
    size = cases.CASES[name].size
    share = np.random.default_rng(seed).exponential(size.mean / n[:, None], (len(n), replicates))
    weights = ClusterCritical.at(4, n[-1], beta, size=size).sample(seed, replicates, k=ranks).T
    return context.marginal(query).quantile(np.log(np.minimum(share, 1))), weights


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    out = tmp_path_factory.mktemp("figures")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(style._PARAMETERS, "pdf.fonttype", 3)  # whole fonts: subsets take seconds
        for module in (cases, orbit):
            patch.setattr(module, "nearest_and_weights", stand_in)
        for module, name in ((rope, "rope"), (dependence, "dependence")):
            patch.setattr(module, "SETTINGS", {"quick": TINY[name]})
            files = figure.draw(name, out=out, quick=True)
            assert [f.name for f in files] == [f"{name}.{suffix}" for suffix in ("png", "pdf", "nc", "txt")]
    return out


@pytest.fixture(scope="module")
def data(out) -> dict[str, xarray.Dataset]:
    return {name: xarray.load_dataset(out / f"{name}.nc", engine="scipy") for name in TINY}


@pytest.mark.parametrize("name", list(TINY))
def test_what_the_figures_leave(out, data, name):
    one = data[name]
    assert json.loads(one.attrs["settings"]) == TINY[name] and one.attrs["title"] == name
    text = (out / f"{name}.txt").read_text()
    assert one.attrs["caption"] + "\n" == text and "nan" not in text.lower() and max(map(len, text.splitlines())) <= 110
    assert all({"long_name", "units"} <= one[v].attrs.keys() for v in one.variables)
    image = matplotlib.image.imread(out / f"{name}.png")
    assert image.shape[1] == DPI * WIDTH
    assert np.all(image[[0, -1], :, :3] == 1) and np.all(image[:, [0, -1], :3] == 1)  # nothing runs over the edge


def test_the_globe_and_the_orbit(data):
    one, kappa = data["rope"], 8.0
    query, mean, view = one["query"].values, one.mean_direction.values, orbit.view()
    np.testing.assert_allclose(view @ view.T, np.eye(3), atol=1e-15)
    assert np.linalg.det(view) == pytest.approx(1) and view[0, 2] == 0 and view[1, 2] > 0  # the pole is up
    row, column = 13, 9
    x, y = float(one.x[column]), float(one.y[row])
    point = np.array([x, y, math.sqrt(1 - x * x - y * y)]) @ view
    expected = kappa / (4 * math.pi * math.sinh(kappa)) * math.exp(kappa * point @ mean)
    assert float(one.density[row, column]) == pytest.approx(expected, rel=1e-12)
    # Key i meets the query turned back by i radians, or by i fifths of a turn.
    angle = np.array([[1.0], [2 * math.pi / 5]]) * np.arange(1, 8)
    np.testing.assert_allclose(np.angle((one.targets[..., 0] + 1j * one.targets[..., 1]).values * np.exp(1j * angle)),
                               math.radians(8), atol=1e-12)  # fmt: skip
    np.testing.assert_allclose(one.targets[..., 2], query[2])
    # Over a full turn e^(kappa <mean, u>) averages to a Bessel function; over five points it is their mean.
    factor = 2 * math.pi * kappa / (4 * math.pi * math.sinh(kappa))
    flat = np.hypot(*query[:2]) * np.hypot(*mean[:2])
    whole = factor * math.exp(kappa * query[2] * mean[2]) * special.i0(kappa * flat)
    five = factor * np.mean(np.exp(kappa * one.targets[1, :5].values @ mean))
    np.testing.assert_allclose(one.orbit_intensity, [whole, five], rtol=1e-10)
    assert float(one.query_intensity) == pytest.approx(factor * math.exp(kappa * query @ mean), rel=1e-10)
    assert float(one.query_intensity) == pytest.approx(float(one.along.sel(phase=0.0)), rel=1e-10)
    assert list(one.period) == [0, 5] and np.all(np.abs(one.orbit_empirical / one.orbit_intensity - 1) < 0.02)
    for limit, intensity in ((one.weight_limit[1, 0], five), (one.weight_query[0], float(one.query_intensity))):
        closed = Critical.of_gamma(3, 0.5, log_intensity=math.log(intensity)).closed_top_weight
        assert float(limit) == pytest.approx(closed, rel=1e-6)


def test_rows_under_rope_follow_the_averaged_intensity(data):
    one = data["rope"]
    context = build_context(VonMisesFisher(one.mean_direction.values, 8), kind="rope", turns=["1/5"])
    _, weights = nearest_and_weights(context, one["query"].values, np.array([1000.0]), 500.0, 3, 300, 0, "rope")
    assert np.all(np.diff(weights, axis=0) <= 0) and np.all(weights.sum(0) <= 1 + 1e-6)
    # The density bends within the reach of so few keys: a few percent of the weights.
    stat.assert_bounded_mean(weights[0], float(one.weight_limit[1, 0]), 0, 1, error=0.01)
    found = scores(one)
    assert np.all(found["query"][:, 0] > 20)
    text = " ".join(caption(one).split())
    assert "all keys drawn" in text and f"C-bar(q) = {float(one.orbit_intensity[0]):.4f}" in text
    other = caption(one.assign(weight=one.weight + 10 * one.weight_se, seed=7))
    assert "seed 7" in other and f"{np.abs(found['orbit'][0] + 10).max():.1f} (no period)" in " ".join(other.split())


def test_copies_are_near_each_other_until_they_are_rotated(data):
    n = np.array([100.0, 1000.0])
    draw = {name: nearest_and_weights(build_context(Uniform(4), kind="clusters", size=2, **more), Q, n, 100.0, 4, 300, 1, name)
            for name, more in (("pairs", {}), ("pairs-rope", {"base": 10_000.0}))}  # fmt: skip
    nearest, weights = draw["pairs"]
    np.testing.assert_allclose(weights[0], weights[1], rtol=1e-5)
    assert nearest.shape == (2, 300) and np.all(nearest[1] <= nearest[0])
    assert np.all(draw["pairs-rope"][1][0] > draw["pairs-rope"][1][1])
    # n F(T_(1)) has the mean 2 and 1: of a minimum of independent shares, 1/500 and 1/1000 to relative 1/500.
    share = np.exp(Uniform(4).d2q(Q).log_cdf(nearest[1]))
    stat.assert_bounded_mean(share * 1000, 1000 / 501, 0, 1000)
    index, error = cases.extremal_index(build_context(Uniform(4)), Q, n, nearest)
    assert index[1] == pytest.approx(1 / np.mean(1000 * share)) and error[1] == pytest.approx(
        np.std(1000 * share, ddof=1) / math.sqrt(300) * index[1] ** 2
    )
    shares = np.exp(Uniform(4).d2q(Q).log_cdf(draw["pairs-rope"][0][1]))
    stat.assert_bounded_mean(shares * 1000, 1.0, 0, 1000, error=0.02)


def test_limits_of_clusters(data):
    log_c = float(Uniform(4).d2q(Q).log_intensity)
    for size in (FixedSize(2), GeometricSize(0.5)):
        law = ClusterCritical.at(4, 1, 1, log_intensity=log_c, size=size)
        exact = law.means(["top_weight", "second_weight"])
        limit, error = cases.limit_weights(size, 4, 1, log_c, 3, 3, 5000)
        if isinstance(size, FixedSize):
            np.testing.assert_allclose(limit[:2], list(exact.values()), rtol=1e-6)
            np.testing.assert_array_equal(error, 0)
        else:
            samples = law.sample(3, 5000, k=3)
            stat.assert_mean(samples[:, :2], list(exact.values()))
            np.testing.assert_allclose(limit, samples.mean(0), rtol=1e-12)
            np.testing.assert_allclose(error, samples.std(0, ddof=1) / math.sqrt(5000), rtol=1e-12)
    one, names = data["dependence"], list(cases.CASES)
    np.testing.assert_allclose(one.index_limit, [1, 1, 1, 1, 1, 1 / 2, 1 / 2, 1 / 3])
    assert np.isnan(one.index_finite[names.index("pairs")]).all()
    found = cases.scores(one)
    assert np.abs(found["own"][names.index("pairs")]).max() < 10 < np.abs(found["independent"][names.index("pairs")]).max()
    text = " ".join(dependence.caption(one).split())
    for i, name in ((0, "independent"), (names.index("triples"), "triples")):
        assert f"{name} {float(one['index'][i, -1]):.3f} ± {2 * float(one.index_se[i, -1]):.3f}" in text


def test_moving_averages_in_finite_rows():
    context = MovingAverage.equal(4, 3)
    n, R, rng = 200, 8000, np.random.default_rng(5)
    sums = np.cumsum(np.concatenate([np.zeros((R, 1, 4)), rng.standard_normal((R, n + 3, 4))], axis=1), axis=1)
    g = sums[:, 4:] - sums[:, :-4]
    nearest = (1 - g[..., 0] / np.linalg.norm(g, axis=-1)).min(axis=1)
    spacing = n * np.exp(context.marginal(Q).log_cdf(nearest))
    index = runs.finite_index(context, np.array([200.0, 1e7]), 0, 20_000)
    stat.assert_mean(spacing, 1 / index[0], error=0.02 / index[0], sees=0.2)
    assert index[0] < 0.9 and index[1] == pytest.approx(1, abs=1e-3)
    shares = runs.run_shares(context, np.log([1e-9, 1e-3, 0.5]), 0, 20_000)
    assert np.all(shares[:, 0] == 1) and np.all(np.diff(shares, axis=1) <= 0) and np.all(np.diff(shares[:, -1]) < 0)
