"""Training of single-block transformers on the backcopy task (Figure 3 left) beside a PyTorch loop over seeds: the same steps.

PyTorch is no dependency: without it the comparison is left out, and the remark says so.
"""

import importlib.util
from functools import partial

from benchmarks.harness import Measurement, Timing, cores, in_child, number

LENGTHS = (4, 8, 16, 32, 64)
SEEDS = 3
QUERY_KEY, VALUES = 3000, 12_000  # steps of a run of `toyblocks.train`
RATE = 1e-3


def measure(smoke: bool) -> list[Measurement]:
    """Seconds of the whole panel, from the time of some steps of each of its runs, compiled before: five context lengths, both
    patterns, three seeds. How many times longer PyTorch takes, over the panel and at its longest contexts."""
    lengths = LENGTHS[:1] if smoke else LENGTHS
    patterns = ("sink",) if smoke else ("sink", "diagonal")
    ours = in_child("training", "ours", inline=smoke, lengths=lengths, patterns=patterns, share=0 if smoke else 0.1).result
    ours = [Timing(*each) for each in ours]
    note = f"{SEEDS} seeds, {', '.join(patterns)}, {QUERY_KEY} + {VALUES} steps"
    if importlib.util.find_spec("torch") is None:
        return [Measurement("training, Figure 3 left", *_total(ours), "s", 600, note=f"{note}; no PyTorch to compare with")]
    loop = in_child("training", "loop", inline=smoke, lengths=lengths, patterns=patterns, steps=2 if smoke else 100).result
    loop = [Timing(*each) for each in loop]
    ratios = [theirs.over(each) for theirs, each in zip(loop, ours, strict=True)]
    shown = ", ".join(f"{number(each.wall)} at T = {length}" for length, each in zip(lengths, ratios, strict=True))
    return [
        Measurement("training, Figure 3 left", *_total(ours), "s", 600, note=note),
        Measurement("training: PyTorch / ours, panel", *_total(loop).over(_total(ours)), "x", 3, at_least=True, note=shown),
        Measurement(f"training: PyTorch / ours, T = {lengths[-1]}", *ratios[-1], "x", 2, at_least=True),
    ]


def ours(lengths: list[int], patterns: list[str], share: float) -> list[Timing]:
    """Seconds of the runs of each context length, from a `share` of their steps (at least 100 a stage)."""
    from benchmarks.harness import clock, timed
    from toyblocks.task import Backcopy
    from toyblocks.train.backcopy import train_values
    from toyblocks.train.query_key import train_query_key

    found = []
    for length in lengths:
        parts = []
        for pattern in patterns:
            for part, least in ((train_query_key, 100), (train_values, 75)):
                steps = max(round(share * QUERY_KEY), least)
                call = partial(part, Backcopy(length), pattern, seeds=SEEDS, steps=steps)
                parts.append((timed(call, 1) if share else clock(call)).times(QUERY_KEY / steps))
        found.append(_total(parts))
    return found


def loop(lengths: list[int], patterns: list[str], steps: int) -> list[Timing]:
    """The same by PyTorch, one seed after the other, from `steps` steps a run; on one thread or on all, whichever is faster."""
    import torch

    from benchmarks.harness import timed

    found = []
    for length in lengths:
        parts = []
        for pattern in patterns:
            for make, whole in ((_query_key, QUERY_KEY), (_values, VALUES)):
                loss, weights = make(length, pattern)
                taken = []
                for threads in {1, cores()}:
                    torch.set_num_threads(threads)
                    taken.append(timed(partial(_train, loss, weights, steps), 1))
                parts.append(min(taken).times(SEEDS * whole / steps))
        found.append(_total(parts))
    return found


def _train(loss, weights, steps: int) -> None:
    """Adam with its own coupled decay, which is lambda |Theta|^2 in the loss; rate and lambda are set at every step."""
    import torch

    matrices = [each for each in weights if each.ndim == 2]
    vectors = [each for each in weights if each.ndim == 1]
    groups = [{"params": each, "weight_decay": 0.0} for each in (matrices, vectors) if each]
    adam = torch.optim.Adam(groups, lr=RATE)
    for step in range(steps):
        for group in adam.param_groups:
            group["lr"] = RATE * (1 - step / steps)
        adam.param_groups[0]["weight_decay"] = 1e-3 * 0.1 ** (step / steps)
        adam.zero_grad()
        loss(*weights).backward()
        adam.step()


def _query_key(length: int, pattern: str):
    """Loss and weights: all logits as a product, masks for targets and others."""
    import torch

    from toyblocks.task import Backcopy

    task = Backcopy(length)
    routing = task.routing(pattern)
    tokens = torch.tensor(task.tokens, dtype=torch.float32)
    queries = tokens[torch.tensor(routing.query)]
    target, other = torch.tensor(routing.target), torch.tensor(routing.other)

    def loss(w_q, w_k):
        logits = (queries @ w_q.T) @ (tokens @ w_k.T).T / task.dim
        lowest = logits.masked_fill(~target, torch.inf).amin(dim=1, keepdim=True)
        return ((10 - lowest + logits).relu().square() * other).sum() / len(queries)

    return loss, _weights((task.dim, task.dim), (task.dim, task.dim))


def _values(length: int, pattern: str):
    """Loss and weights: as many rows of random tokens as `toyblocks.train` takes a step."""
    import jax
    import torch

    from toyblocks.task import Backcopy
    from toyblocks.train.backcopy import WIDTH, output_loss

    task = Backcopy(length)
    made = output_loss(task, pattern)
    tokens = torch.tensor(jax.device_get(made.tokens).copy())
    table = torch.tensor(jax.device_get(made.copy.table).copy()).long().reshape(-1, 3)
    rows = made.dormant.table.shape[0] * made.dormant.taken + made.copy.table.shape[0] * made.copy.taken

    def loss(w_v, w_o, w_1, b_1, w_2, b_2):
        x, attended, owed = tokens[table[torch.randint(len(table), (rows,))]].unbind(1)
        value = attended @ w_v.T @ w_o.T
        y = x + value
        z = y * torch.rsqrt(y.square().mean(dim=1, keepdim=True))
        error = value + (z @ w_1.T + b_1).relu() @ w_2.T + b_2 - owed
        return error.square().mean()

    d, width = task.dim, WIDTH * task.dim
    return loss, _weights((d, d), (d, d), (width, d), (width,), (d, width), (d,))


def _weights(*shapes: tuple[int, ...]):
    import torch

    return [(torch.randn(shape) / shape[-1] ** 0.5).requires_grad_() for shape in shapes]


def _total(times: list[Timing]) -> Timing:
    return Timing(*map(sum, zip(*times, strict=True)))
