"""Compute sums at single positions: residues of ciphertexts, each modulo its own prime.

A value has the shape (polynomials, positions). Whatever computes the same program on whole
ciphertexts has these residues at these positions, bit for bit. The kernels that add up rows do it
where they can, with positions in place of coefficients.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.bounds import ColumnRange
from encryptedstats.circuits.devices.native.device import program_obstacle
from encryptedstats.circuits.devices.native.sums import Loads, SumsEvaluator
from encryptedstats.circuits.devices.seal import encrypted_here
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.program import ADD_UP, COLUMN, MULTIPLY, SUM, Program, Step
from encryptedstats.circuits.slices import Slice
from encryptedstats.circuits.sources import Source
from encryptedstats.crypto.kernels import minimal_root
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.crypto.packing import centre, reverse_bits
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.crypto.residues import Residues
from encryptedstats.machine import default_limit

Values = NDArray[np.uint64]
_EXACT_QUOTIENT: Final = 1 << 50  # below it a quotient in doubles is off by less than one
_HALF: Final = np.uint64(30)


class PositionSource(Source):
    """The columns of a table at some positions, as the kernels read slices of coefficients."""

    def __init__(
        self, whole: Source, columns: Sequence[dict[str, Values]], flat: NDArray[np.int64]
    ) -> None:
        """Take the columns of each chunk, by name, at these positions, which are in order."""
        self._whole, self._columns, self.flat = whole, columns, flat
        ring, count = whole.parameters.ring_degree, len(whole.parameters.data_moduli)
        #: Where the positions of each prime begin, and where the last ones end.
        self.starts = np.searchsorted(flat, np.arange(count + 1) * ring).tolist()

    @property
    def parameters(self) -> Parameters:
        return self._whole.parameters

    @property
    def layout(self) -> Layout:
        return self._whole.layout

    @property
    def keys(self) -> PublicKeys:
        return self._whole.keys

    @property
    def with_secret_key(self) -> bool:
        return self._whole.with_secret_key

    @property
    def primes(self) -> Values:
        """The prime of each position."""
        moduli = np.array(self.parameters.data_moduli, dtype=np.uint64)
        found: Values = moduli[self.flat // self.parameters.ring_degree]
        return found

    def powers_of_x(self, power: int, order: int) -> Values:
        """Return the value of a power of X of this order at each position.

        In SEAL's order, coefficient i is the value at w^(2 r + 1), where r is i with its bits
        reversed: the power takes half as many values as its order, each in a run of coefficients.
        """
        ring, runs = self.parameters.ring_degree, order // 2
        exponents = [power * (2 * reverse_bits(run, runs) + 1) for run in range(runs)]
        roots = [minimal_root(p, 2 * ring) for p in self.parameters.data_moduli]
        moduli = self.parameters.data_moduli
        table = [[pow(w, e, p) for e in exponents] for w, p in zip(roots, moduli, strict=True)]
        prime, place = np.divmod(self.flat, ring)
        found: Values = np.array(table, dtype=np.uint64)[prime, place * runs // ring]
        return found

    @property
    def in_memory(self) -> bool:
        return True

    def ranges(self) -> dict[str, ColumnRange]:
        return self._whole.ranges()

    def residues(self, name: str, chunk: int) -> Residues:
        """Return a column at the positions, (2, positions): not at all of them."""
        return self._columns[chunk][name]

    def pieces(
        self, names: Sequence[str], chunk: int, prime: int | None, start: int, stop: int
    ) -> Sequence[Residues]:
        assert prime is not None
        first = self.starts[prime]
        return [self.residues(name, chunk)[:, None, first + start : first + stop] for name in names]


@dataclass(frozen=True)
class Piece:
    """The residues of totals at some of the positions.

    Attributes
    ----------
    where : slice
        Of the positions.
    words : array (polynomials, positions)
        The polynomials of all totals.
    rows : dict
        The first polynomial of each total, and its number of polynomials.
    """

    where: slice
    words: Values
    rows: dict[Step, tuple[int, int]]

    @classmethod
    def of_values(cls, where: slice, values: dict[Step, Values]) -> Piece:
        sizes = [len(value) for value in values.values()]
        firsts = np.cumsum([0, *sizes[:-1]]).tolist()
        rows = dict(zip(values, zip(firsts, sizes, strict=True), strict=True))
        return cls(where, np.concatenate(list(values.values())), rows)

    def value(self, step: Step) -> Values:
        """Return the residues of a total, (polynomials, positions)."""
        first, size = self.rows[step]
        return self.words[first : first + size]


def evaluate_sums(program: Program, source: PositionSource) -> Iterator[Piece]:
    """Yield the residues of all totals of a program, which are sums over all chunks or made of
    such, at the positions of a source.

    They come prime by prime, in memory that the next piece overwrites: what is done with so many
    words takes less time while they are in a cache.
    """
    primes, t = source.primes, source.parameters.plain_modulus
    others = [one for one in program.steps if one.is_total and one.op != SUM]
    for piece in add_up_rows(program, source):
        if not others:
            yield piece
            continue
        found = {one: piece.value(one) for one in piece.rows}
        for one in others:
            found[one] = _apply(one, [found[arg] for arg in one.args], primes[piece.where], t)
        yield Piece.of_values(piece.where, found)


def add_up_rows(program: Program, source: PositionSource) -> Iterator[Piece]:
    """Yield the sums over rows, by kernels where they can."""
    if program_obstacle(program) is not None:
        everywhere = slice(0, len(source.flat))
        yield Piece.of_values(everywhere, add_up_stepwise(program, source))
        return
    evaluator = SumsEvaluator(Loads(source, 0, {}, 0), 1, default_limit())
    evaluator.prepare(program.sums, again=True)
    tape = evaluator.tape(program.sums)
    spans = [(p, slice(a, b)) for p, (a, b) in enumerate(pairwise(source.starts)) if a < b]
    slices = [Slice(prime, 0, some.stop - some.start) for prime, some in spans]
    firsts = np.cumsum([0, *tape.sizes[:-1]]).tolist()
    rows = dict(zip(tape.totals, zip(firsts, tape.sizes, strict=True), strict=True))
    for (_, where), found in zip(spans, evaluator.passes(tape, slices), strict=True):
        yield Piece(where, found[:, 0], rows)


def add_up_stepwise(program: Program, source: PositionSource) -> dict[Step, Values]:
    """Add up rows instruction by instruction, for any primes."""
    primes, t = source.primes, source.parameters.plain_modulus
    order = [step for step in program.steps if not step.is_total]
    sums: dict[Step, Values] = {}
    for chunk in range(source.layout.n_chunks):
        found: dict[Step, Values] = {}
        for one in order:
            args = [found[arg] for arg in one.args]
            found[one] = _apply(one, args, primes, t) if args else _load(one, source, chunk)
        for one in program.sums:
            value = found[one.args[0]]
            sums[one] = add(sums[one], value, primes) if one in sums else value
    return sums


def _load(step: Step, source: PositionSource, chunk: int) -> Values:
    if step.op == COLUMN:
        return source.residues(step.data, chunk)
    whole = encrypted_here(step, source, chunk)  # the public ciphertext of 1
    found: Values = whole.reshape(len(whole), -1)[:, source.flat]
    return found


def _apply(step: Step, args: list[Values], primes: Values, t: int) -> Values:
    if step.op == MULTIPLY:
        return _multiply_ciphertexts(args[0], args[1], primes)
    if step.op == ADD_UP:
        return _add_up(step.data, args, primes, t)
    raise AssertionError(f"no rule computes {step!r} at single positions")


def _add_up(data: Any, args: list[Values], primes: Values, t: int) -> Values:
    coefficients, constant = data
    total = np.zeros((max(map(len, args)), len(primes)), dtype=np.uint64)
    for coefficient, value in zip(coefficients, args, strict=True):
        scaled = multiply(value, _lift(coefficient, primes, t), primes)
        total[: len(value)] = add(total[: len(value)], scaled, primes)
    total[0] = add(total[0], _lift(constant % t, primes, t), primes)
    return total


def _lift(number: int, primes: Values, t: int) -> Values:
    """Return a plain integer modulo each prime, as SEAL lifts it: from its residue nearest to 0
    modulo t.
    """
    lifted = centre(abs(number), t) * (-1 if number < 0 else 1)
    return np.array([lifted % p for p in primes.tolist()], dtype=np.uint64)


def _multiply_ciphertexts(a: Values, b: Values, primes: Values) -> Values:
    products = multiply(a[:, None], b[None, :], primes)
    result = np.zeros((len(a) + len(b) - 1, len(primes)), dtype=np.uint64)
    for i in range(len(a)):
        result[i : i + len(b)] = add(result[i : i + len(b)], products[i], primes)
    return result


def add(a: Values, b: Values, primes: Values) -> Values:
    """Add residues modulo their primes."""
    total = a + b
    return np.where(total >= primes, total - primes, total)


def multiply(a: Values, b: Values, primes: Values) -> Values:
    """Multiply residues modulo primes below 2^60, exactly."""
    if len(primes) and int(primes.max()) < _EXACT_QUOTIENT:
        return _multiply_small(a, b, primes)
    high = _multiply_small(a, b >> _HALF, primes)
    shifted = _multiply_small(high, np.full_like(primes, 1 << int(_HALF)), primes)
    low = _multiply_small(a, b & np.uint64((1 << int(_HALF)) - 1), primes)
    return add(shifted, low, primes)


def _multiply_small(a: Values, b: Values, primes: Values) -> Values:
    """Multiply where a b / p is below 2^50: the quotient in doubles is off by at most one."""
    quotient = (a.astype(np.float64) * b.astype(np.float64) / primes).astype(np.uint64)
    rest = (a * b - quotient * primes).view(np.int64)  # wraps around, as it should
    signed = primes.view(np.int64)
    rest = np.where(rest < 0, rest + signed, rest)
    reduced: Values = np.where(rest >= signed, rest - signed, rest).view(np.uint64)
    return reduced
