"""What a conversion leaves on the target: Parquet and packed files, listed before they exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wattload.core.workload import RunContext
from wattload.loaders.criteo.files import Part
from wattload.loaders.datafolder import DataFolder
from wattload.loaders.datafolder.safefiles import sync_folder

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
        cls, context: RunContext, parameters: Mapping[str, Any], parts: Sequence[Part]
    ) -> Outputs:
        """Take the output folders on all targets and empty them; every rank must call it.

        Rank 0 keeps other runs away until it closes them.

        Raises:
            DataError: a folder is somebody else's, or another run is at work in it.
            TargetError: a target can't be written.
        """
        rank = context.communicator.rank
        if rank == 0:
            folders = _folders(context, parameters)
            for folder in folders:
                folder.lock()
                folder.empty()
        context.communicator.barrier()
        return cls(folders if rank == 0 else _folders(context, parameters), parts)

    @property
    def parquet(self) -> list[Path]:
        """The Parquet file of each part."""
        return self._paths(".parquet")

    @property
    def binary(self) -> list[Path]:
        """The packed file of each part."""
        return self._paths(".bin")

    def begin(self) -> None:
        """Remove what an earlier round left, and list the names of the next."""
        self.remove()
        for folder, name in self._names():
            folder.reserve(name)

    def sync(self) -> None:
        """Make the names durable."""
        for folder in self.folders:
            sync_folder(folder.path)

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
        """Give the manifests' descriptors and the locks back."""
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


def _folders(context: RunContext, parameters: Mapping[str, Any]) -> list[DataFolder]:
    rank = context.communicator.rank
    return [
        DataFolder.claim(target.data_folder.parent, OUTPUT, parameters, seed=0, part=rank)
        for target in context.targets
    ]
