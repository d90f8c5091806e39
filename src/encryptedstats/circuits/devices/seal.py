"""The SEAL device: instruction by instruction, on every machine. All other devices must
equal it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final
from weakref import WeakKeyDictionary

import numpy as np

from encryptedstats.circuits.devices.base import Device, Speed, Task
from encryptedstats.circuits.devices.batches import Packing, run_rows, run_totals
from encryptedstats.circuits.devices.steps import BATCH, Execution, Known, Rule, StepByStep
from encryptedstats.circuits.expressions import ONES, Marks
from encryptedstats.circuits.program import (
    ADD_UP,
    COLUMN,
    MASK,
    MULTIPLY,
    RELINEARISE,
    ROTATE,
    ROWS,
    SHIFT,
    SWITCH,
    InterleavedMarks,
    Step,
)
from encryptedstats.circuits.sources import Source
from encryptedstats.crypto.encryption import encode_slots, encrypt_slots
from encryptedstats.crypto.engine import Engine, engine_for
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.crypto.packing import packing_levels, packing_parameters, to_packing_context
from encryptedstats.crypto.residues import Residues, ciphertext_of, residues_of
from encryptedstats.machine import ordered_map

# -- rules -----------------------------------------------------------------------------------------


def _add_up(keys: PublicKeys, data: tuple[Sequence[int], int], *values: Any) -> Any:
    coefficients, constant = data
    engine, evaluator, total = keys.engine, keys.engine.evaluator, None
    terms = zip(coefficients, values, strict=True)
    # Begin with a positive term, so that nothing has to be negated.
    for coefficient, ciphertext in sorted(terms, key=lambda term: term[0] < 0):
        scaled = _scale(engine, ciphertext, abs(coefficient))
        if total is None:
            total = scaled if coefficient > 0 else evaluator.negate(scaled)
        else:
            total = (evaluator.add if coefficient > 0 else evaluator.sub)(total, scaled)
    return evaluator.add_plain(total, engine.encode_integer(constant)) if constant else total


def _scale(engine: Engine, ciphertext: Any, factor: int) -> Any:
    if factor == 1:
        return ciphertext
    return engine.evaluator.multiply_plain(ciphertext, engine.encode_integer(factor))


def _multiply(keys: PublicKeys, data: None, a: Any, b: Any) -> Any:
    evaluator = keys.engine.evaluator
    return evaluator.square(a) if a is b else evaluator.multiply(a, b)


def _multiply_plain(keys: PublicKeys, value: Any, plain: Any) -> Any:
    return keys.engine.evaluator.multiply_plain(value, plain)


#: How SEAL computes each operation, on its own ciphertexts.
SEAL_RULES: Final[Mapping[str, Rule]] = {
    ADD_UP: _add_up,
    MULTIPLY: _multiply,
    RELINEARISE: lambda keys, _, value: relinearise_any(keys, value),
    SWITCH: lambda keys, level, value: keys.engine.switch(value, level),
    ROTATE: lambda keys, rotation, value: keys.evaluator.rotate(value, rotation),
    MASK: lambda keys, marks, value: _multiply_plain(keys, value, encode_marks(keys, marks)),
    SHIFT: lambda keys, power, value: _multiply_plain(keys, value, keys.engine.encode_power(power)),
}


def on_residues(rule: Rule) -> Rule:
    """Turn a rule that computes on residues into one that computes on SEAL's ciphertexts."""

    def convert(keys: PublicKeys, data: Any, *values: Any) -> Any:
        engine = keys.engine
        return ciphertext_of(
            engine, rule(keys, data, *(residues_of(engine, value) for value in values))
        )

    return convert


def encode_marks(keys: PublicKeys, marks: Marks | InterleavedMarks) -> Any:
    """Return the plaintext that is 1, or a weight, in marked slots, and 0 in the others."""
    slots, t, encoder = keys.parameters.slots, keys.parameters.plain_modulus, keys.engine.encoder
    if isinstance(marks, Marks):
        return encoder.encode(marks.in_slots(slots, t))
    return encoder.encode_interleaved(
        [(one.in_slots(slots, t), power) for one, power in marks.parts]
    )


class SealExecution(Execution):
    """Evaluate steps on SEAL's ciphertexts."""

    def __init__(
        self,
        keys: PublicKeys,
        known: Known,
        source: Source | None = None,
        rules: Mapping[str, Rule] = SEAL_RULES,
    ) -> None:
        super().__init__(keys, known, source)
        self.rules = rules

    def value_of(self, residues: Residues) -> Any:
        """Return the SEAL ciphertext of some residues."""
        return ciphertext_of(self.keys.engine, residues)

    def residues_of(self, value: Any) -> Residues:
        """Return the residues of a SEAL ciphertext."""
        return residues_of(self.keys.engine, value)

    def load(self, step: Step, source: Source, chunk: int) -> Any:
        """Read a column, or encrypt a number here."""
        is_column = step.op == COLUMN
        return self.value_of(
            source.residues(step.data, chunk) if is_column else encrypted_here(step, source, chunk)
        )


# -- packing ---------------------------------------------------------------------------------------


