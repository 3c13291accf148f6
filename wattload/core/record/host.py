"""A host in the record: its properties, and its load before and after the run."""

from __future__ import annotations

from collections.abc import Mapping

from wattload.core.base_models import Frozen, Observed
from wattload.core.clock import ClockAnchor


class NumaNode(Frozen):
    """One NUMA node: its CPUs as the kernel lists them (``0-7``) and its memory."""

    node: int
    cpus: str
    memory_bytes: int


class HostFacts(Observed):
    """Properties that do not change during a run. ``wattload report --redact`` masks ``name``."""

    name: str
    machine: str | None
    os: str | None
    kernel: str
    kernel_command_line: str | None
    cpu_model: str | None
    cpu_count: int
    microcode: str | None
    governor: str | None
    c_states: tuple[str, ...] | None
    smt_active: bool | None
    numa_nodes: tuple[NumaNode, ...] | None
    interrupt_affinity: Mapping[str, str] | None
    """CPUs that each interrupt of a target's device may run on, by interrupt name."""
    memory_bytes: int | None
    swap_bytes: int | None
    transparent_huge_pages: str | None
    iommu_groups: int | None
    hypervisor: str | None
    container: str | None
    cgroup_cpu_limit: float | None
    cgroup_memory_limit_bytes: int | None


class HostState(Observed):
    """State that changes during a run. Times are CPU seconds since boot, summed over CPUs.

    ``ntp_offset_s`` is the correction of the wall clock that the kernel has still to make,
    ``ntp_error_s`` the estimated error of the clock and ``ntp_max_error_s`` the bound for it
    (adjtimex); ``None`` if no time service keeps it synchronised.
    """

    clock: ClockAnchor
    cpu_busy_s: float | None
    cpu_total_s: float | None
    steal_s: float | None
    load_1min: float | None
    memory_available_bytes: int | None
    swap_used_bytes: int | None
    dirty_bytes: int | None
    pressure_cpu_some_s: float | None
    pressure_io_some_s: float | None
    pressure_memory_some_s: float | None
    ntp_offset_s: float | None
    ntp_error_s: float | None
    ntp_max_error_s: float | None


class HostRecord(Frozen):
    """One host with its state before and after the run.

    ``clocks`` were read in between: before the workload ran, and after it.
    """

    facts: HostFacts
    before: HostState
    after: HostState | None
    clocks: tuple[ClockAnchor, ...] = ()


class RankRecord(Observed):
    """One process of the run. ``cpu_s`` is user plus system time, including its children's."""

    rank: int
    host: str
    pid: int
    cpu_affinity: str | None
    cpu_s: float | None
    peak_memory_bytes: int | None


class SoftwareFacts(Observed):
    """Versions of wattload, Python and the libraries that move bytes."""

    wattload: str
    python: str
    libraries: Mapping[str, str]
    git_commit: str | None
    git_dirty: bool | None
