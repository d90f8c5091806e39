"""Writes docs/commandline.md from the help of the program: ``python docs/make_commandline.py``. A
test holds the page to it.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_type_hints

from encryptedstats.cli import _app, _help, _models
from encryptedstats.cli._parameters import hints_of

PAGE = Path(__file__).parent / "commandline.md"
INTRODUCTION = """\
# The command line

The program `encryptedstats` does from a terminal what the library does in Python: `pip install 'encryptedstats[cli]'`. This page is
made from its help, by `docs/make_commandline.py`; `encryptedstats COMMAND --help` shows the same.

```text
{story}
```

## What holds for all commands

- **Nothing is replaced unasked.** A command looks at its outputs before it does anything else. What exists is replaced with
  `--force` only, whatever kind of file it is. What the same command reads is never written to, not even with `--force`, also
  under another name of the same file. Files are written under a temporary name, and appear whole or not at all; without
  `--force` a file that appeared meanwhile is not replaced either. A secret key is replaced by nothing but `keygen --force`.
- **What lies open is yours only.** Opened models, decrypted results and predictions, scores, schemas and plans have mode
  0600. What is encrypted, and meant to be handed on, has the usual mode.
- **Rows are counted from 1**, the first below the names of the columns: in errors, and in the column `row` of predictions
  (or their id, where the schema names one).
- **Rows that are left out are counted aloud.** A schema made with `--missing drop` leaves out rows with gaps: `encrypt` and
  `evaluate` say how many, and so does their `--json`. `predict` keeps a line for every row of the file; where there is no
  prediction it is empty.
- **Shares of a forest are not calibrated.** `P(...)` of a forest are shares of its votes. They put rows in an order; they are
  no frequencies to expect, until `calibrate` has made some of them.
- **Errors are one line** on the standard error stream, and say what to do. `encryptedstats --debug COMMAND` shows the
  traceback.
- `--json` prints facts for programs, and nothing else on the standard output.

Exit codes:

```text
{codes}
```
"""


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION.format(story=_app._STORY, codes=_help.EXIT_CODES)]
    for role, commands in _app.ROLES.items():
        parts.append(f"## {role}\n")
        for name in commands:
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


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
