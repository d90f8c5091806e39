"""The program: its global options, its commands, and how an error reaches the person.

A new family of commands is a module of its own with functions; they are added to the list of a role at the end.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Annotated, Any

import typer

import encryptedstats as es
from encryptedstats.cli import (
    bench,
    calibrate,
    casestudy,
    cluster,
    datasets,
    decrypt,
    demo,
    doctor,
    draw,
    encrypt,
    evaluate,
    info,
    keygen,
    models,
    plan,
    predict,
    reproduce,
    schema,
    statistics,
)
from encryptedstats.cli._console import printable
from encryptedstats.cli._errors import FAILED, INTERRUPTED, MISTAKE, in_options, one_line
from encryptedstats.cli._help import Group, register, unwrapped

# What a person can mend, and what Typer ends well by itself. Everything else is a mistake of the program.
_MENDABLE = (es.EncryptedStatsError, OSError, ValueError, OverflowError, MemoryError, ImportError)
_QUIET: tuple[type[BaseException], ...] = (
    BrokenPipeError,  # as in `encryptedstats info x | head`
    typer.Exit,
    typer.Abort,
    *(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"),
)

_HELP = """Statistics on encrypted data: encrypt, let somebody else compute, and open the result yourself.

The owner has the data and makes the keys. A worker gets the encrypted table, computes, and learns nothing but sizes. Others may
encrypt rows for the owner, with the public keys, and cannot open even their own again.
"""

_STORY = """\
# the owner
encryptedstats schema patients.csv --target ill -o schema.json
encryptedstats plan --schema schema.json --rows 683 --model forest --trees 100 -o plan.json
encryptedstats keygen secret.key public.keys --plan plan.json
encryptedstats encrypt patients.csv patients.enc --schema schema.json --key secret.key
# the worker, who has patients.enc and nothing else
encryptedstats counts patients.enc v0 --by class -o age.enc
encryptedstats fit patients.enc -o forest.enc --model forest --trees 100
# the owner, who gets age.enc and forest.enc back
encryptedstats decrypt age.enc --key secret.key --schema schema.json -o age.csv
encryptedstats decrypt forest.enc --key secret.key --schema schema.json -o forest.opened
encryptedstats predict forest.opened new.csv -o predicted.csv"""


class _Program(Group):
    """Turns errors into one line on stderr and an exit code, unless ``--debug`` asks for the traceback."""

    story = _STORY

    def invoke(self, ctx: Any) -> Any:
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
    if isinstance(error, KeyboardInterrupt):
        return "interrupted: nothing was left half-written", INTERRUPTED
    if isinstance(error, _MENDABLE):
        return f"error: {one_line(error)}", FAILED
    what = f"{type(error).__name__}: {one_line(error)}"
    return f"error: a mistake of the program, not yours ({what}): please report it with what --debug shows", MISTAKE


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    text = in_options(message) if isinstance(message, Warning) else message
    typer.echo(f"warning: {printable(' '.join(text.split()))}", err=True)


app = typer.Typer(
    cls=_Program,
    help=unwrapped(_HELP),
    no_args_is_help=True,
    # Rich's tracebacks can show local variables, and one of them may be a passphrase.
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"encryptedstats {es.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Before a command: show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


_ROLES: dict[str, tuple[Callable[..., None], ...]] = {
    "Owner: has the data, and alone the secret key": (
        schema.schema,
        plan.plan,
        keygen.keygen,
        encrypt.encrypt,
        decrypt.decrypt,
        predict.predict,
        evaluate.evaluate,
        calibrate.calibrate,
    ),
    "Worker: computes on what it cannot read": (
        info.info,
        statistics.counts,
        statistics.crosstab,
        statistics.moments,
        statistics.ask,
        models.fit,
        models.combine,
        draw.draw,
        cluster.worker,
        cluster.queue,
    ),
    "To look around": (
        datasets.datasets,
        demo.demo,
        doctor.doctor,
        bench.bench,
        reproduce.reproduce,
        casestudy.casestudy,
    ),
}
for role, commands in _ROLES.items():
    for command in commands:
        register(app, command, role)
