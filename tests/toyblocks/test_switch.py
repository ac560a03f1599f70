"""Section 6 and Appendix C: the conditions on data sets built to meet or miss them, certificates, and sample sizes."""

import math

import numpy as np
import pytest
from scipy import sparse

from tests import stat
from toyblocks.switch import (
    CopyChain,
    cancellation,
    collector_draws,
    collector_law,
    conditions,
    copies_to_span,
    embedded,
    support_ranks,
    uniform_chain,
)

RNG = np.random.default_rng(0)


def independent(chain: CopyChain) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Token, position and BOS vectors, all orthonormal."""
    n, t = len(chain.is_copy), chain.context_length
    basis = np.linalg.qr(RNG.standard_normal((n + t + 1, n + t + 1)))[0]
    return basis[:n], basis[n : n + t], basis[-1]


def attend(inputs: np.ndarray, w_vo: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Outputs of a head at the positions after BOS, from its attention [sequences positions tokens]."""
    return weights @ (inputs @ w_vo.T)


def test_conditions_that_hold_force_the_sink():
    # Positions within the span of the tokens: only then do the copies, which reach back, span the last position.
    chain = uniform_chain(4, 2, 4)
    tokens, positions = RNG.standard_normal((6, 6)), 0.5 * RNG.standard_normal((4, 6))
    sequences = chain.sample(40)
    inputs, outputs = embedded(chain, sequences, tokens, positions, np.zeros(6))
    found = conditions(inputs, outputs, chain.is_copy[sequences], w_vo=np.eye(6))
    assert found.holds and found.missing == 0
    assert not found.copies_span  # to the letter, Proposition 6.1 would say nothing here: copy tokens are two of six
    assert (found.input_rank, found.output_rank, found.value_rank, found.bos_value) == (6, 6, 6, 0.0)
    assert support_ranks(chain, tokens, positions) == (6, 6)
    assert found.full_column_rank.all() and found.margin.min() > 1e-6  # full column rank implies the half-space
    # Whatever attention leaves BOS is bounded by the output, for any attention over any prefix.
    for sequence in inputs[:5, 1:]:
        certified = cancellation(sequence)
        assert certified.excluded and not certified.possible and (sequence @ certified.normal).min() > 0
        mass, shares = RNG.uniform(size=(50, 1)), RNG.dirichlet(np.full(4, 0.3), size=50)
        for left, output in zip(mass[:, 0], np.linalg.norm(mass * shares @ sequence, axis=1), strict=True):
            assert left <= certified.mass_off_sink(output) * (1 + 1e-9)
        tight = certified.weights @ sequence
        assert certified.mass_off_sink(0.3 * float(np.linalg.norm(tight))) == pytest.approx(0.3, rel=1e-6)
        assert certified.mass_off_sink(0) == 0


def test_copy_tokens_that_span_do_not_force_the_sink():
    """Proposition 6.1 to the letter: the copy tokens span the inputs, yet a dormant token attends to itself with value 0."""
    e = np.eye(3)
    # Each of the three is a copy token somewhere, and all of them copy e_0; e_1 is also dormant, in another position.
    context = np.stack([[e[0], e[1] + e[0]], [e[0], e[2]], [e[0], e[0]], [e[0], e[1]]])
    inputs = np.concatenate([np.zeros((4, 1, 3)), context], axis=1)
    is_copy = np.array([[False, True]] * 3 + [[False, False]])
    w_vo = np.diag([1.0, 0.0, 0.0])
    weights = np.zeros((4, 2, 3))
    weights[:, 0, 0] = 1  # the first token attends to BOS
    weights[:3, 1, 1] = 1  # copy tokens to the token before them
    weights[3, 1, 2] = 1  # the dormant e_1 to itself
    outputs = attend(inputs, w_vo, weights)
    np.testing.assert_array_equal(outputs, np.where(is_copy[..., None], e[0], 0))
    found = conditions(inputs, outputs, is_copy, w_vo=w_vo)
    assert found.copies_span and found.bos_value == 0 and found.qualified[[0, 1, 3]].all()
    assert not found.holds and (found.input_rank, found.output_rank, found.missing, found.value_rank) == (3, 1, 2, 1)
    vanishing = cancellation(context[3] @ w_vo.T)
    assert vanishing.possible and vanishing.weights.tolist() == [0, 1]


