"""The command line: what it answers, and that every mistake is one line on stderr, exit code 2, with nothing written."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import scaling.exact
import scaling.figure
import scaling.sweep
from scaling import Uniform, simulate
from scaling.cli import main
from scaling.density import Quadratic, VonMisesFisher
from scaling.exact import critical_beta, expected, expected_limit
from scaling.regime import regime

ROOT = Path(__file__).resolve().parents[2]
SWEEP = """
seed = 0
replicates = 8
statistics = ["top_weight", "ipr"]
[axes]
d = [3]
n = [100, 1000]
beta = [1.0, 10.0]
"""
CELL = "--d 5 --n 1e6 --beta 40"
DRAW = f"simulate {CELL} --seed 0"


@pytest.fixture(scope="module", autouse=True)
def backend():
    """A running backend keeps its devices: the command line adds none to this process."""
    return jax.devices()


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working directory with a sweep file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sweep.toml").write_text(SWEEP)
    return tmp_path


def contents(path: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(path)): p.read_bytes() if p.is_file() else None for p in sorted(path.rglob("*"))}


def words(line: str | list[str]) -> list[str]:
    return line.split() if isinstance(line, str) else line


def answer(capsys, line: str | list[str], code: int = 0):
    """The JSON of a command. Nothing else may be on stdout, and nothing that JSON does not know in it."""
    capsys.readouterr()
    assert main([*words(line), "--json"]) == code, capsys.readouterr().err
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    return json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))


def refused(capsys, line: str | list[str]) -> str:
    """The error of a command; checks that it is one line, and that nothing is on stdout or on the disk."""
    before = contents(Path.cwd())
    capsys.readouterr()
    code = main(words(line))
    out, err = capsys.readouterr()
    assert (code, out) == (2, ""), err
    assert err.startswith("error: ") and err.endswith("\n") and err.count("\n") == 1, err
    assert "Traceback" not in err and "│" not in err
    assert contents(Path.cwd()) == before
    return err


def python(arguments: list[str], cwd: Path, stdout=subprocess.PIPE, **env: str) -> subprocess.CompletedProcess:
    """A fresh interpreter."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    env = {**os.environ, "PYTHONPATH": path, **env}
    return subprocess.run(
        [sys.executable, *arguments], env=env, cwd=cwd, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=300
    )


