"""A chunk is encrypted by all processes, each taking some of its columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import encryptedstats as es
from encryptedstats.machine import start_method
from encryptedstats.tables import encryption
from insecure import insecure_parameters

COLUMNS = 30
QUESTION = es.Covariance(["x0", "x17", "x29"])


@pytest.fixture(scope="module")
def owner() -> es.Owner:
    return es.Owner(insecure_parameters("bgv", 1 << 20, (50,) * 4))


@pytest.fixture(scope="module")
def table() -> es.Table:
    values = np.random.default_rng(0).integers(0, 9, (1500, COLUMNS))  # two chunks
    frame = pd.DataFrame(values).add_prefix("x")
    return es.Schema.infer(frame, numbers="keep", digits=0).table(frame)


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the columns of each piece of work that processes get."""
    found: list[int] = []
    share = encryption._Job._share_columns

    def counted(job, items):
        for item in share(job, items):
            found.append(len(item.values) if isinstance(item, encryption._BlockPart) else COLUMNS)
            yield item

    monkeypatch.setattr(encryption._Job, "_share_columns", counted)
    return found


@pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
@pytest.mark.skipif(start_method() == "none", reason="there are no processes here")
@pytest.mark.parametrize("stored", [True, False])
def test_fewer_chunks_than_processes_are_cut_by_columns(
    stored: bool, owner: es.Owner, table: es.Table, processes: list[int], tmp_path: Path
) -> None:
    place = {"out": tmp_path / "table"} if stored else {}
    sealed = owner.encrypt(table, workers=3, progress=False, **place)
    assert processes == [10, 10, 10] * 2
    assert owner.open(sealed.ask(QUESTION)) == table.ask(QUESTION)
    if stored:
        again = es.load(tmp_path / "table", owner.public_keys())
        assert owner.open(again.ask(QUESTION.in_ids(table.schema)), table.schema) == table.ask(
            QUESTION
        )


@pytest.mark.parametrize("workers", [1, 2])
def test_enough_chunks_are_not_cut(
    workers: int, owner: es.Owner, table: es.Table, processes: list[int]
) -> None:
    owner.encrypt(table, workers=workers, progress=False)
    assert processes == [COLUMNS] * 2


def test_a_file_of_few_rows_is_cut_too(
    owner: es.Owner, table: es.Table, processes: list[int], tmp_path: Path
) -> None:
    table.to_pandas().head(100).to_csv(tmp_path / "rows.csv", index=False)
    sealed = owner.encrypt_file(
        tmp_path / "rows.csv", table.schema, tmp_path / "table", workers=2, progress=False
    )
    assert processes == [8, 8, 8, 6]
    assert owner.open(sealed.ask(QUESTION)) == table[:100].ask(QUESTION)
