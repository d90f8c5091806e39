"""The program: its global options, its commands, and how an error reaches the person.

A new family of commands is a module of its own with functions; they are added to the list of a role at the end.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Annotated, Any

import typer

import encryptedstats as es
from encryptedstats.cli import datasets, decrypt, demo, doctor, encrypt, info, keygen, models, plan, schema, statistics
from encryptedstats.cli._console import printable
from encryptedstats.cli._errors import INTERRUPTED, one_line
from encryptedstats.cli._help import Group, register, unwrapped

# What a person can mend. Everything else is a mistake of the library, and shows where.
_MENDABLE = (es.EncryptedStatsError, OSError, ValueError, OverflowError, MemoryError)


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
    """Turns errors into one line on stderr and exit code 1, unless ``--debug`` asks for the traceback."""

    story = _STORY

    def invoke(self, ctx: Any) -> Any:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            try:
                return super().invoke(ctx)
            except BrokenPipeError:  # as in `encryptedstats info x | head`: Typer ends quietly
                raise
            except KeyboardInterrupt as interrupt:
                if ctx.params.get("debug"):
                    raise
                typer.echo("interrupted: nothing was left half-written", err=True)
                raise typer.Exit(INTERRUPTED) from interrupt
            except _MENDABLE as error:
                if ctx.params.get("debug"):
                    raise
                typer.echo(f"error: {one_line(error)}", err=True)
                raise typer.Exit(1) from error


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    typer.echo(f"warning: {printable(' '.join(str(message).split()))}", err=True)


app = typer.Typer(
    cls=_Program,
    help=unwrapped(_HELP),
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


_ROLES: dict[str, tuple[Callable[..., None], ...]] = {
    "Owner: has the data, and alone the secret key": (
        schema.schema,
        plan.plan,
        keygen.keygen,
        encrypt.encrypt,
        decrypt.decrypt,
        models.predict,
    ),
    "Worker: computes on what it cannot read": (
        info.info,
        statistics.counts,
        statistics.crosstab,
        statistics.moments,
        models.fit,
        models.combine,
    ),
    "To look around": (datasets.datasets, demo.demo, doctor.doctor),
}
for role, commands in _ROLES.items():
    for command in commands:
        register(app, command, role)
