"""The figures of a model: what is measured of its tensors, and that every figure draws."""

from typing import Any

import numpy as np
import pytest
import xarray
from matplotlib.figure import Figure

from scaling import read_tensors
from toyblocks import label_heads
from toyblocks.figure import model as figures
from toyblocks.figure.model import heads as heads_file
from toyblocks.figure.model import tokens as tokens_file
from toyblocks.oversmoothing import rho

HEADS, KEY_HEADS, N, D, R = 4, 2, 24, 12, 3


def random_tensors(seed: int) -> dict[str, np.ndarray]:
    """Two layers of random tensors in which v = Z W_V^T and the heads' updates add up."""
    rng = np.random.default_rng(seed)
    arrays: dict[str, np.ndarray] = {}
    for layer in range(2):
        x = rng.normal(size=(1, N, D)) + rng.normal(size=D)
        z = x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True))
        w_v, w_o = rng.normal(size=(KEY_HEADS, R, D)), rng.normal(size=(HEADS, D, R))
        q, k = rng.normal(size=(1, HEADS, N, R)), rng.normal(size=(1, KEY_HEADS, N, R))
        v = np.einsum("snd,krd->sknr", z, w_v)
        a = figures.matrices(q[0], k[0], 0.7)
        update = np.einsum("hij,hjr,hdr->id", a, v[0].repeat(2, axis=0), w_o)
        found = {"q": q, "k": k, "v": v, "X": x, "Z": z, "W_V": w_v, "W_O": w_o, "attention_output": update[None]}
        arrays |= {f"L{layer}/{name}": array for name, array in {**found, "scaling": np.array(0.7)}.items()}
    return arrays


@pytest.fixture(scope="module")
def data() -> xarray.Dataset:
    scales = {0: np.full(D, 2.0), 1: np.arange(1.0, D + 1)}
    found = [figures.measure(random_tensors(seed), [8, N], scales, half_spaces=True) for seed in range(8)]
    names = [name for name in ("one", "two", "three", "four") for _ in range(2)]
    return xarray.concat(found, "sequence").assign_coords(source=("sequence", names))


def test_the_start_of_a_sequence_is_a_shorter_one(data):
    arrays = random_tensors(3)
    x, z, v = (arrays[f"L1/{name}"][0] for name in ("X", "Z", "v"))
    a = figures.matrices(arrays["L1/q"][0, :, :8], arrays["L1/k"][0, :, :8], 0.7)
    np.testing.assert_allclose(a.sum(axis=-1), 1)
    head, at = 2, data.isel(sequence=3, layer=1, length=0)
    values = v[1, :8] @ arrays["L1/W_O"][head].T
    for update, weights in (("wz", np.eye(8)), ("wza", a[head])):
        expected = rho((x[:8] + weights @ values)[None, 1:])[0]
        np.testing.assert_allclose(at.rho_after.sel(update=update)[head], expected, rtol=1e-5)
    np.testing.assert_allclose(at.mass.sel(pattern="diagonal")[head], np.diag(a[head])[1:].mean(), rtol=1e-5)
    np.testing.assert_allclose(at.rho_layer, rho((x + arrays["L1/attention_output"][0])[None, 1:8])[0])
    np.testing.assert_allclose(at.rho_predicted, rho(z[None, 1:8])[0])  # an identity where |Z_i| is constant
    unit = z * np.arange(1.0, D + 1)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    np.testing.assert_allclose(data.cosine[3, 1, :, 1], unit[1:] @ unit[0], rtol=1e-6)


def test_conditions_and_their_agreement(data):
    of = figures.regimes(data).isel(length=-1).values
    first, second = (data[name].isel(length=-1).mean("sequence").values for name in ("beta_tr_bw", "tr_bww"))
    assert set(of.ravel()) <= {"i", "ii", "middle"} and np.all((of == "i") == (first > 0))
    assert np.all((of == "ii") == (first + second < 0))
    single = figures.regimes(data.isel(sequence=2, length=-1)).values
    assert single.shape == of.shape and np.all((single == "i") == (data.beta_tr_bw.isel(sequence=2, length=-1) > 0))
    dense = ~figures.sinks(data).isel(length=-1).values
    counts = figures.agreement(data, "wz", "wzau")
    assert sum(total for _, total in counts.values()) == dense.sum()
    mean = data.rho_after.isel(length=-1).mean("sequence")
    rises = (mean.sel(update="wzau") > mean.sel(update="wz")).values
    assert counts["i"] == (np.sum(rises & (of == "i") & dense), np.sum((of == "i") & dense))


