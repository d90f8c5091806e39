"""Questions as people type them, for the command line and for pages.

A question is a name and words, ``forest trees=100``, or a call as in R, ``lm(bmi ~ age + sex)``.
Several stand one after the other; ``@FILE`` is a file with one on each line. Words are
``NAME=VALUE``; what they may be is said by the constraints of the question. Nothing is imported
for a question but the module that defines it.
"""

from __future__ import annotations

import inspect
import re
import shlex
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from encryptedstats.errors import FileFormatError, ParameterError
from encryptedstats.tables.questions.constraints import ListOf, VariableName, constraints_of
from encryptedstats.tables.questions.folds import Folds
from encryptedstats.tables.questions.parameters import (
    described_parameters,
    takes_several,
    value_of,
    values_of,
)
from encryptedstats.tables.questions.question import (
    Question,
    asked_of,
    known_by_now,
    known_questions,
    load_questions,
    question_class,
)
from encryptedstats.tables.questions.summaries import Counts, CrossTable, Moments
from encryptedstats.tables.schema.variables import PublicSchema
from encryptedstats.words import did_you_mean

if TYPE_CHECKING:
    from encryptedstats.tables.schema.schema import Schema


#: Code of the errors for words that are not understood.
UNKNOWN: Final = "unknown-words"
#: Names of R, and short ones.
ALIASES: Final = {
    "lm": "LinearRegression",
    "glm": "GLM",
    "ridge": "Ridge",
    "t.test": "TTest",
    "aov": "Anova",
    "anova": "Anova",
    "chisq.test": "ChiSquare",
    "fisher.test": "FisherExact",
    "mantelhaen.test": "MantelHaenszel",
    "table": "crosstab",
    "hist": "Histogram",
    "summary": "Describe",
    "cor": "Correlation",
    "cov": "Covariance",
    "prcomp": "PCA",
    "survfit": "KaplanMeier",
    "survdiff": "LogRank",
    "coxph": "CoxRegression",
    "cuminc": "CumulativeIncidence",
    "glmnet": "ElasticNet",
    "kruskal.test": "KruskalWallis",
    "mcnemar.test": "McNemar",
    "pairwise.t.test": "PairwiseTTest",
    "quantile": "Quantiles",
    "wilcox.test": "MannWhitney",
}
#: Models by their short names, so that none has to be imported to be found.
_MODELS: Final = {
    "forest": "CompletelyRandomForest",
    "mnb": "MultinomialNB",
    "snb": "SemiparametricNB",
    "logistic": "OneStepLogisticRegression",
    "means": "LinearMeans",
    "fisher": "FisherDiscriminant",
    "lda": "LinearDiscriminant",
    "qda": "QuadraticDiscriminant",
}
_R_VALUES: Final = {"TRUE": True, "FALSE": False, "NULL": None, "T": True, "F": False}
_CALL: Final = re.compile(r"\s*([\w./\\:-]+)\s*\((.*)\)\s*", re.DOTALL)
_PAIR: Final = re.compile(r"\s*([A-Za-z_][\w.]*)\s*=(?!=)(.*)", re.DOTALL)
_SURVIVAL: Final = re.compile(r"\s*Surv\((.*)\)\s*", re.DOTALL)
_STRATA: Final = re.compile(r"strata\(.*\)", re.DOTALL)
_LIST: Final = re.compile(r"\s*c\((.*)\)\s*", re.DOTALL)
_HIDDEN: Final = {"bins"}  # parameters for arrays; a table is in bins already


def refuse_words(text: str) -> ParameterError:
    """Return the error for words that are not understood."""
    return ParameterError(text, code=UNKNOWN)


# -- names and values
# ------------------------------------------------------------------------------------------------


def parse_pairs(
    words: Sequence[str] | str | None, names: Iterable[str], where: str
) -> dict[str, str]:
    """Return ``NAME=VALUE`` words by name; each word may be several with spaces between them."""
    known, found = list(names), {}
    for word in [words] if isinstance(words, str) else words or ():
        for one in shlex.split(word):
            name, equals, value = one.partition("=")
            if not equals or name not in known:
                near = did_you_mean(name, known) or f": it takes {', '.join(known)}"
                raise refuse_words(f"{where} {one}: NAME=VALUE is needed{near}")
            if name in found:
                raise refuse_words(f"{where} {one}: {name} is given twice")
            found[name] = value
    return found


