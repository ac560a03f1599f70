"""Exact expected values against the reference file, brute-force integration, and each other."""

import json
from pathlib import Path

import numpy as np
import pytest

from scaling.exact.ordered import top_weight

REFERENCE = json.loads((Path(__file__).parents[1] / "data" / "uniform_keys.json").read_text())


def cell_name(cell):
    return f"d{cell['d']}-n{cell['n']:g}-beta{cell['beta']:g}" if "n" in cell else f"d{cell['d']}-gamma{cell['gamma']:g}"


@pytest.mark.parametrize("cell", REFERENCE["finite"], ids=cell_name)
def test_fast_top_weight_reaches_seven_digits(cell):
    assert top_weight(cell["d"], cell["n"], cell["beta"]) == pytest.approx(cell["values"]["top_weight"], rel=1e-7)


def test_fast_top_weight_keeps_the_shape_of_beta():
    betas = np.array([[0.0, 1.0], [10.0, 1e5]])
    values = top_weight(5, 100, betas)
    assert values.shape == (2, 2)
    assert values[0, 0] == 0.01
    assert values[1, 0] == top_weight(5, 100, 10.0)
