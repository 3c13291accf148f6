"""Real loop devices on files of a test, and what can be put on them."""

from __future__ import annotations

import binascii
import hashlib
import struct
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID, uuid4

import pytest

SECTOR_BYTES = 512
SIZE_BYTES = 16 << 20
LINUX_DATA = UUID("0fc63daf-8483-4772-8e79-3d69d8477de4")
_ENTRIES, _ENTRY_BYTES = 128, 128


@contextmanager
def loop_device(image: Path, *words: str, size_bytes: int = SIZE_BYTES) -> Iterator[Path]:
    """Attach a file to a free loop device (made if missing); skip where that is refused."""
    if not image.exists():
        with image.open("wb") as file:
            file.truncate(size_bytes)
    done = command("losetup", "--find", "--show", *words, str(image))
    if done.returncode:
        pytest.skip(f"losetup is refused here: {done.stderr.strip()}")
    device = Path(done.stdout.strip())
    try:
        yield device
    finally:
        if Path(f"{device}p1").exists():  # it would outlive the loop device
            command("delpart", str(device), "1")
        command("losetup", "--detach", str(device))


def command(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the system; a missing one skips the test."""
    try:
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    except FileNotFoundError:
        pytest.skip(f"{words[0]} is not installed")


def must(*words: str) -> str:
    """Run a command that has to succeed; return its output."""
    done = command(*words)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def add_partition(device: Path, *numbers: str) -> None:
    """Add a partition; one that an earlier user of the loop device has left goes first."""
    give_up_s = time.monotonic() + 30
    while "busy" in command("addpart", str(device), *numbers).stderr:
        command("delpart", str(device), numbers[0])
        assert time.monotonic() < give_up_s
        time.sleep(0.05)


def digest(path: Path) -> str:
    """Return a digest of all bytes of a device or file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_gpt(image: Path, parts: Sequence[tuple[UUID, int, int]]) -> UUID:
    """Write a GPT with partitions of these types, first and last sectors; return its UUID."""
    size = image.stat().st_size // SECTOR_BYTES
    own, entries = uuid4(), bytearray(_ENTRIES * _ENTRY_BYTES)
    for number, (kind, first, last) in enumerate(parts):
        entry = struct.pack("<16s16sQQQ72x", kind.bytes_le, uuid4().bytes_le, first, last, 0)
        entries[number * _ENTRY_BYTES : (number + 1) * _ENTRY_BYTES] = entry

    def header(at: int, other: int, table: int) -> bytes:
        def packed(crc: int) -> bytes:
            return struct.pack(
                "<8sIIIIQQQQ16sQIII",
                *(b"EFI PART", 0x10000, 92, crc, 0, at, other, 34, size - 34),
                *(own.bytes_le, table, _ENTRIES, _ENTRY_BYTES, binascii.crc32(entries)),
            )

        return packed(binascii.crc32(packed(0)))

    protective = bytearray(SECTOR_BYTES)
    protective[446:462] = struct.pack("<BBBBBBBBII", 0, 0, 2, 0, 0xEE, 255, 255, 255, 1, size - 1)
    protective[510:] = b"\x55\xaa"
    with image.open("r+b") as file:
        file.write(protective)
        file.write(header(1, size - 1, 2))
        file.seek(2 * SECTOR_BYTES)
        file.write(entries)
        file.seek((size - 33) * SECTOR_BYTES)
        file.write(entries)
        file.write(header(size - 1, 1, size - 33))
    return own
