"""Where random writes go: a whole drive, or one file in a directory that stands in for it.

Both know their size and how they were prepared, and can be written to through an engine.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from wattload.core.errors import ConfigError, DataError, RunError, TargetError
from wattload.core.files import naming
from wattload.core.io import BlockIdentity, DeviceIdentity
from wattload.core.record.run import DataRecord
from wattload.core.storage.raw_device import is_present
from wattload.core.storage.targets import Target, TargetKind
from wattload.core.units import format_bytes
from wattload.core.workload import Conditioning, RawDrive, RunContext
from wattload.loaders.aligned_io import aligned_buffer
from wattload.loaders.data.data_folder import DataFolder, existing_on_targets, marker_of
from wattload.loaders.stamps import bad_blocks
from wattload.results.random_write.facts import Condition
from wattload.workloads.random_write.config import STAMP_BYTES, Config, Purge

WORKLOAD = "random_write"
FILE_NAME = "range.bin"
PASSES = 2
"""Sequential passes of a preparation."""
SAMPLED_BLOCKS = 1024
"""Blocks that are read to see whether a range is as it was left."""
SEED = 0
"""The data folder needs one; the content of the file is random anyway."""


@dataclass(slots=True, kw_only=True)
class WriteArea:
    """A range of bytes from the start of a drive or file.

    ``drive`` is the released drive of a block target; ``None`` for a file, and while a run is only
    planned. ``history`` is how the range was prepared when the run began.
    """

    path: Path
    range_bytes: int
    device: DeviceIdentity | None = None
    drive: RawDrive | None = None
    folder: DataFolder | None = None
    history: Conditioning | None = None
    nonce: int = field(default_factory=lambda: secrets.randbits(64))

    @property
    def is_file(self) -> bool:
        return self.device is None

    def note(self, conditioning: Conditioning) -> None:
        """Keep how the range was prepared, for later runs."""
        self.history = conditioning
        if self.drive is not None:
            self.drive.note_conditioning(conditioning)
        elif self.folder is not None:
            self.folder.record(FILE_NAME, self.range_bytes, None, result=asdict(conditioning))

    def host_written(self) -> tuple[int, int] | None:
        """Return the drive's own count of bytes written to it and its rounding, if it has one."""
        return None if self.drive is None else self.drive.host_written_bytes()

    def facts(self, *, reused: bool) -> DataRecord | None:
        """Return the facts of the file; a raw drive has no data set."""
        if self.folder is None:
            return None
        return DataRecord(
            key=self.folder.key,
            folder=str(self.folder.path),
            file_count=1,
            data_bytes=self.range_bytes,
            reused=reused,
            parameters=_parameters(self.range_bytes),
        )


def find_area(config: Config, context: RunContext) -> WriteArea:
    """Return the area of the run's only target; creates nothing.

    Raises:
        ConfigError: there are several targets, the range is larger than the drive, smaller than a
            block, or a setting needs a raw drive.
    """
    if len(context.targets) != 1:
        raise ConfigError(
            f"random_write writes to one target, got {len(context.targets)}; compare drives by "
            "-m target.path=/dev/a,/dev/b"
        )
    target = context.targets[0]
    if target.kind is TargetKind.BLOCK:
        return _drive(config, target, context)
    if config.purge is not Purge.none:
        raise ConfigError(
            f"workload.purge={config.purge.value} empties a whole drive and needs target=block; "
            f"{target.path} is a directory"
        )
    scale = config.scales.get(context.scale)
    given = config.range_bytes or (scale.range_bytes if scale is not None else 0)
    range_bytes = _whole_blocks(given, config.block_bytes)
    key = str(marker_of(WORKLOAD, _parameters(range_bytes), SEED)["key"])
    folder = existing_on_targets([target], key)[0]
    return WriteArea(
        path=target.data_folder / key / FILE_NAME,
        range_bytes=range_bytes,
        folder=folder,
        history=_history_of(folder),
    )


