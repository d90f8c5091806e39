"""Encrypted numbers: the result of an evaluation, totals or numbers of every row."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.passes.digits import WHOLE, Stored, join_parts
from encryptedstats.circuits.program import (
    PACKED,
    REPLICATED,
    ROWS,
    SLOTS,
    add_digests,
    subtract_digests,
)
from encryptedstats.circuits.slices import drop_checkpoint
from encryptedstats.crypto.dispatch import decrypt_value
from encryptedstats.crypto.encryption import DIGEST_FIELD, Decryptor, join_digests, read_digest
from encryptedstats.crypto.engine import Engine, engine_for
from encryptedstats.crypto.flooding import flood, flooded_noise, flooding_width
from encryptedstats.crypto.keys import PublicKeys, check_belongs
from encryptedstats.crypto.noise import Noise, NoiseModel
from encryptedstats.crypto.packing import (
    centre,
    encrypted_totals,
    encrypted_zero_noise,
    packing_model,
    packing_parameters,
    packing_primes,
    unpack,
)
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.crypto.residues import (
    Residues,
    ciphertext_of,
    residues_from_bytes,
    residues_of,
    residues_to_bytes,
)
from encryptedstats.errors import (
    ArgumentError,
    ArgumentTypeError,
    Cure,
    FileFormatError,
    NoiseError,
)
from encryptedstats.storage.container import Container
from encryptedstats.storage.objects import load_file, save_file

NUMBERS_KIND: Final = "encrypted numbers"
_FORMS: Final = (PACKED, REPLICATED, SLOTS, ROWS)
CUT: Final = "cut"  # the section of a file that lists the shards of its numbers
MAX_NUMBERS: Final = 1 << 24
MAX_OUTPUTS: Final = 1 << 16  # of every row
_DIGEST_LENGTH: Final = 64
_DIGEST: Final = re.compile("[0-9a-f]{64}")
_MAX_SHIFT: Final = 1 << 12  # bits
NO_ROOM_FOR_FLOODING: Final = (
    "these keys leave no room for the noise that hides rows of contributors from the receiver: "
    "make keys with ",
    Cure("keys for contributors", "es.Owner(es.plan(..., by_others=True))"),
)


@dataclass(frozen=True)
class NumberFacts:
    """The public facts of one number: its bounds, and how it is read after decryption.

    The sum over the decrypted slots, plus ``offset``, is the number times ``factor``, modulo t.
    ``stored`` relates it to a requested total: see :mod:`encryptedstats.circuits.passes.digits`.
    """

    low: int
    high: int
    offset: int = 0
    factor: int = 1
    stored: Stored = WHOLE


@dataclass(frozen=True)
class Part:
    """A ciphertext of a result, as residues, with its noise."""

    residues: Residues
    noise: Noise


@dataclass(frozen=True)
class Cut:
    """The shards in which totals were computed, so that they can be computed again alike.

    Attributes
    ----------
    blocks : tuple of int
        The blocks after which shards end; the last is the number of blocks.
    totals : tuple of int
        The totals after which ranges of totals end; the last is the number of totals.
    width : int
        Totals in a pack.
    """

    blocks: tuple[int, ...]
    totals: tuple[int, ...]
    width: int

    def to_bytes(self) -> bytes:
        """Return the section of a file that :func:`read_cut` reads."""
        return json.dumps([list(self.blocks), list(self.totals), self.width]).encode()


def read_cut(file: Container, name: str = CUT) -> Cut | None:
    """Read the shards of a result; None if the file has no such section."""
    if name not in file.sections:
        return None
    found = file.read_list(name)
    if [type(one) for one in found] != [list, list, int] or not all(
        _are_stops(stops) for stops in found[:2]
    ):
        raise FileFormatError("the file has a malformed list of shards", code="malformed-shards")
    blocks, totals, width = found
    if not blocks or not totals or width < 1 or any(stop % width for stop in totals[:-1]):
        raise FileFormatError(
            "the file has shards that leave something out, or count it twice",
            code="incomplete-shards",
        )
    return Cut(tuple(blocks), tuple(totals), width)


def _are_stops(stops: Sequence[Any]) -> bool:
    return all(type(stop) is int for stop in stops) and all(a < b for a, b in pairwise([0, *stops]))


def pieces_of(stops: Sequence[int]) -> list[tuple[int, int]]:
    """Return start and stop of each piece."""
    return list(pairwise([0, *stops]))


class EncryptedNumbers:
    """Encrypted integers.

    ``owner.open`` returns totals as a list, and numbers of rows as an array (rows, numbers).
    Results of the same computation on different rows can be added and subtracted.

    Parameters
    ----------
    keys : PublicKeys
    form : "packed", "replicated", "slots" or "rows"
        Many totals in a ciphertext; one total in all slots of a ciphertext, or unsummed; or numbers
        of every row, 0 in slots without a row.
    facts : sequence of NumberFacts
        One for each total, or for each number of a row.
    parts : sequence of Part
        The ciphertexts: packs, or one for each total, or one for each number and chunk of rows.
    width : int
        Totals in a pack; of totals in slots the lanes, each of which has a number of its own.
    counts : sequence of int
        Rows of each chunk, for numbers of rows.
    schema_digest : str, optional
        An opaque digest by which the owner finds the schema of the rows.
    flooded : bool, optional
        Whether noise hides rows of contributors from the receiver; None for the owner's rows.
    circuit : str, optional
        A digest of the circuit; only equal circuits can be added.
    places : sequence of int
        The place of every packed total, counted through all packs; in order, by default.

    Attributes
    ----------
    cut : Cut or None
        The shards of the computation; None if all rows were evaluated at once.
    """

    def __init__(
        self,
        keys: PublicKeys,
        form: str,
        facts: Sequence[NumberFacts],
        parts: Sequence[Part],
        width: int = 1,
        *,
        schema_digest: str | None = None,
        flooded: bool | None = None,
        circuit: str | None = None,
        counts: Sequence[int] = (),
        places: Sequence[int] = (),
    ) -> None:
        self.keys = keys
        self.form = form
        self.width = width
        self.facts = tuple(facts)
        self.parts = tuple(parts)
        self.counts = tuple(counts)
        self.places = tuple(places) or tuple(range(len(self.facts)))
        self.schema_digest = schema_digest
        self.flooded = flooded
        self.circuit = circuit
        self.cut: Cut | None = None
        #: The digest of the program that computed them; of a sum, see `program.add_digests`.
        self.program_digest: str | None = None
        #: Whether the file of numbers of rows names the program. It must not if the program holds
        #: the numbers of a decrypted model, because these could be guessed from a hash.
        self.names_program = False
        #: Checkpoints to remove once the numbers are saved.
        self.checkpoints: tuple[str | os.PathLike[str], ...] = ()

    def __len__(self) -> int:
        return sum(2 if facts.stored.base else not facts.stored.shift for facts in self.facts)

    @property
    def lanes(self) -> int:
        """How many numbers each total is; 1 but for totals in slots."""
        return self.width if self.form == SLOTS else 1

    @property
    def n_places(self) -> int:
        """Return how many packed totals there are; equal totals share a place."""
        return 1 + max(self.places, default=-1)

    def in_parts(self, stored: Sequence[Stored]) -> EncryptedNumbers:
        """Mark the numbers as digits or pairs of requested totals."""
        self.facts = tuple(
            facts if facts.stored == one else replace(facts, stored=one)
            for facts, one in zip(self.facts, stored, strict=True)
        )
        return self

    def repeat(self, positions: Sequence[int]) -> EncryptedNumbers:
        """Return the same ciphertexts for more totals: number k is at ``positions[k]``."""
        facts, places = [self.facts[k] for k in positions], [self.places[k] for k in positions]
        if self.form == PACKED:
            return self._with(facts=tuple(facts), places=tuple(places))
        parts = tuple(self.parts[k] for k in positions)
        return self._with(facts=tuple(facts), places=tuple(range(len(facts))), parts=parts)

    def _with(self, **changes: Any) -> EncryptedNumbers:
        """Return the same numbers with other attributes."""
        made = object.__new__(EncryptedNumbers)
        vars(made).update(vars(self), **changes)
        return made

    def most(self, place: int) -> int | None:
        """Return a bound on a requested number; None if none is known.

        None is known for digits, for the second of a pair, and after subtractions.
        """
        number = 0
        for facts, after in zip(self.facts, (*self.facts[1:], None), strict=True):
            if number == place:
                in_parts = after is not None and after.stored.shift
                if in_parts or facts.low < 0:
                    return None
                return facts.stored.rest if facts.stored.base else facts.high
            number += 2 if facts.stored.base else not (after is not None and after.stored.shift)
        return None

    @property
    def are_whole(self) -> bool:
        """Return whether no number is a digit or a pair of requested totals."""
        return all(facts.stored == WHOLE for facts in self.facts)

    @property
    def n_rows(self) -> int:
        """Return the number of rows; 0 for totals."""
        return sum(self.counts)

    def chunks_of(self, number: int) -> tuple[Part, ...]:
        """Return the ciphertexts of one number of all rows, one for each chunk."""
        n_chunks = len(self.counts)
        return self.parts[number * n_chunks : (number + 1) * n_chunks]

    @property
    def nbytes(self) -> int:
        """Return the bytes of memory."""
        return sum(part.residues.nbytes for part in self.parts)

    @property
    def _engine(self) -> Engine:
        """Return the packing context for packs, else the context of the keys."""
        return (
            engine_for(packing_parameters(self.keys.parameters))
            if self.form == PACKED
            else self.keys.engine
        )

    def __repr__(self) -> str:
        what = (
            f"{self.n_rows} rows of {len(self)} numbers"
            if self.form == ROWS
            else f"{len(self)} totals"
        )
        size = f"{self.nbytes / 1e6:.1f} MB"
        return (
            f"EncryptedNumbers({what} in {len(self.parts)} ciphertexts, {self.form}, {size}, key "
            f"{self.keys.key_id})"
        )

    # -- adding
    # --------------------------------------------------------------------------------------------

    def __add__(self, other: EncryptedNumbers) -> EncryptedNumbers:
        return self._of_same_circuit(other).combine(other, 1)

    def __sub__(self, other: EncryptedNumbers) -> EncryptedNumbers:
        return self._of_same_circuit(other).combine(other, -1)

    def _of_same_circuit(self, other: EncryptedNumbers) -> EncryptedNumbers:
        if self.circuit != other.circuit:
            raise ArgumentError(
                "results of different circuits or forms cannot be added", code="different-circuits"
            )
        return self

    def combine(self, other: EncryptedNumbers, sign: int) -> EncryptedNumbers:
        """Add (1) or subtract (-1) totals of other rows; the caller knows that they match."""
        self.keys.check_same(other.keys)
        if ROWS in (self.form, other.form):
            raise ArgumentError(
                "numbers of rows cannot be added up, only totals can",
                code="rows-not-added",
            )
        if self._way_of_storing() != other._way_of_storing():
            raise ArgumentError(
                "results of different circuits or forms cannot be added", code="different-forms"
            )
        digest = join_digests(self.schema_digest, other.schema_digest)
        facts = [_add_facts(a, b, sign) for a, b in zip(self.facts, other.facts, strict=True)]
        largest = max(max(abs(f.low), abs(f.high)) for f in facts)
        if largest > self.keys.parameters.max_value:
            raise OverflowError(
                f"the sum could reach ±{largest:,}, and the parameters are exact up to "
                f"±{self.keys.parameters.max_value:,}: "
                "open before adding, or plan for all rows together"
            )
        crowded = next(
            (f.stored for f in facts if f.stored.base and 2 * f.stored.rest >= f.stored.base), None
        )
        if crowded is not None:
            raise OverflowError(
                f"the sum could reach ±{crowded.rest:,}, and these keys send two totals as one, "
                f"which is exact below ±{crowded.base // 2:,}: open before adding, or plan for all "
                "rows together"
            )
        model = self._model()
        parts = []
        for a, b in zip(self.parts, other.parts, strict=True):
            level = max(a.noise.level, b.noise.level)
            noise = model.add(model.switch(a.noise, level), model.switch(b.noise, level))
            if not model.decrypts(noise):
                raise NoiseError(
                    "the sum of these results is not proven to decrypt: ",
                    Cure("open before adding", "decrypt some of them"),
                )
            parts.append(Part(self._combine_ciphertexts(a, b, level, sign), noise))
        flooded = (
            None
            if self.flooded is other.flooded is None
            else False not in (self.flooded, other.flooded)
        )
        programs = self.program_digest, other.program_digest
        return self._with(
            facts=tuple(facts),
            parts=tuple(parts),
            schema_digest=digest,
            flooded=flooded,
            cut=None,
            program_digest=_combine_digests(*programs, sign),
            checkpoints=self.checkpoints + other.checkpoints,
        )

    def _way_of_storing(self) -> tuple[Any, ...]:
        return (
            self.form,
            self.width,
            self.places,
            [(f.factor, f.stored.shift, f.stored.base) for f in self.facts],
        )

    def _combine_ciphertexts(self, a: Part, b: Part, level: int, sign: int) -> Residues:
        engine = self._engine
        if engine.parameters.switch_factor(min(a.noise.level, b.noise.level), level) != 1:
            raise ArgumentError(
                "results with different correction factors cannot be added",
                code="different-factors",
            )
        x, y = (
            engine.switch(ciphertext_of(engine, part.residues), level)
            if part.noise.level != level
            else ciphertext_of(engine, part.residues)
            for part in (a, b)
        )
        try:
            return residues_of(
                engine, (engine.evaluator.add if sign > 0 else engine.evaluator.sub)(x, y)
            )
        except RuntimeError as error:
            if "transparent" not in str(error):
                raise
            raise ArgumentError(
                "these results have the same ciphertexts, so their difference is 0 and hides "
                "nothing",
                code="same-ciphertexts",
            ) from error

    def check_decrypts(self) -> None:
        """Refuse numbers whose tracked noise does not prove that they decrypt."""
        if not all(self._model().decrypts(part.noise) for part in self.parts):
            raise NoiseError(
                "these numbers are not proven to decrypt: their proof was for another circuit",
                code="not-proven",
            )

    def equals(self, other: EncryptedNumbers) -> bool:
        """Return whether both have the same residues and facts."""
        same = (self.form, self.width, self.facts, self.counts, self.places, len(self.parts))
        return same == (
            other.form,
            other.width,
            other.facts,
            other.counts,
            other.places,
            len(other.parts),
        ) and all(
            np.array_equal(a.residues, b.residues)
            for a, b in zip(self.parts, other.parts, strict=True)
        )

    def packs(self) -> list[tuple[Residues, Noise]]:
        """Return the ciphertexts that members of a joint key open, each with its noise.

        These are packed totals or votes. Other forms hold more than their numbers and are refused.
        """
        if self.form not in (PACKED, ROWS) or (
            self.form == PACKED and any(part.noise.level for part in self.parts)
        ):
            raise ArgumentError(
                "members of a joint key open packed totals and votes only, and this result has the "
                f"form {self.form!r}, which shows rows",
                code="form-not-opened",
            )
        return [(part.residues, part.noise.at(0)) for part in self.parts]

    def with_packs(
        self, keys: PublicKeys, packs: Sequence[tuple[Residues, Noise]]
    ) -> EncryptedNumbers:
        """Return the same numbers under other keys."""
        parts = [
            Part(residues, noise.at(len(self._engine.parameters.data_moduli) - residues.shape[1]))
            for residues, noise in packs
        ]
        return self._with(
            keys=keys,
            parts=tuple(parts),
            schema_digest=None,
            flooded=True,
            cut=None,
            names_program=False,
            checkpoints=(),
        )

    def with_flooding(self) -> EncryptedNumbers:
        """Return the same totals with noise that hides everything but their values.

        See :mod:`encryptedstats.crypto.flooding`.
        """
        if self.form != PACKED:
            raise ArgumentError(
                f"totals in form {self.form!r} cannot be flooded, because they hold more than "
                "totals: choose form='packed'",
                code="not-packed",
            )
        if any(part.noise.level for part in self.parts):
            raise ArgumentError(
                "packs cannot be flooded after modulus switching: flood them first",
                code="switched-down",
            )
        keys, model = self.keys, self._model()
        zero_noise = encrypted_zero_noise(keys.parameters)
        parts = []
        for part in self.parts:
            noise = flooded_noise(model, part.noise, zero_noise)
            if not model.decrypts(noise):
                raise NoiseError(*NO_ROOM_FOR_FLOODING, code="no-room-for-noise")
            zero = keys.encryptor.encrypt_zero(
                len(keys.parameters.data_moduli) - part.residues.shape[1]
            )
            residues = flood(self._engine, part.residues, zero, flooding_width(model, part.noise))
            parts.append(Part(residues, noise))
        return self._with(parts=tuple(parts), flooded=True, cut=None)

    def _model(self) -> NoiseModel:
        parameters = self.keys.parameters
        return (
            packing_model(parameters, packing_primes(parameters))
            if self.form == PACKED
            else parameters.noise
        )

    # -- files
    # --------------------------------------------------------------------------------------------

    def to_container(
        self, kind: str = NUMBERS_KIND, fields: dict[str, Any] | None = None
    ) -> Container:
        """Return the file of the numbers; ``fields`` are stored with them."""
        parameters = self.keys.parameters
        sections = {
            "numbers": json.dumps([_list_facts(f) for f in self.facts]).encode(),
            "chunks": json.dumps(list(self.counts)).encode(),
            "places": json.dumps(list(self.places)).encode(),
            "noise": json.dumps(
                [[p.noise.flat, p.noise.peak, p.noise.level] for p in self.parts]
            ).encode(),
            "residues": b"".join(
                residues_to_bytes(part.residues, self._engine.parameters.data_moduli)
                for part in self.parts
            ),
        }
        if self.cut is not None:
            sections[CUT] = self.cut.to_bytes()
        own = {"parameters": parameters.to_dict(), "form": self.form, "width": self.width}
        is_named = self.form != ROWS or self.names_program
        program = self.program_digest if is_named else None
        own |= {"flooded": self.flooded, "circuit": self.circuit, "program": program}
        own |= {DIGEST_FIELD: self.schema_digest, **(fields or {})}
        return Container(kind, parameters.fingerprint, self.keys.key_id, own, sections)

    @classmethod
    def from_container(cls, file: Container, keys: PublicKeys) -> EncryptedNumbers:
        """Read and check the numbers of a file."""
        check_belongs(file, keys)
        form, parameters = file.expect("form", str), keys.parameters
        if form not in _FORMS:
            raise FileFormatError(f"results in an unknown form {form!r}", code="unknown-form")
        width = file.expect("width", int)
        if not 1 <= width <= parameters.ring_degree or width & (width - 1):
            raise FileFormatError(
                f"{width} totals in a ciphertext are impossible", code="impossible-width"
            )
        counts = file.read_list("chunks")
        if not all(type(count) is int and 0 < count <= parameters.slots for count in counts):
            raise FileFormatError(
                "the chunks of the results have an impossible number of rows",
                code="impossible-row-counts",
            )
        if bool(counts) != (form == ROWS):
            raise FileFormatError(
                "the results are totals with rows, or numbers of rows without any",
                code="rows-form-mismatch",
            )
        facts = [_read_facts(entry, parameters) for entry in file.read_list("numbers")]
        _check_stored([one.stored for one in facts], form)
        places = file.read_list("places")
        distinct = {place for place in places if type(place) is int}
        are_numbers = all(type(place) is int for place in places)
        if not are_numbers or len(places) != len(facts) or distinct != set(range(len(distinct))):
            raise FileFormatError(
                "the results do not have one place for each number", code="places-mismatch"
            )
        if form != PACKED and len(distinct) != len(facts):
            raise FileFormatError("results that are not packed share places", code="shared-places")
        empty = cls(keys, form, facts, (), width, counts=counts, places=places)
        noises = [noise_from_json(entry, empty._model()) for entry in file.read_list("noise")]
        if (
            not 0 < len(facts) <= (MAX_OUTPUTS if form == ROWS else MAX_NUMBERS)
            or len(noises) != empty._n_parts()
        ):
            raise FileFormatError(
                "the number of ciphertexts does not fit the number of totals",
                code="ciphertext-count-mismatch",
            )
        parts = _read_parts(file.section("residues"), noises, empty._engine)
        flooded = file.fields.get("flooded")
        if flooded not in (None, True, False):
            raise FileFormatError(
                "the results do not say whether they are flooded", code="malformed-flooding"
            )
        circuit = file.fields.get("circuit")
        if circuit is not None and (not isinstance(circuit, str) or len(circuit) > _DIGEST_LENGTH):
            raise FileFormatError(
                "the results do not say what was computed", code="malformed-circuit"
            )
        numbers = cls(
            keys,
            form,
            facts,
            parts,
            width,
            schema_digest=read_digest(file),
            flooded=flooded,
            circuit=circuit,
            counts=counts,
            places=places,
        )
        numbers.cut = _check_cut(read_cut(file), numbers)
        numbers.program_digest = _read_program_digest(file)
        return numbers

    def _n_parts(self) -> int:
        """Return the number of ciphertexts."""
        if self.form == PACKED:
            return math.ceil(self.n_places / self.width)
        return len(self.facts) * (len(self.counts) if self.form == ROWS else 1)

    def save(self, url: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the results to a path or fsspec URL; the file holds no key."""
        save_file(self.to_container(), url, overwrite=overwrite)
        self.drop_checkpoints()

    def drop_checkpoints(self) -> None:
        """Remove the checkpoints of numbers that are stored."""
        for checkpoint in self.checkpoints:
            drop_checkpoint(checkpoint)
        self.checkpoints = ()

    @classmethod
    def load(cls, url: str | os.PathLike[str], keys: PublicKeys) -> EncryptedNumbers:
        """Read results that belong to ``keys``."""
        return cls.from_container(load_file(url, kind=NUMBERS_KIND), keys)

    def __reduce__(self) -> NoReturn:
        raise ArgumentTypeError(
            "encrypted numbers are not pickled: use save() and load()", code="not-pickled"
        )


