"""Search for parameters: the smallest ring and primes that carry all stages of a plan.

A stage is a computation from stored things to stored things. Each candidate is proven by the bounds
and noise readers on one output per shape. Totals that a later stage computes on with are packed
under so many primes that, expanded, they can still be multiplied; that number, ``kept_primes``, is
found together with the ring and the primes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Final

from encryptedstats.circuits.bounds import ColumnRange, Interval, bound_outputs
from encryptedstats.circuits.calibration import FAST_PRIME_BITS
from encryptedstats.circuits.expressions import (
    Expression,
    depth_of,
    totals_of,
    with_packs_renamed,
)
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.lowering import Setting
from encryptedstats.circuits.passes.correction_factors import find_given_factor
from encryptedstats.circuits.passes.duplicates import deduplicate
from encryptedstats.circuits.passes.padding import clear_padding
from encryptedstats.circuits.program import PACKED, ROWS
from encryptedstats.circuits.proof import (
    NoiseReport,
    noisiest_outputs,
    prove_rows,
    read_noise,
    room_for,
)
from encryptedstats.circuits.shapes import Shapes, find_shapes
from encryptedstats.circuits.shards import chunks_per_shard
from encryptedstats.crypto.noise import Noise, Scheme
from encryptedstats.crypto.packing import packed_noise, packing_model, packing_primes
from encryptedstats.crypto.parameters import (
    MAX_PRIME_BITS,
    Parameters,
    parameters_from_sizes,
    plain_modulus_for,
    smallest_chain,
)
from encryptedstats.crypto.security import LEVELS, RINGS
from encryptedstats.errors import Cure, NoiseError, ParameterError

#: How a model is planned that predicts only when it is open.
OPENED_FIRST: Final = Cure("open before predicting", "with encrypted_prediction=False")


def is_fast(parameters: Parameters) -> bool:
    """Whether the kernels compute with these at their best."""
    return (
        parameters.scheme == "bgv"
        and max(parameters.coefficient_moduli).bit_length() <= FAST_PRIME_BITS
    )


#: Small tables are repeated in their ciphertexts: so many times at most, and no smaller than this
#: many rows.
MOST_COPIES: Final = 16
LEAST_SLOTS: Final = 256


@dataclass(frozen=True)
class Wish:
    """What keys are planned for, beside the computations.

    Attributes
    ----------
    security : 128, 192 or 256
    scheme : "bgv" or "bfv", optional
    with_secret_key : bool
        Whether the owner encrypts the rows.
    members : int
        Of a joint key.
    workers : int, optional
        Of a cluster: results leave room to add up those of all shards.
    price_per_core_hour : float, optional
    room : int
        Results that are so many times larger are exact: what is added and taken away later has
        bounds that add up.
    parameters : Parameters, optional
        Keys that are there already, which say the security, the scheme and the members.
    """

    security: int = 128
    scheme: Scheme | None = None
    with_secret_key: bool = True
    members: int = 1
    workers: int | None = None
    price_per_core_hour: float | None = None
    room: int = 1
    parameters: Parameters | None = None


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


@dataclass(frozen=True)
class Found:
    """Parameters, and a proof for every stage."""

    parameters: Parameters
    reports: list[NoiseReport]
    given: dict[str, Noise]  # the noise of packs that later stages take


@dataclass(frozen=True)
class Search:
    """What is to be computed, under which conditions."""

    stages: list[Stage]
    ranges: dict[str, ColumnRange]
    wish: Wish

    @property
    def scheme(self) -> Scheme:
        """Return the scheme that was asked for, or the faster one."""
        return self.wish.scheme or "bgv"

    @property
    def with_secret_key(self) -> bool:
        return self.wish.with_secret_key

    def largest(self, slots: int, copies: int = 1) -> int:
        """The largest absolute value of a result, with the room that is left for it."""
        return self.wish.room * max(
            1, *(stage.largest(self.ranges, slots, copies) for stage in self.stages)
        )

    def found(self) -> Found | None:
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
            and self.wish.members == 1
            and self.wish.workers is None
            and self.scheme == "bgv"
        )
        if not alone or not any(stage.form == PACKED for stage in self.stages):
            return 1
        rows = max((stage.n_rows or 1 for stage in self.stages), default=1)
        return min(MOST_COPIES, 1 << max(0, (ring // max(LEAST_SLOTS, rows)).bit_length() - 1))

    def found_with(self, parameters: Parameters) -> Found:
        """The proofs for parameters that are given; refused where they do not carry everything."""
        slots, copies = parameters.slots, parameters.copies
        largest = self.largest(slots, copies)
        fits = largest <= parameters.max_value
        found = self._proven(parameters, StageShapes(self.stages, slots, copies)) if fits else None
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

    def _in_ring(self, ring: int, copies: int = 1) -> Found | None:
        slots = ring // copies
        largest = self.largest(slots, copies)
        if largest >= 1 << (MAX_PRIME_BITS - 2):
            return None
        t = plain_modulus_for(ring, largest)
        shapes = StageShapes(self.stages, slots, copies)

        def prove(primes: tuple[int, ...], *, critical: bool = False) -> Found | None:
            try:
                for parameters in self._with_kept_primes(
                    Parameters(
                        self.scheme, ring, t, primes, members=self.wish.members, copies=copies
                    )
                ):
                    found = self._proven(parameters, shapes, critical=critical)
                    if found is not None:
                        return found
            except ParameterError:
                pass
            return None

        @cache
        def carry(primes: tuple[int, ...], *, critical: bool) -> bool:
            return prove(primes, critical=critical) is not None

        for largest_prime in (FAST_PRIME_BITS, MAX_PRIME_BITS):
            # The smallest primes for the noisiest outputs are those for all, if they carry all.
            for critical in (True, False):
                carries = partial(carry, critical=critical)
                sizes = smallest_chain(
                    self.scheme,
                    ring,
                    t,
                    self.wish.security,
                    carries,
                    largest_prime=largest_prime,
                    with_factors=True,
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
        self, parameters: Parameters, shapes: StageShapes, *, critical: bool = False
    ) -> Found | None:
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
        return Found(parameters, reports, given)

    def _report(
        self,
        parameters: Parameters,
        stage: Stage,
        circuits: Sequence[Expression],
        count: int,
        given: Mapping[str, Noise],
    ) -> NoiseReport:
        layout = stage.layout(parameters.slots, parameters.copies)
        setting = Setting(parameters, layout, self.with_secret_key, stage.form)
        if stage.form == ROWS:
            used = tuple(
                (name, given[name])
                for name in dict.fromkeys(name for name, _ in totals_of(circuits).values())
            )
            setting = replace(setting, given=used, flooded=self.wish.members > 1)
            return prove_rows(circuits, setting, quick=True)
        # Members flood what they open, when they open it: not what is computed on with.
        flooded = False if self.wish.members > 1 and stage.gives else None
        return read_noise(circuits, replace(setting, flooded=flooded), n_outputs=count, quick=True)

    def _room(self, stage: Stage, slots: int) -> float:
        n_chunks = stage.layout(slots).n_chunks
        shards = (
            -(-n_chunks // chunks_per_shard(n_chunks, self.wish.workers))
            if self.wish.workers
            else 1
        )
        return room_for(shards, flooded=not self.with_secret_key)

    def _hopeful(self, parameters: Parameters, shapes: StageShapes) -> bool:
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

    def _hope(self, parameters: Parameters, shapes: StageShapes) -> bool:
        model = packing_model(parameters, packing_primes(parameters))
        least = packed_noise(model, replace(model.rounding(2), size=2))
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
                f"no parameters of {self.wish.security}-bit security carry a fit over {n_rows:,} rows "
                "and a prediction that opens "
                f"nothing: together they are about {sum(depths)} products deep, with values up to "
                f"{largest:,}, and the largest "
                f"ring is {slots}. Nearest: a smaller depth or fraction, or a model that is "
                "opened before it predicts (",
                OPENED_FIRST,
                ")",
            )
        text = (
            f"no {self.scheme} parameters of {self.wish.security}-bit security carry this circuit over "
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


class StageShapes:
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
            setting = Setting(parameters, stage.layout(*self._layout), with_secret_key)
            shapes.noisiest[kind] = noisiest_outputs(shapes.collapsed, setting)
        return shapes.noisiest[kind]

    def count(self, number: int) -> int:
        """How many outputs a stage has."""
        return len(self._of(number).outputs)

    def of(self, number: int, parameters: Parameters) -> list[Expression]:
        """What is to be proven of a stage: by the factor that given totals have."""
        shapes = self._of(number)
        if not shapes.given:
            return shapes.outputs
        factor, t = find_given_factor(parameters), parameters.plain_modulus
        if (number, factor) not in self._known:
            self._known[number, factor] = shapes.circuits(dict.fromkeys(shapes.given, factor), t)
        return self._known[number, factor]


def search_for(
    stages: Sequence[Stage], ranges: Mapping[str, ColumnRange], wish: Wish
) -> tuple[Search, Found | None]:
    """Search for the parameters of some computations; None where there are none."""
    if wish.security not in LEVELS:
        raise ParameterError(
            f"security={wish.security!r}: it can be {', '.join(map(str, LEVELS))} bits",
            code="unknown-security-level",
        )
    given = wish.parameters
    if given is not None:
        wish = replace(wish, security=given.security, scheme=given.scheme, members=given.members)
        search = Search(list(stages), dict(ranges), wish)
        return search, search.found_with(given)
    search = Search(list(stages), dict(ranges), wish)
    found = search.found()
    if found is None and wish.scheme is None and wish.members == 1:
        # BGV wants primes that are 1 modulo t; for a very large t there are none, and BFV has to
        # do.
        search = replace(search, wish=replace(wish, scheme="bfv"))
        found = search.found()
    return search, found
