"""The settings of loader=kvikio: reads into GPU memory by KvikIO, as frameworks make them.

cuDF and Zarr call ``CuFile.read`` or ``pread``, which hand each read to a thread of KvikIO's pool.
``raw_read`` makes the same read on the thread that calls it: what the pool costs is their
difference. Both take cuFile where it works, and POSIX reads with a copy where it does not.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from wattload.core.files import open_folder
from wattload.core.io import DataPath
from wattload.core.settings import check_settings, setting
from wattload.core.storage.targets import Target
from wattload.core.workload import Requirement, require_installed
from wattload.loaders.block_reads import Ability, BlockReader, ReadPlan
from wattload.loaders.gpu.host import check_host, cufile_io_kb
from wattload.loaders.gpu.process import ProcessReader, Way

CONFIGURATION = "cufile.json"
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

    _target_: str = "wattload.loaders.kvikio.config.Config"
    call: str = setting(
        "read",
        "Method of kvikio.CuFile: read goes through KvikIO's pool of threads, raw_read does not.",
        choices=CALLS,
    )

    def check(self) -> None:
        """Raise ``ConfigError`` for a setting outside its range."""
        check_settings(self, "loader")

    @property
    def abilities(self) -> Ability:
        return Ability.FILES | Ability.GPU | Ability.THREADS

    def check_block_reads(self, plan: ReadPlan, targets: Sequence[Target]) -> None:
        """Raise if KvikIO or CuPy is not installed, and for what no reader could do."""
        self.check()
        require_installed(self.requires, user="loader=kvikio", alternative="loader=bounce")
        check_host(plan, targets, buffer_bytes=cufile_io_kb(plan.block_bytes) << 10)

    def block_read_bytes(self, plan: ReadPlan) -> int:
        return plan.in_flight * plan.block_bytes

    def block_reader(self, plan: ReadPlan, folder: Path) -> BlockReader:
        """Return the reader; ``folder`` gets cuFile's log, if KvikIO finds cuFile."""
        place = folder.absolute()
        place.mkdir(parents=True, exist_ok=True)
        configuration = {
            "logging": {"dir": str(place)},
            "properties": {"max_direct_io_size_kb": cufile_io_kb(plan.block_bytes)},
        }
        with open_folder(place) as opened:
            opened.write(CONFIGURATION, json.dumps(configuration, indent=2))
        nodes = {*plan.gpus.values()}
        remarks = ("KvikIO's pool of threads runs on any CPU: the GPUs are on several NUMA nodes",)
        path = DataPath(
            data_path="kvikio",
            path_requested="auto",
            engine=(
                f"{plan.in_flight} Python threads with kvikio.CuFile.{self.call}, gds_threshold 0, "
                f"auto_direct_io_read, num_threads {plan.in_flight}"
            ),
            remarks=remarks if self.call == "read" and len(nodes) > 1 else (),
        )
        way = Way(
            module="wattload.loaders.kvikio.reads",
            arguments=(self.call,),
            path=path,
            variables={"CUFILE_ENV_PATH_JSON": str(place / CONFIGURATION)},
        )
        return ProcessReader(plan, way)
