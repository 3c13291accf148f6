"""What is asked of a recorded trace: the file, how its times are to be read, whose it is."""

from __future__ import annotations

from dataclasses import dataclass

from wattload.core.errors import ConfigError

START, MONOTONIC, WALL = "start", "monotonic", "wall"
ALIGNMENTS = (START, MONOTONIC, WALL)


@dataclass(slots=True, kw_only=True)
class ReplayConfig:
    """A trace file, CSV or Parquet, and how it meets the run.

    ``align=start`` plays it in real time from the moment sampling starts. ``monotonic`` and
    ``wall`` attach what a meter recorded at the same time as the run, by the clock of this host or
    by UTC; the file may grow until the run ends. ``device`` is the drive, by serial or kernel
    name; it may stay empty where one drive lies under the target.
    """

    path: str = ""
    align: str = START
    device: str = ""

    def check(self) -> None:
        """Raise ``ConfigError`` for what no type can say."""
        if not self.path:
            raise ConfigError(
                "power=replay needs a trace: power.replay.path=trace.csv (or .parquet)"
            )
        if self.align not in ALIGNMENTS:
            raise ConfigError(
                f"power.replay.align must be one of {', '.join(ALIGNMENTS)}; got {self.align!r}"
            )