def test_the_last_position_escapes_corollary_c3():
    """Independent positions: every token is copied, every sequence has full rank, and a dormant token in the last position
    attends to itself with value 0."""
    chain = uniform_chain(3, 2, 3)
    tokens, positions, bos = independent(chain)
    sequences = chain.sample(80)
    inputs, outputs = embedded(chain, sequences, tokens, positions, bos)
    w_vo = np.eye(len(bos)) - np.outer(bos, bos) - np.outer(positions[-1] + tokens[0], positions[-1])
    weights = np.zeros((80, 3, 4))
    for t in range(1, 4):
        token = sequences[:, t - 1]
        target = np.where(chain.is_copy[token], t - 1, np.where((token == 0) & (t == 3), t, 0))
        weights[np.arange(80), t - 1, target] = 1
    np.testing.assert_allclose(attend(inputs, w_vo, weights), outputs, atol=1e-14)
    copied = {int(s[t - 1]) for s in sequences for t in (1, 2) if chain.is_copy[s[t]]}
    assert copied == set(range(5)) and (weights[:, 2, 3] == 1).any()
    found = conditions(inputs, outputs, chain.is_copy[sequences], w_vo=w_vo)
    assert found.full_column_rank.all() and found.bos_value == pytest.approx(0, abs=1e-14)
    assert not found.holds and (found.input_rank, found.output_rank) == support_ranks(chain, tokens, positions) == (7, 6)
    # Without the last position the same holds once more of the position before it: copies reach back.
    assert conditions(inputs[:, :-1], outputs[:, :-1]).missing >= 1


def test_cancellation_finds_the_combination():
    values = np.array([[2.0, 0.0], [-1.0, 3.0], [-1.0, -1.0], [5.0, 5.0]]) * 1e-3
    found = cancellation(values)
    assert found.possible and not found.excluded and found.mass_off_sink(1e-9) == 1
    assert found.weights.min() >= 0 and found.weights.sum() == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(found.weights @ values, 0, atol=1e-17)
    assert np.sum(found.weights > 1e-9) >= 2
    found = cancellation(values[[0, 1, 3]])
    assert found.excluded and found.nearest.lower == pytest.approx(1e-3 * math.sqrt(2), rel=1e-12)  # of the line x + y = 2e-3


def test_half_space_without_full_rank_and_neither():
    inputs = np.zeros((2, 4, 2))
    inputs[0, 1:] = [[1, 0], [1, 1], [1, -1]]
    inputs[1, 1:] = [[1, 0], [-1, 1], [-1, -1]]
    found = conditions(inputs, inputs[:, 1:])
    assert found.full_column_rank.tolist() == [False, False] and found.qualified.tolist() == [True, False]
    assert found.margin[0] == pytest.approx(math.sqrt(0.5), rel=1e-9) and found.margin[1] == 0
    assert found.missing == 0 and not found.holds and conditions(inputs[:1], inputs[:1, 1:]).holds


def graph_rank(pairs: set[tuple[int, int]], n: int, t: int) -> int:
    """The rank of {e_v + p_t} for independent vectors: of the incidence matrix of a bipartite graph, vertices less components."""
    rows, columns = np.array(sorted(pairs)).T
    graph = sparse.coo_array((np.ones(len(rows)), (rows, n + columns)), shape=(n + t, n + t))
    return n + t - sparse.csgraph.connected_components(graph, directed=False)[0]


