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
# # A sink costs in proportion to the context, a diagonal to its power 3/2
#
# *Claim.* On the backcopy task of "Sink vs. diagonal patterns" (Theorem 7.1, Figure 3 left) gradient descent with weight decay
# finds attention weights within 2% of the least cost that there is, a convex program certified from both sides; the total cost of
# the block grows as the context length $T$ to a power near 1 with a sink, and near 3/2 with a diagonal pattern.
#
# The last cell asserts it. A few minutes on two cores; `SCALING_SMOKE=1` runs a small version.

# %%
# Nothing happens here where `toyblocks` is installed. Elsewhere, as on Colab, SOURCE is what pip installs it from: a checkout of
# this repository, or `git+` and the address of the repository.
import importlib.util
import os
import subprocess
import sys

SOURCE = os.environ.get("SCALING_SOURCE", "..")
if importlib.util.find_spec("toyblocks") is None:
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", f"{SOURCE}[exact]"], check=True)

# %%
import tempfile
from pathlib import Path

import jax
import numpy as np
import xarray
from IPython.display import Image, display

import toyblocks.figure
from toyblocks.figure import cost_vs_context
from toyblocks.task import PATTERNS

SMOKE = os.environ.get("SCALING_SMOKE") == "1"
device = jax.devices()[0]
print(f"running on {device.platform} ({device.device_kind}){', smoke mode' if SMOKE else ''}")

# %% [markdown]
# ## The figure
#
# A copy token fetches the token before it; a dormant token switches attention off, by attending to BOS (sink) or to itself
# (diagonal). The block is trained for both, and its cost is the squared Frobenius norm of its weights.

# %%
out = Path(tempfile.mkdtemp())
files = toyblocks.figure.draw("cost-vs-context", out=out, quick=SMOKE)
display(Image(str(files[0])))
print(files[3].read_text())

# %% [markdown]
# ## The claim in numbers

# %%
data = xarray.load_dataset(files[2], engine="scipy")
over, slopes = cost_vs_context.excess(data), cost_vs_context.slopes(data)
for j, pattern in enumerate(PATTERNS):
    print(f"{pattern}: total cost ~ T^{slopes[pattern]['total'].slope:.3f}")
    for i, length in enumerate(data.context_length.values):
        least, dual = (2 * cost_vs_context.KAPPA * float(each[i, j]) for each in (data.primal, data.dual))
        trained = data.query_key[i, j].values
        print(f"  T = {length:.0f}: query-key cost {trained.min():.1f} to {trained.max():.1f} by seed, "
              f"least {dual:.1f} to {least:.1f}")  # fmt: skip

# %%
assert np.all(data.solved == 1)
assert np.all(over > -1e-9)  # below the dual nothing can be
assert np.all(over < 0.02)
if not SMOKE:  # which has two short contexts
    assert 0.93 < slopes["sink"]["total"].slope < 1.03
    assert 1.45 < slopes["diagonal"]["total"].slope < 1.55
