"""Statistics that cost next to nothing: counts, cross tables and moments, from a table that is clear or encrypted.

Each is a circuit of totals, and a way to read the decrypted totals; both kinds of table share them. Results of encrypted tables
stay encrypted: ``owner.decrypt`` gives the same DataFrame that the clear table, or pandas, would.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np
import pandas as pd

from encryptedstats.circuits.expressions import Expression, column
from encryptedstats.circuits.results import EncryptedNumbers
from encryptedstats.crypto.dispatch import decrypt_value
from encryptedstats.crypto.keys import Decryptor, PublicKeys
from encryptedstats.errors import Cure, FileFormatError, SchemaError
from encryptedstats.storage.container import Container
from encryptedstats.storage.objects import load_file, save_file
from encryptedstats.tables.columns import Column
from encryptedstats.tables.opening import opening_schema
from encryptedstats.tables.variables import PublicSchema

if TYPE_CHECKING:
    from encryptedstats.tables.schema import Schema

STATISTIC_KIND: Final = "encrypted statistic"
CLASS: Final = "class"
TARGET: Final = "target"


@dataclass(frozen=True)
class Statistic:
    """A question about a table: which, of which variables (positions; -1 is the class), over how many rows."""

    name: str
    variables: tuple[int, ...]
    n_rows: int

    # -- the circuit -------------------------------------------------------------------------------------------------

    def circuit(self, schema: PublicSchema) -> list[Expression]:
        """The totals that answer it."""
        if self.name == "moments":
            numbers = [column(str(Column("number", j))) for j in self.variables]
            products = [a * b for a, b in combinations_with_replacement(numbers, 2)]
            return [x.total() for x in (*numbers, *products)]
        rows, *others = [_indicators(schema, j) for j in self.variables]
        if not others:
            return [x.total() for x in rows]
        return [(x * y).total() for x in rows for y in others[0]]

    def n_totals(self, schema: PublicSchema) -> int:
        """How many totals there are, without writing them out: a file may claim any number of bins."""
        k = len(self.variables)
        if self.name == "moments":
            return k + k * (k + 1) // 2
        return math.prod(schema.n_classes if j == -1 else schema.variables[j].n_bins for j in self.variables)

    # -- reading the totals ------------------------------------------------------------------------------------------

    def read(self, totals: Sequence[int], schema: Schema | PublicSchema) -> pd.DataFrame:
        """The answer as a DataFrame, labelled as far as the schema knows labels."""
        if self.name == "moments":
            return self._read_moments(totals, schema)
        table = np.array(totals, dtype=np.int64).reshape([len(_labels(schema, j)) for j in self.variables])
        self._check_counts(table)
        index = pd.Index(_labels(schema, self.variables[0]), name=_name(schema, self.variables[0]))
        if len(self.variables) == 1:
            return pd.DataFrame({"count": table}, index=index)
        columns = pd.Index(_labels(schema, self.variables[1]), name=_name(schema, self.variables[1]))
        return pd.DataFrame(table, index=index, columns=columns)

    def _check_counts(self, table: Any) -> None:
        """Every row is in exactly one cell (weights count for the class): anything else is no result of this table."""
        weighted = -1 in self.variables
        if table.min() < 0 or (not weighted and table.sum() != self.n_rows):
            raise ValueError(
                f"the counts add up to {table.sum():,} over {self.n_rows:,} rows: the result was altered, or is of another table. "
                "It is refused"
            )

    def _read_moments(self, totals: Sequence[int], schema: Schema | PublicSchema) -> pd.DataFrame:
        n, k = self.n_rows, len(self.variables)
        scales = [_scale(schema, j) for j in self.variables]
        names = [_name(schema, j) for j in self.variables]
        sums, products = totals[:k], iter(totals[k:])
        frame = pd.DataFrame(
            index=["count", "sum", "mean", "var", "std", *(f"cov({name})" for name in names)], columns=names
        )
        for j, name in enumerate(names):
            frame.loc["count", name] = n
            frame.loc["sum", name] = sums[j] / scales[j]
            frame.loc["mean", name] = sums[j] / (n * scales[j])
        for a, b in combinations_with_replacement(range(k), 2):
            # n sum xy - sum x sum y is an exact integer; one division at the end.
            scatter = n * next(products) - sums[a] * sums[b]
            if a == b and scatter < 0:
                raise ValueError(
                    "a variance would be negative: the result was altered, or is of another table. It is refused"
                )
            covariance = scatter / (n * (n - 1) * scales[a] * scales[b]) if n > 1 else np.nan
            frame.loc[f"cov({names[a]})", names[b]] = frame.loc[f"cov({names[b]})", names[a]] = covariance
            if a == b:
                frame.loc["var", names[a]] = covariance
                frame.loc["std", names[a]] = np.sqrt(covariance)
        return frame.astype(float)


def _indicators(schema: PublicSchema, variable: int) -> list[Expression]:
    if variable == -1:
        return [column(str(Column("class", -1, c))) for c in range(schema.n_classes)]
    return [column(str(Column("onehot", variable, k))) for k in range(schema.variables[variable].n_bins)]


def _labels(schema: Schema | PublicSchema, variable: int) -> list[Any]:
    if isinstance(schema, PublicSchema):
        return list(range(schema.n_classes if variable == -1 else schema.variables[variable].n_bins))
    return list(schema.classes if variable == -1 else schema.variables[variable].labels)


def _name(schema: Schema | PublicSchema, variable: int) -> str:
    if isinstance(schema, PublicSchema):
        return CLASS if variable == -1 else f"v{variable}"
    return str(schema.target) if variable == -1 else schema.variables[variable].name


def _scale(schema: Schema | PublicSchema, variable: int) -> int:
    """What the fixed-point integers of a number were multiplied by; a worker does not know it and sees integers."""
    return 1 if isinstance(schema, PublicSchema) else 10 ** (schema.variables[variable].digits or 0)


class EncryptedStatistic:
    """The encrypted answer to a question about a table. ``owner.decrypt(answer, schema=schema)`` gives a DataFrame.

    The schema may be left out where the table was encrypted in this very program; an answer from elsewhere has opaque
    labels without it.
    """

    def __init__(
        self, statistic: Statistic, totals: EncryptedNumbers, public: PublicSchema, private: Schema | None = None
    ) -> None:
        self.statistic = statistic
        self.totals = totals
        self._public = public
        self._private = private

    def __repr__(self) -> str:
        of = ", ".join(_name(self._private or self._public, j) for j in self.statistic.variables)
        return f"EncryptedStatistic({self.statistic.name} of {of}, {len(self.totals)} totals, key {self.totals.keys.key_id})"

    def save(self, url: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the answer to a path or fsspec URL; the file holds no key and no names."""
        fields = {
            "statistic": self.statistic.name,
            "variables": list(self.statistic.variables),
            "n_rows": self.statistic.n_rows,
            "schema": self._public.to_json(),
        }
        save_file(self.totals.to_container(STATISTIC_KIND, fields), url, overwrite=overwrite)
        self.totals.drop_checkpoints()

    @classmethod
    def load(cls, url: str | os.PathLike[str], keys: PublicKeys) -> EncryptedStatistic:
        """Read an answer that belongs to ``keys``."""
        return cls.from_container(load_file(url, kind=STATISTIC_KIND), keys, str(url))

    @classmethod
    def from_container(cls, file: Container, keys: PublicKeys, path: str = "the file") -> EncryptedStatistic:
        """The answer in a file that was read already."""
        totals = EncryptedNumbers.from_container(file, keys)
        variables = file.expect("variables", list)
        try:
            public = PublicSchema.from_json(file.expect("schema", str))
        except SchemaError as error:
            raise FileFormatError(f"{path} has a malformed schema: {error}") from error
        good = all(type(j) is int and -1 <= j < len(public.variables) for j in variables)
        statistic = Statistic(file.expect("statistic", str), tuple(variables), file.expect("n_rows", int))
        arities = {"counts": (1, 2), "crosstab": (2, 2), "moments": (1, len(public.variables))}
        least, most = arities.get(statistic.name, (1, 0))
        if not good or not least <= len(variables) <= most or statistic.n_rows < 1:
            raise FileFormatError(f"{path} asks a question that this library does not know")
        try:
            check_variables(statistic, public)
        except SchemaError as error:
            raise FileFormatError(f"{path} asks a question that its schema does not allow: {error}") from error
        if statistic.n_totals(public) != len(totals):
            raise FileFormatError(f"{path} has another number of totals than its question")
        return cls(statistic, totals, public)

    def __reduce__(self) -> NoReturn:
        raise TypeError("encrypted statistics are not pickled: use save() and load()")


