"""The certified optimum, against brute force over W in R^{d x d} and against numbers from another program."""

import sys
import warnings
from importlib import import_module

import cvxpy as cp
import numpy as np
import pytest

from toyblocks.optimum import METHODS, optimum, program_of, solve, token_program
from toyblocks.task import PATTERNS, Backcopy, Grouped

SMALL = [
    Backcopy(2, 1, 1),
    Backcopy(2, 2, 3),
    Backcopy(3, 1, 2, dim=8),
    Backcopy(4, 3, 2, scaling="standard"),
    Grouped(2, 2, 0.3, dim=9, coherence=0.1),
    Grouped(2, 2, 0.3, dim=9, coherence=0.1, centroid_keys=True),
    Grouped(1, 3, 0.5, dim=6),
    Grouped(3, 1, 0.5, dim=10),
    Grouped(2, 2, 0.0, dim=6),
    Grouped(2, 2, 0.3, dim=9, sequence_length=2),
    Grouped(2, 3, 0.4, dim=8, noise="gaussian"),
    Grouped(2, 3, 0.4, dim=8, noise="gaussian", centroid_keys=True),
]


def brute_force(task, pattern):
    """The least nuclear norm by the primal program, no symmetry used and every constraint spelled out."""
    w, x, routing = cp.Variable((task.dim, task.dim)), task.tokens, task.routing(pattern)
    logits, rules = task.logit_scale * x @ w @ x.T, []
    for query, target, other, tied in zip(routing.query, routing.target, routing.other, routing.tied, strict=True):
        for key in np.flatnonzero(target):
            rules.append(logits[query, key] - logits[query, np.flatnonzero(other)] >= 1)
            if tied:
                rules.append(logits[query, key] == logits[query, int(np.argmax(target))])
    if isinstance(task, Grouped) and task.centroid_keys:
        rules.append(x[task.is_copy] @ w @ task.etas.reshape(-1, task.dim).T == 0)
    problem = cp.Problem(cp.Minimize(cp.normNuc(w)), rules)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the last digits may be inaccurate
        problem.solve(solver=cp.CLARABEL)
    return problem.value


def smallest_margin(found, task, pattern):
    """From the routing of the task, in float64 NumPy; ties and centroid keys hold, too."""
    routing = task.routing(pattern)
    logits = (task.logit_scale * task.tokens @ found.w_qk @ task.tokens.T)[routing.query]
    low, high = np.where(routing.target, logits, np.inf).min(axis=1), np.where(routing.other, logits, -np.inf).max(axis=1)
    most = np.where(routing.target, logits, -np.inf).max(axis=1)
    np.testing.assert_allclose(most[routing.tied], low[routing.tied], atol=1e-9)
    if isinstance(task, Grouped) and task.centroid_keys:
        np.testing.assert_allclose(task.tokens[task.is_copy] @ found.w_qk @ task.etas.reshape(-1, task.dim).T, 0, atol=1e-9)
    return (low - high).min()


@pytest.mark.parametrize("task", SMALL, ids=lambda task: "-".join(str(value) for value in task.config().values()))
def test_symmetry_loses_nothing(task):
    for pattern in PATTERNS:
        found = optimum(task, pattern)
        assert found.method == "exact" and 0 <= found.gap <= 1e-6
        assert found.primal == pytest.approx(brute_force(task, pattern), rel=1e-5)
        assert smallest_margin(found, task, pattern) >= 1 - 1e-10
        assert np.linalg.norm(found.w_qk, "nuc") == pytest.approx(found.primal, rel=1e-9)


# Measured independently, to the digits given: |C| = |D| = 5, logits over d.
BACKCOPY = {4: (20.368, 8.001), 8: (61.488, 15.399), 16: (176.87, 30.254)}
# 2 kappa times the optimum at kappa = 10 and d = 100, for 3 groups.
GROUPED = {(2, 0.5): (37.0, 15.3), (5, 0.25): (395, 14.8), (10, 0.5): (228, 16.2), (30, 0.25): (2794, 15.1)}


