"""Bridge differences between versions of scikit-learn's validation."""

from __future__ import annotations

from typing import Any


def record_features(estimator: Any, X: Any, *, reset: bool) -> None:
    """Set or check ``n_features_in_`` and ``feature_names_in_``, without touching the values."""
    try:
        from sklearn.utils.validation import _check_feature_names, _check_n_features
    except ImportError:  # before scikit-learn 1.6 they are methods
        estimator._check_feature_names(X, reset=reset)
        estimator._check_n_features(X, reset=reset)
        return
    _check_feature_names(estimator, X, reset=reset)
    _check_n_features(estimator, X, reset=reset)
