"""Exact expected values against the reference file, closed forms, brute-force integration, and each other."""

import itertools
import json
import math
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from scipy.special import digamma, exp1

from scaling.exact import expected, expected_limit, top_weight
from scaling.exact.measure import limit_points, log_intensity, sphere_points

REFERENCE = json.loads((Path(__file__).parents[1] / "data" / "uniform_keys.json").read_text())
BOUNDED = ("top_weight", "second_weight", "top_gap", "ipr", "sum_cubes", "sum_fourths")


def cell_name(cell):
    return f"d{cell['d']}-n{cell['n']:g}-beta{cell['beta']:g}" if "n" in cell else f"d{cell['d']}-gamma{cell['gamma']:g}"


def assert_reference(cell, answer):
    """Relative error 1e-10 where the reference has that many digits, entropy 1e-12 absolute; and honest digits."""
    for name, value in cell["values"].items():
        own = "ordered_weight(3)" if name == "third_weight" else name
        if name == "entropy":
            assert abs(answer[own] - value) < 1e-12
        else:
            assert answer[own] == pytest.approx(value, rel=max(1e-10, 10.0 ** (1 - cell["digits"][name])))
        assert answer.digits[own] >= 10


@pytest.mark.parametrize("cell", REFERENCE["finite"], ids=cell_name)
def test_finite_n_agrees_with_the_reference(cell):
    answer = expected(cell["d"], cell["n"], cell["beta"])
    assert_reference(cell, answer)
    # Different integrals for the same things.
    assert answer["top_weight"] + answer["top_gap"] == pytest.approx(1.0, abs=1e-13)
    assert answer["entropy"] == pytest.approx(cell["beta"] * answer["mean_d2q"] + answer["log_partition"], rel=1e-11, abs=1e-11)
    output = 1 - 2 * answer["mean_d2q"] + answer["mean_d2q_squared"] + answer["tangential_square"]
    assert answer["output_square"] == pytest.approx(output, abs=1e-12)
    three = answer["top_weight"] + answer["second_weight"] + answer["ordered_weight(3)"]
    assert answer["top_mass(3)"] == pytest.approx(three, rel=1e-13)


@pytest.mark.parametrize("cell", REFERENCE["finite"], ids=cell_name)
def test_fast_top_weight_reaches_seven_digits(cell):
    assert top_weight(cell["d"], cell["n"], cell["beta"]) == pytest.approx(cell["values"]["top_weight"], rel=1e-7)


@pytest.mark.parametrize("cell", REFERENCE["limit"], ids=cell_name)
def test_critical_limit_agrees_with_the_reference(cell):
    answer = expected_limit(cell["d"], cell["gamma"])
    assert_reference(cell, answer)
    assert math.exp(log_intensity(cell["d"])) == pytest.approx(cell["C"], rel=1e-12)
    assert answer["top_weight"] + answer["top_gap"] == pytest.approx(1.0, abs=1e-13)
    assert answer["entropy"] == pytest.approx(answer["mean_d2q"] + answer["log_partition"], rel=1e-11, abs=1e-11)


@pytest.mark.parametrize("c", [0.01, 0.3, 1.0, 4.0, 25.0])
def test_critical_limit_closed_forms_at_d_3(c):
    # E W_1 = int_0^inf e^{-s - c Ein(s)} ds; sum W^2 has mean 1 - c E W_1; the first gap y_(2) - y_(1) makes E W_2/W_1 = c/(1+c).
    answer = expected_limit(3, 0.5 / c)
    x, w = np.polynomial.legendre.leggauss(60)
    edges = np.array([0, 0.02, 0.1, 0.3, 1, 3, 8, 16, 40])
    s = edges[:-1, None] + np.diff(edges)[:, None] * (x + 1) / 2
    ein = np.euler_gamma + np.log(s) + exp1(s)
    top = float(np.sum(np.diff(edges)[:, None] * w / 2 * np.exp(-s - c * ein)))
    assert answer["top_weight"] == pytest.approx(top, rel=1e-10)
    assert answer["ipr"] == pytest.approx(1 - c * top, rel=1e-10)
    # The gaps of a Poisson process of rate c are exponential, so the ratios are products of uniform variables to the 1/c.
    assert answer["ordered_ratio(2)"] == pytest.approx(c / (1 + c), rel=1e-10)
    assert answer["ordered_ratio(3)"] == pytest.approx((c / (1 + c)) ** 2, rel=1e-10)
    if c == 1.0:
        assert answer["top_weight"] == pytest.approx(math.exp(-np.euler_gamma), rel=1e-12)


