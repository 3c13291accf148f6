"""Whether hosts see one folder or a drive each: proved before a run over several hosts writes.

Each host's leader writes a nonce into its targets, and looks for those of the other hosts.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

from wattload.core.errors import TargetError
from wattload.core.files import choose_folder
from wattload.core.storage.targets import Target, check_writable
from wattload.core.workload import Communicator
from wattload.run.config import TargetConfig
from wattload.run.hosts import Faults

PREFIX = ".wattload-nonce-"


def prove_sharing(
    config: TargetConfig, targets: Sequence[Target], leaders: Communicator, hosts: Sequence[str]
) -> None:
    """Prove that directories are shared, or on a drive of each host, as ``target.shared`` states.

    The leader of each host has to call it; nothing stays in the directories. A host is compared
    with those that can write to the target, too.

    Args:
        config: the settings of the targets.
        targets: the directories of this host; none if it has found a fault in them.
        leaders: the leaders of all hosts.
        hosts: the names of the hosts, by the rank of their leaders.

    Raises:
        TargetError: this host can't write to a target, or sees another folder than stated, or one
            where no drive is mounted. Notes have the faults of further targets.
    """
    faults, nonce = Faults(), secrets.token_hex(16)
    with ExitStack() as written:
        mounts = [faults.of(partial(_write_nonce, target, nonce, written)) for target in targets]
        by_host = leaders.all_gather((nonce, mounts))
        for number, target in enumerate(targets):
            if mounts[number] is None:
                continue
            views = [
                _View(host, mount, _has(target, its_nonce))
                for host, (its_nonce, there) in zip(hosts, by_host, strict=True)
                for mount in there[number : number + 1]
                if mount is not None
            ]
            fault = _fault(config, target, hosts[leaders.rank], views)
            if fault:
                faults.add(TargetError(fault))
        leaders.barrier()  # all hosts have looked
    faults.raise_all()


class _View(NamedTuple):
    """A host, where the file system of its target is mounted, and if its nonce is seen here."""

    host: str
    mount_point: str
    is_seen: bool


def _write_nonce(target: Target, nonce: str, written: ExitStack) -> str:
    """Write the nonce until the stack is closed; return where the file system is mounted."""
    check_writable(target)
    folder = written.enter_context(choose_folder(target.path))
    written.callback(folder.remove, PREFIX + nonce)
    folder.write(PREFIX + nonce, nonce)
    return _mount_point(target)


def _has(target: Target, nonce: str) -> bool:
    """Return whether the nonce can be read back from a target."""
    try:
        return (target.path / (PREFIX + nonce)).read_text() == nonce
    except OSError:
        return False


def _mount_point(target: Target) -> str:
    """Return where the file system of a target is mounted, empty if that is unknown."""
    system = target.facts.file_system
    return "" if system is None else system.mount_point


def _fault(config: TargetConfig, target: Target, host: str, views: Sequence[_View]) -> str:
    """Return what is wrong with a target of ``host``, given the views of all hosts; else "".

    A folder that two hosts see is a fault of the later one.
    """
    seen = [view.host for view in views if view.is_seen]
    first = views[0].host
    if config.shared:
        if first in seen:
            return ""
        return (
            f"{target.path} is not the folder that {first} sees, and target.shared=true means one "
            "for all hosts; mount the same file system on all, or use target.shared=false if each "
            "has a drive of its own"
        )
    unmounted = "" if config.allow_unmounted else _unmounted(target, views)
    if unmounted:  # the folder is not the one to use, whoever sees it
        return f"{unmounted}; mount the drive under test, or use target.allow_unmounted=true"
    if seen and seen[0] != host:
        return (
            f"{target.path} is the folder that {seen[0]} sees, and target.shared=false means a "
            "drive of its own for each host; use target.shared=true for a shared file system"
        )
    return ""


def _unmounted(target: Target, views: Sequence[_View]) -> str:
    """Return how no drive seems to be mounted where a target is; "" if one is.

    None is where another host has a mount point further down.
    """
    system = target.facts.file_system
    other = max(views, key=lambda view: len(view.mount_point))
    if len(_mount_point(target)) < len(other.mount_point):
        return f"no drive is mounted at {other.mount_point}, where {other.host} has one"
    if system is not None and system.is_root:
        return f"{target.path} is on the root file system"
    return ""
