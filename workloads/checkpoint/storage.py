"""The checkpoints of a run on its targets: reservation, commit, listing and removal.

Ranks write into ``checkpoint-000007.partial``. When all their files are durable, the leader adds
``manifest.json`` with the size of each file and fsyncs it and the folder. It then
renames the folder to ``checkpoint-000007`` and fsyncs the parent folder. An interruption at any
point leaves either the temporary name or a complete checkpoint. Removal starts with the manifest.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from wattload.core.errors import DataError
from wattload.core.files import read_bounded
from wattload.core.io import BlockIdentity
from wattload.core.workload import Communicator, RunContext
from wattload.loaders.checkpoint_store import LeavesScratch, Saved, ShardFile, ShardStore
from wattload.loaders.data.cold_cache import evict
from wattload.loaders.data.data_folder import DataFolder, open_data_folder
from wattload.workloads.checkpoint.config import Job

WORKLOAD = "checkpoint"
_LONGEST_BYTES = 256 << 20
MANIFEST_NAME = "manifest.json"
PARTIAL_SUFFIX = ".partial"
_PREFIX = "checkpoint-"
_FORMAT = 2


class Storage:
    """One rank's view of the data folder on its target.

    Every rank calls all methods except ``commit_own``. The lowest rank of a target ``leads`` it: it
    creates and commits, and its manifest has the files of the ranks that write there. Every file is
    reserved in the folder's manifest under both its names before it is created, so the files of an
    interrupted run can be removed.
    """

    def __init__(self, job: Job, context: RunContext) -> None:
        self._job = job
        self._world: Communicator = context.communicator
        self._sharers: Communicator = context.sharers
        rank, part = self._world.rank, self._sharers.rank
        target = context.targets[job.target_of(rank)]
        self._own_ranks = [
            other for other in job.sharers if job.target_of(other) == job.target_of(rank)
        ]
        self.leads = rank == self._own_ranks[0]
        if self.leads:
            folder = _claim(target.path, part)
            # Files of an earlier run, complete or not, would only take up space.
            folder.empty()
        self._sharers.barrier()
        self._folder = folder if self.leads else _claim(target.path, part)

    @property
    def path(self) -> Path:
        return self._folder.path

    def announce(self, checkpoint: int, store: ShardStore) -> Path:
        """Reserve the names of this rank's files; return the folder to write them into."""
        for name in (*self._own(store), *_scratch(store)):
            self._folder.reserve(f"{partial_name(checkpoint)}/{name}")
            self._folder.reserve(f"{folder_name(checkpoint)}/{name}")
        if self.leads:
            with self._folder.open() as folder:
                folder.make(partial_name(checkpoint)).close()
        self._sharers.barrier()
        return self._folder.path / partial_name(checkpoint)

    def commit(self, checkpoint: int, nonce: int, saved: Sequence[Saved]) -> None:
        """Complete the checkpoint on every target; ``saved`` is by rank.

        Everything is durable on return. Raises ``OSError`` for errors of the kernel.
        """
        if self.leads:
            self.commit_own(checkpoint, nonce, saved)
        self._world.barrier()

    def commit_own(self, checkpoint: int, nonce: int, saved: Sequence[Saved]) -> None:
        """Complete the checkpoint on this leader's target, without waiting for other ranks."""
        commit_checkpoint(
            self._folder.path,
            model=self._job.config.model,
            checkpoint=checkpoint,
            nonce=nonce,
            saved={rank: saved[rank] for rank in self._own_ranks},
        )

    def adopt(self, checkpoint: int, store: ShardStore) -> int:
        """List this rank's files as finished; return their size on the target in bytes."""
        total_bytes = 0
        for name in _scratch(store):
            self._folder.discard(f"{partial_name(checkpoint)}/{name}")
            self._folder.discard(f"{folder_name(checkpoint)}/{name}")
        for name in self._own(store):
            self._folder.discard(f"{partial_name(checkpoint)}/{name}")
            size_bytes = (self._folder.path / folder_name(checkpoint) / name).lstat().st_size
            self._folder.record(f"{folder_name(checkpoint)}/{name}", size_bytes, None)
            total_bytes += size_bytes if name != MANIFEST_NAME else 0
        return total_bytes

    def folder(self, checkpoint: int) -> Path:
        return self._folder.path / folder_name(checkpoint)

    def files_of(self, checkpoint: int, nonce: int) -> Sequence[ShardFile]:
        """Return this rank's files from the manifest on the target.

        Raises ``DataError`` if the folder is not a complete checkpoint, or not one of this run.
        """
        folder = self.folder(checkpoint)
        evict([folder / MANIFEST_NAME])
        manifest = read_manifest(folder)
        own = (self._job.config.model, checkpoint, nonce)
        found = (manifest.model, manifest.checkpoint, manifest.nonce)
        if found != own or self._world.rank not in manifest.files:
            raise DataError(
                f"{folder / MANIFEST_NAME} describes checkpoint {manifest.checkpoint} of "
                f"{manifest.model}, run {manifest.nonce:016x}, with ranks {list(manifest.files)}; "
                f"expected checkpoint {checkpoint} of run {nonce:016x} with rank "
                f"{self._world.rank}: the target returned other data than was written"
            )
        return manifest.files[self._world.rank]

    def complete(self) -> list[str]:
        """Return the names of the complete checkpoints on this rank's target, oldest first."""
        return [folder.name for folder in complete_checkpoints(self._folder.path)]

    def remove_checkpoint(self, checkpoint: int, store: ShardStore) -> None:
        """Remove a checkpoint, manifest first, so that a partial one never looks complete."""
        if self.leads:
            self._folder.discard(f"{folder_name(checkpoint)}/{MANIFEST_NAME}")
        self._sharers.barrier()
        for name in store.file_names:
            self._folder.discard(f"{folder_name(checkpoint)}/{name}")
        self._sharers.barrier()

    def remove(self) -> None:
        self._folder.close()
        self._sharers.barrier()
        if self.leads:
            self._folder.remove()
        self._sharers.barrier()

    def abandon(self) -> None:
        """Delete the files on this rank's target without waiting for other ranks.

        Another rank may still create a file there. If there is one, the manifests therefore stay,
        so that the next run or ``wattload clean`` can remove it. Raises ``OSError`` or
        ``DataError`` if a file can't be removed.
        """
        self._folder.close()
        if self._sharers.world_size == 1:
            self._folder.remove()
            return
        self._folder.reload()
        self._folder.remove_files()

    def _own(self, store: ShardStore) -> Sequence[str]:
        """Return the names of this rank's files, including the manifest on a leader."""
        return (*store.file_names, MANIFEST_NAME) if self.leads else store.file_names


def _scratch(store: ShardStore) -> Sequence[str]:
    return store.scratch_names if isinstance(store, LeavesScratch) else ()


def _claim(target_path: Path, part: int) -> DataFolder:
    # One folder for all settings: no data is reused, and only one run at a time writes there.
    parameters: Mapping[str, object] = {}
    return DataFolder.claim(target_path, WORKLOAD, parameters, seed=0, part=part)


def block_identity(nonce: int, *, rank: int, checkpoint: int) -> BlockIdentity:
    """Return the identity of one rank's blocks in one checkpoint; both numbers are below 2^32."""
    return BlockIdentity(nonce, rank << 32 | checkpoint)


def folder_name(checkpoint: int) -> str:
    return f"{_PREFIX}{checkpoint:06d}"


def partial_name(checkpoint: int) -> str:
    """Return the folder name of a checkpoint that is being written."""
    return folder_name(checkpoint) + PARTIAL_SUFFIX


def commit_checkpoint(
    parent: Path, *, model: str, checkpoint: int, nonce: int, saved: Mapping[int, Saved]
) -> Manifest:
    """Turn the durable files in the partial folder into a complete checkpoint.

    Raises:
        DataError: a file that a rank reported as saved is missing.
        OSError: an error of the kernel.
    """
    files = {rank: item.files for rank, item in sorted(saved.items())}
    with ExitStack() as opened:
        above = opened.enter_context(open_data_folder(parent))
        partial = opened.enter_context(above.enter(partial_name(checkpoint)))
        manifest = Manifest(
            model=model,
            checkpoint=checkpoint,
            nonce=nonce,
            files=files,
            file_bytes={
                file.name: _size(partial.path / file.name) for own in files.values() for file in own
            },
        )
        with os.fdopen(partial.create(MANIFEST_NAME), "w", encoding="utf-8") as file:
            file.write(_to_text(manifest))
            file.flush()
            os.fsync(file.fileno())
        partial.sync()
        above.rename(partial_name(checkpoint), folder_name(checkpoint))
        above.sync()
    return manifest


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a complete checkpoint.

    Raises ``DataError`` if the folder is partial, has no manifest or an incomplete or edited one,
    or if the size of a file differs from the manifest.
    """
    if folder.name.endswith(PARTIAL_SUFFIX):
        raise DataError(f"{folder} is not a complete checkpoint: it was never finished")
    manifest = _from_text(folder)
    for name, size_bytes in manifest.file_bytes.items():
        found_bytes = _size(folder / name)
        if found_bytes != size_bytes:
            raise DataError(
                f"{folder} is not a complete checkpoint: {name} has {found_bytes} bytes, its "
                f"manifest has {size_bytes}"
            )
    return manifest


def complete_checkpoints(parent: Path) -> list[Path]:
    """Return the folders below ``parent`` that are complete checkpoints, oldest first."""
    found = []
    for folder in sorted(parent.glob(f"{_PREFIX}*")):
        try:
            read_manifest(folder)
        except DataError:
            continue
        found.append(folder)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The manifest of a complete checkpoint; ``files`` is by rank, ``file_bytes`` by name."""

    model: str
    checkpoint: int
    nonce: int
    files: Mapping[int, Sequence[ShardFile]]
    file_bytes: Mapping[str, int]

    def identity(self, rank: int) -> BlockIdentity:
        """Return the identity in the stamps of a rank's blocks."""
        return block_identity(self.nonce, rank=rank, checkpoint=self.checkpoint)


