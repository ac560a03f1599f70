"""From the tensors of a model to a report on its heads, layer by layer: only this file knows of all sections."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from tqdm import tqdm

from scaling import _check
from scaling.tensors import Layer, Tensors
from toyblocks.heads.label import Masses, Thresholds, label, sink_is_first, uniform_masses
from toyblocks.heads.notes import Notes, labels_to_doubt
from toyblocks.heads.pattern import Pattern, patterns
from toyblocks.heads.record import Head, HeadReport, LayerSummary
from toyblocks.heads.spread import spread
from toyblocks.heads.update import Stream, Update, Vanishes, cosines, squared_norms, stream, update
from toyblocks.hull import rank
from toyblocks.oversmoothing import mean_norm, rescaling
from toyblocks.representability import representability

_RANK_TOLERANCE = 1e-3  # of Figure 12
_SAMPLE = 64  # positions at which what should be equal is compared
_EQUAL = 0.02  # relative difference up to which it is: half precision passes
_LARGEST = 1e15  # of an entry of the values, as of all tensors

Values = Float[np.ndarray, "sequences kv_heads n value_dim"]


def label_heads(
    tensors: Tensors, *, thresholds: Thresholds | None = None, half_spaces_up_to: int = 512, progress: bool = False
) -> HeadReport:
    """What the heads of a model do: patterns with labels, ranks of values, Theorem 5.1 and the geometry of the tokens.

    Fields and conventions are those of `Head` and `LayerSummary`. What a layer lacks skips the section that needs it, named in
    the warnings: ranks need `v` (or `Z` and `W_V`); Theorem 5.1 `X`, `Z` and `W_O`, too; the rescaling `attention_output`, too;
    half-spaces `Z` and n <= `half_spaces_up_to` (they take a second at n = 512, d = 576, and 9 at n = 1024, d = 4096). Where both
    are there, `v` is taken, and a `W_V` that does not give it is warned of.

    Averages are over sequences; moments over pairs of tokens of one sequence. Time is O(n^2) a head; memory that of one layer as
    its file has it, values after attention, and one block of rows a core: layers are read one at a time. `progress` shows a bar
    on stderr, if that is a terminal.

    Theorem 5.1 is left out, and said to be, for a head whose update leaves a token at 0 up to rounding; the rescaling for a layer
    whose heads change nothing.

    Raises `ValueError` for what the reader refuses and for zero vectors in X and Z.
    """
    limits = thresholds or Thresholds()
    longest = _check.whole("half_spaces_up_to", half_spaces_up_to, 0)
    notes, heads, layers = Notes(), [], []
    with tqdm(unit=" heads", disable=None if progress else True) as bar:
        for place in range(len(tensors.layers)):
            found = _layer(tensors.layers[place], limits, longest, notes, bar)
            heads += found[0]
            layers.append(found[1])
    return HeadReport(tuple(heads), tuple(layers), (*tensors.warnings, *notes.lines(), *labels_to_doubt(heads, limits)))


class _Attended(NamedTuple):
    """What a pass over a head's attention leaves: means over sequences, and A V [sequences n value_dim]."""

    masses: Masses
    masses_se: Masses | None
    largest_column: int
    shared: float  # of the largest column's mass with the lower diagonal
    uniformity: float
    mixed: Float[np.ndarray, "sequences n value_dim"] | None


def _layer(layer: Layer, limits: Thresholds, longest: int, notes: Notes, bar: Any) -> tuple[list[Head], LayerSummary]:
    values = _values(layer, notes)
    flow = _stream(layer, values, notes)
    attended = []
    for each in patterns(layer, None if flow is None else values):
        attended.append(_mean(each))
        bar.update()
    ranks = [] if values is None else list(spread(lambda row: _ranks(values[:, row]), range(values.shape[1])))
    scale = None if flow is None else _scale(layer, attended, notes)
    updates = [] if flow is None else _updates(layer, flow, values, attended, scale, notes)
    heads = []
    for place, (number, row, found) in enumerate(zip(layer.heads, layer.kv_rows, attended, strict=True)):
        pattern_label = label(found.masses, limits, n=layer.n, shared=found.shared)
        sink = 0 if sink_is_first(found.masses, limits, n=layer.n) else found.largest_column
        head: dict[str, Any] = {**vars(found.masses), **(ranks[row] if ranks else {}), **(updates[place] if updates else {})}
        heads.append(
            Head(
                layer=layer.index, head=number, n=layer.n, sequences=len(layer.q), label=pattern_label,
                sink_token=sink if "sink" in pattern_label else None, largest_column=found.largest_column,
                masses_se=found.masses_se, uniform_baseline=uniform_masses(layer.n), uniformity=found.uniformity, **head,
            )
        )  # fmt: skip
    about = {} if flow is None else {"beta": flow.beta, "beta_spread": flow.beta_spread, "rho_x": flow.rho}
    tokens = _tokens(layer, longest, notes)
    summary = LayerSummary(
        layer.index, layer.heads, layer.n, len(layer.q), layer.scaling, rescaling=scale, **about, **tokens,
    )  # fmt: skip
    return heads, summary


