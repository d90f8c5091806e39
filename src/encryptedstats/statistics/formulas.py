"""Formulas as R has them: ``y ~ age*sex + poly(bmi, 2)``, parsed, translated to ids and expanded.

A formula is a tree. Expanding it gives terms: sets of atoms, which are variables or calls such as
``I(x^2)``. ``+``, ``-``, ``:``, ``*``, ``/``, ``%in%`` and ``^`` combine terms; inside of ``I()``
they compute with numbers. Imports nothing of tables but names; ``designs`` makes columns of terms.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

from encryptedstats.errors import ParameterError
from encryptedstats.tables.questions.constraints import Constraints, ReferenceLevels, Text
from encryptedstats.tables.questions.question import Question
from encryptedstats.tables.schema.names import level_id, level_name, name_of, variable_id

if TYPE_CHECKING:
    from typing_extensions import Self

    from encryptedstats.tables.schema.schema import Schema
    from encryptedstats.tables.schema.variables import PublicSchema

INTERCEPT: Final = "(Intercept)"
MOST_POWER: Final = 16
MOST_TERMS: Final = 4096
#: What a formula can call. A worker computes sums of products of whole numbers.
FUNCTIONS: Final = ("I", "poly", "offset")
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<name>`[^`]*`?|(?:[^\W\d]|\.(?!\d))[\w.]*)"
    r"|(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<sign>%in%|\S))"
)
#: Precedence as in R: a larger number binds more tightly.
_BINARY: Final = {"+": 1, "-": 1, "*": 2, "/": 2, "%in%": 3, ":": 4, "^": 6}
_UNARY: Final = 5
_MOST_DEPTH: Final = 200

Monomial = tuple[tuple[str, int], ...]
Polynomial = Mapping[Monomial, Fraction]


@dataclass(frozen=True)
class FormulaNode:
    """A part of a formula: a ``name``, ``number``, ``.``, ``neg``, a sign with two parts (``+`` may
    have more), or a call whose ``text`` is the function.
    """

    kind: str
    text: str = ""
    parts: tuple[FormulaNode, ...] = ()
    place: int = field(default=0, compare=False)
    depth: int = field(default=0, compare=False, init=False)

    def __post_init__(self) -> None:
        deepest = max((one.depth for one in self.parts), default=0)
        object.__setattr__(self, "depth", deepest + 1)

    def __str__(self) -> str:
        return _write(self, 0)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all variables inside."""
        own = (self.text,) if self.kind == "name" else ()
        return tuple(dict.fromkeys((*own, *(name for one in self.parts for name in one.names))))

    def rename(self, rename: Callable[[str], str]) -> FormulaNode:
        """Return it with other names of its variables."""
        text = rename(self.text) if self.kind == "name" else self.text
        return replace(self, text=text, parts=tuple(one.rename(rename) for one in self.parts))


Term = tuple[FormulaNode, ...]  # atoms, in the order in which the formula has them


def _write(node: FormulaNode, outside: int) -> str:
    """Return R's spelling of a node inside an operation of some precedence."""
    if node.kind == "name":
        return quote(node.text)
    if node.kind in ("number", "."):
        return node.text or "."
    if node.kind == "call":
        return f"{node.text}({', '.join(_write(one, 0) for one in node.parts)})"
    own = _UNARY if node.kind == "neg" else _BINARY[node.kind]
    if node.kind == "neg":
        text = f"-{_write(node.parts[0], own)}"
    else:
        gap = "" if node.kind in ("^", ":") else " "
        # All signs but ^ take the left part first.
        sides = (own + 1, own) if node.kind == "^" else (own, own + 1)
        parts = [_write(one, sides[place > 0]) for place, one in enumerate(node.parts)]
        text = f"{gap}{node.kind}{gap}".join(parts)
    return f"({text})" if own < outside else text


def quote(name: str) -> str:
    """Return a name as a formula writes it: in backticks if it is no word."""
    return name if name.replace(".", "_").isidentifier() and name != "." else f"`{name}`"


def term_text(term: Sequence[FormulaNode]) -> str:
    """Return a term as a formula writes it."""
    return ":".join(map(str, term))


@dataclass(frozen=True)
class Expansion:
    """The right side of a formula, expanded.

    Attributes
    ----------
    terms : tuple of terms
        Of one atom first, then of two, as in R.
    intercept : bool
    offsets : tuple of FormulaNode
        What is inside of ``offset()``.
    """

    terms: tuple[Term, ...]
    intercept: bool
    offsets: tuple[FormulaNode, ...]


