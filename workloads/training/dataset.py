"""The files of a data set: their sizes, their paths, and which of them exist."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import DataError
from wattload.core.record.run import DataRecord
from wattload.core.storage.targets import Target
from wattload.loaders.data.data_folder import DataFolder, existing_on_targets, marker_of
from wattload.loaders.data.record_formats import file_bytes, record_format
from wattload.workloads.training.config import (
    Config,
    Shape,
    Sizes,
    dlio_shapes,
    matched_shapes,
    payload_bytes,
)

FOLDER_FILES = 10_000
"""Most files in one folder, as MLPerf Storage advises."""

SEALED = "stamp and sum"
"""What each block of the files has; data without it has another key and is not reused."""


@dataclass(frozen=True)
class Dataset:
    """The records of one configuration; file i is on target i modulo the number of targets."""

    config: Config
    file_count: int
    targets: tuple[Target, ...]

    sealed: ClassVar[bool] = True
    """Whether blocks have stamps and sums, so that reads prove them."""
    remedy: ClassVar[str] = "delete this file, and the next run generates it again"
    """What to do about a file that is not a record."""

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        distribution = self.config.distribution()
        if self.config.sizes is Sizes.dlio:
            return dlio_shapes(distribution, self.file_count)
        return matched_shapes(distribution, self.file_count, self.config.data_seed)

    @cached_property
    def file_bytes(self) -> tuple[int, ...]:
        layout = record_format(self.config.record_format)
        sizes = {shape: file_bytes(layout, shape) for shape in set(self.shapes)}
        return tuple(sizes[shape] for shape in self.shapes)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The name of each file in its folder, as DLIO names them; many are in folders below it."""
        width = len(str(self.file_count))
        suffix = f"of_{self.file_count}.{self.config.record_format}"
        names = [f"img_{index:0{width}d}_{suffix}" for index in range(self.file_count)]
        if self.file_count > FOLDER_FILES:
            names = [f"{index // FOLDER_FILES:04d}/{name}" for index, name in enumerate(names)]
        return tuple(names)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Everything that determines the bytes of the files, except the seed."""
        distribution = self.config.distribution()
        return {
            "record_format": self.config.record_format,
            "sizes": self.config.sizes.value,
            "record_mean_bytes": distribution.mean_bytes,
            "record_stdev_bytes": distribution.stdev_bytes,
            "record_minimum_bytes": distribution.minimum_bytes,
            "file_count": self.file_count,
            "target_count": len(self.targets),
            "blocks": SEALED,
            **({"folder_files": FOLDER_FILES} if self.file_count > FOLDER_FILES else {}),
        }

    @property
    def nonce(self) -> int:
        """The nonce in the stamps of all files, from what determines their bytes."""
        return int.from_bytes(hashlib.sha256(self.key.encode()).digest()[:8], "little")

    @property
    def folder(self) -> Path:
        """The folder of the files, the first target's if there are several."""
        return self.targets[0].data_folder / self.key

    def expected_paths(self) -> tuple[Path, ...]:
        """Return the path of each file, whether it exists or not."""
        return tuple(
            self.targets[index % len(self.targets)].data_folder / self.key / name
            for index, name in enumerate(self.names)
        )

    def existing(self) -> list[DataFolder | None]:
        """Return each target's folder, ``None`` where it does not exist; creates nothing."""
        return existing_on_targets(self.targets, self.key)

    def missing(self, folders: Sequence[DataFolder | None]) -> list[int]:
        """Return the indices of the files that do not exist or have another size."""
        return [
            index
            for index in range(self.file_count)
            if not self._is_there(index, folders[index % len(folders)])
        ]

    def _is_there(self, index: int, folder: DataFolder | None) -> bool:
        if folder is None:
            return False
        entry = folder.entries.get(self.names[index])
        has_size = entry is not None and entry.size_bytes == self.file_bytes[index]
        return has_size and folder.is_valid(self.names[index])

    @cached_property
    def key(self) -> str:
        """The name of the files' folder on each target."""
        return str(marker_of(self.config.model, self.parameters, self.config.data_seed)["key"])


class PreparedData:
    """A data set in its folders on this rank."""

    def __init__(self, dataset: Dataset, folders: Sequence[DataFolder]) -> None:
        self.dataset = dataset
        self.folders = folders
        self.paths = dataset.expected_paths()

    @property
    def record_bytes(self) -> tuple[int, ...]:
        """The payload of each file."""
        return tuple(map(payload_bytes, self.dataset.shapes))

    def digest(self, index: int) -> str | None:
        """Return the SHA-256 of a record's payload from the manifest."""
        folder = self.folders[index % len(self.folders)]
        entry = folder.entries.get(self.dataset.names[index])
        return entry.sha256 if entry is not None else None

    def row_digest(self, index: int) -> str:
        """Return the SHA-256 of a record's row in a batch, read from its file now.

        Raises ``DataError`` if the file is no longer a valid record.
        """
        row_bytes = self.dataset.config.row_bytes
        front = self._payload(index)[:row_bytes].tobytes().ljust(row_bytes, b"\0")
        return hashlib.sha256(front).hexdigest()

    def facts(self, *, reused: bool) -> DataRecord:
        """Return the facts for the run record, with the key and folder of the first target."""
        return DataRecord(
            key=self.dataset.key,
            folder=str(self.dataset.folder),
            file_count=self.dataset.file_count,
            data_bytes=sum(self.dataset.file_bytes),
            reused=reused,
            parameters={**self.dataset.parameters, "data_seed": self.dataset.config.data_seed},
        )

    def verify(self, indices: Sequence[int]) -> None:
        """Read files back and compare their payloads with the manifest.

        Raises ``DataError`` with the first file that differs.
        """
        for index in indices:
            if hashlib.sha256(self._payload(index).data).hexdigest() != self.digest(index):
                raise DataError(
                    f"{self.paths[index]} was changed after it was written: the SHA-256 of its "
                    "payload differs from the manifest; delete the data with `wattload clean` to "
                    "generate it again"
                )

    def _payload(self, index: int) -> NDArray[np.uint8]:
        path = self.paths[index]
        try:
            raw = np.memmap(path, dtype=np.uint8, mode="r")
        except (OSError, ValueError) as error:  # an empty file can't be mapped
            raise DataError(f"{path} can't be read: {error}; {self.dataset.remedy}") from error
        return record_format(self.dataset.config.record_format).payload(raw, str(path))