def _read_program_digest(file: Container) -> str | None:
    """Read which program computed the numbers; files of version 0.2 do not say."""
    digest = file.fields.get("program")
    if digest is not None and not (isinstance(digest, str) and _DIGEST.fullmatch(digest)):
        raise FileFormatError("the results name a malformed program", code="malformed-digest")
    return digest


def _check_cut(cut: Cut | None, numbers: EncryptedNumbers) -> Cut | None:
    """Refuse ranges that do not cover all totals of these numbers."""
    # Equal totals in slots are stored more than once.
    n_computed = (
        numbers.n_places if numbers.form == PACKED else 0 if cut is None else cut.totals[-1]
    )
    if cut is not None and (
        numbers.form == ROWS
        or n_computed > numbers.n_places
        or (n_computed, numbers.width) != (cut.totals[-1], cut.width)
    ):
        raise FileFormatError(
            "the file has ranges of totals that leave something out, or count it twice",
            code="incomplete-ranges",
        )
    return cut


def encrypted_numbers(
    keys: PublicKeys,
    values: Sequence[int],
    facts: Sequence[NumberFacts],
    places: Sequence[int] = (),
) -> EncryptedNumbers:
    """Encrypt plain totals with the public key, packed as by a worker.

    The ciphertexts are fresh, so they hold nothing but the totals and count as flooded.
    """
    parameters = keys.parameters
    level = len(parameters.data_moduli) - packing_primes(parameters)
    places = tuple(places) or tuple(range(len(values)))
    placed = [value for _, value in sorted(dict(zip(places, values, strict=True)).items())]
    width = min(parameters.ring_degree, 1 << (max(1, len(placed)) - 1).bit_length())
    parts = [
        Part(
            *encrypted_totals(
                parameters, keys.encryptor.encrypt_zero(level), placed[start : start + width]
            )
        )
        for start in range(0, len(placed), width)
    ]
    return EncryptedNumbers(keys, PACKED, facts, parts, width, flooded=True, places=places)


