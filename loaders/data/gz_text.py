"""The text of gz files, as Criteo ships its days: unpacked piece by piece.

A gz file can't be divided: what a byte means depends on those before it. ``Ahead`` unpacks in a
thread, so that a worker converts what was unpacked meanwhile.
"""

from __future__ import annotations

import io
import time
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from queue import Full, Queue
from threading import Thread
from typing import TYPE_CHECKING

from wattload.core.errors import DataError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

READ_BYTES = 4 << 20
"""Read of a gz file at a time."""
PIECE_BYTES = 1 << 20
"""A piece of text has at most this size, whatever it was packed to."""
PIECES_AHEAD = 8

_STEP_BYTES = 64 << 10
"""Unpacked at a time; errors are located to this many bytes."""
_GZ_FORMAT = 31
"""zlib's number for gz with the largest window."""
_POLL_S = 0.05


def is_gz(path: Path) -> bool:
    """Return whether a file holds its text as gz, which its name says."""
    return path.suffix == ".gz"


def open_text(path: Path, offset_bytes: int = 0) -> io.BufferedIOBase:
    """Open a file, plain or gz, to read its text from an offset; of gz all before is unpacked.

    Reading raises ``DataError`` as ``unpack``.
    """
    if not is_gz(path):
        file = path.open("rb")
        file.seek(offset_bytes)
        return file
    text = io.BufferedReader(PieceReader(unpack(path, chunks_of(path))), PIECE_BYTES)
    while offset_bytes and (passed := text.read(min(offset_bytes, PIECE_BYTES))):
        offset_bytes -= len(passed)
    return text


def first_text(path: Path, size_bytes: int) -> bytes:
    """Return the first bytes of a file's text, fewer only if it has no more.

    Raises ``DataError`` for gz data that is damaged there.
    """
    with closing(open_text(path)) as file:
        return file.read(size_bytes)


def unpacked_ratio(path: Path) -> float:
    """Return an estimate of a file's bytes of text per byte, from its start; 1 for a plain one.

    Raises ``DataError`` for gz data that is damaged there.
    """
    if not is_gz(path):
        return 1.0
    with path.open("rb") as file:
        start = file.read(_STEP_BYTES)
    member = zlib.decompressobj(_GZ_FORMAT)
    text = _decompress(member, start, path, 0)
    return len(text) / (len(start) - len(member.unconsumed_tail) - len(member.unused_data))


def chunks_of(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file, through the page cache."""
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(READ_BYTES):
            yield chunk


def unpack(
    path: Path,
    chunks: Iterable[bytes | memoryview],
    padded: Callable[[int], None] = lambda _: None,
) -> Generator[bytes, None, None]:
    """Yield the text of a gz file whose bytes come in ``chunks``; members may follow each other.

    Zero bytes at the end are padding, as for gzip(1). ``padded`` is called with their number.

    Raises:
        DataError: the file is cut short or damaged, or something else follows; it names the byte.
    """
    member, offset, padding = zlib.decompressobj(_GZ_FORMAT), 0, None
    for chunk in chunks:
        view = memoryview(chunk).cast("B")
        for first in range(0, len(view), _STEP_BYTES):
            data = bytes(view[first : first + _STEP_BYTES])
            end = offset + len(data)
            while data:
                if member.eof:
                    start = end - len(data)
                    if not any(data):
                        padding = start if padding is None else padding
                        break
                    if padding is not None or not b"\x1f\x8b".startswith(data[:2]):
                        start = start if padding is None else padding
                        raise DataError(
                            f"{path}, byte {start}: garbage after the end of the gz data; copy the "
                            f"file again, or cut it off there with `truncate -s {start}`"
                        )
                    member = zlib.decompressobj(_GZ_FORMAT)
                piece = _decompress(member, data, path, end - len(data))
                data = member.unused_data if member.eof else member.unconsumed_tail
                if piece:
                    yield piece
            offset = end
    if not member.eof:
        raise DataError(
            f"{path} is cut short: its gz data ends at byte {offset}, before the end of the text; "
            "copy it again"
        )
    if padding is not None:
        padded(offset - padding)


def _decompress(member: zlib._Decompress, data: bytes, path: Path, offset: int) -> bytes:
    try:
        return member.decompress(data, PIECE_BYTES)
    except zlib.error as error:
        raise DataError(
            f"{path} is not valid gz data at byte {offset} or up to {len(data)} bytes after it "
            f"({error}); copy it again"
        ) from error


class PieceReader(io.RawIOBase):
    """Reads pieces of text that follow each other like a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Return ``True``."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read into the buffer and return the number of bytes, 0 at the end of the text."""
        view = memoryview(buffer).cast("B")
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        count = min(len(view), len(self._rest))
        view[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


class Ahead:
    """Iterates over pieces that a thread makes ahead; ``close`` ends it.

    An error of the thread is raised where its piece would be. ``cpu_s`` is its CPU time in seconds
    after its last piece.
    """

    def __init__(self, pieces: Generator[bytes, None, None]) -> None:
        self._pieces = pieces
        self._made: Queue[bytes | Exception | None] = Queue(PIECES_AHEAD)
        self._is_closed = False
        self.cpu_s = 0.0
        self._thread = Thread(target=self._make, name="gz", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Make no more pieces, and wait for the thread."""
        self._is_closed = True
        self._thread.join()

    def __iter__(self) -> Iterator[bytes]:
        """Yield the pieces; raises what making them does."""
        while (piece := self._made.get()) is not None:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    def _make(self) -> None:
        last: Exception | None = None
        try:
            with closing(self._pieces):
                for piece in self._pieces:
                    if not self._put(piece):
                        break
        except Exception as error:
            last = error
        self.cpu_s = time.thread_time()
        self._put(last)

    def _put(self, piece: bytes | Exception | None) -> bool:
        """Wait for room in the queue; return whether there was any before the end."""
        while not self._is_closed:
            with suppress(Full):
                self._made.put(piece, timeout=_POLL_S)
                return True
        return False
