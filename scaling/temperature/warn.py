"""What is to be said about heads before their numbers are used: one sentence for each kind, with the heads it is about."""

from collections.abc import Callable, Sequence

from scaling.temperature.record import HeadTemperature
from scaling.tensors.words import heads_in_words

# At K = 32 a tail of fewer than 450 keys is no tail: T_(K) is the 7% quantile and more.
KEYS_PER_TOP = 450 / 32
NORM_SPREAD = 0.2  # beyond, a key can be far for its length alone
NO_SINK = 0.1
FEWEST_ROWS = 100  # by chance 3% of critical heads with uniform keys fail the self-check; a quarter of them with 24 rows


def warnings_of(heads: Sequence[HeadTemperature], top: int) -> tuple[str, ...]:
    """The warnings about these heads, whose tails were fitted to the `top` nearest keys."""
    fewest = KEYS_PER_TOP * top
    kinds: list[tuple[Callable[[HeadTemperature], bool], str]] = [
        (lambda h: h.rows == 0, "queries or keys are zero: there is nothing to measure"),
        (lambda h: h.n is not None and h.n < fewest, f"fewer than {fewest:g} keys a row at K = {top}: the fitted law is no tail"),
        (lambda h: 0 < h.rows < FEWEST_ROWS, f"fewer than {FEWEST_ROWS} late rows: the self-check is noisy (its `se`)"),
        (
            lambda h: h.key_norm_spread is not None and h.key_norm_spread > NORM_SPREAD,
            f"key norms spread by more than {NORM_SPREAD:g} of their mean: distances are partly lengths",
        ),
        (
            lambda h: h.bos_weight is not None and h.bos_weight < NO_SINK,
            f"token 0 has less than {NO_SINK:g} of the weight: there is no first-token sink",
        ),
        (lambda h: h.rows > 0 and h.exponent is None, f"the {top} nearest keys are equally far: no tail can be fitted"),
    ]
    found = [(text, [(h.layer, h.head) for h in heads if about(h)]) for about, text in kinds]
    return tuple(f"{heads_in_words(names)}: {text}" for text, names in found if names)
