# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The nearest keys of a head tell what a longer context does, and where they cannot, this is known
#
# *Claim.* On uniform keys in $d = 64$ the 32 nearest keys of each query give the exponent $(d-1)/2$ of "Scaling Limits of
# Long-Context Transformers", where Hill's estimate gives half of it, and from 128 keys they predict the top weight over 2048 to
# 0.03, where taking it to stay as it is errs by more than 0.1. On four heads of a language model over 96 tokens the same model
# misses the present top weight by more than 0.05, and withholds its predictions.
#
# The last cell asserts it. Ten seconds; `SCALING_SMOKE=1` runs fewer heads.

# %%
# SOURCE is a checkout of this repository, which has the heads, or `git+` and the address of the repository, as on Colab.
import importlib.util
import os
import subprocess
import sys

SOURCE = os.environ.get("SCALING_SOURCE", "..")
if SOURCE.startswith("git+"):
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", SOURCE.removeprefix("git+"), "checkout"], check=True)
    SOURCE = "checkout"
if importlib.util.find_spec("scaling") is None:
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", SOURCE], check=True)

# %%
import tempfile
from pathlib import Path

import jax
import numpy as np
from IPython.display import Image, display

import scaling
from scaling.figure.temperature import draw_report

SMOKE = os.environ.get("SCALING_SMOKE") == "1"
device = jax.devices()[0]
print(f"running on {device.platform} ({device.device_kind}), though NumPy does it all{', smoke mode' if SMOKE else ''}")

# %% [markdown]
# ## Heads with uniform keys
#
# At the inverse temperature that gives the nearest of 2048 keys half of the weight. From the first 128 keys, 16 times the context
# is predicted; all 2048 show what comes.

# %%
D, N, HEADS = 64, 2048, 8 if SMOKE else 32
rng = np.random.default_rng(0)
q, k = (each / np.linalg.norm(each, axis=-1, keepdims=True) for each in rng.standard_normal((2, HEADS, N, D)))
beta = scaling.critical_beta(D, N, 0.5)
short, long = (
    scaling.head_temperatures(scaling.read_tensors({"q": q[:, :n], "k": k[:, :n]}, scaling=beta)) for n in (N // 16, N)
)
told = [head for head in short.heads if head.predictions is not None]
predicted = {name: np.mean([head.predictions[name][-1].top_weight for head in told]) for name in told[0].predictions}
measured, before = (float(np.mean([head.top_weight for head in report.heads])) for report in (long, short))
print(f"exponent {np.mean([head.exponent for head in long.heads]):.1f}, Hill {np.mean([head.hill for head in long.heads]):.1f}, "
      f"truth {(D - 1) / 2}")  # fmt: skip
print(f"top weight over {N // 16} keys {before:.3f}; over {N}: predicted {predicted['constant']:.3f}, measured {measured:.3f}")
print("with beta growing:", ", ".join(f"{name} {value:.3f}" for name, value in predicted.items() if name != "constant"))

# %%
out = Path(tempfile.mkdtemp())
display(Image(str(draw_report(short, out / "uniform.png")[0])))

# %% [markdown]
# ## Four heads of SmolLM2-135M
#
# Queries and keys over 96 tokens; on a terminal: `scaling temperature FILE`. Their queries lie off what the keys cover, and 96
# keys are few: the fitted law does not even give what is measured now.

# %%
FILE = Path(SOURCE) / "tests" / "data" / "smollm2-heads" / "smollm2_heads.npz"
real = scaling.head_temperatures(scaling.read_tensors(FILE))
files = draw_report(real, out)
display(Image(str(files[0])))
print(files[3].read_text())
for head in real.heads:
    print(f"{head.name}: exponent {head.exponent:.3g} ({head.exponent_low:.3g} to {head.exponent_high:.3g}), "
          f"{head.withheld}")  # fmt: skip
print(*real.warnings, sep="\n")

# %%
inside = [head.exponent_low <= (D - 1) / 2 <= head.exponent_high for head in long.heads]
assert np.mean(inside) >= 0.75  # 95% intervals, of few heads
assert np.mean([head.hill for head in long.heads]) < 20
assert abs(predicted["constant"] - measured) < 0.03
assert abs(before - measured) > 0.1
assert all(head.predictions is None for head in real.heads)
assert all(abs(head.self_check["top_weight"].predicted - head.top_weight) > 0.05 for head in real.heads)
