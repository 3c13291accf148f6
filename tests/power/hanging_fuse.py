"""A file system that stops answering: one flat folder in memory, served over ``/dev/fuse``.

A separate process speaks the kernel's protocol (``include/uapi/linux/fuse.h``). After SIGUSR1 it
takes every request and answers none: whoever waits then can't even be killed, as with a hung
network mount.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import stat
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

ROOT_NODE = 1
LOOKUP, FORGET, GETATTR, OPEN, READ, WRITE, RELEASE = 1, 2, 3, 14, 15, 16, 18
FLUSH, INIT, CREATE, INTERRUPT, BATCH_FORGET = 25, 26, 35, 36, 42
UNANSWERED = (FORGET, INTERRUPT, BATCH_FORGET)
REQUEST_BYTES = 1 << 20
OPENED = struct.pack("<QII", 0, 1, 0)
"""No handle, and FOPEN_DIRECT_IO: each write is a request."""

MNT_DETACH = 2
_LIBRARY = ctypes.CDLL(None, use_errno=True)


class Files:
    """The folder: its files by name, all of one user."""

    def __init__(self, owner: int) -> None:
        self.owner = owner
        self.names: dict[bytes, int] = {}
        self.contents: dict[int, bytearray] = {}

    def answer(self, opcode: int, node: int, body: bytes) -> bytes | int:
        """Return the answer to a request, or an error number."""
        handlers: dict[int, Callable[[int, bytes], bytes | int]] = {
            INIT: lambda *_: struct.pack("<4I2H4I28x", 7, 31, 1 << 17, 0, 12, 9, 1 << 16, 1, 0, 0),
            GETATTR: lambda node, _: bytes(16) + self.attributes(node),
            LOOKUP: self.find,
            CREATE: self.create,
            OPEN: lambda *_: OPENED,
            READ: self.read,
            WRITE: self.write,
            RELEASE: lambda *_: b"",
            FLUSH: lambda *_: b"",
        }
        handler = handlers.get(opcode)
        return errno.ENOSYS if handler is None else handler(node, body)

    def find(self, _: int, body: bytes) -> bytes | int:
        found = self.names.get(body.rstrip(b"\0"))
        return errno.ENOENT if found is None else self.entry(found)

    def create(self, _: int, body: bytes) -> bytes:
        created = len(self.names) + 2
        self.names[body[16:].rstrip(b"\0")] = created
        self.contents[created] = bytearray()
        return self.entry(created) + OPENED

    def read(self, node: int, body: bytes) -> bytes:
        offset, size = struct.unpack_from("<8xQI", body)
        return bytes(self.contents[node][offset : offset + size])

    def write(self, node: int, body: bytes) -> bytes:
        offset, size = struct.unpack_from("<8xQI", body)
        self.contents[node][offset : offset + size] = body[40 : 40 + size]
        return struct.pack("<II", size, 0)

    def attributes(self, node: int) -> bytes:
        mode = stat.S_IFDIR | 0o755 if node == ROOT_NODE else stat.S_IFREG | 0o644
        size, owner = len(self.contents.get(node, b"")), self.owner
        return struct.pack(
            "<2Q32x3I4I2I", node, size, 0, 0, 0, mode, 1, owner, owner, 0, 512
        ) + bytes(4)

    def entry(self, node: int) -> bytes:
        return struct.pack("<Q32x", node) + self.attributes(node)


def serve(folder: str, owner: int) -> None:
    """Mount on a folder and answer until this process ends."""
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    if _LIBRARY.mount(b"hanging", folder.encode(), b"fuse", 0, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), "mount")
    hangs: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _: hangs.append(number))
    sys.stdout.write("mounted\n")
    sys.stdout.flush()
    files = Files(owner)
    while True:
        request = os.read(device, REQUEST_BYTES)
        _, opcode, unique, node = struct.unpack_from("<IIQQ", request)
        if hangs or opcode in UNANSWERED:
            continue
        answer = files.answer(opcode, node, request[40:])
        error, data = (-answer, b"") if isinstance(answer, int) else (0, answer)
        with suppress(FileNotFoundError):  # its sender was killed
            os.write(device, struct.pack("<IiQ", 16 + len(data), error, unique) + data)


class HangingFolder:
    """A folder whose file system ``hang`` stops; ``unmount`` frees whoever waits for it."""

    def __init__(self, path: Path, owner: int) -> None:
        self.path = path
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, str(path), str(owner)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        if self.process.stdout.readline() != "mounted\n":
            reason = self.process.stderr.read().strip().splitlines()[-1]
            self.process.wait()
            pytest.skip(f"no FUSE here: {reason}")

    def hang(self) -> None:
        self.process.send_signal(signal.SIGUSR1)

    def unmount(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
        _LIBRARY.umount2(str(self.path).encode(), MNT_DETACH)


@contextmanager
def hanging(path: Path, *, owner: int) -> Iterator[HangingFolder]:
    """Mount on an existing folder until the block ends; skips where that is not possible."""
    folder = HangingFolder(path, owner)
    try:
        yield folder
    finally:
        folder.unmount()


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
