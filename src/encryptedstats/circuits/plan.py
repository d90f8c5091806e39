"""The plan: parameters for computations and what they will cost, known and printed before anybody
pays.

A plan is of stages, each from stored things to stored things: a fit, the draw of its fraction, a
prediction from both. Stages are read by the bounds, noise and cost readers, for one ring after the
other, until one carries all of them. Totals that a later stage computes on with are packed under so
many primes that, expanded, they can still be multiplied; that number, ``kept_primes``, is found
together with the ring and the primes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import Any, Final

from encryptedstats.circuits.bounds import ColumnRange, Interval, bound_outputs
from encryptedstats.circuits.calibration import FAST_PRIME_BITS, measured_times
from encryptedstats.circuits.compiled import Compiled, Conditions, GivenPacks, compile_outputs
from encryptedstats.circuits.cost import Cost, Kind, Times, number_of, read_cost, work_seconds
from encryptedstats.circuits.devices import AUTO, prices
from encryptedstats.circuits.devices.steps import BATCH
from encryptedstats.circuits.evaluate import choose_device
from encryptedstats.circuits.expressions import (
    Expression,
    depth_of,
    totals_of,
    with_packs_renamed,
)
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.lowering import rotations_needed
from encryptedstats.circuits.passes.correction_factors import find_given_factor
from encryptedstats.circuits.passes.duplicates import deduplicate
from encryptedstats.circuits.passes.padding import clear_padding
from encryptedstats.circuits.program import PACKED, ROWS, Program
from encryptedstats.circuits.proof import (
    NoiseReport,
    noisiest_outputs,
    prove_rows,
    read_noise,
    room_for,
)
from encryptedstats.circuits.shapes import Shapes, find_shapes
from encryptedstats.crypto.flooding import FLOODING_BITS
from encryptedstats.crypto.keyfiles import count_public_bytes
from encryptedstats.crypto.noise import FAILURE_BITS, Noise, Scheme
from encryptedstats.crypto.packing import (
    packed_noise,
    packing_model,
    packing_parameters,
    packing_primes,
)
from encryptedstats.crypto.parameters import (
    MAX_PRIME_BITS,
    Parameters,
    parameters_from_sizes,
    plain_modulus_for,
    smallest_chain,
)
from encryptedstats.crypto.security import LEVELS, RINGS, TABLE_NAME
from encryptedstats.errors import Cure, NoiseError, ParameterError
from encryptedstats.machine import cores
from encryptedstats.words import size_text, time_text

#: How a model is planned that predicts only when it is open.
OPENED_FIRST: Final = Cure("open before predicting", "with encrypted_prediction=False")


def is_fast(parameters: Parameters) -> bool:
    """Whether the kernels compute with these at their best."""
    return (
        parameters.scheme == "bgv"
        and max(parameters.coefficient_moduli).bit_length() <= FAST_PRIME_BITS
    )


# A shard of a cluster's work: by default a table is cut into so many, none of more than so many
# chunks. A shard's totals are brought down and packed once, which costs as much as several chunks;
# and a lost shard should not be an hour's work.
SHARDS: Final = 32
#: Small tables are repeated in their ciphertexts: so many times at most, and no smaller than this
#: many rows.
MOST_COPIES: Final = 16
LEAST_SLOTS: Final = 256
MAX_SHARD_CHUNKS: Final = 64
#: How many results are added up at once on the way to the sum of all shards.
FAN_IN: Final = 16


def chunks_per_shard(n_chunks: int, workers: int | None = None) -> int:
    """How many chunks of rows make a shard; for so many workers, about two shards for each."""
    wanted = -(-n_chunks // (SHARDS if workers is None else 2 * workers))
    return max(1, min(MAX_SHARD_CHUNKS, wanted))


@dataclass(frozen=True)
class ClusterCost:
    """What a computation takes on a cluster of single-core workers.

    Attributes
    ----------
    workers, shards : int
    rows_per_shard : int
        For ``es.cluster.fit``.
    seconds, core_hours : float
        Time until the encrypted result is there, and what of it is computed; reading and writing
        not counted.
    bytes_read, bytes_written : int
        Between storage and all workers.
    price : float or None
        Every worker for the whole time, at the price given.
    """

    workers: int
    shards: int
    rows_per_shard: int
    seconds: float
    core_hours: float
    bytes_read: int
    bytes_written: int
    price: float | None

    def rows(self) -> list[tuple[str, str]]:
        """What is printed: name and value."""
        busy = f"{self.core_hours:,.{1 if self.core_hours >= 1 else 4}f} core hours of work"
        money = "" if self.price is None else f", {self.price:,.2f} for the workers' time"
        return [
            (
                "cluster",
                f"{self.workers:,} workers, {self.shards:,} shards of up to "
                f"{self.rows_per_shard:,} rows",
            ),
            ("time there", f"{time_text(self.seconds)} to compute, {busy}{money}"),
            (
                "traffic there",
                f"{size_text(self.bytes_read)} read, {size_text(self.bytes_written)} written",
            ),
        ]


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
        Bytes of ciphertexts to store and to download.
    bytes_keys : int
        Bytes of the public keys that lie beside the ciphertexts.
    products, key_switches : int
        The operations that count.
    memory : int
        Bytes of memory the evaluation holds at once, beside the table.
    encrypt_seconds, seconds : float
        Estimated time to encrypt and to compute, on the cores of this machine.
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
            **({} if self.cluster is None else {"cluster": asdict(self.cluster)}),
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


@dataclass(frozen=True)
class Stage:
    """One computation of a plan, before there are any rows.

    Attributes
    ----------
    outputs : list of Expression, or a function of a layout that gives them
        Totals; in the form of rows, numbers of every row, some of which may be plain.
    n_rows : int, optional
        Rows that it is over; as many as fill a ciphertext, where it is not said.
    bounds : list of Interval, optional
        Of the outputs, where they are known better than intervals tell.
    form : "packed", "replicated", "slots" or "rows"
    gives : str
        What its packs are called where a later stage computes on with them.
    is_reserved : bool
        Whether keys must carry it and nobody asks for it yet, such as the folds of a model: it is
        proven and not priced.
    """

    outputs: Sequence[Expression | int] | Callable[[Layout], Sequence[Expression]]
    n_rows: int | None
    bounds: Sequence[Interval] | Interval | None = None
    form: str = PACKED
    gives: str = ""
    is_reserved: bool = False

    def layout(self, slots: int, copies: int = 1) -> Layout:
        """Where its rows lie."""
        return Layout(slots if self.n_rows is None else self.n_rows, slots, copies=copies)

    def written(self, slots: int, copies: int = 1) -> tuple[Expression | int, ...]:
        """Return the outputs for a ring of so many slots."""
        return tuple(
            self.outputs(self.layout(slots, copies)) if callable(self.outputs) else self.outputs
        )

    def circuits(self, slots: int, copies: int = 1) -> list[Expression]:
        """Return the distinct outputs for a ring of so many slots, 0 in padding."""
        outputs = self.written(slots, copies)
        if self.form == ROWS:
            return clear_padding(outputs)
        return deduplicate([output for output in outputs if isinstance(output, Expression)])[0]

    def renamed(self, suffix: str) -> Stage:
        """The same with other names for all packs, so that those of several models are
        told apart.
        """
        gives = self.gives and f"{self.gives}{suffix}"
        if callable(self.outputs):
            return replace(self, gives=gives)
        return replace(self, gives=gives, outputs=with_packs_renamed(self.outputs, suffix))

    def largest(self, ranges: Mapping[Any, ColumnRange], slots: int, copies: int = 1) -> int:
        """The largest absolute value of its outputs."""
        if isinstance(self.bounds, Interval):
            return self.bounds.largest
        if self.bounds is not None:
            return max(bound.largest for bound in self.bounds)
        layout, outputs = self.layout(slots, copies), self.written(slots, copies)
        if self.form == ROWS:
            outputs = tuple(self.circuits(slots, copies))
        found = bound_outputs(
            outputs, tuple(ranges.items()), layout.n_rows, layout.n_chunks * slots
        )
        return max(bound.largest for bound in found)


def plan_stages(
    stages: Sequence[Stage],
    ranges: Mapping[str, ColumnRange],
    *,
    n_columns: int | None = None,
    security: int = 128,
    scheme: Scheme | None = None,
    with_secret_key: bool = True,
    times: Times | None = None,
    members: int = 1,
    workers: int | None = None,
    price_per_core_hour: float | None = None,
    room: int = 1,
    parameters: Parameters | None = None,
    accepts: Callable[[Parameters], bool] | None = None,
) -> Plan:
    """Plan some computations with the same keys; for ``workers``, with room to add up the results
    of all shards.

    ``accepts`` may refuse the parameters that were found before anything is compiled for them.

    With ``room``, results that large many times over are exact: what is added and taken away later
    has bounds that add up. With ``parameters`` it is planned for keys that are there already.

    Raises
    ------
    ParameterError
        If no parameters carry it; names the binding limit and the nearest wish that can be granted.
    """
    if security not in LEVELS:
        raise ParameterError(
            f"security={security!r}: it can be {', '.join(map(str, LEVELS))} bits",
            code="unknown-security-level",
        )
    if parameters is not None:
        security, scheme, members = parameters.security, parameters.scheme, parameters.members
    search = _Search(
        list(stages),
        dict(ranges),
        security,
        scheme or "bgv",
        with_secret_key,
        workers,
        members,
        room,
    )
    found = search.found() if parameters is None else search.found_with(parameters)
    if found is None and scheme is None and members == 1:
        # BGV wants primes that are 1 modulo t; for a very large t there are none, and BFV has to
        # do.
        search = replace(search, scheme="bfv")
        found = search.found()
    if found is None:
        raise ParameterError(*search.refusal(), code="no-parameters-found")
    if accepts is not None and not accepts(found.parameters):
        raise ParameterError(
            "the parameters that were found are not accepted", code="parameters-not-accepted"
        )
    times = measured_times(found.parameters) if times is None else times
    columns = len(ranges) if n_columns is None else n_columns
    return _Figures(search, found, times).plan(columns, workers, price_per_core_hour)


def plan_circuit(
    outputs: Sequence[Expression], ranges: Mapping[str, ColumnRange], n_rows: int, **options: Any
) -> Plan:
    """Plan the evaluation of some totals over so many rows: see :func:`plan_stages`."""
    form = options.pop("form", PACKED)
    return plan_stages([Stage(list(outputs), n_rows, form=form)], ranges, **options)


@dataclass(frozen=True)
class _Found:
    """Parameters, and a proof for every stage."""

    parameters: Parameters
    reports: list[NoiseReport]
    given: dict[str, Noise]  # the noise of packs that later stages take


@dataclass(frozen=True)
class _Search:
    """What is to be computed, under which conditions."""

    stages: list[Stage]
    ranges: dict[str, ColumnRange]
    security: int
    scheme: Scheme
    with_secret_key: bool
    workers: int | None = None
    members: int = 1
    room: int = 1

    def largest(self, slots: int, copies: int = 1) -> int:
        """The largest absolute value of a result, with the room that is left for it."""
        return self.room * max(
            1, *(stage.largest(self.ranges, slots, copies) for stage in self.stages)
        )

    def found(self) -> _Found | None:
        """The smallest ring and modulus that carry everything, with as many copies of the rows as
        have room.
        """
        for ring in RINGS:
            for copies in dict.fromkeys((self._copies(ring), 1)):
                found = self._in_ring(ring, copies)
                if found is not None:
                    return found
        return None

    def _copies(self, ring: int) -> int:
        """How often a ciphertext can hold all rows, which are those of one owner and in
        one piece.
        """
        alone = (
            self.with_secret_key
            and self.members == 1
            and self.workers is None
            and self.scheme == "bgv"
        )
        if not alone or not any(stage.form == PACKED for stage in self.stages):
            return 1
        rows = max((stage.n_rows or 1 for stage in self.stages), default=1)
        return min(MOST_COPIES, 1 << max(0, (ring // max(LEAST_SLOTS, rows)).bit_length() - 1))

    def found_with(self, parameters: Parameters) -> _Found:
        """The proofs for parameters that are given; refused where they do not carry everything."""
        slots, copies = parameters.slots, parameters.copies
        largest = self.largest(slots, copies)
        fits = largest <= parameters.max_value
        found = self._proven(parameters, _Shapes(self.stages, slots, copies)) if fits else None
        if found is None:
            depth = max(depth_of(stage.circuits(slots, copies)) for stage in self.stages)
            why = (
                f"it is {depth} products deep over "
                f"{self.stages[0].layout(parameters.slots).n_rows:,} rows, and that is not proven "
                f"to decrypt with {parameters!r}"
                if fits
                else f"results can reach ±{largest:,}, and these keys are exact up to "
                f"±{parameters.max_value:,}"
            )
            raise ParameterError(
                f"these keys were made for something else: {why}. Make new ones",
                code="keys-too-small",
            )
        return found

    def _in_ring(self, ring: int, copies: int = 1) -> _Found | None:
        slots = ring // copies
        largest = self.largest(slots, copies)
        if largest >= 1 << (MAX_PRIME_BITS - 2):
            return None
        t = plain_modulus_for(ring, largest)
        shapes = _Shapes(self.stages, slots, copies)

        def prove(primes: tuple[int, ...], *, critical: bool = False) -> _Found | None:
            try:
                for parameters in self._with_kept_primes(
                    Parameters(self.scheme, ring, t, primes, members=self.members, copies=copies)
                ):
                    found = self._proven(parameters, shapes, critical=critical)
                    if found is not None:
                        return found
            except ParameterError:
                pass
            return None

        def carry(primes: tuple[int, ...], *, critical: bool) -> bool:
            return prove(primes, critical=critical) is not None

        for largest_prime in (FAST_PRIME_BITS, MAX_PRIME_BITS):
            # The smallest primes for the noisiest outputs are those for all, if they carry all.
            for critical in (True, False):
                carries = partial(carry, critical=critical)
                sizes = smallest_chain(
                    self.scheme, ring, t, self.security, carries, largest_prime, with_factors=True
                )
                if sizes is None:
                    break
                primes = parameters_from_sizes(
                    self.scheme, ring, t, sizes, with_factors=True
                ).coefficient_moduli
                found = prove(primes)
                if found is not None:
                    return found
        return None

    def _with_kept_primes(self, parameters: Parameters) -> Iterator[Parameters]:
        """Packs that are computed on with or flooded have to keep more primes: as few as there can
        be.
        """
        primes = len(parameters.data_moduli)
        if any(stage.gives for stage in self.stages):
            tried = range(1, primes)
        elif not self.with_secret_key and any(stage.form == PACKED for stage in self.stages):
            tried = range(packing_primes(parameters), primes + 1)
        else:
            yield parameters
            return
        for kept in tried:
            yield replace(parameters, kept_primes=kept)

    def _proven(
        self, parameters: Parameters, shapes: _Shapes, *, critical: bool = False
    ) -> _Found | None:
        """Return proofs of all stages, or of their noisiest outputs alone."""
        try:
            if not self._hopeful(parameters, shapes):
                return None
            reports, given = list[NoiseReport](), dict[str, Noise]()
            for number, stage in enumerate(self.stages):
                count = shapes.count(number)
                if critical:
                    circuits = shapes.critical(
                        number, parameters, with_secret_key=self.with_secret_key
                    )
                else:
                    circuits = shapes.of(number, parameters)
                report = self._report(parameters, stage, circuits, count, given)
                room = self._room(stage, parameters.slots)
                if stage.form == PACKED and report.budget < 1.0 + room:
                    return None
                reports.append(report)
                if stage.gives and report.pack is not None:
                    # Results of several tables, or shards, can be added up before they are computed
                    # on with.
                    given[stage.gives] = _kept(parameters, report.pack.times(2**room))
        except (NoiseError, ParameterError):
            return None
        return _Found(parameters, reports, given)

    def _report(
        self,
        parameters: Parameters,
        stage: Stage,
        circuits: Sequence[Expression],
        count: int,
        given: Mapping[str, Noise],
    ) -> NoiseReport:
        layout, own = stage.layout(parameters.slots, parameters.copies), self.with_secret_key
        if stage.form == ROWS:
            used = {name: given[name] for name, _ in totals_of(circuits).values()}
            jointly = self.members > 1
            return prove_rows(
                circuits, parameters, layout, used, with_secret_key=own, quick=True, flooded=jointly
            )
        # Members flood what they open, when they open it: not what is computed on with.
        flooded = False if self.members > 1 and stage.gives else None
        return read_noise(
            circuits,
            parameters,
            layout,
            with_secret_key=own,
            form=stage.form,
            n_outputs=count,
            quick=True,
            flooded=flooded,
        )

    def _room(self, stage: Stage, slots: int) -> float:
        n_chunks = stage.layout(slots).n_chunks
        shards = -(-n_chunks // chunks_per_shard(n_chunks, self.workers)) if self.workers else 1
        return room_for(shards, flooded=not self.with_secret_key)

    def _hopeful(self, parameters: Parameters, shapes: _Shapes) -> bool:
        """Whether rows would be proven if packs had no more noise than rounding leaves: quickly
        said, and mostly no.
        """
        if not any(stage.gives for stage in self.stages):
            return True
        primes = packing_primes(parameters)
        same = (parameters.data_moduli[:primes], parameters.coefficient_moduli[-1])
        if same not in shapes.hopes:
            shapes.hopes[same] = self._hope(parameters, shapes)
        return shapes.hopes[same]

    def _hope(self, parameters: Parameters, shapes: _Shapes) -> bool:
        model = packing_model(parameters, packing_primes(parameters))
        least = packed_noise(model, replace(model.rounded(2), size=2))
        given = {stage.gives: _kept(parameters, least) for stage in self.stages if stage.gives}
        try:
            for number, stage in enumerate(self.stages):
                if stage.form == ROWS:
                    circuits = shapes.of(number, parameters)
                    self._report(parameters, stage, circuits, len(circuits), given)
        except NoiseError:
            return False
        return True

    def refusal(self) -> tuple[object, ...]:
        """Why there are no parameters: values, or depth; and the most rows that would do."""
        slots, first = RINGS[-1], self.stages[0]
        largest, n_rows = self.largest(slots), first.layout(slots).n_rows
        if any(stage.form == ROWS for stage in self.stages):
            depths = [depth_of(stage.circuits(slots)) for stage in self.stages]
            return (
                f"no parameters of {self.security}-bit security carry a fit over {n_rows:,} rows "
                "and a prediction that opens "
                f"nothing: together they are about {sum(depths)} products deep, with values up to "
                f"{largest:,}, and the largest "
                f"ring is {slots}. Nearest: a smaller depth or fraction, or a model that is "
                "opened before it predicts (",
                OPENED_FIRST,
                ")",
            )
        text = (
            f"no {self.scheme} parameters of {self.security}-bit security carry this circuit over "
            f"{n_rows:,} rows: it is "
            f"{depth_of(first.circuits(slots))} products deep with values up to {largest:,}, and "
            f"the largest ring is {slots}"
        )
        low, high = 0, n_rows
        while low < high:
            middle = (low + high + 1) // 2
            fewer = replace(self, stages=[replace(stage, n_rows=middle) for stage in self.stages])
            low, high = (middle, high) if fewer._in_ring(slots) else (low, middle - 1)
        if low:
            return (
                text,
                f". Nearest: up to {low:,} rows at once (results of parts can be added by the "
                "owner)",
            )
        return (text, ". Nearest: fewer products in a row (a smaller depth)")


def _kept(parameters: Parameters, pack: Noise) -> Noise:
    """A pack as a later stage knows it: at the level of the primes that packs keep."""
    return pack.at(len(parameters.data_moduli) - packing_primes(parameters))


class _Shapes:
    """The circuits of all stages for one ring, with one node for all of a shape.

    Each is written when it is asked for: most rings are too small already for the first.
    """

    def __init__(self, stages: Sequence[Stage], slots: int, copies: int) -> None:
        self._stages, self._layout = stages, (slots, copies)
        self._shapes: dict[int, Shapes] = {}
        self._known: dict[tuple[int, int], list[Expression]] = {}
        #: By the primes that are kept, and that of key switching.
        self.hopes: dict[tuple[tuple[int, ...], int], bool] = {}

    def _of(self, number: int) -> Shapes:
        if number not in self._shapes:
            self._shapes[number] = find_shapes(tuple(self._stages[number].circuits(*self._layout)))
        return self._shapes[number]

    def critical(
        self, number: int, parameters: Parameters, *, with_secret_key: bool
    ) -> list[Expression]:
        """Return the noisiest outputs of a stage: whatever carries all of them carries these.

        A search that tries dozens of moduli tries them on these first. Which output is noisiest
        hardly depends on the moduli, so the first ones that are tried decide.
        """
        stage, shapes = self._stages[number], self._of(number)
        if stage.form != PACKED or shapes.given:
            return self.of(number, parameters)
        kind = parameters.scheme, with_secret_key
        if kind not in shapes.noisiest:
            layout = stage.layout(*self._layout)
            shapes.noisiest[kind] = noisiest_outputs(
                self.of(number, parameters), parameters, layout, with_secret_key=with_secret_key
            )
        return shapes.noisiest[kind]

    def count(self, number: int) -> int:
        """How many outputs a stage has."""
        return self._of(number).n_outputs

    def of(self, number: int, parameters: Parameters) -> list[Expression]:
        """What is to be proven of a stage: by the factor that given totals have."""
        factor, t = find_given_factor(parameters), parameters.plain_modulus
        if (number, factor) not in self._known:
            shapes = self._of(number)
            self._known[number, factor] = shapes.circuits(dict.fromkeys(shapes.given, factor), t)
        return self._known[number, factor]


def _compile_with(
    outputs: tuple[Expression | int, ...], conditions: Conditions, **changes: Any
) -> Compiled:
    return compile_outputs(outputs, replace(conditions, **changes))


@dataclass(frozen=True)
class _Figures:
    """What a plan says of the parameters that were found."""

    search: _Search
    found: _Found
    times: Times

    @cached_property
    def compiled(self) -> list[Compiled]:
        """Compile each stage as its evaluation will, from the packs of the stages before it."""
        parameters, search = self.parameters, self.search
        packs, found = dict[str, GivenPacks](), list[Compiled]()
        for stage in search.stages:
            outputs = stage.written(parameters.slots, parameters.copies)
            expressions = [output for output in outputs if isinstance(output, Expression)]
            used = dict.fromkeys(name for name, _ in totals_of(expressions).values())
            bounds = stage.bounds
            if isinstance(bounds, Interval):
                bounds = [bounds] * len(outputs)
            conditions = Conditions(
                parameters,
                stage.layout(parameters.slots, parameters.copies),
                tuple(search.ranges.items()),
                search.with_secret_key,
                stage.form,
                tuple(packs[name] for name in used),
                bounds=None if bounds is None else tuple(bounds),
            )
            compile_with = partial(_compile_with, outputs, conditions)
            found.append(choose_device(compile_with, AUTO)[0])
            if stage.gives:
                packs[stage.gives] = GivenPacks.of_compiled(stage.gives, found[-1])
        return found

    @cached_property
    def programs(self) -> list[Program]:
        return [one.program for one in self.compiled]

    @cached_property
    def costs(self) -> list[Cost]:
        """Of every stage."""
        return list(map(read_cost, self.programs))

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
        pairs = zip(self.search.stages, self.costs, strict=True)
        return [(stage, cost) for stage, cost in pairs if self._are(stage) == kind]

    def plan(self, n_columns: int, workers: int | None, price: float | None) -> Plan:
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
            seconds=sum(cost.seconds(times) for _, cost in fits),
            rotations=tuple(sorted(rotations)),
            report=min(self.found.reports, key=lambda report: report.budget),
            prediction=prediction,
            flooded=not self.search.with_secret_key
            and any(stage.form == PACKED for stage in self.search.stages),
            device=_device_text(prices(self.programs)),
            digests=tuple(one.digest for one in self.compiled),
            bytes_keys=count_public_bytes(parameters, len(rotations)),
        )
        if workers is None or not fits:
            return made
        packs = sum(len(program.packs) for program in self._programs_of("fit"))
        nbytes = packs * packing_parameters(parameters).packed_bytes()
        costs = [cost for _, cost in fits]
        return replace(made, cluster=_on_cluster(made, costs, packs, nbytes, times, workers, price))

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
        pairs = zip(self.search.stages, self.programs, strict=True)
        kept = [program for stage, program in pairs if not stage.gives and not stage.is_reserved]
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
            sum(_count_result_bytes(program) for program in self._programs_of("predict")),
        )


def _count_result_bytes(program: Program) -> int:
    """Count the bytes of a program's ciphertexts as they are downloaded."""
    parameters = program.parameters
    if program.form == PACKED:
        return len(program.packs) * packing_parameters(parameters).packed_bytes()
    chunks = program.layout.n_chunks if program.form == ROWS else 1
    return sum(chunks * parameters.packed_bytes(output.step.level) for output in program.outputs)


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


