"""``publish``: releases with noise, the ledger of their costs, and the report about them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

import encryptedstats as es
from encryptedstats.cli._console import command_line, file_text, plural, progress, tell
from encryptedstats.cli._errors import WORDS
from encryptedstats.cli._files import COMPUTED, Reads, Writes, save, write_text
from encryptedstats.cli._inputs import load_schema
from encryptedstats.cli._keys import load_owner
from encryptedstats.cli._options import (
    AsJson,
    Force,
    KeyFile,
    LedgerFolder,
    OwnSchema,
    PassphraseFile,
    argument,
    file_option,
    option,
    output,
)
from encryptedstats.cli.open import check_opens
from encryptedstats.publishing.opening import source_of
from encryptedstats.publishing.release import PUBLIC_SCHEMA
from encryptedstats.publishing.report import write_report
from encryptedstats.publishing.tables import check_written
from encryptedstats.tables.questions.words import parse_numbers
from encryptedstats.views import TableView, View
from encryptedstats.words import did_you_mean

_RELEASE: Final = {
    "epsilon": float,
    "delta": float,
    "mechanism": str,
    "relation": str,
    "max_rows": int,
    "max_weight": int,
}
_BEGIN: Final = {
    "epsilon": float,
    "delta": float,
    "relation": str,
    "max_rows": int,
}
_DELTA: Final = 1e-6
_CHOICES: Final = {
    "mechanism": ("auto", "laplace", "gaussian"),
    "relation": ("replace", "add"),
}
Ledger = Annotated[str, Reads, argument("LEDGER", "Folder or URL of the ledger, beside the key.")]
StudyKeys = Annotated[
    Path | None,
    file_option("--keys", help="Public keys of the owner, instead of the secret one."),
]


def _parse(words: list[str], kinds: dict[str, Any], command: str) -> dict[str, Any]:
    found = parse_numbers(words, kinds, command)
    for name, allowed in _CHOICES.items():
        if name in found and found[name] not in allowed:
            near = did_you_mean(found[name], allowed)
            raise typer.BadParameter(f"{name}={found[name]}: give {' or '.join(allowed)}{near}")
    return found


def publish_release(
    file: Annotated[
        str, Reads, argument("FILE", "An encrypted result or model; a file, or a URL.")
    ],
    words: Annotated[
        list[str],
        argument(
            "epsilon=X [NAME=VALUE]...",
            "epsilon: the privacy cost; 1 is usual, 0.1 is strict. delta: far below 1 divided by "
            "the number of rows (1e-6); 0 for Laplace noise only. mechanism: auto, laplace or "
            "gaussian. relation: replace (one row for another) or add (one row more or less); "
            "max_rows: the most rows of one person, protected together; both as in the ledger by "
            "default. max_weight: the largest weight of a row.",
        ),
    ],
    key: KeyFile = None,
    schema: OwnSchema = None,
    ledger: LedgerFolder = None,
    out: Annotated[
        Path | None,
        Writes(COMPUTED),
        output("File for the release: .csv; another name keeps it for predict or open."),
    ] = None,
    passphrase_file: PassphraseFile = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Open an answer with noise, so that it tells little about any single person.

    The noise gives differential privacy, and is computed from the question; nobody sees the exact
    numbers, not even you. The cost is taken from the budget of the ledger before anything is
    shown. Running the command again is another release, which costs again.

    JSON: file, epsilon, delta, rho, unit, relation, mechanism, scale, l1, l2, spent, budget,
      not_covered, rows, totals

    Examples:
      encryptedstats publish begin study.ledger epsilon=3 --rules pcornet --key secret.key
      encryptedstats publish release forest.enc epsilon=1 --key secret.key --schema schema.json \\
        --ledger study.ledger -o x.model
      encryptedstats publish release age.enc epsilon=0.5 delta=0 --key secret.key \\
        --schema schema.json -o age.csv
    """
    check_opens(file)
    options = {"delta": _DELTA, **_parse(words, _RELEASE, "publish release")}
    if "epsilon" not in options:
        raise typer.BadParameter("epsilon is needed, the privacy cost: epsilon=1")
    private = None if schema is None else load_schema(schema)
    owner = load_owner(key, passphrase_file, opens=file)
    as_csv = out is not None and out.suffix == ".csv"
    if as_csv:  # before it costs anything
        check_written(source_of(file, owner, private).answer.question.name)
    found = owner.release(file, private, ledger=ledger, **options)
    if out is not None and as_csv:
        write_text(out, found.to_frame().to_csv(lineterminator="\n"), force=force)
    elif out is not None:
        save(found, out, force=force)
    said = {
        "file": file,
        **found.privacy.to_dict(),
        "rows": found.source.n_rows,
        "totals": list(found.source.totals),
    }
    text = str(found).replace(PUBLIC_SCHEMA.words, WORDS[PUBLIC_SCHEMA.action])
    title, *lines = text.splitlines()
    wrote = () if out is None else ("", f"Wrote {file_text(out)}")
    tell(View(title, notes=(*lines, *wrote)), said, as_json)


