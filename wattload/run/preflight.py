"""Preflight checks: everything that can fail is tried before hours are spent.

Free space, permissions, process counts, memory, and the guard against wearing a drive out.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from wattload.core.errors import ConfigError, TargetError
from wattload.core.host.cgroups import usable_memory_bytes
from wattload.core.record.run import RunRecord
from wattload.core.record.target import TargetFacts
from wattload.core.storage.block_stack import walk
from wattload.core.storage.controllers import controllers_under
from wattload.core.storage.targets import Target, check_writable
from wattload.core.units import TB, compared_bytes, format_bytes
from wattload.core.workload import WorkloadPlan
from wattload.loaders.checkpoint_store import CheckpointLoader
from wattload.loaders.samples import SampleLoaderConfig
from wattload.power.config import PowerConfig
from wattload.power.registry import AUTO, NONE
from wattload.results.quantity import counted
from wattload.run.compose import loaders_with, workload_class
from wattload.run.config import RunConfig
from wattload.run.hosts import Faults
from wattload.run.power_session import REPLAY, IdleTimes

WRITE_LIMIT_BYTES = 10 * TB

FREE_SHARE = 0.05
"""At least this share of the file system stays free."""

LEAST_WEAR = 0.01
"""From so many drive writes on, they are announced."""

ROOT = "/"

NVME = "nvme"
"""The meter that reads a drive by its own admin queue."""

DECLARED = "declared"
"""The source of a data sheet, which is not read."""


def preflight(
    config: RunConfig,
    targets: Sequence[Target],
    plan: WorkloadPlan,
    world_size: int,
    ledger: WriteLedger | None = None,
    *,
    job_ranks: int | None = None,
    host_ranks: int | None = None,
) -> list[str]:
    """Return the lines to print before the run starts; raise for what would make it fail.

    It judges this host, as each host does for itself. ``ledger`` has the writes of the runs before
    this one, if a command makes several. Of the ``world_size`` processes, ``job_ranks`` make one
    job of the plan together and ``host_ranks`` are on this host; by default all.

    Raises:
        ConfigError: the number of processes does not fit, or a guard refuses the run.
        TargetError: the target is not writable, is too small, or refuses O_DIRECT. The notes name
            what else is wrong.
    """
    faults, host_ranks = Faults(), host_ranks or world_size
    faults.of(lambda: _check_ranks(config.ranks, plan, world_size, job_ranks or world_size))
    for target in targets:
        faults.of(partial(_check_target, config, target, plan, len(targets)))
        faults.of(partial((ledger or WriteLedger()).check, config, target, writes_of(plan)))
    faults.of(lambda: _check_memory(plan, host_ranks))
    faults.of(lambda: config.load.require_possible(plan.memory_bytes_per_rank * host_ranks))
    faults.raise_all()
    return _announce(targets, plan)


def hosts_text(config: RunConfig, hosts: Sequence[str], world_size: int) -> str:
    """Return how a run divides its work over several hosts, and whose sizes are printed."""
    listed = f"{len(hosts)} ({', '.join(hosts)})"
    together = f"{world_size} processes do one job together"
    if config.target.shared:
        return f"{listed}, one shared folder: {together}"
    work = together
    if workload_class(config).over_hosts == "replicate":
        work = "each host does the whole job"
    return f"{listed}, a drive each: {work}; sizes are those of {hosts[0]}"


def possible_waits(config: PowerConfig, targets: Sequence[Target]) -> IdleTimes | None:
    """Return how long a run waits if a drive's power is measured, ``None`` if it measures nothing.

    Whether it is measured is known only once the meters are opened.
    """
    if config.source in (NONE, DECLARED):
        return None
    asks_drive = NVME in (config.source, *config.beside)
    asks_drive |= config.source == AUTO and any(map(controllers_under, targets))
    return IdleTimes.measured(config, asks_drive=asks_drive)


def waits_text(config: PowerConfig, targets: Sequence[Target]) -> str:
    """Return ``possible_waits`` in words, empty if a run measures nothing."""
    times = possible_waits(config, targets)
    if times is None:
        return ""
    parts = [
        f"{name} {seconds:g} s"
        for name, seconds in (
            ("idle", times.idle_s),
            ("rest", times.rest_s),
            ("idle after", times.idle_after_s),
            ("quiet 2 x", times.quiet_s),
        )
        if seconds
    ]
    return f"where a drive's power is measured: {', '.join(parts) or 'none'}"


def require_controllers(config: PowerConfig, targets: Sequence[Target]) -> None:
    """Refuse what only an NVMe drive can do if there is no NVMe controller under the targets.

    Raises:
        ConfigError: a power setting, or the drive's own power figures, are requested.
    """
    if any(controllers_under(target) for target in targets):
        return
    devices = ", ".join(name for target in targets for name in target.facts.devices)
    where = f"there is no NVMe controller under the target (on {devices or 'no block device'})"
    if NVME in (config.source, *config.beside):
        wanted = f"power={NVME}" if config.source == NVME else f"power.beside=[{NVME}]"
        raise ConfigError(
            f"{wanted} is not available: {where}; power={AUTO} uses what is available, "
            f"power={NONE} measures nothing"
        )
    if config.settings_text:
        raise ConfigError(f"{config.settings_text} is not available: {where}; leave it unset")


def require_own_meters(config: PowerConfig, hosts: Sequence[str]) -> None:
    """Raise ``ConfigError`` for a node's meter that several hosts would read, by equal settings."""
    if len(hosts) > 1 and config.node_meters:
        raise ConfigError(
            f"{config.node_meters[0]} is one meter, and {len(hosts)} hosts ({', '.join(hosts)}) "
            "would each read it and count its energy; use a meter that each host has, such as "
            "power.beside=[ipmi], or run on one host"
        )


