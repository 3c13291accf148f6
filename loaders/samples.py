"""What a sample loader is given: files of one record each, and what to hand over of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from wattload.core.io import Loader
from wattload.core.target import Target

ReadCounter = Callable[[int], None]
"""Called with bytes that have just been read from the target; from any thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSet:
    """Files that hold one record each, and how batches are made of them.

    ``paths`` and ``file_bytes`` belong together; a sample's index is its place there. A batch has
    ``batch_samples`` rows of the first ``resize_bytes`` of a record, zeros behind a shorter one.
    The payloads of the samples in ``hashed`` are hashed whole where they are decoded. With
    ``check_crc`` every loader checks the CRC-32 of formats that have one. ``accelerators`` is how
    many of them this rank feeds: settings per accelerator are multiplied by it. With ``in_memory``
    the files are read once, when the loader is made, and every sample then comes from memory.
    """

    paths: tuple[Path, ...]
    file_bytes: tuple[int, ...]
    record_format: str
    batch_samples: int
    resize_bytes: int
    hashed: frozenset[int] = frozenset()
    check_crc: bool = False
    accelerators: int = 1
    in_memory: bool = False

    @property
    def batch_bytes(self) -> int:
        """Size of one batch as it is handed over, in bytes."""
        return self.batch_samples * self.resize_bytes


class SampleConfig(Protocol):
    """The configuration of whatever can load whole samples: a loader, or an outside program."""

    def check(self) -> None:
        """Raise ``ConfigError`` for a setting outside its range."""
        ...

    def check_samples(self, samples: SampleSet, targets: Sequence[Target]) -> None:
        """Raise what will not work, before there is a file; reads and makes nothing.

        Raises:
            ConfigError: the settings do not fit these samples, or this host.
            MissingExtraError: the library behind the loader is not installed.
            TargetError: the loader can't read from one of the targets.
        """
        ...

    def sample_memory_bytes(self, samples: SampleSet) -> int:
        """Return a bound on the buffers of one rank's loader, in bytes."""
        ...

    def sample_checks_crc(self, samples: SampleSet) -> bool:
        """Return whether the loader pays for a CRC-32 of these samples, asked for or not."""
        ...

    @property
    def sample_bytes_counted(self) -> str:
        """When, and by which figure, ``ReadCounter`` is told of bytes; for the record."""
        ...

    @property
    def sample_decode_timed(self) -> str:
        """What ``Batch.decode_s`` covers with this loader, or why it is ``None``; for the record.

        A half sentence without a full stop: "headers, the CRC where it is checked, and rows".
        """
        ...

    @property
    def sample_path_is_direct(self) -> bool:
        """Whether the loader needs O_DIRECT."""
        ...


class SampleLoaderConfig(SampleConfig, Protocol):
    """The configuration of a loader: it makes the loader."""

    def sample_loader(self, samples: SampleSet, on_read: ReadCounter) -> Loader:
        """Return a loader whose workers are up and have read nothing yet.

        Raises:
            ConfigError: a setting is out of range, or does not fit these samples.
            MissingExtraError: the library behind the loader is not installed.
        """
        ...


def copy_resized(payload: NDArray[np.uint8], row: NDArray[np.uint8]) -> None:
    """Copy the first bytes of a payload into a batch's row; zeros fill what is missing."""
    count = min(len(payload), len(row))
    row[:count] = payload[:count]
    row[count:] = 0
