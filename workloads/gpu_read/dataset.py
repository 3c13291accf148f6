"""The files that are read: stamped random bytes, written once by O_DIRECT and reused.

File i is on target i modulo the number of targets. A file is written under a temporary name,
fsynced, renamed, then listed in the manifest: the next call resumes one that was interrupted.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from wattload.core.errors import DataError, TargetError, WattloadError
from wattload.core.faults import remedy
from wattload.core.io import Allocation, Extent, IOKind, IOPlan, Stamps
from wattload.core.storage.extents import written_extents_check
from wattload.core.storage.targets import Target
from wattload.core.units import MIB, format_bytes
from wattload.core.workload import DataFacts, Phase, RunContext
from wattload.loaders.aligned_io import create_direct, direct_alignment
from wattload.loaders.data.data_folder import (
    DataFolder,
    claim_on_targets,
    existing_on_targets,
    marker_of,
)
from wattload.loaders.engine.engine import IOEngine
from wattload.workloads.gpu_read.config import Config, Files

WORKLOAD = "gpu_read"
REMEDY = "delete the data with `wattload clean`, and the next run writes it again"
SEED = 0
"""The data folder needs one; the content of the files is random anyway."""
CHUNK_BYTES = MIB
QUEUE_DEPTH = 32


@dataclass(frozen=True)
class Dataset:
    """The files of one configuration, whether they exist or not."""

    file_bytes: int
    file_count: int
    targets: tuple[Target, ...]

    @classmethod
    def of(cls, config: Config, targets: tuple[Target, ...]) -> Dataset:
        """Return the files that a configuration reads."""
        is_per_thread = config.files is Files.per_thread
        return cls(config.file_bytes, config.threads if is_per_thread else len(targets), targets)

    @property
    def data_bytes(self) -> int:
        """The size of all files."""
        return self.file_count * self.file_bytes

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Everything that determines which blocks exist; how they are read is no part of it."""
        return {
            "file_bytes": self.file_bytes,
            "file_count": self.file_count,
            "target_count": len(self.targets),
        }

    @cached_property
    def key(self) -> str:
        """The name of the data folder on each target."""
        return str(marker_of(WORKLOAD, self.parameters, SEED)["key"])

    @cached_property
    def nonce(self) -> int:
        """The nonce in the stamps of all files, from the key."""
        return int.from_bytes(hashlib.sha256(self.key.encode()).digest()[:8], "little")

    @cached_property
    def paths(self) -> tuple[Path, ...]:
        """The path of each file."""
        return tuple(
            self.target_of(index).data_folder / self.key / self.name(index)
            for index in range(self.file_count)
        )

    def name(self, index: int) -> str:
        """Return the name of a file in its folder."""
        return f"file_{index:0{len(str(self.file_count - 1))}d}.bin"

    def target_of(self, index: int) -> Target:
        """Return the target of a file."""
        return self.targets[index % len(self.targets)]

    def stamps(self, index: int) -> Stamps:
        """Return what the blocks of a file begin with."""
        return Stamps(self.nonce, index)

    def existing(self) -> list[DataFolder | None]:
        """Return each target's folder, ``None`` where it does not exist; creates nothing."""
        return existing_on_targets(self.targets, self.key)

    def missing(self, folders: Sequence[DataFolder | None]) -> list[int]:
        """Return the numbers of the files that still have to be written.

        Raises:
            DataError: a finished file has another size now.
        """
        return [
            index
            for index in range(self.file_count)
            if not self._is_there(index, folders[index % len(folders)])
        ]

    def require_sizes(self) -> None:
        """Raise ``DataError`` unless every file exists and has its planned size."""
        for path in self.paths:
            _require_size(path, self.file_bytes)

    def facts(self, *, reused: bool) -> DataFacts:
        """Return the facts for the run record, with the folder on the first target."""
        return DataFacts(
            key=self.key,
            folder=self.targets[0].data_folder / self.key,
            file_count=self.file_count,
            data_bytes=self.data_bytes,
            reused=reused,
            parameters=self.parameters,
        )

    def _is_there(self, index: int, folder: DataFolder | None) -> bool:
        name = self.name(index)
        if folder is None or name not in folder.entries:
            return False
        path = folder.path / name
        if path.is_file() and not path.is_symlink():
            _require_size(path, self.file_bytes)
        return folder.is_valid(name)


def prepare(dataset: Dataset, context: RunContext) -> bool:
    """Claim the folders and write the missing files; return whether all of them were reused.

    Raises:
        DataError: a folder is not wattload's, or a file has holes or another size.
        TargetError: a target is full or not writable.
    """
    folders = claim_on_targets(dataset.targets, WORKLOAD, dataset.parameters, seed=SEED, part=0)
    missing = dataset.missing(folders)
    kept = sorted(set(range(dataset.file_count)) - set(missing))
    written_extents_check([dataset.paths[index] for index in kept], remedy=REMEDY)
    if missing:
        _write_all(dataset, folders, missing, context)
    for folder in folders:
        folder.seal()
        folder.close()
    return not missing


def _write_all(
    dataset: Dataset, folders: Sequence[DataFolder], missing: Sequence[int], context: RunContext
) -> None:
    context.progress.begin("generating", written_bytes=len(missing) * dataset.file_bytes)
    engine = IOEngine(block_bytes=CHUNK_BYTES, depth=QUEUE_DEPTH)
    try:
        with context.phase("generate", timed=False) as phase:
            for index in missing:
                _write(dataset, folders[index % len(folders)], index, engine, phase)
    finally:
        engine.close()
        context.progress.end()


def _write(
    dataset: Dataset, folder: DataFolder, index: int, engine: IOEngine, phase: Phase
) -> None:
    """Write one file durably; its space is reserved first, so that a full target shows at once."""
    name = dataset.name(index)
    try:
        temporary = folder.announce(name)
        _reserve(folder, temporary, dataset.file_bytes)
        path = folder.path / temporary
        engine.run(
            IOPlan(
                kind=IOKind.WRITE,
                extents=[Extent(path, 0, dataset.file_bytes)],
                block_bytes=CHUNK_BYTES,
                depth=QUEUE_DEPTH,
                allocation=Allocation.OVERWRITE,
                fsync=True,
                stamps=dataset.stamps(index),
            ),
            moved=phase.count_written,
            alignment_bytes=direct_alignment(path),
        )
        folder.publish(name, dataset.file_bytes, None)
    except WattloadError:
        raise
    except OSError as error:
        raise TargetError(
            f"writing {folder.path / name} failed: {error.strerror or error}; "
            f"{remedy(error.errno)}; finished files are kept, and the next run continues from there"
        ) from error


def _reserve(folder: DataFolder, name: str, size_bytes: int) -> None:
    with folder.open() as opened:
        descriptor = create_direct(opened, name)
    try:
        os.posix_fallocate(descriptor, 0, size_bytes)
    except OSError:
        folder.discard(name)  # a full target stays usable
        raise
    finally:
        os.close(descriptor)


def _require_size(path: Path, planned_bytes: int) -> None:
    try:
        found_bytes = path.stat().st_size
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror}; {REMEDY}") from error
    if found_bytes != planned_bytes:
        raise DataError(
            f"{path} is a file of {format_bytes(found_bytes)}, {format_bytes(planned_bytes)} "
            f"planned; {REMEDY}"
        )
