"""Generate the parts of the reference that the source already says: ``<!-- generate: NAME -->`` in
a page stands for the Markdown that ``GENERATORS[NAME]`` returns. They are made when the site is
built and are not committed.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

#: What users import, by the package below ``encryptedstats``.
PACKAGES = {
    "": "Tables, keys and results",
    ".circuits": "Circuits",
    ".workers": "Where it is computed",
    ".cluster": "Many machines",
    ".metrics": "Scores",
    ".plots": "Plots",
    ".questions": "For authors of questions",
    ".devices": "For authors of devices",
}
_ROLE = re.compile(r":(?:class|func|meth|mod|attr|exc|data):`~?([^`]+)`")
_MARK = re.compile(r"^<!-- generate: (\w+) -->$", re.MULTILINE)


def summary_of(thing: Any) -> str:
    """Return the first paragraph of a docstring on one line, as Markdown."""
    said = (thing.__doc__ or "") if callable(thing) else ""
    paragraph = said.strip().split("\n\n")[0]
    return _ROLE.sub(r"`\1`", " ".join(paragraph.split())).replace("``", "`").replace("|", "\\|")


def names_of(package: str) -> dict[str, Any]:
    """Return the public names of a package, without its modules and version."""
    module = importlib.import_module(f"encryptedstats{package}")
    found = {name: getattr(module, name) for name in module.__all__ if name != "__version__"}
    return {name: thing for name, thing in found.items() if not isinstance(thing, ModuleType)}


def groups() -> dict[str, dict[str, Any]]:
    """Return the public names by the heading that they stand under, with what they name."""
    from encryptedstats import Question
    from encryptedstats.models.base import TotalsModel

    found: dict[str, dict[str, Any]] = {
        PACKAGES[""]: {}, "Statistics": {}, "Models": {}, "Errors and warnings": {},
    }  # fmt: skip
    for name, thing in names_of("").items():
        is_class = isinstance(thing, type)
        if is_class and issubclass(thing, BaseException):
            heading = "Errors and warnings"
        elif is_class and issubclass(thing, TotalsModel):
            heading = "Models"
        elif is_class and issubclass(thing, Question) and thing is not Question:
            heading = "Statistics"
        else:
            heading = PACKAGES[""]
        found[heading][f"encryptedstats.{name}"] = thing
    for package, heading in PACKAGES.items():
        if package:
            names = names_of(package).items()
            found[heading] = {f"encryptedstats{package}.{name}": thing for name, thing in names}
    return found


def api() -> str:
    """Return a table of all public names by group, each followed by their full documentation."""
    parts = []
    for heading, things in groups().items():
        lines = [f"## {heading}", "", "| name | what it is |", "|---|---|"]
        lines += [f"| `{name}` | {summary_of(thing)} |" for name, thing in things.items()]
        parts += ["\n".join(lines), *(f"::: {name}" for name in things)]
    return "\n\n".join(parts) + "\n"


def questions() -> str:
    """Return a table of the statistics and models with their status."""
    from encryptedstats import methods

    found = groups()
    lines = [
        "| question | what it does | totals | columns | predicts | released | compared with |",
        "|---|---|---|---|---|---|---|",
    ]
    status = methods().fillna("")
    for name, thing in (found["Statistics"] | found["Models"]).items():
        question = name.rpartition(".")[2]
        if question not in status.index:
            continue
        one = status.loc[question]
        does = f"{summary_of(thing)} {one.note and f'*{one.note}*'}".strip()
        cells = [
            f"`{name.replace('encryptedstats', 'es')}`", does, one.totals, one.products,
            one.predicts, "yes" if one.released else "", one.compared_with,
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def commandline() -> str:
    """Return the help of all commands."""
    path = Path(__file__).parent / "make_commandline.py"
    spec = importlib.util.spec_from_file_location("make_commandline", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text: str = module.commands()
    return text


GENERATORS: dict[str, Callable[[], str]] = {
    "api": api,
    "commandline": commandline,
    "questions": questions,
}


def expand(markdown: str) -> str:
    """Return a page with its generated parts."""
    return _MARK.sub(lambda match: GENERATORS[match[1]]().strip(), markdown)
