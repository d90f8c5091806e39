"""Plan computations: their parameters and their cost, before anything is encrypted.

A plan has stages, such as a fit, the draw of its fraction, and a prediction from both. The search
(:mod:`encryptedstats.circuits.search`) tries rings until one carries all stages, and the plan
compiles and prices them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import Any, Final

from encryptedstats.circuits.bounds import ColumnRange, Interval
from encryptedstats.circuits.calibration import measure_times
from encryptedstats.circuits.compiled import Compiled, Conditions, GivenPacks, compile_outputs
from encryptedstats.circuits.cost import (
    Cost,
    Kind,
    OperationTimes,
    number_of,
    read_cost,
    work_seconds,
)
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
from encryptedstats.circuits.spot_plan import SpotCheckCost, price_spot_checks
from encryptedstats.crypto.flooding import FLOODING_BITS
from encryptedstats.crypto.keyfiles import count_public_bytes
from encryptedstats.crypto.noise import FAILURE_BITS
from encryptedstats.crypto.packing import packing_parameters, packing_primes
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.crypto.security import TABLE_NAME
from encryptedstats.errors import ParameterError
from encryptedstats.machine import cores
from encryptedstats.words import size_text, time_text

_FILE_BYTES: Final = 2200  # of an answer's file besides its numbers: question, schema, blocks


@dataclass(frozen=True)
class PredictionCost:
    """The cost of predicting with an encrypted model, besides the fit.

    Attributes
    ----------
    n_predict : int
        Rows to predict.
    technique : str
        How totals come into the rows.
    totals, different : int
        Totals of the model, and how many different ones the prediction needs.
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
        """Return the figures for JSON."""
        return asdict(self)

    def rows(self) -> list[tuple[str, str]]:
        """Return names and values to print."""
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
    """The parameters and the cost of a computation. ``Owner(plan)`` makes keys for it.

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
        Bytes of the public keys to upload.
    products, key_switches : int
        The expensive operations.
    memory : int
        Bytes of memory of the evaluation, besides the table.
    encrypt_seconds, seconds : float
        Estimated time to encrypt and to compute, on the cores of this machine. The latter is for
        the first question of a process, which reads keys and compiles the program.
    rotations : tuple of int
        Rotation keys that the worker needs: ``owner.public_keys(rotations=plan.rotations)``.
    cluster : ClusterCost, optional
        Shards, time, bytes and money on many workers.
    prediction : PredictionCost, optional
        The cost of predicting with an encrypted model.
    device : str
        The choice of ``device="auto"``, and how much faster it is than the next.
    flooded : bool
        Whether noise hides the rows from the receiver, as for rows of contributors.
    digests : tuple of str
        A hash of the program of each stage. The evaluation of a table of the planned size runs the
        same programs: see ``answer.program_digest``.
    notes : tuple of (str, str)
        What else is to be known before it is asked, such as what a worker learns; by name.
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
    spot_check: SpotCheckCost | None = None
    notes: tuple[tuple[str, str], ...] = ()

    @property
    def security(self) -> int:
        """Return the security in bits."""
        return self.parameters.security

    @property
    def failure_bound(self) -> str:
        """Return the proven bound on the probability that decryption fails."""
        return (
            f"2^-{FAILURE_BITS} (canonical norm, docs/explanation/noise.md), "
            f"{self.report.budget:.0f} bits to "
            "spare"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the figures for JSON."""
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
            **({} if self.spot_check is None else {"spot_check": self.spot_check.to_dict()}),
            **({} if not self.notes else {"notes": dict(self.notes)}),
        }

    def rows(self) -> list[tuple[str, str]]:
        """Return names and values to print."""
        p, layout = self.parameters, self.layout
        primes = "+".join(str(q.bit_length()) for q in p.coefficient_moduli)
        return [
            (
                "scheme",
                f"{p.scheme.upper()}, ring {p.ring_degree}, moduli {primes} bits, t = "
                f"{p.plain_modulus}",
            ),
            ("security", f"{p.security} bits, {TABLE_NAME}"),
            ("rows", f"{layout.n_rows:,} in {layout.n_chunks:,} chunks of {layout.size_text}"),
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
            ("download", f"{self._download_text()}, {size_text(self.bytes_down)}"),
            ("work", f"{self.products:,} products, {self.key_switches:,} key switches"),
            ("memory", f"{size_text(self.memory)} besides the table"),
            (
                "time here",
                f"{time_text(self.encrypt_seconds)} to encrypt, {time_text(self.seconds)} to "
                f"compute, {cores()} cores",
            ),
            ("device", self.device),
            *(self.cluster.rows() if self.cluster is not None else ()),
            *(self.prediction.rows() if self.prediction is not None else ()),
            *(self.spot_check.rows() if self.spot_check is not None else ()),
            *self.notes,
        ]

    def _hidden(self) -> str:
        members = self.parameters.members
        return (
            "results hide the rows of contributors"
            if members == 1
            else f"shares hide the secrets of {members} members"
        )

    def _in_digits(self) -> str:
        bits, base = self.parameters.digit_bits, self.parameters.pair_base
        if base is not None:
            return f"two totals are sent as one, T1 + {base:,} T2, "
        return (
            "" if bits is None else f"numbers in digits of {bits} bits, totals in parts that are "
        )

    def _download_text(self) -> str:
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
    times: OperationTimes | None = None,
    accepts: Callable[[Parameters], bool] | None = None,
) -> Plan:
    """Plan some computations with the same keys.

    ``accepts`` may refuse parameters before anything is compiled for them.

    Raises
    ------
    ParameterError
        If no parameters carry all stages; it names the binding limit and a remedy.
    """
    search, found = search_for(stages, ranges, wish)
    if found is None:
        raise ParameterError(*search.refusal(), code="no-parameters-found")
    if accepts is not None and not accepts(found.parameters):
        raise ParameterError(
            "no accepted parameters carry the plan", code="parameters-not-accepted"
        )
    times = measure_times(found.parameters) if times is None else times
    return _Figures(search, found, times).plan(len(ranges) if n_columns is None else n_columns)


