"""The expression graph: questions write it, and every later step reads it. Imports only errors.

An expression is either a number for each row (``column``, sums, products) or one number for the
whole table (``total``). It is immutable, and equal expressions are the same object, so a formula
that occurs twice is computed once. Columns overload ``+ - *``, so a model reads like the formula in
the paper. An expression is defined on the slots of a table's public layout: columns are 0 in
padding slots, and a total is the sum over all slots minus the contribution of padding.
"""

from __future__ import annotations

import hashlib
import json
import operator
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Final, NoReturn, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.rules import RuleTable
from encryptedstats.errors import ArgumentError, ArgumentTypeError

COLUMN, LINEAR, PRODUCT, TOTAL, REPLICATE, RESAMPLE = (
    "column",
    "linear",
    "product",
    "total",
    "replicate",
    "resample",
)
MASK, GIVEN, HERE = "mask", "given", "here"
ONES = (1, "one")  #: the number and the purpose of what is 1 in every row
#: Identifies a column (by its name) or a given total (by the name of its packs, and its number).
Key = str | tuple[str, int]
_SHOWN_TERMS = 5  # of a sum, when it is printed
_MANY_OUTPUTS = 16  # whose order is kept: walks from a few are short


class Expression:
    """An immutable node of the graph, made by :func:`column` and by arithmetic.

    Attributes
    ----------
    op : str
        ``"column"``, ``"given"``, ``"here"``, ``"linear"``, ``"product"``, ``"total"``,
        ``"replicate"``, ``"resample"`` or ``"mask"``.
    args : tuple of Expression
        What it is computed from.
    data
        The name of a column; packs and number of a given total; value and purpose of an encrypted
        constant; ``(coefficients, constant)`` of a linear combination of the args; the seed or the
        move of a resampling; the :class:`Marks` of a mask.
    is_total : bool
        True for one number for the table, False for one for each row.
    """

    __slots__ = ("__weakref__", "args", "data", "is_total", "op")
    _known: ClassVar[weakref.WeakValueDictionary[Any, Expression]] = weakref.WeakValueDictionary()

    op: str
    args: tuple[Expression, ...]
    data: Any
    is_total: bool

    def __new__(
        cls, op: str, args: tuple[Expression, ...], data: Any, is_total: bool
    ) -> Expression:
        """Return the existing node with this content, or make it."""
        key = _content(op, args, data)
        known = cls._known.get(key)
        if known is not None:
            return known
        node = super().__new__(cls)
        for name, value in (("op", op), ("args", args), ("data", data), ("is_total", is_total)):
            object.__setattr__(node, name, value)
        cls._known[key] = node
        return node

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("expressions are never changed")

    # -- building
    # --------------------------------------------------------------------------------------------

    def __add__(self, other: Expression | int) -> Expression:
        return _combine(self, other, 1)

    __radd__ = __add__

    def __sub__(self, other: Expression | int) -> Expression:
        return _combine(self, other, -1)

    def __rsub__(self, other: Expression | int) -> Expression:
        return _combine(-self, other, 1)

    def __neg__(self) -> Expression:
        return self * -1

    def __mul__(self, other: Expression | int) -> Expression:
        if isinstance(other, Expression):
            _check_same_kind(self, other, "multiply")
            return Expression(PRODUCT, (self, other), None, self.is_total)
        factor = _integer(other)
        if factor == 1:
            return self
        return linear([(factor, self)])

    __rmul__ = __mul__

    def __pow__(self, exponent: int) -> Expression:
        exponent = _integer(exponent)
        if not 1 <= exponent <= 64:
            raise ArgumentError(
                f"power {exponent}: a circuit has powers from 1 to 64", code="power-out-of-range"
            )
        if exponent == 1:
            return self
        # Equal halves keep the depth at ceil(log2(exponent)).
        return self ** (exponent // 2) * self ** (exponent - exponent // 2)

    def total(self) -> Expression:
        """Return the sum over all rows."""
        if self.is_total:
            raise ArgumentTypeError("this is a total already", code="already-total")
        return Expression(TOTAL, (self,), None, True)

    def replicate(self) -> Expression:
        """Return a total as a number in every row, to be combined with columns."""
        if not self.is_total:
            raise ArgumentTypeError(
                "only a total can be replicated into the rows", code="not-a-total"
            )
        return Expression(REPLICATE, (self,), None, False)

    def resample(self, seed: int) -> Expression:
        """Return the values of other rows, drawn by a seed.

        One seed moves all expressions alike.
        """
        if self.is_total:
            raise ArgumentTypeError("a total has no rows to draw from", code="total-without-rows")
        return Expression(RESAMPLE, (self,), _integer(seed), False)

    def move(self, chunks: int, rotation: int, swap: bool) -> Expression:
        """Return the values of the rows that lie some chunks and slots further on.

        ``rotation`` counts slots within a half row, and ``swap`` exchanges the half rows.
        """
        if self.is_total:
            raise ArgumentTypeError("a total has no rows to move", code="total-without-rows")
        move = (_integer(chunks), _integer(rotation), bool(swap))
        return self if move == (0, 0, False) else Expression(RESAMPLE, (self,), move, False)

    def mask(self, marks: Marks) -> Expression:
        """Return the values at the marked slots, and 0 everywhere else."""
        if self.is_total:
            raise ArgumentTypeError("a total has no rows to mark", code="total-without-rows")
        return Expression(MASK, (self,), marks, False)

    # -- showing
    # --------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return _shorten(self, depth=4)


class Marks:
    """A public choice of slots of one chunk, none of them padding."""

    __slots__ = ("_digest", "chunk", "slots")

    def __init__(self, chunk: int, slots: Iterable[int]) -> None:
        marked = np.unique(np.fromiter(slots, dtype=np.int64))
        if not len(marked) or chunk < 0 or marked[0] < 0:
            raise ArgumentError(
                "marks need a chunk and some of its slots, all of them from 0 on",
                code="malformed-marks",
            )
        self.chunk = chunk
        self.slots = marked
        self._digest: tuple[Any, ...] = (chunk, hashlib.sha256(marked.tobytes()).digest())

    def content(self) -> list[Any]:
        """Return the content for a digest, as JSON."""
        return [self.chunk, *map(int, self.slots)]

    def in_slots(self, count: int, modulus: int) -> NDArray[np.uint64]:
        """Return the factor of each slot, modulo t."""
        factors = np.zeros(count, dtype=np.uint64)
        factors[self.slots] = 1
        return factors

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)

    def __repr__(self) -> str:
        return f"{len(self.slots)} slots of chunk {self.chunk}"


