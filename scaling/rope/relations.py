"""Integer relations between frequencies that are rational multiples of each other."""

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

from scaling.rope import _lattice

Relation = tuple[int, ...]


def class_relations(planes: int, classes: Iterable[tuple[Sequence[int], Sequence[Fraction]]]) -> tuple[Relation, ...]:
    """A basis of the integer relations between 1 and the frequencies, vectors (k_0, ..., k_L).

    classes: for each class of commensurable numbers their places in (1, theta_1, ..., theta_L) and their ratios; numbers of
    different classes are independent over the rationals.
    """
    found = []
    for places, values in classes:
        common = math.lcm(*(value.denominator for value in values))
        kernel = _lattice.kernel([[int(value * common) for value in values]], len(values))
        for relation in kernel:
            vector = [0] * (planes + 1)
            for place, k in zip(places, relation, strict=True):
                vector[place] = k
            found.append(tuple(vector))
    return tuple(found)


def perfect_power(number: int) -> tuple[int, int]:
    """(c, g) with c^g = number >= 2 and g as large as possible."""
    for exponent in range(number.bit_length(), 1, -1):
        root = _root(number, exponent)
        if root**exponent == number:
            return root, exponent
    return number, 1


def _root(number: int, exponent: int) -> int:
    """The largest integer whose power is at most `number`, bit by bit."""
    root = 0
    for bit in range(number.bit_length() // exponent, -1, -1):
        if (root | 1 << bit) ** exponent <= number:
            root |= 1 << bit
    return root
