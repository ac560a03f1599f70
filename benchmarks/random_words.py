"""Random numbers of `scaling.random` against JAX's own, on one core."""

from benchmarks.harness import Measurement, Timing, in_child, number

BLOCK = 1 << 15  # JAX's primitive is fastest where a block stays in the cache, so it is given such blocks
KINDS = ("words", "exponential", "normal")


def measure(smoke: bool) -> list[Measurement]:
    """By kind; the ratio is to JAX in blocks, the better of its two ways."""
    found = in_child("random_words", "draws", cores=1, inline=smoke, smoke=smoke).result
    lines = []
    for kind in KINDS:
        ours, cached, once = (Timing(*found[f"{kind} {road}"]).times(1e9) for road in ("ours", "cached", "at once"))
        note = f"{number(ours.wall)} ns a draw; jax.random {number(cached.wall)} in blocks of 2^15, {number(once.wall)} at once"
        lines.append(Measurement(f"random {kind}, times as fast as jax.random", *cached.over(ours), "x", note=note))
    return lines


def draws(smoke: bool) -> dict[str, Timing]:
    """Seconds a draw. Every draw is added up, so that nothing is dropped and nothing goes to memory but what must."""
    import jax
    import jax.numpy as jnp

    from benchmarks.harness import timed
    from scaling import random

    blocks, runs = (2, 1) if smoke else (128, 5)
    rng = jax.random.key(0, impl="threefry2x32")
    stream = random.Stream.of(rng)
    transforms = {"words": lambda word: word, "exponential": random.exponential, "normal": random.normal}
    primitives = {
        "words": lambda key, count: jax.random.bits(key, (count,), jnp.uint32),
        "exponential": lambda key, count: jax.random.exponential(key, (count,)),
        "normal": lambda key, count: jax.random.normal(key, (count,)),
    }

    def added(block):
        """Sums of `block(i)` over all blocks."""
        return jax.lax.fori_loop(0, blocks, lambda i, total: total + jnp.sum(block(i)), jnp.sum(block(0)) * 0)

    def ours(kind):
        def block(i):
            pair = random.words(stream, jnp.uint32(i), jnp.arange(BLOCK // 2, dtype=jnp.uint32))
            return transforms[kind](pair[0]) + transforms[kind](pair[1])

        return jax.jit(lambda: added(block))

    def cached(kind):
        return jax.jit(lambda: added(lambda i: primitives[kind](jax.random.fold_in(rng, i), BLOCK)))

    def at_once(kind):
        return jax.jit(lambda: jnp.sum(primitives[kind](rng, BLOCK * blocks)))

    roads = {"ours": ours, "cached": cached, "at once": at_once}
    count = BLOCK * blocks
    return {f"{kind} {name}": timed(road(kind), runs).times(1 / count) for kind in KINDS for name, road in roads.items()}
