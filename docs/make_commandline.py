"""The commands for the page of the command line, from the help of the program. ``generate.py`` puts
them into the page when the site is built.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, get_args, get_type_hints

from encryptedstats.cli import _app, _help


def commands() -> str:
    """Return the help of all commands: the verbs, then the groups."""
    parts = ["## A whole story\n", f"```text\n{_app.STORY}\n```\n", "## Verbs\n"]
    parts += [_command(name) for name in _app.VERBS]
    for group, (about, own) in _app.GROUPS.items():
        parts.append(f"## {group}\n\n{about}\n")
        parts += [_command(f"{group} {name}") for name in own]
    return "\n".join(parts)


def _command(path: str) -> str:
    command = _help.load(path)
    known = command.known
    shown = [one for one in command.params if not getattr(one, "hidden", False)]
    arguments = [one.metavar for one in shown if one.param_type_name == "argument"]
    usage = " ".join([path, *arguments, "[OPTIONS]"])
    hints = get_type_hints(known.function)
    lines = [f"### {path}", "", command.help, "", f"```text\nencryptedstats {usage}\n```", ""]
    lines += [
        f"- {_spelled(one, _choices(hints.get(one.name)))}: "
        f"{' '.join(str(one.help).split())}{_default(one)}"
        for one in shown
    ]
    flags = [f"`{_help.SHARED[mark.option]}`" for mark in known.shared.values()]
    lines += ["", f"Options of the program that it takes: {', '.join(flags)}."] if flags else []
    if known.doc.json:
        keys = ", ".join(f"`{key}`" for key in known.doc.json)
        lines += ["", f"Keys of its JSON (with `?` where one may be absent): {keys}."]
    return "\n".join([*lines, "", f"```text\n{known.doc.examples}\n```", ""])


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
