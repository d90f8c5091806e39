"""Mutants of the noise rules: small wrong changes of the source that the calibration must notice.

The other lists, one per area, are the modules ``mutation/*_mutants.py``. The text that a mutant
changes must occur exactly once in its file, so that no list can outlive the code it is about.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from linked_package import PACKAGE

CALIBRATION = ("tests/crypto/test_noise_calibration.py", "tests/crypto/test_joint_noise.py")
MODEL, PACKING, FLOODING = "crypto/noise.py", "crypto/packing.py", "crypto/flooding.py"
_PACKED = "noise = Noise(model.coefficient_bound(start))\n"


@dataclass(frozen=True)
class Mutant:
    """One wrong rule: in ``file``, ``old`` becomes ``new``, and one of ``tests`` must fail."""

    name: str
    old: str
    new: str
    file: str = MODEL
    tests: tuple[str, ...] = CALIBRATION

    def source(self) -> str:
        """Return the text of the file with the mistake in it."""
        text = (PACKAGE / self.file).read_text()
        if (count := text.count(self.old)) != 1:
            raise ValueError(
                f"mutant {self.name!r}: its text occurs {count} times in {self.file}, not once. "
                f"The rule was rewritten: write the mutant anew, in {Path(__file__).parent.name}. "
                f"It is\n{self.old}"
            )
        return text.replace(self.old, self.new)


NOISE_MUTANTS = [
    # what is random
    Mutant(
        "a secret of half the variance",
        "SECRET_VARIANCE: Final = 2 / 3",
        "SECRET_VARIANCE: Final = 1 / 3",
    ),
    Mutant("errors of half the variance", "math.sqrt(10.5)", "math.sqrt(5.25)"),
    Mutant("rounding of half the variance", "math.sqrt(1 / 12)", "math.sqrt(1 / 24)"),
    Mutant(
        "rounding down without its mean", "peak=width * self.ring_degree / math.pi)", "peak=0.0)"
    ),
    Mutant(
        "powers of the secret, the last one missing",
        "for k in range(size))",
        "for k in range(size - 1))",
    ),
    Mutant("peaks that do not multiply", " + self.peak * other.peak\n", "\n"),
    Mutant("a peak that what is flat does not multiply", "self.flat * other.peak + ", ""),
    # limits
    Mutant("a limit of q instead of q/2", "limit = 0.5 * (", "limit = 1.0 * ("),
    Mutant(
        "coefficients that do not see the peak",
        "return noise.flat + noise.peak * mean_weight",
        "return noise.flat",
    ),
    Mutant(
        "a unit that forgets its level",
        "(self.modulus(level) if self.scheme",
        "(self.modulus(0) if self.scheme",
    ),
    # messages and encryption
    Mutant(
        "a message of one coefficient",
        "return self.plain_modulus * (1 if constant else self.ring_degree)",
        "return self.plain_modulus",
    ),
    Mutant(
        "roundings of one coefficient",
        "self.unit(level) * (1 if constant else self.ring_degree)",
        "self.unit(level)",
    ),
    Mutant(
        "encryption without the message",
        "return error + self._encoding_error(constant=constant, level=0)",
        "return error",
    ),
    Mutant(
        "public-key encryption without its division",
        "Noise(raw * self.unit(0)) + self._division_error(level=0)",
        "Noise(raw * self.unit(0))",
    ),
    Mutant(
        "public-key encryption without errors times secrets",
        "self._error * (1 + 2 * self._secret)",
        "self._error",
    ),
    Mutant(
        "a plain message that adds nothing",
        "return a + self._encoding_error(constant=constant, level=a.level)",
        "return a",
    ),
    # sums and products
    Mutant(
        "sums as if they were independent",
        "return a.times(terms)",
        "return a.times(math.sqrt(terms))",
    ),
    Mutant("a factor that does not count", "return a.times(max(norm, 1.0))", "return a"),
    Mutant(
        "BFV without base-conversion error",
        "return cross + Noise(self.unit(a.level) * conversion)",
        "return cross",
    ),
    Mutant(
        "BFV conversion that ignores the size",
        "self._powers_of_secret(a.size + b.size - 1)",
        "self._powers_of_secret(2)",
    ),
    Mutant("BFV product without one of its sides", "whole_a * b + whole_b * a", "whole_a * b"),
    Mutant("BFV product without both noises together", " + a * b).at(a.level)", ").at(a.level)"),
    Mutant(
        "BFV product that ignores the first size",
        "self._powers_of_secret(a.size))",
        "self._powers_of_secret(2))",
    ),
    Mutant(
        "BFV product that ignores the second size",
        "self._powers_of_secret(b.size))",
        "self._powers_of_secret(2))",
    ),
    # key switching
    Mutant(
        "key switch without division term", "switched + self._division_error(level)", "switched"
    ),
    Mutant(
        "key switch without digits x error",
        "switched + self._division_error(level)",
        "self._division_error(level)",
    ),
    Mutant(
        "key switch with one digit",
        "self._floor_polynomial(sum(self.data_moduli[",
        "self._floor_polynomial(max(self.data_moduli[",
    ),
    Mutant(
        "key switch that forgets what there was",
        'return a + self._switching_error("galois", a.level)',
        'return self._switching_error("galois", a.level)',
    ),
    Mutant("relinearising without s^(k-2)", ".times(self._secret ** (k - 2))", ""),
    Mutant(
        "relinearising one component only",
        "for k in range(a.size - 1, 1, -1):",
        "for k in range(2, 1, -1):",
    ),
    # joint keys
    Mutant(
        "a joint secret as short as one",
        "math.sqrt(self.members * SECRET_VARIANCE)",
        "math.sqrt(SECRET_VARIANCE)",
    ),
    Mutant(
        "joint keys with the error of one",
        "math.sqrt(self.members) * ERROR_DEVIATION",
        "ERROR_DEVIATION",
    ),
    Mutant(
        "a joint relinearisation key without its second secret",
        "(2 * self._secret + math.sqrt(3))",
        "(self._secret + math.sqrt(3))",
    ),
    Mutant(
        "a joint relinearisation key like a Galois key",
        "return (2 * self._secret + math.sqrt(3)) * self._key_error",
        "return self._key_error",
    ),
    Mutant(
        "a joint public key with the error of one",
        "Noise(self._key_error * self.unit(0))",
        "Noise(self._error * self.unit(0))",
    ),
    Mutant("one member's flooding for all", "added = model.members * (", "added = (", FLOODING),
    # modulus switching
    Mutant(
        "switching that ignores the size",
        "self._division_error(a.level + 1, a.size)",
        "self._division_error(a.level + 1)",
    ),
    Mutant(
        "switching that rounds under the old modulus",
        "self._division_error(a.level + 1, a.size)",
        "self._division_error(a.level, a.size)",
    ),
    Mutant(
        "switching without rounding",
        "a = shrunk.at(a.level + 1) + self._division_error(a.level + 1, a.size)",
        "a = shrunk.at(a.level + 1)",
    ),
    Mutant(
        "switching that divides BFV noise too",
        'a.times(1 / prime) if self.scheme == "bgv" else a',
        "a.times(1 / prime)",
    ),
    # packing
    Mutant("packing without the noise of the total", _PACKED, "noise = Noise(0.0)\n", PACKING),
    Mutant(
        "packing that multiplies by N",
        _PACKED,
        _PACKED.replace("start", "start.times(model.ring_degree)"),
        PACKING,
    ),
    Mutant("packing without doubling", ".times(model.ring_degree >> level)", "", PACKING),
    Mutant(
        "packing without key switches",
        "noise = noise + Noise(model.coefficient_bound(added))",
        "del added",
        PACKING,
    ),
    Mutant(
        "expansion without the noise of the pack",
        "noise = Noise(model.coefficient_bound(packed) * (1 << start))\n",
        "noise = Noise(0.0)\n",
        PACKING,
    ),
    Mutant("expansion without doubling", ".times(1 << (level - 1 - start))", "", PACKING),
    Mutant(
        "expansion without key switches",
        "noise = noise + _automorphism_noise(model, level).times(1 << (level - 1 - start))",
        "pass",
        PACKING,
    ),
]
