"""Checks of the limit laws that are known in closed form: d = 3, and d to infinity (the random energy model)."""

import math
from collections.abc import Iterator

from scaling.law import Critical, RandomEnergy
from scaling.verify.check import Check, Setup, approach, equal, mean_check

_ERROR = 1e-10  # what both quadratures promise


def three_dimensions(setup: Setup) -> Iterator[Check]:
    """E W_1 and E sum W^2 at d = 3 by Ein, against the quadrature for every d; e^{-gamma_E} at c = 1."""
    for c in (0.2, 1.0, 3.0):
        law = Critical(3, math.log(c))
        means = law.means(["top_weight", "ipr"])
        for name, value in (("top_weight", law.closed_top_weight), ("ipr", law.closed_ipr)):
            yield equal("3.2, notes 7", f"d=3, window={c:g}", name, value, means[name], _ERROR, "law / closed form")
    found = Critical(3, 0.0).mean("top_weight")
    constant = 0.5614594835668852  # exp(-0.5772...)
    yield equal("3.2, notes 7", "d=3, window=1", "top_weight is e^-gamma_E", constant, found, _ERROR, "law / closed form")


def random_energy(setup: Setup) -> Iterator[Check]:
    """As d grows at a fixed local exponent m = a c^alpha, the critical weights tend to PD(m, 0), like 1/d."""
    for m in (0.3, RandomEnergy.of_top_weight(0.5).m):
        limit = RandomEnergy(m)
        dimensions = (33, 129, 513)
        names = ["top_weight", "ipr"]
        finite = [Critical(d, (d - 1) / 2 * math.log(2 * m / (d - 1))).means(names) for d in dimensions]
        for name in names:
            values, law = [f[name] for f in finite], [limit.mean(name)] * 3
            scale = [d - 1.0 for d in dimensions]
            yield from approach("PD(m, 0)", f"m={m:.4f}, d=33..513", name, scale, values, law, 1.0, digits=(10,))
        yield equal("PD(m, 0)", f"m={m:.4f}", "ipr is 1 - m", 1 - m, limit.mean("ipr"), 1e-12, "law / closed form")
        if setup.simulate:
            weights = limit.sample(setup.seed, setup.replicates(20_000), 2)
            for i, name in enumerate(["top_weight", "second_weight"]):
                predicted = limit.mean(name)
                yield mean_check("PD(m, 0)", f"m={m:.4f}", name, "law sampler / law", weights[:, i], predicted, 1e-6 * predicted)
