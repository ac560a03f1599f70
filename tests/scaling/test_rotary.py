"""RoPE and dependent keys in the engine `keys`, from settings to rows: against the same keys in NumPy."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import scaling
from scaling import random
from scaling.cli import main
from scaling.config import SweepConfig
from scaling.context import AbstractContext, FixedClusters, GeometricClusters, Independent, MovingAverage, Rotary
from scaling.context.build import build_context
from scaling.engine import Keys, Request
from scaling.engine.batch import _name
from scaling.engine.orbit import Orbit
from scaling.rope import FractionsOfATurn, Geometric, Rope, Yarn
from scaling.statistic import parse

QUERY = np.array([0.5, -0.5, 0.1, 0.7])
NAMES = ("top_weight", "second_weight", "ipr", "entropy", "mean_d2q", "nearest_d2q")


def rows(context: AbstractContext, n: int, beta: float, names=NAMES, count: int = 2, seed: int = 0) -> np.ndarray:
    asked = Request(context, QUERY, (float(n),), np.array([[beta]]), parse(list(names)), 0, count, seed)
    return Keys().sample(asked).values[0, 0]


@eqx.filter_jit
def _keys(context, root, replicate, index):
    return context.keys(root.fold_in(replicate), index)


def by_hand(context: AbstractContext, n: int, beta: float, replicate: int, seed: int = 0) -> list[float]:
    """`NAMES` of one row: the keys of its stream, and softmax in float64."""
    asked = Request(context, QUERY, (float(n),), np.array([[beta]]), parse(list(NAMES)), 0, 1, seed)
    root = random.root(seed, _name(asked), "keys")
    x = np.asarray(_keys(context, root, jnp.uint32(replicate), jnp.arange(n, dtype=jnp.uint32)), np.float64)
    u = context.rope.targets(QUERY, np.arange(n)) if isinstance(context, Rotary) else QUERY
    t = np.sum((x - u) ** 2, axis=1) / 2
    a = np.exp(-beta * (t - t.min()))
    a = np.sort(a / a.sum())[::-1]
    weight = np.exp(-beta * (t - t.min()))
    return [a[0], a[1], np.sum(a**2), -np.sum(a * np.log(a)), np.sum(weight * t) / np.sum(weight), t.min()]


@pytest.mark.parametrize(
    "context",
    [
        Rotary(MovingAverage(4, [1.0, -2.0, 0.5]), Rope.geometric(4, 10.0, rotated=2, pairing="half-split", first=10**9)),
    ],
)
def test_rows_are_softmax_over_the_targets(context):
    n, beta = 300, 25.0  # neither a multiple of the chunk nor of the cluster
    np.testing.assert_allclose(rows(context, n, beta)[:, 1], by_hand(context, n, beta, 1), rtol=2e-5)


def test_targets_on_the_device_are_those_of_exact_arithmetic():
    rope = Rope(6, Yarn(1e4, 2, 8.0, 4096), pairing="half-split", first=2**32 - 70)  # the upper word changes under way
    q = np.array([0.3, -0.4, 0.5, 0.1, 0.5, 0.5]) / np.sqrt(1.01)
    orbit = Orbit.of(rope, q, 64, np.dtype(np.float32))
    got = eqx.filter_jit(lambda orbit, start: orbit.targets(start))(orbit, jnp.uint32(64))
    np.testing.assert_allclose(got, rope.targets(q, np.arange(64, 128)), atol=3e-7)


def test_rotation_that_makes_no_difference():
    rope = Rope.geometric(4, rotated=2)
    rotated, still = QUERY, np.array([0.0, 0.0, 0.6, 0.8])
    uniform, vmf = Rotary(scaling.Uniform(4), rope), Rotary(scaling.VonMisesFisher(np.eye(4)[0], 1.0), rope)
    assert isinstance(uniform.at(rotated), Independent) and uniform.d2q(rotated) is not None
    assert vmf.at(rotated) is vmf and vmf.d2q(rotated) is None
    assert isinstance(vmf.at(still), Independent)  # the query does not turn
    assert isinstance(Rotary(scaling.VonMisesFisher(np.eye(4)[3], 1.0), rope).at(rotated), Independent)  # nor does the density
    assert isinstance(Rotary(MovingAverage.equal(4, 2), rope).at(rotated), Rotary)  # one key is uniform, but not all of them
    drawn = scaling.simulate(uniform, n=100, beta=5.0, replicates=8, seed=3, statistics=["ipr"], query=rotated)
    assert drawn.engine == "extremes"


def test_outputs_need_one_query():
    with pytest.raises(ValueError, match="outputs are those of one fixed query"):
        context = Rotary(MovingAverage.equal(4, 1), Rope.geometric(4))
        scaling.simulate(context, n=100, beta=1.0, replicates=2, seed=0, engine="keys", statistics=["output_square"], query=QUERY)


def test_positions_beyond_the_digits_of_a_float():
    assert Rope(2, FractionsOfATurn(["1/2"]), first=2**53 + 1).first == 2**53 + 1
    np.testing.assert_allclose(Rope(2, FractionsOfATurn(["1/2"]), first=2**53 + 1).targets([1.0, 0.0], 0), [-1, 0], atol=1e-15)
    integers = Rope.geometric(4, 7.0).rotate(jnp.array([1, 2, 3, 4]), 5)
    np.testing.assert_allclose(integers, Rope.geometric(4, 7.0).rotate([1, 2, 3, 4], 5), rtol=1e-5)


def test_clusters_that_never_repeat():
    stream, index = random.root(0, "a"), jnp.arange(8, dtype=jnp.uint32)
    context = GeometricClusters(scaling.Uniform(2), 1e-300)
    assert len({tuple(x) for x in np.asarray(_keys(context, stream, jnp.uint32(0), index)).tolist()}) == 8


def test_rotary_refuses():
    rope = Rope.geometric(4)
    for make, message in (
        (lambda: Rotary(scaling.Uniform(5), rope), "Argument `rope` must have d = 5, but was of d = 4."),
        (lambda: Rotary(Rotary(scaling.Uniform(4), rope), rope), "Argument `context` must not be rotated already"),
        (lambda: Rotary("keys", rope), "Argument `density_or_context` must be a density or a context"),
    ):
        with pytest.raises(ValueError, match=message):
            make()


def test_settings_make_the_context():
    uniform = scaling.Uniform(4)
    cases = (
        ({"kind": "iid"}, Independent(uniform)),
        ({"kind": "rope"}, Rotary(uniform, Rope.geometric(4))),
        ({"kind": "rope", "base": 500.0, "rotated": 2, "pairing": "half-split", "first": 7},
         Rotary(uniform, Rope.geometric(4, 500.0, rotated=2, pairing="half-split", first=7))),
        ({"kind": "rope", "factor": 4.0, "original_length": 2048}, Rotary(uniform, Rope(4, Yarn(1e4, 2, 4.0, 2048)))),
        ({"kind": "moving-average", "m": 2}, MovingAverage.equal(4, 2)),
        ({"kind": "moving-average", "weights": [1, 2], "drift": [1, 0, 0, 2]}, MovingAverage(4, [1, 2], [1, 0, 0, 2])),
        ({"kind": "clusters", "size": 2, "turns": ["1/5"]},
         Rotary(FixedClusters(uniform, 2), Rope(4, FractionsOfATurn(["1/5"])))),
        ({"kind": "clusters", "repeat": 0.5}, GeometricClusters(uniform, 0.5)),
    )  # fmt: skip
    for settings, context in cases:
        assert build_context(uniform, **settings).describe() == context.describe()
        config = SweepConfig.from_mapping({**SWEEP, "context": settings})
        assert config.context.build(config.density.build(4)).describe() == context.describe()
        assert SweepConfig.from_mapping(config.canonical()).canonical() == config.canonical()
    assert Geometric(1e4, 2).describe() == Rope.geometric(4).frequencies.describe()
    assert "context" not in SweepConfig.from_mapping(SWEEP).canonical()  # so that older stores are still theirs


SWEEP = {"seed": 0, "replicates": 4, "axes": {"d": [4], "n": [100], "gamma": [1.0]}}


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ({"kind": "rop"}, "context.kind: must be one of clusters, iid"),
        ({"kind": "iid", "base": 10.0}, "context.base: must be left out where the context is iid"),
        ({"kind": "rope", "m": 1}, "context.m: must be left out where the context is rope"),
        ({"kind": "rope", "rotated": 3}, "context.rotated: must be"),
        ({"kind": "rope", "turns": ["1/5", "1/7", "1/9"]}, "context.turns: must have at most 2 frequencies, one a plane"),
        ({"kind": "rope", "turns": [True]}, "context.turns: must be fractions of a turn"),
        ({"kind": "rope", "turns": ["1e9"]}, "context.turns: must be fractions of a turn"),
        ({"kind": "rope", "turns": ["1/5"], "original_length": 9}, "context.original_length: must be left out where `turns`"),
        ({"kind": "moving-average", "m": 1, "drift": [1, 2]}, "context.drift: must have 4 numbers"),
        ({"kind": "moving-average", "m": 10**12}, "context.m: must be below 65536"),
        ({"kind": "rope", "turns": ["1/0"]}, "context.turns: must be fractions of a turn"),
        ({"kind": "rope", "base": 10.0, "angles": [1.0]}, "context.base: must be left out where `angles` gives the frequencies"),
        ({"kind": "rope", "factor": 2.0}, "context.original_length: must be given for YaRN"),
        ({"kind": "moving-average"}, "context.weights: must be given for moving averages"),
        ({"kind": "moving-average", "weights": [0, 0]}, "context.weights: must not all be 0"),
        ({"kind": "moving-average", "m": -1}, "context.m: must be an integer >= 0"),
        ({"kind": "clusters", "size": 0}, "context.size: must be an integer >= 1"),
        ({"kind": "clusters", "repeat": 1.0}, "context.repeat: must be in [0, 1)"),
        ({"kind": "clusters", "size": 2, "repeat": 0.5}, "context.size: must be given for clusters"),
        ({"kind": "clusters", "sice": 2}, "context.sice: is not a known key (did you mean `size`?)"),
        (3, "context: must be a table"),
    ],
)
def test_mistakes_in_the_table_of_a_sweep(context, message):
    with pytest.raises(ValueError) as caught:
        SweepConfig.from_mapping({**SWEEP, "context": context})
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--context rop", "Argument `context` must be one of"),
        ("--rope-base 10", "Argument `rope-base` must be left out where the context is iid"),
        ("--context rope --rotated 3", "Argument `rotated` must be"),
        ("--context rope --rope-turns 1/5,1/6,1/7", "Argument `rope-turns` must have at most 2 frequencies"),
        ("--context rope --rope-base one", "Argument `rope-base` must be a number"),
        ("--context rope --pairing half", "Argument `pairing` must be one of"),
        ("--context rope --engine keys --statistics output_square --density vmf --concentration 1", "`engine` must serve"),
        ("--context moving-average --m -1", "Argument `m` must be an integer >= 0, but was -1."),
        ("--context moving-average --weights 0,0", "Argument `weights` must not all be 0"),
        ("--context moving-average --m 1 --density vmf --concentration 1", "Argument `density` must be uniform"),
        ("--context moving-average --m 1 --engine extremes", "Argument `engine` must serve the request exactly"),
        ("--context clusters --cluster-size 0", "Argument `cluster-size` must be an integer >= 1, but was 0."),
        ("--context clusters --repeat 1", "Argument `repeat` must be in [0, 1), but was 1."),
    ],
)
def test_mistakes_on_the_command_line(flags, message, capsys):
    assert main(f"simulate --d 4 --n 100 --gamma 1 --seed 0 --replicates 2 {flags}".split()) == 2
    out, err = capsys.readouterr()
    assert out == "" and message in err and err.count("\n") == 1


def test_rope_on_the_command_line(capsys):
    line = "simulate --d 4 --n 100 --gamma 1 --seed 0 --replicates 4 --statistics ipr --json"
    assert main([*line.split(), "--context", "rope", "--rope-base", "500", "--rotated", "2"]) == 0
    rope = Rope.geometric(4, 500.0, rotated=2)
    context, beta = Rotary(scaling.Uniform(4), rope), 100 ** (2 / 3)
    found = scaling.simulate(context, n=100, beta=beta, replicates=4, seed=0, statistics=["ipr"])
    assert f'"mean": {found.statistics["ipr"].mean}' in capsys.readouterr().out
