"""Functions with parameters that are found out, for Typer, which reads options from signatures."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any


def with_parameters(
    function: Callable[..., None], hints: Mapping[str, Any], defaults: Mapping[str, Any]
) -> Callable[..., None]:
    """The function, as one that takes these parameters by name; ``inspect.Parameter.empty`` where one must be given."""
    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(name, kind, default=defaults[name], annotation=hints[name]) for name in defaults]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # looked for by inspect
    function.__annotations__ = {name: hints[name] for name in defaults}
    return function