def require_trace(config: PowerConfig) -> None:
    """Refuse a trace that can't be replayed, before data are generated for its run.

    Raises:
        ConfigError: it lacks the time column that its alignment needs.
        DataError: it can't be read or is not a valid trace.
    """
    if config.source == REPLAY:
        from wattload.power.sources.replay import configured_trace

        configured_trace(config.replay)


def writes_of(plan: WorkloadPlan) -> int:
    """Return the most that a run writes in bytes, including its data."""
    return plan.prepare_bytes + plan.run_bytes


def _check_ranks(asked: int | None, plan: WorkloadPlan, world_size: int, job_ranks: int) -> None:
    if asked not in (None, world_size):
        raise ConfigError(
            f"ranks={asked}, but this run has {world_size} process"
            f"{'es' if world_size > 1 else ''}; start it with mpirun -n {asked}, or leave ranks "
            "unset"
        )
    where = " on each host" if job_ranks < world_size else ""
    if job_ranks < plan.minimum_ranks:
        raise ConfigError(
            f"this workload needs at least {plan.minimum_ranks} processes{where}, got {job_ranks}; "
            f"start it with mpirun -n {plan.minimum_ranks}"
        )
    if plan.maximum_ranks is not None and job_ranks > plan.maximum_ranks:
        most = counted(plan.maximum_ranks, "process", "processes")
        remedy = "start it without mpirun" if plan.maximum_ranks == 1 else "use fewer processes"
        raise ConfigError(f"this workload can use at most {most}{where}, got {job_ranks}; {remedy}")


def _check_target(config: RunConfig, target: Target, plan: WorkloadPlan, target_count: int) -> None:
    where = _on_root(target)
    if where and not config.scale.allows_root:
        raise ConfigError(
            f"{target.path} is {where} where scale={config.scale.name} is not allowed; "
            "mount the drive under test elsewhere, or use scale=quick"
        )
    if is_written := not config.only_reads(target):
        check_writable(target)
    if plan.needs_direct_io and target.direct_io is None:
        raise TargetError(
            f"{target.path} refuses O_DIRECT ({target.direct_io_missing}); use "
            f"{_page_cache_loaders()} or another file system"
        )
    if is_written:
        _check_space(target, plan, target_count)


def _on_root(target: Target) -> str:
    """Describe how the target is on the root file system's disk; "" if it is not."""
    file_system, stack = target.facts.file_system, target.facts.stack
    if file_system is not None and file_system.is_root:
        return "on the root file system,"
    is_in_file = stack is not None and any(node.kind == "loop" for node in walk(stack))
    if is_in_file and ROOT in target.facts.shared_with:
        return "in a file on the disk of the root file system (through a loop device),"
    return ""