@dataclass(frozen=True)
class Formula:
    """A formula: what is explained by what.

    Attributes
    ----------
    targets : tuple of str
        What is explained; none for the target of the schema.
    right : FormulaNode
        The other side.

    Examples
    --------
    >>> str(parse("y ~ (a + b)^2 + I(c^2) - 1"))
    'y ~ a + b + I(c^2) + a:b - 1'
    """

    targets: tuple[str, ...]
    right: FormulaNode
    text: str = field(default="", compare=False)

    @property
    def has_dot(self) -> bool:
        """Return whether ``.`` stands for all other variables."""
        return _has_dot(self.right)

    def expand(self, others: Sequence[str] | None = None) -> Expansion:
        """Return its terms, where ``.`` stands for ``others``."""
        return _Expander(self, others).expand()

    def __str__(self) -> str:
        left = " + ".join(map(quote, self.targets))
        if self.has_dot:
            return f"{left} ~ {self.right}".strip()
        found = self.expand()
        parts = [term_text(term) for term in found.terms]
        parts += [str(FormulaNode("call", "offset", (one,))) for one in found.offsets]
        if not found.intercept:
            return f"{left} ~ {' + '.join(parts)} - 1".strip() if parts else f"{left} ~ 0".strip()
        return f"{left} ~ {' + '.join(parts) or '1'}".strip()

    def in_ids(self, schema: Schema | PublicSchema) -> Formula:
        """Return it with the ids of variables, as a worker knows them."""
        return self._rename(lambda name: variable_id(schema, name))

    def _in_names(self, schema: Schema) -> Formula:
        """Return it with the names of variables, for the owner."""
        return self._rename(lambda name: name_of(name, schema))

    def _rename(self, rename: Callable[[str], str]) -> Formula:
        return replace(
            self,
            targets=tuple(map(rename, self.targets)),
            right=self.right.rename(rename),
            text="",
        )

    def refuse(self, node: FormulaNode, why: str, code: str = "invalid-formula") -> NoReturn:
        """Raise an error with a mark below the place of a node."""
        text = self.text or str(self)
        if not self.text:  # translated: the places of nodes are those of another text
            raise ParameterError(f"formula: {why}: {node} in {text}", code=code)
        raise _error(text, node.place, why, code)


def _has_dot(node: FormulaNode) -> bool:
    return node.kind == "." or any(map(_has_dot, node.parts))


def _error(text: str, place: int, why: str, code: str = "invalid-formula") -> ParameterError:
    return ParameterError(f"formula: {why}\n  {text}\n  {' ' * place}^", code=code)


# -- parsing ---------------------------------------------------------------------------------------


def parse(text: str) -> Formula:
    """Return the formula of a text, or raise an error that shows where it is wrong."""
    if not isinstance(text, str):
        raise ParameterError(
            f"a formula is text, such as 'y ~ age + sex', not {text!r}", code="not-text"
        )
    return _Parser(text).formula()


