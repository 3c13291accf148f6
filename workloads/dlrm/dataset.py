"""The day files of a run: synthetic ones on the targets, or the user's, which are only read."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wattload.core.storage.targets import Target
from wattload.core.workload import DataFacts, RunContext
from wattload.loaders.data.criteo_day_files import LINE_LIMIT_BYTES, MEAN_ROW_BYTES, day_files
from wattload.loaders.data.data_folder import (
    DataFolder,
    claim_on_targets,
    existing_on_targets,
    marker_of,
)
from wattload.workloads.dlrm.config import Config
from wattload.workloads.dlrm.tasks import DayTask, make_day
from wattload.workloads.dlrm.workers import WorkerPool

WORKLOAD = "dlrm"


@dataclass(frozen=True, slots=True)
class DayFiles:
    """The TSV of a run, in the order of the days."""

    paths: tuple[Path, ...]
    key: str

    @property
    def size_bytes(self) -> int:
        """The total size of the day files in bytes."""
        return sum(path.stat().st_size for path in self.paths)


@dataclass(frozen=True, slots=True)
class ExpectedData:
    """The expected day files, before they are generated or read.

    ``missing_bytes`` remain to be written.
    """

    size_bytes: int
    row_count: int
    missing_bytes: int


class RealDays:
    """Day files of the user: only read, never changed or removed."""

    def __init__(self, source: Path) -> None:
        self._source = source

    def expected(self) -> ExpectedData:
        """Return their size, and their rows estimated from the length of the first lines."""
        paths = day_files(self._source)
        size_bytes = sum(path.stat().st_size for path in paths)
        with paths[0].open("rb") as file:
            start = file.read(LINE_LIMIT_BYTES)
        row_bytes = len(start) / max(start.count(b"\n"), 1)
        return ExpectedData(size_bytes, round(size_bytes / row_bytes), 0)

    def prepare(self, context: RunContext) -> tuple[DayFiles, DataFacts]:
        """Return the existing files; ``context`` is not used."""
        paths = day_files(self._source)
        sizes = [path.stat().st_size for path in paths]
        listed = repr([(str(path), size) for path, size in zip(paths, sizes, strict=True)])
        days = DayFiles(paths, f"source-{hashlib.sha256(listed.encode()).hexdigest()[:12]}")
        facts = DataFacts(
            key=days.key,
            folder=paths[0].parent,
            file_count=len(paths),
            data_bytes=sum(sizes),
            reused=True,
            parameters={"source": str(self._source)},
        )
        return days, facts


class SyntheticDays:
    """Synthetic day files like Criteo's; day i is on target i modulo the number of targets."""

    def __init__(self, config: Config, targets: Sequence[Target]) -> None:
        self._config = config
        self._targets = targets
        self._names = tuple(f"day_{day}" for day in range(config.day_count))

    def expected(self) -> ExpectedData:
        """Return their size, estimated from the mean row, and how much of it is missing."""
        folders = self._existing()
        missing = [day for day in range(len(self._names)) if not self._is_there(day, folders)]
        rows_missing = sum(self._rows(day) for day in missing)
        total = self._config.row_count
        return ExpectedData(total * MEAN_ROW_BYTES, total, rows_missing * MEAN_ROW_BYTES)

    def prepare(self, context: RunContext) -> tuple[DayFiles, DataFacts]:
        """Generate the missing days, each rank its share; resumes an interrupted call.

        Raises:
            DataError: a folder on a target is not wattload's.
            TargetError: a target is full or not writable.
        """
        world = context.communicator
        if world.rank == 0:
            self._claim(0)
        world.barrier()
        folders = self._claim(world.rank)
        missing = [day for day in range(len(self._names)) if not self._is_there(day, folders)]
        world.barrier()  # all ranks look before any rank writes
        self._make(missing[world.rank :: world.world_size], folders, context)
        world.barrier()
        for folder in folders:
            if world.rank == 0:
                folder.seal()
            folder.reload()
            folder.close()
        return self._found(folders, reused=not missing)

    @property
    def _parameters(self) -> Mapping[str, Any]:
        config = self._config
        return {
            "row_count": config.row_count,
            "day_count": config.day_count,
            "target_count": len(self._targets),
        }

    def _rows(self, day: int) -> int:
        """Return the rows of a day: an equal share; the first days share the remainder."""
        share, rest = divmod(self._config.row_count, self._config.day_count)
        return share + (day < rest)

    def _existing(self) -> list[DataFolder | None]:
        marker = marker_of(WORKLOAD, self._parameters, self._config.data_seed)
        return existing_on_targets(self._targets, marker["key"])

    def _is_there(self, day: int, folders: Sequence[DataFolder | None]) -> bool:
        folder = folders[day % len(folders)]
        return folder is not None and folder.is_valid(self._names[day])

    def _claim(self, rank: int) -> list[DataFolder]:
        seed = self._config.data_seed
        return claim_on_targets(self._targets, WORKLOAD, self._parameters, seed=seed, part=rank)

    def _make(
        self, days: Sequence[int], folders: Sequence[DataFolder], context: RunContext
    ) -> None:
        if not days:
            return
        tasks = []
        for day in days:
            folder = folders[day % len(folders)]
            path = folder.path / folder.announce(self._names[day])
            tasks.append(DayTask(path, self._config.data_seed, day, self._rows(day)))
        workers = min(self._config.workers_per_rank(context.communicator.world_size), len(days))
        context.progress.begin(
            "making Criteo day files", sum(task.row_count for task in tasks) * MEAN_ROW_BYTES
        )
        with WorkerPool(workers) as pool:
            for index, made in pool.as_completed(
                make_day, tasks, lambda _, count, __: context.progress.advance(count)
            ):
                day = tasks[index].day
                folders[day % len(folders)].publish(self._names[day], made.result, None)
        context.progress.end()

    def _found(self, folders: Sequence[DataFolder], *, reused: bool) -> tuple[DayFiles, DataFacts]:
        paths = tuple(
            folders[day % len(folders)].path / name for day, name in enumerate(self._names)
        )
        days = DayFiles(paths, folders[0].key)
        facts = DataFacts(
            key=days.key,
            folder=folders[0].path,
            file_count=len(paths),
            data_bytes=days.size_bytes,
            reused=reused,
            parameters={**self._parameters, "data_seed": self._config.data_seed},
        )
        return days, facts
