"""Real mounts for tests that are allowed to make them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(at: Path, *words: str) -> Iterator[Path]:
    """Mount at ``at`` (made if missing) with the given words of ``mount``; skip where refused."""
    at.mkdir(exist_ok=True)
    done = subprocess.run(
        ["mount", *words, str(at)], capture_output=True, text=True, check=False, timeout=60
    )
    if done.returncode:
        pytest.skip(f"mount {' '.join(words)} is refused here: {done.stderr.strip()}")
    try:
        yield at
    finally:
        subprocess.run(["umount", str(at)], check=True, timeout=60)


@contextmanager
def mounted_image(folder: Path, *, size_bytes: int) -> Iterator[Path]:
    """Mount a new ext4 file system in a file of ``folder`` through a loop device."""
    image = folder / "disk.img"
    with image.open("wb") as file:
        file.truncate(size_bytes)
    made = subprocess.run(
        ["mke2fs", "-q", "-F", "-t", "ext4", str(image)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    if made.returncode:
        pytest.skip(f"mke2fs fails here: {made.stderr.strip()}")
    with mounted(folder / "mounted", "-o", "loop", str(image)) as at:
        yield at