class Factors(Marks):
    """A public factor for some slots of one chunk."""

    __slots__ = ("factors",)

    def __init__(self, chunk: int, factors: Mapping[int, int]) -> None:
        super().__init__(chunk, factors)
        self.factors = tuple(factors[slot] for slot in self.slots.tolist())
        self._digest = (*self._digest, self.factors)

    def content(self) -> list[Any]:
        return [self.chunk, *zip(self.slots.tolist(), self.factors, strict=True)]

    def in_slots(self, count: int, modulus: int) -> NDArray[np.uint64]:
        factors = np.zeros(count, dtype=np.uint64)
        factors[self.slots] = [factor % modulus for factor in self.factors]
        return factors


class Weights(Marks):
    """A random factor modulo t for each slot of a range, drawn from a public seed.

    The range may include padding. A total of weighted values is random modulo t unless all values
    are 0, so it tells that and nothing else.
    """

    __slots__ = ("seed",)

    def __init__(self, chunk: int, start: int, stop: int, seed: bytes) -> None:
        if chunk < 0 or not 0 <= start < stop:
            raise ArgumentError(
                "weights need a chunk and a run of its slots, from 0 on", code="malformed-weights"
            )
        self.chunk = chunk
        self.slots = _run(start, stop)
        self.seed = seed
        self._digest = (chunk, start, stop, seed)

    def content(self) -> list[Any]:
        return [self.chunk, int(self.slots[0]), len(self.slots), self.seed.hex()]

    def in_slots(self, count: int, modulus: int) -> NDArray[np.uint64]:
        """Return factors from SHAKE-256 of seed and chunk; their bias is below 2^-64 t."""
        source = hashlib.shake_256(
            b"encryptedstats weights\0" + self.chunk.to_bytes(8, "big") + self.seed
        )
        factors = np.zeros(count, dtype=np.uint64)
        drawn = np.frombuffer(source.digest(8 * len(self.slots)), dtype="<u8") % np.uint64(modulus)
        factors[self.slots] = drawn
        return factors


