"""The flat program that expressions are lowered to: every operation on ciphertexts, with its level,
its size and its noise.

Lowering (:mod:`encryptedstats.circuits.lowering`) takes all decisions: what is relinearised,
switched and rotated, when, and how totals are brought down for packing. Whoever reads a program, to
prove, to price or to run it, decides nothing, so that what was proven and priced is what is run: it
is one object.

Steps over rows are done for every chunk of rows, steps on totals once. What lies between them is
:data:`SUM`, over all chunks.
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
class MarksBeside:
    """The marks of totals that lie side by side, each with the power of X that it is
    multiplied by.
    """

    parts: tuple[tuple[Marks, int], ...]

    @property
    def chunk(self) -> int:
        """That all of them are in."""
        return self.parts[0][0].chunk

    def content(self) -> list[Any]:
        """What tells them from others, as JSON."""
        return [[power, *marks.content()] for marks, power in self.parts]


class Step:
    """One instruction.

    Attributes
    ----------
    op : str
        ``column`` (a chunk of a stored column), ``given`` (packs of totals from elsewhere),
        ``expand`` (one total taken out of given packs, into all slots), ``here`` (a number
        encrypted on the spot), ``add up``, ``multiply``, ``mask``, ``move`` (the value of another
        chunk), ``shift`` (a product with a power of X), ``relinearise``, ``switch``, ``rotate``,
        ``sum`` (over chunks) or ``pack``.
    args : tuple of Step
    data
        The name of a column; of given packs the name, and how many totals of them are taken out
        side by side, as a power of two; the number of what is expanded; what is encrypted here, and
        what for; ``(coefficients, constant)``; :class:`Marks`, or those of several totals; how many
        chunks on; the power of X; the rotation (0 swaps the half rows).
    noise : Noise
        A bound, with level and size of the ciphertext.
    factor : int
        What its number is multiplied by, modulo t, where it is decrypted: see
        ``Parameters.switch_factor``.
    is_total : bool
        One ciphertext for the table rather than one for each chunk.
    chunks : frozenset of int, optional
        Where alone a step over rows is anything but 0; None where it can be everywhere.
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
        """How many primes are gone."""
        return self.noise.level

    @property
    def size(self) -> int:
        """Number of polynomials."""
        return self.noise.size

    def is_at(self, chunk: int) -> bool:
        """Whether it can be anything but 0 there."""
        return self.chunks is None or chunk in self.chunks

    def needed(self, chunk: int | None, n_chunks: int) -> list[tuple[Step, int | None]]:
        """What it is computed from for a chunk, with the chunk that is needed of it: None for
        totals.
        """
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
    """What is asked for: the sum over the slots of a step, plus ``offset``; or, with ``each``, what
    every slot holds.

    ``step`` is in its form but for packing. Its factor is not taken off yet: the offset goes with
    what is left without it.
    """

    step: Step
    offset: int = 0
    each: bool = False


@dataclass(frozen=True)
class Batch:
    """What is computed at a time, because there is memory for so many given totals and no more.

    Attributes
    ----------
    steps : tuple of Step
        Totals in their form but for packing. Of rows, each a sum with some of the terms of one that
        is wanted ...
    sums : tuple of Step
        ... and the same added to what the batches before have brought of it: the step itself, where this is the first.
    """

    steps: tuple[Step, ...]
    sums: tuple[Step, ...] = ()

    @cached_property
    def expanded(self) -> tuple[Step, ...]:
        """The given totals that it needs, out of their packs."""
        return tuple(step for step in in_order(self.steps) if step.op == EXPAND)


