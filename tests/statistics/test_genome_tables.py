"""Genome tables: thousands of variants in the lanes of a ciphertext, and regressions on them, as
statsmodels fits each variant alone.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from asked_samples import opened, small_owner

import encryptedstats as es
from encryptedstats import cluster
from encryptedstats.circuits.evaluate import compile_for
from encryptedstats.tables.rows.genotypes import choose_lanes
from error_codes import error

PEOPLE, VARIANTS = 150, 21
COVARIATES = ["age", "site"]


@pytest.fixture(scope="module")
def genotypes() -> np.ndarray:
    rng = np.random.default_rng(8)
    return rng.binomial(2, rng.uniform(0.1, 0.5, VARIANTS), (PEOPLE, VARIANTS))


@pytest.fixture(scope="module")
def gaps(genotypes: np.ndarray) -> np.ndarray:
    missing = np.random.default_rng(9).random(genotypes.shape) < 0.06
    return np.where(missing, -1, genotypes)


@pytest.fixture(scope="module")
def people(genotypes: np.ndarray) -> pd.DataFrame:
    rng = np.random.default_rng(10)
    return pd.DataFrame(
        {
            "age": rng.integers(40, 70, PEOPLE),
            "site": rng.choice(["a", "b", "c"], PEOPLE),
            "pressure": 100 + rng.integers(0, 20, PEOPLE) + 5 * genotypes[:, 4],
            "sick": (rng.random(PEOPLE) < 0.3 + 0.15 * genotypes[:, 2]).astype(int),
        }
    )


def design(people: pd.DataFrame, g: np.ndarray | None = None) -> np.ndarray:
    dummies = pd.get_dummies(people["site"], drop_first=True).to_numpy(dtype=float)
    columns = [np.ones(len(people)), people["age"], *dummies.T]
    return np.column_stack([*columns, *([] if g is None else [g])])


def check_linear(
    found: pd.DataFrame, people: pd.DataFrame, trait: str, genotypes: np.ndarray, gaps: str
) -> None:
    """Compare every variant with a regression of its own."""
    for j in range(VARIANTS):
        known = genotypes[:, j] >= 0
        g = genotypes[:, j].astype(float)
        kept = known
        if gaps == "mean":
            g, kept = np.where(known, g, g[known].mean()), np.full(len(g), True)
        fitted = sm.OLS(people.loc[kept, trait], design(people[kept], g[kept])).fit()
        line = found.iloc[j]
        wanted = [fitted.params.iloc[-1], fitted.bse.iloc[-1], fitted.tvalues.iloc[-1]]
        assert line[["beta", "se", "statistic"]].tolist() == pytest.approx(wanted, rel=1e-8)
        assert line["pvalue"] == pytest.approx(fitted.pvalues.iloc[-1], rel=1e-7)
        assert line["freq"] == pytest.approx(genotypes[known, j].mean() / 2)


@pytest.mark.parametrize("lanes", [1, 8])
def test_two_classes_are_compared_as_in_a_table_of_columns(
    lanes: int, genotypes: np.ndarray, people: pd.DataFrame
) -> None:
    found = opened(es.genome_table(genotypes, people, "sick", lanes=lanes), es.GenomeScan())
    frame = pd.DataFrame(genotypes).add_prefix("rs").assign(sick=people["sick"])
    schema = es.Schema.infer(
        frame, target="sick", kinds=dict.fromkeys(frame.columns[:-1], "number")
    )
    wanted = schema.table(frame).ask(es.GenomeScan())
    pd.testing.assert_frame_equal(
        found.table.reset_index(drop=True), wanted.table.reset_index(drop=True)
    )
    assert found.inflation == wanted.inflation
    assert found.n_rows == PEOPLE


@pytest.mark.parametrize("policy", ["drop", "mean"])
@pytest.mark.parametrize("lanes", [1, 8])
def test_regressions_with_covariates_are_those_of_each_variant_alone(
    lanes: int, policy: str, gaps: np.ndarray, people: pd.DataFrame
) -> None:
    table = es.genome_table(gaps, people.drop(columns="sick"), "pressure", lanes=lanes)
    found = opened(table, es.GenomeScan(covariates=COVARIATES, gaps=policy))
    check_linear(found.table, people, "pressure", gaps, policy)
    words = {"drop": "were left out", "mean": "the mean of the others"}[policy]
    assert words in found.summary()
    assert found.test == "linear"


def test_a_class_can_be_regressed_and_a_trait_needs_no_covariates(
    genotypes: np.ndarray, people: pd.DataFrame
) -> None:
    table = es.genome_table(genotypes, people, "sick", lanes=16)
    found = opened(table, es.GenomeScan(covariates=COVARIATES))
    check_linear(found.table, people, "sick", genotypes, "drop")
    alone = opened(
        es.genome_table(genotypes, people[["pressure"]], "pressure", lanes=16), es.GenomeScan()
    )
    slope = sm.OLS(people["pressure"], sm.add_constant(genotypes[:, 4])).fit()
    assert alone.table["beta"].iloc[4] == pytest.approx(slope.params.iloc[-1])
    assert alone.top(1).index[0] == "variant5"


@pytest.mark.parametrize("policy", ["drop", "mean"])
def test_score_tests_are_those_of_a_logistic_regression(
    policy: str, gaps: np.ndarray, people: pd.DataFrame
) -> None:
    with_null = es.null_model(people, "sick", COVARIATES, digits=8)
    table = es.genome_table(gaps, with_null, "sick", digits=8, lanes=8)
    question = es.GenomeScan(null_model=["residual", "weight"], covariates=COVARIATES, gaps=policy)
    found = table.ask(question).table
    logistic = sm.GLM(people["sick"], design(people), family=sm.families.Binomial())
    null = logistic.fit(tol=1e-12)
    for j in range(VARIANTS):
        known = gaps[:, j] >= 0
        if policy == "mean":
            g = np.where(known, gaps[:, j], gaps[known, j].mean())
            chi2 = logistic.score_test(null.params, exog_extra=g)[0]
            assert found["statistic"].iloc[j] ** 2 == pytest.approx(
                float(np.squeeze(chi2)), rel=1e-5
            )
        else:  # the null model is of everybody
            p = null.fittedvalues.to_numpy()[known]
            x, g = design(people[known]), gaps[known, j].astype(float)
            w = p * (1 - p)
            left = g - x @ np.linalg.solve((x * w[:, None]).T @ x, x.T @ (w * g))
            score = left @ (people["sick"].to_numpy()[known] - p)
            assert found["statistic"].iloc[j] == pytest.approx(
                score / np.sqrt(w @ left**2), rel=1e-5
            )
            assert found["beta"].iloc[j] == pytest.approx(score / (w @ left**2), rel=1e-5)


def test_encrypted_score_tests_are_the_plain_ones(
    genotypes: np.ndarray, people: pd.DataFrame
) -> None:
    with_null = es.null_model(people, "sick", ["age"], digits=2)
    table = es.genome_table(genotypes, with_null, "sick", lanes=8)
    question = es.GenomeScan(null_model=["residual", "weight"], covariates=["age"])
    assert opened(table, question).test == "score"


def test_plinks_columns_and_pictures_know_where_variants_are(
    genotypes: np.ndarray, people: pd.DataFrame
) -> None:
    variants = pd.DataFrame(
        {
            "CHROM": np.repeat([1, 2, "X"], 7),
            "POS": np.arange(VARIANTS) * 100 + 1,
            "ID": [f"rs{j}" for j in range(VARIANTS)],
            "A1": "A",
            "A2": "G",
        }
    )
    table = es.genome_table(genotypes, people, "sick", variants=variants, lanes=8)
    found = opened(table, es.GenomeScan(covariates=["age"]))
    shown = found.to_plink()
    columns = ["CHROM", "POS", "ID", "A1", "OBS_CT", "A1_FREQ", "BETA", "SE", "T", "P"]
    assert list(shown.columns) == columns
    assert shown["CHROM"].tolist()[-1] == "X"
    assert shown["P"].tolist() == found.pvalues.tolist()
    ax = found.plot()
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["1", "2", "X"]
    classes = opened(table, es.GenomeScan())
    assert list(classes.to_plink().columns)[-3:] == ["OR", "CHISQ", "P"]


# -- tables ----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
def test_people_are_appended_stored_and_added(
    genotypes: np.ndarray, people: pd.DataFrame, tmp_path: Path
) -> None:
    whole = es.genome_table(genotypes, people, "sick", lanes=8)
    parts = [
        es.genome_table(genotypes[rows], people[rows], schema=whole.schema)
        for rows in (slice(0, 70), slice(70, None))
    ]
    question, owner = es.GenomeScan(covariates=["age"]), small_owner()
    sealed = [owner.encrypt(part) for part in parts]
    sealed[0].save(tmp_path / "people")
    grown = es.load(tmp_path / "people").append(sealed[1])
    assert grown.n_rows == PEOPLE
    wanted = whole.ask(question)
    asked = question.in_ids(whole.schema)
    for answer in (
        es.load(tmp_path / "people").ask(asked),
        sealed[0].ask(question) + sealed[1].ask(question),
    ):
        answer.save(tmp_path / "answer", overwrite=True)
        again = es.load(tmp_path / "answer", owner.public_keys())
        assert owner.open(again, whole.schema).table.equals(wanted.table)
    found = owner.open(answer)
    found.save(tmp_path / "found")
    assert es.load(tmp_path / "found") == found


def test_devices_agree_and_the_plan_is_what_runs(
    genotypes: np.ndarray, people: pd.DataFrame
) -> None:
    table = es.genome_table(genotypes, people, "sick", lanes=64)
    question = es.GenomeScan()
    plan = es.plan(question, table)
    sealed = es.Owner(plan).encrypt(table)
    native, seal = (sealed.ask(question, device=name) for name in ("native", "seal"))
    assert native.ciphertexts.equals(seal.ciphertexts)
    assert native.program_digest == seal.program_digest == plan.digests[0]
    assert (
        plan.n_columns * plan.layout.n_chunks == 6 * 3
    )  # a tile, the class, age, pressure and two sites


def test_people_share_a_ciphertext_and_lanes_are_chosen_by_the_shape() -> None:
    assert choose_lanes(5_000, 10_000, 4) > 1
    assert choose_lanes(100_000, 20, 4) == 1
    wide, narrow = choose_lanes(1_000, 100_000, 4), choose_lanes(50_000, 1_000, 4)
    assert wide > narrow


def test_what_lanes_do_not_carry_is_refused(genotypes: np.ndarray, people: pd.DataFrame) -> None:
    table = es.genome_table(genotypes, people, "sick", lanes=8)
    for options in ({"by_others": True}, {"members": 2}, {"workers": 4}):
        with pytest.raises(es.ParameterError, check=error("lanes-not-shared")):
            es.plan(es.GenomeScan(), table, **options)
    owner = small_owner()
    with pytest.raises(es.SchemaError, check=error("lanes-of-contributor")):
        owner.public_keys().encrypt(table)
    sealed = owner.encrypt(table)
    for asked in (table, sealed):
        with pytest.raises(es.SchemaError, check=error("question-without-lanes")):
            asked.ask(es.Covariance(["age"]))
    with pytest.raises(es.SchemaError, check=error("lanes-not-packed")):
        sealed.ask(es.GenomeScan(), form="packed")
    with pytest.raises(es.SchemaError, check=error("variants-not-chosen")):
        table.ask(es.GenomeScan(["variants 1 to 8"]))
    with pytest.raises(es.SchemaError, check=error("lanes-beyond-slots")):
        owner.encrypt(es.genome_table(genotypes, people, "sick", lanes=2048))
    other = es.genome_table(genotypes[:, :20], people, "sick", lanes=8)
    with pytest.raises(es.SchemaError, check=error("different-schemas")):
        sealed.append(owner.encrypt(other))


def test_what_shows_or_checks_totals_otherwise_is_refused(
    genotypes: np.ndarray, people: pd.DataFrame, tmp_path: Path
) -> None:
    table = es.genome_table(genotypes, people, "sick", lanes=8)
    question, owner = es.GenomeScan(), small_owner()
    sealed = owner.encrypt(table)
    answer = sealed.ask(question)

    def create_study() -> es.Study:
        return es.Study.create(
            tmp_path, schema=table.schema, questions={"scan": question}, n_rows=PEOPLE,
            sites=["a", "b"], worker="w", receiver="r",
        )  # fmt: skip

    for refused in (
        lambda: owner.publish(answer, rules="datashield"),
        lambda: owner.release(answer, epsilon=1.0),
        create_study,
    ):
        with pytest.raises(ValueError, check=error("lanes-not-shared")):
            refused()
    totals, _ = sealed.facts.circuit(question.in_ids(table.schema), sealed.layout)
    compiled = compile_for(totals, sealed.source(), form=sealed.facts.form)
    assert "stay in the slots" in str(compiled.residue_obstacle)  # spot checks refuse it


@pytest.mark.filterwarnings("ignore:column 'years' says the same")
def test_what_is_no_genome_is_refused(genotypes: np.ndarray, people: pd.DataFrame) -> None:
    with pytest.raises(es.DataError, check=error("no-genotype")):
        es.genome_table(genotypes + 1, people, "sick")
    with pytest.raises(es.ArgumentError, check=error("other-number-of-people")):
        es.genome_table(genotypes[1:], people, "sick")
    with pytest.raises(es.ArgumentError, check=error("other-number-of-variants")):
        es.genome_table(genotypes, people, "sick", variants=pd.DataFrame({"ID": ["rs1"]}))
    schema = es.genome_table(genotypes, people, "sick").schema
    with pytest.raises(es.SchemaError, check=error("unexpected-gaps")):
        es.genome_table(np.where(genotypes == 2, -1, genotypes), people, schema=schema)
    with pytest.raises(es.SchemaError, check=error("other-variants")):
        es.genome_table(genotypes[:, 1:], people, schema=schema)
    assert es.Schema.from_json(schema.to_json()) == schema
    with pytest.raises(es.DataError, check=error("dependent-covariates")):
        es.genome_table(genotypes, people.assign(years=people["age"]), "sick", lanes=8).ask(
            es.GenomeScan(covariates=["age", "years"])
        )


def test_a_receiver_notices_totals_of_people_that_differ_between_lanes(
    genotypes: np.ndarray, people: pd.DataFrame
) -> None:
    table, question = es.genome_table(genotypes, people, "sick", lanes=8), es.GenomeScan()
    totals = table.totals(question)
    totals[0] += 1
    with pytest.raises(ValueError, match="differ between variants"):
        question.interpret(totals, table.schema, PEOPLE)


@pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
def test_a_cluster_computes_shards_of_people(
    genotypes: np.ndarray,
    people: pd.DataFrame,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ENCRYPTEDSTATS_ALLOW", str(tmp_path))
    table = es.genome_table(genotypes, people, "pressure", lanes=32)  # five chunks
    question, owner = es.GenomeScan(covariates=["age"]), small_owner()
    sealed = owner.encrypt(table)
    sealed.save(tmp_path / "people")
    asked = question.in_ids(table.schema)
    cluster.submit(asked, tmp_path / "people", tmp_path / "answer", rows_per_shard=64)
    cluster.work(tmp_path / "answer.work")
    answer = es.load(tmp_path / "answer", owner.public_keys())
    assert len(answer.ciphertexts.cut.blocks) == 3
    assert owner.open(answer, table.schema) == table.ask(question)
    es.verify(answer, tmp_path / "people", asked)