def test_reference_values():
    for length, values in BACKCOPY.items():
        for pattern, value in zip(PATTERNS, values, strict=True):
            found = optimum(Backcopy(length), pattern)
            assert found.primal == pytest.approx(value, rel=5e-5) and 0 <= found.gap <= 1e-6
    for (members, delta), values in GROUPED.items():
        for pattern, value in zip(PATTERNS, values, strict=True):
            found = optimum(Grouped(3, members, delta), pattern)
            assert found.cost(10) == pytest.approx(value, rel=2.5e-2 if pattern == "sink" else 2e-3)
    # With centroid keys 15.98, without 15.25.
    seen = [optimum(Grouped(3, 2, 0.5, centroid_keys=centroid), "sink").cost(10) for centroid in (False, True)]
    np.testing.assert_allclose(seen, [15.25, 15.98], atol=0.005)


def test_longest_exact():
    found = optimum(Backcopy(24), "diagonal", method="exact")
    assert 0 <= found.gap <= 1e-6 and smallest_margin(found, Backcopy(24), "diagonal") >= 1 - 1e-10


def test_grouped_diagonal_is_a_sum_of_its_blocks():
    # One more token in a group adds one to the C (n - 1) copies of the noise's block, nearly all of the cost when delta is small:
    # 1/(delta^2 sqrt(d)) for each, the margin of x over the noise alone.
    costs = [optimum(Grouped(3, members, 0.1), "diagonal").primal for members in (20, 21)]
    assert (costs[1] - costs[0]) / 3 == pytest.approx(1 / (0.1**2 * 10), rel=1e-2)


@pytest.mark.parametrize("method", ["factored", "splitting"])
def test_methods_agree(method):
    few = {"tolerance": 3e-3, "steps": 6000}
    for task in (Backcopy(6, 2, 3), Grouped(2, 3, 0.4, dim=16, noise="gaussian", centroid_keys=True)):
        for pattern in PATTERNS:
            found, exact = optimum(task, pattern, method=method, **few), optimum(task, pattern, method="exact")
            assert found.method == method and found.gap <= few["tolerance"]
            assert found.dual <= exact.primal and found.primal >= exact.dual
            assert smallest_margin(found, task, pattern) >= 1 - 1e-10
    found, exact = solve(program_of(Grouped(2, 3, 0.4), "diagonal"), method, 3e-3, 6000), optimum(Grouped(2, 3, 0.4), "diagonal")
    assert found.gap <= 3e-3 and found.primal / 10 >= exact.dual and found.dual / 10 <= exact.primal


def test_only_inner_products_matter():
    turned, _ = np.linalg.qr(np.random.default_rng(1).standard_normal((12, 12)))
    plain, other = Backcopy(5, 3, 2, dim=12), Backcopy(5, 3, 2, dim=12, geometry="compact", rotation=turned)
    for pattern in PATTERNS:
        first, second = optimum(plain, pattern), optimum(other, pattern)
        assert first.primal == pytest.approx(second.primal, rel=1e-8)
        assert smallest_margin(second, other, pattern) >= 1 - 1e-10
        assert np.linalg.norm(first.w_qk - second.w_qk) > 0.1
    standard = optimum(Backcopy(5, 3, 2, dim=12, scaling="standard"), "sink")
    assert standard.primal == pytest.approx(optimum(plain, "sink").primal / np.sqrt(12), rel=1e-8)


