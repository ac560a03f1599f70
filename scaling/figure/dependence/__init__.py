"""Figure `dependence`: dependence over a few positions leaves the critical law alone, repeated keys change it.

Appendix F of "Scaling Limits of Long-Context Transformers" for uniform keys: the extremal index of the D2Qs, from the nearest key
of rows of growing length, and the expected ordered weights of long rows. Moving averages satisfy Assumption 2, so that the limit
is that of independent keys (Theorem F.3); repeated keys violate Assumption 2(iii), and the limit is a cluster-Poisson one (Remark
F.2). Under RoPE the copies of a key meet different targets, and the limit is that of independent keys again.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xarray

from scaling.figure.dependence.caption import caption
from scaling.figure.dependence.cases import compute as compute
from scaling.figure.dependence.panels import figure
from scaling.figure.style import save, style

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "full": {"d": 4, "n": [1e2, 1e4, 5], "gamma": 1, "ranks": 8, "replicates": 2000, "seed": 0, "draws": 200_000},
    "quick": {"d": 4, "n": [1e2, 2e3, 3], "gamma": 1, "ranks": 8, "replicates": 400, "seed": 0, "draws": 20_000},
}


def draw_from(data: xarray.Dataset, out: Path) -> list[Path]:
    """Draws the figure and returns the files written to the directory `out`."""
    text = caption(data)
    with style():
        return save(figure(data), data.assign_attrs(title="dependence", caption=text), text, out, "dependence")
