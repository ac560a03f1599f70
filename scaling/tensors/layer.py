"""One attention layer of a model on some sequences, as its file has it."""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float

from scaling import _check

_LARGEST = 1e15  # of an entry: squares and inner products stay far from the largest float32
_STEEPEST = 1e6  # of the scaling: so do logits

# Names in files of what depends on the tokens: a leading axis of sequences may be there, positions are the last axis but one.
ACTIVATIONS = ("q", "k", "v", "X", "Z", "attention_output")
WEIGHTS = ("W_O", "W_V")
Array = np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Layer:
    """Queries, keys and values of a layer's heads, and what they were made from where it is known.

    Attention is softmax(`scaling` q k^T) over the keys at and before the position of the query. Positions count from 0, the
    place of a first-token sink. Query head i uses row `kv_rows[i]` of `k`, `v` and `w_v`, which query heads may share.

    | field | shape | what |
    |---|---|---|
    | `index`, `heads` | | the number of the layer, and of its query heads, in the model |
    | `kv_rows` | [heads] | |
    | `q` | [sequences heads n head_dim] | queries, after rotary embedding |
    | `k` | [sequences kv_heads n head_dim] | keys, after rotary embedding |
    | `scaling` | | of the logits, > 0, at most 1e6 |
    | `v` | [sequences kv_heads n value_dim] | values |
    | `x` | [sequences n d] | the residual stream that enters the layer |
    | `z` | [sequences n d] | its norm, without the learnt scale |
    | `attention_output` | [sequences n d] | the sum of all heads' updates |
    | `w_o` | [heads d value_dim] | each head's part of the output matrix |
    | `w_v` | [kv_heads value_dim d] | with the norm's learnt scale, so that v = z w_v^T |

    From `v` on they are None where they are not known.

    **Raises:** `ValueError` for shapes that do not fit together, fewer than 2 positions and, by head and position, entries
    that are not finite.
    """

    index: int
    heads: tuple[int, ...]
    kv_rows: tuple[int, ...]
    q: Array  # shapes are checked below, with messages for users
    k: Array
    scaling: float
    v: Array | None = None
    x: Array | None = None
    z: Array | None = None
    attention_output: Array | None = None
    w_o: Array | None = None
    w_v: Array | None = None

    def __post_init__(self) -> None:
        where = f" of layer {self.index}"
        _check.require(self.q.ndim == 4, "q" + where, "have shape (sequences, heads, n, head_dim)", f"of shape {self.q.shape}")
        sequences, heads, n, head_dim = self.q.shape
        _check.require(n >= 2, "q" + where, "have at least 2 positions", f"of shape {self.q.shape}")
        _check.require(self.q.size > 0, "q" + where, "not be empty", f"of shape {self.q.shape}")
        _check.require(len(self.heads) == heads, "heads" + where, f"name {heads} heads", list(self.heads))
        _shape("k" + where, self.k, (sequences, None, n, head_dim))
        kv_heads = self.k.shape[1]
        _shape("v" + where, self.v, (sequences, kv_heads, n, None))
        good = len(self.kv_rows) == heads and all(0 <= row < kv_heads for row in self.kv_rows)
        _check.require(good, "kv_rows" + where, f"be {heads} rows of k, 0 to {kv_heads - 1}", list(self.kv_rows))
        _check.finite_above("scaling" + where, self.scaling, 0.0)
        _check.require(self.scaling <= _STEEPEST, "scaling" + where, f"be at most {_STEEPEST:g}", self.scaling)
        wide = next((a.shape[-1] for a in (self.x, self.z, self.attention_output) if a is not None), None)
        value_dim = next((a.shape[-1] for a in (self.v, self.w_o) if a is not None), None)
        for name in ("x", "z", "attention_output"):
            _shape(_NAMES[name] + where, getattr(self, name), (sequences, n, wide))
        _shape("W_O" + where, self.w_o, (heads, wide, value_dim))
        wide = self.w_o.shape[1] if wide is None and self.w_o is not None else wide
        _shape("W_V" + where, self.w_v, (kv_heads, value_dim, wide))
        for name in _NAMES:
            self._finite(name, where)

    @property
    def n(self) -> int:
        """Number of positions."""
        return self.q.shape[2]

    def key(self, head: int) -> Float[Array, "sequences n head_dim"]:
        """The keys of the `head`-th query head of this layer."""
        return self.k[:, self.kv_rows[head]]

    def value(self, head: int) -> Float[Array, "sequences n value_dim"] | None:
        """The values of the `head`-th query head of this layer."""
        return None if self.v is None else self.v[:, self.kv_rows[head]]

    def _finite(self, name: str, where: str) -> None:
        array = getattr(self, name)
        if array is None or np.all(np.abs(array) <= _LARGEST):
            return
        place = tuple(int(i) for i in np.argwhere(~(np.abs(array) <= _LARGEST))[0])
        value, names = array[place], []
        if array.ndim == 4 or name in ("w_o", "w_v"):
            row = place[array.ndim - 3]
            per_query = name in ("q", "w_o")
            own = self.heads[row] if per_query else [self.heads[i] for i, kv in enumerate(self.kv_rows) if kv == row]
            names.append(f"head {own}" if isinstance(own, int) else f"key head {row}, of head {', '.join(map(str, own))}")
        if name not in ("w_o", "w_v"):
            names.append(f"position {place[-2]}")
            names += [f"sequence {place[0]}"] if array.shape[0] > 1 else []
        must = "be finite" if not np.isfinite(value) else f"have entries of at most {_LARGEST:g} in size"
        _check.reject(_NAMES[name] + where, must, f"of {value:g} at {', '.join(names)}" if names else f"of {value:g}")


_NAMES = {name.lower(): name for name in (*ACTIVATIONS, *WEIGHTS)}  # of fields, in files


def _shape(argument: str, array: Any, shape: tuple[int | None, ...]) -> None:
    if array is None:
        return
    good = array.ndim == len(shape) and all(want in (None, has) for want, has in zip(shape, array.shape, strict=True))
    wanted = ", ".join("any" if size is None else str(size) for size in shape)
    _check.require(good and array.size > 0, argument, f"have shape ({wanted})", f"of shape {array.shape}")