def test_certificates_hold_for_whatever_points():
    rng = np.random.default_rng(2)
    for task in (Backcopy(4, 2, 2), Grouped(2, 2, 0.4, dim=9, coherence=0.1), Grouped(2, 2, 0.4, dim=8, noise="gaussian")):
        program = program_of(task, "diagonal")
        best, full = solve(program, "exact"), token_program(task, "diagonal")
        truth = best.primal
        for _ in range(20):
            table = rng.standard_normal(program.target.shape)
            assert program.dual(table)[0] <= truth
            primal, point = program.primal([part + 0.05 * rng.standard_normal(part.shape) for part in best.parts])
            assert primal >= best.dual and (primal == np.inf or program.min_margin(point) == pytest.approx(1, abs=1e-9))
        # A table that is feasible stays as it is, up to scale, and its norm is 1 by another road.
        bound, table = program.dual(np.where(program.target, 1.0, np.where(program.other, -1.0, 0.0)))
        again, same = program.dual(7 * table)
        assert 0 < bound <= truth and again == pytest.approx(bound, rel=1e-9)
        np.testing.assert_allclose(same, table, atol=1e-12)
        norms = [
            np.linalg.svd(part)[1][0] / each.copies for each, part in zip(program.components, program.pull(table), strict=True)
        ]
        assert max(norms) == pytest.approx(1, abs=1e-9) and max(norms) <= 1
        # The bound and the point of one program are none for another: the pattern with the roles of keys exchanged.
        assert program.primal([-part for part in best.parts])[0] == np.inf
        assert program.dual(-table)[0] == 0
        assert full.primal([full.components[0].left[0] @ program.lift(best.parts) @ full.components[0].right[0].T])[
            0
        ] == pytest.approx(truth, rel=1e-7)


def test_methods_and_what_they_refuse(monkeypatch, unchecked):
    assert METHODS == ("auto", "exact", "factored", "splitting")
    task = Backcopy(2, 1, 1)
    with pytest.raises(ValueError, match=r"Argument `method` must be one of auto, .*did you mean `exact`"):
        optimum(task, "sink", method="exat")
    with pytest.raises(ValueError, match="Argument `pattern` must be one of"):
        optimum(task, "sinc")
    with pytest.raises(ValueError, match="Argument `task` must be a task, .* but was None"):
        optimum(None, "sink")  # pyright: ignore
    with pytest.raises(ValueError, match="Argument `kappa` must be finite and > 0, but was 0"):
        optimum(task, "sink").cost(0)
    with pytest.raises(ValueError, match="Argument `kappa` must be between .* but was 1e\\+101"):
        optimum(task, "sink").cost(1e101)
    with pytest.raises(ValueError, match="^Argument `steps` must be larger .no feasible point was found in so few., but was 1.$"):
        optimum(Backcopy(4, 2, 2), "diagonal", method="splitting", steps=1)
    monkeypatch.setitem(sys.modules, "cvxpy", None)  # as if it were not installed
    with pytest.raises(ValueError, match=r'pip install "attention-scaling-limits\[exact\]"'):
        optimum(task, "sink", method="exact")
    found = optimum(task, "sink")
    assert found.method == "splitting" and found.gap <= 1e-4


def test_where_the_interior_point_method_fails(monkeypatch):
    """Logits of the noise are 1e-8 of the others: Clarabel ends with nothing. `auto` goes on without it."""
    with pytest.raises(ValueError, match="^Argument `method` must not be `exact` for this program: Clarabel ended with ") as info:
        optimum(Grouped(2, 3, 1e-4, 14, sequence_length=6), "diagonal", method="exact")
    with pytest.raises(ValueError, match="^Argument `method` must be small enough for memory .*, but was 'exact'.$"):
        optimum(Backcopy(100), "sink", method="exact")

    def nothing(program):
        raise info.value

    def zero(program):
        return [np.zeros(each.shape) for each in program.components], np.zeros(program.target.shape)

    task, module = Grouped(2, 2, 0.5, dim=9), import_module("toyblocks.optimum.solve")
    least = optimum(task, "diagonal").primal
    for failing in (nothing, zero):
        monkeypatch.setattr(module, "solve_exact", failing)
        found = optimum(task, "diagonal")
        assert found.method == "splitting" and found.gap <= 2e-3 and found.dual <= least <= found.primal
    with pytest.raises(ValueError, match="^Argument `method` must be another one .no feasible point was found., but was"):
        optimum(task, "diagonal", method="exact")
