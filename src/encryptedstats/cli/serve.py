"""``serve``: the worker's HTTP door and its page; the tokens of those who may come in, and the
audit log.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

import encryptedstats as es
from encryptedstats.cli._console import command_line, fact_table, plural, print_json, printable
from encryptedstats.cli._frames import plain_table
from encryptedstats.cli._options import AsJson, Device, file_option
from encryptedstats.words import size_text

_EXTRA: Final = ("fastapi", "uvicorn", "jinja2", "pydantic", "starlette")
_USAGE: Final = (
    "serve, serve token add NAME, serve token revoke NAME, serve token list, or serve audit"
)
_GB: Final = 1 << 30


def serve(
    action: Annotated[
        list[str],
        typer.Argument(
            metavar="[ACTION]",
            help="Nothing, to serve; token add NAME, token revoke NAME (or its id), token list; or "
            "audit, which checks the "
            "audit log and prints it.",
            show_default=False,
        ),
    ] = [],  # noqa: B006  Typer copies it
    storage: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="Folder or bucket for all that owners send and get.",
            show_default=False,
        ),
    ] = "",
    queue: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Where jobs go; the folder queue of the storage by default.",
            show_default=False,
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="What to listen at; 0.0.0.0 is everywhere.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="Which port.")] = 8443,
    certificate: Annotated[
        Path | None,
        file_option(
            "--certificate", help="TLS: the certificate, with those that vouch for it, as PEM."
        ),
    ] = None,
    certificate_key: Annotated[
        Path | None,
        file_option("--certificate-key", help="TLS: the private key of the certificate, as PEM."),
    ] = None,
    behind_proxy: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="The proxy that speaks TLS for this server: its headers about who asks are "
            "believed.",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Workers of the queue to start beside the server, each a process.",
        ),
    ] = 0,
    device: Device = "auto",
    audit: Annotated[
        Path | None,
        file_option(
            "--audit",
            help="The audit log; audit.jsonl in the storage by default, where that is a folder.",
        ),
    ] = None,
    quota: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="GB",
            help="What an owner may store: 256 by default; of token add, that owner.",
            show_default=False,
        ),
    ] = None,
    largest: Annotated[
        float, typer.Option(min=0, metavar="GB", help="The largest object that is taken.")
    ] = 8.0,
    rate: Annotated[
        float,
        typer.Option(min=0.1, metavar="N", help="Requests a second of one owner, in the long run."),
    ] = 100.0,
    operator: Annotated[
        bool,
        typer.Option("--operator", help="token add: for the worker's page, instead of an owner."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Let owners send encrypted tables and ask for answers, over HTTP; and show whoever runs it a page.

    The server computes nothing: command worker does, on this machine or on others, from the queue. It may be stopped and started
    at any time, and several may serve one storage. Nobody comes in without a token, which is printed once and kept as a hash. It
    never asks for a secret key, and refuses one that is sent.

    Examples:
      encryptedstats serve token add "Hospital North" --storage /srv/encryptedstats
      encryptedstats serve token add me --operator --storage /srv/encryptedstats
      encryptedstats serve --storage /srv/encryptedstats --workers 2

      # for the world: TLS by certificate files, or behind a proxy
      encryptedstats serve --storage /srv/encryptedstats --host 0.0.0.0 --certificate cert.pem --certificate-key key.pem
      encryptedstats serve --storage /srv/encryptedstats --behind-proxy 127.0.0.1

      # who did what; the chain of hashes is checked first
      encryptedstats serve audit --storage /srv/encryptedstats > audit.jsonl
    """
    if not storage:
        raise typer.BadParameter("a folder or a URL is needed", param_hint="--storage")
    match action:
        case []:
            _serve(
                storage,
                queue,
                host,
                port,
                certificate,
                certificate_key,
                behind_proxy,
                workers,
                device,
                audit,
                quota,
                largest,
                rate,
            )
        case ["token", "add", name]:
            _add_token(storage, name, operator, quota, as_json)
        case ["token", "revoke", name]:
            _revoke(storage, name, as_json)
        case ["token", "list"]:
            _list_tokens(storage, as_json)
        case ["audit"]:
            _audit(_log_path(storage, audit))
        case _:
            raise typer.BadParameter(
                f"{' '.join(action)!r} is nothing that serve does: {_USAGE}", param_hint="ACTION"
            )


