"""The format of a CSV file: separator, numbers, dates and character set.

Found out from the beginning of the file, in the same way every time, or given. What can be read in
two ways is refused with both of them, never guessed. Nothing here knows schemas.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar, Final

import pandas as pd

from encryptedstats.errors import Cure, SchemaError
from encryptedstats.tables.schema.documents import OPTIONAL_TEXT, Types, check_fields, quote

#: Bytes of a file that its format is found from, and how many rows of them.
SAMPLE_BYTES: Final = 1 << 18
SAMPLE_ROWS: Final = 2000
SEPARATORS: Final = (",", ";", "\t", "|")
DECIMALS: Final = (".", ",")
THOUSANDS: Final = (*DECIMALS, " ", "\u00a0", "\u202f", "'", "\u2019")
#: What pandas takes for a missing value in a CSV file.
MISSING_WORDS: Final = frozenset(
    (
        "",
        "#N/A",
        "#N/A N/A",
        "#NA",
        "-1.#IND",
        "-1.#QNAN",
        "-NaN",
        "-nan",
        "1.#IND",
        "1.#QNAN",
        "<NA>",
        "N/A",
        "NA",
    )
) | {"NULL", "NaN", "None", "n/a", "nan", "null"}
#: A column is one of numbers, or dates, when so many of its values are: a few others are mistakes,
#: which are named later.
MOSTLY: Final = 0.9
NONE: Final = "none"

_NAMES: Final = {
    ",": "comma",
    ";": "semicolon",
    "\t": "tab",
    "|": "pipe",
    ".": "point",
    " ": "space",
}
_NAMES_OF_OTHERS: Final = {
    "\u00a0": "hard space",
    "\u202f": "narrow space",
    "'": "apostrophe",
    "\u2019": "apostrophe",
}
# 1234, 1,234 or 1.234.567 in groups of one mark; then decimals, and an exponent.
_GROUPS: Final = r"[1-9]\d{0,2}(?P<mark>[., \u00a0\u202f'\u2019])\d{3}(?P<more>(?:(?P=mark)\d{3})*)"
_NUMBER: Final = re.compile(
    rf"[+-]?(?:(?:{_GROUPS}|\d+)(?:(?P<decimal>[.,])\d*)?|(?P<first>[.,])\d+)"
    r"(?P<power>[eE][+-]?\d+)?"
)
_DATE: Final = re.compile(
    r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}(?:(?P<between>[ "
    r"T])\d{1,2}:\d{2}(?P<seconds>:\d{2}(?P<parts>\.\d+)?)?)?"
)


@dataclass(frozen=True)
class CsvFormat:
    """The format of a CSV file.

    Attributes
    ----------
    separator
        What stands between fields.
    decimal
        The decimal mark; None where no number of the file had one.
    thousands
        What stands between groups of three digits; None for nothing.
    charset
        The character set, by the name that Python knows it by.
    dates
        Columns of dates, each with its format in the letters of ``strptime``. They become days
        since 1970-01-01.
    """

    separator: str = ","
    decimal: str | None = None
    thousands: str | None = None
    charset: str = "utf-8"
    dates: tuple[tuple[str, str], ...] = ()

    _FIELDS: ClassVar[Mapping[str, Types]] = {
        "separator": (str,),
        "decimal": OPTIONAL_TEXT,
        "thousands": OPTIONAL_TEXT,
        "charset": (str,),
        "dates": (dict,),
    }

    def __post_init__(self) -> None:
        check_separator(self.separator)
        check_decimal(self.decimal)
        check_thousands(self.thousands)
        check_charset(self.charset)
        if self.thousands is not None and self.thousands == self.decimal:
            raise SchemaError(
                f"{self.thousands!r} cannot be the decimal mark and stand between thousands",
                code="same-marks",
            )
        for _, spelt in self.dates:
            check_date_format(spelt)

    @property
    def mark(self) -> str:
        """What numbers are read with. In a file that shows no decimal mark, that is a point between
        commas; elsewhere 1.234 may be 1234, so that a sign is taken which no file has, and such a
        number is refused when it comes.
        """
        return self.decimal or ("." if self.separator == "," else "\x1f")

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing to say: commas, decimal points, UTF-8, no dates."""
        return self == CsvFormat(decimal=self.decimal) and self.decimal in (None, ".")

    def describe(self) -> str:
        """Return the format in one line."""
        parts = [f"{mark_name(self.separator)} separated"]
        if self.decimal is not None:
            parts.append(f"decimal {mark_name(self.decimal)}")
        if self.thousands is not None:
            parts.append(f"{mark_name(self.thousands)} between thousands")
        parts.append(self.charset)
        parts += [f"{name} as date {spelt}, in days since 1970-01-01" for name, spelt in self.dates]
        return ", ".join(parts)

    def to_fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._FIELDS} | {"dates": dict(self.dates)}

    @classmethod
    def from_fields(cls, value: object, where: str) -> CsvFormat:
        fields = check_fields(value, cls._FIELDS, where)
        check_fields(
            fields["dates"], dict.fromkeys(fields["dates"], (str,)), f"{where}, field 'dates'"
        )
        try:
            return cls(**{**fields, "dates": tuple(fields["dates"].items())})
        except SchemaError as error:
            raise SchemaError(f"{where}: {error}") from None


