"""Lower expressions to a program.

All decisions are made here: what is relinearised, switched and rotated, and when. Proofs, prices
and devices read the program and decide nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from typing import Any, Final

from encryptedstats.circuits.clear import check_marks, check_padding, draw_shift
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
    SLOTS,
    SUM,
    SWITCH,
    Chunks,
    InterleavedMarks,
    Output,
    Program,
    Step,
    intersect_chunks,
    is_readable,
)
from encryptedstats.circuits.rules import RuleTable
from encryptedstats.crypto.noise import Noise, NoiseModel
from encryptedstats.crypto.packing import (
    flooded_unpacked_noise,
    interleaving_power,
    packed_noise,
    packing_model,
    packing_primes,
)
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.errors import ArgumentError, NoiseError


@dataclass(frozen=True)
class Strategy:
    """Whether operands are relinearised and switched down before each product.

    Without it, a product of k factors has k + 1 polynomials and stays under the full modulus. For
    BGV this is by far the cheapest strategy while it fits.
    """

    relinearise: bool


#: Given totals that are multiplied at a time; each takes a few megabytes.
_TOGETHER: Final = 64
FLAT = Strategy(relinearise=False)
LEVELLED = Strategy(relinearise=True)


@dataclass(frozen=True)
class Schedule:
    """How a circuit is lowered: its strategy, the level of its columns, and the form of results.

    ``width`` totals are packed into a ciphertext, ``n_interleaved`` of which share one before
    modulus switching. ``end`` is the level of results over rows, by default the lowest possible.
    ``flooded`` rows leave room for the flooding of the members of a joint key.
    """

    strategy: Strategy
    level: int = 0
    width: int = 1
    end: int | None = None
    flooded: bool = False
    n_interleaved: int = 1


@dataclass(frozen=True)
class Setting:
    """The inputs of lowering and noise bounds, besides the outputs.

    Attributes
    ----------
    parameters : Parameters
    layout : Layout
    with_secret_key : bool
        Whether the owner encrypted the rows.
    form : "packed", "replicated", "slots" or "rows"
    packs : tuple of (str, Noise)
        The noise of given packs by name, at the level of the primes that packs keep.
    n_interleaved : int, optional
        How many totals are interleaved; by default as many as the parameters have copies.
    flooded : bool, optional
        Whether results are flooded in the end; by default if others encrypted the rows.
    level : int
        The level of columns.
    end : int, optional
        The level of results over rows; by default the lowest possible.
    """

    parameters: Parameters
    layout: Layout
    with_secret_key: bool = True
    form: str = PACKED
    packs: tuple[tuple[str, Noise], ...] = ()
    n_interleaved: int | None = None
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

    def count_interleaved(self) -> int:
        """Return how many totals are interleaved.

        Rows of contributors are not interleaved, nor totals whose modulus switching leaves
        correction factors, because totals of different degree have different ones.
        """
        if self.n_interleaved is not None:
            return self.n_interleaved
        parameters = self.parameters
        able = parameters.scheme == "bgv" and not parameters.has_factors
        wanted = self.with_secret_key and (self.form == PACKED or bool(self.packs))
        return parameters.copies if able and wanted else 1

    def schedule(self, strategy: Strategy) -> Schedule:
        """Return the schedule for a strategy, with one total in a pack."""
        is_flooded = self.floods and self.form == ROWS
        n_interleaved = self.count_interleaved()
        return Schedule(
            strategy, self.level, end=self.end, flooded=is_flooded, n_interleaved=n_interleaved
        )


def lower(
    outputs: Sequence[Expression],
    setting: Setting,
    schedule: Schedule,
    *,
    held: int = HELD,
    places: Mapping[str, Sequence[int]] | None = None,
) -> Program:
    """Lower outputs to a program.

    Parameters
    ----------
    outputs : expressions
        Totals; in the form of rows, expressions over rows.
    setting : Setting
    schedule : Schedule
    held : int
        Bytes of given totals that may be held at once.
    places : mapping, optional
        The places of given totals in their packs, by name; in order, by default.

    Raises
    ------
    NoiseError
        If totals cannot be switched to the primes of packs, or rows to their level.
    ArgumentError
        If a plain number is added where no slot is encrypted.
    """
    lowering = Lowering(setting.rules, setting, schedule, places)
    program = lowering.finish(setting.form, lowering.outputs(outputs), schedule.width, held)
    _check_numbers(program)
    return program


@dataclass(frozen=True)
class _Total:
    """A total: the sum over the slots of ``step`` plus ``offset``; or, with ``each``, the value
    that every slot holds.
    """

    step: Step
    offset: int = 0
    each: bool = False


@dataclass(frozen=True)
class _SumOverGiven:
    """An output as a sum over given totals times their factors, plus a rest without
    given totals.
    """

    factors: dict[Expression, Expression]
    rest: Expression | int

    @property
    def needed(self) -> list[Expression]:
        """Return the expressions that it is computed from."""
        return [*self.factors.values(), *([self.rest] if isinstance(self.rest, Expression) else [])]


class Lowering:
    """Lowers one circuit. The steps of a node follow from the node alone, never from others."""

    def __init__(
        self,
        rules: NoiseRules,
        setting: Setting,
        schedule: Schedule,
        places: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        self.rules, self.layout, self.schedule = rules, setting.layout, schedule
        self.packs, self.places = dict(setting.packs), places or {}
        # Equal totals share a place in their packs, and are expanded once: as the first of them.
        self._first_at = {
            name: {place: number for number, place in reversed(list(enumerate(some)))}
            for name, some in self.places.items()
        }
        self.rows: dict[Expression, Step] = {}
        self.totals: dict[Expression, _Total] = {}
        self._spread: dict[Expression, Step] = {}
        self._known: dict[Any, Step] = {}
        self._uses: Counter[Step] = Counter()  # in how many products a read step occurs

    def outputs(self, outputs: Sequence[Expression]) -> list[Output]:
        """Lower the outputs, without their final form."""
        padding, sums = padding_value(outputs), self._sums_over_given(outputs)
        for node in in_order(needed for output in outputs for needed in sums[output].needed):
            if node.is_total:
                self.totals[node] = TOTAL_RULES[node.op](self, node, padding)
            else:
                self.rows[node] = ROW_RULES[node.op](self, node)
        self._count_uses(self.rows.values())
        return [self._output(node, sums[node]) for node in outputs]

    def _sums_over_given(self, outputs: Sequence[Expression]) -> dict[Expression, _SumOverGiven]:
        """Write outputs over rows as sums over given totals, if totals are interleaved.

        An output that is not linear in all packs is split by the largest packs in which it is.
        """
        found = {output: _SumOverGiven({}, output) for output in outputs}
        if self.schedule.n_interleaved == 1:
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
        """Multiply and add given totals, all interleaved ones of a ciphertext at once.

        Each factor is shifted by the inverse of its total's power of X. So the product holds the
        sum in every copy, and otherwise only terms that cancel over the copies: see
        ``Encoder.decode``.
        """
        n_interleaved, ring = self.schedule.n_interleaved, self.rules.parameters.ring_degree
        groups: dict[tuple[int, str, int], list[tuple[int, Step]]] = {}
        for node, factor in over.factors.items():
            name, number = node.data
            place = self.places[name][number] if name in self.places else number
            for when, row in self._pieces(self.rows[factor]):
                groups.setdefault((when, name, place // n_interleaved), []).append(
                    (place % n_interleaved, row)
                )
        terms = []
        for (_, name, group), parts in sorted(groups.items(), key=lambda entry: entry[0]):
            powers = [interleaving_power(place, n_interleaved, ring) for place, _ in parts]
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
            terms.append(
                self._multiply(row, self._expand(name, group, n_interleaved.bit_length() - 1))
            )
        if isinstance(over.rest, Expression):
            terms += [row for _, row in self._pieces(self.rows[over.rest])]
        constant = over.rest if isinstance(over.rest, int) else 0
        return (
            self._add_up((1,) * len(terms), terms, constant)
            if constant or len(terms) > 1
            else terms[0]
        )

    def _pieces(self, row: Step) -> list[tuple[int, Step]]:
        """Split a sum with given totals among its terms, so that few of them are held at once."""
        if row.op != ADD_UP or not any(step.op == EXPAND for step in in_order([row])):
            return [(0, row)]
        terms, constant = _flatten(row)
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

    def _expand(self, name: str, number: int, start: int = 0) -> Step:
        if not start and name in self.places:
            number = self._first_at[name][self.places[name][number]]
        packs = self._step(GIVEN, (), (name, start), noise=self.packs[name])
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
        """Return the instruction with this content, made only once.

        Its noise follows from the rules if it is not passed.
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
        """Return the correction factor of a step; all terms of a sum have been brought to one."""
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
        """Switch a step to a level."""
        if step.level == level:
            return step
        return self._step(SWITCH, (step,), level, step.chunks)

    def relinearise(self, step: Step) -> Step:
        """Relinearise a step that has more than two polynomials."""
        if step.size == 2:
            return step
        return self._step(RELINEARISE, (step,), None, step.chunks)

    def _add_up(self, coefficients: Sequence[int], steps: Sequence[Step], constant: int) -> Step:
        level = max(step.level for step in steps)
        args = tuple(self.switch(step, level) for step in steps)
        chunks, noise = None if constant else _together(args), None
        if any(arg.factor != 1 for arg in args):
            common = _common_factor(args)
            # Terms of lower degree have other factors, and so much less noise that coefficients of
            # any size hardly matter. Each is charged as t/2, so that equal shapes have equal noise.
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
        if self.schedule.strategy.relinearise:
            a, b = self.relinearise(a), self.relinearise(b)
            level = self.rules.model.best_product_level(a.noise, b.noise)
        a, b = self.switch(a, level), self.switch(b, level)
        return self._step(MULTIPLY, (a, b), None, intersect_chunks(a.chunks, b.chunks))

    def _shift(self, step: Step, by: int) -> Step:
        """Multiply a step by a power of X, which changes no noise.

        In a product one factor is shifted, in a sum each term, down to the steps that are read.
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
        """Shift a sum; the terms that are read, and the constant, are shifted as one."""
        terms, constant = _flatten(step)
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
        """Return the factor that is shifted for the product: a computed one, or the
        most frequent.
        """
        return max(product.args, key=lambda arg: (not is_read(arg), self._uses[arg]))

    def _rotate(self, step: Step, by: int) -> Step:
        return self._step(ROTATE, (step,), by, step.chunks)

    def _replicate(self, node: Expression) -> Step:
        """Return a total in every slot, by log2 N rotations and additions."""
        if node not in self._spread:
            total = self.totals[node]
            self._spread[node] = (
                total.step if total.each else self._rotate_and_add(total.step, total.offset)
            )
        return self._spread[node]

    def _rotate_and_add(self, total: Step, offset: int) -> Step:
        step = self.relinearise(total)
        for rotation in replication_steps(self.layout):
            step = self._add_up((1, 1), (step, self._rotate(step, rotation)), 0)
        return self._add_up((1,), (step,), offset) if offset else step

    # -- the form of the results
    # --------------------------------------------------------------------------------------------

    def finish(
        self, form: str, outputs: Sequence[Output], width: int = 1, held: int = HELD
    ) -> Program:
        """Return the program that gives the outputs in a form."""
        parameters = self.rules.parameters
        if form == PACKED:
            return self._pack(outputs, width, held)
        if form == ROWS:
            model, steps = parameters.noise, [output.step for output in outputs]
            batches, whole = batches_of_rows(steps, parameters, held, self._add_up)
            ends = [self.reduce_row(model, whole[step]) for step in steps]
            return Program(
                parameters,
                self.layout,
                form,
                tuple(map(Output, ends)),
                batches=batches,
                n_interleaved=self.schedule.n_interleaved,
            )
        if form == REPLICATED:
            outputs = [
                output
                if output.each
                else Output(self._rotate_and_add(output.step, output.offset), each=True)
                for output in outputs
            ]
        n_interleaved, places = 1, list[int]()
        if form == SLOTS and self.schedule.n_interleaved > 1:
            n_interleaved = self.schedule.n_interleaved
            groups, places = self.interleave(outputs)
            outputs = [
                replace(output, step=groups[place // n_interleaved])
                for place, output in zip(places, outputs, strict=True)
            ]
        done = [
            Output(self.relinearise(output.step), output.offset, output.each) for output in outputs
        ]
        batches = batches_of_totals([output.step for output in done], parameters, held)
        return Program(
            parameters,
            self.layout,
            form,
            tuple(done),
            batches=batches,
            n_interleaved=n_interleaved,
            places=tuple(places),
        )

    def interleave(self, outputs: Sequence[Output]) -> tuple[list[Step], list[int]]:
        """Return the interleaved totals, and the place of each output among them."""
        parameters, count = self.rules.parameters, self.schedule.n_interleaved
        steps = [output.step for output in outputs]
        places = self._places(steps, parameters.copies)
        placed = [
            step for _, step in sorted(zip(places, steps, strict=True), key=lambda entry: entry[0])
        ]
        whole = [
            self._interleave(placed[i : i + count], parameters)
            for i in range(0, len(placed), count)
        ]
        return whole, places

    def _pack(self, outputs: Sequence[Output], width: int, held: int) -> Program:
        """Interleave totals, switch them to the primes of the packing context, and pack them."""
        parameters, n_interleaved = self.rules.parameters, self.schedule.n_interleaved
        whole, places = self.interleave(outputs)
        descents = plan_descents(parameters, {step.noise for step in whole})
        low = []
        for step in whole:
            descent = descents[step.noise]
            if descent is None:
                raise NoiseError("totals of this noise cannot be packed", code="not-packable")
            relinearised = self.relinearise(self.switch(step, descent.relinearise_at))
            low.append(self.switch(relinearised, descent.level))
        packs, in_pack = [], max(1, width // n_interleaved)
        for start in range(0, len(low), in_pack):
            args = tuple(low[start : start + in_pack])
            noise = NOISE[PACK](self.rules, args, None, 0)
            packs.append(Step(PACK, args, None, noise, is_total=True))
        done = [
            Output(low[place // n_interleaved], output.offset, output.each)
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
            n_interleaved,
            tuple(places),
        )

    def _places(self, totals: Sequence[Step], copies: int) -> list[int]:
        """Return the place of each total in the packs.

        Neighbours with common products, such as the branches of a node, are shifted alike and go to
        different ciphertexts. The places do not depend on how many totals are interleaved.
        """
        if copies == 1:
            return list(range(len(totals)))
        self._count_uses(in_order(totals))
        free = [len(range(shift, len(totals), copies)) for shift in range(copies)]
        next_places, places = list(range(copies)), list[int]()
        for _, family in groupby(totals, self._root):
            shift = free.index(max(free))
            for _ in family:
                if not free[shift]:  # the last totals take any free place
                    shift = free.index(max(free))
                places.append(next_places[shift])
                next_places[shift] += copies
                free[shift] -= 1
        return places

    def _root(self, step: Step) -> Step:
        """Return the operand that identifies a total's shift group.

        It is the factor of the first product that is not shifted. So the same sums of several
        classes are shifted alike, and a prediction treats all classes alike.
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

    def _interleave(self, totals: Sequence[Step], parameters: Parameters) -> Step:
        """Add up totals in one ciphertext, each times another power of X."""
        copies, ring = self.schedule.n_interleaved, parameters.ring_degree
        if copies == 1:
            return totals[0]
        powers = [interleaving_power(number, copies, ring) for number in range(len(totals))]
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
            steps.append(self._interleave_marks(row, chunk, parts))
        return self._add_up((1,) * len(steps), steps, 0)

    def _interleave_marks(self, row: Step, chunk: int, parts: Sequence[tuple[Marks, int]]) -> Step:
        """Multiply a row by one public polynomial for all totals of its marked slots."""
        chunks = intersect_chunks(frozenset((chunk,)), row.chunks)
        masked = self._step(MASK, (row,), InterleavedMarks(tuple(parts)), chunks)
        return self._step(SUM, (masked,))

    def reduce_row(self, model: NoiseModel, step: Step) -> Step:
        """Relinearise and switch a result over rows to the form in which it is stored."""
        parameters, flooded = self.rules.parameters, self.schedule.flooded
        at, level = row_descent(
            model,
            step.noise,
            self.schedule.end,
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
    return lowering.switch(lowering._step(node.op, (), node.data), lowering.schedule.level)


ROW_RULES.rule(GIVEN)(lambda lowering, node: lowering._expand(*node.data))
ROW_RULES.rule(REPLICATE)(lambda lowering, node: lowering._replicate(node.args[0]))


@ROW_RULES.rule(MASK)
def _mask(lowering: Lowering, node: Expression) -> Step:
    row = lowering.rows[node.args[0]]
    check_marks(node.data, lowering.layout)
    chunks = intersect_chunks(frozenset((node.data.chunk,)), row.chunks)
    # A row is often marked many times: relinearise it once before, not once after each.
    marked = lowering.relinearise(row) if lowering.schedule.strategy.relinearise else row
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
    """Read another chunk, with its slots moved."""
    step, layout = lowering.relinearise(lowering.rows[node.args[0]]), lowering.layout
    n_chunks = max(1, layout.n_chunks)
    by = draw_shift(node.data, layout)[0] % n_chunks
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
            "a sum in this circuit is 0 for every table, because its factors are marked in "
            "different chunks: leave it out",
            code="disjoint-marks",
        )
    offset = -check_padding(node, padding) * lowering.layout.padding
    return _Total(lowering._step(SUM, (row,)), offset)


