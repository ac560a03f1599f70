"""Sweeps: every cell of a grid (d, n, inverse temperature) drawn by an engine, row by row, into a store that survives kill -9.

The cells of a grid share their random numbers (a replicate does not depend on n or beta), so they are correlated: curves and
contours are smooth; another seed gives independent ones. What a sweep computes does not depend on where it was interrupted:
groups of rows are always drawn whole, and only cells that are not done are written.
"""

import dataclasses
import datetime
import importlib.metadata
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from scaling._check import reject
from scaling.config import SweepConfig
from scaling.context import query_of
from scaling.engine.base import AbstractEngine, Progress, Request, Samples
from scaling.engine.choose import choose
from scaling.statistic import parse

if TYPE_CHECKING:
    import xarray

    from scaling.store import SweepStore

MAX_GROUP_BYTES = 2 * 2**30  # rows that an engine would draw together are drawn in parts above this
_COMPILATION = "/jax/core/compile/backend_compile_duration"
_SAVE_EVERY = 5.0  # seconds between two notes of the time spent: what kill -9 can lose of it


@dataclasses.dataclass(frozen=True)
class Summary:
    """What a run of a sweep did. `computed_now`, `compilations` and `seconds` count this run alone; the store keeps sums."""

    cells: int
    done: int
    failed: int
    computed_now: int
    compilations: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class _Plan:
    """The rows of one d: who draws them, and which together."""

    engine: AbstractEngine
    reason: str
    request: Request
    groups: tuple[tuple[int, ...], ...]


def run_sweep(
    config: SweepConfig | Mapping[str, Any] | str | PathLike,
    store: str | PathLike,
    *,
    progress: bool = False,
    repair: bool = False,
) -> "xarray.Dataset":
    """Computes what a store lacks of a sweep and returns the whole of it, as `store.open_store` does.

    `config` is a configuration, a mapping like one, or the path of a TOML file; `store` a directory, made on the first run. A
    cell whose samples are not finite, or whose engine raised, has `status` 2, a `message` and NaN samples; the next run tries it
    again. `progress` shows a bar on stderr where that is a terminal; `repair` recomputes corrupt cells, and those alone.

    Raises `ValueError` with all that is wrong in the configuration, or for a store that belongs to another configuration, is in
    use, is not writable or is corrupt. After an interrupt the finished rows are in the store.
    """
    from scaling.store import open_store

    compute(config, store, progress=progress, repair=repair)
    return open_store(store)


def compute(
    config: SweepConfig | Mapping[str, Any] | str | PathLike,
    store: str | PathLike,
    *,
    progress: bool = False,
    repair: bool = False,
) -> Summary:
    """`run_sweep` without reading the samples back: returns the counts of the run. Raises what `run_sweep` raises."""
    start = time.monotonic()
    config = _load(config)
    _require_precision(config.dtype)
    plans = [_plan(config, d, config.engine) for d in config.axes.d]

    from scaling.store import DONE, FAILED, SweepStore

    with (
        count_compilations() as compilations,
        SweepStore.open(store, config, lambda: _attributes(config, plans), repair) as opened,
    ):
        chosen = opened.attribute("engines")  # the engines of the first run: `auto` may choose others in another version
        for position, d in enumerate(config.axes.d):
            if chosen[str(d)]["name"] != plans[position].engine.name:
                plans[position] = _plan(config, d, chosen[str(d)]["name"])
        before = opened.status == DONE
        note = _Note(opened, start, compilations)
        try:
            with _Bar(before.size, int(before.sum()), progress) as bar:
                for at, plan in enumerate(plans):
                    _compute_rows(opened, at, plan, bar, note)
        finally:
            note.save()
        done = opened.status == DONE
        failed = int((opened.status == FAILED).sum())
        return Summary(done.size, int(done.sum()), failed, int((done & ~before).sum()), compilations.count, note.seconds)


def _compute_rows(store: "SweepStore", at: int, plan: _Plan, bar: "_Bar", note: "_Note") -> None:
    from scaling.store import DONE

    for group in plan.groups:
        waiting = int((store.status[at, list(group)] != DONE).sum())
        if not waiting:
            continue
        request = dataclasses.replace(
            plan.request, n=tuple(plan.request.n[row] for row in group), beta=plan.request.beta[list(group)]
        )
        try:
            samples = _sample(plan.engine, request, bar.part(waiting))
        except Exception as error:  # one group must not end the sweep: the reason is kept with its cells
            store.fail(at, group, f"{type(error).__name__}: {error}".splitlines()[0])
        else:
            store.commit(at, group, samples)
        bar.complete(waiting)
        note.save_now_and_then()


def _sample(engine: AbstractEngine, request: Request, progress: Progress) -> Samples:
    """Draws a group into one array (half the memory of collecting blocks); checks that it is filled, as a store cannot."""
    cells, count = request.beta.shape, request.count
    values = np.empty((*cells, len(request.statistics), count))
    filled, block = 0, None
    for block in engine.batches(request):
        size = block.values.shape[-1]
        if block.values.shape[:-1] != values.shape[:-1] or filled + size > count:
            raise ValueError(
                f"the engine `{engine.name}` returned samples of shape {block.values.shape} for cells of shape {values.shape}"
            )
        values[..., filled : filled + size] = block.values
        filled += size
        progress(size / count)
    if block is None or filled < count:
        raise ValueError(f"the engine `{engine.name}` returned {filled} replicates of {count}")
    return Samples(values, np.broadcast_to(block.keys_drawn, cells), np.broadcast_to(block.error_bound, values.shape[:-1]))


