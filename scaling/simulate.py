"""One cell: n keys at one inverse temperature, many replicates, means with their errors."""

from collections.abc import Sequence

import equinox as eqx
import jax
import numpy as np
from tqdm import tqdm

from scaling._check import context_length, finite_above, finite_at_least, known, require, value_matrix, whole
from scaling.context import AbstractContext, as_context, query_of
from scaling.density import AbstractDensity
from scaling.engine import Request, choose
from scaling.estimate import Estimate, Moments
from scaling.statistic import default_names, parse

MOST_REPLICATES = 2**31  # replicates are numbered with 32 bits, and a block beyond the end


class Simulation(eqx.Module):
    """What `simulate` returns: an estimate for every statistic, and how it was made."""

    statistics: dict[str, Estimate]
    engine: str
    reason: str  # why this engine
    keys_drawn: float  # keys drawn in one replicate
    error_bound: dict[str, float]  # bound on the relative bias that the engine adds to a mean (absolute: entropy, log_partition)
    n: float
    beta: float
    replicates: int
    seed: int

    def __repr__(self) -> str:
        width = max(map(len, self.statistics))
        lines = [
            f"n = {self.n:g}, beta = {self.beta:g}: engine {self.engine} ({self.reason}), "
            f"{self.keys_drawn:g} keys drawn a replicate"
        ]
        return "\n".join([*lines, *(f"{name:{width}}  {estimate}" for name, estimate in self.statistics.items())])


def simulate(
    density_or_context: AbstractDensity | AbstractContext,
    *,
    n: float | int,
    beta: float | int,
    replicates: int,
    seed: int,
    statistics: Sequence[str] | None = None,
    engine: str = "auto",
    query=None,
    value=None,
    tolerance: float = 1e-6,
    dtype: str = "float32",
    progress: bool = False,
) -> Simulation:
    """Draws `replicates` independent attention rows over n random keys and averages their statistics.

    `n` may be as large as 1e18 where the engine draws only the nearest keys; `beta` >= 0 is the inverse temperature
    (dimensionless); `query` is a unit vector [d], by default the first axis; `value` is the matrix V [m, d] of the displacement
    Y = V sum A_i (x_i - q), (4.1), by default the identity, for the statistics `displacement(j)` and `displacement_square`;
    `statistics` are names of `scaling.statistic`
    (default: all that need no directions and no rank); `tolerance` bounds the relative bias that an engine may add to a mean.
    The numbers are a function of (seed, context, engine, replicate index) alone: more replicates keep the old ones, and other n
    or beta see the same random numbers.

    Raises `ValueError` for a bad argument, for an unknown statistic or engine (with the nearest name), and where the engine
    cannot serve the context exactly.
    """
    context = as_context(density_or_context)
    n = context_length(n)
    beta = finite_at_least("beta", beta, 0)
    replicates = replicate_count(replicates)
    request = Request(
        context=context,
        query=query_of(query, context.d),
        n=(n,),
        beta=np.array([[beta]]),
        statistics=parse(default_names() if statistics is None else statistics),
        first=0,
        count=replicates,
        seed=seed_of(seed),
        tolerance=finite_above("tolerance", tolerance, 0),
        dtype=dtype_of(dtype),
        value=None if value is None else value_matrix(value, context.d),
    )
    chosen, reason = choose(engine, request)
    moments = None
    with tqdm(total=replicates, unit="replicate", unit_scale=True, disable=None if progress else True, leave=False) as bar:
        for block in chosen.batches(request):
            part = Moments.of(block.values)
            moments = part if moments is None else moments.merge(part)
            bar.update(part.count)
    assert moments is not None
    names = [s.name for s in request.statistics]
    return Simulation(
        statistics={name: moments.estimate((0, 0, i)) for i, name in enumerate(names)},
        engine=chosen.name,
        reason=reason,
        keys_drawn=float(block.keys_drawn[0, 0]),
        error_bound={name: float(block.error_bound[0, 0, i]) for i, name in enumerate(names)},
        n=n,
        beta=beta,
        replicates=replicates,
        seed=request.seed,
    )


def replicate_count(value) -> int:
    """Returns the number of replicates, or raises unless it is an integer from 1 to 2^31."""
    count = whole("replicates", value, 1)
    require(count <= MOST_REPLICATES, "replicates", f"be at most {MOST_REPLICATES}", value)
    return count


def seed_of(value) -> int:
    """Returns the seed, or raises unless it is an integer from 0 to 2^32 - 1."""
    seed = whole("seed", value, 0)
    require(seed < 2**32, "seed", "be below 2^32 (JAX keeps 32 bits of it)", value)
    return seed


def dtype_of(value) -> str:
    """Returns the working precision, or raises unless it is "float32", or "float64" with JAX's 64-bit mode on."""
    known("dtype", value, ("float32", "float64"))
    if value == "float64" and not jax.config.read("jax_enable_x64"):
        raise ValueError(
            "Argument `dtype` must be 'float32' unless 64-bit mode is on, but was 'float64': "
            "call jax.config.update('jax_enable_x64', True) first, or set JAX_ENABLE_X64=1."
        )
    return value
