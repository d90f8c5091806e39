"""Check an encrypted answer at secret positions, and open it: docs/explanation/verification.md.

The owner keeps positions when she encrypts. For each answer she fetches the packs, sends a
challenge, fetches the response, and only then opens anything. A failure ends the use of the key.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.devices import AUTO, Run
from encryptedstats.circuits.expressions import Expression
from encryptedstats.circuits.passes.digits import Stored
from encryptedstats.circuits.program import PACKED
from encryptedstats.circuits.results import EncryptedNumbers, NumberFacts, decrypt_totals
from encryptedstats.circuits.spare_bits import Certainty, Terms, choose_terms
from encryptedstats.crypto.dispatch import openable
from encryptedstats.crypto.keys import Owner
from encryptedstats.crypto.packing import packing_primes, plaintext_coefficients
from encryptedstats.crypto.residues import ciphertext_of
from encryptedstats.errors import ArgumentError, FileFormatError, VerificationError
from encryptedstats.machine import check_workers
from encryptedstats.spotcheck.arithmetic import PositionSource
from encryptedstats.spotcheck.combining import (
    QuestionSums,
    Weights,
    check_rows,
    combine_at_positions,
    compile_sums,
    compute_combinations,
    draw_weights,
)
from encryptedstats.spotcheck.kept import Keeper, KeptRows
from encryptedstats.spotcheck.messages import Challenge, Response, has_shape
from encryptedstats.tables.answers.answer import Answer
from encryptedstats.tables.answers.schema_check import present_totals
from encryptedstats.tables.encrypted_table import EncryptedTable
from encryptedstats.tables.questions.question import (
    ImpossibleTotalsError,
    Question,
    check_question,
    prepare_question,
)
from encryptedstats.tables.schema.schema import Schema


@dataclass(frozen=True)
class _Asked:
    """A question as the owner compiles it, over the rows that an answer is of."""

    question: Question
    stored: Sequence[Stored]
    kept: KeptRows
    source: PositionSource
    totals: Sequence[Expression]
    sums: QuestionSums
    terms: Terms


class SpotCheck:
    """The owner's side of the spot check of one answer.

    Attributes
    ----------
    keeper : Keeper
    certainty : Certainty
    """

    def __init__(self, keeper: Keeper, certainty: Certainty | None = None) -> None:
        self.keeper, self.certainty = keeper, certainty or Certainty()

    @property
    def owner(self) -> Owner:
        return self.keeper.owner

    # -- the conversation --------------------------------------------------------------------------

    def challenge(self, answer: Any, question: Question, schema: Schema | None = None) -> Challenge:
        """Return what the worker is to answer, now that its packs are here.

        The same packs give the same challenge. Each call counts as a commitment.

        Raises
        ------
        VerificationError
            If the answer is not to this question over rows that are kept, if the question cannot
            be spot-checked, or if a check has failed before.
        """
        sent, asked = self._ask(answer, question, schema)
        self.keeper.commit()
        parameters = self.owner.parameters
        seeds = self._seeds(sent.ciphertexts, asked)
        ids, bits = asked.kept.ids, asked.terms.weight_bits
        return Challenge(self.owner.key_id, parameters.fingerprint, ids, bits, seeds)

    def open(
        self, answer: Any, question: Question, response: Response, schema: Schema | None = None
    ) -> Any:
        """Check an answer, and return what ``owner.open`` gives.

        Raises
        ------
        VerificationError
            With the code ``spot-check-failed`` if the worker has lied. Then the key is retired:
            nothing else is opened here, and no worker must learn of it.
        """
        sent, asked = self._ask(answer, question, schema)
        parameters, size = self.owner.parameters, asked.sums.size
        well_formed = (has_shape(one, size, parameters) for one in response.sums)
        if len(response.sums) != asked.terms.combinations or not all(well_formed):
            raise VerificationError(
                "the response is not of the form that was asked for: ask again with the same "
                "challenge",
                code="malformed-response",
            )
        own = self._own_numbers(sent.ciphertexts, asked)
        weights = self._weights(sent.ciphertexts, asked)
        # One check after the other, in all processes: what another one has found counts here.
        with self.keeper.alone():
            self.keeper.check_usable()
            self.owner.check_in_use()
            opened = self._open_if_honest(own, weights, asked, response)
            if opened is None:
                self.keeper.fail(asked.question.describe())
            try:
                answer = self._own_answer(asked, own, schema)
                return present_totals(answer, opened, self.owner.decryptor, schema)
            except ImpossibleTotalsError:
                self.keeper.fail(asked.question.describe())

    def _open_if_honest(
        self, own: EncryptedNumbers, weights: Weights, asked: _Asked, response: Response
    ) -> list[int] | None:
        """Return the decrypted totals if all checks hold. All are made, whichever fails."""
        engine, decryptor = self.owner.public_keys().engine, self.owner.decryptor
        parameters, positions = self.owner.parameters, self.keeper.positions
        t = parameters.plain_modulus
        try:
            opened = decrypt_totals(own, decryptor)
            ciphertexts = [ciphertext_of(engine, one) for one in response.sums]
        except (ArgumentError, FileFormatError):
            return None
        recomputed = combine_at_positions(asked.totals, asked.sums, weights, asked.source)
        claimed = _combine_totals(opened, weights, asked.sums, t)
        found = list[bool]()
        for number, ciphertext in enumerate(ciphertexts):
            has_room = decryptor.measure_budget(ciphertext) >= asked.terms.budget
            is_same = np.array_equal(positions.of(response.sums[number]), recomputed[number])
            plain = plaintext_coefficients(decryptor.decrypt(ciphertext), parameters.ring_degree)
            sums = plain[list(asked.sums.powers)].astype(object) * parameters.slots % t
            agrees = claimed is not None and bool((sums == claimed[number]).all())
            found.append(has_room and is_same and agrees)
        return opened if all(found) else None

    # -- what is compiled here ---------------------------------------------------------------------

    def _ask(self, answer: Any, question: Question, schema: Schema | None) -> tuple[Answer, _Asked]:
        """Compile a question from the owner's facts alone, and refuse what is plainly another
        answer: nothing was asked yet, and nothing depends on secrets.
        """
        self.keeper.check_usable()
        sent = openable(answer)
        if not isinstance(sent, Answer) or not sent.is_encrypted:
            raise VerificationError("this is no encrypted answer", code="not-an-encrypted-answer")
        keys = self.owner.public_keys()
        keys.check_same(sent.keys)
        if sent.is_prediction or sent.extra_totals:
            raise VerificationError(
                "predictions and drawn fractions cannot be spot-checked: es.verify computes them "
                "again",
                code="not-residue-local",
            )
        kept = self.keeper.rows_of(sent.block_ids)
        facts, source = kept.facts, kept.source(keys, self.keeper.positions)
        check_rows(source)
        asked = prepare_question(check_question(question), schema or facts.schema)._fix_seed()
        if not asked._asks_same(sent.question):
            raise VerificationError(
                f"this answers {sent.question.describe()}, and the question is {asked.describe()}",
                code="different-questions",
            )
        totals, stored = facts.circuit(asked, source.layout)
        sums = compile_sums(totals, source)
        terms = choose_terms(
            facts.parameters, sums.bound, len(self.keeper.positions), self.certainty
        )
        found = _Asked(asked, stored, kept, source, totals, sums, terms)
        self._check_packs(sent.ciphertexts, found)
        return sent, found

    def _check_packs(self, numbers: EncryptedNumbers, asked: _Asked) -> None:
        parameters = self.owner.parameters
        shape = (2, packing_primes(parameters), parameters.ring_degree)
        packs = -(-numbers.n_places // numbers.width)
        if (
            numbers.form != PACKED
            or [part.residues.shape for part in numbers.parts] != [shape] * packs
            or [one.stored for one in numbers.facts] != list(asked.stored)
        ):
            raise VerificationError(
                "these are not the packed totals of this question over these rows",
                code="computed-differently",
            )

    def _own_numbers(self, sent: EncryptedNumbers, asked: _Asked) -> EncryptedNumbers:
        """Return the worker's packs with the owner's bounds.

        Where a number lies, and by which factor and offset it is read, is part of what the worker
        has committed to.
        """
        own = [
            NumberFacts(known.low, known.high, said.offset, said.factor, said.stored)
            for said, known in zip(sent.facts, asked.sums.facts, strict=True)
        ]
        return EncryptedNumbers(
            self.owner.public_keys(),
            PACKED,
            own,
            sent.parts,
            sent.width,
            schema_digest=asked.kept.facts.schema_digest,
            places=sent.places,
        )

    def _own_answer(self, asked: _Asked, own: EncryptedNumbers, schema: Schema | None) -> Answer:
        kept = asked.kept
        return Answer(
            asked.question,
            own,
            schema or kept.facts.schema,
            sum(kept.rows),
            kept.ids,
            n_dropped=kept.facts.n_dropped,
            weight_bound=kept.facts.weight_bound,
        )

    # -- weights -----------------------------------------------------------------------------------

    def _seeds(self, packed: EncryptedNumbers, asked: _Asked) -> tuple[bytes, ...]:
        """Return the seed of each combination, which nobody can know before the packs are here."""
        digest = hashlib.sha256()
        # The residues themselves, not the bytes of a file: they have one form only.
        for part in packed.parts:
            digest.update(repr(part.residues.shape).encode())
            digest.update(np.ascontiguousarray(part.residues, dtype="<u8").tobytes())
        # All that a number is read by.
        read_by = [(one.offset, one.factor) for one in packed.facts], packed.places, packed.width
        said = [asked.sums.digest, *asked.kept.ids, digest.hexdigest(), repr(read_by)]
        return tuple(
            hmac.new(
                self.keeper.secret, "\n".join([*said, str(number)]).encode(), hashlib.sha256
            ).digest()
            for number in range(asked.terms.combinations)
        )

    def _weights(self, packed: EncryptedNumbers, asked: _Asked) -> Weights:
        seeds = self._seeds(packed, asked)
        return draw_weights(seeds, len(asked.sums.groups), asked.terms.weight_bits)


def _combine_totals(
    opened: Sequence[int], weights: Weights, sums: QuestionSums, t: int
) -> NDArray[Any] | None:
    """Return what each combination adds up to, modulo t, by the number of totals in their groups.

    Returns None if equal totals were opened to different numbers: only one of them is weighed.
    """
    by_place: dict[int, int] = {}
    for number, place, facts in zip(opened, sums.places, sums.facts, strict=True):
        in_sum = (number * facts.factor - facts.offset) % t
        if by_place.setdefault(place, in_sum) != in_sum:
            return None
    table = np.zeros((len(sums.groups), sums.n_interleaved), dtype=object)
    for place, in_sum in by_place.items():
        table[divmod(place, sums.n_interleaved)] = in_sum
    found: NDArray[Any] = weights.astype(object) @ table % t
    return found


def respond(
    table: EncryptedTable,
    question: Question,
    challenge: Challenge,
    *,
    device: str = AUTO,
    workers: int | None = None,
    memory_limit: int | None = None,
) -> Response:
    """Answer a challenge, as a worker: the combined sums of a question over the whole table.

    No secret key is needed.
    """
    asked = prepare_question(check_question(question), table.private_schema or table.schema)
    ids = table.blocks.ids
    if challenge.key_id != table.key_id or sorted(challenge.blocks) != sorted(ids):
        raise VerificationError(
            "this challenge is for other rows, or for another key", code="different-rows"
        )
    totals, _ = table.facts.circuit(asked._fix_seed(), table.layout)
    options = Run(check_workers(workers), memory_limit, progress=False)
    sums = compute_combinations(totals, challenge, table.source(), device=device, options=options)
    return Response(tuple(sums))
