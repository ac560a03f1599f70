"""Figure `rope`: rotary position embedding changes the constant of the critical law, not the law.

Appendix F of "Scaling Limits of Long-Context Transformers", for keys with a von Mises-Fisher density on S^2 of which two
coordinates out of three are rotated: the density that the targets u_i = R_i^T q meet on their orbit, for a frequency that is no
fraction of a turn and for one of period 5, with the phase laws of both; and the expected ordered weights of long rows against
the limit of Theorem F.3, with the intensity C-bar(q) averaged over the orbit, and against the one with C(q) of the query alone.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xarray

from scaling.figure.rope.caption import caption
from scaling.figure.rope.orbit import compute as compute
from scaling.figure.rope.panels import figure
from scaling.figure.style import save, style

_ORBIT = {"concentration": 8, "mean": [25, 0], "query": [35, 8], "turn": "1/5", "gamma": 0.5, "seed": 0}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "full": {**_ORBIT, "n": 1e12, "ranks": 10, "replicates": 20_000, "shown": 25, "averaged": 100_000, "pixels": 240},
    "quick": {**_ORBIT, "n": 1e4, "ranks": 10, "replicates": 600, "shown": 12, "averaged": 10_000, "pixels": 60},
}


def draw_from(data: xarray.Dataset, out: Path) -> list[Path]:
    """Draws the figure and returns the files written to the directory `out`."""
    text = caption(data)
    with style():
        return save(figure(data), data.assign_attrs(title="rope", caption=text), text, out, "rope")
