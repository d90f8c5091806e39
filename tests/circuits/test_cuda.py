"""The CUDA device without a card: its kernels on this processor, over the programs of the conformance suite; and what is shipped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import test_devices as suite
from circuit_samples import Lab, lab_of
from given_samples import kept_lab
from host_card import COMPILER, HostCard

from encryptedstats.circuits.devices import register, unregister
from encryptedstats.circuits.devices.cuda import CudaDevice

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler here")


class HostCuda(CudaDevice):
    """The device with all that it does on this processor."""

    name = "cuda on this processor"

    def __init__(self, arithmetic: str) -> None:
        super().__init__(HostCard(), arithmetic)  # type: ignore[arg-type]  # a card in all that matters


@pytest.fixture(params=["doubles", "integers"])
def name(request: pytest.FixtureRequest) -> Any:
    register(HostCuda(request.param))
    yield HostCuda.name
    unregister(HostCuda.name)


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "factors"])
def lab(request: pytest.FixtureRequest) -> Lab:
    return lab_of("bgv", bits=(49,) * 8, factors=request.param)


@pytest.mark.parametrize("form", ["packed", "slots"])
@pytest.mark.parametrize("what", suite.PROGRAMS)
def test_totals(lab: Lab, name: str, what: str, form: str) -> None:
    suite.check(suite.PROGRAMS[what], lab.source((9, 5, 7), seed=3), name, form=form)


def test_columns_that_begin_lower_down(name: str) -> None:
    suite.test_columns_that_begin_lower_down(name)


def test_packs_are_taken_apart(name: str) -> None:
    suite.test_packs_are_taken_apart(name)


def test_rows_beside_given_totals(name: str) -> None:
    suite.test_rows_beside_given_totals(name)


def test_totals_of_given_totals(name: str) -> None:
    suite.test_totals_of_given_totals(name)


def test_a_sum_that_is_always_0_is_refused(lab: Lab, name: str) -> None:
    suite.test_a_sum_that_is_always_0_is_refused(lab, name)


def test_many_packs_and_batches(lab: Lab, name: str) -> None:
    suite.test_many_packs_and_batches(lab, name)