def test_intensity_can_be_given():
    assert expected_limit(5, 1.0, log_intensity=math.log(3.0))["ipr"] == pytest.approx(
        expected_limit(5, (0.75 / 3.0) ** 0.5)["ipr"], rel=1e-12
    )


def brute_force(d, n, beta, concentration, order=44):
    """Statistics of 2 or 3 keys by tensor Gauss-Legendre over ordered angles: neither Laplace transform nor order statistics."""
    x, w = np.polynomial.legendre.leggauss(order)
    x, w = (x + 1) / 2, w / 2
    parts = np.meshgrid(*[x] * n, indexing="ij")
    weight = math.factorial(n) * math.prod(np.meshgrid(*[w] * n, indexing="ij"))
    # theta_n = pi x_n, theta_{i} = theta_{i+1} x_i: the simplex of ordered angles.
    angles, upper = [], np.full_like(parts[0], np.pi)
    for part in reversed(parts):
        weight = weight * upper
        upper = upper * part
        angles.append(upper)
    t = np.stack([2 * np.sin(angle / 2) ** 2 for angle in reversed(angles)])
    density = np.prod(np.sin(np.stack(angles)) ** (d - 2), axis=0) * np.exp(-concentration * t.sum(axis=0))
    density = weight * density
    density /= density.sum()
    y = beta * (t - t[0])
    a = np.exp(-y) / np.exp(-y).sum(axis=0)
    log_z = np.log(np.exp(-y).sum(axis=0)) - beta * t[0]
    mean = (a * t).sum(axis=0)
    tangential = (a**2 * (2 * t - t**2)).sum(axis=0)
    values = {
        "top_weight": a[0], "second_weight": a[1], "top_gap": a[1:].sum(axis=0), "ipr": (a**2).sum(axis=0),
        "sum_cubes": (a**3).sum(axis=0), "sum_fourths": (a**4).sum(axis=0), "entropy": -(a * np.log(a)).sum(axis=0),
        "log_partition": log_z, "mean_d2q": mean, "tangential_square": tangential, "output_square": (1 - mean) ** 2 + tangential,
        "top_weight_squared": a[0] ** 2, "second_weight_squared": a[1] ** 2, "ipr_squared": (a**2).sum(axis=0) ** 2,
        "mean_d2q_squared": mean**2,
    }  # fmt: skip
    for k in range(1, n + 1):
        values |= {f"ordered_weight({k})": a[k - 1], f"ordered_ratio({k})": a[k - 1] / a[0], f"top_mass({k})": a[:k].sum(axis=0)}
    return {name: float(np.sum(density * value)) for name, value in values.items()}


@pytest.mark.parametrize("d,beta,concentration", [(2, 3.0, 0.0), (3, 7.0, 2.0), (5, 20.0, 0.0), (4, 0.01, 5.0), (9, 6.0, 1.0)])
@pytest.mark.parametrize("n", [2, 3])
def test_few_keys_agree_with_brute_force(d, n, beta, concentration):
    wanted = brute_force(d, n, beta, concentration)
    answer = expected(d, n, beta, concentration=concentration, statistics=list(wanted))
    for name, value in wanted.items():
        assert answer[name] == pytest.approx(value, rel=1e-9), name


@pytest.mark.parametrize("beta", [0.0, 13.5])
def test_one_key(beta):
    answer = expected(3, 1, beta, concentration=2.0, ks=(1,))
    # T has density prop. to e^{-2t} on [0, 2].
    mean = 0.5 - 2 / (math.exp(4) - 1)
    square = 0.5 - (4 + 2) * math.exp(-4) / (1 - math.exp(-4))
    ranked = ("ordered_weight(1)", "top_mass(1)", "ordered_ratio(1)")
    for name in ("top_weight", "ipr", "sum_cubes", "top_weight_squared", "ipr_squared", *ranked):
        assert answer[name] == 1.0
    assert answer["top_gap"] == answer["second_weight"] == answer["entropy"] == 0.0
    assert answer["log_partition"] == pytest.approx(-beta * mean, rel=1e-12)
    assert answer["mean_d2q"] == pytest.approx(mean, rel=1e-12)
    assert answer["mean_d2q_squared"] == pytest.approx(square, rel=1e-12)
    assert answer["output_square"] == pytest.approx(1.0, rel=1e-15)