def _page_cache_loaders() -> str:
    """Return the settings that read and write through the page cache, for an error."""
    names = {
        *(c.name for c in loaders_with(CheckpointLoader) if not c.checkpoint_path_is_direct),
        *(c.name for c in loaders_with(SampleLoaderConfig) if not c.sample_path_is_direct),
    }
    return ", ".join(f"loader={name}" for name in sorted(names))


@dataclass(frozen=True, slots=True)
class Space:
    """The size of a file system or drive and its space available to this user, in bytes."""

    total_bytes: int
    available_bytes: int


def space_of(target: Target) -> Space:
    """Return the space on a directory target's file system, or all of a block target."""
    if target.device is not None:
        return Space(target.device.size_bytes, target.device.size_bytes)
    status = os.statvfs(target.path)
    return Space(status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize)


def _needed_bytes(plan: WorkloadPlan, target_count: int) -> int:
    """Return the space that a run needs on each target: data is spread evenly over them."""
    already = plan.data_bytes - plan.prepare_bytes + plan.present_bytes
    return max(plan.peak_bytes - already, 0) // target_count


def lacking_bytes(target: Target, plan: WorkloadPlan, target_count: int) -> int:
    """Return how much space a target lacks for its share of a run; 0 if that fits."""
    space = space_of(target)
    if target.device is not None:
        return max(plan.peak_bytes // target_count - space.total_bytes, 0)
    usable_bytes = space.available_bytes - int(FREE_SHARE * space.total_bytes)
    return max(_needed_bytes(plan, target_count) - usable_bytes, 0)


def _check_space(target: Target, plan: WorkloadPlan, target_count: int) -> None:
    space, needed_bytes = space_of(target), _needed_bytes(plan, target_count)
    if lacking_bytes(target, plan, target_count) and target.device is not None:
        total, needed = compared_bytes(space.total_bytes, plan.peak_bytes // target_count)
        raise TargetError(
            f"{target.path} has {total}, but the run needs {needed}; use a smaller "
            "workload.range_bytes"
        )
    if lacking_bytes(target, plan, target_count):
        raise TargetError(
            f"{target.path} has {format_bytes(space.available_bytes)} free, but the run needs "
            f"{format_bytes(needed_bytes)} more and 5 % of the file system "
            f"({format_bytes(FREE_SHARE * space.total_bytes)}) must stay free; free some space, or "
            "use a smaller scale or another target"
        )
    status = os.statvfs(target.path)
    new_files = plan.prepare_files // target_count
    if status.f_files and new_files > status.f_favail:  # some file systems have no fixed number
        raise TargetError(
            f"{target.path} has {status.f_favail} free inodes, but the run creates {new_files} "
            "files; use a smaller scale or another target"
        )


def _check_memory(plan: WorkloadPlan, host_ranks: int) -> None:
    """Refuse buffers that do not fit into this host's memory, which its ranks share."""
    needed_bytes = plan.memory_bytes_per_rank * host_ranks
    available_bytes = usable_memory_bytes()
    if available_bytes is not None and needed_bytes > available_bytes:
        needed, free = compared_bytes(needed_bytes, available_bytes)
        raise ConfigError(
            f"the buffers of {host_ranks} processes need {needed}, but only {free} of memory are "
            "free; use fewer processes, a smaller scale or smaller buffers (loader.queue_depth, "
            "loader.prefetch_bytes)"
        )


def _announce(targets: Sequence[Target], plan: WorkloadPlan) -> list[str]:
    writes_bytes = writes_of(plan)
    lines: list[str] = []
    for target in targets:
        lines.append(_announced(target, plan, writes_bytes))
        lines.extend(f"warning: {warning}" for warning in target.facts.warnings)
    return lines


def _announced(target: Target, plan: WorkloadPlan, writes_bytes: int) -> str:
    space = space_of(target)
    drive_writes = writes_bytes / space.total_bytes
    if target.device is not None:
        return (
            f"drive {target.path}: writes {format_bytes(writes_bytes)}, {drive_writes:.1f} drive "
            f"writes, over what is on it ({format_bytes(space.total_bytes)})"
        )
    where = f"target {target.path} on {', '.join(target.facts.devices) or 'no block device'}"
    system = target.facts.file_system
    if system is not None and system.mount_point != str(target.path):
        where += f", mounted at {system.mount_point}"
    if not writes_bytes:
        return f"{where}: writes nothing"
    wear = f" ({drive_writes:.2g} drive writes)" if drive_writes >= LEAST_WEAR else ""
    return (
        f"{where}: writes {format_bytes(writes_bytes)}{wear}, takes up to "
        f"{format_bytes(plan.peak_bytes)} of {format_bytes(space.available_bytes)} free"
    )


def finished_writes(record: RunRecord, host: str) -> tuple[Sequence[TargetFacts], int]:
    """Return the targets of a finished run on a host, and the bytes that its ranks counted there.

    Those of a run on one host are returned whatever the host was called, as the name of a container
    changes, and with a directory that hosts share the bytes of all.
    """
    facts = [target.facts for target in record.targets]
    spans = [span for span in record.spans if not span.is_part]
    if len(record.hosts) > 1:
        facts = [each for each in facts if each.host == host]
        if not record.config["target"]["shared"]:
            spans = [span for span in spans if span.host == host]
    return facts, sum(span.written_bytes for span in spans)


class WriteLedger:
    """The bytes that the runs of one command have written and will write, by drive.

    A target without a block device counts as a drive. A run spreads its data over its targets and
    their drives; each drive is charged with all of it, which errs on the side of protecting it.
    """

    def __init__(self) -> None:
        self._bytes: dict[str, int] = {}

    def copy(self) -> WriteLedger:
        """Return a copy, to be charged with planned runs."""
        copied = WriteLedger()
        copied._bytes = dict(self._bytes)
        return copied

    def written_bytes(self, target: Target) -> int:
        """Return the largest number of bytes charged to a drive under a target."""
        return max(map(self.charged_bytes, drives_of(target.facts)))

    def charged_bytes(self, drive: str) -> int:
        return self._bytes.get(drive, 0)

    def add(self, targets: Sequence[Target], plan_bytes: int) -> None:
        """Charge a run's writes to the drives of its targets, each drive once."""
        self.charge([target.facts for target in targets], plan_bytes)

    def charge(self, facts: Sequence[TargetFacts], written_bytes: int) -> None:
        """Charge the drives of targets with bytes, each drive once."""
        for drive in {drive for each in facts for drive in drives_of(each)}:
            self._bytes[drive] = self._bytes.get(drive, 0) + written_bytes

    def check(self, config: RunConfig, target: Target, run_bytes: int, runs: int = 1) -> None:
        """Refuse runs that, together with those before them, write more than one command may.

        Raises:
            ConfigError: more than ``target.max_write_bytes``, or than one capacity or 10 TB.
        """
        before_bytes = self.written_bytes(target)
        writes_bytes = before_bytes + run_bytes
        limit_bytes, what = _limit(config, target)
        if writes_bytes > limit_bytes:
            who = f"the {runs} runs write" if runs > 1 else "the run writes"
            before = f" ({format_bytes(before_bytes)} of it earlier)" if before_bytes else ""
            writes, limit = compared_bytes(writes_bytes, limit_bytes)
            if target.device is not None:
                drive_writes = writes_bytes / target.device.size_bytes
                raise ConfigError(
                    f"{who} {writes}, {drive_writes:.1f} drive writes{before}; "
                    f"target.max_write_bytes={writes_bytes} allows it on {target.path}, which "
                    f"otherwise takes no more than {what.partition(', ')[0]} ({limit})"
                )
            raise ConfigError(
                f"{who} {writes}{before} to {target.path}, more than {what} ({limit}); "
                f"target.max_write_bytes={writes_bytes} allows it"
            )


def exceeds_limit(config: RunConfig, target: Target, run_bytes: int) -> bool:
    """Return whether one run writes more to a target than a command may."""
    return run_bytes > _limit(config, target)[0]


def drives_of(facts: TargetFacts) -> tuple[str, ...]:
    """Return the drives to which a target's bytes are charged: its devices, else its path."""
    return facts.devices or (facts.path or str(facts.index),)


def _limit(config: RunConfig, target: Target) -> tuple[int, str]:
    limit_bytes = config.target.max_write_bytes
    if limit_bytes is not None:
        return limit_bytes, f"target.max_write_bytes={limit_bytes}"
    unconfirmed = "the limit without confirmation"
    total_bytes = space_of(target).total_bytes
    if total_bytes < WRITE_LIMIT_BYTES:
        return total_bytes, f"its capacity, {unconfirmed}"
    return WRITE_LIMIT_BYTES, unconfirmed