def _updates(
    layer: Layer, flow: Stream, values: Values | None, attended: list[_Attended], scale: float | None, notes: Notes
) -> list[dict[str, Any]]:
    def one(place: int) -> dict[str, Any] | Vanishes:
        mixed = attended[place].mixed
        assert values is not None and mixed is not None and layer.w_o is not None
        try:
            found = update(flow, values[:, layer.kv_rows[place], 1:], mixed[:, 1:], layer.w_o[place], scale)
        except Vanishes as error:
            return error
        return _theorem(flow, found)

    made = []
    for head, found in zip(layer.heads, spread(one, range(len(attended))), strict=True):
        if isinstance(found, Vanishes):
            notes.of_head(f"no Theorem 5.1, since {found}", layer.index, head)
        made.append({} if isinstance(found, Vanishes) else found)
    return made


def _mean(found: list[Pattern]) -> _Attended:
    columns = np.mean([each.columns for each in found], axis=0)
    largest = int(columns.argmax())
    single = [Masses(each.sink, each.diagonal, each.lower_diagonal, float(each.columns[largest])) for each in found]
    masses = _of_masses(single, lambda shares: float(np.mean(shares)))
    masses_se = _of_masses(single, _se) if len(found) > 1 else None
    mixed = [each.mixed for each in found if each.mixed is not None]
    shared = float(np.mean([each.shared[largest] for each in found]))
    uniformity = float(np.mean([each.uniformity for each in found]))
    return _Attended(masses, masses_se, largest, shared, uniformity, np.stack(mixed) if mixed else None)


def _of_masses(single: list[Masses], summary: Callable[[list[float]], float]) -> Masses:
    """A summary of every mass over sequences."""
    lower = [each.lower_diagonal for each in single if each.lower_diagonal is not None]
    return Masses(
        summary([each.sink for each in single]),
        summary([each.diagonal for each in single]),
        summary(lower) if lower else None,
        summary([each.largest_column_mass for each in single]),
    )


def _se(found: Float[np.ndarray, "sequences"] | list[float]) -> float:
    """The standard error of a mean over sequences."""
    return float(np.std(found, ddof=1) / np.sqrt(len(found)))


def _values(layer: Layer, notes: Notes) -> Values | None:
    """v, or Z W_V^T where there is no v. Where both are there, says whether they differ."""
    z, w_v = layer.z, layer.w_v
    if layer.v is None:
        if z is None or w_v is None:
            notes.absent("ranks", layer.index, ["v"])
            return None
        made = np.stack([z @ each.T for each in w_v], axis=1)
        size = max(float(np.abs(each).max()) for each in made)
        must = f"make values of at most {_LARGEST:g} in size"
        _check.require(size <= _LARGEST, f"W_V of layer {layer.index}", must, f"of {size:g}")
        return made
    if z is not None and w_v is not None:
        at = _sample(layer.n)
        wide = z[:, at].astype(np.float64)
        made = np.stack([wide @ each.T for each in w_v], axis=1)
        if (difference := _difference(made, layer.v[:, :, at])) > _EQUAL:
            sentence = "`v` is not Z W_V^T in {} and is used: a bias is in it, or `W_V` is without the norm's learnt scale"
            notes.say(f"{sentence} (relative difference {difference:.1g})", layer.index)
    return layer.v


def _stream(layer: Layer, values: Values | None, notes: Notes) -> Stream | None:
    """What Theorem 5.1 takes, or None, said in the notes."""
    needed = {"v": values, "X": layer.x, "Z": layer.z, "W_O": layer.w_o}
    lacking = [name for name, array in needed.items() if array is None]
    notes.absent("theorem", layer.index, lacking)
    if not lacking and layer.n < 3:
        notes.skipped("theorem", layer.index, "fewer than 3 positions")
    return None if lacking or layer.n < 3 else stream(layer)


