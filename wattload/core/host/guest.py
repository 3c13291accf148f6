"""Whether the host is a virtual machine or a container, and whose, by what it says of itself."""

from __future__ import annotations

from pathlib import Path

from wattload.core.host.cpu import cpu_flags
from wattload.core.mounts import read_mounts
from wattload.core.sysfs import Roots, read_text

_CLOCKS = {"kvm-clock": "kvm", "xen": "xen", "hyperv_clocksource_tsc_page": "hyper-v"}
_CGROUP_WORDS = ("docker", "kubepods", "libpod", "containerd", "lxc", "garden")
_NONE = "none"
_ENGINE_MOUNTS = (Path("/etc/hosts"), Path("/etc/hostname"), Path("/etc/resolv.conf"))


def find_hypervisor(roots: Roots) -> str:
    """Return the hypervisor's name, ``unnamed`` where only the processor tells, or ``none``.

    From ``/sys/hypervisor``, the clock sources that only guests have, and the firmware's product
    name; where the processor has no hypervisor flag (ARM has none at all) only these count.
    """
    named = [*_hypervisor_folder(roots), *_paravirtual_clocks(roots), *_firmware_names(roots)]
    if named:
        return ", ".join(dict.fromkeys(named))
    return "unnamed" if "hypervisor" in cpu_flags(roots) else _NONE


def _text(roots: Roots, name: str) -> str:
    try:
        return read_text(roots.sys / name)
    except OSError:
        return ""


def _hypervisor_folder(roots: Roots) -> list[str]:
    kind = _text(roots, "hypervisor/type")
    return [kind] if kind else []


def _paravirtual_clocks(roots: Roots) -> list[str]:
    clocks = _text(roots, "devices/system/clocksource/clocksource0/available_clocksource").split()
    return [_CLOCKS[clock] for clock in clocks if clock in _CLOCKS]


def _firmware_names(roots: Roots) -> list[str]:
    if "hypervisor" not in cpu_flags(roots):
        return []
    words = [_text(roots, f"class/dmi/id/{name}") for name in ("sys_vendor", "product_name")]
    return [" ".join(word for word in words if word)] if any(words) else []


def find_container(roots: Roots) -> str:
    """Return what kind of container this process is in, or ``none``."""
    if (roots.top / ".dockerenv").exists() and _has_engine_mounts(roots):
        return "docker"
    if (roots.top / "run/.containerenv").exists():
        return "podman"
    named = _named_by_manager(roots)
    if named:
        return named
    cgroups = read_text(roots.proc / "self/cgroup")
    return next((word for word in _CGROUP_WORDS if word in cgroups), _NONE)


def _has_engine_mounts(roots: Roots) -> bool:
    """Return whether an engine mounted its own files over ``/etc``.

    A machine that was made from an image carries the image's marker file, and is no container.
    """
    return any(mount.mount_point in _ENGINE_MOUNTS for mount in read_mounts(roots))


def _named_by_manager(roots: Roots) -> str:
    """Return what the container manager told process 1 in its environment, as systemd asks."""
    try:
        environment = (roots.proc / "1/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    names = (entry[len(b"container=") :] for entry in environment if entry[:10] == b"container=")
    return next(names, b"").decode("utf-8", "replace")
