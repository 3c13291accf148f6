"""Plans as bytes, built from the layout that the engine's header states, and nothing of ours."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

READ, WRITE = 0, 1
SEQUENTIAL, RANDOM, LISTED = 0, 1, 2
PREALLOCATED, OVERWRITE, EXTENDING = 0, 1, 2
FSYNC, DIRECT, STAMP, CHECK, DESTINATION, NO_CHANGE, DEVICE, SAMPLE = 1, 2, 4, 8, 16, 32, 64, 128
PLACED = 256

MAGIC = 0x31504C57
PAGE_BYTES = 4096


@dataclass(kw_only=True)
class Plan:
    """The fields of a plan; ``extents`` are (file, offset, length), ``ends`` one per path.

    All extents have the stamp word ``word``, or those of ``words``, one each.
    ``device`` is (size, major, minor, disk sequence). ``unit`` is that of stamps, by default 4096
    in stamped plans.
    """

    paths: Sequence[Path]
    extents: Sequence[tuple[int, int, int]]
    ends: Sequence[int] = ()
    kind: int = READ
    order: int = SEQUENTIAL
    allocation: int = PREALLOCATED
    flags: int = DIRECT
    block: int = 65536
    align: int = PAGE_BYTES
    depth: int = 8
    trace_every: int = 0
    operations: int = 0
    duration_ns: int = 0
    rate: int = 0
    seed: int = 7
    nonce: int = 0
    word: int = 0
    words: Sequence[int] = ()
    first_block: int = 0
    unit: int | None = None
    region: int = 0
    destination: int = 0
    device: tuple[int, int, int, int] = (0, 0, 0, 0)
    listed: Sequence[int] = ()
    reserved: int = 0

    def encode(self) -> bytes:
        """Return the plan's bytes."""
        names = [bytes(path) for path in self.paths]
        ends = self.ends or self._ends()
        files, at = b"", 0
        for name, end in zip(names, ends, strict=True):
            files += struct.pack("<QII", end, at, len(name))
            at += len(name)
        words = self.words or [self.word] * len(self.extents)
        extents = b"".join(
            struct.pack("<IIQQQ", f, 0, o, n, word)
            for (f, o, n), word in zip(self.extents, words, strict=True)
        )
        listed = struct.pack(f"<{len(self.listed)}Q", *self.listed)
        body = files + extents + listed + b"".join(names)
        return self._header(136 + len(body), at) + body

    def _ends(self) -> list[int]:
        if self.kind == READ:
            return [0] * len(self.paths)
        return [
            max((o + n for f, o, n in self.extents if f == i), default=0)
            for i in range(len(self.paths))
        ]

    def _header(self, total: int, paths_bytes: int) -> bytes:
        is_stamped = self.flags & (STAMP | CHECK)
        unit = self.unit if self.unit is not None else PAGE_BYTES if is_stamped else 0
        kinds = (self.kind, self.order, self.allocation, self.reserved)
        sizes = (self.flags, self.block, self.align, self.depth, self.trace_every)
        limits = (self.operations, self.duration_ns, self.rate, self.seed)
        stamps = (self.nonce, self.first_block)
        place = (self.region, unit, self.destination)
        counts = (len(self.paths), len(self.extents), paths_bytes, len(self.listed))
        head = struct.pack("<II4B5I", MAGIC, total, *kinds, *sizes)
        head += struct.pack("<4Q2Q", *limits, *stamps)
        head += struct.pack("<IIQ", *place) + struct.pack("<IIII", *counts)
        return head + struct.pack("<QIIQ", *self.device)
