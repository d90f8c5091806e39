"""The errors and warnings of the library.

The lowest module: it imports nothing of this library. Each error is also the built-in exception
that a Python user expects (``ValueError``, ``ArithmeticError``), so generic handlers keep working.
Advice that is written in Python's words is a :class:`Cure`, which the command line puts in its own
words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True)
class Cure:
    """What to do about an error, as data, so that each interface can say it in its own words.

    Attributes
    ----------
    action : str
        Name of the action; ``cli._errors`` has the command line's words for each.
    words : str
        The words for Python, which are part of the message.
    values : mapping
        Parameters of the action, such as the least ``max_value``.
    """

    action: str
    words: str
    values: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.words


#: Cure of every function that refuses to overwrite a file.
REPLACE: Final = Cure("replace", "overwrite=True")


class Curable(Exception):
    """Base of errors and warnings with a code and with cures.

    The message may be given in parts, some of them a :class:`Cure` or another error, whose message
    and cures are included.

    Attributes
    ----------
    cures : tuple of Cure
        What can be done, in the order of the message.
    code : str
        Short name of the fault, such as ``"unknown-column"``. It does not change when the message
        is reworded. Errors without one of their own take the action of their first cure.
    """

    cures: tuple[Cure, ...] = ()
    code: str = ""

    def __init__(self, *parts: object, code: str = "") -> None:
        super().__init__("".join(map(str, parts)))
        included = [part for part in parts if isinstance(part, Curable)]
        own = [part.cures if isinstance(part, Curable) else (part,) for part in parts]
        self.cures = tuple(part for found in own for part in found if isinstance(part, Cure))
        codes = [
            code,
            *(part.code for part in included),
            *(cure.action.replace(" ", "-") for cure in self.cures),
        ]
        self.code = next(filter(None, codes), "")


def reword(error: BaseException, words: Callable[[Cure], str]) -> str:
    """Return the message of an error with the words of another interface for its cures.

    >>> error = EncryptedStatsError("there is a table already (", REPLACE, " replaces it)")
    >>> reword(error, lambda cure: cure.action.upper())
    'there is a table already (REPLACE replaces it)'
    """
    text = str(error)
    for cure in _find_cures(error):
        text = text.replace(cure.words, words(cure))
    return text


def _find_cures(error: BaseException | None) -> Iterator[Cure]:
    # The message may repeat that of the error it was raised from, with its cures.
    while error is not None:
        if isinstance(error, Curable):
            yield from error.cures
        error = error.__cause__ or error.__context__


class EncryptedStatsError(Curable):
    """Base class of every error that this library raises."""


class ArgumentError(EncryptedStatsError, ValueError):
    """An argument of a call is out of its range or does not fit the others."""


class ArgumentTypeError(EncryptedStatsError, TypeError):
    """An argument of a call is of the wrong type."""


class DataError(EncryptedStatsError, ValueError):
    """A statistic cannot be computed from these rows: such as empty groups or constant columns."""


class ParameterError(EncryptedStatsError, ValueError):
    """Encryption parameters are impossible, insecure or inconsistent."""


class NoiseError(EncryptedStatsError, ArithmeticError):
    """The parameters cannot carry a computation: its result could not be proven to decrypt."""


class KeyMismatchError(EncryptedStatsError, ValueError):
    """Data, keys or models belong to different keys."""


class MemberError(EncryptedStatsError, ValueError):
    """A message of a joint key's member is missing, altered, doubled or of another round."""


class VerificationError(EncryptedStatsError, ValueError):
    """A recomputed result differs from the one that is checked."""


class RowsByOthersError(EncryptedStatsError, ValueError):
    """Rows were encrypted with the public keys where this is not allowed."""


class FileFormatError(EncryptedStatsError, ValueError):
    """A file is truncated, altered, of another kind, or too new."""


class StorageError(EncryptedStatsError, OSError):
    """Storage cannot be reached, so nothing is known about what it holds."""


class BusyError(EncryptedStatsError, RuntimeError):
    """Another process is writing there."""


class DeviceError(EncryptedStatsError, ValueError):
    """A device does not exist or cannot run this program."""


class HelperError(EncryptedStatsError, RuntimeError):
    """A helper process was killed."""


class BudgetError(EncryptedStatsError, ValueError):
    """A release would cost more privacy than the ledger's budget has left."""


class DisclosureError(EncryptedStatsError, ValueError):
    """A result must not be published: with earlier ones it would reveal single rows."""


class PassphraseError(EncryptedStatsError, ValueError):
    """A secret key file needs a passphrase, or the one given is wrong."""


class SchemaError(EncryptedStatsError, ValueError):
    """A table does not fit its schema; the message names column, row and value."""


class ExistsError(EncryptedStatsError, FileExistsError):
    """A file exists, and overwriting was not allowed."""


class TooLargeError(EncryptedStatsError, OverflowError):
    """Values could exceed the range in which the parameters are exact."""


class StillEncryptedError(EncryptedStatsError, NotImplementedError):
    """A decrypted model is needed, and this one is encrypted."""


class ClusterError(EncryptedStatsError, RuntimeError):
    """A cluster could not finish its work; the message says how to go on."""


class StudyError(EncryptedStatsError, RuntimeError):
    """The rules of a study do not allow an action, or not yet."""


class WorkerError(EncryptedStatsError, RuntimeError):
    """A worker could not be reached, refused a request or failed.

    Attributes
    ----------
    status : int
        HTTP status of the reply, 0 where none came.
    untrusted : bool
        Whether the worker's certificate could not be verified.
    """

    def __init__(
        self, *parts: object, code: str = "", status: int = 0, untrusted: bool = False
    ) -> None:
        super().__init__(*parts, code=code)
        self.status = status
        self.untrusted = untrusted


@dataclass(frozen=True)
class Failure:
    """An error as plain text, as it travels between machines.

    Attributes
    ----------
    message : str
    error : str
        Name of the class of the error, where it is one of this library.
    code : str
        Code of the error.
    """

    message: str
    error: str = ""
    code: str = ""

    def __str__(self) -> str:
        return self.message

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Describe an error."""
        if not isinstance(error, EncryptedStatsError):
            return cls(str(error) or type(error).__name__)
        return cls(str(error), type(error).__name__, error.code)

    def to_error(self, where: str = "") -> EncryptedStatsError:
        """Return the error that was described; ``where`` is put before its message."""
        kind = globals().get(self.error)
        if not (isinstance(kind, type) and issubclass(kind, EncryptedStatsError)):
            kind = WorkerError
        return kind(f"{where}{self.message}", code=self.code or "failed-job")


class InsecureParametersWarning(UserWarning):
    """Parameters have less than 128 bits of security because ``allow_insecure=True`` was given."""


class InsecureKeyFileWarning(UserWarning):
    """Other users of this machine can read a file with a secret key."""


class SchemaWarning(Curable, UserWarning):
    """A schema is probably not what was meant, or rows are left out."""


class DisclosureWarning(UserWarning):
    """Published results together reveal single rows."""


class HeavyArrayWarning(UserWarning):
    """An encrypted array has grown so large that an encrypted table would serve better."""
