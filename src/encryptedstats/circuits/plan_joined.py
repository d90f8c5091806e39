"""Planning a prediction that never opens anything: parameters that carry fit, drawn fraction and prediction, and what it costs.

Totals are packed under so many primes that, expanded, they can still be multiplied with new rows; that number, ``kept_primes``, is
found together with the ring and the primes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from encryptedstats.circuits.bounds import ColumnRange, Interval, read_bounds
from encryptedstats.circuits.cost import Cost, CostMachine, Kind, Times, measured_times, read_cost, work_seconds
from encryptedstats.circuits.expressions import Expression, column_names, depth_of
from encryptedstats.circuits.joined import HERE, JoinedProof, followed, prove_joined, totals_of
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.noise import (
    ROOM_FOR_ADDING,
    SLOTS,
    NoiseReport,
    compressed,
    read_noise,
    walked,
)
from encryptedstats.circuits.plan import FAST_PRIME_BITS, Plan, memory_of, show_size, show_time
from encryptedstats.circuits.walk import rotations_needed
from encryptedstats.crypto.noise import Noise, Scheme
from encryptedstats.crypto.packing import (
    expanded_noise,
    expansion_scale,
    packed_noise,
    packing_levels,
    packing_model,
    packing_primes,
)
from encryptedstats.crypto.parameters import (
    MAX_PRIME_BITS,
    Parameters,
    parameters_from_sizes,
    plain_modulus_for,
    smallest_chain,
)
from encryptedstats.crypto.security import RINGS
from encryptedstats.errors import Cure, NoiseError, ParameterError
from encryptedstats.parallel import cores

#: How a model is planned that predicts only when it is open.
OPENED_FIRST: Final = Cure("open before predicting", "with encrypted_prediction=False")


@dataclass(frozen=True)
class PredictionCircuit:
    """What a model that stays closed computes, before there are any rows.

    Attributes
    ----------
    name : str
        What the packs of its totals are called in the answers.
    totals : list of Expression
        What a fit computes; empty for a model that is open.
    answers : list of Expression
        For each new row, 0 in padding.
    bounds : list of Interval
        Of the answers.
    drawn : function of a layout, optional
        The totals that are drawn from a table of that layout beside those of the fit.
    drawn_name : str
        What their packs are called.
    drawn_bound : Interval
    """

    name: str
    totals: list[Expression]
    answers: list[Expression]
    bounds: list[Interval]
    drawn: Callable[[Layout], list[Expression]] | None = None
    drawn_name: str = ""
    drawn_bound: Interval = field(default_factory=lambda: Interval(0, 0))


@dataclass(frozen=True)
class PredictionCost:
    """What predicting unopened takes, beside the fit.

    Attributes
    ----------
    n_predict : int
        Rows to predict.
    technique : str
        How totals are brought beside the rows, and why.
    alternatives : dict
        Estimated seconds of each technique, that of the chosen one among them.
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
    alternatives: dict[str, float]
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
        draw = f", {show_time(self.draw_seconds)} to draw the fraction" if self.draw_seconds else ""
        return [
            (
                "prediction",
                f"{self.n_predict:,} rows, {show_time(self.seconds)}{draw}; answer {show_size(self.bytes_down)}",
            ),
            ("technique", self.technique),
        ]


def plan_prediction(
    wish: PredictionCircuit,
    ranges: Mapping[str, ColumnRange],
    n_rows: int,
    n_predict: int | None = None,
    *,
    n_columns: int,
    security: int = 128,
    scheme: Scheme | None = None,
    with_secret_key: bool = True,
    times: Times | None = None,
) -> Plan:
    """Plan a fit over so many rows and a prediction for others, nothing of it opened on the way.

    Raises
    ------
    ParameterError
        If no parameters carry it.
    """
    search = _Search(wish, dict(ranges), n_rows, n_predict, security, with_secret_key)
    found = None
    for tried in (scheme,) if scheme else ("bgv", "bfv"):
        found = found or search.parameters(tried)
    if found is None:
        raise ParameterError(*search.refusal())
    return search.plan(found, n_columns, times)


