"""The theorems' bounds: hand-computed values, certified optima and constructions between them, and lower bounds on the MLP."""

import numpy as np
import pytest

from toyblocks.bound import BackcopyBound, GroupedBound, bound, first_context_length, identity_costs, mlp_lower
from toyblocks.construct import construct
from toyblocks.task import Backcopy, Grouped

# Certified optima of |W_QK|_* at kappa = 1, |C| = |D| = 5, logits over d, measured independently: T, sink, diagonal.
CERTIFIED = [(4, 8.001, 20.368), (8, 15.399, 61.488), (16, 30.254, 176.87), (32, 60.181, 499.92), (64, 120.8, 1403.0)]
# The same for grouped tasks with kappa = 10, d = 100, C = 3, as costs 2 kappa nuc: n, delta, sink, diagonal.
CERTIFIED_GROUPED = [(2, 0.5, 15.3, 37.0), (5, 0.25, 14.8, 395.0), (10, 0.5, 16.2, 228.0), (30, 0.25, 15.1, 2794.0)]


def backcopy(*arguments, kappa: float = 10.0) -> BackcopyBound:
    found = bound(Backcopy(*arguments), kappa)
    assert isinstance(found, BackcopyBound)
    return found


def grouped(task: Grouped, kappa: float = 10.0) -> GroupedBound:
    found = bound(task, kappa)
    assert isinstance(found, GroupedBound)
    return found


def test_backcopy_by_hand():
    """T = 64, |C| = |D| = 5, d = 76, kappa = 10, standard scaling: each term of (3), and its corrected form, on its own."""
    found, unit = backcopy(64, 5, 5, 76, "standard"), 10 / np.sqrt(76)
    routing = 2 * unit * (np.sqrt(10) + 63)
    assert found.sink_upper_printed == pytest.approx(routing + 192 + 15 + 5 + 4 * 76 * 5 - 2, rel=1e-12)
    assert found.diagonal_lower_printed == pytest.approx(unit * np.sqrt(5 / 3) * 512, rel=1e-12)
    assert found.sink_upper == pytest.approx(2 * routing + 2 * 74 + 4 * 76 * 5 + 2 * 69, rel=1e-12)
    assert found.diagonal_lower == pytest.approx(2 * unit * np.sqrt(2 * 5 * 64 * (64**2 - 1) / 3), rel=1e-12)
    assert (found.sink_cheaper, found.sink_cheaper_printed) == (True, False)


@pytest.mark.parametrize(("scaling", "power"), [("standard", 0.5), ("extra", 0.0)])
def test_scaling_and_dimension(scaling: str, power: float):
    """A large d makes W_QK cheap with the standard scaling, not with the extra one; the MLP grows with d in both."""
    near, far = (backcopy(20, 3, 2, d, scaling) for d in (27, 108))
    assert near.diagonal_lower / far.diagonal_lower == pytest.approx(4**power, rel=1e-12)
    assert near.diagonal_lower_printed / far.diagonal_lower_printed == pytest.approx(4**power, rel=1e-12)
    assert far.sink_upper_printed - near.sink_upper_printed > 4 * 81 * 2 - 2 * 10 * (np.sqrt(6) + 19)


def test_costs_lie_between_the_bounds():
    for length, _, diagonal in CERTIFIED:
        task, found = Backcopy(length, 5, 5), backcopy(length, 5, 5, kappa=1)
        assert max(found.diagonal_lower, found.diagonal_lower_first_dormant) < 2 * diagonal
        assert found.diagonal_lower_printed < found.diagonal_lower
        if length < 64:
            assert construct(task, "sink", 1).cost.total <= found.sink_upper
    assert found.diagonal_lower_first_dormant > found.diagonal_lower  # at last; the printed proof lacks the first position
    # The optimum of W_QK for T = 2, 3, 4 with |C| = |D| = 1 and 2, from a convex program, measured independently.
    for length, few, optimum in [(2, 1, 2.70684), (3, 1, 6.51683), (3, 2, 8.8093), (4, 1, 11.31689), (4, 2, 14.77414)]:
        small = backcopy(length, few, few, kappa=1)
        assert max(small.diagonal_lower, small.diagonal_lower_first_dormant) < 2 * optimum
    orthonormal = Backcopy(4, 3, 2, dim=11)
    assert construct(orthonormal, "sink", 2).cost.total == pytest.approx(backcopy(4, 3, 2, 11, kappa=2).sink_upper, rel=1e-12)