@lru_cache(maxsize=64)
def _run(start: int, stop: int) -> NDArray[np.int64]:
    """Return one shared array for the weights of all columns."""
    return np.arange(start, stop)


def column(name: str) -> Expression:
    """Return a column of the table by its key.

    >>> x, y = column("v0.bin1"), column("class0")
    >>> (x * y).total() - 1
    (v0.bin1 * class0).total() - 1
    """
    if not isinstance(name, str) or not name:
        raise ArgumentTypeError(f"a column has a name, not {name!r}", code="name-not-text")
    return Expression(COLUMN, (), name, False)


def pack_total(name: str, index: int) -> Expression:
    """Return total number ``index`` of the packs called ``name``, in every row.

    >>> pack_total("model", 3) * column("v0.bin1")
    model[3] * v0.bin1
    """
    return Expression(GIVEN, (), (name, _integer(index)), False)


def encrypted_constant(value: int, purpose: str) -> Expression:
    """Return a number in every row (not in padding), encrypted with the public key when needed.

    The value is not shown.

    >>> encrypted_constant(7, "answer0") + column("v0.bin1")
    here:answer0 + v0.bin1
    """
    return Expression(HERE, (), (_integer(value), purpose), False)


def ones() -> Expression:
    """Return a public 1 in every row, and 0 in padding; its ciphertext is always the same.

    >>> ones() * column("first")
    here:one * first
    """
    return encrypted_constant(*ONES)


def linear(terms: Iterable[tuple[int, Expression]], constant: int = 0) -> Expression:
    """Return ``constant + sum(coefficient * expression)`` as one node.

    >>> a, b = column("a"), column("b")
    >>> linear([(1, a), (2, b), (1, a)])
    2*a + 2*b
    """
    found = combination(terms, constant)
    if isinstance(found, int):
        raise ArgumentError(
            "all terms cancel: this is a plain number, nothing to compute with", code="terms-cancel"
        )
    return found


def combination(terms: Iterable[tuple[int, Expression]], constant: int = 0) -> Expression | int:
    """Return what :func:`linear` returns, or a plain number if all terms cancel.

    >>> combination([(1, column("a")), (-1, column("a"))], 5)
    5
    """
    collected: dict[Expression, int] = {}
    for coefficient, term in terms:
        if not isinstance(term, Expression):
            raise ArgumentTypeError(
                f"a sum of columns or totals, not of {term!r}: a plain number goes into constant=",
                code="not-an-expression",
            )
        factor, term = _split_factor(term)
        collected[term] = collected.get(term, 0) + factor * _integer(coefficient)
    kept = {term: coefficient for term, coefficient in collected.items() if coefficient}
    constant = _integer(constant)
    if not kept:
        return constant
    apart = _plain_difference(kept)
    if apart is not None:
        return constant + apart
    first = next(iter(kept))
    for term in kept:
        _check_same_kind(first, term, "add")
    if constant == 0 and kept == {first: 1}:
        return first
    return Expression(LINEAR, tuple(kept), (tuple(kept.values()), constant), first.is_total)


def _plain_difference(terms: Mapping[Expression, int]) -> int | None:
    """Return c a - c b for sums a and b that differ by a number; None for other terms."""
    if len(terms) != 2 or sum(terms.values()) != 0 or any(term.op != LINEAR for term in terms):
        return None
    flat: dict[Expression, int] = {}
    plain, stack = 0, list(terms.items())
    while stack:
        term, factor = stack.pop()
        if term.op == LINEAR:
            coefficients, constant = term.data
            plain += factor * constant
            stack += [(arg, factor * c) for arg, c in zip(term.args, coefficients, strict=True)]
        else:
            flat[term] = flat.get(term, 0) + factor
    return None if any(flat.values()) else plain


def sum_of(terms: Sequence[Expression]) -> Expression:
    """Add up columns, or totals, in one step.

    >>> sum_of([column("a"), column("b"), column("a")])
    2*a + b
    """
    return linear([(1, term) for term in terms])


def _combine(left: Expression, right: Expression | int, sign: int) -> Expression:
    if isinstance(right, Expression):
        return linear([(1, left), (sign, right)])
    shift = sign * _integer(right)
    if left.op == LINEAR:
        coefficients, constant = left.data
        return linear(zip(coefficients, left.args, strict=True), constant + shift)
    return linear([(1, left)], shift)


