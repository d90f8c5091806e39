"""A page for an ethics board, made from the files themselves: what was computed, under which key,
and what left the house.

One HTML page without anything from elsewhere, which prints well: the template
``templates/report.html``, filled with plain data. It names no variable, level or class: it is made
from public files and the ledger, which know none.
"""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, NamedTuple

from encryptedstats.crypto.keyfiles import read_parameters
from encryptedstats.crypto.keys import Owner, PublicKeys, fingerprint_of
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.crypto.security import TABLE_NAME
from encryptedstats.errors import REPLACE, ExistsError, InsecureParametersWarning, KeyMismatchError
from encryptedstats.kinds import KINDS
from encryptedstats.publishing.ledger import (
    BEGIN,
    BUDGET,
    OPENED,
    PUBLISHED,
    RELEASED,
    Ledger,
    describe_exact,
    exact_of_same_rows,
    hides_rows,
)
from encryptedstats.publishing.rules import Rules
from encryptedstats.publishing.units import Unit
from encryptedstats.storage import container
from encryptedstats.storage.chains import ChainEntry
from encryptedstats.storage.files import PRIVATE, write_atomic
from encryptedstats.storage.objects import open_store, read_object
from encryptedstats.tables import EncryptedTable
from encryptedstats.tables.manifest import MANIFEST
from encryptedstats.tables.questions.question import question_class
from encryptedstats.words import plural, size_text

_BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
_PACKAGES: Final = ("encryptedstats", "seal-python", "cryptography", "numpy", "scipy", "opendp")
_DIGEST_SHOWN: Final = 16
_MOST_LISTED: Final = 40


@dataclass(frozen=True)
class _Table:
    where: str
    facts: dict[str, Any]
    parameters: Parameters
    variables: list[str]
    digest: str


@dataclass(frozen=True)
class _Computed:
    where: str
    words: str
    facts: dict[str, Any]
    key_id: str
    digest: str  # empty for a file with exact totals
    size: int
    released: dict[str, Any] | None


def write_report(
    out: str | os.PathLike[str],
    files: Iterable[str | os.PathLike[str]] = (),
    *,
    keys: PublicKeys | Owner,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    title: str = "Report on an encrypted study",
    overwrite: bool = False,
) -> None:
    """Write a report on tables, results and models, and on the ledger, as one HTML page; as PDF
    where ``out`` ends so.

    Parameters
    ----------
    out : path
        A ``.html`` file, or a ``.pdf`` file, which a browser (Chromium or Chrome) prints.
    files : list of paths or fsspec URLs
        Encrypted tables, encrypted and opened results and models: all that belongs to the key.
    keys : PublicKeys or Owner
    ledger : Ledger, or path or URL of its folder, optional
    title : str
    overwrite : bool
    """
    path = Path(out)
    if path.exists() and not overwrite:
        raise ExistsError(f"{path} exists already and was not touched (", REPLACE, " replaces it)")
    public = keys.public_keys(()) if isinstance(keys, Owner) else keys
    book = (
        Ledger(ledger, public) if ledger is not None and not isinstance(ledger, Ledger) else ledger
    )
    page = report_page([os.fspath(file) for file in files], public, book, title)
    if path.suffix == ".pdf":
        write_atomic(path, [_print_page(page)], mode=PRIVATE, overwrite=overwrite)
    else:
        write_atomic(path, [page.encode()], mode=PRIVATE, overwrite=overwrite)


def report_page(files: Sequence[str], keys: PublicKeys, ledger: Ledger | None, title: str) -> str:
    """Return the page as HTML."""
    tables: list[_Table] = []
    computed: list[_Computed] = []
    with warnings.catch_warnings():
        # The page itself says so, in red.
        warnings.simplefilter("ignore", InsecureParametersWarning)
        for where in files:
            found = _looked_at(where)
            known = found.facts["key_id"] if isinstance(found, _Table) else found.key_id
            if known and known != keys.key_id:
                raise KeyMismatchError(
                    f"{where} belongs to key {known}, and the report is about key {keys.key_id}",
                    code="other-key",
                )
            if isinstance(found, _Table):
                tables.append(found)
            else:
                computed.append(found)
    entries = ledger.entries() if ledger is not None else ()
    hidden = hides_rows(entries)
    page: str = _template().render(
        title=title,
        fingerprint=fingerprint_of(keys.key_id),
        made=datetime.now(timezone.utc).strftime("%d %B %Y, %H:%M UTC"),
        boxes=_boxes(tables, computed, keys, ledger, hidden),
        tables=[_table_facts(table, hidden) for table in tables],
        key=_key_facts(keys),
        computed=[_computed_line(one, hidden) for one in computed],
        ledger=None if ledger is None else _ledger_facts(ledger),
        openings=[] if ledger is None else _openings(entries, ledger),
        units=_units(entries, ledger),
        not_covered=[] if ledger is None else _not_covered(entries, computed, ledger),
        software=_software(entries, computed),
    )
    return page


