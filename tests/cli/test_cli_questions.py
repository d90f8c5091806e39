"""The examples of docs/guides/questions.md on the command line: planned, asked, looked at, opened,
from the file they are written in.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cli_helpers import Run, done, the_error
from typer.testing import CliRunner

import encryptedstats as es
from encryptedstats.cli._app import app
from encryptedstats.storage import container
from encryptedstats.tables.questions.question import load_questions
from encryptedstats.tables.questions.words import make_questions

PAGE = (Path(__file__).parents[2] / "docs/guides/questions.md").read_text(encoding="utf-8")
MOST_LINES = 30


#: A question of numbers; what it imports beside this is in the page's example.
RIDGE = '''
from encryptedstats.questions import number_column, scale, variable_name


@dataclass(frozen=True)
class MyRidge(es.Question):
    """Least squares with a penalty of alpha on the squares of the coefficients, not on the intercept."""

    target: str
    alpha: float = 1.0

    def totals(self, schema, columns=None, fold=None):
        x = [number_column(schema, j) for j in range(len(schema.variables))]
        products = [(x[a] * x[b]).total() for a, b in zip(*np.triu_indices(len(x)))]
        return {"sums": [a.total() for a in x], "products": products}

    def shapes(self, schema):
        return {"sums": (k := len(schema.variables),), "products": (k * (k + 1) // 2,)}

    def read(self, totals, schema, n_rows):
        sums, k, y = totals["sums"], len(schema.variables), schema.index(self.target)
        products = np.zeros((k, k), dtype=object)
        products[np.triu_indices(k)] = products.T[np.triu_indices(k)] = totals["products"]
        units = np.array([float(scale(schema, j)) for j in range(k)])
        scatter = (n_rows * products - np.outer(sums, sums)).astype(float) / n_rows
        scatter /= np.outer(units, units)
        refuse_impossible(scatter.diagonal().min() >= 0, "a variance would be negative")
        x, means = [j for j in range(k) if j != y], (sums / n_rows).astype(float) / units
        slopes = np.linalg.solve(scatter[np.ix_(x, x)] + self.alpha * np.eye(k - 1), scatter[x, y])
        names = ["intercept", *(variable_name(schema, j) for j in x)]
        return pd.Series([means[y] - means[x] @ slopes, *slopes], names, name="coefficient")
'''


def example(name: str) -> str:
    """The block of the page that defines a question."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (found,) = (block for block in blocks if f"class {name}(es.Question)" in block)
    return found


