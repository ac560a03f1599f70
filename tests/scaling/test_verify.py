"""The checks of `scaling verify`: that they pass with the right constants, fail with wrong ones, and say so."""

import functools
import json
import math

import numpy as np
import pytest

import scaling.verify
from scaling import exact
from scaling.cli import main
from scaling.law import ClusterCritical, FixedSize, OrbitCritical
from scaling.verify import STATEMENTS, Check, Constants, Report, Setup, output_rows, run
from scaling.verify import critical as critical_checks
from scaling.verify import dependence as dependence_checks
from scaling.verify import output as output_checks
from scaling.verify import rope as rope_checks
from scaling.verify import subcritical as subcritical_checks
from scaling.verify import supercritical as supercritical_checks
from scaling.verify.check import LEVEL, SHARES, approach, equal, mean_check, simulated

NAMES = (
    "supercritical", "critical", "subcritical", "partition",
    "supercritical_output", "critical_output", "subcritical_output", "mean_field_output", "residual",
)  # fmt: skip
WITHOUT_CHANCE = tuple(statement for statement in STATEMENTS if getattr(statement, "__name__", "") in NAMES)
WINDOW = {"3.1", "3.1, Lemma B.1", "3.2", "3.3 (3.4)", "3.3 (3.5)", "3.3 (3.6)", "3.3 (3.3)", "D.1", "D.2"}
OUTPUT = {"4.1", "4.2", "4.3"}
RESIDUAL = {"4.4", "E.8"}


@pytest.fixture(scope="module")
def report():
    """Reports of the checks that need no simulation, by constants; exact values do not depend on these and are computed once."""

    @functools.cache
    def known(d, n, beta, names):
        return exact.expected(d, n, beta, statistics=names)

    def cached(d, n, beta, statistics):
        return known(d, n, beta, statistics if isinstance(statistics, str) else tuple(statistics))

    def by_value(function):
        found = functools.cache(lambda q, *numbers: function(output_checks.DENSITY, np.array(q), *numbers))
        return lambda density, query, *numbers: found(tuple(query.tolist()), *numbers)

    with pytest.MonkeyPatch.context() as patch:
        for name in ("mean_field", "mean_field_covariance"):
            patch.setattr(output_checks, name, by_value(getattr(output_checks, name)))
        for module in (critical_checks, output_checks, subcritical_checks, supercritical_checks):
            patch.setattr(module, "expected", cached)
        yield functools.cache(lambda constants: run(Setup(constants, quick=True, simulate=False), statements=WITHOUT_CHANCE))


def test_right_constants_pass(report):
    found = report(Constants())
    assert len(WITHOUT_CHANCE) == len(NAMES)
    assert not found.failed and len(found.checks) >= 115
    assert {check.theorem for check in found.checks} == WINDOW | OUTPUT | RESIDUAL
    assert found.false_alarm_rate == 0  # nothing was simulated


@pytest.mark.parametrize(
    ("constants", "theorems"),
    [
        (Constants(log_intensity=math.log(1.05)), WINDOW | OUTPUT),
        (Constants(log_intensity=-math.log(1.05)), WINDOW | OUTPUT),
        (Constants(alpha=1.05), WINDOW | OUTPUT),
        (Constants(log_gamma=math.log(1.05)), {"3.3 (3.3)", "3.3 (3.5)", "D.1", "D.2"}),
        (Constants(log_noise=math.log(1.02)), {"4.3"}),
        (Constants(drift=1.02), {"4.3"}),
        (Constants(gradient=1.02), {"4.3", "4.4", "E.8"}),
    ],
    ids=["C too large", "C too small", "alpha", "Gamma(1/alpha + 1)", "c_d", "(d-1)/2 of the drift", "gradient"],
)
def test_a_wrong_constant_fails_every_statement_that_has_it(report, constants, theorems):
    found = report(constants)
    assert {check.theorem for check in found.failed} == theorems


def test_approach():
    n = [10.0, 100.0, 1000.0]
    values = [0.3 * (1 + 2 * m**-0.5 + m**-1.0) for m in n]
    good = approach("t", "s", "x", n, values, [0.3] * 3, 0.5)
    assert [check.passed for check in good] == [True, True]
    assert good[0].error is not None and good[0].error < 0.02 and good[0].measured == pytest.approx(0.3, rel=2e-2)
    wrong = approach("t", "s", "x", n, values, [0.33] * 3, 0.5)
    assert [check.passed for check in wrong] == [False, False]
    assert not approach("t", "s", "x", n, values, [0.3] * 3, 1.0)[1].passed  # the law is right, the rate is not
    assert not approach("t", "s", "x", n, values, [0.45] * 3, 0.5)[1].passed  # values on both sides of the law
    moved = approach("t", "s", "x", n, [v - 0.3 for v in values], [0.0] * 3, 0.5, difference=True)
    assert [check.passed for check in moved] == [True, True]
    assert len(approach("t", "s", "x", n, values, [0.3] * 3, 0.5, rate_too=False)) == 1
    with pytest.raises(ValueError, match="`scale` must be 3 values in one ratio"):
        approach("t", "s", "x", [10.0, 100.0, 200.0], values, [0.3] * 3, 0.5)