def test_labels_and_shares():
    mass = np.zeros((2, 1, 1, 4, 3))  # sequence length layer head pattern
    mass[:, 0, 0] = [[0.9, 0, 0], [0.3, 0, 0.5], [0.05, 0.5, 0.6], [0.1, 0.1, 0.1]]
    largest = np.zeros((2, 1, 1, 4))
    largest[:] = [0.9, 0.3, 0.2, 0.1]
    largest[:, 0, 0, 3] = [0.5, 0.3]  # a sink in the mean, of whichever tokens
    data = xarray.Dataset({"mass": (("sequence", "length", "layer", "head", "pattern"), mass),
                           "largest_column_mass": (("sequence", "length", "layer", "head"), largest)},
                          {"pattern": ["sink", "diagonal", "lower_diagonal"], "length": [64]})  # fmt: skip
    found = {"sink": 1, "sink+lower_diagonal": 1, "diagonal+lower_diagonal": 1, "none": 1}
    assert figures.labels(data) == found
    del found["none"]
    assert figures.labels(data, any_token=True) == found | {"sink": 2}
    assert figures.remark_c4(data) == (0.25, 0.0)


def test_scores_find_what_they_are_named_for():
    ids = np.array([0, 1, 2, 1, 2, 1, 2, 1])
    n = len(ids)
    a = np.zeros((4, n, n))
    a[:, :, 0] = 0.5  # half of every row goes to BOS, or to itself
    a[[1, 3]] = 0.5 * np.eye(n)
    for head in (0, 1):
        a[head, np.arange(1, n), np.arange(n - 1)] += 0.5
    for head in (2, 3):
        for row in range(3, n):
            earlier = np.flatnonzero(ids[:row] == ids[row])
            a[head, row, earlier] += 0.5 / len(earlier)
    found = figures.scores(a, ids)
    assert found.argmax(axis=1).tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(found.max(axis=1), [0.25, 0.25, 0.25, 0.25])


@pytest.mark.parametrize("name", ["contexts", "by_source", "components", "layers", "errors", "against_uniformity", "examples",
                                  "value_ranks"])  # fmt: skip
def test_every_figure_draws(data, tmp_path, name):
    path = tmp_path / "figure.png"
    getattr(figures, name)(data).savefig(path, dpi=40)
    assert path.stat().st_size > 1000


def test_contexts_and_sources_are_those_of_the_data(data):
    for figure in (figures.contexts(data), figures.examples(data)):
        assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == ["8", "24"]
    for names in (["one"] * 8, ["all"] * 4 + ["two"] * 4, [f"{place}" for place in range(8)]):
        some = data.assign_coords(source=("sequence", names))
        count = len(set(names))
        assert len(figures.value_ranks(some).axes) == 1 + count and len(figures.components(some).axes) == 2 * count
        assert len(figures.by_source(some).axes[0].lines) == 2 * count


def test_the_other_figures_draw(data, tmp_path):
    q, k = np.random.default_rng(0).normal(size=(2, 4, 9, 3))
    drawn = [
        figures.cosines(data, data),
        figures.changes(data, "wz", "wza", "change"),
        figures.patterns(list(figures.matrices(q, k, 1.0)), list("abcd"), list("xyz")),
    ]
    for place, figure in enumerate(drawn):
        figure.savefig(tmp_path / f"{place}.png", dpi=40)


