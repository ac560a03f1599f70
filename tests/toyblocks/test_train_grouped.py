"""Training of values, outputs and the MLP on the grouped task."""

import numpy as np
import pytest

from toyblocks.bound import mlp_lower
from toyblocks.task import Grouped
from toyblocks.train.grouped import chain, own_axes, train_values

SHORT = 100  # steps of a stage


def _sink_rows(task, sequences=40):
    """Token, what it attends to, what it owes, in random sequences, drawn and paired in NumPy."""
    rng, rows = np.random.default_rng(5), []
    bos, nothing = task.tokens[0], np.zeros(task.dim)
    for _ in range(sequences):
        rows.append((bos, bos, nothing))
        before = {group: [] for group in range(task.groups)}
        for is_copy, group, member in zip(rng.random(50) < 0.25, rng.integers(0, 3, 50), rng.integers(0, 2, 50), strict=True):
            x = task.special[4 + group] if is_copy else np.sqrt(0.75) * task.special[1 + group] + task.etas[group, member]
            if not is_copy:
                before[group].append(x)
                rows.append((x, bos, x))
            else:
                mean = np.mean(before[group], axis=0) if before[group] else None
                rows.append((x, bos, nothing) if mean is None else (x, mean, mean))
    return (np.array(each) for each in zip(*rows, strict=True))


def _measured(weights, task):
    """Per seed: cost, that of the MLP, residual, and value at BOS of a sink."""
    x, attended, owed = _sink_rows(task)
    found = []
    for w_v, w_o, w_1, b_1, w_2, b_2 in zip(*weights, strict=True):
        y = x + attended @ (w_o @ w_v).T
        z = 10 * y / np.linalg.norm(y, axis=1, keepdims=True)
        made = y + np.maximum(z @ w_1.T + b_1, 0) @ w_2.T + b_2 - x
        square = np.maximum(np.sum(owed**2, axis=1), 1e-9)
        label = np.clip(np.sum(made * owed, axis=1) / square, 0.95, 1.05)[:, None] * owed
        residual = np.sqrt(np.sum((made - label) ** 2) / np.sum((x + label) ** 2))
        mlp = np.sum(w_1**2) + np.sum(w_2**2)
        value = np.linalg.norm(w_o @ w_v @ task.tokens[0]) / 10
        found.append((np.sum(w_v**2) + np.sum(w_o**2) + mlp, mlp, residual, value))
    return np.array(found).T


def test_sink_is_as_cheap_as_measured_before_and_solves_the_task():
    """Costs in float64 on sequences of its own, against 16.8, measured independently; more than 15.2, where seeds agree."""
    task = Grouped(per_group=2, delta=0.5)
    cost, _, residual, value = _measured(train_values(task, "sink", seeds=2), task)
    assert residual.max() < 2e-3
    assert 15.2 < cost.min() <= cost.max() < 16.8 and np.ptp(cost) < 0.1
    assert value.min() > 0.1

    dearer, mlp, residual, value = _measured(train_values(task, "sink", seeds=2, silent_bos=True), task)
    assert value.max() < 1e-12 and residual.max() < 2e-3
    assert mlp.min() >= mlp_lower(task) > 5
    assert dearer.min() > cost.max()


def test_weights_turn_with_the_tokens():
    rotation = np.linalg.qr(np.random.default_rng(3).standard_normal((100, 100)))[0]
    plain = train_values(Grouped(per_group=2, delta=0.5), "sink", seeds=2, steps=SHORT)
    turned = train_values(Grouped(per_group=2, delta=0.5, rotation=rotation), "sink", seeds=2, steps=SHORT)
    back = rotation.T
    expected = (plain.w_v @ back, rotation @ plain.w_o, plain.w_1 @ back, plain.b_1, rotation @ plain.w_2, plain.b_2 @ back)
    for name, one, other in zip(plain._fields, expected, turned, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-3 * np.abs(one).max(), err_msg=name)
    assert not np.allclose(turned.w_v, plain.w_v, atol=1e-2)


def test_chain_ends_at_delta():
    assert chain(0.5) == (0.5,) and chain(0.1) == (0.5, 0.25, 0.1) and chain(0.3) == (0.5, 0.3)
    assert chain(0.9) == (0.9,) and chain(0.0) == (0.0,)


@pytest.mark.parametrize(
    "task, rank",
    [
        (Grouped(per_group=4, dim=40, coherence=0.1), 19),
        (Grouped(per_group=4, dim=15, noise="gaussian"), 15),  # 12 noise vectors in 8 dimensions
        (Grouped(per_group=4, dim=15, delta=0.0), 7),
    ],
)
def test_own_axes_are_a_basis_of_the_tokens(task, rank):
    axes = own_axes(task)
    np.testing.assert_allclose(axes @ axes.T, np.eye(rank), atol=1e-12)
    np.testing.assert_allclose(task.tokens @ axes.T @ axes, task.tokens, atol=1e-12)


def test_own_axes_are_those_of_the_task():
    rotation = np.linalg.qr(np.random.default_rng(4).standard_normal((100, 100)))[0]
    np.testing.assert_allclose(own_axes(Grouped(per_group=5, rotation=rotation)), rotation.T[:22], atol=1e-12)


def test_bad_arguments():
    task = Grouped(per_group=2, dim=13)
    with pytest.raises(ValueError, match="Argument `width` must be an integer >= 1"):
        train_values(task, "sink", width=0)
    with pytest.raises(ValueError, match="Argument `seeds` must be an integer >= 1"):
        train_values(task, "sink", seeds=0)
    with pytest.raises(ValueError, match="Argument `pattern` must"):
        train_values(task, "sinks")
