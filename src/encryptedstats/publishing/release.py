"""Releases with noise: totals are opened, noise is added, and only results from noisy totals are
shown.

The cost is computed from the question, spent in the ledger, and stated with the result: epsilon,
delta, rho, whose privacy it is (the unit) and which tables it cannot tell apart (the relation).
"""

from __future__ import annotations

import html
import itertools
import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from encryptedstats.circuits.bounds import Interval
from encryptedstats.circuits.expressions import sum_of
from encryptedstats.crypto.dispatch import release_value
from encryptedstats.crypto.keys import Owner
from encryptedstats.errors import Cure, DataError, ParameterError
from encryptedstats.publishing.accounting import Spent
from encryptedstats.publishing.forms import form_of
from encryptedstats.publishing.ledger import (
    Ledger,
    describe_exact,
    exact_of_same_rows,
    other_ledgers,
)
from encryptedstats.publishing.mechanisms import AUTO, Mechanism, add_noise, calibrate, opendp
from encryptedstats.publishing.opening import AnswerSource, source_of
from encryptedstats.publishing.sensitivity import Number, check_totals, row_interval, sensitivity
from encryptedstats.publishing.tables import release_table
from encryptedstats.publishing.units import ADD, REPLACE, ROW, Unit
from encryptedstats.storage.objects import save_file
from encryptedstats.tables.answers.answer import Answer
from encryptedstats.tables.answers.results import TableResult
from encryptedstats.tables.questions.question import ImpossibleTotalsError, Question
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema

RELEASED_FIELD: Final = "released"  # of the files of released results
#: How a schema is made that learns nothing from rows.
PUBLIC_SCHEMA: Final = Cure(
    "public schema",
    "Schema.infer(..., bounds={name: (low, high)}, classes=[...]) and schema.with_bins(name, "
    "edges=[...]) or levels=[...]",
)
#: What epsilon does not speak of.
NOT_COVERED: Final = (
    "bins, levels, classes and bounds that the schema learned from these rows: give them "
    f"instead, {PUBLIC_SCHEMA}",
    "which question is asked, where that was chosen by looking at these rows",
)
_LARGEST_WEIGHT: Final = Cure("largest weight", "max_weight=...")
_INTERVALS: Final = (
    "standard errors, intervals and p-values know nothing of the noise: they are too good, do not "
    "publish them"
)


@dataclass(frozen=True)
class Privacy:
    """The privacy guarantee of a release.

    Attributes
    ----------
    epsilon, delta : float
    rho : float
        The same in zCDP, which adds up over releases.
    unit, relation : str
        Whose privacy, and which tables cannot be told apart, in words.
    mechanism : str
    scale : float
        Of the noise on a total that one row moves by 1.
    l1, l2 : float
        How far one row can move all totals, each in units of how far it can move that one.
    spent, budget : float or None
        Of the ledger after this release, in epsilon at the budget's delta; None without a ledger.
    not_covered : tuple of str
    """

    epsilon: float
    delta: float
    rho: float
    unit: str
    relation: str
    mechanism: str
    scale: float
    l1: float
    l2: float
    spent: float | None = None
    budget: float | None = None
    not_covered: tuple[str, ...] = NOT_COVERED

    def describe(self) -> list[str]:
        """Return the statements in words, a line each."""
        noise = f"{self.mechanism.capitalize()} noise of scale {self.scale:.4g}"
        lines = [
            f"released with epsilon {self.epsilon:g}, delta {self.delta:g} (rho {self.rho:.4g}): "
            f"{noise} for a total that one row "
            "moves by 1",
            f"unit: {self.unit}; {self.relation}",
        ]
        if self.spent is None:
            lines.append("spent from no ledger: remember this release when you add up releases")
        else:
            limit = "no budget" if self.budget is None else f"of {self.budget:g}"
            lines.append(f"spent so far: epsilon {self.spent:.4g} {limit}")
        return [
            *lines,
            *(f"epsilon does not cover {what}" for what in self.not_covered),
            _INTERVALS,
        ]

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return found


