"""What is to be said about heads before their numbers are used: one sentence for each kind, with the heads it is about."""

from collections.abc import Callable, Sequence
from typing import Any

# At K = 32 a tail of fewer than 450 keys is no tail: T_(K) is the 7% quantile and more.
KEYS_PER_TOP = 450 / 32
NORM_SPREAD = 0.2  # beyond, a key can be far for its length alone
NO_SINK = 0.1
_LISTED = 8  # runs of heads in a line
FEWEST_ROWS = 100  # by chance 3% of critical heads with uniform keys fail the self-check; a quarter of them with 24 rows


def warnings_of(heads: Sequence[Any], top: int) -> tuple[str, ...]:
    """The warnings about these heads (`HeadTemperature`), whose tails were fitted to the `top` nearest keys."""
    fewest = KEYS_PER_TOP * top
    dead = [(h.layer, h.head) for h in heads if h.rows == 0]
    heads = [h for h in heads if h.rows > 0]
    kinds: list[tuple[Callable[[Any], bool], str]] = [
        (lambda h: h.n < fewest, f"fewer than {fewest:g} keys a row at K = {top}: the fitted law is no tail"),
        (lambda h: h.rows < FEWEST_ROWS, f"fewer than {FEWEST_ROWS} late rows: the self-check is noisy (its `se`)"),
        (
            lambda h: h.key_norm_spread > NORM_SPREAD,
            f"key norms spread by more than {NORM_SPREAD:g} of their mean: distances are partly lengths",
        ),
        (lambda h: h.bos_weight < NO_SINK, f"token 0 has less than {NO_SINK:g} of the weight: there is no first-token sink"),
        (lambda h: h.exponent is None, f"the {top} nearest keys are equally far: no tail can be fitted"),
    ]
    found = [(text, [(h.layer, h.head) for h in heads if about(h)]) for about, text in kinds]
    found.insert(0, ("queries or keys are zero: there is nothing to measure", dead))
    return tuple(f"{heads_in_words(names)}: {text}" for text, names in found if names)


def heads_in_words(names: Sequence[tuple[int, int]]) -> str:
    """L3H0-2, L3H5, L4H1: (layer, head) pairs in ascending order, runs of heads of a layer together; of many, the first and how
    many more there are."""
    runs: list[list[int]] = []
    for layer, head in sorted(names):
        if runs and runs[-1][0] == layer and head == runs[-1][2] + 1:
            runs[-1][2] = head
        else:
            runs.append([layer, head, head])
    text = ", ".join(f"L{layer}H{a}" if a == b else f"L{layer}H{a}-{b}" for layer, a, b in runs[:_LISTED])
    more = sum(b - a + 1 for _, a, b in runs[_LISTED:])
    return f"{text} and {more} more" if more else text