def test_fields_are_those_of_the_report(data):
    """Fields of the dataset are those of the report on the same tensors."""
    at = data.isel(sequence=3, length=1)
    report = label_heads(read_tensors(random_tensors(3)))
    for place, head in enumerate(report.heads):
        each = at.isel(layer=place // HEADS, head=place % HEADS)
        for name in ("wz", "wza", "wzau"):
            assert each.rho_after.sel(update=name) == getattr(head, f"rho_x_{name}")
            assert each.rho_rescaled.sel(update=name) == getattr(head, f"rescaled_rho_x_{name}")
        for name in ("wz", "wzau"):
            assert each.predicted.sel(predicted_update=name) == getattr(head, f"predicted_rho_x_{name}")
    for place, layer in enumerate(report.layers):
        for name in ("representable", "independent", "sink_margin", "attending_margin"):
            assert at[name][place] == getattr(layer, name)


def test_signs_of_the_second_regime(data):
    turned = data.assign(beta_tr_bw=-1 - data.tr_bww, mass=0 * data.mass)  # all in regime ii, none a sink
    mean = data.rho_after.isel(length=-1).mean("sequence")
    rises = (mean.sel(update="wzau") > mean.sel(update="wz")).values
    counts = figures.agreement(turned, "wz", "wzau")
    assert counts["ii"] == (np.sum(~rises), rises.size)
    falling = data.assign(rho=-np.abs(data.rho))
    assert np.all((figures.relative_change(falling) > 0) == (data.rho_rescaled.sel(update="wza") > falling.rho))


def test_steps_of_dense_heads(data):
    for dense, chosen in ((False, data.uniformity > -1), (True, data.uniformity > 0.6)):
        found = figures.steps(data, dense)
        expected = np.where(chosen, data.rho_rescaled.sel(update="wza"), np.nan)
        np.testing.assert_array_equal(found.heads, chosen.sum(("layer", "head")))
        np.testing.assert_allclose(found.wza, np.nanmean(expected, axis=(2, 3)))


def test_bins():
    where, values = np.array([0.05, 0.05, 0.05, 0.95, 1.0]), np.array([1.0, 2.0, 3.0, 5.0, 7.0])
    centres, means, error = heads_file.binned(where, values)
    assert centres.tolist() == [0.05, 0.95] and means.tolist() == [2.0, 6.0]
    np.testing.assert_allclose(error, [1 / np.sqrt(3), 1.0])


def test_heads_that_deviate(data):
    last = data.isel(length=-1)
    rho_ = last.rho_rescaled.mean("sequence")
    for layer, head, why in figures.deviating(data)[:-1]:
        at = rho_.isel(layer=layer, head=head)
        assert why == "uniform below own attention" and at.sel(update="wzau") <= at.sel(update="wza")


def test_first_token_again_is_no_copy():
    """A first token that comes again is no copy of what is at the start."""
    a = np.zeros((1, 6, 6))
    a[0, :, 0] = 1
    assert figures.scores(a, np.array([0, 1, 0, 2, 0, 3])).max() == 0


def test_labels_are_of_the_longest_context(data):
    changed = data.copy(deep=True)
    changed.mass[dict(length=0)] = 0.9
    assert figures.labels(changed) == figures.labels(data)


def test_boxes_are_quartiles():
    axes: Any = Figure().subplots()
    tokens_file.boxes(axes, np.arange(9.0)[None])
    assert (axes.patches[0].get_y(), axes.patches[0].get_height()) == (2.0, 4.0)


def test_ranks_of_the_shortest_context(data):
    axes: Any = figures.value_ranks(data).axes[0]
    ranks = data.value_rank.isel(length=0, layer=1).values.ravel()
    assert axes.patches[1].get_y() == np.quantile(ranks, 0.25)
    changed = data.copy(deep=True)
    changed.value_rank[dict(length=1)] = 0.1
    other: Any = figures.value_ranks(changed).axes[0]
    assert other.patches[1].get_y() == axes.patches[1].get_y()


def test_sinks_alone_deviate_in_nothing(data):
    sinks = data.assign(mass=0 * data.mass + 1)
    assert figures.deviating(sinks) == []
    with pytest.raises(ValueError, match="must have heads that are no sinks"):
        figures.examples(sinks)
