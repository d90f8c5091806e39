"""From expressions to a program: every decision (what is relinearised, switched, rotated, and when)
is taken here, once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from typing import Any, Final

from encryptedstats.circuits.clear import check_marks, drawn_shift, known_padding
from encryptedstats.circuits.expressions import (
    COLUMN,
    GIVEN,
    HERE,
    LINEAR,
    MASK,
    PRODUCT,
    REPLICATE,
    RESAMPLE,
    TOTAL,
    Expression,
    Marks,
    in_order,
    padding_value,
)
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.noise import NOISE, NoiseRules
from encryptedstats.circuits.passes.batching import HELD, batches_of_rows, batches_of_totals
from encryptedstats.circuits.passes.correction_factors import rescale
from encryptedstats.circuits.passes.interleaving import split_by_given
from encryptedstats.circuits.program import (
    ADD_UP,
    EXPAND,
    MOVE,
    MULTIPLY,
    PACK,
    PACKED,
    RELINEARISE,
    REPLICATED,
    ROTATE,
    ROWS,
    SHIFT,
    SUM,
    SWITCH,
    Chunks,
    MarksBeside,
    Output,
    Program,
    Step,
    in_both,
    is_readable,
)
from encryptedstats.circuits.rules import RuleTable
from encryptedstats.crypto.noise import Noise, NoiseModel
from encryptedstats.crypto.packing import (
    flooded_unpacked_noise,
    packed_noise,
    packing_model,
    packing_primes,
    side_by_side,
)
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.errors import ArgumentError, NoiseError


@dataclass(frozen=True)
class Strategy:
    """What is done about growing ciphertexts.

    ``relinearise=False`` multiplies as things are: a product of k factors has k + 1 polynomials and
    stays under the full modulus. That is much the cheapest while it fits, for BGV. Otherwise
    operands are relinearised and switched down before each product.
    """

    relinearise: bool


_TOGETHER: Final = (
    64  # given totals, of others that are multiplied by such: they are a few megabytes each
)
FLAT = Strategy(relinearise=False)
LEVELLED = Strategy(relinearise=True)


@dataclass(frozen=True)
class Way:
    """How a circuit is lowered: at which level columns begin, what is done about growing
    ciphertexts, and how results end.

    ``width`` totals are packed into a ciphertext, ``beside`` of them side by side before they are
    brought down. ``end`` is the level that rows have to end at, where it is not the lowest;
    ``flooded`` rows leave room there for what the members of a joint key add when they open them.
    """

    strategy: Strategy
    level: int = 0
    width: int = 1
    end: int | None = None
    flooded: bool = False
    beside: int = 1


@dataclass(frozen=True)
class Setting:
    """What noise and lowering depend on beside the outputs.

    Attributes
    ----------
    parameters : Parameters
    layout : Layout
    with_secret_key : bool
        Whether the owner encrypted the rows.
    form : "packed", "replicated", "slots" or "rows"
    given : tuple of (str, Noise)
        The noise of given packs by name, at the level of the primes that packs keep.
    beside : int, optional
        How many totals are interleaved; by default as many as the parameters have copies.
    flooded : bool, optional
        Whether results are flooded in the end; by default where others encrypted the rows.
    level : int
        Where columns begin.
    end : int, optional
        The level that rows have to end at, where it is not the lowest.
    """

    parameters: Parameters
    layout: Layout
    with_secret_key: bool = True
    form: str = PACKED
    given: tuple[tuple[str, Noise], ...] = ()
    beside: int | None = None
    flooded: bool | None = None
    level: int = 0
    end: int | None = None

    @property
    def rules(self) -> NoiseRules:
        return NoiseRules(self.parameters, with_secret_key=self.with_secret_key)

    @property
    def floods(self) -> bool:
        if self.flooded is None:
            return not self.with_secret_key and self.form == PACKED
        return self.flooded

    @property
    def interleaved(self) -> int:
        """Return how many totals are interleaved.

        Rows that others encrypted are not, nor totals whose modulus switching leaves factors: those
        of different degree do not share them.
        """
        if self.beside is not None:
            return self.beside
        parameters = self.parameters
        able = parameters.scheme == "bgv" and not parameters.has_factors
        wanted = self.with_secret_key and (self.form == PACKED or bool(self.given))
        return parameters.copies if able and wanted else 1

    def way(self, strategy: Strategy) -> Way:
        """Return how a circuit is lowered here by a strategy, one total in a pack."""
        is_flooded = self.floods and self.form == ROWS
        beside = self.interleaved
        return Way(strategy, self.level, end=self.end, flooded=is_flooded, beside=beside)


def lower(
    outputs: Sequence[Expression],
    setting: Setting,
    way: Way,
    *,
    held: int = HELD,
    places: Mapping[str, Sequence[int]] | None = None,
) -> Program:
    """Return the program of some outputs.

    Parameters
    ----------
    outputs : expressions
        Totals; in the form of rows, expressions over rows.
    setting : Setting
    way : Way
    held : int
        Bytes of given totals that may be held at once.
    places : mapping, optional
        Where in their packs given totals are, by name; in order, by default.

    Raises
    ------
    NoiseError
        Where totals cannot be brought down, or rows cannot be brought to their level.
    ValueError
        Where a plain number is added to nothing.
    """
    lowering = Lowering(setting.rules, setting, way, places)
    program = lowering.finished(setting.form, lowering.outputs(outputs), way.width, held)
    _check_numbers(program)
    return program


@dataclass(frozen=True)
class _Total:
    """A total on its way: the sum over the slots of ``step``, plus ``offset``; or, with ``each``,
    what every slot holds.
    """

    step: Step
    offset: int = 0
    each: bool = False


@dataclass(frozen=True)
class _SumOverGiven:
    """An output as a sum over given totals, each times something; and the rest, which is all of it
    where there are none.
    """

    factors: dict[Expression, Expression]
    rest: Expression | int

    @property
    def needed(self) -> list[Expression]:
        """What is to be lowered for it."""
        return [*self.factors.values(), *([self.rest] if isinstance(self.rest, Expression) else [])]


class Lowering:
    """One circuit, lowered. What is done for a node follows from the node alone, never from the
    others.
    """

    def __init__(
        self,
        rules: NoiseRules,
        setting: Setting,
        way: Way,
        places: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        self.rules, self.layout, self.way = rules, setting.layout, way
        self.given, self.places = dict(setting.given), places or {}
        # Equal totals share a place in their packs, and are expanded once: as the first of them.
        self._first_at = {
            name: {place: number for number, place in reversed(list(enumerate(some)))}
            for name, some in self.places.items()
        }
        self.rows: dict[Expression, Step] = {}
        self.totals: dict[Expression, _Total] = {}
        self._spread: dict[Expression, Step] = {}
        self._known: dict[Any, Step] = {}
        self._uses: Counter[Step] = Counter()  # of what is read, in products of such

    def outputs(self, outputs: Sequence[Expression]) -> list[Output]:
        """Every output, not brought into its form."""
        padding, sums = padding_value(outputs), self._sums_over_given(outputs)
        for node in in_order(needed for output in outputs for needed in sums[output].needed):
            if node.is_total:
                self.totals[node] = TOTAL_RULES[node.op](self, node, padding)
            else:
                self.rows[node] = ROW_RULES[node.op](self, node)
        self._count_uses(self.rows.values())
        return [self._output(node, sums[node]) for node in outputs]

    def _sums_over_given(self, outputs: Sequence[Expression]) -> dict[Expression, _SumOverGiven]:
        """Where totals lie side by side, outputs over rows are sums over given totals: of those
        packs that have the most of them, where they are not linear in all.
        """
        found = {output: _SumOverGiven({}, output) for output in outputs}
        if self.way.beside == 1:
            return found
        for output in [output for output in outputs if not output.is_total]:
            last: dict[str, int] = {}
            for node in in_order([output]):
                if node.op == GIVEN:
                    name, number = node.data
                    last[name] = max(number, last.get(name, 0))
            for names in (
                set(last),
                *({name} for name in sorted(last, key=lambda name: -last[name])),
            ):
                parted = split_by_given(output, names) if names else None
                if parted is not None:
                    found[output] = _SumOverGiven(*parted)
                    break
        return found

    def _count_uses(self, steps: Iterable[Step]) -> None:
        products = [step for step in steps if step.op == MULTIPLY and all(map(is_read, step.args))]
        self._uses = Counter(arg for step in products for arg in step.args)

    def _output(self, node: Expression, over_given: _SumOverGiven) -> Output:
        if over_given.factors:
            return Output(self._inner_products(over_given))
        if not node.is_total:
            return Output(self.rows[node])
        total = self.totals[node]
        return Output(total.step, total.offset, total.each)

    def _inner_products(self, over: _SumOverGiven) -> Step:
        """A sum over given totals, as many at a time as lie side by side.

        What one of them is multiplied by goes with the inverse of its power of X. So the product
        holds the sum of all in every copy, and beside it only what adds up to nothing over the
        copies: see ``Encoder.decode``.
        """
        beside, ring = self.way.beside, self.rules.parameters.ring_degree
        groups: dict[tuple[int, str, int], list[tuple[int, Step]]] = {}
        for node, factor in over.factors.items():
            name, number = node.data
            place = self.places[name][number] if name in self.places else number
            for when, row in self._pieces(self.rows[factor]):
                groups.setdefault((when, name, place // beside), []).append((place % beside, row))
        terms = []
        for (_, name, group), parts in sorted(groups.items(), key=lambda entry: entry[0]):
            powers = [side_by_side(place, beside, ring) for place, _ in parts]
            # X^-h = -X^(N-h)
            rows = [
                self._shift(row, ring - h if h else 0)
                for h, (_, row) in zip(powers, parts, strict=True)
            ]
            row = (
                self._add_up([-1 if h else 1 for h in powers], rows, 0)
                if any(powers) or len(rows) > 1
                else rows[0]
            )
            terms.append(self._multiply(row, self._expanded(name, group, beside.bit_length() - 1)))
        if isinstance(over.rest, Expression):
            terms += [row for _, row in self._pieces(self.rows[over.rest])]
        constant = over.rest if isinstance(over.rest, int) else 0
        return (
            self._add_up((1,) * len(terms), terms, constant)
            if constant or len(terms) > 1
            else terms[0]
        )

    def _pieces(self, row: Step) -> list[tuple[int, Step]]:
        """A row that has given totals among its terms, some of them at a time: few are held at
        once.
        """
        if row.op != ADD_UP or not any(step.op == EXPAND for step in in_order([row])):
            return [(0, row)]
        terms, constant = _flattened(row)
        pieces: dict[int, list[tuple[int, Step]]] = {}
        for coefficient, term in terms:
            first = min((step.data for step in in_order([term]) if step.op == EXPAND), default=0)
            pieces.setdefault(first // _TOGETHER, []).append((coefficient, term))
        found = []
        for when, some in sorted(pieces.items()):
            found.append(
                (when, self._add_up([c for c, _ in some], [term for _, term in some], constant))
            )
            constant = 0
        return found

    def _expanded(self, name: str, number: int, start: int = 0) -> Step:
        if not start and name in self.places:
            number = self._first_at[name][self.places[name][number]]
        packs = self._step(GIVEN, (), (name, start), noise=self.given[name])
        return self._step(EXPAND, (packs,), number)

    # -- instructions
    # --------------------------------------------------------------------------------------------

    def _step(
        self,
        op: str,
        args: tuple[Step, ...],
        data: Any = None,
        chunks: Chunks = None,
        noise: Noise | None = None,
    ) -> Step:
        """Return the one instruction with this content, so that nothing is computed twice.

        Its noise follows from the rules, unless it is known better.
        """
        key = (op, tuple(map(id, args)), data)
        step = self._known.get(key)
        if step is None:
            if noise is None:
                noise = NOISE[op](self.rules, args, data, self.layout.n_chunks)
            alike = bool(args) and op != MASK and all(arg.is_total for arg in args)
            factor = self._factor(op, args, data)
            step = self._known[key] = Step(
                op, args, data, noise, factor=factor, is_total=op == SUM or alike, chunks=chunks
            )
        return step

    def _factor(self, op: str, args: tuple[Step, ...], data: Any) -> int:
        """What modulus switching has left; terms of a sum were all brought to that of
        one of them.
        """
        if not args:
            return 1
        t = self.rules.parameters.plain_modulus
        if op == MULTIPLY:
            return args[0].factor * args[1].factor % t
        if op == SWITCH:
            (arg,) = args
            return arg.factor * self.rules.parameters.switch_factor(arg.level, data) % t
        return _common_factor(args)

    def switch(self, step: Step, level: int) -> Step:
        """Down to a level."""
        if step.level == level:
            return step
        return self._step(SWITCH, (step,), level, step.chunks)

    def relinearise(self, step: Step) -> Step:
        """Back to two polynomials."""
        if step.size == 2:
            return step
        return self._step(RELINEARISE, (step,), None, step.chunks)

    def _add_up(self, coefficients: Sequence[int], steps: Sequence[Step], constant: int) -> Step:
        level = max(step.level for step in steps)
        args = tuple(self.switch(step, level) for step in steps)
        chunks, noise = None if constant else _together(args), None
        if any(arg.factor != 1 for arg in args):
            common = _common_factor(args)
            # Terms of lower degree have other factors. They have so much less noise that a
            # coefficient of any size is hidden by that of the others; it is charged as t/2,
            # whatever it is, so that equal shapes have equal noise.
            t = self.rules.parameters.plain_modulus
            charged = [
                c if arg.factor == common else c * (t // 2)
                for c, arg in zip(coefficients, args, strict=True)
            ]
            noise = NOISE[ADD_UP](self.rules, args, (charged, constant), 0)
            coefficients = [
                rescale(c, arg.factor, common, t) for c, arg in zip(coefficients, args, strict=True)
            ]
            constant = rescale(constant, 1, common, t)
        return self._step(ADD_UP, args, (tuple(coefficients), constant), chunks, noise)

    def _multiply(self, a: Step, b: Step) -> Step:
        level = max(a.level, b.level)
        if self.way.strategy.relinearise:
            a, b = self.relinearise(a), self.relinearise(b)
            level = self.rules.model.best_product_level(a.noise, b.noise)
        a, b = self.switch(a, level), self.switch(b, level)
        return self._step(MULTIPLY, (a, b), None, in_both(a.chunks, b.chunks))

    def _shift(self, step: Step, by: int) -> Step:
        """A step times a power of X, which changes no noise: of products one factor is, of sums all
        terms, down to what is read.
        """
        if not by:
            return step
        if step.op == MULTIPLY:
            factor = self._carrier(step)
            args = tuple(self._shift(arg, by) if arg is factor else arg for arg in step.args)
            if step.args[0] is step.args[1]:
                args = (args[0], step.args[1])
            return self._step(MULTIPLY, args, None, step.chunks)
        if step.op == SUM:
            return self._step(SUM, (self._shift(step.args[0], by),))
        if step.op == ADD_UP and not is_read(step):
            return self._shifted_sum(step, by)
        return self._step(SHIFT, (step,), by, step.chunks)

    def _shifted_sum(self, step: Step, by: int) -> Step:
        """What is read of its terms, and its constant, is one term of it."""
        terms, constant = _flattened(step)
        read = [(c, arg) for c, arg in terms if is_read(arg)]
        found = [(c, self._shift(arg, by)) for c, arg in terms if not is_read(arg)]
        if len(read) == 1 and not constant:
            found.insert(0, (read[0][0], self._shift(read[0][1], by)))
        elif read:
            one = self._add_up([c for c, _ in read], [arg for _, arg in read], constant)
            found.insert(0, (1, self._shift(one, by)))
        elif constant:
            return self._step(SHIFT, (step,), by, step.chunks)
        data = tuple(c for c, _ in found), 0
        args = tuple(arg for _, arg in found)
        return self._step(ADD_UP, args, data, step.chunks, step.noise)

    def _carrier(self, product: Step) -> Step:
        """The factor of a product that is shifted for all of it: what is computed, else what most
        products have in common.
        """
        return max(product.args, key=lambda arg: (not is_read(arg), self._uses[arg]))

    def _rotate(self, step: Step, by: int) -> Step:
        return self._step(ROTATE, (step,), by, step.chunks)

    def _replicated(self, node: Expression) -> Step:
        """A total in every slot: by rotating and adding, log2 N steps."""
        if node not in self._spread:
            total = self.totals[node]
            self._spread[node] = (
                total.step if total.each else self._rotated_and_added(total.step, total.offset)
            )
        return self._spread[node]

    def _rotated_and_added(self, total: Step, offset: int) -> Step:
        step = self.relinearise(total)
        for rotation in replication_steps(self.layout):
            step = self._add_up((1, 1), (step, self._rotate(step, rotation)), 0)
        return self._add_up((1,), (step,), offset) if offset else step

    # -- into a form
    # --------------------------------------------------------------------------------------------

    def finished(
        self, form: str, outputs: Sequence[Output], width: int = 1, held: int = HELD
    ) -> Program:
        """Return the outputs in their form."""
        parameters = self.rules.parameters
        if form == PACKED:
            return self._packed(outputs, width, held)
        if form == ROWS:
            model, steps = parameters.noise, [output.step for output in outputs]
            batches, whole = batches_of_rows(steps, parameters, held, self._add_up)
            ends = [self.ended(model, whole[step]) for step in steps]
            return Program(
                parameters,
                self.layout,
                form,
                tuple(map(Output, ends)),
                batches=batches,
                beside=self.way.beside,
            )
        if form == REPLICATED:
            outputs = [
                output
                if output.each
                else Output(self._rotated_and_added(output.step, output.offset), each=True)
                for output in outputs
            ]
        done = [
            Output(self.relinearise(output.step), output.offset, output.each) for output in outputs
        ]
        batches = batches_of_totals([output.step for output in done], parameters, held)
        return Program(parameters, self.layout, form, tuple(done), batches=batches)

    def _packed(self, outputs: Sequence[Output], width: int, held: int) -> Program:
        """Put side by side, brought down to the primes of the packing context, and merged."""
        parameters = self.rules.parameters
        steps, beside = [output.step for output in outputs], self.way.beside
        places = self._places(steps, parameters.copies)
        placed = [
            step for _, step in sorted(zip(places, steps, strict=True), key=lambda entry: entry[0])
        ]
        whole = [
            self._side_by_side(placed[i : i + beside], parameters)
            for i in range(0, len(placed), beside)
        ]
        descents = plan_descents(parameters, {step.noise for step in whole})
        low = []
        for step in whole:
            descent = descents[step.noise]
            if descent is None:
                raise NoiseError("totals of this noise cannot be packed", code="not-packable")
            relinearised = self.relinearise(self.switch(step, descent.relinearise_at))
            low.append(self.switch(relinearised, descent.level))
        packs, in_pack = [], max(1, width // beside)
        for start in range(0, len(low), in_pack):
            args = tuple(low[start : start + in_pack])
            noise = NOISE[PACK](self.rules, args, None, 0)
            packs.append(Step(PACK, args, None, noise, is_total=True))
        done = [
            Output(low[place // beside], output.offset, output.each)
            for place, output in zip(places, outputs, strict=True)
        ]
        batches = batches_of_totals(low, parameters, held)
        return Program(
            parameters,
            self.layout,
            PACKED,
            tuple(done),
            tuple(packs),
            width,
            batches,
            beside,
            tuple(places),
        )

    def _places(self, totals: Sequence[Step], copies: int) -> list[int]:
        """Where totals are packed: neighbours that have products in common, as those of a
        branching, are shifted alike and do not lie side by side. Else it is in order, and the same
        however many do lie side by side.
        """
        if copies == 1:
            return list(range(len(totals)))
        self._count_uses(in_order(totals))
        free = [len(range(shift, len(totals), copies)) for shift in range(copies)]
        next_places, places = list(range(copies)), list[int]()
        for _, family in groupby(totals, self._root):
            shift = free.index(max(free))
            for _ in family:
                if not free[shift]:  # the last ones have to go where there is room
                    shift = free.index(max(free))
                places.append(next_places[shift])
                next_places[shift] += copies
                free[shift] -= 1
        return places

    def _root(self, step: Step) -> Step:
        """By which totals are shifted alike: of the first of their products, what is not shifted.
        So the same sums of several classes are, and those that compute on with them do the same for
        all classes.
        """
        while step.args and step.op != MASK and not is_read(step):
            if step.op == ADD_UP:
                below = next((arg for arg in step.args if not is_read(arg)), step.args[0])
            else:
                below = self._carrier(step) if step.op == MULTIPLY else step.args[0]
            if is_read(below):
                return next((arg for arg in step.args if arg is not below), below)
            step = below
        return step

    def _side_by_side(self, totals: Sequence[Step], parameters: Parameters) -> Step:
        """Totals in one ciphertext, each times another power of X."""
        copies, ring = self.way.beside, parameters.ring_degree
        if copies == 1:
            return totals[0]
        powers = [side_by_side(number, copies, ring) for number in range(len(totals))]
        ones = (1,) * len(totals)
        if all(
            total.op == SUM and not total.args[0].is_total and total.args[0].chunks is None
            for total in totals
        ):
            rows = [
                self._shift(total.args[0], power)
                for total, power in zip(totals, powers, strict=True)
            ]
            row = self._add_up(ones, rows, 0)
            return self._step(SUM, (row,))
        steps, marked = [], dict[tuple[Step, int], list[tuple[Marks, int]]]()
        for total, power in zip(totals, powers, strict=True):
            row = total.args[0]
            if total.op == SUM and row.op == MASK:
                marked.setdefault((row.args[0], row.data.chunk), []).append((row.data, power))
            else:
                steps.append(self._shift(total, power))
        for (row, chunk), parts in marked.items():
            steps.append(self._marked_beside(row, chunk, parts))
        return self._add_up((1,) * len(steps), steps, 0)

    def _marked_beside(self, row: Step, chunk: int, parts: Sequence[tuple[Marks, int]]) -> Step:
        """The totals of marked slots, all at once: the same row times one public polynomial for all
        of them.
        """
        chunks = in_both(frozenset((chunk,)), row.chunks)
        masked = self._step(MASK, (row,), MarksBeside(tuple(parts)), chunks)
        return self._step(SUM, (masked,))

    def ended(self, model: NoiseModel, step: Step) -> Step:
        """Rows as they are stored: two polynomials, brought down."""
        parameters, flooded = self.rules.parameters, self.way.flooded
        at, level = row_descent(
            model,
            step.noise,
            self.way.end,
            lambda noise: model.decrypts(
                flooded_unpacked_noise(parameters, noise) if flooded else noise
            ),
        )
        return self.switch(self.relinearise(self.switch(step, at)), level)


# -- the rule of each operation
# ------------------------------------------------------------------------------------------------

#: Lowers an expression over rows.
ROW_RULES: Final = RuleTable[Callable[[Lowering, Expression], Step]]("lowered rows")
#: Lowers a total, from what its rows are in padding.
TOTAL_RULES: Final = RuleTable[
    Callable[[Lowering, Expression, Mapping[Expression, int | None]], _Total]
]("lowered totals")


@ROW_RULES.rule(COLUMN, HERE)
def _load(lowering: Lowering, node: Expression) -> Step:
    return lowering.switch(lowering._step(node.op, (), node.data), lowering.way.level)


ROW_RULES.rule(GIVEN)(lambda lowering, node: lowering._expanded(*node.data))
ROW_RULES.rule(REPLICATE)(lambda lowering, node: lowering._replicated(node.args[0]))


@ROW_RULES.rule(MASK)
def _mask(lowering: Lowering, node: Expression) -> Step:
    row = lowering.rows[node.args[0]]
    check_marks(node.data, lowering.layout)
    chunks = in_both(frozenset((node.data.chunk,)), row.chunks)
    # What is marked is marked many times: one relinearisation before, not one after each.
    marked = lowering.relinearise(row) if lowering.way.strategy.relinearise else row
    return lowering._step(MASK, (marked,), node.data, chunks)


@ROW_RULES.rule(PRODUCT)
def _multiply_rows(lowering: Lowering, node: Expression) -> Step:
    a, b = (lowering.rows[arg] for arg in node.args)
    return lowering._multiply(a, b)


@ROW_RULES.rule(LINEAR)
def _add_rows(lowering: Lowering, node: Expression) -> Step:
    coefficients, constant = node.data
    return lowering._add_up(coefficients, [lowering.rows[arg] for arg in node.args], constant)


@ROW_RULES.rule(RESAMPLE)
def _resample(lowering: Lowering, node: Expression) -> Step:
    """Read the source of another chunk, with its slots moved."""
    step, layout = lowering.relinearise(lowering.rows[node.args[0]]), lowering.layout
    n_chunks = max(1, layout.n_chunks)
    by = drawn_shift(node.data, layout)[0] % n_chunks
    if by and not step.is_total:
        moved = None if step.chunks is None else {(chunk - by) % n_chunks for chunk in step.chunks}
        step = lowering._step(MOVE, (step,), by, None if moved is None else frozenset(moved))
    for rotation in move_steps(node, layout):
        step = lowering._rotate(step, rotation)
    return step


@TOTAL_RULES.rule(TOTAL)
def _sum_rows(
    lowering: Lowering, node: Expression, padding: Mapping[Expression, int | None]
) -> _Total:
    row = lowering.rows[node.args[0]]
    if row.chunks is not None and not row.chunks:
        raise ArgumentError(
            "a sum in this circuit is 0 whatever the table, its factors are marked in "
            "different chunks: leave it out",
            code="disjoint-marks",
        )
    offset = -known_padding(node, padding) * lowering.layout.padding
    return _Total(lowering._step(SUM, (row,)), offset)


@TOTAL_RULES.rule(PRODUCT)
def _multiply_totals(
    lowering: Lowering, node: Expression, padding: Mapping[Expression, int | None]
) -> _Total:
    a, b = (lowering._replicated(arg) for arg in node.args)
    return _Total(lowering._multiply(a, b), each=True)


@TOTAL_RULES.rule(LINEAR)
def _add_totals(
    lowering: Lowering, node: Expression, padding: Mapping[Expression, int | None]
) -> _Total:
    coefficients, constant = node.data
    totals = [lowering.totals[arg] for arg in node.args]
    if any(total.each for total in totals):
        steps = [lowering._replicated(arg) for arg in node.args]
        return _Total(lowering._add_up(coefficients, steps, constant), each=True)
    offset = constant + sum(c * total.offset for c, total in zip(coefficients, totals, strict=True))
    return _Total(lowering._add_up(coefficients, [total.step for total in totals], 0), offset)


def _check_numbers(program: Program) -> None:
    """Refuse numbers that are added in chunks where there is no ciphertext to add them to."""
    added = [
        step
        for step in program.steps
        if step.op == ADD_UP and step.data[1] and _together(step.args) is not None
    ]
    needed = program.needed() if added else {}
    for step in added:
        every, there = (
            frozenset(range(program.layout.n_chunks)),
            _together(step.args) or frozenset(),
        )
        if any((every if chunks is None else chunks) - there for chunks in needed[step].values()):
            raise ArgumentError(
                f"{step.data[1]} is added to what is 0 wherever no slot is marked, and nothing is "
                "encrypted there: add first and "
                "mark then, or add to the total",
                code="added-outside-marks",
            )


def _together(steps: Iterable[Step]) -> Chunks:
    every: frozenset[int] = frozenset()
    for step in steps:
        if step.chunks is None:
            return None
        every |= step.chunks
    return every


def _flattened(step: Step) -> tuple[list[tuple[int, Step]], int]:
    """The terms of a sum, those of sums among them in their place, and its constant."""
    terms, constant = list[tuple[int, Step]](), step.data[1]
    for coefficient, arg in zip(step.data[0], step.args, strict=True):
        if arg.op == ADD_UP:
            inner, plain = _flattened(arg)
            terms += [(coefficient * c, term) for c, term in inner]
            constant += coefficient * plain
        else:
            terms.append((coefficient, arg))
    return terms, constant


def is_read(step: Step) -> bool:
    """Whether a step is a column, or what stands in its place, or a sum of such."""
    return all(map(is_readable, step.args)) if step.op == ADD_UP else is_readable(step)


def move_steps(node: Expression, layout: Layout) -> list[int]:
    """The rotations, one after the other, that a resampling takes; 0 swaps the half rows.

    That of a seed has a key of its own. Moves can be many, and are made up of powers of 4: a few
    more key switches, and a few keys.
    """
    _, rotation, swap = drawn_shift(node.data, layout)
    steps = [rotation] if rotation else []
    if isinstance(node.data, tuple):
        steps = [
            4**i for i in range(layout.slots.bit_length()) for _ in range(rotation >> 2 * i & 3)
        ]
    return [max(1, layout.copies // 2) * step for step in steps] + [0] * swap


def replication_steps(layout: Layout) -> list[int]:
    """Rotations that spread a sum over all slots."""
    turns = [max(1, layout.copies // 2) << i for i in range(layout.turn.bit_length() - 1)]
    return turns + [0] * (layout.copies == 1)


def rotations_needed(
    outputs: Iterable[Expression], layout: Layout, *, replicated: bool = False
) -> tuple[int, ...]:
    """The rotation keys that a worker needs for these outputs."""
    steps: set[int] = set()
    for node in in_order(outputs):
        if node.op == RESAMPLE:
            steps |= set(move_steps(node, layout))
        if replicated or node.op == REPLICATE or (node.op == PRODUCT and node.is_total):
            steps |= set(replication_steps(layout))
    return tuple(sorted(steps))


# -- from a sum to something small to download
# ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Descent:
    """How sums are brought down for packing: relinearised at one level, then switched to the primes
    of the packing context.
    """

    relinearise_at: int
    level: int
    noise: Noise

    @property
    def switches(self) -> tuple[int, int]:
        """Return the levels, whatever noise they leave."""
        return self.relinearise_at, self.level


@lru_cache(maxsize=4096)
def plan_descent(parameters: Parameters, noise: Noise) -> Descent | None:
    """The cheapest way to pack sums of this noise: the lowest level to relinearise at that is
    proven to decrypt.

    Where packs are computed on with, the lowest that leaves about as little noise as any: switching
    a ciphertext of many polynomials rounds each of them, and the rounding of the last meets a high
    power of the secret.
    """
    level = len(parameters.data_moduli) - packing_primes(parameters)
    small = packing_model(parameters, packing_primes(parameters))
    model = parameters.noise
    ways = []
    for relinearise_at in range(level, noise.level - 1, -1):
        low = model.switch(model.relinearise(model.switch(noise, relinearise_at)), level)
        packed = packed_noise(small, Noise(low.flat, low.peak))
        if small.decrypts(packed):
            ways.append(Descent(relinearise_at, level, packed))
            if parameters.kept_primes is None:
                return ways[0]
    least = min((small.coefficient_bound(way.noise) for way in ways), default=0.0)
    return next((way for way in ways if small.coefficient_bound(way.noise) <= 2 * least), None)


def plan_descents(
    parameters: Parameters, noises: Iterable[Noise]
) -> Mapping[Noise, Descent | None]:
    """Return the descent of each noise.

    More noise is never relinearised further down. So where the least and the most noise of a size
    and level descend alike, all between them do, and are not tried one by one.
    """
    kinds: dict[tuple[int, int], list[Noise]] = {}
    for noise in noises:
        kinds.setdefault((noise.size, noise.level), []).append(noise)
    found: dict[Noise, Descent | None] = {}
    for alike in kinds.values():
        least, most = (
            replace(alike[0], flat=end(n.flat for n in alike), peak=end(n.peak for n in alike))
            for end in (min, max)
        )
        first, last = plan_descent(parameters, least), plan_descent(parameters, most)
        same = first is not None and last is not None and first.switches == last.switches
        if same and parameters.kept_primes is None:
            found |= dict.fromkeys(alike, last)
        else:
            found |= {noise: plan_descent(parameters, noise) for noise in alike}
    return found


def row_descent(
    model: NoiseModel,
    noise: Noise,
    end: int | None = None,
    decrypts: Callable[[Noise], bool] | None = None,
) -> tuple[int, int]:
    """Where rows are relinearised and where they end: both as low as is proven to decrypt, or the
    latter at a given level.

    ``decrypts`` says what is proven to, where something is still to be added.
    """
    decrypts = model.decrypts if decrypts is None else decrypts
    lowest = model.levels - 1 if end is None else end
    for at in range(lowest, noise.level - 1, -1):
        low = model.relinearise(model.switch(noise, at))
        for level in range(lowest, at - 1 if end is None else end - 1, -1):
            if decrypts(model.switch(low, level)):
                return at, level
    raise NoiseError(
        "rows of this noise cannot be brought to a level where they are proven to decrypt",
        code="not-proven",
    )


def _common_factor(terms: Sequence[Step]) -> int:
    """The factor that a sum has: of its noisiest term, beside whose noise the coefficients that the
    others take are small.
    """
    first = terms[0].factor
    if all(term.factor == first for term in terms):
        return first
    return max(terms, key=lambda term: term.noise.flat).factor
