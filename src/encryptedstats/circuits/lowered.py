"""A table under fewer primes: columns are switched down before anything is computed, where there are more than it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from encryptedstats.circuits.bounds import ColumnRange
from encryptedstats.circuits.expressions import Expression, column_names
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.noise import PACKED, NoiseReport, read_noise
from encryptedstats.circuits.seal import Source
from encryptedstats.circuits.walk import FLAT
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.crypto.noise import Noise
from encryptedstats.crypto.packing import first_primes, packing_primes
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.crypto.residues import Residues, ciphertext_of, residues_of
from encryptedstats.errors import NoiseError

_KEPT_BYTES = 1 << 30  # of columns that are switched once and kept


def switched_residues(keys: PublicKeys, residues: Residues, level: int) -> Residues:
    """Modulus switching, by the kernels or by SEAL."""
    if keys.kernels is not None:
        return keys.kernels.switch(residues, level)
    engine = keys.engine
    return residues_of(engine, engine.evaluator.mod_switch_to(ciphertext_of(engine, residues), engine.level_ids[level]))


def start_level(outputs: Sequence[Expression], source: Source, report: NoiseReport) -> int:
    """The lowest level to begin at that leaves packs about as little noise: deeper computations have left primes to spare."""
    parameters, names = source.parameters, set(column_names(outputs))
    if parameters.kept_primes is None or report.pack is None or report.strategy != FLAT:
        return 0
    model = parameters.noise
    fresh = model.fresh(with_secret_key=source.with_secret_key)
    for level in range(len(parameters.data_moduli) - packing_primes(parameters) - 1, 0, -1):
        try:
            found = read_noise(
                outputs,
                parameters,
                source.layout,
                with_secret_key=source.with_secret_key,
                form=PACKED,
                known=dict.fromkeys(names, model.switch(fresh, level)),
                flooded=report.flooded,
                quick=True,
            )
        except NoiseError:
            continue
        same = (found.strategy, found.width) == (report.strategy, report.width)
        if (
            same
            and found.pack is not None
            and found.pack.flat + found.pack.peak <= 2 * (report.pack.flat + report.pack.peak)
        ):
            return level
    return 0


@dataclass
class Lowered:
    """The columns of a source at a level, as ciphertexts under the first primes alone."""

    source: Source
    level: int
    _columns: dict[tuple[str, int], Residues] = field(default_factory=dict)

    @property
    def parameters(self) -> Parameters:
        """The first primes alone."""
        every = self.source.parameters
        return first_primes(every, len(every.data_moduli) - self.level)

    @property
    def noises(self) -> dict[str, Noise]:
        """What switching left in the columns."""
        model = self.source.parameters.noise
        switched = model.switch(model.fresh(with_secret_key=self.with_secret_key), self.level)
        return dict.fromkeys(self.ranges(), switched.at(0))

    @property
    def keys(self) -> PublicKeys:
        """Those of the source."""
        return self.source.keys

    @property
    def layout(self) -> Layout:
        """That of the source."""
        return self.source.layout

    @property
    def with_secret_key(self) -> bool:
        """As of the source."""
        return self.source.with_secret_key

    @property
    def in_memory(self) -> bool:
        """Whether columns are switched once and kept."""
        return self._keeps

    @property
    def _keeps(self) -> bool:
        columns = len(self.ranges()) * self.layout.n_chunks
        return columns * self.parameters.ciphertext_bytes() <= _KEPT_BYTES

    @property
    def content_id(self) -> str | None:
        """Of the source; columns at another level are under other parameters."""
        return getattr(self.source, "content_id", None)

    def chunk_name(self, chunk: int) -> str:
        """What errors call a chunk."""
        named = getattr(self.source, "chunk_name", None)
        return f"chunk {chunk}" if named is None else str(named(chunk))

    def ranges(self) -> dict[str, ColumnRange]:
        """Those of the source."""
        return self.source.ranges()

    def residues(self, name: str, chunk: int) -> Residues:
        """A column over one chunk of rows, switched."""
        if (name, chunk) in self._columns:
            return self._columns[name, chunk]
        residues = switched_residues(self.keys, self.source.residues(name, chunk), self.level)
        if self._keeps:
            self._columns[name, chunk] = residues
        return residues
