"""Identifiers by which people are linked: how they are normalised, and what is reported before
anything leaves a site.

All sites apply the same rules, so that "José  Ångström" and "JOSE ANGSTROM" are one person, and
that a date is one however it was typed. What is equal after that is one person, and nothing else
is.
"""

from __future__ import annotations

import hmac
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.errors import Cure, DataError, SchemaError

TOKEN_BYTES: Final = 16
REFUSE, FIRST, DROP = "refuse", "first", "drop"
DUPLICATES: Final = (REFUSE, FIRST, DROP)


def normalise_text(value: Any) -> str:
    """Return a name without accents, case, spaces and punctuation.

    >>> normalise_text("  José-María  Ångström ")
    'josemariaangstrom'
    """
    plain = unicodedata.normalize("NFKD", str(value).casefold())
    return "".join(one for one in plain if one.isalnum())


def normalise_code(value: Any) -> str:
    """Return a number or code without spaces, hyphens, dots and slashes; zeros in front stay.

    >>> normalise_code(" 012-345/a "), normalise_code(17.0)
    ('012345A', '17')
    """
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        value = int(value)
    return "".join(one for one in str(value).upper() if one.isalnum())


def normalise_date(value: Any) -> str:
    """Return a date as YYYY-MM-DD.

    >>> normalise_date("1970-02-01"), normalise_date(date(1970, 2, 1))
    ('1970-02-01', '1970-02-01')
    """
    if isinstance(value, (datetime, date)):
        return value.strftime("%Y-%m-%d")
    text = str(value).strip()[:10]
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise DataError(
            f"{text!r} is not a date that is read in one way only: ",
            Cure("ISO dates", "write dates as YYYY-MM-DD, or give a column of dates"),
            code="ambiguous-date",
        ) from None


#: The kinds of identifiers, and the function that normalises each.
KINDS: Final[Mapping[str, Callable[[Any], str]]] = {
    "text": normalise_text,
    "code": normalise_code,
    "date": normalise_date,
}


@dataclass(frozen=True)
class LinkReport:
    """What a site should know of its identifiers before it sends anything. Prints as a list.

    Attributes
    ----------
    n_rows : int
    n_without : int
        Rows that lack an identifier, which are not linked.
    n_duplicates : int
        Rows beyond the first with the same identifiers.
    n_people : int
        People that are linked.
    nearly : mapping
        For each identifier, how many people differ from another one in it alone: members of a
        household or twins, and typing errors.
    n_linked, n_slots : int or None
        People that all sites have, and slots of the joined table, once they are known.
    """

    n_rows: int
    n_without: int
    n_duplicates: int
    n_people: int
    nearly: Mapping[str, int] = field(default_factory=dict)
    n_linked: int | None = None
    n_slots: int | None = None

    def to_dict(self) -> dict[str, Any]:
        share = None if self.n_linked is None else self.n_linked / self.n_people
        return {
            "rows": self.n_rows,
            "without_identifier": self.n_without,
            "duplicates": self.n_duplicates,
            "people": self.n_people,
            "nearly_equal": dict(self.nearly),
            "linked": self.n_linked,
            "linked_share": share,
            "slots": self.n_slots,
        }

    def __str__(self) -> str:
        lines = [
            f"rows                 {self.n_rows:,}",
            f"without identifier   {self.n_without:,}",
            f"duplicates           {self.n_duplicates:,}",
            f"people               {self.n_people:,}",
            *(
                f"differ in {name} only".ljust(20) + f" {count:,}"
                for name, count in self.nearly.items()
            ),
        ]
        if self.n_linked is not None:
            share = 100 * self.n_linked / self.n_people
            lines.append(f"linked               {self.n_linked:,} ({share:.1f} %)")
        return "\n".join(lines)

    __repr__ = __str__


