"""What a run reads and writes: the target, as the workloads see it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from wattload.core.errors import TargetError
from wattload.core.record.target import TargetFacts

DATA_FOLDER_NAME = "wattload-data"


class TargetKind(StrEnum):
    """What kind of thing a target is; only directories are run so far."""

    DIRECTORY = "directory"
    FILE = "file"
    BLOCK = "block"
    NVME_CHAR = "nvme_char"
    MEMORY = "memory"
    NULL = "null"


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectIo:
    """The alignments that O_DIRECT needs here, in bytes, from ``statx(STATX_DIOALIGN)``.

    Where the kernel has no answer they are probed; ``found_by`` says which.
    """

    memory_align_bytes: int
    offset_align_bytes: int
    found_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One place that a run reads and writes.

    ``direct_io`` is ``None`` where O_DIRECT is refused; ``direct_io_missing`` then says why.
    ``facts`` is what the record keeps: file system, block stack, controllers.
    """

    index: int
    kind: TargetKind
    path: Path | None
    direct_io: DirectIo | None
    direct_io_missing: str | None
    facts: TargetFacts

    @property
    def data_folder(self) -> Path:
        """Where all data of ours lives on this target."""
        if self.path is None:
            raise TargetError(f"a {self.kind} target holds no files")
        return self.path / DATA_FOLDER_NAME
