"""A plan as the bytes that the engine parses; the layout is that of ``src/wattload_engine.h``."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path

from wattload.core.errors import ConfigError
from wattload.core.io import Allocation, IOKind, IOOrder, IOPlan
from wattload.core.units import NS_PER_S

MAGIC = 0x31504C57
HEADER = struct.Struct("<2I4B5I6QQ2IQ4IQ")
FILE = struct.Struct("<Q2I")
EXTENT = struct.Struct("<2I2Q")

FSYNC = 1
DIRECT = 2
STAMP = 4
CHECK = 8
DESTINATION = 16
NO_CHANGE = 32

_WORDS = 1 << 64
_LIMITS: dict[str, int] = {
    "operation_count": 1 << 62,
    "duration_s": (1 << 62) // NS_PER_S,
    "rate_bytes_per_s": 1 << 62,
    "trace_every": (1 << 32) - 1,
}
"""The most that the plan's layout and the engine's own limits hold."""

_KINDS = {IOKind.READ: 0, IOKind.WRITE: 1}
_ORDERS = {IOOrder.SEQUENTIAL: 0, IOOrder.RANDOM: 1}
_ALLOCATIONS = {Allocation.PREALLOCATED: 0, Allocation.OVERWRITE: 1, Allocation.EXTENDING: 2}


@dataclass(frozen=True, slots=True)
class Place:
    """Where blocks go to or come from: ``offset_bytes`` into the engine's region ``number``."""

    number: int
    offset_bytes: int


def check(plan: IOPlan, *, block_bytes: int, depth: int, alignment_bytes: int) -> None:
    """Raise ``ConfigError`` for a plan that an engine of these limits can't do.

    Offsets, and ends inside a written file, are multiples of ``alignment_bytes``, and so is the
    plan's ``block_bytes``; only the end of a file may lie elsewhere.
    """
    if not 1 <= plan.depth <= depth:
        raise ConfigError(f"the plan's depth must be 1 to queue_depth {depth}, got {plan.depth}")
    if not alignment_bytes <= plan.block_bytes <= block_bytes or plan.block_bytes % alignment_bytes:
        raise ConfigError(
            f"the plan's block_bytes must be a multiple of {alignment_bytes} up to the engine's "
            f"{block_bytes}, got {plan.block_bytes}"
        )
    for name, limit in _LIMITS.items():
        value = getattr(plan, name)
        if value is not None and not value > 0:  # not a number is not above 0 either
            raise ConfigError(f"the plan's {name} must be above 0, got {value}")
        if value is not None and value > limit:
            raise ConfigError(f"the plan's {name} must be {limit} at most, got {value}")
    _check_extents(plan, alignment_bytes)


def ends_of(plan: IOPlan) -> dict[Path, int]:
    """Return the files of a plan, in the order of their first extents, and how far each reaches."""
    ends: dict[Path, int] = {}
    for extent in plan.extents:
        end_bytes = extent.offset_bytes + extent.length_bytes
        ends[extent.path] = max(ends.get(extent.path, 0), end_bytes)
    return ends


def encode(
    plan: IOPlan, *, alignment_bytes: int, direct: bool, destination: Place | None = None
) -> bytes:
    """Return the bytes of a plan that ``check`` has passed.

    ``direct`` opens its files with O_DIRECT. Files that are read must not change meanwhile.
    """
    ends = ends_of(plan)
    numbers = {path: number for number, path in enumerate(ends)}
    names = [os.fsencode(path) for path in ends]
    body = bytearray()
    position = 0
    for name, end_bytes in zip(names, ends.values(), strict=True):
        body += FILE.pack(end_bytes if plan.kind is IOKind.WRITE else 0, position, len(name))
        position += len(name)
    for extent in plan.extents:
        body += EXTENT.pack(numbers[extent.path], 0, extent.offset_bytes, extent.length_bytes)
    paths = b"".join(names)
    place = destination or Place(0, 0)
    nonce, word, first = _stamp_words(plan)
    head = HEADER.pack(
        MAGIC,
        HEADER.size + len(body) + len(paths),
        *(_KINDS[plan.kind], _ORDERS[plan.order], _ALLOCATIONS[plan.allocation], 0),
        _flags(plan, direct=direct, places=destination is not None),
        *(plan.block_bytes, alignment_bytes, plan.depth, plan.trace_every or 0),
        plan.operation_count or 0,
        _whole((plan.duration_s or 0) * NS_PER_S),
        _whole(plan.rate_bytes_per_s or 0),
        *(plan.seed % _WORDS, nonce, word, first),
        *(place.number, 0, place.offset_bytes),
        *(len(ends), len(plan.extents), len(paths), 0, 0),
    )
    return head + bytes(body) + paths


def needed_bytes(plan: IOPlan, alignment_bytes: int) -> int:
    """Return how much memory a plan's blocks take in a row, the last one in whole units."""
    count, last = 0, 0
    for extent in plan.extents:
        if extent.length_bytes:
            blocks = -(-extent.length_bytes // plan.block_bytes)
            count += blocks
            last = extent.length_bytes - (blocks - 1) * plan.block_bytes
    whole = (count - 1) * plan.block_bytes if count else 0
    return whole + -(-last // alignment_bytes) * alignment_bytes


def _check_extents(plan: IOPlan, alignment_bytes: int) -> None:
    ends = ends_of(plan)
    for extent in plan.extents:
        end_bytes = extent.offset_bytes + extent.length_bytes
        cuts = plan.kind is IOKind.WRITE and end_bytes < ends[extent.path]
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


def _whole(value: float) -> int:
    """Return the nearest whole number, but none for nothing only."""
    return max(round(value), 1) if value else 0


def _stamp_words(plan: IOPlan) -> tuple[int, int, int]:
    stamps = plan.stamps
    return (stamps.nonce, stamps.word, stamps.first_block) if stamps else (0, 0, 0)


def _flags(plan: IOPlan, *, direct: bool, places: bool) -> int:
    reads = plan.kind is IOKind.READ
    flags = (DIRECT if direct else 0) | (DESTINATION if places else 0)
    if plan.stamps is not None:
        flags |= CHECK if reads else STAMP
    if plan.fsync and not reads:
        flags |= FSYNC
    return flags | (NO_CHANGE if reads else 0)