@decrypt_value.register(EncryptedStatistic)
def _decrypt_statistic(
    answer: EncryptedStatistic, decryptor: Decryptor, *, schema: Schema | None = None
) -> pd.DataFrame:
    known = opening_schema(schema, answer._private or answer._public, answer.totals, decryptor)
    return answer.statistic.read(decrypt_value(answer.totals, decryptor), known)


class Statistics(ABC):
    """The questions, for tables of both kinds."""

    @abstractmethod
    def _position(self, variable: str | int) -> int:
        """Where a variable stands; -1 for the class."""

    @abstractmethod
    def _ask(self, statistic: Statistic, options: dict[str, Any]) -> Any:
        """Evaluate the circuit of a question, and give its answer or its encrypted answer."""

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """Number of rows."""

    def counts(self, variable: str | int, by: str | int | None = None, **options: Any) -> Any:
        """How many rows are in each bin of a variable; ``by="class"`` (or the target's name), or by another variable.

        Class counts are weighted where the table has weights. Options of encrypted tables: those of ``evaluate``.
        """
        asked = (variable,) if by is None else (variable, by)
        return self._ask(Statistic("counts", tuple(map(self._position, asked)), self.n_rows), options)

    def crosstab(self, first: str | int, second: str | int, **options: Any) -> Any:
        """How many rows are in each pair of bins of two variables."""
        return self._ask(Statistic("crosstab", (self._position(first), self._position(second)), self.n_rows), options)

    def moments(self, variables: Sequence[str | int], **options: Any) -> Any:
        """Count, sum, mean, variance, standard deviation and covariances of variables kept as numbers."""
        positions = tuple(map(self._position, variables))
        if not positions or len(set(positions)) != len(positions):
            raise SchemaError("moments need one or several different variables")
        return self._ask(Statistic("moments", positions, self.n_rows), options)


