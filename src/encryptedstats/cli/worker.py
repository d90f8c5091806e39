"""``worker``: computing for others. From a queue in a folder or bucket that all machines reach; and
the service over HTTP, the tokens of those who may come in, and the audit log.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import typer

import encryptedstats as es
from encryptedstats.cli._console import (
    command_line,
    plural,
    print_json,
    printable,
    show,
    size_text,
    tell,
    time_text,
)
from encryptedstats.cli._options import AsJson, argument, file_option, option
from encryptedstats.tables.questions.words import parse_numbers
from encryptedstats.views import TableView, View

_EXTRA: Final = ("fastapi", "uvicorn", "jinja2", "pydantic", "starlette")
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
_GB: Final = 1 << 30
_LIMITS: Final = {"quota": float, "largest": float, "rate": float}

Queue = Annotated[
    str, argument("QUEUE", "Folder or bucket of the work, as in ask --on queue://URL.")
]
Storage = Annotated[str, argument("STORAGE", "Folder or bucket for all that owners send and get.")]
Device = Annotated[
    str,
    option(
        "--device",
        metavar="NAME",
        help="What computes: cuda (a GPU), native (kernels in C), seal (SEAL alone), or auto, the "
        "fastest. The result is the same.",
    ),
]


def worker_run(
    queue: Queue,
    keys: Annotated[
        Path | None,
        file_option("--keys", help="Public keys to compute with, instead of those in the table."),
    ] = None,
    lease: Annotated[
        float,
        typer.Option(
            min=0.001,
            max=7 * 24 * 3600.0,
            metavar="SECONDS",
            help="Others may take over what this worker has not finished after so long. Longer "
            "than a shard takes.",
        ),
    ] = 300.0,
    wait: Annotated[
        float,
        typer.Option(min=0, metavar="SECONDS", help="Look for new work so long before ending."),
    ] = 0.0,
    allow: Annotated[
        list[str],
        option(
            metavar="URL",
            help="Jobs may read and write below this, too; by default only in the folder or bucket "
            "that the queue lies in.",
        ),
    ] = [],  # noqa: B006  Typer copies it
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Work through a queue until nothing is left.

    Start as many as you have cores; stop any of them at any time.

    JSON: shards, sums, rows, seconds, failures

    Examples:
      encryptedstats ask patients.enc forest -o forest.enc --on queue://work
      encryptedstats worker run work

      # on machines that may be taken away: what they leave behind is another's after a minute
      encryptedstats worker run s3://bucket/work --keys public.keys --lease 60

      # a queue in one place, tables and models in another
      encryptedstats worker run /srv/queue --allow /srv/tables --allow /srv/models
    """
    from encryptedstats import cluster

    def told(done: Any) -> None:
        what = "shard" if done.is_shard else "sum"
        text = f"{what} {done.name[-12:]}, {plural(done.rows, 'row')}, {time_text(done.seconds)}"
        typer.echo(text, err=True)

    shown = None if as_json else told
    report = cluster.work(
        queue, keys=keys, lease=lease, wait=wait, allow=allow, on_done=shown, device=device
    )
    work = f"{plural(report.shards, 'shard')} of {plural(report.rows, 'row')}"
    tell(View(f"Done {work}, in {time_text(report.seconds)} of work"), asdict(report), as_json)


def worker_queue(queue: Queue, as_json: AsJson = False) -> None:
    """Show how far the work of a queue is, and who is at it.

    JSON: jobs

    Examples:
      encryptedstats worker queue s3://bucket/work
    """
    from encryptedstats import cluster

    jobs = cluster.status(queue)
    nothing = f"there is no work at {queue}: ask --on queue://... puts some there"
    lines = [line for job in jobs for line in str(job).splitlines()]
    title, *notes = lines or [nothing]
    tell(View(title, notes=tuple(notes)), {"jobs": [asdict(job) for job in jobs]}, as_json)