def run(line: str, cwd: Path, **options) -> subprocess.CompletedProcess:
    """`python -m scaling` in a fresh process."""
    return python(["-m", "scaling", *line.split()], cwd, **options)


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"{DRAW} --d=1".replace("--d 5 ", ""), "Argument `d` must be an integer >= 2, but was 1."),
        ("regime --d 2.5 --n 1e6 --beta 1", "Argument `d` must be an integer >= 2, but was 2.5."),
        ("regime --d five --n 1e6 --beta 1", "Argument `d` must be a number, but was 'five'."),
        ("regime --d 5 --n 1e6 --beta None", "Argument `beta` must be a number, but was 'None'."),
        ("figure regimes --out=", "Argument `out` must be a path, not empty and without null bytes, but was ''."),
        ("simulate --d 5 --n 0 --beta 40 --seed 0", "Argument `n` must be an integer between 1 and 1e18"),
        ("simulate --d 5 --n 1.5 --beta 40 --seed 0", "Argument `n` must be an integer between 1 and 1e18"),
        ("exact --d 5 --n nan --beta 40", "Argument `n` must be an integer between 1 and 1e18"),
        ("critical-beta --d 5 --n 2e18", "Argument `n` must be an integer between 1 and 1e18"),
        ("simulate --d 5 --n 1e6 --beta -1 --seed 0", "Argument `beta` must be finite and >= 0, but was -1."),
        ("simulate --d 5 --n 1e6 --beta inf --seed 0", "Argument `beta` must be finite and >= 0, but was inf."),
        ("simulate --d 5 --n 1e6 --beta -inf --seed 0", "Argument `beta` must be finite and >= 0, but was -inf."),
        ("exact --d 5 --n 1e6 --beta nan", "Argument `beta` must be finite and >= 0, but was nan."),
        ("regime --d 5 --n 1e6 --gamma -1", "Argument `gamma` must be finite and >= 0, but was -1."),
        ("regime --d 5 --n 1e6 --gamma 1e307", "Argument `gamma` must give a finite beta, but was 1e+307."),
        ("regime --d 5 --n 1e6 --exponent 100", "Argument `exponent` must give a finite beta, but was 100."),
        ("regime --d 5 --n 1e6 --exponent nan", "Argument `exponent` must be a finite number, but was nan."),
        ("regime --d 5 --n 1e6", "`beta`, `gamma` and `exponent` must be given, but was none."),
        ("regime --d 5 --n 1e6 --beta 1 --gamma 2", "`beta`, `gamma` and `exponent` must be given, but was `beta` and `gamma`."),
        (f"{DRAW} --query 1,1,0,0,0", "Argument `query` must have norm 1, but was of norm 1.41421."),
        (f"{DRAW} --query 0,0,0,0,0", "Argument `query` must have norm 1, but was of norm 0."),
        (f"{DRAW} --query 1,0", "Argument `query` must have shape (5,), but was of shape (2,)."),
        (f"{DRAW} --query 1,0,0,x,0", "Argument `query` must be a number, but was 'x'."),
        (f"{DRAW} --value=;", "Argument `value` must be a matrix with 5 columns, rows of numbers between commas with ';'"),
        (f"{DRAW} --query 1,0,nan,0,0", "Argument `query` must be finite"),
        (f"regime {CELL} --query 1,1,0,0,0", "Argument `query` must have norm 1, but was of norm 1.41421."),
        (f"{DRAW} --density vmf --concentration -1", "Argument `concentration` must be finite and >= 0, but was -1."),
        (f"regime {CELL} --density vmf --concentration -1", "Argument `concentration` must be finite and >= 0, but was -1."),
        (f"{DRAW} --density vmf", "Argument `concentration` must be given with --density vmf."),
        (f"{DRAW} --concentration 3", "Argument `concentration` must come with --density vmf, but came with --density uniform."),
        (f"{DRAW} --density vmf --concentration 1 --mean 2,0,0,0,0", "Argument `mean` must have norm 1, but was of norm 2."),
        (f"{DRAW} --density unifrom", "(did you mean `uniform`?)"),
        (f"exact {CELL} --density unifrom", "(did you mean `uniform`?)"),
        (f"{DRAW} --density quadratic", "Argument `matrix` must be given with --density quadratic."),
        (
            f"{DRAW} --density quadratic --matrix 1,0;0,1",
            "`matrix` must have 5 rows of 5 numbers, but was of rows of 2, 2.",
        ),
        (
            f"exact {CELL} --density vmf --concentration 1 --query 0,1,0,0,0",
            "`density` must be uniform, or vmf with its mean",
        ),
        (f"{DRAW} --statistics top_wieght", "(did you mean `top_weight`?)"),
        (f"exact {CELL} --statistics top_wieght", "(did you mean `top_weight`?)"),
        (f"{DRAW} --statistics ,", "Argument `statistics` must name at least one statistic"),
        (f"{DRAW} --engine extrems", "(did you mean `extremes`?)"),
        ("simulate --d 5 --n 1e12 --beta 40 --seed 0 --engine keys", "`engine` must serve the request exactly, but was 'keys'"),
        (f"{DRAW} --replicates 0", "Argument `replicates` must be an integer >= 1, but was 0."),
        (f"{DRAW} --replicates 1.5", "Argument `replicates` must be an integer >= 1, but was 1.5."),
        (f"{DRAW} --tolerance 0", "Argument `tolerance` must be finite and > 0, but was 0."),
        (f"{DRAW} --dtype float16", "Argument `dtype` must be one of float32, float64"),
        (f"simulate {CELL} --seed -1", "Argument `seed` must be an integer >= 0, but was -1."),
        (f"simulate {CELL}", "The command `simulate` must be given --seed; see scaling simulate --help."),
        ("critical-beta --d 5 --n 1e6 --level 1", "Argument `level` must be in (0, 1), but was 1.0."),
        ("exact --d 5 --beta 3", "Argument `n` must be given, but is missing"),
        ("exact --d 5 --limit", "Argument `gamma` must be given with --limit"),
        ("exact --d 5 --limit --gamma 1 --n 10", "Argument `n` must be left out with --limit"),
        ("figure ordered-wieghts --out figures", "(did you mean `ordered-weights`?)"),
        ("figure ordered-weights", "The command `figure` must be given --out; see scaling figure --help."),
        # the words themselves
        ("", "A command must be given, one of regime, exact, critical-beta, simulate, sweep, figure"),
        ("simulat --d 5", "Unknown command: 'simulat' (did you mean simulate?)."),
        ("frobnicate", "Unknown command: 'frobnicate' (known are regime, exact"),
        ("regime --d 5 --n 1e6 --bta 1", "Unknown flag of `regime`: '--bta' (did you mean --beta?)."),
        ("regime -d 5", "Unknown flag of `regime`: '-d'"),
        ("regime --d 5 --n 1e6 --beta", "The flag --beta must be followed by a value, but was followed by"),
        ("regime --d --n 1e6 --beta 1", "The flag --d must be followed by a value, but was followed by '--n'."),
        ("regime --d 5 --d 6 --n 1e6 --beta 1", "The flag --d must be given once, but was given twice."),
        (f"regime {CELL} --json=yes", "The flag --json must be given without a value, but was '--json=yes'."),
        (f"regime {CELL} more", "The word 'more' must be left out or belong to a flag of `regime`."),
        ("regime", "The command `regime` must be given --d, --n; see scaling regime --help."),
        ("sweep", "The command `sweep` must be given FILE, --store; see scaling sweep --help."),
        # sweep files that cannot be read
        ("sweep missing.toml --store s", "Argument `config` must be a readable sweep file in TOML, but was 'missing.toml'"),
        ("sweep . --store s", "Argument `config` must be a readable sweep file in TOML, but was '.'"),
    ],
)
def test_bad_input(capsys, here, line, message):
    assert message in refused(capsys, line)
    assert message in refused(capsys, [*line.split(), "--json"]) or not line


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("d = [3]", "d = []", "axes.d: must not be empty"),
        ("n = [100, 1000]", "n = [100, 100]", "axes.n: must not have a duplicate axis value, but has 100 twice"),
        ("d = [3]", "d = [1]", "axes.d[0]: must be an integer >= 2, but was 1"),
        ("n = [100", "n = [0", "axes.n[0]: must be an integer between 1 and 1e18"),
        ("beta = [1.0", "beta = [-1.0", "axes.beta[0]: must be finite and >= 0, but was -1.0"),
        ("beta = [1.0", "beta = [inf", "axes.beta[0]: must be finite and >= 0, but was inf"),
        ("beta = ", "gamma = [1]\nbeta = ", "axes: must have exactly one of beta, gamma, exponent, but has beta and gamma"),
        ("replicates = 8", "replicates = 0", "replicates: must be an integer >= 1, but was 0"),
        ("seed = 0", "", "seed: must be given, but is missing"),
        ("ipr", "irp", "(did you mean `ipr`?)"),
        ("seed = 0", 'seed = 0\nengine = "kyes"', "(did you mean `keys`?)"),
        ("seed = 0", 'seed = 0\ndensity = {kind = "vfm", concentration = 1}', "(did you mean `vmf`?)"),
        ("seed = 0", 'seed = 0\ndensity = {kind = "vmf", concentration = -1}', "concentration: must be finite and >= 0"),
        ("seed = 0", "seed = 0\nquery = [1.0, 1.0, 0.0]", "query: must have norm 1"),
        ("seed = 0", "seed = 0\nquery = [1.0, 0.0]", "query: must have 3 numbers for d = 3"),
        ("[axes]", "[axes", "not valid TOML"),
    ],
)
def test_bad_sweep_files(capsys, here, old, new, message):
    (here / "sweep.toml").write_text(SWEEP.replace(old, new, 1))
    assert message in refused(capsys, "sweep sweep.toml --store s")


