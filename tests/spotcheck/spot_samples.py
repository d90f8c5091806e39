"""Small tables with their spot checks, and workers that lie about them in every way."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

import encryptedstats as es
from encryptedstats.circuits.results import EncryptedNumbers, Part, encrypted_numbers
from encryptedstats.crypto.kernels import minimal_root
from encryptedstats.crypto.packing import packing_parameters
from encryptedstats.crypto.residues import Residues, add_modulo
from encryptedstats.spotcheck import (
    Certainty,
    Challenge,
    Keeper,
    Response,
    SpotCheck,
    respond,
)
from encryptedstats.spotcheck.kept import Positions
from encryptedstats.tables.answers.answer import Answer
from encryptedstats.tables.facts import MemoryBlocks

SLOTS = 1024
N_ROWS = 1500
QUESTION = es.MultinomialNB()
#: So weak that lies pass often enough to be counted.
WEAK = Certainty(position_bits=0.1, combination_bits=8)


def small_owner(copies: int = 1) -> es.Owner:
    """Return keys of a small ring with five primes of 50 bits: the same ones, never retired."""
    return same_keys(_small_owner(copies))


def same_keys(owner: es.Owner) -> es.Owner:
    """Return another owner of the same keys, for whom nothing is kept or retired."""
    made = object.__new__(es.Owner)
    vars(made).update(vars(owner), _kept=None, retired=None, key_file=None)
    return made


def keeper_of(owner: es.Owner, *tables: es.EncryptedTable, count: int | None = None) -> Keeper:
    """Return what an owner keeps of some tables."""
    owner._kept = Keeper.draw(owner, count)
    for table in tables:
        owner._kept.keep(table)
    return owner._kept


@lru_cache(maxsize=4)
def _small_owner(copies: int) -> es.Owner:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", es.InsecureParametersWarning)
        made = es.Parameters.from_bits("bgv", SLOTS, 1 << 20, (50,) * 6, allow_insecure=True)
        return es.Owner(replace(made, copies=copies))


def patients(n_rows: int, seed: int = 0) -> pd.DataFrame:
    """Return a table of three variables and a class."""
    rng = np.random.default_rng(seed)
    sick = np.where(rng.random(n_rows) < 0.3, "yes", "no")
    return pd.DataFrame(
        {
            "age": rng.integers(20, 80, n_rows),
            "dose": rng.integers(0, 10, n_rows),
            "smoker": rng.choice(["no", "yes"], n_rows),
            "sick": sick,
        }
    )


@lru_cache(maxsize=4)
def schema_of(kind: str = "continuous") -> es.Schema:
    """Return the schema of the patients, the dose in bins or as a number."""
    return es.Schema.infer(patients(N_ROWS), target="sick", bins=3, kinds={"dose": kind})


def sealed_table(n_rows: int = N_ROWS, copies: int = 1) -> es.EncryptedTable:
    """Return encrypted patients."""
    return _sealed_table(n_rows, copies)


@lru_cache(maxsize=8)
def _sealed_table(n_rows: int, copies: int) -> es.EncryptedTable:
    return small_owner(copies).encrypt(schema_of().table(patients(n_rows)))


@dataclass
class Story:
    """One question, from the positions that are kept to what the worker sends."""

    owner: es.Owner
    check: SpotCheck
    table: es.EncryptedTable
    question: es.Question
    answer: Answer
    challenge: Challenge
    response: Response

    def open(self, answer: Any = None, response: Response | None = None) -> Any:
        """Open what an honest or another worker has sent."""
        return self.check.open(answer or self.answer, self.question, response or self.response)

    def tell(self, answer: Answer, respond_as: es.EncryptedTable) -> Any:
        """Open another answer, with the response that a liar computes from other rows."""
        challenge = self.check.challenge(answer, self.question)
        return self.open(answer, respond(respond_as, self.question, challenge))


def story_of(
    table: es.EncryptedTable | None = None,
    question: es.Question = QUESTION,
    certainty: Certainty | None = None,
    owner: es.Owner | None = None,
) -> Story:
    """Return what an honest worker does."""
    table = sealed_table() if table is None else table
    owner = owner or small_owner()
    check = SpotCheck(keeper_of(owner, table), certainty)
    answer = answer_of(table, question)
    challenge = check.challenge(answer, question)
    response = respond(table, question, challenge)
    return Story(owner, check, table, question, answer, challenge, response)


def answer_of(table: es.EncryptedTable, question: es.Question = QUESTION) -> Answer:
    """Return an answer in totals, whatever its question makes of it."""
    found: Answer = table._answer_to(question.in_ids(table.private_schema or table.schema))
    return found


def with_positions(story: Story, flat: Sequence[int], secret: bytes | None = None) -> Story:
    """Return the same story with positions of the test's choice, and a weak check."""
    owner = same_keys(story.owner)
    places = Positions(np.array(sorted(flat), dtype=np.int64), owner.parameters)
    owner._kept = Keeper(owner, places, secret or story.check.keeper.secret)
    owner._kept.keep(story.table)
    check = SpotCheck(owner._kept, WEAK)
    challenge = check.challenge(story.answer, story.question)
    response = respond(story.table, story.question, challenge)
    return Story(owner, check, story.table, story.question, story.answer, challenge, response)


