"""The files of a data set: how large each is, where it lies, and whether it is there."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import DataError
from wattload.core.target import Target
from wattload.core.workload import DataFacts
from wattload.loaders.datafolder import DataFolder, list_folders
from wattload.loaders.datafolder.marker import marker_of
from wattload.loaders.formats import file_bytes, record_format
from wattload.workloads.unet3d.allocation import unwritten_bytes
from wattload.workloads.unet3d.config import Config, Sizes
from wattload.workloads.unet3d.sizes import Shape, dlio_shapes, matched_shapes

WORKLOAD = "unet3d"


@dataclass(frozen=True)
class Dataset:
    """The records of one configuration; file i lies on target i modulo their number."""

    config: Config
    file_count: int
    targets: tuple[Target, ...]

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """The shape of each record."""
        distribution = self.config.distribution()
        if self.config.sizes is Sizes.dlio:
            return dlio_shapes(distribution, self.file_count)
        return matched_shapes(distribution, self.file_count, self.config.data_seed)

    @cached_property
    def file_bytes(self) -> tuple[int, ...]:
        """The size of each file in bytes."""
        layout = record_format(self.config.record_format)
        return tuple(file_bytes(layout, shape) for shape in self.shapes)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The name of each file in its folder, as DLIO names them."""
        width = len(str(self.file_count))
        suffix = f"of_{self.file_count}.{self.config.record_format}"
        return tuple(f"img_{index:0{width}d}_{suffix}" for index in range(self.file_count))

    @property
    def parameters(self) -> Mapping[str, Any]:
        """All that the bytes of the files depend on, beside the seed."""
        distribution = self.config.distribution()
        return {
            "record_format": self.config.record_format,
            "sizes": self.config.sizes.value,
            "record_mean_bytes": distribution.mean_bytes,
            "record_stdev_bytes": distribution.stdev_bytes,
            "record_minimum_bytes": distribution.minimum_bytes,
            "file_count": self.file_count,
            "target_count": len(self.targets),
        }

    def expected_paths(self) -> tuple[Path, ...]:
        """Return where each file lies or will lie."""
        key = self._key()
        return tuple(
            self.targets[index % len(self.targets)].data_folder / key / name
            for index, name in enumerate(self.names)
        )

    def existing(self) -> list[DataFolder | None]:
        """Return each target's folder where there is one already; makes nothing."""
        key = self._key()
        paths = [target.data_folder.parent for target in self.targets]
        return [
            next((folder for folder in list_folders(path) if folder.key == key), None)
            for path in paths
        ]

    def missing(self, folders: Sequence[DataFolder | None]) -> list[int]:
        """Return the indices of the files that are not there, not in their size, or hollow."""
        absent = set(range(self.file_count)).difference(self._present(folders))
        return sorted(absent.union(self.hollow(folders)))

    def hollow(self, folders: Sequence[DataFolder | None]) -> list[int]:
        """Return the indices of the files that are there, but not all of them on a device.

        Holes and extents that were never written read as zeros at the speed of memory.
        """
        paths = self.expected_paths()
        return [index for index in self._present(folders) if unwritten_bytes(paths[index])]

    def _present(self, folders: Sequence[DataFolder | None]) -> list[int]:
        """Return the indices of the files that are there in their size."""
        present = []
        for index, name in enumerate(self.names):
            folder = folders[index % len(folders)]
            if folder is not None and self._is_there(folder, name, self.file_bytes[index]):
                present.append(index)
        return present

    def _key(self) -> str:
        return str(marker_of(WORKLOAD, self.parameters, self.config.data_seed)["key"])

    @staticmethod
    def _is_there(folder: DataFolder, name: str, size_bytes: int) -> bool:
        entry = folder.entries.get(name)
        return entry is not None and entry.size_bytes == size_bytes and folder.is_valid(name)


class PreparedData:
    """A data set in its folders on this rank; ``hollow_count`` files of it were made again."""

    def __init__(
        self, dataset: Dataset, folders: Sequence[DataFolder], *, hollow_count: int = 0
    ) -> None:
        self.dataset = dataset
        self.hollow_count = hollow_count
        self.folders = folders
        self.paths = tuple(
            folders[index % len(folders)].path / name for index, name in enumerate(dataset.names)
        )

    def digest(self, index: int) -> str | None:
        """Return the SHA-256 of a record's payload as it was written."""
        folder = self.folders[index % len(self.folders)]
        entry = folder.entries.get(self.dataset.names[index])
        return entry.sha256 if entry is not None else None

    def row_digest(self, index: int) -> str:
        """Return the SHA-256 of what a batch must hold of a record: read from its file now.

        Raises ``DataError`` for a file that is no record any more.
        """
        row_bytes = self.dataset.config.row_bytes
        front = self._payload(index)[:row_bytes].tobytes().ljust(row_bytes, b"\0")
        return hashlib.sha256(front).hexdigest()

    def facts(self, *, reused: bool) -> DataFacts:
        """Return what the record keeps of the data; the first target's folder stands for all."""
        return DataFacts(
            key=self.folders[0].key,
            folder=self.folders[0].path,
            file_count=self.dataset.file_count,
            data_bytes=sum(self.dataset.file_bytes),
            reused=reused,
            parameters={**self.dataset.parameters, "data_seed": self.dataset.config.data_seed},
        )

    def verify(self, indices: Sequence[int]) -> None:
        """Read files back and compare their payloads with the manifest.

        Raises ``DataError`` that names the first file that differs.
        """
        for index in indices:
            if hashlib.sha256(self._payload(index).data).hexdigest() != self.digest(index):
                raise DataError(
                    f"{self.paths[index]} was changed after it was written: the SHA-256 of its "
                    "payload is not the manifest's; remove the data with `make clean` to have it "
                    "made again"
                )

    def _payload(self, index: int) -> NDArray[np.uint8]:
        path = self.paths[index]
        raw = np.memmap(path, dtype=np.uint8, mode="r")
        return record_format(self.dataset.config.record_format).payload(raw, str(path))