def _scale(layer: Layer, attended: list[_Attended], notes: Notes) -> float | None:
    """s_l of (11), over the heads that are there; says where these are not all of the layer's."""
    if layer.attention_output is None:
        notes.absent("rescaling", layer.index, ["attention_output"])
        return None
    assert layer.w_o is not None
    mixed = [each.mixed for each in attended if each.mixed is not None]
    at = _sample(layer.n)
    whole = sum(each[:, at].astype(np.float64) @ w_o.T for each, w_o in zip(mixed, layer.w_o, strict=True))
    if (difference := _difference(np.asarray(whole), layer.attention_output[:, at])) > _EQUAL:
        sentence = "the heads do not add up to `attention_output` in {}: (11) averages over those that are there"
        notes.say(f"{sentence} (relative difference {difference:.1g})", layer.index)
    norms = list(spread(lambda pair: mean_norm(*pair), list(zip(mixed, layer.w_o, strict=True))))
    if not any(norms):
        notes.skipped("rescaling", layer.index, "every head's update is 0")
        return None
    return rescaling(layer.attention_output, np.array(norms))


def _theorem(flow: Stream, found: Update) -> dict[str, Any]:
    traces, (wz, wza, wzau) = found.traces, found.measured.mean(axis=1).tolist()
    change = found.measured[2] - found.measured[0]
    sign = {"i": 1, "ii": -1}.get(found.regime.name) if found.regime.positive else None
    again = {} if found.rescaled is None else dict(zip(("wz", "wza", "wzau"), found.rescaled.mean(axis=1).tolist(), strict=True))
    return {
        "regime": found.regime.name, "positive": found.regime.positive, "increases_to": found.regime.increases_to,
        "beta": traces.beta, "beta_tr_bw": traces.beta * traces.bw, "tr_bww": traces.bww,
        "rho_x": flow.rho, "rho_x_wz": wz, "rho_x_wza": wza, "rho_x_wzau": wzau,
        "predicted_rho_x_wz": float(found.predicted[0]), "predicted_rho_x_wzau": float(found.predicted[1]),
        "predicted_sign": sign, "measured_change": wzau - wz, "measured_change_se": _se(change) if len(change) > 1 else None,
        "agrees": None if sign is None else bool(np.sign(wzau - wz) == sign),
        "change_with_attention": wza - wz, "change_to_uniform": wzau - wza,
        **{f"rescaled_rho_x_{name}": value for name, value in again.items()},
    }  # fmt: skip


def _ranks(values: Float[np.ndarray, "sequences n value_dim"]) -> dict[str, float]:
    most = min(values.shape[1:])
    found = [rank(each, _RANK_TOLERANCE) / most for each in values]
    return {"value_rank": float(np.mean(found)), "value_rank_smallest": min(found), "value_rank_largest": max(found)}


def _tokens(layer: Layer, longest: int, notes: Notes) -> dict[str, Any]:
    """Cosines with the first token in all sequences, half-spaces in the first."""
    if layer.z is None:
        notes.absent("tokens", layer.index, ["Z"])
        return {}
    found = cosines(layer.z, squared_norms(layer.z, f"Z of layer {layer.index}", first=0))
    about: dict[str, Any] = {"bos_cosine_smallest": float(found.min()), "bos_cosine_largest": float(found.max())}
    if layer.n > longest:
        notes.skipped("half_spaces", layer.index, f"more than {longest} positions")
        return about
    spaces = representability(layer.z[0])
    known = spaces.representable or spaces.excluded
    return about | {
        "representable": spaces.representable if known else None,
        "sink_margin": spaces.sink.margin, "attending_margin": spaces.attending.margin, "independent": spaces.automatic,
    }  # fmt: skip


def _sample(n: int) -> np.ndarray:
    return np.unique(np.linspace(1, n - 1, min(n - 1, _SAMPLE)).astype(int))


def _difference(a: np.ndarray, b: np.ndarray) -> float:
    """Relative to the larger of the two; in float64, where squares of what files hold are finite."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    size = max(float(np.linalg.norm(a)), float(np.linalg.norm(b)))
    return float(np.linalg.norm(a - b)) / size if size > 0 else 0.0
