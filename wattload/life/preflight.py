"""Everything that can fail is tried before hours are spent: space, permissions, guards, counts."""

from __future__ import annotations

import os
from collections.abc import Sequence

from wattload.config import RunConfig
from wattload.core.blockstack import walk
from wattload.core.errors import ConfigError, TargetError
from wattload.core.host import host_state
from wattload.core.resolve import check_writable
from wattload.core.target import Target
from wattload.core.units import format_bytes
from wattload.core.workload import WorkloadPlan
from wattload.life.wear import WriteLedger, space_of, writes_of

FREE_SHARE = 0.05
"""At least this share of the file system stays free."""
ROOT = "/"


def preflight(
    config: RunConfig,
    targets: Sequence[Target],
    plan: WorkloadPlan,
    world_size: int,
    ledger: WriteLedger | None = None,
) -> list[str]:
    """Return what to print before the run starts; raise for what would make it fail later.

    ``ledger`` holds what the runs before it wrote, where one command makes several.

    Raises:
        ConfigError: the number of processes does not fit, or a guard is not lifted.
        TargetError: the target is not writable, too small, or O_DIRECT is needed and refused.
    """
    _check_ranks(plan, world_size)
    for target in targets:
        _check_target(config, target, plan, len(targets))
        (ledger or WriteLedger()).check(config, target, writes_of(plan))
    _check_memory(plan, world_size)
    return _announce(targets, plan)


def _check_ranks(plan: WorkloadPlan, world_size: int) -> None:
    if world_size < plan.minimum_ranks:
        raise ConfigError(
            f"this workload needs at least {plan.minimum_ranks} processes, got {world_size}; "
            f"start it with mpirun -n {plan.minimum_ranks}"
        )
    if plan.maximum_ranks is not None and world_size > plan.maximum_ranks:
        raise ConfigError(
            f"this workload has work for {plan.maximum_ranks} processes, got {world_size}; "
            "use fewer processes or more files"
        )


def _check_memory(plan: WorkloadPlan, world_size: int) -> None:
    """Refuse buffers that this host can't hold; the ranks of a host share its memory."""
    needed_bytes = plan.memory_bytes_per_rank * world_size
    available_bytes = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    state = host_state()
    if state.memory_available_bytes is not None:
        available_bytes = state.memory_available_bytes
    if needed_bytes > available_bytes:
        raise ConfigError(
            f"the buffers of {world_size} processes need {format_bytes(needed_bytes)} and "
            f"{format_bytes(available_bytes)} of memory are free; use fewer processes or smaller "
            "buffers (loader.queue_depth, loader.prefetch_bytes)"
        )


def _check_target(config: RunConfig, target: Target, plan: WorkloadPlan, target_count: int) -> None:
    where = _on_root(target)
    if where and not config.scale.allows_root:
        raise ConfigError(
            f"{target.path} lies {where} and scale={config.scale.name} is refused "
            "there; mount the drive under test elsewhere, or use scale=quick"
        )
    check_writable(target)
    if plan.needs_direct_io and target.direct_io is None:
        raise TargetError(
            f"{target.path} refuses O_DIRECT ({target.direct_io_missing}); use loader=torch or "
            "another file system"
        )
    _check_space(target, plan, target_count)


def _on_root(target: Target) -> str:
    """Return in words how the target lies on the root file system's disk; "" if it does not."""
    file_system, stack = target.facts.file_system, target.facts.stack
    if file_system is not None and file_system.is_root:
        return "on the root file system"
    is_in_file = stack is not None and any(node.kind == "loop" for node in walk(stack))
    if is_in_file and ROOT in target.facts.shared_with:
        return "in a file on the disk of the root file system, through a loop device,"
    return ""


def _check_space(target: Target, plan: WorkloadPlan, target_count: int) -> None:
    """Refuse a target without room for its share: data is dealt evenly over the targets."""
    space = space_of(target)
    already = plan.data_bytes - plan.prepare_bytes
    needed_bytes = max(plan.peak_bytes - already, 0) // target_count
    usable_bytes = space.available_bytes - int(FREE_SHARE * space.total_bytes)
    if needed_bytes > usable_bytes:
        raise TargetError(
            f"{target.path} has {format_bytes(space.available_bytes)} free and the run needs "
            f"{format_bytes(needed_bytes)} more, while 5 % of it "
            f"({format_bytes(FREE_SHARE * space.total_bytes)}) must stay free; free some room, "
            "use a smaller scale or another target"
        )


def _announce(targets: Sequence[Target], plan: WorkloadPlan) -> list[str]:
    writes_bytes = writes_of(plan)
    lines = []
    for target in targets:
        space = space_of(target)
        share = writes_bytes / max(space.available_bytes, 1)
        lines.append(
            f"target {target.path} on {', '.join(target.facts.devices) or 'no block device'}: "
            f"{format_bytes(writes_bytes)} will be written ({share:.1%} of the free "
            f"{format_bytes(space.available_bytes)}, {writes_bytes / space.total_bytes:.3f} drive "
            f"writes), at most {format_bytes(plan.peak_bytes)} at once"
        )
        lines.extend(f"warning: {warning}" for warning in target.facts.warnings)
    return lines
