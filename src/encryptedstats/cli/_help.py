"""Register commands, parse them and show their help.

A command is a function. The sections ``Examples:`` and ``JSON:`` of its docstring are shown below
its options. Parameters marked with :class:`Shared` are options of the program: they may stand
anywhere on the line, and are described once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, wraps
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from encryptedstats.cli._exits import EXIT_CODES
from encryptedstats.cli._parameters import hints_of, marks_of, with_parameters

_EXAMPLES: Final = "Examples:"
_JSON: Final = "JSON:"
VERBS: Final = "Verbs"
NOUNS: Final = "More, by noun"


@dataclass(frozen=True)
class Shared:
    """Mark a parameter of a command as an option of the program."""

    option: str


@dataclass(frozen=True)
class Doc:
    """The parts of a command's docstring."""

    text: str
    examples: str
    json: tuple[str, ...]

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Doc:
        """Split a docstring at its headings."""
        rest, _, examples = inspect.cleandoc(function.__doc__ or "").partition(_EXAMPLES)
        text, _, names = rest.partition(_JSON)
        keys = tuple(name.strip() for name in " ".join(names.split()).split(",") if name.strip())
        return cls(unwrap(text), inspect.cleandoc(examples), keys)


@dataclass(frozen=True)
class Known:
    """A command that was imported, and the options of the program that it takes."""

    function: Callable[..., None]
    doc: Doc
    shared: Mapping[str, Shared]


_known: dict[Callable[..., None], Known] = {}
_values: ContextVar[Mapping[str, Any]] = ContextVar("_values")