def parse_numbers(
    words: Sequence[str] | str | None, kinds: Mapping[str, Callable[[str], Any]], where: str
) -> dict[str, Any]:
    """Return ``NAME=VALUE`` words as values of the kinds given by name."""
    found = {}
    for name, text in parse_pairs(words, kinds, where).items():
        try:
            found[name] = kinds[name](text)
        except ValueError:
            raise refuse_words(f"{where} {name}={text}: a number is needed") from None
    return found


# -- questions
# ------------------------------------------------------------------------------------------------


def make_questions(
    words: Sequence[str], schema: Schema | PublicSchema | None = None
) -> list[Question]:
    """Return the questions that some words ask; with a schema they are translated to ids."""
    return [question for _, question in make_named_questions(words, schema)]


def make_named_questions(
    words: Sequence[str], schema: Schema | PublicSchema | None = None
) -> list[tuple[str, Question]]:
    """Return the questions that some words ask, each with the name that it was asked by."""
    found = []
    for name, own in _split(words):
        question = _make(name, own)
        try:
            question.check_parameters()
        except ParameterError as error:
            raise ParameterError(error, code=UNKNOWN) from error
        asked = question if schema is None else asked_of(question, schema)
        found.append((name.rpartition(":")[2], asked))
    if not found:
        raise refuse_words("say what is asked, such as forest trees=100: see ask --list")
    return found


def _split(words: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """The names of questions, each with its words. What has no = and no ~ begins another one."""
    name, own = "", []
    for word in _with_files(words):
        call = _CALL.fullmatch(word)
        if call is None and _is_parameter(word):
            if not name:
                raise refuse_words(f"{word}: of which question? give its name before it")
            own.append(word)
            continue
        if name:
            yield name, own
        name, own = (call[1], _arguments(call[2])) if call else (word, [])
    if name:
        yield name, own


def _with_files(words: Sequence[str]) -> Iterator[str]:
    for word in words:
        lines = [word]
        if word.startswith("@"):
            lines = Path(word[1:]).read_text(encoding="utf-8").splitlines()
        for line in lines:
            text = line.strip() if lines[0] is word else line.partition("#")[0].strip()
            whole = _CALL.fullmatch(text) or (lines[0] is word and _is_parameter(text))
            yield from [text] if whole else shlex.split(text)


def _is_parameter(word: str) -> bool:
    return "~" in word or _PAIR.fullmatch(word) is not None


def _arguments(text: str) -> list[str]:
    """What stands between the commas of a call, without those in brackets or quotes.

    >>> _arguments("Surv(time, event) ~ sex, levels = c('a', 'b')")
    ['Surv(time, event) ~ sex', "levels = c('a', 'b')"]
    """
    parts, depth, quote = [""], 0, ""
    for sign in text:
        quote = "" if sign == quote else quote or (sign if sign in "'\"" else "")
        depth += not quote and (sign in "([{") - (sign in ")]}")
        if sign == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts if part.strip()]


def question_type(name: str) -> type[Question]:
    """Return the question of a name, or of ``FILE.py:NAME``."""
    source, _, own = name.rpartition(":")
    if source:
        found = getattr(load_questions(source), own, None)
        if not isinstance(found, type) or not issubclass(found, Question):
            raise refuse_words(f"{source} has no question {own!r}: give FILE.py:NAME")
        return found
    own = ALIASES.get(name) or _MODELS.get(name) or name
    found = known_by_now(own)
    if isinstance(found, type) and issubclass(found, Question):
        return found
    try:
        return question_class(own)
    except FileFormatError:
        for known in known_types().values():
            if name in (known.short_name, known.name):
                return known
        near = did_you_mean(name, names_of_questions()) or ": ask --list shows all"
        raise refuse_words(f"there is no question {name!r}{near}") from None


def known_types() -> dict[str, type[Question]]:
    """Return all questions that can be asked here by name."""
    return {name: one for name, one in known_questions().items() if one is not Folds}


def names_of_questions() -> list[str]:
    """Return what questions are called: the names of R, short names, and the others."""
    known = known_types()
    short = {name: one.short_name for name, one in known.items()}
    taken = [*ALIASES, *(_MODELS if set(_MODELS.values()) <= set(known) else ())]
    return sorted({*taken, *short.values(), *known}, key=str.lower)


def parameters_of(question: type[Question]) -> dict[str, inspect.Parameter]:
    """Return the parameters of a question by the names that people type, ``trees`` of
    ``n_trees``.
    """
    return {
        short_name(name): one
        for name, one in inspect.signature(question).parameters.items()
        if name not in _HIDDEN
    }


