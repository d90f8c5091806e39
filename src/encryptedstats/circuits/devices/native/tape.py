"""Compile sums over rows to a tape: the integer instructions of the fused kernel for every block of
coefficients.

A tape works on *vectors*: one component of a ciphertext over one block. It has a prologue, which
loads the columns of a chunk and computes range sums that many totals share, and segments: a few
totals each, so few that their sums stay in the first level of cache while all chunks pass by.
Inside a segment, products come depth first and vectors are reused as soon as possible.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from threading import Lock
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.program import ADD_UP, MULTIPLY, SHIFT, Step
from encryptedstats.crypto.kernels import minimal_root
from encryptedstats.crypto.packing import reverse_bits

# Words of the tape, as in _native/fused.c.
LOAD_OP, LINEAR_OP, PRODUCT_OP, ADD_OP = range(4)
PLUS, MINUS, NONE = -1, -2, -1
WORD_BITS: Final = 52  # Montgomery's R is 2^52
SEGMENT_VECTORS: Final = (
    48  # local sums of a segment, unless one tree has more: at 128 coefficients a block, 48 kB
)
MOST_SEGMENT_VECTORS: Final = 128
SHARED_VECTORS: Final = 512  # what the prologue may hold beside the columns

# What a vector holds: a node, and how many times it is multiplied by R (0 or 1).
Value = tuple[Step, int]


@dataclass(frozen=True)
class Tape:
    """Some sums of a program, compiled; the arrays are arguments of ``_fused.run``.

    Attributes
    ----------
    totals : tuple of Step
        Sums over rows, in the order in which their sums lie in memory.
    sizes : tuple of int
        Components of each.
    columns : tuple of Step
        What the prologue loads, by column number: the same for all tapes of a circuit, as is the
        whole prologue.
    constants : tuple of (value, power, shift)
        Stand for value * R^power * X^shift modulo the prime: where X^shift is constant, see
        :meth:`root`.
    n_runs : int
        Runs of coefficients in each of which X^shift is constant.
    branchings : array
        Words of :class:`.Branching`; if there are any, they compute all totals, and the tape is a
        prologue.
    vectors : (int, int, int)
        Shared by a chunk, temporary, and of local sums.
    """

    totals: tuple[Step, ...]
    sizes: tuple[int, ...]
    columns: tuple[Step, ...]
    constants: tuple[tuple[int, int, int], ...]
    n_runs: int
    vectors: tuple[int, int, int]
    words: NDArray[np.int32]
    segments: NDArray[np.int32]
    places: NDArray[np.int32]
    branchings: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, dtype=np.int32))

    def constants_modulo(self, prime: int, root: int = 1) -> NDArray[np.uint64]:
        """Return the constants for one prime; ``root`` replaces X."""
        values = [
            value * pow(2, WORD_BITS * power, prime) * pow(root, shift, prime) % prime
            for value, power, shift in self.constants
        ]
        return np.array(values, dtype=np.uint64)

    def root(self, ring_degree: int, prime: int, run: int) -> int:
        """Return the number that X stands for in a run of transformed coefficients.

        In SEAL's order, coefficient i is the value at w^(2 r + 1), where r is i with its bits
        reversed: in a run of N / k coefficients these differ by multiples of 2k, which do not
        change X^(N / k).
        """
        return pow(
            minimal_root(prime, 2 * ring_degree), 2 * reverse_bits(run, self.n_runs) + 1, prime
        )


def is_load(step: Step) -> bool:
    """Return True if a tape reads a step rather than computing it."""
    return step.op not in (ADD_UP, MULTIPLY, SHIFT)


def is_sum_of_loads(step: Step) -> bool:
    """Return True if a step is a sum of loads, or that times a power of X, and so cheap to
    recompute.
    """
    if step.op == SHIFT:
        return is_load(step.args[0]) or (
            step.args[0].op == ADD_UP and is_sum_of_loads(step.args[0])
        )
    return step.op == ADD_UP and all(is_load(arg) for arg in step.args)


def loads_of_sum(step: Step) -> tuple[Step, ...]:
    """Return the loads that a sum adds up."""
    return _sum_of_loads(step)[0]


def _sum_of_loads(step: Step) -> tuple[tuple[Step, ...], tuple[int, ...], int]:
    """Return the loads that a sum adds up, their coefficients, and its constant."""
    inner = step.args[0] if step.op == SHIFT else step
    return (inner.args, *inner.data) if inner.op == ADD_UP else ((inner,), (1,), 0)


def rest_of(step: Step) -> tuple[Step, Step] | None:
    """Return a and a b for a step a - a b, also where a is a sum whose terms are spelled out."""
    if step.op != ADD_UP:
        return None
    for part, coefficient in zip(step.args, step.data[0], strict=True):
        if part.op == MULTIPLY and coefficient == -1:
            terms = {
                arg: c for arg, c in zip(step.args, step.data[0], strict=True) if arg is not part
            }
            for whole in part.args:
                if (terms, step.data[1]) in (({whole: 1}, 0), _terms_of(whole)):
                    return whole, part
    return None


def _terms_of(step: Step) -> tuple[dict[Step, int], int]:
    """Return a step as a sum of terms and a constant."""
    if step.op != ADD_UP:
        return {step: 1}, 0
    return dict(zip(step.args, step.data[0], strict=True)), step.data[1]


def rows_in_order(rows: Iterable[Step]) -> Iterator[Step]:
    """Yield everything that a tape computes or reads for some steps, in topological order."""
    seen: set[Step] = set()
    stack = [(row, False) for row in reversed(list(rows))]
    while stack:
        step, ready = stack.pop()
        if step in seen:
            continue
        if ready or is_load(step):
            seen.add(step)
            yield step
        else:
            stack.append((step, True))
            stack.extend((arg, False) for arg in reversed(step.args))


def nearest_sums(values: Sequence[Value]) -> list[tuple[Value, Value | None]]:
    """Order sums of columns, each with an earlier one from which it differs by fewer columns than
    it has; None if there is none.

    Ranges of bins, and their complements, differ from one another by a bin or two.
    """
    numbers: dict[Step, int] = {}
    masks: dict[Value, int] = {}
    for value in values:
        loads, coefficients, constant = _sum_of_loads(value[0])
        if value[0].op == ADD_UP and not constant and set(coefficients) == {1}:
            masks[value] = sum(1 << numbers.setdefault(load, len(numbers)) for load in loads)
    found: list[tuple[Value, Value | None]] = [(v, None) for v in values if v not in masks]
    done: list[Value] = []
    for value in sorted(masks, key=lambda value: masks[value].bit_count()):
        alike = (other for other in done if other[1] == value[1])
        nearest = min(alike, key=lambda o: (masks[o] ^ masks[value]).bit_count(), default=None)
        if nearest is not None:
            steps = 1 + (masks[nearest] ^ masks[value]).bit_count()
            nearest = nearest if steps < masks[value].bit_count() else None
        found.append((value, nearest))
        done.append(value)
    return found


@dataclass
class _Vectors:
    """Allocate vectors; the last freed are reused first, since they are in the nearest cache."""

    first: int
    top: int = 0
    free: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))

    def take(self, size: int) -> int:
        if self.free[size]:
            return self.free[size].pop()
        self.top += size
        return self.first + self.top - size

    def give_back(self, place: int, size: int) -> None:
        self.free[size].append(place)


@dataclass(frozen=True)
class _Word:
    """One instruction before its vectors have places."""

    op: int
    to: Value | None
    reads: tuple[Value, ...]
    rest: Value | None = None
    summed: bool = False
    constant: int = NONE
    coefficients: tuple[int, ...] = ()


class TapeWriter:
    """Write the tapes of a program: some of its sums at a time, all with the same prologue.

    Parameters
    ----------
    totals : steps
        Each a sum over rows of products and sums of loads.
    plain_modulus : int
        t: constants are lifted from it as SEAL lifts them.
    montgomery : bool
        How the ``ifma`` arithmetic multiplies: one factor of every product is kept multiplied by R.
    most_vectors : int
        Local sums of a segment, at most, unless one total has more: a tree that is cut is partly
        computed twice.
    share_all : bool
        Compute all sums of columns in the prologue, rather than those that are used several times.
    copies : int
        As in the parameters: totals may be interleaved.
    """

    def __init__(
        self,
        totals: Sequence[Step],
        plain_modulus: int,
        *,
        montgomery: bool,
        most_vectors: int = MOST_SEGMENT_VECTORS,
        share_all: bool = False,
        copies: int = 1,
    ) -> None:
        self.plain_modulus, self.montgomery, self.most_vectors = (
            plain_modulus,
            montgomery,
            most_vectors,
        )
        self.share_all = share_all
        self.totals = tuple(totals)
        self.has_branchings: bool | None = None  # None until somebody has looked
        rows = [total.args[0] for total in totals]
        self.nodes = list(rows_in_order(rows))
        self.n_runs = copies if any(node.op == SHIFT for node in self.nodes) else 1
        # Sums of columns are cheap: they are computed where they are needed, as often as that is.
        self.cheap = {n for n in self.nodes if is_load(n) or is_sum_of_loads(n)}
        self.scaled_factor = self._scaled_factors(rows)
        self.rests = self._rests()
        self.order = self._depth_first()
        self.constants: dict[tuple[int, int, int], int] = {}
        self.columns: dict[Step, int] = {}
        self.shared: dict[Value, int] = {}
        self.prologue, self.n_shared = self._prologue(rows)
        self._tapes: dict[tuple[tuple[Step, ...], Any], Tape] = {}
        self._writing = Lock()  # constants get their numbers from one at a time

    def tape(
        self,
        totals: Sequence[Step],
        write: Callable[[TapeWriter, Sequence[Step]], Tape] | None = None,
    ) -> Tape:
        """Return the tape of some of the totals; each is written once.

        ``write`` takes the place of the writer's own way.
        """
        with self._writing:
            key = tuple(totals), write
            if key not in self._tapes:
                self._tapes[key] = self._write(key[0]) if write is None else write(self, key[0])
            return self._tapes[key]

    def _write(self, totals: Sequence[Step]) -> Tape:
        segments = self._segments(totals)
        ordered = [total for segment in segments for total in segment]
        numbers = {total.args[0]: number for number, total in enumerate(ordered)}
        words, bounds, most = [self.prologue], [[0, len(self.prologue), 0, 0]], 0
        at, first = len(self.prologue), 0
        for segment in segments:
            code, n_temporary = self._place(self._segment_steps(segment), numbers)
            words.append(code)
            bounds.append([at, at + len(code), first, first + len(segment)])
            at, first, most = at + len(code), first + len(segment), max(most, n_temporary)
        places, n_local = self._places(segments)
        return Tape(
            totals=tuple(ordered),
            sizes=tuple(total.args[0].size for total in ordered),
            columns=tuple(self.columns),
            constants=tuple(self.constants),
            n_runs=self.n_runs,
            vectors=(self.n_shared, most, n_local),
            words=np.array([word for code in words for word in code], dtype=np.int32),
            segments=np.array(bounds, dtype=np.int32),
            places=places,
        )

    # -- what is to be kept multiplied by R
    # ------------------------------------------------------------------------

    def _scaled_factors(self, rows: list[Step]) -> dict[Step, int]:
        """Choose for every product the factor (0 or 1) that is multiplied by R.

        The reduction divides by R, so the product is plain. Range sums are preferred: a node that
        is needed both multiplied and plain has to be converted.
        """
        plain, scaled, chosen = set(rows), set[Step](), {}
        for node in self.nodes:
            if node.op == ADD_UP and node not in self.cheap:
                plain.update(node.args)
        for node in self.nodes:
            if node.op == MULTIPLY:
                preference = [
                    (x in self.cheap, x in scaled, x not in plain, -x.size) for x in node.args
                ]
                chosen[node] = 0 if preference[0] > preference[1] else 1
                scaled.add(node.args[chosen[node]])
                plain.add(node.args[1 - chosen[node]])
        return chosen

    def _rests(self) -> dict[Step, Step]:
        """Return products a * b with the node a - a * b, if there is one: it is nearly free after
        the product.
        """
        rests = {}
        for node in self.nodes:
            found = rest_of(node)
            if found is not None and found[1].args[1 - self.scaled_factor[found[1]]] is found[0]:
                rests[found[1]] = node
        return rests

    # -- the order of things
    # -----------------------------------------------------------------------------------------

    def _depth_first(self) -> dict[Step, int]:
        """Order all but the cheap nodes topologically, each followed by its users as soon as
        possible.
        """
        waiting: dict[Step, int] = {}
        users: dict[Step, list[Step]] = defaultdict(list)
        for node in self.nodes:
            if node not in self.cheap:
                needed = {arg for arg in node.args if arg not in self.cheap}
                waiting[node] = len(needed)
                for arg in needed:
                    users[arg].append(node)
        stack = [node for node in reversed(self.nodes) if node in waiting and not waiting[node]]
        order: dict[Step, int] = {}
        while stack:
            node = stack.pop()
            order[node] = len(order)
            for user in reversed(users[node]):
                waiting[user] -= 1
                if not waiting[user]:
                    stack.append(user)
        return order

    def _segments(self, totals: Sequence[Step]) -> list[list[Step]]:
        """Group totals, each once, and cut where a new tree begins."""
        totals = sorted(dict.fromkeys(totals), key=lambda total: self.order.get(total.args[0], -1))
        segments: list[list[Step]] = [[]]
        vectors = 0
        for total in totals:
            node = total.args[0]
            begins = all(arg in self.cheap for arg in node.args)
            size = node.size
            if vectors + size > self.most_vectors or (begins and vectors + size > SEGMENT_VECTORS):
                segments.append([])
                vectors = 0
            segments[-1].append(total)
            vectors += size
        return segments

    # -- the steps of a segment
    # --------------------------------------------------------------------------------------

    def _segment_steps(self, totals: list[Step]) -> list[_Word]:
        wanted = [total.args[0] for total in totals]
        needed: set[Step] = set()
        stack = [node for node in wanted if node not in self.cheap]
        while stack:
            node = stack.pop()
            if node not in needed:
                needed.add(node)
                stack.extend(arg for arg in node.args if arg not in self.cheap)
        steps: list[_Word] = []
        known: set[Value] = set()
        summed = set(wanted)
        for node in sorted(needed, key=self.order.__getitem__):
            if (node, 0) not in known:
                steps += self._steps_for(node, needed, known, summed)
        steps += [_sum_of(node) for node in wanted if node in self.cheap]
        return self._with_cheap(steps)

    def _steps_for(
        self, node: Step, needed: set[Step], known: set[Value], wanted: set[Step]
    ) -> Iterator[_Word]:
        """Yield the steps that compute a node once its arguments are known."""
        known.add((node, 0))
        if node.op == ADD_UP:
            yield self._combination((node, 0))
            if node in wanted:
                yield _sum_of(node)
            return
        chosen = self.scaled_factor[node]
        plain, factor = (node.args[1 - chosen], 0), (node.args[chosen], int(self.montgomery))
        if factor[0] not in self.cheap and factor not in known:
            yield self._convert(factor[0])
            known.add(factor)
        rest = self.rests.get(node)
        if rest is None or rest not in needed:
            yield _Word(PRODUCT_OP, (node, 0), (plain, factor), summed=node in wanted)
            return
        yield _Word(PRODUCT_OP, (node, 0), (plain, factor), rest=(rest, 0), summed=node in wanted)
        known.add((rest, 0))
        if rest in wanted:
            yield _sum_of(rest)

    def _combination(self, value: Value) -> _Word:
        node, power = value
        shift = node.data if node.op == SHIFT else 0
        args, coefficients, constant = _sum_of_loads(node)
        factors = tuple(self._coefficient(c, shift) for c in coefficients)
        added = self._constant(self._lift(constant), power, shift) if constant else NONE
        return _Word(
            LINEAR_OP,
            value,
            tuple((arg, power) for arg in args),
            constant=added,
            coefficients=factors,
        )

    def _convert(self, node: Step) -> _Word:
        """Return the step that multiplies a node by R."""
        return _Word(LINEAR_OP, (node, 1), ((node, 0),), coefficients=(self._constant(1, 2),))

    def _coefficient(self, value: int, shift: int = 0) -> int:
        factor = self._lift(abs(value)) * (1 if value > 0 else -1)
        if abs(factor) == 1 and not shift:
            return PLUS if factor > 0 else MINUS
        return self._constant(factor, int(self.montgomery), shift)

    def _lift(self, value: int) -> int:
        """Lift a plaintext to the coefficient primes as SEAL does: the nearest integer to 0 modulo
        t.
        """
        rest = value % self.plain_modulus
        return rest - self.plain_modulus if rest > self.plain_modulus // 2 else rest

    def _constant(self, value: int, power: int, shift: int = 0) -> int:
        return self.constants.setdefault((value, power, shift), len(self.constants))

    def _with_cheap(self, steps: list[_Word]) -> list[_Word]:
        """Insert the sums of columns before the steps that need them, unless the prologue computes
        them.
        """
        known = set(self.shared)
        complete = []
        for step in steps:
            for value in step.reads:
                if value not in known and not is_load(value[0]) and value[0] in self.cheap:
                    complete.append(self._combination(value))
                    known.add(value)
            complete.append(step)
        return complete

    # -- the prologue
    # --------------------------------------------------------------------------------------------

    def _prologue(self, rows: list[Step]) -> tuple[list[int], int]:
        """Write the code that loads all columns and computes shared sums, and count its vectors."""
        uses: Counter[Value] = Counter((row, 0) for row in rows if row in self.cheap)
        for node in self.nodes:
            if node.op == MULTIPLY:
                chosen = self.scaled_factor[node]
                uses[node.args[1 - chosen], 0] += 1
                uses[node.args[chosen], int(self.montgomery)] += 1
            elif node not in self.cheap:
                uses.update((arg, 0) for arg in node.args)
        sums = [
            value
            for value, _ in uses.most_common()
            if not is_load(value[0]) and value[0] in self.cheap
        ]
        columns = dict.fromkeys(value for value in uses if is_load(value[0]))
        columns |= dict.fromkeys(
            (arg, power) for node, power in sums for arg in _sum_of_loads(node)[0]
        )
        often = [value for value in sums if uses[value] > 1][: SHARED_VECTORS // 2]
        kept = sums if self.share_all else often
        for node in dict.fromkeys(node for node, _ in columns):
            self.columns[node] = len(self.columns)
        code, self.shared = self.write_prologue(columns, kept)
        return code, 2 * len(self.shared)

    def write_prologue(
        self, columns: Iterable[Value], sums: Sequence[Value]
    ) -> tuple[list[int], dict[Value, int]]:
        """Write the code that loads columns and adds up sums of columns; return it with their
        places.
        """
        vectors, code = _Vectors(0), list[int]()
        places = {value: vectors.take(2) for value in [*columns, *sums]}
        for node in dict.fromkeys(node for node, _ in columns):
            code += self._load(node, places)
        for value, nearest in nearest_sums(sums):
            code += self._words(self._from_nearest(value, nearest), places, {})
        return code, places

    def _from_nearest(self, value: Value, nearest: Value | None) -> _Word:
        """Return the step that computes a sum of columns, starting from another sum if that is
        shorter.
        """
        word = self._combination(value)
        if nearest is None:
            return word
        power, others = value[1], set(_sum_of_loads(nearest[0])[0])
        wanted = set(_sum_of_loads(value[0])[0])
        more = [arg for arg in _sum_of_loads(value[0])[0] if arg not in others]
        less = [arg for arg in _sum_of_loads(nearest[0])[0] if arg not in wanted]
        return _Word(
            LINEAR_OP,
            value,
            (nearest, *((arg, power) for arg in (*more, *less))),
            coefficients=(PLUS, *(PLUS for _ in more), *(MINUS for _ in less)),
        )

    def _load(self, node: Step, places: Mapping[Value, int]) -> list[int]:
        plain, scaled = places.get((node, 0)), places.get((node, 1))
        to = plain if plain is not None else scaled
        assert to is not None
        code = [LOAD_OP, to, self.columns[node]]
        if scaled is not None:
            code += [LINEAR_OP, scaled, 2, NONE, 1, self._constant(1, 2), to, 2]
        return code

    # -- places
    # --------------------------------------------------------------------------------------------

    def _place(self, steps: list[_Word], numbers: dict[Step, int]) -> tuple[list[int], int]:
        """Assign vectors to the values of a segment, from their computation to their last use."""
        last = {value: at for at, step in enumerate(steps) for value in step.reads}
        vectors, places, code = _Vectors(self.n_shared), dict(self.shared), list[int]()
        for at, step in enumerate(steps):
            for value in (step.to, step.rest):
                if value is not None and value in last:
                    places[value] = vectors.take(value[0].size)
            code += self._words(step, places, numbers)
            for value in set(step.reads):
                if last[value] == at and value not in self.shared:
                    vectors.give_back(places.pop(value), value[0].size)
        return code, vectors.top

    def _words(self, step: _Word, places: dict[Value, int], numbers: dict[Step, int]) -> list[int]:
        reads = [(places[value], value[0].size) for value in step.reads]
        if step.op == ADD_OP:
            return [ADD_OP, numbers[step.reads[0][0]], *reads[0]]
        assert step.to is not None
        if step.op == PRODUCT_OP:
            total = numbers[step.to[0]] if step.summed else NONE
            rest = NONE if step.rest is None else places.get(step.rest, NONE)
            return [PRODUCT_OP, places.get(step.to, NONE), rest, total, *reads[0], *reads[1]]
        size = step.to[0].size
        terms = [
            word for c, read in zip(step.coefficients, reads, strict=True) for word in (c, *read)
        ]
        return [LINEAR_OP, places[step.to], size, step.constant, len(reads), *terms]

    def _places(self, segments: list[list[Step]]) -> tuple[NDArray[np.int32], int]:
        """Return the size of every total, and the place of its sum in the segment and in memory."""
        places, most, component = [], 0, 0
        for segment in segments:
            local = 0
            for total in segment:
                size = total.args[0].size
                places.append([size, local, component])
                local, component = local + size, component + size
            most = max(most, local)
        return np.array(places, dtype=np.int32), most


@lru_cache(maxsize=8)
def cached_writer(
    totals: tuple[Step, ...],
    plain_modulus: int,
    *,
    montgomery: bool,
    most_vectors: int = MOST_SEGMENT_VECTORS,
    share_all: bool = False,
    copies: int = 1,
) -> TapeWriter:
    """Return the writer for some totals; the last few are cached."""
    return TapeWriter(
        totals,
        plain_modulus,
        montgomery=montgomery,
        most_vectors=most_vectors,
        share_all=share_all,
        copies=copies,
    )


def _sum_of(node: Step) -> _Word:
    return _Word(ADD_OP, None, ((node, 0),))
