"""The commands on tensors of real models, `toyblocks heads` and `scaling temperature`: what they answer, what they refuse, and
what their figures show."""

import dataclasses
import inspect
import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
import xarray
from matplotlib.figure import Figure
from safetensors.numpy import save_file

import scaling.cli
import toyblocks.cli
from scaling import head_temperatures, read_tensors
from scaling.cli.temperature import Temperature
from scaling.cli.tensors import counted, short
from scaling.figure import temperature as temperature_figure
from scaling.figure.head_axis import head_axis
from scaling.figure.style import DPI, WIDTH
from toyblocks import label_heads
from toyblocks.cli.heads import Heads
from toyblocks.figure import heads as heads_figure
from toyblocks.heads import HeadReport, Thresholds

SHIPPED = Path(__file__).parent / "data" / "smollm2-heads" / "smollm2_heads.npz"
MAIN = {"heads": toyblocks.cli.main, "temperature": scaling.cli.main}
BOTH = pytest.mark.parametrize("command", MAIN)
TOP = ["--top", "8"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys, command: str, *words: str | Path) -> tuple[int, str, str]:
    capsys.readouterr()
    code = MAIN[command]([command, *map(str, words)])
    return code, *capsys.readouterr()


def answer(capsys, command: str, *words) -> dict[str, Any]:
    """The JSON of a command; nothing else may be on stdout, and nothing that JSON does not know in it."""
    code, out, err = run(capsys, command, *words, "--json")
    assert code == 0 and out.count("\n") == 1, err
    return json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))


def refused(capsys, command: str, *words) -> str:
    """The error of a command; checks that it is one line, and that nothing is on stdout or new on the disk."""
    before = sorted(Path.cwd().rglob("*"))
    for more in ((), ("--json",)):
        code, out, err = run(capsys, command, *words, *more)
        assert (code, out) == (2, ""), err
        assert err.startswith("error: ") and err.endswith("\n") and err.count("\n") == 1, err
        assert sorted(Path.cwd().rglob("*")) == before
    return err


def tensors(n: int = 24, heads: int = 4, kv_heads: int = 2) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {"q": rng.standard_normal((heads, n, 6)), "k": rng.standard_normal((kv_heads, n, 6)), "scaling": np.array(0.4)}


def put(name: str, place: tuple[int, ...], value: float) -> dict[str, np.ndarray]:
    found = tensors()
    found[name][place] = value
    return found


BAD = {
    "nan": (put("q", (3, 17, 2), np.nan), r"`q of layer 0` must be finite, but was of nan at head 3, position 17\."),
    "infinite": (put("k", (1, 5, 0), np.inf), r"`k of layer 0` must be finite, .* key head 1, of head 2, 3, position 5\."),
    "shapes": ({**tensors(), "k": np.ones((2, 23, 6))}, r"`k of layer 0` must have shape \(1, any, 24, 6\), but was of shape"),
    "heads": (tensors(heads=4, kv_heads=3), r"`k of layer 0` must have a number of heads that divides 4, but was of shape"),
    "short": (tensors(n=1), r"`q of layer 0` must have at least 2 positions, but was of shape"),
    "no q": ({"k": np.ones((2, 5, 6))}, r"`file` must hold `q` and `k`"),
    "steep": ({**tensors(), "scaling": np.array(1e9)}, r"`scaling of layer 0` must be at most 1e\+06"),
    "pickle": ({**tensors(), "q": np.array([{}, None], object)}, r"must hold arrays of numbers, but array `q` of .* is pickled"),
}


@BOTH
@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_one_line_and_exit_code_2(capsys, here, command, name):
    arrays, message = BAD[name]
    np.savez(here / "bad.npz", **arrays)  # pyright: ignore[reportArgumentType]
    assert re.search(message, refused(capsys, command, "bad.npz"))
    assert re.search(message, refused(capsys, command, "bad.npz", "--figure", "new/figure.png"))