@dataclass(frozen=True)
class _Found:
    """Parameters, and the proofs for all parts."""

    parameters: Parameters
    fit: NoiseReport | None
    drawn: NoiseReport | None
    answers: JoinedProof


@dataclass(frozen=True)
class _Search:
    wish: PredictionCircuit
    ranges: dict[str, ColumnRange]
    n_rows: int
    n_predict: int | None  # as many as fill a ciphertext, where it is not said
    security: int
    with_secret_key: bool

    def _new(self, slots: int) -> Layout:
        return Layout(self.n_predict or slots, slots)

    # -- parameters ------------------------------------------------------------------------------------------------------

    def parameters(self, scheme: Scheme) -> _Found | None:
        """The smallest ring and modulus that carry everything."""
        for ring in RINGS:
            found = self._in_ring(scheme, ring)
            if found is not None:
                return found
        return None

    def largest(self) -> int:
        """The largest absolute value of a result."""
        fit = read_bounds(self.wish.totals, self.ranges, self.n_rows)
        found = [fit[total].largest for total in self.wish.totals] + [bound.largest for bound in self.wish.bounds]
        return max([*found, self.wish.drawn_bound.largest, 1])

    def _in_ring(self, scheme: Scheme, ring: int) -> _Found | None:
        largest = self.largest()
        if largest >= 1 << (MAX_PRIME_BITS - 2):
            return None
        t, layout = plain_modulus_for(ring, largest), Layout(self.n_rows, ring)
        draws = self.wish.drawn(layout) if self.wish.drawn is not None and self.n_rows else []
        shapes = _Shapes(self.wish, draws, ring, t)
        for largest_prime in (FAST_PRIME_BITS, MAX_PRIME_BITS):

            def carries(primes: tuple[int, ...]) -> bool:
                return self._proven(Parameters(scheme, ring, t, primes), shapes, layout) is not None

            sizes = smallest_chain(scheme, ring, t, self.security, carries, largest_prime)
            if sizes is not None:
                return self._proven(parameters_from_sizes(scheme, ring, t, sizes), shapes, layout)
        return None

    def _proven(self, parameters: Parameters, shapes: _Shapes, layout: Layout) -> _Found | None:
        """Proofs of all parts, with as few primes kept as there can be."""
        if not self.wish.totals:
            return self._proven_with(parameters, shapes, layout)
        for kept in range(1, len(parameters.data_moduli)):
            found = self._proven_with(replace(parameters, kept_primes=kept), shapes, layout)
            if found is not None:
                return found
        return None

    def _proven_with(self, parameters: Parameters, shapes: _Shapes, layout: Layout) -> _Found | None:
        try:
            if not self._hopeful(parameters, shapes):
                return None
            noises, reports = {}, []
            for name, circuits, count in shapes.packs:
                report = read_noise(
                    circuits,
                    parameters,
                    layout,
                    with_secret_key=self.with_secret_key,
                    n_outputs=count,
                    quick=True,
                )
                reports.append(report)
                # Models of several tables can be added up before they predict.
                noises[name] = self._expanded(parameters, report)
            proof = self._prove_answers(parameters, shapes.answers, noises)
        except (NoiseError, ParameterError):
            return None
        fit, drawn = (*reports, None, None)[:2]
        return _Found(parameters, fit, drawn, proof)

    def _hopeful(self, parameters: Parameters, shapes: _Shapes) -> bool:
        """Whether the answers would be proven if packs had no more noise than rounding leaves: quickly said, and mostly no."""
        primes = packing_primes(parameters)
        same = (parameters.data_moduli[:primes], parameters.coefficient_moduli[-1])
        if same not in shapes.hopes:
            shapes.hopes[same] = self._hope(parameters, shapes, primes)
        return shapes.hopes[same]

    def _hope(self, parameters: Parameters, shapes: _Shapes, primes: int) -> bool:
        model = packing_model(parameters, primes)
        least, noises = model.rounded(2), {}
        for name, _, _ in shapes.packs:
            packed = packed_noise(model, Noise(least.flat, least.peak))
            noises[name] = expanded_noise(model, packed).at(len(parameters.data_moduli) - primes)
        try:
            self._prove_answers(parameters, shapes.answers, noises)
        except NoiseError:
            return False
        return True

    def _prove_answers(
        self, parameters: Parameters, answers: Sequence[Expression], noises: Mapping[str, Noise]
    ) -> JoinedProof:
        new = self._new(parameters.slots)
        return prove_joined(answers, parameters, new, noises, with_secret_key=self.with_secret_key, quick=True)

    def _expanded(self, parameters: Parameters, report: NoiseReport) -> Noise:
        if report.pack is None:
            raise NoiseError("what is not packed cannot be expanded")
        primes = packing_primes(parameters)
        several = report.pack.times(2**ROOM_FOR_ADDING)
        noise = expanded_noise(packing_model(parameters, primes), replace(several, level=0))
        return replace(noise, level=len(parameters.data_moduli) - primes)

    def refusal(self) -> tuple[object, ...]:
        """Why there are no parameters."""
        deepest = depth_of(self.wish.totals) + depth_of(self.wish.answers)
        return (
            f"no parameters of {self.security}-bit security carry a fit over {self.n_rows:,} rows and a prediction that opens "
            f"nothing: together they are about {deepest} products deep, with values up to {self.largest():,}, and the largest ring "
            f"is {RINGS[-1]}. Nearest: a smaller depth or fraction, or a model that is opened before it predicts (",
            OPENED_FIRST,
            ")",
        )

    # -- cost ------------------------------------------------------------------------------------------------------------

    def plan(self, found: _Found, n_columns: int, times: Times | None) -> Plan:
        """The plan with all figures."""
        parameters = found.parameters
        times = measured_times(parameters) if times is None else times
        layout, new = Layout(self.n_rows, parameters.slots), self._new(parameters.slots)
        fit, drawn = self._fit_cost(found, layout)
        rows = self._rows_cost(found, new)
        different, every = len(totals_of(self.wish.answers)), len(self.wish.totals)
        spreading = {"pack and expand": self._expansion(parameters, different)}
        if every:
            spreading["replicate by rotating"] = self._rotation(parameters, different)
        ratio = times.finish_ratio
        seconds = {way: ratio * work_seconds(c, times, parameters) / cores() for way, c in spreading.items()}
        chosen = min(seconds, key=lambda way: seconds[way])
        over_rows = times.rows_ratio * work_seconds(rows, times, parameters) / cores()
        work = sum((cost.counts for cost in (fit, drawn) if cost is not None), rows + spreading[chosen])
        prediction = PredictionCost(
            new.n_rows,
            self._technique(chosen, different, every),
            {way: found + over_rows for way, found in seconds.items()} if every else {},
            every,
            different,
            packing_primes(parameters) if every else 0,
            0.0 if drawn is None else drawn.seconds(times),
            over_rows + (seconds[chosen] if every else 0.0),
            len(self.wish.answers) * new.n_chunks * parameters.packed_bytes(len(parameters.data_moduli) - 1),
        )
        outputs = self.wish.drawn(layout) if drawn is not None and self.wish.drawn is not None else []
        return Plan(
            parameters=parameters,
            layout=layout,
            depth=max(depth_of(self.wish.totals), depth_of(outputs)) + depth_of(self.wish.answers),
            largest=self.largest(),
            n_columns=n_columns,
            n_totals=every + len(outputs),
            bytes_up=n_columns * layout.n_chunks * parameters.packed_bytes(),
            bytes_down=prediction.bytes_down,
            products=_number(work, "multiply"),
            key_switches=_number(work, "key switch"),
            memory=memory_of(parameters, fit) if fit is not None else 0,
            encrypt_seconds=n_columns * layout.n_chunks * times.encrypt / cores(),
            seconds=(0.0 if fit is None else fit.seconds(times)),
            rotations=rotations_needed(outputs, layout),
            report=found.answers.report,
            prediction=prediction,
            flooded=not self.with_secret_key,
        )

    def _technique(self, chosen: str, different: int, every: int) -> str:
        if not every:
            return "an open model: its numbers are coefficients"
        text = f"{chosen}: {different:,} totals, each into all slots of a ciphertext"
        if different < every:
            text += f" ({every:,} in the model; equal splits are shared)"
        return text

    def _fit_cost(self, found: _Found, layout: Layout) -> tuple[Cost | None, Cost | None]:
        costs: list[Cost | None] = []
        drawn = self.wish.drawn(layout) if self.wish.drawn is not None and self.n_rows else []
        for report, outputs in ((found.fit, self.wish.totals), (found.drawn, drawn)):
            if report is None:
                costs.append(None)
            else:
                costs.append(
                    read_cost(
                        outputs,
                        found.parameters,
                        layout,
                        report.strategy,
                        with_secret_key=self.with_secret_key,
                        width=report.width,
                    )
                )
        return costs[0], costs[1]

    def _rows_cost(self, found: _Found, new: Layout) -> Counter[Kind]:
        machine = CostMachine(found.parameters, with_secret_key=self.with_secret_key, known=self._known(found))
        walked(machine, self.wish.answers, found.answers.report.strategy, new, SLOTS)
        return Counter({kind: count * new.n_chunks for kind, count in machine.counts.items()})

    def _known(self, found: _Found) -> dict[str, Noise]:
        """The noises of the answers' columns, by name instead of kind."""
        names = totals_of(self.wish.answers)
        noises = found.answers.noises
        fresh = noises.get("fresh")
        known = {} if fresh is None else dict.fromkeys(self.ranges, fresh)
        return {**known, **{key: noises[name] for key, (name, _) in names.items() if name in noises}}

    def _expansion(self, parameters: Parameters, different: int) -> Counter[Kind]:
        """A key switch for every total but one, and one for every level that has a total without a partner; two additions each."""
        primes = packing_primes(parameters)
        switches = max(0, different - 1) + packing_levels(different)
        return Counter(
            {("key switch", 2, primes): switches, ("add", 2, primes): 2 * switches, ("scale", 2, primes): different}
        )

    def _rotation(self, parameters: Parameters, different: int) -> Counter[Kind]:
        primes = packing_primes(parameters)
        steps = different * (parameters.ring_degree.bit_length() - 1)
        return Counter({("key switch", 2, primes): steps, ("add", 2, primes): steps})