def _split_factor(term: Expression) -> tuple[int, Expression]:
    """Split a term into a number and an expression, so that ``-(-x)`` becomes ``x``."""
    if term.op == LINEAR and len(term.args) == 1 and term.data[1] == 0:
        return term.data[0][0], term.args[0]
    return 1, term


def _content(op: str, args: tuple[Expression, ...], data: Any) -> tuple[Any, ...]:
    """Return the key by which nodes are equal; sums and products commute."""
    ids = tuple(map(id, args))
    if op == PRODUCT:
        return op, tuple(sorted(ids))
    if op == LINEAR:
        coefficients, constant = data
        return op, frozenset(zip(ids, coefficients, strict=True)), constant
    return op, ids, data


def _check_same_kind(a: Expression, b: Expression, verb: str) -> None:
    if a.is_total != b.is_total:
        raise ArgumentTypeError(
            f"cannot {verb} a total and a column: write total.replicate() to have the total in "
            "every row",
            code="total-with-column",
        )


def _integer(value: Any) -> int:
    try:
        if not isinstance(value, bool):
            return int(operator.index(value))
    except TypeError:
        pass
    raise ArgumentTypeError(
        f"a circuit computes with integers, not with {value!r}", code="not-an-integer"
    )


# -- walking
# ------------------------------------------------------------------------------------------------


class Node(Protocol):
    """A node of a graph: an expression, or a step of a program."""

    @property
    def args(self) -> tuple[Any, ...]: ...


N = TypeVar("N", bound=Node)


def in_order(outputs: Iterable[N]) -> Iterator[N]:
    """Return each node that the outputs need once, after its args."""
    outputs = tuple(outputs)
    return _walk(outputs) if len(outputs) < _MANY_OUTPUTS else iter(_order_of(outputs))


# The passes of compiling walk over the same outputs up to seven times.
@lru_cache(maxsize=8)
def _order_of(outputs: tuple[N, ...]) -> tuple[N, ...]:
    return tuple(_walk(outputs))


def _walk(outputs: Iterable[N]) -> Iterator[N]:
    # This is the inner loop of compiling, so leaves never go onto the stack.
    seen: set[N] = set()
    for output in outputs:
        if output in seen:
            continue
        stack = [(output, iter(output.args))]
        while stack:
            node, rest = stack[-1]
            for arg in rest:
                if arg not in seen:
                    if arg.args:
                        stack.append((arg, iter(arg.args)))
                        break
                    seen.add(arg)
                    yield arg
            else:
                stack.pop()
                seen.add(node)
                yield node


def column_names(outputs: Iterable[Expression]) -> list[str]:
    """Return the columns that the outputs need; those of the latest outputs are cached."""
    return list(_column_names(tuple(outputs)))


@lru_cache(maxsize=8)
def _column_names(outputs: tuple[Expression, ...]) -> tuple[str, ...]:
    return tuple(node.data for node in in_order(outputs) if node.op == COLUMN)


def totals_of(outputs: Iterable[Expression]) -> dict[Key, tuple[str, int]]:
    """Return the given totals that the outputs need, as packs and numbers."""
    return {node.data: node.data for node in in_order(outputs) if node.op == GIVEN}


def rename_packs(outputs: Sequence[Expression | int], suffix: str) -> list[Expression | int]:
    """Append a suffix to the names of all packs.

    >>> rename_packs([pack_total("model", 3) * column("v0.bin1")], "7")
    [model7[3] * v0.bin1]
    """

    def rule(node: Expression, args: list[Expression]) -> Expression:
        if node.op == GIVEN:
            return pack_total(node.data[0] + suffix, node.data[1])
        return Expression(node.op, tuple(args), node.data, node.is_total)

    values = fold([output for output in outputs if isinstance(output, Expression)], rule)
    return [values[output] if isinstance(output, Expression) else output for output in outputs]


def fold(
    outputs: Iterable[Expression], rule: Callable[[Expression, list[Any]], Any]
) -> dict[Expression, Any]:
    """Return ``rule(node, values of its args)`` for every node; all readers are written with it."""
    values: dict[Expression, Any] = {}
    for node in in_order(outputs):
        values[node] = rule(node, [values[arg] for arg in node.args])
    return values


