"""Files and folders on the target, for the time of a benchmark."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from wattload.core.units import MIB
from wattload.loaders.data.cold_cache import evict

_BLOCK_BYTES = 8 * MIB


@contextmanager
def scratch(target: Path) -> Iterator[Path]:
    """Hold a folder on the target; it is removed with all its files."""
    with tempfile.TemporaryDirectory(prefix="wattload-bench-", dir=target) as folder:
        yield Path(folder)


@contextmanager
def written_files(target: Path, count: int, size_bytes: int) -> Iterator[Sequence[Path]]:
    """Hold ``count`` files of random bytes, durable and out of the page cache.

    Every byte is written: a read of blocks that are only preallocated never reaches the drive, and
    a write to them has to change the file system's map.
    """
    with scratch(target) as folder:
        files = [folder / f"{number}.bin" for number in range(count)]
        for number, path in enumerate(files):
            _write(path, size_bytes, seed=number)
        evict(files)
        yield files


def _write(path: Path, size_bytes: int, *, seed: int) -> None:
    random = np.random.default_rng(seed)
    with path.open("wb") as file:
        for start in range(0, size_bytes, _BLOCK_BYTES):
            file.write(random.bytes(min(_BLOCK_BYTES, size_bytes - start)))
        file.flush()
        os.fsync(file.fileno())
