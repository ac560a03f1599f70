"""The constructions solve their tasks, with margins of exactly kappa and at the costs that the closed forms say."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from toyblocks.block import Block
from toyblocks.construct import VARIANTS, construct
from toyblocks.evaluate import evaluate
from toyblocks.task import AbstractTask, Backcopy, Grouped


def turn(dim: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(dim).standard_normal((dim, dim)))[0]


BACKCOPY = {
    "compact": Backcopy(4, 2, 5),
    "orthonormal": Backcopy(3, 3, 2, dim=10, scaling="standard"),
    "turned": Backcopy(3, 4, 1, rotation=turn(8)),
    "short": Backcopy(2, 1, 4, dim=10, rotation=turn(10)),
    "long": Backcopy(24, 1, 4),
    "longer": Backcopy(32, 3, 1),
    "wide": Backcopy(5, 1, 1, dim=12, geometry="compact"),
}
GROUPED = {
    "coherent": Grouped(2, 3, 0.5, dim=14, coherence=1 / 20, sequence_length=6),
    "gaussian": Grouped(2, 3, 0.4, dim=9, noise="gaussian", coherence=0.2, epsilon=0.15, sequence_length=6, rotation=turn(9)),
    "alone": Grouped(3, 1, 0.25, dim=12, scaling="extra", sequence_length=6),
    "noiseless": Grouped(2, 2, 0.0, dim=6, sequence_length=6, epsilon=0.1),
}


def outputs(block: Block, x: np.ndarray, attended: np.ndarray) -> np.ndarray:
    """What the block makes of rows, in NumPy."""
    y = x + attended @ (block.w_o @ block.w_v).T
    z = y * np.sqrt(y.shape[1]) / np.linalg.norm(y, axis=1, keepdims=True)
    return y + np.maximum(z @ block.w_1.T + block.b_1, 0) @ block.w_2.T + block.b_2


def rows_met(task: AbstractTask, pattern: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens, what they attend to and what they are owed: all of `backcopy`, and of random sequences by hand for `grouped`."""
    if not isinstance(task, Grouped):
        met = task.situations(pattern)
        return np.asarray(met.x), np.asarray(met.attended), np.asarray(met.update)
    rng, rows = np.random.default_rng(5), []
    for _ in range(30):
        sequence = [0, *rng.integers(1, len(task.tokens), 8)]
        for i, token in enumerate(sequence):
            before = [task.tokens[s] for s in sequence[:i] if task.is_dormant[s] and task.group_of[s] == task.group_of[token]]
            x, bos = task.tokens[token], task.tokens[0]
            alone = bos if pattern == "sink" else x
            if task.is_copy[token] and before:
                rows.append((x, np.mean(before, axis=0), np.mean(before, axis=0)))
            else:
                rows.append((x, alone, x if task.is_dormant[token] else 0 * x))
    x, attended, update = (np.array(each) for each in zip(*rows, strict=True))
    return x, attended, update


def worst(block: Block, task: AbstractTask, pattern: str) -> tuple[float, float]:
    """The smallest margin and the largest error of an output from its interval, over the rms of the outputs."""
    routing = task.routing(pattern)
    logits = task.logit_scale * (task.tokens @ block.w_q.T) @ (task.tokens @ block.w_k.T).T
    rows = logits[routing.query]
    lowest, highest = (np.where(routing.target, rows, np.inf).min(1), np.where(routing.other, rows, -np.inf).max(1))
    x, attended, update = rows_met(task, pattern)
    square = np.maximum(np.sum(update**2, axis=1), 1e-9)
    found = outputs(block, x, attended) - x
    phi = np.clip(np.sum(found * update, axis=1) / square, 1 - task.epsilon, 1 + task.epsilon)
    return float((lowest - highest).min()), float(np.linalg.norm(found - phi[:, None] * update, axis=1).max() / np.sqrt(task.dim))


