"""The optimum by a factored augmented Lagrangian (Burer-Monteiro): W = U V, |W|_* = min (|U|^2 + |V|^2) / 2, without singular
values, as weight decay finds it in training."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from toyblocks.optimum.program import Best, Program

_PENALTY = 10.0  # at most; larger ones make the inner problems ill-conditioned, and the gap stays at several percent
_INNER = 200  # steps of L-BFGS between updates of the multipliers


def solve_factored(program: Program, tolerance: float | int, steps: int, progress: bool = False) -> Best:
    """Minimises (|U|^2 + |V|^2) / 2 + rho/2 sum max(0, 1 - D + a/rho)^2, D the margins of all pairs (target, other key), with
    equalities alike, by L-BFGS on gradients of JAX in float64; then a <- max(0, a + rho (1 - D)).

    Until the certified gap is at most `tolerance`, or for `steps` steps of L-BFGS. U and V have full width, so that every local
    minimum is global, with |G|_2 <= 1 for the table of the multipliers; elsewhere the certificate divides by |G|_2.
    """
    best = Best(program)
    number = int(np.where(program.tied, 1, program.target.sum(axis=1)).max())
    order = np.argsort(~program.target, axis=1, kind="stable")[:, :number]  # the targets of a case first
    chosen = np.take_along_axis(program.target, order, axis=1) & ((np.arange(number) == 0) | ~program.tied[:, None])
    pairs = chosen[:, :, None] & program.other[:, None, :]
    ties = program.target & program.tied[:, None]
    shapes = [shape for each in program.components for shape in _factor_shapes(each.shape)]
    cuts = np.cumsum([int(np.prod(shape)) for shape in shapes])
    rng = np.random.default_rng(0)

    with jax.enable_x64(True), tqdm(total=steps, desc="optimum", unit="step", disable=None if progress else True) as bar:
        features = [(jnp.asarray(each.query), jnp.asarray(each.key), each.copies) for each in program.components]
        places, share = jnp.asarray(order), jnp.asarray(ties / np.maximum(ties.sum(axis=1, keepdims=True), 1))

        def unpack(point):
            factors = [part.reshape(shape) for part, shape in zip(jnp.split(point, cuts[:-1]), shapes, strict=True)]
            return list(zip(factors[::2], factors[1::2], strict=True))

        def short(point):
            found = unpack(point)
            logits = sum(
                jnp.einsum("qmr,rc,kmc->qk", query, u @ v, key, optimize=True)
                for (query, key, _), (u, v) in zip(features, found, strict=True)
            ) + jnp.zeros(program.target.shape)
            missing = 1 - (jnp.take_along_axis(logits, places, axis=1)[:, :, None] - logits[:, None, :])
            apart = logits - (share * logits).sum(axis=1, keepdims=True)
            return missing, jnp.where(ties, apart, jnp.where(program.zero, logits, 0.0))

        def value(point, multipliers, free, rho):
            norm = sum(
                copies * ((u**2).sum() + (v**2).sum()) / 2 for (_, _, copies), (u, v) in zip(features, unpack(point), strict=True)
            )
            missing, uneven = short(point)
            active = jnp.where(pairs, jnp.maximum(missing + multipliers / rho, 0.0), 0.0)
            return norm + rho / 2 * ((active**2).sum() + ((uneven + free / rho) ** 2).sum())

        gradient, residuals = jax.jit(jax.value_and_grad(value)), jax.jit(short)
        point = rng.standard_normal(cuts[-1]) * np.concatenate([np.full(np.prod(s), max(s) ** -0.5) for s in shapes])
        multipliers, free, rho, worst, done = np.zeros(pairs.shape), np.zeros(ties.shape), 1.0, np.inf, 0
        while done < steps:
            # The vectors are so short that threads wait for one another: ten times slower on a busy machine.
            with threadpool_limits(1, user_api="blas"):
                found = optimize.minimize(
                    lambda x, *rest: [np.asarray(each, np.float64) for each in gradient(x, *rest)],
                    point,
                    (multipliers, free, rho),
                    jac=True,
                    method="L-BFGS-B",
                    options={"maxiter": min(_INNER, steps - done), "maxcor": 20, "ftol": 1e-12, "gtol": 1e-8},
                )
            point = found.x
            done += max(found.nit, 1)
            missing, uneven = (np.asarray(each) for each in residuals(point))
            multipliers = np.where(pairs, np.maximum(multipliers + rho * missing, 0.0), 0.0)
            free = free + rho * uneven
            # The Lagrangian has + free * uneven, the table - of it.
            table = -multipliers.sum(axis=1) - np.where(ties | program.zero, free - _mean(free, ties), 0.0)
            np.put_along_axis(table, order, np.take_along_axis(table, order, axis=1) + multipliers.sum(axis=2), axis=1)
            gap = best.update([np.asarray(u @ v) for u, v in unpack(point)], table)
            bar.update(max(found.nit, 1))
            bar.set_postfix(gap=f"{gap:.1e}", refresh=False)
            if gap <= tolerance:
                break
            violation = float(max(np.where(pairs, missing, 0.0).max(), np.abs(uneven).max()))
            rho = min(rho * 2, _PENALTY) if violation > worst / 2 else rho
            worst = min(worst, violation)
    return best


def _factor_shapes(shape):
    rows, columns = shape
    return (rows, min(rows, columns)), (min(rows, columns), columns)


def _mean(free, ties):
    """The mean over tied targets, whose differences alone the constraint holds."""
    return np.where(ties, (free * ties).sum(axis=1, keepdims=True) / np.maximum(ties.sum(axis=1, keepdims=True), 1), 0.0)