@TOTAL_RULES.rule(PRODUCT)
def _multiply_totals(
    lowering: Lowering, node: Expression, padding: Mapping[Expression, int | None]
) -> _Total:
    a, b = (lowering._replicate(arg) for arg in node.args)
    return _Total(lowering._multiply(a, b), each=True)


@TOTAL_RULES.rule(LINEAR)
def _add_totals(
    lowering: Lowering, node: Expression, padding: Mapping[Expression, int | None]
) -> _Total:
    coefficients, constant = node.data
    totals = [lowering.totals[arg] for arg in node.args]
    if any(total.each for total in totals):
        steps = [lowering._replicate(arg) for arg in node.args]
        return _Total(lowering._add_up(coefficients, steps, constant), each=True)
    offset = constant + sum(c * total.offset for c, total in zip(coefficients, totals, strict=True))
    return _Total(lowering._add_up(coefficients, [total.step for total in totals], 0), offset)


def _check_numbers(program: Program) -> None:
    """Refuse numbers that are added in chunks without a ciphertext to add them to."""
    added = [
        step
        for step in program.steps
        if step.op == ADD_UP and step.data[1] and _together(step.args) is not None
    ]
    needed = program.find_needed_chunks() if added else {}
    for step in added:
        every, there = (
            frozenset(range(program.layout.n_chunks)),
            _together(step.args) or frozenset(),
        )
        if any((every if chunks is None else chunks) - there for chunks in needed[step].values()):
            raise ArgumentError(
                f"{step.data[1]} is added to a masked row, which has no ciphertext in chunks "
                "without marks: add it before masking, or to the total",
                code="added-outside-marks",
            )


