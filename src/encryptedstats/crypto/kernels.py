"""Key switching on arrays of residues: modulus switching, relinearisation, rotation, packing and
expanding, as SEAL does them but many times faster.

A compiled extension, ``_native/residues.c``, does the work; this module reads keys out of SEAL's
bytes and shares the work among threads. It handles public data only. Every result equals SEAL's,
residue for residue. :func:`make_kernels` returns None where there are no kernels (BFV, or the
extension was not built). ``ENCRYPTEDSTATS_CPU`` (baseline, avx2, avx512 or ifma; on ARM baseline or
neon) limits the instructions that the kernels use.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import contextmanager
from functools import cached_property, lru_cache, partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.crypto.packing import (
    NO_PACKING_KEYS,
    packing_elements,
    packing_levels,
    packing_primes,
)
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.crypto.residues import Residues
from encryptedstats.errors import ArgumentError, KeyMismatchError
from encryptedstats.machine import CPU_LEVELS, cores, cpu_level, thread_pool

try:
    from encryptedstats import _residues
except ImportError:  # not built: SEAL does everything
    _residues = None  # type: ignore[assignment]  # the one place that has to know

_KEY_PREFIX_BYTES: Final = 16 + 32  # SEAL's header, and the identifier of the parameters
_DIGIT_HEADER_BYTES: Final = 113  # of a ciphertext, which a digit of a key is


def make_kernels(
    parameters: Parameters, relinearisation: Any, packing: Any, rotation: Any = None
) -> Kernels | None:
    """Return the kernels for these keys, or None for BFV and where the extension was not built."""
    if _residues is None or parameters.scheme != "bgv":
        return None
    return Kernels(parameters, relinearisation, packing, cpu_level(), rotation)


def has_extension() -> bool:
    return _residues is not None


class Kernels:
    """Key switching with one set of public keys.

    Parameters
    ----------
    parameters : Parameters
        BGV.
    relinearisation, packing : SEAL's keys
        Read on first use and kept in the layout of the kernels. ``packing`` may be None.
    cpu : "baseline", "avx2", "avx512" or "ifma"; on ARM "baseline" or "neon"
    rotation : SEAL's keys, optional
        For rotations of slots.
    """

    def __init__(
        self,
        parameters: Parameters,
        relinearisation: Any,
        packing: Any,
        cpu: str = CPU_LEVELS[-1],
        rotation: Any = None,
    ) -> None:
        self.parameters = parameters
        self._ring = _ring(parameters, cpu)
        self._seal_relinearisation = relinearisation
        self._seal_packing = packing
        self._seal_rotation = rotation
        self._memory: list[Any] = []  # what nobody works in at the moment

    @property
    def arithmetic(self) -> str:
        """The arithmetic in use: "integers" or "ifma", or "avx2", "avx512" or "neon" for doubles,
        which need all primes below 2^50.
        """
        return _residues.way(self._ring)

    # -- keys
    # --------------------------------------------------------------------------------------------

    @cached_property
    def _relinearisation(self) -> Any:
        keys = dict(
            read_switching_keys(self._seal_relinearisation.to_string(), self.parameters.ring_degree)
        )
        return _residues.key(self._ring, keys[0], len(keys[0]), 0)

    @cached_property
    def _packing(self) -> tuple[tuple[Any, ...], ...]:
        """The keys of the automorphisms of every level of packing."""
        if self._seal_packing is None:
            raise KeyMismatchError(NO_PACKING_KEYS, code="no-packing-keys")
        keys, groups = (
            self._automorphism_keys(self._seal_packing),
            packing_elements(self.parameters.ring_degree),
        )
        return tuple(tuple(keys[g] for g in groups[level]) for level in sorted(groups))

    @cached_property
    def _rotation(self) -> dict[int, Any]:
        """The rotation keys by automorphism."""
        return {} if self._seal_rotation is None else self._automorphism_keys(self._seal_rotation)

    def _automorphism_keys(self, keys: Any) -> dict[int, Any]:
        """Read one at a time: those of rotations are half a gigabyte and more together."""
        found = read_switching_keys(keys.to_string(), self.parameters.ring_degree)
        return {2 * i + 1: _residues.key(self._ring, one, len(one), 2 * i + 1) for i, one in found}

    def prepare(self, *, rotations: bool = False) -> None:
        """Read the keys now: processes that begin later inherit them."""
        _ = self._relinearisation, self._rotation if rotations else None

    # -- one ciphertext
    # --------------------------------------------------------------------------------------------

    def switch(self, residues: Residues, level: int) -> Residues:
        """Switch a ciphertext of any size down to a level, as SEAL's ``mod_switch_to`` does."""
        to = self._primes(level)
        out = np.empty((len(residues), to, self.parameters.ring_degree), dtype=np.uint64)
        with self._scratch(residues.shape[1]) as scratch:
            self._lower(None, residues, to, to, out, scratch)
        return out

    def relinearise(self, residues: Residues) -> Residues:
        """Relinearise a ciphertext of any size to two polynomials, at its level."""
        primes = residues.shape[1]
        out = np.empty((2, primes, self.parameters.ring_degree), dtype=np.uint64)
        with self._scratch(primes) as scratch:
            self._lower(self._relinearisation, residues, primes, primes, out, scratch)
        return out

    def apply_galois(self, residues: Residues, element: int) -> Residues:
        """Apply the automorphism X -> X^element to a ciphertext of the packing context."""
        groups = packing_elements(self.parameters.ring_degree)
        places = {g: (level, i) for level, group in groups.items() for i, g in enumerate(group)}
        level, i = places[element]
        return self._automorphism(self._packing[level - 1][i], residues)

    def rotate(self, residues: Residues, step: int) -> Residues:
        """Rotate slots to the left within both half rows. Step 0 swaps the half rows."""
        return self._automorphism(
            self._rotation[galois_element(self.parameters.ring_degree, step)], residues
        )

    def multiply_and_sum(
        self, ciphertexts: Sequence[Residues], plaintexts: Sequence[NDArray[np.uint64]]
    ) -> Residues:
        """Return the sum of products of ciphertexts, (2, primes, N), with plaintexts of N
        coefficients modulo t.
        """
        out, primes = np.empty(ciphertexts[0].shape, dtype=np.uint64), ciphertexts[0].shape[1]
        if any(residues.shape != out.shape for residues in ciphertexts):
            raise ArgumentError(
                "ciphertexts of different shapes are not added up", code="different-shapes"
            )
        words, plains = tuple(map(_words, ciphertexts)), tuple(map(_words, plaintexts))
        with self._scratch(len(self.parameters.data_moduli)) as scratch:
            _residues.masked(self._ring, primes, words, plains, out, scratch)
        return out

    def transform(self, polynomials: Residues, prime: int, *, inverse: bool = False) -> Residues:
        """Apply the number-theoretic transform to polynomials, (..., N), modulo one prime, in
        SEAL's order.
        """
        out = np.empty(polynomials.shape, dtype=np.uint64)
        with self._scratch(1) as scratch:
            _residues.transform(self._ring, prime, int(inverse), _words(polynomials), out, scratch)
        return out

    # -- totals
    # --------------------------------------------------------------------------------------------

    def lower(
        self,
        totals: Sequence[Residues],
        relinearise_at: int | Sequence[int],
        threads: int | None = None,
    ) -> Residues:
        """Switch totals down, relinearise them, and switch them to the primes of the packing
        context.

        The result has shape (totals, 2, primes, N).

        Parameters
        ----------
        totals : ciphertexts of any sizes and levels
        relinearise_at : level, or one for each
        threads : int, optional
            All cores by default.
        """
        to = packing_primes(self.parameters)
        levels = (
            [relinearise_at] * len(totals)
            if isinstance(relinearise_at, int)
            else list(relinearise_at)
        )
        if len(levels) != len(totals):
            raise ArgumentError(
                f"{len(levels)} levels for {len(totals)} totals", code="level-count-mismatch"
            )
        out = np.empty((len(totals), 2, to, self.parameters.ring_degree), dtype=np.uint64)
        key = self._relinearisation if totals else None

        def work(indices: Iterator[int]) -> None:
            with self._scratch(len(self.parameters.data_moduli)) as scratch:
                for i in indices:
                    self._lower(key, totals[i], self._primes(levels[i]), to, out[i], scratch)

        _share(work, len(totals), threads)
        return out

    def pack(
        self,
        totals: Sequence[Residues],
        levels: int | None = None,
        lowest: int = 0,
        threads: int | None = None,
        *,
        start: int = 0,
    ) -> Residues:
        """Merge lowered totals into one ciphertext of the packing context.

        See :func:`encryptedstats.crypto.packing.pack`. ``levels`` stops early, for totals that are
        a part of a larger pack. With ``lowest`` the inputs are such parts, or 2^start interleaved
        totals.
        """
        top = self.parameters.ring_degree.bit_length() - 1
        levels = top if levels is None else levels
        if not 0 <= lowest <= levels <= top or not 1 <= len(totals) <= 1 << (levels - lowest):
            raise ArgumentError(
                f"{len(totals)} totals: one ciphertext holds 1 to {self.parameters.ring_degree}",
                code="totals-out-of-range",
            )
        threads = cores() if threads is None else threads
        if threads < 2 or len(totals) < 3:
            return self._pack(totals, levels, lowest, start)
        # First subtrees, a few for every thread so that all end at about the same time, then one
        # level of merges after the other.
        below = max(1, packing_levels(len(totals)) - packing_levels(8 * threads))
        nodes, level = totals, lowest
        pool = thread_pool(threads)
        for to in range(lowest + below, levels):
            if len(nodes) == 1:
                break
            apart = 1 << (to - level)
            parts = [nodes[first : first + apart] for first in range(0, len(nodes), apart)]
            nodes = list(pool.map(partial(self._pack, level=to, lowest=level, start=start), parts))
            level = to
        return self._pack(nodes, levels, level, start)

    # -- totals out of a pack
    # --------------------------------------------------------------------------------------------

    def split(
        self, node: Residues, level: int, *, odd: bool = True, start: int = 0
    ) -> Sequence[Residues]:
        """Split a node into the node of its first totals and (``odd``) the node of the others.

        See :meth:`expand`.
        """
        return list(
            self.expand(
                node, 1 << (level if odd else level - 1), level, level - 1, threads=1, start=start
            )
        )

    def expand(
        self,
        node: Residues,
        count: int,
        level: int,
        lowest: int = 0,
        *,
        threads: int | None = None,
        out: Residues | None = None,
        start: int = 0,
    ) -> Residues:
        """Split a node of 2^level places into nodes of 2^lowest: the inverse of :meth:`pack`.

        The result has shape (nodes, 2, primes, N). With ``lowest`` 0 there is one node for each
        total, in order, as a constant polynomial, so that all slots hold it: the total itself for a
        whole pack, of level log2 N, and 2^level times the total for a part of one. Otherwise
        ``out[i]`` is the node of the i-th 2^lowest totals, to be expanded from ``lowest`` on. Each
        split, ``node + s(node)`` and ``(node - s(node)) / X^(N/2^level)``, is one automorphism (two
        at level 2), and a node of a single total needs one for each of its levels.

        Parameters
        ----------
        node : residues of shape (2, primes, N)
            Under the first primes of the packing context, one or more. It holds 0 between its
            places, as packs do.
        count : int
            Totals in it, from 1 to 2^level. Later places are not computed.
        level, lowest : int
        threads : int, optional
            All cores by default.
        out : array of 64-bit words of that shape, optional
            Reused as the result, for a caller that expands repeatedly.
        start : int
            The lowest level that a pack is ever split to: 2^start totals stay interleaved.
        """
        self._check_node(node, count, level, lowest)
        threads = cores() if threads is None else threads
        nodes = -(-count >> lowest)
        shape = (nodes, *node.shape)
        out = np.empty(shape, dtype=np.uint64) if out is None else out
        if out.shape != shape or out.dtype != np.uint64 or not out.flags.c_contiguous:
            raise ArgumentError(
                f"out is {out.dtype} of shape {out.shape}: it must be uint64 of shape {shape}, in "
                "one piece",
                code="wrong-output-array",
            )
        # A node lies at the first of its places in ``out`` until it is split. First one level after
        # the other, all nodes of it at once, so that every thread gets a few subtrees and all end
        # at about the same time.
        enough = min(4 * threads, nodes) if threads > 1 else 1
        depth = 0
        while depth < level - lowest and 1 << depth < enough:
            source = node if depth == 0 else None
            self._split_all(
                source, out, count, (level - depth, level - depth - 1, lowest), threads, start
            )
            depth += 1
        if depth == 0 or depth < level - lowest:
            self._split_all(
                node if depth == 0 else None,
                out,
                count,
                (level - depth, lowest, lowest),
                threads,
                start,
            )
        return out

    def _split_all(
        self,
        top: Residues | None,
        out: Residues,
        count: int,
        levels: tuple[int, int, int],
        threads: int,
        start: int,
    ) -> None:
        """Split all nodes of one level, or the one at the ``top``, to a lower level.

        The third level gives the size of the places in ``out``.
        """
        level, to, lowest = levels
        apart, step, keys, primes = (
            1 << (level - lowest),
            1 << (to - lowest),
            self._packing,
            out.shape[2],
        )

        def work(indices: Iterator[int]) -> None:
            with self._scratch(primes, max(1, level - to)) as scratch:
                for i in indices:
                    source = out[i * apart] if top is None else _words(top)
                    totals = min(1 << level, count - (i << level))
                    levels = (level, to, start)
                    _residues.expand(
                        self._ring,
                        keys,
                        source,
                        primes,
                        levels,
                        totals,
                        out,
                        i * apart,
                        step,
                        scratch,
                    )

        _share(work, -(-count >> level), threads)

    def _check_node(self, node: Residues, count: int, level: int, lowest: int) -> None:
        primes, ring = packing_primes(self.parameters), self.parameters.ring_degree
        if (
            node.ndim != 3
            or node.shape[0] != 2
            or not 1 <= node.shape[1] <= primes
            or node.shape[2] != ring
        ):
            raise ArgumentError(
                f"residues of shape {node.shape} are no ciphertext of the packing context: "
                f"it has (2, 1 to {primes} primes, {ring})",
                code="wrong-residue-shape",
            )
        if not 0 <= lowest <= level < ring.bit_length():
            raise ArgumentError(
                f"level={level}, lowest={lowest}: levels go from {ring.bit_length() - 1} down to "
                "0, and lowest is not above level",
                code="level-out-of-range",
            )
        if not 1 <= count <= 1 << level:
            raise ArgumentError(
                f"{count} totals: a node of level {level} holds 1 to {1 << level}",
                code="totals-out-of-range",
            )

    # -- calls
    # --------------------------------------------------------------------------------------------

    def _lower(
        self, key: Any, residues: Residues, at: int, to: int, out: Residues, scratch: Any
    ) -> None:
        size, primes, _ = residues.shape
        _residues.lower(self._ring, key, _words(residues), size, primes, at, to, out, scratch)

    def _automorphism(self, key: Any, residues: Residues) -> Residues:
        out, primes = np.empty_like(residues, dtype=np.uint64, order="C"), residues.shape[1]
        with self._scratch(primes, 1) as scratch:
            _residues.automorphism(self._ring, key, _words(residues), primes, out, scratch)
        return out

    def _pack(self, totals: Sequence[Residues], level: int, lowest: int, start: int) -> Residues:
        primes = packing_primes(self.parameters)
        shape = (2, primes, self.parameters.ring_degree)
        for total in totals:
            if total.shape != shape:
                raise ArgumentError(
                    f"residues of shape {total.shape} are no ciphertext of the packing context: "
                    f"it has {shape}",
                    code="wrong-residue-shape",
                )
        out = np.empty(shape, dtype=np.uint64)
        words = tuple(_words(total) for total in totals)
        with self._scratch(primes, max(1, level - lowest)) as scratch:
            _residues.pack(
                self._ring,
                self._packing,
                words,
                primes,
                level,
                lowest,
                lowest == start,
                out,
                scratch,
            )
        return out

    @contextmanager
    def _scratch(self, primes: int, levels: int = 0) -> Iterator[Any]:
        """Lend working memory that is kept between calls.

        Touching fresh pages on every call would take as long as the work.
        """
        words = _residues.scratch(self._ring, primes, levels) + 8  # to begin with a cache line
        try:
            memory = self._memory.pop()
        except IndexError:
            memory = np.empty(0, dtype=np.uint64)
        if len(memory) < words:
            memory = np.empty(words, dtype=np.uint64)
        try:
            yield memory
        finally:
            self._memory.append(memory)

    def _primes(self, level: int) -> int:
        return len(self.parameters.data_moduli) - level


