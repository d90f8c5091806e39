"""Every error that can reach the page is a sentence for a person who does not program.

All places of the source that raise an error with a code are read, with their message; what stands
for a value in it is replaced by a word.
"""

from __future__ import annotations

import ast
import errno
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from desk_helpers import Page

import encryptedstats
from encryptedstats import errors
from encryptedstats.app.projects import State, _read
from encryptedstats.app.sentences import (
    FAMILIES,
    OTHERS,
    PROGRAM,
    REFUSALS,
    SENTENCES,
    SYSTEM,
    SYSTEM_FAILED,
)
from encryptedstats.app.words import WORDS, in_page_words
from encryptedstats.errors import Curable, Cure, EncryptedStatsError, WorkerError

SOURCE = Path(encryptedstats.__file__).parent
#: Folders that the page does not call: their errors are said in a terminal or in Python.
NOT_OF_THE_PAGE = {"cli", "joint", "arrays", "service", "spotcheck"}
#: Files of wide tables, which the page does not make.
WIDE = ("tables/rows/genotype_files.py", "tables/rows/genotypes.py", "tables/schema/genome.py")
#: Folders that the page only calls by way of others, with arguments that are not the owner's: what
#: they refuse is a mistake of the program.
BELOW = {
    "circuits",
    "crypto",
    "cluster",
    "storage",
    "plots.py",
    "metrics.py",
    "machine.py",
    "kinds.py",
}
#: Codes of errors that only a call in Python can cause, in folders that the page does call.
IN_PYTHON_ONLY = {
    "column-not-stored", "digits-out-of-range", "digits-without-numbers", "duplicate-fields",
    "edges-and-levels", "encodings-not-listed", "fold-out-of-range", "fraction-not-drawn",
    "fraction-of-several-owners", "invalid-max-weight", "invalid-min-count", "invalid-rows",
    "invalid-rows-per-parameter", "joint-keys-need-bgv", "lanes-not-shared", "lanes-of-contributor",
    "lazy-frame", "made-by-hand", "malformed-json",
    "malformed-null-model",
    "negative-price", "no-columns", "no-names", "no-table", "not-a-count", "not-a-table",
    "not-an-object", "not-pairs", "not-pickled", "option-not-here", "other-level-missing", "other-not-a-level",
    "out-without-waiting", "position-out-of-range", "prediction-not-encrypted", "question-without-lanes",
    "price-without-workers", "schema-already-known", "share-out-of-range", "unknown-differencing",
    "unknown-mechanism", "unknown-method", "unknown-model", "unknown-numbers-policy", "unknown-relation",
    "unknown-unknown-policy", "variants-not-chosen", "unknown-without-missing-bin", "weight-bound-missing",
    "wrong-asked-bins", "wrong-block-shape", "wrong-number-of-places", "wrong-number-of-rows",
    "y-missing", "wrong-number-of-rounds", "no-owner", "unknown-option",
    "unknown-kind", "no-votes-asked",
}  # fmt: skip
#: Sentences for what is not expected: an error that an owner can cause has one of its own.
GENERAL = {PROGRAM, *(FAMILIES[name] for name in ("DataError", "SchemaError", "ParameterError"))}
JARGON = re.compile(
    r"\b(HTTP|Python|JSON|DataFrame|LazyFrame|NumPy|pandas|polars|dtype|Traceback|Errno|TLS|SSL|"
    r"OpenSSL|URL|GPU|CUDA|ciphertexts?|residues?|circuits?|polynomials|integers? of \d+ bits|"
    r"scheduler|shards?|subprocess|None|True|False)\b|\bes\.|[a-z]_[a-z]|`|\(\)|\w=|/v1/|"
    r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b|\bencryptedstats \w|--\w|pip install"
)  # fmt: skip
ALLOWED = re.compile(r"\b(McNemar|raw = TRUE)\b")


class Raised:
    """A place that raises an error: its class, code and message."""

    def __init__(self, place: str, kind: str, code: str, parts: list[object]) -> None:
        self.place, self.kind, self.code, self.parts = place, kind, code, parts

    def error(self) -> BaseException:
        kind = getattr(errors, self.kind.rpartition(".")[2], None) or _SPECIAL.get(self.kind)
        is_error = isinstance(kind, type) and issubclass(kind, Curable)
        return (kind if is_error else EncryptedStatsError)(*self.parts, code=self.code)


_SPECIAL = {"GpuFullError": errors.DeviceError, "UnfinishedError": errors.FileFormatError}


