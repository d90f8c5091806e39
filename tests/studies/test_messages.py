"""Messages that must not count: forged, altered, replayed, doubled, out of turn, by strangers. All
are refused and named.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from attack_tools import forget_messages
from study_samples import FRAMES, World, frame, world

import encryptedstats as es
from encryptedstats.storage.chains import Chain
from encryptedstats.studies import parties
from encryptedstats.studies.holding import kind_of
from encryptedstats.studies.parties import Identity, Invitation
from encryptedstats.studies.transcript import MESSAGES
from encryptedstats.tables.questions.summaries import Counts
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
SOME = "0" * 64


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> World:
    return world(tmp_path_factory.mktemp("begun"), key="escrow", openers=2).with_rows()


@pytest.fixture
def study(begun: World, tmp_path: Path) -> World:
    shutil.copytree(begun.folder, tmp_path / "copy")
    return World(tmp_path / "copy", begun.created)


def say(made: World, me: Identity, content: dict[str, Any]) -> None:
    """What a party whose software keeps no rules can write: signed, in its place,
    whatever it says.
    """
    document = es.Study(made.url).document
    chain = Chain(es.Study(made.url).store, MESSAGES, f"encryptedstats study {document.id}")
    chain.append(content, me.signer.public_bytes.hex(), me.signer.sign)


def refused(made: World) -> list[str]:
    return es.Study(made.url).status().to_dict()["refused"]


def me(made: World, name: str) -> Identity:
    return Identity.load(made.identity(name))


# -- joining
# ------------------------------------------------------------------------------------------------


def test_who_was_not_invited_cannot_join_in_any_name(tmp_path: Path) -> None:
    made = world(tmp_path / "w")
    with pytest.raises(es.KeyMismatchError, check=error("other-study")):
        es.Study.join(made.url, Invitation.new().code, tmp_path / "x.id")
    stranger = Identity.new(made.created.document.id, "north")
    proof = Invitation.new().proof(made.created.document.id, stranger.party)
    say(made, stranger, {"kind": "join", "party": stranger.party.to_dict(), "proof": proof})
    assert refused(made) == [
        "message 0, 'join' by north: refused, it has no proof of the invitation for north"
    ]
    made.join_all()
    assert made.steps() == [("registry", "keygen")]


def test_an_invitation_is_for_one_name_and_one_set_of_keys(tmp_path: Path) -> None:
    made = world(tmp_path / "w").join_all()
    code = made.created.invitations["north"]
    with pytest.raises(es.StudyError, check=error("refused-message")):
        es.Study.join(made.url, code, tmp_path / "second.id")
    assert (
        es.Study.join(made.url, code, made.identity("north")).me.name == "north"
    )  # run again: nothing is said twice
    south = Identity.new(made.created.document.id, "south")
    proof = Invitation(code).proof(made.created.document.id, south.party)
    say(made, south, {"kind": "join", "party": south.party.to_dict(), "proof": proof})
    assert refused(made) == [
        "message 5, 'join' by south: refused, it has no proof of the invitation for south"
    ]


def test_keys_of_another_party_are_refused(tmp_path: Path) -> None:
    """Who joins with the public keys of another could claim what is sealed or said by that one."""
    made = world(tmp_path / "w")
    codes, study = made.created.invitations, made.created.document.id
    es.Study.join(made.url, codes["north"], made.identity("north"))
    theirs = me(made, "north")
    again = Identity(study, "south", theirs._seed)
    say(
        made,
        again,
        {
            "kind": "join",
            "party": again.party.to_dict(),
            "proof": Invitation(codes["south"]).proof(study, again.party),
        },
    )
    assert "its keys are those of another party" in refused(made)[0]


def aliased(key: bytes) -> bytes:
    """The same public key of X25519 in other bytes, whose highest bit nobody reads."""
    return key[:-1] + bytes([key[-1] | 0x80])


@pytest.mark.parametrize("point", ["of small order", "of another party, in other bytes"])
def test_public_keys_that_nobody_can_seal_for_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """Who joins with one would stop the masks and the envelopes of all others."""

    def join(made: World) -> World:
        codes, study = made.created.invitations, made.created.document.id
        for name in ("north", "south", "centre", "registry"):
            es.Study.join(made.url, codes[name], made.identity(name))
        west = Identity.new(study, "west")
        sealing = aliased(me(made, "north").party.sealing) if "bytes" in point else bytes(32)
        party = replace(west.party, sealing=sealing)
        proof = Invitation(codes["west"]).proof(study, party)
        say(made, west, {"kind": "join", "party": party.to_dict(), "proof": proof})
        return made

    asked: dict[str, Any] = {"questions": {"sexes": (Counts((1,)), "masked")}}
    made = join(world(tmp_path / "rule", **asked))
    assert "its keys are malformed" in refused(made)[0]
    es.Study.join(made.url, made.created.invitations["west"], made.identity("west"))
    made.as_("north").add(FRAMES["north"])
    monkeypatch.setattr(parties, "is_public_key", lambda public: True)
    made = join(world(tmp_path / "without", **asked))
    assert refused(made) == []
    if "bytes" not in point:
        with pytest.raises(es.FileFormatError, check=error("invalid-public-key")):
            made.as_("north").add(FRAMES["north"])


# -- what is said
# ------------------------------------------------------------------------------------------------


def test_messages_of_strangers_and_of_unknown_kinds_do_not_count(study: World) -> None:
    before = es.Study(study.url).state()
    stranger = Identity.new(before.document.id, "north")
    say(study, stranger, {"kind": "exclude", "name": "west", "why": "so"})
    say(study, me(study, "north"), {"kind": "praise"})
    say(study, me(study, "north"), {"kind": "exclude", "name": "west", "why": "so"})
    assert [one.partition(": refused, ")[2] for one in refused(study)] == [
        "it is signed by nobody who has joined",
        "nobody knows such messages",
        "north is no receiver of this study",
    ]
    assert not es.Study(study.url).state().excluded


@pytest.mark.parametrize(
    ("who", "content", "why"),
    [
        ("north", {"kind": "rows", "folder": "rows/north/x", "manifest": SOME, "n_rows": 1}, "are there already, and stay"),
        ("registry", {"kind": "keys", "object": SOME, "key_id": "x", "parts": {}}, "has a key already"),
        ("centre", {"kind": "checks", "objects": {}}, "the coin is not known yet"),
        ("registry", {"kind": "verdict", "valid": {}}, "no validity totals yet"),
        ("centre", {"kind": "answer", "question": "forest", "object": SOME}, "no rows were found to be valid yet"),
        ("registry", {"kind": "call", "items": {"forest": SOME}}, "nothing that may be opened here"),
        ("registry", {"kind": "opened", "question": "forest", "object": SOME}, "it is not the answer to 'forest'"),
        ("north", {"kind": "share", "call": SOME, "object": SOME}, ("for nothing that is to be " "opened now")),
        ("north", {"kind": "coin", "number": SOME}, ("not the number that it bound itself to when " "it joined")),
        ("north", {"kind": "coin", "number": "z"}, "no hash of an object"),
        ("north", {"kind": "coin"}, "no hash of an object"),
        ("north", {"kind": "totals", "question": "forest", "round": 0, "object": SOME}, "sites answer with totals"),
        ("registry", {"kind": "exclude", "name": "centre", "why": "so"}, ("centre is no site that " "can be excluded")),
    ],
)  # fmt: skip
def test_what_may_not_be_said_now(
    study: World, who: str, content: dict[str, Any], why: str
) -> None:
    before = es.Study(study.url).state()
    said = {name: value for name, value in content.items() if name != "kind"}
    with pytest.raises(es.StudyError, check=error("refused-message", who, why)):
        study.as_(who).post(content["kind"], said)
    say(study, me(study, who), content)
    (found,) = refused(study)
    assert f"by {who}: refused" in found
    assert why in found
    after = es.Study(study.url).state()
    changed = [
        one.name for one in fields(after) if getattr(after, one.name) != getattr(before, one.name)
    ]
    assert changed == [
        "document",
        "refused",
    ]  # questions are never equal, and the document is the same file


def test_a_message_of_another_study_is_refused(study: World, tmp_path: Path) -> None:
    """Signed by a member, in the right place: but the place is part of what is signed."""
    other = world(tmp_path / "other").join_all()
    replayed = sorted(Path(other.url, "messages").glob("*.json"))[0].read_bytes()
    number = len(list(Path(study.url, "messages").glob("*.json")))
    Path(study.url, "messages", f"{number:08}.json").write_bytes(replayed)
    with pytest.raises(es.FileFormatError, check=error("replayed-entry")):
        es.Study(study.url).status()


def test_a_message_that_is_sent_again_is_refused(study: World) -> None:
    number = len(list(Path(study.url, "messages").glob("*.json")))
    for again in (number - 1, 3):
        data = Path(study.url, "messages", f"{again:08}.json").read_bytes()
        Path(study.url, "messages", f"{number:08}.json").write_bytes(data)
        with pytest.raises(es.FileFormatError, check=error("broken-chain")):
            es.Study(study.url).status()


# -- shares
# ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def calling(begun: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """The receiver has called for the validity totals to be opened."""
    folder = tmp_path_factory.mktemp("calling") / "copy"
    shutil.copytree(begun.folder, folder)
    made = World(folder, begun.created)
    made.run(until=lambda: es.Study(made.url).state().call is not None)
    return made


@pytest.fixture
def called(calling: World, tmp_path: Path) -> World:
    shutil.copytree(calling.folder, tmp_path / "called")
    return World(tmp_path / "called", calling.created)


def test_missing_shares_are_named_and_two_are_enough(called: World) -> None:
    assert called.steps() == [("north", "share"), ("south", "share"), ("west", "share")]
    assert called.as_("north").share() == [
        "a share for opening validity of north, validity of south, validity of west"
    ]
    assert called.as_("registry").open() == {}
    assert not es.Study(called.url).state().valid  # one alone opens nothing
    assert called.steps() == [("south", "share"), ("west", "share")]
    called.as_("west").share()
    called.as_("registry").open()
    assert es.Study(called.url).state().valid == {"north": True, "south": True, "west": True}
    assert called.as_("south").share() == []  # nothing is to be opened any more


def test_a_doubled_share_is_refused_and_the_first_one_counts(called: World) -> None:
    north, call = called.as_("north"), es.Study(called.url).state().call
    assert call is not None
    north.share()
    first = es.Study(called.url).state().shares[call.hash]["north"]
    assert north.share() == []
    say(called, me(called, "north"), {"kind": "share", "call": call.hash, "object": SOME})
    assert (
        "'share' by north: refused, north has given its share already: the first one counts"
        in refused(called)[0]
    )
    assert es.Study(called.url).state().shares[call.hash]["north"] == first


@pytest.mark.parametrize("how", ["noise", "of another", "for another call"])
def test_a_wrong_share_is_named_and_does_not_count(called: World, how: str) -> None:
    state, south = es.Study(called.url).state(), called.as_("south")
    call = state.call
    assert call is not None
    if how == "noise":
        data = b"x" * 120
    elif how == "of another":
        north = called.as_("north")
        north.share()
        data = north.transcript.read_object(es.Study(called.url).state().shares[call.hash]["north"])
    else:
        data = kind_of("escrow").share(south, south.state(), replace(call, hash=SOME))
    south.post("share", {"call": call.hash, "object": south.transcript.store_object(data)})
    if how != "of another":
        called.as_("north").share()
    registry = called.as_("registry")
    assert registry.open() == {}
    assert registry.status().to_dict()["refused"] == [
        "the share of south for this opening is not the one that was dealt: refused"
    ]
    called.as_("west").share()
    called.as_("registry").open()
    assert all(es.Study(called.url).state().valid.values())


def test_an_object_that_was_altered_is_refused(called: World) -> None:
    for site in ("north", "south"):
        called.as_(site).share()
    call = es.Study(called.url).state().call
    assert call is not None
    digest = es.Study(called.url).state().shares[call.hash]["north"]
    Path(called.url, "objects", digest).write_bytes(b"other")
    with pytest.raises(es.FileFormatError, check=error("altered-object")):
        called.as_("registry").open()


# -- the coin
# ------------------------------------------------------------------------------------------------


def test_the_coin_is_bound_to_everybody_s_number_and_to_the_rows(study: World) -> None:
    state = es.Study(study.url).state()
    assert state.coin is None
    study.run(until=lambda: es.Study(study.url).state().coin is not None)
    state = es.Study(study.url).state()
    coin = state.coin
    assert set(state.coins) == {"north", "south", "west", "registry"}
    assert all(
        hashlib.sha256(bytes.fromhex(n)).hexdigest() == state.parties[p].coin
        for p, n in state.coins.items()
    )
    for party in state.coins:
        kept = state.coins[party]
        state.coins[party] = SOME
        assert state.coin != coin
        state.coins[party] = kept
    assert state.coin == coin
    state.rows["west"] = replace(state.rows["west"], manifest=SOME)
    assert state.coin != coin


def test_no_number_is_shown_before_all_rows_are_there(tmp_path: Path) -> None:
    made = world(tmp_path / "w").with_rows({"north": FRAMES["north"]})
    assert made.as_("north").share() == []
    with pytest.raises(es.StudyError, check=error("refused-message")):
        made.as_("north").post("coin", {"number": me(made, "north").coin.hex()})


def test_a_number_is_shown_for_one_set_of_rows(tmp_path: Path) -> None:
    """Who holds the folder takes messages away that nobody remembers yet, number in hand, and has a
    site bring other rows.
    """
    made = world(tmp_path / "w").with_rows({site: FRAMES[site] for site in ("north", "south")})
    before = len(es.Study(made.url).messages())
    seen = made.identity("north").with_name("north.id.seen")
    kept = seen.read_bytes()
    made.as_("west").add(FRAMES["west"])
    assert made.as_("north").share() == ["its random number for the joint draw"]
    seen.write_bytes(kept)  # north was killed before it could remember what it has said
    for path in sorted(Path(made.url, "messages").glob("*.json"))[before:]:
        path.unlink()
    forget_messages(made, "west")
    made.as_("west").add(frame(5))
    with pytest.raises(es.StudyError, check=error("coin-already-shown")):
        made.as_("north").share()


# -- secrets
# ------------------------------------------------------------------------------------------------


def test_an_identity_stays_at_home(study: World) -> None:
    path = study.identity("north")
    assert path.stat().st_mode & 0o777 == 0o600
    secret = me(study, "north")
    shared = b"".join(one.read_bytes() for one in Path(study.url).rglob("*") if one.is_file())
    for hidden in (secret._seed.hex(), secret.coin.hex(), secret.reading.hex()):
        assert hidden.encode() not in shared
    assert secret._seed.hex() not in repr(secret)
    with pytest.raises(TypeError, check=error("secret-not-pickled")):
        secret.__reduce__()
    with pytest.raises(es.FileFormatError, check=error("not-an-identity")):
        Identity.load(Path(study.url, "study.json"))


def test_a_locked_identity(tmp_path: Path) -> None:
    made = world(tmp_path / "w")
    es.Study.join(
        made.url, made.created.invitations["north"], tmp_path / "n.id", passphrase="words"
    )
    with pytest.raises(es.PassphraseError, check=error("no-passphrase")):
        es.Study(made.url, tmp_path / "n.id")
    with pytest.raises(es.PassphraseError):
        es.Study(made.url, tmp_path / "n.id", passphrase="others")
    assert es.Study(made.url, tmp_path / "n.id", passphrase="words").me.name == "north"
    with pytest.raises(FileExistsError, check=error("already-exists")):
        Identity.new("x", "y").save(tmp_path / "n.id")


def test_what_was_opened_is_called_for_again_only_when_that_is_asked_for(called: World) -> None:
    """Under escrow nobody can open alone: if what was shown is lost, sites have to help once more,
    and it is on the record.
    """
    found = called.run()
    assert called.as_("registry").open() == {}
    assert es.Study(called.url).state().call is None
    called.as_("registry").open(again=True)
    assert called.steps() == []  # nobody has to, but who is asked can
    for site in ("north", "west"):
        assert called.as_(site).share() == ["a share for opening forest"]
    again = called.as_("registry").open()
    assert (again["forest"].leaf_counts_ == found["forest"].leaf_counts_).all()
    said = [message.kind for message in es.Study(called.url).messages()]
    assert (said.count("call"), said.count("opened"), said.count("verdict")) == (3, 2, 1)
