"""Risk sets over an agreed grid of times, merged until enough rows leave at every step.

The difference of two consecutive sums over risk sets is a sum over the rows that leave between
them; without the sum over events, which Efron's rule needs, it is one over censored rows; and
columns of factors, and products of two, have the share of their levels in each. So times are
merged, in their order, until all of these are sums over the minimum of rows, or over none. A single
event needs no sum of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from encryptedstats.errors import DataError
from encryptedstats.procedures.pooled.algebra import Matrix, Vector, dot, exact_log
from encryptedstats.procedures.pooled.scaling import weighted_products

Floats = NDArray[np.float64]
_LOG_2: Final = exact_log(2.0)


@dataclass(frozen=True)
class TimeCounts:
    """Rows of a group by time: all rows, or those of a level.

    Attributes
    ----------
    leaving : sequence of int
        Rows that leave at each time, with or without the event.
    events : sequence of int
    """

    leaving: Sequence[int]
    events: Sequence[int]

    def between(self, start: int, end: int) -> tuple[int, int]:
        """Return the rows that leave from one time until before another, and their events."""
        return sum(self.leaving[start:end]), sum(self.events[start:end])


def merge_times(groups: Sequence[TimeCounts], minimum: int, efron: bool) -> list[int]:
    """Return the first time of each step, as many as can be; the first group is of all rows.

    >>> merge_times([TimeCounts([20, 3, 4, 9, 2], [5, 1, 0, 2, 0])], 10, efron=False)
    [0, 1]
    """
    starts = _merge(groups, minimum, efron, single=True)
    if efron and not _are_hidden(_count_single(groups, starts), minimum):
        return _merge(groups, minimum, efron, single=False)
    return starts


def _merge(groups: Sequence[TimeCounts], minimum: int, efron: bool, *, single: bool) -> list[int]:
    """Return the most steps that have enough rows, the earliest of several; one if none have."""
    n_times = len(groups[0].leaving)
    # Whole numbers as floats: what false counts add up to is refused elsewhere, and does not wrap.
    rows, events = (
        np.array([[0, *accumulate(part)] for part in parts], dtype=np.float64)
        for parts in zip(*((one.leaving, one.events) for one in groups), strict=True)
    )

    def is_enough(start: int) -> NDArray[np.bool_]:
        """Return which ends, from the next time on, make a step with enough rows of this start."""
        left, d = (part[:, start + 1 :] - part[:, start, np.newaxis] for part in (rows, events))
        found = (left[0] >= minimum) & _are_hidden(left, minimum)
        if efron:
            is_single = single & (d[0] == 1)
            found &= is_single | (_are_hidden(d, minimum) & _are_hidden(left - d, minimum))
        return np.asarray(found)

    #: From each time on: how many steps there can be, and where the first of them ends.
    most, ends = np.full(n_times + 1, -1), [n_times] * n_times
    most[n_times] = 0
    for start in reversed(range(n_times)):
        possible = np.where(is_enough(start), most[start + 1 :], -1)
        best = int(possible.argmax())
        if possible[best] >= 0:
            most[start], ends[start] = possible[best] + 1, start + 1 + best
    starts = [0]
    while (end := ends[starts[-1]]) < n_times:
        starts.append(end)
    return starts


def _are_hidden(counts: ArrayLike, minimum: int) -> Any:
    """Return whether sums over so many rows, each of a group, are all of enough rows or of none."""
    known = np.asarray(counts)
    return ((known == 0) | (known >= minimum)).all(axis=0)


def _count_single(groups: Sequence[TimeCounts], starts: Sequence[int]) -> list[int]:
    """Return the events of each group in steps with a single event: the sum over all events, less
    those of the other steps, is over these.
    """
    ends = [*starts[1:], len(groups[0].leaving)]
    steps = [one for one in zip(starts, ends, strict=True) if groups[0].between(*one)[1] == 1]
    return [sum(group.between(*one)[1] for one in steps) for group in groups]


@dataclass(frozen=True)
class RiskSteps:
    """Steps of time with events, as the state has them.

    Attributes
    ----------
    starts : list of int
        The first time of each.
    events : list of int
    """

    starts: list[int]
    events: list[int]

    @classmethod
    def of(cls, groups: Sequence[TimeCounts], minimum: int, efron: bool) -> RiskSteps:
        """Return the merged steps that have events; the first group is that of all rows."""
        starts, events = merge_times(groups, minimum, efron), groups[0].events
        sums = [sum(events[a:b]) for a, b in zip(starts, [*starts[1:], len(events)], strict=True)]
        kept = [k for k, d in enumerate(sums) if d]
        return cls([starts[k] for k in kept], [sums[k] for k in kept])

    def places(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the last step at which each row is at risk; -1 for none."""
        found: NDArray[np.int64] = np.searchsorted(self.starts, times, side="right") - 1
        return found


