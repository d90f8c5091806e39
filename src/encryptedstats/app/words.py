"""Errors in the words of the page: what went wrong, and where to click, where the library would say
what to write in Python.
"""

from __future__ import annotations

import re
from typing import Final

from encryptedstats.errors import Cure, EncryptedStatsError, reword
from encryptedstats.views import label_text

#: Which names the ids in a message have, at its end.
_IDS: Final = re.compile(r" \(((?:v\d+ is '[^']*'(?:, )?)+)\)$")
_ID: Final = re.compile(r"(v\d+) is ('[^']*')")
#: A bin inside of a label, such as ``age[(40.0, 50.0]]`` or ``age: (40.0, 50.0]``.
_BIN: Final = re.compile(r"(\[?)(\((?:-inf|-?[\d.e+-]+), (?:inf\)|-?[\d.e+-]+\]))(\]?)")

#: What a person can fix. Everything else is a mistake of the program, and says so.
MENDABLE: Final = (
    EncryptedStatsError,
    OSError,
    ValueError,
    OverflowError,
    MemoryError,
    ImportError,
)
#: What an error's cure is called here, by its action. What is not here keeps the library's words.
WORDS: Final[dict[str, str]] = {
    "replace": "start a copy of the project",
    "say what becomes of gaps": "say what becomes of missing values, in the step Columns",
    "drop gaps": "rows with missing values are left out",
    "drop gaps anew": "let rows with missing values be left out, in the step Columns",
    "leave rows out": "",
    "leave out": "leave the column out",
    "leave column out": "leave the column out",
    "leave one out": "leave one of them out",
    "name the id": ", as the row number",
    "cut at the median": "",
    "keep the target": "",
    "fewer levels": "leave the column out, give it another kind, or join rare levels",
    "rare levels": "join levels with fewer rows than {value}",
    "keep numbers": "choose a column of numbers, or let it be one in the step Columns",
    "keep all numbers": "let numbers be kept as numbers, in the step Columns",
    "cut into bins": "choose a column with levels, or let it be in bins in the step Columns",
    "classes of the target": "choose an outcome that has levels",
    "name the target": "ask a model of the outcome first, which makes it the target",
    "say the digits": "the library can keep more",
    "show all classes": "the file has to show at least two",
    "read text": "correct it, or leave it empty if it is missing; if {name!r} is a category, say so in the "
    "step Columns",
    "know a level": "correct it, or let unknown levels count as other, in the step Columns",
    "public schema": "cut points of your own, in the step Columns of a copy of the project",
    "pin the certificate": "let whoever runs the worker tell you the SHA-256 of its certificate, and give it below "
    "the address",
    "bin for gaps": "let missing values be a level of their own, in the step Columns of a copy of the "
    "project",
    "column of the target": "the file has no column of the outcome",
    "know a class": "correct it",
    "give the same levels": "let both columns have the same levels",
    "larger values": "start a copy of the project, and make a new key",
    "keys for more rows": "start a copy of the project, and make a new key",
    "import questions": "install the package that defines it",
    "name every column": "give every column a name in the first line of the file, also that of row "
    "names",
    "remove title lines": "delete all lines above the names",
    "narrower bounds": "keep fewer decimals in the file",
    "say the decimal mark": "correct it in the file",
    "both smaller": "less depth together with smaller numbers",
    "less depth": "less depth",
    "smaller values": "smaller numbers",
    "wish": "what is asked",
    "use weights": "",
    "widen": "start a copy of the project, which finds the bounds anew",
    "predict numbers": "",
    "open with names": "",
    "save the release": "",
    "schema of the rows": "this project has another schema than the rows were encrypted with",
}


def in_page_words(error: BaseException) -> str:
    """The message of an error, or a warning, for the page: one line."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else reword(error, _here)
    if isinstance(error, FileNotFoundError) and error.filename:
        text = f"{error.filename} is not there any more: put it back, or choose another file"
    elif isinstance(error, PermissionError) and error.filename:
        text = f"{error.filename} may not be read or written by you"
    elif isinstance(error, OSError) and error.filename:
        text = f"{error.filename}: {text}"
    return _by_name(" ".join(text.split()))


def _by_name(text: str) -> str:
    """Return a message with names in the place of ids, where it says at its end what these are.

    >>> _by_name("variable 'v2' is no number (v2 is 'smoker')")
    "'smoker' is no number"
    """
    found = _IDS.search(text)
    if found is None:
        return text
    text = text[: found.start()]
    for id_, name in _ID.findall(found[1]):
        plain = name.replace("\\", r"\\")
        text = re.sub(rf"(?:[Vv]ariable )?'?\b{id_}\b'?", plain, text)
    return text


def _here(cure: Cure) -> str:
    if cure.action == "parameter" and "parameter" in cure.values:
        name = str(cure.values["parameter"]).removeprefix("n_").replace("_", " ")
        return f"{name} {cure.values.get('value')}"
    try:
        return WORDS[cure.action].format(**cure.values)
    except LookupError:
        return cure.words


def bins_in_words(text: str) -> str:
    """Return a label whose bins are written as people write them.

    >>> bins_in_words("age[(40.0, 50.0]]"), bins_in_words("age: (50.5, inf)")
    ('age 40 to 50', 'age: over 50.5')
    """
    return _BIN.sub(lambda found: f"{' ' if found[1] else ''}{label_text(found[2])}", text)
