"""Both engines against exact expected values, each other and brute force, and the promises about randomness and precision."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scaling import random
from scaling.context import Independent
from scaling.density import Mixture, Quadratic, Uniform, VonMisesFisher
from scaling.engine import Extremes, Keys, Request, batch, choose, extremes, keys, order
from scaling.statistic import default_names, parse
from tests import stat

REFERENCE = json.loads((Path(__file__).parents[1] / "data" / "uniform_keys.json").read_text())["finite"]
EXACT = [
    *("top_weight", "second_weight", "ipr", "sum_cubes", "sum_fourths", "entropy", "log_partition", "mean_d2q"),
    *("top_weight_squared", "ipr_squared", "mean_d2q_squared", "tangential_square", "tangential_square_given_d2q"),
]


@pytest.fixture(autouse=True)
def one_block_size(monkeypatch):
    """A block of another size is a compilation of seconds; samples do not depend on it (see
    `test_a_replicate_is_a_function_of_its_index_alone`)."""
    monkeypatch.setattr(batch, "_CPU_LANES", 1024)


def request(density, n, beta, names, *, replicates, seed=5, first=0, query=None, tolerance=1e-6, dtype="float32"):
    query = np.eye(1, density.d)[0] if query is None else np.asarray(query, np.float64)
    n = tuple(float(v) for v in np.atleast_1d(n))
    beta = np.broadcast_to(np.asarray(beta, np.float64), (len(n), np.shape(beta)[-1] if np.ndim(beta) else 1))
    return Request(Independent(density), query, n, np.array(beta), parse(names), first, replicates, seed, tolerance, dtype)


def draw(engine, *arguments, **options):
    """Samples [n, beta, statistic, replicate]."""
    return engine.sample(request(*arguments, **options)).values


def agree(samples, values, names, n, beta, error=0.0):
    """One budgeted assertion a statistic: by the normal law where it holds, else by bounds."""
    for name, x in zip(names, samples, strict=True):
        expected = values["tangential_square" if name == "tangential_square_given_d2q" else name]
        low, high = 0.0, 1.0
        if name == "mean_d2q":
            high = 2.0
        elif name == "mean_d2q_squared":
            high = 4.0
        elif name == "entropy":
            high = np.log(n)
        elif name == "log_partition":
            low, high = np.log(n) - 2 * beta, np.log(n)
        bias = error * (1 if name in ("entropy", "log_partition") else abs(expected))
        try:
            stat.assert_mean(x, expected, error=bias + 2e-6 * abs(expected))
        except stat.StatisticalPreconditionError:
            stat.assert_bounded_mean(np.clip(x, low, high), expected, low, high, error=bias + 2e-6 * abs(expected) + 1e-7 * high)


def label(cell):
    return f"d{cell['d']}-n{cell['n']:g}-beta{cell['beta']:g}"


# Short rows at d = 8 show nothing that d = 5 and d = 16 do not.
CELLS = [cell for cell in REFERENCE if cell["d"] != 8 or cell["n"] > 1e4]
WITHOUT_DIRECTIONS = [name for name in EXACT if name != "tangential_square"]
# Other ranks are another compilation, so most tests ask for the second weight, too, and for one of two numbers of replicates.
FEW, BLOCK = 40, 1000


@pytest.mark.parametrize("cell", CELLS, ids=label)
def test_extremes_against_exact_values(cell):
    d, n, beta = cell["d"], cell["n"], cell["beta"]
    bulk = n >= 1000 and beta < 100
    # With directions every d is a compilation: those of short rows are in `test_directions`, of d = 16 in test_outputs.py.
    names = EXACT if n > 1e4 and d not in (16, 32) else WITHOUT_DIRECTIONS
    samples = draw(Extremes(), Uniform(d), n, beta, names, replicates=1000 if bulk else 6000)
    agree(samples[0, 0], cell["values"], names, n, beta, error=1e-6)


@pytest.mark.parametrize("cell", [c for c in CELLS if c["n"] <= 1e4], ids=label)
def test_keys_against_exact_values(cell):
    d, n, beta = cell["d"], cell["n"], cell["beta"]
    samples = draw(Keys(), Uniform(d), n, beta, WITHOUT_DIRECTIONS, replicates=2000 if n <= 1000 else 400)
    agree(samples[0, 0], cell["values"], WITHOUT_DIRECTIONS, n, beta)


@pytest.mark.parametrize("engine", [Extremes(), Keys()], ids=lambda e: e.name)
@pytest.mark.parametrize("d", [2, 3, 9])
def test_directions(engine, d):
    """`tangential_square` has the mean of its conditional expectation, and its spread: two weights of 1/2 give (1 + cos) / 2."""
    names = ["tangential_square", "tangential_square_given_d2q", "output_square", "mean_d2q"]
    x = draw(engine, Uniform(d), 40, 3.0, names, replicates=6000)[0, 0]
    stat.assert_mean((x[0] - x[1])[:, None], np.zeros(1), error=1e-7, sees=0.01)
    np.testing.assert_allclose(x[2], (1 - x[3]) ** 2 + x[0], rtol=1e-6)
    brute = np.random.default_rng(8).standard_normal((6000, 40, d))
    brute /= np.linalg.norm(brute, axis=-1, keepdims=True)
    w = np.exp(3 * brute[..., 0])
    out = np.einsum("rk,rkd->rd", w / w.sum(1, keepdims=True), brute)
    stat.assert_same_law(x[0], np.sum(out[:, 1:] ** 2, axis=1), sees=0.12)
    stat.assert_same_law(x[2], np.sum(out**2, axis=1), sees=0.12)


@pytest.mark.parametrize("n", [2, 50, 400, 6000])
def test_whole_laws_of_the_two_engines_agree(n):
    """Not only means: the law of a weight, of the partition function and of a deep order statistic."""
    names = ["top_weight", "log_partition", "entropy", "ordered_ratio(2)", "top_mass(2)"]
    a = draw(Extremes(), Uniform(6), n, 12.0, names, replicates=3000)[0, 0]
    b = draw(Keys(), Uniform(6), n, 12.0, names, replicates=3000)[0, 0]
    for x, y in zip(a, b, strict=True):
        stat.assert_same_law(x, y, sees=0.17)


def test_a_loose_tolerance_is_kept_and_is_what_drives_the_cost():
    """At tolerance 0.02 the rest is large and its law coarse: the bias must stay below the stated bound."""
    names = ["top_weight", "ipr", "entropy", "second_weight"]
    loose = Extremes().sample(request(Uniform(5), 1e6, 300.0, names, replicates=200_000, tolerance=0.02))
    tight = Extremes().sample(request(Uniform(5), 1e6, 300.0, names, replicates=200_000))
    assert loose.keys_drawn[0, 0] < tight.keys_drawn[0, 0] / 4
    assert np.all(loose.error_bound <= 0.02 + 1e-6)
    from scaling.exact import expected

    exact = expected(5, 1e6, 300.0, statistics=names)
    for name, x, bound in zip(names, loose.values[0, 0], loose.error_bound[0, 0], strict=True):
        stat.assert_mean(x, exact[name], error=bound * (1 if name == "entropy" else exact[name]))


VMF_CELLS = [(3, 4.0, 1.0), (3, 4.0, 0.3), (8, 30.0, 1.0), (5, 1e4, 1.0), (4, 2.0, -1.0)]


@pytest.mark.parametrize(("d", "concentration", "cosine"), VMF_CELLS)
def test_von_mises_fisher_against_brute_force(d, concentration, cosine):
    """On the mean (both engines), on its antipode, and off it (`keys`), against SciPy's sampler in float64."""
    from scipy.stats import vonmises_fisher

    mean, query = np.eye(1, d)[0], np.eye(1, d)[0] * cosine
    query[1] = np.sqrt(1 - cosine**2)
    density = VonMisesFisher(mean, concentration)
    beta, n, names = 2 * concentration, 300, ["top_weight", "entropy", "log_partition", "mean_d2q", "second_weight"]
    brute = vonmises_fisher(mean, concentration, seed=3).rvs(2000 * n).reshape(2000, n, d)
    t = np.sum((query - brute) ** 2, axis=-1) / 2
    w = np.exp(-beta * t)
    a = w / w.sum(1, keepdims=True)
    expected = [a.max(1), -np.sum(np.where(a > 0, a * np.log(np.maximum(a, 1e-300)), 0), 1), np.log(w.sum(1)), (a * t).sum(1)]
    expected.append(np.partition(a, -2, axis=1)[:, -2])
    engines = [Keys(), Extremes()] if abs(cosine) == 1 else [Keys()]
    for engine in engines:
        for x, y in zip(draw(engine, density, n, beta, names, replicates=2000, query=query)[0, 0], expected, strict=True):
            stat.assert_same_law(x, y, sees=0.2)


