"""A ring on a GPU: primes, twiddles and inverses, and operations on batches of its ciphertexts.

The steps are those of ``_native/residues.c``, with one difference: each step is done for a whole
batch of ciphertexts before the next, since a GPU is fast only with thousands of polynomials at a
time.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from encryptedstats.circuits.devices.cuda.gpu import Array, Gpu
from encryptedstats.circuits.expressions import Marks
from encryptedstats.circuits.program import InterleavedMarks
from encryptedstats.crypto.engine import in_copies
from encryptedstats.crypto.kernels import minimal_root, read_switching_keys
from encryptedstats.crypto.packing import packing_elements
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.crypto.residues import Residues, times_constant
from encryptedstats.errors import ArgumentError

_LONGEST: Final = 13  # log2 of what one block transforms
_MAX_DOUBLES: Final = 49  # bits of a prime
_THREADS: Final = 256
_WORK_BYTES: Final = 4 << 30  # of intermediate results of one batch
_U64 = np.uint64


class _Ring(ctypes.Structure):
    """The struct of kernels.cu."""

    _fields_ = (
        ("primes", ctypes.c_uint64),
        ("forward", ctypes.c_uint64),
        ("inverse", ctypes.c_uint64),
        ("inverses", ctypes.c_uint64),
        ("minus_inverse_t", ctypes.c_uint64),
        ("t", ctypes.c_uint64),
        ("logn", ctypes.c_int),
        ("logm", ctypes.c_int),
        ("n_primes", ctypes.c_int),
        ("special", ctypes.c_int),
    )


class Polys(ctypes.Structure):
    """The struct of kernels.cu."""

    _fields_ = (
        ("at", ctypes.c_uint64),
        ("item", ctypes.c_int64),
        ("each", ctypes.c_int64),
        ("places", ctypes.c_uint64),
    )


class _Which(ctypes.Structure):
    """The struct of kernels.cu."""

    _fields_ = (
        ("first", ctypes.c_int),
        ("step", ctypes.c_int),
        ("wrap", ctypes.c_int),
        ("lifted", ctypes.c_int),
        ("others", ctypes.c_int),
    )


NOTHING: Final = Polys(0, 0, 0, 0)
_int, _pointer = ctypes.c_int, ctypes.c_uint64


@dataclass(frozen=True)
class Key:
    """A key-switching key on the GPU, [target][digit][part], with the table of its automorphism."""

    words: Array
    digits: int
    table: Array | None = None


class GpuRing:
    """Tables of some parameters on a GPU, and modulus switching, packing and expanding of batches.

    Parameters
    ----------
    parameters : Parameters
        BGV.
    gpu : Gpu
    arithmetic : "doubles" or "integers", optional
        By default doubles on GPUs that are made for them, if all primes are below 2^49.
    """

    def __init__(self, parameters: Parameters, gpu: Gpu, arithmetic: str | None = None) -> None:
        self.parameters, self.gpu = parameters, gpu
        self.moduli = parameters.coefficient_moduli
        self.n, self.t = parameters.ring_degree, parameters.plain_modulus
        self.logn = self.n.bit_length() - 1
        small = max(self.moduli) >> _MAX_DOUBLES == 0
        self.arithmetic = arithmetic or ("doubles" if gpu.doubles and small else "integers")
        if self.arithmetic == "doubles" and not small:
            raise ArgumentError(
                "doubles are exact modulo primes below 2^49, and one of these is larger",
                code="primes-too-large",
            )
        longest = 14 if gpu.shared_bytes >= 9 << 14 and self.logn == 14 else _LONGEST
        self.logm = min(self.logn, longest)
        self._tables = [gpu.upload(table) for table in self._make_tables()]
        special = len(self.moduli) - 1
        self._ring = _Ring(
            *(table.pointer for table in self._tables[:5]),
            self.t,
            self.logn,
            self.logm,
            special,
            special,
        )
        self._factors: dict[tuple[int, ...], Array] = {}
        self._powers_of_x: dict[tuple[int, int], Array] = {}

    # -- tables
    # --------------------------------------------------------------------------------------------

    def _make_tables(self) -> list[np.ndarray]:
        forward, inverse, butterflies, unbutterflies = (list[Residues]() for _ in range(4))
        for p in self.moduli:
            root = minimal_root(p, 2 * self.n)
            for w, tables, plain in (
                (root, forward, butterflies),
                (pow(root, -1, p), inverse, unbutterflies),
            ):
                powers = _bit_reversed(_powers(w, self.n, p))
                pairs = _pairs(powers, p)
                plain.append(pairs)
                tables.append(
                    pairs
                    if self.arithmetic == "integers"
                    else centre_residues(powers, p).view(_U64)
                )
        inverses = [
            word
            for r in self.moduli
            for i, p in enumerate(self.moduli[:-1])
            for word in _factor(1 if r == p else pow(r, -1, p), p)
        ]
        plain_inverses = [
            word for r in self.moduli for word in _factor(-pow(r, -1, self.t) % self.t, self.t)
        ]
        return [
            np.array([word for p in self.moduli for word in prime_words(p, self.n)], dtype=_U64),
            np.concatenate(forward),
            np.concatenate(inverse),
            np.array(inverses, dtype=_U64),
            np.array(plain_inverses, dtype=_U64),
            np.concatenate(butterflies),
            np.concatenate(unbutterflies),
        ]

    @property
    def primes(self) -> Array:
        """The primes, as kernels read them."""
        return self._tables[0]

    @cached_property
    def _plain_ring(self) -> _Ring:
        """The ring modulo t, for encoding: one prime, and the inverse transform."""
        powers = _bit_reversed(
            _powers(pow(minimal_root(self.t, 2 * self.n), -1, self.t), self.n, self.t)
        )
        words = np.array(prime_words(self.t, self.n), dtype=_U64), _pairs(powers, self.t)
        prime, inverse = (self.gpu.upload(some) for some in words)
        self._tables += [prime, inverse]
        return _Ring(prime.pointer, 0, inverse.pointer, 0, 0, self.t, self.logn, self.logm, 1, 0)

    @cached_property
    def _exponents_of_slots(self) -> np.ndarray:
        """The powers of a root modulo t at which a polynomial has the values of its slots: powers
        of 3, and their negatives.
        """
        order, exponents, power = 2 * self.n, np.empty(self.n, dtype=np.int64), 1
        for i in range(self.n // 2):
            exponents[i], exponents[self.n // 2 + i] = power, order - power
            power = power * 3 % order
        return exponents

    @cached_property
    def _places_of_slots(self) -> np.ndarray:
        """Where SEAL's encoder puts each slot."""
        found: np.ndarray = _reversed_numbers(self.n)[(self._exponents_of_slots - 1) >> 1].astype(
            np.int32
        )
        return found

    @cached_property
    def _powers_modulo_t(self) -> Residues:
        """All powers of the root modulo t."""
        return _powers(minimal_root(self.t, 2 * self.n), 2 * self.n, self.t)

    def factors(self, numbers: Sequence[int]) -> Array:
        """Return numbers to multiply by, one for each of the first primes."""
        key = tuple(numbers)
        if key not in self._factors:
            words = [
                word
                for f, p in zip(numbers, self.moduli, strict=False)
                for word in _factor(f % p, p)
            ]
            self._factors[key] = self.gpu.upload(np.array(words, dtype=_U64))
        return self._factors[key]

    def key(self, residues: Residues, element: int = 0) -> Key:
        """Return a key of shape (digits, 2, primes, N), divided by the special prime under the
        others.
        """
        digits = len(residues)
        special = self.moduli[-1]
        moduli = [*self.moduli[:digits], special]
        factors = [pow(special, -1, p) for p in moduli[:-1]] + [1]
        words = times_constant(residues, factors, moduli).transpose(2, 0, 1, 3)
        table = None if not element else self.gpu.upload(automorphism_table(self.n, element))
        return Key(self.gpu.upload(words), digits, table)

    # -- transforms
    # --------------------------------------------------------------------------------------------

    def transform(self, polynomials: Residues, prime: int, *, inverse: bool = False) -> Residues:
        """Apply the NTT to polynomials, (..., N), modulo one prime."""
        x = self.gpu.upload(polynomials.reshape(-1, self.n))
        out = self.gpu.empty(*x.shape)
        run = self.inverse if inverse else self.forward
        run(self._all(x), self._all(out), len(x), 1, first=prime)
        return self.gpu.download(out).reshape(polynomials.shape)

    def _all(self, array: Array) -> Polys:
        return Polys(array.pointer, self.n, self.n, 0)

    def forward(
        self,
        src: Polys,
        out: Polys,
        items: int,
        count: int,
        *,
        first: int = 0,
        base: Polys = NOTHING,
        factors: Array | None = None,
        wrap: int = 0,
        lifted: int = 0,
        others: bool = False,
    ) -> None:
        """Apply the NTT to ``count`` polynomials of every item, or compute base factor - NTT.

        ``wrap``: the first prime again after so many polynomials; ``lifted``: so many digits under
        all targets, or those of ``others``.
        """
        which = _Which(first, 1, wrap, lifted, int(others))
        if self.logm < self.logn:
            self._outer(
                f"forward_first_{self.arithmetic}", items, count, (self._ring, src, out, which)
            )
        by = _pointer(0 if factors is None else factors.pointer)
        self._inner(
            f"forward_{self.arithmetic}", items, count, (self._ring, src, out, base, by, which)
        )

    def inverse(
        self,
        src: Polys,
        out: Polys,
        items: int,
        count: int,
        *,
        first: int = 0,
        step: int = 1,
        pending: Polys = NOTHING,
        factors: Array | None = None,
        plain: bool = False,
    ) -> None:
        """Apply the inverse NTT to ``count`` polynomials of every item, or compute factor INTT -
        pending.

        ``plain`` works modulo t.
        """
        which, by = (
            _Which(first, step, 0, 0, 0),
            _pointer(0 if factors is None else factors.pointer),
        )
        ring, arithmetic = (
            (self._plain_ring, "integers") if plain else (self._ring, self.arithmetic)
        )
        self._inner(f"inverse_{arithmetic}", items, count, (ring, src, out, pending, by, which))
        if self.logm < self.logn:
            self._outer(f"inverse_last_{arithmetic}", items, count, (ring, out, pending, by, which))

    def _inner(self, name: str, items: int, count: int, args: Sequence[Any]) -> None:
        grid = (items << (self.logn - self.logm), count, 1)
        threads = max(32, min(256, 1 << (self.logm - 3)))
        self.gpu.launch(name, grid, threads, args, shared=9 << self.logm)

    def _outer(self, name: str, items: int, count: int, args: Sequence[Any]) -> None:
        self.gpu.launch(name, ((1 << self.logm) // _THREADS, count, items), _THREADS, args)

    def _each(self, name: str, y: int, z: int, args: Sequence[Any]) -> None:
        self.gpu.launch(name, (self.n // _THREADS, y, z), _THREADS, (self._ring, *args))

    # -- modulus switching and relinearisation
    # --------------------------------------------------------------------------------------------

    def lower(
        self,
        sums: Array,
        places: Sequence[int],
        size: int,
        levels: tuple[int, int, int],
        key: Key | None,
        out: Array,
        out_places: Sequence[int],
    ) -> None:
        """Switch ciphertexts down, relinearise them with the key, and switch on, in batches.

        Parameters
        ----------
        sums : words of shape (polynomials, primes, N)
        places : the first polynomial of each ciphertext
        size : polynomials of each
        levels : primes that they are under, are relinearised at, and end under
        key : None where they are not relinearised
        out : words of shape (items, polynomials, primes, N)
        out_places : which item each becomes
        """
        start, at, _ = levels
        each = 8 * self.n * (2 * size * start + (at + 1) * (at + 4))
        most = max(1, _WORK_BYTES // each)
        for begin in range(0, len(places), most):
            some, ends = places[begin : begin + most], out_places[begin : begin + most]
            self._lower(sums, some, size, levels, key, out, ends)

    def _lower(
        self,
        sums: Array,
        places: Sequence[int],
        size: int,
        levels: tuple[int, int, int],
        key: Key | None,
        out: Array,
        ends: Sequence[int],
    ) -> None:
        (start, at, to), n, items = levels, self.n, len(places)
        at = to if key is None or size == 2 else at
        where = self.gpu.upload(np.array(places, dtype=np.int32))
        finally_at = self.gpu.upload(np.array(ends, dtype=np.int32))
        values, kept = (
            Polys(sums.pointer, start * n, start * n, where.pointer),
            size,
        )  # places count polynomials
        out_polys = Polys(out.pointer, math.prod(out.shape[1:]), to * n, finally_at.pointer)
        pending, has = self.gpu.empty(items, size, at, n), start > at
        factors = self.factors(self._drop_factors(start, at)) if has else None
        if has:
            self._drop(values, pending, items, size, start, at)
        if key is not None and size > 2:
            made = self._relinearise(values, pending, items, size, at, key, factors, has)
            values, kept, factors, has = _polys(made), 2, None, True
        if at > to:
            after = self.gpu.empty(items, kept, to, n)
            self._drop(values, after, items, kept, at, to, pending)
            pending, factors = after, self.factors(self._drop_factors(at, to))
        for c in range(kept):
            base, end = _with_each(_part(values, c), n), _with_each(_part(out_polys, c), n)
            if has:
                left = _with_each(_part(_polys(pending), c), n)
                self.forward(left, end, items, to, base=base, factors=factors)
            else:
                self._scale(_part(values, c), _part(out_polys, c), items, to, None)

    def _drop(
        self,
        values: Polys,
        out: Array,
        items: int,
        size: int,
        start: int,
        to: int,
        pending: Array | None = None,
    ) -> None:
        """Compute what is to be subtracted when primes are dropped."""
        n, gone = self.n, start - to
        x = self.gpu.empty(items, size, gone, n)
        for c in range(size):
            src = _with_each(_part(values, c), n)
            src.at += 8 * to * n
            self.inverse(src, _with_each(_part(_polys(x), c), n), items, gone, first=to)
        factors = self.factors(self._drop_factors(start, to))
        before = NOTHING if pending is None else _polys(pending)
        has = _int(int(pending is not None))
        self._each(
            "drop", size, items,
            (_polys(x), before, _polys(out), _pointer(factors.pointer), _int(start), _int(to), has),
        )  # fmt: skip

    def _drop_factors(self, start: int, to: int) -> list[int]:
        """Return the factors of residues when the primes from ``start`` down to ``to``
        are dropped.
        """
        found = []
        for i, p in enumerate(self.moduli[:start]):
            factor = 1
            for s in range(max(i + 1, to), start):
                factor = factor * pow(self.moduli[s], -1, p) % p
            found.append(factor)
        return found

    def _relinearise(
        self,
        src: Polys,
        pending: Array,
        items: int,
        size: int,
        at: int,
        key: Key,
        factors: Array | None,
        has: bool,
    ) -> Array:
        """Return the values of two polynomials; what must be subtracted from them is pending in the
        first two.
        """
        n = self.n
        values = self.gpu.empty(items, size, at, n)
        touched = [False] * size
        waits = [has] * size
        for c in range(size - 1, 1, -1):
            top = _with_each(_part(_polys(values) if touched[c] else src, c), n)
            digits = self.gpu.empty(items, at, n)
            self.inverse(
                top, _with_each(_polys(digits), n), items, at,
                pending=_with_each(_part(_polys(pending), c), n) if waits[c] else NOTHING,
                factors=None if touched[c] else factors,
            )  # fmt: skip
            bases = []
            for k in (c - 2, c - 1):
                bases.append(
                    (_part(_polys(values), k), None) if touched[k] else (_part(src, k), factors)
                )
            if (
                touched[c - 2] != touched[c - 1]
            ):  # a batch has one rule: what is not yet there is brought there
                self._scale(bases[0][0], _part(_polys(values), c - 2), items, at, factors)
                touched[c - 2], bases[0] = True, (_part(_polys(values), c - 2), None)
            base = bases[0][0]
            self._switch(
                digits, key, items, at, base, bases[0][1],
                _part(_polys(values), c - 2), _part(_polys(pending), c - 2),
                (waits[c - 2], waits[c - 1]),
                own=top if not waits[c] and (touched[c] or factors is None) else NOTHING,
            )  # fmt: skip
            touched[c - 2] = touched[c - 1] = waits[c - 2] = waits[c - 1] = True
        return values

    def _scale(
        self, src: Polys, out: Polys, items: int, primes: int, factors: Array | None
    ) -> None:
        by = _pointer(0 if factors is None else factors.pointer)
        self._each("scaled", primes, items, (src, out, by, _int(primes), _pointer(0)))

    def _switch(
        self,
        digits: Array,
        key: Key,
        items: int,
        at: int,
        base: Polys,
        factors: Array | None,
        out: Polys,
        pending: Polys,
        add: tuple[bool, bool],
        own: Polys = NOTHING,
    ) -> None:
        """Add two neighbouring polynomials to the key's products of digits, less what is pending.

        ``own`` holds the digits before they were transformed back, where they are nothing else:
        each under its own prime.
        """
        n, gpu = self.n, self.gpu
        lifted, special = gpu.empty(items, (at + 1) * at, n), gpu.empty(items, 2, n)
        known = bool(own.at)
        self.forward(
            _with_each(_polys(digits), n), _with_each(_polys(lifted), n), items,
            (at + 1 - known) * at, lifted=at, others=known,
        )  # fmt: skip
        by = _pointer(0 if factors is None else factors.pointer)
        groups = -(-items // 4)
        self._each(
            "accumulate", at + 1, groups,
            (_polys(lifted), own, _pointer(key.words.pointer), _int(at), _int(key.digits), base, by,
             out, _polys(special), _int(items)),
        )  # fmt: skip
        coefficients = gpu.empty(items, 2, n)
        self.inverse(
            _polys(special), _polys(coefficients), items, 2, first=len(self.moduli) - 1, step=0
        )
        self._each(
            "drop_special",
            2,
            items,
            (_polys(coefficients), pending, _int(at), _int(int(add[0])), _int(int(add[1]))),
        )

    # -- single ciphertexts, (size, primes, N)
    # -----------------------------------------------------------------------------

    def reduce(self, value: Array, to: int, key: Key | None = None) -> Array:
        """Switch down to so many primes and, with the key, relinearise in place."""
        size, primes, _ = value.shape
        kept = size if key is None else 2
        if (size, primes) == (kept, to):
            return value
        out = self.gpu.empty(1, kept, to, self.n)
        self._lower(value, [0], size, (primes, to, to), key, out, [0])
        return out[0]

    def rotate(self, value: Array, key: Key) -> Array:
        """Rotate slots."""
        node = value.reshape(1, *value.shape)
        return self._automorphism(key, node, 1, pairs=False, moved=None, base=False, level=0)[0]

    def multiply(self, a: Array, b: Array) -> Array:
        """Return the product, also with a single polynomial."""
        primes = a.shape[1]
        out = self.gpu.empty(len(a) + len(b) - 1, primes, self.n)
        words = (
            _pointer(a.pointer),
            _int(len(a)),
            _pointer(b.pointer),
            _int(len(b)),
            _pointer(out.pointer),
        )
        self._each("multiplied", primes, 1, (*words, _int(primes)))
        return out

    def combine(self, terms: Sequence[tuple[int, Array]], constant: int) -> Array:
        """Return a linear combination plus a constant in all slots, of numbers modulo t as SEAL
        lifts them.
        """
        primes, size = terms[0][1].shape[1], max(len(value) for _, value in terms)
        numbers = [*(c for c, _ in terms), constant]
        by = [
            word
            for c in numbers
            for p in self.moduli[:primes]
            for word in _factor(self._lift(c) % p, p)
        ]
        words = [*(value.pointer for _, value in terms), *(len(value) for _, value in terms), *by]
        arguments = self.gpu.upload(np.array(words, dtype=_U64))
        out = self.gpu.empty(size, primes, self.n)
        pointers = _pointer(arguments.pointer), _pointer(out.pointer)
        self._each("combined", size * primes, 1, (*pointers, _int(len(terms)), _int(primes)))
        return out

    def shift(self, value: Array, power: int) -> Array:
        """Multiply by a power of X below N."""
        primes = value.shape[1]
        if (power, primes) not in self._powers_of_x:
            coefficients = np.zeros((1, primes, self.n), dtype=_U64)
            coefficients[..., power] = 1
            there, out = self.gpu.upload(coefficients), self.gpu.empty(1, primes, self.n)
            self.forward(_polys(there), _polys(out), 1, primes)
            self._powers_of_x[power, primes] = out
        return self.multiply(value, self._powers_of_x[power, primes])

    def _lift(self, number: int) -> int:
        """Lift a number modulo t as SEAL lifts a plaintext, after its sign was removed."""
        size = abs(number) % self.t
        size = size - self.t if 2 * size > self.t else size
        return size if number >= 0 else -size

    def encode(self, marks: Marks | InterleavedMarks, primes: int) -> Array:
        """Return the polynomial with 1 or a weight in marked slots and 0 in others, (1,
        primes, N).
        """
        gpu, n = self.gpu, self.n
        coefficients = gpu.empty(1, 1, n)
        if type(marks) is Marks and self.parameters.copies == 1:
            values = self._mark(marks.slots)
        else:
            values = self._weight(
                marks.parts if isinstance(marks, InterleavedMarks) else [(marks, 0)]
            )
        self.inverse(_polys(values), _polys(coefficients), 1, 1, plain=True)
        lifted, out = gpu.empty(1, primes, n), gpu.empty(1, primes, n)
        self._each("lifted", primes, 1, (_pointer(coefficients.pointer), _pointer(lifted.pointer)))
        self.forward(_polys(lifted), _polys(out), 1, primes)
        return out

    def _mark(self, slots: np.ndarray) -> Array:
        gpu, count = self.gpu, len(slots)
        where, values = gpu.upload(self._places_of_slots[slots]), gpu.empty(1, 1, self.n)
        gpu.clear(values)
        args = _pointer(values.pointer), _pointer(where.pointer), _int(count)
        gpu.launch("marked", (-(-count // _THREADS), 1, 1), _THREADS, args)
        return values

    def _weight(self, parts: Sequence[tuple[Marks, int]]) -> Array:
        """Add up weights in slots, each multiplied by a power of X."""
        parameters, slots = self.parameters, np.zeros(self.n, dtype=np.uint64)
        for marks, power in parts:
            factors = in_copies(marks.in_slots(parameters.slots, self.t), parameters.copies)
            (there,) = np.nonzero(factors)
            exponents = self._exponents_of_slots[there] * power % (2 * self.n)
            products = factors[there].astype(object) * self._powers_modulo_t[exponents] % self.t
            slots[there] = (slots[there] + products.astype(np.uint64)) % np.uint64(self.t)
        values = np.zeros((1, 1, self.n), dtype=np.uint64)
        values[0, 0, self._places_of_slots] = slots
        return self.gpu.upload(values)

    # -- packs
    # --------------------------------------------------------------------------------------------

    def _automorphism(
        self,
        key: Key,
        nodes: Array,
        items: int,
        *,
        pairs: bool,
        moved: Array | None,
        base: bool,
        level: int,
    ) -> Array:
        """Apply the automorphism to the difference of nodes or pairs of them: see ``turn`` in
        kernels.cu.
        """
        primes, n, gpu = nodes.shape[2], self.n, self.gpu
        value, top = gpu.empty(items, 2, primes, n), gpu.empty(items, primes, n)
        assert key.table is not None
        whole = Polys(top.pointer, primes * n, 0, 0)
        self._each(
            "turn", primes, items,
            (_pointer(self._tables[5].pointer), _polys(nodes), _int(int(pairs)), _int(len(nodes)),
             NOTHING if moved is None else _polys(moved), _pointer(key.table.pointer),
             _int(int(base)), _int(level), _polys(value), whole),
        )  # fmt: skip
        digits = gpu.empty(items, primes, n)
        self.inverse(_with_each(_polys(top), n), _with_each(_polys(digits), n), items, primes)
        pending, out = gpu.empty(items, 2, primes, n), gpu.empty(items, 2, primes, n)
        self._switch(
            digits, key, items, primes, _polys(value), None, _polys(value), _polys(pending),
            (False, False), own=_with_each(_polys(top), n),
        )  # fmt: skip
        pending_polys, out_polys, values = (
            _with_each(_polys(array), n) for array in (pending, out, value)
        )
        self.forward(pending_polys, out_polys, items, 2 * primes, base=values, wrap=primes)
        return out

    def pack(
        self,
        nodes: Array,
        keys: Sequence[Sequence[Key]],
        level: int = 0,
        to: int | None = None,
        start: int = 0,
    ) -> Array:
        """Merge parts of a pack of 2^level places each, (parts, 2, primes, N), into one of 2^to.

        Those of level ``start`` are totals, 2^start of them interleaved in each.
        """
        nodes = nodes if level > start else self._divide_by_doublings(nodes, start)
        for above in range(level + 1, (self.logn if to is None else to) + 1):
            nodes = self._merge(nodes, keys[above - 1], above)
        return nodes

    def _merge(self, nodes: Array, keys: Sequence[Key], level: int) -> Array:
        items, moved = -(-len(nodes) // 2), None
        for key in keys[:-1]:
            moved = self._automorphism(
                key, nodes, items, pairs=True, moved=moved, base=False, level=level
            )
        return self._automorphism(
            keys[-1], nodes, items, pairs=True, moved=moved, base=True, level=level
        )

    def _divide_by_doublings(self, nodes: Array, start: int) -> Array:
        """Divide by 2 modulo every prime for each level from ``start`` to a whole pack."""
        primes = nodes.shape[2]
        out = self.gpu.empty(*nodes.shape)
        by = self.factors([pow(self.n >> start, -1, p) for p in self.moduli[:primes]])
        self._each(
            "scaled",
            2 * primes,
            len(nodes),
            (_polys(nodes), _polys(out), _pointer(by.pointer), _int(primes), _pointer(0)),
        )
        return out

    def expand(
        self,
        node: Array,
        count: int,
        levels: tuple[int, int, int],
        keys: Sequence[Sequence[Key]],
    ) -> Array:
        """Expand a node of 2^level places into nodes of 2^lowest, for the first ``count`` places.

        ``levels``: the level, the lowest one, and the one that totals have, of which 2^start are
        interleaved.
        """
        level, lowest, start = levels
        nodes = Array(self.gpu, node.pointer, (1, *node.shape), node)
        if level == self.logn:
            nodes = self._divide_by_doublings(nodes, start)
        while level > lowest:
            nodes = self._part_nodes(nodes, -(-count >> (level - 1)), keys[level - 1], level)
            level -= 1
        return nodes

    def _part_nodes(self, nodes: Array, wanted: int, keys: Sequence[Key], level: int) -> Array:
        moved = None
        for key in keys:
            moved = self._automorphism(
                key, nodes, len(nodes), pairs=False, moved=moved, base=False, level=level
            )
        assert moved is not None
        primes, each = nodes.shape[2], 2 * nodes.shape[2] * self.n
        out = self.gpu.empty(2 * len(nodes), *nodes.shape[1:])
        even = Polys(out.pointer, 2 * each, nodes.shape[2] * self.n, 0)
        odd = Polys(out.pointer + 8 * each, 2 * each, nodes.shape[2] * self.n, 0)
        self._each(
            "split", 2 * primes, len(nodes),
            (_pointer(self._tables[6].pointer), _polys(nodes), _polys(moved), even, odd,
             _int(wanted // 2), _int(level), _int(primes)),
        )  # fmt: skip
        return out.first(wanted)


def relinearisation_key(ring: GpuRing, seal_keys: Any) -> Key:
    """Return the key for s^2."""
    keys = dict(read_switching_keys(seal_keys.to_string(), ring.n))
    return ring.key(keys[0])


def rotation_keys(ring: GpuRing, seal_keys: Any) -> dict[int, Key]:
    """Return the rotation keys by their automorphisms."""
    found = read_switching_keys(seal_keys.to_string(), ring.n)
    return {2 * i + 1: ring.key(residues, 2 * i + 1) for i, residues in found}


def packing_keys(ring: GpuRing, seal_keys: Any) -> list[list[Key]]:
    """Return the keys of the automorphisms of every level of packing."""
    keys = dict(read_switching_keys(seal_keys.to_string(), ring.n))
    groups = packing_elements(ring.n)
    made = {g: ring.key(keys[(g - 1) // 2], g) for group in groups.values() for g in group}
    return [[made[g] for g in groups[level]] for level in sorted(groups)]


# -- where polynomials lie
# ------------------------------------------------------------------------------------------------


def _polys(array: Array) -> Polys:
    """Describe an array (items, polynomials, ...) by its second axis."""
    each = math.prod(array.shape[2:])
    return Polys(array.pointer, array.shape[1] * each, each, 0)


def _part(polys: Polys, number: int) -> Polys:
    """Return the polynomials from one on."""
    return Polys(polys.at + 8 * polys.each * number, polys.item, polys.each, polys.places)


def _with_each(polys: Polys, each: int) -> Polys:
    return Polys(polys.at, polys.item, each, polys.places)


# -- numbers
# ------------------------------------------------------------------------------------------------


def prime_words(p: int, n: int) -> list[int]:
    """Return the struct Prime of arithmetic.h."""
    bits, scale = p.bit_length(), pow(n, -1, p)
    return [
        p,
        (1 << (63 + bits)) // p,
        ((1 << 64) - 1) // p,
        bits,
        *(int(np.float64(x).view(_U64)) for x in (float(p), 1.0 / float(p))),
        *_factor(scale, p),
        int(np.float64(scale - p if scale > p // 2 else scale).view(_U64)),
        int(np.float64(1.5 * 2.0 ** (bits + 52)).view(_U64)),
    ]


def _factor(w: int, p: int) -> tuple[int, int]:
    return w, (w << 64) // p


def quotients(factors: Residues, p: int) -> Residues:
    """Return floor(2^64 w / p) of each factor."""
    return np.array([(int(w) << 64) // p for w in factors], dtype=_U64)


def _pairs(factors: Residues, p: int) -> Residues:
    return np.stack([factors, quotients(factors, p)], axis=1).reshape(-1)


def centre_residues(residues: Residues, p: int) -> np.ndarray:
    """Return residues as doubles between -p/2 and p/2."""
    signed = residues.astype(np.int64)
    return np.where(signed > p // 2, signed - p, signed).astype(np.float64)


def _powers(w: int, n: int, p: int) -> Residues:
    found, power = np.empty(n, dtype=_U64), 1
    for i in range(n):
        found[i] = power
        power = power * w % p
    return found


def _reversed_numbers(n: int) -> np.ndarray:
    found = np.zeros(n, dtype=np.int64)
    for i in range(n.bit_length() - 1):
        found |= ((np.arange(n) >> i) & 1) << (n.bit_length() - 2 - i)
    return found


def _bit_reversed(values: Residues) -> Residues:
    found: Residues = values[_reversed_numbers(len(values))]
    return found


def automorphism_table(n: int, element: int) -> np.ndarray:
    """Return where X -> X^element finds the content of each place of a polynomial in NTT form."""
    places = _reversed_numbers(n)
    exponents = element * (2 * places + 1) % (2 * n)
    found: np.ndarray = places[exponents >> 1].astype(np.int32)
    return found