@dataclass(frozen=True)
class RiskRows:
    """The complete rows of a site: standardised columns, times and events."""

    z: Floats
    times: NDArray[np.int64]
    is_event: NDArray[np.bool_]

    def sums(self, steps: RiskSteps, beta: Sequence[float], efron: bool) -> list[float]:
        """Return the columns summed over events, and for each step the sums of exp(z'beta) and of
        it times z: over the rows at risk, and for Efron over the events.
        """
        weighted = self._weigh(beta)
        place, n = steps.places(self.times), len(steps.starts)
        found: list[float] = self.z[self.is_event].sum(axis=0).tolist()
        at_risk = np.zeros((n, weighted.shape[1]))
        np.add.at(at_risk, place[place >= 0], weighted[place >= 0])
        found += np.cumsum(at_risk[::-1], axis=0)[::-1].reshape(-1).tolist()
        if efron:
            at_event = np.zeros((n, weighted.shape[1]))
            np.add.at(at_event, place[self.is_event], weighted[self.is_event])
            # Of a single event, nothing but the event itself would be in these sums.
            at_event[np.array(steps.events) == 1] = 0.0
            found += at_event.reshape(-1).tolist()
        return found

    def products(
        self,
        steps: RiskSteps,
        beta: Sequence[float],
        shares: tuple[Sequence[float], Sequence[float]],
    ) -> list[float]:
        """Return the sum over steps of ``shares[0]`` times Z'WZ of the rows at risk, less
        ``shares[1]`` times that of the events. It is one sum over rows: no step shows.
        """
        place = steps.places(self.times)
        total = np.append(np.cumsum(shares[0]), 0.0)[place]  # the last place is of no step
        total = total - self.is_event * np.append(shares[1], 0.0)[place]
        return weighted_products(self.z, self._weigh(beta)[:, 0] * total)

    def weigh_events(self, steps: RiskSteps, values: Sequence[float]) -> list[float]:
        """Return the columns summed over events, each times the value of its step."""
        place = steps.places(self.times[self.is_event])
        summed: list[float] = (self.z[self.is_event].T @ np.array(values)[place]).tolist()
        return summed

    def _weigh(self, beta: Sequence[float]) -> Floats:
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused later
            weight = np.exp(self.z @ np.array(beta))
            found: Floats = np.column_stack([weight, self.z * weight[:, None]])
        return found


@dataclass(frozen=True)
class StepSums:
    """What follows from the opened sums of one step.

    Attributes
    ----------
    log_sum : float
        The sum of logarithms in the partial likelihood.
    score : list of float
        What is subtracted from the columns of the events.
    outer : list of lists
        What is subtracted from the products.
    at_risk, at_event : float
        What the products of rows at risk and of events are multiplied by.
    """

    log_sum: float
    score: Vector
    outer: Matrix
    at_risk: float
    at_event: float

    @classmethod
    def of(cls, n_events: int, risk: Sequence[float], event: Sequence[float] | None) -> StepSums:
        """Evaluate one step: of d events, the k-th has left Efron's risk set by k/d."""
        (s0, *s1), (e0, *e1) = risk, event or [0.0] * len(risk)
        inverse, mantissa, exponent = list[tuple[float, float]](), 1.0, 0
        for k in range(n_events):
            share = k / n_events if event is not None else 0.0
            left = s0 - share * e0
            if not left > 0:
                raise DataError(
                    "the hazards of a risk set round to nothing: a coefficient grows without "
                    "bound. Allow fewer steps, max_iterations=, or more bits=",
                    code="empty-risk-set",
                )
            inverse.append((share, 1 / left))
            mantissa, more = math.frexp(mantissa * left)
            exponent += more

        def total(power: int) -> float:
            return math.fsum(
                i * i * (1.0 if not power else s * (s if power > 1 else 1.0)) for s, i in inverse
            )

        at_risk = math.fsum(i for _, i in inverse)
        at_event = math.fsum(s * i for s, i in inverse)
        aa, ab, bb = total(0), total(1), total(2)
        score = [a * at_risk - b * at_event for a, b in zip(s1, e1, strict=True)]
        outer = [
            [
                dot([s1[a] * s1[b], -(s1[a] * e1[b] + e1[a] * s1[b]), e1[a] * e1[b]], [aa, ab, bb])
                for b in range(len(s1))
            ]
            for a in range(len(s1))
        ]
        return cls(exact_log(mantissa) + exponent * _LOG_2, score, outer, at_risk, at_event)