def test_copies_to_span_against_a_graph():
    """Independent positions: the copies span when the graph of copied pairs is connected, counted from the same sequences."""
    chain = uniform_chain(4, 3, 5)
    tokens, positions, _ = independent(chain)
    found = copies_to_span(chain, tokens, positions, repetitions=3, seed=5)
    assert found.rank == 7 + 4 - 1 and support_ranks(chain, tokens, positions) == (11, 10)
    for repetition, (copies, drawn) in enumerate(zip(found.copies, found.sequences, strict=True)):
        sequences = np.concatenate([chain.sample(64, (5, repetition, batch)) for batch in range(-(-int(drawn) // 64))])[:drawn]
        steps = [(int(s[t - 1]), t - 1) for s in sequences for t in range(1, 5) if chain.is_copy[s[t]]]
        assert graph_rank(set(steps[:copies]), 7, 5 - 1) == 10 > graph_rank(set(steps[: copies - 1]), 7, 5 - 1)


def collector_mean(r: int, t: int) -> float:
    """sum_N P(not done after N draws), by inclusion and exclusion over the coupons that are missing."""
    j = np.arange(r + 1)
    n = np.arange(0, 60 * r)[:, None]
    done = np.sum((-1.0) ** j * [math.comb(r, int(k)) for k in j] * (1 - j / r) ** n, axis=1)
    return float(np.sum(1 - np.clip(done, 0, 1) ** t))


def test_sample_sizes_of_remark_c2():
    # The chain with two tokens a sequence copies the first, a uniform dormant token: the plain collector, R = 6.
    chain = uniform_chain(6, 2, 2)
    spanned = copies_to_span(chain, np.eye(8), np.zeros((2, 8)), repetitions=400, seed=1)
    assert spanned.rank == 6 and collector_mean(6, 1) == pytest.approx(6 * sum(1 / k for k in range(1, 7)), rel=1e-9)
    assert (spanned.copies <= spanned.sequences).all()  # at most one copy a sequence
    draws = [collector_draws(r, t, repetitions=400, seed=2) for r, t in ((6, 1), (40, 1), (40, 32))]
    expected = [collector_mean(r, t) for r, t in ((6, 1), (6, 1), (40, 1), (40, 32))]
    stat.assert_mean(np.stack([spanned.copies, *draws], axis=1).astype(float), expected, sees=[3.0, 3.0, 22.0, 22.0])
    # The remark's two laws are the leading terms; the next is Euler's constant, .577, times R, less what is of order 1.
    for size, t in zip(expected[2:], (1, 32), strict=True):
        assert 0.45 < (size - collector_law(40, t)) / 40 < 0.65
    assert collector_law(40) == pytest.approx(40 * math.log(40), rel=1e-12)


def test_the_chain_follows_its_law():
    transitions = np.array([[0.0, 0.7, 0.3], [0.2, 0.3, 0.5], [0.6, 0.4, 0.0]])
    chain = CopyChain(transitions, np.array([0.25, 0.75, 0.0]), np.array([False, False, True]), 3)
    sequences = chain.sample(4000, seed=7)
    np.testing.assert_array_equal(sequences, chain.sample(4000, seed=7))
    assert set(sequences[:, 0].tolist()) == {0, 1}
    pairs = np.eye(9)[3 * sequences[:, 1] + sequences[:, 2]]
    law = (chain.first @ transitions)[:, None] * transitions
    assert not pairs[:, law.ravel() == 0].any()
    stat.assert_bounded_mean(pairs[:, law.ravel() > 0], law[law > 0], low=0.0, high=1.0, sees=0.1)


def test_refusals(unchecked):
    chain = uniform_chain(2, 1, 3)
    with pytest.raises(ValueError, match="Argument `first` must be 0 on copy tokens"):
        CopyChain(chain.transitions, np.full(3, 1 / 3), chain.is_copy, 3)
    with pytest.raises(ValueError, match="Argument `transitions` must be positive between different tokens"):
        CopyChain(np.eye(3), chain.first, chain.is_copy, 3)
    with pytest.raises(ValueError, match="Argument `most_sequences` must be enough"):
        copies_to_span(chain, np.eye(3), np.zeros((3, 3)), most_sequences=0)
    with pytest.raises(ValueError, match="Argument `positions` must have shape"):
        copies_to_span(chain, np.eye(3), np.zeros((2, 3)))
    inputs = np.ones((2, 3, 4))
    with pytest.raises(ValueError, match=r"Argument `outputs` must have shape \(2, 2, 4\)"):
        conditions(inputs, inputs)
    inputs[1, 2, 0] = np.inf
    with pytest.raises(ValueError, match="Argument `inputs` must be finite, but was of value inf in sequence 1, row 2, column 0"):
        conditions(inputs, inputs[:, 1:])
