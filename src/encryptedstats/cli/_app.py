"""The program: its global options, its commands, and how an error reaches the person.

A new family of commands is a module of its own with functions; it is added to the list at the end.
"""

from __future__ import annotations

import errno
import warnings
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import encryptedstats as es
from encryptedstats.cli import demo, doctor, info, keygen
from encryptedstats.cli._console import printable

# What a person can mend. Everything else is a mistake of the library, and shows where.
_MENDABLE = (es.EncryptedStatsError, OSError, ValueError, OverflowError, MemoryError)


class _Program(TyperGroup):
    """Turns errors into one line on stderr and exit code 1, unless ``--debug`` asks for the traceback."""

    def invoke(self, ctx: Any) -> Any:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            try:
                return super().invoke(ctx)
            except BrokenPipeError:  # as in `encryptedstats info x | head`: Typer ends quietly
                raise
            except _MENDABLE as error:
                if ctx.params.get("debug"):
                    raise
                typer.echo(f"error: {one_line(error)}", err=True)
                raise typer.Exit(1) from error


def one_line(error: BaseException) -> str:
    """What went wrong and how to mend it, in one line without control characters."""
    if isinstance(error, MemoryError):
        text = "not enough memory: free some, or choose smaller parameters"
    elif isinstance(error, OSError) and error.strerror:  # the system's; without it, the message is the library's own
        place = f"{error.filename}: " if error.filename is not None else ""
        text = f"{place}{error.strerror.lower()}{_cure(error)}"
    else:
        text = str(error) or type(error).__name__
    return printable(" ".join(text.split()))


def _cure(error: OSError) -> str:
    cures: dict[type[OSError], str] = {
        FileNotFoundError: "; check the path",
        PermissionError: "; check who may read and write it",
        IsADirectoryError: "; give a file in it",
        NotADirectoryError: "; check the path",
        FileExistsError: "; move it away or give another name",
    }
    if error.errno == errno.ENOSPC:
        return "; free some space, or write elsewhere"
    return cures.get(type(error), "")


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    typer.echo(f"warning: {printable(' '.join(str(message).split()))}", err=True)


app = typer.Typer(
    cls=_Program,
    help="Statistics on encrypted data: encrypt, let somebody else compute, and open the result yourself.",
    no_args_is_help=True,
    add_completion=False,
    # Rich's tracebacks can show local variables, and one of them may be a passphrase.
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"encryptedstats {es.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


for command in (doctor.doctor, keygen.keygen, info.info, demo.demo):
    app.command()(command)
