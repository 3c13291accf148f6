"""Loop devices over files, and the identity of a block device as sysfs has it; needs root."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from wattload.core.io import DeviceIdentity
from wattload.core.storage.raw_device import read_identity


@contextmanager
def loop_device(image: Path, device: Path | None = None) -> Iterator[Path]:
    """Set up a loop device over a file, a given one or a free one; skips where none can be."""
    where = ["--find"] if device is None else [str(device)]
    command = ["losetup", *where, "--show", str(image)]
    try:
        made = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("losetup is not installed")
    if made.returncode:
        pytest.skip(f"this machine sets up no loop device: {made.stderr.strip()}")
    path = Path(made.stdout.strip() or str(device))
    try:
        yield path
    finally:
        subprocess.run(["losetup", "--detach", str(path)], check=True)


def identity_of(device: Path) -> DeviceIdentity:
    """Return the identity of a block device, from sysfs."""
    return read_identity(device, Path("/sys/class/block") / device.name)
