"""Rows of one table beside totals of another: a circuit over columns and packed totals, evaluated for every row.

This is how a model predicts that nobody has opened. Its totals lie in packs; each is expanded into all slots of a ciphertext (about
one key switch a total), some at a time, and combined with the columns of the new rows; then it is forgotten. What a circuit calls
:func:`given` is such a total. An expanded total carries a factor that is known (1/N, modulo t): rather than multiplying it away,
which would cost noise, the factor is followed through the circuit and taken off by the owner.

What comes back holds answers and nothing else. Slots without a row are 0 (:func:`cleared`). Where the model is plain, its numbers
are coefficients, and what is stored in the clear is the same for every model: an encryption of each answer's plain number is added,
so that nobody but the owner can tell the coefficients from the ciphertexts, and the level and noise that go with them are those of
the parameters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import numpy as np

from encryptedstats.circuits.bounds import ColumnRange, Interval
from encryptedstats.circuits.evaluate import check_bounds, choose_engine
from encryptedstats.circuits.expressions import (
    COLUMN,
    LINEAR,
    PRODUCT,
    Expression,
    column,
    combination,
    fold,
    in_order,
    linear,
)
from encryptedstats.circuits.fused import Evaluator, sum_noises
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.lowered import switched_residues
from encryptedstats.circuits.noise import SLOTS, NoiseReport, read_noise
from encryptedstats.circuits.packs import check_packed, expand_totals, expanded_noises, expansion_scales
from encryptedstats.circuits.results import EncryptedTotals, Part
from encryptedstats.circuits.rows import EncryptedRows, RowFacts
from encryptedstats.circuits.seal import SealMachine, Source, relinearise_any
from encryptedstats.circuits.walk import Strategy, Walk
from encryptedstats.crypto.engine import engine_for
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.crypto.noise import Noise, NoiseModel
from encryptedstats.crypto.packing import centred, first_primes
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.crypto.residues import Residues, ciphertext_of, residues_of
from encryptedstats.crypto.vectors import encrypt_slots
from encryptedstats.errors import Cure, NoiseError
from encryptedstats.memory import default_limit
from encryptedstats.parallel import checked_workers, cores
from encryptedstats.progress import progress_bar

_GIVEN: Final = re.compile(r"(\w+)\[(\d+)\]")
_HELD: Final = 256 << 20  # bytes of expanded totals that a batch may hold beside what all batches need
HERE: Final = (
    "here:"  # how columns are called that are no column of a table, but encrypted with the public key where rows are
)
_FLOOR: Final = 3.0  # bits that rounding has to leave at the level that plain models' answers are stored at ...
_ROOM: Final = 1.5  # ... so that what has these bits left is still proven to decrypt there: 2^-3 + 2^-1.5 < 1/2


def given(name: str, index: int) -> Expression:
    """Total number ``index`` of the packs called ``name``, in every row.

    >>> given("model", 3) * column("v0.bin1")
    model[3] * v0.bin1
    """
    return column(f"{name}[{index}]")


def totals_of(outputs: Sequence[Expression]) -> dict[str, tuple[str, int]]:
    """The columns of a circuit that are given totals: which number of which packs."""
    found = {}
    for node in in_order(outputs):
        match = _GIVEN.fullmatch(node.data) if node.op == COLUMN else None
        if match:
            found[node.data] = (match[1], int(match[2]))
    return found


# -- padding --------------------------------------------------------------------------------------------------------------


def cleared(
    outputs: Sequence[Expression | int], ones: Expression | None = None
) -> tuple[list[Expression], dict[str, int]]:
    """Every output as it is in the rows, and 0 in padding slots; and what number is in all rows of the columns made for that.

    Columns are 0 in padding, so most terms of a sum are; given totals and plain numbers are not, and are multiplied by ``ones``,
    which is 1 in every row: all bins of a variable, say, so that the same rows give the same ciphertexts; by default it is
    encrypted where it is needed. An output without given totals has a column of its own for its plain number, 0 included: fresh
    encryptions that hide the coefficients of the others.

    >>> outputs, numbers = cleared([given("model", 0) + given("model", 1) * column("v0.bin1"), column("v0.bin1") - 7, 5])
    >>> outputs[0], numbers["here:one"]
    (model[1] * v0.bin1 + model[0] * here:one, 1)
    >>> outputs[1:], numbers["here:answer1"], numbers["here:answer2"]
    ([v0.bin1 + here:answer1, here:answer2], -7, 5)
    """
    made = column(f"{HERE}one")
    clearing = _Clearing([output for output in outputs if isinstance(output, Expression)], ones or made)
    found, numbers = [], {}
    for number, output in enumerate(outputs):
        terms, constant = ([], output) if isinstance(output, int) else clearing.parted(output)
        done: Expression | int = 0
        if isinstance(output, Expression) and clearing.is_given[output]:
            done = combination([*terms, (constant, clearing.ones)])
        if isinstance(done, int):
            name = f"{HERE}answer{number}"
            numbers[name] = constant
            done = linear([*terms, (1, column(name))])
        found.append(done)
    if made in set(in_order(found)):
        numbers[made.data] = 1
    return found, numbers


class _Clearing:
    """What some circuits are in padding slots, and how they are written so that it is 0."""

    def __init__(self, outputs: Sequence[Expression], ones: Expression) -> None:
        self.ones = ones
        totals = totals_of(outputs)

        def vanishes(node: Expression, args: list[bool]) -> bool:
            if node.op == COLUMN:
                return node.data not in totals
            return any(args) if node.op == PRODUCT else node.op == LINEAR and not node.data[1] and all(args)

        def is_mixed(node: Expression, args: list[bool]) -> bool:
            if self.vanishes[node]:
                return False
            return any(args) or (node.op == LINEAR and any(self.vanishes[arg] for arg in node.args))

        self.vanishes = fold(outputs, vanishes)
        self.is_mixed = fold(outputs, is_mixed)  # not 0 in padding, but a part of it is
        self.is_given = fold(outputs, lambda node, args: any(args) or (node.op == COLUMN and node.data in totals))

    def parted(self, node: Expression, times: int = 1) -> tuple[list[tuple[int, Expression]], int]:
        """A node times a number: terms that are 0 in padding, and the plain number that is left."""
        if self.vanishes[node]:
            return [(times, node)], 0
        if not self.is_mixed[node]:
            return [(times, node * self.ones)], 0
        if node.op == PRODUCT:
            mixed, other = node.args if self.is_mixed[node.args[0]] else node.args[::-1]
            terms, constant = self.parted(mixed)
            return [(times, linear([*terms, (constant, self.ones)]) * other)], 0
        coefficients, constant = node.data
        terms, same = [], []  # in all slots alike, so that one product does for all of these
        for coefficient, arg in zip(coefficients, node.args, strict=True):
            if self.vanishes[arg] or self.is_mixed[arg]:
                more, plain = self.parted(arg, coefficient)
                terms += more
                constant += plain
            else:
                same.append((coefficient, arg))
        shared = combination(same, constant)
        if isinstance(shared, int):
            return [(times * c, term) for c, term in terms], times * shared
        return [(times * c, term) for c, term in [*terms, (1, shared * self.ones)]], 0


# -- the factors of expanded totals ------------------------------------------------------------------------------------------


def followed(
    outputs: Sequence[Expression], factors: Mapping[str, int], t: int, offsets: Mapping[str, int] | None = None
) -> list[tuple[Expression, int]]:
    """Every output as it comes out when columns are multiplied by factors modulo t, and the factor it then has itself.

    Where terms of a sum have different factors, or there is a plain number among them, the smallest coefficients make up for it.
    ``offsets`` are what columns lack (before they are multiplied): what padding has added to a total is taken off here.
    """
    missing = offsets or {}

    def rule(node: Expression, args: list[tuple[Expression, int]]) -> tuple[Expression, int]:
        if node.op == COLUMN:
            factor = factors.get(node.data, 1)
            lacks = missing.get(node.data, 0)
            return (linear([(1, node)], centred(lacks * factor, t)) if lacks else node), factor
        if node.op == PRODUCT:
            return args[0][0] * args[1][0], args[0][1] * args[1][1] % t
        if node.op != LINEAR:
            raise TypeError(f"{node!r} cannot be computed beside given totals")
        coefficients, constant = node.data
        factors_here = list(dict.fromkeys(factor for _, factor in args))
        ways = [_with_factor(common, coefficients, args, t) for common in factors_here]
        terms, common = min(ways, key=lambda way: max(abs(c) for c, _ in way[0]))
        return linear(terms, constant if common == 1 else centred(constant * common, t)), common

    values = fold(outputs, rule)
    return [values[output] for output in outputs]


def _with_factor(
    common: int, coefficients: Sequence[int], args: Sequence[tuple[Expression, int]], t: int
) -> tuple[list[tuple[int, Expression]], int]:
    """The terms of a sum, with coefficients that bring all of them to one factor: large ones cost noise."""
    pairs = zip(coefficients, args, strict=True)
    return [(c if f == common else centred(c * common * pow(f, -1, t), t), term) for c, (term, f) in pairs], common


# -- proof ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class JoinedProof:
    """That rows beside totals decrypt: at which level they are computed, how, and what to do with the results."""

    level: int
    noises: dict[str, Noise]  # of the columns and totals, at the level
    report: NoiseReport


def prove_joined(
    outputs: Sequence[Expression],
    parameters: Parameters,
    layout: Layout,
    totals: Mapping[str, Noise],
    *,
    with_secret_key: bool = True,
    quick: bool = False,
) -> JoinedProof:
    """The proof for a circuit over fresh columns and given totals of known noise; without totals, at the lowest level that has one.

    Without totals the numbers of a model are coefficients. Then there must be room to store the results at the level where those
    of any such model are.

    ``quick`` as of :func:`encryptedstats.circuits.noise.read_noise`.

    Raises
    ------
    NoiseError
        Where there is none.
    """
    model = parameters.noise
    names = [node.data for node in in_order(outputs) if node.op == COLUMN]
    levels = [max(noise.level for noise in totals.values())] if totals else range(resting_level(model), -1, -1)
    failure: NoiseError | None = None
    for level in levels:
        own = model.switch(model.fresh(with_secret_key=with_secret_key), level)
        here = model.switch(model.fresh(with_secret_key=False), level)
        noises = {name: totals.get(name, here if name.startswith(HERE) else own) for name in names}
        try:
            report = read_noise(
                outputs,
                parameters,
                layout,
                with_secret_key=with_secret_key,
                form=SLOTS,
                known=noises,
                quick=quick,
            )
        except NoiseError as error:
            failure = error
        else:
            if totals or report.budget >= _ROOM:
                return JoinedProof(level, noises, report)
            failure = NoiseError(f"not proven to decrypt with {_ROOM} bits to spare")
    raise failure or NoiseError("a circuit without columns")


def resting_level(model: NoiseModel) -> int:
    """Where answers of plain models are stored: as few primes as leave room above what rounding does to any ciphertext."""
    levels = range(model.levels - 1, 0, -1)
    return next((level for level in levels if model.budget(model.rounded(2, level)) >= _FLOOR), 0)


def _any_noise(model: NoiseModel) -> Noise:
    """As much noise as is proven to decrypt at the resting level: what is said of every plain model's answers."""
    level = resting_level(model)
    return Noise(2.0 ** (model.budget(Noise(1.0, level=level)) - 1.001), level=level)