@dataclass(frozen=True)
class CsvOptions:
    """What a caller says of the format of a CSV file; None where it is to be found out.

    `thousands` and `dates` may be ``"none"``; a format of dates holds for every column that it
    fits. Columns in `ignored` are not looked at.
    """

    separator: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    charset: str | None = None
    dates: str | None = None
    ignored: frozenset[str] = field(default=frozenset())

    def __post_init__(self) -> None:
        if self.separator is not None:
            check_separator(self.separator)
        check_decimal(self.decimal)
        if self.thousands != NONE:
            check_thousands(self.thousands)
        if self.charset is not None:
            check_charset(self.charset)
        if self.dates is not None and self.dates != NONE:
            check_date_format(self.dates)


def check_separator(separator: str) -> None:
    """Refuse what cannot stand between fields."""
    if len(separator) != 1 or separator.isalnum() or separator in "\"'\r\n.+-":
        raise SchemaError(
            f"separator {separator!r}: one sign is needed, such as {quote(SEPARATORS)}",
            code="unknown-separator",
        )


def check_decimal(decimal: str | None) -> None:
    """Refuse what is no decimal mark."""
    if decimal is not None and decimal not in DECIMALS:
        raise SchemaError(
            f"decimal mark {decimal!r}: one of {quote(DECIMALS)} is needed",
            code="unknown-decimal-mark",
        )


def check_thousands(thousands: str | None) -> None:
    """Refuse what nobody writes between thousands."""
    if thousands is not None and thousands not in THOUSANDS:
        raise SchemaError(
            f"thousands {thousands!r}: one of {quote(THOUSANDS)} is needed, or {NONE!r}",
            code="unknown-thousands-mark",
        )


def check_charset(charset: str) -> None:
    """Refuse character sets that Python does not know."""
    try:
        codecs.lookup(charset)
    except LookupError:
        raise SchemaError(
            f"charset {charset!r} does not exist: utf-8, cp1252, latin-1 and utf-16 are usual ones",
            code="unknown-charset",
        ) from None


def check_date_format(spelt: str) -> None:
    """Refuse a format without a year, a month and a day."""
    if not all(f"%{letter}" in spelt for letter in "Ymd"):
        raise SchemaError(
            f"dates {spelt!r}: a format with %Y, %m and %d is needed, such as '%d.%m.%Y', or "
            f"{NONE!r}",
            code="wrong-date-format",
        )


