"""The drive tier: blocks in files, and the plans that store and restore them.

``Tier`` is what a server needs of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from wattload.core.files import Folder, naming
from wattload.core.io import (
    KEPT_PAGES,
    Allocation,
    DataPath,
    Extent,
    IOKind,
    IOOrder,
    IOPlan,
    Stamps,
)
from wattload.loaders.block_transfers import BlockTransfers, Transfer, TransferLimits
from wattload.loaders.data.data_folder import DataFolder
from wattload.results.kv_cache.facts import Layout
from wattload.workloads.kv_cache.geometry import PIECE_BITS, Geometry

Placed = tuple[int, int]
"""A block and its slot."""

PARTIAL = ".partial"
_BLOCKS = "blocks"


class Tier(Protocol):
    """Where blocks are stored and restored."""

    @property
    def signal(self) -> int | None:
        """A descriptor that becomes readable when a transfer has ended, if any is made."""
        ...

    def restore(self, blocks: Sequence[Placed]) -> Sequence[tuple[Transfer, int]]:
        """Begin to read blocks; return the transfers, and the bytes of each.

        In layers, the first of two transfers is that of the first layer. Without any, the blocks
        are there at once.
        """
        ...

    def store(self, block: Placed) -> Transfer | None:
        """Begin to write a block, under a temporary name where it has files of its own."""
        ...

    def commit(self, block: Placed) -> int:
        """Give a block's durable files their names; return how many."""
        ...

    def delete(self, blocks: Iterable[Placed], *, unfinished: bool = False) -> None:
        """Unlink the files of blocks, where they have files of their own.

        Those of an ``unfinished`` store have their names or temporary ones.
        """
        ...

    def share_target(self, slot: int, other: int) -> bool:
        """Return whether two slots are on the same file system."""
        ...

    def sync(self) -> int:
        """Make all files and names durable; return the files that were synced for it."""
        ...


