"""What a block device has moved: the kernel's counters, and their difference over a window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from wattload.core.errors import TargetError
from wattload.core.record.target import BlockNode
from wattload.core.sysfs import LIVE, SECTOR_BYTES, Roots, explain, read_text
from wattload.core.target import Target

_FIELD_COUNT = 11
_MS_PER_S = 1000
_WRAP_S = 2**32 / _MS_PER_S
"""The kernel prints busy and weighted time as 32-bit milliseconds: they wrap after 49.7 days."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockStat:
    """Counters since boot, or their difference: operations, bytes and seconds, reads and writes.

    ``busy_s`` is the time with at least one operation in flight; ``weighted_s`` adds up the time of
    all operations, so that ``weighted_s / busy_s`` is the mean queue depth.
    """

    read_ios: int
    read_bytes: int
    write_ios: int
    write_bytes: int
    busy_s: float
    weighted_s: float

    @classmethod
    def zero(cls) -> Self:
        """Return the counters of a device that moved nothing."""
        return cls(read_ios=0, read_bytes=0, write_ios=0, write_bytes=0, busy_s=0.0, weighted_s=0.0)

    def __add__(self, other: BlockStat) -> BlockStat:
        return BlockStat(
            read_ios=self.read_ios + other.read_ios,
            read_bytes=self.read_bytes + other.read_bytes,
            write_ios=self.write_ios + other.write_ios,
            write_bytes=self.write_bytes + other.write_bytes,
            busy_s=self.busy_s + other.busy_s,
            weighted_s=self.weighted_s + other.weighted_s,
        )

    def __sub__(self, earlier: BlockStat) -> BlockStat:
        return BlockStat(
            read_ios=self.read_ios - earlier.read_ios,
            read_bytes=self.read_bytes - earlier.read_bytes,
            write_ios=self.write_ios - earlier.write_ios,
            write_bytes=self.write_bytes - earlier.write_bytes,
            busy_s=_elapsed_s(earlier.busy_s, self.busy_s),
            weighted_s=_elapsed_s(earlier.weighted_s, self.weighted_s),
        )


def _elapsed_s(earlier_s: float, later_s: float) -> float:
    return later_s - earlier_s + (_WRAP_S if later_s < earlier_s else 0.0)


def read_block_stat(device_name: str, roots: Roots = LIVE) -> BlockStat:
    """Return a block device's counters now (Linux ``Documentation/block/stat.rst``).

    Args:
        device_name: the kernel's name, such as ``nvme0n1``; partitions and hidden paths too.
        roots: where sysfs is.

    Raises:
        TargetError: there is no such device, or its counters have another form.
    """
    path = roots.sys / "class/block" / device_name / "stat"
    try:
        fields = [int(word) for word in read_text(path).split()]
    except (OSError, ValueError) as error:
        raise TargetError(
            f"the counters of block device {device_name} can't be read ({explain(error)}); "
            "see wattload devices for what is there"
        ) from error
    if len(fields) < _FIELD_COUNT:
        raise TargetError(f"{path} has {len(fields)} fields; a kernel since 2.6 has {_FIELD_COUNT}")
    return BlockStat(
        read_ios=fields[0],
        read_bytes=fields[2] * SECTOR_BYTES,
        write_ios=fields[4],
        write_bytes=fields[6] * SECTOR_BYTES,
        busy_s=fields[9] / _MS_PER_S,
        weighted_s=fields[10] / _MS_PER_S,
    )


def counting_devices(target: Target) -> tuple[str, ...]:
    """Return the devices whose counters stand for a target: the lowest whole ones, each once.

    Below a multipath namespace these are its paths: the namespace itself counts nothing on older
    kernels (zeros after real I/O were seen on 6.1).
    """
    stack = target.facts.stack
    return () if stack is None else lowest_devices(stack)


def lowest_devices(stack: BlockNode) -> tuple[str, ...]:
    """Return the names of the lowest whole block devices of a stack, in its order, each once."""
    return tuple(dict.fromkeys(_lowest(stack)))


def _lowest(node: BlockNode) -> Iterator[str]:
    below = [child for child in node.children if child.kind != "controller"]
    if not below and (node.major_minor is not None or node.kind == "path"):
        yield node.name
    for child in below:
        yield from _lowest(child)
