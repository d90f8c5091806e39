"""The owner's schema: what each column is, how it is cut into bins, and what the classes are.

Inferred from data, edited by ``with_...`` methods that return new schemas, kept as JSON, and
applied to rows by `Schema.table`. It stays with the owner; `Schema.public` is all that a worker
gets.
"""

from __future__ import annotations

import html
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from encryptedstats.errors import Cure, SchemaError, SchemaWarning
from encryptedstats.tables.rows.csv_format import CsvFormat
from encryptedstats.tables.rows.frames import (
    as_frame,
    has_dates,
    missing_masks,
    refuse_missing,
    unbox,
)
from encryptedstats.tables.rows.table_from_frame import RowOptions, as_target, encode_table
from encryptedstats.tables.schema.bins import check_bins
from encryptedstats.tables.schema.documents import (
    LEVEL,
    OPTIONAL_TEXT,
    Document,
    Types,
    canonical,
    check_items,
    quote,
)
from encryptedstats.tables.schema.genome import Genome
from encryptedstats.tables.schema.inference import (
    Kept,
    Summary,
    Wishes,
    check_rare,
    column_levels,
    doubtful_columns,
    doubtful_target,
    make_number,
    make_variable,
    summarise,
    with_number_bins,
)
from encryptedstats.tables.schema.variables import (
    BOTH,
    Level,
    PublicSchema,
    PublicVariable,
    Variable,
    as_levels,
    check_tiles,
    check_unknown,
    check_wanted_kind,
    find_variable,
)
from encryptedstats.tables.table import Table, warn_of_moved
from encryptedstats.words import did_you_mean

__all__ = ["PublicSchema", "PublicVariable", "Schema", "Variable"]

MISSING_POLICIES = ("error", "bin", "drop")
_ONEHOT_KINDS = {
    "ord": "ordinal",
    "ordinal": "ordinal",
    "cat": "categorical",
    "categorical": "categorical",
}


