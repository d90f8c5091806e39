"""The conventions of scikit-learn's estimators, without importing it before they are needed.

Importing scikit-learn takes longer than many a question: the command line asks for a forest or a
regression without it. ``tests/models/test_estimator_checks.py`` runs scikit-learn's own checks.
"""

from __future__ import annotations

import copy
import inspect
import reprlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar, Final, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

E = TypeVar("E", bound="Estimator")
_SHORT: Final = reprlib.Repr()
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = 30
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 700


class Estimator:
    """Parameters that are stored by ``__init__`` and nothing else, as scikit-learn has them."""

    @classmethod
    def _defaults(cls) -> Mapping[str, Any]:
        """Return the default of every parameter."""
        kind: Any = cls  # mypy: classes are hashable, but their __hash__ is that of instances
        return _defaults_of(kind)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name."""
        return {name: getattr(self, name) for name in self._defaults()}

    def set_params(self: E, **params: Any) -> E:
        """Set parameters, and return the model itself."""
        known = self._defaults()
        for name, value in params.items():
            if name not in known:
                raise ValueError(
                    f"Invalid parameter {name!r} for estimator {self}. Valid parameters are: "
                    f"{list(known)}."
                )
            setattr(self, name, value)
        return self

    def _clone(self: E, **params: Any) -> E:
        """Return an unfitted copy, with some parameters changed."""
        return type(self)(**copy.deepcopy({**self.get_params(), **params}))

    def __repr__(self) -> str:
        """Show the parameters that differ from their defaults."""
        usual = {name: repr(value) for name, value in self._defaults().items()}
        changed = [
            f"{name}={_SHORT.repr(value)}"
            for name, value in self.get_params().items()
            if repr(value) != usual[name]
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def _repr_html_(self) -> str:
        from sklearn.utils import estimator_html_repr

        return str(estimator_html_repr(self))

    def __sklearn_tags__(self) -> Any:
        from sklearn.base import BaseEstimator

        return BaseEstimator.__sklearn_tags__(self)


@lru_cache(maxsize=256)
def _defaults_of(kind: type[Any]) -> Mapping[str, Any]:
    # Cached: every question asks for its parameters many times, and a signature takes long.
    signature = inspect.signature(kind)
    return {name: one.default for name, one in sorted(signature.parameters.items())}


class Classifier(Estimator):
    """An estimator of classes."""

    _estimator_type: ClassVar[str] = "classifier"  # before scikit-learn 1.6

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags

        tags = super().__sklearn_tags__()
        tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags()
        tags.target_tags.required = True
        return tags


class Regressor(Estimator):
    """An estimator of numbers."""

    _estimator_type: ClassVar[str] = "regressor"  # before scikit-learn 1.6

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import RegressorTags

        tags = super().__sklearn_tags__()
        tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags()
        tags.target_tags.required = True
        return tags


def check_is_fitted(estimator: Any, attribute: str = "answer_") -> None:
    """Raise scikit-learn's error if an estimator was not fitted."""
    if not hasattr(estimator, attribute):
        from sklearn.utils.validation import check_is_fitted as refuse

        refuse(estimator, attribute)


def record_features(estimator: Any, X: Any, *, reset: bool) -> None:
    """Set or check ``n_features_in_`` and ``feature_names_in_``, without touching the values."""
    try:
        from sklearn.utils.validation import _check_feature_names, _check_n_features
    except ImportError:  # before scikit-learn 1.6 they are methods
        from sklearn.base import BaseEstimator

        BaseEstimator._check_feature_names(estimator, X, reset=reset)
        BaseEstimator._check_n_features(estimator, X, reset=reset)
        return
    _check_feature_names(estimator, X, reset=reset)
    _check_n_features(estimator, X, reset=reset)


def logistic(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return probabilities of log odds."""
    from scipy.special import expit

    found: NDArray[np.float64] = expit(x)
    return found


def log_sum_exp(x: ArrayLike, **options: Any) -> NDArray[np.float64]:
    """Return the logarithm of sums of exponentials."""
    from scipy.special import logsumexp

    found: NDArray[np.float64] = logsumexp(x, **options)
    return found
