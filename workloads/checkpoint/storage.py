"""The checkpoints of a run on its targets: announced, committed, measured, taken away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from wattload.core.errors import DataError, TargetError
from wattload.core.workload import Communicator, RunContext
from wattload.loaders.checkpoints import LeavesScratch, Saved, ShardFile, ShardStore
from wattload.loaders.coldcache import evict
from wattload.loaders.datafolder import DataFolder
from wattload.loaders.datafolder.safefiles import remove_listed
from wattload.workloads.checkpoint.commit import (
    MANIFEST_NAME,
    commit,
    complete_checkpoints,
    folder_name,
    partial_name,
    read_manifest,
)
from wattload.workloads.checkpoint.job import Job

WORKLOAD = "checkpoint"


class Storage:
    """One rank's view of the data folder on its target.

    All methods but ``commit_own`` are called on every rank. The lowest rank of a target ``leads``
    it: it makes, commits and locks. Every file is announced to the folder's list under both its
    names before it is made, so that whatever an interruption leaves can be removed.
    """

    def __init__(self, job: Job, context: RunContext) -> None:
        self._job = job
        self._world: Communicator = context.communicator
        rank = self._world.rank
        target = context.targets[job.target_of(rank)]
        if target.path is None:
            raise TargetError(f"a {target.kind} target holds no checkpoints; give a directory")
        self.leads = rank < job.target_count
        if self.leads:
            folder = _claim(target.path, rank)
            # What an earlier run left, finished or not, would only take the space.
            folder.lock()
            folder.empty()
        self._world.barrier()
        self._folder = folder if self.leads else _claim(target.path, rank)

    @property
    def path(self) -> Path:
        """The data folder on this rank's target."""
        return self._folder.path

    def announce(self, checkpoint: int, store: ShardStore) -> Path:
        """List this rank's files before they are made; returns the folder to write them into."""
        for name in (*self._own(store), *_scratch(store)):
            self._folder.reserve(f"{partial_name(checkpoint)}/{name}")
            self._folder.reserve(f"{folder_name(checkpoint)}/{name}")
        partial = self._folder.path / partial_name(checkpoint)
        if self.leads:
            partial.mkdir()
        self._world.barrier()
        return partial

    def commit(self, checkpoint: int, nonce: int, saved: Sequence[Saved]) -> None:
        """Return when the checkpoint is complete on every target; ``saved`` is by rank.

        What is not durable yet is made so. Raises ``OSError`` where the kernel refuses.
        """
        if self.leads:
            self.commit_own(checkpoint, nonce, saved)
        self._world.barrier()

    def commit_own(self, checkpoint: int, nonce: int, saved: Sequence[Saved]) -> None:
        """Make the checkpoint complete on the target that this rank leads; waits for no rank."""
        rank = self._world.rank
        commit(
            self._folder.path,
            model=self._job.config.model,
            checkpoint=checkpoint,
            nonce=nonce,
            saved={r: s for r, s in enumerate(saved) if self._job.target_of(r) == rank},
        )

    def adopt(self, checkpoint: int, store: ShardStore) -> int:
        """List this rank's files as finished; returns their bytes on the target."""
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
        """Return the folder of a complete checkpoint."""
        return self._folder.path / folder_name(checkpoint)

    def files_of(self, checkpoint: int, nonce: int) -> Sequence[ShardFile]:
        """Return this rank's files as the manifest on the target lists them, read from there.

        Raises ``DataError`` where the folder is no complete checkpoint, or not the one that this
        run wrote.
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
                f"this is rank {self._world.rank} of run {nonce:016x}, which wrote another: the "
                "target gave back what was not written there"
            )
        return manifest.files[self._world.rank]

    def complete(self) -> list[str]:
        """Return the names of the complete checkpoints on this rank's target, oldest first."""
        return [folder.name for folder in complete_checkpoints(self._folder.path)]

    def take_away(self, checkpoint: int, store: ShardStore) -> None:
        """Remove a checkpoint: the manifest first, so that a half of it never looks whole."""
        if self.leads:
            self._folder.discard(f"{folder_name(checkpoint)}/{MANIFEST_NAME}")
        self._world.barrier()
        for name in store.file_names:
            self._folder.discard(f"{folder_name(checkpoint)}/{name}")
        self._world.barrier()

    def remove(self) -> None:
        """Give all space back."""
        self._world.barrier()
        if self.leads:
            self._folder.remove()
        self._folder.close()
        self._world.barrier()

    def abandon(self) -> None:
        """Give all space back on this rank's target, waiting for no other rank.

        A rank that is still at work may make a file yet: with several ranks the lists stay, so that
        the next run or ``wattload clean`` can remove it. Raises ``OSError`` or ``DataError`` where
        something can't be removed.
        """
        if self._world.world_size == 1:
            self._folder.remove()
            return
        self._folder.reload()
        remove_listed(
            self._folder.path, sorted(self._folder.entries.keys() | self._folder.reserved)
        )
        self._folder.close()

    def _own(self, store: ShardStore) -> Sequence[str]:
        """Return the names of this rank's files, the manifest with them on a leader."""
        return (*store.file_names, MANIFEST_NAME) if self.leads else store.file_names


def _scratch(store: ShardStore) -> Sequence[str]:
    return store.scratch_names if isinstance(store, LeavesScratch) else ()


def _claim(target_path: Path, rank: int) -> DataFolder:
    # One folder for all settings: there is no data to be used again, and at most one run at work.
    parameters: Mapping[str, object] = {}
    return DataFolder.claim(target_path, WORKLOAD, parameters, seed=0, part=rank)
