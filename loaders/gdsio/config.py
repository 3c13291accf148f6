"""The settings of loader=gdsio: NVIDIA's own program, which owns the loop of reads.

The user installs it: it comes with CUDA's package ``gds-tools`` and with no wheel.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from wattload.core.errors import ConfigError, MissingExtraError
from wattload.core.settings import check_settings, setting
from wattload.core.storage.targets import Target
from wattload.core.units import KIB
from wattload.core.workload import Requirement
from wattload.loaders.block_reads import Ability, BlockReader, ReadPlan
from wattload.loaders.gdsio.harness import DIRECT, THROUGH_CPU, GdsioReader, gpu_number

_TOOLS = "gds/tools/gdsio"
_CUDA = Path("/usr/local/cuda")


@dataclass(slots=True, kw_only=True)
class Config:
    """gdsio, with one thread per read in flight, on the same files.

    Its reads are at its own random offsets, its bytes are not checked, and it reports a mean
    latency only. Its transfer type does not prove a path: compatibility mode prints the same.
    """

    name: ClassVar[str] = "gdsio"
    requires: ClassVar[tuple[Requirement, ...]] = ()

    _target_: str = "wattload.loaders.gdsio.config.Config"
    binary: str | None = setting(
        None,
        "Path of the program.",
        unset="$CUDA_HOME/gds/tools/gdsio, /usr/local/cuda/gds/tools/gdsio, or that in PATH",
    )
    transfer: int = setting(
        DIRECT,
        "gdsio's -x: 0 by cuFile, 2 by pinned host memory and a copy.",
        least=DIRECT,
        most=THROUGH_CPU,
    )

    def check(self) -> None:
        """Raise ``ConfigError`` for a setting outside its range."""
        check_settings(self, "loader")
        if self.transfer not in (DIRECT, THROUGH_CPU):
            raise ConfigError(f"loader.transfer must be 0 or 2, got {self.transfer}")

    @property
    def abilities(self) -> Ability:
        return Ability.FILES | Ability.GPU | Ability.THREADS

    def check_block_reads(self, plan: ReadPlan, targets: Sequence[Target]) -> None:
        """Raise for a missing program, and for a plan that its options can't express."""
        self.program()
        if plan.duration_s != round(plan.duration_s):
            raise ConfigError(
                f"gdsio takes whole seconds, got workload.duration_s={plan.duration_s:g}"
            )
        for file in plan.files:
            if file.size_bytes % KIB:
                raise ConfigError(
                    f"gdsio takes sizes in KiB, and {file.path} is of {file.size_bytes} bytes; "
                    "set workload.file_bytes to a multiple of 1024"
                )
        for gpu in plan.gpus:
            gpu_number(gpu)

    def block_read_bytes(self, plan: ReadPlan) -> int:
        return plan.in_flight * plan.block_bytes

    def block_reader(self, plan: ReadPlan, folder: Path) -> BlockReader:
        """Return the program, ready to run."""
        return GdsioReader(self.program(), self.transfer, plan, folder)

    def program(self, environment: Mapping[str, str] = os.environ, installed: Path = _CUDA) -> Path:
        """Return the path of gdsio.

        Raises:
            MissingExtraError: it is in none of the usual places.
            ConfigError: the setting names something that can't be started.
        """
        if self.binary is not None:
            if not os.access(self.binary, os.X_OK):
                raise ConfigError(
                    f"loader.binary={self.binary} is not a program that can be started; name "
                    "gdsio, such as /usr/local/cuda/gds/tools/gdsio"
                )
            return Path(self.binary).absolute()
        homes = [Path(environment["CUDA_HOME"])] if environment.get("CUDA_HOME") else []
        places = [home / _TOOLS for home in (*homes, installed)]
        found = next((place for place in places if os.access(place, os.X_OK)), None)
        in_path = shutil.which("gdsio", path=environment.get("PATH"))
        if found is None and in_path is None:
            raise MissingExtraError(
                f"loader=gdsio needs gdsio, which is neither in "
                f"{', '.join(str(place.parent) for place in places)} nor in PATH; install CUDA's "
                "package gds-tools, set loader.binary, or use loader=bounce and loader=cufile"
            )
        return found or Path(in_path or "")