@pytest.mark.parametrize("d,n", [(2, 2), (5, 7), (512, 1e18)])
def test_no_temperature_gives_equal_weights(d, n):
    answer = expected(d, n, 0.0, ks=(2,))
    assert answer["top_weight"] == answer["second_weight"] == answer["ipr"] == answer["ordered_weight(2)"] == 1 / n
    assert answer["entropy"] == answer["log_partition"] == math.log(n)
    assert answer["top_mass(2)"] == 2 / n and answer["ordered_ratio(2)"] == 1.0 and answer["mean_d2q"] == 1.0
    assert answer["output_square"] == pytest.approx(1 / n, rel=1e-15)
    assert top_weight(d, n, 0.0) == 1 / n
    near = expected(d, n, 1e-9)
    for name in ("ipr", "entropy", "mean_d2q", "tangential_square", "mean_d2q_squared"):
        assert near[name] == pytest.approx(answer[name], rel=1e-8)


def test_far_above_criticality_the_second_weight_keeps_its_digits():
    # Two keys uniform in T on [0, 2] (d = 3): y2 - y1 has density 1/beta at 0; the integrals of 1/(1 + e^x) and of the entropy of
    # (1/(1 + e^x), 1/(1 + e^-x)) over x > 0 are ln 2 and pi^2 / 6.
    answer = expected(3, 2, 1e30)
    assert answer["top_gap"] == pytest.approx(math.log(2) * 1e-30, rel=1e-12)
    assert answer["second_weight"] == pytest.approx(math.log(2) * 1e-30, rel=1e-12)
    assert answer["entropy"] == pytest.approx(math.pi**2 / 6 * 1e-30, rel=1e-12)
    assert answer["ordered_ratio(2)"] == pytest.approx(1e-30, rel=1e-12)
    assert answer["top_weight"] == pytest.approx(1.0, abs=1e-13)


def test_many_keys_far_above_criticality_at_d_2():
    # E top_gap = ln 2 * n^2 / (2 pi^2 beta) * [log(beta / n^2) + constant]: the constant cancels between two betas (Lemma B.1 is
    # false at d = 2, where its bound has no logarithm).
    n, beta = 1e6, 1e40
    one, two = (expected(2, n, b, statistics="top_gap")["top_gap"] for b in (beta, 1e3 * beta))
    assert 1e3 * two - one == pytest.approx(math.log(2) * n**2 / (2 * math.pi**2 * beta) * math.log(1e3), rel=1e-5)


@pytest.mark.parametrize("d,n,beta,concentration", [
    (2, 1, 1e30, 0.0), (2, 2, 1e30, 0.0), (2, 10, 1e100, 1e6), (512, 1e18, 340.0, 0.0), (512, 1e18, 1e30, 0.0),
    (512, 10, 100.0, 1e6), (7, 1e4, 130.0, 1e6), (3, 1e18, 1e-12, 0.0), (2, 3, 119.0, 0.0), (2, 3, 121.0, 0.0),
    (16, 50, 1e7, 1e6), (64, 1e12, 1e-300, 3.0),
])  # fmt: skip
def test_extreme_cells_are_consistent(d, n, beta, concentration):
    answer = expected(d, n, beta, concentration=concentration)
    assert answer["top_weight"] + answer["top_gap"] == pytest.approx(1.0, abs=1e-12)
    mean = beta * answer["mean_d2q"]
    assert answer["entropy"] == pytest.approx(mean + answer["log_partition"], abs=1e-11 * (1 + mean))
    assert 1 / n * (1 - 1e-13) <= answer["ipr"] <= answer["top_weight"] * (1 + 1e-13)
    assert all(digits >= 8 for digits in answer.digits.values())
    if n == 2:
        assert answer["second_weight"] == pytest.approx(answer["top_gap"], rel=1e-10)


