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
# # Theorem 5.1 names the direction in which real heads mix their tokens
#
# *Claim.* On four heads of a language model, one of each kind (sink, diagonal, and two dual ones), the traces of Theorem 5.1 of
# "Sink vs. diagonal patterns" give the sign of the change in average cosine similarity that uniform attention makes, and its
# size to 0.01. The labels of section 3 mean something there, since uniform attention over as many tokens would not earn
# them; over three tokens it would.
#
# The last cell asserts it. A few seconds; `SCALING_SMOKE=1` changes nothing.

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
if importlib.util.find_spec("toyblocks") is None:
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", SOURCE], check=True)

# %%
import json
import tempfile
from pathlib import Path

import jax
import numpy as np
from IPython.display import Image, display

import scaling
import toyblocks
from toyblocks.figure.heads import draw_report
from toyblocks.heads import label, uniform_masses

SMOKE = os.environ.get("SCALING_SMOKE") == "1"
device = jax.devices()[0]
print(f"running on {device.platform} ({device.device_kind}), though NumPy does it all{', smoke mode' if SMOKE else ''}")

# %% [markdown]
# ## Four heads of SmolLM2-135M
#
# Queries and keys after rotary embedding, values, residual streams and matrices, over 96 tokens of a text of 1911;
# `toyblocks.export` writes such files from models of transformers. On a terminal: `toyblocks heads FILE`.

# %%
FILE = Path(SOURCE) / "tests" / "data" / "smollm2-heads" / "smollm2_heads.npz"
report = toyblocks.label_heads(scaling.read_tensors(FILE))
files = draw_report(report, Path(tempfile.mkdtemp()))
display(Image(str(files[0])))
print(files[3].read_text())

# %% [markdown]
# ## The claim in numbers
#
# The average cosine similarity of tokens after the update $WZ$ (everyone looks at itself) and after $WZA_u^\top$ (everyone looks
# at everyone before it). Above 0 in $\beta\,\mathrm{tr}(BW)$ the second is larger, whatever the tokens are.

# %%
for head in report.heads:
    print(f"{head.name}, {head.label}: regime {head.regime}, change {head.measured_change:+.4f} measured, "
          f"{head.predicted_rho_x_wzau - head.predicted_rho_x_wz:+.4f} predicted")  # fmt: skip
print(f"uniform attention over 96 tokens: {label(uniform_masses(96))}; over 3 tokens: {label(uniform_masses(3))}")

# %%
expected = json.loads(FILE.with_suffix(".json").read_text())["heads"]  # of an independent program
assert [(head.label, head.regime) for head in report.heads] == [
    (expected[head.name]["label"], expected[head.name]["regime"]) for head in report.heads
]
assert {head.label for head in report.heads} == {"sink", "diagonal", "sink+diagonal", "sink+lower_diagonal"}
assert all(head.agrees for head in report.heads)
for name in ("rho_x_wz", "rho_x_wzau"):
    predicted, measured = ([getattr(head, each) for head in report.heads] for each in (f"predicted_{name}", name))
    np.testing.assert_allclose(predicted, measured, atol=0.01)
assert label(uniform_masses(96)) == "none" != label(uniform_masses(3))