@dataclass(frozen=True)
class People:
    """The people of a site: one normalised text each, and the row that it is from."""

    texts: tuple[bytes, ...]
    rows: NDArray[np.int64]
    report: LinkReport

    def tokens(self, key: bytes) -> NDArray[Any]:
        """Return a keyed hash of each person, which tells nothing to anybody without the key."""
        found = b"".join(hmac.digest(key, text, sha256)[:TOKEN_BYTES] for text in self.texts)
        return np.frombuffer(found, dtype=f"V{TOKEN_BYTES}")


def read_identified(path: Path, on: Sequence[str]) -> pd.DataFrame:
    """Read a CSV or Parquet file, with identifiers as they are written: zeros in front stay."""
    if path.suffix == ".parquet":
        return pd.read_parquet(path)
    return pd.read_csv(path, dtype=dict.fromkeys(on, str))


def find_people(
    frame: pd.DataFrame, on: Sequence[str], kinds: Sequence[str], duplicates: str = REFUSE
) -> People:
    """Normalise identifiers, and return the people whom they name.

    Parameters
    ----------
    frame : DataFrame
    on : sequence of str
        The columns with the identifiers, in the order of ``kinds``.
    kinds : sequence of str
        What each is, of `KINDS`.
    duplicates : "refuse", "first" or "drop"
        What becomes of rows with the same identifiers: an error, the first counts, or none does.
    """
    _check_columns(frame, on, kinds, duplicates)
    is_complete = frame[list(on)].notna().all(axis=1).to_numpy()
    places = np.flatnonzero(is_complete)
    parts = [
        _normalise(frame[name].iloc[places], name, kind)
        for name, kind in zip(on, kinds, strict=True)
    ]
    texts = ["\0".join(one) for one in zip(*parts, strict=True)]
    counts = Counter(texts)
    n_duplicates = len(texts) - len(counts)
    if n_duplicates and duplicates == REFUSE:
        raise DataError(
            f"{n_duplicates:,} rows have the identifiers of another row ({', '.join(on)}): ",
            Cure("say what counts", "remove them, or say duplicates='first' or 'drop'"),
            code="duplicate-identifiers",
        )
    chosen: dict[str, int] = {}
    for place, text in zip(places.tolist(), texts, strict=True):
        if duplicates == FIRST or counts[text] == 1:
            chosen.setdefault(text, place)
    if not chosen:
        raise DataError("no row has identifiers of its own", code="no-identifiers")
    report = LinkReport(
        len(frame), len(frame) - len(places), n_duplicates, len(chosen), _count_nearly(chosen, on)
    )
    rows = np.array(list(chosen.values()), dtype=np.int64)
    return People(tuple(text.encode() for text in chosen), rows, report)


def _check_columns(
    frame: pd.DataFrame, on: Sequence[str], kinds: Sequence[str], duplicates: str
) -> None:
    if len(on) != len(kinds):
        named = ", ".join(map(repr, on)) or "no column"
        raise SchemaError(
            f"the study links by {len(kinds)} identifiers, in this order: "
            f"{', '.join(kinds)}; {named} was given: name one column for each",
            code="wrong-identifiers",
        )
    if duplicates not in DUPLICATES:
        raise SchemaError(
            f"duplicates={duplicates!r}: it is one of {', '.join(DUPLICATES)}",
            code="wrong-identifiers",
        )
    missing = [name for name in on if name not in frame.columns]
    if missing:
        raise SchemaError(
            f"no column {missing[0]!r} with an identifier; there are "
            f"{', '.join(map(str, frame.columns))}",
            code="unknown-column",
        )


def _normalise(values: pd.Series[Any], name: str, kind: str) -> list[str]:
    try:
        return [KINDS[kind](value) for value in values]
    except DataError as error:
        raise DataError(f"column {name!r}: {error}", code=error.code) from None


def _count_nearly(people: Mapping[str, int], on: Sequence[str]) -> dict[str, int]:
    """Count the people who share all identifiers but one with somebody else."""
    if len(on) == 1:
        return {}
    split = [text.split("\0") for text in people]
    found = {}
    for left_out, name in enumerate(on):
        others = Counter(tuple(one[:left_out] + one[left_out + 1 :]) for one in split)
        found[name] = sum(count for count in others.values() if count > 1)
    return found