def claim(area: WriteArea, target: Target) -> None:
    """Create or reopen the data folder of a file; does nothing for a drive."""
    if not area.is_file:
        return
    area.folder = DataFolder.claim(
        target.data_folder.parent, WORKLOAD, _parameters(area.range_bytes), seed=SEED
    )
    area.history = _history_of(area.folder)


def check_kept(area: WriteArea, condition: Condition) -> None:
    """Refuse ``condition=keep`` if the range is not as its conditioning left it.

    Raises:
        ConfigError: it was never prepared, or not to its end.
        TargetError: the drive was written or emptied since, or can't say whether it was.
    """
    if condition is not Condition.keep:
        return
    known = area.history
    if (
        known is None
        or known.sequential_bytes < PASSES * area.range_bytes
        or known.range_bytes != area.range_bytes
    ):
        what = "was never prepared by wattload on this host, or was purged since"
        if known is not None and known.range_bytes != area.range_bytes:
            what = f"was prepared over {known.range_bytes} bytes, and this run writes to "
            what += f"{area.range_bytes}"
        elif known is not None:
            what = "was not prepared to its end"
        raise ConfigError(
            f"workload.condition=keep: {area.path} {what}; run once with "
            "workload.condition=sequential and the same workload.range_bytes and block_bytes"
        )
    if area.drive is not None:
        _check_count(area, known)
    if not is_stamped(area, area.range_bytes):
        raise TargetError(
            f"workload.condition=keep: blocks of {area.path} are not what wattload wrote: it was "
            "discarded, formatted or overwritten since its conditioning; use "
            "workload.condition=sequential"
        )


def _check_count(area: WriteArea, known: Conditioning) -> None:
    now = area.host_written()
    if now is None or known.host_written_bytes is None:
        raise TargetError(
            f"workload.condition=keep: {area.path} does not count the bytes written to it, so "
            "nothing shows that it is as it was left; use workload.condition=sequential"
        )
    since_bytes = now[0] - known.host_written_bytes
    if since_bytes < -now[1]:
        raise TargetError(
            f"workload.condition=keep: the count of bytes written to {area.path} fell from "
            f"{known.host_written_bytes:,} to {now[0]:,} since its conditioning, so it was reset "
            "or is another device; use workload.condition=sequential"
        )
    if since_bytes > now[1]:
        raise TargetError(
            f"workload.condition=keep: {format_bytes(since_bytes)} were written to {area.path} "
            "since its conditioning; use workload.condition=sequential"
        )


def is_stamped(area: WriteArea, length_bytes: int) -> bool:
    """Return whether sampled blocks of the first ``length_bytes`` are whole and ours.

    A discarded or formatted drive has lost its stamps, which its count of bytes does not show.
    Whichever run wrote a block does not matter.
    """
    count = length_bytes // STAMP_BYTES
    numbers = np.linspace(0, count - 1, min(count, SAMPLED_BLOCKS), dtype=np.int64)
    offsets = [int(number) * STAMP_BYTES for number in numbers]
    return not any(True for _ in foreign_blocks(area, STAMP_BYTES, offsets))


