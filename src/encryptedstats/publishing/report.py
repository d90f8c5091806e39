"""A page for an ethics board, made from the files themselves: what was computed, under which key,
and what left the house.

One HTML page without anything from elsewhere, which prints well. It names no variable, level or
class: it is made from public files and the ledger, which know none.
"""

from __future__ import annotations

import hashlib
import html
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
from typing import Any, Final

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
from encryptedstats.storage.chains import Entry
from encryptedstats.storage.files import PRIVATE, write_atomic
from encryptedstats.storage.objects import open_store, read_object
from encryptedstats.tables import EncryptedTable
from encryptedstats.tables.encrypted_table import MANIFEST
from encryptedstats.tables.questions.question import question_class
from encryptedstats.words import plural, size_text

_BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
_PACKAGES: Final = ("encryptedstats", "seal-python", "cryptography", "numpy", "scipy", "opendp")
_DIGEST_SHOWN: Final = 16


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
        write_atomic(path, [_printed(page)], mode=PRIVATE, overwrite=overwrite)
    else:
        write_atomic(path, [page.encode()], mode=PRIVATE, overwrite=overwrite)


def report_page(files: Sequence[str], keys: PublicKeys, ledger: Ledger | None, title: str) -> str:
    """The page as HTML."""
    tables: list[_Table] = []
    computed: list[_Computed] = []
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", InsecureParametersWarning
        )  # the page itself says so, in red
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
    parts = [
        _summary(tables, computed, entries, keys, ledger, hidden),
        _who(bool(entries)),
        _tables(tables, hidden),
        _key(keys),
        _questions(computed, hidden),
        _openings(entries, ledger),
        _privacy(entries, computed, ledger),
        _software(entries, tables, computed, ledger),
    ]
    made = datetime.now(timezone.utc).strftime("%d %B %Y, %H:%M UTC")
    head = (
        f"<header><h1>{_text(title)}</h1><p>Key {_code(fingerprint_of(keys.key_id))} &middot; "
        f"made on {made}</p></header>"
    )
    top = (
        "<!doctype html><html lang=en><meta "
        f"charset=utf-8><title>{_text(title)}</title><style>{_STYLE}</style>"
    )
    return f"{top}<main>{head}{''.join(parts)}</main></html>\n"


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


def _summary(
    tables: Sequence[_Table],
    computed: Sequence[_Computed],
    entries: Sequence[Entry],
    keys: PublicKeys,
    ledger: Ledger | None,
    hidden: bool,
) -> str:
    opened, published, released = (
        sum(entry.content["what"] == what for entry in entries)
        for what in (OPENED, PUBLISHED, RELEASED)
    )
    security = keys.parameters.security
    boxes = [
        (
            "encrypted rows",
            _n_rows(sum(table.facts["rows"] for table in tables), hidden) if tables else "&ndash;",
        ),
        ("bits of security", str(security) if security else "<span class=bad>insecure</span>"),
        ("results computed", str(len(computed))),
        ("opened exactly", str(opened) if ledger is not None else "&ndash;"),
        ("published by rules", str(published) if ledger is not None else "&ndash;"),
        ("released with noise", str(released) if ledger is not None else "&ndash;"),
    ]
    if ledger is not None:
        boxes.append(("epsilon of noisy results only", _spent_words(ledger)))
    shown = "".join(f"<div><b>{value}</b><span>{name}</span></div>" for name, value in boxes)
    return f"<section class=boxes>{shown}</section>"


def _n_rows(rows: int, hidden: bool) -> str:
    """Return the number of rows as text, unless the ledger takes it for not public."""
    return "not public" if hidden else f"{rows:,}"


def _spent_words(ledger: Ledger) -> str:
    if len(ledger.units) > 1:
        return "<span class=bad>units mixed</span>"
    budget, spent = ledger.budget, f"{ledger.epsilon_spent:.3g}"
    return spent if budget is None else f"{spent} of {budget.epsilon:g}"


