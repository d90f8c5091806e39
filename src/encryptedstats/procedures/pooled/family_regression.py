"""Rounds that regressions on a family of distributions share: the counts of the first round, the
rows of a site, and halved steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.errors import Cure, DataError, ParameterError, SchemaError
from encryptedstats.procedures.pooled.base import PooledRegression, refuse_weights
from encryptedstats.procedures.pooled.covariates import (
    Covariates,
    Spread,
    is_in_cell,
    name_cell,
)
from encryptedstats.procedures.pooled.families import (
    BINOMIAL,
    FAMILIES,
    GAUSSIAN,
    LINKS,
    NEGATIVE,
    POISSON,
    Family,
    Link,
)
from encryptedstats.procedures.pooled.scaling import to_floats, to_integers
from encryptedstats.procedures.pooled.site_rows import PreparedRows, measure_scores, numbers_of
from encryptedstats.procedures.site_procedure import RowLimits, State
from encryptedstats.statistics.factors import factor
from encryptedstats.tables.questions.question import number_column
from encryptedstats.tables.schema.names import position, target_id
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema
from encryptedstats.tables.table import Table

Floats = NDArray[np.float64]
#: Rows whose offsets are further apart differ in weight by a factor of more than 20,000, so that
#: sums could be those of single rows.
WIDEST_OFFSET: Final = 10.0
COUNTS, START, FIT, DONE = "counts", "start", "fit", "done"


class FamilyRegression(PooledRegression):
    """Base class of regressions on a family of distributions with a link.

    The first round counts rows, the second opens what R's starting values lead to, and each after
    it what the current coefficients do.
    """

    family: str
    link: str | None
    exposure: str | None
    max_iterations: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.link not in (None, *FAMILIES[self.family].links):
            raise ParameterError(
                f"link={self.link!r}: the links of family={self.family!r} are "
                f"{', '.join(FAMILIES[self.family].links)}",
                code="unknown-link",
            )
        if self.exposure is not None and (
            self.family not in (POISSON, NEGATIVE) or self.link not in (None, "log")
        ):
            raise ParameterError(
                "exposure: only counts with the link 'log' have one", code="exposure-not-poisson"
            )

    @property
    def at_most(self) -> int:
        """The largest number of rounds: counts, starting values and each iteration."""
        return self.max_iterations + 2

    def start(self, schema: Schema | PublicSchema) -> State:
        self._check_outcome(schema.public())
        width = self._covariates(schema).offset_width(schema) + self._exposure_width(schema)
        if width > WIDEST_OFFSET:
            raise ParameterError(
                f"formula={self.formula!r}: by the bounds of the schema, offsets, and logarithms "
                f"of exposures, differ by up to {width:g}, and rounds take {WIDEST_OFFSET:g}: "
                "wider ones give all weight to single rows",
                code="offset-too-wide",
            )
        return {"stage": COUNTS, "round": 0, "iterations": 0, "converged": False}

    def is_done(self, state: State) -> bool:
        return bool(state["stage"] == DONE)

    def check(
        self, state: State, totals: Sequence[int], schema: PublicSchema, limits: RowLimits
    ) -> None:
        """Refuse levels with few rows, and classes of a binomial outcome with few rows of all or of
        a level over which a number is summed.
        """
        if state["stage"] != COUNTS:
            return
        outcomes = {"complete rows": totals[0]}
        counts = totals[1 + self._n_sums :]
        if self.family == BINOMIAL:
            events = totals[1] >> self.bits
            outcomes |= {"event": events, "no event": totals[0] - events}
            covariates = self._covariates(schema)
            rows = dict(zip(covariates.cells, counts, strict=False))
            cells = self._outcome_cells(covariates)
            for cell, n in zip(cells, totals[len(totals) - len(cells) :], strict=True):
                name = name_cell(cell, schema)
                outcomes |= {f"{name}, event": n, f"{name}, no event": rows[cell] - n}
        self._check_cells(counts, schema, limits, outcomes)

    # -- at a site ---------------------------------------------------------------------------------

    def measure(self, state: State, table: Table) -> list[int]:
        refuse_weights(table)
        covariates = self._covariates(table.public_schema)
        x, offset, complete = covariates.rows(table)
        y, exposure, known = self._outcome(table)
        if state["stage"] == COUNTS:
            inside = complete & known
            x, y, exposure = x[known[complete]], y[inside], exposure[inside]
            self._refuse_outcomes(y, exposure)
            if self._link is LINKS["log"]:
                exposure = exposure * np.exp(offset[known[complete]])
            sums = self._kind.sums(y, exposure)
            counts = covariates.count(table, x, inside, self.bits)
            for cell in self._outcome_cells(covariates):
                counts.append(int(y[is_in_cell(table, cell)[inside]].sum()))
            return [len(x), *to_integers(sums, self.bits), *counts]
        both, kept = complete & known, known[complete]
        z = covariates.standardise(x[kept], _spread(state), table.schema)
        rows = PreparedRows(z, offset[kept] + np.log(exposure[both]), y[both])
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused below
            found = self._measure_rows(state, rows)
        return to_integers(found, self.bits)

    def _measure_rows(self, state: State, rows: PreparedRows) -> list[float]:
        """Return X'WX, the score, the deviance, and whether a mean is impossible or at the
        boundary.
        """
        eta = None if state["stage"] == START else rows.predict(state["beta"])
        return measure_scores(self._kind, self._link, rows, eta).totals

    def _outcome(self, table: Table) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Return outcome and exposure of all rows, and where both are known."""
        public = table.public_schema
        (target,) = self._covariates(public).made.targets
        known = np.ones(len(table), dtype=bool)
        if self.family == BINOMIAL:
            codes = table.class_codes if target == -1 else table.codes_of(target)
            y = np.asarray(codes == 1, dtype=float)
        else:
            y, known = numbers_of(table, target)
        exposure = np.ones(len(table))
        if self.exposure is not None:
            exposure, present = numbers_of(table, position(public, self.exposure))
            known &= present
        return y, exposure, known

    def _refuse_outcomes(self, y: Floats, exposure: Floats) -> None:
        family = self._kind
        if family.needs and not family.is_possible(y).all():
            raise DataError(
                f"the outcome of family={self.family!r} has to be {family.needs}, and this site "
                f"has {float(y.min()):g}",
                code="outcome-out-of-range",
            )
        if not (exposure > 0).all():
            raise DataError(
                "exposure has to be above 0 in every row: leave the others out",
                code="events-without-exposure",
            )

    # -- from sums to the next state ---------------------------------------------------------------

    def _begin(self, after: State, opened: Sequence[int], covariates: Covariates) -> State:
        n, sums = opened[0], to_floats(opened[1 : 1 + self._n_sums], self.bits)
        is_empty = n < 1 or (self.family != GAUSSIAN and sums[0] <= 0)
        if is_empty or (self.family == BINOMIAL and sums[0] >= n):
            raise DataError(
                "the outcome is the same in all rows, or there are none: there is nothing to "
                "explain",
                code="constant-outcome",
            )
        start = 1 + self._n_sums
        spread = covariates.spread(opened[start : start + covariates.n_counts], n, self.bits)
        begun = {"n": n, "sums": sums, "means": spread.means, "sds": spread.sds}
        return {**after, **begun, "stage": START, "beta": [0.0] * covariates.n, "last": None}

    def _end(self, after: State, moved: Mapping[str, Any] | None = None) -> State:
        """Return the state as it is where no round is left, else the one that was moved to."""
        if after["round"] >= self.at_most:
            return {**after, "stage": DONE}
        return {**after, **(moved or {})}

    def _halve(self, after: State) -> State:
        """Halve a step to coefficients without means, as R does."""
        if after.get("last") is None:
            raise DataError(
                "the first step leads to coefficients by which some rows have no mean: choose "
                "another link, such as link='log'",
                code="no-valid-coefficients",
            )
        beta = [(a + b) / 2 for a, b in zip(after["beta"], after["last"], strict=True)]
        return self._end({**after, "beta": beta, "halved": True})

    # -- parts of it -------------------------------------------------------------------------------

    @property
    def _kind(self) -> Family:
        return FAMILIES[self.family]

    @property
    def _link(self) -> Link:
        return LINKS[self.link or self._kind.links[0]]

    def _exposure_width(self, schema: Schema | PublicSchema) -> float:
        """Return how far apart the logarithms of two exposures can be: all are above 0."""
        if self.exposure is None:
            return 0.0
        known = schema.public().at(position(schema, self.exposure))
        return math.log(max(known.high or 0, 1) / max(known.low or 0, 1))

    def _n_counts(self, covariates: Covariates) -> int:
        """Return how many totals the first round has."""
        cells = self._outcome_cells(covariates)
        return 1 + self._n_sums + covariates.n_counts + len(cells)

    def _outcome_cells(self, covariates: Covariates) -> list[tuple[tuple[int, int], ...]]:
        """Return the levels whose events are counted: sums of a number over the rows of a level
        with one outcome follow from the score of a binomial. Where rows with the event start with
        another weight than those without, they also follow from products of columns.
        """
        if self.family != BINOMIAL:
            return []
        return covariates.cells_with_numbers(2 if self._link is LINKS["cloglog"] else 1)

    @property
    def _n_sums(self) -> int:
        one = np.ones(1)
        return len(self._kind.sums(one, one))

    def _check_outcome(self, schema: PublicSchema) -> None:
        """Refuse an outcome of another kind than the family has."""
        (target,) = self._covariates(schema).made.targets
        if self.family == BINOMIAL:
            named = target_id(schema) if target == -1 else f"v{target}"
            found = factor(schema, named)
            if len(found.labels) != 2 or found.missing_bin:
                raise SchemaError(
                    f"the outcome {named!r} has {len(found.labels)} levels"
                    f"{' and may be missing' if found.missing_bin else ''}, and a binomial one has "
                    "two: ",
                    Cure("drop gaps anew", "infer the schema with missing='drop'"),
                    code="not-two-levels",
                )
            return
        for where in (target, *([position(schema, self.exposure)] if self.exposure else [])):
            number_column(schema, where, gaps=True)


def _spread(state: State) -> Spread:
    return Spread(state["means"], state["sds"])
