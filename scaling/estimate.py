"""Means of replicates with their standard errors, merged block by block in float64."""

import math

import equinox as eqx
import numpy as np
from jaxtyping import Float


class Estimate(eqx.Module):
    """The mean of independent replicates of one statistic. Prints as mean +- standard error (replicates)."""

    mean: float
    se: float | None  # standard error of the mean; None at one replicate
    skew: float | None  # skewness of one replicate; None where it is not defined
    replicates: int

    def __repr__(self) -> str:
        if self.se is None:
            return f"{self.mean:.6g} (1 replicate)"
        if self.se == 0 or not math.isfinite(self.se):
            return f"{self.mean:.10g} ± {self.se:g} ({self.replicates} replicates)"
        lead = math.floor(math.log10(self.se))
        digits = 1 - lead  # two digits of the error
        large = max(abs(self.mean), self.se)
        if not 1e-4 <= large < 1e7:
            power = math.floor(math.log10(large))
            places = max(power - lead + 1, 0)
            mean, se = (f"{value / 10**power:.{places}f}" for value in (self.mean, self.se))
            return f"({mean} ± {se})e{power:+03d} ({self.replicates} replicates)"
        return f"{self.mean:.{max(digits, 0)}f} ± {self.se:.{max(digits, 0)}f} ({self.replicates} replicates)"


class Moments(eqx.Module):
    """Count, mean and central sums of the second and third power of samples; a monoid under `merge`."""

    count: int
    mean: Float[np.ndarray, "*cell"]
    second: Float[np.ndarray, "*cell"]
    third: Float[np.ndarray, "*cell"]

    @classmethod
    def of(cls, samples: Float[np.ndarray, "*cell replicate"]) -> "Moments":
        """The moments of samples along the last axis."""
        mean = np.mean(samples, axis=-1)
        deviation = samples - mean[..., None]
        square = deviation * deviation
        return cls(samples.shape[-1], mean, np.sum(square, axis=-1), np.sum(square * deviation, axis=-1))

    def merge(self, other: "Moments") -> "Moments":
        """The moments of both samples together."""
        n, m = self.count, other.count
        total = n + m
        delta = other.mean - self.mean
        second = self.second + other.second + delta**2 * (n * m / total)
        third = (
            self.third
            + other.third
            + delta**3 * (n * m * (n - m) / total**2)
            + 3 * delta * (n * other.second - m * self.second) / total
        )
        return Moments(total, self.mean + delta * (m / total), second, third)

    def estimate(self, cell: tuple[int, ...]) -> Estimate:
        """The estimate of one cell."""
        mean, second, third = float(self.mean[cell]), float(self.second[cell]), float(self.third[cell])
        if self.count == 1:
            return Estimate(mean, None, None, 1)
        se = math.sqrt(second / (self.count - 1) / self.count)
        skew = math.sqrt(self.count) * (third / second) / math.sqrt(second) if second > 0 else None  # second^1.5 may underflow
        return Estimate(mean, se, skew, self.count)
