"""Errors in the words of the page: what went wrong, and where to click, where the library would say
what to write in Python.
"""

from __future__ import annotations

import re
from typing import Final

from encryptedstats.app.sentences import (
    BUSY,
    FAMILIES,
    OTHERS,
    PROGRAM,
    REFUSALS,
    REFUSED,
    SENTENCES,
    SYSTEM,
    SYSTEM_FAILED,
)
from encryptedstats.errors import (
    ClusterError,
    Curable,
    Cure,
    EncryptedStatsError,
    StorageError,
    WorkerError,
    reword,
)
from encryptedstats.views import label_text

#: Which names the ids in a message have, at its end.
_IDS: Final = re.compile(r" \(((?:v\d+ is '[^']*'(?:, )?)+)\)$")
_ID: Final = re.compile(r"(v\d+) is ('[^']*')")
#: A bin inside of a label, such as ``age[(40.0, 50.0]]`` or ``age: (40.0, 50.0]``.
_BIN: Final = re.compile(r"(\[?)(\((?:-inf|-?[\d.e+-]+), (?:inf\)|-?[\d.e+-]+\]))(\]?)")

#: What a person can fix. Everything else is a mistake of the program, and says so.
CORRECTABLE: Final = (
    EncryptedStatsError,
    OSError,
    ValueError,
    OverflowError,
    MemoryError,
    ImportError,
)
#: What a worker says, or what stands before it, that is starting or busy.
LATER: Final = (408, 429, 502, 503, 504)
#: A parameter and its value at the beginning of a message, as Python writes them.
_LEADING: Final = re.compile(r"^([a-z]\w*)=('[^']*'|[\d.e+-]+): ")
#: What stands before the reason why a study does not take a message.
_REFUSED_MESSAGE: Final = re.compile(r"^'\w+' by \w+ would be refused: ")
#: What Python's words look like in a message.
_IN_PYTHON: Final = re.compile(
    r"\b[a-z]\w*=(?=[\s\w'\[()\"\-:,]|$)|\bes\.\w|\w\(\)|\b\w+_\w+\(|\bpip "
    r"install\b|/v1/|`|Traceback|Errno"
    r"|\b[A-Z]\w*(?:Error|Exception|Warning|Frame|Keys|Table)\b|\b(?:or|is) (?:None|False)\b"
    r"|\b(?:HTTP|JSON|NumPy|Python|GPU|URL|pandas|ciphertexts?|residues|circuits?|shards?)\b"
    r"|\b(?:pickled|moduli)\b"
    r"|\b(?:sample_weight|n_samples|allow_insecure|coefficient_moduli|signing_key)\b"
    r"|encryptedstats file|Parameters\("
)
#: What people call the parameters of questions.
LABELS: Final = {
    "variable": "Measurement",
    "variables": "Variables",
    "other": "Second variable",
    "score": "Score",
    "by": "Groups",
    "groups": "Two of the groups, if there are more",
    "target": "Outcome",
    "first": "First variable",
    "second": "Second variable",
    "n_trees": "Number of trees",
    "n_components": "Number of components",
    "equal_var": "Assume equal variances",
    "mu": "Compare the mean with",
    "typ": "Type of the sums of squares",
    "p": "Expected shares",
    "per": "Rates per",
    "event_level": "Value that means an event",
    "event": "Event",
    "paired": "Second measurement, for pairs",
    "correction": "Continuity correction",
    "random_state": "Seed",
    "fit_intercept": "With an intercept",
    "reference": "Reference level",
    "alpha": "Alpha",
    "confidence": "Confidence level",
    "alternative": "Alternative",
    "family": "Model",
    "missing": "Rows in the bin of missing values",
    "averaged": "Trees averaged together",
}
#: What the docstrings of parameters say to programmers, and what the page says.
_HELP: Final = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r", by name or id|^By name or id; ", ""),
        (r", in place of a formula|; the target of the schema by default", ""),
        (r"^Kept as a number", "A column of numbers"),
        (r"^See :class:`KaplanMeier`", "How long a row was followed"),
        (
            r"^(?:A variable with bins, or the class|The class, or a variable with bins)",
            "A column with levels, or a number in bins",
        ),
        (r"^A variable of two groups, or the class", "A column with two levels"),
        (r"^Variables with bins, or the class", "Columns with levels, or numbers in bins"),
        (r"^A variable (?=with (?:ordered )?bins)", "A column "),
        (r"the class, or a categorical variable", "a column with levels"),
        (r"^The class, or a variable", "A column with levels"),
        (r"^Another one, or the class", "Another column"),
        (r"a float is a share", "a number below 1 is a share"),
        (r", as by NumPy and R by default|, as in statsmodels; R leaves it out", ""),
        (
            (
                r": a variable with bins, a grid of numbers \(its levels\) or intervals \(its cut "
                r"points\)"
            ),
            "",
        ),
    )
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
    "say what counts": "correct the file, or say which of them count",
    "ISO dates": "write dates as 1970-02-01",
    "mask totals": "let the question be answered from masked totals, which give the same",
    "rare levels": "join levels with fewer rows than {value}",
    "keep numbers": "choose a column of numbers, or let it be one in the step Columns",
    "keep all numbers": "let numbers be kept as numbers, in the step Columns",
    "cut into bins": "choose a column with levels, or let it be in bins in the step Columns",
    "classes of the target": "choose an outcome that has levels",
    "name the target": "ask a model of the outcome first, which makes it the target",
    "say the digits": "the library can keep more",
    "show all classes": "the file has to show at least two",
    "read text": "correct it, or leave it empty if it is missing; if {name!r} is a category, say "
    "so in the step Columns",
    "store encoding": "ask another question of these rows",
    "read dates": "correct it, or leave it empty if it is missing; dates are written as 2000-12-31",
    "know a level": "correct it, or let unknown levels count as other, in the step Columns",
    "public schema": "cut points of your own, in the step Columns of a copy of the project",
    "pin the certificate": "let the person who runs the worker tell you the SHA-256 of its "
    "certificate, and give it below the address",
    "bin for gaps": "let missing values be a level of their own, in the step Columns of a copy "
    "of the project",
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
    "move rows": "start a copy of the project, which makes one, and send it to another worker",
    "keep residues": "a copy of the project for which that was planned",
    "open with names": "",
    "save the release": "",
    "schema of the rows": "this project has another schema than the rows were encrypted with",
}


