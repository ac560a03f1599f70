"""Integer linear algebra in Python's exact integers: lattices as lists of rows."""

from collections.abc import Sequence

Vector = tuple[int, ...]
Rows = Sequence[Sequence[int]]
_SWEEPS = 32


def kernel(rows: Rows, columns: int) -> list[Vector]:
    """A basis of the integer vectors v [columns] with <row, v> = 0 for every row.

    Such a lattice is saturated: it holds every integer vector of its span over Q. So the kernel of a kernel is the saturation of
    the rows. Unimodular operations on unit vectors, one row after the other, by Euclid's algorithm on their products with it.
    """
    basis = [[int(i == j) for j in range(columns)] for i in range(columns)]
    for row in rows:
        products = [_dot(row, v) for v in basis]
        pivot = _euclid(basis, products)
        if pivot is not None:
            del basis[pivot]
    return [tuple(v) for v in basis]


def first_column(basis: Rows) -> tuple[Vector, list[Vector]]:
    """Another basis of the lattice of linearly independent rows, of which one row alone, the first result, has a non-zero (and
    positive) first entry. Some row must have a non-zero first entry."""
    rows = [list(v) for v in basis]
    pivot = _euclid(rows, [v[0] for v in rows])
    assert pivot is not None
    head = rows.pop(pivot)
    return tuple(-x for x in head) if head[0] < 0 else tuple(head), shortened(rows)


def shortened(basis: Rows) -> list[Vector]:
    """A basis of the same lattice in which no vector gets shorter by adding a multiple of another one (or after 32 rounds of such
    steps), shortest first, each with its first non-zero entry positive."""
    rows = [list(v) for v in basis]
    norms = [_dot(v, v) for v in rows]
    changed, sweeps = True, 0
    while changed and sweeps < _SWEEPS:
        changed, sweeps = False, sweeps + 1
        for i, v in enumerate(rows):
            for j, w in enumerate(rows):
                product = _dot(v, w) if i != j else 0
                multiple = (2 * product + norms[j]) // (2 * norms[j]) if 2 * abs(product) > norms[j] else 0
                if multiple:
                    rows[i] = v = [x - multiple * y for x, y in zip(v, w, strict=True)]
                    norms[i], changed = _dot(v, v), True
    signed = [tuple(-x for x in v) if next(x for x in v if x) < 0 else tuple(v) for v in rows]
    return sorted(signed, key=lambda v: (_dot(v, v), [-x for x in v]))


def _euclid(rows: list[list[int]], values: list[int]) -> int | None:
    """Adds multiples of rows to others until one `value` (linear in the row) is left; where it is, or None where all are 0."""
    while True:
        live = [i for i, value in enumerate(values) if value]
        if len(live) < 2:
            return live[0] if live else None
        pivot = min(live, key=lambda i: abs(values[i]))
        for i in live:
            multiple = values[i] // values[pivot]
            if i != pivot and multiple:
                rows[i] = [x - multiple * y for x, y in zip(rows[i], rows[pivot], strict=True)]
                values[i] -= multiple * values[pivot]


def _dot(v: Sequence[int], w: Sequence[int]) -> int:
    return sum(x * y for x, y in zip(v, w, strict=True) if x and y)
