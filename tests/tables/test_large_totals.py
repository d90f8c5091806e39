"""Totals that no plaintext modulus holds: numbers in digits, totals in parts, and questions that
know nothing of it.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import encryptedstats as es
from encryptedstats import cluster
from encryptedstats.circuits.expressions import column
from encryptedstats.circuits.passes.digits import digit_bounds, digit_of, split_into_digits
from encryptedstats.circuits.results import EncryptedNumbers
from encryptedstats.errors import FileFormatError, TooLargeError
from encryptedstats.storage import container
from encryptedstats.tables.answers.files import read_answer
from encryptedstats.tables.columns import digits_among, list_question_columns, table_columns
from encryptedstats.tables.encodings import Column
from encryptedstats.tables.questions.question import class_columns, number_column
from encryptedstats.tables.questions.summaries import Moments
from error_codes import error

few = settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
QUIET: dict[str, Any] = {"progress": False, "workers": 1}
pytestmark = pytest.mark.filterwarnings(
    "ignore::encryptedstats.InsecureParametersWarning", "ignore:column:encryptedstats.SchemaWarning"
)


@dataclass(frozen=True)
class Sums(es.Question):
    """Sums, products of two and of three, by class, as a question of somebody who knows nothing of
    digits.
    """

    depth: int = 2

    def totals(self, schema: Any, columns: Any = None, fold: int | None = None) -> Any:
        x, y = number_column(schema, 0), number_column(schema, 1)
        first, second = class_columns(schema, fold)
        found = [x, y - 3, x * y, x * x - 2 * y, first * x + second * y]
        if self.depth > 1:
            found += [x * y * first, x * x * y, (x - y + 1) ** 3, (x * y - 5) * second]
        return {"sums": [each.total() for each in found]}

    def shapes(self, schema: Any) -> Any:
        return {"sums": (9 if self.depth > 1 else 5,)}

    def read(self, totals: Any, schema: Any, n_rows: int) -> Any:
        return totals["sums"].tolist()


@cache
def owner_with(digit_bits: int | None, max_value: int, *, factors: bool = False) -> es.Owner:
    """A small insecure ring; with ``factors``, of primes that are not 1 modulo t."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", es.InsecureParametersWarning)
        made = es.Parameters.from_bits(
            "bfv" if factors else "bgv", 1024, max_value, (49,) * 8, allow_insecure=True
        )
        return es.Owner(replace(made, scheme="bgv", digit_bits=digit_bits))


def frame_of(x: Any, y: Any) -> pd.DataFrame:
    return pd.DataFrame({"x": x, "y": y, "ill": np.arange(len(x)) % 2})


def schema_of(frame: pd.DataFrame) -> es.Schema:
    schema = es.Schema.infer(frame, target="ill")
    return schema.with_kind("x", "number", digits=0).with_kind("y", "number", digits=0)


def random_frame(bits: int, n_rows: int, seed: int) -> pd.DataFrame:
    rng, most = np.random.default_rng(seed), 2**bits - 1
    x, y = (rng.integers(-most, most, n_rows, endpoint=True) for _ in range(2))
    x[:2], y[:2] = (-most, most), (most, -most)
    return frame_of(x, y)


# -- digits
# ------------------------------------------------------------------------------------------------


@given(st.integers(-(2**62), 2**62), st.integers(-(2**62), 2**62), st.integers(2, 40), st.data())
def test_digits_make_up_the_number_and_stay_within_their_bounds(
    a: int, b: int, bits: int, data: Any
) -> None:
    low, high = min(a, b), max(a, b)
    value = data.draw(st.integers(low, high))
    bounds = digit_bounds(low, high, bits)
    digits = [int(digit_of(np.array([value]), k, len(bounds), bits)[0]) for k in range(len(bounds))]
    assert sum(digit << bits * k for k, digit in enumerate(digits)) == value
    assert all(
        bound.low <= digit <= bound.high for digit, bound in zip(digits, bounds, strict=True)
    )
    assert all(bound.largest <= 1 << (bits - 1) for bound in bounds)


def test_parts_of_a_circuit() -> None:
    x, y, w = column("x"), column("y"), column("w")
    digits = {"x": [(0, "x0"), (8, "x1")], "y": [(0, "y0"), (8, "y1")]}
    x0, x1, y0, y1 = (column(name) for name in ("x0", "x1", "y0", "y1"))
    parts, shifts = split_into_digits(
        [(x * y - 7).total(), w.total(), (x * x).total(), 2 * x.total() - w.total()], digits
    )
    assert shifts == [0, 8, 16, 0, 0, 8, 16, 0, 8]
    assert parts[:3] == [(x0 * y0 - 7).total(), (x0 * y1 + x1 * y0).total(), (x1 * y1).total()]
    assert parts[3] == w.total()
    assert parts[5] == (2 * (x0 * x1)).total()  # computed once
    assert parts[7:] == [2 * x0.total() - w.total(), 2 * x1.total()]
    assert split_into_digits([x.total()], {}) == ([x.total()], [0])
    with pytest.raises(ValueError, check=error("digits-cancel")):
        split_into_digits([(x - x0).total()], digits)


