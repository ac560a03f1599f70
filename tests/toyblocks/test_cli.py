"""The command line `toyblocks`: what it answers, and that every mistake is one line on stderr, exit code 2, nothing written."""

import json
from importlib import import_module
from pathlib import Path

import pytest

from toyblocks import figure
from toyblocks.bound import bound
from toyblocks.cli import main
from toyblocks.optimum import optimum
from toyblocks.task import Backcopy

SMALL = "--context-length 3 --dormant 1 --copy 1"


def words(line: str | list[str]) -> list[str]:
    return line.split() if isinstance(line, str) else line


def answer(capsys, line: str | list[str]) -> dict:
    """The JSON of a command; nothing else may be on stdout, and nothing that JSON does not know in it."""
    capsys.readouterr()
    assert main([*words(line), "--json"]) == 0, capsys.readouterr().err
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    return json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))


def refused(capsys, line: str | list[str]) -> str:
    """The error of a command; checks that it is one line, and that nothing is on stdout or on the disk."""
    before = sorted(Path.cwd().rglob("*"))
    capsys.readouterr()
    code = main(words(line))
    out, err = capsys.readouterr()
    assert (code, out) == (2, ""), err
    assert err.startswith("error: ") and err.endswith("\n") and err.count("\n") == 1, err
    assert "Traceback" not in err and "│" not in err
    assert sorted(Path.cwd().rglob("*")) == before
    return err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "A command must be given, one of bound, construct, optimum, train, figure, heads; see toyblocks --help."),
        ("optimun backcopy --pattern sink", "Unknown command: 'optimun' (did you mean optimum?)."),
        ("optimum --pattern sink", "The command `optimum` must be given TASK; see toyblocks optimum --help."),
        ("optimum backcopy", "The command `optimum` must be given --pattern; see toyblocks optimum --help."),
        ("train backcopy --pattern sink --witdh 4", "Unknown flag of `train`: '--witdh' (did you mean --width?)."),
        ("bound backcoppy", "Argument `task` must be one of backcopy, grouped (did you mean `backcopy`?), but was 'backcoppy'."),
        ("construct backcopy --pattern sinc", "(did you mean `sink`?)"),
        ("optimum grouped --pattern sinc", "(did you mean `sink`?)"),
        ("train grouped --pattern diag", "(did you mean `diagonal`?)"),
        ("bound backcopy --context-length 1", "Argument `context_length` must be an integer >= 2, but was 1."),
        ("bound backcopy --context-length 2.5", "Argument `context_length` must be an integer, but was 2.5."),
        ("bound backcopy --context-length four", "Argument `context_length` must be a number, but was 'four'."),
        ("bound backcopy --context-length 1e18", "Argument `context_length` must be small enough for memory (no array may"),
        ("bound backcopy --dormant 1e12", "Argument `dormant` must be small enough for memory (no array may have more than"),
        ("bound backcopy --dim 1e9", "Argument `dim` must be small enough for memory (no array may have more than 1.3e+08"),
        ("construct backcopy --pattern sink --context-length 112 --copy 107", "Argument `context_length` must be small enough"),
        ("optimum backcopy --pattern sink --context-length 112 --copy 107", "Argument `context_length` must be small enough"),
        ("construct grouped --pattern sink --sequence-length 1e9", "Argument `sequence_length` must be small enough for memory"),
        ("optimum grouped --pattern sink --per-group 200 --dim 700 --noise gaussian", "Argument `per_group` must be small"),
        ("optimum grouped --pattern sink --per-group 2e4 --noise gaussian", "Argument `per_group` must be small enough"),
        ("construct backcopy --pattern sink --dormant 0", "Argument `dormant` must be an integer >= 1, but was 0."),
        ("optimum backcopy --pattern sink --copy 0", "Argument `copy` must be an integer >= 1, but was 0."),
        (
            "train backcopy --pattern sink --context-length 4 --dim 13",
            "Argument `dim` must be >= 14 for the geometry compact, but was 13.",
        ),
        (
            "bound backcopy --context-length 4 --dim 15 --geometry orthonormal",
            "Argument `dim` must be >= 16 for the geometry orthonormal, but was 15.",
        ),
        ("bound backcopy --geometry compat", "(did you mean `compact`?)"),
        ("bound backcopy --scaling extr", "(did you mean `extra`?)"),
        ("bound grouped --delta 1", "Argument `delta` must be < 1, but was 1"),
        ("bound grouped --delta -0.1", "Argument `delta` must be finite and >= 0, but was -0.1."),
        ("construct grouped --pattern sink --delta nan", "Argument `delta` must be finite and >= 0, but was nan."),
        ("bound grouped --coherence 0.2", "Argument `coherence` must be < 1/(2 groups) = 0.166667, but was 0.2."),
        ("bound grouped --coherence -0.1", "Argument `coherence` must be finite and >= 0, but was -0.1."),
        ("bound grouped --dim 36", "Argument `dim` must be >= 37 for orthonormal noise in 3 groups, but was 36."),
        ("bound grouped --noise gausian", "(did you mean `gaussian`?)"),
        ("bound grouped --sequence-length 1", "Argument `sequence_length` must be an integer >= 2, but was 1."),
        ("bound backcopy --kappa 0", "Argument `kappa` must be finite and > 0, but was 0."),
        ("construct backcopy --pattern sink --kappa -1", "Argument `kappa` must be finite and > 0, but was -1."),
        ("optimum grouped --pattern sink --kappa inf", "Argument `kappa` must be finite and > 0, but was inf."),
        ("train backcopy --pattern sink --kappa nan", "Argument `kappa` must be finite and > 0, but was nan."),
        ("bound backcopy --delta .5", "Argument `delta` must come with the task grouped, but came with backcopy and was .5."),
        (
            "optimum backcopy --pattern sink --centroid-keys",
            "Argument `centroid_keys` must come with the task grouped, but came with backcopy.",
        ),
        ("bound grouped --copy 3", "Argument `copy` must come with the task backcopy, but came with grouped and was 3."),
        (f"construct backcopy --pattern sink {SMALL} --variant cheep", "(did you mean `cheap`?)"),
        (f"optimum backcopy --pattern sink {SMALL} --method exat", "(did you mean `exact`?)"),
        (f"train backcopy --pattern sink {SMALL} --seeds 0", "Argument `seeds` must be an integer >= 1, but was 0."),
        (f"train backcopy --pattern sink {SMALL} --width 0", "Argument `width` must be an integer >= 1, but was 0."),
        (f"train backcopy --pattern sink {SMALL} --steps 0", "Argument `steps` must be an integer >= 1, but was 0."),
        (f"train backcopy --pattern sink {SMALL} --optimizer sgd", "Argument `optimizer` must be one of adam, adamw"),
        (f"train backcopy --pattern sink {SMALL} --seeds 1e30", "Argument `seeds` must be at most 1000, but was 100000000000"),
        (f"train backcopy --pattern sink {SMALL} --steps 1e300", "Argument `steps` must be at most 1000000, but was 10000000000"),
        (f"train backcopy --pattern sink {SMALL} --width 1e9", "Argument `width` must be small enough for memory"),
        (f"train backcopy --pattern sink {SMALL} --rope nan", "Argument `rope` must be finite and > 1, but was nan."),
        (f"train backcopy --pattern sink {SMALL} --rope 1", "Argument `rope` must be finite and > 1, but was 1.0."),
        (f"train backcopy --pattern sink {SMALL} --file=", "Argument `file` must be a path, not empty and without null bytes"),
        (f"train backcopy --pattern sink {SMALL} --file a\0b", "Argument `file` must be a path, not empty and without null"),
        (f"train backcopy --pattern sink {SMALL} --file /dev/full", "Argument `file` must be a file, but was of a device or a"),
        (f"train backcopy --pattern sink {SMALL} --file .", "Argument `file` must be a file, but was of a directory: '/"),
        ("figure cost-vs-rank --out=", "Argument `out` must be a path, not empty and without null bytes, but was ''."),
        ("figure cost-vs-rank --out figures --store=", "Argument `store` must be a path, not empty and without null bytes"),
        ("bound backcopy --context-length None", "Argument `context_length` must be a number, but was 'None'."),
        (f"train backcopy --pattern sink {SMALL} --width None", "Argument `width` must be a number, but was 'None'."),
        ("bound grouped --noise None", "Argument `noise` must be one of gaussian, orthonormal (did you mean"),
        ("figure cost-vs-contxt --out figures", "(did you mean `cost-vs-context`?)"),
        ("figure cost-vs-rank --out /dev/null", "Argument `out` must be a directory, but '/dev/null' is a file."),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(capsys, tmp_path, monkeypatch, line, message):
    monkeypatch.chdir(tmp_path)
    assert message in refused(capsys, line)


