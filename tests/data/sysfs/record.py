"""Record what the resolver reads of a live machine, as a manifest for ``tree.expand``.

``record.py MOUNT_POINT TITLE [NAME...] > tree.txt``.
Names (``nvme0*``, ``dm-0``) limit it to those block devices and controllers. Run as root, for PCI
configuration space. The manifest keeps ``/proc/self/mountinfo``,
``/proc/swaps`` and the sysfs folders of all block devices, NVMe controllers and the PCI functions
above them; ``tree.expand`` makes a folder of it again. The mount point becomes ``@TARGET@``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

SYS = Path("/sys")
BLOCK_FILES = [
    "dev",
    "size",
    "stat",
    "ro",
    "removable",
    "hidden",
    "partition",
    "nuse",
    "nsid",
    "wwid",
    "uuid",
    "serial",
    "start",
    "dm/name",
    "dm/uuid",
    "md/level",
    "md/raid_disks",
    "md/layout",
    "md/degraded",
    "loop/backing_file",
    "loop/dio",
    "queue/scheduler",
    "queue/write_cache",
    "queue/nr_requests",
    "queue/max_sectors_kb",
    "queue/read_ahead_kb",
    "queue/wbt_lat_usec",
    "queue/logical_block_size",
    "queue/physical_block_size",
    "queue/rotational",
    "queue/dma_alignment",
]
BLOCK_LINKS = ("device", "subsystem")
SCSI_FILES = ("vendor", "model", "vpd_pg80")
CONTROLLER_FILES = [
    "address",
    "model",
    "serial",
    "firmware_rev",
    "transport",
    "state",
    "cntlid",
    "numa_node",
    "subsysnqn",
    "power/pm_qos_latency_tolerance_us",
]
PCI_FILES = [
    "vendor",
    "device",
    "class",
    "numa_node",
    "current_link_speed",
    "current_link_width",
    "max_link_speed",
    "max_link_width",
    "aer_dev_correctable",
    "aer_dev_nonfatal",
    "aer_dev_fatal",
    "config",
    "irq",
    "link/l0s_aspm",
    "link/l1_aspm",
]
SUBSYSTEM_FILES = ("model", "serial", "firmware_rev", "subsysnqn", "iopolicy")


def _file(path: Path) -> Iterator[str]:
    try:
        content = path.read_bytes()
    except OSError:
        return
    name = str(path).lstrip("/")
    if path.name in ("config", "vpd_pg80"):  # PCI keeps its capability list in the first 256 bytes
        yield f"{name}\t0x:{content[:256].hex()}"
        return
    text = content.decode("utf-8", "replace")
    yield f"{name}\t" + text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")


def _link(path: Path) -> Iterator[str]:
    if path.is_symlink():
        yield f"{str(path).lstrip('/')} -> {path.readlink()}"


def _files(folder: Path, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        yield from _file(folder / name)


def _links_in(folder: Path) -> Iterator[str]:
    if not folder.is_dir():
        return
    if not any(folder.iterdir()):
        yield f"{str(folder).lstrip('/')}/"
    for entry in sorted(folder.iterdir()):
        yield from _link(entry)


def _pci(folder: Path) -> Iterator[str]:
    for parent in (folder, *folder.parents):
        if (parent / "config").exists():
            yield from _files(parent, PCI_FILES)
            for interrupt in sorted(parent.glob("msi_irqs/*")):
                yield from _file(interrupt)


def _block(link: Path) -> Iterator[str]:
    folder = link.resolve()
    yield from _link(link)
    yield from _link(SYS / "block" / link.name)
    if (folder / "dev").exists():  # the paths below a multipath namespace have no number
        number = (folder / "dev").read_text().strip()
        yield f"sys/dev/block/{number} -> {os.path.relpath(folder, '/sys/dev/block')}"
    yield from _files(folder, BLOCK_FILES)
    for name in BLOCK_LINKS:
        yield from _link(folder / name)
    for name in ("slaves", "holders", "multipath"):
        yield from _links_in(folder / name)
    for queue in sorted(folder.glob("mq/*")):
        yield from _file(queue / "nr_tags")
    if (folder / "device").exists():
        yield from _files((folder / "device").resolve(), SCSI_FILES)
    yield from _pci(folder)


def _controller(link: Path) -> Iterator[str]:
    folder = link.resolve()
    yield from _link(link)
    yield from _link(folder / "device")
    yield from _files(folder, CONTROLLER_FILES)
    for sensor in sorted(folder.glob("hwmon*")):
        yield from _files(sensor, ("name", "temp1_input"))
    yield from _pci(folder)


def _subsystem(link: Path) -> Iterator[str]:
    folder = link.resolve()
    yield from _link(link)
    yield from _files(folder, SUBSYSTEM_FILES)
    for entry in sorted(folder.glob("nvme*")):
        yield from _link(entry)


def _btrfs(folder: Path) -> Iterator[str]:
    yield from _links_in(folder / "devices")
    for profile in sorted((folder / "allocation/data").iterdir()):
        if profile.is_dir():
            yield f"{str(profile).lstrip('/')}/"


def _proc(mount_point: str) -> Iterator[str]:
    kept = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split(" ")
        if fields[4] == mount_point:
            fields[4] = "@TARGET@"
        if fields[4] in ("/", "@TARGET@") or not fields[2].startswith("0:"):
            kept.append(" ".join(fields))
    yield "proc/self/mountinfo\t" + "\\n".join([*kept, ""])
    yield from _file(Path("/proc/swaps"))


def record(mount_point: str, names: Sequence[str]) -> Iterator[str]:
    """Yield the manifest's lines, sorted by subject; a line may come twice."""

    def wanted(link: Path) -> bool:
        return not names or any(link.match(name) for name in names)

    yield from _proc(mount_point)
    for link in filter(wanted, sorted(SYS.glob("class/block/*"))):
        if (link / "size").read_text().strip() != "0" and not link.name.startswith("ram"):
            yield from _block(link)
    for link in filter(wanted, sorted(SYS.glob("class/nvme/*"))):
        yield from _controller(link)
    for link in sorted(SYS.glob("class/nvme-subsystem/*")):
        if any(map(wanted, link.glob("nvme*"))):
            yield from _subsystem(link)
    for folder in sorted(SYS.glob("fs/btrfs/*-*")):
        yield from _btrfs(folder)


if __name__ == "__main__":
    sys.stdout.write(f"# {sys.argv[2]}\n")
    for text in dict.fromkeys(record(sys.argv[1], sys.argv[3:])):
        sys.stdout.write(text + "\n")