def _text(node: ast.expr) -> object:
    """Return the text of an argument with a word in place of each value, or the cure that it is."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(str(_text(one)) for one in values)
        case ast.FormattedValue():
            return "something"
        case ast.BinOp(left=left, right=right):
            return f"{_text(left)}{_text(right)}"
        case ast.IfExp(body=body):
            return _text(body)
        case ast.Call(func=ast.Name(id="Cure"), args=[ast.Constant(value=action), words, *_]):
            return Cure(str(action), str(_text(words)), {"value": 7, "name": "age"})
        case _:
            return "something"


def raised() -> Iterator[Raised]:
    for path in sorted(SOURCE.rglob("*.py")):
        inside = path.relative_to(SOURCE)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args:
                codes = [one.value for one in node.keywords if one.arg == "code"]
                if codes and isinstance(codes[0], ast.Constant):
                    yield Raised(
                        f"{inside}:{node.lineno}", ast.unparse(node.func), str(codes[0].value),
                        [_text(one) for one in node.args],
                    )  # fmt: skip


def is_jargon(text: str) -> bool:
    return JARGON.search(ALLOWED.sub("", text)) is not None


def test_every_error_of_the_page_has_a_sentence() -> None:
    wrong, seen = [], set()
    for one in raised():
        folder = one.place.partition("/")[0].partition(":")[0]
        if folder in NOT_OF_THE_PAGE or one.place.startswith(WIDE):
            continue
        seen.add(one.code)
        said = in_page_words(one.error())
        is_ours = folder in BELOW or one.kind.endswith("ArgumentTypeError")
        mistake = said in GENERAL and not is_ours and one.code not in IN_PYTHON_ONLY
        if mistake or is_jargon(said):
            wrong.append(f"{one.place}: {one.kind} {one.code}: {said}")
    assert not wrong, "\n".join([f"{len(wrong)} errors have no sentence for the page:", *wrong])
    assert not IN_PYTHON_ONLY - seen


def test_sentences_are_of_codes_that_there_are() -> None:
    codes = {one.code for one in raised()} | {"failed-job", "import-questions"}
    assert sorted(set(SENTENCES) - codes) == []
    assert not {name for name in FAMILIES if not hasattr(errors, name)}


@pytest.mark.parametrize(
    "sentence",
    [*SENTENCES.values(), *FAMILIES.values(), *REFUSALS.values(), *SYSTEM.values(), SYSTEM_FAILED]
    + [words for _, words in OTHERS] + [*WORDS.values()],
)  # fmt: skip
def test_sentences_are_for_people(sentence: str) -> None:
    assert not is_jargon(sentence.replace("{head}", "").replace("{file}", "rows.csv"))
    assert not sentence.endswith(".")  # the template ends it


@pytest.mark.parametrize(
    ("error", "fact"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/srv/a/b"), "disk is full"),
        (PermissionError(errno.EACCES, "Permission denied", "/home/me/rows.csv"), "rows.csv"),
        (MemoryError("Unable to allocate 7 GiB for an array with shape (4,)"), "memory"),
        (ModuleNotFoundError("No module named 'pyarrow'"), "not installed"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "letters"),
        (ValueError("could not convert string to float: 'x' in pandas.core"), "cannot be read"),
        (KeyError("_private"), "mistake of the program"),
        (errors.StorageError("s3://bucket/owners/3f: EndpointConnectionError"), "storage"),
        (WorkerError("https://w.example answered 500", status=500, code="x"), "try again"),
        (WorkerError("x refuses <script>", status=401, code="refused-by-worker"), "access token"),
        (WorkerError("busy", status=503, code="refused-by-worker"), "not ready"),
        (WorkerError("(ConnectError: [Errno 111])", code="unreachable-worker"), "address"),
        (WorkerError("told by the worker: type your passphrase", code="new-code"), "the worker"),
        (
            errors.SchemaError("https://w.example refuses it: /srv/x", code="unknown-variable"),
            "step Columns",
        ),
        (errors.KeyMismatchError("residues of PublicKeys()", code="other-key"), "another key"),
    ],
)
def test_errors_of_the_system_and_the_worker_are_sentences(error: BaseException, fact: str) -> None:
    said = in_page_words(error)
    assert fact in said
    assert not is_jargon(said)


def test_descriptions_of_parameters_and_questions_are_left_out() -> None:
    error = errors.ParameterError("proven with Parameters(bgv, N=8192)", code="keys-too-small")
    assert in_page_words(error) == SENTENCES["keys-too-small"]
    error = errors.DisclosureError("Histogram(variable='v0') is not published", code="new")
    assert in_page_words(error) == FAMILIES["DisclosureError"]


def test_what_a_file_or_column_is_called_is_kept() -> None:
    error = errors.SchemaError("blood_pressure has no bins", code="no-bins")
    assert in_page_words(error) == "blood_pressure has no bins"
    error = errors.ParameterError("n_trees=0: at least 1 is needed", code="x")
    assert in_page_words(error) == "Number of trees 0: at least 1 is needed"


def test_a_mistake_of_the_program_is_no_traceback(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("secret_of_the_program")

    monkeypatch.setattr(page.desk, "work", fail)
    client = page.client.__class__(
        page.client.app, base_url=str(page.client.base_url), raise_server_exceptions=False
    )
    client.cookies, client.headers = page.client.cookies, page.client.headers
    answer = client.get(f"/p/{page.project}/progress/send")
    assert answer.status_code == 500
    assert "mistake of the program" in answer.text
    assert "KeyError" not in answer.text
    assert "secret_of" not in answer.text


@pytest.mark.parametrize(
    "path", ["/p/none", "/nowhere", "/p/{}/results/none.svg?dark=x", "/p/{}/nonsense", "/static/x"]
)
def test_what_is_not_there_is_said_on_a_page(page: Page, path: str) -> None:
    answer = page.client.get(path.format(page.project))
    assert answer.status_code in (404, 200)
    assert "<h1>" in answer.text
    assert '{"detail"' not in answer.text


def test_a_project_of_another_version_is_named(page: Page) -> None:
    with pytest.raises(errors.FileFormatError) as raised_error:
        _read(b'{"version": 9}', "abc")
    assert not is_jargon(in_page_words(raised_error.value))
    assert State(title="x", created="now").version == 2