def mark_name(mark: str) -> str:
    """Return the name of a sign."""
    return {**_NAMES, **_NAMES_OF_OTHERS}.get(mark, repr(mark))


# -- finding it out --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """The beginning of a file, and whether it is all of it."""

    content: bytes
    is_all: bool


@dataclass(frozen=True)
class Expected:
    """What is known before a file is read: the format of another file of its kind, and its columns.

    `columns` are those that count; None for all. `text` are columns whose values are no numbers and
    no dates, whatever they look like.
    """

    known: CsvFormat | None = None
    columns: frozenset[str] | None = None
    text: frozenset[str] = frozenset()


def find_format(
    sample: Sample, options: CsvOptions, expected: Expected, where: str
) -> tuple[CsvFormat, int]:
    """Find out how a file is written, and how many lines stand above the names of its columns."""
    charset = options.charset or _charset(sample)
    text = _decode(sample, charset, where)
    declared, skipped = _declared_separator(text)
    body = text.split("\n", skipped)[skipped] if skipped else text
    separator = (
        options.separator or declared or _separator(body, sample.is_all, expected.columns, where)
    )
    _check_header(body, separator, skipped, where)
    columns = _columns(body, separator, sample.is_all, options.ignored, expected)
    found_dates = (
        {} if options.dates == NONE else _dates(columns, options.dates, expected.known, where)
    )
    rest = {name: values for name, values in columns.items() if name not in found_dates}
    decimal, thousands = _number_marks(rest, options, expected.known, separator, where)
    return CsvFormat(
        separator, decimal, thousands, charset, tuple(sorted(found_dates.items()))
    ), skipped


def _charset(sample: Sample) -> str:
    """Tell the charset by the first bytes, else UTF-8 if possible, else what Windows writes in
    Western Europe.
    """
    for mark, name in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if sample.content.startswith(mark):
            return name
    for name in ("utf-8", "cp1252"):
        try:
            codecs.getincrementaldecoder(name)().decode(sample.content, final=sample.is_all)
        except UnicodeDecodeError:
            continue
        return name
    return "latin-1"


def _decode(sample: Sample, charset: str, where: str) -> str:
    try:
        text = codecs.getincrementaldecoder(charset)().decode(sample.content, final=sample.is_all)
    except UnicodeDecodeError as error:
        raise SchemaError(
            f"{where} is not written in {charset}: {error}", code="wrong-charset"
        ) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _declared_separator(text: str) -> tuple[str | None, int]:
    """Return the line ``sep=;`` that Excel writes above the names of the columns."""
    first = text.split("\n", 1)[0].strip().strip('"')
    is_one = first.lower().startswith("sep=") and len(first) == 5
    return (first[4], 1) if is_one else (None, 0)


def say(option: str, value: str) -> Cure:
    """Return the words that ask how a file is written."""
    return Cure("say the format", f"{option}={value!r}", {"option": option, "value": value})


def say_one(option: str) -> Cure:
    """Return the same words where the value is for the reader to find."""
    return Cure("say one of the format", f"{option}=", {"option": option})


def _records(text: str, separator: str, is_all: bool) -> list[list[str]]:
    """Return the first rows, names first; the last one of a cut text may be half a row."""
    try:
        rows = list(islice(csv.reader(text.split("\n"), delimiter=separator), SAMPLE_ROWS))
    except csv.Error:
        return []
    rows = rows if is_all or len(rows) == SAMPLE_ROWS else rows[:-1]
    return [row for row in rows if not _is_blank(row)]


def _is_blank(row: list[str]) -> bool:
    """Check whether pandas skips a line."""
    return len(row) < 2 and not any(map(str.strip, row))


