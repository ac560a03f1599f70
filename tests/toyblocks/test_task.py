"""The tasks: geometry, routing against brute force over sequences, labels, noise statistics, bad arguments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from toyblocks.task import PATTERNS, AbstractTask, Backcopy, Grouped, label_error, situations_of

TASKS = {
    "compact": Backcopy(4, 2, 3),
    "orthonormal": Backcopy(3, 2, 1, dim=12, scaling="standard"),
    "coherent": Grouped(2, 3, 0.5, dim=14, coherence=0.05, sequence_length=6),
    "gaussian": Grouped(2, 2, 0.25, dim=9, noise="gaussian", sequence_length=5),
}


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_tokens_have_norm_sqrt_d(task: AbstractTask):
    np.testing.assert_allclose(np.sum(task.tokens**2, axis=1), task.dim, rtol=1e-13)


def test_geometries_have_the_same_inner_products():
    compact, orthonormal = Backcopy(5, 2, 3), Backcopy(5, 2, 3, dim=12)
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((12, 12)))[0]
    grams = [t.tokens @ t.tokens.T / t.dim for t in (compact, orthonormal, Backcopy(5, 2, 3, dim=12, rotation=turn))]
    assert (compact.dim, compact.geometry, orthonormal.geometry) == (10, "compact", "orthonormal")
    for gram in grams:
        np.testing.assert_allclose(gram, grams[0], atol=1e-14)
    np.testing.assert_allclose(grams[0][0, 1:], 0, atol=1e-14)  # BOS is orthogonal to every token


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_routing_holds_what_occurs_in_sequences(task: AbstractTask, pattern: str):
    """Every (query, targets, others) of random sequences lies in a case of the routing, and every case's pairs occur."""
    routing = task.routing(pattern)
    sequences = np.asarray(task.sample(jax.random.key(1), 600))
    teacher = np.asarray(task.teacher(sequences, pattern))
    seen = np.zeros(routing.target.shape, int)
    for tokens, weights in zip(sequences, teacher, strict=True):
        for i, query in enumerate(tokens[1:], 1):
            targets, keys = set(tokens[weights[i] > 0]), set(tokens[: i + 1])
            cases = np.flatnonzero(routing.query == query)
            fitting = [c for c in cases if all(routing.target[c, t] for t in targets)]
            assert len(fitting) == 1
            others = np.array(sorted(keys - targets), int)
            assert routing.other[fitting[0], others].all()
            seen[fitting[0], others] += 1
            seen[fitting[0], list(targets)] += 1
    assert ((seen > 0) == (routing.target | routing.other)).all()
    assert not (routing.target & routing.other).any()


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_updates_are_what_the_paper_says(task: AbstractTask):
    tokens = np.asarray(task.sample(jax.random.key(2), 3))
    owed = np.asarray(task.updates(tokens))
    for sequence, rows in zip(tokens, owed, strict=True):
        for i, token in enumerate(sequence):
            if i == 0:
                expected = np.zeros(task.dim)
            elif isinstance(task, Backcopy):
                copies = task.content_of[token] >= task.dormant
                expected = task.tokens[sequence[i - 1] if copies else token]
            else:
                assert isinstance(task, Grouped)
                before = [s for s in sequence[:i] if task.is_dormant[s] and task.group_of[s] == task.group_of[token]]
                mean = task.tokens[before].mean(axis=0) if before else np.zeros(task.dim)
                expected = mean if task.is_copy[token] else task.tokens[token]
            np.testing.assert_allclose(rows[i], expected, atol=1e-5)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_backcopy_lists_every_situation(pattern: str):
    task = TASKS["compact"]
    listed = task.situations(pattern)
    rows = np.concatenate([listed.x, listed.attended, listed.update], axis=1)
    met = situations_of(task, task.sample(jax.random.key(3), 400), pattern)
    found = np.unique(np.round(np.concatenate([met.x, met.attended, met.update], axis=1), 4), axis=0)
    assert len(found) == len(rows) == 1 + 2 * 4 + 3 * (2 + 5 + 5)
    gaps = np.abs(found[:, None] - rows[None]).max(axis=-1)
    assert (gaps.min(axis=0) < 1e-3).all() and (gaps.min(axis=1) < 1e-3).all()


def test_noise_statistics_of_orthonormal_noise():
    """r_eff = C(n-1), r_eta = Cn, Delta_diag = 2 delta^2 d; Sigma_D against its definition."""
    task = Grouped(2, 4, 0.3, dim=20, coherence=0.04)
    assert task.effective_rank == pytest.approx(6, rel=1e-12)
    assert task.noise_rank == 8
    assert task.separation == pytest.approx(2 * 0.3**2 * 20, rel=1e-12)
    tokens = task.tokens[1:9].reshape(2, 4, 20)
    gaps = [tokens[c, i] - tokens[c, j] for c in range(2) for i in range(4) for j in range(i)]
    np.testing.assert_allclose(task.noise_covariance, sum(np.outer(gap, gap) for gap in gaps), atol=1e-12)
    special = np.concatenate([task.tokens[:1], task.special[1:3], task.tokens[-2:]])
    np.testing.assert_allclose(special @ special.T / 20, 0.04 + 0.96 * np.eye(5), atol=1e-13)
    np.testing.assert_allclose(task.etas.reshape(-1, 20) @ special.T, 0, atol=1e-12)