def _who(has_ledger: bool) -> str:
    rows = [
        (
            "The owner",
            "the rows and the secret key",
            "everything",
            "keeps the key, opens results and writes the ledger",
        ),
        (
            "The worker",
            "the encrypted table and the public keys",
            "how many rows, variables, bins and classes there are, and which questions are asked",
            "computes totals; cannot open anything, not even its own results",
        ),
        (
            "Readers of what is published",
            "what was published by rules",
            "counts and models as far as the rules let them be shown",
            "what several results tell together is compared by the ledger, and proven for none",
        ),
        (
            "Readers of what is released",
            "results with noise",
            "little of any single person, whatever else they know: epsilon says how little",
            "whatever they compute from it costs no further privacy",
        ),
    ]
    if has_ledger:
        rows.append(
            (
                "Members who read the ledger",
                "its entries",
                "which questions were asked, of how many rows (where that is public), and what "
                "was shown; no names",
                "notice what is altered; only who keeps its last hash notices that it was rolled "
                "back",
            )
        )
    lines = "".join(
        f"<tr><th>{_text(who)}</th>{''.join(f'<td>{_text(cell)}</td>' for cell in cells)}</tr>"
        for who, *cells in rows
    )
    head = "<tr><th></th><th>has</th><th>can see</th><th>and</th></tr>"
    return _section("Who could see what", f"<table class=wide>{head}{lines}</table>")


def _tables(tables: Sequence[_Table], hidden: bool) -> str:
    if not tables:
        return _section("The tables", "<p>No table was given to this report.</p>")
    parts = []
    for table in tables:
        facts = table.facts
        by = f"the {facts['encrypted_with']}" + (
            ", some rows by others than the owner" if facts.get("by_others") else ""
        )
        rows = [
            ("found at", _code(table.where)),
            (
                "rows",
                _n_rows(facts["rows"], hidden)
                + (
                    f", {_n_rows(facts['rows_left_out'], hidden)} left out"
                    if facts["rows_left_out"]
                    else ""
                ),
            ),
            ("classes", str(facts["classes"] or "none")),
            ("encrypted with", _text(by)),
            (
                "stored as",
                f"{plural(facts['blocks'], 'block')}, {plural(facts['columns'], 'column')}, "
                f"{size_text(facts['bytes'])}",
            ),
            (
                "variables",
                _text(
                    "; ".join(table.variables[:40]) + ("; ..." if len(table.variables) > 40 else "")
                ),
            ),
            ("SHA-256 of its manifest", _code(table.digest)),
        ]
        parts.append(_facts(rows))
    note = (
        "<p class=note>Variables, bins and classes have numbers here. What they are called never "
        "leaves the owner.</p>"
    )
    return _section("The tables" if len(tables) > 1 else "The table", "".join(parts) + note)


def _key(keys: PublicKeys) -> str:
    chosen = keys.parameters
    security = (
        f"{chosen.security} bits"
        if chosen.security
        else "<span class=bad>INSECURE: less than 128 bits, never for real data</span>"
    )
    bits = " + ".join(str(q.bit_length()) for q in chosen.coefficient_moduli)
    rows = [
        ("fingerprint", _code(fingerprint_of(keys.key_id))),
        ("scheme", f"{chosen.scheme.upper()}, exact integers"),
        ("security", f"{security} ({_text(TABLE_NAME)})"),
        ("ring degree", f"{chosen.ring_degree:,}"),
        ("modulus", f"{chosen.modulus_bits} bits: {bits}"),
        ("exact up to", f"&plusmn;{chosen.max_value:,}"),
        (
            "failure bound",
            "a decryption goes wrong with a probability of at most "
            f"{_text(str(chosen.failure_bound))}",
        ),
    ]
    return _section("The key", _facts(rows))


def _questions(computed: Sequence[_Computed], hidden: bool) -> str:
    if not computed:
        return _section("What was computed", "<p>No results were given to this report.</p>")
    lines = []
    for one in computed:
        asked = _asked(one.facts) if "question" in one.facts else one.words
        state = "released with noise" if one.released else one.words
        # What was released has the number of rows with noise where it is not public.
        rows = (
            _n_rows(one.facts["rows"], hidden and not one.released) if "rows" in one.facts else ""
        )
        digest = f"{_code(one.digest[:_DIGEST_SHOWN])}, " if one.digest else ""
        found = f"{_code(one.where)}<br>{digest}{size_text(one.size)}"
        lines.append(
            f"<tr><td>{_text(asked)}</td><td "
            f"class=n>{rows}</td><td>{_text(state)}</td><td>{found}</td></tr>"
        )
    head = (
        "<tr><th>question</th><th class=n>rows</th><th>which is</th><th class=hash>found at, "
        "hash</th></tr>"
    )
    note = (
        "<p class=note>Whoever has the encrypted table and the public keys can have computed "
        "these. No file says on which machine "
        "it was; none of them could read a row.</p>"
    )
    return _section("What was computed", f"<table class=wide>{head}{''.join(lines)}</table>{note}")


def _asked(facts: Mapping[str, Any]) -> str:
    """A question in words, by ids; as it is stored where its code is not here."""
    try:
        return question_class(facts["question"]).from_parameters(facts["params"]).describe()
    except (ValueError, TypeError, LookupError):
        pass
    params = ", ".join(
        f"{name}={value}" for name, value in facts.get("params", {}).items() if value is not None
    )
    return f"{facts['question']}({params})"


