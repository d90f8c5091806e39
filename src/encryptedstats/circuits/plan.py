"""The plan: parameters for computations and what they will cost, known and printed before anybody
pays.

A plan is of stages, each from stored things to stored things: a fit, the draw of its fraction, a
prediction from both. Stages are read by the bounds, noise and cost readers, for one ring after the
other, until one carries all of them: see :mod:`encryptedstats.circuits.search`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import Any, Final

from encryptedstats.circuits.bounds import ColumnRange, Interval
from encryptedstats.circuits.calibration import measured_times
from encryptedstats.circuits.compiled import Compiled, Conditions, GivenPacks, compile_outputs
from encryptedstats.circuits.cost import Cost, Kind, Times, number_of, read_cost, work_seconds
from encryptedstats.circuits.devices import AUTO, prices
from encryptedstats.circuits.devices.steps import BATCH
from encryptedstats.circuits.evaluate import choose_device
from encryptedstats.circuits.expressions import Expression, depth_of, totals_of
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.lowering import rotations_needed
from encryptedstats.circuits.program import PACKED, ROWS, Program
from encryptedstats.circuits.proof import NoiseReport
from encryptedstats.circuits.results import count_facts_bytes
from encryptedstats.circuits.search import Found, Search, Stage, Wish, search_for
from encryptedstats.circuits.shards import (
    ClusterCost,
    ShardedWork,
    Workforce,
    compile_shards,
    cut_chunks,
    price_shards,
)
from encryptedstats.crypto.flooding import FLOODING_BITS
from encryptedstats.crypto.keyfiles import count_public_bytes
from encryptedstats.crypto.noise import FAILURE_BITS
from encryptedstats.crypto.packing import packing_parameters, packing_primes
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.crypto.security import TABLE_NAME
from encryptedstats.errors import ParameterError
from encryptedstats.machine import cores
from encryptedstats.words import size_text, time_text

_FILE_BYTES: Final = 2200  # of the file of an answer beside its numbers: question, schema, blocks


@dataclass(frozen=True)
class PredictionCost:
    """What predicting unopened takes, beside the fit.

    Attributes
    ----------
    n_predict : int
        Rows to predict.
    technique : str
        How totals are brought beside the rows.
    totals, different : int
        Totals of the model and, of these, how many different ones the prediction needs.
    kept_primes : int
        Primes that packed totals keep.
    draw_seconds, seconds : float
        Estimated time to draw the fraction, and to predict.
    bytes_down : int
        Bytes of the answer.
    """

    n_predict: int
    technique: str
    totals: int
    different: int
    kept_primes: int
    draw_seconds: float
    seconds: float
    bytes_down: int

    def to_dict(self) -> dict[str, Any]:
        """The figures, ready for JSON."""
        return asdict(self)

    def rows(self) -> list[tuple[str, str]]:
        """What is printed: name and value."""
        draw = f", {time_text(self.draw_seconds)} to draw the fraction" if self.draw_seconds else ""
        return [
            (
                "prediction",
                f"{self.n_predict:,} rows, {time_text(self.seconds)}{draw}; answer "
                f"{size_text(self.bytes_down)}",
            ),
            ("technique", self.technique),
        ]


@dataclass(frozen=True)
class Plan:
    """Parameters for a computation and its cost. Print it; ``Owner(plan)`` makes keys for it.

    Attributes
    ----------
    parameters : Parameters
    layout : Layout
        Rows, slots and chunks.
    depth : int
        Products in a row.
    largest : int
        Bound on every result.
    n_columns : int
        Columns that are encrypted.
    n_totals : int
        Results.
    bytes_up, bytes_down : int
        Bytes of ciphertexts to store, and of answers to download.
    bytes_keys : int
        Bytes of the public keys that are uploaded beside the ciphertexts.
    products, key_switches : int
        The operations that count.
    memory : int
        Bytes of memory the evaluation holds at once, beside the table.
    encrypt_seconds, seconds : float
        Estimated time to encrypt and to compute, on the cores of this machine. The latter is for
        the first question of a process: keys are read and the program is compiled.
    rotations : tuple of int
        Rotation keys that the worker needs: ``owner.public_keys(rotations=plan.rotations)``.
    cluster : ClusterCost, optional
        Where it was planned for many workers: shards, time, bytes and money.
    prediction : PredictionCost, optional
        Where it was planned to predict without opening anything: how, and what that takes.
    device : str
        What ``device="auto"`` will take, and how much faster it is than the next.
    flooded : bool
        Whether results hide the rows from who opens them, by noise: so it is for rows that others
        encrypt.
    digests : tuple of str
        A hash of the program of each stage. The evaluation of a table of the planned size runs the
        same programs: see ``answer.program_digest``.
    """

    parameters: Parameters
    layout: Layout
    depth: int
    largest: int
    n_columns: int
    n_totals: int
    bytes_up: int
    bytes_down: int
    products: int
    key_switches: int
    memory: int
    encrypt_seconds: float
    seconds: float
    rotations: tuple[int, ...]
    report: NoiseReport
    cluster: ClusterCost | None = None
    prediction: PredictionCost | None = None
    flooded: bool = False
    device: str = ""
    digests: tuple[str, ...] = ()
    bytes_keys: int = 0

    @property
    def security(self) -> int:
        """Bits of security."""
        return self.parameters.security

    @property
    def failure_bound(self) -> str:
        """The proven bound on the probability that decryption fails, with its model."""
        return (
            f"2^-{FAILURE_BITS} (canonical norm, docs/explanation/noise.md), {self.report.budget:.0f} bits to "
            "spare"
        )

    def to_dict(self) -> dict[str, Any]:
        """The figures, ready for JSON."""
        return {
            "parameters": self.parameters.to_dict(),
            "security": self.security,
            "rows": self.layout.n_rows,
            "chunks": self.layout.n_chunks,
            "slots": self.layout.slots,
            "depth": self.depth,
            "largest_value": self.largest,
            "failure_bound": self.failure_bound,
            "columns": self.n_columns,
            "ciphertexts_up": self.n_columns * self.layout.n_chunks,
            "bytes_up": self.bytes_up,
            "bytes_keys": self.bytes_keys,
            "totals": self.n_totals,
            "bytes_down": self.bytes_down,
            "products": self.products,
            "key_switches": self.key_switches,
            "memory": self.memory,
            "encrypt_seconds": self.encrypt_seconds,
            "seconds": self.seconds,
            "rotations": list(self.rotations),
            "device": self.device,
            "flooded": self.flooded,
            **({} if self.cluster is None else {"cluster": self.cluster.to_dict()}),
            **({} if self.prediction is None else {"prediction": self.prediction.to_dict()}),
        }

    def rows(self) -> list[tuple[str, str]]:
        """What is printed: name and value."""
        p, layout = self.parameters, self.layout
        primes = "+".join(str(q.bit_length()) for q in p.coefficient_moduli)
        return [
            (
                "scheme",
                f"{p.scheme.upper()}, ring {p.ring_degree}, moduli {primes} bits, t = "
                f"{p.plain_modulus}",
            ),
            ("security", f"{p.security} bits, {TABLE_NAME}"),
            ("rows", f"{layout.n_rows:,} in {layout.n_chunks:,} chunks of {layout.slots:,}"),
            ("depth", f"{self.depth} products in a row"),
            (
                "largest value",
                f"±{self.largest:,} ({self._in_digits()}exact up to ±{p.max_value:,})",
            ),
            ("failure bound", self.failure_bound),
            *(
                [("flooding", f"{FLOODING_BITS} bits over the noise: {self._hidden()}")]
                if self.flooded
                else ()
            ),
            (
                "upload",
                f"{self.n_columns * layout.n_chunks:,} ciphertexts, {size_text(self.bytes_up)}; "
                f"public keys {size_text(self.bytes_keys)}",
            ),
            ("download", f"{self._downloaded()}, {size_text(self.bytes_down)}"),
            ("work", f"{self.products:,} products, {self.key_switches:,} key switches"),
            ("memory", f"{size_text(self.memory)} beside the table"),
            (
                "time here",
                f"{time_text(self.encrypt_seconds)} to encrypt, {time_text(self.seconds)} to "
                f"compute, {cores()} cores",
            ),
            ("device", self.device),
            *(self.cluster.rows() if self.cluster is not None else ()),
            *(self.prediction.rows() if self.prediction is not None else ()),
        ]

    def _hidden(self) -> str:
        members = self.parameters.members
        return (
            "results hide the rows of others"
            if members == 1
            else f"shares hide the secrets of {members} members"
        )

    def _in_digits(self) -> str:
        bits, base = self.parameters.digit_bits, self.parameters.pair_base
        if base is not None:
            return f"two totals travel as one, T1 + {base:,} T2, "
        return (
            "" if bits is None else f"numbers in digits of {bits} bits, totals in parts that are "
        )

    def _downloaded(self) -> str:
        return (
            f"{self.n_totals:,} totals" if self.prediction is None else "answers of the prediction"
        )

    def __str__(self) -> str:
        return "Plan\n" + "\n".join(f"  {name:<14}{value}" for name, value in self.rows())

    def _repr_html_(self) -> str:
        cells = "".join(
            f"<tr><th style='text-align:left'>{name}</th><td>{value}</td></tr>"
            for name, value in self.rows()
        )
        return f"<table>{cells}</table>"


def plan_stages(
    stages: Sequence[Stage],
    ranges: Mapping[str, ColumnRange],
    wish: Wish,
    *,
    n_columns: int | None = None,
    times: Times | None = None,
    accepts: Callable[[Parameters], bool] | None = None,
) -> Plan:
    """Plan some computations with the same keys.

    ``accepts`` may refuse the parameters that were found before anything is compiled for them.

    Raises
    ------
    ParameterError
        If no parameters carry it; names the binding limit and the nearest wish that can be granted.
    """
    search, found = search_for(stages, ranges, wish)
    if found is None:
        raise ParameterError(*search.refusal(), code="no-parameters-found")
    if accepts is not None and not accepts(found.parameters):
        raise ParameterError(
            "the parameters that were found are not accepted", code="parameters-not-accepted"
        )
    times = measured_times(found.parameters) if times is None else times
    return _Figures(search, found, times).plan(len(ranges) if n_columns is None else n_columns)


def _compile_with(
    outputs: tuple[Expression | int, ...], conditions: Conditions, **changes: Any
) -> Compiled:
    return compile_outputs(outputs, replace(conditions, **changes))


@dataclass(frozen=True)
class _Figures:
    """What a plan says of the parameters that were found."""

    search: Search
    found: Found
    times: Times

    @cached_property
    def compiled(self) -> list[Compiled]:
        """Compile each stage as its evaluation will, from the packs of the stages before it."""
        return [one for (one,) in self._compile(None)]

    def _compile(self, workers: int | None) -> list[list[Compiled]]:
        """Compile each stage whole, or in the shards of so many workers.

        What depends on where rows lie, such as the draw of a fraction, is not cut.
        """
        packs, found = dict[str, GivenPacks](), list[list[Compiled]]()
        for stage in self.search.stages:
            outputs, conditions = self._ask(stage, packs)
            if workers is None or callable(stage.outputs) or stage.form not in (PACKED, ROWS):
                compile_with = partial(_compile_with, outputs, conditions)
                found.append([choose_device(compile_with, AUTO)[0]])
            else:
                stops = cut_chunks(conditions.layout.n_chunks, workers)
                found.append(compile_shards(outputs, conditions, stops))
            if stage.gives:
                floods = conditions.floods and not conditions.is_joint
                packs[stage.gives] = GivenPacks.of_compiled(stage.gives, found[-1], floods=floods)
        return found

    def _ask(
        self, stage: Stage, packs: Mapping[str, GivenPacks]
    ) -> tuple[tuple[Expression | int, ...], Conditions]:
        """Return the outputs of a stage, and the conditions that its evaluation has."""
        parameters, search = self.parameters, self.search
        outputs = stage.written(parameters.slots, parameters.copies)
        expressions = [output for output in outputs if isinstance(output, Expression)]
        used = dict.fromkeys(name for name, _ in totals_of(expressions).values())
        bounds = stage.bounds
        if isinstance(bounds, Interval):
            bounds = [bounds] * len(outputs)
        return outputs, Conditions(
            parameters,
            stage.layout(parameters.slots, parameters.copies),
            tuple(search.ranges.items()),
            search.with_secret_key,
            stage.form,
            tuple(packs[name] for name in used),
            bounds=None if bounds is None else tuple(bounds),
        )

    @cached_property
    def programs(self) -> list[Program]:
        return [one.program for one in self.compiled]

    @property
    def parameters(self) -> Parameters:
        """Those that were found."""
        return self.found.parameters

    def _are(self, stage: Stage) -> str:
        """Return whether it is a fit, a draw (whose circuit depends on where rows lie), or a
        prediction.
        """
        if stage.is_reserved:
            return "reserved"
        return "predict" if stage.form == ROWS else "draw" if callable(stage.outputs) else "fit"

    def _of(self, kind: str) -> list[tuple[Stage, Cost]]:
        pairs = zip(self.search.stages, self.programs, strict=True)
        return [(stage, read_cost(made)) for stage, made in pairs if self._are(stage) == kind]

    def plan(self, n_columns: int) -> Plan:
        """All figures."""
        parameters, times = self.parameters, self.times
        slots, copies = parameters.slots, parameters.copies
        layout = self.search.stages[0].layout(slots, copies)
        fits, draws, predictions = self._of("fit"), self._of("draw"), self._of("predict")
        prediction = self._prediction(fits, draws, predictions) if predictions else None
        n_totals = sum(
            len(program.outputs) for kind in ("fit", "draw") for program in self._programs_of(kind)
        )
        asked = (*fits, *draws, *predictions)
        counts = sum((cost.counts for _, cost in asked), Counter[Kind]())
        rotations = {
            step
            for stage in self.search.stages
            for step in rotations_needed(
                stage.circuits(slots, copies),
                stage.layout(slots, copies),
                replicated=stage.form == "replicated",
            )
        }
        bytes_keys = count_public_bytes(parameters, len(rotations))
        n_steps = sum(len(program.steps) for program in self._programs_of("fit"))
        made = Plan(
            parameters=parameters,
            layout=layout,
            depth=self._depth(),
            largest=self.search.largest(slots, copies),
            n_columns=n_columns,
            n_totals=n_totals,
            bytes_up=n_columns * layout.n_chunks * parameters.packed_bytes(),
            bytes_down=self._count_downloaded_bytes(),
            products=number_of(counts, "multiply"),
            key_switches=number_of(counts, "key switch"),
            memory=max((memory_of(parameters, cost) for _, cost in fits), default=0),
            encrypt_seconds=n_columns * layout.n_chunks * times.encrypt / cores(),
            seconds=times.start_seconds(bytes_keys, n_steps)
            + sum(cost.seconds(times) for _, cost in fits),
            rotations=tuple(sorted(rotations)),
            report=min(self.found.reports, key=lambda report: report.budget),
            prediction=prediction,
            flooded=not self.search.with_secret_key
            and any(stage.form == PACKED for stage in self.search.stages),
            device=_device_text(prices(self.programs)),
            digests=tuple(one.digest for one in self.compiled),
            bytes_keys=bytes_keys,
        )
        wish = self.search.wish
        if wish.workers is None or not fits:
            return made
        work = ShardedWork(
            layout,
            made.bytes_up,
            [cost for _, cost in fits],
            sum(len(program.packs) for program in self._programs_of("fit")),
            packing_parameters(parameters).packed_bytes(),
        )
        force = Workforce(wish.workers, wish.price_per_core_hour)
        sharded = self._compile(wish.workers)
        digests = tuple(tuple(one.digest for one in shards) for shards in sharded)
        cost = replace(price_shards(work, force, times), shard_digests=digests)
        return replace(made, cluster=cost)

    def _depth(self) -> int:
        """Products in a row, from the first to the last of a chain of stages."""
        slots, copies = self.parameters.slots, self.parameters.copies
        depths: dict[str, int] = {}
        for stage in self.search.stages:
            circuits = stage.circuits(slots, copies)
            before = max((depths[name] for name, _ in totals_of(circuits).values()), default=0)
            depths[stage.gives] = max(depths.get(stage.gives, 0), before + depth_of(circuits))
        return max(depths.values())

    def _programs_of(self, kind: str) -> list[Program]:
        pairs = zip(self.search.stages, self.programs, strict=True)
        return [program for stage, program in pairs if self._are(stage) == kind]

    def _count_downloaded_bytes(self) -> int:
        """Count what the owner downloads: answers, and totals that no later stage takes."""
        pairs = zip(self.search.stages, self.compiled, strict=True)
        kept = [made for stage, made in pairs if not stage.gives and not stage.is_reserved]
        return sum(map(_count_result_bytes, kept))

    def _prediction(
        self,
        fits: Sequence[tuple[Stage, Cost]],
        draws: Sequence[tuple[Stage, Cost]],
        predictions: Sequence[tuple[Stage, Cost]],
    ) -> PredictionCost:
        parameters, times = self.parameters, self.times
        slots, copies = parameters.slots, parameters.copies
        every = sum(len(stage.written(slots, copies)) for stage, _ in fits)
        different = sum(len(totals_of(stage.circuits(slots, copies))) for stage, _ in predictions)
        spread = sum((cost.spread for _, cost in predictions), Counter[Kind]())
        rows = sum((cost.rows for _, cost in predictions), Counter[Kind]())
        seconds = times.rows_ratio * work_seconds(rows, times, parameters)
        seconds += times.finish_ratio * work_seconds(spread, times, parameters)
        return PredictionCost(
            predictions[0][0].layout(slots, copies).n_rows,
            _technique(different, every, parameters.copies),
            every,
            different,
            packing_primes(parameters) if every else 0,
            sum(cost.seconds(times) for _, cost in draws),
            seconds / cores(),
            sum(
                _count_result_bytes(made)
                for stage, made in zip(self.search.stages, self.compiled, strict=True)
                if self._are(stage) == "predict"
            ),
        )


def _count_result_bytes(made: Compiled) -> int:
    """Count the bytes of a program's results as they are downloaded: ciphertexts, and what their
    file says of them.
    """
    program, parameters = made.program, made.program.parameters
    described = _FILE_BYTES + count_facts_bytes(made.facts, made.places)
    if program.form == PACKED:
        return described + len(program.packs) * packing_parameters(parameters).packed_bytes()
    chunks = program.layout.n_chunks if program.form == ROWS else 1
    levels = [output.step.level for output in program.outputs]
    return described + sum(chunks * parameters.packed_bytes(level) for level in levels)


def _device_text(seconds: Mapping[str, float]) -> str:
    """Which is taken, and why: seconds by device, the cheapest first."""
    (first, least), *others = seconds.items()
    if not others:
        return f"{first}, the only one here that can"
    return f"{first}, about {others[0][1] / least:,.0f} times as fast as {others[0][0]}"


def _technique(different: int, every: int, copies: int) -> str:
    if not every:
        return "an open model: its numbers are coefficients"
    text = f"pack and expand: {different:,} totals, "
    text += (
        f"up to {copies} side by side in a ciphertext"
        if copies > 1
        else "each into all slots of a ciphertext"
    )
    if different < every:
        text += f" ({every:,} in the model; equal splits are shared)"
    return text


def memory_of(parameters: Parameters, cost: Cost) -> int:
    """Bytes that an evaluation holds beside the table."""
    largest_size = max((size for name, size, _ in cost.counts if name == "add"), default=2)
    return 2 * BATCH * cores() * parameters.ciphertext_bytes(largest_size)
