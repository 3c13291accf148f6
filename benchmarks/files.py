"""Fully written files on the target, for the time of a benchmark."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from wattload.core.io import Stamps
from wattload.core.units import MIB
from wattload.loaders import stamps as sealing
from wattload.loaders.aligned_io import PAGE_BYTES
from wattload.loaders.data.cold_cache import evict
from wattload.loaders.data.data_folder import DataFolder

_BLOCK_BYTES = 8 * MIB


@contextmanager
def written_files(target: Path, count: int, size_bytes: int) -> Iterator[Sequence[Path]]:
    """Hold ``count`` files of random bytes, durable and out of the page cache; removed at the end.

    Every byte is written: a read of blocks that are only preallocated never meets the drive, and a
    write to them has to change the file system's map.
    """
    folder = DataFolder.claim(target, "bench", {"count": count, "size_bytes": size_bytes}, seed=0)
    try:
        files = []
        for number in range(count):
            name = f"{number}.bin"
            folder.reserve(name)
            files.append(folder.path / name)
            _write(files[-1], size_bytes, seed=number)
            folder.record(name, size_bytes, None)
        evict(files)
        yield files
    finally:
        folder.remove()


@contextmanager
def stamped_files(
    target: Path, count: int, size_bytes: int, *, unit_bytes: int = PAGE_BYTES
) -> Iterator[Sequence[tuple[Path, Stamps]]]:
    """Hold files as ``written_files``, in which every ``unit_bytes`` begin with a stamp."""
    with written_files(target, count, size_bytes) as files:
        stamped = [
            (path, Stamps(nonce=1, word=number, unit_bytes=unit_bytes))
            for number, path in enumerate(files)
        ]
        for path, stamps in stamped:
            _seal(path, size_bytes, stamps)
        evict(files)
        yield stamped


@contextmanager
def new_files(target: Path, count: int) -> Iterator[Sequence[Path]]:
    """Hold the paths of ``count`` files that are not there yet; what is made is removed."""
    folder = DataFolder.claim(target, "bench", {"count": count, "new": True}, seed=0)
    try:
        names = [f"{number}.bin" for number in range(count)]
        for name in names:
            folder.reserve(name)
        yield [folder.path / name for name in names]
    finally:
        folder.remove()


def _write(path: Path, size_bytes: int, *, seed: int) -> None:
    random = np.random.default_rng(seed)
    with path.open("wb") as file:
        for start in range(0, size_bytes, _BLOCK_BYTES):
            file.write(random.bytes(min(_BLOCK_BYTES, size_bytes - start)))
        file.flush()
        os.fsync(file.fileno())


def _seal(path: Path, size_bytes: int, stamps: Stamps) -> None:
    with path.open("r+b") as file:
        for start in range(0, size_bytes, _BLOCK_BYTES):
            content = np.fromfile(path, np.uint8, min(_BLOCK_BYTES, size_bytes - start), "", start)
            sealing.seal(
                content,
                stamps,
                first_block=start // stamps.unit_bytes,
                unit_bytes=stamps.unit_bytes,
            )
            file.seek(start)
            file.write(content.tobytes())
        file.flush()
        os.fsync(file.fileno())