def short_name(parameter: str) -> str:
    """Return what people type for a parameter.

    >>> [short_name(name) for name in ("n_trees", "random_state", "fit_intercept", "by")]
    ['trees', 'seed', 'intercept', 'by']
    """
    if parameter == "random_state":
        return "seed"
    return parameter.removeprefix("n_").removeprefix("fit_")


def _make(name: str, words: Sequence[str]) -> Question:
    found = question_type(name)
    known = parameters_of(found)
    full = {one.name: short for short, one in known.items()}
    given: dict[str, Any] = {}
    free = list(known)
    for word in words:
        pair = _PAIR.fullmatch(word)
        if "~" in word and (pair is None or "~" in pair[1]):
            given |= _read_formula(word, known, name)
        elif pair is None:
            _add_positional(given, word, [one for one in free if one not in given], known, name)
        else:
            parameter = pair[1] if pair[1] in known else full.get(pair[1], "")
            if not parameter:
                near = did_you_mean(pair[1], known) or f": it takes {', '.join(known) or 'nothing'}"
                raise refuse_words(f"{name} has no parameter {pair[1]!r}{near}")
            given[parameter] = read_value(pair[2].strip(), known[parameter])
    missing = [
        f"{one}=..." for one, p in known.items() if p.default is p.empty and one not in given
    ]
    if missing:
        raise refuse_words(f"{name} needs {', '.join(missing)}")
    return found(**{known[short].name: value for short, value in given.items()})


def read_value(text: str, parameter: inspect.Parameter) -> Any:
    """Return what a text spells: JSON, R's TRUE and c(...), a list with commas, or itself."""
    if text in _R_VALUES:
        return _R_VALUES[text]
    inner = _LIST.fullmatch(text)
    if inner:
        return [read_value(one, parameter) for one in _arguments(inner[1])]
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return values_of(text) if takes_several(parameter) else value_of(text)


def _add_positional(
    given: dict[str, Any],
    text: str,
    free: Sequence[str],
    known: Mapping[str, inspect.Parameter],
    name: str,
) -> None:
    """A value without a name is that of the first parameter that has none; a list takes them all."""
    first = next(iter(known), "")
    if first and takes_several(known[first]) and isinstance(given.get(first, []), list):
        value = read_value(text, known[first])
        given[first] = [*given.get(first, []), *(value if isinstance(value, list) else [value])]
    elif free:
        given[free[0]] = read_value(text, known[free[0]])
    else:
        raise refuse_words(f"{name} takes no more than {len(known)} values: {text}")


def _read_formula(text: str, known: Mapping[str, inspect.Parameter], name: str) -> dict[str, Any]:
    """A formula is a parameter of regressions; elsewhere its left side is what is compared, and its
    right side the groups.
    """
    if "formula" in known:
        return {"formula": text}
    left, _, right = text.partition("~")
    terms = [one.strip() for one in right.split("+") if one.strip() not in ("", "1")]
    survival = _SURVIVAL.fullmatch(left)
    names = list(known)
    if survival:
        given: dict[str, Any] = dict(zip(("time", "event"), _arguments(survival[1]), strict=False))
    else:
        given = {names[0]: left.strip()}
    if "strata" in known and (strata := [one for one in terms if _STRATA.fullmatch(one)]):
        terms = [one for one in terms if one not in strata]
        inner = [part for one in strata for part in _arguments(one[len("strata(") : -1])]
        given["strata"] = inner if takes_several(known["strata"]) else ", ".join(inner)
    sought = ("variables", "by") if survival else ("by",)
    groups = next((one for one in sought if one in known), names[1] if names[1:] else "")
    if not set(given) <= set(known) or (terms and not groups):
        raise refuse_words(f"{name} takes no formula: it takes {', '.join(known)}")
    several = bool(groups) and takes_several(known[groups])
    if terms and not several and len(terms) > 1:
        raise refuse_words(f"{name} {text}: {groups} is one variable")
    return {**given, **({groups: terms if several else terms[0]} if terms else {})}


# -- in words
# ------------------------------------------------------------------------------------------------


