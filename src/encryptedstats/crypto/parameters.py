"""Encryption parameters: chosen from requirements, or explicit and checked.

A ``Parameters`` is plain data (it imports no cryptography): scheme, ring, plaintext modulus and
primes. Its capacity is computed by the noise model, so the depth it states is the depth that
decrypts.

Modulus switching multiplies a BGV message by the inverse of the dropped prime modulo t, a
correction factor that differs between ciphertexts of different history. With data primes that are 1
modulo t it is always 1, and such primes are chosen. A prime that is 1 modulo t and 2N is larger
than both together: for a very large t there are none, and plans then use other primes, since
programs know the factor of every ciphertext (:meth:`Parameters.switch_factor`).
"""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Final

from encryptedstats.checks import as_integer
from encryptedstats.crypto.noise import FAILURE_BITS, NoiseModel, Scheme
from encryptedstats.crypto.primes import is_prime, next_prime, primes_of_bits
from encryptedstats.crypto.security import LEVELS, MAX_MODULUS_BITS, RINGS, TABLE_NAME, security_of
from encryptedstats.errors import Cure, InsecureParametersWarning, ParameterError

MAX_PRIME_BITS: Final = 60  # SEAL's limit
MAX_PRIMES: Final = 64
MAX_MEMBERS: Final = 64
DEFAULT_TERMS: Final = 64
MAX_TERMS: Final = 1 << 64
SCHEMES: Final[tuple[Scheme, ...]] = ("bgv", "bfv")

_PLANNED: Final = (
    "kept_primes",
    "digit_bits",
    "pair_base",
    "members",
    "copies",
)  # what only plans say
_UNPLANNED: Final = {
    "members": 1,
    "copies": 1,
}  # and what these are without a plan, where it is not None


