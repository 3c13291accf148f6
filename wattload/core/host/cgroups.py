"""The control groups of this process (cgroups(7)), version 1 and 2."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from wattload.core.storage.mounts import Mount, read_mounts
from wattload.core.sysfs import LIVE, Roots, read_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """This process's group in one mounted hierarchy, whose root is ``top``."""

    folder: Path
    top: Path
    version: int

    def upwards(self) -> Iterator[Path]:
        """Yield the folders of the groups, from the own one to the top."""
        folder = self.folder
        while folder != self.top:
            yield folder
            folder = folder.parent
        yield self.top


def own_groups(controller: str, roots: Roots = LIVE) -> Iterator[Group]:
    """Yield this process's groups for a controller, where they are mounted.

    A hierarchy of version 2 is included whether it has the controller or not.

    Raises:
        OSError: ``/proc`` can't be read.
        ValueError: a hierarchy is mounted outside ``/sys``.
    """
    mounts = read_mounts(roots)
    for line in read_text(roots.proc / "self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        version = 2 if number == "0" and not controllers else 1
        if version == 1 and controller not in controllers.split(","):
            continue
        for mount in mounts:
            if _serves(mount, controller, version):
                yield _group(mount, PurePosixPath(path), version, roots)


def group_folders(controller: str, roots: Roots = LIVE) -> Iterator[Path]:
    """Yield the folders of this process's groups for a controller, from its own upwards.

    Errors as in ``own_groups``.
    """
    for group in own_groups(controller, roots):
        yield from group.upwards()


def _serves(mount: Mount, controller: str, version: int) -> bool:
    if version == 2:  # noqa: PLR2004 - of cgroups
        return mount.type == "cgroup2"
    return mount.type == "cgroup" and controller in mount.options


def _group(mount: Mount, path: PurePosixPath, version: int, roots: Roots) -> Group:
    # A container without a cgroup namespace sees the host's path but has its own group mounted.
    inside = path.relative_to(mount.root) if path.is_relative_to(mount.root) else PurePosixPath()
    top = roots.sys / mount.mount_point.relative_to("/sys")
    return Group(folder=top / inside, top=top, version=version)