@BOTH
def test_files_that_are_none_and_bad_flags(capsys, here, command):
    (here / "text.npz").write_text("no archive")
    (here / "cut.npz").write_bytes(SHIPPED.read_bytes()[:5000])
    (here / "a.png").mkdir()
    np.savez(here / "good.npz", **tensors())  # pyright: ignore[reportArgumentType]
    assert "`file` must be an .npz or .safetensors file, but '" in refused(capsys, command, "text.npz")
    assert "`file` must be an .npz or .safetensors file, but '" in refused(capsys, command, "cut.npz")
    assert "is a directory" in refused(capsys, command, ".")
    assert "No such file or directory: '" in refused(capsys, command, "none.npz")
    assert f"The command `{command}` must be given FILE" in refused(capsys, command)
    assert "`scaling` must be finite and > 0, but was 0" in refused(capsys, command, "good.npz", "--scaling", "0")
    assert "`scaling` must be a number, but was 'x'" in refused(capsys, command, "good.npz", "--scaling", "x")
    for path, message in {
        "figure.svg": "`figure` must be a directory, or end in .png or .pdf, but was 'figure.svg'.",
        "text.npz/figure.png": "`figure` must be a directory, but '",
        "/dev/null/figures": "`figure` must be a directory, but '/dev/null' is a file.",
        "": "`figure` must be a path, not empty and without null bytes, but was ''.",
    }.items():
        assert message in refused(capsys, command, "missing.npz", f"--figure={path}")  # found before the file is read
    own = {
        "heads": [("thresholds", ".4,.6", "be three numbers"), ("thresholds", "1.4,.6,.1", "be in (0, 1]"),
                  ("half-spaces-up-to", "-1", "be an integer >= 0")],
        "temperature": [("top", "7", "be an integer >= 8"), ("top", "23", "be below 23, the keys"),
                        ("rows", "0", "be an integer >= 1")],
    }  # fmt: skip
    for flag, value, message in own[command]:
        assert f"must {message}" in refused(capsys, command, "good.npz", f"--{flag}={value}")


def same(found: Any, wanted: Any) -> bool:
    return found == json.loads(json.dumps(wanted))


def test_answers_are_those_of_the_library(capsys, here):
    arrays = tensors()
    np.savez(here / "a.npz", **arrays)  # pyright: ignore[reportArgumentType]
    save_file(arrays, here / "a.safetensors")
    report = label_heads(read_tensors(arrays))
    assert same(answer(capsys, "heads", "a.npz"), report.to_dict())
    assert same(answer(capsys, "heads", "a.safetensors"), report.to_dict())
    other = label_heads(read_tensors(arrays, scaling=9), thresholds=Thresholds(0.3, 0.5, 0.2))
    assert {head.label for head in other.heads} != {head.label for head in report.heads}
    assert same(answer(capsys, "heads", "a.npz", "--scaling", "9", "--thresholds", ".3,.5,.2"), other.to_dict())

    cold = head_temperatures(read_tensors(arrays, scaling=9), top=8, rows=3)
    assert same(answer(capsys, "temperature", "a.safetensors", *TOP, "--rows", "3", "--scaling", "9"), cold.to_dict())
    keys = {"layer", "head", "n", "beta", "exponent", "exponent_low", "exponent_high", "hill", "kappa", "top_weight",
            "participation_ratio", "slope", "self_check", "predictions", "no_change"}  # fmt: skip
    assert all(keys <= head.keys() for head in cold.to_dict()["heads"])


