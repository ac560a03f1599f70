"""Figure `output-field`: the rescaled attention output as a field on S^2, in five regimes of beta, beside its limit.

Figure 2 of "Scaling Limits of Long-Context Transformers": n = 1e4 keys with density proportional to exp(x_1 x_2), V = Id, and the
first coordinate of P_q Y_n(q) in the scalings of Theorems 4.1, 4.2 and 4.3. All queries look at one context. The second image,
`output-field-finite-beta`, has the exact drift at the betas of the mixed and the drift column in the place of the limit, and
along one great circle both with their noise: the limit misses a quarter of the drift column's beta, and in the mixed column the
noise is as large as the drift.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xarray

from scaling.figure.output_field import caption, panels
from scaling.figure.output_field.field import compute as compute
from scaling.figure.style import save, style

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "full": {"n": 10_000, "seed": 0, "map_rows": 120, "chart_rows": 144, "radius": 0.8, "thinning": 3, "angles": 361},
    "quick": {"n": 10_000, "seed": 0, "map_rows": 30, "chart_rows": 30, "radius": 0.8, "thinning": 3, "angles": 73},
}


def draw_from(data: xarray.Dataset, out: Path) -> list[Path]:
    """Draws both images and returns the files written to the directory `out`."""
    files = []
    for name, text, figure in (
        ("output-field", caption.with_limit(data), panels.with_limit),
        ("output-field-finite-beta", caption.with_exact_drift(data), panels.with_exact_drift),
    ):
        with style():
            files += save(figure(data), data.assign_attrs(title=name, caption=text), text, out, name)
    return files
