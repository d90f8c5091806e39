"""Fisher's exact test: the distribution of a table of counts when both its margins are fixed.

Two groups by two have one free count, whose distribution is hypergeometric. Larger tables are
built column by column: a state is the rows that remain, and tables that reach the same state with
the same probability are counted together (Mehta and Patel, 1983). Nothing here knows encryption.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Tables whose probabilities differ by rounding only are equally likely, as in R's fisher.test.
TOLERANCE: Final = 1e-7
#: The most steps between states, and the most steps of partial tables, of an exact computation.
MOST_STEPS: Final = 2_000_000
MOST_PARTIAL: Final = 4_000_000
SIMULATED: Final = 20_000
SEED: Final = 1983
_SAME: Final = 1e-9  # logarithms of probabilities this close are taken as one


def log_factorials(largest: int) -> Floats:
    """Return log k! for k from 0 to ``largest``, summed in the widest floats there are."""
    logs = np.log(np.arange(1, largest + 1, dtype=np.longdouble))
    return np.concatenate([[0], np.cumsum(logs)]).astype(np.float64)


# -- two groups by two -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Hypergeometric:
    """The first count of a table of two by two with fixed margins, for any odds ratio.

    Attributes
    ----------
    low : int
        The least that the count can be.
    logs : array
        Logarithms of the probabilities of ``low``, ``low`` + 1 ... at an odds ratio of 1, up to a
        constant; the largest is 0.
    """

    low: int
    logs: NDArray[np.longdouble]

    @classmethod
    def of(cls, counts: Ints) -> Hypergeometric:
        """Return the distribution with the margins of these counts."""
        (a, b), (c, d) = counts.tolist()
        first, left, n = a + b, a + c, a + b + c + d
        low, high = max(0, left - (n - first)), min(first, left)
        k = np.arange(low, high, dtype=np.longdouble)
        # Sums of ratios between neighbours lose less than differences of large factorials.
        ratios = np.log((first - k) * (left - k)) - np.log((k + 1) * (n - first - left + k + 1))
        return cls(low, _around_largest(ratios))

    def probabilities(self, log_odds: float = 0.0) -> NDArray[np.longdouble]:
        """Return the probability of every count at this odds ratio."""
        tilted = self.logs + log_odds * np.arange(len(self.logs), dtype=np.longdouble)
        found = np.exp(tilted - tilted.max())
        return np.asarray(found / found.sum())

    def mean(self, log_odds: float) -> float:
        """Return the expected count above ``low``."""
        return float((self.probabilities(log_odds) * np.arange(len(self.logs))).sum())

    def upper(self, place: int, log_odds: float = 0.0) -> float:
        """Return the probability of a count of ``low + place`` or more."""
        return float(self.probabilities(log_odds)[place:].sum())

    def lower(self, place: int, log_odds: float = 0.0) -> float:
        """Return the probability of a count of ``low + place`` or less."""
        return float(self.probabilities(log_odds)[: place + 1].sum())


def _around_largest(ratios: NDArray[np.longdouble]) -> NDArray[np.longdouble]:
    """Add up ratios outwards from the largest term, next to which rounding matters most."""
    top = int((ratios > 0).sum())  # they fall, so that terms rise up to here
    zero = np.zeros(1, dtype=np.longdouble)
    before = -np.cumsum(ratios[:top][::-1])[::-1]
    return np.concatenate([before, zero, np.cumsum(ratios[top:])])


def two_by_two_pvalue(counts: Ints, alternative: str) -> float:
    """Return the p-value of a table of two by two."""
    found = Hypergeometric.of(counts)
    place = int(counts[0, 0]) - found.low
    if alternative == "less":
        return min(1.0, found.lower(place))
    if alternative == "greater":
        return min(1.0, found.upper(place))
    p = found.probabilities()
    return min(1.0, float(p[p <= p[place] * (1 + TOLERANCE)].sum()))


def conditional_odds(
    counts: Ints, alternative: str, confidence: float
) -> tuple[float, tuple[float, float]]:
    """Return the conditional maximum likelihood of the odds ratio, and its exact interval."""
    found = Hypergeometric.of(counts)
    place, last = int(counts[0, 0]) - found.low, len(found.logs) - 1
    if not last:  # a margin is empty: every odds ratio has this table
        return math.nan, (0.0, math.inf)
    estimate = 0.0 if place == 0 else math.inf
    if 0 < place < last:
        estimate = math.exp(_root(lambda x: found.mean(x) - place))
    tail = (1 - confidence) / 2 if alternative == "two-sided" else 1 - confidence
    low, high = 0.0, math.inf
    if alternative != "less" and place > 0:
        low = math.exp(_root(lambda x: found.upper(place, x) - tail))
    if alternative != "greater" and place < last:
        high = math.exp(_root(lambda x: tail - found.lower(place, x)))
    return estimate, (low, high)


def _root(rising: Callable[[float], float]) -> float:
    """Return where a function that rises from below 0 to above 0 crosses it."""
    from scipy.optimize import brentq

    low, high = -1.0, 1.0
    while rising(low) > 0:
        low *= 2
    while rising(high) < 0:
        high *= 2
    return float(brentq(rising, low, high, xtol=1e-14, rtol=1e-14))


# -- larger tables ---------------------------------------------------------------------------------


class _TooLargeError(Exception):
    """Raised where an exact computation would take too many steps."""


@dataclass(frozen=True)
class _Stage:
    """One column of the table: the states before it, and the steps that fill it.

    Attributes
    ----------
    first : array
        Where the steps of each state begin, and the number of all steps at the end.
    child : array
        The state that each step leads to.
    log : array
        The logarithm of the weight of each step.
    total, longest, shortest : array
        For every state the logarithm of the weight of all ways to complete the table, and of the
        most and the least likely of them.
    """

    first: Ints
    child: Ints
    log: Floats
    total: Floats
    longest: Floats
    shortest: Floats


def larger_pvalue(counts: Ints) -> tuple[float, bool]:
    """Return the two-sided p-value of a table of any shape, and whether it is exact.

    A table that is too large for that is compared with :data:`SIMULATED` random tables of the same
    margins, always the same ones.
    """
    # A state has a number for every row, so that the shorter side is taken as rows.
    table = counts if counts.shape[0] <= counts.shape[1] else counts.T
    try:
        return min(1.0, _exact_pvalue(table)), True
    except _TooLargeError:
        return _simulated_pvalue(table), False


def _exact_pvalue(table: Ints) -> float:
    """Add up the probabilities of all tables that are at most as likely as this one."""
    rows, columns = np.sort(table.sum(axis=1))[::-1], np.sort(table.sum(axis=0))[::-1]
    if int(rows.sum()) > MOST_STEPS:
        raise _TooLargeError
    logs = log_factorials(int(rows.sum()))
    stages = _stages(rows, columns, logs)
    most = -float(logs[table].sum()) + TOLERANCE
    whole, found, work = stages[0].total[0], 0.0, 0
    # Partial tables: their state, the logarithm of their weight, and how many there are.
    state, log, times = np.zeros(1, dtype=np.int64), np.zeros(1), np.ones(1)
    for stage in stages:
        # All tables that begin like this count, or none of them, or it is decided later.
        all_count = log + stage.longest[state] <= most
        sure = state[all_count]
        found += float(
            (times[all_count] * np.exp(log[all_count] + stage.total[sure] - whole)).sum()
        )
        open_ = ~all_count & (log + stage.shortest[state] <= most)
        state, log, times = state[open_], log[open_], times[open_]
        n_steps = stage.first[state + 1] - stage.first[state]
        work += int(n_steps.sum())
        if work > MOST_PARTIAL:
            raise _TooLargeError
        steps = np.repeat(stage.first[state], n_steps) + _count_up(n_steps)
        log = np.repeat(log, n_steps) + stage.log[steps]
        state, log, times = _merge_states(stage.child[steps], log, np.repeat(times, n_steps))
    return found


def _stages(rows: Ints, columns: Ints, logs: Floats) -> list[_Stage]:
    """Return the states and steps of every column, first forwards and then backwards."""
    base = int(rows[0]) + 1
    if base ** len(rows) >= 1 << 62:  # states are told apart by one number each
        raise _TooLargeError
    radix = base ** np.arange(len(rows))
    states, made, n_steps = rows[None, :], [], 0
    for column in columns.tolist():
        parent, rest, log = _steps(states, column, logs, MOST_STEPS - n_steps)
        n_steps += len(parent)
        rest = np.sort(rest, axis=1)[:, ::-1]
        _, place, child = np.unique(rest @ radix, return_index=True, return_inverse=True)
        first = np.searchsorted(parent, np.arange(len(states) + 1))
        made.append((states, first, child.reshape(-1), log))
        states = rest[place]
    longest = shortest = np.zeros(1)
    left, found = np.zeros(0, dtype=np.int64), list[_Stage]()
    for (own, first, child, log), column in zip(made[::-1], columns[::-1], strict=True):
        left = np.append(left, column)
        longest = np.maximum.reduceat(log + longest[child], first[:-1])
        shortest = np.minimum.reduceat(log + shortest[child], first[:-1])
        total = logs[own[0].sum()] - logs[own].sum(axis=1) - logs[left].sum()
        found.append(_Stage(first, child, log, total, longest, shortest))
    return found[::-1]


def _steps(states: Ints, column: int, logs: Floats, most: int) -> tuple[Ints, Ints, Floats]:
    """Return all ways to fill a column: the number of the state, the rows that remain, the weight.

    Ways are refused that would be more than ``most``.
    """
    parent, log = np.arange(len(states)), np.zeros(len(states))
    rest, missing = states.copy(), np.full(len(states), column)
    n_rows = states.shape[1]
    for row in range(n_rows):
        below = rest[:, row + 1 :].sum(axis=1)
        low, high = np.maximum(0, missing - below), np.minimum(rest[:, row], missing)
        n_ways = high - low + 1
        if int(n_ways.sum()) > most:
            raise _TooLargeError
        value = np.repeat(low, n_ways) + _count_up(n_ways)
        parent, rest = np.repeat(parent, n_ways), np.repeat(rest, n_ways, axis=0)
        rest[:, row] -= value
        missing = np.repeat(missing, n_ways) - value
        log = np.repeat(log, n_ways) - logs[value]
    return parent, rest, log


def _count_up(lengths: Ints) -> Ints:
    """Return 0, 1, 2 ... for each length, one after the other."""
    ends = np.cumsum(lengths)
    return np.arange(int(lengths.sum())) - np.repeat(ends - lengths, lengths)


def _merge_states(state: Ints, log: Floats, times: Floats) -> tuple[Ints, Floats, Floats]:
    """Count partial tables together that have one state and one weight."""
    if not len(state):
        return state, log, times
    order = np.lexsort((log, state))
    state, log, times = state[order], log[order], times[order]
    new = np.append(True, (np.diff(state) != 0) | (np.diff(log) > _SAME))
    places = np.flatnonzero(new)
    return state[places], log[places], np.add.reduceat(times, places)


def _simulated_pvalue(table: Ints) -> float:
    """Return the share of random tables of the same margins that are at most as likely.

    The table itself is counted among them, as in R, so that the p-value is never 0.
    """
    from scipy.special import gammaln

    rng = np.random.Generator(np.random.PCG64(SEED))
    rest = np.repeat(table.sum(axis=1)[None, :], SIMULATED, axis=0)
    log, n_rows = np.zeros(SIMULATED), table.shape[0]
    for column in table.sum(axis=0).tolist():
        missing = np.full(SIMULATED, column)
        for row in range(n_rows):
            below = rest[:, row + 1 :].sum(axis=1)
            drawn = (
                rng.hypergeometric(rest[:, row], below, missing) if row < n_rows - 1 else missing
            )
            rest[:, row] -= drawn
            missing = missing - drawn
            log -= gammaln(drawn + 1.0)
    own = -float(gammaln(table + 1.0).sum())
    return float((1 + (log <= own + TOLERANCE).sum()) / (SIMULATED + 1))