def _serve(
    storage: str,
    queue: str | None,
    host: str,
    port: int,
    certificate: Path | None,
    certificate_key: Path | None,
    behind_proxy: str | None,
    workers: int,
    device: str,
    audit: Path | None,
    quota: float | None,
    largest: float,
    rate: float,
) -> None:
    try:
        from encryptedstats.service.limits import Limits
        from encryptedstats.service.running import Listening
        from encryptedstats.service.running import serve as run
        from encryptedstats.service.server import Settings
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        raise ImportError(
            "serve needs the extra service: pip install 'encryptedstats[service]'"
        ) from error
    from encryptedstats.cluster.jobs import absolute

    if (certificate is None) != (certificate_key is None):
        raise typer.BadParameter(
            "a certificate and its key are given together", param_hint="--certificate-key"
        )
    tls = certificate is not None
    if not tls and behind_proxy is None and host not in ("127.0.0.1", "::1", "localhost"):
        raise typer.BadParameter(
            f"{host} would send tokens in the clear: give --certificate and --certificate-key, or "
            "--behind-proxy ADDRESS",
            param_hint="--host",
        )
    place = absolute(storage)
    work = f"{place}/queue" if queue is None else absolute(queue)
    limits = Limits(
        object_bytes=int(largest * _GB),
        quota_bytes=Limits.quota_bytes if quota is None else int(quota * _GB),
        requests_per_second=rate,
        burst=max(1, int(4 * rate)),
    )
    settings = Settings(
        place,
        work,
        _log_path(storage, audit),
        es.__version__,
        limits,
        tls or behind_proxy is not None,
    )
    console = Console(stderr=True)
    console.print(
        Text.assemble(("Serving", "bold"), f" at {'https' if tls else 'http'}://{host}:{port}")
    )
    rows: list[tuple[str, Any]] = [
        ("storage", printable(place)),
        ("queue", printable(work)),
        ("audit log", printable(str(settings.audit))),
    ]
    if not workers:
        rows.append(
            ("next", command_line("worker", "--queue", work, "--allow", place, "--wait", 86400))
        )
    console.print(fact_table(rows))
    at = Listening(host, port, certificate, certificate_key, behind_proxy)
    run(settings, at, workers=workers, device=device)


def _log_path(storage: str, audit: Path | None) -> Path:
    from encryptedstats.cluster.jobs import absolute
    from encryptedstats.storage.objects import is_url

    if audit is not None:
        return audit.absolute()
    place = absolute(storage)
    if is_url(place):
        raise typer.BadParameter(
            f"{storage} is no folder: say where the audit log lies", param_hint="--audit"
        )
    return Path(place) / "audit.jsonl"


# -- tokens
# ------------------------------------------------------------------------------------------------


def _add_token(storage: str, name: str, operator: bool, quota: float | None, as_json: bool) -> None:
    from encryptedstats.service import tokens
    from encryptedstats.storage.objects import open_store

    role = tokens.OPERATOR if operator else tokens.OWNER
    quota_bytes = None if quota is None else int(quota * _GB)
    token, holder = tokens.add(open_store(storage), name, role=role, quota_bytes=quota_bytes)
    if as_json:
        print_json({"token": token, "id": holder.id, "name": name, "role": role})
        return
    typer.echo(token)
    typer.echo(
        f"shown once: it is kept as a hash only. Give it to {printable(name)} over a safe line",
        err=True,
    )


def _revoke(storage: str, name: str, as_json: bool) -> None:
    from encryptedstats.service import tokens
    from encryptedstats.storage.objects import open_store

    found = tokens.revoke(open_store(storage), name)
    if not found:
        raise es.ArgumentError(
            f"there is no token {name!r}: serve token list shows all", code="unknown-token"
        )
    if as_json:
        print_json({"revoked": [holder.id for holder in found]})
        return
    typer.echo(
        f"revoked {plural(len(found), 'token')} of {printable(found[0].name)}; what was stored is "
        "still there"
    )


def _list_tokens(storage: str, as_json: bool) -> None:
    from encryptedstats.service import tokens
    from encryptedstats.storage.objects import open_store

    found = tokens.holders(open_store(storage))
    if as_json:
        print_json({"tokens": [{"id": one.id, **asdict(one)} for one in found]})
        return
    table = plain_table()
    for title in ("id", "name", "role", "made", "quota"):
        table.add_column(title)
    for one in found:
        quota = "" if one.quota_bytes is None else size_text(one.quota_bytes)
        table.add_row(one.id, printable(one.name), one.role, one.made, quota)
    Console().print(table)


def _audit(path: Path) -> None:
    from encryptedstats.service import audit

    lines = audit.check(path)
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            typer.echo(line, nl=False)
    typer.echo(f"{plural(lines, 'line')}, each of which fits the one before", err=True)