def numbers_of_all(parts: Sequence[EncryptedNumbers]) -> EncryptedNumbers:
    """Concatenate numbers of rows; the caller knows that they match."""
    first = parts[0]
    counts = [count for part in parts for count in part.counts]
    chunks = [
        chunk
        for number in range(len(first))
        for part in parts
        for chunk in part.parts[number * len(part.counts) : (number + 1) * len(part.counts)]
    ]
    joined = EncryptedNumbers(
        first.keys, ROWS, first.facts, chunks, schema_digest=first.schema_digest, counts=counts
    )
    joined.program_digest = sum_of_digests(parts)
    return joined


def _combine_digests(one: str | None, other: str | None, sign: int) -> str | None:
    if one is None or other is None:
        return None
    return add_digests((one, other)) if sign > 0 else subtract_digests(one, other)


def sum_of_digests(parts: Sequence[EncryptedNumbers]) -> str | None:
    """Return the program digest of all parts together; None if one is not known."""
    known = [part.program_digest for part in parts if part.program_digest is not None]
    return add_digests(known) if len(known) == len(parts) else None


@decrypt_value.register(EncryptedNumbers)
def decrypt_numbers(numbers: EncryptedNumbers, decryptor: Decryptor, *, schema: Any = None) -> Any:
    """Return the integers, or raise an error if one is outside its bounds."""
    decryptor.check_own(numbers.keys)
    if numbers.form == ROWS:
        return _decrypt_rows(numbers, decryptor)
    values = decrypt_totals(numbers, decryptor)
    stored = [facts.stored for facts in numbers.facts]
    if numbers.lanes == 1:
        return join_parts(values, stored)
    of_lanes = [join_parts(values[lane :: numbers.lanes], stored) for lane in range(numbers.lanes)]
    return [number for total in zip(*of_lanes, strict=True) for number in total]


