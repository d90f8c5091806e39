"""The 19 UCI data sets of the paper, as pandas frames with the kinds of their columns.

``load("bcw_o")`` looks in a local folder (``ENCRYPTEDSTATS_DATA``), then in a cache, then at UCI.
The one idea: the index has the SHA-256 of every set's CSV, and what fails it is never used,
wherever it came from. Imports NumPy, pandas and :mod:`encryptedstats.errors` only; the data are not
part of the project.
"""

from reproduction.datasets._errors import DatasetUnavailableError, UnknownDatasetError
from reproduction.datasets._index import DatasetInfo, info, names
from reproduction.datasets._load import Dataset, load

__all__ = [
    "Dataset",
    "DatasetInfo",
    "DatasetUnavailableError",
    "UnknownDatasetError",
    "info",
    "load",
    "names",
]
