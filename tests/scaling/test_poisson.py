"""Engine "poisson" against the exact critical limit, the law's own sampler, and finite rows that are near their limit."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from scaling import expected_limit, run_sweep, simulate
from scaling.context import Independent
from scaling.density import Mixture, Uniform, VonMisesFisher
from scaling.engine import Poisson, Request, choose
from scaling.engine.poisson import PowerLaw
from scaling.law import Critical
from scaling.statistic import parse
from tests import stat

LIMIT = json.loads((Path(__file__).parents[1] / "data" / "uniform_keys.json").read_text())["limit"]
WEIGHTS = ["top_weight", "second_weight", "ordered_weight(3)", "ipr", "sum_cubes", "sum_fourths", "entropy", "log_partition",
           "top_weight_squared", "ipr_squared"]  # fmt: skip
DISTANCES = {"mean_d2q": 1, "mean_d2q_squared": 2, "tangential_square": 1, "tangential_square_given_d2q": 1}


NAMES = [*WEIGHTS, *DISTANCES]
WITHOUT_DIRECTIONS = [name for name in NAMES if name != "tangential_square"]
REPLICATES = 2000  # one number of them and one list of statistics for most tests: one compilation


def request(
    density, n, beta, names=NAMES, *, replicates=REPLICATES, seed=17, first=0, query=None, tolerance=1e-6, dtype="float32"
):
    query = np.eye(1, density.d)[0] if query is None else np.asarray(query, np.float64)
    n = tuple(float(v) for v in np.atleast_1d(n))
    beta = np.array(np.broadcast_to(np.asarray(beta, np.float64), (len(n), np.shape(beta)[-1] if np.ndim(beta) else 1)))
    return Request(Independent(density), query, n, beta, parse(names), first, replicates, seed, tolerance, dtype)


def draw(*arguments, **options):
    """Samples [n, beta, statistic, replicate]."""
    return Poisson().sample(request(*arguments, **options)).values


def at(samples, *names):
    """The samples of these statistics in the first cell, [replicate] each."""
    found = [samples[0, 0, NAMES.index(name)] for name in names]
    return found if len(names) > 1 else found[0]


@pytest.mark.parametrize("cell", LIMIT, ids=lambda c: f"d{c['d']}-gamma{c['gamma']:g}")
def test_against_the_exact_limit(cell):
    d, gamma, values = cell["d"], cell["gamma"], dict(cell["values"])
    values["ordered_weight(3)"], values["tangential_square_given_d2q"] = values["third_weight"], values["tangential_square"]
    # n = 1e6: only gamma counts, and distances come in units of 1 / beta.
    beta = gamma * 1e6 ** (2 / (d - 1))
    # With directions every d is a compilation; d = 8 and 64 have theirs, by the same code, in test_engines.py.
    names = NAMES if d <= 5 else WITHOUT_DIRECTIONS
    for name, x in zip(names, draw(Uniform(d), 1e6, beta, names)[0, 0], strict=True):
        expected = values[name]
        error = 4e-6 * max(abs(expected), name in ("entropy", "log_partition"))
        x = x * beta ** DISTANCES.get(name, 0)
        try:
            stat.assert_mean(x, expected, error=error)
        except stat.StatisticalPreconditionError:
            if name not in DISTANCES:  # weights and their powers are in [0, 1]
                stat.assert_bounded_mean(np.clip(x, 0, 1), expected, 0.0, 1.0, error=error)


def test_only_gamma_counts():
    small, large = draw(Uniform(5), [1e4, 1e12], [[50.0], [5e5]])[:, 0]
    units = np.array([DISTANCES.get(name, 0) for name in NAMES])
    np.testing.assert_allclose(small, large * 1e4 ** units[:, None], rtol=1e-6)


def test_a_replicate_is_its_own():
    one = draw(Uniform(5), 1e6, 1e3)[0, 0]
    among = draw(Uniform(5), [1e3, 1e6, 1e9], [[1e9], [1e3], [1e3]])[1, 0]
    np.testing.assert_array_equal(among, one)
    later = draw(Uniform(5), 1e6, 1e3, first=1000)[0, 0]
    np.testing.assert_array_equal(later[:, :1000], one[:, 1000:])
    assert not np.any(draw(Uniform(5), 1e6, 1e3, seed=18)[0, 0] == one)


def test_float32_is_near_float64():
    n, beta = [1e6, 1e6, 1e6], [[200.0], [1851.8], [1e6]]
    names = ["top_weight", "ipr", "entropy", "mean_d2q"]  # no directions: less to compile
    with jax.enable_x64(True):
        double = draw(Uniform(5), n, beta, names, dtype="float64")[:, 0]
    single = draw(Uniform(5), n, beta, names)[:, 0]
    np.testing.assert_allclose(single[0], double[0], rtol=1e-5)
    np.testing.assert_allclose(single[1], double[1], rtol=5e-5)
    # beta T is about 1000 in the third cell, and so are the roundings of the exponents.
    np.testing.assert_allclose(single[2, 0], double[2, 0], atol=3e-4)


def test_the_law_of_the_top_weight_has_two_samplers():
    law = Critical.at(5, 1e6, 1000.0)
    stat.assert_same_law(at(draw(Uniform(5), 1e6, 1000.0), "top_weight"), law.sample(1, REPLICATES, k=1)[:, 0])
    closed = Critical.of_gamma(3, 0.5)
    top = at(draw(Uniform(3), 1e6, 5e5), "top_weight")
    stat.assert_rate(int(np.sum(np.asarray(top) > 0.7)), len(top), 1 - float(closed.cdf(0.7)), error=1e-5)


def test_any_density_enters_by_its_local_intensity():
    # Not symmetric about the query: no other engine but `keys` serves it, and the limit sees C(q) alone.
    q = np.array([0.6, 0.0, 0.8])
    density = Mixture([VonMisesFisher([1.0, 0.0, 0.0], 2.0), VonMisesFisher([0.0, 1.0, 0.0], 5.0)], [0.5, 0.5])
    top, ipr = at(draw(density, 1e6, 5e5, query=q), "top_weight", "ipr")
    limit = expected_limit(3, 0.5, log_intensity=density.d2q(q).log_intensity, statistics=["top_weight", "ipr"])
    stat.assert_bounded_mean(top, limit["top_weight"], 0.0, 1.0, error=1e-5)
    stat.assert_bounded_mean(ipr, limit["ipr"], 0.0, 1.0, error=1e-5)


def test_extreme_windows():
    top, second, d2q, log_partition = at(draw(Uniform(2), 1e6, 1e80), "top_weight", "second_weight", "mean_d2q", "log_partition")
    assert np.all(top == 1) and np.all(second == 0)
    np.testing.assert_allclose(log_partition, -1e80 * d2q, rtol=1e-6)
    entropy, d2q = at(draw(Uniform(5), 1e12, 10.0), "entropy", "mean_d2q")
    limit = expected_limit(5, 1e-5, statistics=["entropy", "mean_d2q"])
    stat.assert_mean(entropy, limit["entropy"], error=1e-5)
    stat.assert_mean(d2q * 10, limit["mean_d2q"], error=1e-5)


def test_chosen_by_name_alone():
    asked = request(Uniform(5), 1e6, 1000.0)
    assert choose("auto", asked)[0].name == "extremes"
    assert choose("poisson", asked)[0].name == "poisson"
    found = simulate(Uniform(5), n=1e6, beta=1000.0, replicates=REPLICATES, seed=17, engine="poisson", statistics=NAMES)
    assert (found.engine, found.reason) == ("poisson", "`poisson` was asked for")
    assert found.statistics["ipr"].mean == pytest.approx(float(np.mean(at(draw(Uniform(5), 1e6, 1000.0), "ipr"))), rel=1e-12)
    assert found.error_bound["ipr"] <= 2e-6
    assert 8 <= found.keys_drawn <= 200


def test_in_a_sweep(tmp_path):
    config = {
        "seed": 4, "replicates": REPLICATES, "engine": "poisson", "statistics": NAMES, "density": {"kind": "uniform"},
        "axes": {"d": [3], "n": [1e3, 1e9], "gamma": [0.5]},
    }  # fmt: skip
    samples = run_sweep(config, tmp_path / "store")["samples"].values[0, :, 0, NAMES.index("top_weight")]
    np.testing.assert_allclose(samples[0], samples[1], rtol=1e-6)
    stat.assert_bounded_mean(samples[0], 0.5614594836, 0.0, 1.0, error=1e-5)


@pytest.mark.parametrize(
    ("n", "beta", "names", "message"),
    [
        (1e6, 0.0, ["ipr"], "needs beta > 0"),
        (1e6, 1e3, ["output_square"], "in which `output_square` is 1"),
        (1e6, 1e3, ["output_square_squared"], "in which `output_square` is 1"),
        (1e18, 1e-20, ["ipr"], "needs a larger beta"),
        (1e6, 1e250, ["ipr"], "needs a smaller beta"),
        (1e6, 1e3, ["top_mass(9000)"], "draws at most 8192 points in order"),
    ],
)
def test_refusals(n, beta, names, message):
    with pytest.raises(ValueError, match="Argument `engine` must serve") as caught:
        Poisson().sample(request(Uniform(5), n, beta, names))
    assert message in str(caught.value)


def test_a_tolerance_out_of_reach():
    with pytest.raises(ValueError, match="Argument `tolerance` must be larger for engine `poisson`"):
        draw(Uniform(64), 1e6, 60.0, ["ipr"], tolerance=1e-15)


def test_power_law():
    law = PowerLaw(5, -3.0)
    t = np.array([1e-30, 1e-3, 1.0])
    np.testing.assert_allclose(law.quantile(law.log_cdf(t)), t, rtol=1e-13)
    np.testing.assert_allclose(law.upper_quantile(law.log_sf(t[1:])), t[1:], rtol=1e-9)
    s = np.array([-9.0, -1.0])
    log_p, log_q, log_density = law.at_logit(s)
    np.testing.assert_allclose(law.logit_quantile(log_p), s, rtol=1e-12)
    np.testing.assert_allclose(law.logit_upper_quantile(log_q), s, rtol=1e-6)
    slope = (np.exp(law.at_logit(s + 1e-5)[0]) - np.exp(law.at_logit(s - 1e-5)[0])) / 2e-5
    np.testing.assert_allclose(np.exp(log_density), slope, rtol=1e-8)
    np.testing.assert_allclose(np.exp(law.log_pdf(t[1:])), 2 * np.exp(-3.0) * t[1:], rtol=1e-13)
