"""The truth on disk: one line for each second of CLOCK_MONOTONIC, appended as it passes."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from tests.lab.virtual_ssd.curve import NS_PER_S
from tests.lab.virtual_ssd.engine import Engine

COLUMNS = "start_ns,end_ns,energy_j,power_state,temperature_k,read_bytes,written_bytes"


class Truth:
    """A CSV file with the columns above; state, temperature and bytes so far as at the writing."""

    def __init__(self, path: Path, engine: Engine) -> None:
        self._engine = engine
        self._file: TextIO = path.open("w", encoding="utf-8", buffering=1)
        self._file.write(COLUMNS + "\n")
        self._written_ns = -(-engine.curve.start_ns // NS_PER_S) * NS_PER_S

    def write(self) -> None:
        """Append the whole seconds that the engine has lived through since the last time."""
        engine = self._engine
        while self._written_ns + NS_PER_S <= engine.curve.end_ns:
            end_ns = self._written_ns + NS_PER_S
            energy_j = engine.curve.between_j(self._written_ns, end_ns)
            self._file.write(
                f"{self._written_ns},{end_ns},{energy_j!r},{engine.state},"
                f"{engine.thermal.temperature_k:.3f},{engine.read_bytes},{engine.written_bytes}\n"
            )
            self._written_ns = end_ns

    def close(self) -> None:
        """Give the file back."""
        self._file.close()
