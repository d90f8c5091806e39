"""Calls of the C extensions, written down by the tests that make them on one processor and made
again on another.

As a plugin of pytest (``-p kernel_calls``) it writes calls with what they gave into the folder
ENCRYPTEDSTATS_CALLS; as a program it makes them again with the extensions of this folder and
compares every residue. It needs NumPy alone, so that it runs where neither SEAL nor this library
is: on an emulated processor.
"""

from __future__ import annotations

import copy
import importlib
import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

EXTENSIONS = ("_residues", "_fused", "_storage")
#: What the levels of the one processor are on the other: vectors of doubles, words or integers in
#: the same form.
SAME_LEVEL = {"baseline": "baseline", "avx2": "neon"}
MADE = ("ring", "key")  # what they return is known by a number, not by its bytes
MOST_CALLS = 2  # of one function on one level in one test
MOST_BYTES = 2 << 20  # of the arrays of one call

Call = dict[str, Any]


class Recorder:
    """Wraps the functions of the extensions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written = 0
        self.made: dict[int, Made] = {}
        self.seen: Counter[tuple[str, ...]] = Counter()
        self.one_at_a_time = threading.Lock()  # threads write parts of the same arrays

    def wrap(self, module: Any, name: str) -> None:
        """From now on calls of this function are written down."""
        function = getattr(module, name)
        short = module.__name__.rpartition(".")[2]

        def recorded(*arguments: Any) -> Any:
            with self.one_at_a_time:
                return self.call(short, name, function, arguments)

        setattr(module, name, recorded)

    def call(
        self, module: str, name: str, function: Callable[..., Any], arguments: tuple[Any, ...]
    ) -> Any:
        """Make a call and write it down, if it is of a kind of which there are not enough yet.
        Refusals are for the tests.
        """
        level = self.level_of(module, name, arguments)
        if level not in SAME_LEVEL or size_of(arguments) > MOST_BYTES or not self.knows(arguments):
            return function(*arguments)
        if name in MADE:
            before = copied(arguments)
            result = function(*arguments)
            self.made[id(result)] = Made(result, level, name, before)
            return result
        kind = (os.environ.get("PYTEST_CURRENT_TEST", ""), module, name, level)
        if self.seen[kind] >= MOST_CALLS:
            return function(*arguments)
        before = copied(arguments)
        result = function(*arguments)
        self.seen[kind] += 1
        self.write(
            module, name, level, before, {"result": result}, results_of(module, name, arguments)
        )
        return result

    def level_of(self, module: str, name: str, arguments: tuple[Any, ...]) -> str:
        """The level that a call is made on; empty for one that cannot be right."""
        if module == "_residues" and name != "ring":
            ring = self.made.get(id(arguments[0])) if arguments else None
            return ring.level if ring else ""
        names = [one for one in arguments if isinstance(one, str)]
        return names[0] if names else "baseline"

    def knows(self, value: Any) -> bool:
        """Whether all rings and keys in it were seen when they were made."""
        if isinstance(value, tuple):
            return all(map(self.knows, value))
        return type(value).__name__ != "PyCapsule" or id(value) in self.made

    def write(
        self,
        module: str,
        name: str,
        level: str,
        given: Any,
        more: Call,
        results: tuple[Any, ...] = (),
    ) -> int:
        """One call into two files, behind those of the rings and keys that it needs; its number."""
        arrays: list[np.ndarray] = []
        call = {"module": module, "name": name, "level": level, **more}
        call["given"] = self.described(given, arrays)
        call["results"] = self.described(results, arrays)
        number, self.written = self.written, self.written + 1
        np.savez(self.folder / f"{number:06}.npz", *arrays)
        (self.folder / f"{number:06}.json").write_text(json.dumps(call))
        return number

    def described(self, value: Any, arrays: list[np.ndarray]) -> Any:
        if isinstance(value, tuple):
            return {"tuple": [self.described(one, arrays) for one in value]}
        if isinstance(value, (np.ndarray, bytes, bytearray, memoryview)):
            arrays.append(
                np.array(value)
                if isinstance(value, np.ndarray)
                else np.frombuffer(bytes(value), dtype=np.uint8)
            )
            return {"array": len(arrays) - 1, "bytes": not isinstance(value, np.ndarray)}
        if id(value) in self.made:
            made = self.made[id(value)]
            if made.number is None:
                made.number = self.write("_residues", made.name, made.level, made.given, {})
            return {"made": made.number}
        return {"plain": value.item() if isinstance(value, np.generic) else value}


@dataclass
class Made:
    """A ring or a key: kept, so that nothing else has its address, and written down when a call
    first needs it.
    """

    itself: Any
    level: str
    name: str
    given: tuple[Any, ...]
    number: int | None = None


def size_of(value: Any) -> int:
    """Bytes of the arrays in it."""
    if isinstance(value, tuple):
        return sum(map(size_of, value))
    return (
        value.nbytes
        if isinstance(value, (np.ndarray, memoryview))
        else len(value)
        if isinstance(value, (bytes, bytearray))
        else 0
    )


def copied(value: Any) -> Any:
    """The same with arrays of its own, which a call cannot change."""
    if isinstance(value, tuple):
        return tuple(map(copied, value))
    return copy.copy(value) if isinstance(value, (np.ndarray, bytearray)) else value


def pytest_configure(config: Any) -> None:
    """Of pytest: write down what the tests call."""
    recorder = Recorder(Path(os.environ["ENCRYPTEDSTATS_CALLS"]))
    for extension in EXTENSIONS:
        module = importlib.import_module(f"encryptedstats.{extension}")
        for name in dir(module):
            if (
                callable(getattr(module, name))
                and not name.startswith("_")
                and name not in ("levels", "way", "scratch")
            ):
                recorder.wrap(module, name)


def results_of(module: str, name: str, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments into which a call writes what it computes; scratch memory is each processor's
    own.
    """
    places = {
        "_residues": {
            "lower": 7,
            "pack": 7,
            "expand": 6,
            "automorphism": 4,
            "transform": 4,
            "masked": 4,
        },
        "_fused": {"run": 11},
        "_storage": {"hash": 3, "pack": 4, "read": 6, "rebase": 4},
    }
    return (arguments[places[module][name]],)


