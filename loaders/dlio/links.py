"""The folder that DLIO is given: links in the order in which their files are to be read.

DLIO lists ``<data folder>/train``, sorts the names and, unshuffled, reads them in that order, each
accelerator its own contiguous part. Numbered links therefore make it read any files in any order,
and pointing them elsewhere between two epochs makes it read another order in the next.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from wattload.core.errors import RunError
from wattload.core.units import format_bytes
from wattload.loaders.sampleharness import Training

MEMORY = Path("/dev/shm")
_DIGITS = 8


class LinkFolder:
    """``data/train`` with its links and an empty ``data/valid``, both of which DLIO lists."""

    def __init__(self, folder: Path, training: Training, paths: Sequence[Path]) -> None:
        """Make the folder under ``folder``, which exists, over the samples' files at ``paths``."""
        self.path = folder / "data"
        self._training = training
        self._paths = paths
        self._names: list[str] = []
        for name in ("train", "valid"):
            (self.path / name).mkdir(parents=True)
        self.point(0)

    def point(self, epoch: int) -> None:
        """Point the links at the files of one epoch, in the order of its samples."""
        order = [index for shard in self._training.orders[epoch] for index in shard]
        suffix = self._training.samples.record_format
        train = self.path / "train"
        self._names = [f"{number:0{_DIGITS}d}.{suffix}" for number in range(len(order))]
        for name, index in zip(self._names, order, strict=True):
            temporary = self.path / name
            temporary.symlink_to(self._paths[index].absolute())
            temporary.replace(train / name)

    def remove(self) -> None:
        """Remove the links and the two folders; nothing that anybody else put there."""
        for name in self._names:
            (self.path / "train" / name).unlink(missing_ok=True)
        for folder in (self.path / "train", self.path / "valid", self.path):
            folder.rmdir()


@contextmanager
def copies_in_memory(paths: Sequence[Path], suffix: str) -> Iterator[list[Path]]:
    """Yield copies of the files on a file system in memory, removed at the end.

    Raises ``RunError`` where there is no room for them.
    """
    needed_bytes = sum(path.stat().st_size for path in paths)
    try:
        status = os.statvfs(MEMORY)
    except OSError as error:
        raise RunError(f"{MEMORY} can't be used for files in memory: {error.strerror}") from error
    if status.f_bavail * status.f_frsize < needed_bytes:
        raise RunError(f"{MEMORY} has no room for {format_bytes(needed_bytes)} of files")
    with tempfile.TemporaryDirectory(prefix="wattload-", dir=MEMORY) as folder:
        copies = [Path(folder) / f"{number}.{suffix}" for number in range(len(paths))]
        for path, copy in zip(paths, copies, strict=True):
            shutil.copyfile(path, copy)
        yield copies
