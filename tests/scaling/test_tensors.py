"""Files of a model's tensors: every layout of names gives the same layers, and what is wrong is named."""

import gc
import json
import os
import pickle
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors
from safetensors.numpy import save_file

from scaling import read_tensors
from scaling.tensors import Layer
from scaling.tensors.words import heads_in_words, layers_in_words

SHIPPED = Path(__file__).parent.parent / "data" / "smollm2-heads"
RNG = np.random.default_rng(3)
HEADS, KV_HEADS, N, HEAD_DIM, VALUE_DIM, D = 4, 2, 6, 3, 5, 7


def arrays(*sequences: int) -> dict[str, np.ndarray]:
    def normal(*shape: int) -> np.ndarray:
        return RNG.standard_normal(shape).astype(np.float32)

    return {
        "q": normal(*sequences, HEADS, N, HEAD_DIM), "k": normal(*sequences, KV_HEADS, N, HEAD_DIM),
        "v": normal(*sequences, KV_HEADS, N, VALUE_DIM), "scaling": np.array(0.25),
        "X": normal(*sequences, N, D), "Z": normal(*sequences, N, D), "attention_output": normal(*sequences, N, D),
        "W_O": normal(HEADS, D, VALUE_DIM), "W_V": normal(KV_HEADS, VALUE_DIM, D),
    }  # fmt: skip


def same(a: Layer, b: Layer, *names: str) -> bool:
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in names)


ALL = ("q", "k", "v", "x", "z", "attention_output", "w_o", "w_v", "scaling")


def test_layouts_and_kinds_of_files_agree(tmp_path):
    given = arrays()
    (layer,) = read_tensors(given).layers
    assert (layer.index, layer.heads, layer.kv_rows, layer.n, layer.scaling) == (0, (0, 1, 2, 3), (0, 0, 1, 1), N, 0.25)
    assert layer.q.shape == (1, HEADS, N, HEAD_DIM) and np.array_equal(layer.q[0], given["q"])
    assert np.array_equal(layer.key(1)[0], given["k"][0])
    assert layer.v is not None and np.array_equal(layer.v[0, layer.kv_rows[2]], given["v"][1])

    np.savez_compressed(tmp_path / "a.npz", allow_pickle=True, **given)
    save_file(given, tmp_path / "a.safetensors")
    (tmp_path / "a.safetensors").rename(tmp_path / "a.bin")  # what a file holds counts, not its name
    flat = {**given, "W_O": np.concatenate(list(given["W_O"]), axis=1), "W_V": given["W_V"].reshape(-1, D)}
    by_layer = {f"L7/{name}": array for name, array in arrays(2).items()}
    by_layer |= {f"L3/{name}": array for name, array in given.items()}
    for source in (tmp_path / "a.npz", str(tmp_path / "a.bin"), flat):
        assert same(read_tensors(source).layers[0], layer, *ALL)
    tensors = read_tensors(by_layer)
    assert [each.index for each in tensors.layers] == [3, 7] and tensors.layers[1].q.shape[0] == 2 and not tensors.warnings
    assert same(tensors.layers[0], layer, *ALL)

    singly = {f"L3H{2 * i}/{name}": given[name][i] for i in (1, 0) for name in ("q", "W_O")}
    singly |= {f"L3H{2 * i}/{name}": given[name][i] for i in (1, 0) for name in ("k", "v", "W_V")}
    (heads,) = read_tensors({**singly, "L3/X": given["X"], "L3/Z": given["Z"], "scaling": given["scaling"]}).layers
    assert heads.heads == (0, 2) and heads.kv_rows == (0, 1) and same(heads, layer, "x", "z", "k", "v", "w_v", "scaling")
    assert layer.w_o is not None and heads.w_o is not None and np.array_equal(heads.w_o, layer.w_o[:2])
    assert np.array_equal(heads.q, layer.q[:, :2]) and heads.attention_output is None