@dataclass(frozen=True, repr=False)
class Schema(Document):
    """How the columns of a table become integers, and what the classes are.

    Usually made by `Schema.infer` or `Schema.from_onehot`.

    Parameters
    ----------
    variables
        The predictors, in order.
    target
        Name of the column that holds the class, or a number; or None.
    classes
        Labels of the classes, at least two; none without a target.
    target_number
        How the target is kept, where it is a number: it has no classes then.
    genome
        The variants of a genome table, whose first variables are its tiles.
    missing
        What becomes of missing values in variables without a bin for them: ``"error"``, ``"drop"``
        (the row is left out), or ``"bin"``, which at inference gave a bin to every variable where a
        value was missing, and is an error for the others.
    onehot
        For tables that are one-hot already: the name of the variable of each column.
    id
        Name of a column that tells rows apart and is no predictor. It is never encrypted;
        predictions of a file carry it along.
    csv
        How the CSV file was written that the schema was made from; later files that can be read in
        two ways are read alike.

    Examples
    --------
    >>> import pandas as pd
    >>> df = pd.DataFrame({"age": [31, 45, 27, 62], "smoker": ["no", "yes", "no", "yes"]})
    >>> df["ill"] = [0, 1, 0, 1]
    >>> schema = Schema.infer(df, target="ill", bins=2, kinds={"age": "continuous"})
    >>> schema
    Schema: 2 variables, 4 bins; target 'ill', classes 0, 1; missing values: error
      v0  age     continuous   2 bins: (-inf, 38.0] (38.0, inf)
      v1  smoker  categorical  2 bins: no yes
    >>> schema.table(df).codes("age")
    array([1, 2, 1, 2])
    """

    variables: tuple[Variable, ...]
    target: str | None = None
    classes: tuple[Level, ...] = ()
    missing: str = "error"
    onehot: tuple[str, ...] | None = None
    id: str | None = None
    csv: CsvFormat | None = None
    target_number: Variable | None = None
    genome: Genome | None = None
    # What inference saw, so that with_kind needs no data. Never written anywhere: JSON and pickle
    # leave it out.
    _summaries: Mapping[str, Summary] = field(default_factory=dict, compare=False)

    _FORMAT: ClassVar[str] = "encryptedstats.schema"
    _VERSION: ClassVar[int] = 3
    _FIELDS: ClassVar[Mapping[str, Types]] = {
        "variables": (list,),
        "target": OPTIONAL_TEXT,
        "classes": (list,),
        "missing": (str,),
        "onehot": (list, type(None)),
        "id": OPTIONAL_TEXT,
        "csv": (dict, type(None)),
        "target_number": (dict, type(None)),
        "genome": (dict, type(None)),
    }

    def __post_init__(self) -> None:
        dates = () if self.csv is None else [name for name, _ in self.csv.dates]
        variables = (replace(v, dates=True) if v.name in dates else v for v in self.variables)
        object.__setattr__(self, "variables", tuple(variables))
        object.__setattr__(self, "classes", as_levels(self.classes, "classes"))
        self._check_names()
        if self.target_number is not None:
            self._check_target(self.target_number)
        elif self.target is not None and len(self.classes) < 2:
            raise SchemaError(
                f"target {self.target!r} has {len(self.classes)} classes "
                f"({quote(self.classes)}): at least 2 are needed; ",
                Cure("show all classes", "give classes= when the data does not show all of them"),
            )
        if self.target is None and self.classes:
            raise SchemaError(
                f"classes {quote(self.classes)} without a target", code="classes-without-target"
            )
        _check_missing(self.missing)
        if self.onehot is not None:
            self._check_onehot(self.onehot)
        if self.genome is not None:
            check_tiles(self.genome.public(), self.variables)

    def _check_target(self, number: Variable) -> None:
        if number.kind != "number" or number.name != self.target or self.classes:
            raise SchemaError(
                f"target {self.target!r}: it has classes, or is a number of the same name, "
                f"{number.name!r}",
                code="classes-and-number-target",
            )

    def _check_names(self) -> None:
        if not self.variables:
            raise SchemaError(
                "a schema needs at least one variable: there is no column beside the target",
                code="no-variables",
            )
        names = [variable.name for variable in self.variables]
        twice = sorted(name for name, times in Counter(names).items() if times > 1)
        if twice:
            raise SchemaError(f"variable {twice[0]!r} is given twice", code="duplicate-variables")
        if self.target is not None and self.target in names:
            raise SchemaError(
                f"{self.target!r} is both the target and a variable", code="target-among-variables"
            )
        if self.id is not None and self.id in (*names, self.target):
            raise SchemaError(
                f"{self.id!r} is the id of the rows, and cannot be "
                f"{'the target' if self.id == self.target else 'a variable'} too",
                code="row-id-among-columns",
            )

    def _check_onehot(self, onehot: Sequence[str]) -> None:
        for variable in self.variables:
            n_columns = list(onehot).count(variable.name)
            if not variable.levels or variable.missing_bin or n_columns != len(variable.levels):
                raise SchemaError(
                    f"variable {variable.name!r} of a one-hot table has {n_columns} columns, "
                    "which are its bins; "
                    "it can be ordinal or categorical and nothing else",
                    code="onehot-columns-not-bins",
                )
        foreign = set(onehot) - {variable.name for variable in self.variables}
        if foreign:
            raise SchemaError(
                f"one-hot columns of unknown variables {quote(sorted(foreign))}",
                code="unknown-onehot-variable",
            )

    # -------------------------------------------------------------------------------------------
    # making one

    @classmethod
    def infer(
        cls,
        data: object,
        target: str | int | None = None,
        bins: int = 5,
        kinds: Mapping[str, str] | None = None,
        missing: str = "error",
        classes: Iterable[object] | None = None,
        y: object = None,
        *,
        numbers: str = "bins",
        digits: int | Mapping[str, int] | None = None,
        bounds: Mapping[str, tuple[float, float]] | None = None,
        rare: float | None = None,
        unknown: str = "error",
        id: str | None = None,
    ) -> Schema:
        """Decide kind and bins of every column from data.

        Text, booleans and Categoricals are categorical; an ordered Categorical (or polars Enum) is
        ordinal. Numbers are continuous, except whole numbers: with at most 2 different values they
        are categorical, with at most 10 ordinal. Continuous variables are cut at quantiles, and so
        are ordinal numbers with more than `bins` different values; anything else has one bin a
        level, a Categorical one for each declared category. Every present value counts, also in
        rows where another column is missing.

        Parameters
        ----------
        data
            pandas or polars DataFrame, or a 2-D NumPy array (columns are then called x0, x1, ...).
        target
            Name of the column with the class (its position for an array); None for no target.
        bins
            Bins of a variable that is cut at quantiles.
        kinds
            Kinds that override the rule, by column name.
        missing
            ``"error"``, ``"bin"`` or ``"drop"``, see `Schema`.
        classes
            Labels of the classes in their order, when the data may not show all of them. Without
            `target`, the target is called ``"target"`` and is given to `table` as ``y``.
        y
            Labels beside the data, instead of a target column.
        numbers
            ``"bins"`` cuts numbers as above. ``"keep"`` keeps them as fixed-point numbers, the
            target too: for regressions, means and variances. ``"both"`` keeps them and cuts them
            too: a regression takes the number and a forest the bins, from one encrypted table.
            Whole numbers with at most 2 different values, 0 and 1 for instance, are categories all
            the same (and a target of such has classes). `kinds` override it, by column:
            ``kinds={"age": "both"}``.
        digits
            Decimal digits of numbers that are kept, of all or by column name; by default as many as
            the data shows, 4 at most.
        bounds
            Least and greatest value of numbers that are kept, by column name; by default the powers
            of two (or 0) around what the data shows, in units of the last digit. Bounds are public.
        rare
            Levels of categories with fewer rows than this (or a smaller share of them, below 1)
            have no bin of their own: they count as the level ``"other"``, which is added where
            there is none.
        unknown
            What becomes of levels of categories that the data does not show: ``"error"``,
            ``"other"`` (every category gets such a level) or ``"missing"`` (every category gets a
            bin for missing values). See `with_unknown`.
        id
            Name of a column that tells the rows apart and is no predictor.

        Warns
        -----
        SchemaWarning
            For columns that are probably not meant as predictors: identifiers, columns without a
            name, constant ones, columns that say the same as another or as the target, numbers with
            a few words among them.
        """
        kept = Kept(numbers, digits, bounds)
        wishes = Wishes(bins, kinds, missing, classes, kept, rare, unknown, id)
        schema, doubts = cls._infer(data, wishes, target, y)
        for doubt in doubts:
            warnings.warn(doubt, stacklevel=2)
        return schema

    @classmethod
    def _infer(
        cls, data: object, wishes: Wishes, target: str | int | None = None, y: object = None
    ) -> tuple[Schema, list[SchemaWarning]]:
        """Infer without warning; return the warnings instead."""
        bins, missing, classes, id = wishes.bins, wishes.missing, wishes.classes, wishes.id
        frame = as_frame(data)
        if not len(frame):
            raise SchemaError("the data has no rows to infer a schema from", code="no-rows")
        check_bins(bins)
        _check_missing(missing)
        check_rare(wishes.rare)
        check_unknown(wishes.unknown)
        if id is not None and id not in frame.columns:
            raise SchemaError(
                f"the data has no column {id!r} for the id of the rows"
                f"{did_you_mean(id, frame.columns)}; it has {quote(list(frame.columns))}",
                code="unknown-column",
            )
        name = _target_name(frame, target, array=isinstance(data, np.ndarray))
        if name is None and (y is not None or classes is not None):
            name = str(getattr(y, "name", None) or "target")
        names = [
            label for label in frame.columns if (label != name or target is None) and label != id
        ]
        labels = _labels(frame, name, y, has_target=target is not None)
        wanted = _check_kinds(wishes.kinds, names)
        kept = wishes.kept
        summaries = {
            label: summarise(
                unbox(frame[label]),
                bins,
                wishes.rare,
                wishes.weights,
                dates=has_dates(frame[label]),
            )
            for label in names
        }
        if labels is not None and classes is None and kept.keeps:
            summaries[str(name)] = summarise(labels, bins)
        kept.check([*names, str(name)], summaries, wanted)
        number = (
            summaries.get(str(name)) if kept.is_number(summaries.get(str(name)), None) else None
        )
        masks = missing_masks(frame, names)
        if number is not None and labels is not None:
            masks |= missing_masks(labels.to_frame(number.name), [number.name])
        if masks and missing == "error":
            refuse_missing(masks, frame.index, made=False)
        variables = (
            replace(
                _make_inferred(summaries[label], wanted.get(label), missing, kept),
                dates=has_dates(frame[label]),
            )
            for label in names
        )
        schema = cls(
            variables=tuple(
                v.with_unknown(wishes.unknown) if v.kind == "categorical" else v for v in variables
            ),
            target=name,
            classes=() if number is not None else _classes(labels, classes),
            missing=missing,
            id=id,
            target_number=None
            if number is None
            else _make_inferred(number, "number", missing, kept),
            _summaries=summaries,
        )
        doubts = [summaries[label].doubt for label in names if label not in wanted]
        doubts.append(kept.warn_of_rounding(schema.numbers, summaries))
        if labels is not None and classes is None and number is None:
            doubts.append(doubtful_target(labels, schema.n_classes))
        doubts += doubtful_columns(frame, names, labels) if wishes.compare else []
        return schema, [doubt for doubt in doubts if doubt is not None]

    @classmethod
    def from_onehot(
        cls,
        names: Sequence[str],
        kinds: Mapping[str, str],
        classes: Iterable[object] = (0, 1),
        target: str = "target",
    ) -> Schema:
        """Schema of a table that is one-hot already.

        Parameters
        ----------
        names
            Name of the variable that each column belongs to (R's ``Xvars``); its columns are its
            bins, in order.
        kinds
            ``"ord"`` (``"ordinal"``) or ``"cat"`` (``"categorical"``) for each variable (R's
            ``Xtype``).
        classes, target
            Labels and name of the class; `table` takes them as ``y`` or as a column of that name.

        Examples
        --------
        >>> schema = Schema.from_onehot(["age", "age", "sex", "sex"], {"age": "ord", "sex": "cat"})
        >>> schema.table(np.array([[1, 0, 0, 1], [0, 1, 1, 0]]), y=[0, 1]).codes("age")
        array([1, 2])
        """
        columns = tuple(str(name) for name in names)
        order = list(dict.fromkeys(columns))
        if set(order) != set(kinds):
            raise SchemaError(
                f"kinds are given for {quote(sorted(kinds))}, the columns are of "
                f"{quote(sorted(order))}",
                code="kinds-not-of-columns",
            )
        wrong = [name for name in order if kinds[name] not in _ONEHOT_KINDS]
        if wrong:
            raise SchemaError(
                f"variable {wrong[0]!r}: kind {kinds[wrong[0]]!r} is not one of "
                f"{quote(_ONEHOT_KINDS)}",
                code="wrong-onehot-kind",
            )
        variables = [
            Variable(
                name, _ONEHOT_KINDS[kinds[name]], levels=tuple(range(1, columns.count(name) + 1))
            )
            for name in order
        ]
        return cls(tuple(variables), target, as_levels(classes, "classes"), onehot=columns)

    # -------------------------------------------------------------------------------------------
    # editing

    def with_kind(
        self,
        name: str | int,
        kind: str,
        *,
        digits: int | None = None,
        low: float | None = None,
        high: float | None = None,
        levels: Iterable[object] | None = None,
    ) -> Schema:
        """Change the kind of one variable.

        Right after `infer` every change works, from what inference saw. A schema that was loaded
        has seen no data: give `levels`, or `digits`, `low` and `high`, where the present bins do
        not do for the new kind. Bins that were chosen by hand (`with_bins`, `levels`) are kept by a
        new kind that can have them.

        Parameters
        ----------
        name
            The variable; or the target, which becomes a number (`with_classes` gives it classes
            again).
        kind
            ``"continuous"``, ``"ordinal"``, ``"categorical"``, ``"number"``, or ``"both"``: a
            number that has bins as well.
        digits
            For a number: decimal digits to keep; by default as many as the data shows, 4 at most.
        low, high
            For a number: bounds in real units; by default powers of two (or 0) around what was
            seen, since they are public.
        levels
            For ordinal and categorical: one bin for each, in this order.
        """
        if self.target is not None and name == self.target:
            return self._with_target(kind, digits, low, high)
        old = self[name]
        check_wanted_kind(kind, f"variable {old.name!r}")
        summary = self._summaries.get(old.name)
        if kind in ("number", BOTH):
            if levels is not None:
                raise SchemaError(
                    f"variable {old.name!r}: a number has no levels", code="number-with-levels"
                )
            if old.kind == "number" and summary is None and (digits, low, high) == (None,) * 3:
                made = replace(old, edges=(), asked_bins=None)
            else:
                made = make_number(old.name, summary, digits, low, high)
            if kind == BOTH and old.edges:
                made = replace(made, edges=old.edges, asked_bins=old.asked_bins)
            elif kind == BOTH:
                made = with_number_bins(made, summary)
            return self._with(replace(made, missing_bin=old.missing_bin))
        if not (digits is None and low is None and high is None):
            raise SchemaError(
                f"variable {old.name!r}: digits, low and high are for kind 'number', not {kind!r}",
                code="range-without-number",
            )
        if levels is not None:
            chosen = Variable(
                old.name,
                kind,
                levels=as_levels(levels, f"variable {old.name!r}"),
                missing_bin=old.missing_bin,
            )
            return self._with_own(_like(old, chosen))
        if summary is not None:
            return self._with(_like(old, make_variable(summary, kind, missing_bin=old.missing_bin)))
        return self._with(_same_bins(old, kind))

    def _with_target(
        self, kind: str, digits: int | None, low: float | None, high: float | None
    ) -> Schema:
        if kind != "number":
            raise SchemaError(
                f"target {self.target!r} is a number or has classes, not {kind!r}: "
                "with_classes(...) names them",
                code="wrong-target-kind",
            )
        made = make_number(
            str(self.target), self._summaries.get(str(self.target)), digits, low, high
        )
        return replace(self, classes=(), target_number=made)

    def with_bins(
        self,
        name: str | int,
        *,
        edges: Sequence[float] | None = None,
        levels: Iterable[object] | None = None,
    ) -> Schema:
        """Set cut points or levels of one variable, for instance to share with other owners.

        The kind stays where it can: edges make a categorical variable or a number continuous,
        levels make a continuous variable or a number ordinal. A number that has bins as well stays
        one, with these edges.
        """
        old = self[name]
        if (edges is None) == (levels is None):
            raise SchemaError(
                f"variable {old.name!r}: give either edges= or levels=", code="edges-and-levels"
            )
        if edges is not None:
            if old.kind == "number" and old.n_bins:
                return self._with_own(replace(old, edges=tuple(edges), asked_bins=None))
            kind = "ordinal" if old.kind == "ordinal" else "continuous"
            return self._with_own(
                Variable(old.name, kind, edges=tuple(edges), missing_bin=old.missing_bin)
            )
        return self.with_kind(
            name, "categorical" if old.kind == "categorical" else "ordinal", levels=levels
        )

    def with_quantiles(self, name: str | int, counts: Iterable[int], bins: int = 5) -> Schema:
        """Cut one variable at quantiles, by how many rows there are in each bin that it has now.

        For several owners who agree on cut points without showing rows: a schema with a fine grid
        that everybody knows, counts over it of which all see only the sum, and from it a schema
        with cut points where the rows of all together have their quantiles, as near as the grid
        allows.

        >>> import pandas as pd
        >>> fine = Schema.infer(pd.DataFrame({"age": [20.0, 80.0]}), kinds={"age": "continuous"})
        >>> fine = fine.with_bins("age", edges=[30, 40, 50, 60, 70])
        >>> fine.with_quantiles("age", [10, 10, 50, 10, 10, 10], bins=2)["age"].edges
        (50.0,)
        """
        old, found = self[name], [int(count) for count in counts]
        if not old.edges or len(found) != len(old.edges) + 1 + old.missing_bin or min(found) < 0:
            raise SchemaError(
                f"variable {old.name!r} has {old.n_bins} bins, cut at {len(old.edges or ())} "
                f"points, and {len(found)} counts are "
                "given: one is needed for each bin of a variable that is cut, in their order",
                code="wrong-number-of-counts",
            )
        present = np.cumsum(found[: len(old.edges) + 1])
        if not present[-1] or bins < 2:
            raise SchemaError(
                f"variable {old.name!r}: quantiles take rows to count, and two bins or more",
                code="too-few-for-quantiles",
            )
        # The first point that has at least so large a share of the rows below it; the last bin is
        # open.
        places = np.searchsorted(present, [present[-1] * k / bins for k in range(1, bins)])
        edges = [
            old.edges[place] for place in sorted(set(places.tolist())) if place < len(old.edges)
        ]
        return self.with_bins(name, edges=edges)

    def with_missing_bin(self, name: str | int, present: bool = True) -> Schema:
        """Add, or remove, a bin for missing values in one variable."""
        return self._with(replace(self[name], missing_bin=present))

    def with_unknown(
        self, unknown: str, name: str | int | None = None, *, level: object = None
    ) -> Schema:
        """Set the policy for levels that the schema does not know, of one variable or of all
        categories.

        Parameters
        ----------
        unknown
            ``"error"``: rows with such a level are refused, by name. ``"other"``: they count as
            `level`. ``"missing"``: they count as missing, in a bin for that. A level or bin that is
            not there yet is added, so decide before anything is encrypted.
        name
            The variable; all categorical ones by default.
        level
            For ``"other"``, which level that is: one of the variable's own, or a new one;
            ``"other"`` by default.
        """
        if name is not None:
            return self._with(self[name].with_unknown(unknown, level))
        check_unknown(unknown)
        changed = (
            v.with_unknown(unknown, level) if v.kind == "categorical" else v for v in self.variables
        )
        return replace(self, variables=tuple(changed))

    def with_rare(
        self, name: str | int, levels: Iterable[object], *, level: object = None
    ) -> Schema:
        """Count some levels of a variable as another one, `level`: by default ``"other"``."""
        return self._with(self[name].with_rare(levels, level))

    def with_classes(self, classes: Iterable[object]) -> Schema:
        """Set the classes, in this order, also such as the data did not show."""
        return replace(self, classes=as_levels(classes, "classes"), target_number=None)

    def with_id(self, name: str | None) -> Schema:
        """Name a column that tells rows apart: no predictor, never encrypted, carried along by
        predictions of a file.
        """
        variables = tuple(variable for variable in self.variables if variable.name != name)
        return replace(self, variables=variables, id=name)

    def _with(self, variable: Variable) -> Schema:
        variables = tuple(
            replace(variable, dates=old.dates) if old.name == variable.name else old
            for old in self.variables
        )
        return replace(self, variables=variables)

    def _with_own(self, variable: Variable) -> Schema:
        """Set bins that the owner chose, and forget what inference saw, so that a new kind keeps
        these bins.
        """
        others = {
            name: summary for name, summary in self._summaries.items() if name != variable.name
        }
        return replace(self._with(variable), _summaries=others)

    # -------------------------------------------------------------------------------------------
    # asking

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the variables, in order."""
        return tuple(variable.name for variable in self.variables)

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the predictor columns that `table` needs: a variable each, or the bins of a
        one-hot table.
        """
        if self.onehot is None:
            return self.names
        seen: dict[str, int] = {}
        columns = []
        for name in self.onehot:
            seen[name] = seen.get(name, 0) + 1
            columns.append(f"{name}.{seen[name]}")
        return tuple(columns)

    @property
    def n_classes(self) -> int:
        """Number of classes; 0 without a target."""
        return len(self.classes)

    @property
    def numbers(self) -> tuple[Variable, ...]:
        """The variables that are kept as numbers, and the target if it is."""
        target = () if self.target_number is None else (self.target_number,)
        return (*(variable for variable in self.variables if variable.kind == "number"), *target)

    def index(self, variable: str | int) -> int:
        """Return position of a variable, given by its name, its opaque id or its position."""
        return find_variable(variable, self._positions, len(self.variables))

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {variable.name: position for position, variable in enumerate(self.variables)}

    def __getitem__(self, variable: str | int) -> Variable:
        return self.variables[self.index(variable)]

    def public(self) -> PublicSchema:
        """Return what a worker may know: opaque ids, kinds, bin counts, integer bounds and the
        number of classes.
        """
        return self._public

    def same_bins(self, other: Schema) -> bool:
        """Return whether rows of both mean the same. Policies for unknown levels may differ."""
        own, others = (
            (one.strict_variables, one.classes, one.target_number, one.genome)
            for one in (self, other)
        )
        return own == others

    @property
    def strict_variables(self) -> tuple[Variable, ...]:
        """The variables without their policies for unknown levels: what the bins mean."""
        return tuple(variable.strict for variable in self.variables)

    def digest_json(self) -> bytes:
        """Return what a keyed digest of the schema is made of: all that gives results labels, and
        no policy that may change.

        In version 1 this was the whole document. It still is for a schema that needs nothing newer,
        so that digests stay valid.
        """
        fields = self._fields()
        for name in ("id", "csv", *(() if self.target_number else ("target_number",))):
            del fields[name]
        for variable in fields["variables"]:
            del variable["unknown"]
            variable.pop("dates", None)
            for name in [name for name in ("other", "rare") if not variable["rare"]]:
                del variable[name]
        return canonical({"format": self._FORMAT, "version": 1, **fields})

    @cached_property
    def _public(self) -> PublicSchema:
        target = None if self.target_number is None else self.target_number.public(-1)
        return PublicSchema(
            tuple(v.public(j) for j, v in enumerate(self.variables)),
            self.n_classes,
            target,
            None if self.genome is None else self.genome.public(),
        )

    # -------------------------------------------------------------------------------------------
    # applying it

    def table(
        self,
        data: object,
        y: object = None,
        *,
        weights: ArrayLike | None = None,
        weight_bound: int | None = None,
        folds: int | None = None,
        fold_seed: int = 0,
        slots: int = 8192,
    ) -> Table:
        """Return the rows of `data` as integer columns.

        Parameters
        ----------
        data
            pandas or polars DataFrame; columns are found by name and columns that the schema does
            not know are ignored. Or a 2-D NumPy array with the columns in the order of the schema,
            and the target last or in `y`. For a schema from `from_onehot`: the 0/1 matrix, columns
            by position.
        y
            Class of each row, matched by position; takes precedence over a target column. Rows to
            predict have neither.
        weights
            Integer weight, at least 0, of each row; multiplies its class indicator.
        weight_bound
            Public bound of the weights; by default the least power of two that is not below any
            weight.
        folds
            Number of cross-validation folds to deal the rows into, stratified by class.
        fold_seed
            Seed of the folds: the same rows and seed give the same folds everywhere.
        slots
            Slots of a chunk, a power of two: see `Layout`.

        Raises
        ------
        SchemaError
            Naming the column, the row label and the value: for a column that is absent, a level or
            class that is not in the schema, text where a number belongs, infinite values, numbers
            out of bounds, missing values.

        Warns
        -----
        SchemaWarning
            Where rows went to the level for others, or to the bin for missing values, because the
            schema says so: which, how many.
        """
        options = RowOptions(weights, weight_bound, folds, fold_seed)
        table = encode_table(self, data, y, options, slots)
        warn_of_moved(table.moved, stacklevel=2)
        return table

    # ------------------------------------------------------------------------------------- showi
    # and storing

    def __repr__(self) -> str:
        width = max(map(len, self.names))
        lines = [f"Schema: {self._headline()}"]
        for position, variable in enumerate(self.variables):
            note = f"  [{variable.note}]" if variable.note else ""
            head = f"  v{position:<{len(str(len(self.variables) - 1))}}  {variable.name:<{width}}"
            lines.append(f"{head}  {variable.kind:<11}  {variable.describe()}{note}")
        return "\n".join(lines)

    def _headline(self) -> str:
        n_bins = sum(variable.n_bins for variable in self.variables)
        what = (
            f"classes {quote(self.classes)}"
            if self.target_number is None
            else self.target_number.describe()
        )
        target = f"target {self.target!r}, {what}" if self.target is not None else "no target"
        plural = "s" if len(self.variables) > 1 else ""
        named = f"; id {self.id!r}" if self.id is not None else ""
        return (
            f"{len(self.variables)} variable{plural}, {n_bins} bins; {target}; missing values: "
            f"{self.missing}{named}"
        )

    def _repr_html_(self) -> str:
        rows = [("", "variable", "kind", "bins", "note")]
        rows += [
            (f"v{j}", v.name, v.kind, v.describe(), v.note) for j, v in enumerate(self.variables)
        ]
        cells = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
        body = "".join(f"<tr>{row}</tr>" for row in cells)
        return f"<table><caption>{html.escape(self._headline())}</caption>{body}</table>"

    def __reduce__(self) -> tuple[Callable[[str], Schema], tuple[str]]:
        return Schema.from_json, (self.to_json(),)

    def _fields(self) -> dict[str, Any]:
        return {
            "variables": [variable._fields() for variable in self.variables],
            "target": self.target,
            "classes": list(self.classes),
            "missing": self.missing,
            "onehot": None if self.onehot is None else list(self.onehot),
            "id": self.id,
            "csv": None if self.csv is None else self.csv.to_fields(),
            "target_number": None if self.target_number is None else self.target_number._fields(),
            **({} if self.genome is None else {"genome": self.genome._fields()}),
        }

    @classmethod
    def _upgrade(cls, value: Any) -> Any:
        value = {"genome": None, **value}
        if value["version"] > 2:
            return value
        value = {"target_number": None, **value}
        if value["version"] > 1:
            return value
        variables = value.get("variables")
        policy: dict[str, Any] = {"other": None, "rare": [], "unknown": "error"}
        if isinstance(variables, list):
            variables = [
                {**policy, **item} if isinstance(item, dict) else item for item in variables
            ]
            value = {**value, "variables": variables}
        return {"id": None, "csv": None, **value}

    @classmethod
    def _from_fields(cls, fields: dict[str, Any]) -> Schema:
        items, number = enumerate(fields["variables"]), fields["target_number"]
        return cls(
            variables=tuple(
                Variable._from_fields(item, f"variables[{position}]") for position, item in items
            ),
            target=fields["target"],
            classes=check_items(fields["classes"], LEVEL, "classes"),
            missing=fields["missing"],
            onehot=None
            if fields["onehot"] is None
            else check_items(fields["onehot"], (str,), "onehot"),
            id=fields["id"],
            csv=None
            if fields["csv"] is None
            else CsvFormat.from_fields(fields["csv"], "field 'csv'"),
            target_number=None
            if number is None
            else Variable._from_fields(number, "field 'target_number'"),
            genome=None if fields["genome"] is None else Genome._from_fields(fields["genome"]),
        )


