"""loader=cufile: cuFileRead into registered GPU memory, as gdsio's type 0.

Each run has a configuration of cuFile of its own, kept with the record. cuFile reads
``/etc/cufile.json`` first and then replaces what the run's own configuration names, so it names all
that matters here. ``CUFILE_*`` variables of the environment do not reach the reader.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from wattload.core.errors import ConfigError
from wattload.core.files import open_folder
from wattload.core.io import DataPath
from wattload.core.settings import check_settings, setting
from wattload.core.storage.targets import Target
from wattload.core.workload import Requirement
from wattload.loaders.block_reads import Ability, BlockReader, ReadPlan
from wattload.loaders.gpu.host import MOST_IO_KB, check_host, cufile_io_kb
from wattload.loaders.gpu.process import ENGINE, ProcessReader, Way

DIRECT, AUTO = "direct", "auto"
CONFIGURATION = "cufile.json"

_SPLIT_KB = 8192
"""cuFile's default of ``min_io_threshold_size_kb``: larger reads are cut in parallel parts."""

_POOL_SIZES_KB = (4, 1024, 16384)
_POOL_COUNTS = (128, 64, 64)
"""cuFile's defaults: host buffers by size, for reads into GPU memory that has none of its own."""


@dataclass(slots=True, kw_only=True)
class Config:
    """Which paths of cuFile a run allows."""

    name: ClassVar[str] = "cufile"
    requires: ClassVar[tuple[Requirement, ...]] = ()

    _target_: str = "wattload.loaders.cufile.Config"
    mode: str = setting(
        DIRECT,
        "direct: GPUDirect Storage or an error; auto: through host memory where it is missing.",
        choices=(DIRECT, AUTO),
    )

    def check(self) -> None:
        """Raise ``ConfigError`` for an unknown mode."""
        check_settings(self, "loader")

    @property
    def abilities(self) -> Ability:
        own = Ability.FILES | Ability.GPU | Ability.THREADS
        return own | Ability.ONLY_DIRECT if self.mode == DIRECT else own

    def check_block_reads(self, plan: ReadPlan, targets: Sequence[Target]) -> None:
        """Raise without CUDA, cuFile or the GPUs, for limits, and targets without O_DIRECT.

        Without nvidia-fs and PCI P2PDMA only cuFile itself says whether it reads, when it has a
        file: its driver is opened here with its own default configuration.
        """
        self.check()
        found = check_host(plan, targets, buffer_bytes=_io_kb(plan) << 10, with_cufile=True)
        if found.cufile is None and found.cufile_refusal is not None:
            raise found.cufile_refusal

    def block_read_bytes(self, plan: ReadPlan) -> int:
        return plan.in_flight * plan.block_bytes

    def block_reader(self, plan: ReadPlan, folder: Path) -> BlockReader:
        """Return the reader; ``folder`` gets ``cufile.json`` and cuFile's log."""
        place = folder.absolute()
        place.mkdir(parents=True, exist_ok=True)
        with open_folder(place) as opened:
            opened.write(CONFIGURATION, json.dumps(self.configuration(plan, place), indent=2))
        path = DataPath(
            data_path="cufile",
            path_requested=self.mode,
            engine=f"{plan.in_flight} threads with cuFileRead, {CONFIGURATION} of the run",
        )
        variables = {"CUFILE_ENV_PATH_JSON": str(place / CONFIGURATION)}
        way = Way(module=ENGINE, arguments=("cufile", 1), path=path, variables=variables)
        return ProcessReader(plan, way)

    def configuration(self, plan: ReadPlan, folder: Path) -> dict[str, Any]:
        """Return the configuration; it allows the path through host memory with ``auto`` only.

        Reads without a host buffer of their own (``cufile_io_kb``) take one of the pool, and wait
        in a busy loop when it is empty. Parallel I/O would cut one read into several, which the
        statistics count.
        """
        size_kb = next(kb for kb in _POOL_SIZES_KB if plan.block_bytes <= kb << 10)
        counts = [
            max(count, plan.in_flight) if kb == size_kb else count
            for kb, count in zip(_POOL_SIZES_KB, _POOL_COUNTS, strict=True)
        ]
        return {
            "logging": {"dir": str(folder), "level": "NOTICE"},
            "profile": {"nvtx": False, "cufile_stats": 3},
            "execution": {
                "parallel_io": False,
                "min_io_threshold_size_kb": max(plan.block_bytes >> 10, _SPLIT_KB),
            },
            "properties": {
                "allow_compat_mode": self.mode == AUTO,
                "force_compat_mode": False,
                "use_pci_p2pdma": True,
                "use_poll_mode": False,
                "max_direct_io_size_kb": _io_kb(plan),
                "posix_pool_slab_size_kb": list(_POOL_SIZES_KB),
                "posix_pool_slab_count": counts,
            },
        }


def _io_kb(plan: ReadPlan) -> int:
    """Return the least ``max_direct_io_size_kb`` that does not cut the reads of a plan.

    Raises:
        ConfigError: there is none.
    """
    if plan.block_bytes > MOST_IO_KB << 10:
        raise ConfigError(
            f"loader=cufile reads blocks of at most {MOST_IO_KB << 10} bytes in one piece; "
            f"workload.block_bytes is {plan.block_bytes}"
        )
    return cufile_io_kb(plan.block_bytes)
