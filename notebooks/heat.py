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
# # Layers of attention run the heat equation backward, up to the window of their $\beta$
#
# *Claim.* A cloud of tokens on $S^2$ with density proportional to $e^{x_1 x_2}$ that attends to itself for $k$ layers of step
# $\gamma$ sharpens as the backward heat equation does at time $k\gamma/\beta$ ("Scaling Limits of Long-Context Transformers",
# Proposition 4.4): the degree-2 part of its density grows, to within 2% of what infinitely many tokens do at this $\beta$, and
# with rising $\beta$ it comes closer to the limit $e^{6t}$, from below.
#
# The last cell asserts this. Two minutes on two cores; `SCALING_SMOKE=1` runs a small version.

# %%
# Nothing happens here where `scaling` is installed. Elsewhere, as on Colab, SOURCE is what pip installs it from: a checkout of
# this repository, or `git+` and the address of the repository. Spherical harmonics need the extra `heat`.
import importlib.util
import os
import subprocess
import sys

SOURCE = os.environ.get("SCALING_SOURCE", "..")
if importlib.util.find_spec("scaling") is None:
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", f"attention-scaling-limits[heat] @ {SOURCE}"
                    if "://" in SOURCE else f"{SOURCE}[heat]"], check=True)  # fmt: skip

# %%
import tempfile
from pathlib import Path

import jax
import numpy as np
import xarray
from IPython.display import Image, display

import scaling
import scaling.figure
from scaling import heat
from scaling.figure.heat import growth

SMOKE = os.environ.get("SCALING_SMOKE") == "1"
device = jax.devices()[0]
print(f"running on {device.platform} ({device.device_kind}){', smoke mode' if SMOKE else ''}")

# %% [markdown]
# ## Why it needs care
#
# Backward in time a harmonic of degree $l$ grows as $e^{l(l+1)t}$. The norms of the degrees of $e^{x_1 x_2}$ fall as $1/(l/2)!$,
# which is slower: at any $t > 0$ the terms of the solution fall, and then rise without bound. It is cut off where they are
# smallest, and what is left stays positive for a while only.

# %%
density = scaling.Quadratic([[0, 0.5, 0], [0.5, 0, 0], [0, 0, 0]])
whole, cut = heat.spectrum(density), heat.spectrum(density, horizon=0.06)
for degree in range(0, whole.band_limit, 2):
    print(f"degree {degree:2d}: {whole.norms()[degree]:.1e} at the start, {whole.at(-0.06).norms()[degree]:.1e} at time 0.06")
print(f"kept: degrees below {cut.band_limit}; positive until time {heat.positive_until(cut):.3f}")

# %% [markdown]
# ## The figure

# %%
out = Path(tempfile.mkdtemp())
files = scaling.figure.draw("heat", out=out, quick=SMOKE)
display(Image(str(files[0])))
print(files[3].read_text())

# %% [markdown]
# ## The claim
#
# Growth of the degree-2 amplitude, as a factor. The errors are two standard errors over seeds; half a layer's worth of growth
# comes off because layers are steps and not a flow.

# %%
data = xarray.load_dataset(files[2], engine="scipy")
found, layers, time = growth(data), data.sizes["layer"] - 1, float(data.time[-1])
step_bias = 18 * time**2 / layers
for i, beta in enumerate(data.beta.values):
    print(f"beta = {beta:2.0f}: attention {found['attention'][i]:.3f} ± {2 * found['attention_se'][i]:.3f}, "
          f"infinitely many tokens {found['mean_field'][i]:.3f}")  # fmt: skip
print(f"limit flow {found['flow']:.3f} ± {2 * found['flow_se']:.3f}, heat equation {found['heat']:.3f}")

error = 5 * found["attention_se"] + 0.02 + 2 * step_bias
assert np.all(np.abs(found["attention"] - found["mean_field"]) < error)
assert np.all(np.diff(found["mean_field"]) > 0) and found["mean_field"][-1] < found["heat"]
assert np.all(np.diff(found["attention"]) > 0) or SMOKE
assert abs(found["flow"] - found["heat"]) < 5 * found["flow_se"] + 0.02
