"""The drift of the output at finite beta and in the limit, with the noise about it, at many queries."""

import dataclasses

import numpy as np
from jaxtyping import Float, Int

from scaling.density import Quadratic
from scaling.exact.mean_field import mean_field, mean_field_covariance
from scaling.figure.cells import variable

ALPHA = 1.0  # 2/(d-1)
Queries = Float[np.ndarray, "m 3"]


@dataclasses.dataclass(frozen=True)
class Drift:
    """The mean of beta P_q Y_n(q) at V = Id and its standard deviations over contexts, at finite beta and in the limit of Theorem
    4.3; the deviations are those of the first coordinate and of one tangent coordinate (root mean square of two)."""

    exact: Float[np.ndarray, "beta m 3"]
    limit: Float[np.ndarray, "m 3"]
    noise: Float[np.ndarray, "beta m 2"]
    noise_limit: Float[np.ndarray, "beta m 2"]

    @classmethod
    def at(cls, density: Quadratic, queries: Queries, n: int, betas: list[float]) -> "Drift":
        """At the queries [m, 3] on S^2."""
        projection = np.eye(3) - queries[:, :, None] * queries[:, None, :]
        beta = np.asarray(betas)
        exact = np.einsum("b,mij,bmj->bmi", beta, projection, mean_field(density, queries, beta))
        covariance = projection @ mean_field_covariance(density, queries, n, beta) @ projection
        # tau^{1/alpha} Sigma, Sigma = c_d / rho P_q with c_3 = 1 / (8 pi).
        tau = beta ** (1 + ALPHA) * n**-ALPHA
        variance = tau[:, None] ** (1 / ALPHA) / (8 * np.pi * np.exp(log_densities(density, queries)))
        noise_limit = _deviations(variance[..., None, None] * projection)
        return cls(exact, gradients(density, queries), beta[:, None, None] * _deviations(covariance), noise_limit)

    def first_coordinate(self) -> dict[str, tuple[Float[np.ndarray, "beta m"], str]]:
        """What is drawn, and what it is."""
        return {
            "exact": (self.exact[..., 0], "exact first coordinate of beta P_q E[(x-q) e^{-beta T}] / E[e^{-beta T}]"),
            "noise": (self.noise[..., 0], "standard deviation of the field over contexts, delta method at this n and beta"),
            "noise_limit": (self.noise_limit[..., 0], "standard deviation of the field, limit of Theorem 4.3"),
        }

    def where(self, chosen: Int[np.ndarray, " some"]) -> "Drift":
        """At the queries with these numbers."""
        return Drift(self.exact[:, chosen], self.limit[chosen], self.noise[:, chosen], self.noise_limit[:, chosen])


def summary(field: Float[np.ndarray, "beta m"], drift: Drift) -> dict[str, tuple]:
    """The numbers of the captions, over queries that share the sphere evenly: how the field (first coordinates) correlates with
    exact drift and limit, how long the drifts are, how far off the limit is, and the range of the noise. Dimensionless."""
    axis, ranges = ("drift_column",), ("drift_column", "bound")
    limit = np.broadcast_to(drift.limit, drift.exact.shape)

    def correlation(other: Float[np.ndarray, "beta m 3"]) -> list[float]:
        return [float(np.corrcoef(a, b)[0, 1]) for a, b in zip(field, other[..., 0], strict=True)]

    def size(vectors: Float[np.ndarray, "beta m 3"]) -> Float[np.ndarray, " beta"]:
        return np.sqrt(np.mean(np.sum(vectors**2, axis=-1), axis=-1))

    def bounds(values: Float[np.ndarray, "beta m"], low: float | int, high: float | int) -> Float[np.ndarray, "beta 2"]:
        return np.quantile(values, [low, high], axis=1).T

    length = np.linalg.norm(drift.exact, axis=-1)
    return {
        "correlation_exact": variable(axis, correlation(drift.exact), "correlation of the field with the exact drift"),
        "correlation_limit": variable(axis, correlation(limit), "correlation of the field with the limit"),
        "drift_size": variable(axis, size(drift.exact), "root mean square length of the exact drift"),
        "drift_size_limit": variable((), size(limit)[0], "root mean square length of the limit"),
        "length_range": variable(ranges, bounds(length, 0.1, 0.9), "10% and 90% quantile of the exact drift's length"),
        "bias": variable(axis, size(drift.exact - limit) / size(limit), "root mean square error of the limit over its length"),
        "noise_range": variable(ranges, bounds(drift.noise[..., 1], 0, 1), "least and largest deviation of a tangent coordinate"),
        "noise_range_limit": variable(ranges, bounds(drift.noise_limit[..., 1], 0, 1), "the same in the limit of Theorem 4.3"),
    }


def gradients(density: Quadratic, queries: Queries) -> Queries:
    """grad log rho at each query, on the host in float64."""
    image = queries @ density.matrix
    return 2 * (image - np.sum(image * queries, axis=1, keepdims=True) * queries)


def log_densities(density: Quadratic, queries: Queries) -> Float[np.ndarray, " m"]:
    """log rho at each query, on the host in float64."""
    return np.sum((queries @ density.matrix) * queries, axis=1) - density.log_normaliser


def _deviations(covariance: Float[np.ndarray, "beta m 3 3"]) -> Float[np.ndarray, "beta m 2"]:
    """The standard deviations of the first coordinate and of a tangent coordinate, of a tangent vector on S^2."""
    trace = np.trace(covariance, axis1=-2, axis2=-1)
    return np.sqrt(np.stack([np.maximum(covariance[..., 0, 0], 0), trace / 2], axis=-1))
