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
# # The drift of attention on a sphere follows the exact mean field, not yet its limit
#
# *Claim.* In the drift column of Figure 2 of "Scaling Limits of Long-Context Transformers" ($n = 10^4$ keys on $S^2$ with density
# proportional to $e^{x_1 x_2}$, $\beta = n^{1/4} = 10$) the attention output of every context follows the exact drift at this
# $\beta$ with a correlation of at least 0.9, and it has its size. The limit $\nabla \log \rho$ of Theorem 4.3 has the same shape,
# but the output reaches only about three quarters of it.
#
# The last cell asserts this. A minute on two cores; `SCALING_SMOKE=1` runs a small version.

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
import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Image, display

import scaling.figure
from scaling.exact.mean_field import mean_field
from scaling.field import output_field

SMOKE = os.environ.get("SCALING_SMOKE") == "1"
device = jax.devices()[0]
print(f"running on {device.platform} ({device.device_kind}){', smoke mode' if SMOKE else ''}")

# %% [markdown]
# ## The figure
#
# Five regimes of $\beta$, each in its own scaling, and the limit; below, with the exact drift and the noise.

# %%
out = Path(tempfile.mkdtemp())
files = scaling.figure.draw("output-field", out=out, quick=SMOKE)
for file in files:
    if file.suffix == ".png":
        display(Image(file))

# %% [markdown]
# ## The drift in numbers
#
# Other contexts than that of the figure, each one serving all queries. These are spread evenly over the sphere (a Fibonacci
# lattice), so that averages over them are averages by area. Values at different queries are dependent, contexts are not:
# uncertainties come from the contexts.

# %%
n, seeds = 10_000, range(1, 7 if SMOKE else 21)
count = 300 if SMOKE else 2_000
beta = n**0.25
density = scaling.Quadratic([[0, 0.5, 0], [0.5, 0, 0], [0, 0, 0]])

i = np.arange(count) + 0.5
height, turn = 1 - 2 * i / count, np.pi * (1 + 5**0.5) * i
across = np.sqrt(1 - height**2)
queries = np.stack([across * np.cos(turn), across * np.sin(turn), height], axis=1)


def tangent(vectors):
    """P_q of a vector at each query."""
    return vectors - np.sum(vectors * queries, axis=-1, keepdims=True) * queries


contexts = [density.sample(jax.random.key(seed), n) for seed in seeds]
outputs = beta * tangent(np.stack([np.asarray(output_field(keys, queries, beta), np.float64)[0] for keys in contexts]))
exact = beta * tangent(mean_field(density, queries, beta))
limit = np.asarray(jax.vmap(density.gradient)(queries.astype(np.float32)), np.float64)

# %%
figure, panels = plt.subplots(1, 2, figsize=(7.2, 3.6), sharex=True, sharey=True, layout="constrained")
for axes, drift, name in zip(panels, (exact, limit), ("exact drift at this $\\beta$", "limit $\\nabla\\log\\rho$"), strict=True):
    axes.plot(drift[:, 0], outputs[0, :, 0], ".", ms=2, color="#08306b")
    axes.plot([-1, 1], [-1, 1], color="black", lw=0.8)
    axes.set(xlabel=f"{name}, first coordinate (dimensionless)", aspect="equal")
panels[0].set_ylabel("output $\\beta\\,\\mathrm{P}_q Y_n(q)$, first coordinate (dimensionless)")
plt.show()


# %%
def slopes(drift):
    """Of the line through the origin that fits the outputs of a context (both tangent coordinates): mean and standard error."""
    found = np.sum(outputs * drift, axis=(1, 2)) / np.sum(drift**2)
    return found.mean(), found.std(ddof=1) / len(found) ** 0.5


correlations = [np.corrcoef(output[:, 0], exact[:, 0])[0, 1] for output in outputs]
on_exact, on_limit = slopes(exact), slopes(limit)
print(f"correlation with the exact drift in {len(contexts)} contexts: {min(correlations):.3f} to {max(correlations):.3f}")
print(f"output over exact drift: {on_exact[0]:.3f} (standard error {on_exact[1]:.3f})")
print(f"output over limit:       {on_limit[0]:.3f} (standard error {on_limit[1]:.3f})")

# %%
assert min(correlations) >= 0.9
assert abs(on_exact[0] - 1) < 4 * on_exact[1] + 0.01  # 0.01 for what is left at a finite n, a few times 1 / window
assert abs(on_limit[0] - 0.73) < 4 * on_limit[1] + 0.01 and 1 - on_limit[0] > 4 * on_limit[1] + 0.1