def _share(work: Callable[[Iterator[int]], None], count: int, threads: int | None) -> None:
    """Run ``work`` over 0..count-1 in threads, each taking the next number when it is done with
    one.
    """
    threads = min(cores() if threads is None else threads, count)
    indices = iter(range(count))
    if threads < 2:
        work(indices)
        return
    pool = thread_pool(threads)
    under_way = [pool.submit(work, indices) for _ in range(threads)]
    wait(under_way)  # also where one fails: the others still write
    for done in under_way:
        done.result()


def _words(array: Residues) -> Residues:
    """Return the array as contiguous, aligned words, which views of SEAL's bytes are not."""
    return np.require(array, np.uint64, ("C", "A"))


# -- tables and keys
# ------------------------------------------------------------------------------------------------


@lru_cache(maxsize=16)
def _ring(parameters: Parameters, cpu: str) -> Any:
    roots = [minimal_root(q, 2 * parameters.ring_degree) for q in parameters.coefficient_moduli]
    return _residues.ring(
        parameters.ring_degree,
        np.array(parameters.coefficient_moduli, dtype=np.uint64),
        np.array(roots, dtype=np.uint64),
        parameters.plain_modulus,
        cpu,
    )


@lru_cache(maxsize=256)
def minimal_root(prime: int, order: int) -> int:
    """Return the smallest primitive root of unity of an order that is a power of two: the one that
    SEAL transforms with.

    >>> minimal_root(17, 8)
    2
    """
    root = next(
        r
        for r in (pow(g, (prime - 1) // order, prime) for g in range(2, prime))
        if pow(r, order // 2, prime) != 1
    )
    square, smallest = root * root % prime, root
    for _ in range(order // 2):
        root = root * square % prime
        smallest = min(smallest, root)
    return smallest


def galois_element(ring_degree: int, step: int) -> int:
    """Return g of the automorphism X -> X^g that rotates by ``step``.

    They are powers of 3, as SEAL numbers them; 0 swaps the half rows.
    """
    order = 2 * ring_degree
    return order - 1 if step == 0 else pow(3, step % (ring_degree // 2), order)


def read_switching_keys(data: bytes, ring_degree: int) -> Iterator[tuple[int, Residues]]:
    """Yield the key-switching keys in SEAL's bytes with their indices, as (digits, 2,
    primes, N).
    """
    for index, places in _digit_places(data):
        words = [
            np.frombuffer(data, dtype="<u8", offset=start, count=(stop - start) // 8)
            for start, stop in places
        ]
        yield (
            index,
            np.ascontiguousarray(np.stack(words), dtype=np.uint64).reshape(
                len(words), 2, -1, ring_degree
            ),
        )


def replace_switching_keys(data: bytes, keys: Mapping[int, Residues]) -> bytes:
    """Return SEAL's bytes with these keys, of the same shapes and indices, in place of its own."""
    made = bytearray(data)
    for index, places in _digit_places(data):
        for (start, stop), digit in zip(places, keys[index], strict=True):
            words = np.ascontiguousarray(digit, dtype="<u8").tobytes()
            if len(words) != stop - start:
                raise ArgumentError(
                    f"a digit of {len(words)} bytes does not go where one of {stop - start} is",
                    code="wrong-digit-length",
                )
            made[start:stop] = words
    return bytes(made)


def _digit_places(data: bytes) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """Yield the offsets of the residues of each key-switching key in SEAL's bytes, digit by digit.

    SEAL writes a header, the identifier of the parameters, the number of possible keys, and for
    each of them its number of digits (0 for a key that was not made), each digit as a ciphertext
    with a header of its own.
    """
    (count,), at = struct.unpack_from("<Q", data, _KEY_PREFIX_BYTES), _KEY_PREFIX_BYTES + 8
    for index in range(count):
        (digits,), at = struct.unpack_from("<Q", data, at), at + 8
        places = []
        for _ in range(digits):
            (length,) = struct.unpack_from("<Q", data, at + 8)
            places.append((at + _DIGIT_HEADER_BYTES, at + length))
            at += length
        if places:
            yield index, places
    if at != len(data):
        raise ArgumentError(
            "keys whose bytes are in another form than this library knows", code="unknown-key-form"
        )