def _separator(text: str, is_all: bool, columns: Collection[str] | None, where: str) -> str:
    """Find the sign that gives most columns, the same number in nearly all rows; known names
    decide.
    """
    found = {one: rows for one in SEPARATORS if (rows := _records(text, one, is_all))}
    if columns:
        hits = {
            one: len(set(columns) & {name.strip() for name in rows[0]})
            for one, rows in found.items()
        }
        best = [one for one, n in hits.items() if n == max(hits.values(), default=0) > 0]
        if len(best) == 1:
            return best[0]
    widths = {
        one: len(rows[0]) for one, rows in found.items() if len(rows[0]) > 1 and _is_even(rows)
    }
    best = [one for one, width in widths.items() if width == max(widths.values())]
    if len(best) > 1:
        raise SchemaError(
            f"{where} can be read as separated by {' or by '.join(map(mark_name, best))}, with "
            f"{widths[best[0]]} columns each: "
            "say which, ",
            say_one("separator"),
            code="ambiguous-separator",
        )
    if best:
        return best[0]
    # The first line may have fewer fields than all others, and is refused with the right separator.
    longer = {one: len(rows[1]) for one, rows in found.items() if _has_longer_rows(rows)}
    return max(longer, key=lambda one: longer[one]) if longer else ","


def _is_even(rows: list[list[str]]) -> bool:
    return sum(len(row) == len(rows[0]) for row in rows) >= MOSTLY * len(rows)


def _has_longer_rows(rows: list[list[str]]) -> bool:
    if len(rows) < 2 or len(rows[1]) <= len(rows[0]):
        return False
    n_full = sum(len(row) >= len(rows[0]) for row in rows)
    return _is_even(rows[1:]) or (len(rows[0]) > 1 and n_full >= MOSTLY * len(rows))


def _check_header(text: str, separator: str, skipped: int, where: str) -> None:
    """Refuse a first line with fewer fields than the next one, and a title above the names.

    pandas would take the first fields of every row for labels, so that all columns are shifted.
    """
    reader, lines = csv.reader(text.split("\n"), delimiter=separator), list[tuple[int, list[str]]]()
    try:
        for row in reader:
            if not _is_blank(row):
                lines.append((reader.line_num + skipped, row))
            if len(lines) == 2:
                break
    except csv.Error:
        return
    if len(lines) < 2:
        return
    (first, names), (second, row) = lines
    is_title = len(names) > 1 and not any(map(str.strip, names[1:])) and all(map(str.strip, row))
    if len(row) > len(names) or is_title:
        n_names = sum(bool(name.strip()) for name in names) if is_title else len(names)
        raise SchemaError(
            (
                f"{where}: line {second} has {len(row)} fields, and line {first} names only "
                f"{n_names}: "
            ),
            NAME_COLUMNS,
            ", or ",
            REMOVE_TITLE,
            code="more-fields-than-names",
        )


#: What to do about a first line with fewer fields than the rows have.
NAME_COLUMNS: Final = Cure(
    "name every column",
    "name every column, also that of row names (R: write.csv(x, row.names=FALSE) leaves it out)",
)
REMOVE_TITLE: Final = Cure("remove title lines", "remove all lines above the column names")


def _columns(
    text: str, separator: str, is_all: bool, ignored: Collection[str], expected: Expected
) -> dict[str, list[str]]:
    """Return the values that are not missing of every column that may hold numbers or dates."""
    rows = _records(text, separator, is_all)
    if not rows:
        return {}
    values = {}
    for position, name in enumerate(rows[0]):
        if (
            name in ignored
            or name in expected.text
            or (expected.columns is not None and name not in expected.columns)
        ):
            continue
        cells = (row[position].strip() for row in rows[1:] if position < len(row))
        present = [cell for cell in cells if cell not in MISSING_WORDS]
        if present:
            values[name] = present
    return values


# -- dates -----------------------------------------------------------------------------------------


