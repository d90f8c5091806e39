"""What the tests of circuits share: a source of columns with its clear twin, random circuits, and
SEAL's own measure of noise.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Any
from unittest import mock

import numpy as np
import pytest
import seal
from hypothesis import strategies as st

import encryptedstats as es
from encryptedstats.circuits import Expression, Layout, column, linear, proof
from encryptedstats.circuits.bounds import ColumnRange, read_bounds
from encryptedstats.circuits.clear import draw_shift, read_clear
from encryptedstats.circuits.devices import Run, Task
from encryptedstats.circuits.devices.seal import SealExecution
from encryptedstats.circuits.devices.steps import StepByStep
from encryptedstats.circuits.evaluate import evaluate
from encryptedstats.circuits.expressions import (
    COLUMN,
    GIVEN,
    HERE,
    LINEAR,
    MASK,
    PRODUCT,
    REPLICATE,
    TOTAL,
    depth_of,
    fold,
    in_order,
    padding_value,
)
from encryptedstats.circuits.lowering import (
    Schedule,
    Setting,
    Strategy,
    lower,
    move_steps,
    replication_steps,
)
from encryptedstats.circuits.program import SLOTS as SLOTS_FORM
from encryptedstats.circuits.program import Output, Program, Step
from encryptedstats.circuits.sources import Source
from encryptedstats.crypto.encryption import encrypt_slots
from encryptedstats.crypto.engine import engine_for
from encryptedstats.crypto.packing import (
    packing_model,
    packing_parameters,
    packing_primes,
    packing_secret,
)
from encryptedstats.crypto.residues import Residues, ciphertext_of, residues_of

SLOTS = 1024
SCHEMES = ("bgv", "bfv")
FORMS = ("packed", "replicated", "slots")
# For what is the same code whatever the scheme; in place of the session's fixture ``lab``.
one_lab = pytest.mark.parametrize(
    "lab", ["bgv", pytest.param("bfv", marks=pytest.mark.slow)], indirect=True
)
SEEDS = range(4)  # rotation keys are made for these
RANGES = {
    **{f"a{k}": ColumnRange(0, 1, "a") for k in range(3)},
    **{f"b{k}": ColumnRange(0, 1, "b") for k in range(2)},
    **{f"y{k}": ColumnRange(0, 1, "y") for k in range(2)},
    "w": ColumnRange(0, 4),
    "n": ColumnRange(-3, 5),
}
NAMES = tuple(RANGES)


def insecure(
    scheme: str, max_value: int, bits: Sequence[int], ring_degree: int = SLOTS
) -> es.Parameters:
    """Parameters of a ring so small that an operation takes a fraction of a millisecond."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", es.InsecureParametersWarning)
        return es.Parameters.from_bits(
            scheme, ring_degree, max_value, tuple(bits), allow_insecure=True
        )


