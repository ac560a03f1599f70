"""What a report warns of: one line for each kind, with the layers or heads that it is about."""

from collections.abc import Sequence

from scaling.tensors.words import heads_in_words, layers_in_words
from toyblocks.heads.label import Masses, Thresholds, no_more_than_uniform, uniform_too
from toyblocks.heads.record import Head

_SECTIONS = {
    "ranks": "ranks of the values",
    "theorem": "Theorem 5.1",
    "rescaling": "rescaling by (11)",
    "tokens": "cosines with the first token and half-spaces (Proposition 4.1)",
    "half_spaces": "half-spaces (Proposition 4.1)",
}


class Notes:
    """Collects warnings by kind while layers and heads pass by."""

    def __init__(self) -> None:
        self._layers: dict[str, list[int]] = {}
        self._heads: dict[str, list[tuple[int, int]]] = {}

    def absent(self, section: str, layer: int, tensors: Sequence[str]) -> None:
        """Says that a section is skipped for want of `tensors`, if there are any."""
        if tensors:
            names = ", ".join(f"`{name}`" for name in tensors)
            self.say(f"{names} {'is' if len(tensors) == 1 else 'are'} absent from {{}}: no {_SECTIONS[section]}", layer)

    def skipped(self, section: str, layer: int, reason: str) -> None:
        """Says that a section is skipped for another reason."""
        self.say(f"{reason} in {{}}: no {_SECTIONS[section]}", layer)

    def say(self, sentence: str, layer: int) -> None:
        """A sentence with {} where the layers go."""
        self._layers.setdefault(sentence, []).append(layer)

    def of_head(self, sentence: str, layer: int, head: int) -> None:
        """A sentence that ends with the heads that it is about, by their layers and numbers."""
        self._heads.setdefault(sentence, []).append((layer, head))

    def lines(self) -> list[str]:
        """One line for each sentence."""
        lines = [sentence.replace("{}", layers_in_words(layers)) for sentence, layers in self._layers.items()]
        return lines + [f"{sentence}: {heads_in_words(heads)}" for sentence, heads in self._heads.items()]


def labels_to_doubt(heads: Sequence[Head], thresholds: Thresholds) -> list[str]:
    """Lines on labels that uniform attention has, too, in whole or in part, and on sinks whose `sink_token` is not the first."""
    notes = Notes()
    for head in heads:
        if uniform_too(head.label, head.n, thresholds):
            notes.of_head(f"uniform attention over n = {head.n} tokens is labelled `{head.label}`, too", head.layer, head.head)
        else:
            masses = Masses(head.sink, head.diagonal, head.lower_diagonal, head.largest_column_mass)
            for part in no_more_than_uniform(head.label, masses, head.n, first=not head.sink_token):
                of = f"the {part.replace('_', ' ')} of the label `{head.label}`"
                notes.of_head(f"{of} has no more mass than in uniform attention over n = {head.n} tokens", head.layer, head.head)
        if head.sink_token:
            notes.of_head("the sink is not the first token", head.layer, head.head)
    return notes.lines()