def in_page_words(error: BaseException) -> str:
    """Return what the page says of an error or a warning: a sentence for a person who does not
    program.

    The message of an error of this library is kept where it is plain. Everything else has its
    sentence in ``sentences``.
    """
    if isinstance(error, StorageError) or not isinstance(error, (Curable, Warning)):
        return _sentence_of_other(error)
    if isinstance(error, WorkerError) and error.status:
        return REFUSALS.get(error.status) or (BUSY if error.status in LATER else REFUSED)
    said = _REFUSED_MESSAGE.sub("", reword(error, _here))
    text = _by_name(" ".join(_LEADING.sub(_label, said).split()))
    # What a worker writes is not trusted; errors that it sent begin with its address.
    is_foreign = isinstance(error, (WorkerError, ClusterError)) or text.startswith(
        ("http://", "https://")
    )
    return text if is_plain(text) and not is_foreign else _sentence_of(error, text)


def _sentence_of(error: BaseException, text: str) -> str:
    found = SENTENCES.get(getattr(error, "code", ""))
    if found is not None:
        head = _IN_PYTHON.sub("", text.partition(": ")[0])
        return found.format(head=head)
    names = [one.__name__ for one in type(error).__mro__]
    return next((words for family, words in FAMILIES.items() if family in names), PROGRAM)


def _sentence_of_other(error: BaseException) -> str:
    if isinstance(error, StorageError):
        return SENTENCES["unreachable-storage"]
    if isinstance(error, OSError):
        found = SYSTEM.get(error.errno or 0, SYSTEM_FAILED)
        return found.format(file=error.filename or "a file")
    return next((words for kind, words in OTHERS if isinstance(error, kind)), PROGRAM)


def is_plain(text: str) -> bool:
    """Return whether a message has no words that only programmers know.

    >>> is_plain("age has no bins"), is_plain("take es.plan(...)"), is_plain("by=None: name one")
    (True, False, False)
    """
    return _IN_PYTHON.search(text) is None


def is_ours(warning: Warning) -> bool:
    """Return whether a warning is of this library; those of others are for programmers."""
    return type(warning).__module__.startswith("encryptedstats.")


def _label(found: re.Match[str]) -> str:
    return f"{label_of(found[1])} {found[2]}: "


def label_of(parameter: str) -> str:
    """Return what people call a parameter.

    >>> label_of("n_trees"), label_of("max_features")
    ('Number of trees', 'Max features')
    """
    return LABELS.get(parameter, parameter.removeprefix("n_").replace("_", " ").capitalize())


def help_in_page_words(text: str) -> str:
    """Return what is said of a parameter in the words of the page.

    >>> help_in_page_words("The predictors to use, by name or id; all by default")
    'The predictors to use; all by default'
    """
    for pattern, words in _HELP:
        text = pattern.sub(words, text)
    return text.replace("``", "")


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