def test_types_and_default_scaling(tmp_path):
    given = {name: array.astype(ml_dtypes.bfloat16) for name, array in arrays().items()}
    save_file(given, tmp_path / "a.safetensors")
    (layer,) = read_tensors(tmp_path / "a.safetensors").layers
    assert layer.q.dtype == np.float32 and np.array_equal(layer.q[0], given["q"].astype(np.float32))
    tensors = read_tensors({"L4/q": np.ones((1, 2, 9), np.float16), "L4/k": np.ones((1, 2, 9)), "L5/q": np.ones((1, 2, 9), int),
                            "L5/k": np.ones((1, 2, 9)), "other": np.array("text")})  # fmt: skip
    assert tensors.layers[0].scaling == pytest.approx(1 / 3) and tensors.layers[1].q.dtype == np.float64
    assert tensors.warnings == ("`scaling` is absent from layers 4-5: 1/sqrt(head_dim) is assumed",)
    given = {name: array.astype(np.float32) for name, array in given.items()}  # what the caller says goes before the file
    told = read_tensors(given, scaling=3)
    assert [layer.scaling for layer in told.layers] == [3.0] == [told.layers[0].scaling] and not told.warnings
    assert not read_tensors({"q": np.ones((1, 2, 9)), "k": np.ones((1, 2, 9))}, scaling=3).warnings
    with pytest.raises(ValueError, match="Argument `scaling` must be finite and > 0, but was 0"):
        read_tensors(given, scaling=0)


def test_shipped_heads_are_what_they_say():
    """v = Z W_V^T, and one head's key rows belong to it: the names of the file mean what the reader takes them to mean."""
    expected = json.loads((SHIPPED / "smollm2_heads.json").read_text())
    tensors = read_tensors(SHIPPED / "smollm2_heads.npz")
    assert [(layer.index, layer.heads) for layer in tensors.layers] == [(11, (6,)), (16, (0, 1)), (18, (8,))]
    for layer in tensors.layers:
        assert layer.n == expected["n"] and layer.scaling == expected["scaling"] and layer.z is not None and layer.w_v is not None
        for head in range(len(layer.heads)):
            want = layer.z[0] @ layer.w_v[head].T
            value = layer.value(head)
            assert value is not None and np.abs(value[0] - want).max() <= 1e-4 * np.abs(want).max()


def put(array: np.ndarray, place: tuple[int, ...], value: float) -> None:
    array[place] = value


