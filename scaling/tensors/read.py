"""From names and arrays to layers."""

import dataclasses
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from scaling import _check
from scaling.tensors.archive import Archive, printable
from scaling.tensors.layer import ACTIVATIONS, WEIGHTS, Layer
from scaling.tensors.words import layers_in_words

_NAMES = (*ACTIVATIONS, *WEIGHTS, "scaling")
_PER_HEAD = ("q", "k", "v", *WEIGHTS, "scaling")
_ALIASES = {"W_Vg": "W_V"}  # g for the norm's learnt scale
_NAME = re.compile(rf"(?:L(?P<layer>[0-9]+)(?:H(?P<head>[0-9]+))?/)?(?P<name>{'|'.join((*_NAMES, *_ALIASES))})")
_DIGITS = 6  # of the number of a layer or head


def read_tensors(source: str | os.PathLike | Mapping[str, Any], *, scaling: float | int | None = None) -> "Tensors":
    """The attention layers that a file .npz or .safetensors holds, or a mapping from names to arrays.

    Names are `q` [heads n head_dim], `k` [kv_heads n head_dim], both after rotary embedding, and where they are known `v`
    [kv_heads n value_dim], `scaling` [], `X`, `Z` and `attention_output` [n d], `W_O` [heads d value_dim] or [d heads*value_dim],
    `W_V` [kv_heads value_dim d] or [kv_heads*value_dim d], see `Layer`. As they are they name one layer, below `L3/` layer 3, and
    below `L3H5/` one head of it, without the axis of heads; then `X`, `Z` and `attention_output` are below `L3/`. A leading axis
    of sequences may be there, in all or none of a layer's activations. kv_heads divides heads, and consecutive query heads share
    a key head. Without `scaling`, for a layer or for all, it is 1/sqrt(head_dim), and `warnings` say so; the argument `scaling`
    goes before what the file says. Other names are ignored.

    **Raises:** `ValueError` for what is neither, a pickle in the file under whatever name, arrays that are missing, not numbers
    or not finite, shapes that do not fit and fewer than 2 positions; for the arrays when their layer is read. `OSError` for a
    file that cannot be opened.
    """
    if scaling is not None:
        scaling = _check.finite_above("scaling", scaling, 0.0)
    arrays = source if isinstance(source, Mapping) else Archive(source)
    places: dict[int, dict[int | None, dict[str, str]]] = {}
    shared: str | None = None
    plain = any("/" not in name and name in ("q", "k") for name in arrays)
    for name in arrays:
        match = _NAME.fullmatch(name)
        if match is None:
            continue
        kind = _ALIASES.get(match["name"], match["name"])
        if match["layer"] is None and not plain:
            shared = name if kind == "scaling" else shared
            continue
        short = all(len(match[part] or "") <= _DIGITS for part in ("layer", "head"))
        must = f"number layers and heads with at most {_DIGITS} digits"
        _check.require(short, "file", must, f"of {name if len(name) <= 60 else name[:50] + '...'}")
        layer, head = int(match["layer"] or 0), None if match["head"] is None else int(match["head"])
        own = head is None or kind in _PER_HEAD
        _check.require(own, "file", f"hold `{kind}` once for layer {layer}, as `L{layer}/{kind}`", f"of {name}, of one head")
        found = places.setdefault(layer, {}).setdefault(head, {})
        _check.require(kind not in found, "file", f"hold one `{kind}` for each place", f"of two: {found.get(kind)} and {name}")
        found[kind] = name
    entries = [_entry(layer, places[layer], shared) for layer in sorted(places)]
    if not entries:
        names = ", ".join(printable(str(name))[:60] for name in list(arrays)[:8])
        _check.reject("file", "hold `q` and `k`, `L0/q` or `L0H0/q`", f"of {names or 'no names'}")
    open_ = [entry.layer for entry in entries if entry.scaling is None and scaling is None]
    note = f"`scaling` is absent from {layers_in_words(open_)}: 1/sqrt(head_dim) is assumed"
    return Tensors(Layers(arrays, entries, scaling), (note,) if open_ else ())


@dataclasses.dataclass(frozen=True)
class _Entry:
    """Where the arrays of a layer are: names by kind, of the layer and of its single heads."""

    layer: int
    whole: Mapping[str, str]
    heads: Mapping[int, Mapping[str, str]]
    scaling: tuple[str, ...] | None


def _entry(layer: int, places: Mapping[int | None, Mapping[str, str]], shared: str | None) -> _Entry:
    whole = places.get(None, {})
    heads = {head: names for head, names in places.items() if head is not None}
    if heads:
        twice = [name for name in _PER_HEAD if name in whole and name != "scaling"]
        _check.require(not twice, "file", f"hold heads of layer {layer} together or singly", f"of both: {', '.join(twice)}")
        kinds = {head: set(names) for head, names in heads.items()}
        first = next(iter(kinds))
        for head, names in kinds.items():
            differ = sorted(names ^ kinds[first])
            must = f"hold the same for every head of layer {layer}"
            _check.require(not differ, "file", must, f"of {', '.join(differ)} in one of heads {first} and {head}")
    own = kinds[first] if heads else set(whole)
    for name in ("q", "k"):
        _check.require(name in own, "file", f"hold `q` and `k` of layer {layer}", f"of a file without `{name}`")
    if heads and "scaling" in own:
        scaling = tuple(names["scaling"] for names in heads.values())
    else:
        found = whole.get("scaling", shared)
        scaling = None if found is None else (found,)
    return _Entry(layer, whole, dict(sorted(heads.items())), scaling)