# -- evaluating -----------------------------------------------------------------------------------------------------------


def evaluate_joined(
    outputs: Sequence[Expression | int],
    bounds: Sequence[Interval],
    source: Source,
    packs: Mapping[str, EncryptedTotals],
    *,
    ones: Expression | None = None,
    told: Sequence[Interval] | None = None,
    workers: int | None = None,
    progress: bool | None = None,
    engine: str = "auto",
    memory_limit: int | None = None,
) -> EncryptedRows:
    """The encrypted numbers of every row. Checked before anything is computed: bounds against t, noise against q.

    Parameters
    ----------
    outputs : expressions over columns of the source and :func:`given` totals, or plain numbers
    bounds : intervals
        Between which each output is known to lie.
    source : an encrypted table
    packs : mapping
        The totals by the name that the circuit gives them. Without any, coefficients are not told apart by what comes back.
    ones : expression, optional
        As of :func:`cleared`.
    told : intervals, optional
        What the result says of its numbers, where that is to be less than is known here.
    workers, progress, engine, memory_limit
        As of :func:`encryptedstats.circuits.evaluate.evaluate`.
    """
    workers = checked_workers(workers)
    ready = prepare_joined(outputs, bounds, source, packs, ones)
    circuits, proof = [circuit for circuit, _ in ready.scaled], ready.proof
    limit = default_limit() if memory_limit is None else memory_limit
    job = _Job(source, proof, packs, ready.used, ready.numbers, workers, limit)
    totals = [circuit.total() for circuit in circuits]
    fused = choose_engine(engine, totals, source.parameters, proof.report.strategy)
    parts = job.run(circuits, fused=fused, progress=progress)
    pairs = zip(told or bounds, ready.scaled, strict=True)
    facts = [RowFacts(bound.low, bound.high, factor) for bound, (_, factor) in pairs]
    return EncryptedRows(source.keys, facts, source.layout.counts, parts)


