"""Integer relations between frequencies that are rational multiples of each other."""

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

Relation = tuple[int, ...]


def class_relations(planes: int, classes: Iterable[tuple[Sequence[int], Sequence[Fraction]]]) -> tuple[Relation, ...]:
    """A basis of the integer relations between 1 and the frequencies, vectors (k_0, ..., k_L).

    classes: for each class of commensurable numbers their places in (1, theta_1, ..., theta_L) and their ratios; numbers of
    different classes are independent over the rationals.
    """
    found = []
    for places, values in classes:
        for relation in _kernel(values):
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


def _kernel(values: Sequence[Fraction]) -> list[list[int]]:
    """A basis of the integer vectors k with sum k_j values_j = 0 that spans all of them, by extended gcds."""
    common = math.lcm(*(value.denominator for value in values))
    whole = [int(value * common) for value in values]
    basis, size = [], len(whole)
    divisor, combination = whole[0], [1] + [0] * (size - 1)  # sum combination * whole = divisor, of the numbers seen so far
    for j in range(1, size):
        gcd, a, b = _extended_gcd(divisor, whole[j])
        unit = [int(i == j) for i in range(size)]
        if gcd == 0:
            basis.append(combination)
            combination = unit
            continue
        basis.append([whole[j] // gcd * c - divisor // gcd * u for c, u in zip(combination, unit, strict=True)])
        combination = [a * c + b * u for c, u in zip(combination, unit, strict=True)]
        divisor = gcd
    if divisor == 0:
        basis.append(combination)
    return basis


def _extended_gcd(a: int, b: int) -> tuple[int, int, int]:
    """(gcd, x, y) with a x + b y = gcd >= 0."""
    x, y, next_x, next_y = 1, 0, 0, 1
    while b:
        quotient, remainder = divmod(a, b)
        a, b = b, remainder
        x, next_x = next_x, x - quotient * next_x
        y, next_y = next_y, y - quotient * next_y
    return (a, x, y) if a >= 0 else (-a, -x, -y)
