"""Export from models of transformers. What needs torch is skipped without it; see CONTRIBUTING.md for how to run it."""

import sys
from contextlib import ExitStack

import numpy as np
import pytest

import scaling
from toyblocks.export import _libraries, _runs, export, record

IDS = np.array([[1, 5, 9, 2, 7, 3, 8, 4, 6, 11], [1, 40, 41, 42, 43, 40, 41, 42, 43, 0]])


def test_the_extra_is_named_where_it_is_missing(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ValueError, match=r"needs torch .*\[models\]"):
        export(object(), IDS, tmp_path / "tensors.npz")


@pytest.mark.parametrize("name", ["tensors.pt", "nowhere/tensors.npz"])
def test_files_of_other_names_are_refused_before_anything_runs(tmp_path, name):
    with pytest.raises(ValueError, match=r"Argument `file` must end in .npz or .safetensors"):
        export(object(), IDS, tmp_path / name)


def tiny(kind: str, **settings):
    """A small model with random weights, norm scales and biases among them, in evaluation mode."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers", minversion="5.0")
    common = {"vocab_size": 64, "num_hidden_layers": 2, "bos_token_id": 1, "eos_token_id": 2}
    if kind == "GPT2":
        common |= {"n_embd": 48, "n_head": 4, "n_positions": 64}
    else:
        common |= {"hidden_size": 48, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
        common |= {"head_dim": 16, "max_position_embeddings": 64, "pad_token_id": 0}
    config = getattr(transformers, f"{kind}Config")(**common | settings)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        name = "GPT2LMHeadModel" if kind == "GPT2" else f"{kind}ForCausalLM"
        model = getattr(transformers, name)(config).eval()
        with torch.no_grad():
            for weight in model.parameters():  # far from what initialisation makes alike: scales 1, biases 0, flat attention
                weight.add_(0.3 * torch.randn_like(weight))
    return model


def eager(model, ids):
    """Attention of the model itself, [sequences heads n n] by layer."""
    torch = pytest.importorskip("torch")
    model.set_attn_implementation("eager")
    with torch.no_grad():
        found = model(input_ids=torch.as_tensor(ids), output_attentions=True).attentions
    return [each.numpy() for each in found]


def logits(model, ids):
    torch = pytest.importorskip("torch")
    with torch.no_grad():
        return model(input_ids=torch.as_tensor(ids)).logits.numpy()


def weights(layer):
    """softmax(scaling q k^T), causal, [sequences heads n n], by brute force."""
    k = layer.k[:, list(layer.kv_rows)].astype(np.float64)
    scores = layer.scaling * layer.q.astype(np.float64) @ k.swapaxes(-1, -2)
    a = np.exp(scores - scores.max(axis=-1, keepdims=True)) * np.tri(layer.n)
    return a / a.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("kind", ["Llama", "Gemma", "Qwen3", "GPT2"])
def test_weights_from_the_file_are_the_models_own(tmp_path, kind):
    model = tiny(kind)
    messages = export(model, IDS, tmp_path / "tensors.npz")
    arrays = np.load(tmp_path / "tensors.npz")
    tensors = scaling.read_tensors(tmp_path / "tensors.npz")
    assert tensors.warnings == ()
    for layer, attention in zip(tensors.layers, eager(model, IDS), strict=True):
        assert layer.heads == (0, 1, 2, 3)
        np.testing.assert_allclose(weights(layer), attention, atol=2e-5)
        v, w_o, update = (arrays[f"L{layer.index}/{name}"] for name in ("v", "W_O", "attention_output"))
        sums = np.einsum("shij,shjr,hdr->sid", attention, v[:, list(layer.kv_rows)], w_o)
        np.testing.assert_allclose(update, sums, atol=2e-4)  # without the bias that GPT-2 adds
    assert bool(messages) == (kind == "GPT2")


@pytest.mark.parametrize("kind", ["Llama", "Gemma", "Qwen3"])
def test_the_stream_is_made_of_what_was_exported(kind):
    """X of the second layer from X of the first one, by the exported weights alone and the model's own MLP."""
    torch, model = pytest.importorskip("torch"), tiny(kind)
    arrays, messages = record(model, IDS)
    assert messages == ()
    first = {name.removeprefix("L0/"): array for name, array in arrays.items()}
    x, z = first["X"].astype(np.float64), first["Z"].astype(np.float64)
    epsilon = model.config.rms_norm_eps
    np.testing.assert_allclose(z, x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + epsilon), rtol=2e-5, atol=1e-6)
    values = np.einsum("snd,krd->sknr", z, first["W_V"]).repeat(2, axis=1)
    a = weights(scaling.read_tensors(arrays).layers[0])
    update = np.einsum("shij,shjr,hdr->sid", a, values, first["W_O"])
    np.testing.assert_allclose(first["attention_output"], update, atol=2e-4)
    block = model.base_model.layers[0]
    with torch.no_grad():
        middle = torch.as_tensor(x + update, dtype=torch.float32)
        after = middle + block.mlp(block.post_attention_layernorm(middle))
    np.testing.assert_allclose(arrays["L1/X"], after.numpy(), atol=2e-3)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", ["Llama", "GPT2"])
