"""Small symmetric systems in plain Python, with the same bits on every machine.

Sums are `math.fsum`, which rounds once whatever the order; everything else is one operation after
the other. Libraries of linear algebra reorder sums by processor, so steps do without them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from itertools import combinations_with_replacement

Vector = list[float]
Matrix = list[list[float]]
_LOGARITHM = Context(prec=30)


def n_pairs(n: int) -> int:
    """Return how many numbers a symmetric matrix of n columns has.

    >>> n_pairs(3)
    6
    """
    return n * (n + 1) // 2


def pack(matrix: Sequence[Sequence[float]]) -> Vector:
    """Return the upper triangle, row by row."""
    return [row[b] for a, row in enumerate(matrix) for b in range(a, len(row))]


def unpack(values: Sequence[float], n: int) -> Matrix:
    """Return the symmetric matrix with this upper triangle."""
    found = [[0.0] * n for _ in range(n)]
    for (a, b), value in zip(combinations_with_replacement(range(n), 2), values, strict=True):
        found[a][b] = found[b][a] = value
    return found


def dot(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the sum of products."""
    return math.fsum(a * b for a, b in zip(one, other, strict=True))


def multiply(matrix: Sequence[Sequence[float]], vector: Sequence[float]) -> Vector:
    """Return the product of a matrix and a vector."""
    return [dot(row, vector) for row in matrix]


def exact_log(value: float) -> float:
    """Return the logarithm, rounded alike everywhere: that of `math` differs between libraries.

    >>> exact_log(1.0)
    0.0
    """
    return float(_LOGARITHM.ln(Decimal(value)))


@dataclass(frozen=True)
class Cholesky:
    """The factor of a positive semidefinite matrix without the columns that depend on earlier ones.

    Attributes
    ----------
    kept : list of int
        Columns that depend on no earlier ones.
    rows : list of lists
        The lower triangle of the factor of the kept columns.
    n : int
        All columns.
    """

    kept: list[int]
    rows: Matrix
    n: int

    @classmethod
    def of(
        cls, matrix: Sequence[Sequence[float]], tolerance: float, noise: float = 0.0
    ) -> Cholesky:
        """Factor a matrix. A column is left out if at most the share ``tolerance`` of its square,
        or ``noise``, does not depend on earlier columns.
        """
        kept: list[int] = []
        rows: Matrix = []
        for j in range(len(matrix)):
            row: Vector = []
            for place, k in enumerate(kept):
                above = dot(row, rows[place][:place])
                row.append((matrix[j][k] - above) / rows[place][place])
            pivot = matrix[j][j] - math.fsum(a * a for a in row)
            if pivot > max(tolerance * matrix[j][j], noise):
                kept.append(j)
                rows.append([*row, math.sqrt(pivot)])
        return cls(kept, rows, len(matrix))

    def solve(self, right: Sequence[float]) -> Vector:
        """Return the solution for a right side; 0 for columns that are left out."""
        below: Vector = []
        for place, k in enumerate(self.kept):
            row = self.rows[place]
            below.append((right[k] - dot(row[:place], below)) / row[place])
        size = len(self.kept)
        found = [0.0] * size
        for place in reversed(range(size)):
            later = math.fsum(self.rows[k][place] * found[k] for k in range(place + 1, size))
            found[place] = (below[place] - later) / self.rows[place][place]
        solution = [0.0] * self.n
        for place, k in enumerate(self.kept):
            solution[k] = found[place]
        return solution