def decrypt_totals(numbers: EncryptedNumbers, decryptor: Decryptor) -> list[int]:
    """Return totals as they were computed, before digits are joined, and all lanes of each."""
    t = numbers.keys.parameters.plain_modulus
    sums = (
        _packed_sums(numbers, decryptor)
        if numbers.form == PACKED
        else _slot_sums(numbers, decryptor)
    )
    values, lanes = [], numbers.lanes
    of_sums = [facts for facts in numbers.facts for _ in range(lanes)]
    for index, (value, facts) in enumerate(zip(sums, of_sums, strict=True)):
        number = read_number(value, facts, t)
        if not facts.low <= number <= facts.high:
            raise ArgumentError(
                f"total {index // lanes} decrypts to {number}, outside its proven bounds "
                f"{facts.low} to {facts.high}: the result was altered, or belongs to another "
                "computation",
                code="outside-proven-range",
            )
        values.append(number)
    return values


def read_number(slot_sum: int, facts: NumberFacts, t: int) -> int:
    """Return the number, between -t/2 and t/2, of a total whose slots have this sum."""
    return centre((slot_sum + facts.offset) * pow(facts.factor, -1, t), t)


def _decrypt_rows(numbers: EncryptedNumbers, decryptor: Decryptor) -> NDArray[Any]:
    """Return an array (rows, numbers), or raise an error if padding holds something."""
    engine, t = numbers.keys.engine, numbers.keys.parameters.plain_modulus
    columns = []
    for index, facts in enumerate(numbers.facts):
        inverse, values = pow(facts.factor, -1, t), [np.zeros(0, dtype=object)]
        for count, part in zip(numbers.counts, numbers.chunks_of(index), strict=True):
            slots = engine.encoder.decode(decryptor.decrypt(ciphertext_of(engine, part.residues)))
            if slots[count:].any():
                raise ArgumentError(
                    f"number {index} is not 0 in slots without a row: the result was altered, or "
                    "belongs to another computation",
                    code="nonzero-padding",
                )
            values.append(slots[:count].astype(object))
        exact = (np.concatenate(values) + facts.offset) * inverse % t
        exact = np.where(exact > t // 2, exact - t, exact)
        outside = np.flatnonzero((exact < facts.low) | (exact > facts.high))
        if len(outside):
            raise ArgumentError(
                f"number {index} of row {outside[0]} decrypts to {exact[outside[0]]}, outside its "
                f"proven bounds {facts.low} to {facts.high}: the result was altered, or belongs to "
                "another computation",
                code="outside-proven-range",
            )
        columns.append(exact)
    return np.column_stack(columns)


def _packed_sums(totals: EncryptedNumbers, decryptor: Decryptor) -> list[int]:
    parameters, left, sums = totals.keys.parameters, totals.n_places, list[int]()
    for part in totals.parts:
        plain = decryptor.decrypt_packed(ciphertext_of(totals._engine, part.residues))
        sums += unpack(parameters, plain, min(left, totals.width))
        left -= totals.width
    return [sums[place] for place in totals.places]


def _slot_sums(totals: EncryptedNumbers, decryptor: Decryptor) -> list[int]:
    engine = totals._engine
    ciphertexts = (ciphertext_of(engine, part.residues) for part in totals.parts)
    return [
        total
        for ciphertext in ciphertexts
        for total in _sum_lanes(engine, decryptor.decrypt(ciphertext), totals.lanes)
    ]


def _sum_lanes(engine: Engine, plain: Any, lanes: int) -> list[int]:
    slots = engine.encoder.decode(plain).astype(object).reshape(-1, lanes)
    sums: list[int] = [int(total) for total in slots.sum(axis=0)]
    return sums


def _add_facts(a: NumberFacts, b: NumberFacts, sign: int) -> NumberFacts:
    low, high = (a.low + b.low, a.high + b.high) if sign > 0 else (a.low - b.high, a.high - b.low)
    stored = replace(a.stored, rest=a.stored.rest + b.stored.rest)
    return replace(a, low=low, high=high, offset=a.offset + sign * b.offset, stored=stored)


def _read_parts(data: bytes, noises: Sequence[Noise], engine: Engine) -> list[Part]:
    """Read the ciphertexts of a file."""
    start, parts = 0, []
    for noise in noises:
        length = engine.parameters.packed_bytes(noise.level)
        kept = engine.parameters.data_moduli[: len(engine.parameters.data_moduli) - noise.level]
        residues = residues_from_bytes(
            data[start : start + length], kept, engine.parameters.ring_degree
        )
        ciphertext_of(engine, residues)  # refuses malformed ciphertexts before decryption
        parts.append(Part(residues, noise))
        start += length
    if start != len(data):
        raise FileFormatError(
            "the residues of the results have the wrong length", code="wrong-residue-length"
        )
    return parts


def _check_stored(stored: Sequence[Stored], form: str) -> None:
    """Refuse digits that are out of order or of rows, and pairs that cannot be separated."""
    shifts = [one.shift for one in stored]
    good = all(not shift or before < shift <= _MAX_SHIFT for before, shift in pairwise(shifts))
    if not good or any(shifts[:1]) or (form == ROWS and any(one != WHOLE for one in stored)):
        raise FileFormatError(
            "the file has digits of numbers that cannot be joined", code="parts-not-joinable"
        )
    if any(one.rest < 0 or one.shift for one in stored if one.base) or any(
        2 * one.rest >= one.base for one in stored if one.base or one.rest
    ):
        raise FileFormatError(
            "the file has pairs of numbers that cannot be separated", code="pair-not-separable"
        )


def _list_facts(facts: NumberFacts) -> list[int]:
    stored = facts.stored
    return [
        facts.low,
        facts.high,
        facts.offset,
        facts.factor,
        stored.shift,
        stored.base,
        stored.rest,
    ]


def count_facts_bytes(facts: Sequence[NumberFacts], places: Sequence[int]) -> int:
    """Count the bytes of a file's facts and places."""
    return len(json.dumps([list(map(_list_facts, facts)), list(places)]))


def _read_facts(entry: Any, parameters: Parameters) -> NumberFacts:
    if not isinstance(entry, list) or [type(part) for part in entry] != [int] * 7:
        raise FileFormatError("the list of numbers is malformed", code="malformed-numbers")
    low, high, offset, factor, *stored = entry
    facts, most = NumberFacts(low, high, offset, factor, Stored(*stored)), parameters.max_value
    if (
        not -most <= facts.low <= facts.high <= most
        or not 0 < facts.factor < parameters.plain_modulus
    ):
        raise FileFormatError(
            f"the file states impossible bounds, {facts.low} to {facts.high}",
            code="impossible-bounds",
        )
    if facts.stored.base not in (0, parameters.pair_base):
        raise FileFormatError(
            "the file has pairs of numbers, and its parameters have none, or others",
            code="pair-base-mismatch",
        )
    return facts


def noise_from_json(entry: Any, model: NoiseModel) -> Noise:
    """Read the noise of a stored ciphertext; refuse it if the ciphertext could not decrypt."""
    if not isinstance(entry, list) or [type(part) for part in entry] != [float, float, int]:
        raise FileFormatError("the noise of the results is malformed", code="malformed-noise")
    flat, peak, level = entry
    if not (flat > 0 and peak >= 0 and 0 <= level < model.levels) or not model.decrypts(
        Noise(flat, peak, level)
    ):
        raise FileFormatError("the results have an impossible noise", code="impossible-noise")
    return Noise(flat, peak, level)