def _openings(entries: Sequence[Entry], ledger: Ledger | None) -> str:
    if ledger is None:
        return _section(
            "What left the house",
            "<p class=bad>No ledger was given: what was opened, published or released is not "
            "known to this report.</p>",
        )
    frame = ledger.to_frame()
    budget = ledger.budget
    lines = []
    for entry, spent in zip(entries, frame["spent"], strict=True):
        said = entry.content
        lines.append(
            f"<tr><td class=n>{entry.number}</td><td "
            f"class=when>{_text(said['time'].replace('T', ' ')[:16])}</td>"
            "<td><span class='tag "
            f"{_text(said['what'])}'>{_text(said['what'])}</span></td><td>{_said(said)}</td>"
            f"<td class=n>{_cost(said)}</td><td "
            f"class=n>{'' if math.isnan(spent) else f'{spent:.3g}'}</td></tr>"
        )
    names = (
        "<th class=n>#",
        "<th>when (UTC)",
        "<th>what",
        "<th>question",
        "<th class=n>&epsilon;",
        "<th class=n>spent",
    )
    head = f"<tr>{'</th>'.join(names)}</th></tr>"
    bar = ""
    if len(ledger.units) > 1:
        bar = (
            "<p class=bad>Releases of different units were spent from this ledger: their epsilons "
            "do not add up.</p>"
        )
    elif budget is not None:
        share = min(1.0, ledger.epsilon_spent / budget.epsilon)
        bar = (
            f"<p>Epsilon {ledger.epsilon_spent:.3g} of {budget.epsilon:g} is spent on noisy "
            f"results, at delta {budget.delta:g}. "
            "What was opened exactly or published by rules is not in it.</p>"
            f"<div class=bar><div style='width:{100 * share:.1f}%'></div></div>"
        )
    tail = (
        "<p class=note>Every entry is signed and has the hash of the one before it. The last one "
        f"is {_code(ledger.head())}: "
        "whoever keeps it notices later if anything was taken away or changed. Whoever can write "
        "to the folder could roll it back; "
        "nobody else would notice.</p>"
    )
    return _section(
        "What left the house", f"{bar}<table class=wide>{head}{''.join(lines)}</table>{tail}"
    )


def _said(said: Any) -> str:
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
        return _text(f"{budget}{unit}; {plural(len(said['members']), 'member')}; {rules}")
    if said["what"] == BUDGET:
        return _text(f"budget set to epsilon {said['epsilon']:g}, delta {said['delta']:g}")
    what = "predictions by " if said.get("predicted") else ""
    rows = f", {said['rows']:,} rows" if "rows" in said else ""
    lines = [f"{what}{_text(_asked(said))}{rows}"]
    if said["what"] == PUBLISHED:
        lines.append(_text(f"rules {Rules.from_dict(said['rules']).name}"))
        lines += [_text(f"left out, {finding}") for finding in said["findings"]]
    elif said["what"] == RELEASED and "mechanism" in said:
        lines.append(
            _text(
                f"{said['mechanism'].capitalize()} noise of scale {said['scale']:.4g}; "
                f"{said['unit']}"
            )
        )
    return "<br>".join([lines[0], *(f"<small>{line}</small>" for line in lines[1:])])


def _cost(said: Any) -> str:
    if said["what"] != RELEASED:
        return ""
    delta = f"<br><small>&delta; {said['delta']:g}</small>" if said.get("delta") else ""
    return f"{said['epsilon']:g}{delta}<br><small>&rho; {said['rho']:.3g}</small>"


def _privacy(entries: Sequence[Entry], computed: Sequence[_Computed], ledger: Ledger | None) -> str:
    """Say what epsilon is about, and first of all what it does not cover: exact openings."""
    if ledger is None:
        return ""
    released = [entry.content for entry in entries if entry.content["what"] == RELEASED]
    items = [*_without_noise(entries, released), *_opened_files(computed)]
    items.append(
        "results that were opened without this ledger: whoever holds the key can, and no file tells"
    )
    if ledger.n_others:
        items.append(f"costs in other ledgers of this key, of which {ledger.n_others} were noticed")
    stated = [what for said in released for what in said.get("not_covered", ())]
    items += [
        what
        for what in dict.fromkeys(stated)
        if " of the ledger)" not in what and "other ledgers" not in what
    ]
    body = (
        "<p>It does not cover</p><ul>"
        + "".join(f"<li>{_text(what)}</li>" for what in items)
        + "</ul>"
    )
    if released:
        units = "; and about ".join(_text(str(unit)) for unit in ledger.units)
        body = f"<p>Epsilon is about: {units}.</p>{body}"
    return _section("What epsilon is about, and what not", body)


