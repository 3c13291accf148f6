"""The encoded form of a plan that the engine parses, as ``src/wattload_engine.h`` specifies it."""

from __future__ import annotations

import os
import re
import struct
from dataclasses import dataclass
from itertools import accumulate, repeat
from operator import add
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError
from wattload.core.io import (
    Allocation,
    DeviceIdentity,
    IOKind,
    IOOrder,
    IOPlan,
)
from wattload.core.units import NS_PER_S

MAGIC = 0x31504C57
HEADER = struct.Struct("<2I4B5I6Q2IQ4IQ2IQ")
FILE = struct.Struct("<Q2I")
EXTENT = struct.Struct("<2I3Q")

FSYNC = 1
DIRECT = 2
STAMP = 4
CHECK = 8
DESTINATION = 16
NO_CHANGE = 32
DEVICE = 64
SAMPLE = 128
PLACED = 256

_WORDS = 1 << 64

_LIMITS: dict[str, int] = {
    "operation_count": 1 << 62,
    "duration_s": (1 << 62) // NS_PER_S,
    "rate_bytes_per_s": 1 << 62,
    "trace_every": (1 << 32) - 1,
}
"""The largest values that the layout and the engine accept."""

_MAJOR_MINOR = re.compile(r"\d{1,9}:\d{1,9}")
_KINDS = {IOKind.READ: 0, IOKind.WRITE: 1}
_ORDERS = {IOOrder.SEQUENTIAL: 0, IOOrder.RANDOM: 1}
_LISTED = 2
_ALLOCATIONS = {Allocation.PREALLOCATED: 0, Allocation.OVERWRITE: 1, Allocation.EXTENDING: 2}


@dataclass(frozen=True, slots=True)
class MemoryPosition:
    """A position in the engine's memory: ``offset_bytes`` into region ``number``."""

    number: int
    offset_bytes: int


def check(plan: IOPlan, *, block_bytes: int, depth: int, alignment_bytes: int) -> None:
    """Raise ``ConfigError`` for a plan that an engine with these limits can't execute.

    Offsets, ends inside a written file, and the plan's ``block_bytes`` must be multiples of
    ``alignment_bytes``; only the end of a file may be unaligned.
    """
    if not 1 <= plan.depth <= depth:
        raise ConfigError(f"the plan's depth must be 1 to queue_depth {depth}, got {plan.depth}")
    if block_bytes < alignment_bytes:
        raise ConfigError(
            f"O_DIRECT moves multiples of {alignment_bytes} bytes here, which the engine's blocks "
            f"of {block_bytes} are not; use block_bytes={alignment_bytes}"
        )
    if not alignment_bytes <= plan.block_bytes <= block_bytes or plan.block_bytes % alignment_bytes:
        raise ConfigError(
            f"the plan's block_bytes must be a multiple of {alignment_bytes} up to the engine's "
            f"{block_bytes}, got {plan.block_bytes}"
        )
    for name, limit in _LIMITS.items():
        value = getattr(plan, name)
        if value is not None and not value > 0:  # also true for NaN
            raise ConfigError(f"the plan's {name} must be above 0, got {value}")
        if value is not None and value > limit:
            raise ConfigError(f"the plan's {name} must be at most {limit}, got {value}")
    _check_extents(plan, alignment_bytes)
    if plan.blocks is not None:
        _check_blocks(plan, plan.blocks)
    if plan.device is not None:
        _check_device(plan, plan.device, alignment_bytes)


def ends_of(plan: IOPlan) -> dict[Path, int]:
    """Return the files of a plan, in the order of their first extents, with the end of each."""
    ends: dict[Path, int] = {}
    for extent in plan.extents:
        end_bytes = extent.offset_bytes + extent.length_bytes
        ends[extent.path] = max(ends.get(extent.path, 0), end_bytes)
    return ends


