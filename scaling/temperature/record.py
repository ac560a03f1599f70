"""What is found of the heads' temperatures: the records of a report."""

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Check:
    """What the model of `predictions` says of the present context, and what is measured.

    `se` is the standard error of their difference, s sqrt(e / rows / (1 - c)), s its standard deviation over rows: e, the fit's
    `design_effect`, and the correlation c = (e - 1)/(rows - 1) that it amounts to account roughly for rows that meet the same
    keys: it is right for independent queries, and about three times too large where queries have a direction in common, since the
    top weight is not as correlated as the fit's score. None where all have as much in common as one row.
    """

    predicted: float
    measured: float
    se: float | None


@dataclasses.dataclass(frozen=True)
class Prediction:
    """A row over `times` the context at the inverse temperature that a schedule gives."""

    times: int
    n: float
    beta: float
    top_weight: float
    participation_ratio: float


@dataclasses.dataclass(frozen=True)
class HeadTemperature:
    """One head, from its late rows without token 0. All dimensionless.

    | field | what |
    |---|---|
    | `rows`, `n` | rows used; keys that a row sees, the median over rows |
    | `beta`, `beta_quartiles` | effective inverse temperature scaling |q| max |k|: median and quartiles over rows |
    | `exponent`, `exponent_low`, `exponent_high` | 1/alpha and its 95% interval, see `scaling.tail.fit_tail` |
    | `hill` | the biased estimate beside it |
    | `design_effect` | by what the variance of the fit's score grows since rows share keys, see `scaling.tail.TailFit` |
    | `kappa` | beta F(t1) / f(t1) at F(t1) = 1/n, median over rows; uniform keys have 0.404 to 1.549 where E A_(1) = 1/2 |
    | `top_weight` | A_(1), mean over rows |
    | `participation_ratio` | 1 / mean of sum A^2: the harmonic mean of the rows' ratios |
    | `slope` | d log `participation_ratio` / d log n over the first n/8 to n keys of every row |
    | `bos_weight`, `key_norm_spread` | mean weight of token 0; standard deviation of |k| over its mean |
    | `self_check` | `top_weight` and `participation_ratio` of the model at the present context, beside the measured ones |
    | `predictions` | by schedule, at 2, 4 and 16 times the context; None where `withheld` says why |

    The top weight alone decides whether predictions are withheld: the participation ratio is predicted along with it, and how far
    it is to be trusted is for the reader to see in its own `self_check`.
    `no_change`, what the row shows now, is the prediction to beat. Fields are None where a tail cannot be fitted; of a head whose
    queries or keys are all zero every one is, and `rows` is 0.
    """

    layer: int
    head: int
    rows: int
    n: float | None = None
    beta: float | None = None
    beta_quartiles: tuple[float, float] | None = None
    exponent: float | None = None
    exponent_low: float | None = None
    exponent_high: float | None = None
    hill: float | None = None
    design_effect: float | None = None
    kappa: float | None = None
    top_weight: float | None = None
    participation_ratio: float | None = None
    slope: float | None = None
    bos_weight: float | None = None
    key_norm_spread: float | None = None
    self_check: Mapping[str, Check] | None = None
    predictions: Mapping[str, tuple[Prediction, ...]] | None = None
    withheld: str | None = None

    @property
    def name(self) -> str:
        """L3H5."""
        return f"L{self.layer}H{self.head}"

    @property
    def no_change(self) -> dict[str, float | None]:
        """The present top weight and participation ratio."""
        return {"top_weight": self.top_weight, "participation_ratio": self.participation_ratio}


@dataclasses.dataclass(frozen=True)
class TemperatureReport:
    """What `head_temperatures` returns: `top` nearest keys of each row were used; `warnings` are sentences, one for each kind."""

    heads: tuple[HeadTemperature, ...]
    warnings: tuple[str, ...]
    top: int

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it: lists, dictionaries by field, numbers, text and None."""
        heads = [{**dataclasses.asdict(head), "no_change": head.no_change} for head in self.heads]
        return {"heads": heads, "warnings": list(self.warnings), "top": self.top}
