"""A study with a joint key: three hospitals, a worker and a receiver, none of whom ever has the key
that opens their rows.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from sklearn.base import clone
from study_samples import (
    FOREST,
    FRAMES,
    SCHEMA,
    SITES,
    TOGETHER,
    World,
    copied,
    killed_at,
    parameters,
    world,
)

import encryptedstats as es
from encryptedstats.storage import container
from encryptedstats.studies.transcript import KEY_ROUNDS
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")


@lru_cache(maxsize=1)
def joint_parameters() -> es.Parameters:
    return replace(parameters(), members=3)


def joint_world(folder: Path, **options: Any) -> World:
    return world(folder, key="joint", **{"parameters": joint_parameters(), **options})


def until(made: World, *wanted: str) -> World:
    """Everybody does what is due until one of these is next."""
    made.join_all()
    made.run(lambda: bool({what for _, what in made.steps()} & set(wanted)))
    return made


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The key is made, by all."""
    return until(joint_world(tmp_path_factory.mktemp("joint")), "add")


@pytest.fixture(scope="module")
def asked(begun: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """The forest is fitted, and the receiver has called for shares."""
    made = copied(begun, tmp_path_factory.mktemp("asked"))
    made.run(lambda: "forest" in es.Study(made.url).state().answers)
    made.as_("registry").open(made.key)
    return made


def is_forest_of_all(found: dict[str, Any]) -> bool:
    return bool(
        (
            found["forest"].leaf_counts_ == clone(FOREST).fit(SCHEMA.table(TOGETHER)).leaf_counts_
        ).all()
    )


def test_three_hospitals_get_the_forest_of_all_rows_when_all_of_them_share(
    asked: World, tmp_path: Path
) -> None:
    made = copied(asked, tmp_path)
    for site in SITES[:2]:
        made.as_(site).share()
    assert made.as_("registry").open(made.key) == {}
    assert made.steps() == [("west", "share")]
    made.as_("west").share()
    assert is_forest_of_all(made.as_("registry").open(made.key))
    study = es.Study(made.url)
    assert study.public_keys().joint
    assert study.status().to_dict()["valid"] == dict.fromkeys(SITES, True)
    assert [m.by for m in study.messages() if m.kind == "opened"] == ["registry"]
    # No secret of a member lies anywhere but with her.
    secrets = sorted(path for path in made.folder.rglob("secret") if path.is_file())
    assert [path.parent.name for path in secrets] == [f"{site}.id.member" for site in SITES]
    assert all((path.stat().st_mode & 0o777) == 0o600 for path in secrets)


def test_rounds_come_in_order_and_once(tmp_path: Path) -> None:
    made = joint_world(tmp_path / "w").join_all()
    assert made.steps() == [(site, "keygen") for site in SITES]
    north = made.as_("north")
    north.keygen()
    with pytest.raises(es.StudyError, check=error("refused-message", "'contribution'")):
        north.post("key round", {"round": "contribution", "object": "0" * 64})
    with pytest.raises(es.StudyError, check=error("refused-message")):
        north.post("key round", {"round": "commitment", "object": "0" * 64})
    with pytest.raises(es.StudyError, check=error("key-parts-missing")):
        made.as_("registry").keygen(made.key)
    with pytest.raises(es.StudyError, check=error("refused-message")):
        made.as_("registry").post("keys", {"object": "0" * 64, "key_id": "0" * 32, "parts": {}})
    with pytest.raises(es.StudyError, check=error("refused-message")):
        made.as_("centre").post("key round", {"round": "commitment", "object": "0" * 64})
    north.keygen()  # nothing is due
    assert [m.by for m in north.messages() if m.kind == "key round"] == ["north"]


def test_a_receiver_who_announces_a_key_of_its_own_gets_no_rows(tmp_path: Path) -> None:
    made = joint_world(tmp_path / "w").join_all()
    made.run(lambda: es.Study(made.url).state().key_rounds_complete)
    own = es.Owner(joint_parameters()).public_keys()
    registry = made.as_("registry")
    digest = registry.transcript.store_object(container.to_bytes(own.to_container()))
    registry.post("keys", {"object": digest, "key_id": own.key_id, "parts": {}})
    with pytest.raises(es.KeyMismatchError, check=error("other-key")):
        made.as_("north").add(FRAMES["north"])


def test_a_site_shares_for_nothing_that_it_does_not_compute_itself(
    begun: World, tmp_path: Path
) -> None:
    made = copied(begun, tmp_path)
    made.run(lambda: es.Study(made.url).state().judged)
    centre = made.as_("centre")
    good = centre._answer("forest", centre.state(), {})
    good.ciphertexts.parts[0].residues[1, 0, 0] ^= 1
    digest = centre.transcript.store_object(container.to_bytes(good.to_container()))
    centre.post("answer", {"question": "forest", "object": digest})
    made.as_("registry").open(made.key)
    with pytest.raises(es.VerificationError, check=error("wrong-result", "'forest'")):
        made.as_("north").share()
    assert "forest" not in str([m.content for m in centre.messages() if m.kind == "share"])


def test_a_share_that_is_none_is_refused_and_named(asked: World, tmp_path: Path) -> None:
    made = copied(asked, tmp_path)
    for site in SITES[:2]:
        made.as_(site).share()
    west = made.as_("west")
    call = west.state().call
    for data in (b"nothing", west.transcript.read_object(west.state().shares[call.hash]["north"])):
        copy = copied(made, tmp_path / str(len(data)))
        liar = copy.as_("west")
        liar.post("share", {"call": call.hash, "object": liar.transcript.store_object(data)})
        registry = copy.as_("registry")
        assert registry.open(made.key) == {}
        assert "west" in registry.refusals[0]


def test_asked_again_a_site_gives_the_same_bytes(asked: World, tmp_path: Path) -> None:
    made = copied(asked, tmp_path)
    first = copied(made, tmp_path / "again")
    made.as_("north").share()
    shutil.rmtree(first.folder / "north.id.member")
    shutil.copytree(made.folder / "north.id.member", first.folder / "north.id.member")
    first.as_("north").share()
    given = [w.as_("north").state() for w in (made, first)]
    assert (
        given[0].shares[given[0].call.hash]["north"] == given[1].shares[given[1].call.hash]["north"]
    )


def test_a_site_with_an_old_copy_of_its_folder_sends_what_it_has_sent(
    asked: World, tmp_path: Path
) -> None:
    """Its own record of shares is lost; the transcript has them. A second share of a ciphertext
    would be flooded otherwise.
    """
    made = copied(asked, tmp_path)
    for site in SITES:
        made.as_(site).share()
    assert is_forest_of_all(made.as_("registry").open(made.key))
    first = made.as_("north").state()
    for path in [
        *made.folder.glob("north.id.member/share-*"),
        *made.folder.glob("north.id.sent/*"),
    ]:
        path.unlink()
    made.as_("registry").open(made.key, again=True)
    made.as_("north").share()
    again = made.as_("north").state()
    calls = [first.calls[-1].hash, again.calls[-1].hash]
    assert calls[0] != calls[1]
    assert again.shares[calls[1]]["north"] == again.shares[calls[0]]["north"]
    assert not list(made.folder.glob("north.id.member/share-*"))  # nothing was computed


def test_what_a_joint_study_needs(tmp_path: Path, begun: World) -> None:
    with pytest.raises(es.ParameterError, check=error("wrong-number-of-members", "1")):
        world(tmp_path / "w", key="joint")
    with pytest.raises(es.StudyError, check=error("no-identity-file")):
        es.Study(begun.url, begun.as_("north").me).keygen()
    assert es.Study(begun.url).document.key.kind == "joint"
    assert set(es.Study(begun.url).state().key_rounds) == set(KEY_ROUNDS)


NUMBERS = es.Schema.infer(
    pd.DataFrame({"x": range(50), "y": range(50)}),
    target="y",
    kinds={"x": "number"},
    numbers="keep",
)


@pytest.mark.parametrize(
    "two",
    [
        (es.LinearRegression("y ~ x"), es.Ridge(formula="y ~ x")),
        (es.Ridge(formula="y ~ x", alpha=1.0), es.Ridge(formula="y ~ x", alpha=2.0)),
        (es.Covariance(), es.Correlation()),
        (es.Covariance(confidence=0.9), es.Covariance(confidence=0.95)),
    ],
    ids=["kinds", "penalties", "scales", "intervals"],
)
def test_what_would_be_opened_twice_is_refused_when_the_study_is_made(
    tmp_path: Path, two: tuple[Any, Any]
) -> None:
    """Each member shares once for a ciphertext: the call for the second would stay open
    for ever.
    """
    asked = dict(zip("ab", two, strict=True))
    with pytest.raises(
        es.ParameterError,
        match=r"'a' \(.*\) and 'b' \(.*\) ask for the same totals, which .* open once",
    ):
        joint_world(tmp_path / "w", schema=NUMBERS, questions=asked)
    assert world(
        tmp_path / "v", schema=NUMBERS, questions=asked
    ).created.document.questions.keys() == {"a", "b"}


def test_votes_that_would_be_opened_twice_are_refused_too(tmp_path: Path) -> None:
    asked = {
        name: (es.MultinomialNB(alpha=alpha), "votes") for name, alpha in (("a", 0.5), ("b", 0.25))
    }
    with pytest.raises(
        es.ParameterError,
        match="ask for the same votes, which the members of a joint key open once",
    ):
        joint_world(tmp_path / "w", questions=asked)
    others = {
        "a": (FOREST, "votes"),
        "b": (es.CompletelyRandomForest(n_trees=3, depth=2, random_state=2), "votes"),
    }
    assert joint_world(tmp_path / "v", questions=others).created.document.questions.keys() == {
        "a",
        "b",
    }


# -- processes
# ------------------------------------------------------------------------------------------------


def killed_story(made: World, wanted: Callable[[int], bool], after: bool) -> int:
    """Everybody is a process that is killed again and again, in what the kills before have left;
    how often.
    """
    kills = 0
    for _ in range(60):
        todo = made.steps()
        if not todo:
            return kills
        who, what = todo[0]
        write = 1
        while write < 40:
            if wanted(write):
                if not killed_at(write, after, lambda: made.take(who, what)):  # noqa: B023
                    break
                kills += 1
            write += 1
        else:
            made.take(who, what)
    raise AssertionError(f"it does not end: {made.steps()}")


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
def test_killed_at_every_write(tmp_path: Path, after: bool) -> None:
    made = joint_world(tmp_path / "w").join_all()
    assert killed_story(made, lambda write: True, after) > 40
    made.as_("registry").open(
        made.key, again=True
    )  # what was shown died with its process: the same shares again
    for site in SITES:
        made.as_(site).share()
    assert is_forest_of_all(made.as_("registry").open(made.key))
    assert es.Study(made.url).status().to_dict()["refused"] == []


@pytest.mark.slow
def test_killed_once_in_every_step(tmp_path: Path) -> None:
    made = joint_world(tmp_path / "w").join_all()
    assert killed_story(made, lambda write: write == 2, after=False) > 8
    assert es.Study(made.url).status().to_dict()["opened"] == ["forest"]
