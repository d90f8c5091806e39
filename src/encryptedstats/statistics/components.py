"""Principal components, from the moments of encrypted numbers. The owner decomposes the decrypted
matrix; the class is one of scikit-learn's transformers, which this module alone imports.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import TransformerMixin

from encryptedstats.errors import ArgumentError, ParameterError
from encryptedstats.models.base import TotalsModel, array_names
from encryptedstats.statistics._fixed import repeat_rows, schema_of_numbers
from encryptedstats.statistics.multivariate import numbers_of_schema, read_moments
from encryptedstats.statistics.plots import plot_loadings, plot_variances
from encryptedstats.tables import PublicSchema, Table
from encryptedstats.tables.answers.results import Result, note_dropped_rows
from encryptedstats.tables.encodings import Column
from encryptedstats.tables.questions.constraints import Constraints, Integer
from encryptedstats.tables.questions.question import Arrays, Columns, Shapes, Totals, has_gaps
from encryptedstats.tables.questions.summaries import Moments, scale

if TYPE_CHECKING:
    from pandas import DataFrame

    Names = Sequence[str | int]


class PCA(TransformerMixin, TotalsModel):  # type: ignore[misc]  # scikit-learn has no types
    """Principal components of variables that are kept as numbers, from their covariance matrix;
    opened by the owner.

    Parameters
    ----------
    n_components : int, optional
        All by default.
    standardized : bool
        Of the correlation matrix: every variable is divided by its standard deviation.
    variables : list of str, optional
        By name or id; all that are kept as numbers by default. Rows where one of them is missing
        are left out.

    Attributes
    ----------
    components_ : array of shape (n_components, n_variables)
        The sign is scikit-learn's: the entry of largest size is positive.
    explained_variance_, explained_variance_ratio_, singular_values_ : array of shape
    (n_components,) mean_, scale_ : array of shape (n_variables,) noise_variance_ : float
        The mean of the variances that were left out.
    n_missing_ : int
        Rows that were left out because a variable is missing.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from encryptedstats import PCA
    >>> PCA(n_components=2).fit(load_iris().data).explained_variance_ratio_.round(3)
    array([0.925, 0.053])
    """

    title: ClassVar[str] = "Principal components"
    of_variables: ClassVar[tuple[str, ...]] = ("variables",)
    why_opened: ClassVar[str] = "eigenvectors are not computed on what is encrypted: "
    constraints: ClassVar[Constraints] = {
        "n_components": Integer(low=1, optional=True, code="components-out-of-range")
    }

    def __init__(
        self,
        n_components: int | None = None,
        standardized: bool = False,
        variables: Names | None = None,
    ) -> None:
        self.n_components = n_components
        self.standardized = standardized
        self.variables = variables

    def _moments(self, schema: PublicSchema) -> Moments:
        return Moments(numbers_of_schema(schema, tuple(self.parameters()["variables"] or ())))

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse what is no number, and more components than variables."""
        moments = self._moments(schema)
        moments.check_schema(schema)
        n = self.n_components
        if n is not None and n > len(moments.variables):
            raise ParameterError(
                self.named_parameter("n_components"),
                f": an integer from 1 to {len(moments.variables)} is needed, or None",
                code="components-out-of-range",
            )

    def totals(
        self, schema: PublicSchema, columns: Columns = None, fold: int | None = None
    ) -> Arrays:
        """Return the totals of the moments."""
        return self._moments(schema).totals(schema, columns, fold)

    def shapes(self, schema: PublicSchema) -> Shapes:
        return self._moments(schema).shapes(schema)

    def learn(self, totals: Totals, schema: PublicSchema) -> None:
        """Set the eigenvectors of the covariance (or correlation) matrix."""
        found = read_moments(totals, self._moments(schema).variables, self.schema_, self.n_rows_)
        if found.n < 2:
            raise ArgumentError(
                f"principal components need at least two rows, and there is n_samples = {found.n}",
                code="too-few-rows",
            )
        self.n_missing_, self.notes_ = (
            self.n_rows_ - found.n,
            (*found.notes, *note_dropped_rows(self.n_dropped_)),
        )
        self.variable_names_ = found.names
        sd = np.sqrt(np.diag(found.covariance))
        if self.standardized and not sd.all():
            raise ArgumentError(
                f"{found.notes[-1]}: a constant variable cannot be standardized, leave it out",
                code="constant-variable",
            )
        self.mean_ = found.means
        self.scale_ = sd if self.standardized else np.ones(len(sd))
        values, vectors = np.linalg.eigh(
            found.correlation if self.standardized else found.covariance
        )
        values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1].T
        largest = np.abs(vectors).argmax(axis=1)
        vectors = vectors * np.sign(vectors[np.arange(len(vectors)), largest])[:, None]
        n = min(self.n_components or len(values), found.n)
        self.n_components_ = n
        self.components_, self.explained_variance_ = vectors[:n], values[:n]
        total = float(values.sum())
        self.explained_variance_ratio_ = values[:n] / total if total else np.full(n, np.nan)
        self.singular_values_ = np.sqrt(values[:n] * (found.n - 1))
        self.noise_variance_ = float(values[n:].mean()) if n < len(values) else 0.0

    # -- for the owner of rows
    # ---------------------------------------------------------------------------------------

    def _table_of(self, X: Any, y: Any = None, sample_weight: Any = None) -> Table:
        frame = repeat_rows(self._check_frame(X, reset=True), sample_weight)
        columns = (
            frame
            if isinstance(frame, pd.DataFrame)
            else pd.DataFrame(frame, columns=array_names(frame))
        )
        return schema_of_numbers(columns).table(frame)

    def _rows_of(self, X: Any, y: Any = None, sample_weight: Any = None) -> Table:
        return self._get_private_schema().table(
            repeat_rows(self._check_frame(X, reset=False), sample_weight)
        )

    def _matrix(self, X: Any) -> NDArray[np.float64]:
        table = self._rows(X)
        found = []
        for j in self._moments(table.public_schema).variables:
            values = table.values(Column("number", j)) / float(scale(self.schema_, j))
            gappy = has_gaps(table.public_schema, j)
            found.append(
                np.where(table.values(Column("present", j)), values, np.nan) if gappy else values
            )
        return table.leave_blank(np.column_stack(found))

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Return the scores of clear rows; NaN where a variable is missing."""
        self._check_open()
        scores: NDArray[np.float64] = (
            (self._matrix(X) - self.mean_) / self.scale_ @ self.components_.T
        )
        return scores

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """``pca0``, ``pca1`` and so on."""
        self._check_open()
        return np.array([f"pca{k}" for k in range(self.n_components_)], dtype=object)

    def loadings(self) -> DataFrame:
        """Return the components, a column each."""
        self._check_open()
        return pd.DataFrame(self.components_.T, self.variable_names_, self.get_feature_names_out())

    def summary(self) -> PCAResult:
        """Return standard deviations and shares of variance, as R's ``summary(prcomp)``, and the
        loadings.
        """
        self._check_open()
        names, share = self.get_feature_names_out(), self.explained_variance_ratio_
        rows = {
            "Standard deviation": np.sqrt(self.explained_variance_),
            "Proportion of variance": share,
        }
        table = pd.DataFrame({**rows, "Cumulative proportion": share.cumsum()}, names).T
        what = "correlations" if self.standardized else "covariances"
        return PCAResult(
            title=f"Principal components of the {what} of {', '.join(self.variable_names_)}",
            n_rows=self.n_rows_ - self.n_missing_,
            notes=self.notes_,
            importance=table,
            loadings=self.loadings(),
            variances=pd.Series(self.explained_variance_, names),
        )


@dataclass(frozen=True, kw_only=True)
class PCAResult(Result):
    """Principal components: ``plot()`` is a scree plot, ``biplot()`` shows the loadings on the
    first two.
    """

    importance: DataFrame
    loadings: DataFrame
    variances: pd.Series[Any]

    def to_frame(self) -> DataFrame:
        """Return how much of the variance each component has."""
        return self.importance

    def plot(self, ax: Any = None) -> Any:
        """Draw variance of each component."""
        return plot_variances(self.variances, ax)

    def biplot(self, ax: Any = None) -> Any:
        """Draw the variables as arrows: their loadings on the first two components. Scores of rows
        are not known from totals.
        """
        if self.loadings.shape[1] < 2:
            raise ArgumentError(
                "a biplot needs two components, and there is one", code="one-component"
            )
        return plot_loadings(self.loadings, list(self.importance.T["Proportion of variance"]), ax)
