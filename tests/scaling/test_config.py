"""Sweep configurations: every mistake is named with its key, and equal sweeps are equal however they are written."""

import copy
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling import config as module
from scaling.config import Range, SweepConfig
from scaling.statistic import default_names

TOML = """
seed = 0
replicates = 100
engine = "auto"
statistics = ["top_weight", "ipr", "entropy"]
[density]
kind = "uniform"
[axes]
d = [5]
n = { start = 1e2, stop = 1e6, num = 25, spacing = "log" }
gamma = { start = 1e-2, stop = 1e2, num = 25, spacing = "log" }
"""
BASE = {"seed": 0, "replicates": 100, "axes": {"d": [5], "n": [100, 1000], "gamma": [0.1, 1.0]}}


def changed(path: str, value, base=BASE) -> dict:
    """A copy of `base` with one dotted key set, or removed where the value is `...`."""
    raw = copy.deepcopy(base)
    *tables, key = path.split(".")
    at = raw
    for table in tables:
        at = at.setdefault(table, {})
    if value is ...:
        del at[key]
    else:
        at[key] = value
    return raw


def message(raw) -> str:
    with pytest.raises(ValueError) as caught:
        SweepConfig.from_mapping(raw)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_file_of_the_manual(tmp_path):
    (tmp_path / "a.toml").write_text(TOML)
    config = SweepConfig.from_toml(tmp_path / "a.toml")
    assert config.shape == (1, 25, 25)
    assert config.axes.n[0] == 100 and config.axes.n[-1] == 1e6 and all(n == int(n) for n in config.axes.n)
    assert [config.coordinates[i] for i in (0, 12, 24)] == [0.01, 1.0, 100.0]
    assert config.temperature == "gamma"
    np.testing.assert_allclose(config.beta(5), np.outer(np.sqrt(config.axes.n), config.coordinates), rtol=1e-15)
    assert (config.dtype, config.tolerance, config.query) == ("float32", 1e-6, None)


def test_defaults():
    config = SweepConfig.from_mapping(BASE)
    assert config.statistics == tuple(default_names()) and config.engine == "auto" and config.density.kind == "uniform"


@pytest.mark.parametrize(
    "path, a, b",
    [
        ("axes.n", {"start": 1e2, "stop": 1e6, "num": 5, "spacing": "log"}, [100, 1000, 10_000, 1e5, 1_000_000]),
        ("axes.gamma", {"start": 1e-2, "stop": 1e2, "num": 5, "spacing": "log"}, (0.01, 0.1, 1, 10, 100.0)),
        ("axes.gamma", {"start": 0, "stop": 0.3, "num": 4, "spacing": "linear"}, np.array([0.0, 0.1, 0.2, 0.3])),
        ("axes.d", 5, [5.0]),
        ("axes.d", {"start": 2, "stop": 128, "num": 7, "spacing": "log"}, [2, 4, 8, 16, 32, 64, 128]),
        ("statistics", "ipr", ["ipr"]),
        ("seed", 1e3, 1000),
        ("query", [1, 0, 0, 0, 0], None),
        ("density", {"kind": "vmf", "concentration": 2, "mean": [1.0, 0, 0, 0, 0]}, {"kind": "vmf", "concentration": 2.0}),
        ("statistics", ["top_mass(3)"], ["top_mass(03)"]),
    ],
)
def test_equivalent_files_are_the_same_configuration(path, a, b):
    first, second = (SweepConfig.from_mapping(changed(path, v)) for v in (a, b))
    assert first.canonical() == second.canonical() and first.differences(second) == []


@pytest.mark.parametrize(
    "path, value, keys",
    [
        ("seed", 1, ["seed"]),
        ("axes.n", [100, 1001], ["axes.n"]),
        ("axes.n", [1000, 100], ["axes.n"]),
        ("query", [0, 1, 0, 0, 0], ["query"]),
        ("density", {"kind": "vmf", "concentration": 1.0}, ["density.concentration", "density.kind"]),
        ("axes", {"d": [5], "n": [100, 1000], "beta": [0.1, 1.0]}, ["axes.beta", "axes.gamma"]),
        ("tolerance", 1e-3, ["tolerance"]),
    ],
)
def test_differences_are_named(path, value, keys):
    config, other = SweepConfig.from_mapping(BASE), SweepConfig.from_mapping(changed(path, value))
    assert sorted(config.differences(other)) == sorted(other.differences(config)) == keys


