"""Figures: every number drawn comes from a store, and stands beside the right theory."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
import xarray
from scipy import stats

import scaling
from scaling import figure
from scaling.config import SweepConfig
from scaling.engine.extremes import Extremes
from scaling.engine.keys import Keys
from scaling.figure import ordered_weights as module
from scaling.store import open_store
from tests import stat

NAME = "ordered-weights"
STORES = [f"{NAME}-{panel}-quick.zarr" for panel in ("right", "left")]


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    """A directory with the quick figure and its stores."""
    out = tmp_path_factory.mktemp("figures") / "made" / "here"
    files = figure.draw(NAME, out=out, quick=True)
    assert [f.name for f in files] == [f"{NAME}.{suffix}" for suffix in ("png", "pdf", "nc", "txt")]
    assert all(f.parent == out and f.stat().st_size > 0 for f in files)
    return out


@pytest.fixture
def no_engine(monkeypatch):
    """Engines that refuse to draw."""

    def batches(self, request):
        raise AssertionError("something was simulated")

    for engine in (Keys, Extremes):
        monkeypatch.setattr(engine, "batches", batches)


@pytest.fixture
def data(out) -> xarray.Dataset:
    """The data file of the quick figure."""
    return xarray.load_dataset(out / f"{NAME}.nc", engine="scipy")


def test_drawing_again_simulates_nothing_and_gives_the_same_figure(out, tmp_path, no_engine):
    """Under any settings of matplotlib, which stay the caller's."""
    before = [open_store(out / store).attrs["runs"] for store in STORES]
    with matplotlib.rc_context({"font.size": 17.0, "lines.linewidth": 9.0}):
        again = figure.draw(NAME, out=tmp_path, store=out, quick=True)
        assert matplotlib.rcParams["font.size"] == 17
    for file in again:
        if file.suffix != ".nc":  # sums of the quadrature may differ in the last bit from call to call
            assert file.read_bytes() == (out / file.name).read_bytes(), file.name
    first, second = (xarray.load_dataset(folder / f"{NAME}.nc", engine="scipy") for folder in (out, tmp_path))
    xarray.testing.assert_allclose(first, second, rtol=1e-12)
    assert [open_store(out / store).attrs["runs"] for store in STORES] == [runs + 1 for runs in before]
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(f.name for f in again)


def test_failed_cells_are_not_drawn(tmp_path, no_engine):
    with pytest.raises(ValueError, match=r"`store` must hold every cell, but 1 in '.*right-quick.zarr' failed: .* simulated\.$"):
        figure.draw(NAME, out=tmp_path, quick=True)
    assert not list(tmp_path.glob(f"{NAME}.*"))


def test_the_data_are_those_of_the_stores(out, data):
    right, left = (open_store(out / store) for store in STORES)
    weights = left.samples.sel(d=5, statistic="top_weight").values
    np.testing.assert_allclose(data.top_weight, weights.mean(-1), rtol=1e-12)
    np.testing.assert_allclose(data.top_weight_se, weights.std(-1, ddof=1) / 4, rtol=1e-12)
    ratios = right.samples.sel(statistic="ordered_ratio(133)").values.ravel()
    at = data.sel(k=133)
    drawn = [at.ratio, at.ratio_low, at.ratio_high]
    np.testing.assert_allclose(drawn, [ratios.mean(), *np.quantile(ratios, [0.1, 0.9])], rtol=1e-12)
    assert json.loads(data.attrs["config_left"]) == json.loads(left.attrs["config"])
    assert data.attrs["caption"] + "\n" == (out / f"{NAME}.txt").read_text()


def test_the_setting_is_that_of_the_paper():
    full = {panel: SweepConfig.from_mapping(config) for panel, config in module.SWEEPS["full"].items()}
    left, right = full["left"], full["right"]
    assert left.shape == (1, 25, 25) and left.replicates == 100 and left.axes.d == (5,)
    assert (left.axes.n[0], left.axes.n[-1]) == (100, 1_000_000)
    assert right.axes.n == (1000,) and right.beta(5) == pytest.approx(2.371, abs=1e-3)
    assert module.window() == pytest.approx(133.4, abs=0.05)
    x = np.array(module.ranks(48)) / module.window()
    assert 40 <= len(x) <= 60 and 0 < x[0] < 0.05 and 4.95 < x[-1] <= 5 and np.all(np.diff(x) > 0)


