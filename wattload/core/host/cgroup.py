"""What control groups allow this process: CPUs and memory, version 1 and 2."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from wattload.core.mounts import Mount, read_mounts
from wattload.core.sysfs import Roots, explain, read_text

_NO_LIMIT = "no limit is set"
_UNLIMITED_V1_BYTES = 2**62
"""Version 1 has no word for "unlimited": it shows the largest page-aligned 63-bit number."""


def cpu_limit(roots: Roots) -> tuple[float | None, str]:
    """Return the least CPU quota on the way to this process, in CPUs, or ``None`` and why."""
    return _least(roots, "cpu", _cpu_quota)


def memory_limit_bytes(roots: Roots) -> tuple[int | None, str]:
    """Return the least memory limit on the way to this process, or ``None`` and why."""
    limit, reason = _least(roots, "memory", _memory_limit)
    return (None if limit is None else int(limit)), reason


def _least(
    roots: Roots, controller: str, read: Callable[[Path], float | None]
) -> tuple[float | None, str]:
    try:
        limits = [read(folder) for folder in _folders(roots, controller)]
    except (OSError, ValueError) as error:
        return None, explain(error)
    return min((limit for limit in limits if limit is not None), default=None), _NO_LIMIT


def _cpu_quota(folder: Path) -> float | None:
    if (folder / "cpu.max").exists():
        quota, _, period = read_text(folder / "cpu.max").partition(" ")
    elif (folder / "cpu.cfs_quota_us").exists():
        quota = read_text(folder / "cpu.cfs_quota_us")
        period = read_text(folder / "cpu.cfs_period_us")
    else:
        return None
    return None if quota in ("max", "-1") else int(quota) / int(period)


def _memory_limit(folder: Path) -> float | None:
    for name in ("memory.max", "memory.limit_in_bytes"):
        if (folder / name).exists():
            text = read_text(folder / name)
            unlimited = text == "max" or int(text) >= _UNLIMITED_V1_BYTES
            return None if unlimited else int(text)
    return None


def _folders(roots: Roots, controller: str) -> Iterator[Path]:
    """Yield the folders of this process's groups for one controller, from its own one upwards."""
    mounts = read_mounts(roots)
    for line in read_text(roots.proc / "self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        version_2 = number == "0" and not controllers
        if not version_2 and controller not in controllers.split(","):
            continue
        for mount in mounts:
            if _serves(mount, controller, version_2=version_2):
                yield from _upwards(mount, PurePosixPath(path), roots)


def _serves(mount: Mount, controller: str, *, version_2: bool) -> bool:
    if version_2:
        return mount.type == "cgroup2"
    return mount.type == "cgroup" and controller in mount.options


def _upwards(mount: Mount, group: PurePosixPath, roots: Roots) -> Iterator[Path]:
    # A container without a cgroup namespace sees the host's path, while its own group is mounted.
    inside = group.relative_to(mount.root) if group.is_relative_to(mount.root) else PurePosixPath()
    top = roots.sys / mount.mount_point.relative_to("/sys")
    folder = top / inside
    while folder != top:
        yield folder
        folder = folder.parent
    yield top