ASYMMETRIC = {
    "quadratic": Quadratic([[0, 0.5, 0], [0.5, 0, 0], [0, 0, 0]]),
    "mixture": Mixture([Uniform(3), VonMisesFisher([0, 0, 1], 9.0)], [0.4, 0.6]),
}


@pytest.mark.parametrize("density", ASYMMETRIC.values(), ids=ASYMMETRIC)
def test_keys_for_asymmetric_densities(density):
    """The mean partition function of `keys` against the Laplace transform of the D2Q law, n E e^{-beta T}, at a query off
    every axis.
    """
    query = np.array([0.48, -0.6, 0.64])
    beta, n, names = 6.0, 200, ["log_partition", "second_weight"]
    x = draw(Keys(), density, n, beta, names, replicates=4000, query=query)[0, 0]
    t, w = np.polynomial.legendre.leggauss(400)
    t = t + 1
    laplace = float(np.sum(w * np.exp(density.d2q(query).log_pdf(t) - beta * t)))
    stat.assert_mean(np.exp(x[0]), n * laplace, sees=0.1 * n * laplace)
    few = draw(Extremes(), density, n, beta, names, replicates=4000, query=query)[0, 0]
    stat.assert_mean(np.exp(few[0]), n * laplace, sees=0.1 * n * laplace)


