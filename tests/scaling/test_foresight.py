"""The figure of two contexts: what is drawn is what the two reports say."""

import dataclasses

import numpy as np
import pytest

import scaling
from scaling.figure import foresight


@pytest.fixture(scope="module")
def reports() -> list:
    q, k = np.random.default_rng(1).normal(size=(2, 1, 3, 96, 6))
    k[:, 2] *= 0.0  # a head without numbers
    cuts = ({"q": q[:, :, :n], "k": k[:, :, :n], "scaling": np.array(1.0)} for n in (48, 96))
    return [scaling.head_temperatures(scaling.read_tensors(cut), top=16) for cut in cuts]


def test_both_contexts(reports):
    shorter, longer = reports
    data = foresight.dataset(shorter, longer)
    assert data.head_number.values.tolist() == [0, 1, 2]
    for name, report, field in (("top_weight", longer, "top_weight"), ("no_change", shorter, "top_weight"),
                                ("exponent_low", longer, "exponent_low"), ("bos_weight", longer, "bos_weight")):  # fmt: skip
        expected = [np.nan if getattr(head, field) is None else getattr(head, field) for head in report.heads]
        np.testing.assert_array_equal(data[name], expected)
    given = [head.predictions["constant"][0].top_weight if head.predictions else np.nan for head in shorter.heads]
    np.testing.assert_array_equal(data.predicted_top_weight, given)
    assert np.isfinite(given).any() and np.isnan(given[2])
    with pytest.raises(ValueError, match="`shorter` must have the heads of `longer`"):
        foresight.dataset(dataclasses.replace(shorter, heads=shorter.heads[::-1]), longer)


def test_errors_and_who_is_closer(reports):
    data = foresight.dataset(*reports).isel(head=[0, 0, 0, 0])
    for name, values in (("top_weight", [0.5, 0.5, 0.5, 0.5]), ("predicted_top_weight", [0.6, 0.45, 0.5, np.nan]),
                         ("no_change", [0.55, 0.4, 0.7, 0.0])):  # fmt: skip
        data[name] = ("head", values)
    expected = {"heads": 3, "error": 0.05 / 3, "absolute_error": 0.05, "no_change_error": 0.05,
                "no_change_absolute_error": 0.35 / 3, "beaten": 2 / 3}  # fmt: skip
    assert foresight.foresight(data) == pytest.approx(expected)
    none = foresight.foresight(data.isel(head=[3]))
    assert none["heads"] == 0 and none.keys() == expected.keys() and np.isnan(none["error"])


def test_the_figure_shows_the_predicted_heads(reports):
    data = foresight.dataset(*reports)
    figure = foresight.draw_foresight(data, 6)
    np.testing.assert_array_equal(figure.axes[2].get_lines()[1].get_ydata(), data.predicted_top_weight.dropna("head"))
    np.testing.assert_array_equal(figure.axes[0].get_lines()[-1].get_ydata(), [2.5, 2.5])
