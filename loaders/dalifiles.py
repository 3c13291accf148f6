"""Files without a name for DALI, which wants a path to everything it reads."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from typing import IO

import numpy as np

COPY_BYTES = 1 << 20
DIMENSIONS = 3
"""The dimensions of the padding; only samples of one batch must have the same number."""


class UnnamedFiles:
    """Files that live until ``close``, or the end of this process, and have paths in it alone."""

    def __init__(self) -> None:
        self._files: list[IO[bytes]] = []

    def in_memory(self, content: IO[bytes]) -> str:
        """Return the path of a copy in memory."""
        return self._add(os.fdopen(os.memfd_create("wattload"), "wb"), content)

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