@pytest.mark.parametrize("task", [*BACKCOPY.values(), *GROUPED.values()], ids=[*BACKCOPY, *GROUPED])
def test_every_variant_solves_the_task(task: AbstractTask):
    for pattern, variant, kappa in [("sink", each, 10.0) for each in VARIANTS] + [("diagonal", "printed", 3)]:
        block = construct(task, pattern, kappa, variant)
        margin, error = worst(block, task, pattern)
        assert margin == pytest.approx(kappa, abs=1e-12), (pattern, variant)
        assert error < 1e-12, (pattern, variant)
        for left, right in [(block.w_q, block.w_k), (block.w_o, block.w_v)]:  # balanced: the factors are as cheap as can be
            assert np.sum(left**2) == pytest.approx(np.sum(right**2), rel=1e-12)
            assert np.sum(left**2) == pytest.approx(np.linalg.norm(left.T @ right if left is block.w_q else left @ right, "nuc"))
        if pattern == "sink":
            assert np.linalg.norm(block.w_o @ (block.w_v @ task.tokens[0])) < 1e-12


def test_extreme_margins():
    """The least and the largest kappa, and the least delta, at which eps/delta^2 of the margin is lost to rounding."""
    for task in (BACKCOPY["compact"], GROUPED["coherent"], Grouped(2, 2, 1e-4, dim=9, sequence_length=6, rotation=turn(9))):
        for pattern in ("sink", "diagonal"):
            for kappa in (1e-100, 1e100):
                margin, error = worst(construct(task, pattern, kappa), task, pattern)
                assert margin == pytest.approx(kappa, rel=1e-6 if task.dim == 9 and pattern == "diagonal" else 1e-12)
                assert error < 1e-10


def test_broken_weights_are_seen():
    """The check above can fail: -2 in another basis than the task's own (note: 0.88 where p_t, h_i are no coordinates)."""
    task, other = BACKCOPY["turned"], Backcopy(3, 4, 1)
    assert worst(construct(other, "sink"), task, "sink")[1] > 0.1
    assert worst(construct(task, "sink"), task, "diagonal")[0] < 0


def test_evaluate_and_whole_sequences_agree():
    task = BACKCOPY["compact"]
    block = construct(task, "sink", variant="biased")
    found = evaluate(block, task, "sink")
    assert found.min_margin == pytest.approx(10.0, abs=1e-12)
    assert found.output_error < 1e-12 and found.bos_value < 1e-12 and found.solves(10.0)
    with jax.enable_x64(True):
        tokens = task.sample(jax.random.key(1), 1)
        x = jnp.asarray(task.tokens)[tokens[0]]
        np.testing.assert_allclose(block(x, "hard"), x + task.updates(tokens)[0], atol=1e-11)


