"""Ways in which a file can cease to be what was written, all of the same size afterwards."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.allocation import punch

Damage = Callable[[Path, Path], None]
"""Changes the first file; the second is another one of the same data set."""


def zero(path: Path, other: Path) -> None:
    _put(path, 0, bytes(path.stat().st_size))


def flip_bit(path: Path, byte: int, bit: int) -> None:
    content = path.read_bytes()[byte]
    _put(path, byte, bytes([content ^ 1 << bit]))


def flip_in_the_middle(path: Path, other: Path) -> None:
    flip_bit(path, path.stat().st_size // 2, 3)


def flip_at_the_start(path: Path, other: Path) -> None:
    flip_bit(path, 1, 0)


def flip_and_keep_the_time(path: Path, other: Path) -> None:
    status = path.stat()
    flip_in_the_middle(path, other)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def swap_blocks(path: Path, other: Path) -> None:
    content = path.read_bytes()
    _put(path, 8192, content[16384:20480])
    _put(path, 16384, content[8192:12288])


def take_block_of_another_file(path: Path, other: Path) -> None:
    _put(path, 8192, other.read_bytes()[8192:12288])


def truncate_and_extend(path: Path, other: Path) -> None:
    size = path.stat().st_size
    os.truncate(path, size // 2)
    os.truncate(path, size)


def punch_hole(path: Path, other: Path) -> None:
    punch(path)


def copy_sparsely(path: Path) -> None:
    """Put a copy in the place of a file, made as ``cp`` makes one: shared or sparse if it can."""
    copy = path.with_name("copy")
    subprocess.run(["cp", "--reflink=auto", "--sparse=always", path, copy], check=True)
    copy.replace(path)


def _put(path: Path, at: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


DAMAGES: dict[str, Damage] = {
    "zeroed": zero,
    "one bit flipped": flip_in_the_middle,
    "a bit flipped at the start": flip_at_the_start,
    "a bit flipped, its time kept": flip_and_keep_the_time,
    "blocks swapped": swap_blocks,
    "a block of another file": take_block_of_another_file,
    "truncated and extended": truncate_and_extend,
    "hole punched": punch_hole,
}