class Layers:
    """Layers that are read when they are asked for: memory is that of one."""

    def __init__(self, arrays: Mapping[str, Any], entries: Sequence[_Entry], scaling: float | None) -> None:
        self._arrays, self._entries, self._scaling = arrays, entries, scaling

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, index: int) -> Layer:
        return _layer(self._arrays, self._entries[index], self._scaling)

    def __iter__(self) -> Iterator[Layer]:
        return (self[place] for place in range(len(self)))


@dataclasses.dataclass(frozen=True, eq=False)
class Tensors:
    """The attention layers of a model: `layers` in ascending order, read from the file when they are asked for, and `warnings`,
    what the file left open."""

    layers: Layers | tuple[Layer, ...]
    warnings: tuple[str, ...] = ()


def _layer(arrays: Mapping[str, Any], entry: _Entry, scaling: float | None) -> Layer:
    def get(name: str) -> np.ndarray:
        return _numbers(name, arrays[name])

    found: dict[str, np.ndarray] = {kind: get(name) for kind, name in entry.whole.items() if kind != "scaling"}
    for kind in next(iter(entry.heads.values()), {}):
        if kind != "scaling":
            parts = [get(names[kind]) for names in entry.heads.values()]
            same = all(part.shape == parts[0].shape for part in parts) and parts[0].ndim >= 2
            must = f"have one shape in all heads of layer {entry.layer}"
            _check.require(same, kind, must, f"of shapes {', '.join(str(part.shape) for part in parts)}")
            found[kind] = np.stack(parts, axis=-3)
    q = found["q"]
    good = q.ndim in (3, 4)
    _check.require(good, f"q of layer {entry.layer}", "have shape ([sequences,] heads, n, head_dim)", f"of shape {q.shape}")
    _check.require(q.size > 0, f"q of layer {entry.layer}", "not be empty", f"of shape {q.shape}")
    for kind in ACTIVATIONS:
        if kind in found and q.ndim == 3:  # one sequence
            found[kind] = found[kind][None]
    heads = q.shape[-3]
    kv_heads = found["k"].shape[1] if found["k"].ndim == 4 else 0
    fits = kv_heads > 0 and heads % kv_heads == 0
    shape = found["k"].shape[1:] if q.ndim == 3 else found["k"].shape  # as the file has it
    _check.require(fits, f"k of layer {entry.layer}", f"have a number of heads that divides {heads}", f"of shape {shape}")
    for kind, count, axis in (("W_O", heads, 1), ("W_V", kv_heads, 0)):
        if kind in found and found[kind].ndim == 2:
            found[kind] = _split(f"{kind} of layer {entry.layer}", found[kind], count, axis)
    return Layer(
        index=entry.layer,
        heads=tuple(entry.heads) or tuple(range(heads)),
        kv_rows=tuple(head * kv_heads // heads for head in range(heads)),
        scaling=_scaling(entry, get, q.shape[-1]) if scaling is None else scaling,
        **{kind.lower(): array for kind, array in found.items()},
    )


def _split(argument: str, matrix: np.ndarray, count: int, axis: int) -> np.ndarray:
    """Heads of a matrix whose `axis` is heads times value_dim, as the first axis."""
    size = matrix.shape[axis]
    _check.require(size % count == 0 and size > 0, argument, f"have {count} heads along axis {axis}", f"of shape {matrix.shape}")
    if axis == 0:
        return matrix.reshape(count, size // count, -1)
    return np.moveaxis(matrix.reshape(matrix.shape[0], count, size // count), 1, 0)


def _scaling(entry: _Entry, get: Any, head_dim: int) -> float:
    if entry.scaling is None:
        return head_dim**-0.5
    found = [get(name) for name in entry.scaling]
    single = all(value.size == 1 for value in found) and len({value.item() for value in found}) == 1
    must = f"be one number for layer {entry.layer}"
    _check.require(single, "scaling", must, f"of {', '.join(str(value.tolist()) for value in found)}")
    return float(found[0].item())


def _numbers(name: str, value: Any) -> np.ndarray:
    """The array as it is in single and double precision, widened from half precision and integers."""
    array = np.asarray(value)
    kind = array.dtype.kind
    good = kind in "fiu" or array.dtype.name == "bfloat16"
    _check.require(good, name, "be real numbers", f"of type {array.dtype.name}")
    if array.dtype in (np.float32, np.float64):
        return array
    return array.astype(np.float64 if kind in "iu" or array.dtype.itemsize > 8 else np.float32)