class _Parser:
    """Parse a formula by the precedence of its signs."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(self._tokens())
        self.next = 0
        self.depth = 0

    def _tokens(self) -> Iterator[tuple[str, str, int]]:
        at, end = 0, len(self.text.rstrip())
        while at < end:
            found = _TOKEN.match(self.text, at)
            assert found is not None
            kind = str(found.lastgroup)
            word, place = found[kind], found.start(kind)
            at = found.end()
            if word.startswith("`"):
                if len(word) < 2 or not word.endswith("`"):
                    self.refuse(place, "this backtick is not closed")
                word = word[1:-1]
                if not word:
                    self.refuse(place, "a name is needed between backticks")
            elif kind == "name" and word == ".":
                kind = "sign"
            elif kind == "sign" and word not in (*_BINARY, "~", "(", ")", ",", "=", "."):
                self.refuse(
                    place,
                    f"{word!r} means nothing in a formula: names that are no words are put in "
                    "`backticks`",
                )
            yield kind, word, place

    def refuse(self, place: int, why: str, code: str = "invalid-formula") -> NoReturn:
        raise _error(self.text, place, why, code)

    def peek(self) -> tuple[str, str, int]:
        if self.next < len(self.tokens):
            return self.tokens[self.next]
        return "end", "", len(self.text)

    def take(self) -> tuple[str, str, int]:
        token = self.peek()
        self.next += 1
        return token

    def formula(self) -> Formula:
        if not self.tokens:
            return Formula((), FormulaNode("."), self.text)
        signs = [place for kind, word, place in self.tokens if (kind, word) == ("sign", "~")]
        if len(signs) != 1:
            why = (
                "there is one ~, before what explains"
                if signs
                else "a ~ is needed, as in 'y ~ age + sex'"
            )
            self.refuse(signs[1] if signs else len(self.text), why)
        targets = self.targets()
        self.next += 1
        right = FormulaNode(".") if self.next == len(self.tokens) else self.side(0)
        kind, word, place = self.peek()
        if kind != "end":
            self.refuse(place, f"a sign such as + is needed before {word!r}")
        found = Formula(targets, right, self.text)
        _refuse_targets(right, found)
        if not found.has_dot:
            found.expand()  # which refuses what has no meaning
        return found

    def targets(self) -> tuple[str, ...]:
        """Return names with a plus between them, up to the ~."""
        found: list[str] = []
        while self.peek()[:2] != ("sign", "~"):
            kind, word, place = self.take()
            if found:
                if word != "+" or kind != "sign":
                    self.refuse(
                        place, "what is explained is a variable, or some with + between them"
                    )
                kind, word, place = self.take()
            if kind != "name":
                self.refuse(place, "the name of a variable is needed here")
            if self.peek()[1] == "(":
                self.refuse(
                    place,
                    f"compute {word}() before the rows are encrypted: the left side is a name",
                )
            if word in found:
                self.refuse(place, f"{word!r} is explained twice")
            found.append(word)
        return tuple(found)

    def side(self, least: int) -> FormulaNode:
        """Parse signs that bind at least so tightly."""
        self.depth += 1
        if self.depth > _MOST_DEPTH:
            self.refuse(self.peek()[2], "this formula is nested too deeply")
        left = self.operand()
        while True:
            kind, word, place = self.peek()
            own = _BINARY.get(word, 0) if kind == "sign" else 0
            if not own or own < least:
                self.depth -= 1
                return left
            self.next += 1
            right = self.side(own if word == "^" else own + 1)
            before = left.parts if word == left.kind == "+" else (left,)  # long sums stay flat
            left = FormulaNode(word, "", (*before, right), place)
            if left.depth > _MOST_DEPTH:
                self.refuse(place, "this formula is nested too deeply")

    def operand(self) -> FormulaNode:
        kind, word, place = self.take()
        if kind == "sign" and word in ("-", "+"):
            inside = self.side(_UNARY)
            return inside if word == "+" else FormulaNode("neg", "", (inside,), place)
        if kind == "sign" and word == "(":
            found = self.side(0)
            self.close(place)
            return found
        if kind == "sign" and word == ".":
            return FormulaNode(".", "", (), place)
        if kind == "number":
            return FormulaNode("number", word, (), place)
        if kind != "name":
            what = f", not {word!r}" if word else ""
            self.refuse(place, f"the name of a variable is needed here{what}")
        is_call = self.peek()[:2] == ("sign", "(") and self.text[place] != "`"
        return self.call(word, place) if is_call else FormulaNode("name", word, (), place)

    def call(self, function: str, place: int) -> FormulaNode:
        opened = self.take()[2]
        if function not in FUNCTIONS:
            self.refuse(
                place,
                f"{function}() cannot be computed from encrypted values: add a column before the "
                f"rows are encrypted, such as frame.assign({function}_x=...). Formulas have I(), "
                "poly() and offset()",
                "function-of-encrypted",
            )
        parts = [self.side(0)]
        while self.peek()[:2] == ("sign", ","):
            self.next += 1
            if function == "poly" and self.peek()[1] in ("raw", "degree"):
                parts.append(self.option())
            else:
                parts.append(self.side(0))
        self.close(opened)
        node = FormulaNode("call", function, tuple(parts), place)
        _check_call(node, self.refuse)
        return node

    def option(self) -> FormulaNode:
        _, name, place = self.take()
        _, sign, at = self.take()
        kind, value, where = self.take()
        if sign != "=":
            self.refuse(at, f"write {name} = ...")
        if name == "raw" and value not in ("TRUE", "FALSE", "T", "F"):
            self.refuse(where, "raw is TRUE or FALSE")
        if name == "raw":
            return FormulaNode(
                "number", f"raw = {'TRUE' if value in ('TRUE', 'T') else 'FALSE'}", (), place
            )
        if kind != "number":
            self.refuse(where, "a degree is a whole number")
        return FormulaNode("number", value, (), where)

    def close(self, opened: int) -> None:
        kind, word, place = self.take()
        if (kind, word) == ("end", ""):
            self.refuse(opened, "this bracket is not closed")
        if (kind, word) != ("sign", ")"):
            self.refuse(place, f"a sign or a closing bracket is needed before {word!r}")


def _refuse_targets(node: FormulaNode, formula: Formula) -> None:
    if node.kind == "name" and node.text in formula.targets:
        formula.refuse(node, f"{node.text!r} is on both sides")
    for one in node.parts:
        _refuse_targets(one, formula)


def _check_call(node: FormulaNode, refuse: Callable[..., NoReturn]) -> None:
    if node.text == "poly":
        first, *options = node.parts
        numbers = [one for one in options if not one.text.startswith("raw")]
        if first.kind != "name":
            refuse(first.place, "poly() takes the name of a number")
        if len(numbers) != 1 or len(options) > 2:
            refuse(node.place, "poly() takes a number and a degree: poly(x, 2)")
        degree = numbers[0]
        if not degree.text.isdecimal() or not 1 <= len(degree.text) <= 2:
            refuse(degree.place, f"a degree is a whole number from 1 to {MOST_POWER}")
        if not 1 <= int(degree.text) <= MOST_POWER:
            refuse(degree.place, f"a degree is a whole number from 1 to {MOST_POWER}")
        return
    if len(node.parts) != 1:
        refuse(node.parts[1].place, f"{node.text}() takes one expression")
    polynomial_of(node.parts[0], refuse)


def poly_options(node: FormulaNode) -> tuple[str, int, bool]:
    """Return the variable and degree of ``poly()``, and whether it takes plain powers."""
    texts = [one.text for one in node.parts[1:]]
    degree = next(int(text) for text in texts if text.isdecimal())
    return node.parts[0].text, degree, "raw = TRUE" in texts


def polynomial_of(node: FormulaNode, refuse: Callable[..., NoReturn]) -> Polynomial:
    """Return an arithmetic expression of numbers as the coefficients of its monomials."""
    if node.kind == "number":
        value = Fraction(node.text)
        return {(): value} if value else {}
    if node.kind == "name":
        return {((node.text, 1),): Fraction(1)}
    if node.kind not in ("+", "-", "*", "/", "^", "neg"):
        refuse(
            node.place,
            f"{node.text}() cannot be computed inside of I(): add a column before the rows are "
            "encrypted"
            if node.kind == "call"
            else f"{node.kind!r} computes no number: I() takes +, -, *, / and ^",
            "function-of-encrypted" if node.kind == "call" else "invalid-formula",
        )
    parts = [polynomial_of(one, refuse) for one in node.parts]
    if node.kind == "neg":
        return {monomial: -c for monomial, c in parts[0].items()}
    if node.kind == "+":
        return reduce(_sum, parts)
    left, right = parts
    if node.kind == "-":
        return _sum(left, {monomial: -c for monomial, c in right.items()})
    constant = right.get((), Fraction(0)) if set(right) <= {()} else None
    if node.kind in ("*", "^") and len(left) * len(right) > 16 * MOST_TERMS:
        refuse(node.place, f"this comes to more than {MOST_TERMS:,} products: leave some out")
    if node.kind == "*":
        found = _product(left, right)
    elif node.kind == "/":
        if not constant:
            refuse(node.parts[1].place, "only division by a number other than 0 can be computed")
        found = _product(left, {(): 1 / constant})
    else:
        if constant is None or constant.denominator != 1 or not 1 <= constant <= MOST_POWER:
            refuse(node.parts[1].place, f"a power is a whole number from 1 to {MOST_POWER}")
        found = left
        for _ in range(int(constant) - 1):
            if len(found) * len(left) > 16 * MOST_TERMS:
                refuse(
                    node.place, f"this comes to more than {MOST_TERMS:,} products: leave some out"
                )
            found = _product(found, left)
    if len(found) > MOST_TERMS:
        refuse(node.place, f"this comes to more than {MOST_TERMS:,} products: leave some out")
    if any(sum(power for _, power in monomial) > MOST_POWER for monomial in found):
        refuse(node.place, f"a power above {MOST_POWER} comes of this")
    return found


def _sum(one: Polynomial, other: Polynomial) -> Polynomial:
    found = dict(one)
    for monomial, c in other.items():
        found[monomial] = found.get(monomial, Fraction(0)) + c
    return {monomial: c for monomial, c in found.items() if c}


def _product(one: Polynomial, other: Polynomial) -> Polynomial:
    found: dict[Monomial, Fraction] = {}
    for a, x in one.items():
        for b, y in other.items():
            powers = dict(a)
            for name, power in b:
                powers[name] = powers.get(name, 0) + power
            key = tuple(sorted(powers.items()))
            found[key] = found.get(key, Fraction(0)) + x * y
    return {monomial: c for monomial, c in found.items() if c}


# -- expanding -------------------------------------------------------------------------------------

_Terms = dict[frozenset[FormulaNode], Term]


class _Expander:
    """Expand the right side of a formula to terms; the empty term is the intercept."""

    def __init__(self, formula: Formula, others: Sequence[str] | None) -> None:
        self.formula = formula
        self.others = others
        self.offsets: list[FormulaNode] = []

    def expand(self) -> Expansion:
        found = self.of(self.formula.right, {frozenset(): ()})
        order = {name: place for place, name in enumerate(self._atoms())}
        terms = [tuple(sorted(term, key=order.__getitem__)) for key, term in found.items() if key]
        return Expansion(
            tuple(sorted(terms, key=len)),
            frozenset() in found,
            tuple(dict.fromkeys(self.offsets)),
        )

    def _atoms(self) -> list[FormulaNode]:
        """Return all atoms in the order in which the formula has them: R orders terms by it."""
        found: dict[FormulaNode, None] = {}

        def visit(node: FormulaNode) -> None:
            if node.kind == ".":
                found.update(dict.fromkeys(self._dot()))
            elif node.kind in ("name", "call"):
                found[node] = None
            else:
                for one in node.parts:
                    visit(one)

        visit(self.formula.right)
        return list(found)

    def _dot(self) -> list[FormulaNode]:
        return [FormulaNode("name", name) for name in self.others or ()]

    def of(self, node: FormulaNode, before: _Terms | None = None) -> _Terms:
        """Return the terms of a node, added to those before it."""
        start = {} if before is None else dict(before)
        if node.kind == "+":
            for one in node.parts:
                if one.kind in ("+", "-", "neg", "number"):
                    start = self.of(one, start)
                else:
                    self._add(start, one)
            return start
        if node.kind in ("-", "neg"):
            kept = self.of(node.parts[0], start) if node.kind == "-" else start
            return self._without(kept, node.parts[-1])
        if node.kind == "number":
            return self._with_number(node, start)
        self._add(start, node)
        return start

    def _add(self, start: _Terms, node: FormulaNode) -> None:
        """Add the terms of a node that is no sum, in place."""
        for key, term in self._terms(node).items():
            start.setdefault(key, term)
        if len(start) > MOST_TERMS:
            self.formula.refuse(
                node, f"this comes to more than {MOST_TERMS:,} terms: leave some out"
            )

    def _with_number(self, node: FormulaNode, start: _Terms) -> _Terms:
        if node.text not in ("0", "1"):
            self.formula.refuse(
                node, "the numbers of a formula are 0 and 1; I() computes with others"
            )
        if node.text == "1":
            return {**start, frozenset(): ()}
        return {key: term for key, term in start.items() if key}

    def _without(self, kept: _Terms, node: FormulaNode) -> _Terms:
        if node.kind == "number":
            opposite = replace(node, text={"0": "1", "1": "0"}.get(node.text, node.text))
            return self._with_number(opposite, kept)
        gone = self.of(node)
        missing = [term for key, term in gone.items() if key not in kept]
        if missing:
            self.formula.refuse(node, f"there is no term {term_text(missing[0])} to leave out")
        return {key: term for key, term in kept.items() if key not in gone}

    def _terms(self, node: FormulaNode) -> _Terms:
        """Return the terms of a node that is no sum."""
        if node.kind == ".":
            return {frozenset([one]): (one,) for one in self._dot()}
        if node.kind == "call" and node.text == "offset":
            self.offsets.append(node.parts[0])
            return {}
        if node.kind in ("name", "call"):
            return {frozenset([node]): (node,)}
        if node.kind == "^":
            return self._power(node)
        left, right = (self.of(one) for one in node.parts)
        if node.kind == "*":
            return {**left, **right, **self._cross(left, right, node)}
        if node.kind == "/":
            every = tuple(dict.fromkeys(atom for term in left.values() for atom in term))
            return {**left, **self._cross({frozenset(every): every}, right, node)}
        return self._cross(left, right, node)

    def _power(self, node: FormulaNode) -> _Terms:
        base, exponent = node.parts
        if exponent.kind != "number" or not exponent.text.isdecimal() or len(exponent.text) > 3:
            self.formula.refuse(exponent, f"a power is a whole number from 1 to {MOST_POWER}")
        power = int(exponent.text)
        if not 1 <= power <= MOST_POWER:
            self.formula.refuse(exponent, f"a power is a whole number from 1 to {MOST_POWER}")
        if base.kind == "name" and power > 1:
            warnings.warn(
                f"{node} is {base} in a formula, as in R: I({node}) is the power",
                UserWarning,
                stacklevel=2,
            )
        terms = self.of(base)
        found = terms
        for _ in range(power - 1):
            found = self._cross(found, terms, node)  # a:a is a, so all terms of before are inside
        return found

    def _cross(self, left: _Terms, right: _Terms, node: FormulaNode) -> _Terms:
        if len(left) * len(right) > MOST_TERMS * 16:
            self.formula.refuse(
                node, f"this comes to more than {MOST_TERMS:,} terms: leave some out"
            )
        found: _Terms = {}
        for a, one in left.items():
            for b, other in right.items():
                found.setdefault(a | b, tuple(dict.fromkeys((*one, *other))))
        if len(found) > MOST_TERMS:
            self.formula.refuse(
                node, f"this comes to more than {MOST_TERMS:,} terms: leave some out"
            )
        return found


def regression_formula(parameters: Mapping[str, Any]) -> Formula:
    """Return the formula of a regression: its own, or that of its target and variables."""
    target, variables = parameters["target"], parameters["variables"]
    if parameters["formula"]:
        if target is not None or variables is not None:
            raise ParameterError(
                "give a formula, or target= and variables=", code="formula-and-variables"
            )
        return parse(parameters["formula"])
    if variables is not None and not len(variables):
        raise ParameterError("variables=[]: name some", code="no-predictors")
    named = tuple(FormulaNode("name", name) for name in variables or ())
    right = (
        FormulaNode("+", "", named) if len(named) > 1 else named[0] if named else FormulaNode(".")
    )
    found = Formula(() if target is None else (target,), right)
    _refuse_targets(right, found)
    return found


# -- questions with a formula ----------------------------------------------------------------------


class OfFormula(Question):
    """A question with the parameters ``formula`` and ``reference``, which may name variables and
    levels.
    """

    constraints: ClassVar[Constraints] = {
        "formula": Text(),
        "reference": ReferenceLevels(optional=True),
    }

    def in_ids(self, schema: Schema | PublicSchema) -> Self:
        """Return it with ids in the formula and for the reference levels."""
        own = self.parameters()
        reference = own.get("reference")
        if reference is not None:
            reference = {
                variable_id(schema, one): level_id(schema, one, level)
                for one, level in reference.items()
            }
        found = {
            "formula": own["formula"] and str(parse(own["formula"]).in_ids(schema)),
            "reference": reference,
        }
        found = {name: value for name, value in found.items() if name in own}
        translated = super().in_ids(schema)
        return (
            translated
            if found.items() <= own.items()
            else self._from_parameters({**translated.parameters(), **found})
        )

    def _in_names(self, schema: Schema) -> Self:
        """Return it with names in the formula and for the reference levels."""
        asked = super()._in_names(schema)
        return asked._from_parameters(
            {**asked.parameters(), **formula_in_names(asked.parameters(), schema)}
        )


def formula_in_names(parameters: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """Return the parameters ``formula`` and ``reference`` with names in place of ids."""
    formula, reference = parameters["formula"], parameters.get("reference")
    found = {"formula": formula and str(parse(formula)._in_names(schema))}
    if reference is not None:
        found["reference"] = {
            name_of(one, schema): level_name(schema, one, level) for one, level in reference.items()
        }
    return found
