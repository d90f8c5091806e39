"""Parameters for tests alone: no secret is safe under them, and everything is quick."""

from __future__ import annotations

import pytest

import encryptedstats as es


def insecure_parameters(
    scheme: str, max_value: int, bits: tuple[int, ...], ring_degree: int = 1024
) -> es.Parameters:
    """Parameters of a ring so small that thousands of operations take seconds; made by the
    library's own builder.
    """
    with pytest.warns(es.InsecureParametersWarning):
        return es.Parameters.from_bits(scheme, ring_degree, max_value, bits, allow_insecure=True)