def _to_text(manifest: Manifest) -> str:
    """Return the manifest as JSON with the SHA-256 of its body; the nonce in hex."""
    body = {
        "format": _FORMAT,
        "model": manifest.model,
        "checkpoint": manifest.checkpoint,
        "nonce": f"{manifest.nonce:016x}",
        "file_bytes": dict(manifest.file_bytes),
        "files": {
            str(rank): [asdict(file) for file in files] for rank, files in manifest.files.items()
        },
    }
    return json.dumps({"sha256": _digest(body), "body": body}, indent=1)


def _from_text(folder: Path) -> Manifest:
    try:
        body = _body(read_bounded(folder / MANIFEST_NAME, _LONGEST_BYTES))
        return Manifest(
            model=body["model"],
            checkpoint=body["checkpoint"],
            nonce=int(body["nonce"], 16),
            file_bytes=body["file_bytes"],
            files={
                int(rank): [ShardFile(**file) for file in own]
                for rank, own in body["files"].items()
            },
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder} is not a complete checkpoint: {error}") from error


def _body(text: bytes) -> dict[str, Any]:
    """Return the body of a manifest; raises ``ValueError`` if it was changed."""
    document = from_json(text)
    body: dict[str, Any] = document["body"]
    if document["sha256"] != _digest(body) or body["format"] != _FORMAT:
        raise ValueError("its manifest is incomplete, edited, or has another format")
    return body


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError as error:
        raise DataError(f"{path} is part of the checkpoint but does not exist") from error
