"""Write the help of all commands as Markdown, for the page of the command line."""

from __future__ import annotations

from enum import Enum
from typing import Any, get_args, get_type_hints

from encryptedstats.cli import _app, _help, _models
from encryptedstats.cli._parameters import hints_of

HEAD = """\
```text
{story}
```

Exit codes:

```text
{codes}
```
"""


def commands() -> str:
    """Return the commands of the program by role, each with its help, parameters and examples."""
    parts = [HEAD.format(story=_app._STORY, codes=_help.EXIT_CODES)]
    for role, names in _app.ROLES.items():
        parts.append(f"## {role}\n")
        for name in names:
            command = _help.loaded(name)
            if hasattr(command, "commands"):
                parts.append(
                    f"### {name}\n\n{command.help}\n\n```text\n{_help._examples[name]}\n```\n"
                )
                parts += [_command(part, f"{name} ") for part in command.commands.values()]
            else:
                parts.append(_command(command))
    return "\n".join(parts)


def _command(command: Any, before: str = "") -> str:
    more = _models.model_options(_own_models()) if command._more else []
    shown = [
        parameter
        for parameter in [*command.params, *more]
        if not getattr(parameter, "hidden", False)
    ]
    arguments = [one for one in shown if one.param_type_name == "argument"]
    name = before + command.name
    usage = " ".join([name, *(one.metavar for one in arguments), "[OPTIONS]"])
    lines = [f"### {name}", "", command.help, "", "```text", f"encryptedstats {usage}", "```", ""]
    function = command.function
    hints = get_type_hints(function)
    lines += [
        f"- {_spelled(one, _choices(hints.get(one.name)))}: "
        f"{' '.join(_said(one, function).split())}{_default(one)}"
        for one in shown
    ]
    examples = command.examples
    return "\n".join([*lines, *(["", "```text", examples, "```"] if examples else []), ""])


def _own_models() -> list[str]:
    """Those of this library: whoever makes this page may have more."""
    return [
        name
        for name, model in _models.models().items()
        if model.__module__.startswith("encryptedstats.")
    ]


def _said(parameter: Any, function: Any) -> str:
    """The help of an option; models are listed with that of their name."""
    if parameter.name != "model" or not hasattr(function, "more_help"):
        return str(parameter.help)
    (own,) = hints_of(function)["model"].__metadata__
    return f"{own.help} {_models.models_help(_own_models())}"


def _spelled(parameter: Any, choices: str) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar}`"
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    value = "" if parameter.is_flag else f" {parameter.metavar or choices}"
    needed = " (needed)" if parameter.required else ""
    return f"`{names}{value}`{needed}"


def _choices(hint: Any) -> str:
    """What an option may be where it is one of a few words."""
    kinds = [
        kind
        for kind in (hint, *get_args(hint))
        if isinstance(kind, type) and issubclass(kind, Enum)
    ]
    return "|".join(str(one.value) for kind in kinds for one in kind)


def _default(parameter: Any) -> str:
    value = parameter.show_default if isinstance(parameter.show_default, str) else parameter.default
    if parameter.required or not parameter.show_default or value in (None, False, (), []):
        return ""
    values = value if isinstance(value, (list, tuple)) else [value]
    return f" By default {', '.join(str(getattr(one, 'value', one)) for one in values)}."
