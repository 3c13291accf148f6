from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def tiny_file_system(tmp_path: Path) -> Iterator[Path]:
    """A real ext4 of 32 MiB on a loop device, or a tmpfs of that size; needs root."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    mount_point = tmp_path / "tiny"
    mount_point.mkdir()
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(32 << 20)
    made = subprocess.run(["mkfs.ext4", "-q", str(image)], capture_output=True, check=False)
    command = ["mount", "-o", "loop", str(image), str(mount_point)]
    if made.returncode or subprocess.run(command, capture_output=True, check=False).returncode:
        command = ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(mount_point)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("this machine mounts neither a loop device nor tmpfs")
    yield mount_point
    subprocess.run(["umount", str(mount_point)], check=True)
