"""The NVIDIA GPUs of a host, and how near each is to a drive by PCI Express.

A GPU is known by its PCI address. The order is that of ``nvidia-smi``, and of CUDA with
``CUDA_DEVICE_ORDER=PCI_BUS_ID``: by address.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from wattload.core.host.topology import cpus_of_node
from wattload.core.storage.controllers import controllers_under
from wattload.core.storage.targets import Target
from wattload.core.sysfs import LIVE, Roots, block_folder, read_int, read_text

Link = Literal["same switch", "same root complex", "same node", "another node", "unknown"]
"""How a GPU and a drive are connected, the nearest first."""

_NEAREST_FIRST: tuple[Link, ...] = get_args(Link)
_NVIDIA = 0x10DE
_DISPLAY_CLASS = 0x03
_ADDRESS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")
_PCI_STEP = re.compile(r"pci[0-9a-f]{4,}:[0-9a-f]{2}|[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_BELOW_ONE_PORT = 2
"""Steps that are the same below one port: the root complex and a bridge at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU by its PCI address, such as ``0000:65:00.0``.

    ``name`` comes from the driver. ``node`` is its NUMA node, ``cpus`` that node's list of CPUs.
    ``pci_path`` are the steps from the root complex to the GPU, empty where sysfs does not show
    them. ``is_divided`` is whether MIG has cut it into instances.
    """

    address: str
    name: str | None = None
    node: int | None = None
    cpus: str | None = None
    pci_path: tuple[str, ...] = ()
    is_divided: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DrivePlace:
    """Where one drive is: its steps from the root complex, and its NUMA node.

    ``pci_path`` is known for NVMe controllers only. Other disks have a node at most.
    """

    pci_path: tuple[str, ...] = ()
    node: int | None = None


def normal_address(text: str) -> str | None:
    """Return a PCI address as the kernel writes it, ``None`` if it is none.

    ``nvidia-smi`` writes the domain with 8 digits, the kernel with 4; it may be left out.
    """
    found = _ADDRESS.fullmatch(text.strip().lower())
    if found is None:
        return None
    return f"{int(found[1] or '0', 16):04x}:{found[2]}"


def list_gpus(roots: Roots = LIVE) -> tuple[Gpu, ...]:
    """Return the GPUs that the NVIDIA driver has; without a driver those in sysfs.

    In a container the driver shows only the GPUs of the container, and sysfs those of the host.
    """
    folder = roots.proc / "driver/nvidia/gpus"
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    of_driver = [each for each in map(normal_address, names) if each is not None]
    addresses = of_driver or list(_in_sysfs(roots))
    return tuple(find_gpu(address, roots) for address in sorted(addresses, key=_order))


def find_gpu(address: str, roots: Roots = LIVE) -> Gpu:
    """Return what sysfs and the driver know of a PCI address, which may be nothing."""
    folder = _pci_folder(address, roots)
    node = _node_above(folder)
    information = _information(address, roots)
    return Gpu(
        address=address,
        name=information.get("Model"),
        node=node,
        cpus=_cpus_of(node, roots),
        pci_path=_steps(folder),
        is_divided=_is_divided(information.get("Device Minor"), roots),
    )


def drive_places(target: Target, roots: Roots = LIVE) -> tuple[DrivePlace, ...]:
    """Return the place of each drive under a target; empty without a block device."""
    folders = [(roots.sys / "class/nvme" / name).resolve() for name in controllers_under(target)]
    if folders:
        return tuple(
            DrivePlace(pci_path=_steps(folder), node=_node_above(folder)) for folder in folders
        )
    found = [block_folder(name, roots) for name in target.facts.devices]
    return tuple(DrivePlace(node=_node_above(folder)) for folder in found if folder is not None)


def drive_node(places: Sequence[DrivePlace]) -> int | None:
    """Return the NUMA node of a target's drives, ``None`` if it is unknown or not the same."""
    nodes = {place.node for place in places}
    return nodes.pop() if len(nodes) == 1 else None


