"""What is known of a session before its first run: what it takes, and whether it can decide.

A session that can't succeed is refused here, with all reasons at once.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from wattload.core.errors import ConfigError
from wattload.results.quantity import counted, listed
from wattload.run.hosts import Faults
from wattload.run.launcher import is_first_rank
from wattload.run.lifecycle import Preview, preview_run
from wattload.run.preflight import drives_of
from wattload.run.process import ProcessContext, Reporter
from wattload.session.schedule import Outlook

if TYPE_CHECKING:
    from wattload.core.storage.targets import Target
    from wattload.run.preflight import WriteLedger
    from wattload.session.schedule import Point, Schedule

T = TypeVar("T")

NOTED_S = 2.0
"""Seconds before a session's first run that pass in silence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The runs of a session with the same settings: what one does, and how many there are.

    ``preparations`` of them generate data: one, none where an earlier part does, or all.
    """

    preview: Preview
    arm: str
    runs: int
    preparations: int

    @property
    def prepared_bytes(self) -> int:
        """The bytes that these runs write before their timed phases."""
        return self.preview.plan.prepare_bytes * self.preparations

    @property
    def written_bytes(self) -> int:
        """The most that these runs write in bytes, including their data."""
        return self.preview.plan.run_bytes * self.runs + self.prepared_bytes


def preview_parts(process: ProcessContext, points: Sequence[Point]) -> tuple[Part, ...]:
    """Return what runs would do, those with the same settings together; every rank must call it.

    Data that several runs share is generated once, unless each run prepares anew. It is identified
    by the workload's settings and its size, which at ``full`` depends on the number of
    accelerators.
    """
    parts, prepared = [], set()
    arms = {point.overrides: point.arm for point in points}
    counts = Counter(point.overrides for point in points)
    for overrides in noted_if_slow(counts, process.reporter, "planning"):
        runs = counts[overrides]
        preview = preview_run(process, overrides)
        plan, config = preview.plan, preview.config
        data = repr((config.workload, config.target, plan.data_bytes))
        preparations = runs if plan.prepares_again else int(data not in prepared)
        prepared.add(data)
        parts.append(
            Part(preview=preview, arm=arms[overrides], runs=runs, preparations=preparations)
        )
    return tuple(parts)


def noted_if_slow(runs: Collection[T], reporter: Reporter, what: str) -> Iterator[T]:
    """Yield each run of a session; one note of rank 0 says what takes longer than ``NOTED_S``."""
    begun_s, is_quiet = time.monotonic(), is_first_rank()
    for run in runs:
        if is_quiet and time.monotonic() - begun_s >= NOTED_S:
            is_quiet = False
            reporter.note(f"{what} {counted(len(runs), 'run')}")
        yield run


def planned_writes(process: ProcessContext, parts: Sequence[Part]) -> WriteLedger:
    """Return the bytes that the runs before and these write, by drive."""
    ledger = process.ledger.copy()
    for part in parts:
        ledger.add(part.preview.targets, part.written_bytes)
    return ledger


def require_possible(
    process: ProcessContext, schedule: Schedule, parts: Sequence[Part]
) -> tuple[str, ...]:
    """Refuse a session that can't succeed, with all reasons; returns warnings about another one.

    Every rank must call it.

    Raises:
        ConfigError: the runs together write too much, or compare folders of one file system.
        WattloadError: what the preflight of a run would refuse.
    """
    before, ledger = process.ledger, planned_writes(process, parts)
    runs, shared = sum(part.runs for part in parts), shared_drives(parts)

    def check() -> None:
        faults = Faults()
        if shared and schedule.compares_drives and is_one_file_system(parts):
            faults.add(
                ConfigError(
                    f"{shared}, in one file system, so the drive would be compared with itself; "
                    "mount the other drive, or use interleave=aa to measure the noise; "
                    "interleave=abba interleave_by=target.path compares the folders all the same"
                )
            )
        charged = set()  # folders of the same drives have the same writes and limit
        for part in parts:
            config, targets = part.preview.config, part.preview.targets
            for target in targets:
                key = drives_of(target.facts), config.target.max_write_bytes
                if key in charged:
                    continue
                charged.add(key)
                planned_bytes = ledger.written_bytes(target) - before.written_bytes(target)
                faults.of(partial(before.check, config, target, planned_bytes, runs=runs))
        faults.raise_all()  # a run that alone writes too much would say so again
        for part in parts:
            faults.of(part.preview.faults.raise_all)
        faults.raise_all()

    process.on_all_ranks(check)
    same = [f"{shared}: their difference is not one of drives"] if shared else []
    return (*same, *_unlike(parts))


def outlook_of(schedule: Schedule, parts: Sequence[Part]) -> Outlook:
    """Return whether the planned runs suffice for a verdict, as far as their drives are known."""
    shared = shared_drives(parts) if schedule.compares_drives else ""
    return Outlook(can_decide=False, words=shared) if shared else schedule.outlook


def _unlike(parts: Sequence[Part]) -> Iterator[str]:
    """Yield what is to be known of some of the targets, but not of all.

    A drive that is not mounted is a folder of the root file system, unlike the others.
    """
    found: dict[str, dict[Path, None]] = {}
    paths = {target.path for part in parts for target in part.preview.targets}
    for target in (target for part in parts for target in part.preview.targets):
        for warning in target.facts.warnings:
            found.setdefault(warning, {})[target.path] = None
    for warning, where in found.items():
        if len(where) < len(paths):
            yield f"{listed([*map(str, where)])}: {warning}"


def shared_drives(parts: Sequence[Part]) -> str:
    """Return which arms are on different paths of the same drives; empty if none are.

    Without a known drive under them, they are on one file system.
    """
    for drives, arms in _by(parts, _drives).items():
        if len(arms) > 1 and (drives or is_one_file_system(parts)):
            where = f"drive ({', '.join(sorted(drives))})" if drives else "file system"
            return f"{listed([*arms])} are on one {where}"
    return ""


def is_one_file_system(parts: Sequence[Part]) -> bool:
    """Return whether all arms are different folders of one file system."""
    (_, arms), *others = _by(parts, _file_systems).items()
    return len(arms) > 1 and not others


def _by(
    parts: Sequence[Part], place: Callable[[Sequence[Target]], frozenset[str]]
) -> dict[frozenset[str], dict[str, set[Path]]]:
    """Return the arms in each place, and their paths; none where two arms have a path in common."""
    found: dict[frozenset[str], dict[str, set[Path]]] = {}
    for part in parts:
        targets = part.preview.targets
        paths = found.setdefault(place(targets), {}).setdefault(part.arm, set())
        paths.update(target.path for target in targets)
    return {
        where: arms if sum(map(len, arms.values())) == len(set.union(*arms.values())) else {}
        for where, arms in found.items()
    }


def _drives(targets: Sequence[Target]) -> frozenset[str]:
    facts = [target.facts for target in targets]
    return frozenset(name for each in facts for name in each.controllers or each.devices)


def _file_systems(targets: Sequence[Target]) -> frozenset[str]:
    return frozenset(
        str(target.path if target.device is not None else target.path.stat().st_dev)
        for target in targets
    )
