"""Anybody who opens a result learns its totals, and nothing that is linear in rows: the attack on
packs, tried.

What merging leaves beside the totals is a linear map of the rows, known to everybody. Elimination
modulo t tells what it determines: all rows of a single total, and of several at least as many
equations as there are rows. Cleared packs leave nothing to eliminate.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pandas as pd
import pytest
from circuit_samples import Lab, lab_of, totals_of
from numpy.typing import NDArray

import encryptedstats as es
from encryptedstats.circuits import column
from encryptedstats.circuits.devices.seal import SealExecution
from encryptedstats.circuits.devices.steps import StepByStep
from encryptedstats.circuits.evaluate import compile_for, evaluate
from encryptedstats.circuits.results import EncryptedNumbers
from encryptedstats.crypto import packing
from encryptedstats.crypto.engine import Engine, engine_for
from encryptedstats.crypto.packing import (
    packing_elements,
    packing_levels,
    packing_parameters,
    packing_places,
    plaintext_coefficients,
)
from encryptedstats.crypto.residues import Residues, ciphertext_of, residues_of

Numbers = NDArray[np.int64]
ROWS = 40
COLUMNS = ("a0", "a1", "b0", "y0", "n")


def moved(polynomials: Numbers, level: int, t: int) -> Numbers:
    """The automorphism of a level, on plaintexts."""
    ring = polynomials.shape[-1]
    for element in packing_elements(ring)[level]:
        targets = np.arange(ring) * element % (2 * ring)
        out = np.empty_like(polynomials)
        out[..., targets % ring] = polynomials * np.where(targets < ring, 1, -1)
        polynomials = out % t
    return polynomials


def shifted(polynomials: Numbers, by: int) -> Numbers:
    return np.concatenate([-polynomials[..., -by:], polynomials[..., :-by]], axis=-1)


def merged(polynomials: Numbers, level: int, t: int) -> Numbers:
    """What packing makes of plaintexts, up to a level: (totals, ..., N) to (..., N)."""
    if level == 0:
        return polynomials[0]
    half, ring = 1 << (level - 1), polynomials.shape[-1]
    even = merged(polynomials[:half], level - 1, t)
    if len(polynomials) <= half:
        return (even + moved(even, level, t)) % t
    odd = shifted(merged(polynomials[half:], level - 1, t), ring >> level)
    return (even + odd + moved((even - odd) % t, level, t)) % t


@cache
def unit_rows(engine: Engine) -> Numbers:
    """The plaintext of a 1 in each of the first slots: (rows, N)."""
    units = np.eye(ROWS, engine.parameters.slots, dtype=np.int64)
    found = [
        plaintext_coefficients(engine.encoder.encode(unit), engine.parameters.ring_degree)
        for unit in units
    ]
    return np.array(found).astype(np.int64)


def linear_map(engine: Engine, n_totals: int, level: int) -> Numbers:
    """How the coefficients of a pack depend on the rows of every total: (N, totals * rows)."""
    t, ring, rows = (
        engine.parameters.plain_modulus,
        engine.parameters.ring_degree,
        unit_rows(engine),
    )
    found = []
    for i in range(n_totals):
        polynomials = np.zeros((n_totals, ROWS, ring), dtype=np.int64)
        polynomials[i] = rows
        found.append(merged(polynomials, level, t))
    return np.concatenate(found).T


def solved(matrix: Numbers, right: Numbers, t: int) -> tuple[int, Numbers]:
    """The rank of a system modulo t, and a solution (0 where nothing is determined)."""
    a = np.concatenate([matrix, right[:, None]], axis=1) % t
    pivots: list[int] = []
    for j in range(matrix.shape[1]):
        below = np.flatnonzero(a[len(pivots) :, j])
        if not len(below):
            continue
        row = len(pivots)
        a[[row, row + below[0]]] = a[[row + below[0], row]]
        a[row] = a[row] * pow(int(a[row, j]), -1, t) % t
        others = np.flatnonzero(a[:, j])
        others = others[others != row]
        a[others] = (a[others] - a[others, j][:, None] * a[row]) % t
        pivots.append(j)
    solution = np.zeros(matrix.shape[1], dtype=np.int64)
    solution[pivots] = a[: len(pivots), -1]
    return len(pivots), solution


def coefficients_of(lab: Lab, pack: Residues) -> Numbers:
    """What the key holder sees."""
    small = engine_for(packing_parameters(lab.parameters))
    plain = lab.owner._decryptor.decrypt_packed(ciphertext_of(small, pack))
    return plaintext_coefficients(plain, lab.parameters.ring_degree).astype(np.int64)


def equations(lab: Lab, pack: Residues, n_totals: int, level: int) -> tuple[Numbers, Numbers]:
    """What lies beside the totals, as a linear map of the rows of every total, and what it is found
    to be.
    """
    engine, ring = engine_for(packing_parameters(lab.parameters)), lab.parameters.ring_degree
    remaining = np.setdiff1d(np.arange(ring), packing_places(n_totals, ring))
    return linear_map(engine, n_totals, level)[remaining], coefficients_of(lab, pack)[remaining]


@pytest.fixture(scope="module")
def lab() -> Lab:
    return lab_of("bgv", 0, 4000, (40,) * 5)


def sums_of(lab: Lab) -> tuple[list[Residues], Numbers]:
    """Totals that are ready to be packed, and the columns they add up."""
    source = lab.source((ROWS,), seed=3)
    program = compile_for([column(name).total() for name in COLUMNS], source).program
    found = totals_of(program, source, StepByStep(SealExecution).totals)
    rows = np.array([source.columns[name] for name in COLUMNS])
    return [found[output.step] for output in program.outputs], rows


@pytest.mark.parametrize("n_totals", [1, 2, 5])
def test_the_attack_works_where_packs_are_merged_and_not_cleared(lab: Lab, n_totals: int) -> None:
    """As results were made once: of one total all rows come back, of several many equations that
    their rows fulfil.
    """
    sums, rows = sums_of(lab)
    engine, small = lab.keys.engine, engine_for(packing_parameters(lab.parameters))
    contexts = [
        packing.to_packing_context(engine, ciphertext_of(engine, each)) for each in sums[:n_totals]
    ]
    level = packing_levels(n_totals)
    uncleared = residues_of(
        small, packing._merge_all(small, lab.keys.evaluator.packing_keys, contexts, level, 0)
    )
    matrix, found = equations(lab, uncleared, n_totals, level)
    t = lab.parameters.plain_modulus
    np.testing.assert_array_equal(matrix @ rows[:n_totals].ravel() % t, found)
    rank, solution = solved(matrix, found, t)
    assert rank >= ROWS
    if n_totals == 1:
        np.testing.assert_array_equal(solution, rows[0] % t)


def test_the_attack_finds_nothing_in_a_result(lab: Lab) -> None:
    source = lab.source((ROWS,), seed=3)
    totals = evaluate([column(name).total() for name in COLUMNS], source)
    top = lab.parameters.ring_degree.bit_length() - 1
    matrix, found = equations(lab, totals.parts[0].residues, len(COLUMNS), top)
    assert solved(matrix, found, lab.parameters.plain_modulus)[0] == 0
    assert not found.any()


# -- every kind of result that leaves a worker
# -----------------------------------------------------------------------------


def beside_the_totals(owner: es.Owner, totals: EncryptedNumbers) -> Numbers:
    """All plaintext coefficients that are not a total's, of all packs."""
    small, ring, found = (
        engine_for(packing_parameters(owner.parameters)),
        owner.parameters.ring_degree,
        [],
    )
    for number, part in enumerate(totals.parts):
        plain = owner._decryptor.decrypt_packed(ciphertext_of(small, part.residues))
        count = min(totals.width, len(totals) - number * totals.width)
        found.append(np.delete(plaintext_coefficients(plain, ring), packing_places(count, ring)))
    return np.concatenate(found).astype(np.int64)