def class_or_variable(variable: str | int, schema: Schema | PublicSchema) -> int:
    """Where a variable stands; -1 for the class: by the target's own name, or as class or target where no variable is called so."""
    names = () if isinstance(schema, PublicSchema) else schema.names
    target = None if isinstance(schema, PublicSchema) else schema.target
    if isinstance(variable, str) and variable == target:
        return -1
    if variable in (CLASS, TARGET):
        if variable not in names:
            return -1
        if target is not None:
            both = f"the column {variable!r} is v{names.index(variable)}, and the target is {target!r}"
            raise SchemaError(f"{variable} could be a column or the class of the rows: {both}; write one of these")
    return schema.index(variable)


def check_variables(statistic: Statistic, schema: PublicSchema) -> None:
    """Refuse a question that the kinds of its variables do not allow."""
    for j in statistic.variables:
        if j == -1:
            if statistic.name == "moments" or not schema.n_classes:
                raise SchemaError(
                    "the class has no moments" if schema.n_classes else "the schema has no classes to count by"
                )
            continue
        is_number = schema.variables[j].kind == "number"
        if is_number and statistic.name != "moments":
            raise SchemaError(f"variable {schema.variables[j].id!r} is a number and has no bins to count: see moments")
        if not is_number and statistic.name == "moments":
            raise SchemaError(
                f"variable {schema.variables[j].id!r} is {schema.variables[j].kind}: moments are for numbers, ",
                Cure("keep numbers", "schema.with_kind(name, 'number', digits=...)"),
            )
