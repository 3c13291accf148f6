"""What a run's host and targets are and how they stand, read before and after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from wattload.core.blockstat import BlockStat, counting_devices, read_block_stat
from wattload.core.host import host_facts, host_state
from wattload.core.nvme_sysfs import controllers_under, difference
from wattload.core.record.controller import ControllerFacts, ControllerRecord, ControllerState
from wattload.core.record.host import HostRecord
from wattload.core.record.target import DriveHistory, TargetRecord, TargetState
from wattload.core.resolve import target_state
from wattload.core.target import Target
from wattload.core.workload import DataFacts


def devices_under(targets: Sequence[Target]) -> tuple[str, ...]:
    """Return the block devices whose counters stand for the targets, each once."""
    return tuple(dict.fromkeys(name for target in targets for name in counting_devices(target)))


def read_stats(devices: Sequence[str]) -> Mapping[str, BlockStat]:
    """Return the counters of each device now."""
    return {name: read_block_stat(name) for name in devices}


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureReport:
    """A host's parts of the record."""

    host: HostRecord
    targets: tuple[TargetRecord, ...]
    controllers: tuple[ControllerRecord, ...]
