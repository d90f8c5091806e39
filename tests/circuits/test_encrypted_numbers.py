"""Encrypted numbers: stored and loaded, added and subtracted, and opened only if they are what they
claim to be.
"""

from __future__ import annotations

import hashlib
import json
import operator
import pickle
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from circuit_samples import FORMS, SCHEMES, Lab, insecure, part_slacks
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import encryptedstats as es
from effort import examples
from encryptedstats.circuits import column
from encryptedstats.circuits.evaluate import evaluate
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.lowering import replication_steps
from encryptedstats.circuits.passes.digits import Stored
from encryptedstats.circuits.results import EncryptedNumbers, NumberFacts, Part
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.crypto.residues import ciphertext_of, residues_of
from encryptedstats.storage import container
from encryptedstats.storage.container import Container
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
A, B, Y, N, W = (column(name) for name in ("a0", "b0", "y0", "n", "w"))
STORED = (*FORMS, "rows")
OUTPUTS = [(A * Y).total(), (N + 1).total(), N.total() - 7, Y.total(), A.total()]
REFUSALS = (es.FileFormatError, es.KeyMismatchError)
#: The codes by which altered results are refused when they are opened.
REFUSED = ("outside-proven-range", "nonzero-padding", "foreign-coefficients")
MANY = settings(
    max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.fixture(scope="module", params=SCHEMES)
def small(request) -> Lab:
    """The smallest keys: files of some kilobytes, loaded thousands of times."""
    return Lab(
        es.Owner(insecure(request.param, 1 << 16, (40,) * 4)),
        tuple(replication_steps(Layout(1, 1024))),
    )


def results(
    lab: Lab, form: str = "packed", seed: int = 0, rows: int = 50, outputs=OUTPUTS
) -> tuple[Any, list[int]]:
    source = lab.source((rows,), seed)
    if form == "rows":
        outputs = [W * N, Y, N - 2]
    clear = source.clear(outputs)
    wanted = np.column_stack(clear).tolist() if form == "rows" else clear
    return evaluate(outputs, source, form=form, workers=1), wanted


def opened(lab: Lab, numbers: EncryptedNumbers) -> list[Any]:
    """Totals, or a list for every row."""
    found = lab.owner.open(numbers)
    return found if isinstance(found, list) else found.tolist()


# ----------------------------------------------------------------------------------------------
# files


@pytest.mark.parametrize("form", STORED)
def test_save_and_load(small, form, tmp_path):
    totals, expected = results(small, form)
    totals.save(tmp_path / "results")
    loaded = EncryptedNumbers.load(tmp_path / "results", small.keys)
    assert (loaded.form, loaded.width, loaded.facts) == (totals.form, totals.width, totals.facts)
    assert loaded.counts == totals.counts == ((50,) if form == "rows" else ())
    for a, b in zip(totals.parts, loaded.parts, strict=True):
        np.testing.assert_array_equal(a.residues, b.residues)
        assert a.noise == b.noise
    assert opened(small, loaded) == opened(small, totals) == expected
    if form != "rows":
        assert small.owner.open(loaded + totals) == [2 * value for value in expected]
    data = (tmp_path / "results").read_bytes()
    assert small.owner._generator.secret_key().to_string()[-1000:] not in data
    assert len(data) < totals.nbytes  # residues are packed to their bits


def test_more_totals_than_fit_a_pack(small, tmp_path):
    """Several packs in a file, the last not full."""
    pieces = [
        results(small, outputs=[(A * (k + 1) + Y).total() for k in some])
        for some in (range(4), range(4, 7))
    ]
    (first, x), (second, y) = pieces
    totals = EncryptedNumbers(
        small.keys, "packed", first.facts + second.facts, first.parts + second.parts, 4
    )
    totals.save(tmp_path / "results")
    loaded = EncryptedNumbers.load(tmp_path / "results", small.keys)
    assert (len(loaded), len(loaded.parts)) == (7, 2)
    assert small.owner.open(loaded) == x + y


def test_what_is_said(small):
    totals, _ = results(small)
    assert len(totals) == 5
    assert repr(totals).startswith(
        "EncryptedNumbers(5 totals in 1 ciphertexts, packed, 0.0 MB, key "
    )
    assert small.owner.key_id in repr(totals)
    assert totals.nbytes == totals.parts[0].residues.nbytes


def test_totals_are_not_pickled(small):
    with pytest.raises(TypeError, check=error("not-pickled")):
        pickle.dumps(results(small)[0])


def test_files_of_other_keys_and_kinds(small, tmp_path):
    totals, _ = results(small)
    totals.save(tmp_path / "results")
    same_parameters = es.Owner(small.parameters)
    with pytest.raises(es.KeyMismatchError, check=error("keys-of-the-file", small.owner.key_id)):
        EncryptedNumbers.load(tmp_path / "results", same_parameters.public_keys())
    other = es.Owner(insecure(small.parameters.scheme, 4000, (40,) * 3))
    with pytest.raises(es.KeyMismatchError, check=error("keys-of-the-file")):
        EncryptedNumbers.load(tmp_path / "results", other.public_keys())
    small.keys.save(tmp_path / "keys")
    with pytest.raises(es.FileFormatError, check=error("wrong-kind")):
        EncryptedNumbers.load(tmp_path / "keys", small.keys)


def test_fields_of_others_travel_along(small):
    totals, expected = results(small)
    file = totals.to_container("forest counts", {"trees": 3})
    assert (file.kind, file.fields["trees"]) == ("forest counts", 3)
    assert small.owner.open(EncryptedNumbers.from_container(file, small.keys)) == expected


# ----------------------------------------------------------------------------------------------
# adding


@pytest.mark.parametrize("form", FORMS)
def test_results_of_different_rows_add_and_subtract(small, form):
    (first, x), (second, y) = results(small, form, 1), results(small, form, 2, rows=30)
    both = first + second
    assert small.owner.open(both) == [a + b for a, b in zip(x, y, strict=True)]
    assert small.owner.open(both - second) == x
    assert small.owner.open(first - second) == [a - b for a, b in zip(x, y, strict=True)]
    assert min(part_slacks(small, both)) > -1
    assert both.facts[0] == replace(first.facts[0], high=first.facts[0].high + second.facts[0].high)
    assert (first - second).facts[0].low == -second.facts[0].high


def test_adding_shards_is_the_result_of_all_rows(small):
    whole, expected = results(small, rows=90)
    source = small.source((90,))
    parts = []
    for start, stop in ((0, 40), (40, 41), (41, 90)):
        shard = small.source((stop - start,))
        shard.columns = {name: values[start:stop] for name, values in source.columns.items()}
        parts.append(evaluate(OUTPUTS, shard, workers=1))
    total = parts[0] + parts[1] + parts[2]
    # The constant of N.total() - 7 counts once in each shard.
    assert small.owner.open(total) == [*expected[:2], expected[2] - 14, *expected[3:]]
    assert len(whole) == len(total)


def test_what_cannot_be_added(small):
    packed, _ = results(small)
    message = "results of different circuits or forms cannot be added"
    for other in (
        results(small, "slots")[0],
        results(small, outputs=OUTPUTS[:3])[0],
        results(small, outputs=OUTPUTS[:4])[0],
        results(small, outputs=[*OUTPUTS[:4], A.total() * Y.total()])[0],
    ):
        with pytest.raises(ValueError, match=message):
            packed + other
    stranger = Lab(es.Owner(small.parameters))
    with pytest.raises(es.KeyMismatchError, check=error("other-key")):
        packed - results(stranger)[0]


def test_numbers_of_rows_are_not_added(small):
    rows, _ = results(small, "rows")
    for act in (
        lambda: rows + rows,
        lambda: rows.combine(rows, -1),
        lambda: results(small)[0].combine(rows, 1),
    ):
        with pytest.raises(ValueError, check=error("rows-not-added")):
            act()
    with pytest.raises(ValueError, check=error("not-packed")):
        rows.with_flooding()


def test_nothing_left_is_refused(small):
    """a - a is 0 for everybody to see: SEAL does not make such a ciphertext, and we say why."""
    (first, _), (second, _) = results(small, seed=1), results(small, seed=2)
    for act in (lambda: first - first, lambda: (first + second) - first - second):
        with pytest.raises(ValueError, check=error("same-ciphertexts")):
            act()


def test_sums_that_could_overflow_are_refused(small):
    limit = small.parameters.max_value
    totals, expected = results(small)
    doublings = int(np.log2(limit / 300))  # (N + 1).total() of 50 rows is within ±300
    for _ in range(doublings):
        totals = totals + totals
    assert small.owner.open(totals) == [2**doublings * value for value in expected]
    with pytest.raises(
        OverflowError,
        match=rf"the sum could reach ±[\d,]+, and the parameters are exact up to ±{limit:,}",
    ):
        totals + totals


@pytest.mark.parametrize("form", ["packed", "slots"])
def test_sums_that_could_drown_in_noise_are_refused(small, form):
    source = small.source((50,))
    source.columns = {**source.columns, "a0": np.zeros(50, dtype=int)}
    totals = evaluate([A.total()], source, form=form, workers=1)
    totals = EncryptedNumbers(
        small.keys, form, [replace(totals.facts[0], low=0, high=0)], totals.parts, totals.width
    )
    doublings = int(totals._model().budget(totals.parts[0].noise)) - 1  # one bit has to be left
    assert doublings >= 1
    for _ in range(doublings):
        totals = totals + totals
    assert small.owner.open(totals) == [0]
    with pytest.raises(es.NoiseError, check=error("open-before-adding")):
        totals + totals
    assert min(part_slacks(small, totals)) > -1


def test_results_at_different_levels_add(small):
    """As after a levelled computation: the higher one is switched down first."""
    totals, expected = results(small, "slots")
    engine, model = small.keys.engine, small.parameters.noise
    lower = []
    for part in totals.parts:
        low = engine.evaluator.mod_switch_to(
            ciphertext_of(engine, part.residues), engine.level_ids[1]
        )
        lower.append(Part(residues_of(engine, low), model.switch(part.noise, 1)))
    lowered = EncryptedNumbers(small.keys, "slots", totals.facts, lower, circuit=totals.circuit)
    for both in (totals + lowered, lowered + totals):
        assert {part.noise.level for part in both.parts} == {1}
        assert small.owner.open(both) == [2 * value for value in expected]


# ----------------------------------------------------------------------------------------------
# decrypting


@pytest.mark.parametrize("form", FORMS)
def test_values_out_of_their_bounds_are_refused(small, form):
    """A result that claims to be another one: the bounds it is proven to keep do not fit what is
    inside.
    """
    totals, expected = results(small, form)
    for index, value in enumerate(expected):
        for facts in (NumberFacts(value + 1, value + 5), NumberFacts(value - 5, value - 1)):
            forged = [
                replace(facts, offset=f.offset, factor=f.factor) if i == index else f
                for i, f in enumerate(totals.facts)
            ]
            relabelled = EncryptedNumbers(small.keys, form, forged, totals.parts, totals.width)
            with pytest.raises(
                ValueError, check=error("outside-proven-range", index, value, facts.low, facts.high)
            ):
                small.owner.open(relabelled)


def test_damaged_ciphertexts_are_refused(small):
    totals, _ = results(small)
    spoiled = totals.parts[0].residues.copy()
    spoiled[1, 0, :10] = 1
    damaged = EncryptedNumbers(
        small.keys,
        "packed",
        totals.facts,
        [replace(totals.parts[0], residues=spoiled)],
        totals.width,
    )
    with pytest.raises(ValueError, check=error("foreign-coefficients")):
        small.owner.open(damaged)


def test_other_owners_do_not_decrypt(small):
    totals, _ = results(small)
    with pytest.raises(es.KeyMismatchError, check=error("load-the-key")):
        es.Owner(small.parameters).open(totals)


# ----------------------------------------------------------------------------------------------
# fuzz


class Target:
    """A stored result, and the contract of its loader: a refusal of ours, or values that are right
    or refused when opened.
    """

    def __init__(self, lab: Lab, path: Path, form: str) -> None:
        self.lab, self.path = lab, path
        totals, self.expected = results(lab, form)
        totals.save(path)
        self.data = path.read_bytes()
        self.container = container.read(path)

    def attempt(self, data: bytes, *, exact: bool = True) -> bool:
        """Whether these bytes gave values: the right ones then, or at least such as they claim to
        be.
        """
        path = self.path.with_suffix(".fuzz")
        path.write_bytes(data)
        start = time.process_time()
        try:
            loaded = EncryptedNumbers.load(path, self.lab.keys)
        except REFUSALS as error:
            str(error).encode()
            return False
        finally:
            assert time.process_time() - start < 5
        try:
            values = opened(self.lab, loaded)
        except ValueError as error:
            if getattr(error, "code", None) not in REFUSED:
                raise
            return False
        assert values == self.expected or not exact
        for row in values if loaded.form == "rows" else [values]:
            assert all(
                facts.low <= value <= facts.high
                for value, facts in zip(row, loaded.facts, strict=True)
            )
        return True


def forged_header(file: Container, header: bytes) -> bytes:
    """Any bytes for a header, with a hash that fits."""
    prefix = struct.pack("<8sHI", container.MAGIC, container.VERSION, len(header))
    data = prefix + header + b"".join(file.sections.values())
    return data + hashlib.sha256(data).digest()


@pytest.fixture(scope="module")
def targets(small, tmp_path_factory) -> dict[str, Target]:
    folder = tmp_path_factory.mktemp("totals")
    return {form: Target(small, folder / form, form) for form in STORED}


def test_the_contract_accepts_what_is_untouched(targets):
    assert all(target.attempt(target.data) for target in targets.values())
    assert all(target.attempt(container.to_bytes(target.container)) for target in targets.values())


@MANY
@given(data=st.data(), form=st.sampled_from(STORED))
def test_damaged_bytes_are_refused(targets, data, form):
    target = targets[form]
    spoiled = bytearray(target.data)
    kind = data.draw(st.sampled_from(["flip", "cut", "insert", "zero"]))
    at = data.draw(st.integers(0, len(spoiled) - 1))
    if kind == "flip":
        spoiled[at] ^= 1 << data.draw(st.integers(0, 7))
    elif kind == "cut":
        del spoiled[at:]
    elif kind == "insert":
        spoiled[at:at] = data.draw(st.binary(min_size=1, max_size=9))
    else:
        spoiled[at : at + 64] = bytes(len(spoiled[at : at + 64]))
        if bytes(spoiled) == target.data:
            return
    assert not target.attempt(bytes(spoiled))


def _section(name: str, change: Callable[[bytes], bytes]) -> Callable[[Container], Container]:
    return lambda file: replace(file, sections={**file.sections, name: change(file.sections[name])})


def _json(name: str, change: Callable[[Any], Any]) -> Callable[[Container], Container]:
    return _section(name, lambda data: json.dumps(change(json.loads(data))).encode())


def _fields(**fields: Any) -> Callable[[Container], Container]:
    return lambda file: replace(file, fields={**file.fields, **fields})


def _first(*values: Any) -> Callable[[Any], Any]:
    """The first entry of a list, with the first of its parts replaced (None keeps one)."""

    def changed(rows: Any) -> Any:
        new = [old if value is None else value for old, value in zip(rows[0], values, strict=False)]
        return [[*new, *rows[0][len(new) :]], *rows[1:]]

    return changed


FORGERIES: dict[str, Callable[[Container], Container]] = {
    "unknown form": _fields(form="bundled"),
    "form that is no text": _fields(form=3),
    "no form": lambda file: replace(file, fields={k: v for k, v in file.fields.items() if k != "form"}),
    "no width": lambda file: replace(file, fields={k: v for k, v in file.fields.items() if k != "width"}),
    "width 0": _fields(width=0),
    "width 3": _fields(width=3),
    "width beyond the ring": _fields(width=2048),
    "width that is no number": _fields(width="8"),
    "other key id": lambda file: replace(file, key_id="0" * 16),
    "other fingerprint": lambda file: replace(file, fingerprint="0" * 32),
    "no parameters": _fields(parameters={}),
    "no numbers": _json("numbers", lambda rows: []),
    "one number fewer": _json("numbers", lambda rows: rows[:-1]),
    "numbers that are no list": _json("numbers", lambda rows: {"a": 1}),
    "numbers that are no json": _section("numbers", lambda data: data[:-1]),
    "numbers nested for ever": _section("numbers", lambda data: b"[" * 100_000),
    "number of another length": _json("numbers", lambda rows: [[0, 1], *rows[1:]]),
    "number that is no list": _json("numbers", lambda rows: [7, *rows[1:]]),
    "low above high": _json("numbers", _first(9, 8, None, None, None)),
    "bounds beyond t": _json("numbers", _first(-(10**30), 10**30, None, None, None)),
    "bounds of thousands of digits": _section("numbers", lambda data: b"[[0," + b"9" * 5000 + b",0,1,0,0,0]" + data[9:]),
    "bounds that are true": _json("numbers", _first(True, None, None, None, None)),
    "bounds that are no integers": _json("numbers", _first(0.0, None, None, None, None)),
    "factor that is true": _json("numbers", _first(None, None, None, True, None)),
    "factor 0": _json("numbers", _first(None, None, None, 0, None)),
    "factor below zero": _json("numbers", _first(None, None, None, -1, None)),
    "factor beyond t": _json("numbers", _first(None, None, None, 1 << 40, None)),
    "factor and offset of another number": _json("numbers", _first(None, None, 5, 1024, None)),
    "part of nothing": _json("numbers", _first(None, None, None, None, 8)),
    "shift that is true": _json("numbers", _first(None, None, None, None, True)),
    "two in one under keys that have none": _json("numbers", _first(None, None, None, None, 0, 8, 3)),
    "a rest of nothing": _json("numbers", _first(None, None, None, None, 0, 0, 3)),
    "a base that is true": _json("numbers", _first(None, None, None, None, 0, True)),
    "narrower bounds": _json("numbers", _first(0, 0, None, None, None)),
    "no noise": _json("noise", lambda rows: []),
    "more noise than ciphertexts": _json("noise", lambda rows: rows + rows[:1]),
    "noise that is too much": _json("noise", _first(1e300, None, None)),
    "noise that is infinite": _json("noise", _first(float("inf"), None, None)),
    "noise that is no number": _json("noise", _first(float("nan"), None, None)),
    "noise below zero": _json("noise", _first(-1.0, None, None)),
    "peak below zero": _json("noise", _first(None, -1.0, None)),
    "infinite peak": _json("noise", _first(None, float("inf"), None)),
    "integer noise": _json("noise", _first(5, None, None)),
    "level below zero": _json("noise", _first(None, None, -1)),
    "level too low": _json("noise", _first(None, None, 50)),
    "other level": _json("noise", _first(None, None, 1)),
    "rows of nothing": _json("chunks", lambda counts: [*counts, 5]),
    "chunks that are no list": _json("chunks", lambda counts: 5),
    "chunks that are no json": _section("chunks", lambda data: data[:-1]),
    "no residues": _section("residues", lambda data: b""),
    "residues cut": _section("residues", lambda data: data[:-8]),
    "residues too many": _section("residues", lambda data: data + bytes(8)),
    "residues of ones": _section("residues", lambda data: b"\xff" * len(data)),
    "residues of zeros": _section("residues", lambda data: bytes(len(data))),
    "section missing": lambda file: replace(file, sections={k: v for k, v in file.sections.items() if k != "noise"}),
}  # fmt: skip


@pytest.mark.parametrize("form", STORED)
@pytest.mark.parametrize("name", FORGERIES)
def test_forgeries_whose_hash_fits(targets, name, form):
    target = targets[form]
    assert not target.attempt(container.to_bytes(FORGERIES[name](target.container)))


def test_residues_that_are_no_ciphertext_are_refused_when_loaded(targets, small):
    """Not only when they are decrypted: anybody who loads a file knows that it is whole."""
    for name in ("residues of ones", "residues of zeros"):
        forged = FORGERIES[name](targets["packed"].container)
        with pytest.raises(es.FileFormatError):
            EncryptedNumbers.from_container(forged, small.keys)


@MANY
@given(data=st.data(), form=st.sampled_from(STORED))
def test_random_forgeries(targets, data, form):
    """Random damage to the JSON and to the residues, hashed again: refused, or refused when opened,
    or harmless.

    Other residues are another ciphertext, as a liar would send: it can happen to decrypt to
    something within the bounds.
    """
    target = targets[form]
    name = data.draw(st.sampled_from(["numbers", "chunks", "noise", "residues"]))
    section = bytearray(target.container.sections[name])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(section) - 1))
        section[at] = data.draw(st.integers(0, 255))
    sections = {**target.container.sections, name: bytes(section)}
    if name == "numbers" and _offsets(sections[name]) != _offsets(target.container.sections[name]):
        # another offset, or factor, is a lie that nobody can see: hashes and bounds catch
        # accidents, not forgers
        return
    target.attempt(
        container.to_bytes(replace(target.container, sections=sections)), exact=name != "residues"
    )


