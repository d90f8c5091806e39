"""Parameters of commands: what is said of them, and functions whose parameters are found out, for
Typer, which reads signatures.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_args, get_origin


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the types of a function's parameters, with all that is annotated.

    ``typing.get_type_hints`` would lose that in Python 3.10 wherever the default is None: it puts
    another ``Optional`` around it.
    """
    return {
        name: one.annotation
        for name, one in inspect.signature(function, eval_str=True).parameters.items()
    }


def marks_of(hint: Any) -> tuple[Any, ...]:
    """Return what an annotated type is marked with."""
    return tuple(get_args(hint)[1:]) if get_origin(hint) is Annotated else ()


def with_parameters(
    function: Callable[..., None], hints: Mapping[str, Any], defaults: Mapping[str, Any]
) -> Callable[..., None]:
    """Return the function, as one that takes these parameters by name; ``inspect.Parameter.empty``
    where one must be given.
    """
    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter(name, kind, default=defaults[name], annotation=hints[name])
        for name in defaults
    ]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # looked for by inspect
    function.__annotations__ = {name: hints[name] for name in defaults}
    return function
