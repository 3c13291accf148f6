"""The folder of one run below the sampler's own runs folder, and the samples file in it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from wattload.core.errors import PowerError

Rights = Callable[[], AbstractContextManager[None]]
"""In whose rights files are touched. No more than that: what Python imports late may be closed."""


def check_run_folder(runs: Path, run_id: str, *, uid: int | None) -> Path:
    """Return the folder of a run; with ``uid`` of that user's run alone, unless it is root.

    Raises:
        PowerError: there is none, or it is another user's.
    """
    folder = runs / run_id
    try:
        found = folder.lstat()
    except OSError as error:
        raise PowerError(
            f"there is no run folder {folder} ({error.strerror}); the sampler writes into nothing "
            f"else, so run with runs={runs}"
        ) from error
    if not stat.S_ISDIR(found.st_mode):
        raise PowerError(f"{folder} is no run folder; the sampler writes into nothing else")
    if uid not in (None, 0, found.st_uid):
        raise PowerError(
            f"the run folder {folder} belongs to user {found.st_uid}, not to user {uid} who "
            "announces it"
        )
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


def read_regular(path: Path, most_bytes: int) -> str:
    """Return the text of a file that another user may have put there to stop or fill this process.

    Raises:
        OSError: it can't be read, or is a link, a pipe, a device, or longer than ``most_bytes``.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    descriptor = os.open(path, flags)
    with open(descriptor, "rb") as file:  # noqa: PTH123 - the descriptor is what was checked
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is no regular file")
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise OSError(f"{path} is longer than {most_bytes} bytes")
    return data.decode("utf-8", errors="replace")
