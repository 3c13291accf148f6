"""The shuffle of packed rows in two passes: to buckets, and within each bucket.

Each row goes to a bucket drawn for it alone, and the rows of a bucket are permuted (Sandelius, "A
Simple Randomization Procedure", 1962), so that every order is equally likely. A row's draw depends
on the seed and on its number among all rows, which neither workers nor parts change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wattload.core.io import Extent
from wattload.loaders.converters import RowFiles, Scattered, Shuffled
from wattload.loaders.data.criteo_day_files import Bytes, Moved, Span
from wattload.loaders.native.direct_files import Machine, divided, new_files

WRITTEN_ROWS = 1 << 14
"""Rows gathered at a time: their bytes stay in a core's cache."""


def bucket_of_rows(
    seed: int, first_row: int, row_count: int, bucket_count: int
) -> NDArray[np.int64]:
    """Return the bucket of each row: SplitMix64 of its number, scaled to the buckets."""
    start = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
    draws = np.arange(first_row + 1, first_row + 1 + row_count, dtype=np.uint64)
    draws *= np.uint64(0x9E3779B97F4A7C15)
    draws += start
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        draws ^= draws >> np.uint64(shift)
        draws *= np.uint64(factor)
    draws ^= draws >> np.uint64(31)
    draws >>= np.uint64(32)
    draws *= np.uint64(bucket_count)
    draws >>= np.uint64(32)
    return draws.view(np.int64)


def scatter_rows(
    machine: Machine,
    source: RowFiles,
    target: Path,
    *,
    seed: int,
    first_row: int,
    bucket_count: int,
    row_limit: int,
    moved: Moved,
) -> Scattered:
    """Write rows by bucket, ``row_limit`` of them at a time, then how many each bucket has.

    The counts are uint32, shape (times, ``bucket_count``), at the end of the file.
    """
    reader = _RowReader(machine, source, moved)
    counts = []
    with new_files(machine, [target], moved) as (sink,):
        for first in range(0, source.row_count, row_limit):
            rows = reader.read(first, min(row_limit, source.row_count - first))
            buckets = bucket_of_rows(seed, first_row + first, len(rows), bucket_count)
            order = np.argsort(buckets, kind="stable")
            for places in _some(order):
                sink.write(rows[places].reshape(-1))
            counts.append(np.bincount(buckets, minlength=bucket_count).astype("<u4"))
        for each in counts:
            sink.write(each.view(np.uint8))
    return Scattered(source.row_count, tuple(reader.spans), (sink.span,))


def shuffle_rows(
    machine: Machine,
    sources: Sequence[Extent],
    targets: Sequence[Path],
    widths: Sequence[int],
    *,
    seed: int,
    bucket: int,
    moved: Moved,
) -> Shuffled:
    """Write the rows of a bucket in random order; ``sources`` has them in the order of the rows."""
    width = sum(widths)
    rows = np.empty((sum(each.length_bytes for each in sources) // width, width), np.uint8)
    memory, taken_bytes = rows.reshape(-1), 0
    for found in machine.read(divided(sources, machine.block_bytes // 2), moved):
        memory[taken_bytes : taken_bytes + found.size] = found
        taken_bytes += found.size
    order = np.random.Generator(np.random.PCG64([seed, bucket])).permutation(len(rows))
    with new_files(machine, targets, moved) as sinks:
        for places in _some(order):
            some = rows[places]
            for sink, (start, end) in zip(sinks, _columns(widths), strict=True):
                sink.write(np.ascontiguousarray(some[:, start:end]).reshape(-1))
    return Shuffled(len(rows), taken_bytes, tuple(sink.span for sink in sinks))


class _RowReader:
    """Reads the rows of a part from its files; ``spans`` have the checksum of each."""

    def __init__(self, machine: Machine, source: RowFiles, moved: Moved) -> None:
        self._machine = machine
        self._source = source
        self._moved = moved
        self.spans = [Span(0) for _ in source.paths]

    def read(self, first: int, count: int) -> Bytes:
        """Return rows, shape (``count``, bytes); they have to follow those read before."""
        source = self._source
        rows = np.empty((count, sum(source.widths)), np.uint8)
        step = self._machine.block_bytes // 2
        for index, (path, width, (start, end)) in enumerate(
            zip(source.paths, source.widths, _columns(source.widths), strict=True)
        ):
            extents = divided([Extent(path, first * width, count * width)], step // width * width)
            done = 0
            for found in self._machine.read(extents, self._moved):
                some = found.reshape(-1, width)
                rows[done : done + len(some), start:end] = some
                done += len(some)
                self.spans[index] = self.spans[index].followed_by(found)
        return rows


def _some(order: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    for first in range(0, len(order), WRITTEN_ROWS):
        yield order[first : first + WRITTEN_ROWS]


def _columns(widths: Sequence[int]) -> list[tuple[int, int]]:
    """Return where the bytes of each file are in a row: first and one after the last."""
    return list(pairwise(accumulate(widths, initial=0)))
