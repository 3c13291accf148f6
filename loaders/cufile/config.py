"""The settings of loader=cufile: cuFileRead into registered GPU memory, as gdsio's type 0.

Each run has a configuration of cuFile of its own, kept with the record: whatever ``cufile.json`` of
the host or ``CUFILE_*`` in the environment say, two runs with the same settings are configured
alike.
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
from wattload.loaders.gpu.limits import check_limits
from wattload.loaders.gpu.probe import probe
from wattload.loaders.gpu.process import ProcessReader, Way
from wattload.loaders.gpu.targets import check_gpus, check_targets
from wattload.loaders.gpu_reads import GpuReader, GpuReadPlan

DIRECT, AUTO = "direct", "auto"
CONFIGURATION = "cufile.json"

_SLAB_SIZES_KB = (4, 1024, 16384)
_SLAB_COUNTS = (128, 64, 64)
"""cuFile's defaults: host buffers for reads that do not go direct, by size."""
_LEAST_DIRECT_KB = 1024
"""cuFile's own default without a `cufile.json`; its driver does not open with 64 (1.15)."""


@dataclass(slots=True, kw_only=True)
class Config:
    """Which paths of cuFile a run allows."""

    name: ClassVar[str] = "cufile"
    requires: ClassVar[tuple[Requirement, ...]] = ()

    _target_: str = "wattload.loaders.cufile.config.Config"
    mode: str = setting(
        DIRECT,
        "direct: GPUDirect Storage or an error; auto: through host memory where it is missing.",
        choices=(DIRECT, AUTO),
    )

    def check(self) -> None:
        """Raise ``ConfigError`` for an unknown mode."""
        check_settings(self, "loader")

    @property
    def gpu_path_must_be_direct(self) -> bool:
        """Whether ``mode`` is ``direct``."""
        return self.mode == DIRECT

    def check_gpu_reads(self, plan: GpuReadPlan, targets: Sequence[Target]) -> None:
        """Raise without CUDA, cuFile or the GPUs, for limits, and targets without O_DIRECT.

        Without nvidia-fs and PCI P2PDMA only cuFile itself says whether it reads, when it has a
        file: its driver is opened here with its own default configuration.
        """
        self.check()
        check_targets(plan, targets)
        check_limits(plan)
        found = probe()
        check_gpus(plan, found)
        if found.cufile is None and found.cufile_refusal is not None:
            raise found.cufile_refusal

    def gpu_reader(self, plan: GpuReadPlan, folder: Path) -> GpuReader:
        """Return the reader; ``folder`` gets ``cufile.json`` and cuFile's log."""
        place = folder.absolute()
        with open_folder(place) as opened:
            opened.write(CONFIGURATION, json.dumps(self.configuration(plan, place), indent=2))
        path = DataPath(
            data_path="cufile",
            path_requested=self.mode,
            engine=f"{plan.threads} threads with cuFileRead, {CONFIGURATION} of the run",
        )
        variables = {"CUFILE_ENV_PATH_JSON": str(place / CONFIGURATION)}
        return ProcessReader(plan, Way(name="cufile", path=path, library=True, variables=variables))

    def configuration(self, plan: GpuReadPlan, folder: Path) -> dict[str, Any]:
        """Return the configuration: cuFile's defaults where it says nothing.

        Where reads do not go direct, each registered buffer has a host buffer of
        ``max_direct_io_size_kb`` (16 MiB by default: 32 GiB for 2048 threads), so that is no larger
        than a block. A read into memory that shares a registration takes a slab of the pool, of
        the smallest size that holds it; cuFile 1.15 spins while none is free. Reads are not split,
        so that cuFile's statistics count each once.
        """
        if plan.block_bytes > _SLAB_SIZES_KB[-1] << 10 and self.mode == AUTO:
            raise ConfigError(
                f"workload.block_bytes must be at most {_SLAB_SIZES_KB[-1] << 10} with "
                f"loader.mode=auto, got {plan.block_bytes}"
            )
        block_kb = plan.block_bytes >> 10
        size_kb = next((kb for kb in _SLAB_SIZES_KB if plan.block_bytes <= kb << 10), 0)
        counts = [
            max(count, plan.threads) if kb == size_kb else count
            for kb, count in zip(_SLAB_SIZES_KB, _SLAB_COUNTS, strict=True)
        ]
        return {
            "logging": {"dir": str(folder), "level": "NOTICE"},
            "profile": {"nvtx": False, "cufile_stats": 3},
            "execution": {"parallel_io": False, "min_io_threshold_size_kb": max(block_kb, 8192)},
            "properties": {
                "allow_compat_mode": self.mode == AUTO,
                "force_compat_mode": False,
                "use_pci_p2pdma": True,
                "max_direct_io_size_kb": max(block_kb, _LEAST_DIRECT_KB),
                "posix_pool_slab_size_kb": list(_SLAB_SIZES_KB),
                "posix_pool_slab_count": counts,
            },
        }
