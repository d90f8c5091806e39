"""``es.plan``: a plan for a circuit or a model over the rows of a schema, before anything is
encrypted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Protocol, runtime_checkable

from encryptedstats.checks import as_count
from encryptedstats.circuits.bounds import ColumnRange
from encryptedstats.circuits.expressions import (
    COLUMN,
    LINEAR,
    Expression,
    column,
    column_names,
    fold,
    in_order,
)
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.passes.digits import digit_bounds
from encryptedstats.circuits.passes.pairs import join_pairs
from encryptedstats.circuits.plan import Plan, plan_stages
from encryptedstats.circuits.program import PACKED, ROWS, SLOTS
from encryptedstats.circuits.search import OPENED_FIRST, Stage, Wish, is_fast, search_for
from encryptedstats.crypto import Owner, Parameters
from encryptedstats.crypto.keys import HasParameters
from encryptedstats.crypto.noise import Scheme
from encryptedstats.errors import ArgumentError, ArgumentTypeError, ParameterError, SchemaError
from encryptedstats.machine import check_workers, paused_collection
from encryptedstats.tables.blocks import BlockShape, block_size
from encryptedstats.tables.columns import (
    column_bound,
    column_ranges,
    digits_among,
    list_question_columns,
    rewrite_in_stored,
    table_columns,
)
from encryptedstats.tables.encodings import MAX_NUMBER_BITS, Column, store_too
from encryptedstats.tables.questions.folds import CLASS_COUNTS, Folds
from encryptedstats.tables.questions.question import MODEL_KIND, Question, prepare_question
from encryptedstats.tables.questions.row_answers import stages_of
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema
from encryptedstats.tables.table import Table

_MOST_DIGITS: Final = 16
_NEEDS_TOTALS: Final = "plan needs a model, expressions that end in .total(), or a list of such"
# Two totals as one are worth a larger t, hence a few more bytes, where there are many and it takes
# much less work.
# pairs have room for this many times the planned rows: results are added up later, and rows
# forgotten
_ROOM: Final = 2
_MANY_TOTALS: Final = 64
_FEW_PAIRS: Final = 16
_LESS_WORK, _MORE_BYTES = 0.8, 1.5


@paused_collection()
def plan(
    circuit: Any,
    schema: Schema | PublicSchema | Table,
    n_rows: int | None = None,
    n_predict: int | None = None,
    *,
    encrypted_prediction: bool = False,
    security: int = 128,
    scheme: Scheme | None = None,
    encodings: Sequence[str] = ("onehot",),
    weight_bound: int | None = None,
    folds: int | None = None,
    by_others: bool = False,
    members: int = 1,
    workers: int | None = None,
    price_per_core_hour: float | None = None,
    keys: Parameters | HasParameters | None = None,
    spot_check: bool = False,
) -> Plan:
    """Parameters and cost of a computation, before anybody pays for it.

    Parameters
    ----------
    circuit : question, procedure, total, or list of them
        What is to be asked: a model, a statistic, a procedure, whose every round is planned, or an
        expression that ends in ``.total()``; with several, keys carry each of them. A
        stage that is planned already is taken as it is.
    schema : Schema, PublicSchema or Table
        Of the rows; or the clear table itself, which is going to be encrypted: it brings its
        schema, number of rows, weights and folds.
    n_rows : int, optional
        Rows of the table. Needed with a schema; with a table only if rows will be appended.
    n_predict : int, optional
        With ``encrypted_prediction``: rows to predict; as many as fill a ciphertext by default.
    encrypted_prediction : bool
        Leave room for ``model.predict_votes``, which predicts with the encrypted model, if the
        model supports it. For a decrypted model, plan its prediction of encrypted rows; ``n_rows``
        is ignored then.
    security : 128, 192 or 256
    scheme : "bgv" or "bfv", optional
        By default BGV, which is faster, and BFV for values that are too large for it.
    encodings, weight_bound, folds
        As the table will be encrypted: see ``owner.encrypt`` and ``schema.table``. By default
        one-hot bins, and of a schema no weights (1) and no folds (0).
    by_others : bool
        Rows come from others, who encrypt with the public keys. That makes more noise, and results
        get some more of it, so that opened results tell nothing else of the rows: see
        SECURITY.md.
    members : int
        For a joint key of this many members (``es.JointKey``), who encrypt with its public keys:
        room for the noise of their keys, and for what hides their secrets in every opening.
        ``by_others`` goes without saying.
    workers : int, optional
        Plan for a cluster of this many workers of one core each: keys leave room to add up the
        results of all shards, and ``plan.cluster`` says how many shards, and what they take.
    price_per_core_hour : float, optional
        What an hour of a core costs, in any currency; needs ``workers``.
    keys : Owner, PublicKeys or Parameters, optional
        Keys that are there already: what it takes with these, which say the security, the scheme
        and the members. Refused where they do not carry it.

    Returns
    -------
    Plan
        Prints as a table; ``Owner(plan)`` makes fitting keys.

    Raises
    ------
    ParameterError
        If nothing carries it: names the binding limit and the nearest wish that can be granted.

    Examples
    --------
    >>> import pandas as pd, encryptedstats as es
    >>> frame = pd.DataFrame({"age": [30, 40, 50], "sick": [0, 1, 1]})
    >>> schema = es.Schema.infer(frame, target="sick")
    >>> sick = (es.column("v0.bin0") * es.column("class1")).total()
    >>> p = es.plan(sick, schema, n_rows=1000)
    >>> p.depth, p.largest, p.security
    (1, 1000, 128)
    >>> es.plan(sick, schema.table(frame)).largest
    3
    """
    rows = _planned_rows(schema, n_rows, weight_bound, folds)
    workers, members = (
        _check_workers(workers, price_per_core_hour),
        as_count(members, "members", "members"),
    )
    if isinstance(keys, Owner):
        keys.check_in_use()
    wanted = _Wanted(
        rows,
        tuple(encodings),
        Wish(
            security,
            scheme,
            not by_others and members == 1,
            members,
            workers,
            price_per_core_hour,
            parameters=keys if keys is None or isinstance(keys, Parameters) else keys.parameters,
            spot_check=spot_check,
        ),
    )
    columns = list_question_columns(rows.schema, wanted.columns())
    rows.check_lanes(wanted.wish)
    if members > 1 and scheme == "bfv":
        raise ParameterError(
            f"members={members}: joint keys are made for 'bgv' only", code="joint-keys-need-bgv"
        )
    notes: tuple[tuple[str, str], ...] = ()
    if encrypted_prediction:
        stages = _prediction_stages(circuit, rows, wanted.columns(), n_predict)
    else:
        if n_predict is not None:
            raise ArgumentError(
                "n_predict= is for encrypted_prediction=True: a decrypted model predicts any "
                "number of rows",
                code="prediction-not-encrypted",
            )
        parts = list(circuit) if isinstance(circuit, (list, tuple)) else [circuit]
        parts, notes = _with_rounds(parts, rows.known)
        own = [part for part in parts if not isinstance(part, Stage)]
        stages = [part for part in parts if isinstance(part, Stage)]
        if own or not stages:
            stages = [*_stages_of_parts(own, rows, columns), *stages]
    if members > 1 and any(callable(stage.outputs) and stage.gives for stage in stages):
        raise ParameterError(
            f"members={members}: a fraction is drawn from rows that one owner encrypted, and not "
            "from those of several: fraction=0",
            code="fraction-of-several-owners",
        )
    _check_stored(stages, columns, encodings)
    # Nothing is predicted from digits, nor from two totals as one.
    made = wanted.plan(stages, with_digits=not any(stage.form == ROWS for stage in stages))
    return replace(made, notes=notes)


@runtime_checkable
class AsksInRounds(Protocol):
    """What asks questions that depend on the answers to earlier ones."""

    def to_plan(self, schema: Schema | PublicSchema) -> Sequence[Question]:
        """Return questions that need at least what every round needs."""

    def notes(self) -> list[tuple[str, str]]:
        """Return what a plan says of the rounds: names and values."""


def _with_rounds(
    parts: Sequence[Any], schema: Schema | PublicSchema
) -> tuple[list[Any], tuple[tuple[str, str], ...]]:
    """Return the parts with the questions of all rounds in place of procedures, and the notes of
    these.
    """
    found: list[Any] = []
    notes: list[tuple[str, str]] = []
    for part in parts:
        if isinstance(part, AsksInRounds):
            found += part.to_plan(schema)
            notes += part.notes()
        else:
            found.append(part)
    return found, tuple(notes)


@dataclass(frozen=True)
class _Wanted:
    """What is planned, whatever is computed: rows, how they are stored, and the other options of a
    plan.
    """

    rows: _PlannedRows
    encodings: tuple[str, ...]
    wish: Wish

    def columns(self, digit_bits: int | None = None) -> list[Column]:
        """Return the columns that will be stored."""
        rows = self.rows
        return table_columns(
            rows.schema,
            self.encodings,
            classes=rows.schema.has_target,
            n_folds=rows.folds,
            digit_bits=digit_bits,
            weighed=rows.weight_bound > 1,
        )

    def plan(self, stages: Sequence[Stage], *, with_digits: bool) -> Plan:
        """Plan with whole numbers if the kernels carry their totals, else with as few digits as
        they carry, if that is cheaper.
        """
        whole: Plan | None = None
        refusal = ParameterError()
        if self.wish.parameters is not None:
            return self._with_keys(stages, self.wish.parameters)
        try:
            whole = self.make_plan(stages)
        except ParameterError as error:
            refusal = error
        if with_digits and (whole is None or not is_fast(whole.parameters)):
            made = self._in_digits(stages)
            if made is not None and (whole is None or made.seconds < whole.seconds):
                return made
        if whole is None:
            raise refusal
        return (self._in_pairs(stages, whole) if with_digits else None) or whole

    def _with_keys(self, stages: Sequence[Stage], parameters: Parameters) -> Plan:
        """Plan for existing keys: two totals as one only if these were made for it and carry it."""
        rows = self.rows
        largest = max(
            column_bound(rows.schema, column, rows.weight_bound)
            for column in self.columns(parameters.digit_bits)
        )
        if largest > parameters.max_value:
            raise ParameterError(
                f"these keys were made for something else: columns hold values up to {largest:,}, "
                "and the keys are exact up to "
                f"±{parameters.max_value:,}. Make new ones",
                code="column-beyond-parameters",
            )
        try:
            made = self.make_plan(stages, parameters.digit_bits, parameters.pair_base)
        except ParameterError:
            if parameters.pair_base is None:
                raise
            made = self.make_plan(stages, parameters.digit_bits)
        return replace(made, parameters=parameters)

    def make_plan(
        self,
        stages: Sequence[Stage],
        digit_bits: int | None = None,
        pair_base: int | None = None,
        room: int = 1,
        accepts: Callable[[Parameters], bool] | None = None,
    ) -> Plan:
        """Plan with numbers stored whole or in digits, and totals single or in pairs."""
        rows, columns = self.rows, self.columns(digit_bits)
        digits = digits_among(columns)
        parts, ranges = self._use_stored(stages, columns, pair_base)
        made = plan_stages(
            parts,
            ranges,
            replace(self.wish, room=room),
            n_columns=len(columns),
            accepts=accepts,
        )
        if digits or pair_base is not None:
            every = column_ranges(
                rows.schema, list_question_columns(rows.schema, columns), rows.weight_bound
            )
            made = replace(
                made,
                parameters=replace(made.parameters, digit_bits=digit_bits, pair_base=pair_base),
                largest=max(stage.largest(every, made.layout.slots) for stage in stages),
                n_totals=sum(
                    len(dict.fromkeys(_fixed_outputs(stage)))
                    for stage in stages
                    if not stage.is_reserved
                ),
            )
        seeded = self.wish.with_secret_key
        return replace(
            made, bytes_up=_stored_bytes(made.parameters, made.layout, len(columns), seeded=seeded)
        )

    def _use_stored(
        self, stages: Sequence[Stage], columns: Sequence[Column], pair_base: int | None
    ) -> tuple[list[Stage], dict[str, ColumnRange]]:
        """Return the stages over the stored columns, in pairs if a base is given, and the ranges
        of these columns.
        """
        rows, parts = self.rows, list(stages)
        if pair_base is not None:
            # Stages that depend on the layout, or have their own bounds, are not paired.
            parts = [
                stage
                if callable(stage.outputs) or stage.bounds is not None
                else replace(stage, outputs=join_pairs(_fixed_outputs(stage), pair_base))
                for stage in stages
            ]
        parts = [_over_stored(stage, rows.schema, columns) for stage in parts]
        return parts, column_ranges(rows.schema, columns, rows.weight_bound)

    def _in_pairs(self, stages: Sequence[Stage], whole: Plan) -> Plan | None:
        """Plan with two totals as one, if that is much cheaper: for many totals of a
        small table.
        """
        base = 1 << (2 * _ROOM * whole.largest).bit_length()
        fits = base * _ROOM * whole.largest < 1 << (MAX_NUMBER_BITS - 1) and is_fast(
            whole.parameters
        )
        if not fits or whole.n_totals < _MANY_TOTALS or self.wish.workers is not None:
            return None
        if self.rows.schema.lanes > 1:
            return None
        most = _MORE_BYTES * whole.bytes_up

        def is_small(parameters: Parameters) -> bool:
            layout = Layout(self.rows.n_rows, parameters.slots, copies=parameters.copies)
            seeded = self.wish.with_secret_key
            return _stored_bytes(parameters, layout, whole.n_columns, seeded=seeded) < most

        def accepts(parameters: Parameters) -> bool:
            return is_fast(parameters) and is_small(parameters)

        # What carries all pairs carries a few of them, and these are quickly tried.
        few, ranges = self._use_stored(list(map(_few_pairs, stages)), self.columns(), base)
        _, found = search_for(few, ranges, replace(self.wish, room=_ROOM))
        if found is None or not is_small(found.parameters):
            return None
        try:
            made = self.make_plan(stages, pair_base=base, room=_ROOM, accepts=accepts)
        except ParameterError:
            return None
        return made if _work(made) < _LESS_WORK * _work(whole) else None

    def _in_digits(self, stages: Sequence[Stage]) -> Plan | None:
        """Plan with the fewest digits that the kernels carry; return None if there are none."""
        used = {name for stage in stages for name in column_names(_fixed_outputs(stage))}
        schema = self.rows.schema
        every = [
            *range(len(schema.variables)),
            *((-1,) if schema.target_number is not None else ()),
        ]
        numbers = [schema.at(j) for j in every if str(Column("number", j)) in used]
        for count in range(2, _MOST_DIGITS + 1 if numbers else 0):
            bits = next(
                b
                for b in range(2, MAX_NUMBER_BITS + 1)
                if all(len(digit_bounds(v.bounds[0], v.bounds[1], b)) <= count for v in numbers)
            )
            try:
                made = self.make_plan(stages, bits)
            except ParameterError:
                continue
            if is_fast(made.parameters):
                return made
        return None


def _work(made: Plan) -> int:
    """Return a measure that tells which of two plans is cheaper, on any machine and however busy it
    is.
    """
    return (made.products + made.key_switches) * len(made.parameters.coefficient_moduli)


def _fixed_outputs(stage: Stage) -> list[Expression]:
    """Return the outputs of a stage, or none if they depend on the layout."""
    return (
        []
        if callable(stage.outputs)
        else [one for one in stage.outputs if isinstance(one, Expression)]
    )


def _few_pairs(stage: Stage) -> Stage:
    """Return the stage with a few of its totals, two neighbours at a time."""
    outputs = _fixed_outputs(stage)
    if callable(stage.outputs) or stage.bounds is not None or stage.form == ROWS:
        return stage
    step = 2 * max(1, len(outputs) // (2 * _FEW_PAIRS))
    few = [one for start in range(0, len(outputs), step) for one in outputs[start : start + 2]]
    return replace(stage, outputs=few)


def _over_stored(stage: Stage, schema: PublicSchema, columns: Sequence[Column]) -> Stage:
    """Rewrite a stage over the columns that are stored."""
    outputs = stage.outputs
    if callable(outputs):
        # A layout is asked for again and again, while parameters are sought and when they are
        # found.
        return replace(
            stage,
            outputs=lru_cache(maxsize=4)(
                lambda layout: rewrite_in_stored(outputs(layout), schema, columns)[0]
            ),
        )
    if stage.form == ROWS:
        return stage  # written over stored columns already
    return replace(stage, outputs=rewrite_in_stored(_fixed_outputs(stage), schema, columns)[0])


def _check_stored(
    stages: Sequence[Stage], columns: Sequence[Column], encodings: Sequence[str]
) -> None:
    """Refuse what is computed from columns that would not be there."""
    every, fixed = set(columns), [_fixed_outputs(stage) for stage in stages if stage.form != ROWS]
    needed = [Column.parse(name) for outputs in fixed for name in column_names(outputs)]
    missing = [column for column in needed if column not in every]
    if missing:
        raise SchemaError(
            f"column {missing[0]} would not be stored with encodings={tuple(encodings)}: ",
            store_too(missing[0], encodings),
            code="column-not-stored",
        )


def _stored_bytes(parameters: Parameters, layout: Layout, n_columns: int, *, seeded: bool) -> int:
    shape = BlockShape(parameters, n_columns, seeded=seeded)
    first, last = layout.rows_of(layout.n_chunks - 1)
    return (layout.n_chunks - 1) * block_size(shape, layout.slots) + block_size(shape, last - first)


def _prediction_stages(
    circuit: Any, rows: _PlannedRows, stored: Sequence[Column], n_predict: int | None
) -> list[Stage]:
    """Return the stages of all models that predict unopened, and the totals that are asked for
    beside them.
    """
    n_predict = None if n_predict is None else as_count(n_predict, "n_predict", "rows")
    stages: list[Stage] = []
    parts = list(circuit) if isinstance(circuit, (list, tuple)) else [circuit]
    for number, part in enumerate(parts):
        found = _part_stages(part, rows, stored, n_predict)
        # Totals of several models have names of their own.
        stages += [stage.rename_packs(str(number)) for stage in found] if len(parts) > 1 else found
    if not any(stage.form == ROWS for stage in stages):
        raise ParameterError(
            f"{circuit!r} has no way to predict without being opened: plan it ",
            OPENED_FIRST,
            code="no-encrypted-prediction",
        )
    return stages


def _part_stages(
    part: Any, rows: _PlannedRows, stored: Sequence[Column], n_predict: int | None
) -> list[Stage]:
    """Return the stages of a question: totals, and answers if it answers for rows."""
    if isinstance(part, Question):
        part = _in_ids(part, rows.known)
        try:
            return stages_of(part, rows.schema, stored, rows.n_rows, n_predict, rows.weight_bound)
        except NotImplementedError as error:
            if part.kind == MODEL_KIND:
                raise ParameterError(
                    error, ". Plan it ", OPENED_FIRST, code="no-encrypted-prediction"
                ) from None
    return _stages_of_parts([part], rows, list_question_columns(rows.schema, stored))


@dataclass(frozen=True)
class _PlannedRows:
    """What is known of the rows before they are encrypted."""

    known: Schema | PublicSchema
    n_rows: int
    weight_bound: int
    folds: int

    @property
    def schema(self) -> PublicSchema:
        """The public schema."""
        return self.known.public()

    def stage(self, totals: Sequence[Expression]) -> Stage:
        """Return the stage of some totals over these rows."""
        lanes = self.schema.lanes
        return Stage(totals, self.n_rows, form=SLOTS if lanes > 1 else PACKED, lanes=lanes)

    def check_lanes(self, wish: Wish) -> None:
        """Refuse lanes where totals are packed: for several owners, receivers or workers."""
        if self.schema.lanes > 1 and (not wish.with_secret_key or wish.workers is not None):
            raise ParameterError(
                f"{self.schema.lanes} variants in each ciphertext are for one owner, who encrypts "
                "and opens, and for one worker: make the table with lanes=1, or split the people "
                "and add the answers",
                code="lanes-not-shared",
            )


def _planned_rows(
    source: Any, n_rows: int | None, weight_bound: int | None, folds: int | None
) -> _PlannedRows:
    """Return schema, rows and layout from a table and options, or a schema and a number of rows."""
    if isinstance(source, Table):
        known = _PlannedRows(source.schema, source.n_rows, source.weight_bound, source.n_folds)
    elif isinstance(source, (Schema, PublicSchema)):
        known = _PlannedRows(source, 0, 1, 0)
    else:
        raise ArgumentTypeError(
            f"plan needs a Schema or a clear Table, not a {type(source).__name__}: schema = "
            "es.Schema.infer(df, target=...), then "
            "es.plan(model, schema.table(df)), or es.plan(model, schema, n_rows=...)",
            code="not-a-schema",
        )
    if n_rows is None and not known.n_rows:
        raise ArgumentTypeError(
            "plan needs n_rows= with a schema; es.plan(model, table) takes it from the table",
            code="row-count-missing",
        )
    rows = known.n_rows if n_rows is None else as_count(n_rows, "n_rows", "rows")
    if rows < known.n_rows:
        raise ArgumentError(
            f"n_rows={n_rows!r}, and the table has {known.n_rows} rows: leave it out, or plan for "
            "more rows",
            code="wrong-number-of-rows",
        )
    bound = known.weight_bound if weight_bound is None else weight_bound
    n_folds = known.folds if folds is None else folds
    return _PlannedRows(
        known.known,
        rows,
        as_count(bound, "weight_bound", "times that a row may count"),
        as_count(n_folds, "folds", "folds", least=0),
    )


def _check_workers(workers: int | None, price_per_core_hour: float | None) -> int | None:
    if workers is None and price_per_core_hour is not None:
        raise ArgumentError(
            "price_per_core_hour= needs workers=: a price needs the number of cores",
            code="price-without-workers",
        )
    if price_per_core_hour is not None and not price_per_core_hour >= 0:
        raise ArgumentError(
            f"price_per_core_hour={price_per_core_hour!r}: a price is at least 0",
            code="negative-price",
        )
    return check_workers(workers)


def _in_ids(question: Question, schema: Schema | PublicSchema) -> Question:
    """Return the question in ids, if the schema allows it; what is opened has been
    asked already.
    """
    if question._get_plain_totals() is None:
        return prepare_question(question, schema)
    question.check(schema.public())
    return question


def _fold_totals(
    asked: Question, schema: PublicSchema, columns: Sequence[Column], found: Sequence[Expression]
) -> list[Expression]:
    """Return the totals of all folds of a model, where they differ from those of all rows by more
    than the fold.

    Keys must carry both. Classifiers start every total from a class, and in a fold from the class
    within the fold, which takes the same parameters. The classes of all rows add up to 1, but
    within a fold they do not: totals that need the sum take larger values and more noise there.
    """
    n_folds = 1 + max((column.fold for column in columns if column.fold is not None), default=-1)
    if not n_folds or asked.kind != MODEL_KIND or CLASS_COUNTS not in asked.shapes(schema):
        return []
    of_one = asked.circuit(schema, columns, 0)
    if set(_without_fold(of_one)) <= set(found) and not _adds_classes(of_one):
        return []
    return Folds(asked, n_folds).circuit(schema, columns)


def _adds_classes(outputs: Sequence[Expression]) -> bool:
    """Check whether several classes of a fold are added up anywhere."""

    def is_of_fold(node: Expression) -> bool:
        return node.op == COLUMN and Column.parse(node.data).fold is not None

    sums = (node for node in in_order(outputs) if node.op == LINEAR)
    return any(sum(map(is_of_fold, node.args)) > 1 for node in sums)


def _without_fold(outputs: Sequence[Expression]) -> list[Expression]:
    """Write the totals of a fold with the columns of all rows."""

    def rule(node: Expression, args: list[Expression]) -> Expression:
        if node.op == COLUMN:
            return column(str(replace(Column.parse(node.data), fold=None)))
        return Expression(node.op, tuple(args), node.data, node.is_total)

    values = fold(outputs, rule)
    return [values[output] for output in outputs]


def _stages_of_parts(
    parts: Sequence[Any], rows: _PlannedRows, columns: Sequence[Column]
) -> list[Stage]:
    """Return a stage for each question, one for all totals, and those of folds, which keys must
    carry.
    """
    stages, reserved, totals = list[Stage](), list[Stage](), list[Expression]()
    for part in parts:
        if isinstance(part, Question):
            asked = _in_ids(part, rows.known)
            found = asked.circuit(rows.schema, columns, weight_bound=rows.weight_bound)
            stages.append(rows.stage(found))
            of_folds = _fold_totals(asked, rows.schema, columns, found)
            if of_folds:
                reserved.append(Stage(of_folds, rows.n_rows, is_reserved=True))
        elif isinstance(part, Expression) and part.is_total:
            totals.append(part)
        else:
            raise ArgumentTypeError(_NEEDS_TOTALS, code="not-a-total")
    if totals:
        stages.append(rows.stage(totals))
    if not stages:
        raise ArgumentTypeError(_NEEDS_TOTALS, code="not-a-total")
    return [*stages, *reserved]
