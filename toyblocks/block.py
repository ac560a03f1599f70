"""The single-head transformer block of the paper, and what its weights cost."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from scaling import _check

Matrix = Array | np.ndarray
TIE = 1e-6  # logits within this of the largest, relative to the largest in size, share the mass of hard attention


class Cost(eqx.Module):
    """Squared Frobenius norms of the weights, dimensionless; biases are free.

    `query_key` |W_Q|^2 + |W_K|^2, `value_output` |W_V|^2 + |W_O|^2, `mlp` |W_1|^2 + |W_2|^2. Each is a float, or an array over
    seeds.
    """

    query_key: Float[Matrix, "*seeds"] | float
    value_output: Float[Matrix, "*seeds"] | float
    mlp: Float[Matrix, "*seeds"] | float

    @property
    def total(self) -> Float[Matrix, "*seeds"] | float:
        """The sum of the three."""
        return self.query_key + self.value_output + self.mlp

    def by_name(self) -> dict[str, float]:
        """The three parts and `total`, as floats."""
        parts = {"query_key": self.query_key, "value_output": self.value_output, "mlp": self.mlp, "total": self.total}
        return {name: float(value) for name, value in parts.items()}


class Block(eqx.Module):
    """x -> y + MLP(rms(y)), y = x + W_O W_V rms(x) A^T, with one causal head A and a ReLU MLP.

    RMSNorm has no scale; the logits are <W_Q z_i, W_K z_j> times `logit_scale`. Weights map columns as in the paper: W_Q, W_K
    [head d], W_V [inner d], W_O [d inner], W_1 [width d], W_2 [d width]; the biases b_1, b_2 are not regularised.
    Source: section 3, Figure 3.
    """

    w_q: Float[Matrix, "head d"]
    w_k: Float[Matrix, "head d"]
    w_v: Float[Matrix, "inner d"]
    w_o: Float[Matrix, "d inner"]
    w_1: Float[Matrix, "width d"]
    b_1: Float[Matrix, "width"]
    w_2: Float[Matrix, "d width"]
    b_2: Float[Matrix, "d"]
    logit_scale: float = eqx.field(static=True)

    def logits(self, queries: Float[Matrix, "queries d"], keys: Float[Matrix, "keys d"]) -> Float[Array, "queries keys"]:
        """The logits of tokens as queries and as keys, without a mask; tokens are normalised here."""
        found = self.logit_scale * (rms_norm(queries) @ self.w_q.T) @ (rms_norm(keys) @ self.w_k.T).T
        return jnp.asarray(found)

    def respond(self, x: Float[Matrix, "*rows d"], attended: Float[Matrix, "*rows d"]) -> Float[Array, "*rows d"]:
        """The output for tokens x whose heads attend to the means `attended` of normalised tokens."""
        y = x + attended @ self.w_v.T @ self.w_o.T
        return jnp.asarray(y) + self.mlp(rms_norm(y))

    def mlp(self, z: Float[Matrix, "*rows d"]) -> Float[Array, "*rows d"]:
        """W_2 relu(W_1 z + b_1) + b_2."""
        return jax.nn.relu(z @ self.w_1.T + self.b_1) @ self.w_2.T + self.b_2

    def attention(self, x: Float[Matrix, "length d"], kind: Literal["hard", "softmax"]) -> Float[Array, "length length"]:
        """The causal attention weights of one sequence, BOS first; `hard` shares the mass among ties for the largest logit."""
        _check.known("attention", kind, ("hard", "softmax"))
        causal = jnp.tril(jnp.ones((x.shape[0],) * 2, bool))
        logits = self.logits(x, x)
        return hard_attention(logits, causal) if kind == "hard" else jax.nn.softmax(jnp.where(causal, logits, -jnp.inf), axis=-1)

    def __call__(self, x: Float[Matrix, "length d"], attention: Literal["hard", "softmax"] = "hard") -> Float[Array, "length d"]:
        """The outputs of one sequence, BOS first."""
        return self.respond(x, self.attention(x, attention) @ rms_norm(x))

    @property
    def cost(self) -> Cost:
        """What the weights cost."""
        return Cost(
            _square(self.w_q) + _square(self.w_k), _square(self.w_v) + _square(self.w_o), _square(self.w_1) + _square(self.w_2)
        )

    def with_logits_times(self, factor: float | Float[Matrix, ""]) -> "Block":
        """The block with all logits, and so all margins and its query-key cost, multiplied by `factor` >= 0."""
        root = factor**0.5
        return eqx.tree_at(lambda block: (block.w_q, block.w_k), self, (self.w_q * root, self.w_k * root))


def hard_attention(logits: Float[Matrix, "queries keys"], mask: Bool[Matrix, "queries keys"]) -> Float[Array, "queries keys"]:
    """All mass on the largest logit among the keys of the mask; logits within 1e-6 of it, relative to the largest in size,
    share it."""
    allowed = jnp.where(mask, logits, -jnp.inf)
    largest = jnp.max(allowed, axis=-1, keepdims=True)
    size = jnp.max(jnp.where(mask, jnp.abs(logits), 0.0), axis=-1, keepdims=True)
    ties = allowed >= largest - TIE * size
    return ties / ties.sum(axis=-1, keepdims=True)


def rms_norm(x: Float[Matrix, "*rows d"]) -> Float[Array, "*rows d"]:
    """x sqrt(d) / |x|; 0 stays 0."""
    mean = jnp.mean(jnp.square(x), axis=-1, keepdims=True)
    return jnp.asarray(x * jax.lax.rsqrt(jnp.where(mean > 0, mean, 1.0)))


def factors(
    product: Float[np.ndarray, "rows columns"], inner: int | None = None
) -> tuple[Float[np.ndarray, "rows inner"], Float[np.ndarray, "inner columns"]]:
    """A B = `product` with |A|_F^2 = |B|_F^2 = the nuclear norm, the cheapest factors there are. Zeros fill up `inner`, by
    default the number of columns; raises `ValueError` if the rank is larger."""
    u, s, v = np.linalg.svd(product, full_matrices=False)
    size = product.shape[1] if inner is None else inner
    rank = int(np.sum(s > 1e-13 * max(s[0], 1e-300)))
    _check.require(rank <= size, "inner", f"be >= the rank {rank}", size)
    left, right = np.zeros((product.shape[0], size)), np.zeros((size, product.shape[1]))
    left[:, :rank], right[:rank] = u[:, :rank] * np.sqrt(s[:rank]), np.sqrt(s[:rank])[:, None] * v[:rank]
    return left, right


def _square(weights: Float[Matrix, "..."]):
    return (weights * weights).sum()
