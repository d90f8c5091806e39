"""The registry of what files can hold: what it is in words, what reads it, what it consists of.

``es.load`` and the commands look here. A new kind of file is one more entry; those of answers are
written beside their reader, in ``tables/answers/files.py``.
"""

from __future__ import annotations

from typing import Any, Final

from encryptedstats.arrays.array import ARRAY_KIND, read_array
from encryptedstats.crypto import PublicKeys
from encryptedstats.crypto.keyfiles import OWNER_KIND, PUBLIC_KIND
from encryptedstats.errors import ArgumentTypeError, FileFormatError
from encryptedstats.joint.key import JOINT_KIND, JointKey
from encryptedstats.joint.messages import (
    COMMITMENT_KIND,
    CONTRIBUTION_KIND,
    RELINEARISATION_KIND,
    SHARE_KIND,
    SHARES_KIND,
)
from encryptedstats.joint.state import MEMBER_KIND, SEEN_KIND
from encryptedstats.spotcheck.kept import FAILED_KIND, POSITIONS_KIND, ROWS_KIND
from encryptedstats.spotcheck.messages import CHALLENGE_KIND, RESPONSE_KIND
from encryptedstats.storage.container import Container, Facts, FileKind
from encryptedstats.tables import PublicSchema
from encryptedstats.tables.answers.files import ANSWER_FILES
from encryptedstats.tables.blocks import BLOCK_KIND
from encryptedstats.tables.encryption import DRAFT_KIND
from encryptedstats.tables.manifest import TABLE_KIND
from encryptedstats.words import plural

# -- reading
# ------------------------------------------------------------------------------------------------


def _of_members(file: Container, keys: PublicKeys | None) -> Any:
    raise FileFormatError(
        f"this is a {file.kind}: es.Member and es.JointKey take such bytes, there is nothing else "
        "to be made of it",
        code="message-of-member",
    )


# -- what files tell
# ------------------------------------------------------------------------------------------------


def _draft_facts(file: Container) -> Facts:
    public = PublicSchema.from_json(file.section("schema").decode(errors="replace"))
    return {"variables": len(public.variables), "classes": public.n_classes}


def _public_facts(file: Container) -> Facts:
    """Read facts of public keys.

    Retirement is the owner's signed word, checked when keys are loaded.
    """
    said = file.fields.get("retired")
    retired = None if said is None else {name: said[name] for name in ("why", "successor")}
    return {
        "rotations": file.fields["rotations"],
        "packing": "packing" in file.sections,
        "retired": retired,
    }


def _member_facts(file: Container) -> Facts:
    return {"member": file.expect("member", str)}


# -- in words
# ------------------------------------------------------------------------------------------------


def _describe_array(facts: Facts, question: str) -> str:
    shape = " x ".join(map(str, facts["shape"]))
    return f"{facts['kind']}, {shape} values" if shape else "encrypted integer (one value)"


def _describe_block(facts: Facts, question: str) -> str:
    return (
        f"block of an encrypted table: {plural(facts['rows'], 'row')}, "
        f"{plural(facts['columns'], 'column')}"
    )


def _describe_member(facts: Facts, question: str) -> str:
    return f"{facts['kind']}: {facts['member']}"


# -- the registry
# ------------------------------------------------------------------------------------------------

_DECRYPT: Final = "its owner opens it with open"

