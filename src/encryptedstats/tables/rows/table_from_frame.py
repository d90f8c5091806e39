"""Make a clear `Table` of a frame and a schema: check rows, treat missing values, encode columns.

Every refusal names the column, the row by its label, and the value. The steps in order: find the
predictors and the target, drop rows or refuse them where values are missing, encode each variable,
then classes, weights and folds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from encryptedstats.checks import as_integer
from encryptedstats.errors import Cure, SchemaError
from encryptedstats.tables.encodings import GAP
from encryptedstats.tables.rows.frames import (
    Mask,
    as_frame,
    bin_for,
    describe_missing,
    is_polars,
    missing_masks,
    numeric_values,
    polars_series,
    refuse,
    refuse_missing,
    show,
    unbox,
)
from encryptedstats.tables.schema.bins import (
    LARGEST_INTEGER,
    assign_bins,
    fits_fixed_point,
    fixed_point,
)
from encryptedstats.tables.schema.documents import quote
from encryptedstats.tables.schema.variables import Level, Variable, as_level
from encryptedstats.tables.table import (
    Integers,
    Moved,
    Table,
    Unusable,
    warn_of_moved,
    warn_of_unusable,
)
from encryptedstats.words import did_you_mean

if TYPE_CHECKING:
    from encryptedstats.tables.schema.schema import Schema


_NO_TARGET: Final = Cure("column of the target", "the rows have no target: give y=")
_WIDEN: Final = Cure("widen", "with_kind(..., low=, high=) widens them")


@dataclass(frozen=True)
class InputRows:
    """What `Schema.table` was given, as one frame of predictors with target and weights."""

    predictors: pd.DataFrame
    target: pd.Series[Any] | None
    weights: Integers | None

    def keep(self, kept: NDArray[np.bool_]) -> InputRows:
        """Return the rows where `kept` is true."""
        target = None if self.target is None else self.target[kept]
        return InputRows(
            self.predictors[kept], target, None if self.weights is None else self.weights[kept]
        )


@dataclass(frozen=True)
class RowOptions:
    """Weights and folds of the rows of a table; see `Schema.table`.

    `weights` are one for each row, or the name of a column of a file.
    """

    weights: Any = None
    weight_bound: int | None = None
    folds: int | None = None
    fold_seed: int = 0


def encode_table(
    schema: Schema,
    data: object,
    y: object = None,
    options: RowOptions | None = None,
    slots: int = 8192,
) -> Table:
    """Return the table of these rows, without a warning of values that went to another bin.

    See `Schema.table`.
    """
    options = options or RowOptions()
    rows, folds = _split(schema, data, y, options.weights), options.folds
    if not len(rows.predictors):
        raise SchemaError("the table has no rows", code="no-rows")
    n_given = len(rows.predictors)
    moved: list[Moved] = []
    if schema.onehot is None:
        rows = _without_missing(schema, rows)
        encoded = tuple(
            encode_variable(v, unbox(rows.predictors[v.name]), moved) for v in schema.variables
        )
    else:
        encoded = _from_onehot(schema, schema.onehot, rows.predictors)
    class_codes, numbers = None, None
    if rows.target is not None and schema.target_number is not None:
        numbers = _number_values(schema.target_number, rows.target)
    elif rows.target is not None:
        class_codes = _class_codes(schema, rows.target)
    strata = class_codes if numbers is None else np.zeros(len(numbers), dtype=np.uint8)
    fold_codes = None if folds is None else assign_folds(strata, folds, options.fold_seed)
    return Table(
        schema=schema,
        data=encoded,
        class_codes=class_codes,
        target_values=numbers,
        weights=rows.weights,
        fold_codes=fold_codes,
        n_folds=folds or 0,
        weight_bound=_weight_bound(rows.weights, options.weight_bound),
        slots=slots,
        n_dropped=n_given - len(rows.predictors),
        moved=tuple(moved),
    )


def without_gaps(schema: Schema) -> list[str]:
    """Variables in which no value may be missing: without a bin for that, and without another that
    takes such rows.
    """
    return [
        v.name
        for v in schema.variables
        if not v.missing_bin and not (schema.missing == "bin" and v.other is not None)
    ]


def gapless_target(schema: Schema) -> list[str]:
    """Return the target if it is a number that must not be missing; a missing class is refused by
    name.
    """
    number = schema.target_number
    return [] if number is None or number.missing_bin else [number.name]


def rows_to_predict(
    schema: Schema, data: object, needed: Collection[str] | None = None, stacklevel: int = 1
) -> Table:
    """Return the table of all rows of `data`, for predictions that stand beside their rows.

    Rows with a value that the schema does not allow (a number out of bounds, an unknown level, a
    missing value without a bin) are marked, see `Table.leave_blank`, and `SchemaWarning` names
    them. Values of columns that are not `needed` may be any. A target column is not read.
    """
    table = mark_rows_to_predict(schema, data, needed)
    warn_of_unusable(table.unusable, table.n_unpredicted, len(table), stacklevel=stacklevel + 1)
    warn_of_moved(table.moved, stacklevel=stacklevel + 1)
    return table


def with_unread_columns(schema: Schema, frame: pd.DataFrame, used: Collection[int]) -> pd.DataFrame:
    """Add the columns that are missing and that predictions do not read, with any allowed value."""
    if schema.onehot is not None:  # columns of one-hot tables are found by position
        return frame
    for j, variable in enumerate(schema.variables):
        if j not in used and variable.name not in frame.columns:
            number = (variable.low or 0) / 10.0 ** (variable.digits or 0)
            value = variable.levels[0] if variable.levels else number
            frame = frame.assign(**{variable.name: value})
    return frame


def mark_rows_to_predict(
    schema: Schema, data: object, needed: Collection[str] | None = None
) -> Table:
    """Return what `rows_to_predict` returns, without its warnings."""
    rows = _split(schema, data, None, None)
    if not len(rows.predictors):
        raise SchemaError("the table has no rows", code="no-rows")
    moved: list[Moved] = []
    if schema.onehot is not None:
        return Table(schema=schema, data=_from_onehot(schema, schema.onehot, rows.predictors))
    index = rows.predictors.index
    gaps = missing_masks(rows.predictors, without_gaps(schema))
    unusable: list[Unusable] = []
    unpredicted = np.zeros(len(index), dtype=bool)
    encoded = []
    for variable in schema.variables:
        found: list[tuple[Mask, str]] = []
        column = unbox(rows.predictors[variable.name])
        codes = encode_variable(variable, column, moved, found)
        if variable.name in gaps:
            found.append((gaps[variable.name], "it is missing"))
        for mask, reason in found:
            codes[mask] = variable.low or 0  # any value will do
            if needed is None or variable.name in needed:
                unpredicted |= mask
                unusable.append(Unusable.of(variable.name, reason, index, mask))
        encoded.append(codes)
    return Table(
        schema=schema,
        data=tuple(encoded),
        moved=tuple(moved),
        unpredicted=unpredicted if unusable else None,
        unusable=tuple(unusable),
    )


def complete_rows_to_predict(schema: Schema, data: object, stacklevel: int = 1) -> Table:
    """Return the table of all rows of `data`; refuse rows that cannot be predicted.

    For encrypted predictions: a worker cannot leave rows out.
    """
    rows = _split(schema, data, None, None)
    masks = {}
    if schema.onehot is None:
        masks = missing_masks(rows.predictors, without_gaps(schema))
    if masks:
        first, names = (
            rows.predictors.index[min(int(mask.argmax()) for mask in masks.values())],
            list(masks),
        )
        raise SchemaError(
            f"row {show(first)} cannot be predicted: missing values in "
            f"{describe_missing(masks, rows.predictors.index)}, and the "
            "model has no bin for them there. Fill them in, or leave such rows out",
            Cure("leave rows out", f", X.dropna(subset={names!r})"),
            "; or fit a model of a schema with such a bin, ",
            bin_for(names[0]),
            code="missing-without-bin",
        )
    table = encode_table(schema, rows.predictors)
    warn_of_moved(table.moved, stacklevel=stacklevel + 1)
    return table


def _split(schema: Schema, data: object, y: object, weights: ArrayLike | None) -> InputRows:
    names = list(schema.column_names)
    if isinstance(data, np.ndarray):
        width = data.shape[1] if data.ndim == 2 else -1
        last_is_target = schema.target is not None and y is None and width == len(names) + 1
        frame = as_frame(data, [*names, str(schema.target)] if last_is_target else names)
    else:
        frame = as_frame(data)
        if schema.onehot is not None:
            frame = _by_position(frame, names, schema.target)
    absent = [name for name in names if name not in frame.columns]
    if absent:
        raise SchemaError(
            f"the data has no column {quote(absent)}{did_you_mean(absent[0], frame.columns)}; it "
            f"has {quote(list(frame.columns))}",
            code="unknown-column",
        )
    target = _target(schema, frame, y)
    if target is None and weights is not None:
        raise SchemaError(
            "weights multiply the class indicators, but ", _NO_TARGET, code="weights-without-target"
        )
    return InputRows(
        frame[names], target, None if weights is None else as_weights(weights, len(frame))
    )


def _by_position(frame: pd.DataFrame, names: Sequence[str], target: str | None) -> pd.DataFrame:
    """Name the columns of a one-hot frame by position, whatever they are called; the target is
    found by name.
    """
    others = [name for name in frame.columns if name != target]
    if len(others) != len(names):
        raise SchemaError(
            f"the table has {len(others)} one-hot columns, the schema {len(names)}",
            code="wrong-number-of-columns",
        )
    return frame.rename(columns=dict(zip(others, names, strict=True)))


def _target(schema: Schema, frame: pd.DataFrame, y: object) -> pd.Series[Any] | None:
    if y is None:
        return None if schema.target not in frame.columns else unbox(frame[str(schema.target)])
    if schema.target is None:
        raise SchemaError(
            "y was given, but the schema has no classes: infer it with target=, y= or classes=",
            code="target-without-classes",
        )
    return as_target(y, schema.target, frame.index)


def as_target(y: object, name: str, index: pd.Index[Any]) -> pd.Series[Any]:
    """Labels given beside the rows, matched to them by position."""
    if is_polars(y):
        y = polars_series(y)
    values = np.asarray(y)
    if values.ndim != 1:
        if values.ndim != 2 or values.shape[1] != 1:
            raise SchemaError(
                f"y has shape {values.shape}: one label a row is needed", code="wrong-target-shape"
            )
        y = values[:, 0]
    series = pd.Series(y)
    if len(series) != len(index):
        raise SchemaError(
            f"y has {len(series)} labels for {len(index)} rows", code="wrong-number-of-labels"
        )
    return unbox(series.set_axis(index).rename(name))


def as_weights(weights: ArrayLike, n_rows: int) -> Integers:
    """Return integer weights, at least 0, one per row."""
    values = np.asarray(weights)
    if values.shape != (n_rows,):
        raise SchemaError(
            (
                f"weights have shape {values.shape}: one weight for each of the {n_rows} rows is "
                "needed"
            ),
            code="wrong-weights-shape",
        )
    if values.dtype.kind not in "biuf":
        raise SchemaError(
            f"weights are {values.dtype}: integers are needed", code="weights-not-integers"
        )
    bad = ~((values >= 0) & (values <= LARGEST_INTEGER) & (values == np.floor(values)))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise SchemaError(
            f"weights[{row}] is {values[row]}: weights are integers, at least 0 and at most 2**62",
            code="weight-out-of-range",
        )
    return values.astype(np.int64)


def _weight_bound(weights: Integers | None, bound: int | None) -> int:
    """Return the bound of weights: 1 if all are 1, else at least 2, since everybody knows that
    there are weights.
    """
    largest = 1 if weights is None else max(1, int(weights.max()))
    if bound is None:
        least = 1 if weights is None or (weights == 1).all() else 2
        return max(least, 1 << (largest - 1).bit_length())
    wanted = as_integer(bound)
    if wanted is None or wanted < largest:
        raise SchemaError(
            f"the bound of the weights is {bound}, but the largest weight is {largest}: give an "
            f"integer of at least {largest}",
            code="weight-bound-too-small",
        )
    return wanted if weights is None else max(2, wanted)


def _without_missing(schema: Schema, rows: InputRows) -> InputRows:
    index = rows.predictors.index
    masks = missing_masks(rows.predictors, without_gaps(schema))
    if rows.target is not None:
        masks |= missing_masks(rows.target.to_frame(str(schema.target)), gapless_target(schema))
    if not masks:
        return rows
    if schema.missing != "drop":
        refuse_missing(masks, index, made=True)
    kept = ~np.logical_or.reduce(list(masks.values()))
    if not kept.any():
        raise SchemaError(
            f"no rows are left: values are missing in {describe_missing(masks, index)}",
            code="no-complete-rows",
        )
    return rows.keep(kept)


def encode_variable(
    variable: Variable,
    series: pd.Series[Any],
    moved: list[Moved],
    unusable: list[tuple[Mask, str]] | None = None,
) -> NDArray[Any]:
    """Return the bin of each row, as the smallest unsigned integers, or the integers of a number.

    Values that have no bin of their own are added to `moved`. Rows whose value is not allowed are
    added to `unusable`, with the reason; without that they are refused.
    """
    if variable.kind == "number":
        return _number_values(variable, series, unusable)
    if variable.levels:
        codes = _variable_codes(variable, series, moved, unusable)
    else:
        codes = np.full(len(series), -1, dtype=np.int64)
        codes[series.notna().to_numpy(dtype=bool)] = assign_bins(
            numeric_values(series, _text_cure(variable)), variable.edges
        )
    codes[codes < 0] = (
        variable.n_bins - 1
    )  # what is missing; refused before where there is no bin for it
    return codes.astype(np.min_scalar_type(variable.n_bins - 1))


def _variable_codes(
    variable: Variable,
    series: pd.Series[Any],
    moved: list[Moved],
    unusable: list[tuple[Mask, str]] | None,
) -> Integers:
    """Return the position of each value among the levels; -1 where it counts as missing."""
    other = -1 if variable.other is None else variable.levels.index(variable.other)
    positions = {level: position for position, level in enumerate(variable.levels)} | dict.fromkeys(
        variable.rare, other
    )
    codes, unseen = _level_codes(series, positions, "column")
    if unseen.any() and variable.unknown == "error":
        reason = f"is not a level of the schema (levels: {quote(variable.levels)})"
        if unusable is None:
            refuse(series.name, series, unseen, reason, cure=_level_cure(variable))
        unusable.append((unseen, f"{show(series[unseen].iloc[0])} {reason}"))
    elif unseen.any():
        codes[unseen] = other if variable.unknown == "other" else -1
        into = variable.labels[other] if variable.unknown == "other" else "missing"
        moved.append(_note_moved(variable, series, unseen, into, is_gap=False))
    gaps = (codes < 0) & ~unseen
    if gaps.any() and not variable.missing_bin:  # refused before, unless the level other takes them
        codes[gaps] = other
        moved.append(_note_moved(variable, series, gaps, variable.labels[other], is_gap=True))
    return codes


def _note_moved(
    variable: Variable, series: pd.Series[Any], rows: Mask, into: str, *, is_gap: bool
) -> Moved:
    first = int(rows.argmax())
    example = None if is_gap else show(series.iloc[first])
    return Moved(variable.name, into, example, show(series.index[first]), int(rows.sum()))


def _level_cure(variable: Variable) -> Cure:
    return Cure(
        "know a level",
        "correct it; or, before anything is encrypted, give it a level, "
        f"schema.with_bins({variable.name!r}, levels=[...]), or say where unknown ones go, "
        f"schema.with_unknown('other', {variable.name!r})",
        {"name": variable.name},
    )


def _text_cure(variable: Variable) -> Cure:
    if variable.dates:
        return Cure(
            "read dates",
            "correct it, or leave it empty if it is missing; the schema has dates here, so make "
            f"them of text first: df[{variable.name!r}] = pd.to_datetime(df[{variable.name!r}])",
        )
    return Cure(
        "read text",
        f"correct it, or leave it empty if it is missing; if {variable.name!r} is a category, say "
        "so before anything is "
        f"encrypted, schema.with_kind({variable.name!r}, 'categorical', levels=[...])",
        {"name": variable.name},
    )


def _number_values(
    variable: Variable, series: pd.Series[Any], unusable: list[tuple[Mask, str]] | None = None
) -> Integers:
    digits, low, high = variable.digits or 0, variable.low or 0, variable.high or 0
    present = series.notna().to_numpy(dtype=bool)
    values = numeric_values(series, _text_cure(variable))
    outside = ~fits_fixed_point(values, digits)
    numbers = fixed_point(np.where(outside, 0, values), digits)
    outside |= (numbers < low) | (numbers > high)
    if outside.any():
        allowed = f"{low / 10**digits:.{digits}f} to {high / 10**digits:.{digits}f}"
        reason, unboxed = f"is out of bounds ({allowed})", series[present]
        if unusable is None:
            refuse(variable.name, unboxed, outside, reason, cure=_WIDEN)
        mask = present.copy()
        mask[present] = outside
        unusable.append((mask, f"{show(unboxed[outside].iloc[0])} {reason}"))
    # Missing values have been refused before if they are not allowed.
    found = np.full(len(series), GAP, dtype=np.int64)
    found[present] = numbers
    return found


def _level_codes(
    series: pd.Series[Any], positions: Mapping[Level, int], what: str
) -> tuple[Integers, Mask]:
    """Return position of each value, -1 where it is missing or has none; and which rows
    have none.
    """
    try:
        codes, distinct = pd.factorize(series)
    except TypeError as error:
        raise SchemaError(f"{what} {series.name!r}: {error}", code="unhashable-value") from None
    found = np.array([_position(value, positions) for value in distinct] + [-1], dtype=np.int64)
    unseen = (found[codes] < 0) & (codes >= 0)
    return found[codes], unseen  # the code -1 of a missing value picks the last entry, -1


def _position(value: object, positions: Mapping[Level, int]) -> int:
    try:
        return positions.get(as_level(value), -1)
    except SchemaError:
        return -1


def _class_codes(schema: Schema, target: pd.Series[Any]) -> NDArray[Any]:
    missing = target.isna().to_numpy(dtype=bool)
    if missing.any():
        where = describe_missing({str(schema.target): missing}, target.index)
        raise SchemaError(
            f"the class is missing in {where}: leave those rows out, or leave the target out to "
            "predict",
            code="class-missing",
        )
    codes, unseen = _level_codes(
        target, {label: c for c, label in enumerate(schema.classes)}, "target"
    )
    if unseen.any():
        reason = f"is not a class of the schema (classes: {quote(schema.classes)})"
        cure = Cure(
            "know a class",
            "correct it, or name all classes before anything is encrypted, "
            "schema.with_classes([...])",
        )
        refuse(target.name, target, unseen, reason, what="target", cure=cure)
    return codes.astype(np.min_scalar_type(len(schema.classes) - 1))


def _from_onehot(
    schema: Schema, onehot: Sequence[str], frame: pd.DataFrame
) -> tuple[NDArray[Any], ...]:
    masks = missing_masks(frame, list(frame.columns))
    if masks:
        raise SchemaError(
            f"missing values in {describe_missing(masks, frame.index)}: a one-hot table has none",
            code="missing-values-in-onehot",
        )
    matrix = np.column_stack([_indicator(unbox(frame[name])) for name in frame.columns])
    return tuple(
        _onehot_codes(v.name, matrix[:, [name == v.name for name in onehot]], frame)
        for v in schema.variables
    )


def _indicator(series: pd.Series[Any]) -> NDArray[np.bool_]:
    values = numeric_values(series)
    foreign = (values != 0) & (values != 1)
    if foreign.any():
        refuse(series.name, series, foreign, "is neither 0 nor 1")
    return values.astype(bool)


def _onehot_codes(name: str, indicators: NDArray[Any], frame: pd.DataFrame) -> NDArray[Any]:
    ones = pd.Series(indicators.sum(axis=1).astype(np.int64), index=frame.index)
    wrong = (ones != 1).to_numpy(dtype=bool)
    if wrong.any():
        refuse(name, ones, wrong, "ones in its columns: exactly one is needed", what="variable")
    return np.asarray(indicators.argmax(axis=1)).astype(np.min_scalar_type(indicators.shape[1] - 1))


def assign_folds(class_codes: NDArray[Any] | None, folds: int, seed: int) -> NDArray[Any]:
    """Deal rows into folds: rows of a class in random order, so sizes differ by one at most, also
    by class.

    A target that is a number has no classes: all rows are dealt out as one.

    The order comes from the raw bits of PCG64, whose stream is fixed by its definition.
    """
    if class_codes is None:
        raise SchemaError(
            "folds are made of the class indicators, but ", _NO_TARGET, code="folds-without-target"
        )
    if (
        isinstance(folds, bool)
        or not isinstance(folds, (int, np.integer))
        or not 2 <= folds <= len(class_codes)
    ):
        raise SchemaError(
            f"folds={folds!r}: from 2 to the number of rows, {len(class_codes)}",
            code="folds-out-of-range",
        )
    keys = np.random.PCG64(seed).random_raw(len(class_codes))
    dealt = np.lexsort((keys, class_codes))  # by class, at random within a class
    codes = np.empty(len(dealt), dtype=np.min_scalar_type(folds - 1))
    codes[dealt] = np.arange(len(dealt)) % folds
    return codes