@dataclass(frozen=True, repr=False)
class Parameters:
    """Parameters of an exact homomorphic scheme.

    Most people want :meth:`choose`. The constructor takes explicit values, checks them, and refuses
    what the security table does not grant 128 bits unless ``allow_insecure=True``, which then stays
    visible everywhere.

    Parameters
    ----------
    scheme : "bgv" or "bfv"
        BFV is the scheme of Fan and Vercauteren (2012); BGV computes the same, its products are
        several times cheaper.
    ring_degree : int
        N: polynomials modulo X^N + 1, N values in a ciphertext.
    plain_modulus : int
        t, a prime that is 1 modulo 2N. Results are exact as long as they stay within -(t-1)/2 and
        (t-1)/2.
    coefficient_moduli : tuple of int
        Distinct primes that are 1 modulo 2N; the last one is the key-switching prime. Those of BGV
        are 1 modulo t as well, unless t is so large that only plans of tables can do without it.
    terms : int
        The promise about sums: at every level, up to so many products may be added up.
    allow_insecure : bool
        Accept less than 128-bit security (for tests on small rings).
    kept_primes : int, optional
        How many of the data primes packed totals keep. As few as it takes to decrypt them by
        default; more of them leave room for computing on with packed totals, as predicting with a
        model that is never opened does.
    digit_bits : int, optional
        Tables store numbers that are larger than so many bits in digits of that size: totals can
        then be larger than t.
    pair_base : int, optional
        B: packed totals that are below B / 2 travel in pairs, as one number T1 + B T2 that the
        owner takes apart. Half the work on a small table; for totals that are opened, so not beside
        ``kept_primes`` or ``digit_bits``.
    members : int
        For how many members' joint key the noise is proven (``es.JointKey``); 1 for the key of one
        owner.
    copies : int
        How often a ciphertext holds every value: a small table is repeated in the slots that it
        leaves empty, so that many totals can be interleaved in one ciphertext before modulus
        switching. A power of two.

    Examples
    --------
    >>> from encryptedstats import Parameters
    >>> p = Parameters.choose(max_value=1000, depth=2)
    >>> p.ring_degree, p.security, p.depth >= 2, p.max_value >= 1000
    (8192, 128, True, True)
    """

    scheme: Scheme
    ring_degree: int
    plain_modulus: int
    coefficient_moduli: tuple[int, ...]
    terms: int = DEFAULT_TERMS
    allow_insecure: bool = field(default=False, kw_only=True)
    kept_primes: int | None = field(default=None, kw_only=True)
    digit_bits: int | None = field(default=None, kw_only=True)
    pair_base: int | None = field(default=None, kw_only=True)
    members: int = field(default=1, kw_only=True)
    copies: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "coefficient_moduli", tuple(self.coefficient_moduli))
        self._check_types()
        self._check_moduli()
        if self.allow_insecure and not self.security:
            warnings.warn(
                f"these parameters have less than 128-bit security (ring {self.ring_degree}, "
                f"{self.modulus_bits}-bit modulus, allow_insecure=True): never use them for real "
                "data",
                InsecureParametersWarning,
                stacklevel=3,
            )
        elif not self.security:
            raise ParameterError(self._insecurity(), code="insecure-parameters")

    # -- making
    # --------------------------------------------------------------------------------------------

    @classmethod
    def choose(
        cls,
        security: int = 128,
        max_value: int = 65_536,
        depth: int = 4,
        scheme: Scheme = "bgv",
        *,
        terms: int = DEFAULT_TERMS,
    ) -> Parameters:
        """Return the smallest ring, with the fewest and smallest primes, that meets the
        requirements.

        Parameters
        ----------
        security : 128, 192 or 256
            Bits of security by the guidelines of 2024.
        max_value : int
            Largest absolute value that any result or intermediate result can take.
        depth : int
            Largest number of multiplications in a row.
        scheme : "bgv" or "bfv"
        terms : int
            How many products may be added up at every level of multiplication.

        Raises
        ------
        ParameterError
            If no parameters meet them; the message says what is possible.
        """
        max_value, depth, terms = _check_wish(security, max_value, depth, scheme, terms)
        for ring_degree in RINGS:
            plain_modulus = plain_modulus_for(ring_degree, max_value)
            bits = _smallest_chain(scheme, ring_degree, plain_modulus, security, depth, terms)
            if bits is not None:
                return cls(
                    scheme,
                    ring_degree,
                    plain_modulus,
                    _primes(scheme, ring_degree, plain_modulus, bits),
                    terms,
                )
        raise ParameterError(
            *_what_is_possible(security, max_value, depth, scheme, terms),
            code="no-parameters-found",
        )

    @classmethod
    def from_bits(
        cls,
        scheme: Scheme,
        ring_degree: int,
        max_value: int,
        modulus_bits: tuple[int, ...],
        *,
        terms: int = DEFAULT_TERMS,
        allow_insecure: bool = False,
    ) -> Parameters:
        """Return explicit parameters from the sizes of the primes, the key-switching prime last.

        Examples
        --------
        >>> from encryptedstats import Parameters
        >>> Parameters.from_bits("bgv", 8192, 4000, (42, 43, 43, 43, 43)).depth
        3
        """
        if scheme not in SCHEMES:
            raise ParameterError(
                f"scheme={scheme!r}: there are 'bgv' and 'bfv'", code="unknown-scheme"
            )
        if ring_degree not in RINGS:
            raise ParameterError(
                f"ring_degree={ring_degree}: it must be one of {', '.join(map(str, RINGS))}",
                code="unknown-ring-degree",
            )
        plain_modulus = plain_modulus_for(ring_degree, max_value)
        primes = _primes(scheme, ring_degree, plain_modulus, tuple(modulus_bits))
        return cls(scheme, ring_degree, plain_modulus, primes, terms, allow_insecure=allow_insecure)

    # -- checks
    # --------------------------------------------------------------------------------------------

    def _check_types(self) -> None:
        if self.scheme not in SCHEMES:
            raise ParameterError(
                f"scheme={self.scheme!r}: there are 'bgv' and 'bfv'", code="unknown-scheme"
            )
        if self.ring_degree not in RINGS:
            raise ParameterError(
                f"ring_degree={self.ring_degree!r}: it must be one of {', '.join(map(str, RINGS))}",
                code="unknown-ring-degree",
            )
        numbers = (self.ring_degree, self.plain_modulus, self.terms, *self.coefficient_moduli)
        if not all(type(n) is int for n in numbers):
            raise ParameterError(
                "ring degree, moduli and terms must be Python integers", code="not-an-integer"
            )
        if not 1 <= self.terms <= MAX_TERMS:
            raise ParameterError("terms: a sum has between 1 and 2**64", code="terms-out-of-range")
        if type(self.allow_insecure) is not bool:
            raise ParameterError("allow_insecure must be True or False", code="not-a-boolean")
        kept, most = self.kept_primes, len(self.coefficient_moduli) - 1
        if kept is not None and (type(kept) is not int or not 1 <= kept <= most):
            raise ParameterError(
                f"kept_primes={kept!r}: packed totals keep 1 to {most} of the data primes, or None",
                code="kept-out-of-range",
            )
        bits = self.digit_bits
        if bits is not None and (type(bits) is not int or not 2 <= bits < MAX_PRIME_BITS):
            raise ParameterError(
                f"digit_bits={bits!r}: digits have 2 to {MAX_PRIME_BITS - 1} bits, or None for no "
                "digits",
                code="digits-out-of-range",
            )
        base = self.pair_base
        if base is not None and (type(base) is not int or not 3 <= base < self.plain_modulus):
            raise ParameterError(
                (
                    f"pair_base={base!r}: from 3 to below t, {self.plain_modulus}, or None for no "
                    "pairs"
                ),
                code="base-out-of-range",
            )
        if base is not None and (kept is not None or bits is not None):
            raise ParameterError(
                "pair_base= is for totals that are opened, and whole: without kept_primes= and "
                "digit_bits=",
                code="pairs-with-parts",
            )
        if type(self.members) is not int or not 1 <= self.members <= MAX_MEMBERS:
            raise ParameterError(
                f"members={self.members!r}: a joint key has 2 to {MAX_MEMBERS} members, an "
                "owner's has 1",
                code="members-out-of-range",
            )
        copies = self.copies
        if (
            type(copies) is not int
            or not 1 <= copies <= self.ring_degree // 2
            or copies & (copies - 1)
        ):
            raise ParameterError(
                f"copies={copies!r}: a power of two from 1 to {self.ring_degree // 2}, half the "
                "ring degree",
                code="copies-out-of-range",
            )
        if self.members > 1 and self.scheme != "bgv":
            raise ParameterError(
                f"members={self.members} with scheme={self.scheme!r}: joint keys are made for "
                "'bgv' only",
                code="joint-keys-need-bgv",
            )

    def _check_moduli(self) -> None:
        primes, t, order = self.coefficient_moduli, self.plain_modulus, 2 * self.ring_degree
        if not 2 <= len(primes) <= MAX_PRIMES:
            raise ParameterError(
                f"{len(primes)} coefficient moduli: there must be 2 to {MAX_PRIMES}, the last for "
                "key switching",
                code="wrong-modulus-count",
            )
        if len(set(primes) | {t}) != len(primes) + 1:
            raise ParameterError(
                "coefficient moduli must be distinct and differ from the plain modulus",
                code="duplicate-moduli",
            )
        for name, value in (("plain_modulus", t), *(("coefficient modulus", q) for q in primes)):
            if not 2 < value < 1 << MAX_PRIME_BITS or value % order != 1 or not is_prime(value):
                raise ParameterError(
                    f"{name} {value}: it must be a prime below 2**{MAX_PRIME_BITS} that is 1 "
                    f"modulo {order} (twice the ring degree)",
                    code="unsuitable-modulus",
                )
        if any(q <= t for q in primes):
            raise ParameterError(
                "every coefficient modulus must be larger than the plain modulus",
                code="modulus-too-small",
            )

    def _insecurity(self) -> str:
        allowed = MAX_MODULUS_BITS[128][self.ring_degree]
        return (
            f"a {self.modulus_bits}-bit modulus at ring degree {self.ring_degree} has less than "
            "128-bit security: "
            f"the table allows {allowed} bits, key-switching prime included. "
            "Take a larger ring or fewer bits (or allow_insecure=True, for tests only)"
        )

    # -- what they give
    # ------------------------------------------------------------------------------------------

    @property
    def data_moduli(self) -> tuple[int, ...]:
        """The primes of ciphertexts: all but the key-switching prime."""
        return self.coefficient_moduli[:-1]

    @property
    def modulus_bits(self) -> int:
        """The bits of the whole modulus, key-switching prime included, which decide security."""
        return math.prod(self.coefficient_moduli).bit_length()

    @property
    def security(self) -> int:
        """128, 192 or 256 by the table; 0 for less than 128."""
        return security_of(self.ring_degree, self.modulus_bits)

    @property
    def max_value(self) -> int:
        """The largest absolute value that is represented exactly."""
        return (self.plain_modulus - 1) // 2

    def switch_factor(self, level: int, to: int) -> int:
        """Return the factor, modulo t, by which switching from one level to another multiplies a
        message.
        """
        if self.scheme == "bfv":
            return 1
        count, t = len(self.data_moduli), self.plain_modulus
        return pow(math.prod(self.data_moduli[count - to : count - level]) % t, -1, t)

    @property
    def has_factors(self) -> bool:
        """True if switching multiplies messages by a factor other than 1, which only programs keep
        track of.
        """
        return any(
            self.switch_factor(level, level + 1) != 1 for level in range(len(self.data_moduli) - 1)
        )

    @property
    def slots(self) -> int:
        """How many values a ciphertext holds: one for each slot, or for each group of copies."""
        return self.ring_degree // self.copies

    @cached_property
    def noise(self) -> NoiseModel:
        """The noise rules of these parameters."""
        return NoiseModel(
            self.scheme,
            self.ring_degree,
            self.plain_modulus,
            self.data_moduli,
            self.coefficient_moduli[-1],
            self.members,
        )

    @cached_property
    def depth(self) -> int:
        """The proven multiplicative depth with full slots, public-key encryption and sums of
        ``terms`` products at each level.
        """
        return self.noise.proven_depth(self.terms)

    @property
    def failure_bound(self) -> str:
        """The proven bound on the probability that a decryption within the limits fails."""
        return f"2^-{FAILURE_BITS}"

    def ciphertext_bytes(self, size: int = 2, level: int = 0) -> int:
        """Return the bytes of a ciphertext of ``size`` polynomials after ``level`` modulus
        switches.
        """
        return 8 * size * (len(self.data_moduli) - level) * self.ring_degree

    def packed_bytes(self, level: int = 0) -> int:
        """Return the stored bytes of a ciphertext of two polynomials, packed to the bits of its
        primes.
        """
        kept = self.data_moduli[: len(self.data_moduli) - level]
        return sum(2 * self.ring_degree * q.bit_length() // 8 for q in kept)

    # -- showing and storing
    # -------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        bits = "+".join(str(q.bit_length()) for q in self.coefficient_moduli)
        text = (
            f"Parameters({self.scheme}, N={self.ring_degree}, t={self.plain_modulus}, q={bits} "
            f"bits, depth={self.depth}"
        )
        text += f", members={self.members}" if self.members > 1 else ""
        return text + (
            ", INSECURE: allow_insecure=True)"
            if not self.security
            else f", security={self.security})"
        )

    def __str__(self) -> str:
        data = ", ".join(f"{math.log2(q):.1f}" for q in self.data_moduli)
        title = (
            "Fan-Vercauteren (BFV)"
            if self.scheme == "bfv"
            else "Brakerski-Gentry-Vaikuntanathan (BGV)"
        )
        if self.security:
            allowed = MAX_MODULUS_BITS[self.security][self.ring_degree]
            security = (
                f"{self.security} bits: {self.modulus_bits} of {allowed} bits of modulus "
                f"allowed\n{'':16}{TABLE_NAME}"
            )
        else:
            security = (
                "BELOW 128 bits, INSECURE (allow_insecure=True): not for real "
                f"data\n{'':16}{TABLE_NAME}"
            )
        values = "values" if self.copies == 1 else f"{self.slots} values, each {self.copies} times,"
        return (
            f"{title} parameters\n"
            f"  ring degree   {self.ring_degree} ({values} in a ciphertext)\n"
            f"  log2 moduli   {data}; key switching {math.log2(self.coefficient_moduli[-1]):.1f}\n"
            f"  t             {self.plain_modulus} ({math.log2(self.plain_modulus):.1f} bits): "
            f"exact up to ±{self.max_value:,}\n"
            f"  security      {security}\n"
            f"  depth         {self.depth} products in a row, each level a sum of up to "
            f"{self.terms}\n"
            f"  failure bound {self.failure_bound} (canonical norm, docs/explanation/noise.md)"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the defining values as a dictionary for JSON."""
        values = {
            "scheme": self.scheme,
            "ring_degree": self.ring_degree,
            "plain_modulus": self.plain_modulus,
            "coefficient_moduli": list(self.coefficient_moduli),
            "terms": self.terms,
            "allow_insecure": self.allow_insecure,
        }
        planned = {name: getattr(self, name) for name in _PLANNED}
        return values | {
            name: number for name, number in planned.items() if number != _UNPLANNED.get(name)
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Parameters:
        """Return the parameters that :meth:`to_dict` wrote. All values are checked."""
        expected = {
            "scheme",
            "ring_degree",
            "plain_modulus",
            "coefficient_moduli",
            "terms",
            "allow_insecure",
        }
        if not isinstance(values, Mapping) or set(values) - set(_PLANNED) != expected:
            raise ParameterError(
                f"parameters must have exactly the fields {', '.join(sorted(expected))}",
                code="wrong-fields",
            )
        if (
            not isinstance(values["coefficient_moduli"], (list, tuple))
            or len(values["coefficient_moduli"]) > MAX_PRIMES
        ):
            raise ParameterError(
                f"coefficient_moduli must be a list of at most {MAX_PRIMES} integers",
                code="malformed-moduli",
            )
        return cls(**{**values, "coefficient_moduli": tuple(values["coefficient_moduli"])})

    @property
    def fingerprint(self) -> str:
        """A hash of the defining values, stored in files so that they are never read under other
        parameters.
        """
        canonical = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:32]


# -- choosing
# ------------------------------------------------------------------------------------------------


def _check_wish(
    security: int, max_value: int, depth: int, scheme: str, terms: int
) -> tuple[int, int, int]:
    """Return the largest value, depth and terms as Python integers, or raise an error."""
    if scheme not in SCHEMES:
        raise ParameterError(f"scheme={scheme!r}: there are 'bgv' and 'bfv'", code="unknown-scheme")
    if security not in LEVELS:
        raise ParameterError(
            f"security={security!r}: it can be {', '.join(map(str, LEVELS))} bits",
            code="unknown-security-level",
        )
    return (
        _at_least("max_value", max_value, 1),
        _at_least("depth", depth, 0),
        _at_least("terms", terms, 1),
    )


def _at_least(name: str, value: int, least: int) -> int:
    number = as_integer(value)
    if number is None or number < least:
        raise ParameterError(
            f"{name}={value!r}: it must be an integer of at least {least}", code="integer-too-small"
        )
    return number


def plain_modulus_for(ring_degree: int, max_value: int) -> int:
    """Return the smallest prime t above 2 max_value that is 1 modulo 2N, so that N values share a
    ciphertext.
    """
    return next_prime(2 * max_value, 2 * ring_degree)


def parameters_from_sizes(
    scheme: Scheme,
    ring_degree: int,
    plain_modulus: int,
    sizes: tuple[int, ...],
    *,
    with_factors: bool = False,
) -> Parameters:
    """Return parameters with primes of these sizes, the key-switching prime last."""
    primes = _primes(scheme, ring_degree, plain_modulus, sizes, with_factors=with_factors)
    return Parameters(scheme, ring_degree, plain_modulus, primes)


def _step(scheme: Scheme, ring_degree: int, plain_modulus: int) -> int:
    return 2 * ring_degree * (plain_modulus if scheme == "bgv" else 1)


@lru_cache(maxsize=256)
def _primes(
    scheme: Scheme,
    ring_degree: int,
    plain_modulus: int,
    bits: tuple[int, ...],
    *,
    with_factors: bool = False,
) -> tuple[int, ...]:
    """Return distinct primes of these sizes, the last one for key switching.

    With ``with_factors`` BGV may use primes that are not 1 modulo t.
    """
    used = {plain_modulus}
    primes: list[int] = []
    for i, size in enumerate(bits):
        step = 2 * ring_degree if i == len(bits) - 1 else _step(scheme, ring_degree, plain_modulus)
        found = (
            primes_of_bits(size, step, 1, frozenset(used)) if 2 <= size <= MAX_PRIME_BITS else []
        )
        if not found and with_factors and 2 <= size <= MAX_PRIME_BITS:
            found = primes_of_bits(size, 2 * ring_degree, 1, frozenset(used))
        if not found:
            raise ParameterError(
                f"there are not enough {size}-bit primes that are 1 modulo {step} for {len(bits)} "
                f"moduli {bits}; "
                f"take larger ones (up to {MAX_PRIME_BITS} bits)",
                code="too-few-primes",
            )
        used.add(found[0])
        primes.append(found[0])
    return tuple(primes)


def _smallest_chain(
    scheme: Scheme, ring_degree: int, plain_modulus: int, security: int, depth: int, terms: int
) -> tuple[int, ...] | None:
    """Return the sizes of the fewest, then smallest, primes that meet the requirements in this
    ring, or None.
    """

    def carries(primes: tuple[int, ...]) -> bool:
        model = NoiseModel(scheme, ring_degree, plain_modulus, primes[:-1], primes[-1])
        return model.proven_depth(terms, at_most=depth) == depth

    return smallest_chain(scheme, ring_degree, plain_modulus, security, carries)


def smallest_chain(
    scheme: Scheme,
    ring_degree: int,
    plain_modulus: int,
    security: int,
    carries: Callable[[tuple[int, ...]], bool],
    *,
    largest_prime: int = MAX_PRIME_BITS,
    with_factors: bool = False,
) -> tuple[int, ...] | None:
    """Return the sizes of the fewest, then smallest, primes for which ``carries(primes)`` holds, or
    None.

    Parameters
    ----------
    scheme, ring_degree, plain_modulus, security
    carries : callable
        Must hold for larger primes where it holds for smaller ones.
    largest_prime : int
        In bits.
    with_factors : bool
        Whether BGV may use primes that are not 1 modulo t where there are no others: for programs.
    """

    def is_good(total: int) -> bool:
        sizes = _even_split(total, count)
        try:
            return carries(
                _primes(scheme, ring_degree, plain_modulus, sizes, with_factors=with_factors)
            )
        except ParameterError:
            return False

    step = 2 * ring_degree if with_factors else _step(scheme, ring_degree, plain_modulus)
    smallest = max(plain_modulus.bit_length(), step.bit_length()) + 2
    allowed = MAX_MODULUS_BITS[security].get(ring_degree, 0)
    for count in range(2, allowed // smallest + 1):
        low, high = count * smallest, min(allowed, count * largest_prime)
        if low > high or not is_good(high):
            continue
        while low < high:  # more bits carry more, so halve
            middle = (low + high) // 2
            low, high = (low, middle) if is_good(middle) else (middle + 1, high)
        return _even_split(high, count)
    return None


def _even_split(total: int, count: int) -> tuple[int, ...]:
    """Split a number into sizes that differ by at most 1, the largest last."""
    return tuple((total + i) // count for i in range(count))


def _what_is_possible(
    security: int, max_value: int, depth: int, scheme: Scheme, terms: int
) -> list[str | Cure]:
    """Explain why a wish is refused, and name the nearest ones that are possible."""
    wish = Cure(
        "wish",
        f"security={security}, max_value={max_value}, depth={depth}, terms={terms}",
        {"security": security, "max_value": max_value, "depth": depth, "terms": terms},
    )
    deepest = _largest(lambda d: _is_feasible(security, max_value, d, scheme, terms), 0, depth)
    options = []
    if deepest is not None:
        options.append(
            Cure("less depth", f"depth up to {deepest} with this max_value", {"depth": deepest})
        )
    bits = _largest(
        lambda b: _is_feasible(security, 1 << b, depth, scheme, terms), 1, max_value.bit_length()
    )
    if bits is not None:
        options.append(
            Cure("smaller values", f"max_value up to 2**{bits} with this depth", {"value": 2**bits})
        )
    if scheme == "bgv" and _is_feasible(security, max_value, depth, "bfv", terms):
        options.append(Cure("other scheme", "scheme='bfv'"))
    if not options:
        options.append(Cure("both smaller", "a smaller depth together with a smaller max_value"))
    between = [part for option in options for part in ("; ", option)][1:]
    return [f"no {scheme} parameters give ", wish, f". Possible at {security} bits: ", *between]


def _is_feasible(security: int, max_value: int, depth: int, scheme: Scheme, terms: int) -> bool:
    ring = RINGS[-1]
    return max_value < 1 << MAX_PRIME_BITS and (
        _smallest_chain(scheme, ring, plain_modulus_for(ring, max_value), security, depth, terms)
        is not None
    )


def _largest(feasible: Callable[[int], bool], low: int, high: int) -> int | None:
    """Return the largest n from low to high for which ``feasible`` holds, by bisection."""
    if not feasible(low):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if feasible(middle) else (low, middle - 1)
    return low