def _template() -> Any:
    try:
        import jinja2
    except ImportError as error:
        raise ModuleNotFoundError(
            "a report is written with Jinja2: pip install 'encryptedstats[report]'"
        ) from error
    loader = jinja2.PackageLoader("encryptedstats.publishing")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined
    )
    return environment.get_template("report.html")


# -- what the files say
# ------------------------------------------------------------------------------------------------


def _looked_at(where: str) -> _Table | _Computed:
    store = open_store(where)
    if store.exists(MANIFEST):
        table = EncryptedTable.load(where)
        digest = hashlib.sha256(store.read(MANIFEST)).hexdigest()
        listed = [f"{one.id}: {_variable(one)}" for one in table.schema.variables]
        return _Table(where, table.info().to_dict(), table.parameters, listed, digest)
    data = read_object(where)
    file = container.from_bytes(data, name=where)
    known = KINDS.get(file.kind)
    facts = known.facts(file) if known is not None else {}
    if "parameters" in file.fields:
        read_parameters(file)
    words = known.words if known is not None else file.kind
    released = file.fields.get("released")
    # Readers who can guess exact totals could confirm them by the hash of their file.
    has_exact_totals = released is None and facts.get("encrypted") is False
    digest = "" if has_exact_totals else hashlib.sha256(data).hexdigest()
    return _Computed(where, words, facts, file.key_id, digest, len(data), released)


def _variable(one: Any) -> str:
    if one.kind == "number":
        bins = f", and {plural(one.n_bins, 'bin')}" if one.n_bins else ""
        return f"a number, {one.low:,} to {one.high:,}{bins}"
    return f"{one.kind}, {plural(one.n_bins, 'bin')}"


# -- sections
# ------------------------------------------------------------------------------------------------


class _Cell(NamedTuple):
    """A text, and how it is written: as ``code``, as ``bad``, or as any other."""

    text: str
    kind: str = ""


_Facts = list[tuple[str, list[_Cell]]]


def _boxes(
    tables: Sequence[_Table],
    computed: Sequence[_Computed],
    keys: PublicKeys,
    ledger: Ledger | None,
    hidden: bool,
) -> list[tuple[str, _Cell]]:
    entries = () if ledger is None else ledger.entries()

    def count(what: str) -> _Cell:
        n = sum(entry.content["what"] == what for entry in entries)
        return _Cell("\N{EN DASH}" if ledger is None else str(n))

    security = keys.parameters.security
    rows = _n_rows(sum(table.facts["rows"] for table in tables), hidden)
    boxes = [
        ("encrypted rows", _Cell(rows if tables else "\N{EN DASH}")),
        ("bits of security", _Cell(str(security)) if security else _Cell("insecure", "bad")),
        ("results computed", _Cell(str(len(computed)))),
        ("opened exactly", count(OPENED)),
        ("published by rules", count(PUBLISHED)),
        ("released with noise", count(RELEASED)),
    ]
    if ledger is not None:
        boxes.append(("epsilon of noisy results only", _spent(ledger)))
    return boxes


def _n_rows(rows: int, hidden: bool) -> str:
    """Return the number of rows as text, unless the ledger takes it for not public."""
    return "not public" if hidden else f"{rows:,}"


def _spent(ledger: Ledger) -> _Cell:
    if len(ledger.units) > 1:
        return _Cell("units mixed", "bad")
    budget, spent = ledger.budget, f"{ledger.epsilon_spent:.3g}"
    return _Cell(spent if budget is None else f"{spent} of {budget.epsilon:g}")


