"""``worker``: compute for others, from a queue or as a service over HTTP."""

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
    str, argument("QUEUE", "Folder or bucket of the queue, as in ask --on queue://URL.")
]
Storage = Annotated[
    str, argument("STORAGE", "Folder or bucket for everything that owners send and get.")
]
Device = Annotated[
    str,
    option(
        "--device",
        metavar="NAME",
        help="Device: cuda (a GPU), native (kernels in C), seal (SEAL only), or auto, the fastest. "
        "The answers are the same.",
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
            help="Other workers take over a shard that is not finished after this time. It has to "
            "be longer than a shard takes.",
        ),
    ] = 300.0,
    wait: Annotated[
        float,
        typer.Option(min=0, metavar="SECONDS", help="How long to wait for new work before ending."),
    ] = 0.0,
    allow: Annotated[
        list[str],
        option(
            metavar="URL",
            help="Allow jobs to read and write below this, too; by default only in the folder or "
            "bucket with the queue.",
        ),
    ] = [],  # noqa: B006  Typer copies it
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Work through a queue until nothing is left.

    Start one for each core; they may be stopped at any time.

    JSON: shards, sums, rows, seconds, failures

    Examples:
      encryptedstats ask patients.enc forest -o forest.enc --on queue://work
      encryptedstats worker run work

      # on preemptible machines: others take over their shards after a minute
      encryptedstats worker run s3://bucket/work --keys public.keys --lease 60

      # a queue in one place, tables and models in another
      encryptedstats worker run /srv/queue --allow /srv/tables --allow /srv/models
    """
    from encryptedstats import cluster

    def report_item(done: Any) -> None:
        what = "shard" if done.is_shard else "sum"
        text = f"{what} {done.name[-12:]}, {plural(done.rows, 'row')}, {time_text(done.seconds)}"
        typer.echo(text, err=True)

    on_done = None if as_json else report_item
    report = cluster.work(
        queue, keys=keys, lease=lease, wait=wait, allow=allow, on_done=on_done, device=device
    )
    work = f"{plural(report.shards, 'shard')} of {plural(report.rows, 'row')}"
    tell(View(f"Done {work}, in {time_text(report.seconds)} of work"), asdict(report), as_json)


def worker_queue(queue: Queue, as_json: AsJson = False) -> None:
    """Show the progress of a queue and its workers.

    JSON: jobs

    Examples:
      encryptedstats worker queue s3://bucket/work
    """
    from encryptedstats import cluster

    jobs = cluster.status(queue)
    nothing = f"There is no job at {queue}: ask --on queue://... submits one"
    lines = [line for job in jobs for line in str(job).splitlines()]
    title, *notes = lines or [nothing]
    tell(View(title, notes=tuple(notes)), {"jobs": [asdict(job) for job in jobs]}, as_json)


def worker_serve(
    storage: Storage,
    listen: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="Address to listen at; 0.0.0.0 is every network."),
    ] = "127.0.0.1:8443",
    certificate: Annotated[
        tuple[Path, Path] | None,
        option(
            metavar="CERTIFICATE KEY",
            help="For TLS: the chain of certificates and the private key, as PEM files.",
        ),
    ] = None,
    behind_proxy: Annotated[
        str | None,
        option(
            metavar="ADDRESS",
            help="The proxy with TLS in front of this server, whose headers about clients are "
            "trusted.",
        ),
    ] = None,
    queue: Annotated[
        str | None,
        option(
            metavar="URL",
            help="Queue of the jobs; by default the folder queue of the storage.",
        ),
    ] = None,
    workers: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Workers to start with the server, each a process.",
        ),
    ] = 0,
    device: Device = "auto",
    audit: Annotated[
        Path | None,
        file_option(
            "--audit",
            help="The audit log; by default audit.jsonl in the storage, if that is a folder.",
        ),
    ] = None,
    limits: Annotated[
        list[str] | None,
        option(
            metavar="NAME=N",
            help="quota: GB that an owner may store (256). largest: GB of the largest object (8). "
            "rate: mean requests of an owner in a second (100).",
        ),
    ] = None,
) -> None:
    """Serve owners over HTTP: they send encrypted tables and ask questions.

    The server computes nothing: worker run does, from its queue, on this machine or others. It may
    be stopped and started at any time, and several may serve one storage. Everybody needs a token,
    which is printed once and stored as a hash; an operator's token opens the worker's page. The
    server refuses secret keys.

    Examples:
      encryptedstats worker token /srv/encryptedstats add "Hospital North"
      encryptedstats worker token /srv/encryptedstats add me --operator
      encryptedstats worker serve /srv/encryptedstats --workers 2

      # on a network: TLS by certificate files, or behind a proxy
      encryptedstats worker serve /srv/encryptedstats --listen 0.0.0.0:8443 \\
        --certificate cert.pem key.pem
      encryptedstats worker serve /srv/encryptedstats --behind-proxy 127.0.0.1

      # the audit log, whose chain of hashes is checked first
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
            f"--listen {listen} would send tokens unencrypted: give --certificate, or "
            "--behind-proxy ADDRESS"
        )
    place = absolute(storage)
    work = f"{place}/queue" if queue is None else absolute(queue)
    wanted = {"largest": 8.0, "rate": 100.0, **parse_numbers(limits, _LIMITS, "--limits")}
    quota = wanted.get("quota")
    chosen = Limits(
        object_bytes=int(wanted["largest"] * _GB),
        quota_bytes=Limits.quota_bytes if quota is None else int(quota * _GB),
        requests_per_second=wanted["rate"],
        burst=max(1, int(4 * wanted["rate"])),
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
        raise typer.BadParameter(f"--listen {text}: give HOST:PORT, such as 127.0.0.1:8443")
    return host.strip("[]"), int(port)


def _log_path(storage: str, audit: Path | None) -> Path:
    from encryptedstats.cluster.jobs import absolute
    from encryptedstats.storage.objects import is_url

    if audit is not None:
        return audit.absolute()
    place = absolute(storage)
    if is_url(place):
        raise typer.BadParameter(f"{storage} is no folder: give a file for the audit log, --audit")
    return Path(place) / "audit.jsonl"


def worker_token(
    storage: Storage,
    action: Annotated[
        list[str],
        argument("add NAME | revoke NAME | list", "What to do; NAME may be the id of a token."),
    ],
    operator: Annotated[
        bool,
        typer.Option(
            "--operator", help="For add: a token for the worker's page, not for an owner."
        ),
    ] = False,
    quota: Annotated[
        float | None, option(min=0, metavar="GB", help="For add: storage of the owner.")
    ] = None,
    days: Annotated[
        float | None,
        option(metavar="N", help="For add: days until the token expires; never by default."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add, revoke or list the tokens of the service.

    JSON: token?, id?, name?, role?, expires?, revoked?, tokens?

    Examples:
      encryptedstats worker token /srv/encryptedstats add "Hospital North" --quota 100 --days 365
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
            token, holder = tokens.add(store, name, role=role, quota_bytes=quota_bytes, days=days)
            if as_json:
                facts = {"id": holder.id, "name": name, "role": role, "expires": holder.expires}
                print_json({"token": token, **facts})
                return
            typer.echo(token)
            text = f"shown only once. Give it to {name} by a private channel"
            typer.echo(printable(text), err=True)
        case ["revoke", name]:
            found = tokens.revoke(store, name)
            if not found:
                raise es.ArgumentError(
                    f"there is no token {name!r}: worker token list shows all", code="unknown-token"
                )
            text = f"Revoked {plural(len(found), 'token')} of {found[0].name}"
            notes = ("The objects of the owner are kept.",)
            ids = [holder.id for holder in found]
            tell(View(text, notes=notes), {"revoked": ids}, as_json)
        case ["list"]:
            _list_tokens(tokens.holders(store), as_json)
        case _:
            raise typer.BadParameter(f"{' '.join(action)!r}: give add NAME, revoke NAME or list")


def _list_tokens(found: Any, as_json: bool) -> None:
    import pandas as pd

    lines = [
        (
            one.name,
            one.role,
            one.made,
            one.expires or "never",
            "" if one.quota_bytes is None else size_text(one.quota_bytes),
        )
        for one in found
    ]
    index = pd.Index([one.id for one in found], name="id")
    frame = pd.DataFrame(lines, index, columns=["name", "role", "made", "expires", "quota"])
    document = {"tokens": [{"id": one.id, **asdict(one)} for one in found]}
    tell(View(plural(len(found), "token"), tables=(TableView("tokens", frame),)), document, as_json)


def worker_audit(
    storage: Storage,
    audit: Annotated[
        Path | None, file_option("--audit", help="The audit log, if worker serve was given one.")
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
    typer.echo(f"{plural(lines, 'line')}, with an intact chain of hashes", err=True)
