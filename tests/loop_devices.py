"""Loop devices over files, and the identity of a block device as sysfs has it; needs root."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from wattload.core.io import DeviceIdentity


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
    """Return what sysfs says of a block device."""
    folder = Path("/sys/class/block") / device.name
    sequence = folder / "diskseq"
    return DeviceIdentity(
        path=device,
        major_minor=(folder / "dev").read_text().strip(),
        disk_sequence=int(sequence.read_text()) if sequence.exists() else None,
        size_bytes=int((folder / "size").read_text()) * 512,
        logical_block_bytes=int((folder / "queue/logical_block_size").read_text()),
    )
