"""The settings of loader=kvikio: reads into GPU memory by KvikIO, as frameworks make them.

cuDF and Zarr call ``CuFile.read`` or ``pread``, which hand each read to a thread of KvikIO's pool.
``raw_read`` makes the same read on the thread that calls it: what the pool costs is their
difference. Both take cuFile where it works, and POSIX reads with a copy where it does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from wattload.core.settings import check_settings, setting
from wattload.core.storage.targets import Target
from wattload.core.workload import Requirement, require_installed
from wattload.loaders.gpu_reads import GpuReader, GpuReadPlan

CALLS = ("read", "raw_read")


@dataclass(slots=True, kw_only=True)
class Config:
    """KvikIO's Python interface: a Python thread per read in flight.

    ``gds_threshold`` is 0, so that small reads take cuFile too, and ``auto_direct_io_read`` on, so
    that reads without cuFile bypass the page cache. Its pool has as many threads as are reading, a
    task holds a whole block, and so does each of its bounce buffers.
    """

    name: ClassVar[str] = "kvikio"
    requires: ClassVar[tuple[Requirement, ...]] = (
        Requirement(module="kvikio", software="KvikIO", extra="kvikio"),
        Requirement(module="cupy", software="CuPy", extra="kvikio"),
    )
    gpu_path_must_be_direct: ClassVar[bool] = False

    _target_: str = "wattload.loaders.kvikio.config.Config"
    call: str = setting(
        "read",
        "Method of kvikio.CuFile: read goes through KvikIO's pool of threads, raw_read does not.",
        choices=CALLS,
    )

    def check(self) -> None:
        """Raise ``ConfigError`` for a setting outside its range."""
        check_settings(self, "loader")

    def check_gpu_reads(self, plan: GpuReadPlan, targets: Sequence[Target]) -> None:
        """Raise if KvikIO or CuPy is not installed."""
        require_installed(self.requires, user="loader=kvikio", alternative="loader=bounce")

    def gpu_reader(self, plan: GpuReadPlan, folder: Path) -> GpuReader:
        """Return the reader: a process of its own, with everything registered."""
        raise NotImplementedError