#: By the kind that a file says it is.
KINDS: Final[dict[str, FileKind]] = {
    OWNER_KIND: FileKind(
        "a secret key",
        "give it with --key, on the owner's own machine and nowhere else",
        frozenset({"secret_key"}),
    ),
    PUBLIC_KIND: FileKind(
        "public keys",
        "encrypt takes them with --public-keys, a worker with --keys",
        frozenset({"public_key", "relinearisation", "signing_key", "packing", "rotation"}),
        lambda file, keys: PublicKeys.from_container(file),
        facts=_public_facts,
        describe=lambda facts, question: (
            "public keys, retired: nothing is encrypted for them"
            if facts["retired"]
            else PUBLIC_KIND
        ),
    ),
    JOINT_KIND: FileKind(
        "what the members of a joint key agree on",
        "study keygen takes it",
        frozenset(),
        lambda file, keys: JointKey.from_container(file),
        facts=lambda file: {"members": file.expect("members", list)},
        describe=lambda facts, question: f"joint key of {', '.join(map(str, facts['members']))}",
    ),
    **{
        kind: FileKind(
            f"a {kind} of a joint key",
            use,
            frozenset(sections),
            _of_members,
            facts=_member_facts,
            describe=_describe_member,
        )
        for kind, use, sections in (
            (MEMBER_KIND, "it stays where it is, with the member alone", {"secret_key"}),
            (SEEN_KIND, "it stays where it is, with the member alone", ()),
            (COMMITMENT_KIND, "all members need it", ()),
            (
                CONTRIBUTION_KIND,
                "all members need it",
                {"public", "first", "second", "packing", "rotation"},
            ),
            (RELINEARISATION_KIND, "all members need it", {"both"}),
            (SHARE_KIND, "the receiver who combines shares needs it", {"packs"}),
            (SHARES_KIND, "the receiver of a study needs it", ()),
        )
    },
    TABLE_KIND: FileKind(
        "an encrypted table",
        "ask computes on it",
        frozenset({"schema", "columns", "blocks"}),
        facts=_draft_facts,
        describe=lambda facts, question: (
            "manifest of an encrypted table: give its folder to see the table"
        ),
    ),
    DRAFT_KIND: FileKind(
        "a table that is not finished",
        "run the same encrypt again to finish it",
        frozenset({"schema", "columns"}),
        facts=_draft_facts,
        describe=lambda facts, question: (
            "draft of a table that is not finished: run the same encrypt again"
        ),
    ),
    **{
        kind: FileKind(f"the {kind}", use, frozenset(sections))
        for kind, use, sections in (
            (POSITIONS_KIND, "it stays beside the secret key", {"secret", "state"}),
            (
                ROWS_KIND,
                "it stays beside the secret key",
                {"secret", "schema", "columns", "blocks"},
            ),
            (FAILED_KIND, "it stays beside the secret key", {"question"}),
            (CHALLENGE_KIND, "a worker answers it", {"seeds", "blocks"}),
            (RESPONSE_KIND, "open --verify asks for it and checks it", {"residues"}),
        )
    },
    BLOCK_KIND: FileKind(
        "a block of an encrypted table",
        "give the folder of the table it belongs to",
        frozenset({"seeds", "digests", "residues"}),
        facts=lambda file: {name: file.expect(name, int) for name in ("rows", "columns")},
        describe=_describe_block,
    ),
    ARRAY_KIND: FileKind(
        "an encrypted array",
        _DECRYPT,
        frozenset({"values", "ciphertexts"}),
        lambda file, keys: read_array(file, keys),
        needs_keys=True,
        opens=True,
        facts=lambda file: {"shape": file.expect("shape", list)},
        describe=_describe_array,
    ),
    **ANSWER_FILES,
}


def read_file(file: Container, keys: PublicKeys | None = None, url: object = "the file") -> Any:
    """Return what a file holds, as an object."""
    kind = KINDS.get(file.kind)
    if file.kind == OWNER_KIND:
        raise FileFormatError(
            f"{url} holds a secret key: open it with Owner.load, on the owner's own machine",
            code="secret-key-file",
        )
    if kind is None:
        raise FileFormatError(
            f"{url} holds {file.kind!r}, which this version does not know", code="unknown-kind"
        )
    if kind.read is None:
        raise FileFormatError(
            f"{url} holds {kind.words}: open the folder of the table it belongs to",
            code="part-of-table",
        )
    if kind.needs_keys and keys is None:
        raise ArgumentTypeError(
            f"{url} holds {kind.words}: give the public keys= it belongs to", code="no-public-keys"
        )
    return kind.read(file, keys)
