"""The temperature of a head: rows, predictions and their self-check, on uniform keys, where all is known, and on real heads."""

import json
import math
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from scipy import special

from scaling import read_tensors, tail
from scaling.d2q.uniform import UniformD2Q
from scaling.exact import critical_beta, expected
from scaling.exact.critical import hazard_beta
from scaling.schedule import NAMES
from scaling.temperature import head_temperatures
from scaling.temperature.predict import expected_weights, nodes
from scaling.temperature.report import TIMES, nearest_scale
from scaling.temperature.rows import late_positions, late_rows
from scaling.temperature.warn import heads_in_words
from scaling.tensors import Layer, Tensors
from tests import stat

REAL = Path(__file__).parent.parent / "data" / "smollm2-heads" / "smollm2_heads.npz"
K = 32
BETA = 0.95 * critical_beta(64, 2048)


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def layer(q, k, scaling=0.125, index=0):
    """One layer from queries and keys [sequences heads n head_dim]."""
    heads = q.shape[1]
    return Layer(index, tuple(range(heads)), tuple(range(heads)), q, k, scaling)


def uniform_heads(rng, heads, n, d=64, beta=BETA, sequences=1):
    """Heads whose keys are uniform, at one inverse temperature, with a first token that is a sink."""
    q, k = (unit(rng.standard_normal((sequences, heads, n + 1, d))) for _ in range(2))
    k[..., 0, :] = 0
    return layer(q * 8 * beta, k)


def tensors(*layers):
    return Tensors(layers)


@pytest.fixture(scope="module")
def uniform_layer():
    """One head over 4 sequences of 512 keys, hotter than critical: its rows' top weights are close to one another."""
    return uniform_heads(np.random.default_rng(0), 1, 512, beta=0.6 * BETA, sequences=4)


@pytest.fixture(scope="module")
def uniform(uniform_layer):
    return head_temperatures(tensors(uniform_layer), rows=200).heads[0]


@pytest.fixture(scope="module")
def real():
    return head_temperatures(read_tensors(REAL))


def test_uniform_keys(uniform, uniform_layer):
    assert (uniform.layer, uniform.n, uniform.rows) == (0, 448.5, 200)
    assert uniform.beta == pytest.approx(0.6 * BETA, rel=1e-12)
    distances, numbers = [], []
    for sequence in range(4):
        q, k = (unit(x[sequence, 0]) for x in (uniform_layer.q, uniform_layer.k[:, :, 1:]))
        for i in np.unique(np.round(np.linspace(512, 385, 50)).astype(int)):
            t = np.sum((q[i] - k[:i]) ** 2, axis=1) / 2
            numbers.append(1000 * sequence + np.argsort(t)[:K])
            distances.append(np.sort(t)[:K])
    fit = tail.fit_tail(np.array(distances), np.array(numbers))
    found = (uniform.exponent, uniform.exponent_low, uniform.exponent_high, uniform.hill)
    assert found == pytest.approx((fit.exponent, fit.low, fit.high, fit.hill), rel=1e-6)
    assert uniform.key_norm_spread < 1e-12  # key 0 alone is shorter, and is left out
    assert uniform.bos_weight < 1e-3 and uniform.withheld is None and set(uniform.predictions) == set(NAMES)


def test_what_is_measured_against_brute_force():
    rng = np.random.default_rng(4)
    q, k = rng.standard_normal((41, 8)) * 4, rng.standard_normal((41, 8))
    head = head_temperatures(tensors(layer(q[None, None], k[None, None])), top=8).heads[0]
    top, ipr, bos, betas, prefix = [], [], [], [], []
    for i in range(31, 41):
        logits = 0.125 * k[: i + 1] @ q[i]
        a = np.exp(logits) / np.exp(logits).sum()
        bos.append(a[0])
        a = a[1:] / a[1:].sum()
        top.append(a.max())
        ipr.append(np.sum(a**2))
        betas.append(0.125 * np.linalg.norm(q[i]) * np.linalg.norm(k[1 : i + 1], axis=1).max())
        for_prefix = [a[: round(i * 2.0 ** (j / 2 - 3))] for j in range(7)]
        prefix.append([np.sum(b**2) / b.sum() ** 2 for b in for_prefix])
    assert head.rows == 10 and head.n == 35.5
    assert head.top_weight == pytest.approx(np.mean(top), rel=1e-10)
    assert head.participation_ratio == pytest.approx(1 / np.mean(ipr), rel=1e-10)
    assert head.bos_weight == pytest.approx(np.mean(bos), rel=1e-10)
    assert head.beta == pytest.approx(np.median(betas), rel=1e-12)
    slope = np.polyfit(np.log(2.0 ** (np.arange(7) / 2 - 3)), -np.log(np.mean(prefix, axis=0)), 1)[0]
    assert head.slope == pytest.approx(slope, rel=1e-9)
    lengths = np.linalg.norm(k[1:], axis=1)
    assert head.key_norm_spread == pytest.approx(lengths.std() / lengths.mean())


