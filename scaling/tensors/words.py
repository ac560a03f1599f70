"""Lists of layers and heads in a line of text: runs together, and of many runs the first."""

from collections.abc import Iterable, Sequence

_LISTED = 8  # runs in a line


def layers_in_words(layers: Sequence[int]) -> str:
    """layer 3; layers 0-11, 13; of many runs the first 8: layers 0, 2, 4, 6, 8, 10, 12, 14 and 5 more."""
    return f"layer{'s' if len(layers) > 1 else ''} {_listed(('', layer) for layer in sorted(layers))}"


def heads_in_words(heads: Sequence[tuple[int, int]]) -> str:
    """L3H0-2, L3H5, L4H1: (layer, head) pairs in ascending order, runs of heads of a layer together; of many runs the first 8."""
    return _listed((f"L{layer}H", head) for layer, head in sorted(heads))


def _listed(numbers: Iterable[tuple[str, int]]) -> str:
    """Numbers in ascending order, each behind its prefix; runs do not go across prefixes."""
    runs: list[tuple[str, int, int]] = []
    for prefix, number in numbers:
        if runs and runs[-1][0] == prefix and number == runs[-1][2] + 1:
            runs[-1] = (prefix, runs[-1][1], number)
        else:
            runs.append((prefix, number, number))
    text = ", ".join(f"{prefix}{a}" if a == b else f"{prefix}{a}-{b}" for prefix, a, b in runs[:_LISTED])
    more = sum(b - a + 1 for _, a, b in runs[_LISTED:])
    return f"{text} and {more} more" if more else text