def test_costs_of_backcopy():
    """Closed forms: nuclear norms twice, |W_1|^2 + |W_2|^2 once; d - 2 for (8)."""
    task, extra = Backcopy(4, 3, 2, dim=11, scaling="standard"), Backcopy(4, 3, 2, dim=11)
    cost = construct(task, "sink", 2.0).cost
    assert cost.query_key == pytest.approx(2 * 4 / np.sqrt(11) * (np.sqrt(6) + 3), rel=1e-12)
    assert cost.value_output == pytest.approx(2 * 9, rel=1e-12)
    assert cost.mlp == pytest.approx(4 * 11 * 2 + 2 * 7, rel=1e-12)
    cheap = construct(task, "sink", 2.0, "cheap").cost
    assert cheap.mlp == pytest.approx(2 * 7 * np.sqrt(3), rel=1e-12)
    assert cheap.value_output == pytest.approx(2 * (5 + 4 - 2), rel=1e-12)
    assert cheap.query_key < cost.query_key
    assert construct(task, "sink", 2.0, "biased").cost.mlp < cheap.mlp
    # From T = 64 to T = 128 the MLP of waves grows by its share of 2T, and by little more; that of (9), (10) at -1 by 2T sqrt(6).
    of_waves = [construct(Backcopy(length, 5, 5), "sink", variant="biased").cost.mlp for length in (64, 128)]
    assert 128 < of_waves[1] - of_waves[0] < 1.1 * 128
    assert construct(extra, "sink", 2.0).cost.query_key == pytest.approx(cost.query_key * np.sqrt(11), rel=1e-12)
    r = (1 / 5 + 1 / 4) / 2
    assert construct(task, "diagonal").cost.value_output == pytest.approx(2 * (5 + 4 - 2 + np.sqrt(r / (1 + r))), rel=1e-12)
    r = (1 / 1 + 1 / 2) / 2  # with T = 2 nobody reads a copy token
    assert construct(BACKCOPY["short"], "diagonal").cost.value_output == pytest.approx(2 * (1 + np.sqrt(r / (1 + r))), rel=1e-12)
    # Certified optima at kappa = 1, |C| = |D| = 5, measured independently; the constructions come near them.
    for length, sink, diagonal in [(4, 8.001, 20.368), (16, 30.254, 176.87), (64, 120.8, 1403.0)]:
        task = Backcopy(length, 5, 5)
        of_sink, of_diagonal = construct(task, "sink", 1, "cheap").cost, construct(task, "diagonal", 1).cost
        assert 0.999 * 2 * sink < of_sink.query_key < 1.33 * 2 * sink
        assert 0.999 * 2 * diagonal < of_diagonal.query_key < 1.16 * 2 * diagonal


def test_costs_of_grouped():
    """phi = 0: T_base has nuclear norm r_eta + C; the parts of W_QK have closed forms."""
    task = Grouped(2, 3, 0.5, dim=12, epsilon=0.1)
    lam, unit = np.sqrt(0.75), 10 / np.sqrt(12)
    sink, diagonal = construct(task, "sink").cost, construct(task, "diagonal").cost
    assert sink.value_output == pytest.approx(8, rel=1e-12) and sink.mlp == pytest.approx(2 * 1.1 * 8, rel=1e-12)
    assert diagonal.value_output == pytest.approx(2 * 0.9 * 8, rel=1e-12) and diagonal.mlp == 0
    assert sink.query_key <= 2 * unit * (2 / lam + 2 * (1 + lam) / lam**2)
    # M is C copies of [[s, 0], [b, a]], of nuclear norm sqrt(s^2 + a^2 + b^2 + 2 s a); the noise part is that of Theorem D.1.
    s, a, b = unit / lam**2, unit, 2 * unit / lam
    special = 2 * np.sqrt(s**2 + a**2 + b**2 + 2 * s * a)
    assert diagonal.query_key == pytest.approx(2 * special + 4 * 10 * np.sqrt(12) * 6 / (2 * 0.25 * 12), rel=1e-12)
    cheap = construct(task, "sink", variant="cheap").cost
    assert cheap.value_output + cheap.mlp < sink.value_output + sink.mlp


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: construct(BACKCOPY["wide"], "sinks"), "Argument `pattern` must be one of"),
        (lambda: construct(BACKCOPY["wide"], "sink", 0.0), "Argument `kappa` must be finite and > 0, but was 0.0."),
        (lambda: construct(BACKCOPY["wide"], "sink", 1e308), "Argument `kappa` must be between 1e-100 and 1e+100, but was"),
        (lambda: construct("backcopy", "sink"), "Argument `task` must be a task, such as Backcopy() or"),  # pyright: ignore
        (lambda: evaluate(construct(BACKCOPY["wide"], "sink"), None, "sink"), "Argument `task` must be a task"),  # pyright: ignore
        (lambda: construct(BACKCOPY["wide"], "sink", variant="cheapest"), "Argument `variant` must be one of biased, cheap"),
        (lambda: construct(Grouped(epsilon=0.01), "sink"), "Argument `epsilon` must be larger"),
    ],
)
def test_bad_arguments(make, message: str, unchecked):
    with pytest.raises(ValueError) as found:
        make()
    assert str(found.value).startswith(message)