def _offsets(section: bytes) -> Any:
    try:
        return [entry[2:] for entry in json.loads(section)]
    except (ValueError, TypeError, IndexError, RecursionError):
        return None


@settings(max_examples=examples(20), deadline=None)
@given(header=st.binary(max_size=80) | st.text(max_size=40).map(str.encode))
def test_any_header(targets, header):
    assert not targets["packed"].attempt(forged_header(targets["packed"].container, header))


def test_forged_width_and_form_together(targets):
    """Five totals in one ciphertext, claimed to be in five of width 1, or unsummed: the numbers do
    not fit.
    """
    packed = targets["packed"]
    for fields in (
        {"width": 1},
        {"form": "slots", "width": 1},
        {"form": "replicated", "width": 1},
        {"width": 4},
        {"form": "rows"},
        {"form": "rows", "width": 1},
    ):
        assert not packed.attempt(container.to_bytes(_fields(**fields)(packed.container)))
    wider = container.to_bytes(_fields(width=1024)(packed.container))
    assert packed.attempt(
        wider
    )  # the place of a total depends on how many there are, not on how many there could be


def test_keys_are_compared_by_id_not_by_object(small, tmp_path):
    totals, expected = results(small)
    totals.save(tmp_path / "results")
    small.keys.save(tmp_path / "keys")
    keys = PublicKeys.load(tmp_path / "keys")
    assert small.owner.open(EncryptedNumbers.load(tmp_path / "results", keys) + totals) == [
        2 * v for v in expected
    ]


