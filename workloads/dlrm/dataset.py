"""The day files of a run: synthetic ones on the targets, or the user's, which are only read."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wattload.core.checks.io import written_extents_check
from wattload.core.record.run import DataRecord
from wattload.core.storage.targets import Target, refuse_too_many_files
from wattload.core.workload import RunContext
from wattload.loaders.data import criteo_synthetic
from wattload.loaders.data.criteo_day_files import LINE_LIMIT_BYTES, day_files
from wattload.loaders.data.criteo_synthetic import MEAN_ROW_BYTES
from wattload.loaders.data.data_folder import (
    DataFolder,
    claim_on_targets,
    existing_on_targets,
    marker_of,
)
from wattload.loaders.data.gz_text import is_gz, open_text, unpacked_ratio
from wattload.loaders.data.media import medium_of
from wattload.loaders.data.verification import DataFile, VerifiedFile, verify
from wattload.workloads.dlrm.config import Config
from wattload.workloads.dlrm.tasks import DayTask, make_day
from wattload.workloads.dlrm.workers import WorkerPool

WORKLOAD = "dlrm"
SOURCE = "dlrm-source"
HOLES_REMEDY = "copy it in full with `cp --sparse=never`, or delete it if wattload generated it"


@dataclass(frozen=True, slots=True)
class DayFiles:
    """The verified TSV of a run, in the order of the days."""

    files: tuple[VerifiedFile, ...]
    key: str

    @property
    def paths(self) -> tuple[Path, ...]:
        return tuple(file.path for file in self.files)

    @property
    def size_bytes(self) -> int:
        return sum(file.content.size_bytes for file in self.files)

    @property
    def text_bytes(self) -> int:
        """The bytes of TSV in the day files, gz files unpacked."""
        return sum(file.content.text_bytes for file in self.files)

    @property
    def gz_files(self) -> tuple[VerifiedFile, ...]:
        return tuple(file for file in self.files if is_gz(file.path))

    @property
    def line_count(self) -> int:
        """The number of lines in all day files, as counted when they were verified."""
        return sum(file.content.line_count for file in self.files)

    @property
    def sha256(self) -> str:
        """The SHA-256 of the day files' SHA-256, in their order."""
        each = "".join(file.content.sha256 for file in self.files)
        return hashlib.sha256(each.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class ExpectedData:
    """The expected day files, before they are generated or read, and the TSV in them.

    ``missing_bytes`` remain to be written.
    """

    size_bytes: int
    text_bytes: int
    row_count: int
    missing_bytes: int
    day_count: int


class RealDays:
    """Day files of the user: only read, never changed or removed.

    A folder on the first target keeps what was verified, so that they are read once only.
    """

    def __init__(self, source: Path, targets: Sequence[Target]) -> None:
        self._source = source
        self._targets = targets

    @property
    def key(self) -> str:
        """What identifies the files before they are read: where they are."""
        return str(marker_of(SOURCE, self._parameters, seed=0)["key"])

    def expected(self) -> ExpectedData:
        """Return their size, with text and rows estimated from the first lines.

        Raises ``DataError`` for gz data that is damaged there.
        """
        paths = day_files(self._source)
        with open_text(paths[0]) as file:
            start = file.read(LINE_LIMIT_BYTES)
        row_bytes = len(start) / max(start.count(b"\n"), 1)
        sizes = {path: path.stat().st_size for path in paths}
        text_bytes = sum(size * unpacked_ratio(path) for path, size in sizes.items())
        rows = round(text_bytes / row_bytes)
        return ExpectedData(sum(sizes.values()), round(text_bytes), rows, 0, len(paths))

    def prepare(self, context: RunContext) -> tuple[DayFiles, DataRecord]:
        """Return the existing files, after reading those that are new or have changed.

        Raises:
            DataError: a file has holes, or changes while it is read.
            TargetError: the target is not writable.
        """
        paths = day_files(self._source)
        world = context.communicator
        written_extents_check(paths[world.rank :: world.world_size], remedy=HOLES_REMEDY)
        if world.rank == 0:
            self._claim(0)
        world.barrier()
        folder = self._claim(world.rank)
        wanted = [
            DataFile(
                folder=folder,
                name=str(path),
                path=path,
                sha256=None,
                line_count=None,
                remedy="",
            )
            for path in paths
        ]
        found = DayFiles(tuple(verify(wanted, context)), "")
        folder.close()
        days = replace(found, key=f"source-{found.sha256[:12]}")
        facts = DataRecord(
            key=days.key,
            folder=str(paths[0].parent),
            file_count=len(paths),
            data_bytes=days.size_bytes,
            reused=True,
            parameters={"source": str(self._source), "sha256": days.sha256},
        )
        return days, facts

    @property
    def _parameters(self) -> Mapping[str, Any]:
        return {"paths": [str(path) for path in day_files(self._source)]}

    def _claim(self, rank: int) -> DataFolder:
        (folder,) = claim_on_targets(self._targets[:1], SOURCE, self._parameters, seed=0, part=rank)
        return folder


class SyntheticDays:
    """Synthetic day files like Criteo's; day i is on target i modulo the number of targets."""

    def __init__(self, config: Config, targets: Sequence[Target]) -> None:
        self._config = config
        self._targets = targets
        refuse_too_many_files(
            targets,
            setting="workload.day_count",
            file_count=config.day_count,
            data_bytes=config.row_count * MEAN_ROW_BYTES,
        )
        self._names = tuple(f"day_{day}" for day in range(config.day_count))

    @property
    def key(self) -> str:
        """What identifies the files, before they are generated too."""
        return str(marker_of(WORKLOAD, self._parameters, self._config.data_seed)["key"])

    def expected(self) -> ExpectedData:
        """Return their size, estimated from the mean row, and how much of it is missing."""
        folders = self._existing()
        missing = [day for day in range(len(self._names)) if not self._is_there(day, folders)]
        rows_missing = sum(self._rows(day) for day in missing)
        total = self._config.row_count
        size_bytes = total * MEAN_ROW_BYTES
        missing_bytes = rows_missing * MEAN_ROW_BYTES
        return ExpectedData(size_bytes, size_bytes, total, missing_bytes, len(self._names))

    def prepare(self, context: RunContext) -> tuple[DayFiles, DataRecord]:
        """Generate the missing days, each rank its share, and verify them.

        Resumes an interrupted call.

        Raises:
            DataError: a folder on a target is not wattload's, or a file is not what was written.
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
        files = verify(self._wanted(folders), context)
        for folder in folders:
            folder.close()
        return self._found(files, folders, reused=not missing)

    def _wanted(self, folders: Sequence[DataFolder]) -> list[DataFile]:
        wanted = []
        for day, name in enumerate(self._names):
            folder = folders[day % len(folders)]
            wanted.append(
                DataFile(
                    folder=folder,
                    name=name,
                    path=folder.path / name,
                    sha256=folder.entries[name].sha256,
                    line_count=self._rows(day),
                    remedy="delete this file, and the next run generates it again",
                )
            )
        return wanted

    @property
    def _parameters(self) -> Mapping[str, Any]:
        config = self._config
        return {
            "row_count": config.row_count,
            "day_count": config.day_count,
            "target_count": len(self._targets),
            "digest": "sha256",
            "generator": criteo_synthetic.VERSION,
        }

    def _rows(self, day: int) -> int:
        """Return the rows of a day: an equal share; the first days share the remainder."""
        share, rest = divmod(self._config.row_count, self._config.day_count)
        return share + (day < rest)

    def _existing(self) -> list[DataFolder | None]:
        return existing_on_targets(self._targets, self.key)

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
            place = day % len(folders)
            path = folders[place].path / folders[place].announce(self._names[day])
            medium = medium_of(self._targets[place])
            tasks.append(DayTask(path, medium, self._config.data_seed, day, self._rows(day)))
        workers = min(self._config.workers_per_rank(context.communicator.world_size), len(days))
        size_bytes = sum(task.row_count for task in tasks) * MEAN_ROW_BYTES
        context.progress.begin("making Criteo day files", written_bytes=size_bytes)
        with WorkerPool(workers) as pool:
            for index, made in pool.as_completed(
                make_day, tasks, lambda _, count, __: context.progress.advance(written_bytes=count)
            ):
                day, found = tasks[index].day, made.result
                folders[day % len(folders)].publish(
                    self._names[day], found.size_bytes, found.sha256, self._rows(day)
                )
        context.progress.end()

    def _found(
        self, files: Sequence[VerifiedFile], folders: Sequence[DataFolder], *, reused: bool
    ) -> tuple[DayFiles, DataRecord]:
        days = DayFiles(tuple(files), folders[0].key)
        facts = DataRecord(
            key=days.key,
            folder=str(folders[0].path),
            file_count=len(files),
            data_bytes=days.size_bytes,
            reused=reused,
            parameters={
                **self._parameters,
                "data_seed": self._config.data_seed,
                "sha256": days.sha256,
            },
        )
        return days, facts
