"""Questions as people type them, for the command line and for pages.

A question is a name and words, ``forest trees=100``, or a call as in R, ``lm(bmi ~ age + sex)``.
Several stand one after the other; ``@FILE`` is a file with one on each line. Words are
``NAME=VALUE``; what they may be is said by the constraints of the question. Nothing is imported
for a question but the module that defines it.
"""

from __future__ import annotations

import inspect
import json
import re
import shlex
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

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
    find_loaded_question,
    load_all_questions,
    load_questions,
    prepare_question,
    question_class,
)
from encryptedstats.tables.questions.summaries import Counts, CrossTable, Moments
from encryptedstats.tables.schema.variables import PublicSchema
from encryptedstats.words import did_you_mean

if TYPE_CHECKING:
    from encryptedstats.tables.schema.schema import Schema


T = TypeVar("T")
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
    "pairwise.wilcox.test": "PairwiseMannWhitney",
    "pairwise.prop.test": "PairwiseProportions",
    "pairwise_survdiff": "PairwiseLogRank",
    "concordance": "Concordance",
    "manova": "Manova",
    "multinom": "MultinomialRegression",
    "cor.test": "Correlation",
    "bartlett.test": "VarianceTest",
    "roc": "ROC",
    "quantile": "Quantiles",
    "wilcox.test": "MannWhitney",
    "wilcoxon": "MannWhitney",
    "signed.rank": "SignedRank",
    "spearman": "RankCorrelation",
    "kendall": "RankCorrelation",
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
_LIST: Final = re.compile(r"\s*c(?:bind)?\((.*)\)\s*", re.DOTALL)
_HIDDEN: Final = {"bins"}  # parameters for arrays; a table is in bins already


def refuse_words(text: str) -> ParameterError:
    """Return the error for words that are not understood."""
    return ParameterError(text, code=UNKNOWN)


# -- names and values ------------------------------------------------------------------------------


def parse_pairs(
    words: Sequence[str] | str | None, names: Iterable[str], where: str
) -> dict[str, str]:
    """Return ``NAME=VALUE`` words by name; each word may be several with spaces between them."""
    known, found = list(names), {}
    for word in [words] if isinstance(words, str) else words or ():
        for one in shlex.split(word):
            name, equals, value = one.partition("=")
            if not equals or name not in known:
                wrong = f"{name!r} is unknown" if equals else "NAME=VALUE is needed"
                near = did_you_mean(name, known) or f"; give {', '.join(known)}"
                raise refuse_words(f"{where} {one}: {wrong}{near}")
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


# -- questions -------------------------------------------------------------------------------------


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
    for name, own in split_words(words):
        question = _make(name, own)
        try:
            question.check_parameters()
        except ParameterError as error:
            raise ParameterError(error, code=UNKNOWN) from error
        asked = question if schema is None else prepare_question(question, schema)
        found.append((name.rpartition(":")[2], asked))
    if not found:
        raise refuse_words("name a question, such as forest trees=100: see ask --list")
    return found