BAD = {
    "nan": (
        lambda a: put(a["q"], (2, 4, 1), np.nan),
        r"Argument `q of layer 0` must be finite, but was of nan at head 2, position 4\.",
    ),
    "inf in k": (
        lambda a: put(a["k"], (1, 3, 0), -np.inf),
        r"`k of layer 0` must be finite, .* -inf at key head 1, of head 2, 3, position 3\.",
    ),
    "huge": (
        lambda a: put(a["v"], (1, 3, 0), 1e20),
        r"`v of layer 0` must have entries of at most 1e\+15 in size",
    ),
    "nan in X": (
        lambda a: put(a["X"], (5, 0), np.nan),
        r"`X of layer 0` must be finite, but was of nan at position 5\.",
    ),
    "nan in W_O": (
        lambda a: put(a["W_O"], (3, 0, 0), np.nan),
        r"`W_O of layer 0` must be finite, but was of nan at head 3\.",
    ),
    "nan in W_V": (
        lambda a: put(a["W_V"], (0, 0, 0), np.nan),
        r"`W_V of layer 0` must be finite, .* key head 0, of head 0, 1\.",
    ),
    "heads": (
        lambda a: a.update(k=np.ones((3, N, HEAD_DIM))),
        r"`k of layer 0` must have a number of heads that divides 4, but was of shape \(3, 6, 3\)",
    ),
    "width": (
        lambda a: a.update(k=np.ones((2, N, 4))),
        r"`k of layer 0` must have shape \(1, any, 6, 3\), but was of shape \(1, 2, 6, 4\)",
    ),
    "length": (
        lambda a: a.update(v=np.ones((2, N + 1, 4))),
        r"`v of layer 0` must have shape \(1, 2, 6, any\)",
    ),
    "X": (
        lambda a: a.update(X=np.ones((N, D + 1))),
        r"`Z of layer 0` must have shape \(1, 6, 8\), but was of shape \(1, 6, 7\)",
    ),
    "W_O": (
        lambda a: a.update(W_O=np.ones((HEADS, D, 2))),
        r"`W_O of layer 0` must have shape \(4, 7, 5\)",
    ),
    "flat W_O": (
        lambda a: a.update(W_O=np.ones((D, 7))),
        r"`W_O of layer 0` must have 4 heads along axis 1, but was of shape \(7, 7\)",
    ),
    "one position": (
        lambda a: a.update(q=np.ones((4, 1, 3)), k=np.ones((2, 1, 3))),
        "`q of layer 0` must have at least 2 positions",
    ),
    "axes": (
        lambda a: a.update(q=np.ones((N, 3))),
        r"`q of layer 0` must have shape \(\[sequences,\] heads, n, head_dim\)",
    ),
    "no coordinates": (
        lambda a: (a.update(q=np.ones((4, N, 0)), k=np.ones((2, N, 0))), a.pop("scaling")),
        "`q of layer 0` must not be empty",
    ),
    "empty": (
        lambda a: a.update(q=np.ones((4, N, 0))),
        "`q of layer 0` must not be empty",
    ),
    "scaling": (
        lambda a: a.update(scaling=np.array(0.0)),
        "`scaling of layer 0` must be finite and > 0",
    ),
    "scalings": (
        lambda a: a.update(scaling=np.ones(2)),
        "`scaling` must be one number for layer 0",
    ),
    "strings": (
        lambda a: a.update(q=np.array([["a"]])),
        "`q` must be real numbers, but was of type str",
    ),
    "complex": (
        lambda a: a.update(k=a["k"] * 1j),
        "`k` must be real numbers, but was of type complex64",
    ),
    "objects": (
        lambda a: a.update(v=np.array([{}])),
        r"array `v` of '.*' is pickled, which can run code",
    ),
    "no q": (
        lambda a: a.pop("q"),
        "`file` must hold `q` and `k` of layer 0, but was of a file without `q`",
    ),
    "nothing": (
        lambda a: a.clear(),
        "`file` must hold `q` and `k`, `L0/q` or `L0H0/q`, but was of no names",
    ),
    "two W_V": (
        lambda a: a.update(W_Vg=a["W_V"]),
        "must hold one `W_V` for each place",
    ),
    "X of a head": (
        lambda a: (a.clear(), a.update({f"L3H0/{name}": np.ones((N, 2)) for name in ("q", "k", "X")})),
        "must hold `X` once for layer 3, as `L3/X`, but was of L3H0/X, of one head",
    ),
    "large numbers": (
        lambda a: a.update({f"L{10**6}/q": a["q"]}),
        "must number layers and heads with at most 6 digits, but was of L1000000/q",
    ),
    "unreadable names": (
        lambda a: (a.clear(), a.update({"a\nb": np.ones(2), "\x1b[31mred": np.ones(2)})),
        r"but was of a\\nb, \\x1b\[31mred\.$",
    ),
    "two layouts": (
        lambda a: a.update({"L0H0/q": a["q"][0],
        "L0H0/k": a["k"][0]}), "hold heads of layer 0 together or singly",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_arrays_are_named(case, tmp_path):
    given = arrays()
    spoil, message = BAD[case]
    spoil(given)
    np.savez(tmp_path / "a.npz", allow_pickle=True, **given)
    with pytest.raises(ValueError, match=message):
        for layer in read_tensors(tmp_path / "a.npz").layers:
            layer.key(0)


def test_heads_that_differ_are_named():
    given = arrays()
    singly = {"L1H0/q": given["q"][0], "L1H0/k": given["k"][0], "L1H2/q": given["q"][0], "L1H2/k": given["k"][0]}
    with pytest.raises(ValueError, match="must hold the same for every head of layer 1, but was of v in one of heads 0 and 2"):
        read_tensors({**singly, "L1H2/v": given["v"][0]})
    with pytest.raises(ValueError, match="`q` must have one shape in all heads of layer 1"):
        read_tensors({**singly, "L1H2/q": given["q"][0, :4]}).layers[0]
    with pytest.raises(ValueError, match="`scaling` must be one number for layer 1, but was of 1.0, 2.0"):
        read_tensors({**singly, "L1H0/scaling": np.array(1.0), "L1H2/scaling": np.array(2.0)}).layers[0]


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "a.npz"
    for content in (b"", b"hello, this is text", b"\x80\x04\x95\x05", b"\x02\0\0\0\0\0\0\0{]", np.arange(9).tobytes()):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"Argument `file` must .*a\.npz"):
            read_tensors(path)
    with pytest.raises(ValueError, match=r"must be an \.npz or \.safetensors file, but '.*' is a directory"):
        read_tensors(tmp_path)
    path.write_bytes(b"\x02\0\0\0\0\0\0\0{}")  # safetensors without any
    with pytest.raises(ValueError, match="Argument `file` must hold `q` and `k`, .* but was of no names"):
        read_tensors(path)
    with pytest.raises(FileNotFoundError):
        read_tensors(tmp_path / "missing.npz")
    np.savez(path, allow_pickle=True, **arrays())
    whole = path.read_bytes()
    for cut in (10, len(whole) // 2, len(whole) - 30):
        path.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match="Argument `file` must"):
            read_tensors(path).layers[0]
    spoilt = bytearray(whole)
    spoilt[len(whole) // 3] ^= 0xFF
    path.write_bytes(bytes(spoilt))
    with pytest.raises(ValueError, match=r"Argument `file` must be a whole file, but array `.*` of '.*' cannot be read"):
        for _ in read_tensors(path).layers:
            pass
    with zipfile.ZipFile(path, "w") as members:
        members.writestr("q.npy", b"not an array")
        members.writestr("k.npy", b"not an array")
    with pytest.raises(ValueError, match="Argument `file` must"):
        read_tensors(path).layers[0]


def test_broken_headers_are_one_line(tmp_path):
    """Of arrays so large that NumPy reads the header before the checksum of the member is known."""
    path = tmp_path / "a.npz"
    np.savez(path, q=np.ones((2, 90, 90)), k=np.ones((2, 90, 90)))
    whole = path.read_bytes()
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (2, 90, 90), }"
    assert whole.count(header) == 2
    message = "Argument `file` must be a whole file, but array `.` of .* cannot be read"
    for place, spoilt in (0, b"["), (8, b" "), (10, b"("), (15, b"'"), (35, b"\0"), (50, b"["), (51, b"'"), (53, b"("):
        bad = header[:place] + spoilt + header[place + 1 :]
        path.write_bytes(whole.replace(header, bad))
        with pytest.raises(ValueError, match=message) as caught:
            read_tensors(path).layers[0]
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["array", "fields", "npy", "file"])
def test_pickles_are_refused_under_any_name(tmp_path, kind):
    """At once, though nobody asks for them, and without running them."""
    path, given = tmp_path / "a.npz", arrays()
    bad = np.array([_Runs()]) if kind == "array" else np.zeros(2, [("number", float), ("anything", object)])
    np.savez_compressed(path, allow_pickle=True, **given, **({"other": bad} if kind in ("array", "fields") else {}))
    if kind in ("npy", "file"):
        with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as members:
            members.writestr("other.npy" if kind == "npy" else "other", pickle.dumps(_Runs()))
    what = "member" if kind == "file" else "array"
    with pytest.raises(ValueError, match=f"must hold arrays of numbers, but {what} `other` of '.*' is pickled, which can"):
        read_tensors(path)
    np.savez(path, allow_pickle=True, **given, other=np.array(["text"]))
    with zipfile.ZipFile(path, "a") as members:
        members.writestr("readme.txt", "text")
        for version in ((2, 0), (3, 0)):
            with members.open(f"{version}.npy", "w") as member:
                np.lib.format.write_array(member, np.zeros(2, [("a" if version == (2, 0) else "β", float)]), version)
    assert len(read_tensors(path).layers) == 1