def _table_facts(table: _Table, hidden: bool) -> _Facts:
    facts = table.facts
    by_others = ", some rows by others than the owner" if facts.get("by_others") else ""
    left = facts["rows_left_out"]
    stored = (plural(facts["blocks"], "block"), plural(facts["columns"], "column"))
    variables = "; ".join(table.variables[:_MOST_LISTED])
    more = "; ..." if len(table.variables) > _MOST_LISTED else ""
    rows = _n_rows(facts["rows"], hidden)
    return [
        ("found at", [_Cell(table.where, "code")]),
        ("rows", [_Cell(rows + (f", {_n_rows(left, hidden)} left out" if left else ""))]),
        ("classes", [_Cell(str(facts["classes"] or "none"))]),
        ("encrypted with", [_Cell(f"the {facts['encrypted_with']}{by_others}")]),
        ("stored as", [_Cell(", ".join([*stored, size_text(facts["bytes"])]))]),
        ("variables", [_Cell(variables + more)]),
        ("SHA-256 of its manifest", [_Cell(table.digest, "code")]),
    ]


def _key_facts(keys: PublicKeys) -> _Facts:
    chosen = keys.parameters
    security = (
        _Cell(f"{chosen.security} bits")
        if chosen.security
        else _Cell("INSECURE: less than 128 bits, never for real data", "bad")
    )
    bits = " + ".join(str(q.bit_length()) for q in chosen.coefficient_moduli)
    failure = f"a decryption goes wrong with a probability of at most {chosen.failure_bound}"
    return [
        ("fingerprint", [_Cell(fingerprint_of(keys.key_id), "code")]),
        ("scheme", [_Cell(f"{chosen.scheme.upper()}, exact integers")]),
        ("security", [security, _Cell(f" ({TABLE_NAME})")]),
        ("ring degree", [_Cell(f"{chosen.ring_degree:,}")]),
        ("modulus", [_Cell(f"{chosen.modulus_bits} bits: {bits}")]),
        ("exact up to", [_Cell(f"\N{PLUS-MINUS SIGN}{chosen.max_value:,}")]),
        ("failure bound", [_Cell(failure)]),
    ]


def _computed_line(one: _Computed, hidden: bool) -> dict[str, str]:
    # What was released has the number of rows with noise where it is not public.
    hides = hidden and not one.released
    return {
        "asked": _describe_question(one.facts) if "question" in one.facts else one.words,
        "rows": _n_rows(one.facts["rows"], hides) if "rows" in one.facts else "",
        "state": "released with noise" if one.released else one.words,
        "where": one.where,
        "digest": one.digest[:_DIGEST_SHOWN],
        "size": size_text(one.size),
    }


def _describe_question(facts: Mapping[str, Any]) -> str:
    """Describe a question by ids, or as it is stored if its code is not installed."""
    try:
        return question_class(facts["question"])._from_parameters(facts["params"]).describe()
    except (ValueError, TypeError, LookupError):
        pass
    params = ", ".join(
        f"{name}={value}" for name, value in facts.get("params", {}).items() if value is not None
    )
    return f"{facts['question']}({params})"


def _ledger_facts(ledger: Ledger) -> dict[str, Any]:
    budget, is_mixed = ledger.budget, len(ledger.units) > 1
    found: dict[str, Any] = {"head": ledger.head(), "mixed": is_mixed, "share": None}
    if budget is not None and not is_mixed:
        spent = ledger.epsilon_spent
        share = min(1.0, spent / budget.epsilon)
        found |= {
            "share": f"{100 * share:.1f}",
            "spent": f"{spent:.3g}",
            "budget": f"{budget.epsilon:g}",
            "delta": f"{budget.delta:g}",
        }
    return found


def _openings(entries: Sequence[ChainEntry], ledger: Ledger) -> list[dict[str, Any]]:
    frame = ledger.to_frame()
    return [
        {
            "number": entry.number,
            "time": entry.content["time"].replace("T", " ")[:16],
            "what": entry.content["what"],
            "lines": _describe_rules(entry.content),
            "cost": _cost(entry.content),
            "spent": "" if math.isnan(spent) else f"{spent:.3g}",
        }
        for entry, spent in zip(entries, frame["spent"], strict=True)
    ]


def _describe_rules(said: Any) -> list[str]:
    """Return what an entry says, in lines."""
    if said["what"] == BEGIN:
        rules = "no rules" if said["rules"] is None else Rules.from_dict(said["rules"]).describe()
        budget = (
            "no budget"
            if said["budget"] is None
            else f"budget epsilon {said['budget']['epsilon']:g}"
        )
        unit = (
            "" if said.get("unit") is None else f"; epsilon is about {Unit.from_dict(said['unit'])}"
        )
        return [f"{budget}{unit}; {plural(len(said['members']), 'member')}; {rules}"]
    if said["what"] == BUDGET:
        return [f"budget set to epsilon {said['epsilon']:g}, delta {said['delta']:g}"]
    what = "predictions by " if said.get("predicted") else ""
    rows = f", {said['rows']:,} rows" if "rows" in said else ""
    lines = [f"{what}{_describe_question(said)}{rows}"]
    if said["what"] == PUBLISHED:
        lines.append(f"rules {Rules.from_dict(said['rules']).name}")
        lines += [f"left out, {finding}" for finding in said["findings"]]
    elif said["what"] == RELEASED and "mechanism" in said:
        noise = f"{said['mechanism'].capitalize()} noise of scale {said['scale']:.4g}"
        lines.append(f"{noise}; {said['unit']}")
    return lines


