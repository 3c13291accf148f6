"""Which of cuFile's paths this host has, what each other one lacks, and what nvidia-fs counts.

nvidia-fs is the kernel module of GPUDirect Storage. The requirements are those of NVIDIA's guides:
GDS configuration, GDS support for NVMe by PCI P2PDMA, and troubleshooting (sections 14 and 16). All
of them are necessary and together they are not sufficient: only the counters of a run prove the
path that its bytes took.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from wattload.core.storage.controllers import list_controllers
from wattload.core.sysfs import LIVE, Roots, read_text

PathName = Literal["compat", "nvidia-fs", "PCI P2PDMA"]

P2PDMA_KERNEL = (6, 2)
P2PDMA_DRIVER = 565
P2PDMA_CUFILE = (1, 13)
"""The first libcufile with it is that of CUDA 12.8."""
BAR1_KEYS = ("RMForceStaticBar1=1", "RmForceDisableIomapWC=1")

_MODPROBE = "/etc/modprobe.d/nvidia-gds.conf"
_KEYS_STEP = (
    f'sudo sh -c \'echo options nvidia NVreg_RegistryDwords=\\"{";".join(BAR1_KEYS)};\\" '
    f">> {_MODPROBE}'"
)
_MULTIPATH_STEP = f"sudo sh -c 'echo options nvme_core multipath=N >> {_MODPROBE}'"

_STATS, _VERSION = "driver/nvidia-fs/stats", "driver/nvidia-fs/version"
_READS = re.compile(r"^Reads\s*:.*?\bok=(\d+)", re.MULTILINE)
"""``Reads : n=1279109 ok=1279109 err=0 readMiB=...`` (NVIDIA's GDS troubleshooting guide)."""
_ENABLED = "module/nvidia_fs/parameters/rw_stats_enabled"


def _is_loaded(roots: Roots) -> bool:
    return (roots.proc / _STATS).exists()


def _is_counting(roots: Roots) -> bool:
    """Return whether nvidia-fs counts reads, by its parameter ``rw_stats_enabled``."""
    return _text(roots, "sys", _ENABLED) not in ("", "0", "N")


def nvidia_fs_version(roots: Roots = LIVE) -> str | None:
    """Return the version of nvidia-fs, such as ``2.26``; ``None`` without it."""
    found = re.search(r"\d+(\.\d+)+", _text(roots, "proc", _VERSION))
    return found[0] if found else None


def nvidia_fs_reads(roots: Roots = LIVE) -> int | None:
    """Return the reads that nvidia-fs completed since it was loaded, for all processes.

    ``None`` where it is not loaded or does not count.
    """
    found = _READS.search(_text(roots, "proc", _STATS))
    return int(found[1]) if found and _is_counting(roots) else None


@dataclass(frozen=True, slots=True)
class Lack:
    """One thing that a path needs and this host lacks; ``step`` is a command that mends it.

    Without a command ``step`` is empty, and ``what`` says what would.
    """

    what: str
    step: str = ""


@dataclass(frozen=True, slots=True)
class PathHere:
    """One of cuFile's paths, and what it lacks here; nothing: it may be taken.

    ``notes`` are things that hide the proof of the path, but not the path.
    """

    name: PathName
    lacks: tuple[Lack, ...]
    notes: tuple[Lack, ...] = ()


def paths_here(cufile: str | None, roots: Roots = LIVE) -> tuple[PathHere, ...]:
    """Return all of cuFile's paths, where there are a GPU and a libcufile that has answered.

    ``cufile`` is its version, such as ``1.15``; ``None`` if it does not say.
    """
    return (
        PathHere("compat", tuple(_compat(roots))),
        PathHere("nvidia-fs", tuple(_nvidia_fs(roots)), tuple(_uncounted(roots))),
        PathHere("PCI P2PDMA", tuple(_p2pdma(cufile, roots))),
    )


def _compat(roots: Roots) -> Iterator[Lack]:
    """A file whose disk is not in udev's database is refused by libcufile (5027)."""
    folder = roots.top / "run/udev/data"
    try:
        disks = [entry.name for entry in folder.iterdir() if entry.name.startswith("b")]
    except OSError:
        disks = []
    if not disks:
        yield Lack(
            f"udev knows of no disk: {folder} has no entry for one, and cuFile refuses such files "
            "(5027); a container needs -v /run/udev:/run/udev:ro",
            "sudo udevadm trigger --subsystem-match=block",
        )


def _nvidia_fs(roots: Roots) -> Iterator[Lack]:
    if not _is_loaded(roots):
        step = "sudo modprobe nvidia-fs"
        if not _has_module("nvidia-fs", roots):
            step = "sudo apt-get install nvidia-gds"
        yield Lack(f"{roots.proc}/driver/nvidia-fs does not exist: nvidia-fs is not loaded", step)
    yield from _drives(roots)
    yield from _translation(roots)


def _uncounted(roots: Roots) -> Iterator[Lack]:
    if _is_loaded(roots) and not _is_counting(roots):
        yield Lack(
            "nvidia-fs does not count reads: rw_stats_enabled is 0",
            "sudo sh -c 'echo 1 > /sys/module/nvidia_fs/parameters/rw_stats_enabled'",
        )


def _p2pdma(cufile: str | None, roots: Roots) -> Iterator[Lack]:
    if cufile and _numbers(cufile) < P2PDMA_CUFILE:
        yield Lack(
            f"libcufile {cufile}, {'.'.join(map(str, P2PDMA_CUFILE))} (CUDA 12.8) or newer "
            "is needed",
            "sudo apt-get install libcufile-13-0",
        )
    yield from _kernel(roots)
    yield from _driver(roots)
    yield from _drives(roots)
    if _text(roots, "sys", "module/nvme_core/parameters/multipath") == "Y":
        yield Lack("nvme_core has multipath on; restart after this", _MULTIPATH_STEP)
    yield from _translation(roots)


def _kernel(roots: Roots) -> Iterator[Lack]:
    release = _text(roots, "proc", "sys/kernel/osrelease")
    if _numbers(release)[:2] < P2PDMA_KERNEL:
        yield Lack(f"Linux {release or 'of an unknown version'}, 6.2 or newer is needed")
    if not _has_symbol("p2pdma_pgmap_ops", roots):
        yield Lack("the kernel is built without CONFIG_PCI_P2PDMA")


def _driver(roots: Roots) -> Iterator[Lack]:
    text = _text(roots, "proc", "driver/nvidia/version")
    found = re.search(r"\b(\d{3})\.\d+", text)
    if not text:
        yield Lack("NVIDIA's kernel module is not loaded", "sudo modprobe nvidia")
        return
    if "Open Kernel Module" not in text:
        yield Lack("NVIDIA's kernel module is the closed one", "sudo apt-get install nvidia-open")
    if found and int(found[1]) < P2PDMA_DRIVER:
        yield Lack(
            f"driver {found[0]}, {P2PDMA_DRIVER} or newer is needed",
            "sudo apt-get install nvidia-open",
        )
    params = _text(roots, "proc", "driver/nvidia/params").lower()
    missing = [key for key in BAR1_KEYS if key.lower() not in params]
    if missing:
        yield Lack(
            f"the driver's RegistryDwords lack {' and '.join(missing)}, for a static BAR1; "
            "restart after this",
            _KEYS_STEP,
        )


def _drives(roots: Roots) -> Iterator[Lack]:
    if not list_controllers(roots):
        yield Lack("this host has no NVMe drive")


def _translation(roots: Roots) -> Iterator[Lack]:
    """Peers can't reach each other through an IOMMU that translates."""
    groups = (roots.sys / "kernel/iommu_groups").glob("*/type")
    if any(read_text(group).startswith("DMA") for group in groups):
        yield Lack("the IOMMU translates addresses: start the kernel with iommu=pt, or off")


def _has_module(name: str, roots: Roots) -> bool:
    release = _text(roots, "proc", "sys/kernel/osrelease")
    listed = _text(roots, "top", f"lib/modules/{release}/modules.dep")
    return f"/{name}.ko" in listed


def _has_symbol(name: str, roots: Roots) -> bool:
    try:
        with (roots.proc / "kallsyms").open(encoding="ascii", errors="replace") as lines:
            return any(f" {name}" in line for line in lines)
    except OSError:
        return False


def _text(roots: Roots, root: Literal["sys", "proc", "top"], name: str) -> str:
    try:
        return read_text(getattr(roots, root) / name)
    except OSError:
        return ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
