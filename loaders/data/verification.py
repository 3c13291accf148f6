"""Verification of data: that what is read is what was written.

**Digests.** A file is read and compared once, and again whenever it has changed. It counts as
changed if its size, times, inode, device or extents have. What was verified is kept in the data
folder with the state of the file at that time.

**Sealed blocks.** The payload of a record file is in blocks that prove themselves
(``loaders.stamps``), within headers of known content. The blocks are those of the file; the first
and the last of them hold as much as the payload has there. The identity in their stamps is the data
set's nonce and a hash of the file's name, so that a file of another data set, or under another
name, is wrong.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import DataError
from wattload.core.host.cgroups import usable_cpus
from wattload.core.io import BlockIdentity, VerifiedSamples
from wattload.core.record.results import Check, amount
from wattload.core.storage.file_system import extent_map
from wattload.core.units import NS_PER_S, format_bytes
from wattload.core.workload import RunContext
from wattload.loaders.data.cold_cache import evict
from wattload.loaders.data.crc32 import crc32_of
from wattload.loaders.data.data_folder import DataFolder
from wattload.loaders.data.gz_text import is_gz, unpack
from wattload.loaders.data.record_formats import RecordFormat, record_format
from wattload.loaders.samples import SampleSet
from wattload.loaders.stamps import bad_blocks

READ_BYTES = 4 << 20
MAXIMUM_READERS = 8

TICK_NS = NS_PER_S // 20
"""Longer than a tick of any kernel's clock: two changes within one have the same time."""

_LINE_END = ord("\n")


@dataclass(frozen=True, slots=True)
class FileState:
    """What changes with a file's bytes; ``extents_sha256`` is ``None`` without FIEMAP."""

    device: int
    inode: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    extents_sha256: str | None

    @classmethod
    def of(cls, path: Path) -> FileState:
        """Return the state of a file; its dirty pages are written out first.

        Raises:
            OSError: it can't be opened, or is a symbolic link.
        """
        extents_sha256 = extent_map(path).sha256
        status = path.lstat()
        return cls(
            status.st_dev,
            status.st_ino,
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
            extents_sha256,
        )

    def shows_later_changes(self, now_ns: int) -> bool:
        """Return whether a change after ``now_ns`` (CLOCK_REALTIME) gives the file another time.

        It may not if the last change was within the same tick or lies in the future, because the
        clock was set back, or if the file system keeps whole seconds only.
        """
        has_fractions = self.ctime_ns % NS_PER_S != 0
        return has_fractions and self.ctime_ns + TICK_NS < now_ns