def test_columns_of_digits_have_keys() -> None:
    digit = Column("digit", 3, 1, bits=15)
    assert str(digit) == "v3.digit1.bits15"
    assert Column.parse(str(digit)) == digit
    for wrong in ("v3.digit1", "v3.digit1.bits1", "v3.digit1.bits63", "v3.digit01.bits15"):
        with pytest.raises(es.SchemaError):
            Column.parse(wrong)
    schema = schema_of(random_frame(20, 30, 0)).public()
    stored = table_columns(schema, (), digit_bits=8)
    assert [str(c) for c in stored] == [f"v{j}.digit{k}.bits8" for j in range(2) for k in range(3)]
    assert list_question_columns(schema, stored) == table_columns(schema, ())
    assert digits_among(stored)["v1.number"] == [(8 * k, f"v1.digit{k}.bits8") for k in range(3)]
    with pytest.raises(es.SchemaError, check=error("impossible-column")):
        schema_of(random_frame(20, 30, 0)).table(random_frame(20, 30, 0)).values(
            Column("digit", 0, 3, bits=8)
        )


# -- encrypted is clear
# ------------------------------------------------------------------------------------------------


@few
@given(
    st.integers(1, 60),
    st.integers(2, 24),
    st.sampled_from([1, 2]),
    st.booleans(),
    st.integers(0, 99),
)
def test_encrypted_is_clear(bits: int, n_rows: int, depth: int, factors: bool, seed: int) -> None:
    """Products of three numbers of ten digits of 6 bits add up 75 products of digits: those of 24
    rows stay below 2^29.
    """
    frame = random_frame(bits, n_rows, seed)
    schema = schema_of(frame)
    table, owner, question = (
        schema.table(frame),
        owner_with(6, 1 << 29, factors=factors),
        Sums(depth),
    )
    expected = table.ask(question)
    x, y = ([int(v) for v in frame[name]] for name in ("x", "y"))
    assert expected[:3] == [
        sum(x),
        sum(y) - 3 * n_rows,
        sum(a * b for a, b in zip(x, y, strict=True)),
    ]
    if depth == 2:
        assert expected[7] == sum((a - b + 1) ** 3 for a, b in zip(x, y, strict=True))
    sealed = owner.encrypt(table, encodings=())
    for device in ("native", "seal"):
        assert owner.open(sealed.ask(question, device=device, **QUIET)) == expected


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return random_frame(40, 50, 7)


@pytest.fixture(scope="module")
def owner() -> es.Owner:
    return owner_with(8, 1 << 36, factors=True)


@pytest.fixture(scope="module")
def sealed(frame: pd.DataFrame, owner: es.Owner) -> es.EncryptedTable:
    return owner.encrypt(schema_of(frame).table(frame), encodings=())


def test_answers_add_and_forget(frame: pd.DataFrame, owner: es.Owner) -> None:
    schema = schema_of(frame)
    halves = [schema.table(frame[:30]), schema.table(frame[30:])]
    first, second = (owner.encrypt(half, encodings=()).ask(Sums(), **QUIET) for half in halves)
    expected = [half.ask(Sums()) for half in halves]
    assert owner.open(first + second) == schema.table(frame).ask(Sums())
    assert owner.open(first + second - second) == expected[0]


def test_a_stored_table_and_its_answers(
    frame: pd.DataFrame, owner: es.Owner, sealed: es.EncryptedTable, tmp_path: Path
) -> None:
    sealed.save(tmp_path / "table")
    loaded = es.load(tmp_path / "table")
    assert [c.encoding for c in loaded.columns()] == ["number", "number", "class", "class"]
    answer = loaded.ask(Sums(), **QUIET)
    assert len(answer.ciphertexts) == 9
    assert len(answer.ciphertexts.facts) > 40
    answer.save(tmp_path / "answer.enc")
    assert owner.open(es.load(tmp_path / "answer.enc", keys=owner.public_keys())) == schema_of(
        frame
    ).table(frame).ask(Sums())


