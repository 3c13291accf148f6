"""A data set that is there already, such as one of DLIO's: read in place and never changed.

DLIO (``data_generator/data_generator.py``) writes ``<data folder>/train/img_<number>_of_<count>.
<format>``, with ``num_subfolders_train`` into folders ``0`` to ``k - 1`` below ``train``.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from wattload.core.errors import ConfigError, DataError
from wattload.core.record.run import DataRecord
from wattload.core.storage.file_system import find_mount, read_mounts
from wattload.core.storage.targets import Target
from wattload.core.workload import RunContext
from wattload.loaders.data.data_folder import DataFolder
from wattload.loaders.data.record_formats import FORMATS
from wattload.workloads.training.config import Config
from wattload.workloads.training.dataset import Dataset, PreparedData

_NAME = re.compile(r".+_(?P<number>\d+)_of_(?P<count>\d+)\.(?P<format>\w+)")
_TRAIN = "train"
_READERS = 8
"""Threads that read the headers of files."""


@dataclass(frozen=True)
class SourceDataset(Dataset):
    """The first files of a folder by their numbers; ``sizes`` has their bytes by name, in order.

    The folder has ``whole_count`` files. They are not sealed, so their contents stay unverified.
    """

    source: Path
    sizes: Mapping[str, int]
    whole_count: int

    sealed: ClassVar[bool] = False
    remedy: ClassVar[str] = "generate or copy the folder of workload.source again"

    @cached_property
    def file_bytes(self) -> tuple[int, ...]:
        return tuple(self.sizes.values())

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The path of each file in the folder."""
        return tuple(self.sizes)

    @property
    def parameters(self) -> Mapping[str, Any]:
        return {
            "record_format": self.config.record_format,
            "folder_file_count": self.whole_count,
            "contents": "unverified",
        }

    @cached_property
    def key(self) -> str:
        """A name for these names and sizes, wherever the files are."""
        digest = hashlib.sha256("\n".join(map(str, self.sizes.items())).encode())
        return f"source-{digest.hexdigest()[:8]}"

    @property
    def folder(self) -> Path:
        return self.source

    @property
    def origin(self) -> str:
        """Where the files are from, in words."""
        is_all = self.file_count == self.whole_count
        count = "all" if is_all else f"the first {self.file_count} of"
        kind = f"{self.whole_count} {self.config.record_format} files"
        return f"{count} {kind} of {self.source}, read in place; contents unverified"

    def expected_paths(self) -> tuple[Path, ...]:
        return tuple(self.source / name for name in self.names)

    def missing(self, folders: Sequence[DataFolder | None]) -> list[int]:
        """Return nothing: all files exist."""
        return []