def test_first_context_length():
    """As measured independently for the printed condition; and the first T is the first, by brute force."""
    printed = {10: None, 17: None, 20: 441, 40: 32}
    assert {k: first_context_length(kappa=k, scaling="standard", spare=2, form="printed") for k in printed} == printed
    assert first_context_length(form="printed") == 21
    assert (first_context_length(kappa=0.01, form="printed") or 0) > 1e5  # with the extra root some T always does
    for scaling in ("standard", "extra"):
        first = first_context_length(4, 2, 8.0, scaling, 3)
        verdicts = [backcopy(t, 4, 2, t + 9, scaling, kappa=8.0).sink_cheaper for t in range(2, 90)]
        assert first == 2 + verdicts.index(True)
    # Extreme margins: (4 + 4 |C|) T against 2 kappa sqrt(2 m T^3/3), where T^3 is too large for a float.
    assert (first_context_length(kappa=1e-100) or 0) == pytest.approx(24**2 * 3 / (8 * 5) * 1e200, rel=1e-12)
    assert first_context_length(kappa=1e100) == 5
    # A difference of sides that floats cannot tell is none.
    assert first_context_length(1, 1, 8 / np.sqrt(8 / 3) * (1 + 1e-15), "standard") is None
    assert first_context_length(15, 15) == next(t for t in range(2, 90) if backcopy(t, 15, 15).sink_cheaper)
    # Never: the limits of both sides over T are 4 + 4 |C| and kappa sqrt(8 m/3).
    assert first_context_length(1, 1, 8 / np.sqrt(8 / 3) * (1 - 1e-9), "standard") is None
    assert first_context_length(1, 1, 8 / np.sqrt(8 / 3) * 1.1, "standard") is not None


def test_identity_example():
    found = identity_costs(8, 2.0)
    assert (found.sink_printed, found.diagonal_printed, found.sink, found.diagonal) == (6.0, 18.0, 12.0, 36.0)


def test_grouped_by_hand():
    """C = 2, n = 3, delta = .5, d = 14, phi = 1/20, epsilon = .1: all four, boxed and with the constants of the proof."""
    task = Grouped(2, 3, 0.5, dim=14, coherence=1 / 20, epsilon=0.1, centroid_keys=True)
    found, unit, lam = grouped(task), 10 / np.sqrt(14), np.sqrt(0.75)
    assert (found.effective_rank, found.noise_rank, found.separation) == pytest.approx((4, 6, 7), rel=1e-12)
    noise = 4 * 10 * np.sqrt(14) * 6 / 7
    boxed = (24 * unit + 40, unit, 26 * unit + noise + 24, 16 * unit + unit)
    assert (found.sink_upper, found.sink_lower, found.diagonal_upper, found.diagonal_lower) == pytest.approx(boxed, rel=1e-12)
    assert (found.condition_left, found.condition_right) == pytest.approx((boxed[0], 16 * unit), rel=1e-12)
    gamma, base = 1.25, 6 + 2 * np.sqrt(1.2 / 0.8)
    upper = 2 * gamma * unit * (2 / lam + 2 * (1 + lam) / lam**2) + 3.2 * base
    assert found.sink_upper_sharp == pytest.approx(upper, rel=1e-12)
    lower = 8 * unit / 1.2 / (3 * lam)
    assert found.sink_lower_sharp == pytest.approx(lower, rel=1e-12)
    upper = 2 * gamma * unit * 2 * (1 + 1 / lam) ** 2 + noise + 1.8 * base
    assert found.diagonal_upper_sharp == pytest.approx(upper, rel=1e-12)
    # The noise term of orthonormal noise is twice the boxed one.
    lower = 2 * 16 * unit + 8 * unit / 1.2 / np.sqrt(1 + 9 * 0.75)
    assert found.diagonal_lower_sharp == pytest.approx(lower, rel=1e-12)
    assert found.broken == () and found.sink_cheaper and not found.sink_cheaper_printed
    extra = grouped(Grouped(2, 3, 0.5, dim=14, coherence=1 / 20, epsilon=0.1, scaling="extra"))
    assert extra.condition_right == pytest.approx(160, rel=1e-12)