def test_beta_of_every_kind_of_axis():
    axes = {"d": [3, 5], "n": [100, 10_000]}
    absolute, gamma, exponent = (
        SweepConfig.from_mapping({**BASE, "axes": {**axes, name: [0.25, 2.0]}}) for name in ("beta", "gamma", "exponent")
    )
    np.testing.assert_allclose(absolute.beta(3), [[0.25, 2], [0.25, 2]], rtol=0)
    np.testing.assert_allclose(gamma.beta(3), [[25, 200], [2500, 20_000]], rtol=1e-14)
    np.testing.assert_allclose(gamma.beta(5), [[2.5, 20], [25, 200]], rtol=1e-14)
    np.testing.assert_allclose(exponent.beta(5), [[100**0.25, 1e4], [10, 1e8]], rtol=1e-14)


BAD = [
    ("axes.n", [], "axes.n: must not be empty, but was []"),
    ("axes.n", [100, 0], "axes.n[1]: must be an integer between 1 and 1e18"),
    ("axes.n", [100, 10.5], "axes.n[1]: must be an integer"),
    ("axes.n", [math.nan], "axes.n[0]: must be an integer"),
    ("axes.n", [10, 100, 1e1], "axes.n: must not have a duplicate axis value, but has 10 twice"),
    (
        "axes.n",
        {"start": 1, "stop": 10, "num": 50, "spacing": "log"},
        "axes.n: must not have a duplicate axis value, but has 1 twice after rounding",
    ),
    ("axes.n", {"start": 1, "stop": 10, "num": 0, "spacing": "log"}, "axes.n.num: must be an integer >= 1, but was 0"),
    (
        "axes.n",
        {"start": 1, "stop": 10, "num": 3, "spacing": "lag"},
        "axes.n.spacing: must be one of linear, log (did you mean `log`?)",
    ),
    ("axes.n", {"start": 1, "stop": 10, "num": 3}, "axes.n.spacing: must be given"),
    (
        "axes.n",
        {"start": 1, "stop": 10, "nmu": 3, "num": 3, "spacing": "log"},
        "axes.n.nmu: is not a known key (did you mean `num`?)",
    ),
    ("axes.n", {"start": 1, "stop": 10, "num": 1, "spacing": "log"}, "axes.n: must have num >= 2 where start and stop differ"),
    ("axes.n", {"start": 1, "stop": 10, "num": 10**9, "spacing": "log"}, "axes.n.num: must be at most 100000"),
    ("axes.n", "100", "axes.n: must be a number, a list or { start, stop, num, spacing }, but was '100'"),
    ("axes.n", True, "axes.n: must be a number, a list"),
    (
        "axes.gamma",
        {"start": 0, "stop": 10, "num": 3, "spacing": "log"},
        "axes.gamma: must have start and stop > 0 for log spacing",
    ),
    ("axes.gamma", {"start": math.inf, "stop": 10, "num": 3, "spacing": "log"}, "axes.gamma.start: must be a finite number"),
    ("axes.gamma", [1.0, -1.0], "axes.gamma[1]: must be finite and >= 0, but was -1.0"),
    ("axes.gamma", [0.0, -0.0], "axes.gamma: must not have a duplicate axis value"),
    ("axes.gamma", [math.inf], "axes.gamma[0]: must be finite"),
    ("axes.gamma", ["1"], "axes.gamma[0]: must be a finite number >= 0, but was '1'"),
    ("axes.gamma", [1e308], "axes.gamma: must give a finite beta in every cell"),
    ("axes.gamma", ..., "axes: must have exactly one of beta, gamma, exponent, but has none"),
    ("axes.beta", [1.0], "axes: must have exactly one of beta, gamma, exponent, but has beta and gamma"),
    ("axes.gama", [1.0], "axes.gama: is not a known key (did you mean `gamma`?)"),
    ("axes.d", [1], "axes.d[0]: must be an integer >= 2, but was 1"),
    ("axes.d", [2.5], "axes.d[0]: must be an integer >= 2, but was 2.5"),
    ("axes.d", ..., "axes.d: must be given, but is missing"),
    ("axes", 5, "axes: must be a table, but was 5"),
    ("axes", ..., "axes: must be given, but is missing"),
    (
        "axes",
        {"d": 5, "n": list(range(1, 1002)), "beta": list(range(1000))},
        "axes: must have at most 1000000 cells together, but have 1001000",
    ),
    ("seed", ..., "seed: must be given, but is missing"),
    ("seed", -1, "seed: must be an integer >= 0, but was -1"),
    ("seed", 2**32, "seed: must be at most 4294967295"),
    ("seed", True, "seed: must be an integer >= 0, but was True"),
    ("replicates", 0, "replicates: must be an integer >= 1, but was 0"),
    ("replicates", "10", "replicates: must be an integer >= 1, but was '10'"),
    ("replicates", 10**10, "replicates: must be at most 59652323 here"),
    ("engine", "key", "engine: must be one of auto, extremes, keys, poisson (did you mean `keys`?), but was 'key'"),
    ("dtype", "float16", "dtype: must be one of float32, float64"),
    ("tolerance", 0, "tolerance: must be finite and > 0, but was 0"),
    ("statistics", [], "statistics: must name at least one statistic"),
    ("statistics", ["ipr", "ipr"], "statistics: must name every statistic once, but was 'ipr'"),
    ("statistics", ["ipr", "top_wait"], "(did you mean `top_weight`?), but was 'top_wait'"),
    ("statistics", ["top_mass(0)"], "statistics[0]: must have an integer rank >= 1"),
    ("statistics", [3], "statistics[0]: must be a name, but was 3"),
    ("statistics", 3, "statistics: must be a list of names, but was 3"),
    ("density.kind", "vmff", "density.kind: must be one of quadratic, uniform, vmf (did you mean `vmf`?), but was 'vmff'"),
    ("density", {}, "density.kind: must be given"),
    ("density", "uniform", "density: must be a table"),
    ("density", {"kind": "vmf"}, "density.concentration: must be given"),
    ("density", {"kind": "vmf", "concentration": -1}, "density.concentration: must be finite and >= 0, but was -1"),
    ("density", {"kind": "vmf", "concentration": 1, "mean": [1, 1, 0, 0, 0]}, "density.mean: must have norm 1"),
    (
        "density",
        {"kind": "vmf", "concentration": 1, "mean": [0, 1, 0]},
        "density.mean: must have 5 numbers for d = 5, but has 3 numbers",
    ),
    ("density", {"kind": "uniform", "concentration": 1}, "density.concentration: is not a known key"),
    ("density", {"kind": "quadratic", "matrix": [[1, 0], [0]]}, "density.matrix: must be a square matrix"),
    (
        "density",
        {"kind": "quadratic", "matrix": [[1, 0], [0, math.nan]]},
        "density.matrix[1][1]: must be a finite number, but was nan",
    ),
    (
        "density",
        {"kind": "quadratic", "matrix": [[1, 0], [0, 1]]},
        "density.matrix: must have 5 x 5 numbers for d = 5, but has 2 x 2",
    ),
    ("query", [1, 1, 0, 0, 0], "query: must have norm 1, but was of norm 1.41421"),
    ("query", [0, 0, 0, 0, 0], "query: must have norm 1"),
    ("query", [1, 0, 0], "query: must have 5 numbers for d = 5, but has 3 numbers"),
    ("query", [], "query: must have shape"),
    ("query", 1.0, "query: must be a list of numbers"),
    ("range", 1, "range: is not a known key"),
    ("axes.values", 1, "axes.values: is not a known key"),
    ("density.vmf", 1, "density.kind: must be given"),
    ("sead", 1, "sead: is not a known key (did you mean `seed`?)"),
]


