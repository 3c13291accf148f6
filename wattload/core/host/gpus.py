"""The NVIDIA GPUs of a host: which one a target or a process uses, and how near it is to a drive.

A GPU is known by its PCI address. The order is that of ``nvidia-smi``, and of CUDA with
``CUDA_DEVICE_ORDER=PCI_BUS_ID``: by address.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, get_args

from wattload.core.errors import ConfigError, NoGpuError
from wattload.core.host.facts import cpus_of_node
from wattload.core.storage.controllers import controllers_under
from wattload.core.storage.targets import Target
from wattload.core.sysfs import (
    LIVE,
    Roots,
    block_folder,
    named_values,
    read_int,
    read_text,
    text_or_empty,
)

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
    steps = zip(gpu.pci_path, place.pci_path, strict=False)
    shared = len(list(takewhile(lambda pair: pair[0] == pair[1], steps)))
    link: Link = "unknown"
    if shared >= _BELOW_ONE_PORT:
        link = "same switch"
    elif shared:
        link = "same root complex"
    elif gpu.node is not None and place.node is not None:
        link = "same node" if gpu.node == place.node else "another node"
    return _NEAREST_FIRST.index(link), -shared


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
    return named_values(text_or_empty(roots.proc / "driver/nvidia/gpus" / address / "information"))


def _is_divided(minor: str | None, roots: Roots) -> bool:
    """Return whether the driver shows a MIG instance of the GPU with this minor number."""
    if minor is None:
        return False
    return any((roots.proc / f"driver/nvidia/capabilities/gpu{minor}/mig").glob("gi*"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A target and the GPU that its blocks are read into."""

    target: Target
    gpu: Gpu
    drive_node: int | None
    link: Link

    def as_json(self) -> Mapping[str, Any]:
        return {
            "target": self.target.index,
            "path": str(self.target.path),
            "gpu": self.gpu.address,
            "gpu_name": self.gpu.name,
            "gpu_node": self.gpu.node,
            "drive_node": self.drive_node,
            "link": self.link,
        }

    def text(self) -> str:
        """Return it in words: ``/mnt/n0 into GPU 0000:07:00.0 (A100, node 3), same switch``."""
        gpu = self.gpu
        node = "" if gpu.node is None else f"node {gpu.node}"
        cpus = f" with CPUs {gpu.cpus}" if node and gpu.cpus else ""
        about = ", ".join(filter(None, [gpu.name, node + cpus]))
        link = "link unknown" if self.link == "unknown" else self.link
        return f"{self.target.path} into GPU {gpu.address}{f' ({about})' if about else ''}, {link}"


def named_gpus(value: Any) -> tuple[str, ...]:  # noqa: ANN401 - a setting of any type
    """Return the GPUs that the setting ``workload.gpus`` names, as text; empty if it is unset."""
    if value is None:
        return ()
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return tuple(str(each).strip() for each in (value if is_list else (value,)))


def check_names(named: Sequence[str]) -> None:
    """Raise ``ConfigError`` for what can't name a GPU; whether it exists is another question."""
    for name in named:
        if not name.isdecimal() and normal_address(name) is None:
            raise ConfigError(
                f"workload.gpus must be numbers or PCI addresses of GPUs, such as [0,1] or "
                f"[0000:65:00.0], got {name!r}; nvidia-smi lists both"
            )


def gpu_of_process(
    number: int, count: int, named: Sequence[str], roots: Roots = LIVE
) -> Gpu | None:
    """Return the GPU of process ``number`` of ``count`` on this host, ``None`` if it has none.

    It is the one that ``named`` has at this place, or else the one at this place by PCI address.

    Raises:
        ConfigError: there are more processes than GPUs or names, or the GPU does not exist or is
            divided by MIG.
    """
    found = list_gpus(roots)
    if named:
        if len(named) < count:
            raise ConfigError(
                f"{count} processes on this host, but workload.gpus names {len(named)}: each "
                f"process needs a GPU of its own; use at most {len(named)} processes"
            )
        gpu = _named(named[number], found, roots)
        _refuse_divided([gpu])
        return gpu
    if not found:
        return None
    whole = [gpu for gpu in found if not gpu.is_divided]
    if not whole:
        _refuse_divided(found)
    if len(whole) < count:
        raise ConfigError(
            f"{count} processes on this host, but it has {len(whole)} GPUs: each process needs one "
            f"of its own; use at most {len(whole)} processes"
        )
    return whole[number]


def connect(
    targets: Sequence[Target], named: Sequence[str], roots: Roots = LIVE
) -> tuple[Connection, ...]:
    """Return the GPU of each target: the named one, or the nearest by PCI Express.

    ``named`` has one GPU for all targets, or one for each; empty for the nearest ones.

    Raises:
        ConfigError: a GPU does not exist or is divided by MIG, or there are neither as many as
            targets nor one.
        NoGpuError: there is none.
    """
    if named and len(named) not in (1, len(targets)):
        raise ConfigError(
            f"workload.gpus must name one GPU for each of the {len(targets)} targets, or one for "
            f"all, got {len(named)}"
        )
    found, places = list_gpus(roots), [drive_places(target, roots) for target in targets]
    if named:
        each_named = named if len(named) == len(targets) else list(named) * len(targets)
        chosen = [_named(name, found, roots) for name in each_named]
    else:
        if not found:
            raise NoGpuError(
                f"no NVIDIA GPU in {roots.sys}/bus/pci; use a host with one, or, where a container "
                "hides it, name it by its PCI address: workload.gpus=[0000:65:00.0]"
            )
        chosen = nearest_gpus(places, [gpu for gpu in found if not gpu.is_divided] or found)
    _refuse_divided(chosen)
    return tuple(
        Connection(
            target=target, gpu=gpu, drive_node=drive_node(place), link=link_between(gpu, place)
        )
        for target, gpu, place in zip(targets, chosen, places, strict=True)
    )


def _named(name: str, found: Sequence[Gpu], roots: Roots) -> Gpu:
    """Return the GPU that a number or an address names.

    Where this host shows no GPU at all, as in some containers, an address is left to CUDA.
    """
    address = normal_address(name)
    if address is not None and not found:
        return find_gpu(address, roots)
    by_name = {str(number): gpu for number, gpu in enumerate(found)}
    by_name |= {gpu.address: gpu for gpu in found}
    gpu = by_name.get(address or str(int(name)))
    if gpu is None:
        listed = ", ".join(f"{number} ({each.address})" for number, each in enumerate(found))
        raise ConfigError(
            f"GPU {name} does not exist; "
            + (
                f"workload.gpus can be {listed}"
                if found
                else f"there is no NVIDIA GPU in {roots.sys}/bus/pci; where a container hides it, "
                "name it by its PCI address: workload.gpus=[0000:65:00.0]"
            )
        )
    return gpu


def _refuse_divided(chosen: Sequence[Gpu]) -> None:
    for gpu in chosen:
        if gpu.is_divided:
            raise ConfigError(
                f"GPU {gpu.address} is divided into MIG instances, which wattload does not "
                "support; disable MIG with `nvidia-smi -mig 0`, or name another GPU with "
                "workload.gpus"
            )
