"""The cumulative integral of a density that is given by its logarithm on a line, in relative precision at its left end."""

import numpy as np

from scaling.d2q._piecewise import Piecewise, antiderivative, clenshaw, fit, panel_nodes, peak_bound

_VARIATION = 3.0  # of the log density over a panel of the core: partial sums then keep their relative precision
_NEGLIGIBLE = 50.0  # e^-50 of what is already summed
_LAGUERRE = {n: np.polynomial.laguerre.laggauss(n) for n in (24, 32)}


def middle(phi: Piecewise) -> float:
    """A point that leaves a fair share of the mass of e^phi on both sides."""
    top = np.max(phi(phi.nodes()))
    low, high = _split(phi, phi.edges, lambda values: np.full(len(values), top))
    nodes = panel_nodes(low, high)
    mass = antiderivative(np.exp(np.minimum(phi(nodes) - top, 60)), high - low).sum(axis=1)
    share = np.cumsum(mass) / np.sum(mass)
    return float(high[np.argmin(np.abs(share - 0.5))])


def log_cumulative(phi: Piecewise, stop: float, slope: float) -> Piecewise:
    """log of the integral of e^phi from -inf to s, for s from the left edge of `phi` to `stop`; left of it phi has this `slope`.

    Where phi has risen all the way, steeply enough, by Gauss-Laguerre quadrature to the left of each point; elsewhere ("core")
    by panels. Several modes are allowed, with gaps of any depth between them, and variations of phi by millions.
    """
    tail = _Tail(phi, slope)
    core = [_Core(phi, tail, begin, end) for begin, end in _core_intervals(phi, tail, stop)]

    def log_integral(s):
        value = tail(s)
        for part in core:
            inside = (s > part.begin) & (s <= part.end)
            value[inside] = part(s[inside])
        return value

    cuts = np.concatenate([phi.edges[phi.edges < stop], [stop], *(part.partial.edges for part in core)])
    for part in core:
        cuts = cuts[(cuts <= part.begin) | (cuts >= part.end) | np.isin(cuts, part.partial.edges)]
    return fit(log_integral, np.unique(cuts))


class _Core:
    """log of the integral of e^phi up to s in [begin, end], by panels over which phi varies little."""

    def __init__(self, phi: Piecewise, tail: "_Tail", begin: float, end: float):
        self.begin, self.end = begin, end
        highest = np.maximum.accumulate(phi(phi.nodes()).max(axis=1))

        def so_far(low):
            return np.maximum(highest[np.maximum(phi.panel_of(low) - 1, 0)], phi(np.array(begin)))

        cuts = phi.edges[(phi.edges > begin) & (phi.edges < end)]
        low, high = _split(phi, np.concatenate([[begin], cuts, [end]]), so_far)
        values = phi(panel_nodes(low, high))
        self.top = values.max(axis=1)
        self.partial = Piecewise(np.append(low, high[-1]), antiderivative(np.exp(values - self.top[:, None]), high - low))
        with np.errstate(divide="ignore"):
            log_mass = np.log(np.maximum(self.partial.coefficients.sum(axis=1), 0)) + self.top
        self.at_edges = np.logaddexp.accumulate(np.concatenate([tail(np.array([begin])), log_mass]))

    def __call__(self, s):
        panel = self.partial.panel_of(s)
        inside = clenshaw(self.partial.coefficients[panel], self.partial.local(panel, s))
        with np.errstate(divide="ignore"):
            return np.logaddexp(self.at_edges[panel], self.top[panel] + np.log(np.maximum(inside, 0)))


class _Tail:
    """log of the integral of e^phi to the left of s where phi rises, by Gauss-Laguerre quadrature scaled to the slope at s."""

    def __init__(self, phi: Piecewise, slope: float):
        self.phi, self.rate, self.slope = phi, phi.derivative(), slope

    def extended(self, s):
        edge = self.phi.edges[0]
        return self.phi(np.maximum(s, edge)) + self.slope * np.minimum(s - edge, 0)

    def __call__(self, s, points: int = 32):
        return self.with_drop(s, points)[0]

    def with_drop(self, s, points: int):
        """The logarithm, and how far phi has dropped at the last point."""
        u, weight = _LAGUERRE[points]
        rate = np.maximum(self.rate(s), 1e-3 * self.slope)[..., None]
        here = self.phi(s)
        change = self.extended(s[..., None] - u / rate) - here[..., None]
        with np.errstate(divide="ignore"):
            log_sum = np.log(np.sum(weight * np.exp(np.minimum(u + change, 700)), axis=-1))
        return here + log_sum - np.log(rate[..., 0]), -change[..., -1]


def _core_intervals(phi: Piecewise, tail: _Tail, stop: float) -> list[tuple[float, float]]:
    """Where the tail quadrature fails: phi has not risen all the way, two orders differ, or they do not reach far enough."""
    nodes = np.unique(np.append(phi.nodes().ravel(), stop))
    nodes = nodes[nodes <= stop]
    values = phi(nodes)
    highest = np.maximum.accumulate(values)
    coarse, drop = tail.with_drop(nodes, 24)
    with np.errstate(invalid="ignore"):
        error = np.abs(coarse - tail(nodes))
    valid = (values >= highest) & (tail.rate(nodes) > 0) & (drop > 36) & (error <= 2e-13 + 3e-14 * np.abs(values))
    valid[0] = True
    change = np.flatnonzero(np.diff(valid))  # valid at [0], not from [0] + 1 to [1], and so on
    ends = np.append(change, len(nodes) - 1) if len(change) % 2 else change
    return [(float(nodes[b]), float(nodes[min(e + 1, len(nodes) - 1)])) for b, e in zip(ends[::2], ends[1::2], strict=True)]


def _split(phi: Piecewise, edges, reached):
    """Panels between `edges`, halved until phi varies by at most 3 over each or is negligible beside e^reached(left edge)."""
    low, high = edges[:-1], edges[1:]
    finished = []
    while len(low):
        values = phi(panel_nodes(low, high))
        flat = np.ptp(values, axis=1) <= _VARIATION
        done = flat | (peak_bound(values) < reached(low) - _NEGLIGIBLE) | (high - low < 1e-9)
        finished.append((low[done], high[done]))
        centre = (low[~done] + high[~done]) / 2
        low, high = np.concatenate([low[~done], centre]), np.concatenate([centre, high[~done]])
    low, high = (np.sort(np.concatenate(parts)) for parts in zip(*finished, strict=True))
    return low, high
