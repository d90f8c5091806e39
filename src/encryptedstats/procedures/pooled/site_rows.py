"""The rows of one site, and what Fisher scoring adds up over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encryptedstats.procedures.pooled.families import Family, Link
from encryptedstats.procedures.pooled.scaling import weighted_products
from encryptedstats.tables.encodings import GAP
from encryptedstats.tables.questions.summaries import scale
from encryptedstats.tables.table import Table

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class PreparedRows:
    """The complete rows of a site: standardised columns, offset and outcome."""

    z: Floats
    offset: Floats
    y: Floats

    def predict(self, beta: Sequence[float]) -> Floats:
        """Return the linear predictor."""
        found: Floats = self.z @ np.array(beta) + self.offset
        return found


@dataclass(frozen=True)
class Scores:
    """What Fisher scoring needs of a site, and the rows that it is of.

    Attributes
    ----------
    totals : list of float
        X'WX, the score, the deviance, and whether a mean is impossible or at the boundary.
    y, mu, residual : array
        Of each row; the last is the working residual.
    """

    totals: list[float]
    y: Floats
    mu: Floats
    residual: Floats


def measure_scores(family: Family, link: Link, rows: PreparedRows, eta: Floats | None) -> Scores:
    """Return the totals of Fisher scoring at a linear predictor; None for R's start, whose score
    is X'Wz of the whole working outcome.
    """
    start = start_from(family, link, rows)
    first = eta is None
    eta = start if eta is None else eta
    valid = np.asarray(link.is_valid(eta))
    valid &= family.is_valid(link.invert(np.where(valid, eta, start)))
    # Rows without a mean stay in, at their start: a sum without them would tell of them alone.
    eta, y = np.where(valid, eta, start), rows.y
    mu = link.invert(eta)
    weights, slope = fisher_weights(family, link, eta, mu)
    residual = (y - mu) / slope
    working = residual + eta - rows.offset if first else residual
    found = [
        *weighted_products(rows.z, weights),
        *(rows.z.T @ (weights * working)).tolist(),
        float(family.deviance(y, mu, 0.0).sum()),
        float(not valid.all()),
        float(family.is_at_boundary(mu).any()),
    ]
    return Scores(found, y, mu, residual)


def start_from(family: Family, link: Link, rows: PreparedRows) -> Floats:
    """Return the linear predictor that R starts from."""
    found: Floats = link.apply(family.start(rows.y))
    return found


def fisher_weights(family: Family, link: Link, eta: Any, mu: Any) -> tuple[Any, Any]:
    """Return the weights of Fisher scoring, and the slope of the mean."""
    slope = link.slope(eta)
    return slope**2 / family.variance(mu, 0.0), slope


def numbers_of(table: Table, where: int) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the values of a number in its own units, and where it is known."""
    data = np.asarray(table.data_of(where))
    return data / scale(table.schema, where), data != GAP
