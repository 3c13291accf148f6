"""Counters of block devices: recorded, and this machine's own under real writes."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

import pytest

from tests.data.sysfs.tree import expand, write
from wattload.core.errors import TargetError
from wattload.core.host.counters import BlockStat, CpuShares, CpuTime, read_block_stat
from wattload.core.storage.file_system import scratch_file
from wattload.core.storage.targets import counting_devices, resolve_targets
from wattload.core.sysfs import Roots
from wattload.core.units import NS_PER_S

MIB = 1024 * 1024


def stat(**values: float) -> BlockStat:
    counts: dict[str, Any] = {
        "read_operations": 0,
        "read_bytes": 0,
        "write_operations": 0,
        "written_bytes": 0,
    }
    return BlockStat(**(counts | {"busy_s": 0.0, "weighted_s": 0.0} | values))


def test_sectors_are_512_bytes_and_times_milliseconds(tmp_path: Path) -> None:
    roots = expand("gen5_in_gen4_slot", tmp_path / "machine", tmp_path)
    assert read_block_stat("nvme0n1", roots) == BlockStat(
        read_operations=1000,
        read_bytes=256_000 * 512,
        write_operations=2000,
        written_bytes=512_000 * 512,
        busy_s=1.5,
        weighted_s=4.9,
    )


def test_the_paths_count_what_the_shared_namespace_does_not(tmp_path: Path) -> None:
    roots = expand("nvme_multipath", tmp_path / "machine", tmp_path)
    assert read_block_stat("nvme1n1", roots) == BlockStat.zero()
    paths = [read_block_stat(name, roots) for name in ("nvme1c1n1", "nvme1c2n1")]
    assert sum(path.written_bytes for path in paths) > 32 * MIB  # dd wrote 32 MiB before recording


def test_a_difference_is_what_moved_between() -> None:
    early = stat(read_bytes=100, write_operations=2, busy_s=1.0, weighted_s=3.0)
    late = stat(read_bytes=350, write_operations=5, busy_s=1.5, weighted_s=8.0)
    moved = late.since(early)
    assert moved == stat(read_bytes=250, write_operations=3, busy_s=0.5, weighted_s=5.0)
    assert early + moved == late
    assert early.since(late) is None


def test_times_wrap_after_49_days() -> None:
    late = stat(busy_s=0.5, weighted_s=2.0)
    early = stat(busy_s=2**32 / 1000 - 0.25, weighted_s=1.0)
    moved = late.since(early)
    assert moved is not None
    assert moved.busy_s == pytest.approx(0.75)
    assert moved.weighted_s == 1.0
    early = stat(busy_s=0.25, weighted_s=2**32 / 1000 - 1.0)
    moved = late.since(early)
    assert moved is not None
    assert moved.busy_s == 0.25
    assert moved.weighted_s == pytest.approx(3.0)


def test_an_unknown_device_is_an_error() -> None:
    with pytest.raises(TargetError, match=r"block device no-disk can't be read"):
        read_block_stat("no-disk")


def test_counters_of_another_form_are_an_error(tmp_path: Path) -> None:
    write(tmp_path / "class/block/vda/stat", "1 2 3 4\n")
    with pytest.raises(TargetError, match="has 4 fields"):
        read_block_stat("vda", Roots(sys=tmp_path))


def test_direct_writes_reach_the_counted_device(tmp_path: Path) -> None:
    (target,) = resolve_targets([tmp_path], host="box")
    devices = counting_devices(target)
    if target.direct_io is None or not devices:
        pytest.skip("the file system under the tests has no block device with O_DIRECT")
    before = {name: read_block_stat(name) for name in devices}
    with scratch_file(tmp_path, os.O_DIRECT) as descriptor, mmap.mmap(-1, 8 * MIB) as memory:
        assert os.pwritev(descriptor, [memory], 0) == 8 * MIB
        os.fsync(descriptor)
    moved = sum(read_block_stat(n).written_bytes - before[n].written_bytes for n in devices)
    assert moved >= 8 * MIB


STAT = """cpu  0 0 0 0 0 0 0 0 0 0
cpu0 100 0 50 800 50 0 0 10 0 0
cpu1 500 0 0 400 0 0 0 0 0 0
cpu10 9 9 9 999 9 9 9 9 9 9
intr 5
"""


def test_iowait_is_idle_and_other_cpus_do_not_count(tmp_path: Path) -> None:
    write(tmp_path / "stat", STAT)
    found = CpuTime.read([0, 1], Roots(proc=tmp_path))
    assert (found.cpu_count, found.idle_s, found.steal_s) == (2, 12.5, 0.1)


def test_cpus_that_are_not_there_are_an_error(tmp_path: Path) -> None:
    write(tmp_path / "stat", STAT)
    with pytest.raises(ValueError, match=r"none of the CPUs \[7\]"):
        CpuTime.read([7], Roots(proc=tmp_path))


def test_what_is_neither_idle_nor_stolen_is_busy() -> None:
    first = CpuTime(time_ns=0, cpu_count=2, idle_s=0.0, steal_s=0.0)
    last = CpuTime(time_ns=10 * NS_PER_S, cpu_count=2, idle_s=2.0, steal_s=1.0)
    shares = CpuShares.between(first, last)
    assert (shares.cpu_s, shares.busy, shares.steal) == (20.0, 0.85, 0.05)


def test_this_machine_has_idle_time() -> None:
    assert CpuTime.read([0]).idle_s > 0
