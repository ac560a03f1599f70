"""Closed subgroups of the torus, the phase law of a rotary orbit, and the averaged intensity: against brute force over integer
vectors, Bessel functions, and the orbit itself."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import special

from scaling import Mixture, PhaseLaw, Quadratic, Rope, Uniform, VonMisesFisher, log_orbit_intensity
from scaling.rope import (
    FractionsOfATurn,
    Geometric,
    GivenFrequencies,
    Subgroup,
    birkhoff_mean,
    empirical_mean,
    search_relations,
)
from scaling.rope._haar import haar_mean
from scaling.sphere import log_area
from tests import stat
from tests.scaling.points import log_rho, unit

FIFTHS = FractionsOfATurn(["1/5", "2/5"])


def boxes(planes: int, bound: int):
    return itertools.product(range(-bound, bound + 1), repeat=planes)


def character(k):
    return lambda phases: np.cos(2 * np.pi * phases @ np.array(k, float))


def log_constant(d: int) -> float:
    a = (d - 1) / 2
    return a * math.log(2 * math.pi) - math.lgamma(a + 1)


def log_bessel_mean(rope: Rope, query, v) -> float:
    """log of the mean of e^{<v, u>} under independent uniform phases: one I_0 a plane."""
    amplitude = np.hypot(*query[rope.coordinates]) * np.hypot(*v[rope.coordinates])
    rest = np.setdiff1d(np.arange(rope.d), rope.coordinates)
    return float(query[rest] @ v[rest] + np.sum(np.log(special.ive(0, amplitude)) + amplitude))


# Frequencies written as offset / components + sum of square roots of primes times directions.
STRUCTURES = [
    (1, (0, 0), ()),
    (6, (1, 4, 3), ()),
    (1, (0, 0), ((100, 1),)),
    (1, (0, 0, 0), ((1, 0, 1), (0, 1, 1))),
    (4, (1, 2, 0), ((0, 1, 2),)),
    (3, (1, 1, 0), ((1, 0, 0), (0, 2, 1))),
    (1, (0, 0), ((1, 0), (0, 1))),
]


@pytest.mark.parametrize(("components", "offset", "directions"), STRUCTURES)
def test_subgroup_is_what_its_relations_annihilate(components, offset, directions):
    theta = np.array(offset) / components
    for square, row in zip((2, 3), directions, strict=False):
        theta = theta + np.sqrt(square) * np.array(row)
    bound = 100 if directions == ((100, 1),) else 6
    ks = np.array(list(boxes(len(offset), bound)))
    residuals = ks @ theta - np.rint(ks @ theta)
    related = ks[np.abs(residuals) < 1e-9]
    rows = [(-int(np.rint(k @ theta)), *k.tolist()) for k in related]
    group = Subgroup.from_relations(len(offset), rows[:50] + rows[-50:])
    assert group.dimension == len(directions)
    for k in ks[:: len(ks) // 300 + 1]:
        assert group.annihilates(k.tolist()) == bool(np.any(np.all(related == k, axis=1)))
    # Every relation comes from the basis that the group states, and a factor of a relation is one: it is saturated.
    again = Subgroup.from_relations(len(offset), [[2 * entry for entry in row] for row in group.relations()])
    assert (again.components, again.dimension) == (group.components, group.dimension)
    # The Haar mean of a character is 1 or 0.
    for k in (offset, *directions, *ks[:: len(ks) // 5], *related[:: len(related) // 5 + 1]):
        mean, error = haar_mean(group, character(k))
        assert abs(mean - group.annihilates([int(entry) for entry in k])) <= error + 1e-12
        assert error < 1e-12
    sample = group.sample(np.random.default_rng(0), 100)
    assert np.all(np.abs(sample) <= 0.5)
    for k in related[:: len(related) // 5 + 1]:
        np.testing.assert_allclose(character(k)(sample), 1, atol=1e-10)


@pytest.mark.parametrize("turns", [["1/5", "2/5"], ["1/6", "3/4", "0"], ["5/12", "1/9"], ["1/3", "1/1000003"]])
def test_finite_orbit_is_the_group(turns):
    fractions = [Fraction(turn) for turn in turns]
    group = Subgroup.of(FractionsOfATurn(turns))
    period = math.lcm(*(f.denominator for f in fractions))
    assert group.order == group.components == period
    if period < 1000:
        elements = group.points(np.arange(period, dtype=np.uint64), np.zeros((period, 0), np.uint64))
        found = {tuple(round(x * period) % period for x in row) for row in elements.tolist()}
        assert found == {tuple(int(i * f * period) % period for f in fractions) for i in range(period)}


def test_relations_of_geometric_frequencies():
    group = Subgroup.of(Geometric(10_000, 32))
    assert (group.dimension, group.components) == (8, 1)
    assert group.annihilates([1, *[0] * 7, -10, *[0] * 23]) and not group.annihilates([1, -10, *[0] * 30])
    assert Subgroup.of(Geometric(10_000, 2)).directions == ((100, 1),)
    assert Subgroup.of(Geometric(10_001, 3)).dimension == 3
    assert [planes for planes, _ in group.factors()] == [[i, i + 8, i + 16, i + 24] for i in range(8)]
    assert group.restricted([0, 3]).dimension == 2 and group.restricted([0, 8]).directions == ((10, 1),)
    # A finite factor too large for 64-bit products, and one too large for 64 bits.
    for denominators in ((2**31 - 1, 2**31 - 19), (10**9 + 7, 10**9 + 9, 10**9 + 21)):
        law = Subgroup.of(FractionsOfATurn([(1, q) for q in denominators]))
        assert law.components == math.prod(denominators)
        sample = law.sample(np.random.default_rng(0), 50)
        scaled = sample * np.array(denominators)
        np.testing.assert_allclose(scaled, np.round(scaled), atol=1e-5)


def test_search_finds_what_is_there_and_says_what_it_did():
    group = Subgroup.of(GivenFrequencies(10_000.0 ** (-np.arange(8) / 8)), search_bound=20)
    assert group.directions == Subgroup.of(Geometric(10_000, 8)).directions
    assert group.origin == "searched: integer vectors with at most 3 non-zero entries of size at most 20"
    assert Subgroup.of(GivenFrequencies([1, 2**0.5, 1 + 2**0.5]), search_bound=3).relations() == ((0, 1, 1, -1),)
    mixed = Subgroup.of(GivenFrequencies([2 * np.pi / 5, 1.0, -2.5, 0.0]), search_bound=5)
    assert (mixed.components, mixed.dimension) == (5, 1) and mixed.annihilates([5, 5, 2, 1])
    # Terms whose sums lie on both sides of a whole turn, and more relations than planes.
    assert Subgroup.of(GivenFrequencies([0.5] * 6), search_bound=4).dimension == 1
    # To 96 bits: computed frequencies, without relations, at a bound far beyond what float64 carries.
    frequencies = Geometric(10_000.5, 6)
    assert search_relations(frequencies.turns, 60, [Fraction(1, 2**96)] * 6) == ()
    # Random angles have no relations, at the largest bounds allowed.
    rng = np.random.default_rng(0)
    for planes, bound in ((2, 700), (4, 80), (8, 40)):
        assert Subgroup.of(GivenFrequencies(rng.uniform(0, 3, planes)), search_bound=bound).dimension == planes


def test_given_relations_are_verified():
    angles = GivenFrequencies([1.0, 0.3, 0.1])
    group = Subgroup.of(angles, relations=[[0, 0, 2, -6]])
    assert group.dimension == 2 and group.annihilates([0, 1, -3])  # the vector divided by 2 is a relation too
    assert Subgroup.of(angles, relations=[[0, 0, 2, -6]], search_bound=10).dimension == 1
    assert Subgroup.of(angles, relations=[]).dimension == 3
    refused = [
        ({}, "Argument `relations` must be given .* or searched"),
        ({"relations": [[0, 1, -3, 0]]}, "must hold for the frequencies to within .* residual"),
        ({"relations": [[0, 1, -3]]}, "integer vectors of 4 entries"),
        ({"search_bound": 0}, "`search_bound` must be an integer >= 1"),
        ({"search_bound": 10**4}, "`search_bound` must be at most .* known to a relative precision of 2.2e-16"),
    ]
    for options, message in refused:
        with pytest.raises(ValueError, match=message):
            Subgroup.of(angles, **options)
    with pytest.raises(ValueError, match="be left out: these frequencies know their own"):
        Subgroup.of(FIFTHS, relations=[])
    with pytest.raises(ValueError, match="some frequencies satisfy"):
        Subgroup.from_relations(1, [[1, 0]])
    with pytest.raises(ValueError, match="at most 183 for a search among 32"):
        Subgroup.of(Geometric(1.5, 32), search_bound=184)


def test_quadrature_errors_are_honest():
    # exp(8 cos) has every frequency: nodes that are multiples of the directions (4, 64, 1000) would see a constant.
    for directions in (((64, 1),), ((4, 1), (0, 3)), ((1, 0, 0), (0, 1, 0), (0, 0, 1))):
        group = Subgroup(1, (0,) * len(directions[0]), directions, "")
        mean, error = haar_mean(group, lambda x: np.exp(8 * np.cos(2 * np.pi * (x[:, 0] - 0.1))))
        assert abs(mean - special.i0(8)) <= error < 1e-9 * mean
    # Components beside a three-dimensional torus, and a period that is not summed.
    group = Subgroup(6, (1, 2, 0, 0), ((0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)), "")
    for k in ((2, 2, 0, 0), (1, 1, 1, 1)):
        mean, error = haar_mean(group, character(k))
        assert abs(mean - group.annihilates(k)) <= error + 1e-15 < 1e-8
    large = Subgroup.of(FractionsOfATurn([(1, 1009), (2, 1013)]))
    mean, error = haar_mean(large, lambda x: np.exp(np.cos(2 * np.pi * x[:, 0]) + np.cos(2 * np.pi * x[:, 1])))
    assert abs(mean - special.i0(1) ** 2) <= error < 0.05


@pytest.mark.parametrize(("d", "pairing"), [(6, "interleaved"), (7, "half-split")])
def test_targets_of_phases_are_the_orbit(d, pairing):
    rope = Rope(d, Geometric(10_001, 3), pairing=pairing)
    law = PhaseLaw.of(rope, unit(d, 1))
    number = np.array([0, 1, 12345])
    np.testing.assert_allclose(law.targets(rope.turns.host_phase(number + 1).T), rope.targets(law.query, number), atol=1e-14)
    assert (law.dimension, law.period) == (3, None)
    assert law.describe()["relations"] == "known"


def test_planes_without_weight_do_not_matter():
    rope = Rope(6, FractionsOfATurn(["1/5", "2/3", "1/7"]), pairing="half-split")
    assert PhaseLaw.of(rope, unit(6, 1)).period == 105
    query = np.array([0.6, 0, 0, 0, 0, 0.8])  # planes 0 and 2
    law = PhaseLaw.of(rope, query)
    assert (law.active, law.period) == ((0, 2), 35)
    np.testing.assert_allclose(np.unique(law.sample(3, 2000).round(9), axis=0).shape, (35, 6))
    # Nothing moves: no relations are needed, and the averaged density is that of the query.
    still = Rope(5, GivenFrequencies([1.0, 0.3]))
    fixed = PhaseLaw.of(still, [0, 0, 0, 0, 1])
    density = VonMisesFisher(unit(5, 2), 3)
    assert (fixed.period, fixed.dimension) == (1, 0)
    log_intensity, _ = log_orbit_intensity(density, fixed)
    assert log_intensity == pytest.approx(density.d2q([0, 0, 0, 0, 1]).log_intensity, abs=1e-12)
    assert empirical_mean(still, [0, 0, 0, 0, 1], lambda u: u[:, 4], 1e17) == 1


# Frequencies; how far the mean over 2e5 keys may be from the limit, relatively; whether the subgroup is a proper one. The
# distance is c / n, c the sum of |Fourier coefficient| / (distance of its frequency from an integer).
ORBITS = [
    (Geometric(4, 2), 1e-4, True),  # theta_0 = 2 theta_1: a circle in the torus
    (Geometric(10_001, 2), 2e-3, False),
    (FractionsOfATurn(["1/3", "1/6"]), 1e-4, True),
]


@pytest.mark.parametrize(("frequencies", "near", "proper"), ORBITS)
def test_orbit_average_tends_to_the_phase_law(frequencies, near, proper):
    """Proposition F.7, and the full torus in place of a proper subgroup is visibly wrong."""
    rope = Rope(4, frequencies)
    query, v = unit(4, 6), 4 * unit(4, 7)
    law = PhaseLaw.of(rope, query)

    def f(u):
        return np.exp(u @ v)

    mean, error = law.mean(f)
    full = math.exp(log_bessel_mean(rope, query, v))
    assert error < 1e-11 and (abs(full / mean - 1) > 0.02) == proper
    averages = [empirical_mean(rope, query, f, n) for n in (2000, 200_000)]
    assert abs(averages[1] / mean - 1) < near
    if law.period is None:  # the third road knows no relations
        assert birkhoff_mean(rope, query, f, 1e5) == pytest.approx(mean, rel=1e-9)
        assert not proper or full != pytest.approx(mean, rel=1e-2)
    else:
        assert empirical_mean(rope, query, f, 6 * 30_000) == pytest.approx(mean, rel=1e-13)
    draws = np.log(f(law.sample(0, 4000)))
    assert np.std(draws) > 0.1
    stat.assert_bounded_mean(np.exp(draws - 4), mean * math.exp(-4), 0, 1, error=1e-12)


def test_slow_planes_have_not_gone_round():
    rope = Rope.geometric(128, 10_000)
    query = np.zeros(128)
    query[126] = 1  # all weight in the slowest plane: 5.4e4 positions a turn
    law = PhaseLaw.of(rope, query)
    assert abs(law.mean(lambda u: u[:, 126])[0]) < 1e-15
    assert empirical_mean(rope, query, lambda u: u[:, 126], 10_000) > 0.7
    plane = Rope(2, GivenFrequencies([1e-4]))
    assert empirical_mean(plane, [1, 0], lambda u: u[:, 0], 10_000) > 0.7
    assert abs(empirical_mean(plane, [1, 0], lambda u: u[:, 0], 62_832)) < 1e-4


def test_long_periodic_orbits_by_residues():
    rope, query = Rope(4, FIFTHS, first=3), unit(4, 5)

    def f(u):
        return u[:, 0] + u[:, 3] ** 2

    terms = f(rope.targets(query, np.arange(5)))
    for n in (7, 3_000_002, 10**18):
        exact = sum(Fraction(float(t)) * (n // 5 + (i < n % 5)) for i, t in enumerate(terms)) / n
        assert empirical_mean(rope, query, f, n) == pytest.approx(float(exact), rel=1e-14)
    with pytest.raises(ValueError, match="`n` must be at most 1048576 for orbits without a known period"):
        empirical_mean(Rope(4, Geometric(100, 2)), query, f, 1e7)
    with pytest.raises(ValueError, match="`n` must be at most 1048576"):
        birkhoff_mean(rope, query, f, 1e7)
    for bad, message in ((lambda u: u, "of shape"), (lambda u: u[:, 0] + np.nan, "finite numbers"), (lambda u: 1.0, "of shape")):
        with pytest.raises(ValueError, match=f"`f` must map targets .* {message}"):
            empirical_mean(rope, query, bad, 5)


@pytest.mark.parametrize(("d", "planes", "concentration"), [(4, 2, 2), (5, 2, 500), (9, 4, 30), (128, 64, 500)])
def test_intensity_of_von_mises_fisher_keys(d, planes, concentration):
    """The product of Bessel functions on the full torus, a closed form of its own."""
    rope = Rope(d, Geometric(10_007, planes))
    query, mean = unit(d, 6), unit(d, 7)
    density = VonMisesFisher(mean, concentration)
    value, error = log_orbit_intensity(density, PhaseLaw.of(rope, query))
    expected = log_bessel_mean(rope, query, concentration * mean) - concentration - density.log_normaliser
    assert abs(value - log_constant(d) - expected) <= error + 1e-15 * concentration
    assert error < 1e-11


def test_intensity_of_any_density_and_of_mixtures():
    """Log densities written out from the definitions, summed over the orbit or averaged along it."""
    query, constant = unit(4, 8), log_constant(4)
    quadratic = Quadratic(np.diag([3.0, -1.0, 0.5, 0.0]) + 0.3)
    parts = [VonMisesFisher(unit(4, 9), 20), Uniform(4)]
    mixture = Mixture(parts, [0.7, 0.3])
    finite, circle = Rope(4, FIFTHS), Rope(4, Geometric(4, 2))
    for density in (quadratic, mixture, VonMisesFisher(-query, 400)):
        terms = log_rho(density, finite.targets(query, np.arange(5)))
        value, error = log_orbit_intensity(density, PhaseLaw.of(finite, query))
        assert abs(value - constant - np.logaddexp.reduce(terms) + math.log(5)) <= error + 1e-12
    for density in (quadratic, mixture):
        value, error = log_orbit_intensity(density, PhaseLaw.of(circle, query))
        average = birkhoff_mean(circle, query, lambda u, density=density: np.exp(log_rho(density, u)), 1e5)
        assert abs(value - constant - math.log(average)) < 1e-9 and error < 1e-11


def test_intensity_of_an_invariant_density():
    """Remark F.5: a mean direction that does not turn gives C(q); uniform keys in closed form."""
    query = unit(7, 10)
    for rope in (Rope(7, Geometric(10_000, 3)), Rope(7, Geometric(4, 3), pairing="half-split")):
        law = PhaseLaw.of(rope, query)
        density = VonMisesFisher(np.eye(7)[6], 40)
        value, error = log_orbit_intensity(density, law)
        assert abs(value - density.d2q(query).log_intensity) <= error + 1e-13
        uniform, none = log_orbit_intensity(Uniform(7), law)
        assert uniform == pytest.approx(log_constant(7) - log_area(7), abs=1e-13) and none == 0
    with pytest.raises(ValueError, match="`density` must be a density in dimension 7"):
        log_orbit_intensity(Uniform(6), law)
    with pytest.raises(ValueError, match="`query` must have norm 1"):
        PhaseLaw.of(rope, np.ones(7))
    with pytest.raises(ValueError, match=r"`phases` must have shape \(m, 3\), but was of shape \(2, 5\)"):
        law.targets(np.zeros((2, 5)))
    with pytest.raises(ValueError, match="`seed` must be an integer >= 0"):
        law.sample(-1, 3)
