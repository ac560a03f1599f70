"""Rotary position embedding against exact arithmetic and against complex numbers."""

import itertools
import json
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling import Rope
from scaling.rope import (
    FractionsOfATurn,
    Geometric,
    GivenFrequencies,
    Position,
    Turns,
    Yarn,
    to_half_split,
    to_interleaved,
)
from tests.scaling.points import unit

PLANES = 8
POSITIONS = [0, 1, 2, 77, 10**6, 2**24 + 1, 10**9 - 1, 10**9, 2**32 - 1, 2**32, 2**32 + 1, 10**12 + 7, 10**18, 2**63 - 1]
PAIRINGS = ("interleaved", "half-split")
# Angles in radians that are not close to a nice fraction of a turn, one zero, one negative, one above a turn.
ANGLES = (1.0, 0.31, 0.0, -0.07, 9.1)


def exact_phases(positions, base, planes):
    """position * base^{-l/planes} / (2 pi) modulo one turn in [-1/2, 1/2), from mpmath."""
    with mpmath.workdps(60):
        theta = [mpmath.mpf(base) ** (-mpmath.mpf(plane) / planes) / (2 * mpmath.pi) for plane in range(planes)]
        return np.array([[float(p * t - mpmath.floor(p * t + 0.5)) for p in positions] for t in theta])


def off(phase, exact):
    """The distance on the circle, in turns."""
    gap = np.abs(np.asarray(phase, np.float64) - exact)
    return np.minimum(gap, 1 - gap)


def by_complex_numbers(x, angles, position, pairing):
    """R_p x for a single vector, each plane a complex number turned by exp(i p angle)."""
    planes = len(angles)
    if pairing == "interleaved":
        first, second = x[0 : 2 * planes : 2], x[1 : 2 * planes : 2]
    else:
        first, second = x[:planes], x[planes : 2 * planes]
    z = (first + 1j * second) * np.exp(1j * position * np.asarray(angles))
    out = x.copy()
    if pairing == "interleaved":
        out[0 : 2 * planes : 2], out[1 : 2 * planes : 2] = z.real, z.imag
    else:
        out[:planes], out[planes : 2 * planes] = z.real, z.imag
    return out


# Phases


@pytest.fixture(scope="module")
def turns():
    return Turns.of(Geometric(10_000, PLANES).turns)


def test_phases_on_the_host_are_exact(turns):
    exact = exact_phases(POSITIONS, 10_000, PLANES)
    bound = 2e-16 + np.array([float(p) for p in POSITIONS]) * 2.0**-97
    phase = turns.host_phase(POSITIONS)
    assert np.all(off(phase, exact) <= bound)
    assert phase.min() >= -0.5 and phase.max() < 0.5
    assert np.all(bound[:11] < 1e-12)


def test_phases_in_float32_are_right_to_1e_6_at_position_1e9(turns):
    positions = np.concatenate([POSITIONS, np.random.default_rng(1).integers(0, 10**9, 200), 10**9 - np.arange(100)])
    exact = exact_phases(positions.tolist(), 10_000, PLANES)
    words = Position.of(positions)
    phase, (cos, sin) = jax.jit(lambda t, high, low: (t.phase(high, low), t.rotation(high, low)))(turns, *words)
    assert phase.dtype == cos.dtype == jnp.float32
    assert off(phase, exact).max() < 2e-8  # turns: 1.3e-7 radians
    assert np.abs(np.asarray(cos, np.float64) - np.cos(2 * np.pi * exact)).max() < 1.5e-7
    assert np.abs(np.asarray(sin, np.float64) - np.sin(2 * np.pi * exact)).max() < 1.5e-7
    naive = positions.astype(np.float32) * np.array([float(t) for t in Geometric(10_000, PLANES).turns], np.float32)[:, None]
    assert off(naive - np.round(naive), exact).max() > 0.4  # what the exact reduction is for