def _dates(
    columns: Mapping[str, list[str]], asked: str | None, known: CsvFormat | None, where: str
) -> dict[str, str]:
    before = {} if known is None else dict(known.dates)
    found = {}
    for name, values in columns.items():
        formats = (
            [before[name]] if name in before and _parses(values, before[name]) >= MOSTLY else []
        )
        if asked is not None:
            formats = [asked] if _parses(values, asked) >= MOSTLY else []
        elif not formats:
            formats = _date_formats(values)
        if len(formats) > 1:
            first, second = formats[:2]
            example = next(
                (value for value in values if _day(value, first) != _day(value, second)), None
            )
            if example is not None:
                raise SchemaError(
                    f"{where}: column {name!r} has dates such as {example!r}, which is "
                    f"{_day(example, first)} or "
                    f"{_day(example, second)}: say which, ",
                    say("dates", first),
                    " or ",
                    say("dates", second),
                    code="ambiguous-dates",
                )
        if formats:
            found[name] = formats[0]
    return found


def _date_formats(values: Sequence[str]) -> list[str]:
    """Return the formats that fit nearly all values, those that fit all of them if
    there are such.
    """
    shapes = [match for match in map(_DATE.fullmatch, values) if match is not None]
    if len(shapes) < MOSTLY * len(values):
        return []
    mark, between, seconds, parts = (
        shapes[0][1],
        shapes[0]["between"],
        shapes[0]["seconds"],
        shapes[0]["parts"],
    )
    time = f"{between}%H:%M{':%S' if seconds else ''}{'.%f' if parts else ''}" if between else ""
    # Nobody writes the month first between points.
    orders = ("Ymd", "dmY") if mark == "." else ("Ymd", "dmY", "mdY")
    shares = {f"{mark.join(f'%{letter}' for letter in order)}{time}": 0.0 for order in orders}
    shares = {spelt: _parses(values, spelt) for spelt in shares}
    return [spelt for spelt, share in shares.items() if share >= max(MOSTLY, max(shares.values()))]


def _parses(values: Iterable[str], spelt: str) -> float:
    return float(read_dates(pd.Series(list(values), dtype=object), spelt).notna().mean())


def _day(value: str, spelt: str) -> str:
    return str(read_dates(pd.Series([value], dtype=object), spelt).iloc[0])[:10]


def read_dates(values: pd.Series[Any], spelt: str) -> pd.Series[Any]:
    """Read text as times; NaT where it is no date of this format."""
    return pd.to_datetime(values, format=spelt, errors="coerce")


# -- numbers ---------------------------------------------------------------------------------------


@dataclass
class _Evidence:
    """Signs that numbers show, each with a column and a value where it stands.

    `decimals` can only be decimal marks, `groups` only stand between thousands; `either` can be
    both, as in 1,234.
    """

    decimals: dict[str, tuple[str, str]] = field(default_factory=dict)
    groups: dict[str, tuple[str, str]] = field(default_factory=dict)
    either: dict[str, tuple[str, str]] = field(default_factory=dict)

    def add(self, name: str, value: str, match: re.Match[str]) -> None:
        mark, decimal = match["mark"], match["decimal"] or match["first"]
        if (
            mark is not None
            and decimal is None
            and not match["more"]
            and mark in DECIMALS
            and not match["power"]
        ):
            self.either.setdefault(mark, (name, value))
            return
        if mark is not None and mark != decimal:
            self.groups.setdefault(mark, (name, value))
            if mark in DECIMALS:
                self.decimals.setdefault(_opposite(mark), (name, value))
        if decimal is not None:
            self.decimals.setdefault(decimal, (name, value))


def _opposite(mark: str) -> str:
    return DECIMALS[1 - DECIMALS.index(mark)]