def _check_missing(missing: str) -> None:
    if missing not in MISSING_POLICIES:
        raise SchemaError(
            f"missing={missing!r}: one of {quote(MISSING_POLICIES)} is needed",
            code="unknown-missing-policy",
        )


def _target_name(frame: pd.DataFrame, target: str | int | None, *, array: bool) -> str | None:
    if target is None:
        return None
    if array and isinstance(target, (int, np.integer)):
        if not -len(frame.columns) <= target < len(frame.columns):
            raise SchemaError(
                f"target={target}: the array has {len(frame.columns)} columns",
                code="position-out-of-range",
            )
        return str(frame.columns[int(target)])
    return str(target)


def _labels(
    frame: pd.DataFrame, name: str | None, y: object, *, has_target: bool
) -> pd.Series[Any] | None:
    """Return the labels that classes are read from: `y`, or the target column."""
    if name is None:
        return None
    if y is not None:
        return as_target(y, name, frame.index)
    if not has_target:
        return None
    if name not in frame.columns:
        raise SchemaError(
            f"the data has no target column {name!r}{did_you_mean(name, frame.columns)}; it has "
            f"{quote(list(frame.columns))}",
            code="unknown-column",
        )
    return unbox(frame[name])


def _classes(labels: pd.Series[Any] | None, classes: Iterable[object] | None) -> tuple[Level, ...]:
    if classes is not None:
        return as_levels(classes, "classes")
    if labels is None:
        return ()
    n_distinct, levels = column_levels(labels, f"target {labels.name!r}")
    if n_distinct and not levels:
        raise SchemaError(
            f"target {labels.name!r} has {n_distinct} different values: these are not classes",
            code="too-many-classes",
        )
    return levels