def test_the_model_is_left_as_it_was(kind, implementation):
    model = tiny(kind)
    model.set_attn_implementation(implementation)
    torch, interface = _libraries()
    original, plain = interface.get_interface, logits(model, IDS)
    arrays, _ = record(model, IDS)
    with pytest.raises(RuntimeError, match="stop"), ExitStack() as stack:
        stack.callback(model.base_model.register_forward_hook(stop).remove)
        record(model, IDS)
    for module in model.modules():
        assert not module._forward_hooks and not module._forward_pre_hooks
    assert interface.get_interface is original
    assert model.config._attn_implementation == implementation
    np.testing.assert_array_equal(logits(model, IDS), plain)
    # And while it is watched.
    block = (model.base_model.layers if kind == "Llama" else model.base_model.h)[1]
    attention = block.self_attn if kind == "Llama" else block.attn
    watched = []
    stream = _runs(torch, interface, lambda **options: watched.append(model(**options).logits.numpy()),
                   torch.as_tensor(IDS), {1: (attention, block)}, False)  # fmt: skip
    found = [run[1] for run in stream]
    np.testing.assert_array_equal(np.concatenate(watched), np.concatenate([logits(model, each[None]) for each in IDS]))
    np.testing.assert_array_equal(found[1]["q"][0].numpy(), arrays["L1/q"][1])


def stop(*_):
    raise RuntimeError("stop")


def test_safetensors_and_some_layers(tmp_path):
    model = tiny("Llama")
    export(model, IDS, tmp_path / "tensors.safetensors", layers=[1])
    (layer,) = scaling.read_tensors(tmp_path / "tensors.safetensors").layers
    arrays, _ = record(model, IDS[1:])
    assert layer.index == 1
    for name in ("q", "k", "v", "x", "z", "attention_output"):
        stored = arrays[f"L1/{name.upper() if name in 'xz' else name}"]
        np.testing.assert_allclose(getattr(layer, name)[1:], stored, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "settings", "absent", "why"),
    [
        ("GPT2", {}, {"Z", "W_V"}, "LayerNorm"),
        ("Qwen2", {}, {"W_V"}, "a bias"),
        ("Phi3", {}, {"W_V"}, "one matrix for q, k and v"),
        ("Gemma2", {"attn_logit_softcapping": None}, {"W_O", "attention_output"}, "another norm"),
        ("Granite", {"residual_multiplier": 0.5}, {"W_O", "attention_output"}, "a factor"),
        ("Olmo2", {}, {"X", "Z", "W_V", "W_O", "attention_output"}, "no norm stands before"),  # it stands behind
    ],
)
def test_what_does_not_fit_is_left_out_with_the_reason(kind, settings, absent, why):
    arrays, messages = record(tiny(kind, **settings), IDS)
    names = {name.removeprefix("L0/") for name in arrays if name.startswith("L0/")}
    assert names == {"q", "k", "v", "scaling", "X", "Z", "W_V", "W_O", "attention_output"} - absent
    said = " ".join(each for each in messages if each.startswith("Layer 0: "))
    assert why in said and all(f"`{name}`" in said for name in absent)
    assert len(messages) == 2 * said.count("Layer 0: ")


@pytest.mark.parametrize(
    ("kind", "settings", "why"),
    [
        ("Gemma2", {"attn_logit_softcapping": 2.0}, "logits are capped"),
        ("Mistral", {"sliding_window": 4}, "window of 4 tokens is shorter than n = 10"),
        ("Llama", {"is_causal": False}, "not that of causal attention"),
    ],
)
def test_layers_that_attend_otherwise_are_refused(kind, settings, why):
    with pytest.raises(ValueError, match=f"of layers that have not: Layer 0: left out, since .*{why}"):
        record(tiny(kind, **settings), IDS)


def test_a_window_as_long_as_the_sequence_is_none():
    arrays, messages = record(tiny("Mistral", sliding_window=10), IDS)
    assert "L1/W_O" in arrays and messages == ()


@pytest.mark.parametrize(
    ("ids", "layers", "message"),
    [
        (IDS[:, :1], None, r"`token_ids` must be integers of shape \(sequences, n\) with n >= 2"),
        (IDS + 60, None, r"`token_ids` must lie in 0 to 63"),
        (IDS, [2], r"`layers` must be some of \[0, 1\], but was \[2\]"),
        (IDS, [], "`layers` must be some of"),
    ],
)
def test_bad_arguments(ids, layers, message):
    with pytest.raises(ValueError, match=message):
        record(tiny("Llama"), ids, layers=layers)


def test_models_that_are_none_or_train():
    model = tiny("Llama")
    with pytest.raises(ValueError, match="`model` must be a causal language model"):
        record(object(), IDS)
    with pytest.raises(ValueError, match=r"`model` must be in evaluation mode"):
        record(model.train(), IDS)


def test_half_precision():
    model = tiny("Llama").bfloat16()
    arrays, messages = record(model, IDS)
    assert messages == () and arrays["L0/Z"].dtype == np.float32
    rms = np.sqrt(np.mean(arrays["L0/Z"].astype(np.float64) ** 2, axis=-1))
    np.testing.assert_allclose(rms, 1, atol=1e-2)
