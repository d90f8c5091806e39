"""Publishing by rules: a result is opened, checked, recorded, and shown as far as the
rules allow.
"""

from __future__ import annotations

import html
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.crypto.dispatch import decrypt_value, publish_value
from encryptedstats.crypto.keys import Owner
from encryptedstats.errors import DisclosureError, DisclosureWarning, ParameterError
from encryptedstats.publishing.audit import (
    Audit,
    ShownNumbers,
    audit_result,
    cells_and_sums,
    shape_with_margins,
)
from encryptedstats.publishing.forms import CellForm
from encryptedstats.publishing.ledger import PUBLISHED, Ledger
from encryptedstats.publishing.opening import AnswerSource, source_of
from encryptedstats.publishing.rules import (
    MIN_COUNT,
    REFUSE,
    SUPPRESSION,
    Finding,
    Rules,
    broken_rules,
    numbers_shown,
    rows_shown,
)
from encryptedstats.publishing.suppression import Suppressed, suppress, with_margins
from encryptedstats.storage.chains import ChainEntry
from encryptedstats.tables.questions.question import in_shapes
from encryptedstats.tables.questions.summaries import labels, variable_name
from encryptedstats.tables.schema.names import CLASS
from encryptedstats.tables.schema.variables import PublicSchema
from encryptedstats.views import frame_text

ALL: Final = "all"
_LEFT_OUT: Final = "nothing can be shown of it"


@dataclass(frozen=True)
class Published:
    """The part of a result that disclosure rules allow to show.

    Attributes
    ----------
    result : Any
        The result; None where rules do not allow it.
    table : DataFrame or None
        For a result that consists of cells: the counts with their sums. Hidden counts are ``NA``.
    findings : tuple of Finding
        The rules that the result breaks, and why something was left out.
    rules : Rules
    title : str
        The question.
    n_rows : int
    weight_bound : int
        The largest weight of a row. Counts are then sums of weights, and the least count of
        ``rules`` is multiplied by it, since one row may count as much.
    """

    result: Any
    table: pd.DataFrame | None
    findings: tuple[Finding, ...]
    rules: Rules
    title: str
    n_rows: int
    weight_bound: int = 1

    @property
    def is_whole(self) -> bool:
        """True if nothing was left out."""
        return self.result is not None

    def summary(self) -> str:
        """Return what may be shown as text, then what was left out and why."""
        parts = [self.title, ""]
        if self.result is not None:
            shown = getattr(self.result, "summary", None)
            parts.append(str(shown() if callable(shown) else self.result))
        elif self.table is not None:
            parts.append(frame_text(with_hidden(self.table)))
        else:
            parts.append(_LEFT_OUT)
        return "\n".join([*parts, "", *self.remarks()])

    def remarks(self) -> list[str]:
        """Return the rules, and what they left out."""
        weights = (
            f"rows have weights up to {self.weight_bound}: the least count of the rules is as "
            "many times larger"
        )
        return [
            f"published by the rules {self.rules.describe()}",
            *([weights] if self.weight_bound > 1 else ()),
            *(f"left out, {finding}" for finding in self.findings),
        ]

    def __repr__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.summary())}</pre>"


def with_hidden(table: pd.DataFrame) -> pd.DataFrame:
    """Counts as readers see them: the word ``hidden`` where one is."""
    return table.astype(object).where(table.notna(), "hidden")


@publish_value.register(object)
def publish(
    value: Any,
    owner: Owner,
    *,
    schema: Any = None,
    rules: str | Rules | None = None,
    ledger: Any = None,
) -> Published:
    """Open a result as far as disclosure rules let others see it: ``owner.publish(file, schema)``.

    Parameters
    ----------
    value : path or fsspec URL
        Of an encrypted result, model or prediction; or the object that was loaded from it.
    owner : Owner
    schema : Schema, or path of its file, optional
        The schema that the rows were encrypted with, as for ``owner.open``.
    rules : str or Rules, optional
        The profile: ``"datashield"``, ``"five"``, ``"ten"``, ``"pcornet"``, or your own
        ``es.Rules(...)``; by default that of the ledger.
    ledger : Ledger, or path or URL of its folder, optional
        Records the publication, and is searched for differences to earlier ones.

    Returns
    -------
    Published
        What may be shown, what was left out, and why.
    """
    book = None if ledger is None else Ledger.of(ledger, owner)
    chosen = Rules.find(rules) if rules is not None else None if book is None else book.rules
    if chosen is None:
        raise ParameterError(
            "rules= names the profile to publish by, such as 'pcornet': the ledger has none",
            code="no-rules",
        )
    source = source_of(value, owner, schema)
    source.answer.schema.public().refuse_lanes("publishing")
    if source.answer.is_prediction:
        return _prediction(source, owner, chosen, book)
    chosen = _count_weights(chosen, source)
    totals = source.open_with(owner)
    made, shown = show_by_rules(source, totals, chosen)
    if book is not None:
        made = _record(made, shown, source, owner, book)
    return made