def aligned(array: np.ndarray) -> np.ndarray:
    """The same numbers at the beginning of a cache line, where some memory has to be."""
    memory = np.empty(array.nbytes + 64, dtype=np.uint8)
    found = (
        memory[-memory.ctypes.data % 64 :][: array.nbytes].view(array.dtype).reshape(array.shape)
    )
    found[...] = array
    return found


def replay(folder: Path) -> int:
    """Make all calls again and compare; returns how many differed."""
    made: dict[int, Any] = {}
    counted: Counter[str] = Counter()
    wrong = 0
    for path in sorted(folder.glob("*.json")):
        call = json.loads(path.read_text())
        with np.load(path.with_suffix(".npz")) as stored:
            arrays = [stored[name] for name in stored.files]

        def value_of(what: Any, arrays: list[np.ndarray] = arrays) -> Any:
            if "tuple" in what:
                return tuple(map(value_of, what["tuple"]))
            if "array" in what:
                found = arrays[what["array"]]
                return bytearray(found.tobytes()) if what["bytes"] else aligned(found)
            return made[what["made"]] if "made" in what else what["plain"]

        arguments = [value_of(one) for one in call["given"]["tuple"]]
        level = SAME_LEVEL[call["level"]]
        arguments = [
            level if isinstance(one, str) and one == call["level"] else one for one in arguments
        ]
        module = importlib.import_module(call["module"])
        result = getattr(module, call["name"])(*arguments)
        counted[f"{call['module']}.{call['name']} {level}"] += 1
        if call["name"] in MADE:
            made[int(path.stem)] = result
            if call["name"] == "ring":
                counted[f"way {module.way(result)}"] += 1
            continue
        found = results_of(call["module"], call["name"], arguments)
        expected = value_of(call["results"])
        same = all(
            np.array_equal(np.asarray(x), np.asarray(y))
            for x, y in zip(found, expected, strict=True)
        )
        if not same or result != call["result"]:
            wrong += 1
            print(
                f"call {path.stem}: {call['module']}.{call['name']} on {level} gives something "
                "else",
                flush=True,
            )
    print(json.dumps({"processor": os.uname().machine, "wrong": wrong, "calls": counted}, indent=1))
    return wrong


if __name__ == "__main__":
    raise SystemExit(1 if replay(Path(sys.argv[1])) else 0)
