"""The folder of one run below the sampler's own runs folder, and the samples file in it."""

from __future__ import annotations

import os
from pathlib import Path

from wattload.core.errors import PowerError


def check_run_folder(runs: Path, run_id: str) -> Path:
    """Return the folder of a run.

    Raises:
        PowerError: there is none.
    """
    folder = runs / run_id
    if folder.is_symlink() or not folder.is_dir():
        raise PowerError(f"there is no run folder {folder}; the sampler writes into nothing else")
    return folder


def create_samples(path: Path) -> int:
    """Create a samples file and return its descriptor.

    Raises:
        PowerError: it exists already or can't be made.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o644)
    except OSError as error:
        raise PowerError(f"the samples file {path} can't be made: {error.strerror}") from error
