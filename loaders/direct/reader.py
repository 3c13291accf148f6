"""Reading whole files ahead, past the page cache, into buffers of the caller's.

For loaders that prefetch samples of 2 to 400 MB: each file is split into blocks, and up to
``queue_depth`` blocks are in flight over all files that were asked for, oldest file first. ::

    buffers = [aligned_buffer(round_up(largest, PAGE_BYTES)) for _ in range(ahead)]
    reader = DirectReader(config, buffers=buffers)
    ticket = reader.submit(path, buffers[0], size_bytes, moved=phase_counter)
    ...                                # submit more; compute on what has come
    read_bytes = ticket.result()       # buffers[0][:size_bytes] holds the file

A buffer belongs to the reader from ``submit`` until its ticket is done; then it can be used again.
Tickets are ``concurrent.futures.Future``: they can be waited for in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wattload.core.histogram import Histogram
from wattload.core.io import ByteCounter, DataPath
from wattload.loaders.direct import PYTHON, Config
from wattload.loaders.native.reader import NativeReader
from wattload.loaders.operationlog import OperationLog
from wattload.loaders.python.blockio import Medium
from wattload.loaders.python.reader import PythonReader


class DirectReader:
    """Reads files by O_DIRECT, up to ``queue_depth`` blocks in flight; ``close`` ends it.

    ``buffers`` are all that files will be read into, or larger pieces that hold them: the native
    engine registers them once. With a ``medium``, which is where the files are instead of on a
    disk, and with ``engine=python``, threads of Python read, and take any buffer. The native engine
    keeps a sample of its reads in the ``log``.
    """

    def __init__(
        self,
        config: Config,
        *,
        medium: Medium | None = None,
        buffers: Sequence[NDArray[np.uint8]] = (),
        log: OperationLog | None = None,
    ) -> None:
        config.check()
        self._reader: NativeReader | PythonReader
        if medium is not None or config.engine == PYTHON:
            self._reader = PythonReader(
                block_bytes=config.block_bytes, depth=config.queue_depth, medium=medium
            )
        else:
            self._reader = NativeReader(
                backend=config.engine,
                block_bytes=config.block_bytes,
                depth=config.queue_depth,
                pollers=config.pollers,
                buffers=buffers,
                log=log,
            )

    def submit(
        self,
        path: Path,
        buffer: NDArray[np.uint8],
        size_bytes: int,
        *,
        moved: ByteCounter | None = None,
    ) -> Future[int]:
        """Begin to read the first ``size_bytes`` of a file; returns a ticket for the bytes read.

        ``buffer`` starts at a multiple of 4096, or of what ``direct_alignment`` says of the file,
        and holds at least ``size_bytes`` rounded up to one.
        ``moved`` is told of each block's bytes when they have come, on a thread of the reader.

        The ticket's ``result`` raises ``DataError`` for a file that is shorter or changes while it
        is read, and ``OSError`` with the file and offset where the kernel refused.

        Raises:
            ValueError: the buffer is too small, not aligned, or in none of the reader's buffers.
            RuntimeError: the reader is closed.
        """
        return self._reader.submit(path, buffer, size_bytes, moved=moved)

    def path(self) -> DataPath:
        """Return the way the bytes were asked to take, and what moves them."""
        return self._reader.path()

    def latency(self) -> Histogram:
        """Return how long the reads of blocks took so far; of the native engine, of whole files."""
        return self._reader.latency()

    def close(self) -> None:
        """Finish what was submitted and end the threads; safe to call twice."""
        self._reader.close()
