"""What the doctor finds of storage: O_DIRECT, device counters, NVMe, the admin queue."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from wattload.cli.finding import Finding, Verdict
from wattload.core.blockstat import counting_devices, read_block_stat
from wattload.core.errors import TargetError
from wattload.core.nvme_sysfs import list_controllers
from wattload.core.resolve import check_writable, resolve_targets
from wattload.core.sysfs import LIVE, Roots, read_text
from wattload.core.target import Target

_CAP_SYS_ADMIN = 21
"""``linux/capability.h``."""


def storage_findings(
    directory: Path, roots: Roots = LIVE, devices: Path = Path("/dev")
) -> Iterator[Finding]:
    """Yield what can be measured in ``directory`` and of this host's NVMe drives."""
    try:
        (target,) = resolve_targets([directory], host=socket.gethostname(), roots=roots)
        check_writable(target)
    except TargetError as error:
        yield Finding(
            name="target directory",
            verdict=Verdict.NO,
            says=str(error),
            adds="the place that a run reads and writes",
            mend="wattload doctor /mnt/ssd",
        )
    else:
        yield _direct_io(target)
        yield _counters(target, roots)
        yield from _caveats(target)
    yield _controllers(roots)
    yield from (_admin_queue(name, roots, devices) for name in list_controllers(roots))


def _direct_io(target: Target) -> Finding:
    adds = "loader=direct, and reads that do not come from the page cache"
    found = target.direct_io
    if found is None:
        return Finding(
            name="O_DIRECT",
            verdict=Verdict.NO,
            says=f"{target.path}: {target.direct_io_missing}",
            adds=adds,
            mend="wattload devices",
        )
    return Finding(
        name="O_DIRECT",
        verdict=Verdict.YES,
        says=f"{target.path}: offsets in multiples of {found.offset_align_bytes} B, memory of "
        f"{found.memory_align_bytes} B (by {found.found_by})",
        adds=adds,
    )


def _counters(target: Target, roots: Roots) -> Finding:
    adds = "the proof that bytes reached the device, and its queue depth"
    names = counting_devices(target)
    try:
        for name in names:
            read_block_stat(name, roots)
    except TargetError as error:
        names, why = (), str(error)
    else:
        why = target.facts.missing.get("stack", "the file system has no block device here")
    if not names:
        return Finding(
            name="device counters",
            verdict=Verdict.NO,
            says=why,
            adds=adds,
            mend="wattload devices",
        )
    return Finding(name="device counters", verdict=Verdict.YES, says=", ".join(names), adds=adds)


def _caveats(target: Target) -> Iterator[Finding]:
    for warning in target.facts.warnings:
        yield Finding(
            name="target",
            verdict=Verdict.PARTLY,
            says=warning,
            adds="figures that are the drive's alone",
            mend="wattload doctor /mnt/ssd",
        )


def _controllers(roots: Roots) -> Finding:
    names = list_controllers(roots)
    adds = "a drive's power states, health and own power figures"
    if names:
        return Finding(
            name="NVMe controllers", verdict=Verdict.YES, says=", ".join(names), adds=adds
        )
    return Finding(
        name="NVMe controllers",
        verdict=Verdict.NO,
        says="the kernel shows none; power=declared takes the watts of a data sheet instead",
        adds=adds,
        mend="lspci -d ::0108",
    )


def _admin_queue(name: str, roots: Roots, devices: Path) -> Finding:
    """Try to open the controller's node; no command is sent."""
    node = devices / name
    finding = partial(
        Finding,
        name=f"admin queue of {name}",
        adds="power states set and watched, SMART, watts where the drive reports them",
    )
    try:
        os.close(os.open(node, os.O_RDONLY | os.O_CLOEXEC))
    except FileNotFoundError:
        return finding(
            verdict=Verdict.NO,
            says=f"{node} is not here: a container has to be given the node",
            mend=f"NVME={node} docker compose -f docker/compose.yaml "
            "-f docker/compose.power.yaml run --rm wattload doctor",
        )
    except OSError as error:
        return finding(
            verdict=Verdict.NO,
            says=f"{node}: {error.strerror}; model, serial, link and temperature are readable",
            mend="sudo -E wattload doctor",
        )
    if _is_capable(roots):
        return finding(verdict=Verdict.YES, says=f"{node} opens")
    return finding(
        verdict=Verdict.PARTLY,
        says=f"{node} opens without CAP_SYS_ADMIN: the power state table only, no state, no SMART",
        mend="sudo -E wattload doctor",
    )


def _is_capable(roots: Roots) -> bool:
    for line in read_text(roots.proc / "self/status").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _CAP_SYS_ADMIN & 1)
    return False