@pytest.mark.parametrize("d,n,beta,concentration", [(5, 6, 4.0, 0.0), (2, 5, 300.0, 0.0), (8, 7, 40.0, 3.0)])
def test_ordered_weights_add_up(d, n, beta, concentration):
    names = [f"{kind}({k})" for kind, k in itertools.product(("ordered_weight", "ordered_ratio", "top_mass"), range(1, n + 1))]
    answer = expected(d, n, beta, concentration=concentration, statistics=names)
    weights = [answer[f"ordered_weight({k})"] for k in range(1, n + 1)]
    assert sum(weights) == pytest.approx(1.0, abs=1e-12)
    assert weights == sorted(weights, reverse=True)
    ratios = [answer[f"ordered_ratio({k})"] for k in range(1, n + 1)]
    assert ratios == sorted(ratios, reverse=True) and ratios[0] == 1.0
    for k in range(1, n + 1):
        assert answer[f"top_mass({k})"] == pytest.approx(sum(weights[:k]), rel=1e-12)


def test_high_ranks_of_the_paper_figure_3():
    # n = 1000, d = 5, beta = n^{alpha/4}, x = k / window: at x = 2, E A_(k)/A_(1) is 11% below its limit e^{-x^alpha}.
    beta, window = 1000**0.125, math.exp(log_intensity(5)) * 1000 * 1000 ** (-0.125 * 2)
    ranks = [round(window * x) for x in (1, 2, 5)]
    answer = expected(5, 1000, beta, statistics=[f"ordered_ratio({k})" for k in ranks])
    deviation = [answer[f"ordered_ratio({k})"] / math.exp(-math.sqrt(k / window)) - 1 for k in ranks]
    assert deviation == pytest.approx([-0.006, -0.107, -0.45], abs=0.006)


@hypothesis.settings(max_examples=12)
@hypothesis.given(
    d=st.integers(2, 512),
    log_n=st.floats(0.0, 18.0),
    log_beta=st.floats(-6.0, 12.0),
    concentration=st.sampled_from([0.0, 10.0, 1e5]),
)
def test_bounds_hold_everywhere(d, log_n, log_beta, concentration):
    n, beta = math.floor(10**log_n), 10**log_beta
    answer = expected(d, n, beta, concentration=concentration)
    assert 0 <= answer["ipr"] <= answer["top_weight"] * (1 + 1e-12) <= 1 + 2e-12
    assert answer["ipr"] >= 1 / n * (1 - 1e-12) and answer["entropy"] <= math.log(n) * (1 + 1e-12)
    assert answer["top_weight"] ** 2 <= answer["top_weight_squared"] * (1 + 1e-12)
    assert answer["sum_fourths"] <= answer["sum_cubes"] <= answer["ipr"]
    assert answer["mean_d2q"] ** 2 <= answer["mean_d2q_squared"] * (1 + 1e-12) and answer["mean_d2q"] <= 2
    assert answer["top_weight"] == pytest.approx(top_weight(d, n, beta, concentration), rel=1e-7)


@hypothesis.settings(max_examples=25)
@hypothesis.given(d=st.integers(2, 128), log_n=st.floats(0.5, 17.0), log_beta=st.floats(-3.0, 8.0))
def test_top_weight_grows_with_beta_and_falls_with_n(d, log_n, log_beta):
    n, beta = math.floor(10**log_n), 10**log_beta
    low, high = top_weight(d, n, np.array([beta, 1.3 * beta]))
    assert low <= high * (1 + 1e-7)
    assert top_weight(d, math.ceil(1.2 * n), beta) <= low * (1 + 1e-7)


def test_fast_top_weight_keeps_the_shape_of_beta():
    betas = np.array([[0.0, 1.0], [10.0, 1e5]])
    values = top_weight(5, 100, betas)
    assert values.shape == (2, 2)
    assert values[0, 0] == 0.01
    assert values[1, 0] == top_weight(5, 100, 10.0)


@pytest.mark.parametrize("n,gamma", [(1e18, 1.0)])
def test_finite_n_tends_to_the_limit(n, gamma):
    finite, limit = expected(5, n, gamma * n**0.5), expected_limit(5, gamma)
    for name in (*BOUNDED, "entropy", "log_partition", "ordered_ratio(3)", "top_mass(3)", "ipr_squared"):
        assert finite[name] == pytest.approx(limit[name], rel=1e-7), name