def foreign_blocks(
    area: WriteArea,
    block_bytes: int,
    offsets: Iterable[int],
    accepts: Callable[[int, int, int], bool] = lambda _offset, _nonce, _word: True,
) -> Iterator[int]:
    """Yield the offsets of blocks that were not written as one, in the given order.

    A block's stamps must have the same nonce and word, their own numbers and their own sums.
    ``accepts`` judges offset, nonce and word.
    """
    buffer = aligned_buffer(block_bytes)
    descriptor = os.open(area.path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        for offset in offsets:
            got = os.preadv(descriptor, [buffer.data], offset)
            nonce, word = (int(each) for each in buffer[:16].view("<u8"))
            if (
                got < block_bytes
                or not accepts(offset, nonce, word)
                or bad_blocks(buffer, BlockIdentity(nonce, word), offset_bytes=offset)
            ):
                yield offset
    finally:
        os.close(descriptor)


def rest_s(area: WriteArea) -> float | None:
    """Return the seconds since the range was last written, ``None`` if it was never."""
    return None if area.history is None else max(time.time() - area.history.ended_s, 0.0)


def earlier_random_bytes(area: WriteArea, config: Config) -> int:
    """Return the random bytes of earlier runs since the preparation, if drawn in the same way.

    Writes by another draw or of another size begin a new count.
    """
    known = area.history
    now = (config.drawn.value, config.block_bytes)
    if known is None or (known.draw, known.random_block_bytes) != now:
        return 0
    return known.random_bytes


def note_random_writes(area: WriteArea, config: Config, written_bytes: int) -> None:
    """Keep that random writes were added to the range.

    The history of a range that this run has neither prepared nor checked (``condition=none``) is
    not continued.
    """
    known, counted = area.history, area.host_written()
    if known is None or not known.complete or config.prepared is Condition.none:
        return
    area.note(
        replace(
            known,
            random_bytes=written_bytes + earlier_random_bytes(area, config),
            random_block_bytes=config.block_bytes,
            draw=config.drawn.value,
            host_written_bytes=None if counted is None else counted[0],
            ended_s=time.time(),
            nonce=area.nonce,
        )
    )


def _drive(config: Config, target: Target, context: RunContext) -> WriteArea:
    device = target.device
    if device is None:
        raise TargetError(f"{target.path} was not identified as a block device")
    if config.range_bytes is not None and config.range_bytes > device.size_bytes:
        raise ConfigError(
            f"workload.range_bytes must be at most the {device.size_bytes} bytes of {device.path}, "
            f"got {config.range_bytes}"
        )
    if config.purge is Purge.format and not target.facts.controllers:
        raise ConfigError(
            f"workload.purge=format needs an NVMe drive, and {target.path} is not one; use "
            "workload.purge=discard"
        )
    drive = context.raw_drive(target)
    range_bytes = _whole_blocks(config.range_bytes or device.size_bytes, config.block_bytes)
    area = WriteArea(path=device.path, range_bytes=range_bytes, device=device, drive=drive)
    if drive is not None:
        area.nonce, area.history = drive.nonce, drive.conditioning()
    return area


def _whole_blocks(size_bytes: int, block_bytes: int) -> int:
    if size_bytes < block_bytes:
        raise ConfigError(
            f"the range must hold a block of {block_bytes} bytes, got {size_bytes}; set "
            "workload.range_bytes"
        )
    return size_bytes - size_bytes % block_bytes


def _parameters(range_bytes: int) -> Mapping[str, Any]:
    return {"range_bytes": range_bytes}


def _history_of(folder: DataFolder | None) -> Conditioning | None:
    """Return how a data folder's file was prepared, ``None`` if it is missing or incomplete.

    Raises ``DataError`` for a note that another version wrote.
    """
    if folder is None or not folder.is_valid(FILE_NAME):
        return None
    noted = folder.entries[FILE_NAME].result
    try:
        return None if noted is None else Conditioning(**noted)
    except TypeError as error:
        raise DataError(
            f"{folder.path} notes its history in a way that this wattload does not know; delete "
            "the data with `wattload clean`"
        ) from error


def sync(area: WriteArea) -> None:
    """Make everything written durable, including the drive's own write cache."""
    descriptor = os.open(area.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        with naming(area.path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def explained(area: WriteArea) -> Iterator[None]:
    """Raise the faults of a drive that is gone as ``RunError``.

    The kernel fails writes to it as if they lay beyond its end (ENOSPC), which a full drive can't.
    """
    try:
        yield
    except OSError as error:
        if area.device is None or is_present(area.device):
            raise
        raise RunError(
            f"{area.path} went away during the run: the kernel no longer has this drive "
            f"({error.strerror}); see dmesg, and check its connection and power"
        ) from error
