"""The timed phases of a conversion on one rank, repeated in rounds, and their output files."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from wattload.core.files import sync_folder
from wattload.core.record.results import Check
from wattload.core.storage.extents import written_extents_check
from wattload.core.units import NS_PER_S
from wattload.core.workload import RunContext
from wattload.loaders.converters import ConversionSettings, Converted, Converter, Packed
from wattload.loaders.data.cold_cache import cold_cache_check, evict
from wattload.loaders.data.criteo_day_files import Part
from wattload.loaders.data.data_folder import DataFolder, claim_on_targets
from wattload.workloads.dlrm.dataset import HOLES_REMEDY
from wattload.workloads.dlrm.tasks import PackTask, PartTask, to_binary, to_parquet, to_rows
from wattload.workloads.dlrm.workers import Cost, MovedCallback, TaskResult, WorkerPool

OUTPUT = "dlrm-output"
TO_PARQUET = "tsv_to_parquet"
TO_BINARY = "parquet_to_binary"
TO_ROWS = "tsv_to_binary"
PHASES = {True: (TO_PARQUET, TO_BINARY), False: (TO_ROWS,)}
"""The phases of a round, by ``workload.columnar``."""
T = TypeVar("T")
R = TypeVar("R")


class Conversion:
    """Converts a rank's parts with its workers; every rank takes part in every phase."""

    def __init__(
        self,
        context: RunContext,
        pool: WorkerPool,
        parts: Sequence[Part],
        outputs: Outputs,
        *,
        settings: ConversionSettings,
        converter: Converter,
    ) -> None:
        self._context = context
        self._pool = pool
        self._parts = parts
        self._outputs = outputs
        self._settings = settings
        self._converter = converter

    def run(self, rounds: int) -> ConversionResult:
        """Repeat the conversion ``rounds`` times; the output of the last round stays."""
        found = ConversionResult()
        for number in range(1, rounds + 1):
            self._outputs.begin()
            of_round = f"round {number} of {rounds}"
            if self._settings.columnar:
                self._convert(found, TO_PARQUET, f"TSV to Parquet, {of_round}")
                self._pack(found, f"Parquet to binary, {of_round}")
            else:
                self._convert(found, TO_ROWS, f"TSV to binary, {of_round}")
        return found

    def _convert(self, found: ConversionResult, name: str, label: str) -> None:
        """Convert the TSV, to Parquet or to packed rows."""
        found.cold += self._cold(name, sorted({part.source for part in self._parts}))
        is_columnar = self._settings.columnar
        paths = self._outputs.parquet if is_columnar else self._outputs.binary
        done = self._step(
            found,
            to_parquet if is_columnar else to_rows,
            [
                PartTask(part, path, self._settings, self._converter)
                for part, path in zip(self._parts, paths, strict=True)
            ],
            name=name,
            label=label,
            input_bytes=sum(part.size_bytes for part in self._parts),
        )
        found.converted.append([each.result for each in done])

    def _pack(self, found: ConversionResult, label: str) -> None:
        """Convert the Parquet files to packed rows."""
        parquet = self._outputs.parquet
        found.cold += self._cold(TO_BINARY, parquet)
        done = self._step(
            found,
            to_binary,
            [
                PackTask(part, source, path, self._settings, self._converter)
                for part, source, path in zip(
                    self._parts, parquet, self._outputs.binary, strict=True
                )
            ],
            name=TO_BINARY,
            label=label,
            input_bytes=sum(path.stat().st_size for path in parquet),
        )
        found.packed.append([each.result for each in done])

    def _cold(self, name: str, paths: Sequence[Path]) -> tuple[Check, Check]:
        """Evict the next phase's input from the page cache on all ranks, then check that.

        Raises ``DataError`` if a part of the input is on no device.
        """
        evict(paths)
        self._context.communicator.barrier()
        cold = cold_cache_check(paths, name=f"cold_cache_{name}")
        written = written_extents_check(paths, remedy=HOLES_REMEDY)
        self._context.communicator.barrier()
        return cold, written

    def _step(
        self,
        found: ConversionResult,
        function: Callable[[T, MovedCallback], R],
        tasks: Sequence[T],
        *,
        name: str,
        label: str,
        input_bytes: int,
    ) -> list[TaskResult[R]]:
        """Run one phase, which ends when this rank's files and their names are durable."""
        counted = [0, 0]
        progress = self._context.progress
        progress.begin(label, read_bytes=input_bytes)
        with self._context.phase(name) as phase:
            start_ns = time.monotonic_ns()

            def moved(read_bytes: int, written_bytes: int, operations: int) -> None:
                counted[0] += read_bytes
                counted[1] += written_bytes
                phase.moved(
                    read_bytes=read_bytes, written_bytes=written_bytes, operations=operations
                )

            done = self._pool.run(function, tasks, moved)
            self._outputs.sync()
            seconds = (time.monotonic_ns() - start_ns) / NS_PER_S
        progress.end()
        found.steps.append(
            Step(
                name=name,
                seconds=seconds,
                read_bytes=counted[0],
                written_bytes=counted[1],
                costs=[item.cost for item in done],
            )
        )
        return done


