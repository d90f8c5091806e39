"""A program of commands: its global options, and how an error reaches the person. ``_app`` has
those of the library.
"""

from __future__ import annotations

import warnings
from typing import Annotated, Any

import typer

import encryptedstats as es
from encryptedstats.cli._exits import FAILED, INTERRUPTED, MISTAKE
from encryptedstats.cli._help import Group, unwrapped

# What a person can fix, and what Typer ends well by itself. Everything else is a mistake of the
# program.
_MENDABLE = (es.EncryptedStatsError, OSError, ValueError, OverflowError, MemoryError, ImportError)
_QUIET: tuple[type[BaseException], ...] = (
    BrokenPipeError,  # as in `encryptedstats info x | head`
    typer.Exit,
    typer.Abort,
    *(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"),
)


class Program(Group):
    """Turns errors into one line on stderr and an exit code, unless ``--debug`` asks for the
    traceback.
    """

    def invoke(self, ctx: Any) -> Any:
        """Typer's, with errors told."""
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            try:
                return super().invoke(ctx)
            except _QUIET:
                raise
            except (KeyboardInterrupt, Exception) as error:
                if ctx.params.get("debug"):
                    raise
                line, code = _said(error)
                typer.echo(line, err=True)
                raise typer.Exit(code) from error


def _said(error: BaseException) -> tuple[str, int]:
    """What is said of an error, and the exit code for it."""
    from encryptedstats.cli._errors import (
        one_line,
    )  # which needs the library, as the list of commands does not

    if isinstance(error, KeyboardInterrupt):
        return "interrupted: nothing was left half-written", INTERRUPTED
    if isinstance(error, _MENDABLE):
        return f"error: {one_line(error)}", FAILED
    what = f"{type(error).__name__}: {one_line(error)}"
    return (
        f"error: a mistake of the program, not yours ({what}): please report it with what --debug "
        "shows",
        MISTAKE,
    )


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    from encryptedstats.cli._console import printable
    from encryptedstats.cli._errors import in_options

    text = in_options(message) if isinstance(message, Warning) else message
    typer.echo(f"warning: {printable(' '.join(text.split()))}", err=True)


def new_program(help: str, kind: type[Program] = Program) -> typer.Typer:
    """A program without commands yet, but with the options that stand before one."""
    app = typer.Typer(
        cls=kind,
        help=unwrapped(help),
        no_args_is_help=True,
        # Rich's tracebacks can show local variables, and one of them may be a passphrase.
        pretty_exceptions_enable=False,
    )
    app.callback()(_options)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"encryptedstats {es.__version__}")
        raise typer.Exit


def _options(
    debug: Annotated[
        bool, typer.Option("--debug", help="Before a command: show the traceback of an error.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass
