"""The files that are read: one on each target or for each thread, with a stamp per 512 bytes.

A file belongs to its target alone, so that runs on one target and on several, with few threads and
with many, read the same files. The word in its stamps is drawn when it is written, and noted in the
manifest.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Sequence

from wattload.core.errors import TargetError
from wattload.core.io import Stamps
from wattload.core.storage.targets import Target
from wattload.core.units import MIB
from wattload.loaders.aligned_io import round_down
from wattload.loaders.data.data_folder import DataFolder, existing_on_targets
from wattload.loaders.data.stamped_files import (
    StampedFile,
    StampedFiles,
    key_of,
    nonce_of,
    noted_stamps,
    unfinished_bytes,
)
from wattload.workloads.gpu_read.config import UNIT_BYTES, Config, Files

WORKLOAD = "gpu_read"
FREE_SHARE = 0.05
"""A file that fills its file system leaves this share of it free, as every run has to."""


def dataset_of(config: Config, targets: Sequence[Target]) -> StampedFiles:
    """Return the files, as they exist or as they will be written; file i is on target i in turn.

    Raises:
        DataError: a file has stamps of another version.
        TargetError: a file that fills its file system has no room there.
    """
    parameters = {"file_bytes": config.file_bytes or "fill", "unit_bytes": UNIT_BYTES}
    key = key_of(WORKLOAD, parameters)
    folders = existing_on_targets(targets, key)
    size_bytes = config.file_bytes or _filling_bytes(targets, folders)
    count = config.threads if config.files is Files.per_thread else len(targets)
    files = []
    for number in range(count):
        place, index = divmod(number, len(targets))
        folder, name = folders[index], f"blocks_{place}.bin"
        stamps = None if folder is None else noted_stamps(folder, name, UNIT_BYTES)
        files.append(
            StampedFile(
                target=targets[index],
                key=key,
                name=name,
                size_bytes=_size_in(folder, name) or size_bytes,
                stamps=stamps or Stamps(nonce_of(key), secrets.randbits(63), 0, UNIT_BYTES),
                notes_stamps=True,
            )
        )
    return StampedFiles(WORKLOAD, parameters, tuple(files))


def unfinished(dataset: StampedFiles) -> int:
    """Return the space that interrupted files take, which the next preparation takes over."""
    return sum(map(unfinished_bytes, existing_on_targets(dataset.targets, dataset.key)))


def part_of(dataset: StampedFiles, rank: int, world_size: int) -> StampedFiles:
    """Return the files of the targets ``rank``, ``rank + world_size`` and so on."""
    targets = {target.index for target in dataset.targets[rank::world_size]}
    own = tuple(file for file in dataset.files if file.target.index in targets)
    return StampedFiles(dataset.workload, dataset.parameters, own)


def _size_in(folder: DataFolder | None, name: str = "blocks_0.bin") -> int | None:
    entry = None if folder is None else folder.entries.get(name)
    return None if entry is None else entry.size_bytes


def _filling_bytes(targets: Sequence[Target], folders: Sequence[DataFolder | None]) -> int:
    """Return the size of new files, the same on each target: the smallest that fits everywhere."""
    sizes = []
    users = Counter(target.data_folder.parent.stat().st_dev for target in targets)
    for target, folder in zip(targets, folders, strict=True):
        place = target.data_folder.parent
        status = os.statvfs(place)
        free_bytes = status.f_bavail * status.f_frsize + unfinished_bytes(folder)
        free_bytes -= int(FREE_SHARE * status.f_blocks * status.f_frsize)
        fitting = round_down(max(free_bytes, 0) // users[place.stat().st_dev], MIB)
        size_bytes = _size_in(folder) or fitting
        if not size_bytes:
            raise TargetError(
                f"{target.path} has no room for a file that leaves 5 % of the file system free; "
                "free some space, or set workload.file_bytes"
            )
        sizes.append(size_bytes)
    return min(sizes)