@pytest.mark.parametrize("path, value, expected", BAD, ids=[f"{path}-{number}" for number, (path, _, _) in enumerate(BAD)])
def test_mistake_is_named_with_its_key(path, value, expected):
    found = message(changed(path, value))
    assert expected in found
    assert ";" not in found, "one mistake, one sentence"


@pytest.mark.parametrize(
    "field, value, expected",
    [
        ("query", [1, 0, 0, 0, 0], "query: belongs to one dimension, but axes.d has 2"),
        ("density", {"kind": "vmf", "concentration": 1, "mean": [1, 0, 0]}, "density.mean: belongs to one dimension"),
        (
            "density",
            {"kind": "quadratic", "matrix": [[1, 0], [0, 1]]},
            "density.matrix: belongs to one dimension, but axes.d has 2: kind must be",
        ),
    ],
)
def test_several_dimensions_take_no_vector_of_one(field, value, expected):
    assert expected in message(changed(field, value, changed("axes.d", [3, 5])))
    SweepConfig.from_mapping(changed("density", {"kind": "vmf", "concentration": 1}, changed("axes.d", [3, 5])))


def test_all_mistakes_at_once():
    raw = {
        "replicates": 0,
        "engine": "keyz",
        "axes": {"d": [5], "n": [], "gamma": [1], "beta": [1]},
        "query": [1, 1],
        "statistics": ["a", "b"],
    }
    found = message(raw)
    keys = [part.split(":")[0] for part in found.split("; ")]
    assert sorted(keys) == ["axes", "axes.n", "engine", "query", "replicates", "seed", "statistics[0]", "statistics[1]"]