@dataclass(frozen=True, slots=True)
class Content:
    """What was read of a file; ``line_count`` includes a last line without a line end.

    ``unpacked_bytes`` is the size of the text in a gz file, whose lines are counted; ``None`` for
    any other file. ``padding_bytes`` are zero bytes after the gz data.
    """

    size_bytes: int
    sha256: str
    crc32: int
    line_count: int
    padding_bytes: int
    unpacked_bytes: int | None = None

    @property
    def text_bytes(self) -> int:
        return self.size_bytes if self.unpacked_bytes is None else self.unpacked_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A file to verify: ``folder`` keeps under ``name`` that it was.

    ``sha256`` and ``line_count`` are what it must have, ``None`` if that is not known. ``remedy``
    ends the sentence of the error if it has something else.
    """

    folder: DataFolder
    name: str
    path: Path
    sha256: str | None
    line_count: int | None
    remedy: str


@dataclass(frozen=True, slots=True)
class VerifiedFile:
    """A verified file, its content and its state; ``was_read`` is false if it had not changed.

    ``shows_changes`` is whether any later change will be seen in its state.
    """

    path: Path
    content: Content
    state: FileState
    was_read: bool
    shows_changes: bool


def verify(files: Sequence[DataFile], context: RunContext) -> list[VerifiedFile]:
    """Read each file that was not verified before, or has changed since, and compare its digest.

    Every rank has to call this and reads its share. Returns all files, in order. Files that were
    read are in the page cache afterwards.

    Raises:
        DataError: a file differs from what was written, or changes while it is read.
        OSError: a file can't be read.
    """
    world = context.communicator
    kept = {file.folder.path: _kept(file.folder) for file in files}
    own = files[world.rank :: world.world_size]
    states = [FileState.of(file.path) for file in own]
    unread_bytes = sum(
        state.size_bytes
        for file, state in zip(own, states, strict=True)
        if not _known(file, state, kept[file.folder.path])
    )
    if unread_bytes:
        context.progress.begin("verifying data", read_bytes=unread_bytes)
    readers = max(min(usable_cpus() // world.world_size, MAXIMUM_READERS), 1)
    with ThreadPoolExecutor(readers, thread_name_prefix="verify") as threads:
        try:
            found = list(
                threads.map(
                    lambda file, state: _verify(
                        file,
                        state,
                        kept[file.folder.path],
                        lambda count: context.progress.advance(read_bytes=count),
                    ),
                    own,
                    states,
                )
            )
        finally:
            threads.shutdown(cancel_futures=True)
    if unread_bytes:
        context.progress.end()
    by_rank = world.all_gather(found)
    in_order = [by_rank[index % len(by_rank)][index // len(by_rank)] for index in range(len(files))]
    if world.rank == 0:
        _keep(files, in_order)
    return in_order


def content_of(path: Path, moved: Callable[[int], None]) -> Content:
    """Read a file and return its digests; ``moved`` is called with the bytes of each read.

    Raises:
        DataError: gz data is cut short or damaged.
        OSError: it can't be read, or is a symbolic link.
    """
    sha256, crc32 = hashlib.sha256(), 0
    size_bytes = text_bytes = line_count = padding_bytes = 0
    last = _LINE_END
    buffer = np.empty(READ_BYTES, dtype=np.uint8)

    def chunks() -> Iterator[memoryview]:
        nonlocal crc32, size_bytes
        while count := file.readinto(buffer.data):
            sha256.update(buffer[:count].data)
            crc32 = crc32_of(buffer[:count], crc32)
            size_bytes += count
            moved(count)
            yield buffer[:count].data

    def padded(count: int) -> None:
        nonlocal padding_bytes
        padding_bytes = count

    with open(path, "rb", buffering=0, opener=open_regular) as file:
        for piece in unpack(path, chunks(), padded) if is_gz(path) else chunks():
            text = np.frombuffer(piece, np.uint8)
            line_count += int(np.count_nonzero(text == _LINE_END))
            text_bytes += text.size
            last = int(text[-1])
    line_count += last != _LINE_END
    unpacked_bytes = text_bytes if is_gz(path) else None
    return Content(size_bytes, sha256.hexdigest(), crc32, line_count, padding_bytes, unpacked_bytes)


def digests_check(files: Sequence[VerifiedFile]) -> Check:
    """Return the check, made after the timed phases, that the files are still those verified."""
    changed = [file.path for file in files if _changed(file)]
    read = [file for file in files if file.was_read]
    total_bytes = sum(file.content.size_bytes for file in files)
    figures = {
        "file_count": len(files),
        "file_bytes": total_bytes,
        "read_count": len(read),
        "read_bytes": sum(file.content.size_bytes for file in read),
        "changed_count": len(changed),
    }
    earlier = len(files) - len(read)
    since = f", {earlier} by an earlier run and unchanged since" if earlier else ""
    return Check(
        name="data_digests",
        verdict="pass" if are_unchanged(figures) else "fail",
        sentence=(
            f"{changed[0]} was changed during the run; {len(changed)} of {len(files)} files were."
            if changed
            else f"All {len(files)} data files ({format_bytes(total_bytes)}) have their recorded "
            f"SHA-256: {len(read)} were read before the timed phases{since}. None changed during "
            "the run."
        ),
        figures=figures,
        mandatory=True,
    )


def are_unchanged(figures: Mapping[str, float | int | str | None]) -> bool:
    """Return whether the figures of a digests check are those of unchanged files."""
    return amount(figures, "file_count") > 0 and amount(figures, "changed_count") == 0


def _verify(
    file: DataFile, state: FileState, kept: _Kept, moved: Callable[[int], None]
) -> VerifiedFile:
    known = _known(file, state, kept)
    shows_changes = state.shows_later_changes(time.time_ns())
    if known is not None:
        return VerifiedFile(file.path, known, state, False, shows_changes)
    evict([file.path])  # so that the drive is read, and not what was written a moment ago
    content = content_of(file.path, moved)
    if FileState.of(file.path) != state:
        raise DataError(
            f"{file.path} changed while it was read; run again when nothing else writes to it"
        )
    differences = []
    if file.sha256 not in {None, content.sha256}:
        found, recorded = content.sha256[:12], str(file.sha256)[:12]
        differences.append(f"its SHA-256 starts with {found} where {recorded} was recorded")
    if file.line_count not in {None, content.line_count}:
        differences.append(
            f"it has {content.line_count} lines where {file.line_count} were to be written"
        )
    if differences:
        raise DataError(
            f"{file.path} is not what was written: {' and '.join(differences)}; {file.remedy}"
        )
    return VerifiedFile(file.path, content, state, True, shows_changes)


def _changed(file: VerifiedFile) -> bool:
    try:
        return FileState.of(file.path) != file.state
    except OSError:
        return True


_Kept = dict[str, tuple[Content, FileState]]
"""What was verified of a folder's files, by name."""


