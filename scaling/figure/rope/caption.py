"""The caption of figure `rope`, with every setting and what was found in the data."""


import numpy as np
import xarray

from scaling.figure.cells import number
from scaling.figure.ranked import ERRORS
from scaling.figure.style import wrapped


def scores(data: xarray.Dataset) -> dict[str, np.ndarray]:
    """Distances of the mean weights [frequency rank] from the limit with C-bar(q) and from that with C(q), in standard errors."""
    return {
        "orbit": ((data.weight - data.weight_limit) / data.weight_se).values,
        "query": ((data.weight - data.weight_query) / data.weight_se).values,
    }


def caption(data: xarray.Dataset) -> str:
    """The caption as text in lines of at most 110 characters."""
    found, own, n = scores(data), float(data.query_intensity), float(data.n)
    bar, empirical = data.orbit_intensity.values, data.orbit_empirical.values
    period = int(data.period[1])
    worst = np.abs(found["orbit"]).max(axis=1)
    off = data.weight_query.values[0] / data.weight.values[:, 0] - 1
    latitude, longitude = _degrees(data["query"].values)
    mode_latitude, mode_longitude = _degrees(data.mean_direction.values)
    text = f"""
    Rotary position embedding over independent keys on S^2 (d = 3, alpha = 1) with a von Mises-Fisher density of concentration
    {number(float(data.concentration))} about latitude {mode_latitude}, longitude {mode_longitude}. Two coordinates of three are
    rotated, about the polar axis; the query q is at latitude {latitude}, longitude {longitude}, and key i meets the target u_i =
    R_i^T q on the query's circle of latitude. All quantities are dimensionless where nothing else is said.

    (a), (b) Density on the half of the sphere in view (tick: the pole), the circle, dotted on the far side, and the targets
    (open on the far side): (a) 1 radian a position, the frequency of RoPE's first plane, no fraction of a turn, the first
    {data.sizes["position"]} positions; (b) {data.period.attrs["turn"]} turn a position, all {period} targets. Star: q.

    (c) Local intensity C(u) = 2 pi rho(u) along the circle (grey). Phase laws: ticks, the targets of (a), which fill the circle
    uniformly; squares, the {period} targets of (b) with weight 1/{period} each. Averages over them: C-bar(q) = {bar[0]:.4f} and
    {bar[1]:.4f}, at the query C(q) = {own:.4f}. Averages of C(u_i) over the first {number(float(data.averaged))} positions
    differ from them by {abs(empirical[0] / bar[0] - 1):.1g} and {abs(empirical[1] / bar[1] - 1):.1g}, relative.

    (d) Mean ordered weights A_(k) at n = {number(n)}, beta = {number(float(data.gamma))} n: {number(float(data.replicates))}
    replicates, seed {int(data.seed)}, {data.weight.attrs["drawn"]}; error bars, {ERRORS} standard errors, are
    smaller than the points where none is seen. Lines: the critical limit (Theorem F.3) with C-bar(q), by quadrature. Dashed:
    with C(q) in its place, as if nothing were rotated, which for A_(1) is off by {100 * off[0]:+.0f}% and
    {100 * off[1]:+.0f}% ({abs(found["query"][0, 0]):.0f} and {abs(found["query"][1, 0]):.0f} standard errors).

    (e) The same relative to the limit with C-bar(q). The ranks of a replicate are correlated. Greatest distance over the ranks:
    {worst[0]:.1f} (no period) and {worst[1]:.1f} (period {period}) standard errors.
    """
    return wrapped(text, hyphens=False)


def _degrees(point: np.ndarray) -> tuple[str, str]:
    """Latitude and longitude of a point of S^2, as text."""
    latitude, longitude = np.degrees([np.arcsin(point[2]), np.arctan2(point[1], point[0])])
    return f"{latitude:.3g}°", f"{longitude:.3g}°"