def _load(config: SweepConfig | Mapping[str, Any] | str | PathLike) -> SweepConfig:
    if isinstance(config, SweepConfig):
        return config
    return SweepConfig.from_mapping(config) if isinstance(config, Mapping) else SweepConfig.from_toml(config)


def _require_precision(dtype: str) -> None:
    """Refuses float64 where JAX would silently draw in float32."""
    import jax

    if jax.dtypes.canonicalize_dtype(dtype) != np.dtype(dtype):
        must = "be float32 unless JAX has float64 enabled, by jax.config.update('jax_enable_x64', True) or JAX_ENABLE_X64=1"
        reject("dtype", must, dtype)


def _plan(config: SweepConfig, d: int, name: str) -> _Plan:
    request = Request(
        context=config.context.build(config.density.build(d)),
        query=query_of(None if config.query is None else np.asarray(config.query), d),
        n=config.axes.n,
        beta=config.beta(d),
        statistics=parse(config.statistics),
        first=0,
        count=config.replicates,
        seed=config.seed,
        tolerance=config.tolerance,
        dtype=config.dtype,
        value=None if config.value is None else np.asarray(config.value),
    )
    engine, reason = choose(name, request)
    groups = [tuple(int(row) for row in group) for group in engine.groups(request)]
    if sorted(row for group in groups for row in group) != list(range(len(request.n))):
        raise ValueError(f"The engine `{engine.name}` must group every n once, but groups them as {groups}.")
    row_bytes = request.beta.shape[1] * len(request.statistics) * request.count * 8
    most = max(1, MAX_GROUP_BYTES // row_bytes)
    parts = [group[i : i + most] for group in groups for i in range(0, len(group), most)]
    return _Plan(engine, reason, request, tuple(parts))


def _attributes(config: SweepConfig, plans: list[_Plan]) -> dict[str, Any]:
    """What is kept beside the numbers: where they come from."""
    import jax

    devices = jax.devices()
    partitionable = jax.config.jax_threefry_partitionable  # pyright: ignore[reportAttributeAccessIssue]
    return {
        "engines": {
            str(d): {"name": plan.engine.name, "reason": plan.reason} for d, plan in zip(config.axes.d, plans, strict=True)
        },
        "device": f"{devices[0].device_kind} ({devices[0].platform})",
        "devices": len(devices),
        "dtype": config.dtype,
        "prng": {"implementation": "threefry2x32", "jax_threefry_partitionable": bool(partitionable)},
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": _versions(),
        "compilations": 0,
        "seconds": 0.0,
        "runs": 0,
    }


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in ("attention-scaling-limits", "jax", "jaxlib", "numpy", "zarr"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return versions


@dataclasses.dataclass
class Compilations:
    """How often XLA compiled."""

    count: int = 0


@contextmanager
def count_compilations() -> Iterator[Compilations]:
    """Counts the compilations of this process while the block runs, those of other threads included."""
    import jax.monitoring

    compilations = Compilations()

    def listener(event: str, duration_secs: float, **kwargs: str | int) -> None:
        compilations.count += event == _COMPILATION

    jax.monitoring.register_event_duration_secs_listener(listener)
    try:
        yield compilations
    finally:
        jax.monitoring.unregister_event_duration_listener(listener)


class _Note:
    """Keeps the time and the compilations spent on a store, over all its runs, up to date."""

    def __init__(self, store: "SweepStore", start: float, compilations: Compilations):
        self._store, self._start, self._compilations = store, start, compilations
        self._before = {name: store.attribute(name) for name in ("seconds", "compilations", "runs")}
        self._saved = time.monotonic()

    @property
    def seconds(self) -> float:
        return round(time.monotonic() - self._start, 3)

    def save(self) -> None:
        self._saved = time.monotonic()
        self._store.update_attributes(
            seconds=self._before["seconds"] + self.seconds,
            compilations=self._before["compilations"] + self._compilations.count,
            runs=self._before["runs"] + 1,
        )

    def save_now_and_then(self) -> None:
        if time.monotonic() - self._saved > _SAVE_EVERY:
            self.save()


class _Bar:
    """A progress bar over cells, on stderr where that is a terminal."""

    def __init__(self, cells: int, done: int, shown: bool):
        from tqdm import tqdm

        form = "{l_bar}{bar}| {n:.0f}/{total_fmt} cells [{elapsed}<{remaining}]"
        self._bar = tqdm(total=cells, initial=done, disable=None if shown else True, bar_format=form, desc="sweep")
        self._finished = float(done)

    def __enter__(self) -> "_Bar":
        return self

    def __exit__(self, *_) -> None:
        self._bar.close()

    def part(self, cells: int) -> Progress:
        """The callback of an engine that draws `cells` cells that are counted: it is called with shares of them."""

        def progress(share: float) -> None:
            self._bar.update(cells * share)

        return progress

    def complete(self, cells: int) -> None:
        """Counts cells as finished."""
        self._finished += cells
        self._bar.update(self._finished - self._bar.n)
