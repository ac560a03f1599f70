"""The captions of figure `output-field`, with every setting and what was found in the data."""


import xarray

from scaling.figure.cells import number
from scaling.figure.style import wrapped


def with_limit(data: xarray.Dataset) -> str:
    """The caption of the figure as it is in the paper."""
    drift = data.isel(drift_column=1)
    text = f"""
    {_setting(data)}

    Last column: the deterministic field P_q Y(q) = grad log rho(q), to which the drift column tends (Theorem 4.3 (1)); both
    have one scale of colours. Over the sphere, by area, the drift column has correlation {float(drift.correlation_limit):.3f}
    with this limit and {float(drift.correlation_exact):.3f} with the exact drift at its beta. The length (root mean square)
    of the exact drift is {float(drift.drift_size):.3f}, that of the limit {float(data.drift_size_limit):.3f}: see
    output-field-finite-beta.

    {_pictures(data)}
    """
    return wrapped(text, hyphens=False)


def with_exact_drift(data: xarray.Dataset) -> str:
    """The caption of the figure with the exact drift in the place of the limit."""
    thinning = data.sizes["x"] // data.sizes["x_exact"]
    text = f"""
    {_setting(data)}

    Last two columns: the exact drift beta P_q m, m = E[(x-q) e^(-beta T)] / E[e^(-beta T)] with T = 1 - <q, x>, which is the
    limit as n grows at the fixed beta of the mixed and of the drift column (quadrature, once for {thinning} by {thinning}
    pixels); both and the drift column have one scale of colours.

    (a), (b) The same along the great circle through the chart's centre, eastwards: this context (thin line); the exact drift and
    one standard deviation over contexts (line and band; delta method at this n and beta); the limit grad log rho(q) and its
    standard deviation from tau^(1/alpha) Sigma(q), tau = beta^(1+alpha) n^(-alpha) (dashed and dotted; Theorem 4.3).

    Over the sphere, by area. {_found(data, 0, "Mixed")} {_found(data, 1, "Drift")}

    {_pictures(data)}
    """
    return wrapped(text, hyphens=False)


def _found(data: xarray.Dataset, i: int, name: str) -> str:
    one = data.isel(drift_column=i, column=3 + i)
    keys = ("noise_range", "noise_range_limit", "length_range")
    noise, noise_limit, length = ("{:.2g} to {:.2g}".format(*one[key].values) for key in keys)
    return f"""
    {name}, beta = {number(float(one.beta))}: the exact drift is {length} long (10% and 90% quantile; root mean square
    {float(one.drift_size):.3f}, of the limit {float(data.drift_size_limit):.3f}), and the limit is off by
    {100 * float(one.bias):.0f}% (root mean square); the standard deviation of a tangent coordinate is {noise} ({noise_limit} in
    the limit); the empirical column has correlation {float(one.correlation_exact):.3f} with the exact drift and
    {float(one.correlation_limit):.3f} with the limit."""


def _setting(data: xarray.Dataset) -> str:
    betas = ", ".join(number(float(beta)) for beta in data.beta)
    return f"""
    Rescaled attention output on S^2: the first coordinate, written Y, of P_q Y_n(q), where Y_n(q) = sum A_i (x_i - q), for V
    = Id and n = {number(float(data.n))} keys with density proportional to exp(x_1 x_2) (seed {int(data.seed)}). One common
    context serves all queries and all columns, so that the values are dependent. alpha = 2/(d-1) = 1. Columns: beta =
    n^(5/4), n, n^(3/4), n^(1/2), n^(1/4), that is {betas}, each in the scaling of its regime, written above it: sqrt(a_n),
    a_n = (C(q) n)^alpha, which depends on the query through C(q) = 2 pi rho(q) (Theorem 4.1); sqrt(beta) (Theorem 4.2);
    sqrt(n beta^(-1/alpha + 1)) = sqrt(n), beta and beta (Theorem 4.3). All quantities are dimensionless, angles in
    radians."""


def _pictures(data: xarray.Dataset) -> str:
    return f"""
    Top: Mollweide map (areas are true; the first axis in the middle, the second to its right, the third at the top) with the
    outline of the chart below. Bottom: geodesic chart (exponential map, azimuthal equidistant) centred at (1, 1, 1)/sqrt(3),
    half width {float(data.radius):g}, east to the right. Colours are symmetric about 0: negative blue, positive yellow,
    lightness grows with the value; those of the first four columns end at the 99% quantile of the absolute value. Black lines
    in smooth columns: 0."""