def publish_begin(
    folder: Ledger,
    words: Annotated[
        list[str],
        argument(
            "epsilon=X [NAME=VALUE]...",
            "The budget: epsilon and delta (1e-6). relation of all releases: replace if the number "
            "of rows is public, else add. max_rows: the most rows of one person; 1 protects single "
            "rows.",
        ),
    ],
    key: KeyFile = None,
    rules: Annotated[
        str | None,
        option(
            metavar="PROFILE",
            help="Disclosure rules: datashield (counts of 3 and more), five, ten or pcornet (11).",
        ),
    ] = None,
    member: Annotated[
        list[Path] | None,
        option(
            metavar="FILE",
            help="Public keys of another person who may write; may be given several times.",
        ),
    ] = None,
    another: Annotated[
        bool,
        typer.Option(
            "--another",
            help="Begin it although the key has another ledger, whose costs are not counted here.",
        ),
    ] = False,
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Begin a ledger: the budget and the rules of everything that is published.

    It fixes whom its epsilon protects: releases of another unit or relation are refused.

    JSON: ledger, key_id, units, other_ledgers, budget, epsilon_spent, rho_spent, head, entries

    Examples:
      encryptedstats publish begin study.ledger epsilon=3 --key secret.key --rules pcornet
    """
    options = {"delta": _DELTA, **_parse(words, _BEGIN, "publish begin")}
    if "epsilon" not in options and rules is None:
        raise typer.BadParameter("epsilon is needed, the budget of all releases: epsilon=3")
    owner = load_owner(key, passphrase_file)
    others = [es.PublicKeys.load(one) for one in member or ()]
    book = es.Ledger.begin(folder, owner, rules=rules, members=others, another=another, **options)
    _show_ledger(book, as_json)


def publish_budget(
    folder: Ledger,
    words: Annotated[list[str], argument("epsilon=X [delta=X]", "The budget from now on.")],
    key: KeyFile = None,
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Give a ledger another budget from now on.

    JSON: ledger, key_id, units, other_ledgers, budget, epsilon_spent, rho_spent, head, entries

    Examples:
      encryptedstats publish budget study.ledger epsilon=5 --key secret.key
    """
    kinds = {name: _BEGIN[name] for name in ("epsilon", "delta")}
    options = {"delta": _DELTA, **_parse(words, kinds, "publish budget")}
    if "epsilon" not in options:
        raise typer.BadParameter("epsilon is needed, the budget of all releases: epsilon=5")
    owner = load_owner(key, passphrase_file)
    book = es.Ledger.of(folder, owner)
    book.set_budget(owner, options["epsilon"], options["delta"])
    _show_ledger(book, as_json)


def publish_ledger(
    folder: Ledger,
    key: KeyFile = None,
    keys: StudyKeys = None,
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Show what was opened, published and released, and the rest of the budget.

    Every entry is signed and has the hash of the one before, so that changes are noticed. Somebody
    who can write to the folder can still restore an earlier state: keep the hash of the last entry
    elsewhere.

    JSON: ledger, key_id, units, other_ledgers, budget, epsilon_spent, rho_spent, head, entries

    Examples:
      encryptedstats publish ledger study.ledger --keys public.keys
    """
    _show_ledger(es.Ledger(folder, _public(key, keys, passphrase_file)), as_json)


def _public(
    key: Path | None, keys: Path | None, passphrase_file: Path | None
) -> es.PublicKeys | es.Owner:
    if keys is None and key is None:
        raise es.ArgumentError(
            "a key is needed: --keys public.keys, or --key secret.key",
            code="no-public-keys",
        )
    return es.PublicKeys.load(keys) if keys is not None else load_owner(key, passphrase_file)


def _show_ledger(book: es.Ledger, as_json: bool) -> None:
    budget, units = book.budget, book.units
    mixed = len(units) > 1  # of an older version: their costs do not add up
    epsilon, rho = (None, None) if mixed else (book.epsilon_spent, book.rho_spent)
    entries = [{"by": one.by, "hash": one.hash, **one.content} for one in book.entries()]
    document = {
        "ledger": book.url,
        "key_id": book.keys.key_id,
        "units": [unit.to_dict() for unit in units],
        "other_ledgers": book.n_others,
        "budget": None if budget is None else vars(budget),
        "epsilon_spent": epsilon,
        "rho_spent": rho,
        "head": book.head(),
        "entries": entries,
    }
    tell(_ledger_view(book, document), document, as_json)


def _ledger_view(book: es.Ledger, document: dict[str, Any]) -> View:
    import pandas as pd

    budget, epsilon, rho = book.budget, document["epsilon_spent"], document["rho_spent"]
    left = "no budget" if budget is None else f"of {budget.epsilon:g} at delta {budget.delta:g}"
    others = document["other_ledgers"]
    facts = {
        "key": book.keys.fingerprint,
        "spent": "costs of different units do not add up: begin a ledger for each"
        if epsilon is None
        else f"epsilon {epsilon:.4g} {left} (rho {rho:.4g})",
        "beside it": f"{others} other of this key, not counted here" if others else "",
        "about": "; and ".join(map(str, book.units)) or "not fixed yet: the first release fixes it",
        "rules": "none" if book.rules is None else book.rules.describe(),
        "last entry": f"{document['head']}  keep it elsewhere, to notice if entries are removed",
    }
    frame = book.to_frame()
    shown = frame.assign(
        time=[text[:16].replace("T", " ") for text in frame["time"]],
        rows=["" if pd.isna(n) else f"{int(n):,}" for n in frame["rows"]],
        epsilon=["" if pd.isna(x) else f"{x:g}" for x in frame["epsilon"]],
    )
    if shown["by"].nunique() == 1:
        shown = shown.drop(columns="by")
    count = f"{len(frame)} {'entry' if len(frame) == 1 else 'entries'}"
    return View(f"Ledger {book.url}, {count}", facts, (TableView("entries", shown),))


def publish_report(
    files: Annotated[
        list[str] | None,
        Reads,
        argument("FILES", "Tables, answers and models of the study, encrypted or decrypted."),
    ] = None,
    out: Annotated[
        Path,
        Writes(COMPUTED),
        output("File for the page: .html, or .pdf if a browser is installed."),
    ] = Path("report.html"),
    key: KeyFile = None,
    keys: StudyKeys = None,
    ledger: LedgerFolder = None,
    title: Annotated[
        str, typer.Option(metavar="TEXT", help="Title of the page.")
    ] = "Report on an encrypted study",
    passphrase_file: PassphraseFile = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write a report for an ethics board: what was computed and what was published.

    The page is made from the files and says who could see what. It is one file, can be printed,
    and has no names of variables, levels or classes.

    JSON: file, bytes, files, ledger

    Examples:
      encryptedstats publish report patients.enc forest.enc --keys public.keys \\
        --ledger study.ledger -o report.html
      encryptedstats publish report patients.enc forest.enc --keys public.keys \\
        --ledger study.ledger -o report.pdf
    """
    who, paths = _public(key, keys, passphrase_file), list(files or ())
    with progress("writing the report"):
        write_report(out, paths, keys=who, ledger=ledger, title=title, overwrite=force)
    facts = {"report": file_text(out, "readable to you only")}
    if ledger is None:
        facts["no ledger"] = "openings and releases are missing: give --ledger"
    elif out.suffix != ".pdf":
        by = ("--keys", keys) if keys is not None else ("--key", key)
        again = ("report", *paths, *by, "--ledger", ledger, "-o", out.with_suffix(".pdf"))
        facts["as PDF"] = command_line("publish", *again)
    document = {
        "file": str(out),
        "bytes": out.stat().st_size,
        "files": paths,
        "ledger": ledger,
    }
    tell(View(f"Report on {plural(len(paths), 'file')}", facts), document, as_json)
