"""A real file system of 32 MiB, for tests of a target that is full; needs root."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SIZE_BYTES = 32 << 20

SHUT_DOWN = 0x8004587D
"""``EXT4_IOC_SHUTDOWN``: all further access fails with EIO, as if the drive had gone."""

WITHOUT_FLUSH = struct.pack("I", 2)


@contextmanager
def tiny_file_system(folder: Path, *, preallocates: bool = True) -> Iterator[Path]:
    """Mount an ext4 on a loop device, or a tmpfs, below a folder; skips where neither mounts.

    An ext4 without extents, as older ones are, does not preallocate.
    """
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    mount_point, image = folder / "tiny", folder / "image"
    mount_point.mkdir()
    with image.open("wb") as file:
        file.truncate(SIZE_BYTES)
    commands = (
        ["mount", "-o", "loop", str(image), str(mount_point)],
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "tmpfs", str(mount_point)],
    )
    features = [] if preallocates else ["-O", "^extents,^64bit"]
    make = ["mkfs.ext4", "-q", *features, str(image)]
    made = subprocess.run(make, capture_output=True, check=False)
    usable = [command for command in commands if not made.returncode or "tmpfs" in command]
    if not preallocates:
        usable = [command for command in usable if "tmpfs" not in command]
    if all(subprocess.run(c, capture_output=True, check=False).returncode for c in usable):
        pytest.skip("this machine mounts neither a loop device nor tmpfs")
    try:
        yield mount_point
    finally:
        # A thread that lost its error may still have a file open.
        subprocess.run(["umount", "--lazy", str(mount_point)], check=True)


def fill(folder: Path) -> Path:
    """Leave no space on a file system; returns the file that takes it."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return filler


def fail_all_access(target: Path) -> None:
    """Shut down an ext4; skips for another file system."""
    descriptor = os.open(target, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, SHUT_DOWN, WITHOUT_FLUSH)
    except OSError:
        pytest.skip("only ext4 can be shut down")
    finally:
        os.close(descriptor)
