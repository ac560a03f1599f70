"""Brute force against exact values in 200 (cell, statistic) pairs drawn at random: one budgeted assertion."""

import numpy as np

from scaling.context import Independent
from scaling.density import Uniform
from scaling.engine import Keys, Request
from scaling.exact import expected
from scaling.statistic import parse
from tests import stat

NAMES = ["top_weight", "second_weight", "top_gap", "ipr", "sum_cubes", "entropy", "log_partition", "mean_d2q"]
CELLS, REPLICATES = 25, 256


def cells():
    """d in 2..64, n in 2..1e4 and beta over six decades, all log-uniform."""
    rng = np.random.default_rng(31)
    for _ in range(CELLS):
        d, n = (int(np.round(np.exp(rng.uniform(np.log(2), np.log(high))))) for high in (64, 1e4))
        yield d, n, float(np.exp(rng.uniform(np.log(1e-2), np.log(1e4))))


def test_brute_force_and_exact_values_agree():
    samples, exact, low, high = [], [], [], []
    for seed, (d, n, beta) in enumerate(cells()):
        query = np.eye(1, d)[0]
        request = Request(Independent(Uniform(d)), query, (float(n),), np.array([[beta]]), parse(NAMES), 0, REPLICATES, seed)
        samples += list(Keys().sample(request).values[0, 0])
        values = expected(d, n, beta, statistics=NAMES)
        exact += [values[name] for name in NAMES]
        # Bounds, a little wide for the rounding of float32 at beta = 0 and n = 1.
        most = {"entropy": np.log(n), "log_partition": np.log(n), "mean_d2q": 2.0}
        low += [np.log(n) - 2 * beta - 1e-3 * (1 + beta) if name == "log_partition" else -1e-4 for name in NAMES]
        high += [most.get(name, 1.0) + 1e-3 for name in NAMES]
    assert len(exact) >= 200
    error = 3e-6 * np.maximum(np.abs(exact), 1e-2)  # float32 against float64 at the same points
    stat.assert_bounded_mean(np.array(samples).T, np.array(exact), np.array(low), np.array(high), error=error)
