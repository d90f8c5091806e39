"""``data info``: describe a file or a table without showing any secret in it."""

from __future__ import annotations

import json
import stat
import warnings
from collections import Counter
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, Final

import typer

import encryptedstats as es
from encryptedstats.cli._console import (
    command_line,
    parameter_facts,
    parameter_rows,
    plural,
    print_json,
    printable,
    size_text,
    tell,
)
from encryptedstats.cli._files import is_secret_key
from encryptedstats.cli._inputs import JSON, PLAN, SCHEMA, nature
from encryptedstats.cli._options import AsJson, argument
from encryptedstats.cli.plan import read_plan
from encryptedstats.cli.schema import schema_table
from encryptedstats.crypto.keyfiles import OWNER_KIND, PUBLIC_KIND, read_parameters
from encryptedstats.crypto.keys import fingerprint_of
from encryptedstats.kinds import KINDS
from encryptedstats.progress import progress_bar
from encryptedstats.storage import container
from encryptedstats.storage.container import Container
from encryptedstats.storage.files import MAX_DOCUMENT_BYTES, read_regular
from encryptedstats.storage.objects import Store, open_store
from encryptedstats.tables.answers.files import read_presented
from encryptedstats.tables.blocks import block_id_of
from encryptedstats.tables.encrypted_table import BY_OTHERS_FACT
from encryptedstats.tables.encryption import DRAFT, DRAFT_KIND
from encryptedstats.tables.manifest import MANIFEST, TABLE_KIND, keys_name
from encryptedstats.tables.questions.question import OPEN_MODEL_KIND, OPEN_RESULT_KIND
from encryptedstats.tables.questions.words import describe_question
from encryptedstats.views import View

_SECRET_SECTION: Final = "secret_key"
_OPEN_KINDS: Final = (OPEN_MODEL_KIND, OPEN_RESULT_KIND)


