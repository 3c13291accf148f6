"""A target in the record: file system, block stack and queue settings, and its NVMe controllers.

Of a controller: identity, link, power and health, before and after a run.
"""

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


ADMIN_QUEUE_FIELDS = (
    "firmware_slot",
    "capacity_bytes",
    "unallocated_bytes",
    "volatile_write_cache",
    "power_state",
    "power_state_default",
    "power_state_saved",
    "apst_enabled",
    "apst_table",
    "media_written_bytes",
    "thermal_light_k",
    "thermal_heavy_k",
    "background_power",
    "throttle_events",
    "throttle_status",
    "preferred_write_bytes",
)
"""Fields of ``ControllerState`` that only NVMe commands can read; sysfs does not have them."""


class PowerStateFacts(Observed):
    """One power state descriptor (NVMe Base, Identify Controller bytes 2048 on), in SI units.

    Ranks run from 0 (best) to 31. ``active_workload`` is the workload behind ``active_w``: 0 is
    unknown, 1 idle periods with 32 random writes of 1 MiB, 2 sequential writes of 128 KiB.
    """

    index: int
    max_w: float | None
    operational: bool
    entry_latency_s: float | None
    exit_latency_s: float | None
    idle_w: float | None
    active_w: float | None
    active_workload: int | None
    read_throughput_rank: int | None
    read_latency_rank: int | None
    write_throughput_rank: int | None
    write_latency_rank: int | None
    power_fail_recovery_s: float | None
    quiescence_vault_s: float | None
    power_fail_vault_s: float | None
    idle_exit_latency_limit_s: float | None


class PowerCapabilities(Observed):
    """What a drive reports and controls of power and heat (NVMe Base 2.3, Identify Controller).

    ``unlimited_power_w`` is MUP, ``power_sample_interval_s`` IPMSR, ``longest_measurement_minutes``
    MSMT; the temperatures are WCTEMP, CCTEMP, MNTMT and MXTMT.
    """

    autonomous_transitions: bool
    permissive_mode: bool
    power_limit: bool
    power_measurement: bool
    voltage_measurement: bool
    thermal_management: bool
    unlimited_power_w: float | None
    power_sample_interval_s: float | None
    longest_measurement_minutes: int | None
    warning_temperature_k: int | None
    critical_temperature_k: int | None
    lowest_managed_temperature_k: int | None
    highest_managed_temperature_k: int | None


class ControllerFacts(Observed):
    """Properties that do not change during a run. Keyed by ``host`` and ``serial``."""

    host: str
    serial: str
    name: str
    model: str | None
    vendor_id: str | None
    transport: str | None
    address: str | None
    numa_node: int | None
    nvme_version: str | None
    link_speed_max_gt_per_s: float | None
    link_width_max: int | None
    power_states: tuple[PowerStateFacts, ...] | None
    holds_system: bool | None
    """Whether it holds the root file system or swap."""
    power: PowerCapabilities | None


class SmartState(Observed):
    """SMART / Health log 02h (NVMe Base 5.16.1.3), counters in SI units.

    ``sensors_k`` has the eight temperature sensors, ``None`` for those that are absent.
    ``lifetime_energy_wh`` (OLEC) and ``interval_power_w`` (IPM, the mean of the last second) are
    new in NVMe 2.3; an ``interval_power_type`` of 0 is the whole NVM subsystem.
    """

    critical_warning: int | None
    temperature_k: int | None
    available_spare_percent: int | None
    percentage_used: int | None
    read_bytes: int | None
    written_bytes: int | None
    read_commands: int | None
    write_commands: int | None
    power_cycles: int | None
    power_on_hours: int | None
    unsafe_shutdowns: int | None
    media_errors: int | None
    warning_temperature_minutes: int | None
    critical_temperature_minutes: int | None
    thermal_transitions_1: int | None
    thermal_transitions_2: int | None
    thermal_seconds_1: int | None
    thermal_seconds_2: int | None
    lifetime_energy_wh: int | None
    spare_threshold_percent: int | None
    busy_minutes: int | None
    error_log_entries: int | None
    sensors_k: tuple[int | None, ...] | None
    interval_power_w: float | None
    interval_power_step_w: float | None
    interval_power_type: int | None


class ControllerState(Observed):
    """State that may change in a run, read before and after it.

    Above ``thermal_light_k`` and ``thermal_heavy_k`` (feature 10h) the drive throttles itself.
    ``background_power`` (11h) allows it to exceed a non-operational state's power.
    ``throttle_events`` is OCP's throttling counter (log C0h, one byte), ``throttle_status`` its
    current throttling, 0 for none. Media bytes give the write amplification. The drive prefers
    writes in multiples of ``preferred_write_bytes`` (NPWG).
    """

    firmware: str | None
    firmware_slot: int | None
    lba_bytes: int | None
    namespace_size_bytes: int | None
    namespace_used_bytes: int | None
    capacity_bytes: int | None
    unallocated_bytes: int | None
    volatile_write_cache: bool | None
    power_state: int | None
    power_state_default: int | None
    power_state_saved: int | None
    apst_enabled: bool | None
    apst_table: tuple[str, ...] | None
    pm_qos_latency_us: str | None
    aspm: str | None
    link_speed_gt_per_s: float | None
    link_width: int | None
    max_payload_bytes: int | None
    max_read_request_bytes: int | None
    aer_counts: Mapping[str, int] | None
    media_written_bytes: int | None
    smart: SmartState | None
    thermal_light_k: int | None
    thermal_heavy_k: int | None
    background_power: bool | None
    throttle_events: int | None
    throttle_status: int | None
    preferred_write_bytes: int | None


class ControllerDifference(Observed):
    """After minus before; ``changed`` names a changed firmware, link or power state."""

    changed: tuple[str, ...]
    read_bytes: int | None
    written_bytes: int | None
    media_written_bytes: int | None
    write_amplification: float | None
    thermal_transitions: int | None
    media_errors: int | None
    unsafe_shutdowns: int | None
    aer_count: int | None


class ControllerRecord(Frozen):
    """One controller with its state before and after the run, and the difference."""

    facts: ControllerFacts
    before: ControllerState | None
    after: ControllerState | None
    difference: ControllerDifference | None
