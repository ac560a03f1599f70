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
# # RoPE changes only the constant of the critical law
#
# *Claim.* With rotary position embedding the ordered attention weights of long rows follow the critical limit of "Scaling Limits
# of Long-Context Transformers" with the intensity $\overline{C}(q)$ averaged over the orbit of the query (Theorem F.3), for a
# frequency that is no fraction of a turn and for one of period 5; the limit with $C(q)$ of the query alone is excluded.
#
# The last cell asserts both, in standard errors. Half a minute on two cores; `SCALING_SMOKE=1` runs a small version.

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
from scaling.figure.rope.caption import scores

SMOKE = os.environ.get("SCALING_SMOKE") == "1"
device = jax.devices()[0]
print(f"running on {device.platform} ({device.device_kind}){', smoke mode' if SMOKE else ''}")

# %% [markdown]
# ## The figure
#
# A query attends to keys with a von Mises-Fisher density on $S^2$, two coordinates of three rotated. Key $i$ sees the query at
# $u_i = R_i^\top q$, which runs around a circle of latitude: in the long run it meets the density's average over the circle, or
# over five points of it, and not the density at $q$.

# %%
out = Path(tempfile.mkdtemp())
files = scaling.figure.draw("rope", out=out, quick=SMOKE)
display(Image(str(files[0])))
print(files[3].read_text())

# %% [markdown]
# ## The claim in numbers

# %%
data = xarray.load_dataset(files[2], engine="scipy")
found = scores(data)
for i, period in enumerate(data.period.values):
    print(f"{f'period {period:.0f}' if period else 'no period'}: C-bar(q) = {float(data.orbit_intensity[i]):.4f}, "
          f"C(q) = {float(data.query_intensity):.4f}")  # fmt: skip
    for k, weight, error, limit, query in zip(
        data["rank"].values, data.weight[i].values, data.weight_se[i].values, data.weight_limit[i].values,
        data.weight_query.values, strict=True,
    ):  # fmt: skip
        print(f"  E A_({k:.0f}) = {weight:.4f} ± {2 * error:.4f}, limit with C-bar(q) {limit:.4f}, with C(q) {query:.4f}")

# %%
# The ranks of one frequency are correlated, so the largest of their distances is at most that of as many independent ones:
# beyond 4.5 standard errors once in 7000 runs.
assert np.all(np.abs(found["orbit"]) < 4.5)
assert np.all(np.abs(found["query"][:, 0]) > 20)
# The average over the first positions is the average over the orbit.
np.testing.assert_allclose(data.orbit_empirical, data.orbit_intensity, rtol=10 / float(data.averaged))
