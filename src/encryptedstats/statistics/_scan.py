"""Regressions of many variants at once, from exact totals.

By Frisch and Waugh, the slope of a variant beside covariates follows from what is left of both the
variant and the trait after their regression on the covariates: sums of products are enough, and no
variant needs a matrix of its own. Weighted, the same sums give the score test of a logistic model.
Nothing here knows tables.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.errors import DataError

Exact = NDArray[Any]  # of Python's integers
Floats = NDArray[np.float64]
_LEFT: Final = 1e-9  # share of a variance that is taken for rounding
_CONDITION: Final = 1e12


@dataclass(frozen=True, eq=False)
class ScanSums:
    """Sums over people, for k variants and q covariates; every array is of Python's integers.

    With weights, all sums but those of the trait are weighted.

    Attributes
    ----------
    weight : array of shape (k,)
        Sum of the weights; the people where there are none.
    covariates : array of shape (k, q)
    products : array of shape (k, q, q)
        Of two covariates.
    trait : array of shape (k,)
    trait_squares : array of shape (k,), optional
    trait_covariates : array of shape (k, q)
        Of the trait and each covariate.
    genotypes, squares, trait_genotypes : array of shape (k,)
        Of the numbers of alleles, their squares, and their products with the trait.
    genotype_covariates : array of shape (k, q)
    """

    weight: Exact
    covariates: Exact
    products: Exact
    trait: Exact
    trait_squares: Exact | None
    trait_covariates: Exact
    genotypes: Exact
    squares: Exact
    trait_genotypes: Exact
    genotype_covariates: Exact

    def fill(self, alleles: Exact, present: Exact, known: ScanSums) -> ScanSums:
        """Return the sums with the mean in place of missing genotypes, times the people present.

        ``known`` has the sums over the people whose genotype is known, where they differ.
        """
        absent = {
            name: getattr(self, name) - getattr(known, name)
            for name in ("weight", "covariates", "trait")
        }
        return replace(
            self,
            genotypes=present * self.genotypes + alleles * absent["weight"],
            squares=present**2 * self.squares + alleles**2 * absent["weight"],
            trait_genotypes=present * self.trait_genotypes + alleles * absent["trait"],
            genotype_covariates=present[:, None] * self.genotype_covariates
            + alleles[:, None] * absent["covariates"],
        )


@dataclass(frozen=True, eq=False)
class Slopes:
    """What the sums say of each variant, in the units of the sums.

    Attributes
    ----------
    score : array
        Sum of the products of trait and variant, without what covariates explain.
    spread : array
        Sum of squares of the variant, without what covariates explain; NaN where nothing is left.
    left : array, optional
        Sum of squares of the trait, without what the variant and covariates explain.
    """

    score: Floats
    spread: Floats
    left: Floats | None


def find_slopes(sums: ScanSums) -> Slopes:
    """Return what is left of trait and variants after their regression on the covariates.

    Means are taken off in integers, so that large means cost no digits.
    """
    weight = sums.weight

    def centre(products: Exact, a: Exact, b: Exact) -> Floats:
        apart = weight.reshape(-1, *[1] * (products.ndim - 1)) * products - a * b
        found: Floats = apart.astype(np.float64)
        return found / weight.astype(np.float64).reshape(-1, *[1] * (products.ndim - 1))

    x, g, y = sums.covariates, sums.genotypes, sums.trait
    spread = centre(sums.squares, g, g)
    score = centre(sums.trait_genotypes, g, y)
    explained = np.maximum(spread, 0.0)
    left = None if sums.trait_squares is None else centre(sums.trait_squares, y, y)
    if x.shape[1]:
        between = centre(sums.products, x[:, :, None], x[:, None, :])
        with_variant = centre(sums.genotype_covariates, g[:, None], x)
        with_trait = centre(sums.trait_covariates, x, y[:, None])
        by_trait = _solve(between, with_trait)
        score = score - (with_variant * by_trait).sum(axis=1)
        spread = spread - (with_variant * _solve(between, with_variant)).sum(axis=1)
        left = None if left is None else left - (with_trait * by_trait).sum(axis=1)
    spread = np.where(spread > _LEFT * explained, spread, np.nan)
    if left is not None:
        left = left - score**2 / spread
    return Slopes(score, spread, left)


def _solve(between: Floats, right: Floats) -> Floats:
    """Solve for the covariates of each variant, in units in which every variance is 1."""
    scale = np.sqrt(np.einsum("kii->ki", between))
    if not (scale > 0).all():
        raise DataError("a covariate has one value only: leave it out", code="constant-covariate")
    matrix = between / (scale[:, :, None] * scale[:, None, :])
    same = bool((matrix == matrix[0]).all())
    matrix = matrix[:1] if same else matrix
    if np.linalg.cond(matrix).max() > _CONDITION:
        raise DataError(
            "a covariate follows from the others: leave it out", code="dependent-covariates"
        )
    found: Floats = np.linalg.solve(matrix, (right / scale)[:, :, None])[:, :, 0] / scale
    return found
