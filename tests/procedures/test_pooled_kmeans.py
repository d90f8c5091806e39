"""k-means over three sites, beside scikit-learn's Lloyd of all rows from the same start."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from pooled_samples import at_sites, check_rounds_are_the_same, cohort, schema_of
from sklearn.cluster import KMeans

import encryptedstats as es
from encryptedstats.procedures import RowLimits, SiteCourse
from error_codes import error

NAMES = ["age", "bmi", "cost"]


def start_of(asked: es.PooledKMeans, tables: Any) -> Any:
    """Return the drawn centres, in the integers of the schema."""
    schema = tables[0].schema
    course = SiteCourse(asked.in_ids(schema), schema.public())
    for _ in range(2):
        parts = [course.measure(table) for table in tables]
        course.take([sum(column) for column in zip(*parts, strict=True)])
    return course.state


@pytest.mark.parametrize("standardise", [True, False])
@pytest.mark.parametrize("seed", [0, 3])
def test_clusters_are_those_of_scikit_learn_from_the_same_start(
    standardise: bool, seed: int
) -> None:
    frame = cohort()
    tables = at_sites(schema_of(frame), frame)
    asked = es.PooledKMeans(
        3, NAMES, standardise=standardise, seed=seed, minimum=1, max_iterations=60
    )
    found = asked.run(tables)
    x = frame[NAMES].to_numpy()
    divisor = x.std(axis=0) if standardise else np.ones(3)
    start = np.array(start_of(asked, tables)["centers"]) / np.array([1, 10, 100]) / divisor
    theirs = KMeans(3, init=start, n_init=1, tol=0, max_iter=300, algorithm="lloyd")
    labels = theirs.fit_predict(x / divisor)
    own = found.centers[NAMES].to_numpy()
    np.testing.assert_allclose(own, theirs.cluster_centers_ * divisor, rtol=1e-9)
    assert found.centers["rows"].tolist() == np.bincount(labels).tolist()
    assert found.inertia == pytest.approx(theirs.inertia_, rel=1e-9)
    assert found.predict(frame).tolist() == labels.tolist()
    assert found.converged


def test_drawn_points_lie_within_the_bounds() -> None:
    frame = cohort()
    schema = schema_of(frame)
    state = start_of(es.PooledKMeans(50, NAMES), at_sites(schema, frame))
    centers = np.array(state["centers"])
    for j, name in enumerate(NAMES):
        known = schema.variables[schema.index(name)]
        assert known.low <= centers[:, j].min() < centers[:, j].max() <= known.high


def test_sums_of_few_rows_that_move_are_not_opened() -> None:
    frame = cohort()
    schema = schema_of(frame)
    asked = es.PooledKMeans(3, NAMES, minimum=15, max_iterations=60).in_ids(schema)
    course = SiteCourse(asked, schema.public())
    labels, previous = [], None
    while not course.is_done:
        if course.number and course.state["stage"] == "sums":
            units = np.array(course.state["sds"])
            x = frame[NAMES].to_numpy() * np.array([1, 10, 100])
            centers = np.array(course.state["centers"])
            own = (((x[:, None] - centers) / units) ** 2).sum(axis=2).argmin(axis=1)
            if previous is not None:
                moved = own != previous
                changed = np.bincount(own[moved], minlength=3)
                changed += np.bincount(previous[moved], minlength=3)
                assert all(one == 0 or one >= 15 for one in changed)
            previous = own
            labels.append(own)
        course.take(course.measure(schema.table(frame)))
    found = course.read(schema)
    assert len(labels) > 1
    assert any("would move on" in note for note in found.notes)
    full = es.PooledKMeans(3, NAMES, minimum=1, max_iterations=60).run(schema.table(frame))
    assert found.iterations < full.iterations
    assert found.inertia == pytest.approx(full.inertia, rel=0.1)


def test_clusters_of_few_rows_are_refused_before_their_sums_are_opened() -> None:
    frame = pd.DataFrame({"x": [*range(60), *[1000] * 4]})
    schema = schema_of(frame, None, x="number")
    tables = at_sites(schema, frame)
    limits = RowLimits(minimum=10, per_number=0, per_parameter=0)
    codes = []
    for seed in range(30):
        try:
            es.PooledKMeans(2, seed=seed, minimum=10).run(tables, limits=limits)
        except es.DisclosureError as raised:
            codes.append(raised.code)
    assert len(codes) > 5
    assert set(codes) == {"small-count"}
    with pytest.raises(es.DisclosureError, check=error("small-count", "minimum=3")):
        es.PooledKMeans(2, minimum=3).run(tables, limits=limits)


def test_a_start_with_a_small_cluster_is_refused() -> None:
    frame = pd.DataFrame({"x": [*range(60), *[1000] * 4]})
    tables = at_sites(schema_of(frame, None, x="number"), frame)
    codes = set()
    for seed in range(30):
        try:
            es.PooledKMeans(2, seed=seed, minimum=10).run(tables)
        except es.DataError as raised:
            codes.add(raised.code)
    assert codes == {"small-cluster"}


def test_a_cluster_without_rows_stays_where_it_was() -> None:
    frame = pd.DataFrame({"x": [0] * 30 + [100] * 30, "y": list(range(60))})
    schema = schema_of(frame, None, x="number", y="number")
    found = es.PooledKMeans(4, ["x"], minimum=1).run(at_sites(schema, frame))
    assert 0 in found.centers["rows"].tolist()
    assert "a cluster without rows stays where it was" in found.notes
    assert found.inertia >= 0


def test_rows_with_gaps_belong_to_no_cluster() -> None:
    frame = cohort().astype({"age": float})
    frame.loc[5:9, "age"] = np.nan
    schema = es.Schema.infer(frame, target="ill", numbers="keep", missing="bin")
    asked = es.PooledKMeans(2, ["age", "bmi"], minimum=1)
    found = asked.run(at_sites(schema, frame))
    whole = asked.run(schema.table(frame.dropna()))
    assert found.n_rows == 295
    pd.testing.assert_frame_equal(found.centers, whole.centers)
    labels = found.predict(frame)
    assert [one is None for one in labels] == frame.age.isna().tolist()


def test_rounds_are_the_same_everywhere_and_as_few_as_announced() -> None:
    frame, schema = cohort(), schema_of(cohort())
    asked = es.PooledKMeans(4, NAMES, minimum=1, max_iterations=5)
    course = check_rounds_are_the_same(asked, schema, frame)
    assert "the clusters did not converge" in course.read(schema).notes


def test_impossible_questions_are_refused() -> None:
    frame = cohort()
    with pytest.raises(es.SchemaError, check=error("keep-numbers")):
        es.PooledKMeans(2, ["arm"]).run(at_sites(schema_of(frame), frame))
    with pytest.raises(es.SchemaError, check=error("no-numbers")):
        es.PooledKMeans(2).run(es.Schema.infer(frame, target="ill").table(frame))
    with pytest.raises(es.ParameterError, check=error("not-an-integer", "n_clusters")):
        es.PooledKMeans(0)
