"""A plan's blocks in the order in which they are taken, and its files with their ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count as count_up
from pathlib import Path

import numpy as np

from wattload.core.io import IOOrder, IOPlan

NO_END = -1
"""For blocks that are taken again until a count or a time is reached: a file is never done."""


@dataclass(slots=True)
class PlanFile:
    """A file of a plan: where it lies, how far it reaches, and how many blocks are still to do."""

    number: int
    path: Path
    end_bytes: int
    blocks_left: int
    handle: int | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of one extent that one operation moves."""

    file: PlanFile
    extent_number: int
    offset_bytes: int
    length_bytes: int


def files_of(plan: IOPlan) -> dict[Path, PlanFile]:
    """Return the files of a plan by path, with their ends and block counts."""
    files: dict[Path, PlanFile] = {}
    for extent in plan.extents:
        file = files.setdefault(extent.path, PlanFile(len(files), extent.path, 0, 0))
        file.end_bytes = max(file.end_bytes, extent.offset_bytes + extent.length_bytes)
        file.blocks_left += max(-(-extent.length_bytes // plan.block_bytes), 1)
    if repeats(plan):
        for file in files.values():
            file.blocks_left = NO_END
    return files


def repeats(plan: IOPlan) -> bool:
    """Return whether blocks are taken again until a count or a time is reached."""
    return plan.operation_count is not None or plan.duration_s is not None


def blocks_in_order(plan: IOPlan, files: dict[Path, PlanFile]) -> Iterator[Block]:
    """Yield the blocks in the plan's order: each once, or without end where the plan repeats.

    An empty extent is one block of length 0, so that its file is made; not where the plan repeats.
    """
    blocks = list(_split(plan, files))
    if plan.order is IOOrder.RANDOM:
        blocks = blocks if not repeats(plan) else [block for block in blocks if block.length_bytes]
        yield from _random(plan, blocks)
    elif not repeats(plan):
        yield from blocks
    else:
        blocks = [block for block in blocks if block.length_bytes]
        for number in count_up() if blocks else ():
            yield blocks[number % len(blocks)]


def _random(plan: IOPlan, blocks: list[Block]) -> Iterator[Block]:
    generator = np.random.default_rng(plan.seed)
    if not repeats(plan):
        for number in generator.permutation(len(blocks)):
            yield blocks[number]
    while blocks and repeats(plan):
        yield blocks[int(generator.integers(len(blocks)))]


def _split(plan: IOPlan, files: dict[Path, PlanFile]) -> Iterator[Block]:
    size = plan.block_bytes
    for number, extent in enumerate(plan.extents):
        for start in range(0, max(extent.length_bytes, 1), size):
            length = min(size, extent.length_bytes - start)
            yield Block(files[extent.path], number, extent.offset_bytes + start, length)