@dataclass(frozen=True)
class Prepared:
    """A circuit that may be evaluated: the given totals it uses, the numbers that are encrypted for it, its outputs with the
    factors they get, and the proof."""

    used: dict[str, tuple[str, int]]
    numbers: dict[str, int]
    scaled: list[tuple[Expression, int]]
    proof: JoinedProof


def prepare_joined(
    outputs: Sequence[Expression | int],
    bounds: Sequence[Interval],
    source: Source,
    packs: Mapping[str, EncryptedTotals],
    ones: Expression | None = None,
) -> Prepared:
    """All checks of :func:`evaluate_joined`; no row is read for them."""
    keys, parameters = source.keys, source.parameters
    for totals in packs.values():
        keys.check_same(totals.keys)
        check_packed(totals)
    check_bounds(outputs, [bound.largest for bound in bounds], parameters)
    clear, numbers = cleared(outputs, ones)
    used = totals_of(clear)
    scales = {name: expansion_scales(totals) for name, totals in packs.items()}
    noises = {name: expanded_noises(totals) for name, totals in packs.items()}
    factors = {key: scales[name][k] for key, (name, k) in used.items()}
    offsets = {key: packs[name].facts[k].offset for key, (name, k) in used.items()}
    scaled = followed(clear, factors, parameters.plain_modulus, offsets)
    expanded = {key: noises[name][k] for key, (name, k) in used.items()}
    return Prepared(used, numbers, scaled, _proof([circuit for circuit, _ in scaled], source, expanded))


