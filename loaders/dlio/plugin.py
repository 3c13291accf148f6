"""Our reader as a plug-in of dlio-benchmark, ``reader.reader_classname``.

The program imports it in its DataLoader workers. Each worker reads one file at a time by O_DIRECT,
``queue_depth`` blocks in flight, and delivers the front of the record in the shape of the program's
batches. The program's own readers deliver one synthetic image, whatever they read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from dlio_benchmark.reader.reader_handler import FormatReader
from numpy.typing import NDArray

from wattload.loaders.dlio.record_files import ReaderSettings, RecordFiles
from wattload.loaders.samples import copy_resized


class DirectRecordReader(FormatReader):  # type: ignore[misc]  # DLIO ships no types
    """DLIO's reader interface over ``RecordFiles``: samples by index, one record per file."""

    def __init__(self, dataset_type: object, thread_index: int, epoch: int) -> None:
        super().__init__(dataset_type, thread_index)
        side = self._args.max_dimension
        self._files = RecordFiles(ReaderSettings.from_environment())
        self._shape = (side, side)

    def open(self, filename: str) -> NDArray[np.uint8]:
        """Return the record's front in the shape of the program's samples."""
        image = np.empty(self._shape, dtype=np.uint8)
        copy_resized(self._files.payload(filename), image.reshape(-1))
        return image

    def read_index(self, image_idx: int, step: int) -> NDArray[np.uint8]:
        """Return the sample of that index in the program's list."""
        filename, _ = self.global_index_map[image_idx]
        image = self.open(filename)
        self.preprocess()
        return image

    def get_sample(self, filename: str, sample_index: int) -> None:
        """Do nothing: ``open`` returns the whole sample."""

    def close(self, filename: str) -> None:
        """Do nothing: the file is already closed."""

    def next(self) -> Iterator[Any]:
        """Refuse: PyTorch's DataLoader makes the batches and requests samples by index."""
        raise NotImplementedError("this reader has no iterator; it reads by index")

    def finalize(self) -> None:
        """Do nothing: the end of the worker closes everything."""

    def is_index_based(self) -> bool:
        """Return ``True``."""
        return True

    def is_iterator_based(self) -> bool:
        """Return ``False``."""
        return False
