"""Models as the command line knows them: their names, their options, said once for ``plan`` and ``fit``, and their files.

scikit-learn takes a second to import, so the models themselves are imported only where one is made or read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Final

import typer

import encryptedstats as es
from encryptedstats.cli._console import printable
from encryptedstats.kinds import read_file
from encryptedstats.storage.container import Container


class ModelName(str, Enum):
    """The models, as an option offers them."""

    forest = "forest"
    snb = "snb"
    mnb = "mnb"
    logistic = "logistic"
    means = "means"
    fisher = "fisher"


@dataclass(frozen=True)
class Family:
    """A kind of model: its class, and which parameter of it each option sets."""

    class_name: str
    parameters: Mapping[str, str]


#: What ``--model`` may name. A model is added here, and its options below.
MODELS: Final[dict[ModelName, Family]] = {
    ModelName.forest: Family(
        "CompletelyRandomForest",
        {
            "trees": "n_trees",
            "depth": "depth",
            "max_features": "max_features",
            "fraction": "fraction",
            "averaged": "averaged",
            "seed": "random_state",
        },
    ),
    ModelName.snb: Family("SemiparametricNB", {"paired": "paired", "centred": "centred"}),
    ModelName.mnb: Family("MultinomialNB", {"alpha": "alpha"}),
    ModelName.logistic: Family("OneStepLogisticRegression", {"intercept": "fit_intercept", "centred": "centred"}),
    ModelName.means: Family("LinearMeans", {"centred": "centred"}),
    ModelName.fisher: Family("FisherDiscriminant", {"centred": "centred"}),
}
_OPTIONS: Final = tuple(dict.fromkeys(option for family in MODELS.values() for option in family.parameters))
# What goes without saying: such a value is the default, and no fit in the clear looks at it.
_UNSAID: Final = {"averaged": 1}
# Options with two faces, for true and for false.
_SWITCHES: Final = {
    "paired": ("--paired", "--unpaired"),
    "centred": ("--centred", "--uncentred"),
    "intercept": ("--intercept", "--no-intercept"),
}

# -- options ---------------------------------------------------------------------------------------------------------

_PANEL: Final = "Options of models"


def _option(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, show_default=False, rich_help_panel=_PANEL, **more)


def _switch(option: str, help: str) -> Any:
    return _option("/".join(_SWITCHES[option]), help=help)


_MODEL_HELP: Final = (
    "forest (completely random), snb or mnb (naive Bayes, semi-parametric or multinomial), logistic (one step), "
    "means (nearest class mean), fisher (discriminant)."
)
Model = Annotated[ModelName, _option("--model", metavar="NAME", help=_MODEL_HELP)]
PlannedModels = Annotated[
    list[ModelName] | None,
    _option("--model", metavar="NAME", help=f"Fit a model: {_MODEL_HELP} May be given several times."),
]
Trees = Annotated[int | None, _option(min=1, metavar="N", help="forest: trees; by default 100.")]
Depth = Annotated[int | None, _option(min=1, max=6, metavar="N", help="forest: levels of splits; by default 3.")]
MaxFeatures = Annotated[
    str | None, _option(metavar="N", help="forest: variables a tree draws from: N, a share such as 0.5, or sqrt.")
]
Fraction = Annotated[
    str | None,
    _option(
        metavar="M",
        help="forest: weigh leaves by the stochastic fraction, M = 2, 4, ... 64, or inverse. It is expected of an opened "
        "forest, and drawn for one that predicts unopened.",
    ),
]
Averaged = Annotated[
    int | None,
    _option(metavar="K", help="forest: average so many draws of the fraction for a leaf, 1, 2, 4, ... 1024."),
]
Seed = Annotated[int | None, _option(metavar="N", help="forest: seed of the growth, which is public; by default 0.")]
Paired = Annotated[bool | None, _switch("paired", help="snb: intercept and slope together (default), or not.")]
Centred = Annotated[
    bool | None, _switch("centred", help="all but forest and mnb: codes around 0 (default, not of snb) or from 1.")
]
Alpha = Annotated[float | None, _option(min=0, metavar="X", help="mnb: Laplace smoothing; by default 1.")]
Intercept = Annotated[bool | None, _switch("intercept", help="logistic: with an intercept (default), or without.")]


def make_model(name: ModelName, given: Mapping[str, Any]) -> Any:
    """The unfitted model that the options of a command describe; other options of the command are overlooked."""
    return make_models([name], given)[0]


def make_models(names: Sequence[ModelName], given: Mapping[str, Any]) -> list[Any]:
    """The unfitted models of these names, each with those options of the command that it has; one that none has is an error."""
    options = {option: given[option] for option in _OPTIONS if given.get(option) is not None}
    names = list(dict.fromkeys(names))
    for option, value in options.items():
        if names and not any(option in MODELS[name].parameters for name in names):
            has = "; ".join(
                f"{name.value}, which has {', '.join(map(_flag, MODELS[name].parameters))}" for name in names
            )
            raise typer.BadParameter(f"{_flag(option, value)} is no option of {has}")
    parsed = {option: _PARSERS.get(option, lambda value: value)(value) for option, value in options.items()}
    return [_made(MODELS[name], parsed) for name in names]


def _made(family: Family, options: Mapping[str, Any]) -> Any:
    own = {family.parameters[option]: value for option, value in options.items() if option in family.parameters}
    return getattr(es, family.class_name)(**own)


def _max_features(text: str) -> int | float | str:
    value = text if text == "sqrt" else _number(text)
    if value == "sqrt" or (isinstance(value, int) and value >= 1) or (isinstance(value, float) and 0 < value <= 1):
        return value
    raise typer.BadParameter(f"--max-features {text}: a number of variables, a share such as 0.5, or sqrt")


def _fraction(text: str) -> int | str:
    value = text if text == "inverse" else _number(text)
    if value in ("inverse", 0, 2, 4, 8, 16, 32, 64) and not isinstance(value, float):
        return value
    raise typer.BadParameter(f"--fraction {text}: 0, a power of two from 2 to 64, or inverse")


def _averaged(value: int) -> int:
    if value in [2**power for power in range(11)]:
        return value
    raise typer.BadParameter(f"--averaged {value}: a power of two from 1 to 1024")


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


_PARSERS: Final[dict[str, Callable[[Any], Any]]] = {
    "max_features": _max_features,
    "fraction": _fraction,
    "averaged": _averaged,
}

# -- in words --------------------------------------------------------------------------------------------------------


def model_text(class_name: str, parameters: Mapping[str, Any]) -> str:
    """A model as it is asked for, by name and options.

    >>> model_text("CompletelyRandomForest", {"n_trees": 10, "depth": 3, "max_features": None, "fraction": 0, "random_state": 7})
    'forest --trees 10 --depth 3 --fraction 0 --seed 7'
    >>> model_text("LinearMeans", {"centred": False})
    'means --uncentred'
    """
    for name, family in MODELS.items():
        if family.class_name == class_name:
            values = {option: parameters.get(parameter) for option, parameter in family.parameters.items()}
            return printable(" ".join([name.value, *_words(values.items())]))
    return printable(class_name)


def option_of(parameter: str) -> str:
    """The option that sets a parameter of a model.

    >>> option_of("random_state"), option_of("fit_intercept")
    ('--seed', '--intercept')
    """
    named = {name: option for family in MODELS.values() for option, name in family.parameters.items()}
    return _flag(named[parameter]) if parameter in named else parameter


def _words(values: Iterable[tuple[str, Any]]) -> list[str]:
    words = []
    for option, value in values:
        if value is None or value == _UNSAID.get(option):
            continue
        words.append(_flag(option, value))
        if option not in _SWITCHES:
            words.append(str(value))
    return words


def _flag(option: str, value: Any = True) -> str:
    return _SWITCHES[option][not value] if option in _SWITCHES else f"--{option.replace('_', '-')}"


# -- files -----------------------------------------------------------------------------------------------------------


def load_model(file: Container, keys: es.PublicKeys | None = None) -> Any:
    """The model in a file that has been read."""
    return read_file(file, keys)
