"""The one registry of what files of this library can hold: what it is in words, what reads it, and
what it consists of.

``es.load``, ``data info``, ``open`` and the other commands all read it; a new kind of file is one
more entry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from encryptedstats.arrays.array import ARRAY_KIND, read_array
from encryptedstats.circuits.results import CUT, NUMBERS_KIND, EncryptedNumbers
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
from encryptedstats.storage.container import Container
from encryptedstats.tables import PublicSchema, Schema
from encryptedstats.tables.answers.answer import MODEL_CUT, PREDICTION_KIND
from encryptedstats.tables.answers.files import listed_blocks, read_presented
from encryptedstats.tables.blocks import BLOCK_KIND
from encryptedstats.tables.encryption import DRAFT_KIND
from encryptedstats.tables.manifest import TABLE_KIND
from encryptedstats.tables.questions.question import (
    FOLDS_KIND,
    MODEL_KIND,
    OPEN_MODEL_KIND,
    OPEN_RESULT_KIND,
    RESULT_KIND,
)
from encryptedstats.words import plural

Facts = dict[str, Any]


@dataclass(frozen=True)
class FileKind:
    """A kind of file.

    Attributes
    ----------
    words : str
        What it is, for people.
    use : str
        Where it belongs on the command line.
    sections : set of str
        What it consists of; none of them is secret.
    read : callable, optional
        What makes an object of it, given its container and public keys.
    needs_keys : bool
        Whether that takes public keys.
    opens : bool
        Whether its owner opens it with the secret key.
    facts : callable
        What it tells about itself, without making anything of it, ready for JSON.
    told : callable
        That for people, given these facts, its kind among them, and its question in words.
    """

    words: str
    use: str
    sections: frozenset[str]
    read: Callable[[Container, PublicKeys | None], Any] | None = None
    needs_keys: bool = False
    opens: bool = False
    facts: Callable[[Container], Facts] = lambda file: {}
    told: Callable[[Facts, str], str] = lambda facts, question: str(facts["kind"])


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


def _totals_facts(file: Container) -> Facts:
    totals, noises = (file.read_list(name) for name in ("numbers", "noise"))
    return {"totals": len(totals), "ciphertexts": len(noises), "form": file.expect("form", str)}


def _head_facts(file: Container, schema: Schema | PublicSchema) -> Facts:
    """What all answers say, without making the question; so neither scikit-learn nor the code of
    others is imported.
    """
    return {
        "question": file.expect("question", str),
        "params": file.expect("params", dict),
        "rows": file.expect("n_rows", int),
        "blocks": len(listed_blocks(file)),
        "variables": len(schema.variables),
        "classes": schema.public().n_classes,
    }


def _answer_facts(file: Container) -> Facts:
    known = _head_facts(file, PublicSchema.from_json(file.expect("schema", str)))
    return {**known, "encrypted": True, **_totals_facts(file), "drawn": "drawn" in file.sections}


def _prediction_facts(file: Container) -> Facts:
    known = _head_facts(file, PublicSchema.from_json(file.expect("schema", str)))
    noises, numbers = (file.read_list(name) for name in ("noise", "numbers"))
    return {
        **known,
        "encrypted": True,
        "output": file.expect("output", str),
        "answers": len(numbers),
        "ciphertexts": len(noises),
    }


def _opened_facts(file: Container) -> Facts:
    private = file.expect("private", bool)
    schema = (Schema if private else PublicSchema).from_json(file.expect("schema", str))
    beside = {name: name in file.sections for name in ("drawn", "calibration")}
    return {
        **_head_facts(file, schema),
        "encrypted": False,
        "names_inside": private,
        "drawn": beside["drawn"],
        "calibrated": beside["calibration"],
        "released": _released(file),
    }


def _released(file: Container) -> Facts | None:
    """What a file says of the noise in it: a statement of whoever wrote it."""
    said = file.fields.get("released")
    if said is None:
        return None
    kinds = {"epsilon": (int, float), "delta": (int, float), "unit": (str,), "relation": (str,)}
    if not isinstance(said, dict) or not all(
        isinstance(said.get(name), kind) for name, kind in kinds.items()
    ):
        raise FileFormatError(
            "the file says that it was released with noise, and not with how much",
            code="no-noise-stated",
        )
    return said


def _draft_facts(file: Container) -> Facts:
    public = PublicSchema.from_json(file.section("schema").decode(errors="replace"))
    return {"variables": len(public.variables), "classes": public.n_classes}


def _public_facts(file: Container) -> Facts:
    """Whether the keys are retired is the owner's signed word, which is checked where the keys are
    loaded.
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


def _array_told(facts: Facts, question: str) -> str:
    shape = " x ".join(map(str, facts["shape"]))
    return f"{facts['kind']}, {shape} values" if shape else "encrypted integer (one value)"


def _block_told(facts: Facts, question: str) -> str:
    return (
        f"block of an encrypted table: {plural(facts['rows'], 'row')}, "
        f"{plural(facts['columns'], 'column')}"
    )


def _totals_told(facts: Facts, question: str) -> str:
    return f"encrypted result: {_ciphertexts(facts)}"


