"""Corollary C.3's Markov chain, and Remark C.2: how many data show that every dimension is needed."""

import equinox as eqx
import numpy as np
from jaxtyping import Bool, Float, Int

from scaling import _check
from toyblocks.hull import checked_rows, rank

INDEPENDENT = 1e-9  # of a vector's length, left after projection on those before it
BATCH = 64  # sequences drawn at a time


class CopyChain(eqx.Module):
    """A first-order Markov chain of tokens after BOS; a copy token returns the token before it, a dormant one 0.

    `transitions` [tokens tokens]: from row to column, rows sum to 1, positive between different tokens; `first` [tokens]: the
    law of the token after BOS, which is dormant; `is_copy` [tokens]; `context_length` tokens follow BOS. Raises `ValueError`
    for anything else. Source: Corollary C.3, with Proposition 6.1's outputs where the immediate past is copied.
    """

    transitions: Float[np.ndarray, "tokens tokens"]
    first: Float[np.ndarray, "tokens"]
    is_copy: Bool[np.ndarray, "tokens"]
    context_length: int = eqx.field(static=True)

    def __check_init__(self):
        n = len(self.is_copy)
        p, first = self.transitions, self.first
        _check.whole("context_length", self.context_length, 2)
        _check.require(p.shape == (n, n), "transitions", f"have shape {(n, n)}", f"of shape {p.shape}")
        _check.require(first.shape == (n,), "first", f"have shape {(n,)}", f"of shape {first.shape}")
        _check.require(np.allclose(p.sum(axis=1), 1), "transitions", "have rows that sum to 1", p.sum(axis=1))
        between = p + np.eye(n)
        _check.require(p.min() >= 0 and between.min() > 0, "transitions", "be positive between different tokens", p)
        _check.require(first.min() >= 0 and np.isclose(first.sum(), 1), "first", "be probabilities that sum to 1", first)
        _check.require(not np.any(first[self.is_copy]), "first", "be 0 on copy tokens", first)

    def sample(self, count: int, seed: int | tuple[int, ...] = 0) -> Int[np.ndarray, "count positions"]:
        """Independent sequences of tokens after BOS; a seed is one integer >= 0 or several. Raises `ValueError` for others and
        for a count < 1."""
        address = [_check.whole("seed", each, 0) for each in (seed if isinstance(seed, tuple) else (seed,))]
        uniform = np.random.default_rng(address).random((_check.whole("count", count, 1), self.context_length))
        out = np.empty(uniform.shape, dtype=np.int64)
        out[:, 0] = _inverse(np.cumsum(self.first)[None], uniform[:, 0])
        steps = np.cumsum(self.transitions, axis=1)
        for t in range(1, self.context_length):
            out[:, t] = _inverse(steps[out[:, t - 1]], uniform[:, t])
        return out


class Spanned(eqx.Module):
    """Data until the outputs span all that can be copied: `copies` [repetitions] outputs that are not 0, in `sequences`
    [repetitions]; `rank`, the dimension R of the span."""

    copies: Int[np.ndarray, "repetitions"]
    sequences: Int[np.ndarray, "repetitions"]
    rank: int


def uniform_chain(dormant: int, copy: int, context_length: int) -> CopyChain:
    """The chain of independent uniform tokens, dormant ones first; uniform over dormant ones after BOS. Raises `ValueError` for
    counts < 1 and context lengths < 2."""
    dormant, copy = _check.whole("dormant", dormant, 1), _check.whole("copy", copy, 1)
    n = dormant + copy
    is_copy = np.arange(n) >= dormant
    return CopyChain(np.full((n, n), 1 / n), ~is_copy / dormant, is_copy, _check.whole("context_length", context_length, 2))


def embedded(
    chain: CopyChain,
    sequences: Int[np.ndarray, "sequences positions"],
    tokens: Float[np.ndarray, "tokens d"],
    positions: Float[np.ndarray, "positions d"],
    bos: Float[np.ndarray, "d"],
) -> tuple[Float[np.ndarray, "sequences 1+positions d"], Float[np.ndarray, "sequences positions d"]]:
    """Inputs, BOS and then token + position vectors, and outputs, the input before a copy token and 0 at dormant ones: a data set
    for `conditions`. The first token is dormant, so that BOS is never copied."""
    context = tokens[sequences] + positions
    inputs = np.concatenate([np.broadcast_to(bos, (len(context), 1, len(bos))), context], axis=1)
    return inputs, np.where(chain.is_copy[sequences][..., None], inputs[:, :-1], 0.0)


def support_ranks(
    chain: CopyChain, tokens: Float[np.ndarray, "tokens d"], positions: Float[np.ndarray, "positions d"]
) -> tuple[int, int]:
    """The ranks of inputs and outputs over all that the chain can produce: what `conditions` finds from enough data.

    The second is smaller where the last position vector is independent of everything else, for any data: then Theorem C.1 is
    silent, and Corollary C.3's conclusion fails for a dormant token in the last position (see `toyblocks.switch.conditions`).
    """
    tokens, positions = _fitting(chain, tokens, positions)
    copied = _copyable(chain, tokens, positions)
    last = tokens + positions[-1]
    return rank(np.concatenate([copied, last])), rank(copied)