def test_conflicts_are_found_beside_other_mistakes():
    found = message({**changed("query", [0, 1]), "seed": -1})
    assert "seed: " in found and "query: must have 5 numbers" in found


def test_unreadable_files(tmp_path):
    path = tmp_path / "a.toml"

    def problem(data: bytes | None = None) -> str:
        if data is not None:
            path.write_bytes(data)
        with pytest.raises(ValueError) as caught:
            SweepConfig.from_toml(path)
        assert "\n" not in str(caught.value) and "a.toml" in str(caught.value)
        return str(caught.value)

    assert "No such file" in problem()
    assert "line 2" in problem(b"seed = 0\nreplicates = = 3\n")
    assert "not UTF-8 at line 2" in problem(b"seed = 0\nengine = '\xff'\n")
    assert "not valid TOML" in problem(b"seed = " + b"9" * 5000)
    assert "not valid TOML" in problem(b"a = " + b"[" * 100_000)
    assert "line 3" in problem(b"seed = 0\r\nreplicates = 1\r\nseed = 1\r\n")
    path.write_bytes(b"\xef\xbb\xbf" + TOML.replace("\n", "\r\n").encode())
    SweepConfig.from_toml(path)
    path.unlink()
    path.mkdir()
    assert "Is a directory" in problem()


def test_range_keeps_ends_and_order():
    values = Range(start=1e2, stop=1e-3, num=6, spacing="log").values()
    assert values == [100.0, 10.0, 1.0, 0.1, 0.01, 0.001]


_ARRAYS = st.lists(st.floats(0, 1e3), min_size=1, max_size=5, unique=True)
_CONFIGS = st.fixed_dictionaries(
    {
        "seed": st.integers(0, module.MAX_SEED),
        "replicates": st.integers(1, 10_000),
        "engine": st.sampled_from(["auto", "keys", "extremes"]),
        "dtype": st.sampled_from(module.DTYPES),
        "tolerance": st.floats(1e-12, 1.0, exclude_min=True),
        "statistics": st.lists(
            st.sampled_from([*default_names(), "top_mass(2)", "ipr_squared"]), min_size=1, max_size=4, unique=True
        ),
        "density": st.one_of(
            st.just({"kind": "uniform"}),
            st.fixed_dictionaries(
                {"kind": st.just("vmf"), "concentration": st.floats(0, 1e6)}, optional={"mean": st.just([0.6, 0.0, -0.8])}
            ),
            st.fixed_dictionaries({"kind": st.just("quadratic"), "matrix": st.just([[0.0, 1, 0], [1, 0, 0.5], [0, 0.5, 2]])}),
        ),
        "axes": st.tuples(
            st.lists(st.integers(1, 10**18), min_size=1, max_size=5, unique_by=float), st.sampled_from(["beta", "gamma"]), _ARRAYS
        ).map(lambda t: {"d": [3], "n": t[0], t[1]: t[2]}),
    },
    optional={"query": st.sampled_from([[0.0, 0.6, 0.8], [1.0, 0, 0]])},
)


@given(raw=_CONFIGS)
def test_canonical_form_reads_back(raw):
    config = SweepConfig.from_mapping(raw)
    again = SweepConfig.from_mapping(config.canonical())
    assert again.canonical() == config.canonical() and config.differences(again) == []
    np.testing.assert_array_equal(again.beta(3), config.beta(3))
    assert list(config.axes.n) == [float(n) for n in raw["axes"]["n"]], "the order of an axis is kept"


_JUNK = st.one_of(
    st.just(math.nan), st.just(-math.inf), st.just("?"), st.just([]), st.just({"?": 1}), st.just([[1], "?"]), st.booleans()
)


@given(raw=_CONFIGS, data=st.data())
def test_every_corrupted_field_is_refused_by_name(raw, data):
    paths = [
        "seed",
        "replicates",
        "engine",
        "dtype",
        "tolerance",
        "statistics",
        "axes.d",
        "axes.n",
        "density.kind",
        "axes." + list(raw["axes"])[2],
    ]
    path = data.draw(st.sampled_from(paths))
    found = message(changed(path, data.draw(_JUNK), raw))
    assert re.search(rf"(^|; ){re.escape(path)}[\[.:]", found)


@given(raw=_CONFIGS, data=st.data())
def test_every_unknown_key_is_refused_by_name(raw, data):
    table = data.draw(st.sampled_from(["", "axes.", "density."]))
    key = data.draw(st.text("abcdexyz_", min_size=1, max_size=8).filter(lambda k: k not in ("d", "beta")))
    assert f"{table}{key}: is not a known key (did you mean `" in message(changed(f"{table}{key}", 1, raw))
