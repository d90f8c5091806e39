"""What the tests of predictions share: small keys that carry fit, drawn fraction and prediction,
and tables in several pieces.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from model_samples import SLOTS, random_table

import encryptedstats as es
from encryptedstats.tables import EncryptedTable

#: The half rows, and the powers of four that all moves within them are made of.
ROTATIONS = (0, 1, 4, 16, 64, 256)


@dataclass(frozen=True)
class SmallPlan:
    """What an owner needs of a plan."""

    parameters: es.Parameters
    rotations: tuple[int, ...] = ROTATIONS


def small_parameters(
    scheme: str, max_value: int, bits: Sequence[int], kept: int | None
) -> es.Parameters:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", es.InsecureParametersWarning)
        made = es.Parameters.from_bits(scheme, SLOTS, max_value, tuple(bits), allow_insecure=True)
        return made if kept is None else replace(made, kept_primes=kept)


@cache
def planned_owner(scheme: str = "bgv", key: int = 0) -> es.Owner:
    """Keys of 1024 slots, exact up to sixteen millions, that carry a forest of depth 3 with a
    fraction of 8 draws unopened.

    Those of BFV, whose products take long, carry one of depth 2 with 2 draws.
    """
    bits, kept = ((49,) * 16, 9) if scheme == "bgv" else ((58,) * 9, 5)
    return es.Owner(SmallPlan(small_parameters(scheme, 1 << 24, bits, kept)))


def pieces_of(rows: es.Table, sizes: Sequence[int]) -> list[es.Table]:
    ends = np.cumsum(sizes)
    assert ends[-1] == len(rows)
    return [rows.take(np.arange(end - size, end)) for size, end in zip(sizes, ends, strict=True)]


def sealed_pieces(
    owner: es.Owner, rows: es.Table, sizes: Sequence[int] | None = None
) -> EncryptedTable:
    """The rows encrypted, in chunks of these sizes."""
    first, *rest = [
        owner.encrypt(piece, workers=1) for piece in pieces_of(rows, sizes or [len(rows)])
    ]
    for more in rest:
        first = first.append(more)
    return first


def without_classes(rows: es.Table) -> es.Table:
    """Rows to predict: nobody knows their class."""
    return replace(rows, class_codes=None, weights=None, weight_bound=1)


def new_rows(known: es.Schema, n_rows: int, seed: int) -> es.Table:
    return without_classes(random_table(known, n_rows, seed))


def same_votes(got: Any, wanted: Any) -> None:
    """To the last digit: the integers, the scores and the classes."""
    assert list(got.columns) == list(wanted.columns)
    assert got.to_numpy().tolist() == wanted.to_numpy().tolist()
    assert got.scores.to_numpy().tolist() == wanted.scores.to_numpy().tolist()
    assert list(got.scores.columns) == list(wanted.scores.columns)
    assert got.predict().tolist() == wanted.predict().tolist()