class SealPacking(Packing):
    """Packing by SEAL, in processes."""

    @property
    def _small(self) -> Engine:
        return engine_for(packing_parameters(self.keys.parameters))

    def merge(self, parts: Sequence[Residues], level: int, to: int | None = None) -> Residues:
        """Merge in processes if there are many totals."""
        if to is None and level == self.start and len(parts) > BATCH:
            lowest = level + max(1, packing_levels(-(-len(parts) // self.workers)))
            return self._merge_here(self._merge_in_processes(parts, lowest), lowest, to)
        return self._merge_here(parts, level, to)

    def _merge_in_processes(self, totals: Sequence[Residues], to: int) -> list[Residues]:
        size = 1 << (to - self.start)
        firsts = range(0, len(totals), size)

        def merge_some(first: int) -> Residues:
            return self._merge_here(totals[first : first + size], self.start, to)

        return list(ordered_map(merge_some, firsts, len(firsts)))

    def _merge_here(self, parts: Sequence[Residues], level: int, to: int | None) -> Residues:
        engine, small = self.keys.engine, self._small
        if level > self.start:
            found = [ciphertext_of(small, part) for part in parts]
        else:
            found = [to_packing_context(engine, ciphertext_of(engine, part)) for part in parts]
        return residues_of(small, self.keys.evaluator.pack(found, to, level, self.start))

    def split(self, node: Residues, level: int, *, odd: bool) -> Sequence[Residues]:
        """Split by two additions and an automorphism."""
        small = self._small
        parts = self.keys.evaluator.split(
            ciphertext_of(small, node), level, odd=odd, start=self.start
        )
        return [residues_of(small, part) for part in parts]

    def expand(self, node: Residues, count: int, level: int) -> Iterable[Residues]:
        """Expand in two processes, a half each, if there is enough to do."""
        small = self._small

        def expand_here(part: Residues, some: int, at: int) -> list[Residues]:
            found = self.keys.evaluator.expand(ciphertext_of(small, part), some, at, self.start)
            return [residues_of(small, total) for total in found]

        half = 1 << (level - 1) if level > self.start else count
        if count <= half or count < 4 * self.workers:
            return expand_here(node, count, level)
        parts, counts = self.split(node, level, odd=True), (half, count - half)
        both = ordered_map(
            lambda i: expand_here(parts[i], counts[i], level - 1), range(2), self.workers
        )
        return [total for part in both for total in part]


# -- the device ------------------------------------------------------------------------------------


def run_steps(task: Task, rules: Mapping[str, Rule] = SEAL_RULES) -> Iterator[Residues]:
    """Run a program step by step, with these rules on SEAL's ciphertexts, and pack with SEAL."""
    steps = StepByStep(partial(SealExecution, rules=rules))
    make_packing = partial(SealPacking, task.keys, task.workers)
    if task.program.form == ROWS:
        return run_rows(task, make_packing, steps.rows, steps.lower_totals)
    return run_totals(task, make_packing, steps.totals)


class SealDevice(Device):
    """Everything, by SEAL alone."""

    name: ClassVar[str] = "seal"
    # Measured with forests of 500 and 20,000 rows on one core.
    speed: ClassVar[Speed] = Speed(rows=2.6e-9, totals=40e-9)

    def run(self, task: Task) -> Iterable[Residues]:
        """Run step by step."""
        return run_steps(task)


# -- pieces that other devices use too -------------------------------------------------------------


def encrypted_here(step: Step, source: Source, chunk: int) -> Residues:
    """Encrypt a number for all rows of a chunk with the public key; a public 1 is not hidden."""
    keys = source.keys
    rows = np.full(source.layout.counts[chunk], step.data[0], dtype=np.int64)
    if step.data == ONES and keys.parameters.scheme == "bgv":
        return _public_ones(keys, len(rows))
    return residues_of(keys.engine, encrypt_slots(rows, keys.encryptor)[0])


_kept_ones: WeakKeyDictionary[PublicKeys, tuple[int, Residues]] = WeakKeyDictionary()


def _public_ones(keys: PublicKeys, count: int) -> Residues:
    """Return a public BGV ciphertext of 1 in the first slots; the last one is kept."""
    kept = _kept_ones.get(keys)
    if kept is None or kept[0] != count:
        plain = encode_slots(np.ones(count, dtype=np.int64), keys.encryptor)
        kept = (
            count,
            residues_of(keys.engine, keys.engine.evaluator.add_plain(keys.public_zero, plain)),
        )
        _kept_ones[keys] = kept
    return kept[1]


def relinearise_any(keys: PublicKeys, ciphertext: Any) -> Any:
    """Relinearise a ciphertext of any size with the key for s^2 alone.

    The top component c_k counts for c_k s^k = s^(k-2) (c_k s^2): so relinearise (0, 0, c_k) into
    (e0, e1) and add these to the components k-2 and k-1; repeat.
    """
    if ciphertext.size() == 3:
        return keys.evaluator.relinearise(ciphertext)
    engine = keys.engine
    residues = residues_of(engine, ciphertext).copy()
    primes = engine.parameters.data_moduli[: residues.shape[1]]
    while len(residues) > 3:
        top = residues[-1:]
        switched = residues_of(
            engine, keys.evaluator.relinearise(ciphertext_of(engine, _only_top(top)))
        )
        residues = residues[:-1].copy()
        for prime, q in enumerate(primes):
            residues[-2:, prime] = (residues[-2:, prime] + switched[:, prime]) % q
    return keys.evaluator.relinearise(ciphertext_of(engine, residues))


def _only_top(top: Residues) -> Residues:
    return np.concatenate([np.zeros_like(top), np.zeros_like(top), top])