def _check_kinds(kinds: Mapping[str, str] | None, names: Sequence[str]) -> dict[str, str]:
    wanted = {str(name): kind for name, kind in (kinds or {}).items()}
    unknown = [name for name in wanted if name not in names]
    if unknown:
        raise SchemaError(
            Cure("kinds of columns", "kinds names"),
            f" column {unknown[0]!r}{did_you_mean(unknown[0], names)}; the columns are "
            f"{quote(names)}",
            code="unknown-column",
        )
    for name, kind in wanted.items():
        check_wanted_kind(kind, f"column {name!r}")
    return wanted


def _make_inferred(summary: Summary, wanted: str | None, missing: str, kept: Kept) -> Variable:
    has_gaps = missing == "bin" and summary.has_missing
    if not kept.is_number(summary, wanted):
        return make_variable(summary, wanted or summary.default_kind, missing_bin=has_gaps)
    made = make_number(
        summary.name, summary, kept.digits_of(summary.name), *kept.bounds_of(summary.name)
    )
    if wanted == BOTH or (wanted is None and kept.numbers == BOTH):
        made = with_number_bins(made, summary)
    return replace(made, missing_bin=has_gaps)


def _like(old: Variable, made: Variable) -> Variable:
    """Treat unknown levels as the old variable did, where the new one has levels."""
    return made.with_unknown(old.unknown) if made.levels and old.unknown != "error" else made


def _same_bins(old: Variable, kind: str) -> Variable:
    """Another kind with the same bins, where the kind can have them."""
    try:
        if old.kind == "number" and old.n_bins:
            return Variable(
                old.name,
                kind,
                edges=old.edges,
                missing_bin=old.missing_bin,
                asked_bins=old.asked_bins,
            )
        return replace(old, kind=kind)  # with its policy, where the kind can have one
    except SchemaError:
        raise SchemaError(
            f"variable {old.name!r} cannot turn from {old.kind} to {kind} without data, and a "
            "schema that was not just "
            "inferred has none: infer it again, or give levels= or with_bins(...)",
            code="kind-needs-data",
        ) from None
