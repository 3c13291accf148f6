"""Files of stamped random bytes on targets: written once by O_DIRECT, reused, and checked.

A file is written under a temporary name, fsynced, renamed, then listed in the manifest of its data
folder: the next call resumes one that was interrupted.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from wattload.core.checks.io import written_extents_check
from wattload.core.errors import DataError, TargetError, WattloadError, remedy
from wattload.core.io import Allocation, Extent, IOKind, IOPlan, Stamps
from wattload.core.record.run import DataRecord
from wattload.core.storage.targets import Target
from wattload.core.units import MIB
from wattload.core.workload import Phase, RunContext
from wattload.loaders.aligned_io import create_direct, direct_alignment
from wattload.loaders.data.data_folder import (
    TEMPORARY_SUFFIX,
    DataFolder,
    claim_on_targets,
    existing_on_targets,
    marker_of,
)
from wattload.loaders.engine.engine import IOEngine

REMEDY = "delete the data with `wattload clean`, and the next run writes it again"
SEED = 0
"""The data folder needs one; the content of the files is random anyway."""
CHUNK_BYTES = MIB
QUEUE_DEPTH = 32
WRITING_BYTES = CHUNK_BYTES * QUEUE_DEPTH
"""The buffers with which missing files are written."""


def key_of(workload: str, parameters: Mapping[str, Any]) -> str:
    """Return the name of the data folder of these parameters, the same on each target."""
    return str(marker_of(workload, parameters, SEED)["key"])


def nonce_of(key: str) -> int:
    """Return the nonce in the stamps of all files of a data folder."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "little")


@dataclass(frozen=True, slots=True, kw_only=True)
class StampedFile:
    """One file, whether it exists or not. Its size is a multiple of ``stamps.unit_bytes``.

    With ``notes_stamps`` the manifest has the stamps, for files whose stamps do not follow from
    the parameters of their folder.
    """

    target: Target
    key: str
    name: str
    size_bytes: int
    stamps: Stamps
    notes_stamps: bool = False

    @property
    def path(self) -> Path:
        """Where it is, or will be."""
        return self.target.data_folder / self.key / self.name


@dataclass(frozen=True)
class StampedFiles:
    """The files of one configuration of a workload, whether they exist or not.

    ``parameters`` determine the key, and with it the data folder on each target.
    """

    workload: str
    parameters: Mapping[str, Any]
    files: tuple[StampedFile, ...]

    @cached_property
    def key(self) -> str:
        return key_of(self.workload, self.parameters)

    @cached_property
    def paths(self) -> tuple[Path, ...]:
        return tuple(file.path for file in self.files)

    @property
    def data_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @cached_property
    def targets(self) -> tuple[Target, ...]:
        """The targets of the files, each once."""
        return tuple({file.target.index: file.target for file in self.files}.values())

    def missing(self) -> list[StampedFile]:
        """Return the files that still have to be written; creates nothing.

        Raises:
            DataError: a finished file has another size now.
        """
        found = existing_on_targets(self.targets, self.key)
        folders = {target.index: folder for target, folder in zip(self.targets, found, strict=True)}
        return list(self._not_in(folders))

    def require_sizes(self) -> None:
        """Raise ``DataError`` unless every file exists and has its planned size."""
        for file in self.files:
            _require_size(file.path, file.size_bytes)

    def facts(self, *, reused: bool) -> DataRecord:
        """Return the facts for the run record, with the folder on the first target."""
        return DataRecord(
            key=self.key,
            folder=str(self.targets[0].data_folder / self.key),
            file_count=len(self.files),
            data_bytes=self.data_bytes,
            reused=reused,
            parameters=self.parameters,
        )

    def prepare(self, context: RunContext) -> bool:
        """Claim the folders and write the missing files; return whether all of them were reused.

        With several ranks, no two of them may prepare files on one target.

        Raises:
            DataError: a folder is not wattload's, or a file has holes or another size.
            TargetError: a target is full or not writable.
        """
        claimed = claim_on_targets(self.targets, self.workload, self.parameters, seed=SEED, part=0)
        folders = dict(zip((target.index for target in self.targets), claimed, strict=True))
        missing = list(self._not_in(folders))
        absent = {file.path for file in missing}
        kept = [path for path in self.paths if path not in absent]
        written_extents_check(kept, remedy=REMEDY)
        if missing:
            _write_all(folders, missing, context)
        for folder in folders.values():
            folder.seal()
            folder.close()
        return not missing

    def _not_in(self, folders: Mapping[int, DataFolder | None]) -> Iterator[StampedFile]:
        for file in self.files:
            if not _is_there(file, folders[file.target.index]):
                yield file


