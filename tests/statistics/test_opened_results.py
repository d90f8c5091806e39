"""Results: what statistics are read as, shown, compared, stored and read again."""

from __future__ import annotations

import json
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from asked_samples import small_owner

import encryptedstats as es
from encryptedstats.storage import container
from encryptedstats.tables.questions.question import bin_columns, refuse_impossible
from encryptedstats.tables.questions.summaries import labels, variable_name
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
FRAME = pd.DataFrame({"age": [30, 40, 50, 60, 40, 30], "sick": [0, 1, 1, 0, 1, 1]})


@dataclass(frozen=True, kw_only=True)
class Shares(es.Result):
    """How large a share of the rows each bin has."""

    table: pd.DataFrame
    largest: float
    pvalue: float = 1e-30

    def to_frame(self) -> pd.DataFrame:
        return self.table


@dataclass(frozen=True)
class BinShares(es.Question):
    """The share of each bin of a variable."""

    variable: str

    def totals(self, schema: Any, columns: Any = None, fold: Any = None) -> dict[str, Any]:
        return {"bins": [x.total() for x in bin_columns(schema, schema.index(self.variable))]}

    def shapes(self, schema: Any) -> dict[str, tuple[int, ...]]:
        return {"bins": (schema.variables[schema.index(self.variable)].n_bins,)}

    def read(self, totals: Any, schema: Any, n_rows: int) -> Shares:
        refuse_impossible(totals["bins"].sum() == n_rows, "bins without rows")
        shares = totals["bins"].astype(float) / n_rows
        j = schema.index(self.variable)
        return Shares(
            title=f"Shares of {variable_name(schema, j)}",
            n_rows=n_rows,
            notes=("every row counts once",),
            table=pd.DataFrame(
                {"share": shares}, index=pd.Index(labels(schema, j), name=variable_name(schema, j))
            ),
            largest=shares.max(),
        )


@pytest.fixture(scope="module")
def schema() -> es.Schema:
    return es.Schema.infer(FRAME, target="sick")


@pytest.fixture
def shares(schema: es.Schema) -> Shares:
    found: Shares = schema.table(FRAME).ask(BinShares("v0"))
    return found


def test_it_prints_as_people_expect(shares: Shares) -> None:
    text = [
        "Shares of age",
        "",
        "largest  0.3333",
        "pvalue   < 2.2e-16",
        "",
        "age   share",
        "30   0.3333",
        "40   0.3333",
        "50   0.1667",
        "60   0.1667",
        "",
        "6 rows",
        "every row counts once",
    ]
    assert (
        shares.summary().splitlines()
        == repr(shares).splitlines()
        == str(shares).splitlines()
        == text
    )
    page = replace(shares, title="<a & b>")._repr_html_()
    assert "&lt;a &amp; b&gt;" in page
    assert "<td>0.3333</td>" in page
    assert "6 rows<br>every row counts once" in page


def test_numbers_without_a_table_of_their_own() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Test(es.Result):
        statistic: float
        df: int
        pvalue: float
        inside: tuple[int, ...] = (1, 2)

    found = Test(title="A test", n_rows=1, statistic=-2.123456, df=38, pvalue=1e-20)
    assert found.to_frame()["value"].tolist() == [-2.123456, 38, 1e-20]
    assert found.summary().splitlines() == [
        "A test",
        "",
        "statistic  -2.123",
        "df         38",
        "pvalue     < 2.2e-16",
        "",
        "1 row",
    ]
    with pytest.raises(
        NotImplementedError, match=r"Test has no plot: print it, or see to_frame\(\)"
    ):
        found.plot()


def test_it_is_data_for_json(shares: Shares) -> None:
    found = json.loads(
        json.dumps(replace(shares, largest=np.float64("nan")).to_dict(), allow_nan=False)
    )
    assert found == {
        "title": "Shares of age",
        "n_rows": 6,
        "notes": ["every row counts once"],
        "table": {
            "index": ["30", "40", "50", "60"],
            "columns": ["share"],
            "values": [
                [pytest.approx(1 / 3)],
                [pytest.approx(1 / 3)],
                [pytest.approx(1 / 6)],
                [pytest.approx(1 / 6)],
            ],
        },
        "largest": None,
        "pvalue": 1e-30,
    }
    assert replace(shares, largest=float("-inf")).to_dict()["largest"] == "-inf"