def _proof(circuits: Sequence[Expression], source: Source, totals: Mapping[str, Noise]) -> JoinedProof:
    parameters = source.parameters
    try:
        return prove_joined(circuits, parameters, source.layout, totals, with_secret_key=source.with_secret_key)
    except NoiseError as error:
        if totals and parameters.kept_primes is None:
            raise NoiseError(
                f"totals that were packed with {parameters!r} are to be opened, not to be computed on with: make keys for a "
                "model that predicts unopened, ",
                Cure("keys that predict", "es.Owner(es.plan(..., encrypted_prediction=True))"),
                ", and encrypt with those",
            ) from error
        raise NoiseError(f"{error}. ", *_why_unproven(circuits, source, totals)) from error


def _why_unproven(
    circuits: Sequence[Expression], source: Source, totals: Mapping[str, Noise]
) -> tuple[str | Cure, ...]:
    """Why keys do not carry a prediction; often they were planned for rows that the secret key encrypts, and others did."""
    others = Cure("plan for others", "es.plan(..., encrypted_prediction=True, by_others=True)")
    if not source.with_secret_key:
        with suppress(NoiseError):
            prove_joined(circuits, source.parameters, source.layout, totals, with_secret_key=True)
            return (
                "The cause: these rows were encrypted with public keys, which makes more noise, and the keys were planned for rows "
                "that the secret key encrypts. Keys for both: ",
                others,
            )
    return (
        "A prediction takes keys that were planned for it, ",
        Cure("plan prediction", "es.plan(..., encrypted_prediction=True)"),
        "; and if rows of the model or these were encrypted with public keys, keys that were planned for that: ",
        others,
    )