def test_grouped_bounds_enclose_optima_and_constructions():
    for members, delta, sink, diagonal in CERTIFIED_GROUPED:
        task = Grouped(3, members, delta)
        found = grouped(task)
        for value, optimum in [(found.sink_lower_sharp, sink), (found.sink_lower_dual, sink)]:
            assert value is not None and 0 < value < optimum
        for value in (found.diagonal_lower_sharp, found.diagonal_lower_dual):
            assert value is not None and 0.8 * (diagonal - 20) < value < diagonal
        for upper, sharp, pattern in [
            (found.sink_upper, found.sink_upper_sharp, "sink"),
            (found.diagonal_upper, found.diagonal_upper_sharp, "diagonal"),
        ]:
            assert upper is not None and sharp is not None
            assert construct(task, pattern).cost.total <= sharp <= upper
    # At coherence 0 the operator norms of the duals are those of the proof; the margins in use are 2 C - 1 per C.
    task = Grouped(3, 5, 0.25, centroid_keys=True)
    found = grouped(task)
    assert found.sink_lower_dual == pytest.approx(5 / 3 * (found.sink_lower_sharp or 0), rel=1e-12)


@pytest.mark.parametrize(
    ("task", "broken"),
    [
        (
            Grouped(2, 2, 0.6, dim=9, coherence=0.07, epsilon=0.02),
            ("2 C phi <= 1/4", "phi <= 1/20", "delta <= 1/2", "1/20 <= epsilon"),
        ),
        (Grouped(2, 2, 0.2, dim=9, epsilon=0.3), ("epsilon <= 1/4",)),
        (Grouped(2, 2, 0.2, dim=9, noise="gaussian"), ("c^T W eta = 0",)),
    ],
)
def test_broken_assumptions_are_named(task: Grouped, broken: tuple[str, ...]):
    found = grouped(task)
    assert found.broken == broken
    assert found.sink_upper is found.sink_lower is found.diagonal_upper is found.diagonal_lower is None
    assert not found.sink_cheaper_printed
    assert (found.sink_upper_sharp is None) == (task.epsilon == 0.02)
    assert construct(task, "diagonal").cost.total <= found.diagonal_upper_sharp
    assert 0 < found.diagonal_lower_dual < construct(task, "diagonal").cost.total


@pytest.mark.parametrize("task", [Grouped(2, 3, 0.0, dim=6), Grouped(2, 1, 0.3, dim=8)], ids=["noiseless", "alone"])
def test_without_pairs_there_is_no_noise_term(task: Grouped):
    found = grouped(task)
    assert found.condition_right == 0 and not found.sink_cheaper
    assert found.diagonal_upper == pytest.approx(26 * 10 / np.sqrt(task.dim) + 3 * (found.noise_rank + 2), rel=1e-12)
    assert construct(task, "diagonal").cost.total <= found.diagonal_upper_sharp


def test_members_that_coincide_make_no_pair():
    """Noise in one dimension: below the certified optimum of the diagonal, 97.44 at kappa = 10, measured independently."""
    task = Grouped(2, 3, 0.25, dim=6, noise="gaussian", sequence_length=6)
    pairs = int(np.triu(np.abs(task.etas[:, :, None] - task.etas[:, None]).max(axis=-1) > 1e-6).sum())
    assert 0 < pairs < 6
    for each in (task, Grouped(2, 3, 0.25, dim=6, noise="gaussian", centroid_keys=True)):
        found = grouped(each)
        noise = 4 * 10 * pairs * np.sqrt(6) / np.linalg.norm(each.noise_covariance, 2)
        assert noise < found.diagonal_lower_dual <= construct(each, "diagonal").cost.query_key
    assert grouped(task).diagonal_lower_dual < 97.44
    assert found.diagonal_lower_sharp == pytest.approx(noise + 8 * 10 / np.sqrt(6) / np.sqrt(1 + 9 * (1 - 1 / 16)), rel=1e-12)


