"""Files for DALI beside the samples: it wants a path to everything it reads."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from collections.abc import Callable
from typing import IO

import numpy as np

COPY_BYTES = 1 << 20
DIMENSIONS = 3
"""The dimensions of the padding; only samples of one batch must have the same number."""


class SideFiles:
    """Files that live until ``close``, or the end of this process."""

    def __init__(self) -> None:
        self._files: list[IO[bytes]] = []

    def in_memory(self, content: IO[bytes]) -> str:
        """Return the path of a copy in memory, good in this process alone."""
        file = os.fdopen(os.memfd_create("wattload"), "wb")
        self._add(file, content)
        return f"/proc/self/fd/{file.fileno()}"

    def padding(self, accepts: Callable[[str], bool]) -> str | None:
        """Return the path of an npy record of one byte that ``accepts`` accepts, or ``None``.

        It lies in memory, else in a folder for temporary files, where a killed process leaves it.
        """
        path = self.in_memory(_padding())
        if accepts(path):
            return path
        for folder in dict.fromkeys((tempfile.gettempdir(), "/var/tmp")):
            try:
                path = self._on_disk(folder, _padding())
            except OSError:
                continue
            if accepts(path):
                return path
        return None

    def close(self) -> None:
        """Close the files, which ends them; safe to call twice."""
        while self._files:
            self._files.pop().close()

    def _on_disk(self, folder: str, content: IO[bytes]) -> str:
        file = tempfile.NamedTemporaryFile(prefix="wattload-", dir=folder)  # noqa: SIM115
        self._add(file, content)
        return file.name

    def _add(self, file: IO[bytes], content: IO[bytes]) -> None:
        self._files.append(file)
        shutil.copyfileobj(content, file, COPY_BYTES)
        file.flush()


def takes_direct(path: str) -> bool:
    """Return whether a file can be opened with O_DIRECT; in memory it can from Linux 6.6 on."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        return False
    return True


def on_block_device(path: str) -> bool:
    """Return whether a file lies on a device of its own number, which cuFile wants to look up."""
    return os.major(os.stat(path).st_dev) != 0  # noqa: PTH116 - a path of /proc


def _padding() -> IO[bytes]:
    content = io.BytesIO()
    np.save(content, np.zeros((1,) * DIMENSIONS, dtype=np.uint8))
    content.seek(0)
    return content
