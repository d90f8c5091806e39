"""Models as the command line knows them: their names and their options for ``plan`` and ``fit``.

An option is a parameter of a model (``get_params``), of the type that its hint says, and its help
is what the model's docstring says of it: a new model needs no line here. scikit-learn takes a
second to import, so that models are imported only where one is asked for.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Final, Optional, get_args, get_origin, get_type_hints

import typer

from encryptedstats.cli._complete import offering
from encryptedstats.cli._console import printable
from encryptedstats.cli._parameters import with_parameters
from encryptedstats.tables.questions.parameters import described_parameters, values_of

_OF_THE_SCHEMA: Final = {"bins"}  # parameters for arrays; a table is in bins already
_PANEL: Final = "Options of models"
_METAVARS: Final[dict[type, str]] = {int: "N", float: "X", str: "VALUE", bool: ""}


def models() -> dict[str, type[Any]]:
    """All models that there are, by the names that ``--model`` takes: their short ones, the first
    of those that have the same.
    """
    from encryptedstats.models import TotalsClassifier  # scikit-learn takes a second to import
    from encryptedstats.tables.questions.question import known_questions

    found: dict[str, type[Any]] = {}
    for model in known_questions().values():
        if issubclass(model, TotalsClassifier):
            found[model.name if model.short_name in found else model.short_name] = model
    return found


def models_help(names: Sequence[str] | None = None) -> str:
    """What some models are, by default all, in the words of each."""
    known = models()
    listed = " ".join(
        f"{name}: {known[name].about()}" for name in (known if names is None else names)
    )
    return f"{listed} Or the class of a model of your own."


def flag(parameter: str, value: Any = True) -> str:
    """The option that sets a parameter of a model, here to this value.

    >>> flag("random_state"), flag("n_trees"), flag("max_features"), flag("fit_intercept", False)
    ('--seed', '--trees', '--max-features', '--no-intercept')
    """
    return f"--{'no-' if value is False else ''}{_option_name(parameter).replace('_', '-')}"


def _option_name(parameter: str) -> str:
    return (
        "seed" if parameter == "random_state" else parameter.removeprefix("n_").removeprefix("fit_")
    )


# -- options
# ------------------------------------------------------------------------------------------------


_MODEL: Final[dict[str, Any]] = {
    "metavar": "NAME",
    "autocompletion": offering(lambda ctx: models()),
    "show_default": False,
    "rich_help_panel": _PANEL,
}
Model = Annotated[str, typer.Option("--model", help="The model.", **_MODEL)]
PlannedModels = Annotated[
    list[str] | None,
    typer.Option("--model", help="A model to fit; may be given several times.", **_MODEL),
]


def with_model_options(function: Callable[..., None]) -> Callable[..., None]:
    """A command that has, beside its own, the options of all models: it finds what was given with
    :func:`make_models`.
    """
    function.more_options = model_options  # type: ignore[attr-defined]  # looked for by ``_help.Command``
    function.more_help = lambda: {"model": models_help()}  # type: ignore[attr-defined]  # as above
    return function


def model_options(names: Sequence[str] | None = None) -> list[Any]:
    """The options of some models, by default of all, as Typer has them."""
    known = models()
    found: dict[str, list[_Option]] = {}
    for name in known if names is None else names:
        for option in _options_of(name, known[name]).values():
            found.setdefault(option.name, []).append(option)
    hints = {name: _annotated(options) for name, options in found.items()}
    app = typer.Typer(add_completion=False)
    app.command()(with_parameters(lambda **_: None, hints, dict.fromkeys(hints)))
    return list(typer.main.get_command(app).params)


@dataclass(frozen=True)
class _Option:
    """A parameter of one model, as an option."""

    model: str
    parameter: str
    kinds: frozenset[type]
    default: Any
    said: str

    @property
    def name(self) -> str:
        return _option_name(self.parameter)

    @property
    def kind(self) -> type:
        """What Typer reads: a text where it may be several things."""
        kind = next(iter(self.kinds)) if len(self.kinds) == 1 else str
        return kind if kind in _METAVARS else str

    @property
    def help(self) -> str:
        default = flag(self.parameter, self.default) if self.kind is bool else self.default
        return f"{self.said}.{'' if default is None else f' By default {default}.'}"

    def value(self, given: Any) -> Any:
        """Read a text as the numbers or names that it spells."""
        if isinstance(given, str) and any(get_origin(kind) is Sequence for kind in self.kinds):
            return values_of(given)
        for kind in (int, float) if isinstance(given, str) and self.kinds != {str} else ():
            with suppress(ValueError):
                return kind(given)
        return given


def _options_of(name: str, model: type[Any]) -> dict[str, _Option]:
    """The options of a model, by their names."""
    try:
        hints = get_type_hints(model.__init__)
    except NameError:  # of something that only type checkers import
        hints = {}
    said, found = described_parameters(model), {}
    for one in inspect.signature(model).parameters.values():
        if one.name not in _OF_THE_SCHEMA:
            hint = hints.get(one.name, type(one.default))
            kinds = frozenset(get_args(hint) or (hint,)) - {type(None)}
            text = said.get(one.name) or one.name.replace("_", " ").capitalize()
            option = _Option(name, one.name, kinds, one.default, text)
            found[option.name] = option
    return found


def _annotated(options: list[_Option]) -> Any:
    """The hint of an option that one or several models have."""
    kinds = {option.kind for option in options}
    kind = kinds.pop() if len(kinds) == 1 else str
    helps: dict[str, list[str]] = {}
    for option in options:
        helps.setdefault(option.help, []).append(option.model)
    text = " ".join(f"{', '.join(names)}: {said}" for said, names in helps.items())
    spelled = "/".join(
        flag(options[0].parameter, value) for value in ((True, False) if kind is bool else (True,))
    )
    asked = typer.Option(
        spelled, help=text, metavar=_METAVARS[kind], show_default=False, rich_help_panel=_PANEL
    )
    return Annotated[Optional[kind], asked]  # noqa: UP045  a hint that is made here


# -- making one
# ------------------------------------------------------------------------------------------------


def make_models(names: Sequence[str], given: Mapping[str, Any]) -> list[Any]:
    """The unfitted models of these names, each with those options that it has; one that none of
    them has is an error.
    """
    known, names = models(), list(dict.fromkeys(names))
    for name in names:
        if name not in known:
            raise typer.BadParameter(_no_model(name, list(known)))
    own = {name: _options_of(name, known[name]) for name in names}
    options = {option: value for option, value in given.items() if value is not None}
    for option, value in options.items():
        if names and not any(option in has for has in own.values()):
            which = "; ".join(
                f"{name}, which has {', '.join(map(flag, has))}" for name, has in own.items()
            )
            raise typer.BadParameter(f"{flag(option, value)} is no option of {which}")
    return [
        known[name](
            **{
                has[one].parameter: has[one].value(value)
                for one, value in options.items()
                if one in has
            }
        )
        for name, has in own.items()
    ]


def _no_model(name: str, known: Sequence[str]) -> str:
    """Why there is no such classifier; other models are asked, as any question is."""
    from encryptedstats.models import TotalsModel
    from encryptedstats.tables.questions.question import known_questions

    asked = known_questions().get(name)
    if asked is None or not issubclass(asked, TotalsModel):
        return f"there is no model {name!r}: choose from {', '.join(known)}"
    first = next(iter(inspect.signature(asked).parameters))
    return (
        f"{name!r} is no classifier, and is fitted by asking: encryptedstats ask TABLE {name} "
        f"{first}=... -o FILE; plan --ask "
        f"'{name} {first}=...' plans its keys"
    )


# -- in words
# ------------------------------------------------------------------------------------------------


def _as_text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def model_text(model: type[Any], parameters: Mapping[str, Any]) -> str:
    """Name a model as it is asked for, with its options; switches that are off by default are left
    out.

    >>> import encryptedstats as es
    >>> model_text(es.CompletelyRandomForest, {"depth": 3, "fraction": 0, "n_trees": 10, "random_state": 7})
    'forest --trees 10 --depth 3 --fraction 0 --seed 7'
    >>> model_text(es.LinearMeans, {"centred": False})
    'means --no-centred'
    """
    own = [one.parameter for one in _options_of(model.short_name, model).values()]
    known = inspect.signature(model).parameters
    is_off = {one for one in own if parameters.get(one) is known[one].default is False}
    given = [
        (one, parameters[one])
        for one in own
        if one not in is_off and parameters.get(one) is not None
    ]
    words = [
        flag(one, value) if isinstance(value, bool) else f"{flag(one)} {_as_text(value)}"
        for one, value in given
    ]
    return printable(" ".join([model.short_name, *words]))
