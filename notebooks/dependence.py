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
# # Short-range dependence does not matter, repeated keys do
#
# *Claim.* The ordered attention weights of long rows of moving averages follow the same critical limit as those of independent
# keys (Theorem F.3 of "Scaling Limits of Long-Context Transformers"). Where keys are repeated a cluster-Poisson law takes its
# place (Remark F.2), with an extremal index of 1 over the mean number of copies. RoPE dissolves the clusters: copies at different
# positions meet different targets, and the limit is that of independent keys again.
#
# The last cells assert this, in standard errors. A minute on two cores; `SCALING_SMOKE=1` runs a small version.

# %%
# Nothing happens here where `scaling` is installed. Elsewhere, as on Colab, SOURCE is what pip installs it from: a checkout of
# this repository, or `git+` and the address of the repository.
import importlib.util
import os
import subprocess
import sys

SOURCE = os.environ.get("SCALING_SOURCE", "..")
if importlib.util.find_spec("scaling") is None:
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", SOURCE], check=True)

# %%
import tempfile
from pathlib import Path

import jax
import numpy as np
import xarray
from IPython.display import Image, display

import scaling.figure
from scaling.figure.dependence.cases import CASES, scores

SMOKE = os.environ.get("SCALING_SMOKE") == "1"
device = jax.devices()[0]
print(f"running on {device.platform} ({device.device_kind}){', smoke mode' if SMOKE else ''}")

# %% [markdown]
# ## The figure

# %%
out = Path(tempfile.mkdtemp())
files = scaling.figure.draw("dependence", out=out, quick=SMOKE)
display(Image(str(files[0])))
print(files[3].read_text())

# %% [markdown]
# ## The nearest key
#
# Where keys come in clusters of copies there are fewer different ones, and the nearest is farther away: $n F(T_{(1)})$ has the
# mean $1/\theta$, not 1. A moving average has the extremal index $\theta = 1$, which short rows do not reach yet: how far they
# are from it is known from the chance that a key is near given that the $m$ before it are not (`index_finite`).

# %%
data = xarray.load_dataset(files[2], engine="scipy")
last = data.isel(n=-1, n_fine=-1)
for i, (name, case) in enumerate(CASES.items()):
    expected = float(last.index_finite[i]) if name.startswith("average") else case.size.extremal_index
    measured, error = float(last["index"][i]), float(last.index_se[i])
    print(f"{name:12} extremal index {measured:.3f} ± {2 * error:.3f} at n = {float(last.n):.0f}, theory {expected:.3f}")
    # 2% for what is left of order m / n, and for the sampled theory.
    assert abs(measured - expected) < 4.5 * error + 0.02, name

# %% [markdown]
# ## The ordered weights

# %%
found = scores(data)
for i, name in enumerate(CASES):
    print(f"{name:12} E A_(1) = {float(data.weight[i, 0]):.4f} ± {2 * float(data.weight_se[i, 0]):.4f}, own limit "
          f"{float(data.weight_limit[i, 0]):.4f}, farthest rank {np.abs(found['own'][i]).max():.1f} standard errors from it, "
          f"{np.abs(found['independent'][i]).max():.1f} from the limit of independent keys")  # fmt: skip

# %%
# Moving averages with m = 10 are still on their way at these n. The ranks are correlated: one of the 7 contexts is beyond 4.5
# standard errors at some rank once in 2500 runs at most.
names = list(CASES)
for name in ("independent", "average-1", "average-3", "pairs-rope", "pairs", "geometric", "triples"):
    assert np.abs(found["own"][names.index(name)]).max() < 4.5, name
for name in ("pairs", "geometric", "triples"):
    assert np.abs(found["independent"][names.index(name)]).max() > 6, name