def _count_weights(rules: Rules, source: AnswerSource) -> Rules:
    """Return the rules for sums of weights: as many rows have at least that count."""
    return replace(rules, min_count=rules.min_count * (source.answer.weight_bound or 1))


def show_by_rules(
    source: AnswerSource, totals: list[int], rules: Rules
) -> tuple[Published, ShownNumbers]:
    """Return what may be shown of opened totals, before earlier results are considered."""
    public = source.answer.schema.public()
    asked = source.answer.question.in_ids(source.answer.schema)
    named = in_shapes(totals, asked.shapes(public))
    bound = source.answer.weight_bound or 1
    findings = broken_rules(asked, named, public, source.answer.n_rows, rules, bound)
    form, rows = rows_shown(asked, public)
    numbers: list[int | None] = [*numbers_shown(form, named, source.answer.n_rows)]
    title = asked.describe(source.answer.schema)
    table, result = None, None
    if isinstance(form, CellForm):
        cells = np.array(numbers, dtype=np.int64).reshape(form.shapes["cells"])
        table, hidden, more = _hidden_table(cells, source, rules)
        findings += more
        rows = cells_and_sums(form)
        numbers = [
            None if out else int(n)
            for n, out in zip(with_margins(cells).flat, hidden.flat, strict=True)
        ]
    if not findings:
        result = asked._present(
            replace(source.answer, question=asked, totals=tuple(totals), extra_totals={})
        )
    elif table is None:
        numbers = [None] * len(numbers)
    made = Published(result, table, tuple(findings), rules, title, source.answer.n_rows, bound)
    shape = shape_with_margins(form) if isinstance(form, CellForm) else ()
    of_cells = isinstance(form, CellForm)
    answer = source.answer
    shown = ShownNumbers(
        asked,
        rows,
        numbers,
        answer.n_rows,
        answer.block_ids,
        of_cells,
        shape=shape,
        weighted=bound > 1,
    )
    return made, shown


def _hidden_table(
    cells: NDArray[np.int64], source: AnswerSource, rules: Rules
) -> tuple[pd.DataFrame | None, NDArray[np.bool_], list[Finding]]:
    """Return the cells with their sums, which are hidden, and why not all can be shown."""
    try:
        found = suppress(cells, rules.min_count, rules.concentration)
    except DisclosureError as error:
        return (
            None,
            np.ones(with_margins(cells).shape, dtype=bool),
            [Finding(MIN_COUNT, str(error))],
        )
    findings = [_describe_hidden(rules)] if found.hidden.any() else []
    return _frame(found, _axes(source)), found.hidden, findings


def _describe_hidden(rules: Rules) -> Finding:
    """Return the same remark for every table of a profile: the reason would narrow counts down."""
    reasons = [f"counts of 1 to {rules.min_count - 1} rows"] if rules.min_count > 1 else []
    if rules.concentration is not None:
        reasons.append("groups of one kind")
    return Finding(
        SUPPRESSION,
        f"{' or '.join(reasons)} are hidden, and with them counts that would reveal them: ask for "
        "fewer bins or levels, or release it with an epsilon",
    )