@pytest.fixture(scope="module")
def reports():
    """Of the shipped heads, and of 270 heads: numbers that differ from head to head, in a report like that of a model."""
    given = read_tensors(SHIPPED)
    few, rng = (label_heads(given), head_temperatures(given)), np.random.default_rng(2)
    vectors = {name: array / np.linalg.norm(array, axis=-1, keepdims=True) for name, array in tensors(120).items() if array.ndim}
    uniform = head_temperatures(read_tensors(vectors, scaling=8), top=8)
    told = next(head for head in uniform.heads if head.predictions is not None)
    heads, temperatures = [], []
    for i in range(270):
        place, factor = {"layer": i // 9, "head": i % 9}, float(np.exp(rng.normal()))
        head = few[0].heads[i % 4]
        heads.append(dataclasses.replace(head, **place, beta_tr_bw=factor * (head.beta_tr_bw or 0), sink=float(rng.random())))
        temperature = few[1].heads[i % 4] if i % 3 else told
        temperatures.append(dataclasses.replace(temperature, **place, kappa=factor))
    model = (dataclasses.replace(few[0], heads=tuple(heads)), dataclasses.replace(few[1], heads=tuple(temperatures)))
    return {"few": few, "model": model, "uniform": uniform}


@pytest.mark.parametrize("which", ["few", "model"])
def test_tables_have_a_row_a_head_and_fit_a_terminal(capsys, monkeypatch, reports, which):
    heads, temperatures = reports[which]
    monkeypatch.setattr(import_module("toyblocks.heads"), "label_heads", lambda *_, **__: heads)
    monkeypatch.setattr(import_module("scaling.temperature"), "head_temperatures", lambda *_, **__: temperatures)
    rows = {}
    for command, report in (("heads", heads), ("temperature", temperatures)):
        code, out, _ = run(capsys, command, SHIPPED)
        assert code == 0 and max(map(len, out.splitlines())) <= 130
        for warning in report.warnings:
            assert warning in re.sub(r"\n  ", " ", out)
        for head in report.heads:
            name = head.name
            rows[command, name] = [line.split() for line in out.splitlines() if line.split() and line.split()[0] == name]
    for head in heads.heads:
        pattern, similarity = rows["heads", head.name]
        assert pattern[1:3] == [head.label, f"{head.sink:.3f}"] and similarity[1] == head.regime
    for head in temperatures.heads:
        first, *others = rows["temperature", head.name]
        assert float(first[2]) == pytest.approx(head.beta, rel=0.01) and f"{head.top_weight:.3f}" in first
        assert ("yes" in first, len(others)) == ((True, 3) if head.predictions else (False, 0))
        if head.self_check is not None:
            assert float(first[first.index("/") + 1]) == pytest.approx(head.self_check["participation_ratio"].predicted, rel=0.01)
        for row, times in zip(others, (2, 4, 16), strict=False):  # no change, then constant growth
            assert row[1:6] == [str(times), "n", f"{head.top_weight:.3f}", "/", row[5]]
            assert head.predictions and row[6] == f"{head.predictions['constant'][(2, 4, 16).index(times)].top_weight:.3f}"


def test_shipped_heads_on_the_command_line(capsys, here):
    """Labels and regimes as measured independently; a figure at a path, with nothing beside it."""
    expected = json.loads((SHIPPED.with_suffix(".json")).read_text())["heads"]
    found = answer(capsys, "heads", SHIPPED, "--figure", "new/heads.png")
    assert found["files"] == [str(here / "new" / "heads.png")] and [p.name for p in (here / "new").iterdir()] == ["heads.png"]
    for head in found["heads"]:
        want = expected[f"L{head['layer']}H{head['head']}"]
        assert (head["label"], head["regime"]) == (want["label"], want["regime"])
        assert head["sink"] == pytest.approx(want["sink"], abs=1e-5)
        assert head["uniform_baseline"]["sink"] == pytest.approx(np.mean(1 / np.arange(2, 97)))


def test_figures_draw_what_is_in_the_report(here, reports):
    heads, temperatures = reports["model"]
    files = heads_figure.draw_report(heads, here / "a")
    assert [file.name for file in files] == ["heads.png", "heads.pdf", "heads.nc", "heads.txt"]
    data = xarray.load_dataset(files[2], engine="scipy")
    np.testing.assert_array_equal(data.mass[:, 0], [head.sink for head in heads.heads])
    np.testing.assert_array_equal(data.change, [head.measured_change for head in heads.heads])
    wanted = [(head.predicted_rho_x_wzau or 0) - (head.predicted_rho_x_wz or 0) for head in heads.heads]
    np.testing.assert_array_equal(data.predicted_change, wanted)
    assert [heads_figure.REGIMES[int(i)] for i in data.regime] == [head.regime for head in heads.heads]
    assert "sink+lower_diagonal 68" in " ".join(files[3].read_text().split())
    assert matplotlib.image.imread(files[0]).shape[1] == WIDTH * DPI

    (file,) = temperature_figure.draw_report(temperatures, here / "t.png")
    assert matplotlib.image.imread(file).shape[1] == WIDTH * DPI
    data = temperature_figure.dataset(temperatures)
    shown = np.isfinite(data.prediction[:, 0, 0].values)
    assert shown.tolist() == [head.predictions is not None for head in temperatures.heads] and shown.sum() == 90
    told = temperatures.heads[0]
    assert told.predictions is not None and told.self_check is not None
    assert float(data.prediction[0, temperature_figure.NAMES.index("log"), 2]) == told.predictions["log"][2].top_weight
    assert float(data.check[0]) == told.self_check["top_weight"].predicted
    caption = " ".join(temperature_figure.caption(temperatures).split())
    assert "withheld, for 180 of 270" in caption and "over the 90 heads" in caption


def test_figures_of_one_head_and_of_little(here, reports):
    """One head; heads without Theorem 5.1, without a tail, of two positions."""
    heads, temperatures = reports["few"]
    bare = label_heads(read_tensors({"q": np.ones((1, 2, 3)), "k": np.ones((1, 2, 3))}))
    (file,) = heads_figure.draw_report(HeadReport(bare.heads, bare.layers, ()), here / "bare.png")
    assert file.stat().st_size > 5000 and "(b)" not in heads_figure.caption(bare)
    head = reports["uniform"].heads[0]
    no_tail = dataclasses.replace(temperatures.heads[0], layer=0, exponent=None, exponent_low=None, exponent_high=None, hill=None,
                                  kappa=None, self_check=None)  # fmt: skip
    (file,) = temperature_figure.draw_report(dataclasses.replace(temperatures, heads=(head, no_tail)), here / "t.pdf")
    assert file.read_bytes().startswith(b"%PDF")
    assert np.isnan(temperature_figure.dataset(dataclasses.replace(temperatures, heads=(no_tail,))).exponent).all()


def test_heads_without_a_tail_or_without_queries(capsys, here, monkeypatch):
    """By themselves and beside each other: records, tables and figures, with no legend of what is not there."""
    rng = np.random.default_rng(6)
    q, k = (rng.standard_normal((2, 60, 4)) for _ in range(2))
    q[0], k[1] = 0, 1
    np.savez(here / "none.npz", q=q, k=k, scaling=np.array(1.0))
    figures = []
    monkeypatch.setattr(temperature_figure, "save_at", lambda figure, *_: figures.append(figure) or [])
    found = answer(capsys, "temperature", "none.npz", *TOP, "--figure", "f.png")
    assert [head["exponent"] for head in found["heads"]] == [None, None] and found["heads"][0]["beta"] is None
    code, out, _ = run(capsys, "temperature", "none.npz", *TOP)
    assert code == 0 and "NO" not in out and "L0H0: queries or keys are zero" in out
    dead, equal = (line.split() for line in out.splitlines() if line.startswith(("L0H0 ", "L0H1 ")))
    assert set(dead[1:]) == {"-"} and equal[3:8] == ["-"] * 4 + [equal[7]] and equal[8] == "-"
    report = head_temperatures(read_tensors(here / "none.npz"), top=8)
    for heads in (report.heads[:1], report.heads[1:]):
        temperature_figure.draw_report(dataclasses.replace(report, heads=heads), here / "f.png")
        temperature_figure.caption(dataclasses.replace(report, heads=heads))
    for figure in figures:
        for axes in figure.axes:
            assert axes.get_legend() is None or [text.get_text() for text in axes.get_legend().get_texts()] == ["uniform keys"]


def test_legends_name_what_is_drawn(here, reports, monkeypatch):
    figures = []
    monkeypatch.setattr(temperature_figure, "save_at", lambda figure, *_: figures.append(figure) or [])
    told = tuple(head for head in reports["uniform"].heads if head.predictions is not None)
    withheld = tuple(dataclasses.replace(head, top_weight=1.0) for head in reports["few"][1].heads)
    for heads, names in ((told, ["predicted"]), (withheld, ["withheld"]), (told + withheld, ["predicted", "withheld"])):
        temperature_figure.draw_report(dataclasses.replace(reports["uniform"], heads=heads), here / "f.png")
        check, kappa = figures[-1].axes[1:3]
        assert [text.get_text() for text in check.get_legend().get_texts()] == names
        for line in (*check.lines[1:], *kappa.lines[1:]):
            assert len(line.get_xdata()) > 0 and not line.get_clip_on()  # a marker at a weight of 1 is whole


def test_defaults_are_those_of_the_library():
    of = inspect.signature(head_temperatures).parameters
    assert (int(Temperature("f").top), int(Temperature("f").rows)) == (of["top"].default, of["rows"].default)
    assert int(Heads("f").half_spaces_up_to) == inspect.signature(label_heads).parameters["half_spaces_up_to"].default
    assert Heads("f")._thresholds() == Thresholds()


def test_tables_count_and_give_reasons(capsys, monkeypatch, reports):
    heads, temperatures = reports["few"]
    dead = dataclasses.replace(temperatures.heads[0], layer=40, rows=0, self_check=None, predictions=None, withheld="zero")
    temperatures = dataclasses.replace(temperatures, heads=(*temperatures.heads, dead))
    wrong = dataclasses.replace(heads.heads[0], layer=40, agrees=False)
    heads = dataclasses.replace(heads, heads=(*heads.heads, wrong))
    monkeypatch.setattr(import_module("toyblocks.heads"), "label_heads", lambda *_, **__: heads)
    monkeypatch.setattr(import_module("scaling.temperature"), "head_temperatures", lambda *_, **__: temperatures)
    _, out, _ = run(capsys, "temperature", SHIPPED)
    head = temperatures.heads[0]
    assert f"{short(head.exponent_low)} to {short(head.exponent_high)}" in out
    off = [each.name for each in temperatures.heads if each.withheld and each.self_check]
    line = next(line for line in out.splitlines() if "self-check is off" in line)
    assert off and off[0] in line and "L40H6" not in line and "L40H6: queries or keys are zero" in out
    _, out, _ = run(capsys, "heads", SHIPPED)
    assert "in 4 of 5 heads" in out
    layer = heads.layers[0]
    assert f"{layer.sink_margin:.2f}, {layer.attending_margin:.2f}" in out and layer.sink_margin != layer.attending_margin


def test_words_are_counted():
    assert counted(["b", None, "a", "b"]) == "b 2, a 1"


def test_panels_of_temperatures(here, reports, monkeypatch):
    figures = []
    monkeypatch.setattr(temperature_figure, "save_at", lambda figure, *_: figures.append(figure) or [])
    told = [head for head in reports["uniform"].heads if head.predictions is not None]
    temperature_figure.draw_report(dataclasses.replace(reports["uniform"], heads=tuple(told)), here / "f.png")
    exponents, check, kappa = figures[0].axes[:3]
    ends = [segment[:, 1] for segment in exponents.containers[0].lines[2][0].get_segments()]
    np.testing.assert_allclose(ends, [(head.exponent_low, head.exponent_high) for head in told])
    wanted = [(head.top_weight, head.self_check["top_weight"].predicted) for head in told]
    np.testing.assert_array_equal(check.lines[1].get_xydata(), wanted)
    np.testing.assert_array_equal(kappa.lines[1].get_xydata(), [(head.kappa, head.top_weight) for head in told])


def test_axis_of_many_heads():
    axes, layer = Figure().subplots(), np.repeat([3, 7, 8], [2, 6, 8])
    head_axis(axes, layer, np.arange(16))
    assert [text.get_text() for text in axes.get_xticklabels()] == ["3", "7", "8"]
    assert axes.get_xticks().tolist() == [0.5, 4.5, 11.5]
