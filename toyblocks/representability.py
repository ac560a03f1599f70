"""When a sink can be represented: the half-space conditions of Proposition 4.1, and weights that realise it.

Source: section 4 and Appendix A of "Sink vs. diagonal patterns". Section 4 calls z_0^T z_i <= 0 for all i a sufficient condition.
It is one for z_0 - z_i alone; for the tokens z_j that attend it must be strict: tokens orthogonal to z_0 may be opposite to each
other.
"""

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from scaling import _check
from toyblocks.hull import HalfSpace, checked_rows, half_space, rank


class Representability(eqx.Module):
    """Whether some W has z_j^T W z_0 > z_j^T W z_i for all j that attend and all tokens i but the sink 0; dimensionless.

    `sink`: the half-space of z_0 - z_i over the other tokens; `attending`: the half-space of the z_j. Both exist if and only if W
    does (Proposition 4.1), and then W = u v^T is one, u = `query` [d] and v = `key` [d] their normals. `smallest_gap`: the
    smallest logit gap of this W on tokens scaled to norm 1 in the mean square, 0 where there is no such W. `cosine` [others]:
    cos(z_0, z_i), 0 where a token is 0. `rank` of the tokens, and `tokens`, their number.
    """

    sink: HalfSpace
    attending: HalfSpace
    smallest_gap: float
    cosine: Float[np.ndarray, "others"]
    rank: int
    tokens: int

    @property
    def representable(self) -> bool:
        """Whether both half-spaces exist."""
        return self.sink.exists and self.attending.exists

    @property
    def excluded(self) -> bool:
        """Whether one of the half-spaces is ruled out by a combination that vanishes."""
        return self.sink.excluded or self.attending.excluded

    @property
    def query(self) -> Float[np.ndarray, "d"]:
        """u of W = u v^T: unit, <u, z_j> > 0 for the tokens that attend; 0 where there is none."""
        return self.attending.normal

    @property
    def key(self) -> Float[np.ndarray, "d"]:
        """v of W = u v^T: unit, largest on the sink; 0 where there is none."""
        return self.sink.normal

    @property
    def w_qk(self) -> Float[np.ndarray, "d d"]:
        """W = u v^T, query side left: the logit is z_j^T W z_i."""
        return np.outer(self.query, self.key)

    @property
    def automatic(self) -> bool:
        """Whether the tokens are linearly independent. Then v with <v, z_0> = 1, <v, z_i> = 0 and u with <u, z_j> = 1 exist
        whatever the tokens are, and that the sink is representable says nothing about them: the margins do."""
        return self.rank == self.tokens

    @property
    def strictly_opposite(self) -> bool:
        """Whether z_0^T z_i < 0 for all i, which suffices (u = -z_0, v = z_0); section 4 has it with <=, see the module."""
        return bool(self.cosine.max() < 0)


def representability(
    z: Float[np.ndarray, "tokens d"], attending: Int[np.ndarray, "attending"] | None = None, *, sink: int = 0
) -> Representability:
    """Proposition 4.1 for the tokens `z`, one a row, as the attention layer sees them.

    `attending`: the rows that shall attend to row `sink`, by default all others. As in the proposition they beat all tokens,
    whatever their positions: with a causal mask, where a query meets the keys before it, the conditions suffice.
    Raises `ValueError` for fewer than 2 tokens, entries that are not finite, and rows that do not exist, occur twice or are the
    sink.
    """
    z = checked_rows("z", z)
    n = len(z)
    _check.require(n >= 2, "z", "have at least 2 tokens", f"of shape {z.shape}")
    sink = _check.whole("sink", sink, 0)
    _check.require(sink < n, "sink", f"be a row of z, at most {n - 1}", sink)
    others = np.delete(np.arange(n), sink)
    rows = others if attending is None else np.asarray(attending)
    good = rows.size > 0 and len(set(rows.tolist())) == rows.size and set(rows.tolist()) <= set(others.tolist())
    _check.require(good, "attending", f"be different rows of z, 0 to {n - 1}, without the sink {sink}", rows.tolist())
    keys = half_space(z[sink] - z[others])
    queries = half_space(z[rows])
    scale = float(np.sqrt(np.mean(np.sum(z**2, axis=1))))
    scale = scale if scale > 0 else 1.0
    gaps = np.min(z[rows] @ queries.normal / scale) * np.min((z[sink] - z[others]) @ keys.normal / scale)
    lengths = np.linalg.norm(z, axis=1)
    product = lengths[sink] * lengths[others]
    cosine = np.divide(z[others] @ z[sink], product, out=np.zeros(n - 1), where=product > 0)
    return Representability(keys, queries, float(gaps), cosine, rank(z), n)
