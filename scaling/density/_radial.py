"""The D2Q to the pole of a density that is symmetric about it, drawn by inversion of a table."""

import functools

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from scaling.d2q.base import AbstractD2Q
from scaling.d2q.vmf import numeric_vmf_d2q

_PANELS, _ORDER = 128, 8
_LEFT = -45.1  # log of 2^-65, the smallest v that `random.lower_half` gives
_RIGHT = float(np.log(0.5))


@functools.lru_cache(maxsize=64)
def table(d: int, concentration: float) -> Float[np.ndarray, "side panel order"]:
    """`panels` of von Mises-Fisher keys at their mean."""
    return panels(numeric_vmf_d2q(d, concentration, 0.0))


def panels(law: AbstractD2Q) -> Float[np.ndarray, "side panel order"]:
    """Power series of s = log(t / (2-t)), in panels of log v from 1/2 down: side 0 at P(T <= t) = v, side 1 at P(T > t) = v."""
    points = np.cos(np.pi * (np.arange(_ORDER) + 0.5) / _ORDER)
    log_v = _RIGHT - (np.arange(_PANELS)[:, None] + (points + 1) / 2) * ((_RIGHT - _LEFT) / _PANELS)
    logits = np.stack([law.logit_quantile(log_v), law.logit_upper_quantile(log_v)])
    return logits @ np.linalg.inv(np.vander(points)).T


def logit(
    coefficients: Float[np.ndarray, "side panel order"], upper: Bool[Array, " m"], v: Float[Array, " m"]
) -> Float[Array, " m"]:
    """s = log(T / (2-T)) at the probability v from the lower end or, where `upper`, from the upper end."""
    position = (_RIGHT - jnp.log(v)) * (_PANELS / (_RIGHT - _LEFT))  # near 0, and so precise, where most of v is
    panel = jnp.clip(jnp.floor(position), 0, _PANELS - 1)
    x = 2 * (position - panel) - 1
    rows = jnp.asarray(coefficients.reshape(2 * _PANELS, _ORDER), v.dtype)
    row = rows[panel.astype(jnp.int32) + jnp.where(upper, _PANELS, 0)]
    value = row[:, 0]
    for k in range(1, _ORDER):
        value = value * x + row[:, k]
    return value