@dataclass
class _Beside:
    """A source of one chunk of rows, switched down, with totals beside it. Under the first primes alone for the fused reader."""

    source: Source
    parameters: Parameters
    keys: PublicKeys
    level: int  # that columns are switched to
    noises: dict[str, Noise]
    totals: dict[str, Residues]  # those that are expanded now
    numbers: Mapping[str, int]  # those that are encrypted here, the same in every row
    memory_limit: int
    chunk: int = 0
    in_memory: bool = True
    _columns: dict[tuple[int, str], Residues] = field(default_factory=dict)
    _made: dict[str, Residues] = field(default_factory=dict)

    @property
    def layout(self) -> Layout:
        return Layout(self.source.layout.counts[self.chunk], self.parameters.slots)

    @property
    def with_secret_key(self) -> bool:
        return self.source.with_secret_key

    def ranges(self) -> dict[str, ColumnRange]:
        return self.source.ranges()

    def look_at(self, chunk: int) -> None:
        """Give the rows of another chunk."""
        if chunk != self.chunk and not self.keeps:
            self._columns.clear()
        self.chunk = chunk
        # All of them now: who computes reads a column in pieces, at the same time, and encrypting twice gives other pieces.
        self._made = {name: self._lowered(self._encrypted(value)) for name, value in self.numbers.items()}

    def _encrypted(self, value: int) -> Residues:
        keys = self.source.keys
        rows = np.full(self.source.layout.counts[self.chunk], value, dtype=np.int64)
        return residues_of(keys.engine, encrypt_slots(rows, keys.encryptor)[0])

    def _lowered(self, fresh: Residues) -> Residues:
        return switched_residues(self.source.keys, fresh, self.level) if self.level else fresh

    @property
    def keeps(self) -> bool:
        """Whether there is memory for the columns of all chunks: every batch wants them."""
        held = len(self.noises) - len(self.totals)
        return held * self.source.layout.n_chunks * self.parameters.ciphertext_bytes() <= self.memory_limit

    def residues(self, name: str, chunk: int) -> Residues:
        if name in self.totals:
            return self.totals[name]
        if name in self.numbers:
            return self._made[name]
        if (self.chunk, name) not in self._columns:
            self._columns[self.chunk, name] = self._lowered(self.source.residues(name, self.chunk))
        return self._columns[self.chunk, name]