def encode(
    plan: IOPlan, *, alignment_bytes: int, direct: bool, destination: MemoryPosition | None = None
) -> bytes:
    """Return the encoded form of a plan that ``check`` has accepted.

    ``direct`` opens its files with O_DIRECT. Files that are read must not change meanwhile, unless
    each extent has its own stamp word.
    """
    nonce, word, first, unit_bytes = _stamp_words(plan)
    words = plan.places or plan.words or repeat(word, len(plan.extents))
    numbers: dict[str, int] = {}
    extents = [
        EXTENT.pack(
            numbers.setdefault(str(extent.path), len(numbers)),
            *(0, extent.offset_bytes, extent.length_bytes, own),
        )
        for extent, own in zip(plan.extents, words, strict=True)
    ]
    names = [os.fsencode(path) for path in numbers]
    ends = ends_of(plan).values() if plan.kind is IOKind.WRITE else [0] * len(names)
    positions = accumulate(map(len, names), initial=0)
    files = [FILE.pack(*file) for file in zip(ends, positions, map(len, names), strict=False)]
    body = b"".join([*files, *extents])
    listed = b"" if plan.blocks is None else plan.blocks.astype("<u8", copy=False).tobytes()
    order = _ORDERS[plan.order] if plan.blocks is None else _LISTED
    paths = b"".join(names)
    at = destination or MemoryPosition(0, 0)
    size_bytes, major, minor, sequence = _device_words(plan)
    head = HEADER.pack(
        MAGIC,
        HEADER.size + len(body) + len(listed) + len(paths),
        *(_KINDS[plan.kind], order, _ALLOCATIONS[plan.allocation], 0),
        _flags(plan, direct=direct, has_destination=destination is not None),
        *(plan.block_bytes, alignment_bytes, plan.depth, plan.trace_every or 0),
        plan.operation_count or 0,
        _whole((plan.duration_s or 0) * NS_PER_S),
        _whole(plan.rate_bytes_per_s or 0),
        *(plan.seed % _WORDS, nonce, first),
        *(at.number, unit_bytes, at.offset_bytes),
        *(len(files), len(extents), len(paths), len(listed) // 8),
        *(size_bytes, major, minor, sequence),
    )
    return head + body + listed + paths


def needed_bytes(plan: IOPlan, alignment_bytes: int) -> int:
    """Return the memory that a plan's blocks need in a row, the last one in whole units."""
    if plan.blocks is not None:
        return len(plan.blocks) * plan.block_bytes
    if plan.places is not None:
        ends = map(add, plan.places, (extent.length_bytes for extent in plan.extents))
        return -(-max(ends, default=0) // alignment_bytes) * alignment_bytes
    count, last = 0, 0
    for extent in plan.extents:
        if extent.length_bytes:
            blocks = -(-extent.length_bytes // plan.block_bytes)
            count += blocks
            last = extent.length_bytes - (blocks - 1) * plan.block_bytes
    whole = (count - 1) * plan.block_bytes if count else 0
    return whole + -(-last // alignment_bytes) * alignment_bytes


def _check_device(plan: IOPlan, device: DeviceIdentity, alignment_bytes: int) -> None:
    """Raise ``ConfigError`` for an extent that is not on the device, or is too fine for it."""
    if not _MAJOR_MINOR.fullmatch(device.major_minor):
        raise ConfigError(f'a device has two numbers like "259:1", got {device.major_minor!r}')
    if alignment_bytes % device.logical_block_bytes:
        raise ConfigError(
            f"{device.path} has logical blocks of {device.logical_block_bytes} bytes, so the "
            f"alignment must be a multiple of that, got {alignment_bytes}"
        )
    for path, end_bytes in ends_of(plan).items():
        if path != device.path:
            raise ConfigError(f"the plan is for {device.path} only, got an extent of {path}")
        if end_bytes > device.size_bytes:
            raise ConfigError(
                f"{path}: an extent ends at {end_bytes}, past the device's end at "
                f"{device.size_bytes}"
            )
        if end_bytes % alignment_bytes:
            raise ConfigError(
                f"{path}: an extent ends at {end_bytes}; on a device it must end at a multiple of "
                f"{alignment_bytes}"
            )


def _check_extents(plan: IOPlan, alignment_bytes: int) -> None:
    ends = ends_of(plan) if plan.kind is IOKind.WRITE else None
    for extent in plan.extents:
        end_bytes = extent.offset_bytes + extent.length_bytes
        cuts = ends is not None and end_bytes < ends[extent.path]
        if (
            extent.offset_bytes < 0
            or extent.length_bytes < 0
            or extent.offset_bytes % alignment_bytes
            or (cuts and end_bytes % alignment_bytes)
        ):
            raise ConfigError(
                f"{extent.path}: an extent of {extent.length_bytes} bytes at "
                f"{extent.offset_bytes} can't be moved by O_DIRECT; offsets, and ends inside a "
                f"file, are multiples of {alignment_bytes}"
            )


def _check_blocks(plan: IOPlan, blocks: NDArray[np.uint64]) -> None:
    """Raise ``ConfigError`` for a list that is none, or for a plan that can't have one.

    The library refuses numbers that the extents do not have.
    """
    if blocks.dtype != np.uint64 or blocks.ndim != 1:
        raise ConfigError(
            "a plan's blocks must be uint64 of one dimension, got "
            f"{blocks.dtype} of shape {blocks.shape}"
        )
    is_repeated = plan.operation_count is not None or plan.duration_s is not None
    if plan.kind is not IOKind.READ or plan.order is not IOOrder.SEQUENTIAL or is_repeated:
        raise ConfigError(
            "listed blocks are read once in their order: the plan must be a sequential read "
            "without operation_count and duration_s"
        )


def _whole(value: float) -> int:
    """Return the nearest whole number, at least 1 for any value above 0."""
    return max(round(value), 1) if value else 0


def _stamp_words(plan: IOPlan) -> tuple[int, int, int, int]:
    stamps = plan.stamps
    if stamps is None:
        return 0, 0, 0, 0
    return stamps.nonce, stamps.word, stamps.first_block, stamps.unit_bytes


def _device_words(plan: IOPlan) -> tuple[int, int, int, int]:
    device = plan.device
    if device is None:
        return 0, 0, 0, 0
    major, minor = map(int, device.major_minor.split(":"))
    return device.size_bytes, major, minor, device.disk_sequence or 0


def _flags(plan: IOPlan, *, direct: bool, has_destination: bool) -> int:
    reads = plan.kind is IOKind.READ
    flags = (DIRECT if direct else 0) | (DESTINATION if has_destination else 0)
    if plan.stamps is not None:
        flags |= CHECK if reads else STAMP
    if plan.sampled and flags & CHECK:
        flags |= SAMPLE
    if plan.places is not None:
        flags |= PLACED
    if plan.fsync and not reads:
        flags |= FSYNC
    if plan.device is not None:  # its node's times change with any write to it
        return flags | DEVICE
    return flags | (NO_CHANGE if reads and plan.words is None else 0)
