"""NUMA nodes of CPUs, and their caches."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data.sysfs.tree import write
from wattload.core.host.facts import NodeCpus, nodes_of, parse_cpus
from wattload.core.sysfs import Roots


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0", {0}), ("0-2,8", {0, 1, 2, 8}), ("", set()), ("1,3-3", {1, 3})],
)
def test_lists_of_the_kernel(text: str, cpus: set[int]) -> None:
    assert parse_cpus(text) == cpus


def test_a_shared_cache_counts_once_per_node(tmp_path: Path) -> None:
    for node, cpus in enumerate(("0-3", "4-7")):
        write(tmp_path / f"devices/system/node/node{node}/cpulist", f"{cpus}\n")
    for cpu in range(8):
        shared = f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}"
        for index, (level, size) in enumerate((("1", "32K"), ("3", "16M"))):
            folder = tmp_path / f"devices/system/cpu/cpu{cpu}/cache/index{index}"
            write(folder / "level", f"{level}\n")
            write(folder / "size", f"{size}\n")
            write(folder / "shared_cpu_list", f"{shared}\n")
    assert nodes_of([0, 1, 2, 5], Roots(sys=tmp_path)) == (
        NodeCpus(node=0, cpus=(0, 1, 2), l3_bytes=32 << 20),
        NodeCpus(node=1, cpus=(5,), l3_bytes=16 << 20),
    )


def test_without_numa_and_caches_all_are_on_node_0(tmp_path: Path) -> None:
    found = nodes_of([3, 1], Roots(sys=tmp_path))
    assert found == (NodeCpus(node=0, cpus=(1, 3), l3_bytes=None),)