def test_mean_check():
    x = np.random.default_rng(0).exponential(2.0, 4000)
    se = float(np.std(x)) / math.sqrt(len(x))
    mean = float(np.mean(x))
    # Student's quantile at half of 2e-6 is 4.76, and skewness 2 widens it by 1.5 * 2 / sqrt(4000) * ...
    assert mean_check("t", "s", "x", "a / b", x, mean + 4.7 * se).passed
    assert not mean_check("t", "s", "x", "a / b", x, mean + 5.6 * se).passed
    assert mean_check("t", "s", "x", "a / b", x, mean + 5.6 * se, slack=se).passed
    rare = np.zeros(400)
    rare[0] = 1.0  # |skew| / sqrt(R) is about 1: no statement about the mean
    assert not mean_check("t", "s", "x", "a / b", rare, float(np.mean(rare))).passed
    with pytest.raises(ValueError, match="`samples`"):
        mean_check("t", "s", "x", "a / b", np.ones(10), 1.0)


def test_simulated_rows_against_exact_ones():
    d, n, beta = 5, 1e9, 2.0 * 1e9**0.5
    right = exact.expected(d, n, beta, statistics=["top_weight", "ipr"])
    checks = simulated(Setup(), "3.2", d, n, beta, right, 4000)
    assert [check.passed for check in checks] == [True, True] and all(check.se for check in checks)
    wrong = exact.Expected({name: 1.1 * value for name, value in right.items()}, right.digits)
    assert not any(check.passed for check in simulated(Setup(), "3.2", d, n, beta, wrong, 4000))
    assert simulated(Setup(simulate=False), "3.2", d, n, beta, right, 4000) == []


def test_simulated_output(monkeypatch):
    assert list(output_rows.simulated_output(Setup(simulate=False))) == []
    draws = output_rows.displacements(Setup(quick=True))
    monkeypatch.setattr(output_rows, "displacements", lambda setup: draws)
    assert all(check.passed for check in output_rows.simulated_output(Setup(quick=True)))
    wrong = Constants(log_intensity=math.log(1.2), log_noise=math.log(1.2), drift=1.1, gradient=0.9)
    failed = {(c.theorem, c.roads) for c in output_rows.simulated_output(Setup(wrong, quick=True)) if not c.passed}
    assert failed == {(theorem, "extremes / law") for theorem in ("4.1", "4.2", "4.3")}


def test_the_appendix_without_chance(monkeypatch):
    for module, names in ((rope_checks, ("_transform", "empirical_mean")), (dependence_checks, ("expected",))):
        for name in names:
            function = getattr(module, name)
            known = {}

            def cached(*arguments, _function=function, _known=known, **named):
                key = repr((arguments, named))
                if key not in _known:
                    _known[key] = _function(*arguments, **named)
                return _known[key]

            monkeypatch.setattr(module, name, cached)
    statements = (rope_checks.rope, rope_checks.orbit_average, dependence_checks.clusters, dependence_checks.moving_averages)
    assert set(statements) <= set(STATEMENTS)

    def failed(constants):
        return {check.theorem for check in run(Setup(constants, simulate=False), statements=statements).failed}

    found = run(Setup(simulate=False), statements=statements)
    assert not found.failed and {check.theorem for check in found.checks} == {"F.2", "F.4, D.1", "F.5"}
    assert failed(Constants(orbit=False)) == {"F.4, D.1", "F.5"}
    assert failed(Constants(clusters=False)) == {"F.2"}
    assert failed(Constants(log_intensity=math.log(1.05))) == {"F.2", "F.4, D.1"}


def rows_of(law, replicates: int = 2000):
    """Rows of a limit law, with what `context_rows` gives beside them."""
    w = np.maximum(law.sample(1, replicates, 512), 1e-300)
    values = {
        "top_weight": w[:, 0],
        "second_weight": w[:, 1],
        "top_gap": 1 - w[:, 0],
        "ipr": np.sum(w**2, axis=1),
        "entropy": -np.sum(w * np.log(w), axis=1),
    }
    return values, dict.fromkeys(values, 1e-6)


