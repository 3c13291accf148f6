"""``load=stressapptest``: the user's stressapptest, as it is, with its level measured."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass

from wattload.core.errors import ConfigError
from wattload.core.settings import check_settings, setting
from wattload.core.sysfs import LIVE, read_meminfo
from wattload.core.units import MIB, format_bytes

LONGEST_S = 30 * 86_400
"""What it is started for; it is ended with the run."""


@dataclass(slots=True, kw_only=True)
class Config:
    """Its only control are counts of threads: the shares that it reaches are measured."""

    name: str = setting("stressapptest", "Selected by load=NAME.", choices=("stressapptest",))
    binary: str = setting("stressapptest", "The program, by name or path.")
    copy_threads: int | None = setting(
        None, "Threads that copy memory (-m).", least=1, most=65536, unset="one per CPU"
    )
    cpu_threads: int = setting(0, "Threads that compute (-C).", least=0, most=65536)
    memory_bytes: int = setting(
        1024 * MIB, "Memory that it copies within (-M).", least=64 * MIB, multiple=MIB
    )
    warm_up_s: float = setting(
        5.0, "Time until its memory is filled, before its level is measured.", least=0, most=3600
    )
    alone_s: float = setting(
        10.0,
        "How long its level is measured without the workload, before and after it; under 10 s the "
        "run gets a warning.",
        least=1,
        most=3600,
    )

    @property
    def expected_s(self) -> float:
        return self.warm_up_s + 2 * self.alone_s

    def check(self) -> None:
        """Raise ``ConfigError`` for a setting outside its range."""
        check_settings(self, "load")

    def require_possible(self, other_bytes: int) -> None:
        """Raise ``ConfigError`` if the program is missing, or its memory beside the run's."""
        if shutil.which(self.binary) is None:
            raise ConfigError(
                f"load=stressapptest needs the program {self.binary}, which is not installed; "
                "install it (e.g. apt-get install stressapptest) or set load.binary=PATH"
            )
        available = read_meminfo(LIVE.proc / "meminfo")["MemAvailable"] - other_bytes
        if self.memory_bytes > available:
            raise ConfigError(
                f"load.memory_bytes is {format_bytes(self.memory_bytes)}, but only "
                f"{format_bytes(max(available, 0))} of memory are available"
            )

    @property
    def thread_count(self) -> int:
        return self._copy_count + self.cpu_threads

    @property
    def _copy_count(self) -> int:
        return self.copy_threads or len(os.sched_getaffinity(0))

    def program(self) -> list[str]:
        """Return the command line, without a shell."""
        copies = self._copy_count
        memory = self.memory_bytes // MIB
        words = [self.binary, "-s", LONGEST_S, "-M", memory, "-m", copies, "-C", self.cpu_threads]
        return [str(word) for word in words]