@pytest.mark.parametrize("d", [2, 3, 5, 16, 128])
@pytest.mark.parametrize("n", [1e3, 1e6, 1e9, 1e12])
def test_float32_contract(d, n):
    """At the same points and critical beta: beta T_(1) to 3e-6 relative, a weight to 5e-6 (2 + beta (T - T_(1)))."""
    from scaling.exact import critical_beta

    beta = critical_beta(d=d, n=n)
    ask = request(Uniform(d), n, beta, ["top_weight", "ordered_ratio(2)", "ordered_ratio(5)"], replicates=1)
    law = Uniform(d).d2q(ask.query)
    index = np.arange(4096, dtype=np.uint32)
    rows = {}
    for dtype in ("float32", "float64"):
        with jax.enable_x64(dtype == "float64"):
            stream = random.root(1, "contract").fold_in(jnp.asarray(index))
            plan = extremes.NearestKeys(law, Request(**{**vars(ask), "dtype": dtype}), 0)
            rows[dtype] = jax.tree.map(lambda x: np.asarray(x, np.float64), plan.draw(stream))
    single, double = rows["float32"], rows["float64"]
    np.testing.assert_allclose(single.nearest, double.nearest, rtol=3e-6)
    for gap, exact in zip(single.gaps, double.gaps, strict=True):
        assert np.max(np.abs(np.exp(-gap) - np.exp(-exact)) / (np.exp(-exact) * (2 + exact) + 1e-30)) < 5e-6
    top = 1 / (1 + np.stack([single.rest, double.rest]))
    assert np.max(np.abs(top[0] / top[1] - 1)) < 1e-5


def test_both_precisions_of_the_key_map():
    for d in (2, 3, 5, 64, 512):
        law = Uniform(d).d2q(np.eye(1, d)[0])
        assert order.key_map(law).error < 3e-7


@pytest.mark.parametrize("engine", [Extremes(), Keys()], ids=lambda e: e.name)
def test_a_replicate_is_a_function_of_its_index_alone(engine):
    """More replicates, a later start, a larger grid of betas or n: the same numbers."""
    names = ["top_weight", "entropy", "second_weight"]
    alone = draw(engine, Uniform(5), 700, 20.0, names, replicates=FEW)[0, 0]
    np.testing.assert_allclose(draw(engine, Uniform(5), 700, 20.0, names, replicates=BLOCK)[0, 0][:, :FEW], alone, rtol=2e-6)
    later = draw(engine, Uniform(5), 700, 20.0, names, replicates=FEW, first=25)[0, 0]
    np.testing.assert_allclose(later[:, :15], alone[:, 25:], rtol=2e-6)
    grid = draw(engine, Uniform(5), [50, 700, 5000], [1.0, 20.0, 300.0], names, replicates=FEW)
    np.testing.assert_allclose(grid[1, 1], alone, rtol=1e-5)
    other = draw(engine, Uniform(5), 700, 20.0, names, replicates=FEW, seed=6)[0, 0]
    assert np.all(np.abs(other[0] - alone[0]) > 0)


def test_nested_lengths_share_their_keys():
    """The first keys of a longer row are the shorter row: its nearest D2Q can only fall."""
    names = ["log_partition"]
    x = draw(Keys(), Uniform(4), [30, 1000, 31, 999], [1e3], names, replicates=64)[:, 0, 0]
    assert np.all(x[1] >= x[3]) and np.all(x[3] >= x[2]) and np.all(x[2] >= x[0])