def test_two_are_equal_if_they_say_the_same(shares: Shares, schema: es.Schema) -> None:
    again = schema.table(FRAME).ask(BinShares("v0"))
    assert shares == again
    assert hash(shares) == hash(again)
    assert shares != replace(shares, largest=0.5)
    assert shares != 3
    without = replace(shares, largest=float("nan"))
    assert without == replace(without)


def test_it_is_stored_and_read_again(
    tiny: es.Owner, schema: es.Schema, shares: Shares, tmp_path: Path
) -> None:
    sealed = tiny.encrypt(schema.table(FRAME), workers=1)
    answer = sealed.ask(BinShares("v0"), workers=1)
    opened, unnamed = tiny.open(answer, schema), tiny.open(replace_schema(answer))
    assert opened == shares
    assert unnamed.title == "Shares of v0"
    for name, result in {"named": opened, "unnamed": unnamed, "clear": shares}.items():
        result.save(tmp_path / name)
        again = es.load(tmp_path / name)
        assert type(again) is Shares
        assert again == result
        assert vars(again.source) == vars(result.source)
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
        file = container.read(tmp_path / name)
        assert (file.kind, file.fields["private"]) == ("opened result", name != "unnamed")
    assert opened.source.block_ids == answer.block_ids
    with pytest.raises(FileExistsError):
        shares.save(tmp_path / "named")
    shares.save(tmp_path / "named", overwrite=True)
    with pytest.raises(ValueError, check=error("made-by-hand")):
        replace(shares).save(tmp_path / "copy")


def replace_schema(answer: es.EncryptedAnswer) -> es.EncryptedAnswer:
    """As a worker has it, who knows no names."""
    return es.EncryptedAnswer(
        answer.question, answer.ciphertexts, answer.schema.public(), answer.n_rows, answer.block_ids
    )


def test_rows_that_the_schema_leaves_out_are_said(tiny: es.Owner) -> None:
    gappy = FRAME.assign(age=FRAME["age"].mask(FRAME.index == 1))
    schema = es.Schema.infer(gappy, target="sick", missing="drop")
    asked = schema.table(gappy).ask(BinShares("v0"))
    assert asked.summary().splitlines()[-3:] == [
        "5 rows",
        "1 row with missing values was left out of the table",
        "every row counts once",
    ]
    assert "left out" not in schema.table(FRAME).ask(BinShares("v0")).summary()
    with pytest.warns(es.SchemaWarning, match="1 of 6 rows have gaps"):
        sealed = tiny.encrypt(schema.table(gappy), workers=1)
    opened = tiny.open(sealed.ask(BinShares("v0"), workers=1), schema)
    assert opened.summary() == asked.summary()
    assert opened == asked


@pytest.mark.parametrize(
    ("fields", "totals", "words"),
    [
        ({}, [1, 2, 3], "wrong-number-of-totals"),
        ({}, [1, 2, 3, 1.5], "not-integers"),
        ({}, [1, 2, 3, 1 << 300], "totals-too-large"),
        ({}, [1, 2, 3, 4], "impossible-totals"),
        (
            {"question": "MultinomialNB", "params": {"alpha": 1.0, "bins": 5}},
            [1] * 10,
            "kind-not-of-question",
        ),
        ({"question": "Nobody"}, [2, 2, 1, 1], "import-questions"),
        ({"n_dropped": -1}, [2, 2, 1, 1], "impossible-rows-or-blocks"),
        ({"params": {"variable": "v5"}}, [2, 2, 1, 1], "question-not-of-schema"),
    ],
)
def test_forged_files_are_refused(
    fields: dict[str, Any], totals: list[Any], words: str, shares: Shares, tmp_path: Path
) -> None:
    shares.save(tmp_path / "result")
    file = container.read(tmp_path / "result")
    sections = {**file.sections, "totals": json.dumps(totals).encode()}
    container.write(
        replace(file, fields={**file.fields, **fields}, sections=sections), tmp_path / "forged"
    )
    with pytest.raises(es.FileFormatError, check=error(words)):
        es.load(tmp_path / "forged")