def _known(file: DataFile, state: FileState, kept: _Kept) -> Content | None:
    """Return the content of a file that is as it was when it was verified."""
    content, then = kept.get(file.name, (None, None))
    if content is None or then != state or file.sha256 not in {None, content.sha256}:
        return None
    return content


def _kept(folder: DataFolder) -> _Kept:
    """Return what a folder keeps; nothing if that is missing or damaged."""
    found: _Kept = {}
    with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
        for name, fields in json.loads(folder.verified or "{}").items():
            found[name] = (Content(**fields["content"]), FileState(**fields["state"]))
    return found


def _keep(files: Sequence[DataFile], verified: Sequence[VerifiedFile]) -> None:
    """Write down what was verified, unless a later change to a file might not be seen."""
    for folder in {file.folder.path: file.folder for file in files}.values():
        kept = {
            file.name: {"content": asdict(found.content), "state": asdict(found.state)}
            for file, found in zip(files, verified, strict=True)
            if file.folder.path == folder.path and found.shows_changes
        }
        text = json.dumps(kept)
        if text != folder.verified:
            folder.verified = text


def open_regular(path: str, flags: int) -> int:
    """Open a file for ``open``: no link is followed, and a pipe is empty instead of blocking."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def record_identity(nonce: int, name: str) -> BlockIdentity:
    """Return the identity in the stamps of a data set's file."""
    digest = hashlib.sha256(name.encode()).digest()
    return BlockIdentity(nonce, int.from_bytes(digest[:8], "little"))


def verify_payload(samples: SampleSet, index: int, payload: NDArray[np.uint8]) -> VerifiedSamples:
    """Compare the blocks of a sample's whole payload; nothing if its files are not sealed."""
    if samples.nonce is None:
        return VerifiedSamples()
    start_s = time.thread_time()
    layout, path = record_format(samples.record_format), samples.paths[index]
    bad = bad_payload_blocks(layout, samples.nonce, path, samples.file_bytes[index], payload)
    return VerifiedSamples(
        verified_bytes=len(payload),
        bad_blocks={index: bad} if bad else {},
        cpu_s=time.thread_time() - start_s,
    )


def verify_file(
    samples: SampleSet, index: int, raw: NDArray[np.uint8], payload: NDArray[np.uint8]
) -> VerifiedSamples:
    """Compare a sample's whole file: the blocks of its payload, and the bytes around it."""
    found = verify_payload(samples, index, payload)
    if samples.nonce is None:
        return found
    start_s = time.thread_time()
    found.verified_bytes = len(raw)
    if not record_format(samples.record_format).surrounds(raw, str(samples.paths[index])):
        found.bad_blocks[index] = found.bad_blocks.get(index, 0) + 1
    found.cpu_s += time.thread_time() - start_s
    return found


def bad_file_blocks(layout: RecordFormat, nonce: int, path: Path, raw: NDArray[np.uint8]) -> int:
    """Return how many blocks of a whole file are wrong; the bytes around the payload are one."""
    payload = layout.payload(raw, str(path))
    wrong = bad_payload_blocks(layout, nonce, path, len(raw), payload)
    return wrong + (not layout.surrounds(raw, str(path)))


def bad_payload_blocks(
    layout: RecordFormat, nonce: int, path: Path, file_bytes: int, payload: NDArray[np.uint8]
) -> int:
    """Return how many blocks of a file's payload are not those that were written."""
    after_bytes = len(layout.tail(payload.shape))  # the same for every shape
    return bad_blocks(
        payload,
        record_identity(nonce, path.name),
        offset_bytes=file_bytes - len(payload) - after_bytes,
    )