def test_results_of_different_circuits_are_not_added_even_if_their_shapes_agree(small):
    """Regression: totals of two columns, each of one total, gave a sum that meant nothing."""
    source = small.source((20,))
    one, other, again = (evaluate([column(name).total()], source) for name in ("a0", "a1", "a0"))
    for combine in (operator.add, operator.sub):
        with pytest.raises(ValueError, check=error("different-circuits")):
            combine(one, other)
    assert small.owner.open(one + again) == [2 * source.clear([column("a0").total()])[0]]
    stored = EncryptedNumbers.from_container(other.to_container(), small.keys)
    with pytest.raises(ValueError, check=error("different-circuits")):
        one + stored


def test_how_large_a_number_can_be_is_known_by_its_place_among_those_asked_for(small):
    pair, low, high = (
        NumberFacts(0, 30_000, stored=Stored(0, 1024, 9)),
        NumberFacts(0, 5),
        NumberFacts(0, 7),
    )
    parts = NumberFacts(0, 255), NumberFacts(0, 3, stored=Stored(8)), NumberFacts(-2, 4)
    numbers = EncryptedNumbers(small.keys, "packed", [pair, low, *parts, high], [], 8)
    # Two in one, one as it is, one in two parts, one that something was taken off from, one as it
    # is, and no more.
    assert [numbers.most(place) for place in range(len(numbers) + 1)] == [
        9,
        None,
        5,
        None,
        None,
        7,
        None,
    ]
