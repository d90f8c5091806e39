"""A program of commands: the options of all commands, and the reporting of errors."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

import encryptedstats as es
from encryptedstats.cli._exits import FAILED, INTERRUPTED, MISTAKE
from encryptedstats.cli._help import SHARED, Group, unwrap

# Errors that the user can fix, and those that Typer reports. All others are errors in the program.
_FIXABLE = (es.EncryptedStatsError, OSError, ValueError, OverflowError, MemoryError, ImportError)
_QUIET: tuple[type[BaseException], ...] = (
    BrokenPipeError,  # as in `encryptedstats data info x | head`
    typer.Exit,
    typer.Abort,
    *(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"),
)
_UNKNOWN_WORDS: Final = "unknown-words"  # as of tables.questions.words, which is not imported here
_FLAGS: Final = (SHARED["as_json"], SHARED["force"], "--debug")
_PANEL: Final = "Options of all commands, anywhere on the line"


class ReportingGroup(Group):
    """Report errors as one line on stderr and an exit code, or with ``--debug`` as a traceback."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Accept the options of all commands anywhere on the line."""
        return super().parse_args(ctx, move_to_front(args))

    def invoke(self, ctx: Any) -> Any:
        """Run a command, and report its errors."""
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            try:
                return super().invoke(ctx)
            except _QUIET:
                raise
            except (KeyboardInterrupt, Exception) as error:
                if ctx.params.get("debug"):
                    raise
                if getattr(error, "code", "") == _UNKNOWN_WORDS:
                    from encryptedstats.cli._errors import in_options

                    raise typer.BadParameter(in_options(error), ctx=ctx) from error
                line, code = _describe(error)
                typer.echo(line, err=True)
                raise typer.Exit(code) from error


def move_to_front(args: Sequence[str]) -> list[str]:
    """Return the arguments with the options of all commands first.

    >>> move_to_front(["open", "x", "--json", "--passphrase-file", "f", "--", "--force"])
    ['--json', '--passphrase-file', 'f', 'open', 'x', '--', '--force']
    """
    front, rest, words = [], [], iter(args)
    for word in words:
        if word in _FLAGS or word.startswith(f"{SHARED['passphrase_file']}="):
            front.append(word)
        elif word == SHARED["passphrase_file"]:
            front += [word, *[one for one in [next(words, None)] if one is not None]]
        elif word == "--":
            rest += [word, *words]
        else:
            rest.append(word)
    return [*front, *rest]


def _describe(error: BaseException) -> tuple[str, int]:
    """Return the line and the exit code of an error."""
    from encryptedstats.cli._errors import one_line  # which needs the library

    if isinstance(error, KeyboardInterrupt):
        return "interrupted: nothing was left half-written", INTERRUPTED
    if isinstance(error, _FIXABLE):
        return f"error: {one_line(error)}", FAILED
    what = f"{type(error).__name__}: {one_line(error)}"
    return (
        f"error: the program failed ({what}): please report it, with the output of --debug",
        MISTAKE,
    )


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    from encryptedstats.cli._console import printable
    from encryptedstats.cli._errors import in_options

    text = in_options(message) if isinstance(message, Warning) else message
    typer.echo(f"warning: {printable(' '.join(text.split()))}", err=True)


def new_program(help: str, kind: type[ReportingGroup] = ReportingGroup) -> typer.Typer:
    """Return a program without commands, with the options of all commands."""
    app = typer.Typer(
        cls=kind,
        help=unwrap(help),
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
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, for programs.", rich_help_panel=_PANEL)
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Replace files that exist; never those that the command reads.",
            rich_help_panel=_PANEL,
        ),
    ] = False,
    passphrase_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            readable=False,
            show_default=False,
            help="The first line locks or opens a secret key; without it you are asked. Only you "
            "may have access (mode 0600).",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    debug: Annotated[
        bool,
        typer.Option("--debug", help="Show the traceback of an error.", rich_help_panel=_PANEL),
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass
