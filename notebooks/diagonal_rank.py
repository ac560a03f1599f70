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
# # What telling similar tokens apart costs a diagonal, and not a sink
#
# *Claim.* On the grouped task of "Sink vs. diagonal patterns" (Theorem 7.2, Figure 3 right) the query-key cost of a trained
# diagonal is linear in $r_\mathrm{eff}(\Sigma_D)/\delta^2$ with the slope $2\kappa/\sqrt d$, over three decades; that of a sink
# does not depend on it. The rest of the cost grows with the number of tokens in a group instead.
#
# The last cell asserts both. A few minutes on two cores; `SCALING_SMOKE=1` runs a small version.

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
from toyblocks.figure import cost_vs_rank

SMOKE = os.environ.get("SCALING_SMOKE") == "1"
device = jax.devices()[0]
print(f"running on {device.platform} ({device.device_kind}){', smoke mode' if SMOKE else ''}")

# %% [markdown]
# ## The figure
#
# A copy token collects the mean of its group; the tokens of a group share a direction and differ by noise of length $\delta$. A
# dormant token that attends to itself must tell itself from the others of its group; one that attends to BOS need not.

# %%
out = Path(tempfile.mkdtemp())
files = toyblocks.figure.draw("cost-vs-rank", out=out, quick=SMOKE)
display(Image(str(files[0])))
print(files[3].read_text())

# %% [markdown]
# ## The claim in numbers

# %%
data = xarray.load_dataset(files[2], engine="scipy")
line, expected = cost_vs_rank.diagonal_fit(data), cost_vs_rank.expected_slope(data)
print(f"diagonal: query-key cost = {line.slope:.4f} r_eff/delta^2 + {line.intercept:.2f}; 2 kappa/sqrt(d) = {expected:.4f}")
print(f"sink: query-key cost within {100 * cost_vs_rank.sink_spread(data):.1f}% over the panels")
rest = (data.value_output + data.mlp).mean("seed").values
for i, members in enumerate(data.per_group.values):
    print(f"{members:.0f} tokens per group: values and MLP of the sink {np.round(rest[i, :, cost_vs_rank.SINK], 1)}, "
          f"of the diagonal {np.round(rest[i, :, cost_vs_rank.DIAGONAL], 1)} (by delta)")  # fmt: skip

# %%
over = data.query_key.values / (2 * cost_vs_rank.KAPPA * data.dual.values[..., None]) - 1
assert np.all(data.residual < cost_vs_rank.RESIDUAL)
assert np.all(over > -1e-9)  # below the dual nothing can be
assert abs(line.slope / expected - 1) < 0.02
assert cost_vs_rank.sink_spread(data) < 0.15
