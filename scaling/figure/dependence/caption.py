"""The caption of figure `dependence`, with every setting and what was found in the data."""


import numpy as np
import xarray

from scaling.figure.cells import number
from scaling.figure.dependence.cases import CASES, scores
from scaling.figure.ranked import ERRORS
from scaling.figure.style import wrapped


def caption(data: xarray.Dataset) -> str:
    """The caption as text in lines of at most 110 characters."""
    found, names, last = scores(data), list(CASES), data.isel(n=-1)

    def index(name: str) -> str:
        i = names.index(name)
        return f"{float(last['index'][i]):.3f} ± {ERRORS * float(last.index_se[i]):.3f}"

    def worst(name: str, against: str = "own") -> str:
        return f"{np.abs(found[against][names.index(name)]).max():.1f}"

    d, n = int(data.d), float(last.n)
    sampled = 100 * float((data.weight_limit_se / data.weight_limit).max())
    finite = float(data.index_finite[names.index("average-10"), -1])
    text = f"""
    Dependent keys with a uniform marginal law on S^{d - 1} (d = {d}, alpha = 2/(d-1) = {2 / (d - 1):.3g}): independent ones;
    moving averages of m + 1 normal vectors, projected on the sphere, which are m-dependent; every key twice (pairs), every key
    three times (triples), and every key repeated again with probability 1/2 (two times on average); and pairs under RoPE
    (base 1e4). All quantities are dimensionless. {number(float(data.replicates))} replicates, seed {int(data.seed)}, all keys
    drawn; error bars: {ERRORS} standard errors. The lengths share their random numbers, the contexts do not.

    (a) Extremal index 1 / mean of n F(T_(1)), F the law of one D2Q 1 - <u_i, x_i>, T_(1) the least of n. Points lie side by side
    for legibility. Horizontal lines: 1 over the mean size of a cluster (Remark F.2). Other lines: moving averages in finite
    rows, by the chance that a key is nearer than t given that the m before it are not. They tend to 1, later for larger m:
    neighbours are near each other, and in short rows the nearest key is no nearer than that. At n = {number(n)}: independent
    {index("independent")}, m = 10 {index("average-10")} (line: {finite:.3f}), pairs {index("pairs")}, under RoPE
    {index("pairs-rope")}, repeated with p = 1/2 {index("geometric")}, triples {index("triples")}.

    (b) Mean ordered weights at n = {number(n)}, beta = gamma n^alpha = {number(float(data.beta))}, gamma =
    {number(float(data.gamma))}. Lines: the critical limit of Theorem F.3 (solid), by quadrature, and the cluster limits of Remark
    F.2: of pairs (dashed), by quadrature with half the window and half the weights, so that A_(1) = A_(2), and of geometric
    sizes (dotted), sampled, to {sampled:.1g}%. Greatest distances from the limit of Theorem F.3 over the ranks, in standard
    errors: independent {worst("independent")}, m = 3 {worst("average-3")}, pairs under RoPE {worst("pairs-rope")}; pairs
    {worst("pairs", "independent")}, repeated with p = 1/2 {worst("geometric", "independent")}. Of the last two from their own
    limits: {worst("pairs")} and {worst("geometric")}.

    (c) The same relative to the limit of each. The ranks of a replicate are correlated.
    """
    return wrapped(text, hyphens=False)
