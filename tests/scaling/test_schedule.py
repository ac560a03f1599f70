"""Schedules: anchored at the first n, exact at every other, and compared by what they do to the top weight."""

import json
import math

import numpy as np
import pytest

from scaling import schedule
from scaling.cli import main
from scaling.exact import critical_beta, expected, local_slope
from scaling.schedule import compare, context_lengths, holding, schedule_betas


@pytest.fixture(scope="module")
def few():
    """Few dimensions, where the power law holds."""
    return compare(5, [1000, 1e6])


@pytest.fixture(scope="module")
def head():
    """The dimension of a head, with a level that is not 1/2."""
    return compare(128, [1e3, 1e4], level=0.3)


def test_all_agree_at_the_anchor(few, head):
    for found, level in ((few, 0.5), (head, 0.3)):
        assert tuple(found.schedules) == schedule.NAMES and len(schedule.NAMES) == 6
        assert len({cells[0] for cells in found.schedules.values()}) == 1
        first = found.schedules["log"][0]
        assert first.top_weight == pytest.approx(level, rel=1e-9)
        assert first.beta == pytest.approx(critical_beta(found.d, 1000, level), rel=1e-12)
        assert [cell.n for cell in found.schedules["yarn"]][0] == 1000


def test_growth_of_every_schedule():
    n = [1e3, 1e4, 1e9]
    beta = schedule_betas(7, n)
    relative = {name: np.array(values) / values[0] for name, values in beta.items()}
    s = np.array(n) / n[0]
    np.testing.assert_allclose(relative["constant"], [1, 1, 1], rtol=1e-12)
    np.testing.assert_allclose(relative["log"], [1, 4 / 3, 3], rtol=1e-12)
    np.testing.assert_allclose(relative["sqrt_log"], [1, math.sqrt(4 / 3), math.sqrt(3)], rtol=1e-12)
    # The attention temperature of YaRN: 1/sqrt(t) = 0.1 ln(s) + 1, once on the queries and once on the keys.
    np.testing.assert_allclose(relative["yarn"], (0.1 * np.log(s) + 1) ** 2, rtol=1e-12)
    np.testing.assert_allclose(relative["power"], s ** (1 / 3), rtol=1e-12)
    np.testing.assert_allclose(beta["level"], [critical_beta(7, k) for k in n], rtol=1e-12)


def test_cells_are_exact_expected_values(few):
    for name in ("constant", "yarn"):
        cell = few.schedules[name][1]
        exact = expected(5, 1e6, cell.beta)
        assert cell.beta != critical_beta(5, 1e6)
        assert (cell.top_weight, cell.ipr, cell.entropy) == pytest.approx(
            (exact["top_weight"], exact["ipr"], exact["entropy"]), rel=1e-12
        )


def test_which_schedules_hold(few, head):
    # d = 5 follows the power law from n = 1000 on; at d = 128 it is far away, and a log n is near.
    assert few.holds == ("power", "level")
    assert head.holds == ("log", "level")
    weights = {name: cells[1].top_weight for name, cells in head.schedules.items()}
    assert weights["constant"] < weights["power"] < weights["sqrt_log"] < 0.27 < weights["log"] < 0.33 < weights["yarn"]
    slope = local_slope(128, 1e3)
    assert 2 / 127 < 1 / (2 * math.log(1e3)) < slope < 1 / math.log(1e3) < 0.2  # power, sqrt_log, exact, log, yarn


def test_holding_is_within_ten_percent_either_way():
    assert holding([0.5, 0.451, 0.549], 0.5)
    assert not holding([0.5, 0.449], 0.5) and not holding([0.5, 0.551], 0.5)
    assert holding([0.2, 0.181], 0.2) and not holding([0.2, 0.179], 0.2)


def test_context_lengths():
    assert context_lengths((2, np.float64(1e18))) == [2.0, 1e18]
    for wrong in (1000, "1234", None):
        with pytest.raises(ValueError, match=rf"^Argument `n` must be at least two context lengths .*, but was {wrong!r}\.$"):
            context_lengths(wrong)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": [1e3]}, r"^Argument `n` must be at least two context lengths in ascending order, but was \[1000.0\]\.$"),
        ({"n": [1e4, 1e3]}, "`n` must be at least two context lengths in ascending order"),
        ({"n": [1e3, 1e3]}, "`n` must be at least two context lengths in ascending order"),
        ({"n": []}, "`n` must be at least two"),
        ({"n": [1, 10]}, r"`n` must start at 2 keys or more, .*, but was 1\.$"),
        ({"n": [10, 100.5]}, "`n` must be an integer between 1 and 1e18 .*, but was 100.5"),
        ({"n": [10, math.nan]}, "`n` must be an integer"),
        ({"n": [10, 1e19]}, "`n` must be an integer"),
        ({"d": 1}, "`d` must be an integer >= 2"),
        ({"level": 0.1}, "`level` must be above 1/n = 0.1"),
        ({"level": 1.0}, r"`level` must be in \(0, 1\)"),
        ({"level": math.nan}, "`level` must be finite"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        compare(**{"d": 5, "n": [10, 100], **arguments})


def test_command(capsys, head):
    assert main("schedule --d 128 --n 1e3,1e4 --level 0.3 --json".split()) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["holds"] == ["log", "level"] and (answer["d"], answer["level"]) == (128, 0.3)
    assert list(answer["schedules"]) == list(schedule.NAMES)
    for name, cells in answer["schedules"].items():
        assert [list(cell) for cell in cells] == [["n", "beta", "top_weight", "ipr", "entropy"]] * 2
        assert [cell["n"] for cell in cells] == [1000, 10000]
        for cell, exact in zip(cells, head.schedules[name], strict=True):
            assert [cell[key] for key in ("beta", "top_weight", "ipr", "entropy")] == pytest.approx(
                [exact.beta, exact.top_weight, exact.ipr, exact.entropy], rel=1e-9
            )


def test_command_as_a_table(capsys):
    assert main("schedule --d 3 --n 10,100".split()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["d", "3"] and lines[1].split() == ["level", "0.5"]
    table = lines[lines.index("") + 1 :]
    assert table[0].split() == ["schedule", "n", "beta", "top_weight", "ipr", "entropy"]
    assert [row.split()[:2] for row in table[1:]] == [[name, n] for name in schedule.NAMES for n in ("10", "100")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--d 5 --n 1e3", "`n` must be at least two context lengths"),
        ("--d 5 --n 1e3,many", "`n` must be a number, but was 'many'"),
        ("--d 5 --n 1e3,", "`n` must be a number, but was ''"),
        ("--d 5 --n 10,100 --level 0.05", "`level` must be above 1/n"),
        ("--d 2.5 --n 10,100", "`d` must be an integer >= 2"),
    ],
)
def test_command_refuses_bad_input(capsys, line, message):
    assert main(["schedule", *line.split()]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and message in err
