"""The numbers that the figures of a model show, from its tensors, one sequence at a time: attention is causal, so that the start
of a sequence is the sequence of a shorter context."""

from collections.abc import Mapping, Sequence

import numpy as np
import xarray
from jaxtyping import Float

from scaling.figure.cells import variable
from scaling.tensors import ACTIVATIONS, Layer, read_tensors
from toyblocks.heads import PATTERNS, Head, label_heads
from toyblocks.oversmoothing import pair_moments, rho

UPDATES = ("wz", "wza", "wzau")  # W Z, W Z A^T, W Z A_u^T
_FIELDS = ("uniformity", "largest_column", "largest_column_mass", "value_rank", "beta_tr_bw", "tr_bww")


def measure(
    arrays: Mapping[str, np.ndarray],
    lengths: Sequence[int],
    scales: Mapping[int, Float[np.ndarray, "d"]] | None = None,
    *,
    half_spaces: bool = False,
    progress: bool = False,
) -> xarray.Dataset:
    """What the heads of a model do on one sequence, at each of the context `lengths`; dimensionless. `arrays` by the names that
    `scaling.read_tensors` knows.

    Everything that `label_heads` needs must be there, and the first token is left out where it leaves it out. Of heads [length
    layer head]: `mass` of the patterns, `uniformity`, `largest_column` and its mass, `value_rank`, `beta_tr_bw`, `tr_bww`;
    `rho_after` X + update, `rho_rescaled` by (11), and `predicted` by Theorem 5.1 for the updates WZ and W Z A_u^T. Of layers
    [length layer]: `rho` of X, `rho_predicted` = tr(C) / tr(B + C), `rho_layer` of X plus all heads' updates. At the longest
    context `cosine` [layer token scaled] of Z_0 with the others, without and with the learnt scales of the norms, `scales` [d] by
    layer; and with `half_spaces`, Proposition 4.1: `representable`, `independent`, `sink_margin`, `attending_margin` [layer].

    Raises `ValueError` as `label_heads` does, and for tensors of more than one sequence or too short.
    """
    found, about, layers = [], [], []
    for length in lengths:
        tensors = read_tensors(shortened(arrays, length))
        spaces = length if half_spaces and length == max(lengths) else 0
        report = label_heads(tensors, half_spaces_up_to=spaces, progress=progress)
        found.append(_heads(report.heads, len(report.layers)))
        about.append([_layer(layer) for layer in tensors.layers])
        layers.append(report.layers)
    data = {name: np.stack([each[name] for each in found]) for name in found[0]}
    data |= {name: np.array([[each[name] for each in row] for row in about]) for name in about[0][0]}
    last = layers[int(np.argmax(lengths))]
    if half_spaces:
        names = ("representable", "independent", "sink_margin", "attending_margin")
        data |= {name: np.array([getattr(each, name) for each in last], np.float64) for name in names}
    tensors = read_tensors(shortened(arrays, max(lengths)))
    data["cosine"] = np.stack([_cosines(layer, (scales or {}).get(layer.index)) for layer in tensors.layers])
    axes = {"mass": "pattern", "rho_after": "update", "rho_rescaled": "update", "predicted": "predicted_update"}
    return xarray.Dataset(
        {name: (_dims(name, array, axes), array) for name, array in data.items()},
        {"length": variable(("length",), list(lengths), "context length n", "tokens"), "pattern": list(PATTERNS),
         "update": list(UPDATES), "predicted_update": ["wz", "wzau"],
         "layer": [each.layer for each in last], "scaled": [0, 1]},
    )  # fmt: skip


def _dims(name: str, array: np.ndarray, axes: Mapping[str, str]) -> tuple[str, ...]:
    if name == "cosine":
        return ("layer", "token", "scaled")
    if array.ndim == 1:
        return ("layer",)
    return ("length", "layer", "head", axes.get(name, ""))[: array.ndim]


def shortened(arrays: Mapping[str, np.ndarray], n: int) -> dict[str, np.ndarray]:
    """The first `n` positions of named arrays as `toyblocks.export.record` returns them."""
    return {name: array[..., :n, :] if name.split("/")[-1] in ACTIVATIONS else array for name, array in arrays.items()}


def _heads(heads: Sequence[Head], layers: int) -> dict[str, np.ndarray]:
    def table(*names: str) -> np.ndarray:
        array = np.array([[getattr(head, name) for name in names] for head in heads], np.float64)
        return array.reshape(layers, -1, len(names))

    data = {name: table(name)[..., 0] for name in _FIELDS}
    data["mass"] = table(*PATTERNS)
    data["rho_after"] = table(*(f"rho_x_{name}" for name in UPDATES))
    data["rho_rescaled"] = table(*(f"rescaled_rho_x_{name}" for name in UPDATES))
    data["predicted"] = table("predicted_rho_x_wz", "predicted_rho_x_wzau")
    return data


def _layer(layer: Layer) -> dict[str, float]:
    assert layer.x is not None and layer.z is not None and layer.attention_output is not None
    z = layer.z[:, 1:].astype(np.float64)
    own, cross = pair_moments(z, z)
    before, after = (float(rho(each[:, 1:])[0]) for each in (layer.x, layer.x + layer.attention_output))
    return {"rho": before, "rho_layer": after, "rho_predicted": float(cross[0] / own[0])}


def _cosines(layer: Layer, scale: np.ndarray | None) -> Float[np.ndarray, "others 2"]:
    assert layer.z is not None
    found = []
    for factor in (1.0, np.nan if scale is None else scale):
        z = layer.z[0] * factor
        unit = z / np.linalg.norm(z, axis=-1, keepdims=True)
        found.append(unit[1:] @ unit[0])
    return np.stack(found, axis=-1)
