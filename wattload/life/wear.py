"""The guard against wearing a drive out: what the runs of one command write to it, all together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from wattload.config import RunConfig
from wattload.core.errors import ConfigError, TargetError
from wattload.core.record.run import RunRecord
from wattload.core.record.target import TargetFacts
from wattload.core.target import Target
from wattload.core.units import TB, format_bytes
from wattload.core.workload import WorkloadPlan

WRITE_LIMIT_BYTES = 10 * TB


@dataclass(frozen=True, slots=True)
class Space:
    """A file system's room, in bytes, as this user may use it."""

    total_bytes: int
    available_bytes: int


def space_of(target: Target) -> Space:
    """Return the room on a directory target's file system."""
    if target.path is None:
        raise TargetError(f"a {target.kind} target has no file system")
    status = os.statvfs(target.path)
    return Space(status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize)


class WriteLedger:
    """What the runs of one command have written and will write, in bytes by drive.

    A target without a block device stands for itself. Data is dealt over the targets of a run, and
    over the drives under each; every one is charged with all of it, which errs on the drive's side.
    """

    def __init__(self) -> None:
        self._bytes: dict[str, int] = {}

    def copy(self) -> WriteLedger:
        """Return the same account, to be charged with what is not done yet."""
        copied = WriteLedger()
        copied._bytes = dict(self._bytes)
        return copied

    def written_bytes(self, target: Target) -> int:
        """Return what is on the account of the drive under a target that has the most on it."""
        return max(self._bytes.get(drive, 0) for drive in _drives(target.facts))

    def add(self, targets: Sequence[Target], plan_bytes: int) -> None:
        """Charge a run's writes to its targets, each drive once."""
        self._charge([target.facts for target in targets], plan_bytes)

    def add_record(self, record: RunRecord) -> None:
        """Charge a run that is done: the bytes that its ranks counted."""
        written_bytes = sum(span.written_bytes for span in record.spans)
        self._charge([target.facts for target in record.targets], written_bytes)

    def _charge(self, facts: Sequence[TargetFacts], written_bytes: int) -> None:
        for drive in {drive for each in facts for drive in _drives(each)}:
            self._bytes[drive] = self._bytes.get(drive, 0) + written_bytes

    def check(self, config: RunConfig, target: Target, run_bytes: int, runs: int = 1) -> None:
        """Refuse runs that, with all before them, write more than one command may.

        Raises:
            ConfigError: it is more than ``target.max_write_bytes``, or than a capacity or 10 TB.
        """
        before_bytes = self.written_bytes(target)
        writes_bytes = before_bytes + run_bytes
        limit_bytes, what = _limit(config, target)
        if writes_bytes > limit_bytes:
            who = f"the {runs} runs write" if runs > 1 else "the run writes"
            before = f", {format_bytes(before_bytes)} of it before," if before_bytes else ""
            raise ConfigError(
                f"{who} {format_bytes(writes_bytes)}{before} to {target.path}, more than {what}; "
                f"target.max_write_bytes={writes_bytes} allows it"
            )


def writes_of(plan: WorkloadPlan) -> int:
    """Return what a run writes at most, its data included, in bytes."""
    return plan.prepare_bytes + plan.run_bytes


def _drives(facts: TargetFacts) -> tuple[str, ...]:
    return facts.devices or (facts.path or str(facts.index),)


def _limit(config: RunConfig, target: Target) -> tuple[int, str]:
    limit_bytes = config.target.max_write_bytes
    if limit_bytes is not None:
        return limit_bytes, f"target.max_write_bytes={limit_bytes}"
    limit_bytes = min(WRITE_LIMIT_BYTES, space_of(target).total_bytes)
    return limit_bytes, f"the guard of one capacity or 10 TB ({format_bytes(limit_bytes)})"
