"""Procedures: questions that depend on the answers to earlier ones.

``procedure`` has the state machine, ``folder`` stores its rounds, ``running`` asks, opens and
steps. ``trees`` has trees that learn their splits, ``growing`` and ``splits`` how they grow.
``site_procedure`` has procedures whose totals the sites of a study compute at home.
Imports workers, publishing, models and what is below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from encryptedstats.lazy import import_on_use

if TYPE_CHECKING:
    from encryptedstats.procedures.folder import read_run
    from encryptedstats.procedures.learned_trees import LearnedTrees
    from encryptedstats.procedures.pooled.boosting import PooledBoosting
    from encryptedstats.procedures.pooled.boosting_result import PooledBoostingResult
    from encryptedstats.procedures.pooled.cox import PooledCox
    from encryptedstats.procedures.pooled.cox_net import PooledCoxNet, PooledCoxNetResult
    from encryptedstats.procedures.pooled.cox_result import PooledCoxResult
    from encryptedstats.procedures.pooled.elastic_net import (
        PooledElasticNet,
        PooledElasticNetResult,
    )
    from encryptedstats.procedures.pooled.glm import PooledGLM
    from encryptedstats.procedures.pooled.glm_result import PooledGLMResult
    from encryptedstats.procedures.pooled.kmeans import PooledKMeans, PooledKMeansResult
    from encryptedstats.procedures.procedure import Course, OpenedRound, Procedure
    from encryptedstats.procedures.site_procedure import RowLimits, SiteCourse, SiteProcedure
    from encryptedstats.procedures.trees import DecisionTree, ExtraTrees, RandomForest

_MODULES: Final = {
    ".folder": ("read_run",),
    ".learned_trees": ("LearnedTrees",),
    ".pooled.boosting": ("PooledBoosting",),
    ".pooled.boosting_result": ("PooledBoostingResult",),
    ".pooled.cox": ("PooledCox",),
    ".pooled.cox_net": ("PooledCoxNet", "PooledCoxNetResult"),
    ".pooled.cox_result": ("PooledCoxResult",),
    ".pooled.elastic_net": ("PooledElasticNet", "PooledElasticNetResult"),
    ".pooled.glm": ("PooledGLM",),
    ".pooled.glm_result": ("PooledGLMResult",),
    ".pooled.kmeans": ("PooledKMeans", "PooledKMeansResult"),
    ".procedure": ("Course", "OpenedRound", "Procedure"),
    ".site_procedure": ("RowLimits", "SiteCourse", "SiteProcedure"),
    ".trees": ("DecisionTree", "ExtraTrees", "RandomForest"),
}
__getattr__ = import_on_use(__name__, _MODULES)

__all__ = [
    "Course",
    "DecisionTree",
    "ExtraTrees",
    "LearnedTrees",
    "OpenedRound",
    "PooledBoosting",
    "PooledBoostingResult",
    "PooledCox",
    "PooledCoxNet",
    "PooledCoxNetResult",
    "PooledCoxResult",
    "PooledElasticNet",
    "PooledElasticNetResult",
    "PooledGLM",
    "PooledGLMResult",
    "PooledKMeans",
    "PooledKMeansResult",
    "Procedure",
    "RandomForest",
    "RowLimits",
    "SiteCourse",
    "SiteProcedure",
    "read_run",
]