class _Runs:
    """Fails where it is unpickled."""

    def __reduce__(self):
        return pytest.fail, ("a pickle was run",)


def test_what_decides_the_kind_of_a_file(tmp_path):
    given, path = arrays(), tmp_path / "a"
    (layer,) = read_tensors(given).layers
    given["X"][-1, -1] = np.frombuffer(b"PK\5\6", np.float32)[0]  # as the end of a zip file has it
    save_file(given, path)
    assert zipfile.is_zipfile(path) and np.array_equal(read_tensors(path).layers[0].k, layer.k)
    np.savez(tmp_path / "a.npz", allow_pickle=True, **given)
    path.write_bytes(b"#!/bin/sh\n" + (tmp_path / "a.npz").read_bytes())  # archives that unpack themselves
    assert np.array_equal(read_tensors(path).layers[0].k, layer.k)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    with pytest.raises(ValueError, match=r"must be an \.npz or \.safetensors file, but '.*link' is not a regular file"):
        read_tensors(tmp_path / "link")


def test_reasons_are_true(tmp_path):
    path = tmp_path / "a"
    save_file({name: np.ones((1, 2, 3)).astype(ml_dtypes.float8_e4m3fn) for name in "qk"}, path)
    message = "must hold real numbers of 16 bits or more, but array `k` of .* is of type F8_E4M3"
    with pytest.raises(ValueError, match=message):
        read_tensors(path).layers[0]
    with zipfile.ZipFile(path, "w") as members:
        members.writestr("q.npy", b"\x93NUMPY\2\0" + (20000).to_bytes(4, "little") + b" " * 20000)
        members.writestr("k.npy", b"")
    with pytest.raises(ValueError, match=r"must be a whole file, but array `q` of .* cannot be read \(Header info length"):
        read_tensors(path).layers[0]


