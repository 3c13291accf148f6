"""Who else uses the devices under a target: their traffic is in the same counters and watts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wattload.core.blockstat import lowest_devices
from wattload.core.mounts import Mount
from wattload.core.stack import find_stack, system_stacks
from wattload.core.sysfs import LIVE, Roots


def shared_with(
    devices: Sequence[str], own: Mount, mounts: Sequence[Mount], roots: Roots = LIVE
) -> tuple[str, ...]:
    """Return the other mount points and swaps on the same lowest devices, each once.

    Another mount of the same file system (a bind mount) is no other user, except that a target on
    the root file system always shares it with the running system.
    """
    return tuple(dict.fromkeys(_users(frozenset(devices), own, mounts, roots)))


def _users(
    devices: frozenset[str], own: Mount, mounts: Sequence[Mount], roots: Roots
) -> Iterator[str]:
    seen = {own.major_minor}
    for mount in mounts:
        if str(mount.mount_point) == "/" and mount.major_minor == own.major_minor:
            yield "/"
        if mount.major_minor in seen:
            continue
        seen.add(mount.major_minor)
        stack = find_stack(mount, mounts, roots)[0]
        if stack is not None and devices & set(lowest_devices(stack)):
            yield str(mount.mount_point)
    for name, stack, _ in system_stacks(roots):
        if name.startswith("swap") and stack is not None and devices & set(lowest_devices(stack)):
            yield name