def worker_serve(
    storage: Storage,
    listen: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="Where to listen; 0.0.0.0 is everywhere."),
    ] = "127.0.0.1:8443",
    certificate: Annotated[
        tuple[Path, Path] | None,
        option(
            metavar="CERTIFICATE KEY",
            help="TLS: the certificate, with those that vouch for it, and its private key, as PEM.",
        ),
    ] = None,
    behind_proxy: Annotated[
        str | None,
        option(
            metavar="ADDRESS",
            help="The proxy that speaks TLS for this server: its headers about who asks are "
            "believed.",
        ),
    ] = None,
    queue: Annotated[
        str | None,
        option(
            metavar="URL",
            help="Where jobs go; the folder queue of the storage by default.",
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
    limits: Annotated[
        list[str] | None,
        option(
            metavar="NAME=N",
            help="quota: GB that an owner may store, 256 by default. largest: GB of the largest "
            "object that is taken, 8. rate: requests a second of one owner, in the long run, 100.",
        ),
    ] = None,
) -> None:
    """Let owners send encrypted tables and ask for answers, over HTTP.

    Whoever runs it has a page. The server computes nothing: worker run does, on this machine or
    on others, from the queue. It may be stopped and started at any time, and several may serve
    one storage. Nobody comes in without a token, which is printed once and kept as a hash. It
    never asks for a secret key, and refuses one that is sent.

    Examples:
      encryptedstats worker token /srv/encryptedstats add "Hospital North"
      encryptedstats worker token /srv/encryptedstats add me --operator
      encryptedstats worker serve /srv/encryptedstats --workers 2

      # for the world: TLS by certificate files, or behind a proxy
      encryptedstats worker serve /srv/encryptedstats --listen 0.0.0.0:8443 --certificate cert.pem key.pem
      encryptedstats worker serve /srv/encryptedstats --behind-proxy 127.0.0.1

      # who did what; the chain of hashes is checked first
      encryptedstats worker audit /srv/encryptedstats > audit.jsonl
    """
    try:
        from encryptedstats.service.limits import Limits
        from encryptedstats.service.running import Listening
        from encryptedstats.service.running import serve as run
        from encryptedstats.service.server import Settings
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        raise ImportError(
            "worker serve needs the extra service: pip install 'encryptedstats[service]'"
        ) from error
    from encryptedstats.cluster.jobs import absolute

    host, port = _address(listen)
    tls = certificate is not None
    if not tls and behind_proxy is None and host not in _LOOPBACK:
        raise typer.BadParameter(
            f"--listen {listen} would send tokens in the clear: give --certificate, or "
            "--behind-proxy ADDRESS"
        )
    place = absolute(storage)
    work = f"{place}/queue" if queue is None else absolute(queue)
    given = {"largest": 8.0, "rate": 100.0, **parse_numbers(limits, _LIMITS, "--limits")}
    quota = given.get("quota")
    chosen = Limits(
        object_bytes=int(given["largest"] * _GB),
        quota_bytes=Limits.quota_bytes if quota is None else int(quota * _GB),
        requests_per_second=given["rate"],
        burst=max(1, int(4 * given["rate"])),
    )
    secure = tls or behind_proxy is not None
    log = _log_path(storage, audit)
    settings = Settings(place, work, log, es.__version__, chosen, secure)
    facts = {"storage": place, "queue": work, "audit log": str(log)}
    if not workers:
        facts["next"] = command_line("worker", "run", work, "--allow", place, "--wait", 86400)
    title = f"Serving at {'https' if tls else 'http'}://{host}:{port}"
    show(View(title, facts), err=True)
    pem, private = certificate or (None, None)
    at = Listening(host, port, pem, private, behind_proxy)
    run(settings, at, workers=workers, device=device)


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise typer.BadParameter(f"--listen {text}: HOST:PORT is needed, such as 127.0.0.1:8443")
    return host.strip("[]"), int(port)


def _log_path(storage: str, audit: Path | None) -> Path:
    from encryptedstats.cluster.jobs import absolute
    from encryptedstats.storage.objects import is_url

    if audit is not None:
        return audit.absolute()
    place = absolute(storage)
    if is_url(place):
        raise typer.BadParameter(f"{storage} is no folder: say where the audit log lies, --audit")
    return Path(place) / "audit.jsonl"


def worker_token(
    storage: Storage,
    action: Annotated[
        list[str],
        argument("add NAME | revoke NAME | list", "What to do; NAME may be the id of a token."),
    ],
    operator: Annotated[
        bool, typer.Option("--operator", help="Of add: for the worker's page, not for an owner.")
    ] = False,
    quota: Annotated[
        float | None, option(min=0, metavar="GB", help="Of add: what that owner may store.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add, revoke or list the tokens of those who may use the service.

    JSON: token?, id?, name?, role?, revoked?, tokens?

    Examples:
      encryptedstats worker token /srv/encryptedstats add "Hospital North" --quota 100
      encryptedstats worker token /srv/encryptedstats revoke "Hospital North"
      encryptedstats worker token /srv/encryptedstats list
    """
    from encryptedstats.service import tokens
    from encryptedstats.storage.objects import open_store

    store = open_store(storage)
    match action:
        case ["add", name]:
            role = tokens.OPERATOR if operator else tokens.OWNER
            quota_bytes = None if quota is None else int(quota * _GB)
            token, holder = tokens.add(store, name, role=role, quota_bytes=quota_bytes)
            if as_json:
                print_json({"token": token, "id": holder.id, "name": name, "role": role})
                return
            typer.echo(token)
            text = f"shown once: it is kept as a hash only. Give it to {name} over a safe line"
            typer.echo(printable(text), err=True)
        case ["revoke", name]:
            found = tokens.revoke(store, name)
            if not found:
                raise es.ArgumentError(
                    f"there is no token {name!r}: worker token list shows all", code="unknown-token"
                )
            text = f"Revoked {plural(len(found), 'token')} of {found[0].name}"
            notes = ("What was stored is still there.",)
            ids = [holder.id for holder in found]
            tell(View(text, notes=notes), {"revoked": ids}, as_json)
        case ["list"]:
            _list_tokens(tokens.holders(store), as_json)
        case _:
            raise typer.BadParameter(
                f"{' '.join(action)!r}: add NAME, revoke NAME or list is needed"
            )


def _list_tokens(found: Any, as_json: bool) -> None:
    import pandas as pd

    lines = [
        (
            one.name,
            one.role,
            one.made,
            "" if one.quota_bytes is None else size_text(one.quota_bytes),
        )
        for one in found
    ]
    index = pd.Index([one.id for one in found], name="id")
    frame = pd.DataFrame(lines, index, columns=["name", "role", "made", "quota"])
    document = {"tokens": [{"id": one.id, **asdict(one)} for one in found]}
    tell(View(plural(len(found), "token"), tables=(TableView("tokens", frame),)), document, as_json)


def worker_audit(
    storage: Storage,
    audit: Annotated[
        Path | None, file_option("--audit", help="The audit log, where worker serve was told one.")
    ] = None,
) -> None:
    """Check the audit log of a service, and print it.

    Examples:
      encryptedstats worker audit /srv/encryptedstats > audit.jsonl
    """
    from encryptedstats.service import audit as log

    path = _log_path(storage, audit)
    lines = log.check(path)
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            typer.echo(line, nl=False)
    typer.echo(f"{plural(lines, 'line')}, each of which fits the one before", err=True)