@pytest.mark.parametrize("error", [MemoryError("Unable to allocate"), RuntimeError("RESOURCE_EXHAUSTED: Out of\nmemory")])
def test_no_memory_is_one_line(capsys, tmp_path, monkeypatch, error):
    def fails(*_, **__):
        raise error

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(import_module("toyblocks.construct"), "construct", fails)
    assert "error: The command must fit into memory, but did not (" in refused(capsys, "construct grouped --pattern sink")


def test_bound(capsys):
    found = answer(capsys, "bound backcopy --context-length 64 --dormant 5 --copy 5 --dim 76 --kappa 10 --scaling standard")
    task = Backcopy(64, 5, 5, 76, "standard")
    library = bound(task, 10)
    assert {**task.config(), "kappa": 10}.items() <= found.items()
    for name in ("sink_upper", "diagonal_lower", "sink_upper_printed", "diagonal_lower_printed", "sink_cheaper"):
        assert found[name] == getattr(library, name)
    # The right side of (3), and 2 (T + |D| - 2).
    assert found["diagonal_lower_printed"] == pytest.approx(10 / (3 * 76) ** 0.5 * 5**0.5 * 64**1.5)
    assert found["mlp_lower"] == pytest.approx(134) and found["first_context_length_printed"] is None

    found = answer(capsys, "bound grouped --groups 3 --per-group 10 --delta .25 --dim 100 --coherence 0 --epsilon .05 --kappa 10")
    assert (found["effective_rank"], found["noise_rank"]) == (pytest.approx(27), 30)
    assert found["condition_right"] == pytest.approx(27 / 0.25**2) and found["broken"] == []
    assert {"sink_upper", "sink_lower", "diagonal_upper", "diagonal_lower"} <= found.keys()
    assert answer(capsys, "bound grouped --per-group 1")["separation"] is None  # infinite: no two tokens in a group
    assert main(["bound", "grouped"]) == 0
    out, err = capsys.readouterr()
    assert ["noise_rank", "30"] in [line.split() for line in out.splitlines()] and err == ""