def unfinished_bytes(folder: DataFolder | None) -> int:
    """Return the space that interrupted files of a folder take until the next call removes them."""
    if folder is None:
        return 0
    names = (name for name in folder.reserved if name.endswith(TEMPORARY_SUFFIX))
    paths = [folder.path / name for name in names]
    return sum(path.lstat().st_blocks * 512 for path in paths if path.exists())


def noted_stamps(folder: DataFolder, name: str, unit_bytes: int) -> Stamps | None:
    """Return the stamps that the manifest has of a finished file, ``None`` if it has none.

    Raises:
        DataError: the stamps are of another version.
    """
    entry = folder.entries.get(name)
    if entry is None or entry.result is None:
        return None
    fields = {field.name for field in dataclasses.fields(Stamps)}
    if set(entry.result) != fields or not all(type(each) is int for each in entry.result.values()):
        raise DataError(f"{folder.path} has stamps of another version; {REMEDY}")
    stamps = Stamps(**entry.result)
    if stamps.unit_bytes != unit_bytes:
        raise DataError(
            f"{folder.path / name} has stamps every {stamps.unit_bytes} bytes, {unit_bytes} "
            f"planned; {REMEDY}"
        )
    return stamps


def _is_there(file: StampedFile, folder: DataFolder | None) -> bool:
    if folder is None or file.name not in folder.entries:
        return False
    if file.path.is_file() and not file.path.is_symlink():
        _require_size(file.path, file.size_bytes)
    return folder.is_valid(file.name)


def _write_all(
    folders: Mapping[int, DataFolder], missing: Sequence[StampedFile], context: RunContext
) -> None:
    whole_bytes = sum(file.size_bytes for file in missing)
    context.progress.begin("generating", written_bytes=whole_bytes)
    engine = IOEngine(block_bytes=CHUNK_BYTES, depth=QUEUE_DEPTH)
    try:
        with context.phase("generate", timed=False) as phase:
            for file in missing:
                _write(folders[file.target.index], file, engine, phase)
    finally:
        engine.close()
        context.progress.end()


def _write(folder: DataFolder, file: StampedFile, engine: IOEngine, phase: Phase) -> None:
    """Write one file durably; its space is reserved first, so that a full target shows at once."""
    try:
        temporary = folder.announce(file.name)
        _reserve(folder, temporary, file.size_bytes)
        path = folder.path / temporary
        engine.run(
            IOPlan(
                kind=IOKind.WRITE,
                extents=[Extent(path, 0, file.size_bytes)],
                block_bytes=CHUNK_BYTES,
                depth=QUEUE_DEPTH,
                allocation=Allocation.OVERWRITE,
                fsync=True,
                stamps=file.stamps,
            ),
            moved=phase.count_written,
            alignment_bytes=direct_alignment(path),
        )
        noted = asdict(file.stamps) if file.notes_stamps else None
        folder.publish(file.name, file.size_bytes, None, result=noted)
    except WattloadError:
        raise
    except OSError as error:
        raise TargetError(
            f"writing {file.path} failed: {error.strerror or error}; "
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
            f"{path} is a file of {found_bytes} bytes, {planned_bytes} are planned; {REMEDY}"
        )
