"""Search for parameters: the smallest ring and primes that carry all stages of a plan.

A stage computes stored results from stored tables or packs. Each candidate is proven by bounds and
noise of one output per shape. Packs that a later stage computes with must keep enough primes that
expanded totals can still be multiplied; that number, ``kept_primes``, is found together with the
ring and the primes.
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
    rename_packs,
    totals_of,
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
from encryptedstats.circuits.spot_plan import check_local, has_spare_bits
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

#: The remedy for keys that are too small to predict with an encrypted model.
OPENED_FIRST: Final = Cure("open before predicting", "with encrypted_prediction=False")


def is_fast(parameters: Parameters) -> bool:
    """Return whether the parameters suit the fast kernels."""
    return (
        parameters.scheme == "bgv"
        and max(parameters.coefficient_moduli).bit_length() <= FAST_PRIME_BITS
    )


#: Small tables are repeated in their ciphertexts, at most this many times ...
MOST_COPIES: Final = 16
LEAST_SLOTS: Final = 256  #: ... and with at least this many different slots.


@dataclass(frozen=True)
class Wish:
    """The conditions of a plan, besides the computations.

    Attributes
    ----------
    security : 128, 192 or 256
    scheme : "bgv" or "bfv", optional
    with_secret_key : bool
        Whether the owner encrypts the rows.
    members : int
        Members of a joint key.
    workers : int, optional
        Workers of a cluster; results leave room to add up all shards.
    price_per_core_hour : float, optional
    room : int
        Results up to this many times larger stay exact, because the bounds of results that are
        added and subtracted later add up.
    parameters : Parameters, optional
        Existing parameters, which fix security, scheme and members.
    spot_check : bool
        Whether totals leave the spare bits that spot checks need.
    """

    security: int = 128
    scheme: Scheme | None = None
    with_secret_key: bool = True
    members: int = 1
    workers: int | None = None
    price_per_core_hour: float | None = None
    room: int = 1
    parameters: Parameters | None = None
    spot_check: bool = False


@dataclass(frozen=True)
class Stage:
    """One computation of a plan, before there are any rows.

    Attributes
    ----------
    outputs : list of Expression, or a function of a layout that gives them
        Totals; in the form of rows, numbers of every row, some of which may be plain.
    n_rows : int, optional
        Number of rows; by default as many as fill a ciphertext.
    bounds : list of Interval, optional
        Bounds of the outputs that are sharper than interval arithmetic.
    form : "packed", "replicated", "slots" or "rows"
    gives : str
        The name of its packs, if a later stage computes with them.
    is_reserved : bool
        Whether keys must carry it although nobody asks for it yet, such as the folds of a model.
        It is proven and not priced.
    lanes : int
        Slots that a row fills: see :class:`~encryptedstats.circuits.layout.Layout`.
    """

    outputs: Sequence[Expression | int] | Callable[[Layout], Sequence[Expression]]
    n_rows: int | None
    bounds: Sequence[Interval] | Interval | None = None
    form: str = PACKED
    gives: str = ""
    is_reserved: bool = False
    lanes: int = 1

    def layout(self, slots: int, copies: int = 1) -> Layout:
        """Return the layout of its rows."""
        n_rows = slots if self.n_rows is None else self.n_rows
        return Layout(n_rows, slots, copies=copies, lanes=self.lanes)

    def write_outputs(self, slots: int, copies: int = 1) -> tuple[Expression | int, ...]:
        """Return the outputs for a number of slots."""
        return tuple(
            self.outputs(self.layout(slots, copies)) if callable(self.outputs) else self.outputs
        )

    def circuits(self, slots: int, copies: int = 1) -> list[Expression]:
        """Return the distinct outputs for a number of slots, 0 in padding."""
        outputs = self.write_outputs(slots, copies)
        if self.form == ROWS:
            return clear_padding(outputs)
        return deduplicate([output for output in outputs if isinstance(output, Expression)])[0]

    def rename_packs(self, suffix: str) -> Stage:
        """Append a suffix to the names of all packs, to distinguish those of several models."""
        gives = self.gives and f"{self.gives}{suffix}"
        if callable(self.outputs):
            return replace(self, gives=gives)
        return replace(self, gives=gives, outputs=rename_packs(self.outputs, suffix))

    def largest(self, ranges: Mapping[Any, ColumnRange], slots: int, copies: int = 1) -> int:
        """Return the largest absolute value of its outputs."""
        if isinstance(self.bounds, Interval):
            return self.bounds.largest
        if self.bounds is not None:
            return max(bound.largest for bound in self.bounds)
        layout, outputs = self.layout(slots, copies), self.write_outputs(slots, copies)
        if self.form == ROWS:
            outputs = tuple(self.circuits(slots, copies))
        found = bound_outputs(outputs, tuple(ranges.items()), layout.n_rows, layout.n_places)
        return max(bound.largest for bound in found)


@dataclass(frozen=True)
class Found:
    """Parameters, and a proof for every stage."""

    parameters: Parameters
    reports: list[NoiseReport]
    packs: dict[str, Noise]  # the noise of packs that later stages compute with


@dataclass(frozen=True)
class Search:
    """A search for parameters that carry some stages."""

    stages: list[Stage]
    ranges: dict[str, ColumnRange]
    wish: Wish

    @property
    def scheme(self) -> Scheme:
        """Return the wished scheme, or the faster one."""
        return self.wish.scheme or "bgv"

    @property
    def with_secret_key(self) -> bool:
        return self.wish.with_secret_key

    def largest(self, slots: int, copies: int = 1) -> int:
        """Return the largest absolute value of a result, times the wished room."""
        return self.wish.room * max(
            1, *(stage.largest(self.ranges, slots, copies) for stage in self.stages)
        )

    def find(self) -> Found | None:
        """Return the smallest ring and modulus that carry all stages; None if there are none.

        Small tables are repeated in their ciphertexts as often as there is room.
        """
        for ring in RINGS:
            for copies in dict.fromkeys((self._choose_copies(ring), 1)):
                found = self._in_ring(ring, copies)
                if found is not None:
                    return found
        return None

    def _choose_copies(self, ring: int) -> int:
        """Return how often a ciphertext can repeat all rows, if one owner encrypts one table."""
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

    def prove_with(self, parameters: Parameters) -> Found:
        """Prove all stages for existing parameters, or raise an error."""
        slots, copies = parameters.slots, parameters.copies
        largest = self.largest(slots, copies)
        fits = largest <= parameters.max_value
        found = self._prove(parameters, StageShapes(self.stages, slots, copies)) if fits else None
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
                f"these keys were made for another plan: {why}. Make new keys",
                code="keys-too-small",
            )
        return found

    def _in_ring(self, ring: int, copies: int = 1) -> Found | None:
        slots = ring // copies
        if any(stage.lanes > slots for stage in self.stages):
            return None
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
                    found = self._prove(parameters, shapes, critical=critical)
                    if found is not None:
                        return found
            except ParameterError:
                pass
            return None

        @cache
        def is_carried(primes: tuple[int, ...], *, critical: bool) -> bool:
            return prove(primes, critical=critical) is not None

        for largest_prime in (FAST_PRIME_BITS, MAX_PRIME_BITS):
            # The smallest primes for the noisiest outputs are those for all, if they carry all.
            for critical in (True, False):
                carries = partial(is_carried, critical=critical)
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
        """Yield the parameters with each number of primes that packs may have to keep."""
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

    def _prove(
        self, parameters: Parameters, shapes: StageShapes, *, critical: bool = False
    ) -> Found | None:
        """Return proofs of all stages, or of their noisiest outputs alone."""
        try:
            if not self._has_hope(parameters, shapes):
                return None
            reports, packs = list[NoiseReport](), dict[str, Noise]()
            for number, stage in enumerate(self.stages):
                count = shapes.count(number)
                if critical:
                    circuits = shapes.critical(
                        number, parameters, with_secret_key=self.with_secret_key
                    )
                else:
                    circuits = shapes.of(number, parameters)
                report = self._report(parameters, stage, circuits, count, packs)
                room = self._room(stage, parameters.slots)
                if stage.form == PACKED and report.budget < 1.0 + room:
                    return None
                if self.is_checked(stage) and not has_spare_bits(
                    circuits,
                    parameters,
                    stage.layout(parameters.slots, parameters.copies),
                    count,
                ):
                    return None
                reports.append(report)
                if stage.gives and report.pack is not None:
                    # Results of several tables or shards can be added up before the next stage.
                    packs[stage.gives] = _lower_pack(parameters, report.pack.times(2**room))
        except (NoiseError, ParameterError):
            return None
        return Found(parameters, reports, packs)

    def is_checked(self, stage: Stage) -> bool:
        """Return whether answers to a stage are spot-checked."""
        return self.wish.spot_check and not stage.is_reserved

    def check_spot_checks(self, parameters: Parameters) -> None:
        """Refuse stages that cannot be spot-checked, where that was asked for."""
        slots, copies = parameters.slots, parameters.copies
        for stage in filter(self.is_checked, self.stages):
            form = ROWS if stage.gives else stage.form
            layout = stage.layout(slots, copies)
            check_local(stage.circuits(slots, copies), parameters, layout, form)

    def _report(
        self,
        parameters: Parameters,
        stage: Stage,
        circuits: Sequence[Expression],
        count: int,
        packs: Mapping[str, Noise],
    ) -> NoiseReport:
        layout = stage.layout(parameters.slots, parameters.copies)
        setting = Setting(parameters, layout, self.with_secret_key, stage.form)
        if stage.form == ROWS:
            used = tuple(
                (name, packs[name])
                for name in dict.fromkeys(name for name, _ in totals_of(circuits).values())
            )
            setting = replace(setting, packs=used, flooded=self.wish.members > 1)
            return prove_rows(circuits, setting, quick=True)
        # Members flood what they open, and not the packs of a later stage.
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

    def _has_hope(self, parameters: Parameters, shapes: StageShapes) -> bool:
        """Return whether rows could be proven if packs had only rounding noise.

        This rules out most candidates quickly.
        """
        if not any(stage.gives for stage in self.stages):
            return True
        primes = packing_primes(parameters)
        same = (parameters.data_moduli[:primes], parameters.coefficient_moduli[-1])
        if same not in shapes.hopes:
            shapes.hopes[same] = self._is_provable_at_best(parameters, shapes)
        return shapes.hopes[same]

    def _is_provable_at_best(self, parameters: Parameters, shapes: StageShapes) -> bool:
        model = packing_model(parameters, packing_primes(parameters))
        least = packed_noise(model, replace(model.rounding(2), size=2))
        packs = {
            stage.gives: _lower_pack(parameters, least) for stage in self.stages if stage.gives
        }
        try:
            for number, stage in enumerate(self.stages):
                if stage.form == ROWS:
                    circuits = shapes.of(number, parameters)
                    self._report(parameters, stage, circuits, len(circuits), packs)
        except NoiseError:
            return False
        return True

    def refusal(self) -> tuple[object, ...]:
        """Explain why there are no parameters, and find the most rows for which there are."""
        slots, first = RINGS[-1], self.stages[0]
        largest, n_rows = self.largest(slots), first.layout(slots).n_rows
        if any(stage.form == ROWS for stage in self.stages):
            depths = [depth_of(stage.circuits(slots)) for stage in self.stages]
            return (
                f"no parameters of {self.wish.security}-bit security carry a fit over {n_rows:,} "
                "rows "
                "and a prediction with the encrypted model: together they are about "
                f"{sum(depths)} products deep, with values up to {largest:,}, and the largest "
                f"ring is {slots}. Choose a smaller depth or fraction, or open the model before "
                "it predicts (",
                OPENED_FIRST,
                ")",
            )
        text = (
            f"no {self.scheme} parameters of {self.wish.security}-bit security carry this "
            f"circuit over {n_rows:,} rows: it is "
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
                f". It works for up to {low:,} rows; encrypt parts of the table and add their "
                "results "
                "after opening",
            )
        return (text, ". Choose a smaller depth")


def _lower_pack(parameters: Parameters, pack: Noise) -> Noise:
    """Return the noise of a pack at the level of the primes that packs keep."""
    return pack.at(len(parameters.data_moduli) - packing_primes(parameters))


class StageShapes:
    """The circuits of all stages for one ring, with one node for each shape.

    They are written on demand, because most rings are too small already for the first stage.
    """

    def __init__(self, stages: Sequence[Stage], slots: int, copies: int) -> None:
        self._stages, self._layout = stages, (slots, copies)
        self._shapes: dict[int, Shapes] = {}
        self._known: dict[tuple[int, int], list[Expression]] = {}
        #: Cached by the kept primes and the prime of key switching.
        self.hopes: dict[tuple[tuple[int, ...], int], bool] = {}

    def _of(self, number: int) -> Shapes:
        if number not in self._shapes:
            self._shapes[number] = find_shapes(tuple(self._stages[number].circuits(*self._layout)))
        return self._shapes[number]

    def critical(
        self, number: int, parameters: Parameters, *, with_secret_key: bool
    ) -> list[Expression]:
        """Return the noisiest outputs of a stage, on which each modulus is tried first.

        Which output is noisiest hardly depends on the modulus, so they are chosen once.
        """
        stage, shapes = self._stages[number], self._of(number)
        if stage.form != PACKED or shapes.pack_names:
            return self.of(number, parameters)
        kind = parameters.scheme, with_secret_key
        if kind not in shapes.noisiest:
            setting = Setting(parameters, stage.layout(*self._layout), with_secret_key)
            shapes.noisiest[kind] = noisiest_outputs(shapes.collapsed, setting)
        return shapes.noisiest[kind]

    def count(self, number: int) -> int:
        """Return the number of outputs of a stage."""
        return len(self._of(number).outputs)

    def of(self, number: int, parameters: Parameters) -> list[Expression]:
        """Return the circuits of a stage to prove, for the correction factor of given totals."""
        shapes = self._of(number)
        if not shapes.pack_names:
            return shapes.outputs
        factor, t = find_given_factor(parameters), parameters.plain_modulus
        if (number, factor) not in self._known:
            self._known[number, factor] = shapes.circuits(
                dict.fromkeys(shapes.pack_names, factor), t
            )
        return self._known[number, factor]


def search_for(
    stages: Sequence[Stage], ranges: Mapping[str, ColumnRange], wish: Wish
) -> tuple[Search, Found | None]:
    """Search for the parameters of some stages; the second value is None if there are none."""
    if wish.security not in LEVELS:
        raise ParameterError(
            f"security={wish.security!r}: it can be {', '.join(map(str, LEVELS))} bits",
            code="unknown-security-level",
        )
    if wish.spot_check and (not wish.with_secret_key or wish.members > 1):
        raise ParameterError(
            "spot_check=True is for rows that the owner of the key encrypts, because combined sums "
            "show rows",
            code="rows-by-others-unchecked",
        )
    parameters = wish.parameters
    if parameters is not None:
        wish = replace(
            wish, security=parameters.security, scheme=parameters.scheme, members=parameters.members
        )
        search = Search(list(stages), dict(ranges), wish)
        search.check_spot_checks(parameters)
        return search, search.prove_with(parameters)
    search = Search(list(stages), dict(ranges), wish)
    if wish.spot_check:
        search.check_spot_checks(_any_parameters(search))
    found = search.find()
    if found is None and wish.scheme is None and wish.members == 1 and not wish.spot_check:
        # BGV needs primes that are 1 modulo t. For a very large t there are none, and BFV remains.
        search = replace(search, wish=replace(wish, scheme="bfv"))
        found = search.find()
    return search, found


def _any_parameters(search: Search) -> Parameters:
    """Return parameters to lower stages with, whatever their noise: the largest ring."""
    ring, t = RINGS[-1], plain_modulus_for(RINGS[-1], 1)
    return parameters_from_sizes(search.scheme, ring, t, (50, 50, 50), with_factors=False)