def test_construct(capsys):
    found = answer(capsys, f"construct backcopy --pattern sink {SMALL} --kappa 7 --variant cheap")
    assert found["output_error"] <= 1e-12 and found["min_margin"] == pytest.approx(7, abs=1e-12)
    assert found["cost"]["total"] == pytest.approx(sum(found["cost"][name] for name in ("query_key", "value_output", "mlp")))
    assert (found["variant"], found["pattern"], found["copy"]) == ("cheap", "sink", 1)


def test_optimum(capsys):
    found = answer(capsys, "optimum backcopy --pattern diagonal --context-length 4 --kappa 5")
    assert found["dual"] <= found["primal"] == pytest.approx(20.368, abs=1e-3)  # measured independently
    assert found["gap"] <= 1e-6 and found["cost"] == pytest.approx(10 * found["primal"])
    assert (found["dim"], found["scaling"], found["method"]) == (14, "extra", "exact")
    line = "optimum grouped --pattern sink --per-group 2 --delta .5"
    free, centroid = (answer(capsys, f"{line} {flag}")["cost"] for flag in ("", "--centroid-keys"))
    assert (free, centroid) == (pytest.approx(15.25, abs=0.01), pytest.approx(15.98, abs=0.01))  # measured independently


def test_train(capsys, tmp_path, monkeypatch):
    """A run too short to solve anything says so; its file answers again, and refuses other settings."""
    monkeypatch.chdir(tmp_path)
    line = f"train backcopy --pattern sink {SMALL} --kappa 3 --seeds 2 --width 5 --steps 100 --file run.npz"
    found = answer(capsys, line)
    assert (found["width"], found["rope"], len(found["runs"])) == (5, None, 2)
    assert found["optimum"] == pytest.approx(6 * optimum(Backcopy(3, 1, 1), "sink").primal)
    for seed, run in enumerate(found["runs"]):
        assert run["seed"] == seed and {"min_margin", "residual", "bos_value"} <= run.keys()
        assert run["cost"]["query_key"] > found["optimum"] or run["min_margin"] < 3

    def forbidden(*_, **__):
        raise AssertionError("something was trained")

    monkeypatch.setattr(import_module("toyblocks.train.run"), "train_query_key", forbidden)
    assert main([*line.split()]) == 0
    out, err = capsys.readouterr()
    unsolved = [run["seed"] for run in found["runs"] if not run["solved"]]
    assert unsolved and err.count("\n") == len(unsolved)
    assert all(f"seed {seed} did not solve its task: smallest margin" in err for seed in unsolved)
    assert out.count("NO") == len(unsolved) and "query_key" in out
    assert "seeds 2 instead of 3" in refused(capsys, line.replace("--seeds 2", "--seeds 3"))

    def fails(*_, **__):
        raise ValueError("Argument `method` must be another one.")

    with monkeypatch.context() as patch:
        patch.setattr(import_module("toyblocks.optimum"), "optimum", fails)
        assert answer(capsys, line) == {**found, "optimum": None, "gap": None}  # what was trained is shown all the same
    (tmp_path / "run.npz").write_bytes(b"no archive")
    assert "Argument `file` must hold a run" in refused(capsys, line)


def test_figure_passes_its_directories(capsys, tmp_path, monkeypatch):
    def draw(name, **arguments):
        assert arguments == {"out": "here", "store": "there", "quick": True, "progress": True}
        return [tmp_path / f"{name}.png"]

    monkeypatch.setattr(figure, "draw", draw)
    found = answer(capsys, "figure cost-vs-rank --out here --store there --quick")
    assert found == {"files": [str(tmp_path / "cost-vs-rank.png")]}