def test_phases_in_float64_on_the_device_are_those_of_the_host(turns):
    words = Position.of(POSITIONS)
    with jax.enable_x64(True):
        phase, (cos, sin) = jax.jit(lambda t, *word: (t.phase(*word, jnp.float64), t.rotation(*word, jnp.float64)))(turns, *words)
    host = turns.host_phase(POSITIONS)
    assert off(phase, host).max() < 2e-16
    assert np.abs(np.asarray(cos) - np.cos(2 * np.pi * host)).max() < 1e-15
    assert np.abs(np.asarray(sin) - np.sin(2 * np.pi * host)).max() < 1e-15


@settings(max_examples=25)
@given(st.integers(0, 2**63 - 1), st.fractions(-3, 3, max_denominator=10**6))
def test_phases_of_fractions_of_a_turn(position, turn):
    exact = position * turn % 1
    got = Turns.of([turn]).host_phase(position)
    assert got.shape == (1,)
    assert off(got[0], float(exact)) <= 3e-16 + position * 2.0**-97


@settings(max_examples=25)
@given(st.integers(0, 2**63 - 1), st.integers(0, 2**62))
def test_positions_in_words(a, b):
    words = Position.of([a]).plus(Position.of([b]))
    high, low = (int(np.asarray(word)[0]) for word in words)
    assert high * 2**32 + low == a + b


# Frequencies


def test_geometric_frequencies():
    for base, planes in ((10_000, 4), (500_000.0, 3), (1.5, 2)):
        with mpmath.workdps(60):
            for plane, turn in enumerate(Geometric(base, planes).turns):
                exact = mpmath.mpf(base) ** (-mpmath.mpf(plane) / planes) / (2 * mpmath.pi)
                assert abs(mpmath.mpf(turn.numerator) / turn.denominator - exact) < mpmath.mpf(2) ** -150


def test_given_frequencies():
    with mpmath.workdps(80):
        for angle, turn in zip((*ANGLES, 1e15), GivenFrequencies([*ANGLES, 1e15]).turns, strict=True):
            exact = mpmath.frac(mpmath.mpf(angle) / (2 * mpmath.pi))
            assert 0 <= turn < 1 and abs(mpmath.mpf(turn.numerator) / turn.denominator - exact) < mpmath.mpf(2) ** -150


