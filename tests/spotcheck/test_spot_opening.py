"""Spot checks as a user asks for them: plan, encrypt, ask, open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from spot_samples import patients, schema_of

import encryptedstats as es
from encryptedstats.circuits.spare_bits import count_residues, default_positions
from encryptedstats.spotcheck import Challenge, Keeper, Response, SpotCheck, respond
from encryptedstats.tables.questions.question import load_all_questions
from error_codes import error

N_ROWS = 300
FOREST = es.CompletelyRandomForest(3, depth=2, random_state=1)


def test_plans_leave_no_more_than_is_needed() -> None:
    """One bit less for each prime, and the checks would be refused: so the room was reserved."""
    question = es.CompletelyRandomForest(20, depth=3, random_state=1)
    checked, plain = (
        es.plan(question, schema_of(), 5000, spot_check=wanted) for wanted in (True, False)
    )
    assert sum(q.bit_length() for q in plain.parameters.data_moduli) < sum(
        q.bit_length() for q in checked.parameters.data_moduli
    )
    with pytest.raises(es.ParameterError, check=error("keys-too-small")):
        es.plan(question, schema_of(), 5000, spot_check=True, keys=plain.parameters)
    assert es.plan(question, schema_of(), 5000, spot_check=True, keys=checked.parameters).spot_check


@pytest.fixture(scope="module")
def plan() -> es.Plan:
    return es.plan([FOREST, es.MultinomialNB()], schema_of(), N_ROWS, spot_check=True)


def test_a_plan_says_what_checks_take(plan: es.Plan) -> None:
    cost = plan.spot_check
    assert cost is not None
    assert cost.positions == default_positions(plan.parameters)
    assert cost.positions <= 0.04 * count_residues(plan.parameters)
    assert cost.bytes_kept <= 0.04 * 2 * plan.bytes_up * 64 / 30  # words, and no seeds
    assert cost.bytes_down < 10e6
    assert 0 < cost.owner_seconds < 0.1
    assert 0 < cost.worker_seconds < 1
    assert "spot check" in str(plan)
    assert plan.to_dict()["spot_check"]["combinations"] == cost.combinations
    without = es.plan([FOREST, es.MultinomialNB()], schema_of(), N_ROWS)
    assert without.spot_check is None
    assert "spot check" not in str(without)


def test_what_was_planned_is_enough(plan: es.Plan) -> None:
    """Of a plan: honest answers pass, with no more combinations than it says."""
    assert plan.spot_check is not None
    owner, schema = es.Owner(plan), schema_of()
    table = owner.encrypt(schema.table(patients(N_ROWS)), spot_check=True)
    for question in (FOREST, es.MultinomialNB()):
        answer = table.ask(question)
        opened = owner.open(answer, schema, verify="spot", on=table)
        assert list(opened.totals_) == list(owner.open(answer, schema).totals_)
        keeper = Keeper.of_owner(owner)
        assert keeper is not None
        challenge = SpotCheck(keeper).challenge(answer, question, schema)
        assert len(challenge.seeds) <= plan.spot_check.combinations


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"scheme": "bfv"}, "not-residue-local"),
        ({"by_others": True}, "rows-by-others-unchecked"),
        ({"members": 3}, "rows-by-others-unchecked"),
        ({"encrypted_prediction": True}, "not-residue-local"),
    ],
)
def test_what_cannot_be_checked_is_not_planned(options: dict[str, Any], code: str) -> None:
    with pytest.raises(es.ParameterError, check=error(code)):
        es.plan(es.MultinomialNB(), schema_of(), N_ROWS, spot_check=True, **options)


def test_files_are_encrypted_and_kept(tmp_path: Path, plan: es.Plan) -> None:
    owner, schema, place = es.Owner(plan), schema_of(), tmp_path / "table.enc"
    owner.save(tmp_path / "secret.key")
    patients(N_ROWS).to_csv(tmp_path / "rows.csv", index=False)
    owner.encrypt_file(tmp_path / "rows.csv", schema, place, spot_check=True)
    kept = sum(file.stat().st_size for file in (tmp_path / "secret.key.spot").iterdir())
    table = es.load(place)
    assert kept < 0.04 * 2 * table.blocks.stored_bytes() * 64 / 30 + 20_000
    assert not list(place.glob("*.spot"))
    again = es.Owner.load(tmp_path / "secret.key")
    answer = table.ask(FOREST)
    opened = again.open(answer, schema, verify="spot", on=table)
    assert list(opened.totals_) == list(FOREST.fit(schema.table(patients(N_ROWS))).totals_)


class Obedient:
    """A worker that answers for the rows of a table, whichever table the owner names."""

    def __init__(self, table: es.EncryptedTable, block_ids: tuple[str, ...]) -> None:
        self.table, self.block_ids = table, block_ids

    def respond(self, question: es.Question, challenge: Challenge, **_: Any) -> Response:
        return respond(self.table, question, challenge)


def test_answers_are_of_the_rows_that_are_named(plan: es.Plan) -> None:
    owner, schema = es.Owner(plan), schema_of()
    first, more = (
        owner.encrypt(schema.table(patients(100, seed)), spot_check=True) for seed in (1, 2)
    )
    answer, whole = first.ask(FOREST), first.append(more)
    assert owner.open(answer, schema, verify="spot", on=first).n_rows_ == 100
    with pytest.raises(es.VerificationError, check=error("different-rows")):
        owner.open(answer, schema, verify="spot", on=Obedient(first, whole.blocks.ids))
    assert owner.open(whole.ask(FOREST), schema, verify="spot", on=whole).n_rows_ == 200


# -- every question --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wide() -> tuple[es.Owner, es.EncryptedTable, es.Schema]:
    """Bins, numbers, a class and folds, under a modulus with room for every question."""
    from spot_samples import small_owner

    rng = np.random.default_rng(5)
    n = 200
    frame = pd.DataFrame(
        {
            "age": rng.integers(20, 80, n),
            "dose": rng.integers(0, 4, n),
            "weight": rng.integers(50, 54, n),
            "time": rng.integers(1, 5, n),
            "smoker": rng.choice(["no", "yes"], n),
            "event": rng.choice(["no", "yes"], n),
            "sick": np.where(rng.random(n) < 0.4, "yes", "no"),
        }
    )
    schema = es.Schema.infer(
        frame, target="sick", bins=3, kinds={"dose": "number", "weight": "number"}
    )
    owner = small_owner()
    return (
        owner,
        owner.encrypt(schema.table(frame, folds=2), encodings=("onehot", "grid"), spot_check=True),
        schema,
    )


BINNED = ["age", "smoker", "event"]
QUESTIONS = {
    "describe": es.Describe(["dose"]),
    "histogram": es.Histogram("age"),
    "quantiles": es.Quantiles("dose"),
    "t test": es.TTest("dose", "smoker"),
    "anova": es.Anova("dose", "smoker"),
    "variances": es.VarianceTest("dose", "smoker"),
    "chi-square": es.ChiSquare("smoker", "sick"),
    "fisher": es.FisherExact("smoker", "sick"),
    "odds": es.OddsRatio("smoker", "sick"),
    "mcnemar": es.McNemar("smoker", "event"),
    "kappa": es.Kappa("smoker", "event"),
    "trend": es.CochranArmitage("age", "sick"),
    "strata": es.MantelHaenszel("smoker", "event", "age"),
    "ranks": es.MannWhitney("dose", "smoker"),
    "kruskal": es.KruskalWallis("dose", "smoker"),
    "kaplan-meier": es.KaplanMeier("time", "event"),
    "log-rank": es.LogRank("time", "event", "smoker"),
    "life table": es.LifeTable("time", "event"),
    "linear": es.LinearRegression("dose ~ smoker + weight"),
    "glm": es.GLM("event ~ smoker"),
    "pairs": es.Pairs(["age", "smoker"]),
    "forest": FOREST,
    "naive Bayes": es.MultinomialNB(variables=BINNED),
    "aode": es.AODE(variables=BINNED),
    "tan": es.TAN(variables=BINNED),
    "linear means": es.LinearMeans(),
    "fisher discriminant": es.FisherDiscriminant(),
    "semiparametric": es.SemiparametricNB(),
    "one step": es.OneStepLogisticRegression(),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_kind_of_question_passes_or_says_why_not(
    name: str, wide: tuple[es.Owner, es.EncryptedTable, es.Schema]
) -> None:
    owner, table, schema = wide
    question = QUESTIONS[name]
    answer = table.ask(question)
    opened = owner.open(answer, schema, verify="spot", on=table)
    assert repr(opened) == repr(owner.open(answer, schema))
    assert len(load_all_questions()) >= len(QUESTIONS)


def test_folds_pass(wide: tuple[es.Owner, es.EncryptedTable, es.Schema]) -> None:
    owner, table, schema = wide
    worker = es.connect("local")
    answer = worker.ask(es.MultinomialNB(variables=BINNED), table, folds=True)
    opened = owner.open(answer, schema, verify="spot", on=worker.upload(table))
    assert len(opened) == 2
