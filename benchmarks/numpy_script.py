"""The plain NumPy script that one would write without this library: normals, normalise, dot, softmax, sort.

It is the yardstick of the benchmarks and nothing else. It does the least that gives the ordered weights of a row, in float32
(half the time of float64), with the fastest of the obvious ways to take norms and everything in place. Its numbers are not to be
used: <q, x> in float32 is off by 1e-7, so the exponent by 1e-7 * beta.
"""

import numpy as np


def keys(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """n uniform keys on the sphere, [n d]."""
    x = rng.standard_normal((n, d), dtype=np.float32)
    x /= np.sqrt(np.einsum("ij,ij->i", x, x))[:, None]
    return x


def softmax(scores: np.ndarray, beta: float) -> np.ndarray:
    """Attention weights [n] at inverse temperature beta."""
    logits = np.float32(beta) * scores
    logits -= logits.max()
    weights = np.exp(logits, out=logits)
    weights /= weights.sum()
    return weights


def row(rng: np.random.Generator, n: int, d: int, beta: float) -> np.ndarray:
    """The ordered weights of one attention row, largest first, [n]."""
    query = np.eye(1, d, dtype=np.float32)[0]
    return np.sort(softmax(keys(rng, n, d) @ query, beta))[::-1]


def rotary_row(rng: np.random.Generator, n: int, d: int, beta: float, base: float = 10_000.0) -> np.ndarray:
    """The ordered weights of a row under RoPE: the keys are turned to their positions, in float32 as one would."""
    x = keys(rng, n, d)
    angles = np.arange(1, n + 1, dtype=np.float32)[:, None] * np.float32(base) ** -(np.arange(0, d, 2, dtype=np.float32) / d)
    cos, sin = np.cos(angles), np.sin(angles)
    rotated = np.empty_like(x)
    rotated[:, ::2] = x[:, ::2] * cos - x[:, 1::2] * sin
    rotated[:, 1::2] = x[:, ::2] * sin + x[:, 1::2] * cos
    return np.sort(softmax(rotated @ np.full(d, d**-0.5, np.float32), beta))[::-1]


def output(rng: np.random.Generator, n: int, d: int, beta: float) -> tuple[float, float]:
    """The top weight and the squared length of the tangential output of one attention row."""
    query = np.eye(1, d, dtype=np.float32)[0]
    x = keys(rng, n, d)
    weights = softmax(x @ query, beta)
    attention = weights @ x
    tangent = attention - (attention @ query) * query
    return float(weights.max()), float(tangent @ tangent)


def layer(tokens: np.ndarray, beta: float, step: float, block: int = 1000) -> np.ndarray:
    """The tokens [n d] after every one of them has attended to all, in blocks of queries."""
    moved = np.empty_like(tokens)
    for start in range(0, len(tokens), block):
        q = tokens[start : start + block]
        weights = np.exp(np.float32(beta) * (q @ tokens.T - 1))
        moved[start : start + block] = q + np.float32(step) * (weights @ tokens / weights.sum(1, keepdims=True) - q)
    return moved / np.linalg.norm(moved, axis=1, keepdims=True)


def head(q: np.ndarray, k: np.ndarray, v: np.ndarray, scaling: float) -> tuple[dict[str, float], np.ndarray, np.ndarray]:
    """Pattern masses of a causal head, its column means, and its values after attention, from the matrix of all weights."""
    n = len(q)
    logits = np.float32(scaling) * (q @ k.T)
    logits[np.triu_indices(n, 1)] = -np.inf
    logits -= logits.max(axis=1, keepdims=True)
    weights = np.exp(logits)
    weights /= weights.sum(axis=1, keepdims=True)
    entropy = -np.sum(weights * np.log(np.where(weights > 0, weights, 1)), axis=1)
    found = {
        "sink": weights[1:, 0].mean(),
        "diagonal": np.diag(weights)[1:].mean(),
        "lower_diagonal": np.diag(weights, -1)[1:].mean(),
        "uniformity": (1 + np.sum(entropy[1:] / np.log(np.arange(2, n + 1)))) / n,
    }
    return {name: float(value) for name, value in found.items()}, weights.mean(axis=0), weights @ v