def test_shards_of_a_queue_and_a_checkpoint(owner: es.Owner, tmp_path: Path) -> None:
    frame = random_frame(40, 2500, 11)
    table = schema_of(frame).table(frame)
    owner.encrypt(table, encodings=(), out=tmp_path / "table")
    question = Moments((0, 1))
    job = cluster.submit(question, tmp_path / "table", tmp_path / "m.enc", rows_per_shard=1024)
    cluster.work(job.queue)
    assert len(job.shards) == 3
    expected = table.ask(question).to_numpy().tolist()
    assert (
        owner.open(es.load(tmp_path / "m.enc", keys=owner.public_keys())).to_numpy().tolist()
        == expected
    )
    answer = es.load(tmp_path / "table").ask(question, checkpoint=tmp_path / "begun", **QUIET)
    assert owner.open(answer).to_numpy().tolist() == expected


def test_weights_and_moments(
    owner: es.Owner, frame: pd.DataFrame, sealed: es.EncryptedTable
) -> None:
    opened = owner.open(sealed.moments(["v0", "v1"], **QUIET))
    clear = schema_of(frame).table(frame).moments(["x", "y"])
    assert opened.to_numpy().tolist() == clear.to_numpy().tolist()
    assert opened.loc["sum"].tolist() == [float(sum(map(int, frame[name]))) for name in ("x", "y")]


def test_numbers_come_back_whole_from_their_digits(owner: es.Owner) -> None:
    small = random_frame(20, 30, 3)
    sealed = owner.encrypt(schema_of(small).table(small), encodings=())
    assert "v0.digit2.bits8" in [str(c) for c in sealed.facts.columns]
    assert np.array_equal(owner.open(sealed.numbers("v0")), small["x"])


# -- refusals
# ------------------------------------------------------------------------------------------------


def test_a_part_that_could_leave_its_bounds_is_refused(owner: es.Owner) -> None:
    """At the edge of t: as many rows as fit, and one more."""
    t = owner.parameters.max_value
    most = t // (128**3 * 4)
    for n_rows, fits in ((most, True), (most + 1, False)):
        frame = frame_of(np.full(n_rows, -128), np.full(n_rows, -128))
        schema = schema_of(frame)
        sealed = owner.encrypt(schema.table(frame), encodings=())
        cube = (4 * es.column("v0.number") ** 3).total()
        if fits:
            assert owner.open(sealed.evaluate([cube], **QUIET)) == [-4 * 128**3 * n_rows]
        else:
            with pytest.raises(TooLargeError, check=error("larger-values")):
                sealed.evaluate([cube], **QUIET)


def _spoilt(totals: EncryptedNumbers, change: Any) -> Any:
    file = totals.to_container()
    entries = json.loads(file.sections["numbers"])
    change(entries)
    return container.from_bytes(
        container.to_bytes(
            replace(file, sections={**file.sections, "numbers": json.dumps(entries).encode()})
        )
    )


@pytest.mark.parametrize(
    "shifts",
    [[8, 16], [0, 16, 8], [0, 8, 8], [0, -8], [0, 1 << 20]],
    ids=["no first", "down", "twice", "minus", "far"],
)
def test_parts_that_cannot_be_put_together_are_refused(
    owner: es.Owner, sealed: es.EncryptedTable, shifts: list[int]
) -> None:
    totals = sealed.evaluate([(es.column("v0.number") * es.column("v1.number")).total()], **QUIET)

    def change(entries: list[list[int]]) -> None:
        for entry, shift in zip(entries, shifts, strict=False):
            entry[4] = shift

    with pytest.raises(FileFormatError, check=error("parts-not-joinable")):
        EncryptedNumbers.from_container(_spoilt(totals, change), owner.public_keys())


@pytest.mark.parametrize(
    "changed",
    [{1: 9}, {5: 4096}, {4: 0, 5: 8, 6: 16, 7: 24, 8: 32, 9: 40, 10: 48, 11: 56}],
    ids=["one more", "far", "cut elsewhere"],
)
def test_parts_are_those_of_the_question(
    owner: es.Owner, sealed: es.EncryptedTable, changed: dict[int, int]
) -> None:
    answer = sealed.ask(Moments((0, 1)), **QUIET)
    file = answer.to_container()

    def read(entries: list[list[int]]) -> Any:
        sections = {**file.sections, "numbers": json.dumps(entries).encode()}
        return read_answer(replace(file, sections=sections), owner.public_keys())

    entries = json.loads(file.sections["numbers"])
    assert owner.open(read(entries)).to_numpy().tolist() == owner.open(answer).to_numpy().tolist()
    for part, shift in changed.items():
        entries[part][4] = shift
    with pytest.raises(FileFormatError, check=error("wrong-parts-of-totals")):
        read(entries)