def tables(n_rows: int) -> tuple[pd.DataFrame, pd.DataFrame, es.Schema]:
    rng = np.random.default_rng(5)
    ages, markers, sick = (
        rng.integers(20, 90, n_rows),
        rng.normal(size=n_rows),
        rng.integers(0, 2, n_rows),
    )
    frame = pd.DataFrame({"age": ages, "marker": markers, "sick": sick})
    return frame[: n_rows // 2], frame[n_rows // 2 :], es.Schema.infer(frame, target="sick")


def check_all(owner: es.Owner, results: Sequence[EncryptedNumbers]) -> None:
    for totals in results:
        remaining = beside_the_totals(owner, totals)
        assert len(remaining)
        assert not remaining.any()


def test_two_sites_pool_a_forest_and_who_opens_it_finds_totals_alone() -> None:
    """The notebook's forest, 30 trees of depth 2 over 100 rows of two sites: nothing is left to
    solve for.
    """
    one, two, schema = tables(100)
    forest = es.CompletelyRandomForest(n_trees=30, depth=2, random_state=1)
    owner = es.Owner(es.plan(forest, schema, n_rows=100, by_others=True))
    sites = [
        owner.public_keys().encrypt(schema.table(part), workers=1).accept_others()
        for part in (one, two)
    ]
    fits = [
        es.CompletelyRandomForest(n_trees=30, depth=2, random_state=1).fit(site) for site in sites
    ]
    pooled = fits[0] + fits[1]
    check_all(owner, [fit.totals_ for fit in (*fits, pooled)])
    assert all(fit.totals_.flooded for fit in (*fits, pooled))
    opened = owner.open(pooled, schema=schema)
    clear = es.CompletelyRandomForest(n_trees=30, depth=2, random_state=1).fit(
        schema.table(pd.concat([one, two]))
    )
    np.testing.assert_array_equal(opened.leaf_counts_, clear.leaf_counts_)


def test_statistics_models_folds_and_draws_hold_nothing_else() -> None:
    frame, _, schema = tables(80)
    forest = es.CompletelyRandomForest(n_trees=2, depth=1, fraction=2, random_state=1)
    owner = es.Owner(es.plan(forest, schema, n_rows=40, encrypted_prediction=True, folds=2))
    table = owner.encrypt(schema.table(frame, folds=2), workers=1)
    fitted = es.CompletelyRandomForest(n_trees=2, depth=1, fraction=2, random_state=1).fit(table)
    results = [table.counts("v0", by="class").ciphertexts, fitted.totals_]
    if getattr(fitted, "drawn_", None) is not None:
        results.append(fitted.drawn_)
    check_all(owner, results)
