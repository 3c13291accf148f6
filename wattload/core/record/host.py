"""A host in the record: its properties, its state before and after the run, and its load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Self

from pydantic import Field, model_validator

from wattload.core.base_models import Frozen, Observed
from wattload.core.clock import ClockAnchor


class NumaNode(Frozen):
    """One NUMA node: its CPUs as the kernel lists them (``0-7``) and its memory."""

    node: int
    cpus: str
    memory_bytes: int


NOT_RECORDED = "the version that wrote this record did not record it"


class GroupState(Observed):
    """What the control groups of the run count since they exist.

    ``throttled_s`` is for how long CPU quotas stopped them, in CPU seconds; ``memory_limit_hits``
    is how often memory reached its limit.
    """

    throttled_s: float | None
    memory_bytes: int | None
    memory_limit_hits: int | None
    pressure_cpu_some_s: float | None
    pressure_io_some_s: float | None
    pressure_memory_some_s: float | None

    @classmethod
    def unknown(cls) -> Self:
        """Return the state in a record of a version that did not read it."""
        gaps = dict.fromkeys(cls.model_fields.keys() - {"missing"})
        return cls(**gaps, missing=dict.fromkeys(gaps, NOT_RECORDED))


class ImageFacts(Observed):
    """The container image of a run. Nothing inside a container can prove it: it is declared."""

    id: str | None = None
    evidence: Literal["declared"] = "declared"
    missing: Mapping[str, str] = {"id": NOT_RECORDED}


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
    cgroup_memory_high_bytes: int | None = None
    """The least ``memory.high``, above which the kernel slows processes."""
    cgroup_io_limits: Mapping[str, int] | None = None
    """Bytes or operations per second by device and limit: ``259:0 rbps``, as in ``io.max``."""

    @model_validator(mode="before")
    @classmethod
    def _explain_limits_of_older_versions(cls, data: object) -> object:
        if not isinstance(data, dict) or not isinstance(data.get("missing", {}), dict):
            return data
        names = {"cgroup_memory_high_bytes", "cgroup_io_limits"} - data.keys()
        return {**data, "missing": dict.fromkeys(names, NOT_RECORDED) | {**data.get("missing", {})}}


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
    group: GroupState = Field(default_factory=GroupState.unknown)


class ClockOffset(Frozen):
    """How far a host's CLOCK_MONOTONIC is ahead of the first host's, from one exchange of times.

    The true offset at ``monotonic_ns``, the host's own time, is within ``bound_ns`` of
    ``offset_ns``: half the round trip of the message, and the clocks' resolution.
    """

    monotonic_ns: int
    offset_ns: int
    bound_ns: int = Field(ge=0)


class HostRecord(Frozen):
    """One host with its state before and after the run.

    ``clocks`` were read in between: before the workload ran, and after it. ``offsets`` were
    measured when the run began and at those two moments. The first host has none.
    """

    facts: HostFacts
    before: HostState
    after: HostState | None
    clocks: tuple[ClockAnchor, ...] = ()
    offsets: tuple[ClockOffset, ...] = ()


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
    image: ImageFacts = ImageFacts()


LoadWindow = Literal["alone", "during", "after"]
MemoryMeter = Literal["uncore", "resctrl", "self_reported"]

CPU_BAND = 0.02
MEMORY_BAND = 0.03
"""How far the shares may be from what was asked for, as parts of the whole."""
ALONE_S = 10.0
"""How long the shares must hold without the workload."""

KEPT_METRIC = "load_kept_fraction"

NONE = "none"
"""The name for no load."""


class LoadLevel(Observed):
    """How busy a host was in one timed window: before the workload, while it ran, and after it.

    ``during`` is from the beginning of the first timed phase to the end of the last one; the time
    between its timed phases counts in none of the figures.

    Shares of CPU time are of all CPUs that the run may use (``/proc/stat``); iowait counts as
    idle, and ``steal_share`` is what a hypervisor took. ``cpu_share`` is all busy time, of which
    ``load_cpu_share`` is the load's own processes', ``run_cpu_share`` the run's, and
    ``other_cpu_share`` the rest. ``memory_bytes_per_s`` counts reads and writes by the record's
    meter; ``memory_share`` is its part of the peak. ``copied_bytes_per_s`` is the load's own
    traffic, ``work_fraction`` the part of its quotas that it did, copies and arithmetic weighted by
    the time that each takes at the load's peak. The pressures are the shares of time in which some
    task waited (``/proc/pressure``, ``some``).
    """

    host: str
    window: LoadWindow
    start_ns: int
    end_ns: int
    cpu_share: float | None
    steal_share: float | None
    load_cpu_share: float | None
    run_cpu_share: float | None
    other_cpu_share: float | None
    memory_bytes_per_s: float | None
    memory_share: float | None
    copied_bytes_per_s: float | None
    work_fraction: float | None
    pressure_cpu_share: float | None
    pressure_io_share: float | None
    pressure_memory_share: float | None


class LoadRecord(Observed):
    """A load on one host. Its quotas were settled without the workload, then left as they were.

    ``cpu_share_asked`` and ``memory_share_asked`` are of the host without the workload's reads;
    ``None`` for a program that takes no shares. ``peak_bytes_per_s`` is what the shares of memory
    traffic refer to: measured by ``meter`` while all CPUs copied, or the modules' rate times
    their channels, as ``peak_of`` says. With the meter ``self_reported`` traffic is the load's own
    count, and no utilisation. ``kept_fraction`` is the load's work per second during the workload
    over that before it: what is missing is what the workload cost it.
    """

    host: str
    name: str
    program: str
    cpus: str
    thread_count: int = Field(ge=1)
    cpu_share_asked: float | None
    memory_share_asked: float | None
    meter: MemoryMeter
    peak_of: Literal["measured", "theoretical"]
    peak_bytes_per_s: float | None
    measured_peak_bytes_per_s: float | None
    theoretical_peak_bytes_per_s: float | None
    settle_s: float | None
    """How long it took to reach the shares, the settled 10 s included."""
    copy_bytes_per_s_quota: float | None
    arithmetic_per_s_quota: float | None
    kept_fraction: float | None
    remarks: tuple[str, ...] = ()
    levels: tuple[LoadLevel, ...] = ()

    def level(self, window: LoadWindow) -> LoadLevel | None:
        """Return what was measured in a window, ``None`` if nothing was."""
        return next((level for level in self.levels if level.window == window), None)


def kept_fraction(levels: Sequence[LoadLevel]) -> float | None:
    """Return the part of its work that a load still did during the workload.

    Its quotas per second are the same in every window. ``None`` if its work was not counted.
    """
    work = {level.window: level.work_fraction for level in levels}
    alone, during = work.get("alone"), work.get("during")
    return during / alone if alone and during is not None else None


def mean_kept_fraction(loads: Sequence[LoadRecord]) -> float | None:
    """Return the mean of what the hosts' loads kept; ``None`` if one did not count its work."""
    kept = [load.kept_fraction for load in loads]
    known = [each for each in kept if each is not None]
    return sum(known) / len(known) if known and len(known) == len(kept) else None