def test_a_file_is_opened_once_and_closed(tmp_path, monkeypatch):
    given = {f"L{layer}H{head}/{name}": np.full((2, 1), layer) for layer in range(9) for head in range(3) for name in "qk"}
    np.savez(tmp_path / "a.npz", allow_pickle=True, **given)
    save_file(given, tmp_path / "a.safetensors")
    opened, zip_file, safe_open = [], zipfile.ZipFile, safetensors.safe_open
    monkeypatch.setattr(zipfile, "ZipFile", lambda *a: opened.append(zip_file(*a)) or opened[-1])
    monkeypatch.setattr(safetensors, "safe_open", lambda *a: opened.append(safe_open(*a)) or opened[-1])
    for name in ("a.npz", "a.safetensors"):
        opened.clear()
        tensors = read_tensors(tmp_path / name)
        assert [int(layer.q[0, 2, 1, 0]) for layer in tensors.layers] == list(range(9)) and len(opened) == 1
    assert opened.clear() is None and len(read_tensors(tmp_path / "a.npz").layers) == 9
    gc.collect()
    assert len(opened) == 1 and opened[0].fp is None


def test_layers_and_heads_in_words():
    assert layers_in_words([3]) == "layer 3" and layers_in_words([13, *range(12)]) == "layers 0-11, 13"
    assert layers_in_words([*range(0, 16, 2), 20, 21, 30]) == "layers 0, 2, 4, 6, 8, 10, 12, 14 and 3 more"
    assert heads_in_words([(3, 5), (3, 1), (3, 0), (2, 7), (3, 2), (4, 6)]) == "L2H7, L3H0-2, L3H5, L4H6"
    many = [(layer, head) for layer in range(4) for head in (0, 2, 3)]
    assert heads_in_words([*many, (4, 1), (4, 2)]) == "L0H0, L0H2-3, L1H0, L1H2-3, L2H0, L2H2-3, L3H0, L3H2-3 and 2 more"


def test_threads_share_a_file(tmp_path):
    given = {f"L{i}/{name}": np.full((2, 64, 32), 10 * i + j, np.float32) for i in range(8) for j, name in enumerate("qk")}
    save_file(given, tmp_path / "a.safetensors")
    layers = read_tensors(tmp_path / "a.safetensors").layers

    def right(i: int) -> bool:
        return bool(np.all(layers[i % 8].q == 10 * (i % 8)) and np.all(layers[i % 8].k == 10 * (i % 8) + 1))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(right, range(800)))


def test_damaged_end_of_a_zip_names_the_file(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, allow_pickle=True, **arrays())
    whole = bytearray(path.read_bytes())
    whole[-6:-2] = b"\xff\xff\xff\x7f"  # where the list of members begins
    path.write_bytes(bytes(whole))
    with pytest.raises(ValueError, match=r"Argument `file` must be a whole file, but .*'.*a\.npz' cannot be read"):
        read_tensors(path)


def test_scaling_of_a_layer_goes_before_that_of_all():
    one = np.ones((1, 2, 9))
    layers = {f"L{i}/{name}": one for i in (0, 1) for name in "qk"}
    found = read_tensors({**layers, "L1/scaling": np.array(2.0), "scaling": np.array(1.0)})
    assert [layer.scaling for layer in found.layers] == [1.0, 2.0]


def test_long_doubles_stay_doubles():
    wide = np.ones((1, 2, 9), np.longdouble)
    assert read_tensors({"q": wide, "k": wide}).layers[0].q.dtype == np.float64


@pytest.mark.parametrize("name, what", [("q", "head 5"), ("k", "key head 1, of head 5")])


def test_places_are_those_of_the_model(name, what):
    given = {f"L1H{head}/{kind}": np.ones((2, 3, 4)) for head in (3, 5) for kind in "qk"}
    given[f"L1H5/{name}"][1, 2, 0] = np.nan
    with pytest.raises(ValueError, match=f"`{name} of layer 1` must be finite, but was of nan at {what}, position 2, sequence 1"):
        read_tensors(given).layers[0]


def test_largest_scaling():
    one = np.ones((1, 2, 9))
    assert read_tensors({"q": one, "k": one}, scaling=1e6).layers[0].scaling == 1e6
