"""The run as a workload sees it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from wattload.core.target import Target
from wattload.core.workload import Communicator, Phase, Progress
from wattload.life.phases import PhaseRecorder


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Implements ``wattload.core.workload.RunContext`` over a phase recorder."""

    targets: tuple[Target, ...]
    communicator: Communicator
    progress: Progress
    seed: int
    scale: str
    recorder: PhaseRecorder

    def phase(self, name: str, *, timed: bool = True) -> AbstractContextManager[Phase]:
        """Open a phase; see the protocol."""
        return self.recorder.phase(name, timed=timed)

    def output_folder(self, name: str) -> Path:
        """Return a place in the run's folder; see the protocol."""
        if self.recorder.folder is None:
            raise RuntimeError("there is no folder of the run before run()")
        return self.recorder.folder / name