def _compile_with(
    outputs: tuple[Expression | int, ...], conditions: Conditions, **changes: Any
) -> Compiled:
    return compile_outputs(outputs, replace(conditions, **changes))


@dataclass(frozen=True)
class _Figures:
    """Computes the figures of a plan from the parameters that were found."""

    search: Search
    found: Found
    times: OperationTimes

    @cached_property
    def compiled(self) -> list[Compiled]:
        """Compile each stage as its evaluation will, from the packs of the stages before it."""
        return [one for (one,) in self._compile(None)]

    def _compile(self, workers: int | None) -> list[list[Compiled]]:
        """Compile each stage whole, or in shards for some workers.

        A stage that depends on the layout, such as the draw of a fraction, is not cut.
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
        """Return the outputs of a stage, and the conditions of its evaluation."""
        parameters, search = self.parameters, self.search
        outputs = stage.write_outputs(parameters.slots, parameters.copies)
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
        return self.found.parameters

    def _are(self, stage: Stage) -> str:
        """Return the kind of a stage; the circuit of a draw depends on the layout."""
        if stage.is_reserved:
            return "reserved"
        return "predict" if stage.form == ROWS else "draw" if callable(stage.outputs) else "fit"

    def _of(self, kind: str) -> list[tuple[Stage, Cost]]:
        pairs = zip(self.search.stages, self.programs, strict=True)
        return [(stage, read_cost(made)) for stage, made in pairs if self._are(stage) == kind]

    def plan(self, n_columns: int) -> Plan:
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
            spot_check=self._price_spot_checks(fits, layout, n_columns),
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

    def _price_spot_checks(
        self, fits: Sequence[tuple[Stage, Cost]], layout: Layout, n_columns: int
    ) -> SpotCheckCost | None:
        if not self.search.wish.spot_check:
            return None
        slots, copies = self.parameters.slots, self.parameters.copies
        written = [(stage.circuits(slots, copies), cost) for stage, cost in fits]
        return price_spot_checks(written, self.parameters, layout, n_columns, self.times)

    def _depth(self) -> int:
        """Return the depth of the longest chain of stages."""
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
        """Count what the owner downloads: answers, and totals that no later stage uses."""
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
        every = sum(len(stage.write_outputs(slots, copies)) for stage, _ in fits)
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
    """Count the bytes of the file with a program's results."""
    described = _FILE_BYTES + count_facts_bytes(made.facts, made.places)
    return described + count_ciphertext_bytes(made.program)


def count_ciphertext_bytes(program: Program) -> int:
    """Count the bytes of the ciphertexts that a program gives."""
    parameters = program.parameters
    if program.form == PACKED:
        return len(program.packs) * packing_parameters(parameters).packed_bytes()
    chunks = program.layout.n_chunks if program.form == ROWS else 1
    levels = [output.step.level for output in program.outputs]
    return sum(chunks * parameters.packed_bytes(level) for level in levels)


def _device_text(seconds: Mapping[str, float]) -> str:
    """Describe the cheapest device, the first of the seconds by device."""
    (first, least), *others = seconds.items()
    if not others:
        return f"{first}, the only device of this machine that can run it"
    return f"{first}, about {others[0][1] / least:,.0f} times as fast as {others[0][0]}"


def _technique(different: int, every: int, copies: int) -> str:
    if not every:
        return "decrypted model: its numbers are coefficients"
    text = f"pack and expand: {different:,} totals, "
    text += (
        f"up to {copies} interleaved in a ciphertext"
        if copies > 1
        else "each into all slots of a ciphertext"
    )
    if different < every:
        text += f" ({every:,} in the model; equal splits are shared)"
    return text


def memory_of(parameters: Parameters, cost: Cost) -> int:
    """Return the bytes that an evaluation holds besides the table."""
    largest_size = max((size for name, size, _ in cost.counts if name == "add"), default=2)
    return 2 * BATCH * cores() * parameters.ciphertext_bytes(largest_size)
