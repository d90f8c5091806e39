"""Measure the primitive operations on this machine, cache the times, and scale them to parameters.

Measuring takes a second or two. OperationTimes from a busy machine are measured again once it is
idle.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any, Final

import numpy as np

from encryptedstats.circuits.bounds import ColumnRange
from encryptedstats.circuits.compiled import compile_outputs
from encryptedstats.circuits.cost import OperationTimes, read_cost, work_seconds
from encryptedstats.circuits.devices import get_devices
from encryptedstats.circuits.devices.native.sums import arithmetic
from encryptedstats.circuits.evaluate import compile_for, evaluate
from encryptedstats.circuits.expressions import Expression, column
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.sources import Source
from encryptedstats.crypto.encryption import encrypt_slots
from encryptedstats.crypto.engine import Engine
from encryptedstats.crypto.kernels import minimal_root
from encryptedstats.crypto.keys import Owner, PublicKeys
from encryptedstats.crypto.packing import packing_parameters
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.crypto.residues import Residues, ciphertext_of, residues_of
from encryptedstats.errors import NoiseError
from encryptedstats.machine import cores
from encryptedstats.storage.bitpack import pack, unpack
from encryptedstats.storage.files import write_atomic

_FEW_COLUMNS, _SAMPLE_COLUMNS = 3, 5  # of the table that devices are measured with
_OF_CORES: Final = ("native", "seal")  # a GPU states its own speed
_TRIES = 3
_BUSY = 0.5  # load per core above which times are not trusted
#: Below 2^50 a modular product can be computed in doubles, several at a time.
FAST_PRIME_BITS: Final = 49


def measure_times(parameters: Parameters) -> OperationTimes:
    """Return the times on this machine, from the cache or measured now, scaled to parameters."""
    cache, reference, busy = _cache_file(), _choose_reference(parameters), _read_load()
    # 7 is the version of the measurement. Other kernels and other arithmetic have other times.
    key = (
        f"{reference.fingerprint} {platform.node()} {platform.machine()} {arithmetic()} "
        f"{'+'.join(get_devices())} 7"
    )
    try:
        known = json.loads(cache.read_text())
    except (OSError, ValueError):
        known = {}
    if not isinstance(known, dict):
        known = {}
    try:
        times, busy_then = OperationTimes(**known[key]["times"]), float(known[key]["busy"])
        again = busy_then > _BUSY and busy < busy_then / 2
    except (KeyError, TypeError, ValueError):  # not measured yet, or by another version
        again = True
    if again:
        times = calibrate(reference)
        _keep(cache, {**known, key: {"times": vars(times), "busy": busy}})
    return scale_times(times, reference, parameters)


def _choose_reference(parameters: Parameters) -> Parameters:
    """Return the parameters to measure: of the same scheme, and with primes for the
    same kernels.
    """
    small = max(parameters.coefficient_moduli).bit_length() <= FAST_PRIME_BITS
    return Parameters.from_bits(
        parameters.scheme, 8192, 4000, (42, 43, 43, 43, 43) if small else (53, 53, 53, 54)
    )


def _read_load() -> float:
    """Return the load per core; 0 on systems that do not report it."""
    return os.getloadavg()[0] / cores() if hasattr(os, "getloadavg") else 0.0


def scale_times(
    times: OperationTimes, measured: Parameters, parameters: Parameters
) -> OperationTimes:
    """Scale times to other parameters.

    Most work is proportional to the words of a ciphertext, transforms to log N times that, and key
    switching also to the number of primes.
    """
    primes, had = len(parameters.data_moduli), len(measured.data_moduli)
    words = parameters.ring_degree * primes / (measured.ring_degree * had)
    transforms = words * math.log2(parameters.ring_degree) / math.log2(measured.ring_degree)
    key_switch = transforms * (primes + 1) / (had + 1)
    # BFV lifts the factors of a product to twice the primes.
    product = words if parameters.scheme == "bgv" else transforms * primes / had
    grown = {
        "switch": transforms,
        "encrypt": transforms,
        "mask": transforms,
        "start": transforms,
        "key_switch": key_switch,
        "multiply": product,
    }
    plain = dict.fromkeys(("load", "add", "scale", "unpack"), words)
    return replace(
        times, **{name: getattr(times, name) * by for name, by in (grown | plain).items()}
    )


def _cache_file() -> Path:
    base = (
        os.environ.get("ENCRYPTEDSTATS_CACHE")
        or os.environ.get("XDG_CACHE_HOME")
        or Path.home() / ".cache"
    )
    return Path(base) / "encryptedstats" / "times.json"


def _keep(cache: Path, known: dict[str, Any]) -> None:
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(cache, [json.dumps(known).encode()])
    except OSError:
        return  # the next plan measures again


def calibrate(parameters: Parameters) -> OperationTimes:
    """Measure the primitive operations, as the best of a few runs each."""
    owner = Owner(parameters)
    encryptor, keys = owner._encryptor, owner.public_keys()
    engine, evaluator = keys.engine, keys.engine.evaluator
    values = np.arange(parameters.slots, dtype=np.int64) % 2
    x, _ = encrypt_slots(values, encryptor)
    y, _ = encrypt_slots(values, encryptor)
    residues, two = residues_of(engine, x), engine.encode_integer(2)
    product = evaluator.multiply(x, y)
    lowest = engine.level_ids[min(1, len(engine.level_ids) - 1)]
    bits = [q.bit_length() for q in parameters.data_moduli]
    stored = [pack(np.ascontiguousarray(residues[:, i]), bits[i]) for i in range(len(bits))]

    def encrypt_and_store() -> None:
        fresh = residues_of(engine, encrypt_slots(values, encryptor)[0])
        for i, size in enumerate(bits):
            hashlib.sha256(pack(np.ascontiguousarray(fresh[:, i]), size).tobytes())

    def read_stored() -> None:
        for words, size in zip(stored, bits, strict=True):
            hashlib.sha256(words.tobytes())
            unpack(words, size)

    times = OperationTimes(
        load=_best(lambda: ciphertext_of(engine, residues)),
        add=_best(lambda: evaluator.add(x, y)),
        scale=_best(lambda: evaluator.multiply_plain(x, two)),
        mask=_best(lambda: evaluator.multiply_plain(x, engine.encoder.encode(values))),
        multiply=_best(lambda: evaluator.multiply(x, y)),
        switch=_best(lambda: evaluator.mod_switch_to(x, lowest)),
        key_switch=_best(lambda: keys.evaluator.relinearise(product)),
        encrypt=_best(encrypt_and_store),
        unpack=_best(read_stored),
    )
    rows_ratio, finish_ratio = _device_ratios(keys, residues, times)
    return replace(
        times, rows_ratio=rows_ratio, finish_ratio=finish_ratio, **_measure_start(keys, residues)
    )


def _measure_start(keys: PublicKeys, residues: Residues) -> dict[str, float]:
    """Measure what precedes the first operation of a process: contexts, keys, compiling."""
    parameters, stored = keys.parameters, keys.to_container()
    key_bytes = sum(map(len, stored.sections.values()))

    def prepare() -> None:
        for one in (parameters, packing_parameters(parameters)):
            Engine(one)
        for prime in parameters.coefficient_moduli:
            minimal_root.__wrapped__(prime, 2 * parameters.ring_degree)

    found = {
        "start": _best(prepare, 2),
        "read_key": _best(lambda: PublicKeys.from_container(stored), 2) / key_bytes,
    }
    for outputs_of in (_branches, _pairs):
        with suppress(NoiseError, OverflowError):
            return {**found, "compile": _time_compiling(outputs_of, _Sample(keys, residues, 1))}
    return found


def _time_compiling(outputs_of: Callable[[int], list[Expression]], sample: Source) -> float:
    """Return the seconds to compile one step, including writing the outputs."""
    compile_outputs.cache_clear()
    started = time.process_time()
    program = compile_for(outputs_of(_SAMPLE_COLUMNS), sample).program
    return (time.process_time() - started) / len(program.steps)


class _Sample(Source):
    """A small synthetic table to measure devices with."""

    def __init__(self, keys: PublicKeys, values: Residues, chunks: int) -> None:
        self._keys, self.values, self.chunks = keys, values, chunks

    @property
    def keys(self) -> PublicKeys:
        return self._keys

    @property
    def parameters(self) -> Parameters:
        return self.keys.parameters

    @property
    def layout(self) -> Layout:
        return Layout(
            self.chunks, self.parameters.slots, (1,) * self.chunks, self.parameters.copies
        )

    @property
    def with_secret_key(self) -> bool:
        return True

    def ranges(self) -> dict[str, ColumnRange]:
        return {f"x{j}": ColumnRange(0, 1) for j in range(_SAMPLE_COLUMNS)}

    def residues(self, name: str, chunk: int) -> Residues:
        return self.values


def _device_ratios(
    keys: PublicKeys, residues: Residues, times: OperationTimes
) -> tuple[float, float]:
    """Return measured over predicted time, over rows and for totals."""
    for outputs in (_branches, _pairs):
        with suppress(NoiseError, OverflowError):
            return _measure_ratios(outputs, keys, residues, times)
    return 1.0, 1.0  # these parameters carry no product, so there is little to estimate


def _branches(columns: int) -> list[Expression]:
    """Return the leaves of small trees."""
    x, leaves = [column(f"x{j}") for j in range(columns)], []
    for root, first, second in permutations(x, 3):
        left = root * first
        right = root - left
        leaves += [left * second, left - left * second, right * second]
    return [leaf.total() for leaf in leaves]


def _pairs(columns: int) -> list[Expression]:
    """Return products, for parameters that carry only one in a row."""
    x = [column(f"x{j}") for j in range(columns)]
    return [
        (x[i] * (x[j] + x[(j + 1) % columns])).total()
        for i in range(columns)
        for j in range(i + 1, columns)
    ]


def _measure_ratios(
    outputs_of: Callable[[int], list[Expression]],
    keys: PublicKeys,
    residues: Residues,
    times: OperationTimes,
) -> tuple[float, float]:
    """Compare evaluations of one and of several chunks with their predicted times.

    For SEAL a few totals are enough; kernels need more, so that computing outweighs starting.
    """
    sample = partial(_Sample, keys, residues)

    def run(columns: int, chunks: int, runs: int) -> float:
        outputs, source = outputs_of(columns), sample(chunks)
        program = compile_for(outputs, source).program
        device = next(name for name in _OF_CORES if get_devices()[name].obstacle(program) is None)
        return _best(partial(evaluate, outputs, source, workers=1, device=device), runs)

    def predict(columns: int) -> tuple[float, float]:
        cost = read_cost(compile_for(outputs_of(columns), sample(1)).program)
        rows, finish = (
            work_seconds(counts, times, keys.parameters) for counts in (cost.rows, cost.finish)
        )
        return rows, finish

    by_seal = run(_FEW_COLUMNS, 1, 2) > sum(predict(_FEW_COLUMNS)) / 2
    columns, many, runs = (_FEW_COLUMNS, 2, 1) if by_seal else (_SAMPLE_COLUMNS, 9, 2)
    rows_work, finish_work = predict(columns)
    for _ in range(_TRIES):
        short, long = run(columns, 1, runs), run(columns, many, runs)
        over_rows = (long - short) / (many - 1)
        if 0 < over_rows < short:
            return over_rows / rows_work, (short - over_rows) / finish_work
    return 1.0, 1.0  # too noisy to tell


def _best(action: Callable[[], object], runs: int = 5) -> float:
    """Return the least processor time of some runs, in seconds."""
    times = []
    for _ in range(runs):
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return min(times)
