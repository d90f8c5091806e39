"""A worker that lies steers the splits of a tree and sees it in the next question; a spot check of
every round refuses the lie before anything follows from it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tree_samples as samples

import encryptedstats as es
from encryptedstats.models import NodeCounts
from encryptedstats.procedures import OpenedRound
from encryptedstats.tables.answers.answer import Answer
from encryptedstats.tables.questions.question import ImpossibleTotalsError
from encryptedstats.workers import LocalWorker, WorkerJob
from error_codes import error

TREE = es.DecisionTree(depth=2)


class Liar(LocalWorker):
    """Count the bins of x2 for those of x0, and those of x0 for those of x2."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def _answer(self, job: WorkerJob, progress: Any) -> Answer:
        asked: Any = job.question
        self.seen.append(asked)
        other = {0: 2, 2: 0}
        nodes = [
            [path, [other.get(j, j) for j in cells], folds] for path, cells, folds in asked.nodes
        ]
        assert job.table.sealed is not None
        lie = job.table.sealed._answer_to(NodeCounts(nodes, asked.whole))
        return replace(lie, question=asked)


@pytest.fixture(scope="module")
def kept() -> tuple[es.Table, es.Owner, es.EncryptedTable]:
    table = samples.table(n=250)
    owner = es.Owner(es.plan(TREE, table, spot_check=True))
    return table, owner, owner.encrypt(table, spot_check=True)


def test_checked_rounds_are_those_of_the_clear_rows(kept: Any) -> None:
    table, owner, sealed = kept
    assert TREE.run(sealed, owner, verify="spot") == TREE.run(table)


def test_rounds_that_were_not_checked_do_not_pass_as_checked(kept: Any, tmp_path: Path) -> None:
    _, owner, sealed = kept
    TREE.run(sealed, owner, folder=tmp_path / "run")
    with pytest.raises(es.ArgumentError, check=error("other-run")):
        TREE.run(sealed, owner, folder=tmp_path / "run", verify="spot")


def test_a_lie_steers_the_next_question_unless_rounds_are_checked(kept: Any) -> None:
    table, owner, sealed = kept
    honest, opened = list[OpenedRound](), list[OpenedRound]()
    TREE.run(table, progress=honest.append)
    liar = Liar()
    with suppress(ImpossibleTotalsError):  # of the second round: then the worker has seen it
        TREE.run(sealed, owner, at=liar)
    questions = honest[1].question, liar.seen[1]
    assert [one.nodes[0][0][0][0] for one in questions] == [0, 2]  # x2 won, with the counts of x0
    liar = Liar()
    with pytest.raises(es.VerificationError, check=error("spot-check-failed")):
        TREE.run(sealed, owner, at=liar, progress=opened.append, verify="spot")
    assert (len(liar.seen), len(opened)) == (1, 0)
    with pytest.raises(es.KeyMismatchError, check=error("retired-key")):
        TREE.run(sealed, owner, verify="spot")
