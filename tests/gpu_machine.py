"""A made-up machine with GPUs and NVMe drives on PCIe switches, like a DGX A100."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.context import directory_target
from tests.data.sysfs.tree import write
from wattload.core.record.target import BlockNode
from wattload.core.storage.targets import Target
from wattload.core.sysfs import Roots

NVIDIA, SAMSUNG = "0x10de", "0x144d"
GPU_CLASS, NVME_CLASS, SWITCH_CLASS = "0x030200", "0x010802", "0x068000"
ROOTS = ("00", "40", "80", "c0")
"""The root complexes; the first two are on node 0."""


def gpu_address(number: int) -> str:
    """Return the address of GPU 0 to 7: two below the switch of each root complex."""
    return f"0000:{int(ROOTS[number // 2], 16) + 7 + 8 * (number % 2):02x}:00.0"


def machine(folder: Path, *, gpus: int = 8, drives: int = 8, has_driver: bool = True) -> Roots:
    """Write the tree of a machine: two GPUs and two drives below each of four switches."""
    roots = Roots(sys=folder / "sys", proc=folder / "proc", top=folder)
    (roots.sys / "bus/pci/devices").mkdir(parents=True)
    for node in (0, 1):
        write(
            roots.sys / f"devices/system/node/node{node}/cpulist", f"{64 * node}-{64 * node + 63}"
        )
    # What is on the bus and is no GPU for CUDA: NVIDIA's switch of NVLink.
    device(roots, "pci0000:00/0000:00:01.1/0000:05:00.0", NVIDIA, SWITCH_CLASS, 0)
    for number in range(gpus):
        root, node = ROOTS[number // 2], number // 4
        below = f"pci0000:{root}/0000:{root}:01.1/0000:{int(root, 16) + 1:02x}:00.0"
        device(roots, f"{below}/{gpu_address(number)}", NVIDIA, GPU_CLASS, node)
        if has_driver:
            write(
                roots.proc / "driver/nvidia/gpus" / gpu_address(number) / "information",
                f"Model: \t\t NVIDIA A100-SXM4-40GB\nDevice Minor: \t {number}\n",
            )
    for number in range(drives):
        root, node = ROOTS[number // 2], number // 4
        below = f"pci0000:{root}/0000:{root}:01.1/0000:{int(root, 16) + 1:02x}:00.0"
        address = f"0000:{int(root, 16) + 16 + number % 2:02x}:00.0"
        path = device(roots, f"{below}/{address}", SAMSUNG, NVME_CLASS, node)
        controller = path / f"nvme/nvme{number}"
        write(controller / "model", "MICRON_9400")
        (controller / "device").symlink_to(path)
        link(roots.sys / f"class/nvme/nvme{number}", controller)
    return roots


def device(roots: Roots, path: str, vendor: str, device_class: str, node: int) -> Path:
    """Add a PCI function below ``/sys/devices``."""
    folder = roots.sys / "devices" / path
    write(folder / "vendor", f"{vendor}\n")
    write(folder / "class", f"{device_class}\n")
    write(folder / "numa_node", f"{node}\n")
    link(roots.sys / "bus/pci/devices" / folder.name, folder)
    return folder


def virtio_disk(roots: Roots, name: str, node: int) -> None:
    """Add a virtual disk, on a PCI function of a node of its own."""
    folder = device(roots, "pci0000:00/0000:00:05.0", "0x1af4", "0x010000", node)
    block = folder / f"virtio2/block/{name}"
    block.mkdir(parents=True)
    link(roots.sys / "class/block" / name, block)


def divide(roots: Roots, gpu: int) -> None:
    """Cut a GPU into instances by MIG."""
    instance = f"driver/nvidia/capabilities/gpu{gpu}/mig/gi1/access"
    write(roots.proc / instance, "DeviceFileMinor: 1\n")


def link(name: Path, destination: Path) -> None:
    name.parent.mkdir(parents=True, exist_ok=True)
    name.symlink_to(destination)


def on_drives(path: Path, *numbers: int, index: int = 0) -> Target:
    """Return a target on the given drives of the machine: several are an array."""
    below = tuple(
        node(
            "namespace",
            f"nvme{number}n1",
            (node("controller", f"nvme{number}", serial=f"S{number}"),),
        )
        for number in numbers
    )
    stack = below[0] if len(below) == 1 else node("md", "md0", below)
    names = tuple(f"nvme{number}n1" for number in numbers)
    return _with(directory_target(path, index=index), stack, names)


def on_disk(path: Path, name: str) -> Target:
    """Return a target on a disk that is not NVMe."""
    return _with(directory_target(path), node("virtio", name), (name,))


def _with(target: Target, stack: BlockNode, devices: tuple[str, ...]) -> Target:
    missing = {"file_system": "not looked at", "virtual": "not looked at"}
    update = {"stack": stack, "devices": devices, "missing": missing}
    return replace(target, facts=target.facts.model_copy(update=update))


def node(
    kind: str, name: str, children: tuple[BlockNode, ...] = (), serial: str | None = None
) -> BlockNode:
    known = {"kind": kind, "name": name, "children": children, "serial": serial}
    names = ("major_minor", "size_bytes", "model", "serial", "redundancy", "queue")
    gaps = [each for each in names if known.get(each) is None]
    return BlockNode.model_validate(
        {**dict.fromkeys(gaps), **known, "missing": dict.fromkeys(gaps, "made up")}
    )
