"""Files for DALI beside the samples: it wants a path to everything it reads."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from typing import IO

import numpy as np

COPY_BYTES = 1 << 20
MEMORY_FOLDER = "/dev/shm"
DIMENSIONS = 3
"""The dimensions of the padding; only samples of one batch must have the same number."""


class SideFiles:
    """Files that live until ``close``, or the end of this process.

    They have no name but paths in this process. With ``named`` they lie in a folder in memory, for
    cuFile wants the path that a link leads to; a process that is killed leaves them there.
    """

    def __init__(self, *, named: bool = False) -> None:
        self._named = named
        self._files: list[IO[bytes]] = []

    def in_memory(self, content: IO[bytes]) -> str:
        """Return the path of a copy in memory."""
        if not self._named:
            return self._add(os.fdopen(os.memfd_create("wattload"), "wb"), content)
        file = tempfile.NamedTemporaryFile(prefix="wattload-", dir=MEMORY_FOLDER)  # noqa: SIM115
        self._add(file, content)
        return file.name

    def padding(self, *, direct: bool) -> str | None:
        """Return the path of an npy record of one byte; with ``direct`` one that takes O_DIRECT.

        Memory takes it from Linux 6.6 on; before that a file on a disk does. ``None`` if none does.
        """
        path = self.in_memory(_padding())
        if not direct or takes_direct(path):
            return path
        for folder in dict.fromkeys((tempfile.gettempdir(), "/var/tmp")):
            try:
                file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - close() closes it
                path = self._add(file, _padding())
            except OSError:
                continue
            if takes_direct(path):
                return path
        return None

    def close(self) -> None:
        """Close the files, which ends them; safe to call twice."""
        while self._files:
            self._files.pop().close()

    def _add(self, file: IO[bytes], content: IO[bytes]) -> str:
        self._files.append(file)
        shutil.copyfileobj(content, file, COPY_BYTES)
        file.flush()
        return f"/proc/self/fd/{file.fileno()}"


def takes_direct(path: str) -> bool:
    """Return whether a file can be opened with O_DIRECT."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        return False
    return True


def _padding() -> IO[bytes]:
    content = io.BytesIO()
    np.save(content, np.zeros((1,) * DIMENSIONS, dtype=np.uint8))
    content.seek(0)
    return content