def test_mlp_lower():
    """Closed forms; and a linear MLP on dormant tokens alone attains the bound of backcopy, so that it cannot be larger."""
    task = Backcopy(6, 3, 2)
    asleep = task.tokens[1:][task.content_of[1:] < 3]
    centred = np.linalg.svd(asleep - asleep.mean(axis=0))
    directions = centred[2][: int(np.sum(centred[1] > 1e-9))]
    high = 10 * np.sqrt(task.dim)  # one ReLU region
    shift = asleep.mean(axis=0) - directions.T @ (directions @ asleep.mean(axis=0)) - high * directions.sum(axis=0)
    np.testing.assert_allclose(np.maximum(asleep @ directions.T + high, 0) @ directions + shift, asleep, atol=1e-12)
    assert mlp_lower(task) == pytest.approx(2 * np.sum(directions**2), rel=1e-12) == pytest.approx(2 * (6 + 3 - 2), rel=1e-12)
    assert mlp_lower(Grouped(3, 5, 0.25, epsilon=0.1)) == pytest.approx(2 * 0.9 * 14, rel=1e-12)
    assert mlp_lower(Grouped(2, 4, 0.5, dim=14, coherence=0.1)) == pytest.approx(2 * 0.95 * 7, rel=1e-12)
    assert mlp_lower(Grouped(3, 2, 0.0)) == pytest.approx(2 * 0.95 * 2, rel=1e-12)
    # The graphs behind the closed forms: M is flat with as many dimensions, twice which (less epsilon) is the bound.
    noisy = Grouped(2, 3, 0.25, dim=14, coherence=0.05, epsilon=0.1)
    content, position = np.divmod(np.arange(18), 6)
    groups = np.arange(6) // 3
    within = 0.25**2 / (6 * (1 - 0.25**2) * 0.95 + 0.25**2)
    met = (content[:, None] == content) ^ (position[:, None] == position)
    for each, joined, x in [
        (task, 1.0 * met, task.positions[position] + task.contents[content]),
        (noisy, np.where(groups[:, None] == groups, 1.0, within) - np.eye(6), noisy.tokens[1:7]),
    ]:
        values = np.linalg.eigvalsh(x.T @ (np.diag(joined.sum(axis=1)) - joined) @ x)
        assert mlp_lower(each) == pytest.approx(2 * (1 - each.epsilon) * values.sum() / values[-1], rel=1e-12)
    gaussian = Grouped(2, 4, 0.5, dim=9, noise="gaussian")
    assert 2 * 0.95 * gaussian.effective_rank <= mlp_lower(gaussian) < 2 * 0.95 * 7
    for each in (task, gaussian):
        assert mlp_lower(each) <= construct(each, "sink", variant="cheap").cost.mlp


def test_the_inequality_behind_mlp_lower():
    """Random ReLU layers on dormant tokens obey |Y L^(1/2)|_* <= |W_1| |W_2| |M|^(1/2), L the complete graph within groups."""
    rng, task = np.random.default_rng(3), Grouped(2, 4, 0.5, dim=9, noise="gaussian")
    x = task.tokens[task.is_dormant]
    laplacian = np.kron(np.eye(2), 4 * np.eye(4) - 1)
    root = laplacian / 2  # 4 (1 - 11^T/4) is its own square up to 4
    np.testing.assert_allclose(x.T @ laplacian @ x, task.noise_covariance, atol=1e-12)
    for width in (1, 3, 20):
        w_1, w_2 = rng.standard_normal((width, 9)), rng.standard_normal((9, width))
        y = np.maximum(x @ w_1.T + rng.standard_normal(width), 0) @ w_2.T
        right = np.linalg.norm(w_1) * np.linalg.norm(w_2) * np.sqrt(np.linalg.norm(task.noise_covariance, 2))
        assert 0 < np.linalg.norm(root @ y, "nuc") <= right


KAPPA = "Argument `kappa` must be between 1e-100 and 1e+100, but was "
TASK = "Argument `task` must be a task, such as Backcopy() or Grouped(), but was "


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: bound(Backcopy(4), -1.0), "Argument `kappa` must be finite and > 0, but was -1.0."),
        (lambda: bound(Backcopy(4), 1e308), f"{KAPPA}1e+308."),
        (lambda: identity_costs(4, 1e-101), f"{KAPPA}1e-101."),
        (lambda: first_context_length(kappa=1e101), f"{KAPPA}1e+101."),
        (lambda: bound(None), f"{TASK}None."),  # pyright: ignore
        (lambda: mlp_lower("backcopy"), f"{TASK}'backcopy'."),  # pyright: ignore
        (lambda: first_context_length(form="exact"), "Argument `form` must be one of corrected, printed"),
        (lambda: first_context_length(copy=0), "Argument `copy` must be an integer >= 1, but was 0."),
        (lambda: identity_costs(0), "Argument `context_length` must be an integer >= 1, but was 0."),
    ],
)
def test_bad_arguments(make, message: str, unchecked):
    with pytest.raises(ValueError) as found:
        make()
    assert str(found.value).startswith(message)
