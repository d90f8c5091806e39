"""Connect to any place that computes: ``es.connect`` returns a :class:`Worker`.

All workers have the same methods, arguments, errors and progress. The service and the cluster are
imported when a place needs them.
"""

from __future__ import annotations

import os

from encryptedstats.errors import ArgumentError
from encryptedstats.storage.objects import is_url, local_or_url
from encryptedstats.workers.local import LocalWorker
from encryptedstats.workers.worker import JobStatus, Worker, WorkerJob, WorkerTable

__all__ = [
    "JobStatus",
    "LocalWorker",
    "Worker",
    "WorkerJob",
    "WorkerTable",
    "connect",
]
PLACES = (
    "local",
    "dask://host:port",
    "dask://local",
    "queue://folder or bucket",
    "https://host",
)


def connect(
    place: str,
    token: str | None = None,
    *,
    pin: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    patience: float | None = None,
) -> Worker:
    """Connect to a worker, which computes on encrypted tables.

    Parameters
    ----------
    place : str
        ``"local"`` for this process; ``"dask://host:port"`` for a Dask scheduler;
        ``"dask://local"`` for a new cluster of processes on this machine; ``"queue://"`` and a
        folder or bucket, where ``encryptedstats worker run`` works; or ``"https://host"``, where
        ``encryptedstats worker serve`` runs (plain http only to this machine). A Dask address may
        end with ``/`` and a shared folder for jobs, which otherwise lie next to the tables.
    token : str, optional
        The token that the administrator of a service gave you. By default it is read from the file
        of mode 0600 that ``token_file`` or ``ENCRYPTEDSTATS_TOKEN_FILE`` names, or from
        ``ENCRYPTEDSTATS_TOKEN``.
    pin : str, optional
        ``"sha256:..."``, the SHA-256 of the certificate of a service; only this certificate is
        accepted, whatever its issuer. By default ``ENCRYPTEDSTATS_PIN``.
    patience : float, optional
        Seconds for which requests to a service that has answered before are repeated, 60 by
        default. A service that never answered is given up within 10 seconds.

    Returns
    -------
    Worker

    Examples
    --------
    >>> worker = es.connect("https://worker.example", token="est_...")  # doctest: +SKIP
    >>> table = worker.upload("patients")  # doctest: +SKIP
    >>> worker.plan(es.MultinomialNB(), table)["core_seconds"]  # doctest: +SKIP
    0.3
    >>> counts = worker.ask(es.ChiSquare("smoker", "ill"), table)  # doctest: +SKIP
    >>> two = worker.ask([es.TTest("age", "ill"), es.Describe()], table)  # doctest: +SKIP
    >>> model = worker.fit(es.MultinomialNB(), table, "model.enc")  # doctest: +SKIP
    >>> votes = worker.predict(model, "new patients")  # doctest: +SKIP
    >>> owner.open(counts, schema)  # doctest: +SKIP

    Without waiting, a request is a job, which another program can ask for:

    >>> job = worker.fit(es.MultinomialNB(), table, wait=False)  # doctest: +SKIP
    >>> print(worker.status(job))  # doctest: +SKIP
    job 3f2a90c1d4e5, running: 2 of 32 shards, 500 of 8,000 rows
    >>> model = worker.result(job)  # doctest: +SKIP
    """
    if place == "local":
        made: Worker = LocalWorker()
        return made
    kind, _, rest = place.partition("://")
    if kind == "queue" and rest:
        from encryptedstats.workers.queued import QueueWorker

        return QueueWorker(local_or_url(rest))
    if kind in ("dask", "dask+tls") and rest:
        from encryptedstats.workers.queued import DaskWorker

        address, _, folder = rest.partition("/")
        storage = None if not folder else folder if is_url(folder) else f"/{folder}"
        protocol = "tls" if kind == "dask+tls" else "tcp"
        return DaskWorker(None if address == "local" else f"{protocol}://{address}", storage)
    if kind in ("http", "https"):
        from encryptedstats.workers.connection import PATIENCE, PIN_VARIABLE, Connection, find_token
        from encryptedstats.workers.service import ServiceWorker

        known = find_token(token_file) if token is None else token
        pinned = pin or os.environ.get(PIN_VARIABLE) or None
        seconds = PATIENCE if patience is None else patience
        return ServiceWorker(Connection(place, known, pinned, seconds))
    raise ArgumentError(
        f"{place!r} is not a place of a worker: use {', '.join(PLACES)}", code="unknown-place"
    )
