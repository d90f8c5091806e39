"""The owner's page: one application of the routes of all steps, served on the loopback address to
one browser, see ``guard``.
"""

from __future__ import annotations

import socket
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from encryptedstats.app.desk import Desk
from encryptedstats.app.guard import Guard
from encryptedstats.app.sentences import PROGRAM
from encryptedstats.app.steps import (
    agreement,
    columns,
    data,
    encrypt,
    key,
    parties,
    plan,
    projects,
    publish,
    questions,
    results,
    send,
    studies,
)
from encryptedstats.app.web import NO_PAGE, NotHere, Web
from encryptedstats.pages import SecurityHeaders, static_files

_OF_PROJECTS = (data, questions, columns, plan, key, encrypt, send, results)
#: What the template of each step needs, by its name in addresses.
VALUES = {
    step.__name__.rpartition(".")[2]: step.values for step in (*_OF_PROJECTS, parties, agreement)
}


def make_app(desk: Desk, start: Path) -> FastAPI:
    """Return the application, without the guard around it; ``start`` is the folder where the file
    list begins.
    """
    app = FastAPI(title="encryptedstats", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.web = web = Web(desk, start, VALUES)
    app.include_router(static_files())
    app.state.studies = studies.Studies(desk.projects.home / studies.FOLDER)
    for step in (*_OF_PROJECTS, parties, agreement, publish, projects, studies):
        app.include_router(step.router)

    @app.exception_handler(HTTPException)
    def refuse(request: Request, error: HTTPException) -> Response:
        said = str(error.detail) if isinstance(error, NotHere) else NO_PAGE
        return web.show("message.html", error.status_code, title="Not here", message=said)

    @app.exception_handler(RequestValidationError)
    def refuse_address(request: Request, error: RequestValidationError) -> Response:
        return web.show("message.html", 404, title="Not here", message=NO_PAGE)

    @app.exception_handler(Exception)
    def report_mistake(request: Request, error: Exception) -> Response:
        # the server writes the traceback into the terminal
        return web.show("message.html", 500, title="Something is broken", message=PROGRAM)

    return app


def guard_app(desk: Desk, port: int, start: Path) -> tuple[ASGIApp, str]:
    """Return the page as it is served, to nobody but the owner's browser, and the address that
    opens it.
    """
    guard = Guard(make_app(desk, start), port)
    return SecurityHeaders(guard), guard.url


def listening(port: int) -> socket.socket:
    """Return a socket on the loopback address, and on no other; port 0 takes any that is free."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(("127.0.0.1", port))
        # before the address is printed: who is quick has to wait, and is not turned away
        made.listen()
    except OSError as error:
        made.close()
        raise OSError(
            error.errno,
            f"port {port} of 127.0.0.1 is taken, or may not be: choose another, or 0 for any",
        ) from error
    return made


def serve(app: ASGIApp, listener: socket.socket) -> None:
    """Serve until Ctrl-C. Nothing is logged: addresses may have a token in them."""
    config = uvicorn.Config(
        app, log_level="error", access_log=False, server_header=False, timeout_graceful_shutdown=2
    )
    uvicorn.Server(config).run(sockets=[listener])