def _without_noise(entries: Sequence[Entry], released: Sequence[Mapping[str, Any]]) -> list[str]:
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


def _software(
    entries: Sequence[Entry],
    tables: Sequence[_Table],
    computed: Sequence[_Computed],
    ledger: Ledger | None,
) -> str:
    rows = [(name, _text(found)) for name in _PACKAGES if (found := _version(name))]
    if entries:
        used = ", ".join(dict.fromkeys(str(entry.content.get("version", "")) for entry in entries))
        rows.append(("versions that wrote the ledger", _text(used)))
    rows += [
        (f"SHA-256 of {Path(one.where).name}", _code(one.digest)) for one in computed if one.digest
    ]
    return _section("Software and hashes", _facts(rows))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


# -- HTML
# ------------------------------------------------------------------------------------------------


def _text(value: str) -> str:
    return html.escape(value)


def _code(value: str) -> str:
    return f"<code>{html.escape(value)}</code>"


def _section(name: str, body: str) -> str:
    return f"<section><h2>{_text(name)}</h2>{body}</section>"


def _facts(rows: Iterable[tuple[str, str]]) -> str:
    return (
        "<table class=facts>"
        + "".join(f"<tr><th>{_text(name)}</th><td>{value}</td></tr>" for name, value in rows)
        + "</table>"
    )


def _printed(page: str) -> bytes:
    """The page as PDF, by a browser."""
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


_STYLE: Final = """
:root{--ink:#1d2a2a;--dim:#5b6b6b;--line:#dfe6e6;--teal:#00796b;--soft:#f2f7f6}
*{box-sizing:border-box}
body{margin:0;background:#fff;color:var(--ink);font:15px/1.5 system-ui,"Segoe UI",Helvetica,Arial,sans-serif}
main{max-width:62rem;margin:0 auto;padding:2.2rem 1.6rem 3rem}
header{border-bottom:3px solid var(--teal);padding-bottom:.6rem;margin-bottom:1.4rem}
h1{font-size:1.75rem;margin:0 0 .2rem;letter-spacing:-.01em}header p{margin:0;color:var(--dim)}
h2{font-size:1.15rem;margin:0 0 .7rem;color:var(--teal)}section{margin:0 0 1.9rem}
.boxes{display:flex;flex-wrap:wrap;gap:.8rem}
.boxes div{flex:1 1 8rem;background:var(--soft);border-radius:8px;padding:.75rem .9rem}
.boxes b{display:block;font-size:1.45rem;line-height:1.2;font-weight:650}.boxes span{color:var(--dim);font-size:.85rem}
.boxes b .bad{color:inherit;font-size:inherit}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;vertical-align:top;padding:.42rem .7rem .42rem 0;border-bottom:1px solid var(--line)}
tr:last-child>*{border-bottom:0}.facts th{width:15rem;font-weight:500;color:var(--dim)}
.facts+.facts{margin-top:1rem;border-top:2px solid var(--line)}
.wide tr:first-child th{font-size:.8rem;font-weight:600;color:var(--dim);border-bottom:2px solid var(--line)}
.wide th{font-weight:600}
.wide{font-size:.92rem}.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.when{white-space:nowrap}.hash{min-width:15rem}
code{font:.86em ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;overflow-wrap:anywhere}small{color:var(--dim)}
.note{color:var(--dim);font-size:.88rem}.bad{color:#b3261e!important;font-weight:650}
.tag{display:inline-block;border-radius:99px;padding:0 .6rem;font-size:.82rem;background:var(--line)}
.tag.released{background:#d7efe9;color:#00574b}.tag.published{background:#fff0d0;color:#7a4d00}
.tag.opened{background:#fde2df;color:#8c1d18}
.bar{height:.6rem;border-radius:99px;background:var(--line);overflow:hidden;margin:0 0 1rem}
.bar div{height:100%;background:var(--teal)}
p{margin:.3rem 0 .7rem}ul{margin:.2rem 0;padding-left:1.2rem}
@media print{@page{size:A4;margin:16mm 14mm}body{font-size:10.5pt}main{padding:0;max-width:none}
section{break-inside:avoid-page}
section:has(.wide){break-inside:auto}tr{break-inside:avoid}h2{break-after:avoid}
*{-webkit-print-color-adjust:exact;print-color-adjust:exact}}
"""
