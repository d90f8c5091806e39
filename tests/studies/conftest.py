"""Let studies of these tests use small insecure rings, which documents refuse otherwise."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from encryptedstats.studies import documents


@pytest.fixture(scope="session", autouse=True)
def insecure_documents() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "MIN_SECURITY", 0)
        yield
