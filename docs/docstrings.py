"""Docstrings for the reference page: the little reStructuredText that is in them becomes Markdown,
and formulas MathML.

``:math:`x``` and ``.. math::`` are what editors and other tools know. Browsers show MathML without
any script.
"""

from __future__ import annotations

import re
from textwrap import dedent
from typing import Any

import griffe
from latex2mathml.converter import convert

_BLOCK = re.compile(r"^( *)\.\. math::(.*(?:\n(?:\1 +\S.*| *$))*)", re.MULTILINE)
_INLINE = re.compile(r":math:`([^`]+)`")
_ROLE = re.compile(r":(?:class|func|meth|mod|attr|exc|data):`~?([^`]+)`")


def as_markdown(text: str) -> str:
    """A docstring as Markdown."""

    def block(match: re.Match[str]) -> str:
        formula = " ".join(dedent(match[2]).split())
        return f"\n<div>{convert(formula, display='block')}</div>\n\n"

    text = _BLOCK.sub(block, text)
    text = _INLINE.sub(lambda match: convert(match[1]), text)
    return _ROLE.sub(r"`\1`", text)


class Markdown(griffe.Extension):
    """Goes through every docstring once."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        """Called for each module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
