"""Which CPUs belong to which NUMA node, and the size of their last-level caches."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from wattload.core.sysfs import LIVE, Roots, read_int, read_text

_UNITS = {"K": 1024, "M": 1024**2, "G": 1024**3}
_LAST_LEVEL = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCpus:
    """Some CPUs of one NUMA node; ``l3_bytes`` is the size of all their L3 caches together.

    ``l3_bytes`` is ``None`` where the kernel shows no L3 cache.
    """

    node: int
    cpus: tuple[int, ...]
    l3_bytes: int | None


def nodes_of(cpus: Collection[int], roots: Roots = LIVE) -> tuple[NodeCpus, ...]:
    """Return the NUMA nodes of some CPUs; without NUMA in the kernel all belong to node 0."""
    folders = sorted((roots.sys / "devices/system/node").glob("node[0-9]*"))
    members: dict[int, set[int]] = {}
    for folder in folders:
        node = int(folder.name.removeprefix("node"))
        own = parse_cpus(cpus_of_node(node, roots)) & set(cpus)
        if own:
            members[node] = own
    found = members or {0: set(cpus)}
    return tuple(
        NodeCpus(node=node, cpus=tuple(sorted(own)), l3_bytes=_l3_bytes(own, roots))
        for node, own in sorted(found.items())
    )


def cpus_of_node(node: int, roots: Roots = LIVE) -> str:
    """Return the CPUs of a NUMA node as the kernel lists them: ``0-7``; raises ``OSError``."""
    return read_text(roots.sys / f"devices/system/node/node{node}/cpulist")


def parse_cpus(text: str) -> set[int]:
    """Return the numbers in a list of the kernel such as ``0-3,8``."""
    found: set[int] = set()
    for part in text.split(","):
        if part.strip():
            first, _, last = part.partition("-")
            found.update(range(int(first), int(last or first) + 1))
    return found


def _l3_bytes(cpus: Collection[int], roots: Roots) -> int | None:
    caches: dict[str, int] = {}
    for cpu in cpus:
        folder = roots.sys / f"devices/system/cpu/cpu{cpu}/cache"
        for cache in folder.glob("index*"):
            if read_int(cache / "level") == _LAST_LEVEL:
                caches[read_text(cache / "shared_cpu_list")] = _size_bytes(cache / "size")
    return sum(caches.values()) or None


def _size_bytes(path: Path) -> int:
    """Return the bytes in a cache's ``size``, such as ``32768K``."""
    text = read_text(path)
    unit = _UNITS.get(text[-1:], 1)
    return int(text.rstrip("".join(_UNITS))) * unit