# --- answers ---------------------------------------------------------------------------------------------------------


def test_regime(capsys):
    found = answer(capsys, f"regime {CELL}")
    assert list(found) == [
        "regime", "output_regime", "gamma", "tau", "log_window", "log_intensity", "alpha", "top_weight", "d", "n", "beta",
        "concentration", "note", "extremal_index", "laws",
    ]  # fmt: skip
    assert found["regime"] == "subcritical"
    assert found["n"] == 1_000_000 and isinstance(found["n"], int)
    assert found["top_weight"] == regime(5, 1e6, 40.0).top_weight
    assert found["laws"] == ["3.2", "3.3", "4.3"]


def test_numbers_that_are_not_finite_are_null(capsys):
    assert answer(capsys, "regime --d 5 --n 1e6 --beta 0")["log_window"] is None
    matrix = "100,0,0;0,0,0;0,0,0"
    found = answer(capsys, f"regime --d 3 --n 1e6 --beta 1 --density quadratic --matrix {matrix} --query 0,1,0")
    assert found["top_weight"] is None and "not known" in found["note"]


@pytest.mark.parametrize("matrix", ["0,.5,0;.5,0,0;0,0,0", "0,.5,0,.5,0,0,0,0,0"])
def test_densities_reach_the_library(capsys, matrix):
    found = answer(capsys, f"regime --d 3 --n 1e6 --beta 1e6 --density quadratic --matrix {matrix} --query -0.6,-0.8,0")
    density = Quadratic([[0, 0.5, 0], [0.5, 0, 0], [0, 0, 0]])
    assert found["log_intensity"] == regime(3, 1e6, 1e6, density=density, query=[-0.6, -0.8, 0]).log_intensity