def test_keys_do_not_depend_on_the_chunk(monkeypatch):
    names = ["top_weight", "entropy", "second_weight"]
    whole = draw(Keys(), Uniform(5), 3000, 20.0, names, replicates=32)  # in chunks of 512
    monkeypatch.setattr(keys, "_CHUNKS", (64,))
    part = draw(Keys(), Uniform(5), 3000, 20.0, names, replicates=150)[..., :32]
    np.testing.assert_allclose(part, whole, rtol=5e-6)


def test_beta_zero_is_the_uniform_average():
    names = ["top_weight", "ipr", "entropy", "log_partition", "second_weight"]
    for engine, replicates in ((Extremes(), {}), (Keys(), {5000: 32})):
        for n in (1, 7, 5000):
            x = draw(engine, Uniform(5), n, 0.0, names, replicates=replicates.get(n, BLOCK))[0, 0]
            expected = [1 / n, 1 / n, np.log(n), np.log(n), 1 / n if n > 1 else 0]
            np.testing.assert_allclose(x, np.broadcast_to(np.array(expected)[:, None], x.shape), rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("beta", [1e30, 1e60])
def test_huge_beta_selects_one_key(beta):
    x = draw(Extremes(), Uniform(3), 1e6, beta, ["top_weight", "top_gap", "mean_d2q", "second_weight"], replicates=1024)[0, 0]
    assert np.all(x[0] == 1) and np.all(x[1] < 1e-20) and np.all(np.isfinite(x[2])) and np.all(x[2] > 0) and np.all(x[3] < 1e-20)


def test_the_float32_scales_that_break():
    """d = 2, n = 1e12, beta = 1e16: below the resolution of 1 - q.x by nine orders."""
    x = draw(Extremes(), Uniform(2), 1e12, 1e16, default_names(), replicates=BLOCK)
    assert np.all(np.isfinite(x))


def test_auto_chooses_and_says_why():
    engine, reason = choose("auto", request(Uniform(5), 1e9, 1.0, ["ipr"], replicates=1))
    assert engine.name == "extremes" and "nearest" in reason
    tilted = np.array([0.6, 0.8, 0.0])
    engine, reason = choose("auto", request(VonMisesFisher([1, 0, 0], 3.0), 100, 1.0, ["ipr"], replicates=1, query=tilted))
    assert engine.name == "extremes" and "nearest" in reason
    # Directions vary too much for rejection where the whole row is drawn; distances alone do not need them.
    narrow, names = VonMisesFisher(np.eye(16)[0], 200.0), ["tangential_square"]
    far = np.eye(16)[1]
    engine, reason = choose("auto", request(narrow, 100, 1.0, names, replicates=1, query=far))
    assert engine.name == "keys" and "rejection" in reason
    with pytest.raises(ValueError, match="by rejection"):
        choose("extremes", request(narrow, 100, 1.0, names, replicates=1, query=far))
    assert choose("auto", request(narrow, 100, 1.0, ["ipr"], replicates=1, query=far))[0].name == "extremes"
    with pytest.raises(ValueError, match="draws every key"):
        choose("keys", request(Uniform(5), 1e12, 1.0, ["ipr"], replicates=1))
    with pytest.raises(ValueError, match="did you mean `extremes`"):
        choose("extreme", request(Uniform(5), 10, 1.0, ["ipr"], replicates=1))


def test_grids_share_their_compilations():
    """25 cells of different n, d and beta: a handful of compilations."""
    from scaling.sweep import count_compilations

    names = ["top_weight", "ipr", "second_weight"]
    with count_compilations() as counted:
        for d in (3, 5, 7, 11, 20):
            draw(Extremes(), Uniform(d), [100, 1e3, 1e4, 1e6, 1e9], [1.0, 30.0, 1e3], names, replicates=FEW)
    assert counted.count <= 12


@pytest.mark.slow
def test_one_and_four_devices_draw_the_same():
    """Four devices in a process of their own, against those of this one."""
    names = ["top_weight", "entropy", "tangential_square", "second_weight"]
    here = np.stack([draw(engine, Uniform(5), 900, 20.0, names, replicates=BLOCK) for engine in (Extremes(), Keys())])
    code = (
        "import sys, numpy as np, scaling; from scaling.engine import Extremes, Keys; sys.path.insert(0, '.');"
        f"from tests.scaling.test_engines import draw; names = {names};"
        f"x = [draw(E(), scaling.Uniform(5), 900, 20.0, names, replicates={BLOCK}) for E in (Extremes, Keys)];"
        "np.save(sys.stdout.buffer, np.stack(x))"
    )
    env = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, env=env, cwd=Path(__file__).parents[2], check=True)
    assert jax.local_device_count() != 4
    np.testing.assert_allclose(np.load(io.BytesIO(out.stdout)), here, rtol=4e-6)
