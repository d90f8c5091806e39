"""Noise: OpenDP's discrete Laplace and Gaussian mechanisms (extra ``privacy``) on whole numbers.

Discrete noise has no gaps that would reveal floating-point values (Mironov, 2012). The noise is
never seeded: anybody who knew the seed could subtract it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.errors import ParameterError
from encryptedstats.publishing.accounting import Spent, rho_of
from encryptedstats.publishing.sensitivity import Sensitivity

LAPLACE: Final = "laplace"
GAUSSIAN: Final = "gaussian"
AUTO: Final = "auto"
NEEDS_OPENDP: Final = "releases take noise from OpenDP: pip install 'encryptedstats[privacy]'"
#: Beyond these noise or costs are no numbers that floating point holds, and nothing is left to read
#: or to hide.
EPSILONS: Final = (1e-9, 1e9)
_LARGEST: Final = 1 << 62
_ABOVE: Final = 1 + 1e-9  # scales are rounded up


@dataclass(frozen=True)
class Mechanism:
    """Which noise is added: of every total, ``scale`` times how far one row can move it.

    Attributes
    ----------
    name : str
        ``"laplace"`` or ``"gaussian"``.
    scale : float
    spent : Spent
    """

    name: str
    scale: float
    spent: Spent

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise, for a total that one row moves by 1."""
        return self.scale * (math.sqrt(2) if self.name == LAPLACE else 1.0)


def calibrate(
    found: Sensitivity, epsilon: float, delta: float, max_rows: int = 1, mechanism: str = AUTO
) -> Mechanism:
    """Return the mechanism with the least noise that gives (epsilon, delta) for a person with up to
    ``max_rows`` rows.
    """
    _check(epsilon, delta, max_rows, mechanism)
    laplace = Mechanism(
        LAPLACE, found.l1 * max_rows / epsilon * _ABOVE, Spent(epsilon**2 / 2, epsilon)
    )
    if delta == 0:
        return laplace
    rho = rho_of(epsilon, delta)
    gaussian = Mechanism(GAUSSIAN, found.l2 * max_rows / math.sqrt(2 * rho) * _ABOVE, Spent(rho))
    if mechanism != AUTO:
        return laplace if mechanism == LAPLACE else gaussian
    return min(laplace, gaussian, key=lambda one: one.deviation)


def add_noise(values: NDArray[Any], ranges: NDArray[Any], mechanism: Mechanism) -> NDArray[Any]:
    """Return whole numbers with noise; numbers that no row can move stay as they are."""
    dp = opendp()
    result = np.array([int(value) for value in values], dtype=object)
    if any(abs(value) >= _LARGEST for value in result):
        raise ParameterError(
            "a total of 2^62 or more cannot be released: keep fewer digits of the numbers",
            code="total-too-large",
        )
    for size in sorted({int(one) for one in ranges if one}):
        places = np.flatnonzero(ranges == size)
        scale = mechanism.scale * size
        if mechanism.name == LAPLACE:
            space = dp.vector_domain(dp.atom_domain(T=dp.i64)), dp.l1_distance(T=dp.i64)
            add = dp.m.make_laplace(*space, scale=scale)
        else:
            space = dp.vector_domain(dp.atom_domain(T=dp.i64)), dp.l2_distance(T=dp.f64)
            add = dp.m.make_gaussian(*space, scale=scale)
        result[places] = np.array(add([int(value) for value in result[places]]), dtype=object)
    return result


def opendp() -> Any:
    """Import OpenDP, or raise an error that names the extra."""
    try:
        import opendp.prelude as dp
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(NEEDS_OPENDP) from error
    dp.enable_features("contrib")
    return dp


def _check(epsilon: float, delta: float, max_rows: int, mechanism: str) -> None:
    least, most = EPSILONS
    if (
        isinstance(epsilon, bool)
        or not isinstance(epsilon, (int, float))
        or not least <= epsilon <= most
    ):
        raise ParameterError(
            f"epsilon={epsilon!r}: a number above 0, such as 1.0 (from {least:g} to {most:g})",
            code="epsilon-out-of-range",
        )
    if isinstance(delta, bool) or not isinstance(delta, (int, float)) or not 0 <= delta < 1:
        raise ParameterError(
            f"delta={delta!r}: 0, or a number far below 1 divided by the rows, such as 1e-6",
            code="delta-out-of-range",
        )
    if isinstance(max_rows, bool) or not isinstance(max_rows, (int, np.integer)) or max_rows < 1:
        raise ParameterError(
            f"max_rows={max_rows!r}: how many rows a person has at most, 1 or more",
            code="invalid-max-rows",
        )
    if mechanism not in (AUTO, LAPLACE, GAUSSIAN):
        raise ParameterError(
            f"mechanism={mechanism!r}: 'auto', 'laplace' or 'gaussian'", code="unknown-mechanism"
        )
    if mechanism == GAUSSIAN and delta == 0:
        raise ParameterError(
            "mechanism='gaussian' needs a delta above 0, such as delta=1e-6", code="delta-is-zero"
        )