@dataclass(frozen=True, eq=False)
class Program:
    """Outputs in a form, with all that they take; ``packs`` holds them where the form is packed,
    ``width`` in each.

    ``batches`` are computed one after the other: together they are all outputs. Of packed ones
    ``beside`` neighbours share a ciphertext, in the order of their ``places``.
    """

    parameters: Parameters
    layout: Layout
    form: str
    outputs: tuple[Output, ...]
    packs: tuple[Step, ...] = ()
    width: int = 1
    batches: tuple[Batch, ...] = ()
    beside: int = 1
    places: tuple[int, ...] = ()

    def part(self, steps: Sequence[Step]) -> Program:
        """Some outputs alone, not packed."""
        return replace(
            self, outputs=tuple(map(Output, steps)), packs=(), batches=(Batch(tuple(steps)),)
        )

    def needed_after(self, batch: int) -> set[Step]:
        """The sums of rows that later batches add to, and those that outputs are
        brought down from.
        """
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
        """All steps, each once, after all that it is computed from."""
        return tuple(in_order([*self.packs, *(output.step for output in self.outputs)]))

    @cached_property
    def digest(self) -> str:
        """A hash of all steps and of what they are run under: equal programs give equal residues.

        Given packs go by the order in which they are used, not by name.
        """
        numbers, names = dict[Step, int](), dict[str, int]()
        facts = self.parameters.fingerprint, self.layout.n_rows, self.layout.n_chunks, self.form
        content = [repr((*facts, self.width, self.beside, self.places))]
        for number, step in enumerate(self.steps):
            numbers[step] = number
            data = step.data.content() if isinstance(step.data, (Marks, MarksBeside)) else step.data
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
        """How many times totals have to be back in the rows before a step can be taken."""
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
        """The sums over rows."""
        return tuple(step for step in self.steps if step.op == SUM)

    @cached_property
    def words(self) -> tuple[int, int]:
        """About how many words of residues are written, over rows and on totals: a key switch
        writes all for every prime.

        For comparing devices, quickly; :mod:`encryptedstats.circuits.cost` counts what is really
        done.
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

    def needed(self) -> dict[Step, dict[tuple[int, int], Chunks]]:
        """In which chunks every step over rows is needed, by the stage, and by how many chunks on
        from those that are added up.
        """
        every, stages = max(1, self.layout.n_chunks), self.stages
        found: dict[Step, dict[tuple[int, int], Chunks]] = {step: {} for step in self.steps}
        if self.form == ROWS:
            for output in self.outputs:
                found[output.step][0, 0] = None
        for step in reversed(self.steps):
            here = {(stages[step], 0): step.args[0].chunks} if step.op == SUM else found[step]
            by = step.data if step.op == MOVE else 0
            for arg in step.args:
                if not arg.is_total:
                    for (stage, on), chunks in here.items():
                        place = stage, (on + by) % every
                        more = in_both(_shifted(chunks, by, every), arg.chunks)
                        found[arg][place] = _union(found[arg].get(place, frozenset()), more)
        return found

    @cached_property
    def is_flat(self) -> bool:
        """Whether every step over rows is taken once for each chunk: none is back from totals,
        moved, or in some chunks only.
        """
        return not any(self.stages.values()) and not any(
            step.op == MOVE or step.chunks is not None for step in self.steps
        )

    def runs(self) -> dict[Step, int]:
        """How many times each step is taken: those over rows for every chunk where they are needed.

        Nothing over rows is kept from one chunk to the next: what is needed again, in another stage
        or for the sum of another chunk, is taken again.
        """
        every = max(1, self.layout.n_chunks)
        if self.is_flat:
            return {step: 1 if step.is_total else every for step in self.steps}
        return {
            step: 1
            if step.is_total
            else sum(every if some is None else len(some) for some in places.values())
            for step, places in self.needed().items()
        }


def is_readable(step: Step) -> bool:
    """Whether a step is a column, a number or a given total; columns and numbers may be switched
    down.
    """
    if step.op == SWITCH:
        return step.args[0].op in (COLUMN, HERE)
    return step.op in (COLUMN, HERE, EXPAND)


def _shifted(chunks: Chunks, by: int, n_chunks: int) -> Chunks:
    return None if chunks is None else frozenset((chunk + by) % n_chunks for chunk in chunks)


def in_both(a: Chunks, b: Chunks) -> Chunks:
    """The chunks that both are at; None stands for all."""
    return b if a is None else a if b is None else a & b


def _union(a: Chunks, b: Chunks) -> Chunks:
    return None if a is None or b is None else a | b


def add_digests(digests: Iterable[str]) -> str:
    """Return the digest of a sum of results from the digests of their programs.

    It is their sum as numbers modulo 2^256, so it does not depend on the order of adding, and a
    result that is one part has the digest of its program. It names what was computed, and proves
    nothing: :func:`encryptedstats.verify` computes again.

    >>> add_digests(["0" * 63 + "a", "0" * 63 + "7"])[-2:]
    '11'
    """
    return f"{sum(int(digest, 16) for digest in digests) % (1 << 256):064x}"


def subtract_digests(whole: str, part: str) -> str:
    """Return the digest of what is left of a sum without one of its parts."""
    return f"{(int(whole, 16) - int(part, 16)) % (1 << 256):064x}"


def program_digest(steps: Sequence[Step]) -> str:
    """A hash of what some steps compute."""
    digests: dict[Step, str] = {}
    for step in in_order(steps):
        data = step.data.content() if isinstance(step.data, (Marks, MarksBeside)) else step.data
        content = [step.op, [digests[arg] for arg in step.args], data, step.level]
        digests[step] = hashlib.sha256(
            json.dumps(content, separators=(",", ":")).encode()
        ).hexdigest()
    return hashlib.sha256("".join(digests[step] for step in steps).encode()).hexdigest()
