"""The command `heads`."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from scaling.cli.base import Command
from scaling.cli.flags import FigurePath, Json, LogitScaling, TensorFile, flag

if TYPE_CHECKING:
    from toyblocks.heads import Head, HeadReport, LayerSummary, Thresholds


@dataclass(frozen=True)
class Heads(Command):
    """What the attention heads of a real model do: sink, diagonal or neither, and whether their update makes tokens alike.

    For every head: its label by section 3 of "Sink vs. diagonal patterns"; the shares of its attention on the first token, on the
    token itself and on the one before, beside those of uniform attention over as many tokens; the token with the largest share;
    uniformity, and the rank of its values. With X, Z and W_O in the file the regime of Theorem 5.1, and the average cosine
    similarity rho of the tokens, predicted and measured: of X, after the update W Z, after the head's attention W Z A^T and
    after uniform attention W Z A_u^T, the first token left out. `positive`: whether E Y_i^T Y_j > 0, as the theorem assumes;
    `agrees`: whether rho changes from W Z to W Z A_u^T in the direction that regime i or ii says, - where it says nothing.

    For every layer: `beta`, the mean of |X| / |Z|; `rescaling`, s_l of (11); `bos_cosine`, the range of cos(Z_0, Z_i);
    `representable`, whether some W makes all tokens attend to the first (Proposition 4.1), with the `margins` of z_0 - z_i and of
    z_j, at most 1; `independent` tokens have such a W whatever they are. What a file lacks skips its section; warnings say so.
    """

    file: TensorFile = field(metadata={"positional": True})
    scaling: LogitScaling = None
    thresholds: Annotated[
        str,
        flag(
            "FLOAT,FLOAT,FLOAT",
            "Share of attention from which a pattern is a label, joint share from which two are, and each one's least part of "
            "it. Default: .4,.6,.1 as in the paper.",
        ),
    ] = ".4,.6,.1"
    half_spaces_up_to: Annotated[
        str, flag("INT", "Check Proposition 4.1 on up to so many tokens (seconds a layer at 512). Default: 512.")
    ] = "512"
    figure: FigurePath = None
    json: Json = False

    def run(self) -> dict[str, Any]:
        from scaling import _check
        from scaling.cli import tensors, values

        place, thresholds = tensors.place(self.figure), self._thresholds()
        longest = _check.whole("half_spaces_up_to", values.number("half_spaces_up_to", self.half_spaces_up_to), 0)
        given = tensors.load(self.file, self.scaling)
        from toyblocks.heads import label_heads

        report = label_heads(given, thresholds=thresholds, half_spaces_up_to=longest, progress=True)
        answer = report.to_dict() if self.json else _tables(report)
        if place is not None:
            from toyblocks.figure.heads import draw_report

            answer["files"] = [str(path) for path in draw_report(report, place)]
        return answer

    def _thresholds(self) -> "Thresholds":
        from scaling import _check
        from scaling.cli import values
        from toyblocks.heads import Thresholds

        found = values.numbers("thresholds", self.thresholds)
        _check.require(len(found) == 3, "thresholds", "be three numbers", self.thresholds)
        try:
            return Thresholds(*found)
        except ValueError:  # names the field
            _check.reject("thresholds", "be in (0, 1], the last in [0, 1]", self.thresholds)


def _tables(report: "HeadReport") -> dict[str, Any]:
    """Three tables: patterns, Theorem 5.1 where there is something of it, layers."""
    from scaling.cli.tensors import counted, lines
    from toyblocks.heads import uniform_masses

    heads, layers = report.heads, report.layers
    signs = [head.agrees for head in heads if head.agrees is not None]
    lengths = sorted({head.n for head in heads})
    patterns = []
    for n in lengths:  # above the heads, of which there may be hundreds
        uniform = uniform_masses(n)
        masses = (uniform.sink, uniform.diagonal, uniform.lower_diagonal)
        name = "(uniform attention)" if len(lengths) == 1 else f"(uniform, n = {n})"
        patterns.append(_pattern_row("-", name, masses, "-", "-", "-"))
    patterns += [_pattern(head) for head in heads]
    answer: dict[str, Any] = {
        "heads": len(heads),
        "labels": counted([head.label for head in heads]),
        "regimes": counted([head.regime for head in heads]) or None,
        "theorem_5_1": f"the predicted sign of the change in {sum(signs)} of {len(signs)} heads" if signs else None,
        "patterns": patterns,
    }
    if any(head.regime is not None for head in heads):
        answer["similarity"] = [_similarity(head) for head in heads]
    return {**answer, "layers": [_layer(layer) for layer in layers], "warnings": lines("warnings", report.warnings)}


def _pattern(head: "Head") -> dict[str, str]:
    from scaling.cli.tensors import fixed, short

    column = f"{fixed(head.largest_column_mass)} at {head.largest_column}"
    masses = (head.sink, head.diagonal, head.lower_diagonal)
    return _pattern_row(head.name, head.label, masses, column, fixed(head.uniformity), short(head.value_rank))


def _pattern_row(name: str, label: str, masses: Any, column: str, uniformity: str, rank: str) -> dict[str, str]:
    from scaling.cli.tensors import fixed

    shares = dict(zip(("sink", "diagonal", "lower_diagonal"), (fixed(mass) for mass in masses), strict=True))
    return {"head": name, "label": label, **shares, "largest_column": column, "uniformity": uniformity, "value_rank": rank}


def _similarity(head: "Head") -> dict[str, str]:
    from scaling.cli.tensors import fixed, short, yes

    return {
        "head": head.name,
        "regime": head.regime or "-",
        "positive": yes(head.positive),
        "beta_tr_bw": short(head.beta_tr_bw),
        "tr_bww": short(head.tr_bww),
        "rho_x": fixed(head.rho_x),
        "rho_x_wz": fixed(head.rho_x_wz),
        "predicted_wz": fixed(head.predicted_rho_x_wz),
        "rho_x_wza": fixed(head.rho_x_wza),
        "rho_x_wzau": fixed(head.rho_x_wzau),
        "predicted_wzau": fixed(head.predicted_rho_x_wzau),
        "agrees": yes(head.agrees),
    }


def _layer(layer: "LayerSummary") -> dict[str, str]:
    from scaling.cli.tensors import fixed, short, yes

    cosines = (layer.bos_cosine_smallest, layer.bos_cosine_largest)
    margins = (layer.sink_margin, layer.attending_margin)
    return {
        "layer": str(layer.layer),
        "heads": str(len(layer.heads)),
        "n": str(layer.n),
        "sequences": str(layer.sequences),
        "scaling": short(layer.scaling),
        "beta": short(layer.beta),
        "rho_x": fixed(layer.rho_x),
        "rescaling": short(layer.rescaling),
        "bos_cosine": "-" if None in cosines else " to ".join(fixed(each, 2) for each in cosines),
        "representable": yes(layer.representable),
        "margins": "-" if None in margins else ", ".join(fixed(each, 2) for each in margins),
        "independent": yes(layer.independent),
    }