class DriveTier:
    """Files on targets: slot s is on target s modulo their number.

    In ``block_file`` slot s has the files ``<s>-<rank>.kv``. In ``layer`` piece p of each block is
    in ``<p>.kv``, at slot x the size of a piece; these files are preallocated.
    """

    def __init__(
        self,
        folders: Sequence[DataFolder],
        geometry: Geometry,
        capacity: int,
        transfers: BlockTransfers,
        limits: TransferLimits,
        *,
        nonce: int,
        seed: int,
    ) -> None:
        """Reserve the names of all files, and create those of the layout ``layer``.

        Raises:
            OSError: the target is full, or can't be written.
        """
        self._geometry, self._transfers, self._limits = geometry, transfers, limits
        self._nonce, self._seed = nonce, seed
        self._opened = ExitStack()
        self._folders: list[Folder] = []
        slots = -(-capacity // len(folders))
        for folder in folders:
            folder.reserve(*(f"{_BLOCKS}/{name}" for name in self._all_names(slots)))
            with folder.open() as above:
                self._folders.append(self._opened.enter_context(above.make(_BLOCKS)))
        self._layers: list[list[Path]] = []
        if geometry.layout is Layout.layer:
            names = [_layer_name(piece) for piece in range(geometry.pieces)]
            self._layers = [[folder.path / name for name in names] for folder in self._folders]
            self._preallocate(slots * geometry.moved_piece_bytes)

    @property
    def signal(self) -> int | None:
        return self._transfers.signal

    def restore(self, blocks: Sequence[Placed]) -> Sequence[tuple[Transfer, int]]:
        """Begin to read blocks, in layers the first layer of all of them first."""
        first, pieces = self._geometry.first_layer_pieces, self._geometry.pieces
        parts = [range(first), *([range(first, pieces)] if first < pieces else [])]
        size_bytes = len(blocks) * self._geometry.moved_piece_bytes
        return [(self._read(blocks, part), len(part) * size_bytes) for part in parts]

    def read_whole(self, blocks: Sequence[Placed]) -> Transfer:
        """Begin to read blocks, and compare all their bytes."""
        return self._read(blocks, range(self._geometry.pieces), sampled=False)

    def store(self, block: Placed) -> Transfer:
        is_file = self._geometry.layout is Layout.block_file
        pieces = range(self._geometry.pieces)
        return self._transfers.submit(
            IOPlan(
                kind=IOKind.WRITE,
                extents=[self._extent(block, p, PARTIAL if is_file else "") for p in pieces],
                words=[_word(block, p) for p in pieces],
                block_bytes=self._limits.request_bytes,
                depth=self._limits.queue_depth,
                fsync=is_file,
                allocation=Allocation.PREALLOCATED if is_file else Allocation.OVERWRITE,
                stamps=Stamps(self._nonce, 0),
            )
        )

    def commit(self, block: Placed) -> int:
        if self._geometry.layout is Layout.layer:
            return 0
        folder, names = self._files(block)
        for name in names:
            folder.rename(name + PARTIAL, name)
        return len(names)

    def delete(self, blocks: Iterable[Placed], *, unfinished: bool = False) -> None:
        if self._geometry.layout is Layout.layer:
            return
        for block in blocks:
            folder, names = self._files(block)
            folder.remove(*names, *(name + PARTIAL for name in names if unfinished))

    def share_target(self, slot: int, other: int) -> bool:
        return slot % len(self._folders) == other % len(self._folders)

    @contextmanager
    def moving_by(self, transfers: BlockTransfers) -> Iterator[None]:
        """Let other transfers take the place of these, such as some that use no drive."""
        own, self._transfers = self._transfers, transfers
        try:
            yield
        finally:
            self._transfers = own

    def sync(self) -> int:
        """Sync the folders, and the files of the layout ``layer``, which no store syncs."""
        synced = 0
        for folder in self._folders:
            if self._geometry.layout is Layout.layer:
                for piece in range(self._geometry.pieces):
                    descriptor = folder.update(_layer_name(piece))
                    try:
                        with naming(folder.path / _layer_name(piece)):
                            os.fsync(descriptor)
                    finally:
                        os.close(descriptor)
                    synced += 1
            folder.sync()
        return synced

    def random_reads(self, blocks: Sequence[Placed], size_bytes: int, seconds: float) -> IOPlan:
        """Return the plan of reads at random from these blocks, which compares nothing."""
        return IOPlan(
            kind=IOKind.READ,
            extents=[self._extent(b, p) for b in blocks for p in range(self._geometry.pieces)],
            block_bytes=size_bytes,
            depth=self._limits.queue_depth,
            order=IOOrder.RANDOM,
            duration_s=seconds,
            seed=self._seed,
        )

    def path(self) -> DataPath:
        """Return the path of the bytes; a server that reads through the page cache keeps it."""
        path = self._transfers.path()
        is_direct = path.path_requested == "o_direct"
        return path if is_direct else path.model_copy(update={"path_requested": KEPT_PAGES})

    def paths(self, blocks: Iterable[Placed]) -> list[Path]:
        """Return the files of blocks, each once."""
        pieces = range(self._geometry.pieces)
        return list(dict.fromkeys(self._extent(b, p).path for b in blocks for p in pieces))

    def close(self) -> None:
        self._transfers.close()
        self._opened.close()

    def _read(self, blocks: Sequence[Placed], pieces: range, *, sampled: bool = True) -> Transfer:
        if self._geometry.layout is Layout.layer:  # layer by layer, as they are computed
            order = [(block, piece) for piece in pieces for block in blocks]
        else:
            order = [(block, piece) for block in blocks for piece in pieces]
        return self._transfers.submit(
            IOPlan(
                kind=IOKind.READ,
                extents=[self._extent(block, piece) for block, piece in order],
                words=[_word(block, piece) for block, piece in order],
                block_bytes=self._limits.request_bytes,
                depth=self._limits.queue_depth,
                stamps=Stamps(self._nonce, 0),
                sampled=sampled,
                seed=self._seed,
            )
        )

    def _extent(self, block: Placed, piece: int, suffix: str = "") -> Extent:
        slot, target = divmod(block[1], len(self._folders))
        size_bytes = self._geometry.moved_piece_bytes
        if self._layers:  # the same paths again: there may be thousands of pieces
            return Extent(self._layers[target][piece], slot * size_bytes, size_bytes)
        name = _file_name(slot, piece) + suffix
        return Extent(self._folders[target].path / name, 0, size_bytes)

    def _files(self, block: Placed) -> tuple[Folder, list[str]]:
        slot, target = divmod(block[1], len(self._folders))
        names = [_file_name(slot, piece) for piece in range(self._geometry.pieces)]
        return self._folders[target], names

    def _all_names(self, slots: int) -> Iterable[str]:
        pieces = range(self._geometry.pieces)
        if self._geometry.layout is Layout.layer:
            return [_layer_name(piece) for piece in pieces]
        names = [_file_name(slot, piece) for slot in range(slots) for piece in pieces]
        return [*names, *(name + PARTIAL for name in names)]

    def _preallocate(self, size_bytes: int) -> None:
        for folder in self._folders:
            for piece in range(self._geometry.pieces):
                name = _layer_name(piece)
                descriptor = folder.create(name)
                try:
                    with naming(folder.path / name):
                        os.posix_fallocate(descriptor, 0, size_bytes)
                finally:
                    os.close(descriptor)


def _file_name(slot: int, rank: int) -> str:
    return f"{slot:07d}-{rank:02d}.kv"


def _layer_name(piece: int) -> str:
    return f"{piece:05d}.kv"


def _word(block: Placed, piece: int) -> int:
    return block[0] << PIECE_BITS | piece