def test_vmf_off_its_mean(capsys):
    found = answer(capsys, "regime --d 3 --n 1e6 --beta 1e5 --density vmf --concentration 2 --mean 0,0,1 --query .6,0,.8")
    law = VonMisesFisher([0.0, 0.0, 1.0], 2.0).d2q([0.6, 0.0, 0.8])
    assert found["log_intensity"] == law.log_intensity
    centred = answer(capsys, "regime --d 3 --n 1e6 --beta 1e5 --density vmf --concentration 2 --mean 0,0,1 --query 0,0,1")
    assert centred["top_weight"] == regime(3, 1e6, 1e5, concentration=2.0).top_weight


@pytest.mark.parametrize(
    ("temperature", "beta"), [("--beta 40", 40.0), ("--gamma .04", 0.04 * 1e6**0.5), ("--exponent .25", 1e6**0.25)]
)
def test_inverse_temperature(capsys, temperature, beta):
    assert answer(capsys, f"regime --d 5 --n 1e6 {temperature}")["beta"] == pytest.approx(beta, rel=1e-14)


def test_exact(capsys):
    found = answer(capsys, "exact --d 5 --n 1e6 --beta 1851.8")
    truth = expected(5, 1e6, 1851.8)
    assert {name: found[name] for name in truth} == dict(truth)
    assert found["digits"] == truth.digits
    few = answer(capsys, "exact --d 5 --n 1e6 --beta 30 --density vmf --concentration 2 --statistics ipr,top_mass(4)")
    truth = expected(5, 1e6, 30.0, concentration=2.0, statistics=["ipr", "top_mass(4)"])
    assert {name: few[name] for name in truth} == dict(truth)
    assert set(few) == {*truth, "digits", "d", "n", "beta"}


def test_exact_limit(capsys):
    found = answer(capsys, "exact --d 5 --gamma 1 --limit")
    truth = expected_limit(5, 1.0)
    assert {name: found[name] for name in truth} == pytest.approx(dict(truth), rel=1e-12)
    assert found["intensity"] == pytest.approx(0.75, rel=1e-12)


def test_critical_beta(capsys):
    found = answer(capsys, "critical-beta --d 128 --n 1e6")
    assert found["beta"] == critical_beta(128, 1e6) == pytest.approx(92.130956, rel=1e-7)
    assert found["alpha"] == 2 / 127
    assert found["power_law"] == pytest.approx((found["intensity"] * 1e6) ** found["alpha"], rel=1e-12)
    assert answer(capsys, "critical-beta --d 5 --n 1e6 --level .25")["beta"] == critical_beta(5, 1e6, 0.25)


def test_simulate(capsys, here):
    found = answer(capsys, "simulate --d 3 --n 100 --beta 40 --replicates 16 --seed 3 --statistics top_weight,top_mass(2)")
    assert {"engine", "reason", "keys_drawn", "statistics", "error_bound", "n", "d", "beta", "replicates", "seed"} <= set(found)
    assert {"seconds", "device", "devices"} <= set(found)
    assert (found["n"], found["d"], found["beta"], found["replicates"], found["seed"]) == (100, 3, 40.0, 16, 3)
    assert list(found["statistics"]) == ["top_weight", "top_mass(2)"] == list(found["error_bound"])
    truth = simulate(Uniform(3), n=100.0, beta=40.0, replicates=16, seed=3, statistics=["top_weight", "top_mass(2)"])
    for name, estimate in truth.statistics.items():
        assert found["statistics"][name] == {"mean": estimate.mean, "se": estimate.se, "skew": estimate.skew}
    one = answer(capsys, "simulate --d 3 --n 100 --beta 40 --replicates 1 --seed 3 --statistics top_weight")
    assert one["statistics"]["top_weight"]["se"] is None
    assert not list(here.glob("[!s]*"))


