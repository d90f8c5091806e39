"""Encrypted arrays: NumPy arrays of encrypted integers.

NumPy's object arrays provide broadcasting, indexing, ``@`` and stacking. This module ensures that
all values are encrypted integers of one key, orders products in a balanced way, explains what
cannot be computed, and saves arrays. One ciphertext a value is heavy; columns of data belong in
encrypted tables, with thousands of values a ciphertext.
"""

from __future__ import annotations

import json
import math
import operator
import os
import warnings
from collections.abc import Callable, Iterable
from typing import Any, Final, NoReturn

import numpy as np

from encryptedstats.arrays.arithmetic import combine_pairwise, plain_integer
from encryptedstats.arrays.integers import (
    EncryptedInteger,
    decrypt_integer,
    encrypt_integer,
    public_bound,
)
from encryptedstats.crypto.dispatch import decrypt_value, encrypt_value
from encryptedstats.crypto.encryption import Decryptor, Encryptor
from encryptedstats.crypto.engine import HEADER_BYTES
from encryptedstats.crypto.keys import PublicKeys, check_belongs
from encryptedstats.crypto.noise import Noise
from encryptedstats.errors import (
    ArgumentError,
    ArgumentTypeError,
    FileFormatError,
    HeavyArrayWarning,
)
from encryptedstats.storage.container import Container
from encryptedstats.storage.objects import load_file, save_file

ARRAY_KIND: Final = "encrypted array"
HEAVY_BYTES: Final = 256 << 20
MAX_DIMENSIONS: Final = 32


