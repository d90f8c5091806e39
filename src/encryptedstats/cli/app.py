"""``app``: serve the owner's page to a browser on the same machine."""

from __future__ import annotations

import os
import webbrowser
from pathlib import Path
from typing import Annotated, Final

import typer

import encryptedstats as es
from encryptedstats.cli._console import show
from encryptedstats.cli._options import file_option
from encryptedstats.storage.files import PRIVATE, release_lock, take_lock, write_atomic
from encryptedstats.views import View

_NEEDED: Final = {
    "fastapi",
    "uvicorn",
    "jinja2",
    "httpx2",
    "starlette",
    "multipart",
    "python_multipart",
}


def app_(
    folder: Annotated[
        Path | None,
        file_option(
            "--folder",
            metavar="FOLDER",
            help="Where projects are kept; by default ~/.local/share/encryptedstats/projects.",
        ),
    ] = None,
    files: Annotated[
        Path | None,
        file_option(
            "--files",
            metavar="FOLDER",
            help="Where the list of files begins; by default your home folder.",
        ),
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, metavar="N", help="Port on 127.0.0.1; any that is free by default."
        ),
    ] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open it in the browser.")
    ] = True,
) -> None:
    """Do the owner's part in your browser, without commands.

    The page is served to this machine only, and its address opens one browser, once. Choose a
    file, ask, see the plan, make a key, encrypt, send, and open the results. Projects are kept in
    a folder and resume after a restart. Ctrl-C ends it.

    Examples:
      encryptedstats app
      encryptedstats app --folder /secure/projects --files /data --port 8765 --no-browser
    """
    try:
        from encryptedstats.app.desk import Desk
        from encryptedstats.app.server import guard_app, listening, serve
        from encryptedstats.app.steps.send import resume
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _NEEDED:
            raise
        raise ImportError(
            f"the page needs {error.name}: pip install 'encryptedstats[app]'"
        ) from error
    home = folder or _data_home() / "encryptedstats" / "projects"
    desk = Desk(home.expanduser().absolute(), es.connect)
    lock_file = desk.projects.home / ".lock"
    lock = take_lock(lock_file, str(os.getpid()).encode())
    if lock is None:
        raise es.BusyError(
            f"the projects of {home} are open in another program: end that one, or give another "
            "--folder",
            code="already-open",
        )
    try:
        listener = listening(port)
        page, url = guard_app(
            desk, listener.getsockname()[1], (files or Path.home()).expanduser().absolute()
        )
        resume(desk)
        about = f"It opens one browser, once. Projects are in {home}. Ctrl-C ends it."
        show(View(f"Open {url}", notes=(about,)))
        if browser:
            _open(url, desk.projects.home)
        serve(page, listener)
    finally:
        release_lock(lock_file, lock)


def _data_home() -> Path:
    named = os.environ.get("XDG_DATA_HOME", "")
    return Path(named) if named.startswith("/") else Path.home() / ".local" / "share"


def _open(url: str, home: Path) -> None:
    """Open the browser by a private file: command lines with the token are public here."""
    page = home / ".open.html"
    write_atomic(
        page,
        [
            f'<!doctype html><meta http-equiv="refresh" content="0; url={url}"><a '
            f'href="{url}">Open</a>'.encode()
        ],
        mode=PRIVATE,
    )
    webbrowser.open(page.as_uri())
