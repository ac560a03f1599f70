"""Theorem 5.1 of heads where rounding decides: updates that cancel, tokens that are equal, sizes at the ends of float32."""

import numpy as np
import pytest

from tests.toyblocks.test_heads import model, report, uniform_attention
from toyblocks.oversmoothing import assess, rho, rho_after


@pytest.mark.parametrize("left", [0.3, 1e-2, 1e-3, 1e-4])
def test_updates_that_nearly_cancel_the_stream(left):
    rng, n, d = np.random.default_rng(2), 30, 16
    x = (rng.standard_normal((n, d)) + 1).astype(np.float32)
    z = (x / 2.5).astype(np.float32)
    w = (-2.5 * (1 - left) * np.eye(d) + left * rng.standard_normal((d, d))).astype(np.float32)
    q = np.zeros((1, n, 3), np.float32)
    (head,) = report({"q": q, "k": q, "v": z[None], "X": x, "Z": z, "W_O": w[None], "scaling": np.array(1.0)}).heads
    each = assess(x, z, z, w, mixing=np.array([0.0, 1.0]))
    assert (head.rho_x_wz, head.rho_x_wzau) == pytest.approx(tuple(each.measured), abs=1e-6)
    assert (head.predicted_rho_x_wz, head.predicted_rho_x_wzau) == pytest.approx(tuple(each.predicted), abs=1e-6)
    steps = [getattr(head, f"rho_x_{name}") for name in ("wz", "wza", "wzau")]
    assert [head.change_with_attention, head.change_to_uniform] == pytest.approx(np.diff(steps), abs=1e-15)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tokens_without_differences_have_no_regime(dtype):
    rng, n, d, heads = np.random.default_rng(4), 12, 8, 25
    x = np.tile(rng.standard_normal(d), (n, 1))
    w_v, w_o = rng.standard_normal((heads, 4, d)), rng.standard_normal((heads, d, 4))
    zeros = np.zeros((heads, n, 3))
    v = x @ np.moveaxis(w_v, 1, 2) * (1 + np.finfo(dtype).eps * rng.integers(-2, 3, (heads, n, 1)))
    made = {"q": zeros, "k": zeros, "v": v, "X": 3 * x, "Z": x, "W_O": w_o}
    found = report({name: array.astype(dtype) for name, array in made.items()} | {"scaling": np.array(1.0)})
    assert {head.regime for head in found.heads} == {"constant"}
    for head in found.heads:
        assert all(0.999999 < getattr(head, f"rho_x{name}") <= 1 for name in ("", "_wz", "_wza", "_wzau"))
    wide = report({**made, "Z": x + 1e-4 * rng.standard_normal(x.shape), "W_V": w_v, "scaling": np.array(1.0),
                   "v": v + 1e-4 * rng.standard_normal(v.shape)})  # fmt: skip
    assert "constant" not in {head.regime for head in wide.heads}


@pytest.mark.parametrize(
    "sizes", [{"Z": 1e-22}, {"Z": 1e-25, "X": 1e-25}, {"X": 1e-40}, {"W_O": 1e14, "v": 1e14}, {"W_O": 1e-38, "Z": 1e-12}]
)
def test_sizes_do_not_leave_float32(sizes):
    made = {name: (array * sizes.get(name, 1)).astype(np.float32) for name, array in model(np.float64, 1, 12).items()}
    del made["W_V"], made["attention_output"]
    made["scaling"] = np.array(0.5)
    found = report(made)
    wide = {name: array.astype(np.float64) for name, array in made.items()}
    z = wide["Z"][0]
    unit = z / np.linalg.norm(z, axis=1, keepdims=True)
    layer = found.layers[0]
    assert (layer.bos_cosine_smallest, layer.bos_cosine_largest) == pytest.approx(
        ((unit[1:] @ unit[0]).min(), (unit[1:] @ unit[0]).max()), abs=1e-9
    )
    assert layer.rho_x == pytest.approx(np.mean(rho(wide["X"][:, 1:])), abs=1e-6)
    for place, head in enumerate(found.heads):
        each = assess(wide["X"], wide["Z"], wide["v"][:, place // 2], wide["W_O"][place], mixing=np.array([0.0, 1.0]))
        assert head.regime == each.regime.name and head.beta_tr_bw == pytest.approx(each.traces.beta * each.traces.bw, rel=1e-4)
        assert (head.rho_x_wz, head.rho_x_wzau) == pytest.approx(tuple(each.measured), abs=1e-6)
        assert (head.predicted_rho_x_wz, head.predicted_rho_x_wzau) == pytest.approx(tuple(each.predicted), abs=1e-5)


def test_rescaled_similarities():
    made = model(np.float64, 2, 12)
    got = report(made)
    scale = got.layers[0].rescaling
    assert scale is not None
    for place, head in enumerate(got.heads):
        v = made["v"][:, place // 2]
        for name, mixed in (("wz", v), ("wzau", np.insert(uniform_attention(11) @ v[:, 1:], 0, 0, axis=1))):
            (want,) = rho_after(made["X"], [mixed], made["W_O"][place], scale=scale)
            assert getattr(head, f"rescaled_rho_x_{name}") == pytest.approx(want)