class PreparedSource(PreparedData):
    """A source whose files have been found to be records, each rank its share of a host's."""

    def __init__(self, dataset: SourceDataset, context: RunContext) -> None:
        """Read the header of every file, and compare what it says with the file's size.

        Raises:
            DataError: a file is no record of its format, or the hosts have different files.
        """
        super().__init__(dataset, ())
        sharers, count = context.sharers, dataset.file_count
        own = range(sharers.rank, count, sharers.world_size)
        with ThreadPoolExecutor(_READERS, thread_name_prefix="headers") as threads:
            found = threads.map(lambda index: len(self._payload(index)), own)
            shares = sharers.all_gather(list(found))
        self._payloads = tuple(
            shares[index % len(shares)][index // len(shares)] for index in range(count)
        )
        keys = context.communicator.all_gather(dataset.key)
        if len(set(keys)) > 1:
            raise DataError(
                f"the hosts' files of workload.source={dataset.config.source} have different names "
                "or sizes; copy one of them to the other hosts"
            )

    @property
    def record_bytes(self) -> tuple[int, ...]:
        return self._payloads

    def facts(self, *, reused: bool) -> DataRecord:
        found = super().facts(reused=reused)
        return found.model_copy(update={"parameters": self.dataset.parameters})


def source_dataset(config: Config, source: str, targets: Sequence[Target]) -> SourceDataset:
    """Return the files of a folder that a configuration reads; looks at names and sizes alone.

    Raises:
        ConfigError: the folder can't be read, has another format or fewer files than configured, or
            is on another file system than the targets.
        DataError: the folder has no records, lacks some, or has some of several kinds or a link.
    """
    try:
        folder, found = _records(Path(source).resolve(strict=True))
        record_format = _one_kind(folder, found)
        file_count = config.file_count or len(found)
        states = {entry.path: entry.stat(follow_symlinks=False) for _, entry in found[:file_count]}
    except OSError as error:
        raise ConfigError(
            f"workload.source={source} can't be read: {error.filename}: {error.strerror}"
        ) from error
    if record_format != config.record_format:
        remedy = f"use workload.record_format={record_format}"
        if record_format not in FORMATS:
            remedy = f"supported are {', '.join(sorted(FORMATS))}"
        raise ConfigError(
            f"workload.source={source} has {record_format} files, not {config.record_format}; "
            f"{remedy}"
        )
    if file_count > len(found):
        raise ConfigError(
            f"workload.file_count is {file_count}, and workload.source={source} has {len(found)} "
            f"files; use workload.file_count={len(found)} or fewer, or null for all"
        )
    devices = {target.path.stat().st_dev for target in targets}
    elsewhere = (path for path, state in states.items() if state.st_dev not in devices)
    if path := next(elsewhere, None):
        there, here = (_mount_point(each) for each in (Path(path), targets[0].path))
        raise ConfigError(
            f"workload.source={source} is on the file system at {there} and target.path on the one "
            f"at {here}, whose drive would be measured while another one is read; set target.path "
            "to a folder on the source's file system, or copy the source"
        )
    sizes = {path.removeprefix(f"{folder}/"): state.st_size for path, state in states.items()}
    return SourceDataset(config, file_count, tuple(targets), folder, sizes, len(found))


_Record = tuple[re.Match[str], "os.DirEntry[str]"]


def _records(folder: Path) -> tuple[Path, list[_Record]]:
    """Return the folder of the records, ``train`` if there is one, and these by their numbers."""
    if any(entry.name == _TRAIN and _is_folder(entry) for entry in _entries(folder)):
        folder /= _TRAIN
    entries = list(_entries(folder))
    entries += [each for entry in entries if _is_folder(entry) for each in _entries(entry.path)]
    found = [(match, entry) for entry in entries if (match := _NAME.fullmatch(entry.name))]
    return folder, sorted(found, key=lambda record: int(record[0]["number"]))


def _entries(folder: Path | str) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                raise DataError(
                    f"{entry.path} is a symbolic link to {Path(entry).readlink()}; loaders read "
                    "regular files alone, so copy them into the folder"
                )
            yield entry


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def _one_kind(folder: Path, found: Sequence[_Record]) -> str:
    """Return the format of the files: they are all there, and of one data set."""
    if not found:
        raise DataError(
            f"{folder} has no files that are named as DLIO names them (img_0_of_8.npz); generate "
            "them with DLIO, or leave workload.source out"
        )
    first, entry = found[0]
    for match, other in found:
        if (match["format"], match["count"]) != (first["format"], first["count"]):
            raise DataError(
                f"{folder} has files of several data sets, {entry.name} and {other.name}; keep "
                "each in a folder of its own"
            )
    numbers = [int(match["number"]) for match, _ in found]
    wrong = next((n for n, number in enumerate(numbers) if n != number), len(numbers))
    if len(numbers) != int(first["count"]) or wrong < len(numbers):
        is_twice = wrong < len(numbers) and numbers[wrong] < wrong
        fault = f"{wrong} is missing" if wrong < int(first["count"]) else f"{wrong - 1} is too many"
        fault = f"{numbers[wrong]} is there twice" if is_twice else fault
        raise DataError(
            f"{folder} has {len(numbers)} files of {first['count']} by their names, and number "
            f"{fault}; generate or copy them again"
        )
    return first["format"]


def _mount_point(path: Path) -> str:
    mount = find_mount(path, read_mounts())
    return str(mount.mount_point) if mount is not None else str(path)