# -- liars -------------------------------------------------------------------------------------


def altered(
    table: es.EncryptedTable, change: Callable[[list[Residues]], list[Residues]]
) -> es.EncryptedTable:
    """Return a table with other residues in blocks of the same names."""
    blocks = table.blocks
    found = [np.array(blocks.block(i)) for i in range(len(blocks.ids))]
    changed = tuple(change(found))
    return es.EncryptedTable(
        table.facts,
        MemoryBlocks(blocks.ids, blocks.rows, changed),
        table.public_keys(),
        table.private_schema,
    )


def with_sums_plus(story: Story, constants: Sequence[int]) -> Response:
    """Return the response with an integer added to each sum, as a constant polynomial."""
    return with_polynomials_plus(story, [{0: constant} for constant in constants])


def with_polynomials_plus(story: Story, added: Sequence[dict[int, int]]) -> Response:
    """Return the response with a polynomial added to each sum, given by power of X."""
    parameters, sums = story.owner.parameters, []
    for one, polynomial in zip(story.response.sums, added, strict=True):
        changed = one.copy()
        for prime, p in enumerate(parameters.data_moduli):
            for power, coefficient in polynomial.items():
                values = [
                    coefficient * x % p for x in values_of_x(p, parameters.ring_degree, power)
                ]
                changed[0, prime] = (changed[0, prime] + np.array(values, dtype=np.uint64)) % p
        sums.append(changed)
    return Response(tuple(sums))


@lru_cache(maxsize=64)
def values_of_x(p: int, ring: int, power: int) -> list[int]:
    """Return a power of X at all roots of X^N + 1 modulo a prime, in SEAL's order."""
    root, bits = minimal_root(p, 2 * ring), ring.bit_length() - 1
    places = (int(f"{i:0{bits}b}"[::-1], 2) for i in range(ring))
    return [pow(root, (2 * place + 1) * power, p) for place in places]


def with_totals_plus(answer: Answer, errors: Sequence[int]) -> Answer:
    """Return an answer whose packs open to other totals: a lie in packing alone."""
    numbers = answer.ciphertexts
    t = numbers.keys.parameters.plain_modulus
    sums = [error * facts.factor % t for error, facts in zip(errors, numbers.facts, strict=True)]
    more = encrypted_numbers(numbers.keys, sums, numbers.facts, numbers.places)
    moduli = packing_parameters(numbers.keys.parameters).data_moduli
    parts = [
        Part(add_modulo(a.residues, b.residues, moduli), a.noise)
        for a, b in zip(numbers.parts, more.parts, strict=True)
    ]
    return replace(answer, totals=with_parts(numbers, parts))


def with_parts(numbers: EncryptedNumbers, parts: Sequence[Part]) -> EncryptedNumbers:
    """Return the same numbers with other ciphertexts."""
    return numbers._with(parts=tuple(parts))


def lie_that_fits(
    story: Story, multiple_of: int, places: tuple[int, int] = (2, 4)
) -> tuple[Answer, Response]:
    """Return packs with two wrong totals, and sums that agree with them.

    A row is moved from one bin to another, which leaves the totals possible. The difference of each
    sum is a small multiple of an integer, such as a product of primes: the best that a worker can
    do, who knows everything but the positions.
    """
    errors = [0] * len(story.answer.ciphertexts)
    more, less = places
    errors[more], errors[less] = 1, -1
    story.answer = with_totals_plus(story.answer, errors)
    story.challenge = story.check.challenge(story.answer, story.question)
    story.response = respond(story.table, story.question, story.challenge)
    sent, asked = story.check._ask(story.answer, story.question, None)
    parameters, sums, added = story.owner.parameters, asked.sums, []
    t = parameters.plain_modulus
    # A coefficient is the sum over the slots divided by their number.
    scale = pow(parameters.slots * multiple_of, -1, t)
    for weights in story.check._weights(sent.ciphertexts, asked).tolist():
        wanted: dict[int, int] = {}
        for number in places:
            group, place = divmod(sums.places[number], sums.n_interleaved)
            error = errors[number] * sums.facts[number].factor * weights[group]
            power = sums.powers[place]
            wanted[power] = wanted.get(power, 0) + error
        added.append({x: multiple_of * (one * scale % t) for x, one in wanted.items()})
    return story.answer, with_polynomials_plus(story, added)