def _on_cluster(
    made: Plan,
    costs: Sequence[Cost],
    packs: int,
    nbytes: int,
    times: Times,
    workers: int,
    price: float | None,
) -> ClusterCost:
    """The same work cut into shards: each brings its totals down on its own, and then they are
    added up in rounds.

    ``packs`` of ``nbytes`` are what a shard brings.
    """
    layout = made.layout
    size = chunks_per_shard(layout.n_chunks, workers)
    shards = -(-layout.n_chunks // size)
    finish = sum(cost.finish_seconds(times) for cost in costs)
    over_rows = sum(cost.seconds(times, workers=1) for cost in costs) - finish
    rounds = math.ceil(math.log(shards, FAN_IN)) if shards > 1 else 0
    adding = FAN_IN * packs * (times.load + times.unpack + times.add)
    of_a_shard = over_rows * size / layout.n_chunks + finish
    seconds = -(-shards // workers) * of_a_shard + rounds * adding
    partial_sums = shards / (FAN_IN - 1)
    return ClusterCost(
        workers,
        shards,
        min(layout.n_rows, size * layout.slots),
        seconds,
        (over_rows + shards * finish + partial_sums * adding) / 3600,
        round(made.bytes_up + (shards + partial_sums) * nbytes),
        round((shards + partial_sums) * nbytes),
        None if price is None else workers * seconds / 3600 * price,
    )


def memory_of(parameters: Parameters, cost: Cost) -> int:
    """Bytes that an evaluation holds beside the table."""
    largest_size = max((size for name, size, _ in cost.counts if name == "add"), default=2)
    return 2 * BATCH * cores() * parameters.ciphertext_bytes(largest_size)