def test_rows_of_the_orbit(monkeypatch):
    name, n = "independent frequencies", 1e12
    monkeypatch.setattr(rope_checks, "ROPES", {name: rope_checks.ROPES[name]})
    density, query = rope_checks.DENSITY, rope_checks.QUERY

    def rows(setup, context, query, n, betas, *other, **named):
        return [rows_of(OrbitCritical.of(context.density, context.rope, query, n, beta).critical) for beta in betas]

    monkeypatch.setattr(rope_checks, "context_rows", rows)
    assert OrbitCritical.of(density, rope_checks.ROPES[name], query, n, 1e8).critical.log_window > -1
    for constants, passed in ((Constants(), True), (Constants(orbit=False), False)):
        checks = [check for check in rope_checks.rope(Setup(constants)) if check.shares]
        assert {(check.theorem, check.roads) for check in checks} == {
            ("F.3", "extremes / law"), ("F.3", "keys / law"), ("F.4, 3.1", "extremes / law"),
        }  # fmt: skip
        assert all(check.passed is passed for check in checks)


def test_rows_of_dependent_keys(monkeypatch):
    for size, passed in ((FixedSize(1), False), (FixedSize(2), True)):
        monkeypatch.setattr(dependence_checks, "_CLUSTERS", dependence_checks._CLUSTERS[:1])
        law = ClusterCritical(3, math.log(0.5), size)
        monkeypatch.setattr(dependence_checks, "context_rows", lambda *arguments, law=law: [rows_of(law)])
        checks = [check for check in dependence_checks.clusters(Setup()) if check.shares]
        assert {check.roads for check in checks} == {"keys / law", "law sampler / law"}
        assert all(check.passed is (passed or check.roads != "keys / law") for check in checks)
    # Moving averages have the limit of independent keys, clusters have not.
    for size, passed in ((FixedSize(1), True), (FixedSize(3), False)):
        law = ClusterCritical(3, 0.0, size)
        monkeypatch.setattr(dependence_checks, "context_rows", lambda *arguments, law=law: [rows_of(law, 100)])
        assert all(check.passed is passed for check in dependence_checks.moving_averages(Setup()))


def test_budget():
    one = equal("t", "s", "x", 1.0, 1.0, 0.0, "a / b")
    assert SHARES * LEVEL <= 1e-3
    many = Check("t", "s", "x", "a / b", 1.0, 1.0, 0.1, None, True, SHARES + 1)
    with pytest.raises(RuntimeError, match="shares of the false-alarm rate"):
        run(statements=(lambda setup: [one, many],))


def test_a_statement_is_a_function_and_the_report_prints(capsys):
    def statement(setup):
        yield equal("9.9", f"quick={setup.quick}", "x", 1.0, 1.5, 0.1, "a / b")
        yield equal("9.9", "b", "y", 1.0, 1.05, 0.1, "a / b")

    found = run(Setup(quick=True), statements=(statement,))
    assert [check.passed for check in found.checks] == [False, True] and len(found.failed) == 1
    assert "2 checks, 1 failed" in repr(found) and "9.9 (quick=True): x is 1.5, predicted 1" in repr(found)


@pytest.mark.parametrize(("measured", "code"), [(0.5, 0), (0.9, 1)])
def test_command(monkeypatch, capsys, measured, code):
    asked = []

    def stub(setup, *, progress):
        asked.append(setup)
        checks = (
            equal("3.2", "d=3", "top_weight", 0.5, measured, 0.1, "exact / law"),
            Check("3.2", "d=5", "ipr", "extremes / exact", 0.25, 0.2501, 0.001, None, True, 1),
        )
        return Report(checks, LEVEL, setup.seed, 0.1)

    monkeypatch.setattr(scaling.verify, "run", stub)
    assert main(["verify", "--json", "--quick"]) == code
    answer = json.loads(capsys.readouterr().out)
    assert asked[0].quick and answer["failed"] == code and answer["passed"] == 2 - code
    assert answer["false_alarm_rate"] == LEVEL and answer["seed"] == asked[0].seed
    first, second = answer["checks"]
    keys = {"theorem", "setting", "statistic", "predicted", "measured", "se", "error", "passed"}
    assert keys <= first.keys() and first["passed"] is (code == 0) and first["error"] == 0.1 and first["se"] is None
    assert second["se"] == 0.001 and second["error"] is None and second["measured"] == 0.2501
    assert main(["verify"]) == code
    table = capsys.readouterr().out
    assert not asked[1].quick and "top_weight" in table and ("NO" in table) is bool(code)


def test_command_takes_no_other_flag(capsys):
    assert main(["verify", "--replicates", "3"]) == 2
    assert "error: Unknown flag of `verify`" in capsys.readouterr().err
