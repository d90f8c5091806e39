"""Interleaving is decided in one place, by the device that will run the program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

import encryptedstats as es
from encryptedstats.circuits.compiled import Compiled
from encryptedstats.circuits.devices import Device, Speed, Task, register, unregister
from encryptedstats.circuits.evaluate import choose_device
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.program import Program
from encryptedstats.crypto.residues import Residues


class Gpu(Device):
    """A fast device that gains nothing from interleaving, as a GPU."""

    name = "gpu"
    speed = Speed(rows=1e-30, totals=1e-30)
    interleaves = False
    able = True

    def obstacle(self, program: Program) -> str | None:
        return None if self.able else "it is in use"

    def run(self, task: Task) -> Iterable[Residues]:
        raise NotImplementedError


@pytest.fixture
def gpu() -> Iterator[Gpu]:
    gpu = Gpu()
    register(gpu, preferred=True)
    yield gpu
    unregister("gpu")


class Counted:
    """Compiles by the number of totals that are interleaved, and remembers what was asked."""

    def __init__(self, program: Program) -> None:
        self.program, self.asked = program, list[int | None]()

    def __call__(self, *, n_interleaved: int | None = None) -> Any:
        self.asked.append(n_interleaved)
        return Compiled(self.program, (), (), ())


@pytest.fixture
def counted() -> Counted:
    parameters = es.Parameters.from_bits("bgv", 8192, 1000, (42, 43, 43))
    return Counted(Program(parameters, Layout(10), "packed", ()))


def test_a_program_is_compiled_once_where_only_cores_are(counted: Counted) -> None:
    choose_device(counted, "auto")
    assert counted.asked == [None]


def test_a_program_is_compiled_once_for_a_gpu(gpu: Gpu, counted: Counted) -> None:
    assert choose_device(counted, "auto")[1] is gpu
    assert counted.asked == [1]


def test_what_a_gpu_cannot_run_is_interleaved(gpu: Gpu, counted: Counted) -> None:
    gpu.able = False
    assert choose_device(counted, "auto")[1].interleaves
    assert counted.asked == [1, None]


def test_a_gpu_that_is_not_asked_for_decides_nothing(gpu: Gpu, counted: Counted) -> None:
    assert choose_device(counted, "seal")[1].name == "seal"
    assert counted.asked == [None]
