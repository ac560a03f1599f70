"""Rows of unlike queries and keys, and where warnings begin: what heads with one beta and one norm of keys do not show."""

import math
from typing import Any

import numpy as np
import pytest

from scaling.temperature import head_temperatures
from scaling.temperature import report as report_module
from scaling.temperature.predict import expected_weights, nodes
from scaling.temperature.record import HeadTemperature
from scaling.temperature.rows import beyond, late_positions, late_rows
from scaling.temperature.warn import warnings_of
from tests.scaling.test_temperature import K, draws_of_the_model, layer, tensors, uniform_heads, unit


def test_quartiles_of_beta():
    rng = np.random.default_rng(4)
    q, k = rng.standard_normal((41, 8)) * 4, rng.standard_normal((41, 8))
    head = head_temperatures(tensors(layer(q[None, None], k[None, None])), top=8).heads[0]
    betas = [0.125 * np.linalg.norm(q[i]) * np.linalg.norm(k[1 : i + 1], axis=1).max() for i in range(31, 41)]
    assert head.beta_quartiles == pytest.approx(tuple(np.quantile(betas, [0.25, 0.75])), rel=1e-12)


def test_predictions_take_the_beta_of_each_row(monkeypatch):
    """Rows whose queries differ in length: every row is predicted at its own beta; means are over rows' sums of squares."""
    monkeypatch.setattr(report_module, "TRUSTED", 1.0)
    rng = np.random.default_rng(16)
    given = uniform_heads(rng, 1, 512)
    given = layer(given.q * np.exp(rng.normal(0, 0.7, given.q.shape[:3]))[..., None], given.k)
    head: Any = head_temperatures(tensors(given), rows=50).heads[0]
    rows = late_rows(given, 0, top=K, rows=50)
    at, points, rest = nodes(head.exponent, rows.nearest[:, -1], 31 * 16), np.full(len(rows.beta), 31.0), beyond(rows)
    for name in ("constant", "log"):
        for cell in head.predictions[name]:
            growth = 1.0 if name == "constant" else math.log(cell.times * head.n) / math.log(head.n)
            top, ipr = expected_weights(at, points, rows.beta * growth, rest, cell.times)
            assert cell.beta == pytest.approx(np.median(rows.beta) * growth, rel=1e-9)
            assert (cell.top_weight, cell.participation_ratio) == pytest.approx((top.mean(), 1 / ipr.mean()), rel=1e-9)
    now = expected_weights(at, points, rows.beta, rest, 1)
    check = head.self_check
    assert check["top_weight"].predicted == pytest.approx(now[0].mean(), rel=1e-9)
    assert check["participation_ratio"].predicted == pytest.approx(1 / now[1].mean(), rel=1e-9)


def test_enough_rows_that_see_enough():
    assert late_positions(100, 4, 10).tolist() == [75, 87, 99]  # at least as many rows as were asked for
    rng = np.random.default_rng(17)
    q, k = rng.standard_normal((2, 1, 1, 40, 5))
    rows = late_rows(layer(q, k), 0, top=30, rows=40)
    assert rows.n.min() == 31  # more than `top` keys


def test_a_later_key_is_not_seen():
    """The longest key is the last one: rows before it do not see it."""
    rng = np.random.default_rng(18)
    q, k = rng.standard_normal((2, 40, 5))
    k[-1] *= 100
    rows = late_rows(layer(q[None, None], k[None, None]), 0, top=8, rows=40)
    largest = [np.linalg.norm(k[1 : n + 1], axis=1).max() for n in rows.n]
    np.testing.assert_allclose(rows.beta, 0.125 * np.linalg.norm(q[rows.n], axis=1) * largest)


def test_what_is_warned_of_and_what_not():
    rng = np.random.default_rng(19)
    q, k = (unit(rng.standard_normal((1, 1, 150, 8))) for _ in range(2))
    k *= np.exp(rng.normal(0, 0.27, (1, 1, 150, 1)))  # spread of .27
    k[..., 0, :] = 0
    report = head_temperatures(tensors(layer(q, k, 1.0)), top=8)  # 112.5 keys are enough
    head: Any = report.heads[0]
    assert 0.2 < head.key_norm_spread < 0.4 and head.n > 112.5
    assert not any("keys a row" in text for text in report.warnings) and any("key norms" in text for text in report.warnings)


def test_no_closer_point():
    """Without any closer point the rest is all there is: with one point on average that has the probability 1/e."""
    radius, rest = np.array([0.4]), np.array([[0.4, 0.5, 1.0]])
    for beta in (1e-9, 1.0):
        top, _ = expected_weights(nodes(1.0, radius, 16), np.array([1.0]), np.array([beta]), rest, 1)
        draws = draws_of_the_model(np.random.default_rng(20), 1.0, 0.4, np.array([beta]), rest[0], 1, 1, 20_000)
        assert float(top[0]) == pytest.approx(draws[:, 0, 0].mean(), abs=0.01)


def test_sinks_are_missed_below_a_tenth():
    for weight, warned in ((0.05, True), (0.11, False)):
        lines = warnings_of([HeadTemperature(0, 0, 128, 1000.0, bos_weight=weight, key_norm_spread=0.0, exponent=5.0)], 32)
        assert any("no first-token sink" in line for line in lines) == warned