@dataclass(frozen=True)
class Release:
    """A result with noise, and its privacy guarantee.

    Attributes
    ----------
    result : Any
        What the question reads from the noisy totals: a fitted model, a table, a regression.
    privacy : Privacy
    source : EncryptedAnswer
        The noisy totals.
    """

    result: Any
    privacy: Privacy
    source: Answer

    def summary(self) -> str:
        shown = getattr(self.result, "summary", None)
        return "\n".join(
            [str(shown() if callable(shown) else self.result), "", *self.privacy.describe()]
        )

    def to_frame(self) -> pd.DataFrame:
        """Return the result as a table for others, without standard errors, intervals and tests.

        These know nothing of the noise and must not be published.
        """
        return release_table(self.source.question.name, self.result)

    def synthesize(
        self,
        n_rows: int | None = None,
        random_state: int | None = None,
        model: str = "tree",
    ) -> pd.DataFrame:
        """Draw synthetic rows from released pairs: see :func:`publishing.synthetic.synthesize`."""
        from encryptedstats.publishing.synthetic import synthesize  # imports scikit-learn

        return synthesize(self, n_rows, random_state, model)

    def compare_synthetic(self, rows: pd.DataFrame) -> TableResult:
        """Compare synthetic rows with the released counts."""
        from encryptedstats.publishing.synthetic import compare_synthetic

        return compare_synthetic(self, rows)

    def score_synthetic(
        self, rows: pd.DataFrame, real: pd.DataFrame, n_folds: int = 5
    ) -> TableResult:
        """Score a classifier of synthetic rows on the real ones, for the owner alone: see
        :func:`publishing.synthetic.score_synthetic`.
        """
        from encryptedstats.publishing.synthetic import score_synthetic

        return score_synthetic(self, rows, real, n_folds)

    def __repr__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        own = getattr(self.result, "_repr_html_", None)
        body = own() if callable(own) else f"<pre>{html.escape(str(self.result))}</pre>"
        small = "<br>".join(map(html.escape, self.privacy.describe()))
        return f"<div>{body}<small>{small}</small></div>"

    def save(self, url: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write it to a path or fsspec URL, with what can be said of its privacy; ``es.load(url)``
        gives the result.
        """
        file = self.source.to_container()
        fields = {**file.fields, RELEASED_FIELD: self.privacy.to_dict()}
        save_file(replace(file, fields=fields), url, overwrite=overwrite, private=True)


@dataclass(frozen=True)
class ReleasePlan:
    """The noise and the cost of a release, before anything is opened."""

    question: Question
    schema: PublicSchema
    mechanism: Mechanism
    privacy: Privacy
    noisy: Any  # from exact totals and the rows to noisy totals and rows
    rows: Sequence[Number] = ()  # what a row adds to each number that gets noise

    @property
    def spent(self) -> Spent:
        """The privacy cost."""
        return self.mechanism.spent


def plan_release(
    question: Question,
    schema: PublicSchema,
    *,
    epsilon: float,
    delta: float = 1e-6,
    relation: str = REPLACE,
    max_rows: int = 1,
    max_weight: int = 1,
    mechanism: str = AUTO,
) -> ReleasePlan:
    """Plan the release of a question from the question alone: the plan reveals nothing of the rows.

    Parameters
    ----------
    question : Question
    schema : PublicSchema
    epsilon, delta, relation, max_rows, max_weight, mechanism
        See :meth:`encryptedstats.Owner.release`.
    """
    unit = Unit(max_rows, relation)
    form = form_of(question, schema)
    moved = sensitivity(
        form.rows, schema, relation=relation, groups=form.groups, max_weight=max_weight
    )
    chosen = calibrate(moved, epsilon, delta, max_rows, mechanism)
    is_pure = chosen.spent.pure_epsilon is not None
    privacy = Privacy(
        float(epsilon), 0.0 if is_pure else float(delta), chosen.spent.rho, unit.who,
        unit.neighbours, chosen.name, chosen.scale, moved.l1, moved.l2,
    )  # fmt: skip

    def noisy(totals: Sequence[int], n_rows: int) -> tuple[list[int], int]:
        exact = form.numbers(question._name_totals(list(totals), schema), n_rows)
        public = n_rows if relation == REPLACE and max_weight == 1 else None
        found = add_noise(np.array(exact, dtype=object), moved.ranges, chosen)
        named, rows = form.totals(found, public, chosen.deviation * max_weight)
        flat = [int(x) for name in form.shapes for x in np.asarray(named[name], dtype=object).flat]
        return flat, n_rows if relation == REPLACE else rows

    return ReleasePlan(question, schema, chosen, privacy, noisy, form.rows)


@release_value.register(object)
def release(
    value: Any,
    owner: Owner,
    *,
    schema: Any = None,
    epsilon: float,
    delta: float = 1e-6,
    ledger: Any = None,
    relation: str | None = None,
    max_rows: int | None = None,
    max_weight: int | None = None,
    mechanism: str = AUTO,
) -> Release:
    """Open a result with noise that makes it differentially private: ``owner.release(file,
    schema)``.

    Parameters
    ----------
    value : path or fsspec URL
        Of an encrypted result or model; or the object that was loaded from it.
    owner : Owner
    schema : Schema, or path of its file, optional
        The schema that the rows were encrypted with, as for ``owner.open``.
    epsilon, delta : float
        The privacy cost. ``delta=0`` takes Laplace noise; otherwise the smaller of Laplace and
        Gaussian noise.
    ledger : Ledger, or path or URL of its folder, optional
        Its budget is spent before anything is shown.
    relation : "replace" or "add", optional
        One row for another, with a public number of rows; or one row more or less.
    max_rows : int, optional
        How many rows a person has at most, by default 1. ``relation`` and ``max_rows`` are those of
        the ledger where there is one, and others are refused.
    max_weight : int, optional
        The largest weight of a row, by default the bound that the table was encrypted with; less is
        refused.
    mechanism : "laplace" or "gaussian", optional
        By default the one with less noise.

    Returns
    -------
    Release
        What the question reads from the noisy totals, and what can be said of its privacy.
    """
    book = None if ledger is None else Ledger.of(ledger, owner)
    unit = _choose_unit(book, max_rows, relation)
    source = source_of(value, owner, schema)
    source.answer.schema.public().refuse_lanes("publishing")
    if source.answer.is_prediction:
        raise ParameterError(
            "predictions are of single rows: release the model, and predict with what is released",
            code="single-row-predictions",
        )
    asked = source.answer.question.in_ids(source.answer.schema)
    public = source.answer.schema.public()
    most = _choose_weight(source, max_weight)
    plan = plan_release(
        asked,
        public,
        epsilon=epsilon,
        delta=delta,
        max_weight=most,
        mechanism=mechanism,
        **unit.to_dict(),
    )
    if plan.privacy.delta * source.answer.n_rows >= 1:
        raise ParameterError(
            f"delta={delta:g} with {source.answer.n_rows:,} rows: it could give away a row as it "
            "is. "
            "Take far less than 1 divided by the rows",
            code="delta-too-large",
        )
    privacy = plan.privacy
    check_totals(plan.rows, public, source.answer.n_rows, most)
    opendp()  # where it is missing nothing is spent
    _check_known_weights(source, asked, public, most)
    if book is not None:  # spent before anything is shown, or even opened
        n_others = max(book.n_others, len(other_ledgers(book.url, owner)))
        privacy = replace(
            privacy, not_covered=(*_not_covered_by(book, source, n_others), *privacy.not_covered)
        )
        stated = privacy.to_dict()
        kept = ("epsilon", "delta", "mechanism", "scale", "l1", "l2", "not_covered")
        rows = source.facts(with_rows=unit.relation != ADD)
        said = {**rows, "others": n_others, **{name: stated[name] for name in kept}}
        book.spend(owner, plan.spent, said, unit)
        budget = book.budget
        privacy = replace(
            privacy, spent=book.epsilon_spent, budget=None if budget is None else budget.epsilon
        )
    exact = source.open_with(owner)
    _check_counted(asked, exact, public, source.answer.n_rows, most)
    totals, n_rows = plan.noisy(exact, source.answer.n_rows)
    # Without the ids of the blocks: they are hashes of the rows, without noise. The ledger has
    # them.
    return Release(
        _read(asked, totals, source.answer.schema, n_rows),
        privacy,
        Answer(asked, tuple(totals), source.answer.schema, n_rows),
    )


def _read(question: Question, totals: list[int], schema: Schema | PublicSchema, n_rows: int) -> Any:
    try:
        return question.interpret(totals, schema, n_rows)
    except (DataError, ImpossibleTotalsError, ZeroDivisionError) as error:
        raise DataError(
            f"with this noise there is no result: {error}. Its cost is spent all the same; ask "
            "for a larger epsilon, or for a "
            "question of fewer totals",
            code="noise-too-large",
        ) from error


def _choose_unit(book: Ledger | None, max_rows: int | None, relation: str | None) -> Unit:
    """Return the unit of a release: the ledger's where there is one, and no other."""
    own = ROW if book is None else book.unit or ROW
    unit = Unit(
        own.max_rows if max_rows is None else max_rows,
        own.relation if relation is None else relation,
    )
    if book is not None:
        book.check_unit(unit)
    return unit


def _not_covered_by(book: Ledger, source: AnswerSource, n_others: int) -> list[str]:
    """Return what the ledger knows of the same rows that this epsilon does not cover."""
    known = describe_exact(exact_of_same_rows(book.entries(), source.answer.block_ids))
    if n_others:
        known.append(f"costs in other ledgers of this key, of which {n_others} were noticed")
    return known


def _choose_weight(source: AnswerSource, max_weight: int | None) -> int:
    """Return the largest weight that noise is made for: at least the bound that the
    answer brings.
    """
    bound = source.answer.weight_bound
    if max_weight is None and bound is None:
        raise ParameterError(
            "this answer does not say whether its rows have weights (older versions did not write "
            "it): "
            "say how large one may be, 1 where they have none, ",
            _LARGEST_WEIGHT,
            code="weights-unknown",
        )
    if max_weight is not None and (
        isinstance(max_weight, bool)
        or not isinstance(max_weight, (int, np.integer))
        or max_weight < 1
    ):
        raise ParameterError(
            f"max_weight={max_weight!r}: the largest weight of a row, 1 or more",
            code="invalid-max-weight",
        )
    if max_weight is not None and bound is not None and max_weight < bound:
        raise ParameterError(
            f"max_weight={max_weight}: the rows of this table have weights up to {bound}, and "
            "noise "
            "for less would not hide a row. "
            "Leave it out, or give at least the bound, ",
            _LARGEST_WEIGHT,
            code="max-weight-too-small",
        )
    return int(max_weight if max_weight is not None else bound or 1)


def _check_known_weights(
    source: AnswerSource, question: Question, schema: PublicSchema, max_weight: int
) -> None:
    """Refuse rows whose largest weight is unknown, before anything is spent.

    For an encrypted answer the possible size of its counts decides, for a decrypted one the counts.
    """
    if not source.answer.is_encrypted:
        _check_counted(question, source.answer.totals, schema, source.answer.n_rows, max_weight)
        return
    shapes = question.shapes(schema)
    name = _count_name(shapes)
    if max_weight > 1 or name is None:
        return
    before = sum(
        math.prod(shapes[other])
        for other in itertools.takewhile(lambda other: other != name, shapes)
    )
    most = source.answer.ciphertexts.most(before)
    if most is not None and most > source.answer.n_rows:
        raise _weights_error()


def _check_counted(
    question: Question, totals: Sequence[int], schema: PublicSchema, n_rows: int, max_weight: int
) -> None:
    """Refuse them by the counts themselves, where these are none that rows without weights can
    have: where a row counts only if nothing is missing, fewer are possible, and whether all count
    is not for everybody to know.
    """
    name = _count_name(question.shapes(schema))
    if max_weight > 1 or name is None:
        return
    counted, each = (
        int(question._name_totals(list(totals), schema)[name].sum()),
        _row_weight(question, schema, name),
    )
    if not each.low * n_rows <= counted <= each.high * n_rows:
        raise _weights_error()


def _count_name(names: Iterable[str]) -> str | None:
    return next((name for name in ("class_counts", "cells", "rows") if name in names), None)


def _row_weight(question: Question, schema: PublicSchema, name: str) -> Interval:
    """Return how often a row without a weight counts."""
    return row_interval(sum_of(list(form_of(question, schema).written[name].flat)), schema)


def _weights_error() -> ParameterError:
    return ParameterError(
        "the rows of this table have weights: say how large one may be, ",
        _LARGEST_WEIGHT,
        ". Nothing was shown",
        code="max-weight-missing",
    )
