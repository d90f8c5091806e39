"""Plan for spot checks: leave the spare bits that they take, and price them.

The arithmetic is in :mod:`encryptedstats.circuits.spare_bits`, the check in ``spotcheck``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from encryptedstats.circuits.coefficients import bound_coefficients
from encryptedstats.circuits.cost import Cost, OperationTimes, work_seconds
from encryptedstats.circuits.expressions import Expression
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.lowering import FLAT, Lowering, Setting
from encryptedstats.circuits.program import PACKED, Output
from encryptedstats.circuits.residue_local import find_step_obstacle
from encryptedstats.circuits.spare_bits import (
    PLANNED_WEIGHT_BITS,
    Certainty,
    Terms,
    choose_terms,
    count_residues,
    default_positions,
)
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.errors import NoiseError, ParameterError
from encryptedstats.words import size_text, time_text

#: Seconds to weigh a word of a sum on one core, once for each combination and once for all.
_WEIGH_SECONDS: Final = (0.15e-9, 1e-9)
#: Seconds for a word of a combination, to decrypt it and measure its budget on one core.
_OPEN_SECONDS: Final = 15e-9


@dataclass(frozen=True)
class SpotCheckCost:
    """What spot checks of all answers of a plan take.

    Attributes
    ----------
    positions : int
        Residues that are kept of each polynomial.
    combinations : int
        Combined sums that a worker sends for an answer, at most.
    bytes_kept, bytes_down : int
        Kept beside the key, and downloaded beside the answers.
    owner_seconds, worker_seconds : float
        Estimated time to check, and to compute the combined sums, on the cores of this machine.
    """

    positions: int
    combinations: int
    bytes_kept: int
    bytes_down: int
    owner_seconds: float
    worker_seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return the figures, ready for JSON."""
        return asdict(self)

    def rows(self) -> list[tuple[str, str]]:
        """Return what is printed: name and value."""
        return [
            (
                "spot check",
                f"a wrong answer passes with probability 2^-40; {size_text(self.bytes_kept)} kept, "
                f"{size_text(self.bytes_down)} more to download",
            ),
            (
                "",
                f"{time_text(self.worker_seconds)} more to compute, "
                f"{time_text(self.owner_seconds)} to check",
            ),
        ]


def lower_sums(
    circuits: Sequence[Expression], parameters: Parameters, layout: Layout
) -> list[Output]:
    """Lower totals to their sums, neither relinearised nor switched."""
    alone = Setting(parameters, layout, True, n_interleaved=1)
    return Lowering(alone.rules, alone, alone.schedule(FLAT)).outputs(circuits)


def has_spare_bits(
    circuits: Sequence[Expression], parameters: Parameters, layout: Layout, n_totals: int
) -> bool:
    """Return whether totals, of which these are the noisiest, leave enough spare bits."""
    steps = [output.step for output in lower_sums(circuits, parameters, layout)]
    worst = max(bound_coefficients(steps, parameters, layout.n_chunks).values())
    try:
        _terms(parameters, worst * n_totals)
    except NoiseError:
        return False
    return True


def _terms(parameters: Parameters, bound: float) -> Terms:
    kept = default_positions(parameters)
    return choose_terms(parameters, bound, kept, Certainty(), PLANNED_WEIGHT_BITS)


def check_local(
    circuits: Sequence[Expression], parameters: Parameters, layout: Layout, form: str
) -> None:
    """Refuse to plan spot checks of what cannot be recomputed residue by residue."""
    why_not = (
        "only totals that are opened can be checked"
        if form != PACKED
        else "products of BFV mix residues"
        if parameters.scheme != "bgv"
        else find_step_obstacle([one.step for one in lower_sums(circuits, parameters, layout)])
    )
    if why_not is not None:
        raise ParameterError(
            f"spot_check=True cannot be planned for this question: {why_not}. es.verify computes "
            "an answer again",
            code="not-residue-local",
        )


def price_spot_checks(
    fits: Iterable[tuple[Sequence[Expression], Cost]],
    parameters: Parameters,
    layout: Layout,
    n_columns: int,
    times: OperationTimes,
) -> SpotCheckCost:
    """Price the checks of some answers."""
    kept, down, owner, worker, most = default_positions(parameters), 0, 0.0, 0.0, 0
    for circuits, cost in fits:
        steps = [output.step for output in lower_sums(circuits, parameters, layout)]
        bounds = bound_coefficients(steps, parameters, layout.n_chunks)
        terms = _terms(parameters, sum(bounds[step] for step in steps))
        size, count = max(step.size for step in steps), terms.combinations
        over_rows = times.rows_ratio * work_seconds(cost.rows, times, parameters)
        words = sum(step.size for step in dict.fromkeys(steps)) * count_residues(parameters)
        words //= parameters.copies  # as many totals are interleaved
        each, once = _WEIGH_SECONDS
        most, down = max(most, count), down + count * parameters.packed_bytes() * size // 2
        worker += over_rows + words * (count * each + once)
        owner += over_rows * kept / count_residues(parameters)
        owner += count * size * count_residues(parameters) * _OPEN_SECONDS
    nbytes = 16 * n_columns * layout.n_chunks * kept
    return SpotCheckCost(kept, most, nbytes, down, owner, worker)
