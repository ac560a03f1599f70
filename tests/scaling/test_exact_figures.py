"""Figures of exact values: what is drawn is what `scaling.exact` says, it is computed once, and it can be read in grey."""

import json
import math
from importlib import import_module

import matplotlib.image
import numpy as np
import pytest
import xarray

from scaling import figure, schedule
from scaling.exact import critical_beta, expected, local_slope
from scaling.figure import cells, critical_slope, phase_diagram, regimes
from scaling.figure.style import COLUMN, DPI, WIDTH
from scaling.regime import regime

NAMES = ["phase-diagram", "critical-slope", "regimes", "schedules"]


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """A directory with all quick figures and their values."""
    out = tmp_path_factory.mktemp("figures")
    for name in NAMES:
        files = figure.draw(name, out=out, quick=True)
        assert [f.name for f in files] == [f"{name}.{suffix}" for suffix in ("png", "pdf", "nc", "txt")]
        assert all(f.parent == out and f.stat().st_size > 0 for f in files)
    return out


def load(out, name) -> xarray.Dataset:
    return xarray.load_dataset(out / f"{name}.nc", engine="scipy")


@pytest.mark.parametrize("name", ["phase-diagram", "regimes"])
def test_drawing_again_computes_nothing_and_gives_the_same_bytes(out, tmp_path, monkeypatch, name):
    def compute(**settings):
        raise AssertionError("something was computed")

    monkeypatch.setattr(import_module(f"scaling.figure.{name.replace('-', '_')}"), "compute", compute)
    for file in figure.draw(name, out=tmp_path, store=out, quick=True):
        assert file.read_bytes() == (out / file.name).read_bytes(), file.name
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".nc", ".pdf", ".png", ".txt"]


@pytest.mark.parametrize("name", NAMES)
def test_what_a_figure_leaves(out, name):
    data = load(out, name)
    module = import_module(f"scaling.figure.{name.replace('-', '_')}")
    kept = cells.load_or_compute(
        out / f"{name}-exact-quick.nc", module.SETTINGS["quick"], lambda: pytest.fail("something was computed")
    )
    xarray.testing.assert_identical(kept.drop_attrs(), data.drop_attrs())
    assert json.loads(data.attrs["settings"]) == module.SETTINGS["quick"] and set(module.SETTINGS) == {"full", "quick"}
    assert data.attrs["title"] == name and data.attrs["caption"] + "\n" == (out / f"{name}.txt").read_text()
    assert all({"long_name", "units"} <= data[v].attrs.keys() for v in data.variables)
    assert "nan" not in data.attrs["caption"].lower() and max(map(len, data.attrs["caption"].splitlines())) <= 110
    image = matplotlib.image.imread(out / f"{name}.png")
    assert image.shape[1] == DPI * (COLUMN if name == "phase-diagram" else WIDTH)
    assert np.all(image[[0, -1], :, :3] == 1) and np.all(image[:, [0, -1], :3] == 1)  # nothing runs over the edge


def test_names_with_other_settings_are_computed_anew(tmp_path):
    path = tmp_path / "values.nc"
    first = cells.load_or_compute(path, {"size": 1}, lambda: xarray.Dataset({"x": cells.variable(("i",), [1.5], "x")}))
    again = cells.load_or_compute(path, {"size": 1}, lambda: pytest.fail("computed again"))
    xarray.testing.assert_identical(first, again)
    other = cells.load_or_compute(path, {"size": 2}, lambda: xarray.Dataset({"x": cells.variable(("i",), [1, 2], "x")}))
    assert other.x.values.tolist() == [1, 2]
    assert [p.name for p in tmp_path.iterdir()] == ["values.nc"]


def test_a_file_that_is_corrupt_or_another_one_is_refused(out, tmp_path):
    name = "regimes-exact-quick.nc"
    whole = (out / name).read_bytes()
    at = whole.index(load(out, "regimes").top_weight.values.astype(">f8").tobytes()) + 11
    for bad in (whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :], whole[:100], b"", b"not netCDF"):
        (tmp_path / name).write_bytes(bad)
        with pytest.raises(ValueError, match=r"^Argument `store` must hold (whole|values).*, but '.*\.nc' .*\.$"):
            figure.draw("regimes", out=tmp_path / "figures", store=tmp_path, quick=True)
        assert (tmp_path / name).read_bytes() == bad and not list(tmp_path.glob("figures/regimes*"))


