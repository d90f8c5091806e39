"""Keyed digests: of one purpose and one key, read with every check, and never of two schemas at
once.
"""

from __future__ import annotations

import hashlib
import hmac

import pytest

import encryptedstats as es
from encryptedstats.crypto.encryption import join_digests, keyed_digest, read_digest
from encryptedstats.storage.container import Container
from error_codes import error

ONE, OTHER = "0" * 64, "f" * 64


def test_a_digest_is_hmac_sha256_of_purpose_and_content() -> None:
    assert (
        keyed_digest(b"key", "schema", b"x")
        == hmac.new(b"key", b"schema\0x", hashlib.sha256).hexdigest()
    )
    different = {
        keyed_digest(*given)
        for given in ((b"a", "s", b"x"), (b"b", "s", b"x"), (b"a", "t", b"x"), (b"a", "s", b"y"))
    }
    assert len(different) == 4


@pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
def test_the_owner_makes_and_knows_it_and_others_do_not(tiny: es.Owner, tmp_path) -> None:
    made = tiny._encryptor.schema_digest(b"content")
    assert (
        made
        == tiny._decryptor.schema_digest(b"content")
        != tiny._decryptor.schema_digest(b"contents")
    )
    assert tiny.public_keys().encryptor.schema_digest(b"content") is None
    tiny.save(tmp_path / "key")
    assert es.Owner.load(tmp_path / "key")._decryptor.schema_digest(b"content") == made


def test_the_key_of_digests_is_not_shown(tiny: es.Owner) -> None:
    for holder in (tiny._encryptor, tiny._decryptor):
        assert "token_key" not in repr(holder)
        assert repr(holder.token_key) not in repr(holder)


@pytest.mark.parametrize("digest", [None, ONE, OTHER])
def test_digests_are_read(digest: str | None) -> None:
    assert read_digest(Container("totals", "", "", {"schema_digest": digest})) == digest


def test_a_file_without_one_has_none() -> None:
    assert read_digest(Container("totals", "", "")) is None


@pytest.mark.parametrize(
    "digest", ["", "0" * 63, "0" * 65, "F" * 64, ONE + "\n", 0, True, [ONE], {}]
)
def test_what_is_no_digest_is_refused(digest: object) -> None:
    with pytest.raises(es.FileFormatError, check=error("malformed-digest", "'schema_digest'")):
        read_digest(Container("totals", "", "", {"schema_digest": digest}))


def test_joining() -> None:
    assert join_digests(None, None) is None
    assert join_digests(ONE, None) == join_digests(None, ONE) == join_digests(ONE, ONE) == ONE
    with pytest.raises(es.SchemaError, check=error("different-schemas")):
        join_digests(ONE, OTHER)
