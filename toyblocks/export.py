"""Tensors of the attention layers of a Hugging Face model, in the layout that `scaling.read_tensors` reads.

Nothing of the model is replaced: its attention function is called as it is and looked at, hooks read what passes by, and all of
that is undone afterwards. What a module means is not told from its name but from what it did: a matrix is W_O because it maps the
values after attention to the layer's output, and what cannot be confirmed so is left out, with a message. Needs torch and
transformers (the extra `models`).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from os import PathLike
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from scaling import _check
from scaling.tensors import ACTIVATIONS

_PROBE = 256.0  # entries of the token that shows a norm's scale: epsilon is lost beside its square, half precision holds it
_ROWS = 32  # queries of a sequence for which attention is recomputed
_ALTERING = {  # arguments of an attention function under which logits are more than scaling q k^T, or weights more than a softmax
    "softcap": "its logits are capped",
    "s_aux": "its softmax has one more term",
    "position_bias": "its logits have a bias",
}
_INSTALL = "Export needs torch and transformers: pip install 'attention-scaling-limits[models]'."


def export(
    model: Any,
    token_ids: Int[np.ndarray, "sequences n"],
    file: str | PathLike,
    *,
    layers: Sequence[int] | None = None,
    progress: bool = False,
) -> tuple[str, ...]:
    """Writes what `record` finds to `file`, as safetensors where the name ends in .safetensors and as npz where it ends in .npz,
    and returns messages that say what was left out and why. Arguments and what it raises as for `record` of this module (`from
    toyblocks.export import record`), and `ValueError` for other names and directories that do not exist."""
    path = _check.path("file", file)
    good = path.suffix in (".npz", ".safetensors") and path.parent.is_dir()
    _check.require(good, "file", "end in .npz or .safetensors and lie in a directory that exists", str(path))
    arrays, messages = record(model, token_ids, layers=layers, progress=progress)
    if path.suffix == ".npz":
        np.savez(path, **arrays)  # pyright: ignore[reportArgumentType]
    else:
        from safetensors.numpy import save_file

        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path)
    return messages


def record(
    model: Any, token_ids: Int[np.ndarray, "sequences n"], *, layers: Sequence[int] | None = None, progress: bool = False
) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """Runs a causal language model of transformers on `token_ids` and returns what its attention layers saw, by the names that
    `scaling.read_tensors` knows, and messages that say what was left out and why.

    For every layer, or those of the numbers `layers`, in float32 (float64 of a model in float64), all dimensionless:

    - `L{layer}/q` [sequences heads n head_dim], `k` and `v` [sequences kv_heads n ...] after rotary embedding, grouped heads as
      the model has them; `scaling`: attention is softmax(scaling q k^T), causal, which the model's own output confirms;
    - `X` [sequences n d], the residual stream into the layer, and `Z`, its norm's output without the learnt scale: X / rms(X)
      with the model's epsilon;
    - `W_O` [heads d value_dim]; `W_V` [kv_heads value_dim d], the norm's scale in it, so that v = Z W_V^T;
    - `attention_output` [sequences n d], the sum of the heads' updates, without a bias of the output.

    And `token_ids`, as they were given: a first token such as BOS has to be among them. Left out: layers with a window shorter
    than n, with capped or biased logits or attention that is not causal; `Z` and `W_V` where the norm has a mean or a bias
    (LayerNorm); `W_V` where values have a bias or are made together with queries and keys; `W_O` and `attention_output` where
    the output is changed before it is added to the stream.

    Sequences are run one by one, without the model's head. The model, in evaluation mode, is as before afterwards, also if a
    run fails. Not for compiled models, nor while another thread runs one. Memory: 4 n (3 d + (H + 2 K) head_dim) bytes a layer
    and sequence. Raises `ValueError` without torch and transformers, for a model that is no causal language model in
    evaluation mode or does not use the attention interface of transformers 5, for token numbers that it does not know, fewer
    than two tokens, layers that do not exist, and where no layer is left.
    """
    torch, interface = _libraries()
    decoder, ids = _decoder(torch, model, token_ids)
    found = _attention_modules(torch, interface, decoder, ids)
    wanted = sorted(found) if layers is None else [_check.whole("layers", each, 0) for each in layers]
    _check.require(wanted and set(wanted) <= set(found), "layers", f"be some of {sorted(found)}", wanted)
    modules = {number: found[number] for number in wanted}
    kept: dict[str, list[np.ndarray]] = {}
    said: dict[str, None] = {}  # in order, each once
    for run in _runs(torch, interface, decoder, ids, modules, progress):
        for number, seen in run.items():
            arrays, messages = _layer(torch, modules[number][0], seen)
            said |= {f"Layer {number}: {each}.": None for each in messages}
            for name, array in arrays.items():
                each = kept.setdefault(f"L{number}/{name}", [])
                each.append(array if name in ACTIVATIONS or not each else each[0])
    full = {name: each for name, each in kept.items() if len(each) == len(ids)}  # confirmed on every sequence
    if not full:
        first = next(iter(said)).removesuffix(".")
        _check.reject("model", "have a layer with attention softmax(scaling q k^T)", f"of layers that have not: {first}")
    result = {name: np.stack(each) if name.split("/")[1] in ACTIVATIONS else each[0] for name, each in full.items()}
    return {**result, "token_ids": np.asarray(token_ids, np.int64)}, tuple(said)


def _libraries() -> tuple[Any, Any]:
    """torch, and the class through which the models of transformers find their attention function."""
    try:
        torch = import_module("torch")
        interface = import_module("transformers.modeling_utils").AttentionInterface
        interface.get_interface  # noqa: B018, that of version 5
    except (ImportError, AttributeError) as error:
        raise ValueError(_INSTALL) from error
    return torch, interface


def _decoder(torch: Any, model: Any, token_ids: np.ndarray) -> tuple[Any, Any]:
    """The model without its head, and the tokens [sequences n] on its device."""
    config = getattr(model, "config", None)
    causal = isinstance(model, torch.nn.Module) and config is not None and not getattr(config, "is_encoder_decoder", False)
    _check.require(causal, "model", "be a causal language model of transformers", f"of type {type(model).__name__}")
    _check.require(not model.training, "model", "be in evaluation mode (model.eval())", "of training mode")
    ids = np.asarray(token_ids)
    good = ids.ndim == 2 and ids.size > 0 and ids.shape[1] >= 2 and ids.dtype.kind in "iu"
    _check.require(good, "token_ids", "be integers of shape (sequences, n) with n >= 2", f"of {ids.dtype} of shape {ids.shape}")
    vocabulary = model.get_input_embeddings().weight.shape[0]
    inside = int(ids.min()) >= 0 and int(ids.max()) < vocabulary
    _check.require(inside, "token_ids", f"lie in 0 to {vocabulary - 1}", f"of {ids.min()} to {ids.max()}")
    device = next(model.parameters()).device
    return getattr(model, "base_model", model), torch.as_tensor(ids.astype(np.int64), device=device)


@contextmanager
def _watched(interface: Any, seen: Any) -> Iterator[None]:
    """Calls `seen`(module, q, k, v, output, options) after every attention function that a model gets from the interface."""
    original = interface.get_interface

    def get_interface(self: Any, name: Any, default: Any) -> Any:
        function = original(self, name, default)

        def watched(module: Any, query: Any, key: Any, value: Any, mask: Any, *rest: Any, **options: Any) -> Any:
            result = function(module, query, key, value, mask, *rest, **options)
            seen(module, query, key, value, result[0], options)
            return result

        return watched

    interface.get_interface = get_interface
    try:
        yield
    finally:
        interface.get_interface = original


def _attention_modules(torch: Any, interface: Any, decoder: Any, ids: Any) -> dict[int, tuple[Any, Any]]:
    """The attention modules by number of their layer, each with the module it is a child of, found by a run on two tokens."""
    called: dict[Any, None] = {}
    with _watched(interface, lambda module, *_: called.setdefault(module)), torch.no_grad():
        decoder(input_ids=ids[:1, :2], use_cache=False)
    _check.require(called, "model", "use the attention interface of transformers >= 5", f"of type {type(decoder).__name__}")
    parents = {child: parent for parent in decoder.modules() for child in parent.children()}
    numbers = [int(getattr(module, "layer_idx", place)) for place, module in enumerate(called)]
    return {number: (module, parents[module]) for number, module in zip(numbers, called, strict=True)}


def _runs(
    torch: Any, interface: Any, decoder: Any, ids: Any, modules: Mapping[int, tuple[Any, Any]], progress: bool
) -> Iterator[dict[int, dict[str, Any]]]:
    """What passed by in each sequence, by layer."""
    from tqdm import tqdm

    by_module = {attention: number for number, (attention, _) in modules.items()}
    for sequence in tqdm(ids, desc="export", unit="sequence", disable=None if progress else True):
        run: dict[int, dict[str, Any]] = {number: {"around": []} for number in modules}

        def seen(module: Any, q: Any, k: Any, v: Any, out: Any, options: Any, run: Any = run) -> None:
            if module in by_module:
                run[by_module[module]] |= {"q": q, "k": k, "v": v, "mixed": out, "options": options}

        with ExitStack() as stack, torch.no_grad():
            stack.enter_context(_watched(interface, seen))
            for number, (attention, parent) in modules.items():
                for module in parent.children():
                    handle = module.register_forward_hook(_hook(run[number], module is attention), with_kwargs=True)
                    stack.callback(handle.remove)
            decoder(input_ids=sequence[None], use_cache=False)
        yield run


def _hook(record: dict[str, Any], is_attention: bool) -> Any:
    """Keeps the first input and output of a module in `record`: of the attention module as `into` and `output`, of its siblings
    in the order of their calls as `around`."""

    def hook(module: Any, arguments: tuple, options: dict, output: Any) -> None:
        into = arguments[0] if arguments else options.get("hidden_states")
        out = output[0] if isinstance(output, tuple) else output
        if is_attention:
            record.update(into=into, output=out)
        else:
            record["around"].append((module, into, out))

    return hook


def _layer(torch: Any, attention: Any, run: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], list[str]]:
    """The arrays of one layer from one sequence, and what was left out."""
    tolerance = 1e-3 if run["q"].dtype in (torch.float32, torch.float64) else 3e-2
    q, k, v = (_numpy(run[name][0]) for name in ("q", "k", "v"))
    mixed = _numpy(run["mixed"][0])  # [n heads value_dim]
    given = run["options"].get("scaling")
    scaling = q.shape[-1] ** -0.5 if given is None else float(given)
    reason = _altered(run["options"], q.shape[1])
    rows = np.unique(np.linspace(0, q.shape[1] - 1, _ROWS).astype(int))
    if reason is None and not _close(_attention(q, k, v, scaling, rows), mixed[rows], tolerance):
        reason = "its output is not that of causal attention with weights softmax(scaling q k^T)"
    if reason is not None:
        return {}, [f"left out, since {reason}"]
    layer = {"q": q, "k": k, "v": v, "scaling": np.asarray(scaling, np.float64)}
    messages = _values(torch, attention, run, layer, tolerance)
    return layer, messages + _outputs(attention, run, mixed, layer, tolerance)


def _altered(options: Mapping[str, Any], n: int) -> str | None:
    for name, words in _ALTERING.items():
        if options.get(name) is not None:
            return words
    window = options.get("sliding_window")
    return f"its window of {window} tokens is shorter than n = {n}" if window is not None and window < n else None


def _attention(
    q: Float[np.ndarray, "heads n r"],
    k: Float[np.ndarray, "key_heads n r"],
    v: Float[np.ndarray, "key_heads n s"],
    scaling: float,
    rows: Int[np.ndarray, "rows"],
) -> Float[np.ndarray, "rows heads s"]:
    """softmax(scaling q k^T) v, causal, in some rows."""
    out = np.empty((len(rows), len(q), v.shape[-1]))
    for head in range(len(q)):
        group = head // (len(q) // len(k))
        logits = scaling * q[head, rows].astype(np.float64) @ k[group].T
        logits[rows[:, None] < np.arange(q.shape[1])] = -np.inf
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
        out[:, head] = weights @ v[group] / weights.sum(axis=-1, keepdims=True)
    return out


def _values(torch: Any, attention: Any, run: Mapping[str, Any], layer: dict[str, np.ndarray], tolerance: float) -> list[str]:
    """Adds `X`, `Z` and `W_V` to the layer; says which of them it left out."""
    norms = [(norm, into, out) for norm, into, out in run["around"] if out is run["into"]]
    if len(norms) != 1:
        return ["`X`, `Z` and `W_V` are left out, since no norm stands before its attention"]
    norm, into, out = norms[0]
    layer["X"] = x = _numpy(into[0])
    normed = _numpy(out[0])
    with torch.no_grad():
        scale = _numpy(norm(torch.full_like(into[:, :1], _PROBE)))[0, 0]
    # The norm's output is r scale x with one number r a token, here by least squares: so epsilon is the model's own.
    along = scale.astype(np.float64) * x
    ratio = np.sum(normed * along, axis=-1) / np.maximum(np.sum(along**2, axis=-1), np.finfo(np.float64).tiny)
    if not (np.any(scale) and _close(ratio[:, None] * along, normed, tolerance)):
        return ["`Z` and `W_V` are left out, since its norm is not x scale / rms(x), as LayerNorm is not"]
    layer["Z"] = z = (ratio[:, None] * x).astype(x.dtype)
    heads, _, size = layer["v"].shape
    for weight, _ in _matrices(attention, heads * size, x.shape[-1]):
        w_v = (weight * scale).reshape(heads, size, -1)
        if _close(np.einsum("nd,krd->knr", z, w_v, optimize=True), layer["v"], tolerance):
            layer["W_V"] = w_v
            return []
    return ["`W_V` is left out, since no matrix of its own makes the values from Z (a bias, or one matrix for q, k and v)"]


def _outputs(
    attention: Any, run: Mapping[str, Any], mixed: np.ndarray, layer: dict[str, np.ndarray], tolerance: float
) -> list[str]:
    """Adds `W_O` and `attention_output` to the layer; says which of them it left out."""
    left_out = "`W_O` and `attention_output` are left out, since"
    update = _numpy(run["output"][0])
    if "X" not in layer:
        return [f"{left_out} whether they are added to the stream as they are is not known without `X`"]
    if not any(_is(into, layer["X"] + update, tolerance) for _, into, _ in run["around"]):
        return [f"{left_out} X + output goes nowhere: another norm or a factor stands between, or the MLP beside"]
    _, heads, size = mixed.shape
    for weight, bias in _matrices(attention, update.shape[-1], heads * size):
        w_o = weight.reshape(-1, heads, size).swapaxes(0, 1)
        if _close(np.einsum("nhr,hdr->nd", mixed, w_o, optimize=True) + bias, update, tolerance):
            layer["W_O"], layer["attention_output"] = np.ascontiguousarray(w_o), (update - bias).astype(update.dtype)
            return []
    return [f"{left_out} no matrix of its own makes the output from the heads' values"]


def _matrices(attention: Any, out: int, into: int) -> Iterator[tuple[Float[np.ndarray, "out into"], np.ndarray]]:
    """Weights and biases of the linear maps in a module that have the right shape; transformers' Conv1D holds the transpose."""
    for module in attention.modules():
        weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
        if weight is None or weight.ndim != 2 or not weight.is_floating_point():
            continue
        matrix = _numpy(weight)
        matrix = matrix.T if type(module).__name__ == "Conv1D" else matrix
        if matrix.shape == (out, into):
            yield matrix, np.zeros(out, matrix.dtype) if bias is None else _numpy(bias)


def _is(tensor: Any, array: np.ndarray, tolerance: float) -> bool:
    return hasattr(tensor, "shape") and tuple(tensor.shape[1:]) == array.shape and _close(_numpy(tensor[0]), array, tolerance)


def _close(a: np.ndarray, b: np.ndarray, tolerance: float) -> bool:
    """Whether a differs from b by at most `tolerance` in a median token (last axis) and by ten times that in every token.

    Relative to the token's size, so that one massive token cannot hide the others; or to the median one, since the values of
    such a token are small differences of large numbers.
    """
    error, size = (np.sqrt(np.mean(np.square(each, dtype=np.float64), axis=-1)) for each in (a - b, b))
    share = error / np.maximum(np.maximum(size, np.median(size)), np.finfo(np.float64).tiny)
    return bool(np.median(share) <= tolerance and np.all(share <= 10 * tolerance))


def _numpy(tensor: Any) -> np.ndarray:
    """In float32, float64 where the tensor is."""
    wide = tensor.detach() if str(tensor.dtype) == "torch.float64" else tensor.detach().float()
    return wide.cpu().numpy()