def test_small_distances_keep_their_digits():
    rng = np.random.default_rng(5)
    k = unit(rng.standard_normal((1, 1, 60, 6)))
    q = np.broadcast_to(k[:, :, 5:6] * 3, k.shape) + 0
    k[:, :, 5] *= 2  # the longest: in its direction T is 0
    step = 1e-10 * np.array([0, 0, 0, 1.0, 0, 0])
    q += 3 * step
    found = late_rows(layer(q, k), 0, top=8, rows=4).nearest[:, 0]
    tangent = step - (step @ k[0, 0, 5]) * k[0, 0, 5] / 4  # 1 - <q, k> is 0 or 1e-16
    np.testing.assert_allclose(found, tangent @ tangent / 2, rtol=1e-4)


def test_late_positions():
    assert late_positions(100, 1, 1000).tolist() == list(range(75, 100))
    assert late_positions(100, 1, 3).tolist() == [75, 87, 99]
    assert late_positions(100, 5, 10).tolist() == [75, 99]
    assert late_positions(100, 50, 10).tolist() == [99]
    assert late_positions(2, 1, 10).tolist() == [1]


def test_kappa_is_the_constant_of_note_6():
    """beta_half ~ r f(t1) / F(t1), r = 0.404 at d = 2 to 1.549 as d grows: the kappa of a head at its critical temperature."""
    ratio = {}
    for d, lengths in ((2, (1e4, 1e6)), (5, (1e4, 1e6)), (64, (1e4, 1e6))):
        for n in lengths:
            radius = UniformD2Q(d).quantile(math.log(K / n))
            scale = float(nearest_scale((d - 1) / 2, np.array([radius]), K)[0])
            assert 0.404 < critical_beta(d, n) * scale < 1.549
            ratio[d, n] = hazard_beta(d, n) * scale
    for d in (2, 5, 64):
        assert ratio[d, 1e4] == pytest.approx(ratio[d, 1e6], rel=1e-7)  # r depends on d alone
    assert 0.404 < ratio[2, 1e4] < 0.4045 < ratio[5, 1e4] < ratio[64, 1e4] < 1.549


def test_kappa_of_a_head(uniform, uniform_layer):
    """F = (K/n) I_t / I_r by the regularised incomplete beta functions at the head's exponent."""
    a, rows = uniform.exponent, late_rows(uniform_layer, 0, top=K, rows=200)
    share = special.betainc(a, a, rows.nearest[:, -1] / 2) / K
    t1 = 2 * special.betaincinv(a, a, share)
    scale = 2 * share / np.exp(special.xlogy(a - 1, t1 * (2 - t1) / 4) - special.betaln(a, a))
    assert uniform.kappa == pytest.approx(np.median(rows.beta * scale), rel=1e-9)


def brute_force(rng, a, radius, beta, rest, points, times, draws):
    """Top weight and sum A^2 of draws of the model."""
    top, ipr = np.empty(draws), np.empty(draws)
    whole = special.betainc(a, a, radius / 2)
    for i in range(draws):
        t = 2 * special.betaincinv(a, a, whole * rng.random(rng.poisson(points)))
        w, outer = np.exp(-beta * (t - radius)), np.exp(-beta * (rest - radius))
        total = w.sum() + times * outer.sum()
        top[i] = w.max(initial=outer.max()) / total
        ipr[i] = (np.sum(w**2) + times * np.sum(outer**2)) / total**2
    return np.stack([top, ipr], axis=1)


@pytest.mark.parametrize(
    ("a", "beta", "top", "times"), [(31.5, 40.0, K, 4), (8.0, 75.0, 8, 1), (4.0, 3.0, K, 2), (31.5, 1200.0, K, 1)]
)
def test_expected_weights_against_draws(a, beta, top, times):
    """Around criticality, above it with few points, below it, and far above it, where values are continued."""
    rng = np.random.default_rng(6)
    radius, betas = np.array([0.5, 0.6]), np.array([beta, beta * 1.1])
    rest = np.concatenate([radius[:, None], rng.uniform(0.6, 1.2, (2, 100))], axis=1)
    kappa = float(np.median(betas * nearest_scale(a, radius, top)))
    found = np.stack(
        expected_weights(nodes(a, radius, top - 1, 16, kappa), (top - 1) * times, radius, betas, rest, times), axis=1
    )
    for row in range(2):
        draws = brute_force(rng, a, radius[row], betas[row], rest[row], (top - 1) * times, times, 1500)
        stat.assert_bounded_mean(draws, found[row], 0.0, 1.0, error=1e-3, sees=0.1)