def split_words(words: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each question with its words; a word without = and ~ begins another one."""
    name, own = "", []
    for word in _with_files(words):
        call = _CALL.fullmatch(word)
        if call is None and _is_parameter(word):
            if not name:
                raise refuse_words(f"{word}: name its question before it")
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
    """Split the arguments of a call at its commas, except those in brackets or quotes.

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
    found = find_loaded_question(own)
    if isinstance(found, type) and issubclass(found, Question):
        return found
    try:
        return question_class(own)
    except FileFormatError:
        for known in find_question_types().values():
            if name in (known.short_name, known.name):
                return known
        near = did_you_mean(name, names_of_questions()) or ": ask --list shows all"
        raise refuse_words(f"there is no question {name!r}{near}") from None


def find_question_types() -> dict[str, type[Question]]:
    """Return all questions that people can ask here, by name."""
    known = load_all_questions().items()
    return {name: one for name, one in known if one is not Folds and one.is_listed}


def names_of_questions() -> list[str]:
    """Return what questions are called: the names of R, short names, and the others."""
    known = find_question_types()
    short = {name: one.short_name for name, one in known.items()}
    taken = [*ALIASES, *(_MODELS if set(_MODELS.values()) <= set(known) else ())]
    return sorted({*taken, *short.values(), *known}, key=str.lower)


def parameters_of(question: type[Any]) -> dict[str, inspect.Parameter]:
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


def _choose_test(name: str, words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the question of a name that R uses for several tests.

    >>> _choose_test("wilcox.test", ["change"]), _choose_test("kendall", ["a", "b"])
    (('SignedRank', ['change']), ('RankCorrelation', ['a', 'b', 'coefficient=kendall']))
    """
    pairs = {found[1]: found[2].strip(" '\"") for one in words if (found := _PAIR.fullmatch(one))}
    if ALIASES.get(name) == "MannWhitney" and "by" not in pairs:
        free = [one for one in words if _PAIR.fullmatch(one) is None]
        one_sample = len(free) < 2 and not any("~" in one for one in words)
        return ("SignedRank" if one_sample else name), words
    if name == "cor.test" and pairs.get("method", "pearson") != "pearson":
        kept = [one for one in words if not one.strip().startswith("method")]
        return "RankCorrelation", [*kept, f"coefficient={pairs['method']}"]
    if ALIASES.get(name) == "RankCorrelation":
        return "RankCorrelation", [*words, f"coefficient={name}"]
    return name, words


def _make(name: str, words: Sequence[str]) -> Question:
    name, words = _choose_test(name, words)
    return make_from_words(question_type(name), name, words)


def make_from_words(found: type[T], name: str, words: Sequence[str]) -> T:
    """Return a question, or anything else with named parameters, that words spell."""
    known = parameters_of(found)
    full = {one.name: short for short, one in known.items()}
    values: dict[str, Any] = {}
    free = list(known)
    for word in words:
        pair = _PAIR.fullmatch(word)
        if "~" in word and (pair is None or "~" in pair[1]):
            values |= _read_formula(_unquote(word), known, name)
        elif pair is None:
            _add_positional(values, word, [one for one in free if one not in values], known, name)
        else:
            parameter = pair[1] if pair[1] in known else full.get(pair[1], "")
            if not parameter:
                near = did_you_mean(pair[1], known) or f": it takes {', '.join(known) or 'nothing'}"
                raise refuse_words(f"{name} has no parameter {pair[1]!r}{near}")
            values[parameter] = read_value(pair[2].strip(), known[parameter])
    missing = [
        f"{one}=..." for one, p in known.items() if p.default is p.empty and one not in values
    ]
    if missing:
        raise refuse_words(f"{name} needs {', '.join(missing)}")
    return found(**{known[short].name: value for short, value in values.items()})


def read_value(text: str, parameter: inspect.Parameter) -> Any:
    """Return what a text spells: JSON, R's TRUE and c(...), a list with commas, or itself."""
    if text in _R_VALUES:
        return _R_VALUES[text]
    inner = _LIST.fullmatch(text)
    if inner:
        found = [read_value(one, parameter) for one in _arguments(inner[1])]
        return [part for one in found for part in (one if isinstance(one, list) else [one])]
    if _unquote(text) != text:
        return _unquote(text)
    return values_of(text) if takes_several(parameter) else value_of(text)


def _unquote(text: str) -> str:
    """Return a text without the quotes around it.

    >>> _unquote("'ill ~ age'"), _unquote("ill ~ age")
    ('ill ~ age', 'ill ~ age')
    """
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if is_quoted else text


def _add_positional(
    values: dict[str, Any],
    text: str,
    free: Sequence[str],
    known: Mapping[str, inspect.Parameter],
    name: str,
) -> None:
    """Assign a value without a name to the first free parameter; a list takes all of them."""
    first = next(iter(known), "")
    if first and takes_several(known[first]) and isinstance(values.get(first, []), list):
        value = read_value(text, known[first])
        values[first] = [*values.get(first, []), *(value if isinstance(value, list) else [value])]
    elif free:
        values[free[0]] = read_value(text, known[free[0]])
    else:
        raise refuse_words(f"{name} takes no more than {len(known)} values: {text}")


def _read_formula(text: str, known: Mapping[str, inspect.Parameter], name: str) -> dict[str, Any]:
    """Read a formula as the parameter of a regression, or as variable and groups of a test."""
    left, _, right = text.partition("~")
    if "formula" in known:
        followed = _SURVIVAL.fullmatch(left) if "event" in known else None
        parts = _arguments(followed[1]) if followed else []
        if len(parts) != 2:
            return {"formula": text}
        return {"formula": f"{parts[0]} ~ {right.strip()}", "event": parts[1].strip("`'\"")}
    terms = [one.strip() for one in right.split("+") if one.strip() not in ("", "1")]
    survival = _SURVIVAL.fullmatch(left)
    names = list(known)
    if survival:
        found: dict[str, Any] = dict(zip(("time", "event"), _arguments(survival[1]), strict=False))
    elif names[0] in ("score", "variables") and "target" in known:  # predictors of an outcome
        found = {"target": left.strip()}
    else:
        found = {names[0]: read_value(left.strip(), known[names[0]])}
    if "strata" in known and (strata := [one for one in terms if _STRATA.fullmatch(one)]):
        terms = [one for one in terms if one not in strata]
        inner = [part for one in strata for part in _arguments(one[len("strata(") : -1])]
        found["strata"] = inner if takes_several(known["strata"]) else ", ".join(inner)
    sought = ("variables", "by") if survival else ("by",) if names[0] in found else names[:1]
    groups = next((one for one in sought if one in known), names[1] if names[1:] else "")
    if not set(found) <= set(known) or (terms and not groups):
        raise refuse_words(f"{name} takes no formula: it takes {', '.join(known)}")
    several = bool(groups) and takes_several(known[groups])
    if terms and not several and len(terms) > 1:
        raise refuse_words(f"{name} {text}: {groups} is one variable")
    return {**found, **({groups: terms if several else terms[0]} if terms else {})}


# -- in words --------------------------------------------------------------------------------------


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
    from encryptedstats.tables.questions.question import find_loaded_question

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
    found = find_loaded_question(name)
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


def words_of(question: Question, asked_as: str = "") -> list[str]:
    """Return the words that :func:`make_questions` reads as this question.

    Parameters
    ----------
    question : Question
        With ids (`Question.in_ids`) where the words are for a worker.
    asked_as : str
        How the question was called: ``lm``, ``FILE.py:NAME``; by default its own name.

    Examples
    --------
    >>> from encryptedstats.statistics import LinearRegression
    >>> words_of(LinearRegression("v2 ~ v0"), "lm")
    ['lm', 'formula=v2 ~ v0']
    """
    values = question.parameters()
    if isinstance(question, (Counts, CrossTable, Moments)):
        values = {"variables": question.names()}
    known = inspect.signature(type(question)).parameters
    words = [
        f"{short_name(name)}={_spell_as(one, values[name])}"
        for name, one in known.items()
        if name not in _HIDDEN and not _is_usual(values[name], one)
    ]
    is_own = ":" in asked_as  # a file's, which is not loaded again
    fits = is_own or (
        asked_as and question_type(_choose_test(asked_as, words)[0]) is type(question)
    )
    return [asked_as if fits else question.name, *words]


def _spell_as(parameter: inspect.Parameter, value: Any) -> str:
    """Return a value as it is typed; as JSON where a shorter text would be read otherwise."""
    text = spell(value)
    wanted = list(value) if isinstance(value, tuple) else value
    found = read_value(text, parameter)
    return text if type(found) is type(wanted) and found == wanted else json.dumps(value)


def _is_usual(value: Any, parameter: inspect.Parameter | None) -> bool:
    """Return whether a value is the default of its parameter."""
    if parameter is None:
        return value is None
    default = parameter.default
    usual = list(default) if isinstance(default, tuple) else default
    return type(usual) is type(value) and bool(usual == value)


def describe_all() -> Iterator[tuple[str, str, str]]:
    """Yield name, parameters and one line of help of every question that is known here."""
    for name, question in sorted(find_question_types().items(), key=lambda item: item[0].lower()):
        others = [alias for alias, own in {**ALIASES, **_MODELS}.items() if own == name]
        yield ", ".join([*others, name]), parameters_text(question), question.about()


def parameters_text(question: type[Any]) -> str:
    """Return the parameters of a question; those with a default are in brackets."""
    known = parameters_of(question).items()
    return " ".join(one if p.default is p.empty else f"[{one}]" for one, p in known)


def describe_parameters(question: type[Any]) -> dict[str, tuple[str, ...]]:
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
    found = complete_parameters(question_type(asked), words, incomplete, variables) if asked else ()
    yield from found
    if "=" not in incomplete:
        yield from names_of_questions()


def complete_parameters(
    question: type[Any],
    words: Sequence[str],
    incomplete: str,
    variables: Callable[[], Iterable[str]],
) -> Iterator[str]:
    """Yield the values after ``NAME=``, else the parameters that were not given yet."""
    known = parameters_of(question)
    name, equals, _ = incomplete.partition("=")
    if not equals:
        taken = {word.partition("=")[0] for word in words}
        yield from (f"{one}=" for one in known if one not in taken)
    elif name in known:
        allowed = constraints_of(question)[known[name].name]
        item = allowed.item if isinstance(allowed, ListOf) else allowed
        choices = variables() if isinstance(item, VariableName) else map(spell, allowed.choices)
        yield from (f"{name}={choice}" for choice in choices)


def spell(value: Any) -> str:
    """Return a value as it is typed.

    >>> spell(True), spell(None), spell([1, "a"]), spell(0.5)
    ('true', 'null', '1,a', '0.5')
    """
    if isinstance(value, (bool, type(None))):
        return {True: "true", False: "false", None: "null"}[value]
    return ",".join(map(spell, value)) if isinstance(value, (list, tuple)) else str(value)