@dataclass(frozen=True)
class _Job:
    """One evaluation: batches of terms with the totals they need, each over all chunks of rows, added up."""

    source: Source
    proof: JoinedProof
    packs: Mapping[str, EncryptedTotals]
    used: Mapping[str, tuple[str, int]]
    numbers: Mapping[str, int]
    workers: int | None
    memory_limit: int

    def run(self, outputs: Sequence[Expression], *, fused: bool, progress: bool | None) -> list[list[Part]]:
        totals = _Supply(self.packs, self.used, self.workers)
        beside = self._beside(totals.held, fused=fused)
        sums: dict[tuple[int, int], Part] = {}
        batches = self._batches(outputs)
        with progress_bar("predicting", len(self.used), "totals", progress) as advance:
            for number, (pieces, needed) in enumerate(batches):
                fetched = totals.fetch(needed)
                self._add_batch(beside, pieces, sums, fused=fused)
                totals.forget(keep={key for _, later in batches[number + 1 :] for key in later})
                advance(fetched)
        chunks = range(self.source.layout.n_chunks)
        return [[self._finished(sums[number, chunk]) for chunk in chunks] for number in range(len(outputs))]

    def _beside(self, held: dict[str, Residues], *, fused: bool) -> _Beside:
        parameters, level, noises = self.source.parameters, self.proof.level, self.proof.noises
        if fused:
            parameters = first_primes(parameters, len(parameters.data_moduli) - level)
            noises = {name: replace(noise, level=0) for name, noise in noises.items()}
        return _Beside(self.source, parameters, self.source.keys, level, noises, held, self.numbers, self.memory_limit)

    # -- batches ---------------------------------------------------------------------------------------------------------

    def _batches(self, outputs: Sequence[Expression]) -> list[tuple[dict[int, Expression], set[str]]]:
        """Pieces of the outputs, by number, with the totals that they need: outputs are sums, and a piece has some of the terms."""
        primes = len(self.source.parameters.data_moduli) - self.proof.level
        most = max(16, _HELD // (16 * primes * self.source.parameters.ring_degree))
        terms = [
            (min(map(self._place, needed), default=(0, 0)), number, coefficient, term, needed)
            for number, output in enumerate(outputs)
            for coefficient, term, needed in self._terms(output)
        ]
        terms.sort(key=lambda entry: entry[:2])
        batches: list[tuple[dict[int, list[tuple[int, Expression]]], set[str]]] = []
        for _, number, coefficient, term, needed in terms:
            if not batches or len(batches[-1][1] | needed) > most:
                batches.append(({}, set()))
            batches[-1][0].setdefault(number, []).append((coefficient, term))
            batches[-1][1].update(needed)
        return [({n: linear(found) for n, found in grouped.items()}, needed) for grouped, needed in batches]

    def _place(self, key: str) -> tuple[int, int]:
        name, index = self.used[key]
        return index * 1_000_000 // max(1, len(self.packs[name])), index

    def _terms(self, output: Expression) -> Iterator[tuple[int, Expression, set[str]]]:
        pairs = zip(output.data[0], output.args, strict=True) if output.op == LINEAR else [(1, output)]
        for coefficient, term in pairs:
            yield (
                coefficient,
                term,
                {node.data for node in in_order([term]) if node.op == COLUMN and node.data in self.used},
            )

    # -- one batch -------------------------------------------------------------------------------------------------------

    def _add_batch(
        self, beside: _Beside, pieces: dict[int, Expression], sums: dict[tuple[int, int], Part], *, fused: bool
    ) -> None:
        outputs = list(pieces.values())
        if fused:
            compute = _fused_rows(beside, outputs, self.workers, self.memory_limit, self.proof.level)
        else:
            compute = partial(_seal_rows, beside, outputs, self.proof.report.strategy)
        for chunk in range(self.source.layout.n_chunks):
            beside.look_at(chunk)
            for number, part in zip(pieces, compute(), strict=True):
                known = sums.get((number, chunk))
                sums[number, chunk] = part if known is None else self._added(known, part)

    def _added(self, a: Part, b: Part) -> Part:
        """The sum of ciphertexts of whatever sizes."""
        level = max(a.noise.level, b.noise.level)
        a, b = (self._switched(part, level) for part in (a, b))
        if len(a.residues) < len(b.residues):
            a, b = b, a
        residues, shared = np.array(a.residues), len(b.residues)
        for i, prime in enumerate(self.source.parameters.data_moduli[: residues.shape[1]]):
            total = residues[:shared, i] + b.residues[:, i]
            residues[:shared, i] = np.where(total >= np.uint64(prime), total - np.uint64(prime), total)
        return Part(residues, self.source.parameters.noise.add(a.noise, b.noise))

    def _finished(self, part: Part) -> Part:
        """Two polynomials under as few primes as are proven to decrypt; under as many for every model that is plain."""
        keys, model = self.source.keys, self.source.parameters.noise
        at, level = finish_rows(model, part.noise, None if self.packs else resting_level(model))
        low = self._switched(part, at)
        if len(low.residues) > 2:
            if keys.kernels is not None:
                residues = keys.kernels.relinearise(low.residues)
            else:
                residues = residues_of(keys.engine, relinearise_any(keys, ciphertext_of(keys.engine, low.residues)))
            low = Part(residues, model.relinearise(low.noise))
        done = self._switched(low, level)
        return done if self.packs else Part(done.residues, _any_noise(model))

    def _switched(self, part: Part, level: int) -> Part:
        if part.noise.level == level:
            return part
        return Part(
            switched_residues(self.source.keys, part.residues, level),
            self.source.parameters.noise.switch(part.noise, level),
        )


def finish_rows(model: NoiseModel, noise: Noise, end: int | None = None) -> tuple[int, int]:
    """Where a result is relinearised and where it ends: both as low as is proven to decrypt, or the latter at a given level."""
    lowest = model.levels - 1 if end is None else end
    for at in range(lowest, noise.level - 1, -1):
        low = model.relinearise(model.switch(noise, at))
        for level in range(lowest, at - 1 if end is None else end - 1, -1):
            if model.decrypts(model.switch(low, level)):
                return at, level
    raise NoiseError("a result that was proven to decrypt does not")


def _fused_rows(
    beside: _Beside, outputs: list[Expression], workers: int | None, memory_limit: int, level: int
) -> Callable[[], list[Part]]:
    """What computes the outputs over the chunk that is looked at: a sum over one chunk is what its rows are."""
    totals = [output.total() for output in outputs]
    evaluator = Evaluator(beside, workers or cores(), memory_limit)
    evaluator.prepare(totals)
    evaluator.keeps = False  # the next chunk has other columns
    tape = evaluator.tape(totals)
    noises = {total: replace(noise, level=level) for total, noise in sum_noises(totals, beside).items()}

    def compute() -> list[Part]:
        found = evaluator.run(tape)
        return [Part(found[total].copy(), noises[total]) for total in totals]

    return compute


def _seal_rows(beside: _Beside, outputs: list[Expression], strategy: Strategy) -> list[Part]:
    engine = engine_for(beside.parameters)
    values = Walk(SealMachine(beside), strategy, beside.layout).outputs(outputs)
    return [
        Part(residues_of(engine, value[0].ciphertext), value[0].bound) for value in values if isinstance(value, list)
    ]


@dataclass
class _Supply:
    """Expanded totals: fetched in order, held as long as they are needed."""

    packs: Mapping[str, EncryptedTotals]
    used: Mapping[str, tuple[str, int]]
    workers: int | None
    held: dict[str, Residues] = field(default_factory=dict)

    def __post_init__(self) -> None:
        wanted: dict[str, set[int]] = {name: set() for name in self.packs}
        for name, index in self.used.values():
            wanted[name].add(index)
        self._streams = {name: expand_totals(totals, wanted[name], self.workers) for name, totals in self.packs.items()}

    def fetch(self, keys: set[str]) -> int:
        """Expand until these are there; how many were not."""
        missing = len(keys - set(self.held))
        for key in sorted(keys - set(self.held), key=lambda key: self.used[key][1]):
            while key not in self.held:
                self._next(self.used[key][0])
        return missing

    def _next(self, name: str) -> None:
        index, residues = next(self._streams[name])
        key = f"{name}[{index}]"
        if key in self.used:
            self.held[key] = residues

    def forget(self, keep: set[str]) -> None:
        """Let go of what is not needed any more."""
        for key in set(self.held) - keep:
            del self.held[key]
