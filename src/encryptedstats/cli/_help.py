"""Help that teaches: what stands behind ``Examples:`` in a command's docstring becomes a panel below its options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final

import typer
from rich.console import Console
from rich.panel import Panel
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from encryptedstats.cli._errors import EXIT_CODES
from encryptedstats.cli._files import check_outputs

_MARK: Final = "Examples:"
_MORE: Final = "encryptedstats.more"
_examples: dict[str, str] = {}  # by name of the command; the program's own has none
_functions: dict[str, Callable[..., None]] = {}


class Command(TyperCommand):
    """A command whose outputs are checked before it begins, and whose help ends with examples."""

    def invoke(self, ctx: Any) -> Any:
        """Typer's, after a look at what is to be written; options that the function has no parameters for are kept aside."""
        for option in self._more:
            ctx.meta[_MORE, option.name] = ctx.params.pop(option.name)
        check_outputs(_functions[self.name or ""], ctx.params)
        return super().invoke(ctx)

    @cached_property
    def _more(self) -> list[Any]:
        """Options, and help of others, that are found out when the command is asked for, not whenever the program starts."""
        own: dict[str | None, Any] = {parameter.name: parameter for parameter in self.params}
        function = _functions[self.name or ""]
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
        show_examples(_examples.get(self.name or "", ""))


def more_options(ctx: typer.Context) -> dict[str, Any]:
    """What was given of the options that were found out when the command was asked for."""
    return {key[1]: value for key, value in ctx.meta.items() if key[0] == _MORE}


class Group(TyperGroup):
    """The program, whose help ends with the whole story."""

    story = ""

    def get_params(self, ctx: Any) -> list[Any]:
        """Typer's."""
        return _without_types(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Typer's help, then the story and what exit codes mean."""
        super().format_help(ctx, formatter)
        show_examples(self.story, title="The whole story")
        show_examples(EXIT_CODES, title="Exit codes", style="")


def _without_types(parameters: list[Any]) -> list[Any]:
    """Switches without the word ``bool`` beside them, which reads as if they took a value."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return parameters


def register(app: typer.Typer, function: Callable[..., None], panel: str) -> None:
    """Add a command under a heading, with help and examples from its docstring."""
    text, _, examples = inspect.cleandoc(function.__doc__ or "").partition(_MARK)
    _examples[function.__name__] = inspect.cleandoc(examples)
    _functions[function.__name__] = function
    app.command(cls=Command, help=unwrapped(text), rich_help_panel=panel)(function)


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