def _answer_told(facts: Facts, question: str) -> str:
    size = (
        f"{plural(facts['rows'], 'row')}, {plural(facts['variables'], 'variable')}, "
        f"{facts['classes']} classes"
    )
    inside = f"; {_ciphertexts(facts)}" if facts["encrypted"] else ""
    drawn = "; its stochastic fraction is drawn" * facts["drawn"]
    return (
        f"{facts['kind']}: "
        f"{question}\n{size}{inside}{drawn}{'; calibrated' * facts.get('calibrated', False)}"
    )


def _prediction_told(facts: Facts, question: str) -> str:
    answers = (
        f"{plural(facts['answers'], 'number')} for each, in "
        f"{plural(facts['ciphertexts'], 'ciphertext')}"
    )
    which = f" as {facts['output']}" if facts["output"] else ""
    return f"{facts['kind']}{which} of {question}\n{plural(facts['rows'], 'row')}, {answers}"


def _member_told(facts: Facts, question: str) -> str:
    return f"{facts['kind']}: {facts['member']}"


def _ciphertexts(facts: Facts) -> str:
    return f"{plural(facts['totals'], 'total')} in {plural(facts['ciphertexts'], 'ciphertext')}"


# -- the registry
# ------------------------------------------------------------------------------------------------

_TOTALS: Final = frozenset({"numbers", "chunks", "places", "noise", "residues", CUT})
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
        told=lambda facts, question: (
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
        told=lambda facts, question: f"joint key of {', '.join(map(str, facts['members']))}",
    ),
    **{
        kind: FileKind(
            f"a {kind} of a joint key",
            use,
            frozenset(sections),
            _of_members,
            facts=_member_facts,
            told=_member_told,
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
            (SHARE_KIND, "whoever puts shares together needs it", {"packs"}),
            (SHARES_KIND, "the receiver of a study needs it", ()),
        )
    },
    TABLE_KIND: FileKind(
        "an encrypted table",
        "ask computes on it",
        frozenset({"schema", "columns", "blocks"}),
        facts=_draft_facts,
        told=lambda facts, question: (
            "manifest of an encrypted table: give its folder to see the table"
        ),
    ),
    DRAFT_KIND: FileKind(
        "a table that is not finished",
        "run the same encrypt again to finish it",
        frozenset({"schema", "columns"}),
        facts=_draft_facts,
        told=lambda facts, question: (
            "draft of a table that is not finished: run the same encrypt again"
        ),
    ),
    BLOCK_KIND: FileKind(
        "a block of an encrypted table",
        "give the folder of the table it belongs to",
        frozenset({"seeds", "digests", "residues"}),
        facts=lambda file: {name: file.expect(name, int) for name in ("rows", "columns")},
        told=_block_told,
    ),
    ARRAY_KIND: FileKind(
        "an encrypted array",
        _DECRYPT,
        frozenset({"values", "ciphertexts"}),
        lambda file, keys: read_array(file, keys),  # type: ignore[arg-type]  # keys are there: they are needed
        needs_keys=True,
        opens=True,
        facts=lambda file: {"shape": file.expect("shape", list)},
        told=_array_told,
    ),
    NUMBERS_KIND: FileKind(
        "an encrypted result",
        _DECRYPT,
        _TOTALS,
        lambda file, keys: EncryptedNumbers.from_container(file, keys),  # type: ignore[arg-type]  # as above
        needs_keys=True,
        opens=True,
        facts=_totals_facts,
        told=_totals_told,
    ),
    RESULT_KIND: FileKind(
        "an encrypted result",
        _DECRYPT,
        _TOTALS | {"blocks"},
        read_presented,
        True,
        True,
        facts=_answer_facts,
        told=_answer_told,
    ),
    MODEL_KIND: FileKind(
        "a model that is still encrypted",
        "its owner opens it with open -o",
        _TOTALS | {"blocks", "drawn"},
        read_presented,
        True,
        True,
        facts=_answer_facts,
        told=_answer_told,
    ),
    FOLDS_KIND: FileKind(
        "the folds of an encrypted model",
        "its owner scores them with evaluate",
        _TOTALS | {"blocks"},
        read_presented,
        needs_keys=True,
        facts=_answer_facts,
        told=_answer_told,
    ),
    PREDICTION_KIND: FileKind(
        "an encrypted prediction",
        _DECRYPT,
        _TOTALS | {"blocks", MODEL_CUT},
        read_presented,
        True,
        True,
        facts=_prediction_facts,
        told=_prediction_told,
    ),
    OPEN_MODEL_KIND: FileKind(
        "an opened model",
        "predict and evaluate read it",
        frozenset({"totals", "calibration", "blocks", "drawn"}),
        read_presented,
        facts=_opened_facts,
        told=_answer_told,
    ),
    OPEN_RESULT_KIND: FileKind(
        "an opened result",
        "info shows it",
        frozenset({"totals", "blocks"}),
        read_presented,
        facts=_opened_facts,
        told=_answer_told,
    ),
}


def read_file(file: Container, keys: PublicKeys | None = None, url: object = "the file") -> Any:
    """What a file holds, as an object."""
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