def copies_to_span(
    chain: CopyChain,
    tokens: Float[np.ndarray, "tokens d"],
    positions: Float[np.ndarray, "positions d"],
    *,
    repetitions: int = 20,
    seed: int = 0,
    most_sequences: int = 100_000,
) -> Spanned:
    """Remark C.2 by simulation of the chain: data drawn until the copied inputs span all that can be copied.

    With R the rank, the remark expects about R log R copies; that each token be copied at least once, as Corollary C.3 says, is
    enough where the positions add nothing. For token and position vectors that are all independent it takes a connected graph of
    the pairs (token, position) that were copied. Raises `ValueError` for shapes that do not fit and where
    `most_sequences` (up to a batch of 64) were not enough.
    """
    tokens, positions = _fitting(chain, tokens, positions)
    repetitions, seed = _check.whole("repetitions", repetitions, 1), _check.whole("seed", seed, 0)
    target = rank(_copyable(chain, tokens, positions))
    found = [_until(chain, tokens, positions, target, (seed, r), most_sequences) for r in range(repetitions)]
    copies, sequences = np.array(found).T
    return Spanned(copies, sequences, target)


def collector_draws(
    dimensions: int, positions: int = 1, *, repetitions: int = 1000, seed: int = 0
) -> Int[np.ndarray, "repetitions"]:
    """Remark C.2's coupon collector: draws until each of R dimensions, equally likely, was seen at each of T positions, where
    every draw (a sequence) shows one at each; see `collector_law`.

    Sums of the geometric times between new dimensions, the largest over positions. Raises `ValueError` for numbers < 1.
    """
    r, t = _check.whole("dimensions", dimensions, 1), _check.whole("positions", positions, 1)
    shape = (_check.whole("repetitions", repetitions, 1), t, r)
    waits = np.random.default_rng(_check.whole("seed", seed, 0)).geometric(np.arange(r, 0, -1) / r, size=shape)
    return waits.sum(axis=2).max(axis=1)


def collector_law(dimensions: int, positions: int = 1) -> float:
    """R(log R + log T), Remark C.2's leading term of the mean of `collector_draws`; the next is .577 R. Raises `ValueError` for
    numbers < 1."""
    r, t = _check.whole("dimensions", dimensions, 1), _check.whole("positions", positions, 1)
    return r * float(np.log(r) + np.log(t))


def _until(
    chain: CopyChain, tokens: np.ndarray, positions: np.ndarray, target: int, address: tuple[int, int], most: int
) -> tuple[int, int]:
    basis = np.zeros((target, tokens.shape[1]))  # the first `spanned` rows are orthonormal, the rest 0
    spanned, copies, drawn, seen = 0, 0, 0, set()
    while drawn < most:
        for sequence in chain.sample(BATCH, (*address, drawn // BATCH)):
            drawn += 1
            for t in np.flatnonzero(chain.is_copy[sequence]):
                copies += 1
                pair = (int(sequence[t - 1]), int(t) - 1)
                if pair in seen:
                    continue
                seen.add(pair)
                vector = tokens[pair[0]] + positions[pair[1]]
                rest = vector - basis.T @ (basis @ vector)
                rest -= basis.T @ (basis @ rest)  # twice: once leaves the rounding of what was taken off
                length = np.linalg.norm(rest)
                if length > INDEPENDENT * np.linalg.norm(vector):
                    basis[spanned] = rest / length
                    spanned += 1
                    if spanned == target:
                        return copies, drawn
    _check.reject("most_sequences", "be enough for the copies to span all that can be copied", most)


def _copyable(chain: CopyChain, tokens: np.ndarray, positions: np.ndarray) -> Float[np.ndarray, "pairs d"]:
    """Every token + position vector that a copy token can stand behind: all but the last position."""
    first = tokens[chain.first > 0] + positions[0]
    later = (tokens[:, None] + positions[1:-1]).reshape(-1, tokens.shape[1])
    return np.concatenate([first, later])


def _fitting(chain: CopyChain, tokens: np.ndarray, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    tokens, positions = checked_rows("tokens", tokens), checked_rows("positions", positions)
    n, t = len(chain.is_copy), chain.context_length
    _check.require(len(tokens) == n, "tokens", f"have {n} rows", f"of shape {tokens.shape}")
    wanted = (t, tokens.shape[1])
    _check.require(positions.shape == wanted, "positions", f"have shape {wanted}", f"of shape {positions.shape}")
    return tokens, positions


def _inverse(cumulative: Float[np.ndarray, "#rows tokens"], uniform: Float[np.ndarray, "rows"]) -> Int[np.ndarray, "rows"]:
    """The index that each uniform number falls to. The last sum is made 1: rounded, it would let numbers fall behind it."""
    return np.sum(uniform[:, None] >= cumulative / cumulative[:, -1:], axis=1)