def by_hand(outputs: Sequence[Expression], columns: Mapping[Any, Any], layout: Layout) -> list[Any]:
    """What a circuit means, said once more as simply as possible: Python's integers in lists, slot
    by slot, all slots at once.
    """
    padding = padding_value(outputs)
    slots = [(c, s) for c in range(layout.n_chunks) for s in range(layout.slots)]
    rows = [(c, s) for c, count in enumerate(layout.counts) for s in range(count)]
    half = layout.turn

    def rule(node: Expression, args: list[Any]) -> Any:
        if node.op in (COLUMN, GIVEN, HERE):
            held = [node.data[0]] * len(rows) if node.op == HERE else map(int, columns[node.data])
            held = dict(zip(rows, held, strict=True))
            return {slot: held.get(slot, 0) for slot in slots}
        if node.op == TOTAL:
            return sum(args[0].values()) - padding[node.args[0]] * layout.padding
        if node.op == REPLICATE:
            return dict.fromkeys(slots, args[0])
        if node.op == MASK:
            return {
                (c, s): args[0][c, s] * (c == node.data.chunk and s in node.data.slots)
                for c, s in slots
            }
        if node.op in (PRODUCT, LINEAR):
            return (
                _number(node, args)
                if node.is_total
                else {s: _number(node, [a[s] for a in args]) for s in slots}
            )
        chunks, rotation, swap = draw_shift(node.data, layout)
        return {
            (c, s): args[0][
                (c + chunks) % layout.n_chunks, (s // half ^ swap) * half + (s + rotation) % half
            ]
            for c, s in slots
        }

    values = fold(outputs, rule)
    return [
        values[output] if output.is_total else [values[output][row] for row in rows]
        for output in outputs
    ]


def _number(node: Expression, args: Sequence[int]) -> int:
    if node.op == PRODUCT:
        return args[0] * args[1]
    coefficients, constant = node.data
    return constant + sum(c * value for c, value in zip(coefficients, args, strict=True))


def random_columns(n_rows: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Exclusive indicators of three variables (in some rows none is set), weights and numbers."""
    rng = np.random.default_rng(seed)
    columns = {}
    for group, size in (("a", 3), ("b", 2), ("y", 2)):
        chosen = rng.integers(0, size + 1, n_rows)
        columns |= {f"{group}{k}": (chosen == k).astype(np.int64) for k in range(size)}
    return {**columns, "w": rng.integers(0, 5, n_rows), "n": rng.integers(-3, 6, n_rows)}


@dataclass
class Lab:
    """An owner with keys for all that circuits do, and what only a test may ask of one."""

    owner: es.Owner
    rotations: Sequence[int] = ()

    @cached_property
    def keys(self) -> es.PublicKeys:
        return self.owner.public_keys(rotations=self.rotations)

    @property
    def parameters(self) -> es.Parameters:
        return self.owner.parameters

    @cached_property
    def _decryptors(self) -> dict[str, Any]:
        secret, p = self.owner._generator.secret_key(), self.parameters
        small = engine_for(packing_parameters(p))
        return {
            "packed": seal.Decryptor(small.context, packing_secret(p, secret)),
            "slots": seal.Decryptor(engine_for(p).context, secret),
        }

    def slack(self, ciphertext: Any, bound: Any, *, packed: bool = False) -> float:
        """By how many bits the bound was too careful; SEAL rounds what it measures down to whole
        bits.
        """
        p = self.parameters
        model = packing_model(p, packing_primes(p)) if packed else p.noise
        measured = self._decryptors["packed" if packed else "slots"].invariant_noise_budget(
            ciphertext
        )
        return float(measured - model.budget(bound))

    def source(self, counts: Sequence[int], seed: int = 0, **options: Any) -> MemorySource:
        layout = Layout(sum(counts), self.parameters.slots, tuple(counts), self.parameters.copies)
        return MemorySource(self, layout, random_columns(layout.n_rows, seed), **options)

    def decrypt_slots(self, ciphertext: Any) -> np.ndarray:
        engine = engine_for(self.parameters)
        return np.asarray(engine.encoder.decode(self._decryptors["slots"].decrypt(ciphertext)))


class MemorySource(Source):
    """The smallest source a circuit can be evaluated on: encrypted columns in memory, and their
    clear twins.
    """

    def __init__(
        self,
        lab: Lab,
        layout: Layout,
        columns: Mapping[str, np.ndarray],
        known: Mapping[str, ColumnRange] = RANGES,
        with_secret_key: bool = True,
        given_keys: es.PublicKeys | None = None,
    ) -> None:
        self.lab, self.columns, self.known = lab, columns, known
        self.given_keys, self.loads = given_keys, 0
        self._layout, self._with_secret_key = layout, with_secret_key
        self._stored: dict[tuple[str, int], Residues] = {}

    @property
    def parameters(self) -> es.Parameters:
        return self.lab.parameters

    @property
    def layout(self) -> Layout:
        return self._layout

    @property
    def keys(self) -> es.PublicKeys:
        return self.given_keys or self.lab.keys

    @property
    def with_secret_key(self) -> bool:
        return self._with_secret_key

    def ranges(self) -> dict[str, ColumnRange]:
        return dict(self.known)

    def residues(self, name: str, chunk: int) -> Residues:
        self.loads += 1
        if (name, chunk) not in self._stored:
            start, stop = self.layout.rows_of(chunk)
            encryptor = (
                self.lab.owner._encryptor if self.with_secret_key else self.lab.keys.encryptor
            )
            values = np.asarray(self.columns[name][start:stop], dtype=np.int64)
            self._stored[name, chunk] = residues_of(
                self.lab.keys.engine, encrypt_slots(values, encryptor)[0]
            )
        return self._stored[name, chunk]

    def bounds(self, outputs: Sequence[Expression]) -> dict[Expression, Any]:
        return read_bounds(
            outputs, self.known, self.layout.n_rows, self.layout.n_chunks * self.layout.slots
        )

    def clear(self, outputs: Sequence[Expression]) -> list[Any]:
        return read_clear(outputs, self.columns, self.layout, ranges=self.known)

    def encrypted(self, outputs: Sequence[Expression], **options: Any) -> list[int]:
        return self.lab.owner.open(evaluate(outputs, self, **options))


@lru_cache(maxsize=4)
def lab_of(
    scheme: str,
    key: int = 0,
    max_value: int = 1 << 29,
    bits: tuple[int, ...] = (56,) * 7,
    kept: int | None = None,
    *,
    factors: bool = False,
    copies: int = 1,
) -> Lab:
    """Small keys with all rotations, made once: exact up to half a milliard, four products deep;
    packs keep so many primes.

    With ``factors``, primes are not 1 modulo t, and switching multiplies messages by something.
    With ``copies``, totals are interleaved.
    """
    steps = rotation_steps(copies)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", es.InsecureParametersWarning)
        made = insecure("bfv" if factors else scheme, max_value, bits)
        parameters = replace(made, kept_primes=kept, scheme=scheme, copies=copies)
    assert parameters.has_factors == factors
    return Lab(es.Owner(parameters), steps)


def rotation_steps(copies: int = 1) -> tuple[int, ...]:
    """All that circuits of these samples rotate by."""
    layout = Layout(1, SLOTS // copies, copies=copies)
    moved = {step for seed in SEEDS for step in move_steps(column("n").resample(seed), layout)}
    return tuple(sorted({*replication_steps(layout), *moved}))


@lru_cache(maxsize=2)
def source_of(
    scheme: str, key: int, counts: tuple[int, ...], with_secret_key: bool = True
) -> MemorySource:
    """Encrypted columns, made once."""
    return lab_of(scheme, key).source(counts, seed=key, with_secret_key=with_secret_key)


class CheckedExecution(SealExecution):
    """SEAL, with a look at the noise of every ciphertext it makes: never more than was proven.
    Counts the steps it takes.
    """

    def __init__(
        self, watch: Watch, keys: es.PublicKeys, known: Any, source: Source | None
    ) -> None:
        super().__init__(keys, known, source)
        self.watch = watch

    def take(self, place: tuple[Step, int | None], args: Mapping[Step, Any]) -> Any:
        value, (step, _) = super().take(place, args), place
        if place in self.known:
            return value
        self.watch.taken.append(place)
        primes = len(self.keys.parameters.data_moduli)
        if (
            value.size() != step.size
        ):  # only where a sum misses its largest terms, in a chunk without marks
            assert value.size() < step.size
            assert any(one.op == MASK for one in in_order([step]))
        assert primes - value.coeff_modulus_size() == step.level
        self.watch.look(value, step)
        return value


@dataclass
class Watch:
    """What checked executions have seen: the steps they took, and by how much less noise these have
    than was proven.
    """

    lab: Lab
    slacks: list[float] = field(default_factory=list)
    taken: list[tuple[Step, int | None]] = field(default_factory=list)

    def look(self, ciphertext: Any, step: Step) -> None:
        """Refuse more noise than a step says."""
        if self.lab.parameters.noise.decrypts(step.noise):
            slack = self.lab.slack(ciphertext, step.noise)
            assert slack > -1, (
                f"SEAL measures {-slack:.1f} bits more noise than was proven possible: {step!r}"
            )
            self.slacks.append(slack)


class CheckedSteps(StepByStep):
    """Takes steps in this process alone, and looks at sums too."""

    def sums(self, sums: Sequence[Step], source: Source, known: Any) -> dict[Step, Residues]:
        found = super().sums(sums, source, known)
        watch: Watch = self.start.args[0]  # type: ignore[attr-defined]  # a partial
        for step, residues in found.items():
            watch.taken.append((step, None))
            watch.look(ciphertext_of(source.keys.engine, residues), step)
        return found


def lowered(
    outputs: Sequence[Expression], source: Source, strategy: Strategy, form: str = SLOTS_FORM
) -> Program:
    """The program of a circuit on a source, with a strategy that is not asked for a proof."""
    setting = Setting(source.parameters, source.layout, source.with_secret_key, form)
    return lower(outputs, setting, Schedule(strategy))


def computed(program: Program, source: MemorySource) -> tuple[list[Any], Watch]:
    """The ciphertexts of a program's outputs, and what was seen of every ciphertext on the way."""
    watch = Watch(source.lab)
    found = totals_of(program, source, CheckedSteps(partial(CheckedExecution, watch)).totals)
    engine = source.keys.engine
    return [ciphertext_of(engine, found[output.step]) for output in program.outputs], watch


def totals_of(program: Program, source: Source, compute: Any) -> dict[Step, Residues]:
    """The outputs of a program, computed and not packed."""
    found: dict[Step, Residues] = {}
    for some in compute(Task(program, source, {}, Run(workers=1, progress=False)), {}):
        found |= some
    return found


def check_slots(lab: Lab, ciphertext: Any, output: Output, expected: int) -> None:
    """What the slots of an output's ciphertext hold is the number that is expected."""
    t = lab.parameters.plain_modulus
    slots = lab.decrypt_slots(ciphertext).astype(object)
    if output.each:
        assert set(slots % t) == {expected % t}
    else:
        assert (slots.sum() + output.offset - expected) % t == 0


@contextmanager
def forced(*strategies: Strategy) -> Iterator[None]:
    """Only these strategies are tried."""
    with mock.patch.object(proof, "strategies", return_value=strategies):
        yield


def unless_refused(act: Callable[[], Any]) -> Any:
    """What comes of it, or None where a random circuit is rightly refused: too large, too deep, or
    always 0.
    """
    try:
        return act()
    except (OverflowError, es.NoiseError):
        return None
    except ValueError as error:
        if "is 0 for every table" not in str(error):
            raise
        return None


def part_slacks(lab: Lab, totals: Any) -> list[float]:
    """The slack of every ciphertext of a result."""
    packed = totals.form == "packed"
    engine = totals._engine
    return [
        lab.slack(ciphertext_of(engine, part.residues), part.noise, packed=packed)
        for part in totals.parts
    ]


# -- random circuits
# ------------------------------------------------------------------------------------------------


@st.composite
def row_pools(
    draw: Any, max_depth: int = 2, *, resample: bool = True, steps: int = 6
) -> list[Expression]:
    """Columns and expressions over rows that are built from them, one step after the other."""
    pool = [
        column(name)
        for name in draw(st.lists(st.sampled_from(NAMES), min_size=2, max_size=5, unique=True))
    ]
    for _ in range(draw(st.integers(0, steps))):
        new = _step(draw, pool, resample)
        if new is not None and depth_of([new]) <= max_depth:
            pool.append(new)
    return pool


def _step(draw: Any, pool: list[Expression], resample: bool) -> Expression | None:
    x, y = draw(st.sampled_from(pool)), draw(st.sampled_from(pool))
    kinds = ["product", "product", "linear", "complement", "shift", "sum", "square"]
    kind = draw(st.sampled_from([*kinds, "resample"] if resample else kinds))
    if kind == "product":
        return x * y
    if kind == "square":
        return x**2
    if kind == "complement":
        return x - x * y
    if kind == "shift":
        return x * draw(st.sampled_from([-2, -1, 1, 3])) + draw(st.integers(-3, 3))
    if kind == "resample":
        return x.resample(draw(st.sampled_from(SEEDS)))
    chosen = (
        draw(st.lists(st.sampled_from(pool), min_size=1, max_size=4))
        if kind == "linear"
        else [x, y]
    )
    coefficients = [draw(st.integers(-3, 3)) for _ in chosen] if kind == "linear" else [1, 1]
    try:
        return linear(zip(coefficients, chosen, strict=True), draw(st.integers(-2, 2)))
    except ValueError:  # all terms cancel
        return None


@st.composite
def circuits(
    draw: Any, max_depth: int = 2, *, resample: bool = True, stages: bool = True, outputs: int = 4
) -> list[Expression]:
    """Totals of random expressions; with stages, also products of totals, and totals back in the
    rows.
    """
    pool = draw(row_pools(max_depth, resample=resample))
    totals = [_total(draw(st.sampled_from(pool))) for _ in range(draw(st.integers(1, outputs)))]
    for _ in range(draw(st.integers(0, 2))):
        totals.append(_of_totals(draw, totals, pool, stages))
    return [total for total in totals if depth_of([total]) <= max_depth + 1]


def _total(rows: Expression) -> Expression:
    known = padding_value([rows])[rows] is not None
    return rows.total() if known else (rows * column("y0")).total()


def _of_totals(
    draw: Any, totals: list[Expression], pool: list[Expression], stages: bool
) -> Expression:
    s, t = draw(st.sampled_from(totals)), draw(st.sampled_from(totals))
    kind = draw(st.sampled_from(["linear", "product", "back"] if stages else ["linear"]))
    if kind == "linear":
        return linear([(2, s)] if s is t else [(1, s), (-3, t)], draw(st.integers(-9, 9)))
    if kind == "product":
        return s * t
    return (s.replicate() * column(draw(st.sampled_from(NAMES)))).total()
