"""Many machines: fits and predictions that are cut into shards, by rows and by trees.

Imports models, and Dask when it is used. The whole cluster is the untrusted side. No process of it
holds a secret key. What processes share are objects in a store that are written once, under names
that identify their content.
"""

from __future__ import annotations

from encryptedstats.cluster.fitting import fit, submit
from encryptedstats.cluster.jobs import Job
from encryptedstats.cluster.predicting import PredictionJob, predict, submit_prediction
from encryptedstats.cluster.queues import JobStatus, WorkReport, cancel, status, work
from encryptedstats.cluster.whole import WholeJob, submit_combination, submit_drawing

__all__ = [
    "Job",
    "JobStatus",
    "PredictionJob",
    "WholeJob",
    "WorkReport",
    "cancel",
    "fit",
    "predict",
    "status",
    "submit",
    "submit_combination",
    "submit_drawing",
    "submit_prediction",
    "work",
]