def test_without_noise_a_group_is_one_token():
    task = Grouped(2, 3, 0.0, dim=5)
    assert (task.effective_rank, task.noise_rank, task.separation) == (0.0, 0, float("inf"))
    np.testing.assert_allclose(task.routing("diagonal").target[:6].sum(axis=1), 3)


def test_noise_in_one_dimension_makes_members_coincide():
    """Directions +-1 on one axis: routing and separation call the same tokens the same, turned or not."""
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((6, 6)))[0]
    for delta in (1e-4, 0.25):
        for rotation in (None, turn):
            task = Grouped(2, 3, delta, dim=6, noise="gaussian", rotation=rotation)
            sign = np.sign(np.random.default_rng(0).standard_normal((2, 3)))
            np.testing.assert_array_equal(task.distinct, sign[:, :, None] != sign[:, None])
            np.testing.assert_array_equal(task.same.sum(axis=1)[1:7], (sign[:, :, None] == sign[:, None]).sum(axis=-1).ravel())
            np.testing.assert_array_equal(task.routing("diagonal").target[:6], task.same[1:7])
            assert task.separation == pytest.approx(4 * delta**2 * 6, rel=1e-9)


def test_label_error_is_the_distance_to_the_interval():
    owed = np.array([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [0.0, 0.0]])
    update = np.array([[2.1, 0.0], [2.5, 0.3], [1.0, 0.0], [0.1, 0.2]])
    error, nearest = label_error(update, owed, 0.1)
    np.testing.assert_allclose(error, [[0, 0], [0.3, 0.3], [-0.8, 0], [0.1, 0.2]], atol=1e-6)
    np.testing.assert_allclose(nearest, update - error, atol=1e-6)


def test_a_rotation_may_come_in_any_form():
    """Lists and arrays of JAX in float32 are orthogonal up to their rounding; tokens keep their inner products to 1e-13."""
    plain, turn = Backcopy(3, 1, 1), np.linalg.qr(np.random.default_rng(0).standard_normal((5, 5)))[0]
    for rotation in (turn.tolist(), jnp.asarray(turn, jnp.float32)):
        turned = Backcopy(3, 1, 1, rotation=rotation)
        np.testing.assert_allclose(turned.tokens, plain.tokens @ turn.T, atol=1e-6)
        np.testing.assert_allclose(turned.tokens @ turned.tokens.T, plain.tokens @ plain.tokens.T, atol=1e-13)
        assert turned.tokens.dtype == np.float64
    whole = np.eye(5, dtype=int)[[1, 0, 2, 4, 3]]
    np.testing.assert_array_equal(Backcopy(3, 1, 1, rotation=whole).tokens, plain.tokens @ whole.T)


ROTATION = "Argument `rotation` must be an orthogonal matrix of shape (14, 14), but was "
BAD_ROTATIONS = [
    (np.ones((14, 14)), "of rows with inner products wrong by 14."),
    (np.eye(13), "of shape (13, 13)."),
    (np.eye(14)[:, :13], "of shape (14, 13)."),
    (1.0, "of shape ()."),
    ("turn", "'turn'."),
    ([[1.0, 0.0], [0.0]], "[[1.0, 0.0], [0.0]]."),
    (np.full((14, 14), np.nan), "of size nan."),
    (1j * np.eye(14), "of complex numbers."),
]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Backcopy(1), "Argument `context_length` must be an integer >= 2, but was 1."),
        (lambda: Backcopy(4, 0), "Argument `dormant` must be an integer >= 1, but was 0."),
        (lambda: Backcopy(4, 5, 0), "Argument `copy` must be an integer >= 1, but was 0."),
        (lambda: Backcopy(4, dim=13), "Argument `dim` must be >= 14 for the geometry compact, but was 13."),
        (
            lambda: Backcopy(4, dim=15, geometry="orthonormal"),
            "Argument `dim` must be >= 16 for the geometry orthonormal, but was 15.",
        ),
        (lambda: Backcopy(4, scaling="none"), "Argument `scaling` must be one of"),
        (lambda: Grouped(centroid_keys="no"), "Argument `centroid_keys` must be True or False, but was 'no'."),  # pyright: ignore
        *((lambda each=each: Backcopy(4, rotation=each), f"{ROTATION}{shown}") for each, shown in BAD_ROTATIONS),
        (lambda: Grouped(delta=1.0), "Argument `delta` must be < 1, but was 1.0."),
        (lambda: Grouped(delta=-0.1), "Argument `delta` must be finite and >= 0"),
        (lambda: Grouped(delta=1e-5), "Argument `delta` must be 0 or between 0.0001 and 1 - 1e-09, but was 1e-05."),
        (lambda: Grouped(delta=1e-200), "Argument `delta` must be 0 or between 0.0001 and 1 - 1e-09, but was 1e-200."),
        (lambda: Grouped(delta=1 - 1e-10), "Argument `delta` must be 0 or between 0.0001 and 1 - 1e-09, but was 0.9999999999."),
        (lambda: Grouped(coherence=0.2), "Argument `coherence` must be < 1/(2 groups) = 0.166667, but was 0.2."),
        (lambda: Grouped(dim=36), "Argument `dim` must be >= 37 for orthonormal noise in 3 groups, but was 36."),
        (lambda: Grouped(noise="pink"), "Argument `noise` must be one of gaussian, orthonormal"),
        (lambda: Grouped().routing("sunk"), "Argument `pattern` must be one of diagonal, sink (did you mean `sink`?)"),
    ],
)
def test_bad_arguments(make, message: str, unchecked):
    with pytest.raises(ValueError) as found:
        make()
    assert str(found.value).startswith(message)
