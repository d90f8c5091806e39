"""Print an error as one line: what went wrong, and how to fix it with options."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import typer

from encryptedstats.cli._console import printable
from encryptedstats.errors import Cure, ParameterError, reword
from encryptedstats.storage.files import FULL as FULL
from encryptedstats.tables.questions.words import short_name

#: What an error's cure is called here, by its action. The library speaks Python to its callers.
WORDS: Final[dict[str, str]] = {
    # what is written
    "replace": "--force",
    # schemas and rows
    "say what becomes of gaps": "make the schema with --missing bin or --missing drop",
    "drop gaps": "--missing drop",
    "drop gaps anew": "make the schema with --missing drop",
    "bin for gaps": "data schema --column '{name} missing=bin'",
    "leave rows out": "",
    "rows without weights": "encrypt the rows without --weights, each as often as it counts",
    "know a level": "correct it; or, before anything is encrypted, give it a level, data schema "
    "--column '{name} levels=A,B,...', or say where unknown ones go, --unknown other",
    "know a class": (
        "correct it, or name all classes before anything is encrypted, data schema "
        "--classes A,B,..."
    ),
    "read text": "correct it, or leave it empty if it is missing; if {name!r} is a category, say "
    "so before anything is encrypted, "
    "data schema --column 'COLUMN kind=categorical'",
    "store encoding": "plan and encrypt with {options}",
    "read dates": "correct it, or leave it empty if it is missing; dates are written as 2000-12-31",
    "widen": "data schema --column 'COLUMN range=LOW:HIGH' widens them",
    "keep numbers": "data schema --column 'COLUMN digits=N' keeps numbers",
    "cut points": "--column 'COLUMN cut=X,Y,...' says where",
    "coarser number": (
        "round it, or give narrower bounds: data schema --column 'COLUMN digits=N range=LOW:HIGH'"
    ),
    "cut into bins": "make a schema with --column 'COLUMN kind=continuous'",
    "leave out": "leave it out (--leave-out)",
    "leave column out": "leave the column out (--leave-out)",
    "smaller integers": (
        "correct it, write the column in a larger unit, or leave it out (--leave-out)"
    ),
    "leave one out": "leave one of them out (--leave-out)",
    "name the id": " (--id {name!r})",
    "cut at the median": "",
    "keep the target": ", --numbers keep",
    "fewer levels": "leave the column out (--leave-out), give it another kind (--column 'NAME "
    "kind=...'), let --rare join those of few rows, or give levels=",
    "rare levels": "--rare {value}",
    "show all classes": "give --classes when the data does not show all of them",
    "kinds of columns": "--column names",
    "digits of columns": "--column names",
    "digits": "digits=",
    "bounds of columns": "--column names",
    "keep all numbers": "--numbers keep",
    "say the digits": "--numbers keep:N says how many to keep",
    "classes of the target": "make the schema with --classes, or without --numbers keep",
    "name by ids": "write its id, v0, v1, ... (data schema shows its owner which), or give "
    "--schema where you are the owner",
    "name the target": "make it with data schema --target",
    "column of the target": "the rows have no column of the target",
    "declare folds": "encrypt --folds K does",
    # how a file is written
    "name every column": (
        "name every column, also that of row names (R: write.csv(x, row.names=FALSE) leaves it out)"
    ),
    "remove title lines": "remove all lines above the column names",
    "take again": "take it again",
    "say the format": "--csv {option}={value!r}",
    "say one of the format": "--csv {option}=",
    "say the decimal mark": (
        "correct it, or say how numbers are written, --csv decimal=. or --csv decimal=,"
    ),
    "device": "--on device={device}",
    # studies
    "let the study plan": "create the study on the command line, which plans them",
    "create the study again": "create it again, with encryptedstats study create",
    "mask totals": "--ask masked:NAME=QUESTION gives the same sum",
    "link by an agent": "--link 'agent=NAME reveals=size'",
    "say what counts": "remove them, or say --duplicates first or --duplicates drop",
    "ISO dates": "write dates as YYYY-MM-DD",
    "coarser bins": (
        "Agree on a study whose schema has coarser bins, or that asks of fewer variables"
    ),
    "name another receiver": "--receiver names a party that is no --site",
    "any device": "--on device=auto chooses one that can",
    # keys
    "move rows": "key move brings the rows to it",
    "keep residues": "encrypt --spot-check",
    "schema of the rows": "give the schema that the table was encrypted with, with --schema "
    "(keep its file beside the secret key)",
    "keys of the file": ", or the secret key that they belong to",
    "give keys": "give --keys, those",
    "pin the certificate": "ask the operator of the worker for its SHA-256, and put sha256:... "
    "into ENCRYPTEDSTATS_PIN",
    "load the key": ": give its file, with --key",
    "plan": "encryptedstats plan",
    "larger values": "it takes keys for max_value={value} (plan chooses it)",
    "keys for more rows": "plan --rows {rows} and key make --plan",
    "keys that predict": "plan --encrypted-prediction auto and key make --plan",
    "plan prediction": "plan --encrypted-prediction auto",
    "plan for others": "plan --encrypted-prediction auto --by-others",
    "plan for contributors": "plan --by-others",
    "keys for contributors": "plan --by-others and key make --plan",
    "plan for members": "a study of --kind joint, which plans",
    "accept contributors": "--by-others",
    "other form": "",
    "wish": "security={security} max_value={max_value} depth={depth} terms={terms}",
    "smaller values": "max_value up to {value} with this depth",
    "less depth": "depth up to {depth} with this max_value",
    "other scheme": "scheme=bfv",
    "both smaller": "a smaller depth together with a smaller max_value",
    "make private": "chmod 600 {file!r}",
    "planned keys": (
        "key make --plan makes those that were planned, and encrypt puts them into the table"
    ),
    "open before predicting": "without --encrypted-prediction",
    # models and results
    "name another variable": "name a variable with two groups or more",
    "give the same levels": (
        "give both the same levels in the same order, data schema --column 'COLUMN levels=A,B,...'"
    ),
    "keep points of time": "keep it as a number, data schema --column 'COLUMN digits=N', or give "
    "it a grid of levels, --column 'COLUMN levels=1,2,...'",
    "ask of fewer variables": "ask of fewer variables, without those that are missing everywhere",
    "leave the term out": "leave it out of the formula",
    "predict numbers": "predict writes the numbers that it expects, to compare with yours",
    "open": "its owner opens it with open -o, and predicts with what is opened",
    "open with names": "open it again, with --schema",
    "open before adding": "let the owner open them, and combine what is opened",
    "fewer shards": (
        "larger shards (--on '... rows_per_shard=N'), or keys that were planned with "
        "--on workers=N, which makes room"
    ),
    "no inverse": "fraction=inverse averages leaf shares and divides, which only an opened "
    "forest can: open it, or ask with fraction=0 or 2 to 64",
    "use weights": "weights=rows uses them",
    "other device": "--on device={device} goes on without it",
    "parameter": "{parameter}={value}",
    "parameter is": "{parameter} is",
    "answers": "--output-kind {output}",
    "no choice of answers": "without --output-kind",
    "draw": "see model draw, with a table of all its rows",
    "as products": "--output-kind products",
    "as factors": "--output-kind factors",
    "largest weight": "max_weight=N",
    "begin ledger": "publish begin",
    "another ledger": "--another",
    "ledger for each unit": "another ledger for each unit, publish begin --another",
    "unit of the ledger": "as the ledger says, without max_rows and relation",
    "narrower bounds": "give narrower bounds, fewer digits, or a smaller bound of the weights "
    "when the table is encrypted",
    "known encoding": "Ask for bins, codes, numbers or classes",
    "save the release": "give -o a name that does not end in .csv",
    "public schema": (
        "data schema --column 'COLUMN range=LOW:HIGH', --column 'COLUMN "
        "levels=A,B,...', --classes A,B,..."
    ),
    "import questions": "name the file that defines it, open --questions FILE.py, or install the "
    "package that brings it",
}
_CURES: Final[dict[type[OSError], str]] = {
    FileNotFoundError: "; check the path",
    PermissionError: "; check who may read and write it",
    IsADirectoryError: "; give a file in it",
    NotADirectoryError: "; check the path",
    FileExistsError: "; move it away or give another name",
}


def one_line(error: BaseException) -> str:
    """Describe an error and its cure in one line without control characters."""
    if isinstance(error, MemoryError):
        text = "not enough memory: free some, or choose smaller parameters"
    elif (
        isinstance(error, OSError) and error.strerror
    ):  # the system's; without it, the message is the library's own
        place = f"{error.filename}: " if error.filename is not None else ""
        text = f"{place}{error.strerror.lower()}{_cure(error)}"
    else:
        text = in_options(error) or type(error).__name__
    return printable(" ".join(text.split()))


def in_options(error: BaseException) -> str:
    """Return the message of an error with its cures written as options of the program.

    >>> from encryptedstats.errors import REPLACE, ExistsError
    >>> in_options(ExistsError("there is a table already (", REPLACE, " replaces it)"))
    'there is a table already (--force replaces it)'
    """
    return reword(error, _in_options)


@contextmanager
def spelled_as_options() -> Iterator[None]:
    """Report a refused parameter of a model as a wrong option."""
    try:
        yield
    except ParameterError as error:
        if not any(cure.action == "parameter" for cure in error.cures):
            raise
        raise typer.BadParameter(in_options(error)) from error


def _in_options(cure: Cure) -> str:
    values = dict(cure.values)
    if "parameter" in values:  # of a model, which its option need not be called after
        values["parameter"] = short_name(str(values["parameter"]))
    try:
        return WORDS[cure.action].format(**values)
    except LookupError:  # of somebody else's question, which has words of its own
        return cure.words


def _cure(error: OSError) -> str:
    if error.errno in FULL:
        return "; free some space, or write elsewhere"
    return _CURES.get(type(error), "")