def _together(steps: Iterable[Step]) -> Chunks:
    every: frozenset[int] = frozenset()
    for step in steps:
        if step.chunks is None:
            return None
        every |= step.chunks
    return every


def _flatten(step: Step) -> tuple[list[tuple[int, Step]], int]:
    """Return the terms of a sum, with nested sums replaced by their terms, and its constant."""
    terms, constant = list[tuple[int, Step]](), step.data[1]
    for coefficient, arg in zip(step.data[0], step.args, strict=True):
        if arg.op == ADD_UP:
            inner, plain = _flatten(arg)
            terms += [(coefficient * c, term) for c, term in inner]
            constant += coefficient * plain
        else:
            terms.append((coefficient, arg))
    return terms, constant


def is_read(step: Step) -> bool:
    """Return whether a step is read rather than computed: a column or the like, or a
    sum of them.
    """
    return all(map(is_readable, step.args)) if step.op == ADD_UP else is_readable(step)


def move_steps(node: Expression, layout: Layout) -> list[int]:
    """Return the rotations of a resampling in order; 0 swaps the half rows.

    The rotation of a seed has its own key. Moves can be many, so they are composed of powers of 4,
    which takes a few more key switches and far fewer keys.
    """
    _, rotation, swap = draw_shift(node.data, layout)
    steps = [rotation] if rotation else []
    if isinstance(node.data, tuple):
        steps = [
            4**i for i in range(layout.slots.bit_length()) for _ in range(rotation >> 2 * i & 3)
        ]
    return [max(1, layout.copies // 2) * step for step in steps] + [0] * swap


def replication_steps(layout: Layout) -> list[int]:
    """Return the rotations that spread a sum over all slots."""
    turns = [max(1, layout.copies // 2) << i for i in range(layout.turn.bit_length() - 1)]
    return turns + [0] * (layout.copies == 1)


def rotations_needed(
    outputs: Iterable[Expression], layout: Layout, *, replicated: bool = False
) -> tuple[int, ...]:
    """Return the rotations for which a worker needs keys."""
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
    """The levels at which sums are relinearised and packed, and the noise that this leaves."""

    relinearise_at: int
    level: int
    noise: Noise

    @property
    def switches(self) -> tuple[int, int]:
        """Return the two levels."""
        return self.relinearise_at, self.level


@lru_cache(maxsize=4096)
def plan_descent(parameters: Parameters, noise: Noise) -> Descent | None:
    """Return the cheapest proven descent for sums of this noise; None if there is none.

    It relinearises at the lowest level that is proven to decrypt. If later stages compute with the
    packs, it takes the lowest level that leaves about as little noise as any: switching a
    ciphertext of many polynomials rounds each of them, and the last is multiplied by a high power
    of the secret.
    """
    level = len(parameters.data_moduli) - packing_primes(parameters)
    small = packing_model(parameters, packing_primes(parameters))
    model = parameters.noise
    choices = []
    for relinearise_at in range(level, noise.level - 1, -1):
        low = model.switch(model.relinearise(model.switch(noise, relinearise_at)), level)
        packed = packed_noise(small, Noise(low.flat, low.peak))
        if small.decrypts(packed):
            choices.append(Descent(relinearise_at, level, packed))
            if parameters.kept_primes is None:
                return choices[0]
    least = min((small.coefficient_bound(schedule.noise) for schedule in choices), default=0.0)
    return next(
        (schedule for schedule in choices if small.coefficient_bound(schedule.noise) <= 2 * least),
        None,
    )


def plan_descents(
    parameters: Parameters, noises: Iterable[Noise]
) -> Mapping[Noise, Descent | None]:
    """Return the descent of each noise.

    More noise is never relinearised at a lower level. So if the least and the most noise of a size
    and level descend alike, all between them do, and are not tried.
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
    """Return the levels at which rows are relinearised and stored, as low as is proven to decrypt.

    ``end`` fixes the second level. ``decrypts`` replaces the proof if noise is still to be added.
    """
    decrypts = model.decrypts if decrypts is None else decrypts
    lowest = model.levels - 1 if end is None else end
    for at in range(lowest, noise.level - 1, -1):
        low = model.relinearise(model.switch(noise, at))
        for level in range(lowest, at - 1 if end is None else end - 1, -1):
            if decrypts(model.switch(low, level)):
                return at, level
    raise NoiseError(
        "rows of this noise cannot be switched to a level where they are proven to decrypt",
        code="not-proven",
    )


def _common_factor(terms: Sequence[Step]) -> int:
    """Return the factor of the noisiest term, so that only less noisy terms are multiplied."""
    first = terms[0].factor
    if all(term.factor == first for term in terms):
        return first
    return max(terms, key=lambda term: term.noise.flat).factor
