"""How commands are registered, parsed and helped with.

A command is a function. What stands behind ``Examples:`` and ``JSON:`` in its docstring is shown
below its options. Parameters that are marked with :class:`Shared` are options of the program: they
may stand anywhere on the line, and are described once.
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
    """Marks a parameter of a command that is an option of the program, with its spelling."""

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
    """A command that was loaded: its function, and the options of the program that it takes."""

    function: Callable[..., None]
    doc: Doc
    shared: Mapping[str, Shared]


_known: dict[Callable[..., None], Known] = {}
_given: ContextVar[Mapping[str, Any]] = ContextVar("_given")


class Command(TyperCommand):
    """A command whose outputs are checked before it begins, and whose help ends with examples."""

    @property
    def known(self) -> Known:
        """The function that it runs, and what its docstring says."""
        return _known[inspect.unwrap(self.callback or (lambda: None))]

    def invoke(self, ctx: Any) -> Any:
        """Run it with the options of the program, after a look at what is to be written."""
        given = ctx.find_root().params
        own = self.known.shared
        taken = {mark.option for mark in own.values()}
        for option, flag in SHARED.items():
            if given.get(option) and option not in taken:
                raise typer.BadParameter(
                    f"{flag} means nothing to {ctx.command_path}: leave it out"
                )
        values = {name: given.get(mark.option) for name, mark in own.items()}
        from encryptedstats.cli._files import check_outputs  # which needs the library

        check_outputs(self.known.function, {**ctx.params, **values})
        token = _given.set(values)
        try:
            return super().invoke(ctx)
        finally:
            _given.reset(token)

    def get_params(self, ctx: Any) -> list[Any]:
        """Switches are shown without the word ``bool``, which reads as if they took a value."""
        return _without_types(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Typer's help, then the options of the program that it takes, and the examples."""
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


#: What commands were called before version 0.3, for those who type that.
_BEFORE: Final = {
    **dict.fromkeys(("fit", "counts", "crosstab", "moments"), "ask"),
    "decrypt": "open",
    "keygen": "key make",
    "doctor": "check install",
    "bench": "check speed",
    "verify": "check answer",
}


class Late(TyperCommand):
    """The name of a command or a group and a line about it, until it is used."""


class Group(TyperGroup):
    """Commands that are imported when they are used. Wrong names are answered with near ones."""

    story = ""
    _lists = False

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return all of a command, unless commands are only listed."""
        found = super().get_command(ctx, cmd_name)
        return load(found.late) if isinstance(found, Late) and not self._lists else found  # type: ignore[attr-defined]  # set below

    def get_params(self, ctx: Any) -> list[Any]:
        """Switches are shown without the word ``bool``."""
        return _without_types(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Name what is near a command that there is not, also where it stands in another group."""
        if args and super().get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            known = {path.rpartition(" ")[2]: path for path in paths()}
            near = [known[one] for one in get_close_matches(args[0], known)]
            near = [_BEFORE[args[0]]] if args[0] in _BEFORE else near
            hint = f": did you mean {' or '.join(map(repr, near))}?" if near else ""
            ctx.fail(f"there is no command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Typer's help, then the story and what exit codes mean."""
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
    """Where a command is found: a module, a line about it, and its name there.

    ``commands`` are those of a group, by name: module and line.
    """

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
    """Add a command with help and examples from its docstring; options of the program are left to
    the program.
    """
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
    def command(**given: Any) -> None:
        function(**given, **_given.get())

    _known[function] = Known(function, Doc.of(function), shared)
    ready = with_parameters(command, {one: hints[one] for one in defaults}, defaults)
    app.command(name, cls=Command, help=Doc.of(function).text, rich_help_panel=panel)(ready)


def unwrap(text: str) -> str:
    """Return paragraphs of one line each, for Typer to fold; it would keep the line breaks.

    >>> unwrap('''One
    ... line.
    ...
    ... Another.''')
    'One line.\\n\\nAnother.'
    """
    return "\n\n".join(" ".join(part.split()) for part in text.strip().split("\n\n"))


def show_panel(text: str, title: str) -> None:
    """Print commands as they are typed in a panel like those that Typer draws."""
    if not text:
        return
    from rich.console import Console
    from rich.panel import Panel
    from rich.text import Text

    Console().print(Panel(Text(text), title=title, title_align="left", border_style="dim"))