class EncryptedArray(np.ndarray[Any, np.dtype[np.object_]]):
    """An array of encrypted integers that behaves like a NumPy array.

    Made by ``owner.encrypt([[1, 2], [3, 4]])``. Arithmetic with other encrypted arrays and integers
    and with plain integers on either side, broadcasting, ``@``, ``.T``, ``sum``, ``prod``,
    ``cumsum``, indexing, masks, assignment, stacking and ``diag``.

    Examples
    --------
    >>> import encryptedstats as es
    >>> owner = es.Owner(es.Parameters.choose(max_value=1000, depth=1))
    >>> z = owner.encrypt([[1, 2], [3, 4]])
    >>> owner.open(z.T @ [1, 10])
    array([31, 42])
    >>> owner.open((z * z).sum(axis=1))
    array([ 5, 25])
    """

    def __new__(cls, values: Any) -> EncryptedArray:
        """Make an array of nested sequences; plain integers among the values are encrypted."""
        array: EncryptedArray = _as_encrypted(np.array(values, dtype=object))
        return array

    # -- facts -------------------------------------------------------------------------------------

    @property
    def _values(self) -> list[EncryptedInteger]:
        values: list[EncryptedInteger] = np.asarray(self).ravel().tolist()
        return values

    @property
    def keys(self) -> PublicKeys:
        """The public keys that the values belong to."""
        if not self.size:
            raise ArgumentError("an empty encrypted array has no keys", code="empty-array")
        return self._values[0].keys

    @property
    def bound(self) -> int:
        """The largest of the values' proven bounds."""
        return max((value.bound for value in self._values), default=0)

    @property
    def depth(self) -> int:
        """The largest depth of the values."""
        return max((value.depth for value in self._values), default=0)

    def __repr__(self) -> str:
        if not self.size:
            return f"EncryptedArray(shape={self.shape})"
        megabytes = sum(value.nbytes for value in self._values) / 1e6
        return (
            f"EncryptedArray(shape={self.shape}, within ±{self.bound:,}, depth {self.depth}, "
            f"{megabytes:.1f} MB, "
            f"{self.keys.parameters.scheme}, key {self.keys.key_id})"
        )

    __str__ = __repr__

    # -- what object arrays miss -------------------------------------------------------------------

    def __setitem__(self, key: Any, value: Any) -> None:
        if not isinstance(value, (EncryptedArray, EncryptedInteger)):
            value = self._encrypt(value)
        if self.size and np.size(value):
            self.keys.check_same(value.keys)
        super().__setitem__(key, _unbox(value))

    def _encrypt(self, value: Any) -> EncryptedArray | EncryptedInteger:
        """Encrypt an assigned value under the key of this array, unless it is encrypted already."""
        if np.ndim(value) == 0:
            value = value.item() if isinstance(value, np.ndarray) else value
            one: EncryptedInteger = self.keys.encrypt(plain_integer(value, "assignment"))
            return one
        array = np.array(value, dtype=object)
        if any(isinstance(item, EncryptedInteger) for item in array.flat):
            return EncryptedArray(array)
        many: EncryptedArray = self.keys.encrypt(value)
        return many

    @property  # writing through NumPy's would bypass the checks above
    def flat(self) -> Any:
        """An iterator over all values, for reading."""
        view = np.asarray(self).view()
        view.flags.writeable = False
        return view.flat

    def fill(self, value: Any) -> None:
        """Assign one value to every place."""
        self[...] = value

    def __array_function__(
        self, func: Callable[..., Any], types: Any, args: Any, kwargs: Any
    ) -> Any:
        """Call a NumPy function; plain integers that end up beside encrypted ones are encrypted."""
        if func in _UNKNOWABLE:
            _refuse(func.__name__)
        if func in _WRITERS:
            raise ArgumentTypeError(
                f"{func.__name__} would write past the checks of encrypted arrays: assign with "
                "a[...] = value",
                code="unchecked-write",
            )
        if func is np.copyto and isinstance(args[0], EncryptedArray):
            shape = args[0].shape
            where = np.broadcast_to(kwargs.get("where", args[3] if len(args) > 3 else True), shape)
            args[0][where] = np.broadcast_to(_box_plain(args[1]), shape)[where]
            return None
        if func is np.empty_like and args and args[0] is self and self.size:
            shape = kwargs.get("shape") or self.shape
            return EncryptedArray(np.full(shape, self._values[0]._zero(), dtype=object))
        return _as_encrypted(super().__array_function__(func, (np.ndarray,), args, kwargs), self)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Apply a ufunc element by element with :class:`EncryptedInteger`, which checks
        everything.
        """
        plain = [
            np.asarray(i, dtype=object) if isinstance(i, EncryptedArray) else i for i in inputs
        ]
        plain = [_box(i) if isinstance(i, EncryptedInteger) else i for i in plain]
        if any(isinstance(i, np.ndarray) and i.dtype.kind in "fc" for i in plain):
            raise ArgumentTypeError(
                f"{ufunc.__name__} with real numbers: only integers are exact here, scale to "
                "integers first",
                code="not-an-integer",
            )
        if ufunc in _UNKNOWABLE:
            _refuse(ufunc.__name__)
        outputs = kwargs.pop("out", ())
        if not outputs:
            return _as_encrypted(getattr(ufunc, method)(*plain, **kwargs), self)
        # Into a copy first: what is refused half way leaves the output as it was.
        scratch = np.array(outputs[0], dtype=object)
        result = _as_encrypted(
            np.asarray(getattr(ufunc, method)(*plain, out=scratch, **kwargs)), self
        )
        outputs[0][...] = result
        return outputs[0]

    def prod(self, axis: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Multiply over an axis, pairwise, so that n values are only log2(n) products deep."""
        if args or any(value is not None and value is not False for value in kwargs.values()):
            raise ArgumentTypeError(
                "prod of an encrypted array takes an axis and nothing else",
                code="unsupported-arguments",
            )
        values = (
            np.moveaxis(np.asarray(self), axis, 0) if axis is not None else np.asarray(self).ravel()
        )
        factors = [_as_encrypted(_box(v)) for v in values]
        if not factors:
            raise ArgumentError(
                "the product of no values: there is nothing to multiply", code="empty-product"
            )
        product = combine_pairwise(operator.mul, factors)
        return _unbox(product.copy() if product is factors[0] else product)

    def diag(self, k: int = 0) -> Any:
        """Return the k-th diagonal of a matrix, or a matrix with this vector on its diagonal."""
        return np.diag(self, k)

    def row_sums(self) -> Any:
        """Return the sum of each row of a matrix."""
        return self.sum(axis=1)

    def col_sums(self) -> Any:
        """Return the sum of each column of a matrix."""
        return self.sum(axis=0)

    def mean(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise an error: encrypted integers have no division."""
        raise ArgumentTypeError(
            "encrypted integers cannot be divided, so they have no mean: "
            "take the sum, and divide after decryption: owner.open(a.sum()) / a.size",
            code="division-impossible",
        )

    # a builder of methods, not a method
    def _make_refusal(name: str) -> Callable[..., NoReturn]:  # type: ignore[misc]
        def method(self: EncryptedArray, *args: Any, **kwargs: Any) -> NoReturn:
            _refuse(name)

        method.__name__ = name
        method.__doc__ = "Not possible on encrypted values."
        return method

    var, std = _make_refusal("var"), _make_refusal("std")
    min, max, ptp = _make_refusal("min"), _make_refusal("max"), _make_refusal("ptp")
    argmin, argmax = _make_refusal("argmin"), _make_refusal("argmax")
    sort, argsort, searchsorted = (
        _make_refusal("sort"),
        _make_refusal("argsort"),
        _make_refusal("searchsorted"),
    )
    round, clip, nonzero = _make_refusal("round"), _make_refusal("clip"), _make_refusal("nonzero")
    any, all, astype = _make_refusal("any"), _make_refusal("all"), _make_refusal("astype")
    put, resize, partition = (
        _make_refusal("put"),
        _make_refusal("resize"),
        _make_refusal("partition"),
    )
    del _make_refusal

    def tolist(self) -> Any:
        """Return nested lists of :class:`EncryptedInteger`."""
        return np.asarray(self).tolist()

    def __reduce__(self) -> NoReturn:
        raise ArgumentTypeError(
            "encrypted arrays are not pickled: use save() and EncryptedArray.load()",
            code="not-pickled",
        )

    # -- files -------------------------------------------------------------------------------------

    def save(self, url: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the array with its parameters to a path or fsspec URL; the file holds no key."""
        save_encrypted(self, url, overwrite=overwrite)

    @classmethod
    def load(cls, url: str | os.PathLike[str], keys: PublicKeys) -> Any:
        """Read an array or a single integer that belongs to ``keys``."""
        return load_encrypted(url, keys)


_UNKNOWABLE: Final = frozenset(
    {np.median, np.percentile, np.quantile, np.unique, np.histogram, np.bincount, np.isin,
     np.argwhere, np.count_nonzero, np.allclose, np.isclose, np.array_equal, np.linalg.inv,
     np.linalg.solve, np.linalg.det, np.round, np.argmax, np.argmin, np.argsort, np.clip,
     np.nonzero, np.searchsorted, np.divmod}
)  # fmt: skip
_WRITERS: Final = frozenset({np.put, np.place, np.putmask, np.fill_diagonal})


def _refuse(name: str) -> NoReturn:
    raise ArgumentTypeError(
        f"{name} of an encrypted array is not possible: it would have to compare, divide or "
        "convert values that nobody here can "
        "see. Decrypt first: owner.open(a)",
        code="operation-impossible",
    )


def _box(value: Any) -> np.ndarray[Any, Any]:
    """Wrap a single object into an array without dimensions; return arrays unchanged."""
    if isinstance(value, np.ndarray):
        return value
    box = np.empty((), dtype=object)
    box[()] = value
    return box


def _box_plain(value: Any) -> Any:
    return np.asarray(_box(value) if isinstance(value, EncryptedInteger) else value)


def _unbox(value: Any) -> Any:
    return value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value


def _as_encrypted(result: Any, like: EncryptedArray | None = None) -> Any:
    """Return results of NumPy as encrypted arrays under one key."""
    if isinstance(result, (list, tuple)):
        return type(result)(_as_encrypted(part, like) for part in result)
    if not isinstance(result, np.ndarray):
        if isinstance(result, int) and not isinstance(result, bool) and like is None:
            raise ArgumentTypeError(
                "an encrypted array needs at least one encrypted integer to take its key from",
                code="no-encrypted-value",
            )
        return result
    if result.dtype != object:
        if like is None:
            raise ArgumentTypeError(
                "an encrypted array needs at least one encrypted integer to take its key from",
                code="no-encrypted-value",
            )
        return result
    base = np.asarray(result)
    if not base.size:
        return base.view(EncryptedArray)
    keys = _common_keys(base.flat, like)
    for index, value in enumerate(base.flat):
        if not isinstance(value, EncryptedInteger):
            plain = plain_integer(value, "an encrypted array")
            base.flat[index] = encrypt_integer(
                plain, keys.encryptor, public_bound([plain], None, keys.parameters.max_value)
            )
    return base.view(EncryptedArray)


def _common_keys(values: Iterable[Any], like: EncryptedArray | None) -> PublicKeys:
    found = next((value.keys for value in values if isinstance(value, EncryptedInteger)), None)
    if found is None and like is not None and like.size:
        found = like.keys
    if found is None:
        raise ArgumentTypeError(
            "an encrypted array needs at least one encrypted integer to take its key from",
            code="no-encrypted-value",
        )
    for value in values:
        if isinstance(value, EncryptedInteger):
            found.check_same(value.keys)
    return found


# -- encrypting and decrypting ---------------------------------------------------------------------


@encrypt_value.register(list)
@encrypt_value.register(tuple)
@encrypt_value.register(np.ndarray)
def _encrypt_array(value: Any, encryptor: Encryptor, *, bound: int | None = None) -> EncryptedArray:
    numbers = _integer_array(value)
    integers = [int(v) for v in numbers.flat]
    parameters = encryptor.keys.parameters
    bound = public_bound(integers, bound, parameters.max_value)
    _warn_if_heavy(len(integers) * parameters.ciphertext_bytes())
    result = np.empty(numbers.shape, dtype=object)
    for index, number in enumerate(integers):
        result.flat[index] = encrypt_integer(number, encryptor, bound)
    return result.view(EncryptedArray)


def _integer_array(value: Any) -> np.ndarray[Any, Any]:
    """Return the values as integers; the error names the first that is none."""
    try:
        array = np.array(value)
        if array.dtype.kind not in "iub":
            array = np.array(value, dtype=object)
    except (ValueError, OverflowError) as error:
        raise ArgumentTypeError(
            f"these values do not form an array: {error}", code="ragged-values"
        ) from error
    if array.dtype != object:
        return array
    for index, item in np.ndenumerate(array):
        if isinstance(item, EncryptedInteger):
            raise ArgumentTypeError(
                f"the value at {index} is encrypted already", code="already-encrypted"
            )
        plain_integer(item, f"encryption of the value at {index}")
    return array


def _warn_if_heavy(size: int) -> None:
    if size > HEAVY_BYTES:
        warnings.warn(
            f"an array with one ciphertext a value takes {size / 1e9:.1f} GB here; columns of "
            "data are better kept in an "
            "encrypted table (schema.table, owner.encrypt), where a ciphertext holds thousands of "
            "values",
            HeavyArrayWarning,
            stacklevel=5,
        )


@decrypt_value.register(EncryptedArray)
def _decrypt_array(
    value: EncryptedArray, decryptor: Decryptor, *, schema: Any = None
) -> np.ndarray[Any, Any]:
    """Decrypt all integers; a schema has no names for them."""
    numbers = [decrypt_integer(item, decryptor) for item in value._values]
    return np.array(numbers, dtype=np.int64).reshape(value.shape)


# -- files -----------------------------------------------------------------------------------------


def save_encrypted(
    value: EncryptedArray | EncryptedInteger,
    url: str | os.PathLike[str],
    *,
    overwrite: bool = False,
) -> None:
    """Write an encrypted array or integer, its parameters and the bounds of its values."""
    array = np.asarray(_box(value))
    if not array.size:
        raise ArgumentError(
            "an empty encrypted array has no keys and cannot be saved", code="empty-array"
        )
    keys: PublicKeys = array.flat[0].keys
    ciphertexts, facts = [], []
    for item in array.flat:
        item.relinearise()
        ciphertexts.append(keys.engine.ciphertext_to_bytes(item._ciphertexts[0]))
        noise: Noise = item._noise
        facts.append([noise.level, noise.flat, noise.peak, item.bound, item.depth])
    fields = {"parameters": keys.parameters.to_dict(), "shape": list(array.shape)}
    sections = {"values": json.dumps(facts).encode(), "ciphertexts": b"".join(ciphertexts)}
    file = Container(ARRAY_KIND, keys.parameters.fingerprint, keys.key_id, fields, sections)
    save_file(file, url, overwrite=overwrite)


def load_encrypted(url: str | os.PathLike[str], keys: PublicKeys) -> Any:
    """Read what :func:`save_encrypted` wrote, if it belongs to ``keys``."""
    return read_array(load_file(url, kind=ARRAY_KIND), keys, str(url))


def read_array(file: Container, keys: PublicKeys, path: str = "the file") -> Any:
    """Read the array or integer in a container, if it belongs to ``keys``."""
    check_belongs(file, keys, path)
    shape = file.expect("shape", list)
    facts = _read_facts(file.section("values"), shape, keys)
    data, start = file.section("ciphertexts"), 0
    array = np.empty(tuple(shape), dtype=object)
    for index, (noise, bound, depth) in enumerate(facts):
        length = keys.parameters.ciphertext_bytes(2, noise.level) + HEADER_BYTES
        ciphertext = keys.engine.ciphertext_from_bytes(
            data[start : start + length], size=2, level=noise.level
        )
        array.flat[index] = EncryptedInteger(keys, [ciphertext], noise, bound, depth)
        start += length
    if start != len(data):
        raise FileFormatError(
            f"{path} has more ciphertexts than values", code="ciphertext-count-mismatch"
        )
    return _unbox(array.view(EncryptedArray))


def _read_facts(data: bytes, shape: list[Any], keys: PublicKeys) -> list[tuple[Noise, int, int]]:
    try:
        entries = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(
            "the list of values is not valid JSON", code="invalid-json"
        ) from error
    good_shape = len(shape) <= MAX_DIMENSIONS and all(type(n) is int and n > 0 for n in shape)
    if not good_shape or not isinstance(entries, list) or len(entries) != math.prod(shape):
        raise FileFormatError(
            "the shape of the array does not fit its list of values", code="shape-mismatch"
        )
    return [_read_fact(entry, keys) for entry in entries]


def _read_fact(entry: Any, keys: PublicKeys) -> tuple[Noise, int, int]:
    types = [int, float, float, int, int]
    if not isinstance(entry, list) or [type(part) for part in entry] != types:
        raise FileFormatError("the list of values is malformed", code="malformed-values")
    level, flat, peak, bound, depth = entry
    parameters = keys.parameters
    numbers_fit = (
        0 <= level < len(parameters.data_moduli)
        and 0 <= bound <= parameters.max_value
        and 0 <= depth <= 64
    )
    noise = Noise(flat, peak, level)
    if not numbers_fit or not (flat > 0 and peak >= 0) or not parameters.noise.decrypts(noise):
        raise FileFormatError(
            "the list of values states a level, bound or noise that cannot be",
            code="impossible-facts",
        )
    return noise, bound, depth