@pytest.mark.parametrize("d,gamma", [
    pytest.param(512, 100.0, marks=pytest.mark.slow), (512, 1e3), (2, 1e-100), (3, 1e100), (64, 0.1), (5, 1e-3),
])  # fmt: skip
def test_extreme_limits_are_consistent(d, gamma):
    answer = expected_limit(d, gamma)
    assert answer["top_weight"] + answer["top_gap"] == pytest.approx(1.0, abs=1e-12)
    assert answer["entropy"] == pytest.approx(answer["mean_d2q"] + answer["log_partition"], abs=1e-11 * (1 + answer["mean_d2q"]))
    assert 0 < answer["ipr"] <= answer["top_weight"] * (1 + 1e-13)
    assert all(digits >= 9 for digits in answer.digits.values())


def test_points_are_normalised():
    points = sphere_points(7, 1e4, 30.0)
    assert points.below[-1] == pytest.approx(1e4, rel=1e-13)
    assert points.count_below(np.array([0.0, 2.0])) == pytest.approx([0.0, 1e4], rel=1e-13)
    lower, upper = points.count_below(np.array([0.7]))[0], points.count_above(np.array([1.3]))[0]
    assert lower + upper == pytest.approx(1e4, rel=1e-12)
    limit = limit_points(7, 2.0)
    assert limit.count_below(np.array([3.0])) == pytest.approx(math.exp(2.0) * 27, rel=1e-12)


def test_answers_are_a_mapping_with_digits():
    answer = expected(3, 100, 40.0, statistics=["entropy", "top_mass(4)"])
    assert list(answer) == ["entropy", "top_mass(4)"] and len(answer) == 2
    assert set(answer.digits) == set(answer)
    assert "top_mass(4)" in repr(answer)
    assert digamma(1.0) == pytest.approx(-np.euler_gamma)


@pytest.mark.parametrize("call,message", [
    (lambda: expected(1, 10, 1.0), "Argument `d` must be an integer >= 2"),
    (lambda: expected(3, 0, 1.0), "Argument `n` must be an integer between 1 and 1e18"),
    (lambda: expected(3, 10.5, 1.0), "Argument `n` must be"),
    (lambda: expected(3, 2e18, 1.0), "Argument `n` must be"),
    (lambda: expected(3, 10, -1.0), "Argument `beta` must be finite and >= 0, but was -1.0"),
    (lambda: expected(3, 10, math.nan), "Argument `beta` must be"),
    (lambda: expected(3, 10, 1e300), "Argument `beta` must be <= 1e250"),
    (lambda: expected(3, 10, 1.0, concentration=-1.0), "Argument `concentration` must be"),
    (lambda: expected(3, 10, 1.0, concentration=1e7), "Argument `concentration` must be <= 1e6"),
    (lambda: expected(3, 10, 1.0, statistics=["entropi"]), "did you mean `entropy`"),
    (lambda: expected(3, 10, 1.0, statistics=[]), "Argument `statistics` must name at least one"),
    (lambda: expected(3, 10, 1.0, statistics="ordered_weight(11)"), "Argument `statistics` must have a rank from 1 to n"),
    (lambda: expected(3, 10, 1.0, statistics="top_mass(0)"), "Argument `statistics` must have a rank from 1 to n"),
    (lambda: expected(3, 10, 1.0, statistics="top_mass(2)_squared"), "Argument `statistics` must be a first moment"),
    (lambda: expected(3, 10, 1.0, ks=(0,)), "Argument `ks` must be an integer >= 1"),
    (lambda: expected_limit(3, 0.0), "Argument `gamma` must be finite and > 0"),
    (lambda: expected_limit(512, 1.0), "Argument `gamma` must be larger at d = 512"),
    (lambda: expected_limit(3, 1.0, statistics="output_square"), "Argument `statistics` must have a limit that is not trivial"),
    (lambda: top_weight(3, 10, [1.0, -2.0]), "Argument `beta` must be finite and >= 0, but was -2.0"),
    (lambda: top_weight(3, 10, "cold"), "Argument `beta` must be a number"),
])  # fmt: skip
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError) as error:
        call()
    assert message in str(error.value)