class Command(TyperCommand):
    """A command that checks its outputs before it begins, and shows examples in its help."""

    @property
    def known(self) -> Known:
        """The function that it runs, and what its docstring says."""
        return _known[inspect.unwrap(self.callback or (lambda: None))]

    def invoke(self, ctx: Any) -> Any:
        """Check the outputs, and run it with the options of the program."""
        options = ctx.find_root().params
        own = self.known.shared
        taken = {mark.option for mark in own.values()}
        for option, flag in SHARED.items():
            if options.get(option) and option not in taken:
                raise typer.BadParameter(
                    f"{flag} has no meaning for {ctx.command_path}: leave it out"
                )
        values = {name: options.get(mark.option) for name, mark in own.items()}
        from encryptedstats.cli._files import check_outputs  # which needs the library

        check_outputs(self.known.function, {**ctx.params, **values})
        token = _values.set(values)
        try:
            return super().invoke(ctx)
        finally:
            _values.reset(token)

    def get_params(self, ctx: Any) -> list[Any]:
        """Show switches without the word ``bool``, which looks like a value."""
        return _without_types(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Show Typer's help, the examples, and the options of the program that it takes."""
        super().format_help(ctx, formatter)
        show_panel(self.known.doc.examples, "Examples")
        flags = [SHARED[mark.option] for mark in self.known.shared.values()]
        if flags:
            typer.echo(f" Takes {', '.join(flags)} too: see encryptedstats --help.")


#: Options of the program that only some commands take, by the names of their parameters.
SHARED: Final = {
    "as_json": "--json",
    "force": "--force",
    "passphrase_file": "--passphrase-file",
}


#: The commands of version 0.2 and their new names.
_BEFORE: Final = {
    **dict.fromkeys(("fit", "counts", "crosstab", "moments"), "ask"),
    "decrypt": "open",
    "keygen": "key make",
    "doctor": "check install",
    "verify": "check answer",
}


class Late(TyperCommand):
    """A command or a group that is imported when it is used."""


class Group(TyperGroup):
    """Commands that are imported when they are used, with suggestions for wrong names."""

    story = ""
    _lists = False

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import a command, unless commands are only listed."""
        found = super().get_command(ctx, cmd_name)
        if isinstance(found, Late) and not self._lists:
            return load(found.late)  # type: ignore[attr-defined]  # set below
        return found

    def get_params(self, ctx: Any) -> list[Any]:
        """Show switches without the word ``bool``."""
        return _without_types(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Suggest similar commands of all groups for an unknown one."""
        if args and super().get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            known = {path.rpartition(" ")[2]: path for path in paths()}
            near = [known[one] for one in get_close_matches(args[0], known)]
            near = [_BEFORE[args[0]]] if args[0] in _BEFORE else near
            hint = f": did you mean {' or '.join(map(repr, near))}?" if near else ""
            ctx.fail(f"there is no command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Show Typer's help, the story and the exit codes."""
        self._lists = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._lists = False
        show_panel(self.story, "The whole story")
        if ctx.parent is None:
            show_panel(EXIT_CODES, "Exit codes")


def _without_types(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return parameters


@dataclass(frozen=True)
class Entry:
    """The module of a command, and a line about it; ``commands`` are those of a group."""

    module: str
    line: str
    function: str = ""
    commands: tuple[tuple[str, tuple[str, str]], ...] = ()


_entries: dict[str, Entry] = {}


def paths() -> list[str]:
    """Return all commands as they are typed."""
    return [
        path
        for name, entry in _entries.items()
        for path in ([f"{name} {one}" for one, _ in entry.commands] or [name])
    ]


def register_late(app: typer.Typer, name: str, entry: Entry, panel: str = VERBS) -> None:
    """Add a command that is imported when it is used."""
    _entries[name] = entry
    _add_late(app, name, name, entry.line, panel)


def register_group(
    app: typer.Typer, name: str, about: str, commands: Mapping[str, tuple[str, str]]
) -> None:
    """Add a group of commands, each imported when it is used."""
    _entries[name] = Entry("", about, commands=tuple(commands.items()))
    _add_late(app, name, name, f"{about} ({', '.join(commands)})", NOUNS)


def _add_late(app: typer.Typer, name: str, key: str, line: str, panel: str | None) -> None:
    class One(Late):
        late = key

    def late() -> None:
        raise AssertionError(f"{key} was not loaded")

    app.command(name, cls=One, help=line, rich_help_panel=panel)(late)


@cache
def load(key: str) -> Any:
    """Return a command (``"ask"``, ``"key make"``) or a group with all its options."""
    group, _, part = key.partition(" ")
    entry = _entries[group]
    if entry.commands and not part:
        return _load_group(group, entry)
    module, _ = dict(entry.commands)[part] if part else (entry.module, "")
    found = import_module(f"encryptedstats.cli.{module}")
    function = getattr(found, f"{group}_{part}" if part else f"{group}_")
    alone = typer.Typer(add_completion=False)
    register(alone, function, None, part or group)
    return typer.main.get_command(alone)


def _load_group(name: str, entry: Entry) -> Any:
    app = typer.Typer(
        name=name, cls=Group, help=entry.line, no_args_is_help=True, add_completion=False
    )
    app.callback()(lambda: None)
    for part, (_, line) in entry.commands:
        _add_late(app, part, f"{name} {part}", line, None)
    return typer.main.get_command(app)


def register(
    app: typer.Typer, function: Callable[..., None], panel: str | None, name: str | None = None
) -> None:
    """Add a command with its help from its docstring, without the options of the program."""
    hints = hints_of(function)
    shared = {
        one: mark
        for one, hint in hints.items()
        for mark in marks_of(hint)
        if isinstance(mark, Shared)
    }
    defaults = {
        one: about.default
        for one, about in inspect.signature(function).parameters.items()
        if one not in shared
    }

    @wraps(function)
    def command(**values: Any) -> None:
        function(**values, **_values.get())

    _known[function] = Known(function, Doc.of(function), shared)
    ready = with_parameters(command, {one: hints[one] for one in defaults}, defaults)
    app.command(name, cls=Command, help=Doc.of(function).text, rich_help_panel=panel)(ready)


def unwrap(text: str) -> str:
    """Return paragraphs of one line each, for Typer to fold.

    >>> unwrap('''One
    ... line.
    ...
    ... Another.''')
    'One line.\\n\\nAnother.'
    """
    return "\n\n".join(" ".join(part.split()) for part in text.strip().split("\n\n"))


def show_panel(text: str, title: str) -> None:
    """Print text in a panel like those of Typer, without folding it."""
    if not text:
        return
    from rich.console import Console
    from rich.panel import Panel
    from rich.text import Text

    Console().print(Panel(Text(text), title=title, title_align="left", border_style="dim"))
