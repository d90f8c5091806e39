"""The flat program that expressions are lowered to: operations on ciphertexts with level, size and
noise.

Lowering (:mod:`encryptedstats.circuits.lowering`) makes all decisions: what is relinearised,
switched and rotated, when, and how totals are packed. Proofs, prices and devices read the same
object and decide nothing, so the program that is run is the one that was proven and priced.

Steps over rows are done for every chunk of rows, steps on totals once. :data:`SUM` adds up chunks
and leads from the first to the second.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from encryptedstats.circuits.expressions import Marks, in_order
from encryptedstats.circuits.layout import Layout
from encryptedstats.crypto.noise import Noise
from encryptedstats.crypto.packing import packing_primes
from encryptedstats.crypto.parameters import Parameters

COLUMN, GIVEN, EXPAND, HERE = "column", "given", "expand", "here"
ADD_UP, MULTIPLY, MASK, MOVE, SHIFT = "add up", "multiply", "mask", "move", "shift"
RELINEARISE, SWITCH, ROTATE, SUM, PACK = "relinearise", "switch", "rotate", "sum", "pack"
Chunks = frozenset[int] | None  # None: all of them
#: The forms that results come in.
PACKED, REPLICATED, SLOTS, ROWS = "packed", "replicated", "slots", "rows"


@dataclass(frozen=True)
class InterleavedMarks:
    """The marks of interleaved totals, each with its power of X."""

    parts: tuple[tuple[Marks, int], ...]

    @property
    def chunk(self) -> int:
        return self.parts[0][0].chunk

    def content(self) -> list[Any]:
        """Return the content for a digest, as JSON."""
        return [[power, *marks.content()] for marks, power in self.parts]


class Step:
    """One instruction.

    Attributes
    ----------
    op : str
        ``column`` (a chunk of a stored column), ``given`` (packs of totals of an earlier program),
        ``expand`` (one total of given packs, in all slots), ``here`` (a number encrypted with the
        public key), ``add up``, ``multiply``, ``mask``, ``move`` (the value of another chunk),
        ``shift`` (a product with a power of X), ``relinearise``, ``switch``, ``rotate``, ``sum``
        (over chunks) or ``pack``.
    args : tuple of Step
    data
        ``column``: its name. ``given``: the name, and log2 of the totals that stay interleaved.
        ``expand``: the number of the total. ``here``: value and purpose. ``add up``:
        ``(coefficients, constant)``. ``mask``: :class:`Marks` or :class:`InterleavedMarks`.
        ``move``: chunks. ``shift``: the power of X. ``rotate``: slots, 0 swaps the half rows.
    noise : Noise
        A bound, with level and size of the ciphertext.
    factor : int
        The correction factor modulo t: see ``Parameters.switch_factor``.
    is_total : bool
        True for one ciphertext for the table, False for one for each chunk.
    chunks : frozenset of int, optional
        The only chunks in which a step over rows can differ from 0; None for all chunks.
    """

    __slots__ = ("args", "chunks", "data", "factor", "is_total", "noise", "op")

    def __init__(
        self,
        op: str,
        args: tuple[Step, ...],
        data: Any,
        noise: Noise,
        *,
        factor: int = 1,
        is_total: bool = False,
        chunks: Chunks = None,
    ) -> None:
        self.op, self.args, self.data, self.noise = op, args, data, noise
        self.factor, self.is_total, self.chunks = factor, is_total, chunks

    @property
    def level(self) -> int:
        """Return how many primes have been dropped."""
        return self.noise.level

    @property
    def size(self) -> int:
        """Return the number of polynomials."""
        return self.noise.size

    def is_at(self, chunk: int) -> bool:
        """Return whether the step can differ from 0 in a chunk."""
        return self.chunks is None or chunk in self.chunks

    def find_needed(self, chunk: int | None, n_chunks: int) -> list[tuple[Step, int | None]]:
        """Return the args for a chunk, each with the chunk that is needed; None for totals."""
        if self.op == MOVE and chunk is not None:
            chunk = (chunk + self.data) % max(1, n_chunks)
        found: list[tuple[Step, int | None]] = []
        for arg in self.args:
            if arg.is_total or chunk is None:
                found.append((arg, None))
            elif arg.is_at(chunk):
                found.append((arg, chunk))
        return found

    def __repr__(self) -> str:
        shown = self.data[1] if self.op == HERE else self.data  # the number itself is encrypted
        data = "" if shown is None else f" {shown}"
        return f"<{self.op}{data} of {len(self.args)}, level {self.level}, {self.size} polynomials>"


@dataclass(frozen=True)
class Output:
    """The sum over the slots of a step plus ``offset``; or, with ``each``, the value of every slot.

    ``step`` has its final form except for packing. The offset is added once the correction factor
    is taken off.
    """

    step: Step
    offset: int = 0
    each: bool = False


@dataclass(frozen=True)
class Batch:
    """Steps that are computed together, because memory holds only some given totals at once.

    Attributes
    ----------
    steps : tuple of Step
        Totals in their final form except for packing; over rows, partial sums of the outputs.
    sums : tuple of Step
        Over rows, each partial sum added to those of the batches before.
    """

    steps: tuple[Step, ...]
    sums: tuple[Step, ...] = ()

    @cached_property
    def expanded(self) -> tuple[Step, ...]:
        """Return the given totals that the batch needs."""
        return tuple(step for step in in_order(self.steps) if step.op == EXPAND)


@dataclass(frozen=True, eq=False)
class Program:
    """Outputs in a form, with all steps that they need.

    A packed program has ``packs`` of ``width`` totals each. ``batches`` are computed in order and
    cover all outputs. ``n_interleaved`` neighbours, by ``places``, share a ciphertext before they
    are packed.
    """

    parameters: Parameters
    layout: Layout
    form: str
    outputs: tuple[Output, ...]
    packs: tuple[Step, ...] = ()
    width: int = 1
    batches: tuple[Batch, ...] = ()
    n_interleaved: int = 1
    places: tuple[int, ...] = ()

    def part(self, steps: Sequence[Step]) -> Program:
        """Return a program of some of the steps, not packed."""
        return replace(
            self, outputs=tuple(map(Output, steps)), packs=(), batches=(Batch(tuple(steps)),)
        )

    def needed_after(self, batch: int) -> set[Step]:
        """Return the sums that later batches add to, and those that outputs are made of."""
        every = {step for batch in self.batches for step in batch.sums}
        needed = {
            arg for later in self.batches[batch + 1 :] for step in later.sums for arg in step.args
        }
        for output in self.outputs:
            step = output.step
            while step not in every:
                (step,) = step.args
            needed.add(step)
        return needed

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """Return all steps, each once, after its args."""
        return tuple(in_order([*self.packs, *(output.step for output in self.outputs)]))

    @cached_property
    def findings(self) -> dict[str, Any]:
        """Return a place where devices keep what they have found out about the program."""
        return {}

    @cached_property
    def digest(self) -> str:
        """Return a hash of all steps and parameters: equal programs give equal residues.

        Given packs count by the order in which they are used, not by name.
        """
        numbers, names = dict[Step, int](), dict[str, int]()
        facts = self.parameters.fingerprint, self.layout.n_rows, self.layout.n_chunks, self.form
        lanes = (self.layout.lanes,) if self.layout.lanes > 1 else ()
        content = [repr((*facts, self.width, self.n_interleaved, self.places, *lanes))]
        for number, step in enumerate(self.steps):
            numbers[step] = number
            data = (
                step.data.content()
                if isinstance(step.data, (Marks, InterleavedMarks))
                else step.data
            )
            if step.op == GIVEN:
                data = names.setdefault(data[0], len(names)), data[1]
            content.append(
                repr((step.op, [numbers[arg] for arg in step.args], data, step.level, step.size))
            )
        content.append(
            repr([(numbers[output.step], output.offset, output.each) for output in self.outputs])
        )
        return hashlib.sha256("\n".join(content).encode()).hexdigest()

    @cached_property
    def stages(self) -> dict[Step, int]:
        """Return for each step how often totals return to the rows before it."""
        found: dict[Step, int] = {}
        for step in self.steps:
            found[step] = max(
                (
                    found[arg] + (arg.is_total and (step.op == SUM or not step.is_total))
                    for arg in step.args
                ),
                default=0,
            )
        return found

    @cached_property
    def sums(self) -> tuple[Step, ...]:
        """Return the sums over rows."""
        return tuple(step for step in self.steps if step.op == SUM)

    @cached_property
    def words(self) -> tuple[int, int]:
        """Estimate how many words of residues are written, over rows and on totals.

        A key switch writes all residues once for each prime. The estimate is for a quick comparison
        of devices; :mod:`encryptedstats.circuits.cost` counts operations.
        """
        rows, totals, ring = 0, 0, self.parameters.ring_degree
        for step in self.steps:
            primes = len(self.parameters.data_moduli) - step.level
            words = step.size * primes * ring
            if step.op in (RELINEARISE, ROTATE, EXPAND):
                words *= primes * max(1, step.args[0].size - 2)
            elif step.op == PACK:
                words *= packing_primes(self.parameters) * len(step.args)
            if step.is_total and step.op != SUM:
                totals += words
            else:
                rows += words * (self.layout.n_chunks if step.chunks is None else len(step.chunks))
        return rows, totals

    def find_needed_chunks(self) -> dict[Step, dict[tuple[int, int], Chunks]]:
        """Return in which chunks each step over rows is needed, by stage and by offset
        in chunks.
        """
        every, stages = max(1, self.layout.n_chunks), self.stages
        found: dict[Step, dict[tuple[int, int], Chunks]] = {step: {} for step in self.steps}
        if self.form == ROWS:
            for output in self.outputs:
                found[output.step][0, 0] = None
        for step in reversed(self.steps):
            places = {(stages[step], 0): step.args[0].chunks} if step.op == SUM else found[step]
            by = step.data if step.op == MOVE else 0
            for arg in step.args:
                if not arg.is_total:
                    for (stage, on), chunks in places.items():
                        place = stage, (on + by) % every
                        more = intersect_chunks(_shift_chunks(chunks, by, every), arg.chunks)
                        found[arg][place] = _union(found[arg].get(place, frozenset()), more)
        return found

    @cached_property
    def is_flat(self) -> bool:
        """Return whether every step over rows is computed exactly once for each chunk."""
        return not any(self.stages.values()) and not any(
            step.op == MOVE or step.chunks is not None for step in self.steps
        )

    def runs(self) -> dict[Step, int]:
        """Return how often each step is computed.

        No value over rows is kept from one chunk to the next: a step that is needed in another
        stage, or for the sum of another chunk, is computed again.
        """
        every = max(1, self.layout.n_chunks)
        if self.is_flat:
            return {step: 1 if step.is_total else every for step in self.steps}
        return {
            step: 1
            if step.is_total
            else sum(every if some is None else len(some) for some in places.values())
            for step, places in self.find_needed_chunks().items()
        }


def is_readable(step: Step) -> bool:
    """Return whether a step is a column, a number or a given total, possibly switched."""
    if step.op == SWITCH:
        return step.args[0].op in (COLUMN, HERE)
    return step.op in (COLUMN, HERE, EXPAND)


def _shift_chunks(chunks: Chunks, by: int, n_chunks: int) -> Chunks:
    return None if chunks is None else frozenset((chunk + by) % n_chunks for chunk in chunks)


def intersect_chunks(a: Chunks, b: Chunks) -> Chunks:
    """Return the common chunks; None stands for all."""
    return b if a is None else a if b is None else a & b


def _union(a: Chunks, b: Chunks) -> Chunks:
    return None if a is None or b is None else a | b


def add_digests(digests: Iterable[str]) -> str:
    """Return the digest of a sum of results from the digests of their programs.

    It is their sum as numbers modulo 2^256, so it does not depend on the order of adding, and a
    result of one part has the digest of its program. It names the computation and proves nothing:
    :func:`encryptedstats.verify` computes again.

    >>> add_digests(["0" * 63 + "a", "0" * 63 + "7"])[-2:]
    '11'
    """
    return f"{sum(int(digest, 16) for digest in digests) % (1 << 256):064x}"


def subtract_digests(whole: str, part: str) -> str:
    """Return the digest of a sum without one of its parts."""
    return f"{(int(whole, 16) - int(part, 16)) % (1 << 256):064x}"


def program_digest(steps: Sequence[Step]) -> str:
    """Hash the computation of some steps."""
    digests: dict[Step, str] = {}
    for step in in_order(steps):
        data = (
            step.data.content() if isinstance(step.data, (Marks, InterleavedMarks)) else step.data
        )
        content = [step.op, [digests[arg] for arg in step.args], data, step.level]
        digests[step] = hashlib.sha256(
            json.dumps(content, separators=(",", ":")).encode()
        ).hexdigest()
    return hashlib.sha256("".join(digests[step] for step in steps).encode()).hexdigest()
