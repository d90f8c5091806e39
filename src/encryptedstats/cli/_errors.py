"""An error as one line: what went wrong, and how to mend it, in the words of the command line."""

from __future__ import annotations

import re
from typing import Final

from encryptedstats.cli._console import printable
from encryptedstats.storage.files import FULL as FULL

# The library speaks Python to its callers; here the same cure is an option.
_SPELLINGS: Final = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"overwrite=True", "--overwrite"),
        (r"schema\.with_missing_bin\('([^']*)'\)", r"schema --missing-bin '\1'"),
        (r"schema\.with_bins\('([^']*)', levels=\[\.\.\.\]\)", r"schema --levels '\1=A,B,...'"),
        (r"schema\.with_unknown\('(\w+)', '[^']*'\)", r"schema --unknown \1"),
        (r"schema\.with_classes\(\[\.\.\.\]\)", "schema --classes A,B,..."),
        (r", X\.dropna\(subset=\[[^\]]*\]\)", ""),
        (r"let rare= join", "let --rare join"),
        (r", id=('[^']*')", r" (--id \1)"),
        (r"\b(decimal|thousands|charset|dates)='([^']*)'", r"--\1 '\2'"),
        (r"\b(separator|thousands)=$", r"--\1"),
        (
            r"es\.load\(url, by_others=True\), or table\.accept_others\(\) for a table that was made here",
            "--by-others",
        ),
        (r"infer the schema with missing=", "make the schema with missing="),
        (r"missing='(\w+)'", r"--missing \1"),
        (r", schema= \(", ", with --schema ("),
        (r"schema\.with_kind\(name, 'number', digits=\.\.\.\)", "see schema --digits"),
        (r"with_kind\(\.\.\., low=, high=\) widens them", "schema --range COLUMN=LOW:HIGH widens them"),
        (r"choose max_value=(\d+) or more, es\.plan\(\.\.\.\) does", r"it takes keys for --max-value \1 (see plan)"),
        (r"choose a larger max_value", "it takes keys for a larger --max-value (see plan)"),
        (r"es\.load\(url, keys=\.\.\.\) with those of key", "give --keys, those of key"),
        (r"weight_bound=", "--weight-bound "),
        (r": leave (it|the column) out", r": leave \1 out (--leave-out)"),
        (r", or give levels=", ""),
        (r"give classes= when the data does not show all of them", "take rows that show all of them"),
        (r"the rows have no target: give y=", "the rows have no column of the target"),
        (r"^kinds names column", "--kind or --digits names column"),
        (r"\(or data_home\)", "(or --data-home)"),
        (r"schema\.with_kind\(name, 'continuous'\)", "make a schema with --kind COLUMN=continuous"),
        (r"schema\.table\(df, folds=k\) does, before it is encrypted", "encrypt --folds K does"),
        (
            r"the schema has no classes: infer it with target=",
            "the schema has no classes: make it with schema --target",
        ),
        (r"open it with owner\.decrypt\(model, schema=schema\) to use names", "decrypt it again, with --schema"),
        (
            r"so many results added up could not be proven to decrypt any more: decrypt some of them",
            "so many added up could not be proven to decrypt any more: let the owner decrypt them, and combine what is opened",
        ),
        (
            r"es\.Owner\(es\.plan\(\.\.\., encrypted_prediction=True\)\), and encrypt with those",
            "plan --encrypted-prediction and keygen --plan, and encrypt with those",
        ),
        (r"es\.plan\(\.\.\., encrypted_prediction=True\)", "plan --encrypted-prediction"),
        (
            r"owner\.public_keys\(rotations=\[\.\.\.\]\), or encrypt with es\.Owner\(plan\), which makes those that were planned",
            "keygen --plan makes those that were planned, and encrypt puts them into the table",
        ),
        (r"Plan it with encrypted_prediction=False", "Plan it without --encrypted-prediction"),
        (r"or with encrypted_prediction=False", "or without --encrypted-prediction"),
        (r"forest\.draw_fraction\(table\), with all its rows", "see draw, with a table of all its rows"),
        (r"output='(\w+)'", r"--output-kind \1"),
        (r"\bfraction=", "--fraction "),
        (r"\bn_trees is ", "--trees is "),
        (r"\brandom_state is ", "--seed is "),
    )
)
_CURES: Final[dict[type[OSError], str]] = {
    FileNotFoundError: "; check the path",
    PermissionError: "; check who may read and write it",
    IsADirectoryError: "; give a file in it",
    NotADirectoryError: "; check the path",
    FileExistsError: "; move it away or give another name",
}
#: Exit codes. Interrupted is 128 and the number of the signal, as shells do; 2 is Typer's.
FAILED: Final = 1
MISTAKE: Final = 3
INTERRUPTED: Final = 130
EXIT_CODES: Final = """\
0    done
1    not done: one line on stderr says what is wrong, and how to mend it
2    the command was not understood: an option or an argument is wrong
3    a mistake of the program: please report it
130  interrupted by Ctrl-C; 143 if by the system
# nothing is ever left half-written; encrypt goes on where it stopped"""


def one_line(error: BaseException) -> str:
    """What went wrong and how to mend it, in one line without control characters."""
    if isinstance(error, MemoryError):
        text = "not enough memory: free some, or choose smaller parameters"
    elif isinstance(error, OSError) and error.strerror:  # the system's; without it, the message is the library's own
        place = f"{error.filename}: " if error.filename is not None else ""
        text = f"{place}{error.strerror.lower()}{_cure(error)}"
    else:
        text = in_options(str(error) or type(error).__name__)
    return printable(" ".join(text.split()))


def in_options(text: str) -> str:
    """A message of the library with the cure spelt as options of the program.

    >>> in_options("there is a table already (overwrite=True replaces it)")
    'there is a table already (--overwrite replaces it)'
    """
    for pattern, words in _SPELLINGS:
        text = pattern.sub(words, text)
    return text


def _cure(error: OSError) -> str:
    if error.errno in FULL:
        return "; free some space, or write elsewhere"
    return _CURES.get(type(error), "")
