"""Day files and their parts: which bytes of which file one worker takes, cut at line ends."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from wattload.core.errors import DataError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

Moved = Callable[[int, int, int], None]
"""Takes bytes read, bytes written and the number of system calls that moved them."""

LINE_LIMIT_BYTES = 64 << 10
"""No line of a day file is longer; Criteo's have some 250 bytes."""

_DAY_NAME = re.compile(r"day_([0-9]+)\Z")


@dataclass(frozen=True, slots=True)
class Part:
    """Whole lines of one day file: bytes ``start_bytes`` (inclusive) to ``end_bytes`` (exclusive).

    ``name`` is unique among the parts of a conversion and sorts in the order of the rows.
    """

    source: Path
    start_bytes: int
    end_bytes: int
    name: str

    @property
    def size_bytes(self) -> int:
        """The bytes of TSV in the part."""
        return self.end_bytes - self.start_bytes


class CountedFile(io.FileIO):
    """A file that reports every byte where it moves; unbuffered, through the page cache."""

    def __init__(self, path: Path, mode: str, moved: Moved) -> None:
        super().__init__(path, mode)
        self._moved = moved

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read into the buffer, count what came and return it, in bytes."""
        count = super().readinto(buffer) or 0
        self._moved(count, 0, 1)
        return count

    def read(self, size: int | None = -1, /) -> bytes:
        """Read up to ``size`` bytes, all for a negative size; count them and return them."""
        data = super().read(-1 if size is None else size) or b""
        self._moved(len(data), 0, 1)
        return data

    def write(self, data: ReadableBuffer, /) -> int:
        """Write the buffer whole, count it and return its size in bytes.

        Raises ``OSError`` that names the file when the target takes no more.
        """
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):
            count = super().write(view[done:]) or 0
            self._moved(0, count, 1)
            done += count
        return done


def day_files(source: Path) -> tuple[Path, ...]:
    """Return the day files that a path names: itself, or the ``day_0``, ``day_1``, ... in it.

    Symbolic links are resolved; nothing is opened for writing.

    Raises:
        DataError: there are none, one is empty, or they are still compressed.
    """
    if source.is_dir():
        found = {int(match[1]): path for path in source.iterdir() if (match := _day(path))}
        paths = tuple(found[day].resolve() for day in sorted(found))
    else:
        paths = (source.resolve(),)
    if not paths:
        packed = " (day_*.gz must be unpacked first)" if any(source.glob("day_*.gz")) else ""
        raise DataError(f"{source} holds no day files: they are named day_0, day_1, ...{packed}")
    for path in paths:
        _require_text(path)
    return paths


def _day(path: Path) -> re.Match[str] | None:
    return _DAY_NAME.match(path.name) if path.is_file() else None


def _require_text(path: Path) -> None:
    try:
        with path.open("rb") as file:
            start = file.read(2)
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror}") from error
    if not start:
        raise DataError(f"{path} is empty; a day file has a line for each click")
    if start == b"\x1f\x8b":
        raise DataError(f"{path} is compressed; unpack it first, with gunzip --keep {path}")


def balanced_count(*, file_count: int, worker_count: int, size_bytes: int, part_bytes: int) -> int:
    """Return into how many parts files of one size are cut so that all workers get as many.

    It is a multiple of both counts, the smallest whose parts are not over ``part_bytes``.
    """
    together = math.lcm(file_count, worker_count)
    return together * max(-(-size_bytes // (together * part_bytes)), 1)


def cut(paths: Sequence[Path], part_count: int) -> tuple[Part, ...]:
    """Cut day files into about ``part_count`` parts of nearly equal size, each of whole lines.

    Every file gives at least one part, so fewer files than workers still give work to all, and a
    part never spans two files. No byte is in two parts; parts that would be empty are left out.

    Raises ``DataError`` for a line of more than 64 KiB.
    """
    sizes = [path.stat().st_size for path in paths]
    share = max(sum(sizes) / part_count, 1)
    return tuple(
        part
        for path, size in zip(paths, sizes, strict=True)
        for part in _cut_file(path, size, max(round(size / share), 1))
    )


def head(part: Part, size_bytes: int) -> Part:
    """Return the first whole lines of a part, ``size_bytes`` or up to a line more."""
    if part.size_bytes <= size_bytes:
        return part
    with part.source.open("rb") as file:
        end = _next_line(file, part.source, part.start_bytes + size_bytes)
    return Part(part.source, part.start_bytes, min(end, part.end_bytes), part.name)


def _cut_file(path: Path, size_bytes: int, count: int) -> Iterator[Part]:
    with path.open("rb") as file:
        cuts = [_next_line(file, path, size_bytes * index // count) for index in range(1, count)]
    edges = sorted({0, *cuts, size_bytes})
    for index, (start, end) in enumerate(pairwise(edges)):
        yield Part(path, start, end, f"{path.name}.{index:05d}")


def _next_line(file: io.BufferedReader, path: Path, offset: int) -> int:
    """Return where the first line starts that begins at ``offset`` or after it."""
    file.seek(max(offset - 1, 0))
    rest = file.readline(LINE_LIMIT_BYTES)
    if len(rest) == LINE_LIMIT_BYTES and not rest.endswith(b"\n"):
        raise long_line(path, offset)
    return max(offset - 1, 0) + len(rest)


def long_line(path: Path, offset: int) -> DataError:
    """Return the error for a file that has no line end where one is due."""
    return DataError(
        f"{path} has no line end within {LINE_LIMIT_BYTES} bytes after byte {offset}; "
        "it is no Criteo day file, or it is damaged there"
    )