def test_a_part_outside_its_bounds_is_refused(owner: es.Owner, sealed: es.EncryptedTable) -> None:
    totals = sealed.evaluate([es.column("v0.number").total()], **QUIET)

    def change(entries: list[list[int]]) -> None:
        entries[1][:2] = [1 << 20, 1 << 21]

    spoilt = EncryptedNumbers.from_container(_spoilt(totals, change), owner.public_keys())
    with pytest.raises(ValueError, check=error("outside-proven-range", "1")):
        owner.open(spoilt)


def test_parts_are_not_computed_on_with(owner: es.Owner, sealed: es.EncryptedTable) -> None:
    totals = sealed.evaluate([es.column("v0.number").total()], **QUIET)
    with pytest.raises(ValueError, check=error("totals-in-parts")):
        es.circuits.evaluate.evaluate(
            [es.circuits.expressions.pack_total("m", 0) * es.column("class0")],
            sealed,
            form="rows",
            packs={"m": totals},
        )


@dataclass(frozen=True)
class Product(es.Question):
    """For every row the number of rows times one of its numbers; or the sum of these numbers, times
    whether it is of a class.
    """

    of_row: bool = True

    def totals(self, schema: Any, columns: Any = None, fold: int | None = None) -> Any:
        first, _ = class_columns(schema, fold)
        return {"total": [first.total() if self.of_row else number_column(schema, 0).total()]}

    def shapes(self, schema: Any) -> Any:
        return {"total": (1,)}

    def read(self, totals: Any, schema: Any, n_rows: int) -> Any:
        return totals["total"].tolist()

    def answers(self, schema: Any, columns: Any, known: Any, output: str = "") -> Any:
        return {
            "product": [
                known["total"][0]
                * (number_column(schema, 0) if self.of_row else class_columns(schema)[0])
            ]
        }

    def answer_shapes(self, schema: Any, output: str = "") -> Any:
        return {"product": (1,)}


@pytest.mark.parametrize(
    ("of_row", "said"), [(True, "column v0.number"), (False, "the totals of this Product are")]
)
def test_nothing_is_predicted_from_digits(
    sealed: es.EncryptedTable, of_row: bool, said: str
) -> None:
    answer = sealed.ask(Product(of_row), **QUIET)
    with pytest.raises(es.SchemaError, match=rf"{said} in digits.*encrypted_prediction=True"):
        answer.predict_votes(sealed, **QUIET)


def test_digit_bits_are_checked() -> None:
    good = owner_with(8, 1 << 36, factors=True).parameters.to_dict()
    assert good["digit_bits"] == 8
    assert es.Parameters.from_dict(good).digit_bits == 8
    for wrong in (1, 60, True, "8"):
        with pytest.raises(es.ParameterError, check=error("digits-out-of-range", "2", "59")):
            es.Parameters.from_dict({**good, "digit_bits": wrong})


def test_a_table_with_other_digits_than_its_parameters_say_is_refused(
    sealed: es.EncryptedTable,
) -> None:
    from encryptedstats.tables.manifest import facts_from_container, facts_to_container

    other = replace(
        sealed.facts, columns=tuple(table_columns(sealed.schema, (), classes=True, digit_bits=9))
    )
    with pytest.raises(FileFormatError, check=error("columns-not-of-schema")):
        facts_from_container(facts_to_container(other, "encrypted table", {}, {}))


# -- plans
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bits", "digits"), [(8, None), (12, None), (20, 11), (60, 13)])
def test_the_plan_decides(bits: int, digits: int | None) -> None:
    """Whole numbers while the kernels carry their totals, then digits: as few as they carry."""
    frame = random_frame(bits, 40, 0).abs()
    made = es.plan(Moments((0, 1)), schema_of(frame), n_rows=1_000_000)
    assert made.parameters.digit_bits == digits
    assert made.parameters.scheme == "bgv"
    assert max(made.parameters.coefficient_moduli) < 1 << 50
    assert made.n_totals == 5
    assert made.largest >= 1_000_000 * 4 ** (bits - 1)
    assert ("numbers in digits" in str(made)) == (digits is not None)


def test_a_planned_owner_with_real_parameters() -> None:
    frame = random_frame(45, 200, 1)
    schema = schema_of(frame)
    made = es.plan(Sums(), schema, n_rows=len(frame))
    assert made.parameters.digit_bits is not None
    owner, table = es.Owner(made), schema.table(frame)
    assert owner.open(owner.encrypt(table).ask(Sums(), progress=False)) == table.ask(Sums())