def test_exact_ratios_against_the_law_of_two_order_statistics():
    # Given U_(k) = u, U_(1) is u times a Beta(1, k - 1) variable: a road that shares nothing with scaling.exact.
    def points(u):  # beta T at F = u on S^4, where F is (2 - 3 c + c^3) / 4 in c = 1 - T
        return module.BETA * (1 - 2 * np.cos((2 * np.pi - np.arccos(2 * u - 1)) / 3))

    np.testing.assert_allclose(points(np.array([0.0, 0.5, 1.0])) / module.BETA, [0, 1, 2], atol=1e-7)
    nodes, weights = np.polynomial.legendre.leggauss(300)
    ranks = np.array([3, 60, 133, 640])
    exact = module.exact_ratios(np.array([2, *ranks, 666]))[1:-1]
    for k, value in zip(ranks, exact, strict=True):
        law: Any = stats.beta(k, 1001 - k)
        low, high = law.ppf(1e-9), law.isf(1e-9)
        u = low + (high - low) * (1 + nodes) / 2
        w = (1 + nodes) / 2  # U_(1) = u w^2, in which T is smooth at 0
        first = 2 * w * stats.beta.pdf(w**2, 1, k - 1) * weights / 2
        inner = np.exp(points(u[:, None] * w**2) - points(u)[:, None]) @ first
        assert value == pytest.approx(np.sum(law.pdf(u) * inner * weights) * (high - low) / 2, rel=1e-4)
    name = "ordered_ratio(133)"
    assert exact[2] == pytest.approx(scaling.expected(d=5, n=1000, beta=module.BETA, statistics=[name])[name], rel=1e-4)


def test_the_finite_n_bias_is_told_from_the_data(data):
    told = module.biases(data)
    assert [round(b.x) for b in told] == [0, 1, 2, 3, 5]
    np.testing.assert_allclose([b.exact for b in told], [0.077, -0.006, -0.107, -0.214, -0.445], atol=0.002)
    caption = " ".join(data.attrs["caption"].split())
    for b in told:
        assert f"{100 * b.exact:+.1f}% ({100 * b.simulated:+.1f} ± {100 * b.error:.1f}%)" in caption


def test_the_simulation_agrees_with_what_is_drawn_beside_it(out, data):
    right, left = (open_store(out / store) for store in STORES)
    ratios = right.samples.isel(d=0, n=0, exponent=0).transpose("replicate", "statistic").values
    stat.assert_bounded_mean(ratios[:, [2, -1]], data.ratio_exact.values[[2, -1]], 0, 1)
    np.testing.assert_allclose(data.critical_beta, [scaling.critical_beta(d=5, n=n) for n in data.n_exact.values], rtol=1e-9)
    cell = left.samples.sel(d=5, n=1e6, statistic="top_weight").isel(beta=3)
    exact = scaling.expected(d=5, n=1e6, beta=float(cell.beta), statistics=["top_weight"])["top_weight"]
    stat.assert_bounded_mean(cell.values, exact, 0, 1)


def test_crossings():
    beta = np.array([1.0, 10.0, 100.0])
    odds = np.array([[-1.0, 0.5, 3.0], [-4.0, -3.0, 1.0], [1.0, 2.0, 3.0], [-3.0, -2.0, -1.0], [-1.0, 1.0, -1.0]])
    expected = [10 ** (2 / 3), 10**1.75, np.nan, np.nan, 10**0.5]
    np.testing.assert_allclose(module.crossings(beta, 1 / (1 + np.exp(-odds))), expected, rtol=1e-12)
    np.testing.assert_allclose(module.crossings(beta, np.array([[0.0, 0.0, 1.0]])), 10**1.5)


def test_the_image_can_be_read_in_grey(out):
    image = matplotlib.image.imread(out / f"{NAME}.png")
    assert image.shape[1] == 7.2 * 200
    assert np.all(image[[0, -1], :, :3] == 1) and np.all(image[:, -1, :3] == 1)  # nothing runs over the edge
    colours = matplotlib.colormaps["viridis"](np.linspace(0, 1, 256))[:, :3]
    assert np.all(np.diff(colours @ [0.299, 0.587, 0.114]) > 0)


def test_unknown_name_and_unusable_directories(tmp_path, no_engine):
    assert NAME in figure.figure_names()
    with pytest.raises(ValueError, match=r"`name` must be one of .*did you mean `ordered-weights`"):
        figure.draw("ordered-weight", out=tmp_path)
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        for argument, given in (("out", {"out": path}), ("store", {"out": tmp_path, "store": path})):
            with pytest.raises(ValueError, match=rf"^Argument `{argument}` must be a directory, but '.*file' is a file\.$"):
                figure.draw(NAME, **given)
    (tmp_path / "locked").mkdir(mode=0o555)
    for path in (tmp_path / "locked", tmp_path / "locked" / "below"):
        with pytest.raises(ValueError, match=r"^Argument `out` must be writable, but .* no write permission in '.*locked'\.$"):
            figure.draw(NAME, out=path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "locked"]


def test_a_file_that_cannot_be_written_is_one_line(out, tmp_path, no_engine):
    (tmp_path / f"{NAME}.png").mkdir()
    with pytest.raises(ValueError, match=r"^Argument `out` must be writable, but '.*' is not \(Is a directory\)\.$"):
        figure.draw(NAME, out=tmp_path, store=out, quick=True)


def test_a_store_of_another_configuration_is_refused(out, tmp_path, no_engine):
    os.symlink(out / STORES[1], tmp_path / STORES[0])
    with pytest.raises(ValueError, match="store"):
        figure.draw(NAME, out=tmp_path / "figures", store=tmp_path, quick=True)


def test_names_are_known_without_jax_or_matplotlib():
    code = (
        "import sys, scaling.figure; scaling.figure.figure_names();"
        "assert not {'jax', 'matplotlib', 'xarray'} & sys.modules.keys()"
    )
    root = Path(__file__).resolve().parents[2]
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True, timeout=60)