class _Shapes:
    """The circuits of a wish, with one node for all of a shape."""

    def __init__(self, wish: PredictionCircuit, draws: list[Expression], ring: int, t: int) -> None:
        self._wish, self._ring, self._t = wish, ring, t
        self.packs: list[tuple[str, list[Expression], int]] = []
        if wish.totals:
            self.packs.append((wish.name, compressed(wish.totals, {}), len(wish.totals)))
        if draws:
            self.packs.append((wish.drawn_name, compressed(draws, {}), len(draws)))
        self.hopes: dict[
            tuple[tuple[int, ...], int], bool
        ] = {}  # by the primes that are kept, and that of key switching

    @cached_property
    def answers(self) -> list[Expression]:
        """The answers, with coefficients for the factors that expanded totals have."""
        names = totals_of(self._wish.answers)
        packed = {name for name, _, _ in self.packs}
        scale = expansion_scale(self._ring, self._t)
        factors = {key: scale for key, (name, _) in names.items() if name in packed}
        circuits = [circuit for circuit, _ in followed(self._wish.answers, factors, self._t)]
        kinds = {name: HERE for name in column_names(circuits) if name.startswith(HERE)}
        return compressed(circuits, kinds | {key: name for key, (name, _) in names.items()})


def _number(work: Counter[Kind], name: str) -> int:
    return sum(count for (kind, _, _), count in work.items() if kind == name)
