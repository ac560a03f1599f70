"""The command `temperature`."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from scaling.cli.base import Command
from scaling.cli.flags import FigurePath, Json, LogitScaling, TensorFile, flag

if TYPE_CHECKING:
    from scaling.temperature import HeadTemperature, TemperatureReport


@dataclass(frozen=True)
class Temperature(Command):
    """How sharp the attention heads of a real model are, and what a longer context would do to them.

    For every head, from the exact scores of its late queries without token 0: the inverse temperature beta it works at; the
    exponent of its keys near a query (1/alpha, (d-1)/2 for keys that fill a sphere in d dimensions) by maximum likelihood, with a
    95% interval, and Hill's estimate, which is biased; kappa, beta over its critical scale (0.4 to 1.5 at criticality for uniform
    keys); the top weight, the participation ratio 1 / sum A^2, and its slope in log n. Then top weight and participation ratio at
    2, 4 and 16 times the context under every schedule of `scaling schedule`, beside no change; `level_beta` is the beta that
    keeps the model's present top weight. Predictions are withheld where the same model is off by more than 0.05 of the top weight
    at the present context, as it is for many real heads. `self_check` has both as the model gives them; the participation ratio,
    beside `participation_ratio`, is shown whether it is right or not.
    """

    file: TensorFile = field(metadata={"positional": True})
    scaling: LogitScaling = None
    top: Annotated[str, flag("INT", "Nearest keys of a query that the exponent is fitted to, >= 8. Default: 32.")] = "32"
    rows: Annotated[str, flag("INT", "Late queries of a head, over all its sequences. Default: 128.")] = "128"
    figure: FigurePath = None
    json: Json = False

    def run(self) -> dict[str, Any]:
        from scaling import _check
        from scaling.cli import tensors, values

        place = tensors.place(self.figure)
        top, rows = (_check.whole(name, values.number(name, getattr(self, name)), low) for name, low in (("top", 8), ("rows", 1)))
        given = tensors.load(self.file, self.scaling)
        from scaling.temperature import head_temperatures

        report = head_temperatures(given, top=top, rows=rows, progress=True)
        answer = report.to_dict() if self.json else _tables(report)
        if place is not None:
            from scaling.figure.temperature import draw_report

            answer["files"] = [str(path) for path in draw_report(report, place)]
        return answer


def _tables(report: "TemperatureReport") -> dict[str, Any]:
    """Two tables, heads and predictions, and sentences on what is withheld and what to doubt."""
    from scaling.cli.tensors import lines
    from scaling.tensors.words import heads_in_words

    told = [head for head in report.heads if head.predictions is not None]
    withheld: dict[str, list[tuple[int, int]]] = {}
    for head in report.heads:
        if head.withheld is not None:
            withheld.setdefault(_reason(head), []).append((head.layer, head.head))
    return {
        "heads": len(report.heads),
        "top": report.top,
        "predicted": f"{len(told)} of {len(report.heads)} heads" + (", top weight / participation ratio" if told else ""),
        "temperatures": [_head(head) for head in report.heads],
        "predictions": [row for head in told for row in _predictions(head)],
        "withheld": lines("withheld", (f"{heads_in_words(names)}: {kind}" for kind, names in withheld.items())),
        "warnings": lines("warnings", report.warnings),
    }


def _reason(head: "HeadTemperature") -> str:
    """Why its predictions are withheld, without the numbers of `withheld`."""
    from scaling.temperature.report import LEAST_EXPONENT, TRUSTED

    if not head.rows:
        return "queries or keys are zero"
    if head.exponent is None:
        return "there is no tail to fit"
    if head.exponent < LEAST_EXPONENT:
        return f"exponents below {LEAST_EXPONENT} are beyond the quadrature"
    return f"the top weight of the self-check is off by more than {TRUSTED}"


def _head(head: "HeadTemperature") -> dict[str, str]:
    from scaling.cli.tensors import fixed, short, yes

    ends = (head.exponent_low, head.exponent_high)
    check = "-"
    if head.self_check is not None:
        top_weight, ratio = (head.self_check[name].predicted for name in ("top_weight", "participation_ratio"))
        check = f"{fixed(top_weight)} {yes(head.predictions is not None)} / {short(ratio)}"
    return {
        "head": head.name,
        "n": "-" if head.n is None else f"{head.n:g}",
        "beta": short(head.beta),
        "exponent": short(head.exponent),
        "interval": "-" if None in ends else " to ".join(short(end) for end in ends),
        "hill": short(head.hill),
        "kappa": short(head.kappa),
        "top_weight": fixed(head.top_weight),
        "self_check": check,
        "participation_ratio": short(head.participation_ratio),
        "slope": fixed(head.slope, 2),
        "bos_weight": fixed(head.bos_weight, 2),
    }


def _predictions(head: "HeadTemperature") -> list[dict[str, str]]:
    """A row for each length of the context: top weight / participation ratio, as it is now and by schedule, and the beta that
    keeps the top weight."""
    from scaling.cli.tensors import fixed, short

    def both(top_weight: float | None, participation_ratio: float | None) -> str:
        return f"{fixed(top_weight)} / {short(participation_ratio)}"

    assert head.predictions is not None
    rows = []
    for i, first in enumerate(next(iter(head.predictions.values()))):
        found = {name: both(line[i].top_weight, line[i].participation_ratio) for name, line in head.predictions.items()}
        now = both(head.top_weight, head.participation_ratio)
        held = short(head.predictions["level"][i].beta)
        rows.append({"head": head.name, "context": f"{first.times} n", "no_change": now, **found, "level_beta": held})
    return rows