@dataclass(slots=True)
class ConversionResult:
    """The phases of all rounds on a rank, and what its parts became in each round.

    ``packed`` has what became of the Parquet files, if there are any.
    """

    steps: list[Step] = field(default_factory=list)
    cold: list[Check] = field(default_factory=list)
    converted: list[Sequence[Converted]] = field(default_factory=list)
    packed: list[Sequence[Packed]] = field(default_factory=list)

    @property
    def last(self) -> Sequence[Converted]:
        """What the parts became in the last round, whose output is still there."""
        return self.converted[-1]

    @property
    def written_rows(self) -> Sequence[Sequence[Converted | Packed]]:
        """What wrote the packed rows in each round."""
        return self.packed or self.converted


@dataclass(slots=True, kw_only=True)
class Step:
    """One phase of one round on one rank: seconds, bytes and the costs of its tasks."""

    name: str
    seconds: float
    read_bytes: int
    written_bytes: int
    costs: Sequence[Cost]


class Outputs:
    """The output files of a rank's parts; its part i is on target i modulo the number of targets.

    Every name is in the manifest before the file is created, so ``wattload clean`` finds the files
    of a killed run.
    """

    def __init__(
        self, folders: Sequence[DataFolder], parts: Sequence[Part], *, columnar: bool
    ) -> None:
        self.folders = folders
        self._suffixes = (".parquet", ".bin") if columnar else (".bin",)
        self._places = [
            (folders[index % len(folders)], part.name) for index, part in enumerate(parts)
        ]

    @classmethod
    def claim(
        cls,
        context: RunContext,
        parameters: Mapping[str, Any],
        parts: Sequence[Part],
        *,
        columnar: bool,
    ) -> Outputs:
        """Claim the output folders on all targets and empty them; every rank has to call this.

        Without ``columnar`` there are no Parquet files.

        Raises:
            DataError: a folder is not wattload's.
            TargetError: a target is not writable.
        """
        rank = context.communicator.rank
        if rank == 0:
            folders = _folders(context, parameters)
            for folder in folders:
                folder.empty()
        context.communicator.barrier()
        if rank:
            folders = _folders(context, parameters)
        return cls(folders, parts, columnar=columnar)

    @property
    def parquet(self) -> list[Path]:
        """The Parquet file of each part, if it becomes one."""
        return self._paths(".parquet")

    @property
    def binary(self) -> list[Path]:
        """The packed file of each part."""
        return self._paths(".bin")

    def begin(self) -> None:
        """Remove the files of an earlier round, and list the names of the next."""
        self.remove()
        for folder, name in self._names():
            folder.reserve(name)

    def sync(self) -> None:
        """Make the names durable."""
        for folder in self.folders:
            sync_folder(folder.path)

    def keep(self) -> None:
        """List the files as finished, so that they stay until ``wattload clean``."""
        for folder, name in self._names():
            try:
                size_bytes = (folder.path / name).lstat().st_size
            except FileNotFoundError:
                folder.discard(name)
            else:
                folder.record(name, size_bytes, None)

    def remove(self) -> None:
        """Remove this rank's files."""
        for folder, name in self._names():
            if name in folder.entries or name in folder.reserved:
                folder.discard(name)

    def close(self) -> None:
        """Close the manifests."""
        for folder in self.folders:
            folder.close()

    def _paths(self, suffix: str) -> list[Path]:
        places = self._places if suffix in self._suffixes else []
        return [folder.path / (name + suffix) for folder, name in places]

    def _names(self) -> list[tuple[DataFolder, str]]:
        return [
            (folder, name + suffix) for folder, name in self._places for suffix in self._suffixes
        ]


def _folders(context: RunContext, parameters: Mapping[str, Any]) -> list[DataFolder]:
    rank = context.communicator.rank
    return claim_on_targets(context.targets, OUTPUT, parameters, seed=0, part=rank)
