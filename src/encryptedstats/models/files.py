"""Reading stored models back, with every check: a file may come from anybody. (Writing is ``model.save``, in base.)"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from encryptedstats.circuits.results import EncryptedNumbers
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.errors import FileFormatError
from encryptedstats.models.base import (
    ENCRYPTED_MODEL_KIND,
    FOLDS_KIND,
    OPEN_MODEL_KIND,
    TotalsClassifier,
)
from encryptedstats.models.calibration import CALIBRATION, read_calibrated
from encryptedstats.storage.container import Container
from encryptedstats.tables import PublicSchema, Schema

MAX_BINS: Final = 1 << 20
# Far beyond any sum, and so small that what is computed from a few such numbers still is a floating-point number.
_LARGEST: Final = 1 << 256


@dataclass(frozen=True)
class StoredHead:
    """What a file says of a model beside its totals, checked."""

    model: TotalsClassifier
    schema: Schema | PublicSchema
    n_rows: int
    block_ids: tuple[str, ...]
    n_totals: int


def read_model(file: Container, keys: PublicKeys | None) -> Any:
    """The model, or the folds of one, in a file, with every check."""
    if file.kind == FOLDS_KIND:
        from encryptedstats.models.folds import read_folds

        return read_folds(file, keys)
    if file.kind not in (ENCRYPTED_MODEL_KIND, OPEN_MODEL_KIND):
        raise FileFormatError(f"the file holds {file.kind!r}, and a model is wanted here")
    head = read_head(file)
    totals = integers_from_json(file.section("totals")) if file.kind == OPEN_MODEL_KIND else read_totals(file, keys)
    if len(totals) != head.n_totals:
        raise FileFormatError(f"the file has {len(totals)} totals, and such a model has {head.n_totals}")
    try:
        model = head.model._set_state(totals, head.schema, head.n_rows, head.block_ids)
        model._read_more(file, keys)
    except (ValueError, ArithmeticError) as error:
        raise FileFormatError(f"the file has totals that cannot be: {error}") from error
    if file.kind == OPEN_MODEL_KIND and CALIBRATION in file.sections:
        return read_calibrated(model, file.section(CALIBRATION))
    return model


def read_head(file: Container) -> StoredHead:
    """The inverse of ``_stored_fields``."""
    model = _empty_model(file.expect("model", str), file.expect("params", dict))
    n_rows, blocks = file.expect("n_rows", int), _listed_blocks(file)
    if (
        not 0 <= n_rows < 1 << 63
        or not all(isinstance(block, str) for block in blocks)
        or len(set(blocks)) != len(blocks)
    ):
        raise FileFormatError("the file states an impossible number of rows or list of blocks")
    is_private = file.kind == OPEN_MODEL_KIND and file.expect("private", bool)
    try:
        schema = (Schema if is_private else PublicSchema).from_json(file.expect("schema", str))
        public = schema.public()
        if not 2 <= public.n_classes <= MAX_BINS or sum(v.n_bins for v in public.variables) > MAX_BINS:
            raise FileFormatError("the file claims no classes, or more bins or classes than there can be")
        model.check_schema(public)
        n_totals = model._n_totals(public)
    except FileFormatError:
        raise
    except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
        raise FileFormatError(f"the file has a model or schema that cannot be: {error}") from error
    model._draw()  # nothing is left to chance: the parameters of a stored model have its seed
    return StoredHead(model, schema, n_rows, tuple(blocks), n_totals)


def read_totals(file: Container, keys: PublicKeys | None) -> EncryptedNumbers:
    """The encrypted totals of a file."""
    if keys is None:
        raise TypeError("this model is encrypted: give the public keys= it belongs to")
    return EncryptedNumbers.from_container(file, keys)


def _listed_blocks(file: Container) -> list[Any]:
    """The blocks whose rows are inside: in the header, or in a section of their own where they are many."""
    listed: list[Any] = file.expect("blocks", list)
    if "blocks" not in file.sections:
        return listed
    try:
        blocks = json.loads(file.section("blocks"))
    except (ValueError, RecursionError) as error:
        raise FileFormatError("the blocks of the file are not valid JSON") from error
    if not isinstance(blocks, list):
        raise FileFormatError("the blocks of the file are no list")
    return blocks


def _empty_model(name: str, params: Mapping[str, Any]) -> TotalsClassifier:
    if name not in TotalsClassifier._models:
        raise FileFormatError(f"the file holds a model {name!r} that this library does not know")
    model = TotalsClassifier._models[name]()
    if set(params) != set(model.get_params()):
        raise FileFormatError(f"the file has other parameters than a {name} has: {', '.join(sorted(params))}")
    model.set_params(**params)
    return model


def integers_from_json(data: bytes) -> list[int]:
    """A list of integers that a section of a file holds."""
    try:
        totals = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FileFormatError("the totals of the file are not valid JSON") from error
    if not isinstance(totals, list) or not all(type(total) is int for total in totals):
        raise FileFormatError("the totals of the file are no list of integers")
    if any(abs(total) > _LARGEST for total in totals):
        raise FileFormatError("the file has totals that cannot be: no sum over rows is that large")
    return totals