def test_the_example_is_short() -> None:
    assert len(example("SurvivalCurve").splitlines()) <= MOST_LINES


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the questions in a file, and rows that both can be asked of."""
    home = tmp_path_factory.mktemp("questions")
    (home / "my_questions.py").write_text(example("SurvivalCurve") + RIDGE)
    rng = np.random.default_rng(1)
    rows = pd.DataFrame({"dose": rng.integers(1, 40, 80), "kilos": rng.integers(50, 99, 80)})
    rows["pressure"] = 100 + rows["dose"] // 2 + rng.integers(0, 20, 80)
    rows.to_csv(home / "doses.csv", index=False)
    followed = pd.DataFrame(
        {"year": rng.integers(1, 5, 80), "seen": rng.choice(["died", "left"], 80)}
    )
    followed.to_csv(home / "followed.csv", index=False)
    return home


def asked(home: Path, data: str, question: str, *of_schema: str) -> Path:
    """The owner's and the worker's way to an encrypted answer; and the same question, asked in the
    clear.
    """
    name, questions = Path(data).stem, home / "my_questions.py"
    schema, plan, key = (home / f"{name}.{kind}" for kind in ("json", "plan", "key"))
    done("data", "schema", home / data, "-o", schema, *of_schema)
    shown = done("plan", schema, "--rows", 80, f"{questions}:{question}", "-o", plan).stdout
    assert question in shown
    done("key", "make", key, home / f"{name}.keys", "--plan", plan)
    done("encrypt", home / data, home / name, "--schema", schema, "--key", key)
    out = home / f"{name}.enc"
    shown = done("ask", home / name, *f"{questions}:{question}".split(), "-o", out).stdout
    assert f"{question} over 80 rows" in shown
    return out


@pytest.fixture(scope="module")
def doses(home: Path) -> Path:
    """An encrypted answer; beside it the table, the key and the schema."""
    numbers = [
        option
        for name in ("dose", "kilos", "pressure")
        for option in ("--column", f"{name} digits=0")
    ]
    return asked(home, "doses.csv", "MyRidge target=v2 alpha=10", *numbers)


def test_ridge(home: Path, doses: Path) -> None:
    opening = (
        "--key",
        home / "doses.key",
        "--schema",
        home / "doses.json",
        "--questions",
        home / "my_questions.py",
    )
    done("open", doses, *opening, "-o", home / "ridge.csv")
    schema = es.Schema.load(home / "doses.json")
    questions = load_questions(home / "my_questions.py")
    wanted = schema.table(pd.read_csv(home / "doses.csv")).ask(questions.MyRidge("v2", 10))
    found = pd.read_csv(home / "ridge.csv", index_col=0)["coefficient"]
    pd.testing.assert_series_equal(found, wanted)
    facts = json.loads(done("open", doses, *opening, "--json").stdout)
    assert facts["question"] == "MyRidge"
    assert facts["params"] == {"target": "v2", "alpha": 10}
    (table,) = facts["tables"].values()
    assert np.allclose(np.ravel(table["values"]), wanted)
    by_number = done("open", doses, *opening[:2], *opening[4:]).stdout
    assert "v0" in by_number
    assert "Give --schema" in by_number


def test_a_regression_is_fitted_by_asking(doses: Path, tmp_path: Path) -> None:
    table, formula = doses.with_suffix(""), "formula=v2 ~ v0 + v1"
    for model in ("LinearRegression", "Ridge"):
        out = tmp_path / f"{model}.enc"
        done("ask", table, model, formula, "-o", out)
        opened = tmp_path / f"{model}.opened"
        done("open", out, "--key", f"{table}.key", "--schema", f"{table}.json", "-o", opened)
        rows = pd.read_csv(f"{table}.csv")
        plain = getattr(es, model)(formula="pressure ~ dose + kilos").fit(
            es.Schema.load(f"{table}.json").table(rows)
        )
        assert es.load(opened).coef_.tolist() == plain.coef_.tolist()


def test_kaplan_meier(home: Path) -> None:
    out = asked(home, "followed.csv", "SurvivalCurve time=v0 event=0", "--target", "seen")
    opening = (
        "--key",
        home / "followed.key",
        "--schema",
        home / "followed.json",
        "--questions",
        home / "my_questions.py",
    )
    done("open", out, *opening, "-o", home / "curve.csv")
    rows = pd.read_csv(home / "followed.csv")
    at_risk = [int((rows["year"] >= year).sum()) for year in range(1, 5)]
    events = [
        int(((rows["year"] == year) & (rows["seen"] == "died")).sum()) for year in range(1, 5)
    ]
    survival = np.cumprod([1 - e / n for e, n in zip(events, at_risk, strict=True)])
    found = pd.read_csv(home / "curve.csv", index_col="time")
    assert found["at risk"].tolist() == at_risk
    assert found["events"].tolist() == events
    assert np.allclose(found["survival"], survival)


def test_info_imports_nothing(doses: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("encryptedstats.tables.questions.question._known", {})
    monkeypatch.setattr("encryptedstats.tables.questions.question._LATE", ())
    shown = done("data", "info", doses).stdout
    assert "encrypted result: MyRidge alpha=10 target=v2" in shown
    assert "nothing in it can decrypt" in shown
    facts = json.loads(done("data", "info", doses, "--json").stdout)
    assert (facts["question"], facts["params"]["alpha"], facts["holds_secret_key"]) == (
        "MyRidge",
        10,
        False,
    )


@pytest.mark.parametrize(
    "params",
    [
        {"question": "MyRidge", "params": "abc", "n_folds": 3},
        {"question": "LinearMeans", "params": ["centred"], "n_folds": 3},
        {
            "question": "folds",
            "params": {"question": "MyRidge", "params": {}, "n_folds": 3},
            "n_folds": 3,
        },
        {"question": 7, "params": {}, "n_folds": 3},
        {},
    ],
)
def test_folds_that_cannot_be_are_one_line(
    doses: Path, run: Run, tmp_path: Path, params: dict[str, Any]
) -> None:
    file = container.read(doses)
    container.write(
        replace(file, fields={**file.fields, "question": "folds", "params": params}),
        tmp_path / "forged",
    )
    assert "the folds are of no question that can be" in the_error(
        run("data", "info", tmp_path / "forged")
    )


def test_a_question_that_is_not_there(
    home: Path, doses: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("encryptedstats.tables.questions.question._known", {})
    opening = ("open", doses, "--key", home / "doses.key")
    assert (
        "nobody here knows the question 'MyRidge': name the file that defines it, open "
        "--questions FILE.py" in (the_error(run(*opening)))
    )
    (home / "again.py").write_text(example("SurvivalCurve") + RIDGE)
    monkeypatch.setenv("ENCRYPTEDSTATS_QUESTIONS", str(home / "again.py"))
    done(*opening)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("MyRidge",), "MyRidge needs target=..."),
        (
            ("MyRidge", "target=v2", "beta=1"),
            "MyRidge has no parameter 'beta': it takes target, alpha",
        ),
        (("MyRidge", "v2"), "MyRidge needs target=..."),
        (("Lasso",), "has no question 'Lasso'"),
        (("np",), "has no question 'np'"),
    ],
)
def test_questions_that_are_no_questions(
    doses: Path, run: Run, words: tuple[str, ...], said: str, tmp_path: Any
) -> None:
    question = f"{doses.with_name('my_questions.py')}:{words[0]}"
    result = run("ask", doses.with_suffix(""), question, *words[1:], "-o", tmp_path / "x.enc")
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("Correlation variables=age,prio", es.Correlation(("age", "prio"))),
        ("Correlation variables=age", es.Correlation(("age",))),
        ('Correlation variables=["a,b"]', es.Correlation(("a,b",))),
        ("Anova variable=age by=fin,race", es.Anova("age", ["fin", "race"])),
        ("Describe variables=age quantiles=0.1,0.9", es.Describe(["age"], quantiles=(0.1, 0.9))),
        ("CoxScore time=week variables=fin,age", es.CoxScore("week", variables=["fin", "age"])),
        ("TTest variable=age by=a,b", es.TTest("age", "a,b")),
    ],
)
def test_lists_are_written_with_commas(words: str, wanted: es.Question) -> None:
    (found,) = make_questions(words.split())
    assert json.dumps(found.parameters()) == json.dumps(wanted.parameters())


def test_the_status_of_all_questions_is_json() -> None:
    result = CliRunner().invoke(app, ["--json", "ask", "--list"])
    by_name = {one["question"]: one for one in json.loads(result.stdout)["questions"]}
    assert by_name["TTest"]["released"]
    assert set(by_name) == set(es.methods().index)
