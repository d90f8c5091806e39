"""Validity of encrypted rows: totals that are 0 for well-formed columns, and almost never for
others.

A rule is a polynomial in the columns that is 0 in every slot of a valid table. All rules are
weighted, slot by slot, by public random numbers modulo t and added up. For valid rows the total is
0 whatever the weights are. If one rule is not 0 in one slot, the total is a nonzero linear function
of that slot's weight, and 0 for one weight in t. For prime t an invalid table passes with
probability 1/t, provided that the weights are drawn after the ciphertexts are fixed, by a coin that
their maker does not know (``transcript``). The number of totals, each with its own weights, makes
one in 2^40 pass: even if the party that excludes sites colludes with the one that made invalid rows
and picks, once all numbers are revealed, the best coin that excluding some of the others would
give.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from encryptedstats.circuits.bounds import Interval
from encryptedstats.circuits.evaluate import evaluate
from encryptedstats.circuits.expressions import Expression, Weights, column, column_names, sum_of
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.results import EncryptedNumbers
from encryptedstats.circuits.search import Stage
from encryptedstats.tables import EncryptedTable
from encryptedstats.tables.columns import stored_groups
from encryptedstats.tables.encodings import ColumnGroup
from encryptedstats.tables.schema.variables import PublicSchema

#: What is drawn to plan with: noise does not depend on which numbers the weights are.
_ANY_COIN: Final = b"planned"
#: Bad rows pass with a probability of at most 2 to the power of minus this.
MISSED_BITS: Final = 40


@dataclass(frozen=True)
class Rule:
    """A polynomial ``constant + expression`` that is 0 in rows, in padding, or in all slots."""

    expression: Expression
    constant: int = 0
    rows: bool = True
    padding: bool = True


def group_rules(group: ColumnGroup) -> list[Rule]:
    """Return what must be 0 in the columns of one variable, or of the target, by their encoding.

    In padding everything is 0: a row there would be counted unseen. Numbers cannot be checked: that
    one lies between its bounds is no equation of small degree.
    """
    found = group.encoding.conditions(group)
    valid = [Rule(expression, constant, padding=not constant) for expression, constant in found]
    return [*valid, *(Rule(column(str(one)), rows=False) for one in group.columns)]


def study_groups(schema: PublicSchema, digit_bits: int | None = None) -> list[ColumnGroup]:
    """Return the columns of a table in a study, and their encodings."""
    return stored_groups(schema, classes=schema.has_target, digit_bits=digit_bits)


def unchecked_columns(groups: Sequence[ColumnGroup]) -> list[str]:
    """Return the columns whose values no rule checks: numbers, which must be believed to keep their
    bounds.
    """
    found = [condition for group in groups for condition in group.encoding.conditions(group)]
    bound = set(column_names(expression for expression, _ in found))
    return [str(one) for group in groups for one in group.columns if str(one) not in bound]


# -- the total -------------------------------------------------------------------------------------


def validity_total(
    groups: Sequence[ColumnGroup], layout: Layout, coin: bytes, modulus: int
) -> Expression:
    """Return all rules, weighted by a coin and added up over all slots: a total modulo t."""
    terms: list[Expression] = []
    constant = 0
    for number, rule in enumerate(rule for group in groups for rule in group_rules(group)):
        seed = hashlib.sha256(b"encryptedstats rule\0" + number.to_bytes(8, "big") + coin).digest()
        for weights in _weights(rule, layout, seed):
            terms.append(rule.expression.mask(weights))
            if rule.constant:
                constant += rule.constant * sum(map(int, weights.in_slots(layout.slots, modulus)))
    return sum_of(terms).total() + constant % modulus


def _weights(rule: Rule, layout: Layout, seed: bytes) -> Iterator[Weights]:
    for chunk, count in enumerate(layout.counts):
        start, stop = 0 if rule.rows else count, layout.slots if rule.padding else count
        if start < stop:
            yield Weights(chunk, start, stop, seed)


def plan_validity(schema: PublicSchema, n_rows: int) -> Stage:
    """Return the validity total of a site that has all rows of the study, for a plan."""
    groups = study_groups(schema)
    # Its size says nothing: it is 0, or the site is excluded. Noise is the same for any modulus.
    return Stage(
        lambda layout: [validity_total(groups, layout, _ANY_COIN, 1)],
        n_rows,
        bounds=Interval(-1, 1),
    )


def repeats(modulus: int, sites: int) -> int:
    """Return the number of totals.

    Invalid rows of one site have a chance for every set of other sites that could be excluded.
    """
    return math.ceil((MISSED_BITS + sites - 1) / math.log2(modulus))


def ask(table: EncryptedTable, coin: bytes, sites: int, **options: Any) -> EncryptedNumbers:
    """Return the encrypted validity totals of a site's table, flooded."""
    modulus, largest = table.parameters.plain_modulus, table.parameters.max_value
    groups = table.facts.groups
    totals = [
        validity_total(
            groups, table.layout, hashlib.sha256(coin + bytes([number])).digest(), modulus
        )
        for number in range(repeats(modulus, sites))
    ]
    # Each by itself: two in one would be weighted by one number less.
    return evaluate(
        totals,
        table.source(),
        bounds=[Interval(-largest, largest)] * len(totals),
        flood=True,
        **options,
    )


def passes(
    totals: EncryptedNumbers, opener: Callable[[EncryptedNumbers], Sequence[int]], sites: int
) -> bool:
    """Return True if the opened totals are those of valid rows. Nothing else of them is
    revealed.
    """
    if len(totals) != repeats(totals.keys.parameters.plain_modulus, sites):
        return False
    try:
        return not any(opener(totals))
    except ValueError:  # so far from 0 that it is no total at all
        return False
