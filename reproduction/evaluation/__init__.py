"""The paper's evaluation, run again: every figure, table and statement of its results, ours beside
theirs.

Parts are run over all splits of all data sets, in processes, and can be interrupted at any moment.
What they find lies in CSV files, from which pictures and one HTML report are made. Imports the
models and everything below them.
"""

from reproduction.evaluation.counting import drawn_fraction
from reproduction.evaluation.run import reproduce
from reproduction.evaluation.settings import PARTS, Settings

__all__ = ["PARTS", "Settings", "drawn_fraction", "reproduce"]
