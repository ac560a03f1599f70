"""Reports on heads: four real ones against stored values, random ones against n x n matrices in float64, and constructed ones."""

import dataclasses
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling import read_tensors
from toyblocks import label_heads
from toyblocks.figure.heads import draw_report
from toyblocks.heads import HeadReport, Masses, Thresholds, label, pattern, uniform_masses
from toyblocks.heads import update as update_file
from toyblocks.heads.label import uniform_too
from toyblocks.oversmoothing import assess, mean_norm, rescaling, rho, rho_after, uniformity
from toyblocks.representability import Representability

SHIPPED = Path(__file__).parent.parent / "data" / "smollm2-heads"
RNG = np.random.default_rng(5)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Causal attention in float64, as one matrix."""
    n = len(logits)
    weights = np.exp(logits - np.where(np.tri(n, dtype=bool), logits, -np.inf).max(axis=1, keepdims=True)) * np.tri(n)
    return weights / weights.sum(axis=1, keepdims=True)


def uniform_attention(n: int) -> np.ndarray:
    return np.tri(n) / np.arange(1, n + 1)[:, None]


def masses_of(a: np.ndarray) -> Masses:
    """By loops over rows."""
    n = len(a)
    columns = [sum(a[i, j] for i in range(j + 1, n)) / (n - 1) for j in range(n)]
    lower = float(np.mean([a[i, i - 1] for i in range(2, n)])) if n > 2 else None
    return Masses(columns[0], float(np.mean([a[i, i] for i in range(1, n)])), lower, max(columns))


def with_attention(*matrices: np.ndarray) -> dict[str, np.ndarray]:
    """Tensors of heads with these attention matrices: key j is the j-th unit vector, queries are logarithms."""
    n = len(matrices[0])
    q = np.stack([np.log(np.maximum(a, 1e-30)) for a in matrices])
    return {"q": q, "k": np.broadcast_to(np.eye(n), q.shape).copy(), "scaling": np.array(1.0)}


def model(dtype: type, sequences: int, n: int, *, heads: int = 4, kv_heads: int = 2, d: int = 24, size: float = 1.0, rng=RNG):
    """A layer whose parts fit together: v = z W_V^T, and attention_output the sum of the heads' updates. Logits grow with
    `size`; the first token is unlike the others."""
    head_dim, value_dim = 8, 5
    x = rng.standard_normal((sequences, n, d)) + rng.standard_normal(d)
    x[:, 0] *= 30
    x *= rng.uniform(2, 3, (sequences, n, 1))
    z = x * np.sqrt(d) / np.linalg.norm(x, axis=-1, keepdims=True)
    w_v = rng.standard_normal((kv_heads, value_dim, d)) / np.sqrt(d)
    w_o = rng.standard_normal((heads, d, value_dim))
    q, k = size * rng.standard_normal((sequences, heads, n, head_dim)), rng.standard_normal((sequences, kv_heads, n, head_dim))
    v = np.einsum("snd,krd->sknr", z, w_v)
    made = {"q": q, "k": k, "v": v, "X": x, "Z": z, "W_O": w_o, "W_V": w_v}
    made = {name: array.astype(dtype) for name, array in made.items()} | {"scaling": np.array(0.5)}
    each = [attention(made, h, s) @ made["v"][s, h * kv_heads // heads] @ made["W_O"][h].T.astype(float)
            for h in range(heads) for s in range(sequences)]  # fmt: skip
    made["attention_output"] = np.sum(np.reshape(each, (heads, sequences, n, d)), axis=0).astype(dtype)
    return made


def attention(made: dict, head: int, sequence: int) -> np.ndarray:
    q, k = made["q"][sequence, head], made["k"][sequence, head * made["k"].shape[1] // made["q"].shape[1]]
    return softmax(float(made["scaling"]) * q.astype(float) @ k.T.astype(float))


def report(made: dict, **arguments) -> HeadReport:
    return label_heads(read_tensors(made), **arguments)


def test_four_real_heads():
    found = label_heads(read_tensors(SHIPPED / "smollm2_heads.npz"))
    expected = json.loads((SHIPPED / "smollm2_heads.json").read_text())["heads"]
    assert sorted(head.name for head in found.heads) == sorted(expected)
    for head in found.heads:
        want = expected[head.name]
        assert (head.label, head.regime) == (want["label"], want["regime"])
        assert head.sink_token == (0 if "sink" in want["label"] else None)
        for name in ("sink", "diagonal", "lower_diagonal", "uniformity", "rho_X", "rho_X_WZ", "rho_X_WZA", "rho_X_WZAu"):
            assert getattr(head, name.lower()) == pytest.approx(want[name], abs=1e-6), name
        for name in ("beta", "beta_tr_bw", "tr_bww"):
            assert getattr(head, name) == pytest.approx(want[name], rel=1e-5), name
        assert head.agrees and head.positive and head.value_rank == 1.0
    for layer in found.layers:
        assert layer.representable and layer.independent
        assert layer.sink_margin is not None and layer.sink_margin > 0.7
    assert found.warnings == (
        "`scaling` is absent from layers 11, 16, 18: 1/sqrt(head_dim) is assumed",
        "`attention_output` is absent from layers 11, 16, 18: no rescaling by (11)",
    )
    written = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert set(written) == {"heads", "layers", "warnings"} and written["layers"][1]["heads"] == [0, 1]
    assert written["heads"][0]["uniform_baseline"]["diagonal"] == pytest.approx(masses_of(uniform_attention(96)).diagonal)


@pytest.mark.parametrize("size", [1.0, 30.0])
def test_heads_against_whole_matrices(size):
    """Grouped queries, three sequences, two blocks of rows, float32; logits up to 8 and up to 200."""
    sequences, n = 3, 700
    made = model(np.float32, sequences, n, size=size)
    found = report(made, half_spaces_up_to=0)
    wide = {name: array.astype(np.float64) for name, array in made.items()}
    x, z = wide["X"], wide["Z"]
    norms, mixed = [], []
    for head in range(4):
        matrices = [attention(made, head, s) for s in range(sequences)]
        v, w_o = wide["v"][:, head // 2], wide["W_O"][head]
        mixed.append(np.stack([a @ v[s] for s, a in enumerate(matrices)]))
        norms.append(mean_norm(mixed[-1], w_o))
        masses = [masses_of(a) for a in matrices]
        columns = np.mean([np.tril(a, -1).sum(axis=0) for a in matrices], axis=0) / (n - 1)
        got, each = found.heads[head], assess(x, z, v, w_o, mixing=np.array([0.0, 1.0]))
        for name in ("sink", "diagonal", "lower_diagonal"):
            assert getattr(got, name) == pytest.approx(np.mean([getattr(m, name) for m in masses]), abs=1e-6)
        assert (got.largest_column, got.layer, got.head, got.n, got.sequences) == (columns.argmax(), 0, head, n, sequences)
        assert got.largest_column_mass == pytest.approx(columns.max(), abs=1e-6)
        assert got.uniformity == pytest.approx(np.mean(uniformity(np.stack(matrices))), abs=1e-6)
        assert (got.regime, got.positive) == (each.regime.name, each.regime.positive)
        assert got.increases_to == pytest.approx(each.regime.increases_to, rel=1e-3)
        assert (got.beta, got.tr_bww) == pytest.approx((each.traces.beta, each.traces.bww), rel=1e-5)
        assert got.beta_tr_bw == pytest.approx(each.traces.beta * each.traces.bw, rel=1e-4)
        assert (got.predicted_rho_x_wz, got.predicted_rho_x_wzau) == pytest.approx(tuple(each.predicted), abs=1e-6)
        assert (got.rho_x_wz, got.rho_x_wzau) == pytest.approx(tuple(each.measured), abs=1e-6)
        assert got.rho_x == pytest.approx(np.mean(rho(x[:, 1:])), abs=1e-6)
        assert [got.rho_x_wza] == pytest.approx(rho_after(x, [mixed[-1]], w_o), abs=1e-6)
        assert got.measured_change == pytest.approx(np.diff(each.measured)[0], abs=2e-6)
        if got.predicted_sign is not None:
            assert got.predicted_sign == {"i": 1, "ii": -1}[each.regime.name]
            assert got.agrees == (got.predicted_sign * np.diff(each.measured)[0] > 0)
    # (11), which is known only after all heads.
    scale = rescaling(wide["attention_output"], np.array(norms))
    assert found.layers[0].rescaling == pytest.approx(scale, rel=1e-5)
    for got, m, w_o in zip(found.heads, mixed, wide["W_O"], strict=True):
        assert [got.rescaled_rho_x_wza] == pytest.approx(rho_after(x, [m], w_o, scale=scale), abs=1e-6)
    layer, (first, others) = found.layers[0], np.split(z, [1], axis=1)
    cosines = np.sum(first * others, axis=-1) / np.linalg.norm(first, axis=-1) / np.linalg.norm(others, axis=-1)
    assert (layer.bos_cosine_smallest, layer.bos_cosine_largest) == pytest.approx((cosines.min(), cosines.max()), abs=1e-6)
    spread = np.linalg.norm(x[:, 1:], axis=-1) / np.linalg.norm(z[:, 1:], axis=-1)
    assert layer.beta_spread == pytest.approx(spread.std() / spread.mean(), rel=1e-5)
    assert found.warnings == ("more than 0 positions in layer 0: no half-spaces (Proposition 4.1)",)


def shares(**mass: float) -> np.ndarray:
    """Attention over 40 tokens with these shares on a pattern or a token (t3), the rest uniform; a row that does not see it
    puts its share on the first."""
    n = 40
    a = (1 - sum(mass.values())) * uniform_attention(n)
    for i in range(n):
        for name, share in mass.items():
            key = {"diagonal": i, "lower": i - 1}.get(name, int(name[1:]) if name[0] == "t" else -1)
            a[i, key if 0 <= key <= i else 0] += share
    return a


def test_labels_of_constructed_heads():
    few = uniform_attention(40)
    few[-2:] = 0
    few[-2:, 36] = 1  # the two rows after token 37 see no other
    cases = {
        "sink": shares(t0=0.5), "diagonal": shares(diagonal=0.5), "lower_diagonal": shares(lower=0.5), "none": few,
        "sink+lower_diagonal": shares(t0=0.2, lower=0.5), "sink+diagonal": shares(t0=0.3, diagonal=0.4),
        "diagonal+lower_diagonal": shares(diagonal=0.4, lower=0.4),
    }  # fmt: skip
    found = report(with_attention(*cases.values(), shares(t3=0.6), shares(t3=0.3, diagonal=0.4)))
    assert [head.label for head in found.heads] == [*cases, "sink", "sink+diagonal"]
    tokens = [head.sink_token for head in found.heads]
    assert tokens == [0, None, None, None, 0, 0, None, 3, 3]
    assert found.heads[3].largest_column == 0 and found.heads[7].sink < 0.1
    for head, a in zip(found.heads, [*cases.values(), shares(t3=0.6)], strict=False):
        masses = masses_of(a)
        assert (head.sink, head.diagonal, head.largest_column_mass) == pytest.approx(
            (masses.sink, masses.diagonal, masses.largest_column_mass), abs=1e-12
        )
    assert "the sink is not the first token: L0H7-8" in found.warnings
    strict = report(with_attention(*cases.values()), thresholds=Thresholds(single=0.9, joint=0.95))
    assert {head.label for head in strict.heads} == {"none"}


def test_thresholds_at_their_edges():
    def of(sink: float, diagonal: float, lower: float | None = 0.0, **limits: float) -> str:
        return label(Masses(sink, diagonal, lower, sink), Thresholds(**limits))

    assert (of(0.4, 0.0), of(0.399999, 0.0), of(0.0, 0.4, None)) == ("sink", "none", "diagonal")
    # A tenth of the joint mass, .06 of .6, not of the total mass.
    assert (of(0.06, 0.54), of(0.0599, 0.54), of(0.061, 0.538)) == ("sink+diagonal", "diagonal", "diagonal")
    assert (of(0.3, 0.3), of(0.3, 0.299)) == ("sink+diagonal", "none")
    # Two pairs: the larger joint mass; two single ones: the larger mass.
    assert of(0.3, 0.32, 0.31) == "diagonal+lower_diagonal"
    assert of(0.45, 0.5, joint=1.0) == "diagonal"
    assert (of(0.3, 0.0, single=0.3), of(0.06, 0.54, part=0.2)) == ("sink", "diagonal")
    # The sink is the largest column, whatever the first token has.
    assert label(Masses(0.05, 0.02, 0.0, 0.5)) == "sink"


@pytest.mark.parametrize("n", [2, 3, 5, 6, 33])
def test_uniform_attention_is_its_own_baseline(n):
    zeros = np.zeros((1, n, 3))
    found = report({"q": zeros, "k": zeros, "scaling": np.array(1.0)})
    (head,), expected = found.heads, masses_of(uniform_attention(n))
    for masses in (head, head.uniform_baseline):
        assert (masses.sink, masses.diagonal, masses.largest_column_mass) == pytest.approx(
            (expected.sink, expected.diagonal, expected.largest_column_mass), abs=1e-14
        )
        assert masses.lower_diagonal == (None if n == 2 else pytest.approx(expected.lower_diagonal, abs=1e-14))
    assert head.uniformity == pytest.approx(1, abs=1e-14)
    # Twice the mean of 1/2, ..., 1/n reaches .6 up to n = 5, once .4 up to 3.
    assert head.label == ("sink+diagonal" if n <= 5 else "none")
    line = f"uniform attention over n = {n} tokens is labelled `sink+diagonal`, too: L0H0"
    assert (line in found.warnings) == (n <= 5)
    assert uniform_too("sink", n) == (n <= 3) and uniform_masses(n) == head.uniform_baseline


PATTERN, RANKS = ("sink", "uniformity", "largest_column_mass"), ("value_rank",)
THEOREM, RESCALED = ("regime", "tr_bww", "rho_x_wza", "predicted_rho_x_wz", "measured_change"), ("rescaled_rho_x_wza",)


@pytest.mark.parametrize(
    "without, kept, lines",
    [
        ("", (PATTERN, RANKS, THEOREM, RESCALED), []),
        ("v", (PATTERN, RANKS, THEOREM, RESCALED), []),
        ("W_V", (PATTERN, RANKS, THEOREM, RESCALED), []),
        ("attention_output", (PATTERN, RANKS, THEOREM), ["`attention_output` is absent from layer 0: no rescaling by (11)"]),
        ("W_O", (PATTERN, RANKS), ["`W_O` is absent from layer 0: no Theorem 5.1"]),
        ("v W_V", (PATTERN,), [f"`v` is absent from layer 0: no {what}" for what in ("ranks of the values", "Theorem 5.1")]),
        (
            "X Z",
            (PATTERN, RANKS),
            [
                "`X`, `Z` are absent from layer 0: no Theorem 5.1",
                "`Z` is absent from layer 0: no cosines with the first token and half-spaces (Proposition 4.1)",
            ],
        ),
    ],
)  # fmt: skip
def test_what_is_absent_skips_its_section(without, kept, lines, small):
    made, whole = small
    found = report({name: array for name, array in made.items() if name not in without.split()})
    assert list(found.warnings) == lines
    for fields in (PATTERN, RANKS, THEOREM, RESCALED):
        for name in fields:
            for got, want in zip(found.heads, whole.heads, strict=True):
                if fields in kept:
                    value = getattr(want, name)
                    assert getattr(got, name) == (value if isinstance(value, str) else pytest.approx(value, rel=1e-9))
                else:
                    assert getattr(got, name) is None
    layer = found.layers[0]
    assert (layer.rho_x is None, layer.rescaling is None) == (THEOREM not in kept, RESCALED not in kept)
    assert (layer.representable is None) == ("Z" in without.split()) == (layer.bos_cosine_largest is None)
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.fixture(scope="module")
def small() -> tuple[dict, HeadReport]:
    made = model(np.float64, 2, 12)
    return made, report(made)


def test_what_does_not_fit_is_warned_of(small):
    made, whole = small
    scaled = report({**made, "W_V": made["W_V"] * RNG.uniform(1, 2, made["W_V"].shape[-1])})
    assert len(scaled.warnings) == 1 and scaled.warnings[0].startswith("`v` is not Z W_V^T in layer 0 and is used")
    assert scaled.heads == whole.heads
    part = {name: array[:, :2] if name == "q" else array for name, array in made.items()} | {"W_O": made["W_O"][:2]}
    assert any("the heads do not add up to `attention_output` in layer 0" in line for line in report(part).warnings)
    # Tokens 1 and 2 opposite to each other: no half-space has both.
    z = made["Z"].copy()
    z[0, 2] = -z[0, 1]
    layer = report({**made, "Z": z}).layers[0]
    assert layer.representable is False and layer.attending_margin == 0 and layer.independent is False
    two = report({"q": made["q"][:, :, :2], "k": made["k"][:, :, :2], "scaling": made["scaling"],
                  **{name: made[name][..., :2, :] for name in ("v", "X", "Z")}, "W_O": made["W_O"]})  # fmt: skip
    assert two.heads[0].regime is None and "fewer than 3 positions in layer 0: no Theorem 5.1" in two.warnings


def test_ranks_and_agreement_come_out_either_way():
    n, sizes = 12, np.array([5.0, 0.0052, 0.0048, 0.0])  # two above 1e-3 of the largest
    v = np.linalg.qr(RNG.standard_normal((n, 4))).Q * sizes @ np.linalg.qr(RNG.standard_normal((4, 4))).Q
    zeros = np.zeros((2, 1, n, 3))
    values = np.stack([v, np.linalg.qr(v + RNG.standard_normal((n, 4))).Q])[:, None]
    head = report({"q": zeros, "k": zeros, "v": values, "scaling": np.array(1.0)}).heads[0]
    assert (head.value_rank, head.value_rank_smallest, head.value_rank_largest) == (0.75, 0.5, 1.0)
    # Four tokens are far from the law that the theorem is about.
    seen = set()
    for _ in range(20):
        made = model(np.float64, 1, 5, d=4)
        for place, head in enumerate(report(made).heads):
            each = assess(made["X"], made["Z"], made["v"][:, place // 2], made["W_O"][place], mixing=np.array([0.0, 1.0]))
            if each.regime.name in ("i", "ii") and each.regime.positive:
                assert head.agrees == ((each.measured[1] > each.measured[0]) == (each.regime.name == "i"))
            else:
                assert head.agrees is None and head.predicted_sign is None
            seen.add(head.agrees)
    assert seen == {True, False, None}


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.1, 10.0))
def test_what_a_head_does_has_no_coordinates(seed, factor):
    """Turning queries and keys together, and values against W_O, and scaling these against each other, changes nothing; nor
    does the order of the heads, of the sequences and of the coordinates of the residual stream."""
    rng = np.random.default_rng(seed)
    made = model(np.float64, 2, 9, heads=3, kv_heads=3, d=7, rng=rng)
    before = report(made)
    turns = [np.linalg.qr(rng.standard_normal((3, size, size))).Q for size in (made["q"].shape[-1], made["v"].shape[-1])]
    order, swap, places = rng.permutation(3), rng.permutation(2), rng.permutation(7)
    after = report(
        {
            "q": (made["q"] @ turns[0])[swap][:, order] / factor,
            "k": (made["k"] @ turns[0])[swap][:, order] * factor,
            "v": (made["v"] @ turns[1])[swap][:, order] * factor,
            "W_O": (made["W_O"] @ turns[1])[order][:, places] / factor,
            **{name: made[name][swap][..., places] for name in ("X", "Z", "attention_output")},
            "scaling": made["scaling"],
        }
    )
    for place, was in zip(range(3), order, strict=True):
        got, want = dict(vars(after.heads[place])), dict(vars(before.heads[was]))
        errors = [np.array(dataclasses.astuple(each.pop("masses_se")), float) for each in (got, want)]
        np.testing.assert_allclose(*errors, rtol=1e-7, atol=1e-9)
        for name, value in want.items():
            if name not in ("head", "uniform_baseline"):
                assert got[name] == (pytest.approx(value, rel=1e-7, abs=1e-9) if isinstance(value, float) else value), name


def test_standard_errors_are_those_of_reports_on_single_sequences():
    made = model(np.float64, 4, 9, heads=2, kv_heads=2, d=7, rng=np.random.default_rng(4))
    weights = ("W_O", "W_V", "scaling")
    single = [report({name: a if name in weights else a[[i]] for name, a in made.items()}) for i in range(4)]
    for place, head in enumerate(report(made).heads):
        alone = [each.heads[place] for each in single]
        assert head.masses_se is not None and all(each.masses_se is None and each.measured_change_se is None for each in alone)
        for name in ("sink", "diagonal", "lower_diagonal"):
            values = np.array([getattr(each, name) for each in alone])
            assert getattr(head, name) == pytest.approx(np.mean(values))
            assert getattr(head.masses_se, name) == pytest.approx(np.std(values, ddof=1) / 2)
        changes = np.array([each.measured_change for each in alone], float)
        assert head.measured_change == pytest.approx(np.mean(changes))
        assert head.measured_change_se == pytest.approx(np.std(changes, ddof=1) / 2)


def test_memory_is_not_a_matrix():
    n = 6000
    q, k = (RNG.standard_normal((n, 2)).astype(np.float32) for _ in range(2))
    tracemalloc.start()
    found = pattern(q, k, 1.0, k)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n * n  # a quarter of one matrix
    i = n - 1
    last = np.exp(q[i].astype(float) @ k.T)
    assert found.mixed is not None
    np.testing.assert_allclose(found.mixed[i], last @ k / last.sum(), atol=1e-5)
    assert found.columns.sum() + found.diagonal == pytest.approx(1, abs=1e-6)


def test_what_is_refused(small):
    made, _ = small
    x, z = made["X"].copy(), made["Z"].copy()
    x[1, 4] = 0
    z[0, 0] = 0
    for changed, message in (({"X": x}, "`X of layer 0` must have no zero vector, but was of one at position 4 of sequence 1"),
                             ({"Z": z}, "`Z of layer 0` must have no zero vector, but was of one at position 0")):  # fmt: skip
        with pytest.raises(ValueError, match=f"Argument {message}"):
            report({**made, **changed})
    with pytest.raises(ValueError, match="Argument `half_spaces_up_to` must be an integer >= 0, but was -1"):
        report(made, half_spaces_up_to=-1)
    for name, value in (("single", 0.0), ("joint", 1.5), ("part", -0.1)):
        with pytest.raises(ValueError, match=f"Argument `{name}` must be"):
            Thresholds(**{name: value})


def label_by_cells(a: np.ndarray) -> tuple[str, int | None]:
    """Labels and sinks by sets of cells, each counted once; rows from 1 on, and the lower diagonal from row 2 on."""
    n = len(a)
    i, j = np.indices((n, n))
    cells = {"diagonal": (i == j) & (i > 0), "lower_diagonal": (i == j + 1) & (i > 1)}
    columns = [(j == key) & (i > key) for key in range(n)]
    best = int(np.argmax([a[column].sum() for column in columns]))
    for sink in (0, best):
        here = {**cells, "sink": columns[sink]}
        alone = {name: a[cell].sum() / (n - 1 - (name == "lower_diagonal")) for name, cell in here.items()}
        pairs = {}
        for first, second in (("sink", "lower_diagonal"), ("sink", "diagonal"), ("diagonal", "lower_diagonal")):
            joint = a[here[first] | here[second]].sum() / (n - 1)
            assert joint <= 1 + 1e-12
            if joint >= 0.6 and min(alone[first], alone[second]) >= 0.1 * joint:
                pairs[f"{first}+{second}"] = joint
        single = {name: mass for name, mass in alone.items() if mass >= 0.4}
        found = max(pairs or single or {"none": 0.0}, key=lambda name: (pairs or single or {"none": 0.0})[name])
        if "sink" in found:
            return found, sink
    return found, None


def test_labels_count_a_weight_once_and_the_first_token_first():
    rng, n = np.random.default_rng(8), 7
    sharp = rng.exponential(size=(200, n, n)) ** 3 * np.tri(n)
    sharp[:, :, 0] *= rng.uniform(0, 3, (200, 1))
    sharp[:, 3:, 2] *= rng.uniform(0, 9, (200, 1))
    sharp[:100] += np.eye(n, k=-1) * rng.uniform(0, 9, (100, 1, 1))
    sharp[100:] += np.eye(n) * rng.uniform(0, 9, (100, 1, 1))
    sharp /= sharp.sum(axis=2, keepdims=True)
    found = report(with_attention(*sharp))
    expected = [label_by_cells(a) for a in sharp]
    assert [(head.label, head.sink_token) for head in found.heads] == expected
    assert {name for name, _ in expected} > {"sink", "diagonal", "lower_diagonal", "sink+lower_diagonal", "none"}
    assert {sink for _, sink in expected} > {None, 0, 2}
    # The labels are not those of the largest column alone, nor of sums that count weights twice.
    assert any(head.sink_token == 0 != head.largest_column for head in found.heads)
    assert any(label(masses_of(a)) != name for a, (name, _) in zip(sharp, expected, strict=True))
    (head,) = report(with_attention(0.6 * np.eye(20) + 0.4 * uniform_attention(20))).heads
    assert (head.label, head.sink_token) == ("diagonal", None)
    a = 0.54 * np.eye(20) + 0.06 * np.eye(20)[[0] * 20]
    for i in range(20):  # the rest on token 11, and before it on no token in particular
        a[i, 11 if i > 11 else slice(min(i, 1), max(i - 1, 1))] += 0.4 / (1 if i > 11 else max(i - 2, 1))
    (head,) = report(with_attention(a / a.sum(axis=1, keepdims=True))).heads
    assert head.label == "sink+diagonal" and head.largest_column == 11 and head.sink_token == 0


def test_parts_that_uniform_attention_has_are_warned_of():
    lower = np.eye(10, k=-1)
    lower[0, 0] = 1
    found = report(with_attention(lower, 0.8 * lower + 0.2 * np.eye(10)[[0] * 10]))
    assert [head.label for head in found.heads] == ["sink+lower_diagonal"] * 2
    line = "the sink of the label `sink+lower_diagonal` has no more mass than in uniform attention over n = 10 tokens: L0H0"
    assert line in found.warnings


def test_degenerate_heads_leave_the_others_alone(small):
    """A layer that is cut out, and a head that is minus the residual stream, beside the layer as it is."""
    made, whole = small
    d = made["X"].shape[-1]
    turned = np.concatenate([np.eye(d)] * 2), -2.0 * np.eye(d)[None].repeat(4, axis=0)
    turned[1][2:] *= 0.5
    last = {**made, "W_V": turned[0].reshape(2, d, d), "W_O": turned[1], "X": 2.0 * made["Z"]}
    del last["v"], last["attention_output"]
    cut = {**made, "W_O": 0 * made["W_O"], "attention_output": 0 * made["attention_output"]}
    layers = {"L0": cut, "L1": last, "L2": made, "L3": {**made, "v": 0 * made["v"]}}
    found = report({f"{layer}/{name}": array for layer, arrays in layers.items() for name, array in arrays.items()})
    assert [dataclasses.replace(head, layer=0) for head in found.heads[8:12]] == list(whole.heads)
    assert {head.regime for head in found.heads[:4] + found.heads[12:]} == {"constant"}
    assert [head.rho_x_wz is None for head in found.heads[4:8]] == [True, True, False, False]
    assert [head.regime for head in found.heads[4:8]] == [None, None, "ii", "ii"] and found.layers[1].rho_x is not None
    for line in ("every head's update is 0 in layers 0, 3: no rescaling by (11)",
                 "no Theorem 5.1, since an update leaves a token at 0 up to rounding: L1H0-1"):  # fmt: skip
        assert line in found.warnings
    assert any(line.startswith("`v` is not Z W_V^T in layer 3 and is used") for line in found.warnings)
    silent = report({**made, "attention_output": 0 * made["attention_output"]})
    assert any("do not add up to `attention_output` in layer 0" in line for line in silent.warnings)
    assert silent.heads[0].rescaled_rho_x_wza == pytest.approx(silent.heads[0].rho_x, abs=1e-12)


def test_tokens_are_passed_in_chunks(small, monkeypatch):
    made, whole = small
    monkeypatch.setattr(update_file, "_CHUNK", 5)
    for got, want in zip(report(made).heads, whole.heads, strict=True):
        for name in (*THEOREM[1:], *RESCALED, "rho_x", "rho_x_wz"):
            assert getattr(got, name) == pytest.approx(getattr(want, name), rel=1e-9)
    assert report(made).layers[0].bos_cosine_smallest == pytest.approx(whole.layers[0].bos_cosine_smallest, rel=1e-12)


def test_half_spaces_that_float64_cannot_tell(small, monkeypatch):
    made, whole = small
    monkeypatch.setattr(Representability, "representable", False)
    monkeypatch.setattr(Representability, "excluded", False)
    assert report(made).layers[0].representable is None and whole.layers[0].representable is True


def test_figure_of_heads_that_change_nothing(small, tmp_path):
    made, _ = small
    found = report({**made, "W_O": 0 * made["W_O"]}, half_spaces_up_to=0)
    assert {head.regime for head in found.heads} == {"constant"}
    assert (tmp_path / "a.png") in draw_report(found, tmp_path / "a.png")


def test_values_that_differ_by_a_twentieth(small):
    made, _ = small
    off = report({**made, "W_V": 1.05 * made["W_V"]})
    assert any(line.startswith("`v` is not Z W_V^T in layer 0") for line in off.warnings)
    assert not report({**made, "W_V": 1.01 * made["W_V"]}).warnings


def test_sink_elsewhere_is_not_doubted():
    """The sink is token 3, with more than uniform attention; the first token has less."""
    found = report(with_attention(shares(t3=0.5)))
    (head,) = found.heads
    assert head.sink_token == 3 and not any("no more mass" in line for line in found.warnings)
