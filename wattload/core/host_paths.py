"""Paths as the host of a container sees them, for what a person reads.

docker/compose.yaml mounts folders of the host and lists them in ``WATTLOAD_HOST_PATHS``, as
``/inside=outside`` separated by colons; ``outside`` may be relative to the checkout.
"""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "WATTLOAD_HOST_PATHS"


def mounted() -> dict[Path, Path]:
    """Return the mounted folders, from the path inside to the one outside; empty on a host."""
    pairs = (entry.partition("=") for entry in os.environ.get(VARIABLE, "").split(":"))
    return {Path(inside): Path(outside) for inside, _, outside in pairs if inside and outside}


def on_host(path: Path) -> Path:
    """Return a path as the host sees it; unchanged if no mounted folder holds it."""
    for inside, outside in mounted().items():
        if path.absolute().is_relative_to(inside):
            return outside / path.absolute().relative_to(inside)
    return path


def allow_writing(folder: Path) -> str:
    """Return the commands that let this user write to a folder, as a clause of an error."""
    uid, gid, owner = os.geteuid(), os.getegid(), folder.stat()
    if owner.st_uid == uid:
        return f"run `chmod u+rwx {on_host(folder)}`"
    chown = f"`sudo chown {uid}:{gid} {on_host(folder)}`"
    if not mounted():
        return f"run {chown}"
    return f"run {chown}, or start the container with UID={owner.st_uid} GID={owner.st_gid}"