def _cost(said: Any) -> dict[str, str]:
    if said["what"] != RELEASED:
        return {}
    delta = f"{said['delta']:g}" if said.get("delta") else ""
    return {"epsilon": f"{said['epsilon']:g}", "delta": delta, "rho": f"{said['rho']:.3g}"}


def _units(entries: Sequence[ChainEntry], ledger: Ledger | None) -> list[str]:
    if ledger is None or not any(entry.content["what"] == RELEASED for entry in entries):
        return []
    return list(map(str, ledger.units))


def _not_covered(
    entries: Sequence[ChainEntry], computed: Sequence[_Computed], ledger: Ledger
) -> list[str]:
    """Return what epsilon does not cover, first of all exact openings."""
    released = [entry.content for entry in entries if entry.content["what"] == RELEASED]
    items = [*_without_noise(entries, released), *_opened_files(computed)]
    items.append(
        "results that were opened without this ledger: the owner of the key can, and no file tells"
    )
    if ledger.n_others:
        items.append(f"costs in other ledgers of this key, of which {ledger.n_others} were noticed")
    stated = [what for said in released for what in said.get("not_covered", ())]
    return items + [
        what
        for what in dict.fromkeys(stated)
        if " of the ledger)" not in what and "other ledgers" not in what
    ]


def _without_noise(
    entries: Sequence[ChainEntry], released: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Name the entries without noise: first of rows that were released too, then all others."""
    shared = exact_of_same_rows(
        entries, [block for said in released for block in said.get("blocks", ())]
    )
    found = describe_exact(shared)
    others = [
        entry.number
        for entry in entries
        if entry.content["what"] in (OPENED, PUBLISHED)
        and entry.number not in {n for ns in shared.values() for n in ns}
    ]
    if others:
        numbers = ", ".join(map(str, others))
        found.append(
            f"{plural(len(others), 'result')} without noise of rows that no release is known to "
            f"be of (entries {numbers})"
        )
    return found


def _opened_files(computed: Sequence[_Computed]) -> list[str]:
    """Name the given files that hold exact totals in the clear."""
    exact = [one for one in computed if not one.released and one.facts.get("encrypted") is False]
    return [
        f"the exact numbers in {Path(one.where).name}, which is opened and has no noise"
        for one in exact
    ]


def _software(entries: Sequence[ChainEntry], computed: Sequence[_Computed]) -> _Facts:
    rows = [(name, [_Cell(found)]) for name in _PACKAGES if (found := _version(name))]
    if entries:
        used = ", ".join(dict.fromkeys(str(entry.content.get("version", "")) for entry in entries))
        rows.append(("versions that wrote the ledger", [_Cell(used)]))
    hashed = [one for one in computed if one.digest]
    return rows + [
        (f"SHA-256 of {Path(one.where).name}", [_Cell(one.digest, "code")]) for one in hashed
    ]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


# -- as PDF
# ------------------------------------------------------------------------------------------------


def _print_page(page: str) -> bytes:
    """Print the page as PDF with a browser."""
    browser = next((found for name in _BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        raise FileNotFoundError(
            f"a PDF is printed by a browser, and none of {', '.join(_BROWSERS)} is here: write "
            ".html, and print it anywhere"
        )
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "report.html", Path(folder) / "report.pdf"
        source.write_text(page)
        options = [
            "--headless",
            "--disable-gpu",
            "--no-pdf-header-footer",
            f"--user-data-dir={folder}/profile",
        ]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            options.append(
                "--no-sandbox"
            )  # browsers refuse to start as root with one; the page is our own
        subprocess.run(
            [browser, *options, f"--print-to-pdf={made}", source.as_uri()],
            check=False,
            capture_output=True,
            timeout=120,
        )
        if not made.exists():
            raise OSError(f"{browser} has printed no PDF: write .html, and print it by hand")
        return made.read_bytes()