def _axes(source: AnswerSource) -> list[pd.Index[Any]]:
    """Return the labels of the axes of a question that counts cells."""
    asked = source.answer.question.in_ids(source.answer.schema)
    own: Any = asked
    if hasattr(own, "variables") and all(isinstance(j, int) for j in own.variables):
        positions = list(own.variables)
    else:
        names = own._list_variables() if callable(getattr(own, "_list_variables", None)) else ()
        positions = [_position(source.answer.schema.public(), name) for name in names]
    shape = asked.shapes(source.answer.schema.public())["cells"]
    if len(positions) != len(shape):
        return [pd.Index([*range(size), ALL], dtype=object) for size in shape]
    return [
        pd.Index(
            [*map(str, labels(source.answer.schema, j)), ALL],
            dtype=object,
            name=variable_name(source.answer.schema, j),
        )
        for j in positions
    ]


def _position(schema: PublicSchema, name: str) -> int:
    return -1 if name == CLASS else schema.index(name)


def _frame(found: Suppressed, axes: Sequence[pd.Index[Any]]) -> pd.DataFrame:
    values = pd.array(np.where(found.hidden, 0, found.counts).ravel(), dtype="Int64")
    values[found.hidden.ravel()] = pd.NA
    if len(axes) == 1:
        return pd.DataFrame({"count": values}, index=axes[0])
    index = pd.MultiIndex.from_product(axes)
    return pd.DataFrame({"count": values}, index=index)["count"].unstack(sort=False)


def _prediction(source: AnswerSource, owner: Owner, rules: Rules, book: Ledger | None) -> Published:
    """Return the number of predictions of each class: single predictions reveal single rows."""
    votes = decrypt_value(source.answer, owner.decryptor)
    counted = votes.predict().value_counts().reindex(votes.classes_, fill_value=0)
    findings = [
        Finding(
            "rows", "predictions are of single rows: only how many there are of each class is shown"
        )
    ]
    numbers: list[int | None] = []
    try:
        found = suppress(counted.to_numpy(dtype=np.int64), rules.min_count)
        numbers = [
            None if out else int(n) for n, out in zip(found.counts, found.hidden, strict=True)
        ]
        table: pd.DataFrame | None = _frame(
            found, [pd.Index([*map(str, counted.index), ALL], name="predicted")]
        )
        if found.hidden.any():
            findings.append(_describe_hidden(replace(rules, concentration=None)))
    except DisclosureError as error:
        table = None
        findings.append(Finding(MIN_COUNT, str(error)))
    title = f"Predictions by {source.answer.question.describe(source.answer.schema)}"
    made = Published(None, table, tuple(findings), rules, title, source.answer.n_rows)
    if book is None:
        return made
    asked = source.answer.question.in_ids(source.answer.schema)
    shown = ShownNumbers(
        asked, (), numbers, source.answer.n_rows, source.answer.block_ids, predicted=True
    )
    return _record(made, shown, source, owner, book)


def _record(
    made: Published, shown: ShownNumbers, source: AnswerSource, owner: Owner, book: Ledger
) -> Published:
    """Compare a result with the ledger, and record it.

    Refuses or warns, as the rules say, where it would reveal rows together with earlier results.
    """
    said, public = source.facts(), source.answer.schema.public()
    audit = Audit((), ())

    def content(before: Sequence[ChainEntry]) -> dict[str, Any]:
        nonlocal audit
        audit = audit_result(shown, before, public, said["schema"], made.rules.min_count)
        more = audit.findings
        if more and made.rules.differencing == REFUSE:
            raise DisclosureError(
                f"{made.title} is not published: {'; '.join(finding.text for finding in more)}. "
                "Publish something else, or release "
                "it with an epsilon",
                code="disclosive-result",
            )
        found = [*made.findings, *more]
        return {
            **said,
            "rules": made.rules.to_dict(),
            "findings": _describe_findings(found),
            **shown.facts(),
        }

    book.write(owner, PUBLISHED, content)
    for finding in audit.findings:
        warnings.warn(f"{made.title}: {finding.text}", DisclosureWarning, stacklevel=5)
    if audit.unknown:
        listed = ", ".join(map(str, audit.unknown))
        warnings.warn(
            f"{made.title} could not be compared with the entries {listed} of the ledger, which "
            "are of the same rows "
            "or may be: whether a difference gives rows away is for you to see",
            DisclosureWarning,
            stacklevel=5,
        )
    return replace(made, findings=(*made.findings, *audit.findings))


def _describe_findings(findings: Sequence[Finding]) -> list[str]:
    return [str(finding) for finding in findings]
