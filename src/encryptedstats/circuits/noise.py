"""Bound the noise of every instruction of a program."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from encryptedstats.circuits.expressions import ONES
from encryptedstats.circuits.program import (
    ADD_UP,
    COLUMN,
    EXPAND,
    HERE,
    MASK,
    MOVE,
    MULTIPLY,
    PACK,
    RELINEARISE,
    ROTATE,
    SHIFT,
    SUM,
    SWITCH,
    Step,
)
from encryptedstats.circuits.rules import RuleTable
from encryptedstats.crypto.noise import Noise, NoiseModel
from encryptedstats.crypto.packing import (
    expanded_noise,
    packed_noise,
    packing_model,
    packing_primes,
)
from encryptedstats.crypto.parameters import Parameters

MAX_SIZE = 16  # SEAL has no ciphertexts of more polynomials


class NoiseRules:
    """Noise bounds by instruction. Results are cached: thousands of steps share a few dozen."""

    def __init__(self, parameters: Parameters, *, with_secret_key: bool) -> None:
        self.parameters = parameters
        self.model: NoiseModel = parameters.noise
        self.column = self.model.fresh(with_secret_key=with_secret_key)
        self.constant = self.model.fresh(with_secret_key=False)
        # The public key is an encryption of 0 as fresh as by the secret key; SEAL's of BFV has
        # another form.
        self.ones = (
            self.model.fresh(with_secret_key=True) if parameters.scheme == "bgv" else self.constant
        )
        self._parameters = parameters
        self._sums: dict[tuple[tuple[int, ...], tuple[Noise, ...], bool], Noise] = {}
        self._products: dict[tuple[Noise, Noise], Noise] = {}
        self._switched: dict[tuple[Noise, int], Noise] = {}
        self._relinearised: dict[Noise, Noise] = {}
        self._summed: dict[tuple[Noise, int], Noise] = {}
        self._expanded: dict[tuple[Noise, int], Noise] = {}

    def add_up(self, coefficients: Sequence[int], terms: Sequence[Noise], constant: int) -> Noise:
        """Add bounds, times their coefficients."""
        key = (tuple(coefficients), tuple(terms), bool(constant))
        if key not in self._sums:
            flat = sum(abs(c) * noise.flat for c, noise in zip(coefficients, terms, strict=True))
            peak = sum(abs(c) * noise.peak for c, noise in zip(coefficients, terms, strict=True))
            total = replace(terms[0], flat=flat, peak=peak, size=max(noise.size for noise in terms))
            self._sums[key] = self.model.add_plain(total, constant=True) if constant else total
        return self._sums[key]

    def multiply(self, a: Noise, b: Noise) -> Noise:
        """Bound a product."""
        if a.size + b.size - 1 > MAX_SIZE:
            return Noise(math.inf, level=a.level)
        if (a, b) not in self._products:
            self._products[a, b] = self.model.multiply(a, b)
        return self._products[a, b]

    def relinearise(self, value: Noise) -> Noise:
        """Bound a relinearised ciphertext."""
        if value not in self._relinearised:
            self._relinearised[value] = self.model.relinearise(value)
        return self._relinearised[value]

    def switch(self, value: Noise, level: int) -> Noise:
        """Bound a ciphertext after modulus switching."""
        if (value, level) not in self._switched:
            self._switched[value, level] = self.model.switch(value, level)
        return self._switched[value, level]

    def expand(self, pack: Noise, start: int = 0) -> Noise:
        """Bound a total (or 2^start interleaved ones) that is expanded out of a pack.

        It is a ciphertext under the primes that packs keep, at the pack's level.
        """
        if (pack, start) not in self._expanded:
            model = packing_model(self._parameters, packing_primes(self._parameters))
            self._expanded[pack, start] = expanded_noise(model, pack.at(0), start).at(pack.level)
        return self._expanded[pack, start]

    def sum(self, value: Noise, chunks: int) -> Noise:
        """Bound the sum of ``chunks`` values like this one."""
        if (value, chunks) not in self._summed:
            self._summed[value, chunks] = self.model.sum(value, chunks)
        return self._summed[value, chunks]


#: The noise of an instruction, from its args and data, in a table of this many chunks.
NOISE: Final = RuleTable[Callable[[NoiseRules, tuple[Step, ...], Any, int], Noise]]("noise")

NOISE.rule(COLUMN)(lambda rules, args, data, chunks: rules.column)
NOISE.rule(HERE)(lambda rules, args, data, chunks: rules.ones if data == ONES else rules.constant)
NOISE.rule(EXPAND)(lambda rules, args, data, chunks: rules.expand(args[0].noise, args[0].data[1]))
NOISE.rule(MULTIPLY)(lambda rules, args, data, chunks: rules.multiply(*(x.noise for x in args)))
NOISE.rule(RELINEARISE)(lambda rules, args, data, chunks: rules.relinearise(args[0].noise))
NOISE.rule(SWITCH)(lambda rules, args, data, chunks: rules.switch(args[0].noise, data))
# A product with an encoded plaintext.
NOISE.rule(MASK)(
    lambda rules, args, data, chunks: rules.model.multiply_plain(
        args[0].noise, rules.model.message()
    )
)
NOISE.rule(ROTATE)(lambda rules, args, data, chunks: rules.model.key_switch(args[0].noise))
# Reading another chunk and multiplying by a power of X change no noise.
NOISE.rule(MOVE, SHIFT)(lambda rules, args, data, chunks: args[0].noise)


@NOISE.rule(SUM)
def _sum(rules: NoiseRules, args: tuple[Step, ...], data: Any, chunks: int) -> Noise:
    (row,) = args
    return rules.sum(row.noise, max(1, chunks if row.chunks is None else len(row.chunks)))


@NOISE.rule(ADD_UP)
def _add_up(rules: NoiseRules, args: tuple[Step, ...], data: Any, chunks: int) -> Noise:
    coefficients, constant = data
    return rules.add_up(coefficients, [arg.noise for arg in args], constant)


@NOISE.rule(PACK)
def _pack(rules: NoiseRules, args: tuple[Step, ...], data: Any, chunks: int) -> Noise:
    worst = Noise(max(arg.noise.flat for arg in args), max(arg.noise.peak for arg in args))
    model = packing_model(rules.parameters, packing_primes(rules.parameters))
    return packed_noise(model, worst)
