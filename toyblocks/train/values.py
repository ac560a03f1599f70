"""The weights of a block but for W_Q, W_K, as training has them: what both tasks do with them alike."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from toyblocks.block import Matrix, rms_norm


class Values(NamedTuple):
    """W_V, W_O and the MLP, as in `Block`, each with a leading axis of seeds; without it inside a loss."""

    w_v: Float[Matrix, "*seeds inner d"]
    w_o: Float[Matrix, "*seeds d inner"]
    w_1: Float[Matrix, "*seeds width d"]
    b_1: Float[Matrix, "*seeds width"]
    w_2: Float[Matrix, "*seeds d width"]
    b_2: Float[Matrix, "*seeds d"]

    def units(self, y: Float[Array, "rows axes"], dim: int) -> Float[Array, "rows axes"]:
        """W_2 relu(W_1 rms(y) + b_1), what the MLP makes of the states y after attention but for its output bias, in the
        coordinates of a task's own axes. Those outside are 0, so that the norm is right but for their number: `dim` is d."""
        z = rms_norm(y) * (dim / y.shape[-1]) ** 0.5
        return jax.nn.relu(z @ self.w_1.T + self.b_1) @ self.w_2.T

    def turned_back(self, axes: Float[np.ndarray, "axes d"], silent: Float[np.ndarray, "d"] | None = None) -> "Values":
        """The weights in R^d, float64, from those in the coordinates of the orthonormal `axes`. With `silent`, a token of norm
        sqrt(d), W_V gives 0 to it: a loss that does not hear it does not see that."""
        w_v, w_o, w_1, b_1, w_2, b_2 = (np.asarray(each, np.float64) for each in self)
        if silent is not None:
            unit = axes @ silent / np.sqrt(axes.shape[1])
            w_v = w_v - (w_v @ unit)[..., None] * unit
        return Values(w_v @ axes, axes.T @ w_o, w_1 @ axes, b_1, axes.T @ w_2, b_2 @ axes)
