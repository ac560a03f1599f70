"""Figure `heat`: what it draws is what its parts say, and it says what it needs."""

import json
import math
import sys

import matplotlib.image
import numpy as np
import pytest
import xarray

import scaling
from scaling import figure, heat
from scaling.figure import heat as module
from scaling.figure.style import DPI, WIDTH

TINY = {"n": 400, "beta": [10, 20], "time": 0.06, "layers": 2, "seeds": 2, "angle": 0.3, "latitudes": 8}


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    out = tmp_path_factory.mktemp("heat")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SETTINGS", {"quick": TINY})
        files = figure.draw("heat", out=out, quick=True)
    assert [f.name for f in files] == [f"heat.{suffix}" for suffix in ("png", "pdf", "nc", "txt")]
    return out


@pytest.fixture(scope="module")
def data(out):
    return xarray.load_dataset(out / "heat.nc", engine="scipy")


def test_what_the_figure_leaves(out, data):
    assert json.loads(data.attrs["settings"]) == TINY and data.attrs["title"] == "heat"
    caption = (out / "heat.txt").read_text()
    assert data.attrs["caption"] + "\n" == caption and "nan" not in caption.lower()
    assert max(map(len, caption.splitlines())) <= 110
    assert all({"long_name", "units"} <= data[v].attrs.keys() for v in data.variables)
    image = matplotlib.image.imread(out / "heat.png")
    assert image.shape[1] == DPI * WIDTH
    assert np.all(image[[0, -1], :, :3] == 1) and np.all(image[:, [0, -1], :3] == 1)  # nothing runs over the edge
    full = module.SETTINGS["full"]
    assert full["n"] >= 20_000 and max(full["beta"]) ** 2 / full["n"] < 0.1


def test_theory_in_the_figure(data):
    start = heat.spectrum(scaling.Quadratic([[0, 0.5, 0], [0.5, 0, 0], [0, 0, 0]]), 0.06)
    np.testing.assert_allclose(data.amplitude_heat, np.exp(6 * data.fine.values), rtol=1e-12)
    assert np.all(np.diff(data.amplitude_mean_field[:, -1]) > 0) and data.amplitude_mean_field[-1, -1] < data.amplitude_heat[-1]
    assert float(data.positive_until) > 0.06 and float(data.step[1]) == pytest.approx(20 * 0.06 / 2)
    latitude, longitude = float(data.latitude[5]), float(data.longitude[3])
    point = [math.cos(latitude) * math.cos(longitude), math.cos(latitude) * math.sin(longitude), math.sin(latitude)]
    assert float(data.density[3, 5, 3]) == pytest.approx(start.at(-0.06).density(np.array([point]))[0], rel=1e-12)
    # Corollary E.8: similar tokens become more so near a maximum, less so near a minimum; from the same angle.
    np.testing.assert_allclose(data.cosine[..., 0], math.cos(0.3), atol=1e-6)
    for lines in (data.cosine_limit, data.cosine_mean_field[:, 0], data.cosine_mean_field[:, 1]):
        assert np.all(np.diff(lines[0]) > 0) and np.all(np.diff(lines[1]) < 0)
    # Its rate (E.14), to first order in time, for a token in the plane of the maxima: rho is exp(cos(2 a) / 2) there.
    tokens = np.stack([module.MAXIMUM, math.cos(0.3) * module.MAXIMUM + math.sin(0.3) * module.MINIMUM])
    moved = heat.flow(start, tokens, [1e-4])[0]
    assert (moved[0] @ moved[1] - math.cos(0.3)) / 1e-4 == pytest.approx(math.sin(0.6) * math.sin(0.3), rel=5e-3)


def test_growth_of_the_clouds(data):
    found = module.growth(data)
    moved = data.amplitude.values[..., -1] - data.amplitude.values[..., 0]
    np.testing.assert_allclose(found["attention"], 1 + moved.mean(1))
    assert np.all(found["attention"] > 1) and found["heat"] == pytest.approx(math.exp(0.36))


def test_without_s2fft_there_is_one_clear_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "s2fft", None)
    with pytest.raises(ValueError, match=r"^Spherical harmonics need the package `s2fft`.*pip install.*\.$"):
        figure.draw("heat", out=tmp_path, quick=True)
    assert list(tmp_path.iterdir()) == []