def yarn_of_transformers(base, dim, factor, length, beta_fast, beta_slow):
    """Angles as `_compute_yarn_parameters` of transformers (v4.46) has them, written again in float64."""
    ends = [dim * math.log(length / (beta * 2 * math.pi)) / (2 * math.log(base)) for beta in (beta_fast, beta_slow)]
    low, high = max(math.floor(ends[0]), 0), min(math.ceil(ends[1]), dim - 1)
    ramp = np.clip((np.arange(dim // 2) - low) / (high - low if high != low else 0.001), 0, 1)
    plain = base ** -(np.arange(0, dim, 2) / dim)
    return plain / factor * ramp + plain * (1 - ramp)


@pytest.mark.parametrize(
    "base, planes, factor, length, fast, slow",
    [
        (10_000, 64, 16, 4096, 32, 1),
        (1e6, 32, 4, 32768, 32, 1),
        (500.0, 5, 2.5, 100, 8, 1.5),
        (500.0, 5, 4, 4096, 32, 1),  # the ramp ends beyond the last plane
        (9.0, 2, 8, 7, 4, 1),
    ],
)
def test_yarn_frequencies(base, planes, factor, length, fast, slow):
    frequencies = Yarn(base, planes, factor, length, fast, slow)
    expected = yarn_of_transformers(base, 2 * planes, factor, length, fast, slow)
    np.testing.assert_allclose([float(turn) * 2 * math.pi for turn in frequencies.turns], expected, rtol=1e-13)


def test_yarn_without_stretching_is_geometric():
    assert Yarn(10_000, 8, 1, 2048).turns == Geometric(10_000, 8).turns
    # every plane turns more than beta_fast times: nothing to stretch
    assert Yarn(2.0, 2, 8, 10**6).turns == Geometric(2.0, 2).turns


RELATED = [
    (Geometric(4, 4), 2),
    (Geometric(16, 4), 3),
    (Geometric(10_000, 2), 1),
    (Geometric(10_000, 32), 24),
    (Geometric(8, 6), 4),
    (Geometric(500_000, 64), 0),
    (Geometric(6, 3), 0),
    (Yarn(10_000, 8, 8, 2048), 6),
    (Yarn(9, 4, 2, 100, 8, 1), 2),
    (Yarn(16, 4, 2, 40, 3, 1), 3),  # 16 : 8 : 3 : 1, where relations of neighbours alone would miss 8 = 2 * 3 + 2 * 1
    (FractionsOfATurn(["1/2", "1/3", "1/6"]), 3),
    (FractionsOfATurn([0, "2/5", "4/5"]), 3),
]


@pytest.mark.parametrize("frequencies, count", RELATED, ids=lambda value: str(value))
def test_relations_hold_and_span_all_that_a_search_finds(frequencies, count):
    basis = frequencies.relations()
    theta = (Fraction(1), *frequencies.turns)
    for relation in basis:
        assert abs(sum(k * t for k, t in zip(relation, theta, strict=True))) < Fraction(1, 2**100)
    matrix = np.array(basis, float).reshape(count, len(theta))
    assert count == 0 or np.linalg.matrix_rank(matrix) == count
    if len(theta) > 5:
        return
    vectors = np.array(list(itertools.product(range(-4, 5), repeat=len(theta))))
    found = vectors[np.abs(vectors @ np.array(theta, float)) < 1e-13]  # as near to 0 by chance: one in 1e7
    for v in found:  # an integer combination of the basis: no relation is missing, and no multiple stands for one
        combination = np.linalg.lstsq(matrix.T, v, rcond=None)[0].round() if count else np.zeros(0)
        assert np.array_equal(combination @ matrix, v)


def test_unknown_relations():
    assert Geometric(10_000.5, 4).relations() is None
    assert GivenFrequencies(ANGLES).relations() is None
    assert Yarn(10_000, 4, 1.5, 2048).relations() is None


# Rotations


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("d", [10, 13])
def test_rotations_are_those_of_complex_numbers(d, pairing):
    rope = Rope(d, GivenFrequencies(ANGLES), pairing=pairing)
    x = np.random.default_rng(d).normal(size=(4, d))
    positions = np.array([0, 1, 6, 1000])
    expected = np.array([by_complex_numbers(row, ANGLES, p, pairing) for row, p in zip(x, positions, strict=True)])
    np.testing.assert_allclose(rope.rotate(x, positions), expected, atol=1e-12)
    back = np.array([by_complex_numbers(row, ANGLES, -p, pairing) for row, p in zip(x, positions, strict=True)])
    np.testing.assert_allclose(rope.rotate(x, positions, inverse=True), back, atol=1e-12)
    query = unit(d, 3)
    expected = np.array([by_complex_numbers(query, ANGLES, -(1 + p), pairing) for p in positions])
    np.testing.assert_allclose(rope.targets(query, positions), expected, atol=1e-12)
    np.testing.assert_array_equal(rope.rotate(x, 0), x)
    assert np.array_equal(np.sort(rope.coordinates.ravel()), np.arange(10))


@pytest.mark.parametrize("rotated, d", [(6, 6), (4, 7)])
def test_conversion_between_the_pairings(rotated, d):
    rng = np.random.default_rng(5)
    query, key = rng.normal(size=(2, d))
    ropes = {pairing: Rope.geometric(d, 100.0, rotated=rotated, pairing=pairing) for pairing in PAIRINGS}
    converted = to_half_split(key, rotated)
    np.testing.assert_array_equal(to_interleaved(converted, rotated), key)
    np.testing.assert_array_equal(converted[: rotated // 2], key[0:rotated:2])
    np.testing.assert_array_equal(converted[rotated:], key[rotated:])
    # R_half-split = P R_interleaved P^T
    np.testing.assert_allclose(
        ropes["half-split"].rotate(converted, 9), to_half_split(ropes["interleaved"].rotate(key, 9), rotated), atol=1e-14
    )
    logits = {
        (weights, rope): ropes[rope].rotate(weights_of(query), 2) @ ropes[rope].rotate(weights_of(key), 9)
        for weights, weights_of in (("interleaved", lambda x: x), ("half-split", lambda x: to_half_split(x, rotated)))
        for rope in PAIRINGS
    }
    right = logits["interleaved", "interleaved"]
    assert abs(logits["half-split", "half-split"] - right) < 1e-14
    assert abs(logits["interleaved", "half-split"] - right) > 0.05  # the mix: no error, another score
    assert abs(logits["half-split", "interleaved"] - right) > 0.05
    device = to_half_split(jnp.asarray(key, jnp.float32), rotated)
    assert isinstance(device, jax.Array)
    np.testing.assert_array_equal(device, converted.astype(np.float32))


vectors = st.tuples(*[st.integers(-99, 99)] * 7).map(lambda x: np.array(x) / 10)
positions = st.integers(0, 10**9)
rotations = st.tuples(  # the arguments of a Rope; made in the test, where the type checks may draw random numbers
    st.one_of(
        st.tuples(st.just(Geometric), st.tuples(st.floats(1.5, 1e7), st.integers(1, 3))),
        st.tuples(st.just(GivenFrequencies), st.tuples(st.lists(st.floats(-100, 100), min_size=1, max_size=3))),
        st.tuples(st.just(FractionsOfATurn), st.tuples(st.lists(st.fractions(-2, 2, max_denominator=9), min_size=1, max_size=3))),
    ),
    st.sampled_from(PAIRINGS),
)


def rope_of(rotation):
    (kind, arguments), pairing = rotation
    return Rope(7, kind(*arguments), pairing=pairing)


@settings(max_examples=25)
@given(rotations, vectors, positions, positions)
def test_rotations_form_a_group_of_isometries(rotation, x, a, b):
    rope = rope_of(rotation)
    once = rope.rotate(x, a)
    assert np.linalg.norm(once) == pytest.approx(np.linalg.norm(x), rel=1e-13)
    np.testing.assert_allclose(rope.rotate(once, b), rope.rotate(x, a + b), atol=1e-12)
    np.testing.assert_allclose(rope.rotate(once, a, inverse=True), x, atol=1e-12)


@settings(max_examples=25)
@given(rotations, vectors, vectors, positions, positions, positions)
def test_scores_depend_on_relative_positions(rotation, query, key, a, b, shift):
    rope = rope_of(rotation)
    score = rope.rotate(query, a) @ rope.rotate(key, b)
    assert score == pytest.approx(rope.rotate(query, a + shift) @ rope.rotate(key, b + shift), abs=1e-10)
    # <R_p q, R_i x> = <R_{i-p}^T q, x>
    assert score == pytest.approx(rope.rotate(query, abs(b - a), inverse=b >= a) @ key, abs=1e-10)


@settings(max_examples=25)
@given(st.permutations(range(3)), st.sampled_from(PAIRINGS), vectors, vectors, positions)
def test_scores_are_invariant_under_a_common_permutation(order, pairing, query, key, position):
    angles = np.array([1.3, 0.2, -0.01])
    rope, permuted = (Rope(7, GivenFrequencies(values), pairing=pairing) for values in (angles, angles[list(order)]))
    places = np.arange(7)
    places[rope.coordinates] = rope.coordinates[:, list(order)]
    score = rope.rotate(query, 0) @ rope.rotate(key, position)
    assert score == pytest.approx(query[places] @ permuted.rotate(key[places], position), abs=1e-10)


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_targets_on_the_device_are_those_of_the_host(pairing):
    rope = Rope.geometric(9, rotated=8, pairing=pairing, first=3)
    query = unit(9, 4)
    numbers = np.array([0, 1, 2**32 - 2, 2**32 - 3, 2**32, 10**9, 10**12])
    high, low = Position.of(numbers)

    @jax.jit
    def on_device(rope, query, high, low):  # the embedding is an argument: its words are arrays, the rest is static
        position = rope.position(high, low)
        targets = rope.device_targets(query, position)
        return targets, rope.rotate(jnp.tile(query, (len(low), 1)), position, inverse=True)

    targets, rotated = on_device(rope, jnp.asarray(query, jnp.float32), high, low)
    expected = rope.targets(query, numbers)
    np.testing.assert_allclose(expected[0], rope.rotate(query, 3, inverse=True), atol=1e-15)
    np.testing.assert_allclose(targets.T, expected, atol=3e-7)
    np.testing.assert_allclose(rotated, expected, atol=3e-7)
    assert jax.tree.structure(rope) == jax.tree.structure(Rope.geometric(9, 10_000, rotated=8, pairing=pairing, first=3))


def test_which_queries_are_fixed():
    turned = Rope(5, FractionsOfATurn(["1/3", 2]), pairing="interleaved")
    half = Rope(5, FractionsOfATurn(["1/3", 2]), pairing="half-split")
    for rope, expected in ((turned, [False, False, True, True, True]), (half, [False, True, False, True, True])):
        assert [rope.fixes(query) for query in np.eye(5)] == expected
        assert [np.allclose(rope.targets(query, [0, 1]), query) for query in np.eye(5)] == expected


def test_descriptions_are_json_and_the_same_for_equal_settings():
    ropes = [
        (Rope.geometric(8, 10_000), Rope(8, Geometric(10_000.0, 4))),
        (Rope(8, GivenFrequencies([1, 0])), Rope(8, GivenFrequencies(np.array([1.0, -0.0])))),
        (Rope(8, FractionsOfATurn(["1/5", "4/3"])), Rope(8, FractionsOfATurn([(2, 10), Fraction(1, 3)]))),
        (Rope(8, Yarn(10_000, 4, 8, 2048)), Rope(8, Yarn(10_000.0, 4, 8.0, 2048.0, 32.0, 1.0))),
    ]
    for a, b in ropes:
        assert json.dumps(a.describe()) == json.dumps(b.describe())
        assert json.loads(json.dumps(a.describe())) == a.describe()
    assert len({json.dumps(a.describe()) for a, _ in ropes}) == 4
    assert Rope.geometric(8, first=2).describe() != Rope.geometric(8).describe()


Q = np.eye(4)[0]
BAD = [
    (lambda: Rope.geometric(5), "must be even where all coordinates are rotated (give `rotated` for fewer), but was 5."),
    (lambda: Rope.geometric(6, rotated=3), "Argument `rotated` must be an even integer >= 2 and <= 6, but was 3."),
    (lambda: Rope.geometric(6, rotated=8), "Argument `rotated` must be an even integer >= 2 and <= 6, but was 8."),
    (lambda: Rope.geometric(6, rotated=0), "Argument `rotated` must be an integer >= 2, but was 0."),
    (lambda: to_half_split(np.ones(5)), "Argument `rotated` must be an even integer >= 2 and <= 5, but was 5."),
    (lambda: to_interleaved(np.ones(6), 3), "Argument `rotated` must be an even integer >= 2 and <= 6, but was 3."),
    (lambda: to_half_split(2.0), "Argument `x` must be an array [..., d], but was of shape ()."),
    (lambda: Rope(4, Geometric(100, 3)), "Argument `frequencies` must be of at most 2 planes where d = 4, but was of 3 planes."),
    (lambda: Rope(4, [0.1]), "Argument `frequencies` must be frequencies (such as scaling.rope.Geometric), but was [0.1]."),
    (lambda: Rope(1, Geometric(100, 1)), "Argument `d` must be an integer >= 2, but was 1."),
    (lambda: Rope.geometric(4, 1.0), "Argument `base` must be finite and > 1, but was 1.0."),
    (lambda: Rope.geometric(4, math.inf), "Argument `base` must be finite and > 1, but was inf."),
    (lambda: Geometric(math.nan, 2), "Argument `base` must be finite and > 1, but was nan."),
    (lambda: Geometric(10, 0), "Argument `planes` must be an integer >= 1, but was 0."),
    (lambda: GivenFrequencies([]), "Argument `angles` must be a list of at least one number, but was of shape (0,)."),
    (lambda: GivenFrequencies([1, math.nan]), "Argument `angles` must be finite and at most 1e+15 in size, but was nan."),
    (lambda: GivenFrequencies([1, -math.inf]), "Argument `angles` must be finite and at most 1e+15 in size, but was -inf."),
    (lambda: GivenFrequencies(["a"]), "Argument `angles` must be a list of real numbers, but was of strings."),
    (lambda: FractionsOfATurn([]), "Argument `turns` must be a list of at least one fraction, but was []."),
    (lambda: FractionsOfATurn("1/5"), "Argument `turns` must be a list of at least one fraction, but was '1/5'."),
    (lambda: FractionsOfATurn(["1/0"]), "with denominators other than 0, but was '1/0'."),
    (lambda: FractionsOfATurn([(1, 0)]), "with denominators other than 0, but was (1, 0)."),
    (lambda: FractionsOfATurn([0.2]), "with denominators other than 0, but was 0.2."),
    (lambda: FractionsOfATurn(["one"]), "with denominators other than 0, but was 'one'."),
    (lambda: Rope.geometric(4, pairing="half_split"), "(did you mean `half-split`?), but was 'half_split'."),
    (lambda: Rope.geometric(4, pairing="interleave"), "(did you mean `interleaved`?), but was 'interleave'."),
    (lambda: Yarn(10_000, 4, 0.5, 2048), "Argument `factor` must be finite and >= 1, but was 0.5."),
    (lambda: Yarn(10_000, 4, 2, 2048, 1, 2), "Argument `beta_fast` must be finite and >= 2, but was 1."),
    (lambda: Yarn(10_000, 4, 2, 2048, 1, 0), "Argument `beta_slow` must be finite and > 0, but was 0."),
    (lambda: Yarn(10_000, 4, 2, 6), "Argument `original_length` must be >= 2 pi beta_slow = 6.28319, but was 6."),
    (lambda: Rope.geometric(4, first=-1), "Argument `first` must be an integer >= 0, but was -1."),
    (lambda: Rope.geometric(4, first=2 * 10**18), "Argument `first` must be <= 1e18, but was 2000000000000000000."),
    (lambda: Rope.geometric(4).rotate(Q, -1), "Argument `position` must be an integer >= 0 and below 2^63"),
    (lambda: Rope.geometric(4).rotate(Q, 0.5), "or an array of such, but was 0.5."),
    (lambda: Rope.geometric(4).rotate(Q, [1, math.nan]), "or an array of such, but was nan."),
    (lambda: Rope.geometric(4).rotate(Q, 2**63), "or an array of such, but was 9223372036854775808."),
    (lambda: Rope.geometric(4).rotate(Q, 2**70), "or an array of such, but was 1180591620717411303424."),
    (lambda: Rope.geometric(4).rotate(Q, True), "or an array of such, but was True."),
    (lambda: Rope.geometric(4).rotate(Q, "1"), "or an array of such, but was '1'."),
    (lambda: Rope.geometric(4).targets(Q, [-2]), "Argument `number` must be an integer >= 0"),
    (lambda: Rope.geometric(4).targets(2 * Q, [2]), "Argument `query` must have norm 1, but was of norm 2."),
    (lambda: Rope.geometric(6).rotate(Q, 1), "Argument `x` must have 6 entries along its last axis, but was of shape (4,)."),
    (lambda: Rope.geometric(6).rotate(jnp.ones(4), 1), "Argument `x` must have 6 entries along its last axis"),
]


@pytest.mark.parametrize("call, message", BAD, ids=[message for _, message in BAD])
def test_bad_input(call, message):
    with pytest.raises(ValueError) as caught:
        call()
    text = str(caught.value)
    assert message in text and text.startswith("Argument `") and "\n" not in text