def depth_of(outputs: Iterable[Expression]) -> int:
    """Return the largest number of products in a row."""
    outputs = list(outputs)
    depths = fold(outputs, lambda node, args: max(args, default=0) + (node.op == PRODUCT))
    return max((depths[output] for output in outputs), default=0)


#: Returns what is hashed of a node, from the digests of its args, independent of their order.
DIGESTED: Final = RuleTable[Callable[["Expression", list[str]], list[Any]]]("digested nodes")

DIGESTED.rule(COLUMN, GIVEN, HERE, TOTAL, REPLICATE, RESAMPLE)(
    lambda node, args: [node.op, args, node.data]
)
DIGESTED.rule(MASK)(lambda node, args: [node.op, args, node.data.content()])
DIGESTED.rule(PRODUCT)(lambda node, args: [node.op, sorted(args), node.data])


@DIGESTED.rule(LINEAR)
def _digest_sum(node: Expression, args: list[str]) -> list[Any]:
    coefficients, constant = node.data
    return [node.op, sorted(zip(args, coefficients, strict=True)), constant]


def circuit_digest(outputs: Sequence[Expression]) -> str:
    """Hash a circuit, independently of the order of terms and factors."""
    digests = fold(outputs, lambda node, args: _hash(DIGESTED[node.op](node, args)))
    return _hash([digests[output] for output in outputs])


def _hash(content: Any) -> str:
    return hashlib.sha256(
        json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
    ).hexdigest()


#: Returns the value of a node in a padding slot from those of its args; None if it is encrypted.
PADDING: Final = RuleTable[Callable[["Expression", list[int | None]], int | None]]("padding values")

PADDING.rule(COLUMN, HERE, MASK)(lambda node, args: 0)
# Totals have no rows, and replicating one fills padding with an encrypted value.
PADDING.rule(GIVEN, TOTAL, REPLICATE)(lambda node, args: None)
PADDING.rule(RESAMPLE)(lambda node, args: 0 if args[0] == 0 else None)


@PADDING.rule(PRODUCT)
def _pad_product(node: Expression, args: list[int | None]) -> int | None:
    a, b = args
    if a == 0 or b == 0:
        return 0
    return None if a is None or b is None else a * b


@PADDING.rule(LINEAR)
def _pad_linear(node: Expression, args: list[int | None]) -> int | None:
    total: int = node.data[1]
    for coefficient, value in zip(node.data[0], args, strict=True):
        if value is None:
            return None
        total += coefficient * value
    return total


def padding_value(outputs: Iterable[Expression]) -> dict[Expression, int | None]:
    """Return the value of every node in a padding slot; None if it is not public."""
    return fold(outputs, lambda node, args: PADDING[node.op](node, args))


def _shorten(node: Expression, depth: int) -> str:
    if node.op == COLUMN:
        return str(node.data)
    if node.op == GIVEN:
        return "{}[{}]".format(*node.data)
    if node.op == HERE:
        return f"here:{node.data[1]}"
    if depth == 0:
        return "..."
    inner = [_shorten(arg, depth - 1) for arg in node.args[:_SHOWN_TERMS]]
    if node.op == PRODUCT:
        return " * ".join(_bracket(text, arg) for text, arg in zip(inner, node.args, strict=True))
    if node.op == LINEAR:
        return _linear_text(inner, node)
    text = f"({inner[0]})" if node.args[0].op in (LINEAR, PRODUCT) else inner[0]
    return f"{text}.{node.op}({'' if node.data is None else node.data})"


def _bracket(text: str, node: Expression) -> str:
    return f"({text})" if node.op == LINEAR else text


def _linear_text(inner: list[str], node: Expression) -> str:
    coefficients, constant = node.data
    text = ""
    for coefficient, term, arg in zip(coefficients, inner, node.args, strict=False):
        term = _bracket(term, arg)
        sign = "-" if coefficient < 0 else "+"
        factor = "" if abs(coefficient) == 1 else f"{abs(coefficient)}*"
        text += (
            f" {sign} {factor}{term}" if text else f"{'-' if coefficient < 0 else ''}{factor}{term}"
        )
    if len(node.args) > len(inner):
        text += f" + ... ({len(node.args) - len(inner)} more terms)"
    if constant:
        text += f" {'-' if constant < 0 else '+'} {abs(constant)}"
    return text