def test_float64(capsys):
    line = "simulate --d 3 --n 100 --beta 40 --replicates 16 --seed 3 --statistics top_weight"
    single, double = (answer(capsys, f"{line} --dtype {dtype}") for dtype in ("float32", "float64"))
    single, double = (found["statistics"]["top_weight"]["mean"] for found in (single, double))
    assert single != double and single == pytest.approx(double, rel=1e-5)
    assert not jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]


def test_tables(capsys, here):
    assert main(f"exact {CELL} --statistics ipr,entropy".split()) == 0
    out = capsys.readouterr().out
    row = next(line for line in out.splitlines() if line.startswith("entropy"))
    assert row.split() == ["entropy", f"{expected(5, 1e6, 40.0)['entropy']:.10g}", "13"]
    assert main("simulate --d 3 --n 100 --beta 40 --replicates 16 --seed 3 --statistics top_weight,ipr".split()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert next(line for line in lines if line.startswith("statistic")).split() == [
        "statistic",
        "mean",
        "se",
        "skew",
        "error_bound",
    ]
    table = lines[lines.index("") + 1 :]
    assert len({line.index(line.split()[1]) for line in table}) == 1  # aligned


# --- sweeps and figures ----------------------------------------------------------------------------------------------


def test_sweep(capsys, here):
    line = "sweep sweep.toml --store s"
    first = answer(capsys, line)
    assert list(first) == ["cells", "done", "failed", "computed_now", "compilations", "seconds"]
    assert (first["cells"], first["done"], first["failed"], first["computed_now"]) == (4, 4, 0, 4)
    again = answer(capsys, line)
    assert (again["done"], again["computed_now"], again["compilations"]) == (4, 0, 0)

    # another configuration: the differing fields are named
    (here / "sweep.toml").write_text(SWEEP.replace("seed = 0", "seed = 1").replace("replicates = 8", "replicates = 9"))
    message = refused(capsys, line)
    assert "seed (there 0, here 1)" in message and "replicates (there 8, here 9)" in message

    # a corrupt chunk: the cells are named, and recomputed on request
    (here / "sweep.toml").write_text(SWEEP)
    chunk = max((p for p in (here / "s" / "samples").rglob("*") if p.is_file() and p.name != "zarr.json"), key=lambda p: str(p))
    data = bytearray(chunk.read_bytes())
    data[len(data) // 2] ^= 0xFF
    chunk.write_bytes(data)
    message = refused(capsys, line)
    assert "d = 3, n = 1000, beta =" in message and "--repair" in message
    repaired = answer(capsys, f"{line} --repair")
    assert repaired["done"] == 4 and 1 <= repaired["computed_now"] <= 2
    assert answer(capsys, line)["computed_now"] == 0

    # no write permission
    for path in [here / "s", *(here / "s").rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert "write permission" in refused(capsys, line) or "writable" in refused(capsys, line)
    finally:
        for path in [here / "s", *(here / "s").rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)


def test_sweep_into_a_file_or_a_stranger(capsys, here):
    (here / "file").write_text("x")
    (here / "full").mkdir()
    (here / "full" / "other").write_text("x")
    assert "Argument `store`" in refused(capsys, "sweep sweep.toml --store file")
    assert "Argument `store`" in refused(capsys, "sweep sweep.toml --store full")


def test_failed_cells_are_reported(capsys, here, monkeypatch):
    summary = scaling.sweep.Summary(cells=4, done=3, failed=1, computed_now=3, compilations=2, seconds=0.5)
    monkeypatch.setattr(scaling.sweep, "compute", lambda *args, **kwargs: summary)
    found = answer(capsys, "sweep sweep.toml --store s", code=1)
    assert (found["done"], found["failed"]) == (3, 1)
    main("sweep sweep.toml --store s --json".split())
    assert capsys.readouterr().err.startswith("1 of 4 cells failed")


def test_figure(capsys, here, monkeypatch):
    calls = []

    def draw(name, *, out, store, quick, progress):
        calls.append((name, out, store, quick, progress))
        return [Path(out) / f"{name}.png", Path(out) / f"{name}.pdf"]

    monkeypatch.setattr(scaling.figure, "draw", draw)
    found = answer(capsys, "figure ordered-weights --out figures --store stores --quick")
    assert found == {"files": [os.path.join("figures", f"ordered-weights.{kind}") for kind in ("png", "pdf")]}
    answer(capsys, "figure ordered-weights --out figures")
    assert calls == [
        ("ordered-weights", "figures", "stores", True, True),
        ("ordered-weights", "figures", None, False, True),
    ]


# --- the process -----------------------------------------------------------------------------------------------------


def test_interrupt(capsys, here, monkeypatch):
    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(scaling.exact, "expected", stop)
    monkeypatch.setattr(scaling.sweep, "compute", stop)
    assert main(f"exact {CELL}".split()) == 130
    assert capsys.readouterr() == ("", "interrupted\n")
    assert main("sweep sweep.toml --store s".split()) == 130
    assert capsys.readouterr() == ("", "interrupted: what is finished is in the store, and the same command does the rest\n")


def test_system_errors_are_one_line(capsys, here, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device", "s/samples")

    monkeypatch.setattr(scaling.sweep, "compute", full)
    assert refused(capsys, "sweep sweep.toml --store s") == "error: No space left on device: 's/samples'\n"


def test_what_tyro_refuses_is_one_line_too(capsys, here, monkeypatch):
    monkeypatch.setattr("scaling.cli.parse._check_words", lambda words, program: None)
    assert "frobnicate" in refused(capsys, f"regime {CELL} --frobnicate")
    assert "--d" in refused(capsys, "regime --n 1e6")


@pytest.mark.parametrize("line", ["--help", "simulate --help", "sweep -h"])
def test_help_imports_nothing_heavy(tmp_path, line):
    code = (
        "import sys; from scaling.cli import main; code = main(sys.argv[1:]); "
        "heavy = {'jax', 'matplotlib', 'xarray', 'zarr', 'scipy', 'numpy'} & sys.modules.keys(); "
        "sys.exit(str(heavy or '') or code)"
    )
    result = python(["-c", code, *line.split()], tmp_path)
    assert result.returncode == 0, result.stderr
    assert "usage: scaling" in result.stdout and result.stderr == ""


def test_help_names_every_command_and_flag(capsys):
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("regime", "exact", "critical-beta", "simulate", "sweep", "figure"))
    assert main(["simulate", "--help"]) == 0
    shown = capsys.readouterr().out
    for name in (
        "d", "n", "beta", "gamma", "exponent", "density", "concentration", "mean", "matrix", "query", "statistics", "tolerance",
        "dtype", "engine", "replicates", "seed", "json",
    ):  # fmt: skip
        assert f"--{name}" in shown


def test_process_and_devices(tmp_path):
    line = "simulate --d 3 --n 100 --beta 40 --replicates 16 --seed 3 --statistics top_weight --json"
    free = run(line, tmp_path, XLA_FLAGS="", JAX_PLATFORMS="cpu")
    assert free.returncode == 0, free.stderr
    found = json.loads(free.stdout)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert found["devices"] == cores and found["device"].endswith("(cpu)")
    set_by_user = run(line, tmp_path, XLA_FLAGS="--xla_force_host_platform_device_count=3", JAX_PLATFORMS="cpu")
    assert set_by_user.returncode == 0, set_by_user.stderr
    other = json.loads(set_by_user.stdout)
    assert other["devices"] == 3
    assert math.isclose(other["statistics"]["top_weight"]["mean"], found["statistics"]["top_weight"]["mean"], rel_tol=1e-6)


def test_a_closed_pipe_is_quiet(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    result = run(f"regime {CELL}", tmp_path, stdout=writing)
    os.close(writing)
    assert (result.returncode, result.stderr) == (1, "")


def test_bad_input_in_a_process(tmp_path):
    result = run("regime --d 1 --n 1e6 --beta 40", tmp_path)
    assert result.returncode == 2 and result.stdout == ""
    assert result.stderr == "error: Argument `d` must be an integer >= 2, but was 1.\n"


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_control_c(tmp_path):
    code = (
        "import os, signal, sys, scaling.exact; from scaling.cli import main; "
        "scaling.exact.expected = lambda *a, **k: os.kill(os.getpid(), signal.SIGINT); sys.exit(main(sys.argv[1:]))"
    )
    result = python(["-c", code, *f"exact {CELL}".split()], tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "interrupted\n")