def data_info(
    file: Annotated[str, argument("FILE", "A file of this program, or folder or URL of a table.")],
    check: Annotated[
        bool, typer.Option("--check", help="Of a table: read and check every block.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a file or a table holds, whose it is, and whether it is secret.

    The secret itself is not shown.

    Examples:
      encryptedstats data info patients.enc
      encryptedstats data info secret.key

      # is every block as the owner wrote it?
      encryptedstats data info s3://bucket/patients.enc --check
    """
    path = Path(file.removeprefix("file://"))
    if "://" in file.removeprefix("file://"):
        _info_of_folder(file, check, as_json)
    elif path.is_dir():
        _info_of_folder(str(path), check, as_json)
    elif path.exists() and not path.is_file():
        raise es.ArgumentError(
            f"{file} is no ordinary file: give one that was written by this library",
            code="not-a-regular-file",
        )
    elif nature(path) in (SCHEMA, JSON):
        _info_of_schema(path, as_json)
    elif nature(path) == PLAN:
        _info_of_plan(path, as_json)
    else:
        _info_of_file(path, as_json)


# -- files
# ------------------------------------------------------------------------------------------------


def _info_of_file(file: Path, as_json: bool) -> None:
    with warnings.catch_warnings():
        # Insecure parameters are shown in red below; once is enough.
        warnings.simplefilter("ignore", es.InsecureParametersWarning)
        content = container.read(file)
        parameters = read_parameters(content) if "parameters" in content.fields else None
        if content.kind == PUBLIC_KIND:
            es.PublicKeys.from_container(
                content
            )  # public parts can be checked one by one, so they are
    facts = describe(file, content, parameters)
    if as_json:
        print_json(facts)
        return
    notes: tuple[str, ...] = ()
    if content.kind == OPEN_RESULT_KIND:
        notes = tuple(str(read_presented(content)).splitlines())
    _tell(facts, parameters, _rows(facts), notes=notes)


def describe(file: Path, content: Container, parameters: es.Parameters | None) -> dict[str, Any]:
    """Describe a file that has been read and checked, ready for JSON."""
    facts: dict[str, Any] = {
        "file": str(file),
        "kind": content.kind,
        "key_id": content.key_id,
        "fingerprint": fingerprint_of(content.key_id),
        "holds_secret_key": _holds_secret_key(content),
        "insecure": parameters is not None and not parameters.security,
        "bytes": file.stat().st_size,
        "sha256_fits": True,  # else it would not have been read
        "sections": {name: len(data) for name, data in content.sections.items()},
        "parameters": None if parameters is None else parameter_facts(parameters),
    }
    if facts["holds_secret_key"]:
        facts["locked"] = bool(content.fields.get("lock"))
    if facts["holds_secret_key"] or content.kind in _OPEN_KINDS:
        mode = stat.S_IMODE(file.stat().st_mode)
        facts["mode"] = f"{mode:04o}"
        facts["others_may_read"] = bool(mode & 0o077)
    return facts | KINDS[content.kind].facts(content) if content.kind in KINDS else facts


def _holds_secret_key(content: Container) -> bool | None:
    """Return None for an unknown kind of file, or unknown sections in it."""
    if content.kind == OWNER_KIND or _SECRET_SECTION in content.sections:
        return True
    known = content.kind in KINDS and set(content.sections) <= KINDS[content.kind].sections
    return False if known else None


def _rows(facts: dict[str, Any]) -> dict[str, Any]:
    retired = facts.get("retired")
    instead = ""
    if retired and retired["successor"]:
        instead = f"; encrypt for key {retired['successor']} instead"
    is_key = facts["kind"] in (OWNER_KIND, PUBLIC_KIND)
    sections = (f"{name} {size_text(size)}" for name, size in facts["sections"].items())
    return {
        "file": f"{facts['file']}  {size_text(facts['bytes'])}, SHA-256 fits",
        "holds": _kind_text(facts),
        "retired": f"{retired['why']}{instead}" if retired else "",
        "key": facts["key_id"] or "none",
        "fingerprint": _fingerprint_text(facts) if is_key else "",
        "secret": _open_text(facts)
        if facts["kind"] in _OPEN_KINDS
        else _secret_text(facts["holds_secret_key"]),
        "sections": ", ".join(sections),
        "rotations": ", ".join(map(str, facts.get("rotations") or ())),
    }


def _fingerprint_text(facts: Mapping[str, Any]) -> str:
    return f"{facts['fingerprint']}  compare it by telephone"


def _kind_text(facts: dict[str, Any]) -> str | tuple[str, ...]:
    """Describe the kind of a file in words."""
    if facts["kind"] not in KINDS:
        return str(facts["kind"])
    asked = describe_question(facts["question"], facts["params"]) if "question" in facts else ""
    return tuple(KINDS[facts["kind"]].describe(facts, printable(asked)).split("\n"))


# -- schemas and plans
# ------------------------------------------------------------------------------------------------


def _info_of_schema(file: Path, as_json: bool) -> None:
    found = es.Schema.load(file)
    private = "yours: names, cut points and levels are in it; a worker never gets it"
    view = View(f"{file}: schema", {"private": private}, (schema_table(found),))
    tell(view, json.loads(found.to_json()), as_json)


def _info_of_plan(file: Path, as_json: bool) -> None:
    planned = read_plan(file)
    parameters = parameter_rows(planned.parameters)
    del parameters["depth"]
    facts = {
        "for": tuple(planned.questions),
        "rows": f"up to {planned.rows:,}",
        **parameters,
        "next": command_line("key", "make", "secret.key", "public.keys", "--plan", file),
    }
    document = json.loads(read_regular(file, limit=MAX_DOCUMENT_BYTES))
    tell(View(f"{file}: plan", facts), document, as_json)


# -- tables
# ------------------------------------------------------------------------------------------------


def _info_of_folder(url: str, check: bool, as_json: bool) -> None:
    store = open_store(url)
    if not store.exists(MANIFEST) and store.exists(DRAFT):
        _info_of_draft(store, as_json)
        return
    if not store.exists(MANIFEST):
        what = (
            "holds no encrypted table"
            if "://" in url
            else "is a directory without an encrypted table in it"
        )
        raise FileNotFoundError(f"{url} {what}; give the folder of a table, or a file")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", es.InsecureParametersWarning)
        table = es.EncryptedTable.load(url)
        if check:
            _check_blocks(table)
    facts = _table_facts(url, store, table) | {"checked": check}
    _tell(facts, table.parameters, _table_rows(facts, table), as_json=as_json)


def _check_blocks(table: es.EncryptedTable) -> None:
    with progress_bar("checking", len(table.blocks.rows), "blocks") as advance:
        for index in range(len(table.blocks.rows)):
            table.blocks.block(index)
            advance(1)
    _ = (
        table.accept_others().keys
    )  # and whether the owner has signed what is said to be the owner's


def _table_facts(url: str, store: Store, table: es.EncryptedTable) -> dict[str, Any]:
    strays = _strays(store, table.key_id)
    known = table.info().to_dict()
    return {
        "file": url,
        "kind": TABLE_KIND,
        **{
            name: value
            for name, value in known.items()
            if name not in ("secret_key_inside", "stored", "security")
        },
        "fingerprint": fingerprint_of(table.key_id),
        "holds_secret_key": "secret key" in strays.values(),
        "insecure": not table.parameters.security,
        "public_keys": store.exists(keys_name(table.key_id)),
        "encodings": sorted({column.encoding for column in table.facts.columns}),
        "codings": _codings(table),
        "schema": json.loads(table.schema.to_json())["variables"],
        "other_files": strays,
        "parameters": parameter_facts(table.parameters),
    }


def _codings(table: es.EncryptedTable) -> dict[str, int]:
    """Count the columns of each coding."""
    found: Counter[str] = Counter()
    for group in table.facts.groups:
        found[group.coding] += len(group.columns)
    return dict(found)


def _strays(store: Store, key_id: str) -> dict[str, str]:
    """Find objects in the folder of a table that are not part of it, such as a key."""
    own = {MANIFEST, keys_name(key_id), DRAFT}
    names = [name for name in store.names() if name not in own and block_id_of(name) is None]
    return {name: _nature(store.read(name, 0, container.MAX_HEADER_BYTES)) for name in names}


def _nature(head: bytes) -> str:
    if is_secret_key(head):
        return "secret key"
    if b'"encryptedstats.schema"' in head[:200]:
        return "schema"
    return "no part of a table"


def _table_rows(facts: dict[str, Any], table: es.EncryptedTable) -> dict[str, Any]:
    blocks = f"{plural(facts['blocks'], 'block')}, {facts['bytes_per_value']:,} bytes a value"
    classes = f"{facts['classes']} classes" if facts["classes"] else "none: rows to predict"
    codings = ", ".join(f"{n:,} {coding}" for coding, n in facts["codings"].items())
    strays = (
        f"{name}: {what}; remove it before you give the table away"
        for name, what in facts["other_files"].items()
    )
    return {
        "table": f"{facts['file']}  {size_text(facts['bytes'])} in {blocks}",
        "holds": f"encrypted table of {plural(facts['rows'], 'row')}",
        "variables": tuple(_variables(table.schema)),
        "target": "a number" if table.has_target and not table.has_classes else classes,
        "folds": str(facts["folds"] or ""),
        "columns": f"{facts['columns']:,}: {codings}",
        "key": f"{facts['key_id']}, encrypted with the {facts['encrypted_with']}",
        "fingerprint": _fingerprint_text(facts),
        "public keys": "those to compute with are inside"
        if facts["public_keys"]
        else "not inside: give them with --keys",
        "by others": BY_OTHERS_FACT if facts["by_others"] else "",
        "secret": _secret_text(facts["holds_secret_key"]),
        "beside it": tuple(strays),
        "checked": "every block is there and as the owner wrote it" if facts["checked"] else "",
    }


def _variables(schema: es.PublicSchema) -> list[str]:
    """Describe variables by id, equal ones together: ``v0 to v8  ordinal, 5 bins``."""
    lines = []
    for text, group in groupby(schema.variables, key=_variable_text):
        ids = [variable.id for variable in group]
        lines.append(f"{ids[0] if len(ids) == 1 else f'{ids[0]} to {ids[-1]}'}  {text}")
    return lines if len(lines) <= 40 else [*lines[:20], "...", *lines[-19:]]


def _variable_text(variable: Any) -> str:
    bins = (
        f"{plural(variable.n_bins, 'bin')}{', the last for missing values' * variable.missing_bin}"
    )
    if variable.kind != "number":
        return f"{variable.kind}, {bins}"
    number = f"number, {variable.low:,} to {variable.high:,}"
    return f"{number}, and {bins}" if variable.n_bins else number


def _info_of_draft(store: Store, as_json: bool) -> None:
    draft = container.from_bytes(store.read(DRAFT), kind=DRAFT_KIND, name=store.where(DRAFT))
    blocks = sum(block_id_of(name) is not None for name in store.names())
    facts = {
        "file": store.url,
        "kind": DRAFT_KIND,
        "key_id": draft.key_id,
        "blocks": blocks,
        **KINDS[DRAFT_KIND].facts(draft),
    }
    shown = {
        "holds": f"unfinished table, {plural(blocks, 'block')} so far",
        "key": draft.key_id,
        "to finish": "run the same encrypt again; until then nobody can compute on it",
    }
    tell(View(store.url, shown), facts, as_json)


# -- showing
# ------------------------------------------------------------------------------------------------


def _tell(
    facts: dict[str, Any],
    parameters: es.Parameters | None,
    rows: Mapping[str, Any],
    *,
    as_json: bool = False,
    notes: tuple[str, ...] = (),
) -> None:
    """Print warnings, above all of secrets, and the facts."""
    if as_json:
        print_json(facts)
        return
    warned = [*_secret_warning(facts), *_open_warning(facts)]
    if facts["insecure"]:
        warned.append("INSECURE parameters: less than 128 bits of security. Never for real data.")
    about = {} if parameters is None else parameter_rows(parameters)
    for line in warned:
        typer.echo(printable(f"! {line}"))
    tell(View(str(facts["file"]), {**rows, **about}, notes=notes), facts, as_json)


def _secret_warning(facts: dict[str, Any]) -> list[str]:
    if not facts["holds_secret_key"]:
        return []
    if facts["kind"] == TABLE_KIND:
        return [
            "A SECRET KEY lies in the folder of this table. Remove it before you give the table "
            "away.",
        ]
    return [
        "This file holds a SECRET KEY, which opens everything encrypted under it. Never give it "
        "away.",
        "It is locked by a passphrase."
        if facts["locked"]
        else "No passphrase locks it: reading the file is enough.",
        *_mode_warning(facts),
    ]


def _mode_warning(facts: dict[str, Any]) -> list[str]:
    mode = facts["mode"]
    text = f"Other users of this machine may read it (mode {mode}): chmod 600 it."
    return [text] if facts["others_may_read"] else []


def _open_warning(facts: dict[str, Any]) -> list[str]:
    if facts["kind"] not in _OPEN_KINDS:
        return []
    names = (
        ", and the names, cut points and classes of the schema are in it"
        if facts["names_inside"]
        else " are in it"
    )
    said = facts["released"]
    inside = "exact counts of your rows"
    if said is not None:
        cost = f"epsilon {said['epsilon']:g}, delta {said['delta']:g}; {said['unit']}"
        inside = f"counts with noise (released with {cost})"
    text = f"This {_what(facts)} is NOT ENCRYPTED: {inside}{names}. Never give it to a worker."
    return [text, *_mode_warning(facts)]


def _what(facts: dict[str, Any]) -> str:
    return "model" if facts["kind"] == OPEN_MODEL_KIND else "result"


def _open_text(facts: dict[str, Any]) -> str:
    if facts["holds_secret_key"] is False:
        return f"no key is inside, but the {_what(facts)} is not encrypted"
    return _secret_text(facts["holds_secret_key"])


def _secret_text(holds: bool | None) -> str:
    if holds is None:
        return "unknown: this version does not know such a file, so treat it as secret"
    return "YES, the secret key is inside" if holds else "none: nothing in it can decrypt"
