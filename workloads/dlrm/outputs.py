"""What a conversion leaves on the target: Parquet and packed files, listed before they exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wattload.core.target import Target
from wattload.loaders.criteo.files import Part, fsync_folder
from wattload.loaders.datafolder import DataFolder

OUTPUT = "dlrm-output"


class Outputs:
    """The output files of a rank's parts; part i of the rank lies on target i modulo their number.

    Every name is in the folder's manifest before the file is made, so that whatever a killed run
    leaves is found by ``clean``.
    """

    def __init__(self, folders: Sequence[DataFolder], parts: Sequence[Part]) -> None:
        self.folders = folders
        self._places = [
            (folders[index % len(folders)], part.name) for index, part in enumerate(parts)
        ]

    @classmethod
    def claim(
        cls,
        targets: Sequence[Target],
        parameters: Mapping[str, Any],
        parts: Sequence[Part],
        *,
        rank: int,
    ) -> Outputs:
        """Open the output folders on all targets; raises as ``DataFolder.claim`` does."""
        paths = [target.data_folder.parent for target in targets]
        folders = [DataFolder.claim(path, OUTPUT, parameters, seed=0, part=rank) for path in paths]
        return cls(folders, parts)

    @property
    def parquet(self) -> list[Path]:
        """The Parquet file of each part."""
        return self._paths(".parquet")

    @property
    def binary(self) -> list[Path]:
        """The packed file of each part."""
        return self._paths(".bin")

    def begin(self) -> None:
        """Remove what an earlier round or run left, and list the names of the next."""
        self.remove()
        for folder, name in self._names():
            folder.reserve(name)

    def sync(self) -> None:
        """Make the names durable."""
        for folder in self.folders:
            fsync_folder(folder.path)

    def keep(self) -> None:
        """List the files as finished: they stay until the target is cleaned."""
        for folder, name in self._names():
            folder.record(name, (folder.path / name).stat().st_size, None)

    def remove(self) -> None:
        """Remove this rank's files."""
        for folder, name in self._names():
            if name in folder.entries or name in folder.reserved:
                folder.discard(name)

    def close(self) -> None:
        """Give the manifests' descriptors back."""
        for folder in self.folders:
            folder.close()

    def _paths(self, suffix: str) -> list[Path]:
        return [folder.path / (name + suffix) for folder, name in self._places]

    def _names(self) -> list[tuple[DataFolder, str]]:
        return [
            (folder, name + suffix)
            for folder, name in self._places
            for suffix in (".parquet", ".bin")
        ]
