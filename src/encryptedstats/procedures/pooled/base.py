"""What regressions of several sites share: the formula, names in ids, and checked parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from encryptedstats.errors import DataError, ParameterError
from encryptedstats.procedures.pooled.covariates import Covariates
from encryptedstats.procedures.pooled.scaling import BITS_ALLOWED
from encryptedstats.procedures.site_procedure import RowLimits, SiteProcedure, refuse_small
from encryptedstats.statistics.formulas import parse
from encryptedstats.tables.questions.constraints import (
    CONFIDENCE,
    Constraints,
    Integer,
    RealNumber,
    ReferenceLevels,
    Text,
)
from encryptedstats.tables.schema.names import level_id, target_id, variable_id
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema
from encryptedstats.tables.table import Table

if TYPE_CHECKING:
    from typing_extensions import Self

#: A column whose part that does not depend on earlier columns is a smaller share of it than this
#: is aliased: its variance inflation is above 1e10.
COLLINEAR = 1e-10
#: Sites whose roundings are allowed for where a pivot is told from 0.
_SITES = 64
COMMON: Constraints = {
    "formula": Text(),
    "reference": ReferenceLevels(optional=True),
    "epsilon": RealNumber(low=0, closed="right", high=1, code="epsilon-out-of-range"),
    "max_iterations": Integer(low=1, high=100),
    "bits": BITS_ALLOWED,
    "confidence": CONFIDENCE,
}


class PooledRegression(SiteProcedure):
    """Base class of regressions on the columns of a formula."""

    formula: str
    reference: Mapping[str, Any] | None
    bits: int

    constraints: ClassVar[Constraints] = COMMON
    of_variables: ClassVar[tuple[str, ...]] = ()
    learned: ClassVar[str] = "nothing: no worker is asked, and every site sees the sums of all"

    def __post_init__(self) -> None:
        check_fields(self)

    def in_ids(self, schema: Schema | PublicSchema) -> Self:
        """Return it with ids in the formula and for the reference levels."""
        found = super().in_ids(schema)
        parsed = parse(self.formula).in_ids(schema)
        reference = self.reference and {
            variable_id(schema, one): level_id(schema, one, level)
            for one, level in self.reference.items()
        }
        own = {**found.parameters(), "formula": str(parsed), "reference": reference}
        return self.from_parameters(own)

    def _covariates(self, schema: Schema | PublicSchema) -> Covariates:
        """Return the covariates; refuse a formula without an intercept or with several outcomes."""
        reference = tuple(sorted((self.reference or {}).items()))
        found = _covariates(self.formula, schema.public(), reference)
        if len(found.made.targets) != 1 or not found.made.intercept:
            raise ParameterError(
                f"formula={self.formula!r}: one outcome and an intercept are needed",
                code="outcome-or-intercept-missing",
            )
        return found

    def fits(self, schema: PublicSchema) -> Any:
        """Return the outcome and the columns of the formula."""
        made = self._covariates(schema).made
        outcome = made.targets[0]
        named = target_id(schema) if outcome == -1 else f"v{outcome}"
        return [named, sorted(column.name(schema) for column in made.model)]

    def _check_cells(
        self, counts: Sequence[int], schema: PublicSchema, limits: RowLimits, more: dict[str, int]
    ) -> None:
        """Refuse levels and outcomes of few rows. Levels without any have no column to tell of."""
        cells = self._covariates(schema).counts_of(counts, schema)
        refuse_small({**{name: n for name, n in more.items() if n}, **cells}, limits)

    def _tolerance(self, n_columns: int) -> tuple[float, float]:
        """Return which part of a column counts as nothing: as a share of it, and by how far the
        roundings of all sites can move it, with a reserve.
        """
        return COLLINEAR, _SITES * n_columns / (1 << self.bits)


@lru_cache(maxsize=64)
def _covariates(
    formula: str, schema: PublicSchema, reference: tuple[tuple[str, Any], ...]
) -> Covariates:
    return Covariates.of(formula, schema, dict(reference))


def check_fields(procedure: Any) -> None:
    """Check the fields of a procedure by the constraints of its classes."""
    known: dict[str, Any] = {}
    for cls in reversed(type(procedure).__mro__):
        known |= getattr(cls, "constraints", {})
    for one in fields(procedure):
        if one.name in known:
            known[one.name].check(getattr(procedure, one.name), one.name)


def refuse_weights(table: Table) -> None:
    """Refuse a table whose rows have weights other than 1, which no model here takes."""
    if table.weights is not None and (table.weights != 1).any():
        raise DataError(
            "rows with weights are not taken in rounds: make the table without weights=, with "
            "each row as often as it counts",
            code="weighted-rows",
        )


def has_arrived(now: float, before: float, epsilon: float) -> bool:
    """Return whether a deviance has converged, by R's rule."""
    return abs(now - before) / (abs(now) + 0.1) < epsilon


def is_finite(values: Sequence[float]) -> bool:
    """Return whether all numbers are finite."""
    return all(map(math.isfinite, values))


def full_covariance(
    information: Sequence[Sequence[float]], kept: Sequence[int]
) -> NDArray[np.float64]:
    """Return the inverse of the information of the columns that are kept; 0 elsewhere."""
    n = len(information)
    found = np.zeros((n, n))
    if kept:
        part = np.array(information)[np.ix_(kept, kept)]
        found[np.ix_(kept, kept)] = np.linalg.inv(part)
    return found