def _number_marks(
    columns: Mapping[str, list[str]],
    options: CsvOptions,
    known: CsvFormat | None,
    separator: str,
    where: str,
) -> tuple[str | None, str | None]:
    found = _Evidence()
    for name, values in columns.items():
        matches = [
            (value, match) for value in values if (match := _NUMBER.fullmatch(value)) is not None
        ]
        if len(matches) >= MOSTLY * len(values):
            for value, match in matches:
                found.add(name, value, match)
    decimal = options.decimal or _decimal(found, options.thousands, known, separator, where)
    if options.thousands is not None:
        return decimal, None if options.thousands == NONE else options.thousands
    between = {
        mark: place for mark, place in {**found.either, **found.groups}.items() if mark != decimal
    }
    if len(between) > 1:
        (one, first), (other, second) = list(between.items())[:2]
        raise SchemaError(
            f"{where}: {_place(first)} has a {mark_name(one)} between thousands, and "
            f"{_place(second)} a {mark_name(other)}: "
            "say which, ",
            say_one("thousands"),
            code="mixed-thousands-marks",
        )
    if between:
        return decimal, next(iter(between))
    return decimal, known.thousands if known is not None and known.thousands != decimal else None


def _decimal(
    found: _Evidence, thousands: str | None, known: CsvFormat | None, separator: str, where: str
) -> str | None:
    if len(found.decimals) > 1:
        point, comma = (_place(found.decimals[mark]) for mark in DECIMALS)
        raise SchemaError(
            f"{where}: {point} has a decimal point, and {comma} a decimal comma: say which it is, ",
            say("decimal", "."),
            " or ",
            say("decimal", ","),
            code="mixed-decimal-marks",
        )
    if found.decimals:
        return next(iter(found.decimals))
    if thousands in DECIMALS:
        return _opposite(thousands)
    known_marks = set() if known is None else {known.decimal, known.thousands} - {None}
    for mark, (name, value) in found.either.items():
        # Between commas a point is a decimal point: that is how CSV is written where nothing says
        # otherwise.
        is_plain = (mark, separator) == (".", ",") and len(found.either) == 1
        if mark in known_marks or thousands == NONE or is_plain:
            continue
        raise SchemaError(
            f"{where}: column {name!r} has numbers such as {value!r}, which is "
            f"{value.replace(mark, '')} (a {mark_name(mark)} "
            f"between thousands) or {value.replace(mark, '.')} (a decimal {mark_name(mark)}): say "
            "which, ",
            say("decimal", _opposite(mark)),
            " or ",
            say("decimal", mark),
            code="ambiguous-decimal-mark",
        )
    if known is not None and known.decimal is not None:
        return known.decimal
    if known is not None and known.thousands in DECIMALS:
        return _opposite(known.thousands)
    return next(iter(found.either), None)


def _place(place: tuple[str, str]) -> str:
    return f"column {place[0]!r} ({place[1]!r})"


def spelt_numbers(values: pd.Series[Any], form: CsvFormat) -> pd.Series[Any]:
    """Read text as numbers where it spells some in this format; leave anything else as it is."""
    decimal, between = re.escape(form.mark), form.thousands
    groups = rf"\d{{1,3}}(?:{re.escape(between)}\d{{3}})+|" if between else ""
    pattern = rf"[+-]?(?:(?:{groups}\d+)(?:{decimal}\d*)?|{decimal}\d+)(?:[eE][+-]?\d+)?"
    text = values.astype(object).where(values.notna(), "").astype(str).str.strip()
    spelt = text.str.fullmatch(pattern).to_numpy(dtype=bool)
    plain = text[spelt].str.replace(between, "", regex=False) if between else text[spelt]
    numbers = pd.to_numeric(plain.str.replace(form.mark, ".", regex=False))
    if len(numbers) == values.notna().sum():
        return numbers.reindex(values.index)
    mixed = values.astype(object).copy()
    mixed[spelt] = numbers.astype(object)
    return mixed


def is_mostly_numbers(values: pd.Series[Any], form: CsvFormat) -> bool:
    """Return whether nearly all values of a column of text spell numbers in this format."""
    present = values[values.notna()]
    read = spelt_numbers(present, form)
    return len(present) > 0 and sum(not isinstance(value, str) for value in read) >= MOSTLY * len(
        present
    )
