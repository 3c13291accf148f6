"""Faults that no healthy machine has: broken media, refused system calls, coarse devices."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.tinyfs import tiny_file_system

BROKEN_FROM_BYTES = 16 << 20


@contextmanager
def breaking_file(folder: Path, size_bytes: int, content: bytes | None = None) -> Iterator[Path]:
    """Yield a file of a real file system whose medium ends in the middle: reads there fail.

    The loop device's backing file is cut below the mounted file system; the kernel answers reads
    past its end with EIO.
    """
    with tiny_file_system(folder) as mount_point:
        image = folder / "image"
        path = mount_point / "file"
        path.write_bytes(os.urandom(size_bytes) if content is None else content)
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if not image.exists() or mount_kind(mount_point) != "ext4":
            pytest.skip("this machine mounts no loop device")
        os.sync()
        whole_bytes = image.stat().st_size
        os.truncate(image, BROKEN_FROM_BYTES)
        try:
            yield path
        finally:
            os.truncate(image, whole_bytes)


def mount_kind(mount_point: Path) -> str:
    """Return the type of the file system that is mounted there."""
    rows = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    return next((row[2] for row in rows if row[1] == str(mount_point)), "")


@contextmanager
def coarse_device(folder: Path, block_bytes: int) -> Iterator[Path]:
    """Yield a loop device of 4 MiB with such logical blocks; skips where the kernel makes none."""
    if os.geteuid() != 0:
        pytest.skip("only root can make loop devices")
    image = folder / "coarse"
    image.write_bytes(bytes(4 << 20))
    command = ["losetup", "--find", "--show", "--sector-size", str(block_bytes), str(image)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"no loop device with blocks of {block_bytes} bytes: {made.stderr.strip()}")
    device = Path(made.stdout.strip())
    try:
        yield device
    finally:
        subprocess.run(["losetup", "--detach", str(device)], check=True)


NO_URING = """
import ctypes, os, struct
# The kernel's own way to take a system call away: a filter that answers io_uring_setup (number 425
# on every architecture since 5.1) for more than so many entries with EPERM and lets all others
# pass; linux/filter.h, seccomp(2).
LOAD, EQUAL, GREATER, RETURN = 0x20, 0x15, 0x25, 0x06
NUMBER, FIRST_ARGUMENT = 0, 16
MOST = int(os.environ.get("MOST_ENTRIES", "0"))
program = b"".join(
    struct.pack("<HBBI", *step)
    for step in ((LOAD, 0, 0, NUMBER), (EQUAL, 0, 3, 425), (LOAD, 0, 0, FIRST_ARGUMENT),
                 (GREATER, 0, 1, MOST), (RETURN, 0, 0, 0x50001), (RETURN, 0, 0, 0x7FFF0000))
)
steps = ctypes.create_string_buffer(program, len(program))
head = struct.pack("<HxxxxxxQ", len(program) // 8, ctypes.addressof(steps))
libc = ctypes.CDLL(None, use_errno=True)
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
assert libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, head, 0, 0) == 0
"""
"""Python that takes io_uring away from its own process, as many containers do."""

SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
typedef ssize_t (*move)(int, void *, size_t, off_t);
static ssize_t either(const char *name, int fd, void *memory, size_t bytes, off_t offset) {
    const char *from = getenv("BROKEN_FROM");
    if (from && offset + (off_t)bytes > atoll(from)) {
        errno = EIO;
        return -1;
    }
    const char *part = getenv("PART_BYTES");
    if (part && bytes > (size_t)atoll(part)) {
        size_t blocks = ((size_t)atoll(part) + 4095) / 4096 * 4096;
        ssize_t moved = ((move)dlsym(RTLD_NEXT, name))(fd, memory, blocks, offset);
        return moved > atoll(part) ? atoll(part) : moved;
    }
    return ((move)dlsym(RTLD_NEXT, name))(fd, memory, bytes, offset);
}
ssize_t pwrite(int fd, const void *memory, size_t bytes, off_t offset) {
    return either("pwrite", fd, (void *)memory, bytes, offset);
}
int fsync(int fd) {
    const char *folder = getenv("SLOW_SYNC");
    if (getenv("FAIL_SYNC")) {
        errno = EIO;
        return -1;
    }
    if (folder) {
        mkdirat(AT_FDCWD, folder, 0755);
        sleep(3);
        rmdir(folder);
    }
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}
ssize_t pread(int fd, void *memory, size_t bytes, off_t offset) {
    return either("pread", fd, memory, bytes, offset);
}
"""


def broken_media(folder: Path) -> Path:
    """Return a library that makes ``pread`` and ``pwrite`` fail from ``BROKEN_FROM`` on.

    With ``PART_BYTES`` a longer call moves no more than that. With ``FAIL_SYNC`` ``fsync`` fails.
    With ``SLOW_SYNC``, a folder that is not there, ``fsync`` takes 3 s, and it is there meanwhile.
    """
    source, library = folder / "shim.c", folder / "shim.so"
    source.write_text(SHIM)
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no C compiler")
    return library
