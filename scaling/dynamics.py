"""Dynamics of a cloud of tokens that attends to itself, layer after layer.

Every token is a query over the whole cloud and moves by q' = (q + step * Y(q)) / |q + step * Y(q)|, equation (4.4) of "Scaling
Limits of Long-Context Transformers". By its Proposition 4.4 a layer is an Euler step of length step / beta of the flow q' = grad
log rho, which runs the heat equation backward (`scaling.heat`). The matrix of all pairs is never formed.
"""

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float
from tqdm import tqdm

from scaling._check import known, real_array, require, whole
from scaling.density.base import checked_dtype
from scaling.field import (
    Beta,
    Rows,
    displacements,
    inverse_temperatures,
    products_suffice,
    query_mesh,
    spread_queries,
    unit_rows,
    value_on_device,
)


class Evolution(eqx.Module):
    """Clouds of tokens by trajectory and layer; dimensionless."""

    clouds: Float[np.ndarray, "b layer n d"]
    """Unit vectors; layer 0 is the start. With `keep="last"` the last layer alone."""
    beta: Float[np.ndarray, " b"]
    step: Float[np.ndarray, " b"]
    layer: np.ndarray
    """The numbers of the layers kept."""

    @property
    def time(self) -> Float[np.ndarray, "b layer"]:
        """Time of the flow q' = grad log rho after each layer kept, layer * step / beta (Proposition 4.4); inf at beta = 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.layer == 0, 0.0, self.layer * (self.step / self.beta)[:, None])


def evolve(
    tokens: Rows,
    beta: Beta,
    step: Beta,
    layers: int,
    value: Rows | None = None,
    *,
    keep: Literal["all", "last"] = "all",
    dtype: Any = jnp.float32,
    progress: bool = False,
) -> Evolution:
    """The cloud after each of `layers` layers in which every token attends to all, from `tokens` [n, d], unit vectors.

    `beta` and `step` are numbers or [b], of one length: one trajectory each, all from the same tokens and under one compilation.
    `value` is V [d, d] (default: the identity). A cloud drawn from a density: `density.sample(jax.random.key(seed), n)`. Queries
    are spread over the local devices; time grows as b n^2 and memory as n. `progress` shows a bar over the layers on stderr where
    that is a terminal. Layers are run one by one from the host, so that an interruption is heeded.

    Raises `ValueError` unless the tokens are unit vectors, beta >= 0, step finite, layers an integer >= 1, V [d, d], and dtype
    float32, or float64 with x64 enabled; and where a token is moved to 0.
    """
    dtype = checked_dtype(dtype)
    known("keep", keep, ("all", "last"))
    start = unit_rows("tokens", tokens, dtype)
    d = start.shape[1]
    count = whole("layers", layers, 1)
    betas, steps = _pairs(inverse_temperatures(beta, dtype), _finite(step))
    matrix = value_on_device(value, d, dtype)
    if matrix is not None:
        require(matrix.shape == (d, d), "value", f"have shape ({d}, {d})", f"of shape {matrix.shape}")
    products = products_suffice(betas, dtype)

    clouds = jnp.tile(start, (len(betas), 1, 1))
    kept = [np.asarray(clouds)]
    for _ in tqdm(range(count), desc="layers", unit="layer", disable=None if progress else True):
        clouds = _layer(clouds, jnp.asarray(betas, dtype), jnp.asarray(steps, dtype), matrix, products, query_mesh())
        now = np.asarray(clouds)
        kept = [*kept, now] if keep == "all" else [now]
        if not np.all(np.isfinite(now)):
            at = int(np.argwhere(~np.isfinite(now))[0, 0])
            must = "move every token to a finite point other than 0"
            raise ValueError(f"Argument `step` must {must}, but {steps[at]:g} does not at beta = {betas[at]:g}.")
    numbers = np.arange(count + 1) if keep == "all" else np.array([count])
    return Evolution(np.stack(kept, axis=1), betas, steps, numbers)


@eqx.filter_jit
def _layer(clouds, beta, step, matrix, products: bool, mesh: Mesh):
    """The clouds [b n d] one layer on; a trajectory after the other, since each has keys of its own."""
    n = clouds.shape[1]

    def one_device(queries):
        def one(trajectory):
            keys, q, b, size = trajectory
            y = displacements(keys, q, b[None], products=products, own=True)[0]
            y = y if matrix is None else jnp.matmul(y, matrix.T, precision="highest")
            moved = q + size * y
            moved = moved / jnp.max(jnp.abs(moved), axis=1, keepdims=True)  # the norm of a large step would overflow
            return moved / jnp.linalg.norm(moved, axis=1, keepdims=True)

        return jax.lax.map(one, (clouds, queries, beta, step))

    return spread_queries(one_device, mesh, clouds)[:, :n]


def _pairs(beta, step):
    """Both as [b]. Raises `ValueError` unless they have one length or one of them is a single number."""
    if len(step) not in (1, len(beta)) and len(beta) != 1:
        raise ValueError(f"Argument `step` must have the length of `beta`, {len(beta)}, or 1, but was of length {len(step)}.")
    beta, step = np.broadcast_arrays(beta, step)
    return np.array(beta), np.array(step)


def _finite(step):
    values = np.atleast_1d(real_array("step", step, "be a number or a sequence of numbers"))
    sound = values.ndim == 1 and values.size >= 1 and bool(np.all(np.isfinite(values)))
    require(sound, "step", "be a finite number or a sequence of finite numbers", np.asarray(step).tolist())
    return values