def link_between(gpu: Gpu, places: Sequence[DrivePlace]) -> Link:
    """Return the longest link between a GPU and the drives of a target."""
    return _NEAREST_FIRST[_distance(gpu, places)[0]]


def nearest_gpus(targets: Sequence[Sequence[DrivePlace]], gpus: Sequence[Gpu]) -> list[Gpu]:
    """Return the nearest GPU of each target by the length of the PCI path that they share.

    Of equally near GPUs each target gets the one that has the fewest targets so far, so that 8
    drives use 8 GPUs.
    """
    dealt: Counter[str] = Counter()
    chosen = []
    for places in targets:
        least = min(_distance(gpu, places) for gpu in gpus)
        near = [gpu for gpu in gpus if _distance(gpu, places) == least]
        gpu = min(near, key=lambda each: dealt[each.address])
        dealt[gpu.address] += 1
        chosen.append(gpu)
    return chosen


def _distance(gpu: Gpu, places: Sequence[DrivePlace]) -> tuple[int, int]:
    """Return the rank of the longest link, and the shared steps as a negative number."""
    unknown = (_NEAREST_FIRST.index("unknown"), 0)
    return max((_distance_to(gpu, place) for place in places), default=unknown)


def _distance_to(gpu: Gpu, place: DrivePlace) -> tuple[int, int]:
    shared = _shared_steps(gpu.pci_path, place.pci_path)
    link: Link = "unknown"
    if shared >= _BELOW_ONE_PORT:
        link = "same switch"
    elif shared:
        link = "same root complex"
    elif gpu.node is not None and place.node is not None:
        link = "same node" if gpu.node == place.node else "another node"
    return _NEAREST_FIRST.index(link), -shared


def _shared_steps(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many steps from the root complex on two paths have in common."""
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _in_sysfs(roots: Roots) -> Iterator[str]:
    for folder in (roots.sys / "bus/pci/devices").glob("*"):
        try:
            vendor = int(read_text(folder / "vendor"), 16)
            device_class = int(read_text(folder / "class"), 16)
        except (OSError, ValueError):
            continue
        address = normal_address(folder.name)
        if vendor == _NVIDIA and device_class >> 16 == _DISPLAY_CLASS and address is not None:
            yield address


def _order(address: str) -> tuple[int, str]:
    """Return what addresses are sorted by; domains may have more than four digits."""
    domain, _, rest = address.partition(":")
    return int(domain, 16), rest


def _pci_folder(address: str, roots: Roots) -> Path | None:
    link = roots.sys / "bus/pci/devices" / address
    return link.resolve() if link.exists() else None


def _steps(folder: Path | None) -> tuple[str, ...]:
    """Return the PCI steps in a device's path below ``/sys/devices``."""
    return () if folder is None else tuple(filter(_PCI_STEP.fullmatch, folder.parts))


def _node_above(folder: Path | None) -> int | None:
    """Return the NUMA node of the nearest device above that has one; -1 means none."""
    for above in () if folder is None else (folder, *folder.parents):
        if (above / "numa_node").is_file():
            try:
                node = read_int(above / "numa_node")
            except (OSError, ValueError):
                return None
            return node if node >= 0 else None
    return None


def _cpus_of(node: int | None, roots: Roots) -> str | None:
    try:
        return None if node is None else cpus_of_node(node, roots) or None
    except OSError:
        return None


def _information(address: str, roots: Roots) -> dict[str, str]:
    """Return the driver's lines on a GPU by their names; empty without any."""
    try:
        text = read_text(roots.proc / "driver/nvidia/gpus" / address / "information")
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _is_divided(minor: str | None, roots: Roots) -> bool:
    """Return whether the driver shows a MIG instance of the GPU with this minor number."""
    if minor is None:
        return False
    return any((roots.proc / f"driver/nvidia/capabilities/gpu{minor}/mig").glob("gi*"))