def describe_question(
    name: str, parameters: Mapping[str, Any], schema: Schema | None = None
) -> str:
    """Return a question in words. Of what is not this library's own, nothing is imported for it.

    >>> describe_question("counts", {"variables": [0, -1]})
    'counts of v0 by class'
    >>> describe_question("Ridge", {"target": 2, "alpha": 3.0})
    'Ridge alpha=3.0 target=2'
    >>> describe_question("CompletelyRandomForest", {"n_trees": 10, "depth": 2, "random_state": 7})
    'forest trees=10 depth=2 seed=7'
    """
    from encryptedstats.tables.questions.question import known_by_now

    statistics = {one.name: one for one in (Counts, CrossTable, Moments)}
    if name in statistics:
        asked = parameters.get("variables")
        if not isinstance(asked, (list, tuple)) or not all(type(one) is int for one in asked):
            raise FileFormatError(
                f"the {name} have a malformed list of variables", code="malformed-list"
            )
        return statistics[name](tuple(asked)).describe(schema)
    if name == Folds.name:
        inside, params = parameters.get("question"), parameters.get("params")
        if not isinstance(inside, str) or not isinstance(params, Mapping) or inside == Folds.name:
            raise FileFormatError(
                "the folds are of no question that can be", code="impossible-folds"
            )
        return f"{parameters.get('n_folds')} folds of {describe_question(inside, params, schema)}"
    found = known_by_now(name)
    if found is None and name in {*_MODELS.values(), *ALIASES.values()}:
        found = question_class(name)
    usual = inspect.signature(found).parameters if isinstance(found, type) else {}
    order = [one for one in usual if one in parameters]
    words = [
        f"{short_name(one)}={spell(parameters[one])}"
        for one in dict.fromkeys([*order, *parameters])
        if one not in _HIDDEN and not _is_usual(parameters[one], usual.get(one))
    ]
    short = getattr(found, "short_name", name)
    return " ".join([short if _MODELS.get(short, name) == name else name, *words])


def describe(question: Question, schema: Schema | PublicSchema | None = None) -> str:
    """Return a question in words, with the names that a schema knows."""
    private = None if isinstance(schema, PublicSchema) else schema
    asked = question if private is None else question._in_names(private)
    return describe_question(question.name, asked.parameters(), private)


def _is_usual(value: Any, parameter: inspect.Parameter | None) -> bool:
    """Whether a value is that of a parameter that nobody gave."""
    if parameter is None:
        return value is None
    default = parameter.default
    usual = list(default) if isinstance(default, tuple) else default
    return type(usual) is type(value) and bool(usual == value)


def describe_all() -> Iterator[tuple[str, str, str]]:
    """Yield name, parameters and one line of help of every question that is known here."""
    for name, question in sorted(known_types().items(), key=lambda item: item[0].lower()):
        others = [alias for alias, own in {**ALIASES, **_MODELS}.items() if own == name]
        known = parameters_of(question)
        text = " ".join(one if p.default is p.empty else f"[{one}]" for one, p in known.items())
        yield ", ".join([*others, name]), text, question.about()


def describe_parameters(question: type[Question]) -> dict[str, tuple[str, ...]]:
    """Return what every parameter of a question does, and what is allowed, by name and default."""
    allowed, said = constraints_of(question), described_parameters(question)
    found = {}
    for short, one in parameters_of(question).items():
        name = short if one.default is one.empty else f"{short}={spell(one.default)}"
        lines = [said.get(one.name, ""), allowed[one.name].words]
        found[name] = tuple(part for line in lines for part in textwrap.wrap(line, 72))
    return found


def complete_words(
    words: Sequence[str], incomplete: str, variables: Callable[[], Iterable[str]]
) -> Iterator[str]:
    """Yield what may come next: values after ``NAME=``, else parameters of the last question, and
    questions.
    """
    asked = next((one for one in reversed(words) if "=" not in one and "~" not in one), "")
    question = question_type(asked) if asked else None
    known = {} if question is None else parameters_of(question)
    name, equals, _ = incomplete.partition("=")
    if equals and question is not None and name in known:
        allowed = constraints_of(question)[known[name].name]
        item = allowed.item if isinstance(allowed, ListOf) else allowed
        choices = variables() if isinstance(item, VariableName) else map(spell, allowed.choices)
        yield from (f"{name}={choice}" for choice in choices)
        return
    taken = {word.partition("=")[0] for word in words}
    yield from (f"{one}=" for one in known if one not in taken)
    yield from names_of_questions()


def spell(value: Any) -> str:
    """Return a value as it is typed.

    >>> spell(True), spell(None), spell([1, "a"]), spell(0.5)
    ('true', 'null', '1,a', '0.5')
    """
    if isinstance(value, (bool, type(None))):
        return {True: "true", False: "false", None: "null"}[value]
    return ",".join(map(spell, value)) if isinstance(value, (list, tuple)) else str(value)