def test_an_opened_result_says_how_many_rows_the_schema_left_out(tmp_path: Path) -> None:
    """In the clear, encrypted in memory, stored, added up, and opened once more from a file."""
    frame = pd.DataFrame(
        {"x": [1.0, 2.0, np.nan, 4.0, 6.0, np.nan, 3.0, 5.0], "y": [2, 1, 3, 5, 4, 6, 8, 7]}
    )
    schema = es.Schema.infer(frame, target="y", numbers="keep", digits=0, missing="drop")
    table, owner, said = (
        schema.table(frame),
        small_owner(),
        "2 rows with missing values were left out of the table",
    )
    with pytest.warns(es.SchemaWarning, match="2 of 8 rows have gaps"):
        owner.encrypt(table, out=tmp_path / "table")
    stored = es.load(tmp_path / "table")
    stored.ask(es.Covariance(["v0", "target"])).save(tmp_path / "c.enc")
    result = owner.open(tmp_path / "c.enc", schema)
    result.save(tmp_path / "c.opened")
    for one in (result, table.ask(es.Covariance(["x", "y"])), es.load(tmp_path / "c.opened")):
        assert one.n_rows == 6
        assert said in one.summary()
    es.LinearRegression().fit(stored).save(tmp_path / "m.enc")
    model = owner.open(tmp_path / "m.enc", schema)
    model.save(tmp_path / "m.opened")
    for fitted in (model, es.LinearRegression().fit(table), es.load(tmp_path / "m.opened")):
        assert (fitted.n_rows_, fitted.n_dropped_) == (6, 2)
        assert said in fitted.summary().notes
        assert said in fitted.anova().notes
    with pytest.warns(es.SchemaWarning, match="2 of 8 rows have gaps"):
        more = owner.encrypt(table)
    both = more.ask(es.Covariance(["v0", "target"])) + stored.ask(es.Covariance(["v0", "target"]))
    assert "4 rows with missing values" in owner.open(both, schema).summary()
    assert stored.append(more).n_dropped == es.load(tmp_path / "table").n_dropped == 4


@pytest.mark.parametrize(
    ("question", "said"),
    [
        (es.TTest("v0", mu="abc"), "not-a-number"),
        (
            es.TTest("v0", mu=10**400),
            "not-a-number",
        ),
        (es.TTest("v0", mu=10**5000), "not-a-number"),
        (es.TTest("v0", mu=float("nan")), "not-a-number"),
        (es.TTest("v0", mu=True), "not-a-number"),
        (es.TTest("v0", equal_var="no"), "not-yes-or-no"),
        (es.Anova("v0", ["v1"], equal_var="no"), "not-yes-or-no"),
        (es.CochranArmitage("v1", "v2", scores="ab"), "not-numbers"),
        (es.CochranArmitage("v1", "v2", scores=["a", "b"]), "not-a-number"),
        (es.CochranArmitage("v1", "v2", scores=[1, 10**400]), "not-a-number"),
        (es.ChiSquare("v1", p={"a": 0.5}), "not-numbers"),
        (es.ChiSquare("v1", p=[0.5, "x"]), "not-a-number"),
        (es.ChiSquare("v1", correction="no"), "not-yes-or-no"),
        (
            es.LinearRegression("v0 ~ v1", fit_intercept="no"),
            "not-yes-or-no",
        ),
        (es.Ridge(10**400, "v0 ~ v1"), "alpha-out-of-range"),
        (es.PCA(standardized="no"), "not-yes-or-no"),
    ],
    ids=lambda value: value.name if isinstance(value, es.Question) else "",
)
def test_parameters_are_refused_before_anything_is_computed(
    question: es.Question, said: str
) -> None:
    frame = pd.DataFrame({"x": [1, 2, 3, 5], "g": list("abab"), "h": list("uuvv")})
    schema = es.Schema.infer(frame, numbers="keep", digits=0).public()
    with pytest.raises(es.ParameterError, check=error(said)):
        question.check(schema)


def test_more_rows_than_blocks_hold_are_refused(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [1, 2, None, 5], "g": list("abab")})
    schema = es.Schema.infer(frame, numbers="keep", digits=0, missing="bin")
    owner = small_owner()
    answer = owner.encrypt(schema.table(frame)).ask(es.Describe(["v0"]), progress=False, workers=1)
    file = answer.to_container()
    assert (
        es.EncryptedAnswer.load(_stored(file, tmp_path / "good"), owner.public_keys()).n_rows == 4
    )
    changed = replace(file, fields={**file.fields, "n_rows": 1 << 62})
    with pytest.raises(
        es.FileFormatError, check=error("more-rows-than-blocks", "4,611,686,018,427,387,904")
    ):
        es.EncryptedAnswer.load(_stored(changed, tmp_path / "bad"), owner.public_keys())


def _stored(file: container.Container, path: Path) -> Path:
    path.write_bytes(container.to_bytes(file))
    return path
