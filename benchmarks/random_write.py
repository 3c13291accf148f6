"""Random writes of 16 KiB at queue depth 32 against fio: on a file, a loop device and zram.

Neither side keeps a map of the blocks that it has written: both draw each block uniformly. The mean
depth of the device's queue shows whether 32 operations are in flight. zram has no queue: it
completes an operation before it takes the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.child import written_files
from benchmarks.devices import loop_device, watched, zram_device
from benchmarks.engine import RANDOM_WRITE, against_fio, operations_per_s
from benchmarks.measure import Comparison, NotMeasuredError, Row, absent
from wattload.core.units import MIB

FILE_BYTES = 2048 * MIB
ZRAM_BYTES = 512 * MIB
READINGS_S, READ_SECONDS = 1.0, 3.0
"""Seconds between two readings of a running plan, and of the runs that show what they cost."""


def comparisons(target: Path) -> Iterator[Comparison]:
    """Compare speed, CPU time and queue depth on each kind of target; show what readings cost."""
    with written_files(target, 1, FILE_BYTES) as (file,):
        yield _compare("file", file)
        plain = replace(RANDOM_WRITE.ours([file])[0], seconds=READ_SECONDS)
        yield Comparison(
            rows=(
                operations_per_s(name="random 16 KiB write, a reading a second ÷ none", goal=0.99),
            ),
            ways={"readings": replace(plain, readings_s=READINGS_S), "none": plain},
        )
        yield from _on_device("loop device", partial(loop_device, file))
    yield from _on_device("zram", partial(zram_device, ZRAM_BYTES), has_queue=False)


def _on_device(
    name: str, opened: Callable[[], AbstractContextManager[Path]], *, has_queue: bool = True
) -> Iterator[Comparison]:
    try:
        with opened() as device:
            yield _compare(name, device, has_queue=has_queue)
    except NotMeasuredError as error:
        yield absent(f"random 16 KiB write, {name}", str(error))


def _compare(name: str, path: Path, *, has_queue: bool = True) -> Comparison:
    """Compare with fio; without a queue the kernel's workers write, which only our CPU time has."""
    case = replace(RANDOM_WRITE, name=f"{RANDOM_WRITE.name}, {name}")
    found = against_fio(case, [path], partial(watched, path))
    if not has_queue:
        return replace(found, rows=found.rows[:1])
    depth = Row(name=f"{case.name}, queue depth ÷ fio's", figure="queue_depth", unit="", goal=0.97)
    return replace(found, rows=(*found.rows, depth))
