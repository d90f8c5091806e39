"""Files of answers: read with every check, because a file may come from anybody.

``Answer.to_container`` writes them. One reader serves encrypted and decrypted answers of all
questions; what others store with a decrypted answer is registered in ``EXTENSIONS``.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from encryptedstats.circuits.passes.digits import split_into_digits
from encryptedstats.circuits.program import ROWS
from encryptedstats.circuits.results import CUT, NUMBERS_KIND, EncryptedNumbers, read_cut
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.errors import ArgumentTypeError, FileFormatError
from encryptedstats.storage import container
from encryptedstats.storage.container import Container, Facts, FileKind
from encryptedstats.storage.objects import load_file
from encryptedstats.tables.answers.answer import BLOCKS, MODEL_CUT, PREDICTION_KIND, Answer
from encryptedstats.tables.columns import digits_among, table_columns
from encryptedstats.tables.questions.question import (
    FOLDS_KIND,
    MODEL_KIND,
    OPEN_MODEL_KIND,
    OPEN_RESULT_KIND,
    RESULT_KIND,
    Question,
    question_class,
)
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema
from encryptedstats.words import plural

ANSWER_KINDS: Final = (RESULT_KIND, MODEL_KIND, FOLDS_KIND, PREDICTION_KIND)
OPENED_KINDS: Final = {OPEN_RESULT_KIND: RESULT_KIND, OPEN_MODEL_KIND: MODEL_KIND}
MAX_BINS: Final = 1 << 20
#: What a question written by somebody else may raise.
IMPOSSIBLE: Final = (
    ValueError,
    TypeError,
    ArithmeticError,
    LookupError,
    AttributeError,
    RecursionError,
)
#: Far beyond any sum, and small enough to be converted to a float.
LARGEST_TOTAL: Final = 1 << 256
#: Readers of sections that others store with a decrypted answer. Each gets what the answer is
#: presented as and the bytes of its section, and returns what takes its place.
EXTENSIONS: Final[dict[str, Callable[[Any, bytes], Any]]] = {}


def load_answer(url: str | os.PathLike[str], keys: PublicKeys) -> Answer:
    """Read an encrypted answer from a path or fsspec URL."""
    file = load_file(url)
    if file.kind not in ANSWER_KINDS:
        raise FileFormatError(
            f"{url} holds {file.kind!r}, and an encrypted answer is wanted here",
            code="other-kind-of-file",
        )
    return read_answer(file, keys)


def read_presented(file: Container, keys: PublicKeys | None = None) -> Any:
    """Read an answer and present it: as a result, a model, or encrypted as it is."""
    if file.kind not in OPENED_KINDS:
        found = read_answer(file, keys)
        return found.question._present(found)
    answer = read_opened(file)
    try:
        presented = answer.question._present(answer)
    except FileFormatError:
        raise
    except IMPOSSIBLE as error:
        raise FileFormatError(
            f"the file has totals that cannot be: {error}", code="impossible-totals"
        ) from error
    for name in sorted(set(EXTENSIONS) & set(file.sections)):
        presented = EXTENSIONS[name](presented, file.section(name))
    return presented


def read_opened(file: Container) -> Answer:
    """Read a decrypted answer."""
    answer = _read_header(file, Schema if file.expect("private", bool) else PublicSchema)
    question, public = answer.question, answer.schema.public()
    if question.kind != OPENED_KINDS[file.kind]:
        raise FileFormatError(
            f"the file says that it holds {file.kind!r}, and {question.name} gives none",
            code="kind-not-of-question",
        )
    totals = _read_integers(file, "totals")
    expected = _count_numbers(question, public, None) * public.lanes
    if len(totals) != expected:
        raise FileFormatError(
            f"the file has {len(totals)} totals, and an answer to {question.name} has {expected}",
            code="wrong-number-of-totals",
        )
    extra_totals = _read_extra_totals(
        file, question._extra_shapes(public), lambda name: _read_integers(file, name)
    )
    return replace(answer, totals=tuple(totals), extra_totals=extra_totals)


def read_answer(file: Container, keys: PublicKeys | None) -> Answer:
    """Read an encrypted answer that belongs to ``keys``."""
    if keys is None:
        raise ArgumentTypeError(
            f"the file holds an {file.kind}: give the public keys= it belongs to",
            code="keys-missing",
        )
    answer = _read_header(file, PublicSchema)
    question, public = answer.question, answer.schema.public()
    ciphertexts, is_prediction = (
        EncryptedNumbers.from_container(file, keys),
        file.kind == PREDICTION_KIND,
    )
    output = file.expect("output", str) if is_prediction else ""
    expected = _count_numbers(question, public, output if is_prediction else None)
    if len(ciphertexts) != expected:
        raise FileFormatError(
            f"the file has {len(ciphertexts)} numbers, and an answer to {question.name} has "
            f"{expected}",
            code="wrong-number-of-totals",
        )
    if (ciphertexts.form == ROWS) != is_prediction:
        raise FileFormatError(
            f"the file says that it holds {file.kind!r}, and its numbers are in the form "
            f"{ciphertexts.form!r}",
            code="wrong-form",
        )
    if is_prediction and ciphertexts.n_rows != answer.n_rows:
        raise FileFormatError(
            f"the file has answers for {ciphertexts.n_rows} rows, and says that they are "
            f"{answer.n_rows}",
            code="wrong-number-of-rows",
        )
    if not is_prediction:
        if answer.block_ids and answer.n_rows > len(answer.block_ids) * keys.parameters.slots:
            raise FileFormatError(
                f"the file says {answer.n_rows:,} rows, and its {len(answer.block_ids):,} blocks "
                "hold fewer",
                code="more-rows-than-blocks",
            )
        _check_parts(question, public, ciphertexts)
        if ciphertexts.lanes != public.lanes:
            raise FileFormatError(
                (
                    f"the file has totals in {ciphertexts.lanes} lanes, and its schema has "
                    f"{public.lanes}"
                ),
                code="wrong-lanes",
            )
    cut = ciphertexts.cut
    if cut is not None and cut.blocks[-1] != len(answer.block_ids):
        raise FileFormatError(
            "the file has shards of other blocks than it is of: some would be left out or counted "
            "twice",
            code="shards-of-other-blocks",
        )
    if file.kind not in (PREDICTION_KIND, question.kind):
        raise FileFormatError(
            f"the file says that it holds {file.kind!r}, and {question.name} gives none",
            code="kind-not-of-question",
        )
    return replace(
        answer,
        totals=ciphertexts,
        output=output,
        extra_totals=_read_extra_totals(
            file, question._extra_shapes(public), lambda name: _read_numbers(file, name, keys)
        ),
        model_cut=read_cut(file, MODEL_CUT) if is_prediction else None,
    )


def _read_header(file: Container, schema_type: type[Schema | PublicSchema]) -> Answer:
    """Read what all files say of an answer; its totals are read next."""
    name, parameters = file.expect("question", str), file.expect("params", dict)
    n_rows, blocks, document = (
        file.expect("n_rows", int),
        read_block_ids(file),
        file.expect("schema", str),
    )
    n_dropped = file.expect("n_dropped", int)
    if (
        not all(0 <= number < 1 << 63 for number in (n_rows, n_dropped))
        or not all(isinstance(block, str) for block in blocks)
        or len(set(blocks)) != len(blocks)
    ):
        raise FileFormatError(
            "the file states an impossible number of rows or list of blocks",
            code="impossible-rows-or-blocks",
        )
    weight_bound = file.expect("weight_bound", int) if "weight_bound" in file.fields else None
    if weight_bound is not None and not 1 <= weight_bound <= 1 << 62:
        raise FileFormatError(
            "the file states an impossible bound of the weights of its rows",
            code="impossible-weight-bound",
        )
    try:
        question = question_class(name)._from_parameters(parameters)
        schema = schema_type.from_json(document)
        public = schema.public()
        if (
            public.n_classes > MAX_BINS
            or sum(variable.n_bins for variable in public.variables) > MAX_BINS
        ):
            raise FileFormatError(
                "the file claims more bins or classes than there can be", code="too-many-bins"
            )
        question.check(public)
        if question._fix_seed() is not question:
            raise FileFormatError(
                f"the file has a {name} that leaves something to chance: it was never asked so",
                code="unsettled-question",
            )
    except FileFormatError:
        raise
    except IMPOSSIBLE as error:
        raise FileFormatError(
            f"the file has a question or schema that cannot be: {error}",
            code="impossible-question-or-schema",
        ) from error
    return Answer(
        question, (), schema, n_rows, tuple(blocks), n_dropped=n_dropped, weight_bound=weight_bound
    )


def read_block_ids(file: Container) -> list[Any]:
    """Return the ids of the blocks, from the header or from a section where they are many."""
    listed: list[Any] = file.expect(BLOCKS, list)
    return file.read_list(BLOCKS) if BLOCKS in file.sections else listed


def _read_integers(file: Container, name: str) -> list[int]:
    totals = file.read_list(name)
    if not all(type(total) is int for total in totals):
        raise FileFormatError(
            f"the {name} of the file are no list of integers", code="not-integers"
        )
    if any(abs(total) > LARGEST_TOTAL for total in totals):
        raise FileFormatError(
            "the file has totals that cannot be: no sum over rows is that large",
            code="totals-too-large",
        )
    return totals


def _read_numbers(file: Container, name: str, keys: PublicKeys) -> EncryptedNumbers:
    found = EncryptedNumbers.from_container(
        container.from_bytes(file.section(name), kind=NUMBERS_KIND), keys
    )
    if not found.are_whole:
        raise FileFormatError(
            f"the file has parts of totals {name!r}, which are whole", code="parts-of-whole-totals"
        )
    return found


def _read_extra_totals(
    file: Container, shapes: Mapping[str, tuple[int, ...]], read: Callable[[str], Any]
) -> dict[str, Any]:
    """Read further totals by name, each from its section, as many as their shapes say."""
    found = {name: read(name) for name in shapes if name in file.sections}
    for name, totals in found.items():
        if len(totals) != math.prod(shapes[name]):
            raise FileFormatError(
                f"the file has {len(totals)} totals {name!r} beside its own, and there are "
                f"{math.prod(shapes[name])}",
                code="wrong-extra-totals",
            )
    return found


def _check_parts(question: Question, schema: PublicSchema, totals: EncryptedNumbers) -> None:
    """Refuse totals whose parts have other powers of 2 than those of the question under these keys.

    Keys and schema determine which numbers are in digits; the file is not believed.
    """
    bits = totals.keys.parameters.digit_bits
    digits = digits_among(table_columns(schema, (), classes=schema.has_target, digit_bits=bits))
    shifts_in_file = [facts.stored.shift for facts in totals.facts]
    try:
        shifts = (
            split_into_digits(question.circuit(schema), digits)[1]
            if digits
            else [0] * len(shifts_in_file)
        )
    except IMPOSSIBLE as error:
        raise FileFormatError(
            f"the file has a question that its schema does not allow: {error}",
            code="question-not-of-schema",
        ) from error
    bases = [facts.stored.base for facts in totals.facts]
    if shifts_in_file != shifts or (any(bases) and not all(bases[: len(totals) // 2])):
        raise FileFormatError(
            f"the file has parts of totals that an answer to {question.name} does not have: "
            "it was altered, and is refused",
            code="wrong-parts-of-totals",
        )


def _count_numbers(question: Question, schema: PublicSchema, output: str | None) -> int:
    """Return how many totals an answer has, or numbers of an output for every row."""
    if output is not None and output not in question.outputs:
        raise FileFormatError(
            f"the file has answers {output!r}, which a {question.name} does not give",
            code="unknown-output",
        )
    try:
        shapes = (
            question.shapes(schema) if output is None else question.answer_shapes(schema, output)
        )
        return sum(math.prod(shape) for shape in shapes.values())
    except NotImplementedError as error:
        raise FileFormatError(
            f"the file has answers of a model that gives none: {error}",
            code="model-without-answers",
        ) from error
    except IMPOSSIBLE as error:
        raise FileFormatError(
            f"the file has a question that its schema does not allow: {error}",
            code="question-not-of-schema",
        ) from error


# -- what files tell without being opened ----------------------------------------------------------


def _totals_facts(file: Container) -> Facts:
    totals, noises = (file.read_list(name) for name in ("numbers", "noise"))
    return {"totals": len(totals), "ciphertexts": len(noises), "form": file.expect("form", str)}


def _head_facts(file: Container, schema: Schema | PublicSchema) -> Facts:
    """Read what all answers say, without making the question.

    So neither scikit-learn nor the code of others is imported.
    """
    return {
        "question": file.expect("question", str),
        "params": file.expect("params", dict),
        "rows": file.expect("n_rows", int),
        "blocks": len(read_block_ids(file)),
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
    stored = {name: name in file.sections for name in ("drawn", "calibration")}
    return {
        **_head_facts(file, schema),
        "encrypted": False,
        "names_inside": private,
        "drawn": stored["drawn"],
        "calibrated": stored["calibration"],
        "released": _read_release(file),
    }


def _read_release(file: Container) -> Facts | None:
    """Return the release that a file states; nothing but its writer vouches for it."""
    said = file.fields.get("released")
    if said is None:
        return None
    kinds = {"epsilon": (int, float), "delta": (int, float), "unit": (str,), "relation": (str,)}
    if not isinstance(said, dict) or not all(
        isinstance(said.get(name), kind) for name, kind in kinds.items()
    ):
        raise FileFormatError(
            "the file states that it was released with noise, but not with how much",
            code="no-noise-stated",
        )
    return said


def _describe_totals(facts: Facts, question: str) -> str:
    return f"encrypted result: {_ciphertexts(facts)}"


def _describe_answer(facts: Facts, question: str) -> str:
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


def _describe_prediction(facts: Facts, question: str) -> str:
    answers = (
        f"{plural(facts['answers'], 'number')} for each, in "
        f"{plural(facts['ciphertexts'], 'ciphertext')}"
    )
    which = f" as {facts['output']}" if facts["output"] else ""
    return f"{facts['kind']}{which} of {question}\n{plural(facts['rows'], 'row')}, {answers}"


def _ciphertexts(facts: Facts) -> str:
    return f"{plural(facts['totals'], 'total')} in {plural(facts['ciphertexts'], 'ciphertext')}"


_TOTALS: Final = frozenset({"numbers", "chunks", "places", "noise", "residues", CUT})

#: By the kind that a file says it is.
ANSWER_FILES: Final[dict[str, FileKind]] = {
    NUMBERS_KIND: FileKind(
        "an encrypted result",
        "its owner opens it with open",
        _TOTALS,
        lambda file, keys: EncryptedNumbers.from_container(file, keys),
        needs_keys=True,
        opens=True,
        facts=_totals_facts,
        describe=_describe_totals,
    ),
    RESULT_KIND: FileKind(
        "an encrypted result",
        "its owner opens it with open",
        _TOTALS | {"blocks"},
        read_presented,
        True,
        True,
        facts=_answer_facts,
        describe=_describe_answer,
    ),
    MODEL_KIND: FileKind(
        "a model that is still encrypted",
        "its owner opens it with open -o",
        _TOTALS | {"blocks", "drawn"},
        read_presented,
        True,
        True,
        facts=_answer_facts,
        describe=_describe_answer,
    ),
    FOLDS_KIND: FileKind(
        "the folds of an encrypted model",
        "its owner scores them with evaluate",
        _TOTALS | {"blocks"},
        read_presented,
        needs_keys=True,
        facts=_answer_facts,
        describe=_describe_answer,
    ),
    PREDICTION_KIND: FileKind(
        "an encrypted prediction",
        "its owner opens it with open",
        _TOTALS | {"blocks", MODEL_CUT},
        read_presented,
        True,
        True,
        facts=_prediction_facts,
        describe=_describe_prediction,
    ),
    OPEN_MODEL_KIND: FileKind(
        "a decrypted model",
        "predict and evaluate read it",
        frozenset({"totals", "calibration", "blocks", "drawn"}),
        read_presented,
        facts=_opened_facts,
        describe=_describe_answer,
    ),
    OPEN_RESULT_KIND: FileKind(
        "an opened result",
        "info shows it",
        frozenset({"totals", "blocks"}),
        read_presented,
        facts=_opened_facts,
        describe=_describe_answer,
    ),
}
