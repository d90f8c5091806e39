"""Signatures of commands, which Typer reads."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, get_args, get_origin


@cache  # annotations are text that is evaluated, twice in every call of a command
def hints_of(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the annotations of a function's parameters.

    In Python 3.10, ``typing.get_type_hints`` hides ``Annotated`` in an ``Optional`` where the
    default is None.
    """
    return {
        name: one.annotation
        for name, one in inspect.signature(function, eval_str=True).parameters.items()
    }


def marks_of(hint: Any) -> tuple[Any, ...]:
    """Return the metadata of an annotated type."""
    return tuple(get_args(hint)[1:]) if get_origin(hint) is Annotated else ()


def with_parameters(
    function: Callable[..., None], hints: Mapping[str, Any], defaults: Mapping[str, Any]
) -> Callable[..., None]:
    """Give a function a signature of keyword parameters; ``Parameter.empty`` has no default."""
    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter(name, kind, default=defaults[name], annotation=hints[name])
        for name in defaults
    ]
    # inspect looks for this attribute
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {name: hints[name] for name in defaults}
    return function