def test_expected_weights_where_they_are_known():
    radius, rest = np.array([0.5]), np.array([[0.5, 0.7, 0.9, np.inf]])
    at = nodes(5.0, radius, 31, 16, 1.0)
    # Without temperature all keys weigh the same, Poisson many within the radius: E sum A^2 = E 1/N = e^{-31} sum ...
    top, ipr = expected_weights(at, 31.0, radius, np.array([1e-9]), rest, 1)
    count = np.arange(200)
    weight = np.exp(-31.0 + count * math.log(31.0) - special.gammaln(count + 1))
    assert (float(top[0]), float(ipr[0])) == pytest.approx((np.sum(weight / (count + 3)),) * 2, rel=2e-5)
    # The nearest key takes all.
    top, ipr = expected_weights(nodes(5.0, radius, 31, 16, 1e5), 31.0, radius, np.array([1e7]), rest, 1)
    assert 0.9999 < float(top[0]) <= 1 and 0.9999 < float(ipr[0]) <= 1


def test_prediction_of_uniform_keys():
    """From 2048 / m keys to 2048: the exact expected top weight, from the rows of a context of that length."""
    rng = np.random.default_rng(7)
    exact = np.mean([expected(64, n, BETA, statistics="top_weight")["top_weight"] for n in (1600, 1984)])
    for m, sequences in ((4, 30), (16, 60)):
        rows = late_rows(uniform_heads(rng, 1, 2048 // m, sequences=sequences), 0, top=K, rows=8 * sequences)
        fit = tail.fit_tail(rows.nearest)
        radius = rows.nearest[:, -1]
        rest = np.where(rows.d2q >= radius[:, None], rows.d2q, np.inf)
        at = nodes(fit.exponent, radius, K - 1, 16, 1.0)
        top, _ = expected_weights(at, (K - 1.0) * m, radius, rows.beta, rest, m)
        stat.assert_mean(top.reshape(sequences, -1).mean(1), exact, error=0.015, sees=0.1)


def test_predictions_of_a_report(uniform):
    now, check = uniform.top_weight, uniform.self_check
    assert abs(check["top_weight"].predicted - now) < 0.05 and check["top_weight"].measured == now
    assert check["participation_ratio"].measured == uniform.participation_ratio == uniform.no_change["participation_ratio"]
    constant = uniform.predictions["constant"]
    assert [(c.times, c.n, c.beta) for c in constant] == [(m, m * uniform.n, uniform.beta) for m in TIMES]
    falling = [check["top_weight"].predicted, *(c.top_weight for c in constant)]
    assert all(a > b for a, b in zip(falling, falling[1:], strict=False))  # of more keys at one beta the first has less
    at = {name: cells[-1] for name, cells in uniform.predictions.items()}
    log_n = math.log(uniform.n)
    growth = {
        "constant": 1.0, "log": 1 + math.log(16) / log_n, "sqrt_log": math.sqrt(1 + math.log(16) / log_n),
        "yarn": (1 + 0.1 * math.log(16)) ** 2, "power": 16 ** (1 / uniform.exponent),
    }  # fmt: skip
    for name, factor in growth.items():
        assert at[name].beta == pytest.approx(uniform.beta * factor, rel=1e-12)
    by_beta = sorted(at.values(), key=lambda cell: cell.beta)
    assert [c.top_weight for c in by_beta] == sorted(c.top_weight for c in by_beta)
    assert [c.participation_ratio for c in by_beta] == sorted((c.participation_ratio for c in by_beta), reverse=True)
    # Keeping kappa keeps the top weight, nearly; a constant beta does not.
    assert abs(at["level"].top_weight / falling[0] - 1) < 0.15 and at["constant"].top_weight / falling[0] < 0.6


def test_predictions_off_the_support_are_withheld():
    """Keys in a thin shell around a subspace, and queries beside it: the tail's law has them too far from the query and too many
    that are near."""
    rng = np.random.default_rng(8)
    k = unit(rng.standard_normal((1, 1, 601, 16)) * np.array([1.0] * 4 + [0.02] * 12))
    q = unit(rng.standard_normal((1, 1, 601, 16)) * np.array([0.3] * 4 + [1.0] * 12))
    report = head_temperatures(tensors(layer(q * 2400, k)))
    head = report.heads[0]
    assert head.predictions is None and head.withheld and head.self_check and "0.05" in head.withheld
    check = head.self_check["top_weight"]
    assert abs(check.predicted - check.measured) > 0.05 and check.measured == head.top_weight
    assert f"{check.predicted:.3f}" in head.withheld and f"{check.measured:.3f}" in head.withheld
    assert report.record()["heads"][0]["no_change"]["top_weight"] == head.top_weight


def test_real_heads(real):
    assert [(head.layer, head.head) for head in real.heads] == [(11, 6), (16, 0), (16, 1), (18, 8)]
    record = json.loads(json.dumps(real.record(), allow_nan=False))
    keys = {
        "layer", "head", "n", "beta", "exponent", "exponent_low", "exponent_high", "hill", "kappa", "top_weight",
        "participation_ratio", "slope", "self_check", "predictions", "withheld", "no_change",
    }  # fmt: skip
    for head in record["heads"]:
        assert keys <= set(head)
        assert 0 < head["exponent_low"] < head["exponent"] < head["exponent_high"]
        assert head["n"] == 83.5 and head["rows"] == 24 and 1 / 95 < head["top_weight"] <= 1
    sink = real.heads[-1]
    assert sink.bos_weight > 0.999 and sink.top_weight < 0.6  # what the sink hides
    text = "\n".join(real.warnings)
    assert "L11H6, L16H0-1, L18H8: fewer than 450 keys a row at K = 32" in text
    assert "no first-token sink" in text and "L16H1" not in text.split("first-token")[0].splitlines()[-1]


def test_warnings():
    rng = np.random.default_rng(9)
    q, k = (rng.standard_normal((1, 3, 700, 8)) for _ in range(2))
    k[:, 0] = unit(k[:, 0]) * np.exp(rng.uniform(-1, 1, (1, 700, 1)))
    k[:, 1:] = unit(k[:, 1:])
    k[:, 2, 0] = 0
    q[:, 2] *= -1e-3
    q[:, :, :, 0] = np.abs(q[:, :, :, 0])
    k[:, 2, 0, 0] = 1e6
    report = head_temperatures(tensors(layer(q, k)), rows=4)
    assert [text.split(":")[0] for text in report.warnings] == ["L0H0", "L0H0-1"]
    assert "key norms" in report.warnings[0] and "no first-token sink" in report.warnings[1]
    few = head_temperatures(Tensors((layer(q[:, :, :500], k[:, :, :500]),), ("of the file",)), rows=4)
    assert few.warnings[0] == "of the file" and few.warnings[1].startswith("L0H0-2: fewer than 450")


def test_equal_distances_have_no_tail():
    k = np.ones((1, 1, 50, 4))
    q = np.ones((1, 1, 50, 4))
    report = head_temperatures(tensors(layer(q, k)), top=8)
    head = report.heads[0]
    assert (head.exponent, head.kappa, head.predictions) == (None, None, None)
    assert head.withheld and "equally far" in head.withheld
    assert head.participation_ratio == pytest.approx(1 / np.mean([1 / i for i in range(38, 50)]))
    assert head.slope == pytest.approx(1, abs=0.01) and any("equally far" in text for text in report.warnings)


def test_names_of_heads():
    assert heads_in_words([(1, 0), (0, 3), (0, 2), (0, 1), (0, 5), (1, 1)]) == "L0H1-3, L0H5, L1H0-1"


@hypothesis.settings(max_examples=8)
@hypothesis.given(seed=st.integers(0, 2**31), factor=st.floats(0.1, 10))
def test_invariances(seed, factor):
    """Rotations of the head, and a scale moved between keys, queries and `scaling`, change nothing."""
    rng = np.random.default_rng(seed)
    q, k = (rng.standard_normal((1, 1, 60, 5)) for _ in range(2))
    turn = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    given = layer(q, k, 2.0)
    same = [layer(q @ turn, k @ turn, 2.0), layer(q, k * factor, 2.0 / factor), layer(q / factor, k * factor, 2.0)]
    records = [head_temperatures(tensors(other), top=8, rows=5).record()["heads"][0] for other in (given, *same)]
    for record in records[1:]:
        for name in ("n", "beta", "exponent", "exponent_low", "exponent_high", "kappa", "top_weight", "slope", "bos_weight"):
            assert record[name] == pytest.approx(records[0][name], rel=1e-6), name


def test_zero_rows_are_left_out():
    rng = np.random.default_rng(10)
    q, k = (rng.standard_normal((1, 1, 60, 5)) for _ in range(2))
    q[:, :, 50] = 0
    assert head_temperatures(tensors(layer(q, k)), top=8).heads[0].rows == 14
    with pytest.raises(ValueError, match="`q of head L3H0` must have late queries and keys that are not zero"):
        head_temperatures(tensors(layer(0 * q, k, index=3)), top=8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"top": 7}, "`top` must be an integer >= 8, but was 7"),
        ({"top": 59}, "`top` must be below 59, the keys of the last row of layer 0 without token 0, but was 59"),
        ({"rows": 0}, "`rows` must be an integer >= 1"),
        ({"top": 8.5}, "`top` must be an integer >= 8"),
    ],
)
def test_bad_input(arguments, message):
    rng = np.random.default_rng(11)
    q, k = (rng.standard_normal((1, 1, 60, 5)) for _ in range(2))
    with pytest.raises(ValueError, match=message):
        head_temperatures(tensors(layer(q, k)), **arguments)
