"""Jobs that are cut into shards, by rows and by trees, for queues and Dask.

``es.connect`` submits jobs and waits for answers; workers do the work. The whole cluster is
untrusted, and no process of it holds a secret key. Processes share objects in a store that are
written once, under names that identify their content.
"""

from __future__ import annotations

from encryptedstats.cluster.fitting import submit
from encryptedstats.cluster.jobs import Job
from encryptedstats.cluster.predicting import PredictionJob, submit_prediction
from encryptedstats.cluster.queues import JobProgress, WorkReport, cancel, status, work
from encryptedstats.cluster.responding import ResponseJob, submit_response
from encryptedstats.cluster.whole import WholeJob, submit_combination, submit_drawing

__all__ = [
    "Job",
    "JobProgress",
    "PredictionJob",
    "ResponseJob",
    "WholeJob",
    "WorkReport",
    "cancel",
    "status",
    "submit",
    "submit_combination",
    "submit_drawing",
    "submit_prediction",
    "submit_response",
    "work",
]
