"""The errors and warnings of the library, so that callers can catch them by name.

Lowest module of all: imports nothing of this library. Each error also is the built-in exception a
Python user would expect (``ValueError``, ``ArithmeticError``), so that generic handlers keep
working.

Where the way out is spelled in Python's words, these are a :class:`Cure`: the command line has
words of its own for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True)
class Cure:
    """What to do about an error, as data, so that whoever shows the error can say it in other
    words.

    Attributes
    ----------
    action : str
        What is to be done; ``cli._errors`` has the command line's words for each.
    words : str
        The same in Python's words, which the message shows.
    values : mapping
        What the action takes, such as the least ``max_value``.
    """

    action: str
    words: str
    values: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.words


#: How whatever saves something is told to replace what is there.
REPLACE: Final = Cure("replace", "overwrite=True")


class Curable(Exception):
    """An error or warning whose message may be given in parts, some of them a :class:`Cure`;
    ``cures`` has these.

    Another error as a part brings its message and its cures.
    """

    cures: tuple[Cure, ...] = ()

    def __init__(self, *parts: object) -> None:
        super().__init__("".join(map(str, parts)))
        own = [part.cures if isinstance(part, Curable) else (part,) for part in parts]
        self.cures = tuple(part for found in own for part in found if isinstance(part, Cure))


def reworded(error: BaseException, words: Callable[[Cure], str]) -> str:
    """A message with its cures, and those of what caused it, in the words of whoever shows it.

    >>> reworded(EncryptedStatsError("there is a table already (", REPLACE, " replaces it)"), lambda cure: cure.action.upper())
    'there is a table already (REPLACE replaces it)'
    """
    text = str(error)
    for cure in _cures(error):
        text = text.replace(cure.words, words(cure))
    return text


def _cures(error: BaseException | None) -> Iterator[Cure]:
    """Of the error and of those that it was raised from, whose messages it may repeat."""
    while error is not None:
        if isinstance(error, Curable):
            yield from error.cures
        error = error.__cause__ or error.__context__


class EncryptedStatsError(Curable):
    """Base of every error raised on purpose by this library."""


class DataError(EncryptedStatsError, ValueError):
    """Rows that a statistic cannot be computed from: empty groups, constant columns, nothing but
    censored rows, too few of them.
    """


class ParameterError(EncryptedStatsError, ValueError):
    """Encryption parameters that are impossible, insecure or inconsistent."""


class NoiseError(EncryptedStatsError, ArithmeticError):
    """A computation that the parameters cannot carry: its result could not be proven to decrypt."""


class KeyMismatchError(EncryptedStatsError, ValueError):
    """Data, keys or models that belong to different keys were brought together."""


class MemberError(EncryptedStatsError, ValueError):
    """A message of a member of a joint key that is missing, altered, doubled, of another round, or
    asks for what is done once.
    """


class VerificationError(EncryptedStatsError, ValueError):
    """A result that is not what its question gives over the rows it names: it was computed anew,
    and something else came out.
    """


class RowsByOthersError(EncryptedStatsError, ValueError):
    """Rows that others have encrypted with the public keys, where nobody has asked for such rows,
    or they must not be.
    """


class FileFormatError(EncryptedStatsError, ValueError):
    """A file that is truncated, altered, foreign, of another kind, or too new."""


class StorageError(EncryptedStatsError, OSError):
    """Storage that cannot be reached or does not answer: what lies there is not known, so nothing
    is concluded from it.
    """


class BusyError(EncryptedStatsError, RuntimeError):
    """Somebody else is writing there now: one at a time, so that nothing is lost."""


class DeviceError(EncryptedStatsError, ValueError):
    """A device that there is not, or that cannot do what is asked of it."""


class HelperError(EncryptedStatsError, RuntimeError):
    """A process that helped here was ended from outside."""


class BudgetError(EncryptedStatsError, ValueError):
    """A release that would cost more privacy than is left in the budget of its ledger."""


class DisclosureError(EncryptedStatsError, ValueError):
    """A result that must not be published: with what was published before it would give single rows
    away.
    """


class PassphraseError(EncryptedStatsError, ValueError):
    """A secret key file needs a passphrase, or the one given does not open it."""


class SchemaError(EncryptedStatsError, ValueError):
    """A table that does not fit its schema: names the column, the row and the value."""


class ExistsError(EncryptedStatsError, FileExistsError):
    """Something lies where something is to be written, and nobody said that it may be replaced."""


class TooLargeError(EncryptedStatsError, OverflowError):
    """Values that could exceed what the parameters are exact up to."""


class StillEncryptedError(EncryptedStatsError, NotImplementedError):
    """What only an opened model can do was asked of one that is encrypted."""


class ClusterError(EncryptedStatsError, RuntimeError):
    """A cluster that could not do its work: what is missing, who is gone, and how to go on from
    what is done.
    """


class StudyError(EncryptedStatsError, RuntimeError):
    """What the rules of a study do not allow, or not yet: says who has to do what first."""


class WorkerError(EncryptedStatsError, RuntimeError):
    """A worker that cannot be reached, refused something, or could not do it; ``status`` is that of
    HTTP, 0 where none came.

    ``untrusted``: it was there, and its certificate was not one to send a token to.
    """

    def __init__(self, *parts: object, status: int = 0, untrusted: bool = False) -> None:
        super().__init__(*parts)
        self.status = status
        self.untrusted = untrusted


class InsecureParametersWarning(UserWarning):
    """Parameters below 128-bit security are in use because ``allow_insecure=True`` was given."""


class InsecureKeyFileWarning(UserWarning):
    """A file with a secret key that other users of the machine may read."""


class SchemaWarning(Curable, UserWarning):
    """A schema that is probably not meant so, rows that are left out or count as another level, or
    keys too small for a table.
    """


class DisclosureWarning(UserWarning):
    """What was published gives, together with what was published before, single rows away."""


class HeavyArrayWarning(UserWarning):
    """An encrypted array has grown so large that an encrypted table would serve better."""