def test_phase_diagram_is_exact(out):
    data = load(out, "phase-diagram")
    assert (data.n[0], data.n[-1]) == (10, 1e18) and np.all(data.n == np.round(data.n))
    for i, j in ((0, 2), (2, 3), (4, 6)):
        cell = data.top_weight[i, j]
        exact = expected(5, float(cell.n), float(cell.beta), statistics=["top_weight"])["top_weight"]
        assert float(cell) == pytest.approx(exact, rel=1e-6)
    assert float(data.half_beta[-1]) == pytest.approx(critical_beta(5, 1e18), rel=1e-9)
    np.testing.assert_allclose(data.critical_scale, data.n.values**0.5, rtol=1e-12)
    np.testing.assert_allclose(data.output_scale, data.n.values ** (1 / 3), rtol=1e-12)
    assert np.all(np.diff(data.top_weight.values, axis=1) > -1e-7)
    full = phase_diagram.SETTINGS["full"]
    assert full["n"] == [10, 1e18, 50] and full["beta"][2] == 50
    assert full["beta"][0] < 1 and full["beta"][1] > 10 * critical_beta(5, 1e18)


def test_critical_slope_is_the_local_slope():
    data = critical_slope.compute(d=[16], n=[1e2, 1e8], nodes=15, points=7)
    for i in (0, 4):
        assert float(data.slope[0, i]) == pytest.approx(local_slope(16, round(float(data.n[i]))), rel=2e-5)
    assert float(data.alpha[0]) == pytest.approx(2 / 15) and data.log_slope[2] == pytest.approx(1 / math.log(1e4))
    np.testing.assert_allclose(data.ratio, data.slope / (2 / 15))
    assert math.isnan(critical_slope.power_law_begins(data, 16))
    assert critical_slope.SETTINGS["full"]["d"] == [2, 3, 5, 8, 16, 32, 64, 128]


def test_where_the_power_law_begins():
    n = np.geomspace(1e2, 1e6, 5)
    ratio = xarray.DataArray([[1.005, 1.05, 1.03, 1.0, 1.0]], {"d": [7], "n": n}, ("d", "n"))
    found = critical_slope.power_law_begins(xarray.Dataset({"ratio": ratio}), 7)
    assert found == pytest.approx(10 ** (4 + 2 / 3))
    inside = xarray.Dataset({"ratio": ratio * 0 + 0.995})
    assert critical_slope.power_law_begins(inside, 7) == 100


def test_labels_of_the_regimes_change_at_the_edges(out):
    data = load(out, "regimes")
    before_and_after = {
        "bulk_edge": ("bulk", "subcritical"),
        "window_edge": ("subcritical", "critical"),
        "high_edge": ("critical", "supercritical"),
        "drift_edge": ("drift", "mixed"),
        "fluctuation_edge": ("mixed", "fluctuation"),
    }
    for name, labels in before_and_after.items():
        beta = float(data[name])
        sides = [regime(5, 1e6, beta * factor) for factor in (0.999, 1.001)]
        assert tuple(s.output_regime if labels[1] in ("mixed", "fluctuation") else s.regime for s in sides) == labels
    assert math.isnan(regimes.bulk_edge(128, 1e4, 10.0))  # nothing but bulk below


def test_regimes_are_exact(out):
    data = load(out, "regimes")
    cell = data.isel(beta=3)
    beta = float(cell.beta)
    exact = expected(5, 1e6, beta)
    drawn = [1 / float(cell.participation), float(cell.drift), float(cell.fluctuation) ** 2, float(cell.top_weight)]
    assert drawn == pytest.approx([exact[k] for k in ("ipr", "mean_d2q", "tangential_square", "top_weight")], rel=1e-9)
    assert float(cell.window) == pytest.approx(math.exp(regime(5, 1e6, beta).log_window), rel=1e-9)
    assert float(cell.drift_limit) == pytest.approx(2 / beta)
    assert (float(data.critical_scale), float(data.output_scale)) == pytest.approx((1000, 100))
    assert regimes.crossing(data) == pytest.approx(229, rel=0.05)  # of eight values of beta; 229 with 57
    assert regimes.room(data)  # at n = 1e6 there is no subcritical fluctuation
    assert not regimes.room(data.assign(window_edge=1e5))


def test_schedules_are_those_compared(out):
    data = load(out, "schedules")
    assert data.schedule.attrs["long_name"] == ", ".join(schedule.NAMES)
    n = [float(data.n[0]), float(data.n[1])]
    found = schedule.compare(5, n)
    for j, name in enumerate(schedule.NAMES):
        cells_of = found.schedules[name]
        drawn = data.sel(d=5).isel(schedule=j, n=slice(2))
        np.testing.assert_allclose(drawn.beta, [cell.beta for cell in cells_of], rtol=1e-12)
        np.testing.assert_allclose(drawn.top_weight, [cell.top_weight for cell in cells_of], rtol=1e-6)
    caption = " ".join(data.attrs["caption"].split())
    assert "at every n: level. d = 5" in caption and caption.endswith("at every n: power, level.")
