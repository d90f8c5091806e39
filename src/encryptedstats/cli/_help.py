"""Help that teaches: what stands behind ``Examples:`` in a command's docstring becomes a panel
below its options.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from typing import Any, Final

import typer
from rich.console import Console
from rich.panel import Panel
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from encryptedstats.cli._exits import EXIT_CODES

_MARK: Final = "Examples:"
_MORE: Final = "encryptedstats.more"
_examples: dict[str, str] = {}  # by name of the function; the program's own has none
_functions: dict[str, Callable[..., None]] = {}


class Command(TyperCommand):
    """A command whose outputs are checked before it begins, and whose help ends with examples."""

    def invoke(self, ctx: Any) -> Any:
        """Typer's, after a look at what is to be written; options that the function has no
        parameters for are kept aside.
        """
        for option in self._more:
            ctx.meta[_MORE, option.name] = ctx.params.pop(option.name)
        from encryptedstats.cli._files import check_outputs  # which needs the library

        check_outputs(self.function, ctx.params)
        return super().invoke(ctx)

    @cached_property
    def _more(self) -> list[Any]:
        """Options, and help of others, that are found out when the command is asked for, not
        whenever the program starts.
        """
        own: dict[str | None, Any] = {parameter.name: parameter for parameter in self.params}
        function = self.function
        for name, text in getattr(function, "more_help", dict)().items():
            own[name].help = f"{own[name].help} {text}"
        find = getattr(function, "more_options", list)
        return [option for option in find() if option.name not in own]

    def get_params(self, ctx: Any) -> list[Any]:
        """Typer's, and those that are found out."""
        *own, help_option = super().get_params(ctx)
        return _without_types([*own, *self._more, help_option])

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Typer's help, then the examples."""
        super().format_help(ctx, formatter)
        show_examples(self.examples)

    @property
    def function(self) -> Callable[..., None]:
        """What it runs: commands of different groups may have the same name, functions have not."""
        return _functions[self.callback.__name__ if self.callback else ""]

    @property
    def examples(self) -> str:
        """What stands behind the help of it."""
        return _examples[self.callback.__name__ if self.callback else ""]


def more_options(ctx: typer.Context) -> dict[str, Any]:
    """What was given of the options that were found out when the command was asked for."""
    return {key[1]: value for key, value in ctx.meta.items() if key[0] == _MORE}


class Late(TyperCommand):
    """The name of a command and a line about it, in its place until it is used: what it imports
    takes a second.
    """


class Group(TyperGroup):
    """The program, whose help ends with the whole story."""

    story = ""
    _lists = False

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Typer's; all of it, unless commands are only listed."""
        found = super().get_command(ctx, cmd_name)
        return loaded(cmd_name) if isinstance(found, Late) and not self._lists else found

    def get_params(self, ctx: Any) -> list[Any]:
        """Typer's."""
        return _without_types(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Typer's help, then the story and what exit codes mean."""
        self._lists = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._lists = False
        show_examples(self.story, title="The whole story")
        show_examples(EXIT_CODES, title="Exit codes", style="")


def _without_types(parameters: list[Any]) -> list[Any]:
    """Switches without the word ``bool`` beside them, which reads as if they took a value."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return parameters


@dataclass(frozen=True)
class Entry:
    """Where a command is found: the module that has a function, or the commands of a group, and a
    line about it.
    """

    module: str
    line: str
    panel: str


_entries: dict[str, Entry] = {}


def register_late(app: typer.Typer, name: str, entry: Entry) -> None:
    """Add a command that is imported when it is used. Its line is the first of its docstring
    (tests/cli/test_cli_help.py).
    """

    def late() -> None:
        raise AssertionError(f"{name} was not loaded")

    _entries[name] = entry
    app.command(name, cls=Late, help=entry.line, rich_help_panel=entry.panel)(late)


@cache
def loaded(name: str) -> Any:
    """A command, or a group of them, with all its options."""
    entry = _entries[name]
    module = import_module(f"encryptedstats.cli.{entry.module}")
    if hasattr(module, "COMMANDS"):
        group = new_group(name, module.ABOUT, module.STORY)
        for part, function in module.COMMANDS.items():
            register(group, function, "Commands", part)
        return typer.main.get_command(group)
    alone = typer.Typer(add_completion=False)
    register(alone, getattr(module, name), entry.panel)
    return typer.main.get_command(alone)


def register(
    app: typer.Typer, function: Callable[..., None], panel: str, name: str | None = None
) -> None:
    """Add a command under a heading, with help and examples from its docstring; called as its
    function, unless it has a name.
    """
    text, _, examples = inspect.cleandoc(function.__doc__ or "").partition(_MARK)
    _examples[function.__name__] = inspect.cleandoc(examples)
    _functions[function.__name__] = function
    app.command(name, cls=Command, help=unwrapped(text), rich_help_panel=panel)(function)


def new_group(word: str, about: str, story: str) -> typer.Typer:
    """Commands that have a word before them, with the story of how they go together below their
    help.
    """
    _examples[word] = story

    class Part(Group):
        def format_help(self, ctx: Any, formatter: Any) -> None:
            """Typer's help, then the story."""
            TyperGroup.format_help(self, ctx, formatter)
            show_examples(story)

    return typer.Typer(
        name=word, cls=Part, help=unwrapped(about), no_args_is_help=True, add_completion=False
    )


def unwrapped(text: str) -> str:
    """Paragraphs of one line each, for Typer to fold; it would keep the line breaks of the source.

    >>> unwrapped('''One
    ... line.
    ...
    ... Another.''')
    'One line.\\n\\nAnother.'
    """
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))


def show_examples(examples: str, title: str = "Examples", style: str = "cyan") -> None:
    """Commands as they are typed, and dim remarks, in a panel like those that Typer draws."""
    if not examples:
        return
    text = Text()
    for number, line in enumerate(examples.splitlines()):
        text.append("\n" if number else "")
        text.append(line, style="dim" if line.lstrip().startswith("#") else style)
    Console().print(Panel(text, title=title, title_align="left", border_style="dim"))
