"""A target in the record: file system, block stack down to the controllers, queue settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from wattload.core.base_models import Frozen, Observed

NodeKind = Literal[
    "pool",
    "device_mapper",
    "md",
    "partition",
    "namespace",
    "path",
    "virtio",
    "scsi",
    "loop",
    "ram",
    "network",
    "controller",
    "unknown",
]


class QueueFacts(Observed):
    """Settings of one block device's request queue, from ``/sys/block/<name>/queue``."""

    scheduler: str | None
    write_cache: str | None
    nr_requests: int | None
    hardware_queues: int | None
    max_sectors_kb: int | None
    read_ahead_kb: int | None
    wbt_lat_us: int | None
    logical_block_bytes: int | None
    physical_block_bytes: int | None
    rotational: bool | None
    dma_alignment_bytes: int | None


class BlockNode(Observed):
    """One level of the block stack; leaves are controllers, or the lowest device without one.

    ``pool`` is a file system's own set of devices (btrfs), ``path`` one path to a multipath
    namespace. ``name`` is the kernel's (``nvme0n1p1``); ``serial`` identifies a controller.
    ``redundancy`` is the number of copies this level writes of each byte (1 for a plain device).
    """

    kind: NodeKind
    name: str
    major_minor: str | None
    size_bytes: int | None
    model: str | None
    serial: str | None
    redundancy: float | None
    queue: QueueFacts | None
    children: tuple[BlockNode, ...] = ()

    def written_factor(self) -> float | None:
        """Return the bytes that the lowest devices write in total for one byte at this level.

        This is the product over all levels, ``None`` if one is unknown or branches differ.
        """
        below = {child.written_factor() for child in self.children} or {1.0}
        factor = below.pop()
        if below or factor is None or self.redundancy is None:
            return None
        return self.redundancy * factor


class FileSystemFacts(Observed):
    """The file system under a target; ``category`` is what matters for a measurement."""

    category: Literal["local", "memory", "overlay", "network", "fuse", "unknown"]
    type: str
    source: str
    mount_point: str
    mount_options: tuple[str, ...]
    total_bytes: int | None
    block_bytes: int | None
    is_root: bool


class TargetFacts(Observed):
    """One target of a run. ``wattload report --redact`` masks ``path``.

    ``virtual`` is true on a hypervisor's disk: cold then means guest-cold. ``controllers`` are the
    serials of the leaves, keys of the record's controller list. ``shared_with`` are other mount
    points and swap areas on the same devices. ``warnings`` are sentences that the page must print
    (tmpfs, overlay, network, root file system).
    """

    index: int
    host: str
    kind: str
    path: str | None
    file_system: FileSystemFacts | None
    direct_io_memory_align_bytes: int | None
    direct_io_offset_align_bytes: int | None
    stack: BlockNode | None
    devices: tuple[str, ...]
    controllers: tuple[str, ...]
    virtual: bool | None
    shared_with: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class TargetState(Observed):
    """State of a target that changes during a run, read before and after it."""

    index: int
    free_bytes: int | None
    fill_fraction: float | None = Field(ge=0, le=1)
    extents_per_file: Mapping[str, int] | None
    """Number of extents of each data file, by path relative to the data folder."""


class DriveHistory(Frozen):
    """What was done to a drive before the run; ``unknown`` if wattload did not do it."""

    last_format: str = "unknown"
    last_trim: str = "unknown"
    preconditioning: str = "unknown"
    preconditioning_bytes: int | None = None
    session_written_bytes: int | None = None


class TargetRecord(Frozen):
    """One target with its state before and after the run."""

    facts: TargetFacts
    before: TargetState | None
    after: TargetState | None
    history: DriveHistory = Field(default_factory=DriveHistory)
