"""What every loader that moves blocks does alike, on real files: contents, counts, order, ends."""

from __future__ import annotations

import errno
import os
import select
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import tinyfs
from tests.context import directory_target
from tests.contracts.engine import open_descriptors
from tests.stamped import bad_blocks, sampled_blocks
from wattload.core.errors import DataError
from wattload.core.io import Allocation, BlockIdentity, Extent, IOKind, IOPlan, Stamps
from wattload.loaders.block_transfers import (
    BlockTransferConfig,
    BlockTransfers,
    TransferLimits,
)

UNIT = 4096
LIMITS = TransferLimits(request_bytes=64 << 10, queue_depth=4, largest_bytes=1 << 20)
STAMPS = Stamps(nonce=0xFEDC_BA98_7654_3210, word=0, first_block=3)
SIZE = 9 * LIMITS.request_bytes + 3 * UNIT + 100
"""No multiple of a unit, as of a model whose tokens have an odd number of bytes."""
UNITS = -(-SIZE // UNIT)


def words(count: int) -> list[int]:
    """Return words that use all bits."""
    return [(1 << 63) + 977 * number for number in range(count)]


def block_files(folder: Path, count: int, size: int = SIZE) -> list[Extent]:
    """Return extents that are a file each."""
    return [Extent(folder / f"block-{number}", 0, size) for number in range(count)]


def store(extents: Sequence[Extent], **changes: Any) -> IOPlan:
    """Return a plan that writes durably, with a word for each extent."""
    values: dict[str, Any] = {
        "kind": IOKind.WRITE, "extents": extents, "block_bytes": LIMITS.request_bytes,
        "depth": LIMITS.queue_depth, "fsync": True, "stamps": STAMPS, "words": words(len(extents)),
    } | changes  # fmt: skip
    return IOPlan(**values)


def restore(stored: IOPlan, *, sampled: bool = True, seed: int = 5) -> IOPlan:
    """Return the plan that reads what another one writes."""
    return replace(stored, kind=IOKind.READ, fsync=False, sampled=sampled, seed=seed)


def long_store(folder: Path) -> IOPlan:
    """Return a plan that takes a while: each file is synced."""
    return store(block_files(folder, 2000, UNIT))


def change(path: Path, unit: int, content: bytes) -> None:
    """Replace a unit of a file."""
    with path.open("r+b") as file:
        file.seek(unit * UNIT)
        file.write(content)
        os.fsync(file.fileno())


class BlockTransfersContract(ABC):
    @abstractmethod
    def config(self) -> BlockTransferConfig:
        """Return the loader's configuration."""

    @abstractmethod
    def operations(self, size: int) -> int:
        """Return the operations that move one extent."""

    def make(self, folder: Path) -> BlockTransfers:
        config, target = self.config(), directory_target(folder)
        config.check_block_transfers(LIMITS, [target])
        return config.block_transfers(LIMITS, [target], seed=7)

    @pytest.fixture
    def transfers(self, tmp_path: Path) -> Iterator[BlockTransfers]:
        transfers = self.make(tmp_path)
        yield transfers
        transfers.close()

    def test_it_is_a_loader_of_blocks(self) -> None:
        config = self.config()
        assert isinstance(config, BlockTransferConfig)
        assert config.block_transfer_bytes(LIMITS) >= LIMITS.request_bytes

    def test_blocks_are_stored_and_restored_with_words_of_their_own(
        self, transfers: BlockTransfers, tmp_path: Path
    ) -> None:
        plan = store(block_files(tmp_path, 5))
        before_ns = time.monotonic_ns()
        stored = transfers.submit(plan).result()
        for extent, word in zip(plan.extents, words(5), strict=True):
            content = np.frombuffer(extent.path.read_bytes(), dtype=np.uint8)
            assert content.size == SIZE
            assert bad_blocks(content, BlockIdentity(STAMPS.nonce, word), first=3) == 0
        sampled = transfers.submit(restore(plan)).result()
        whole = transfers.submit(restore(plan, sampled=False)).result()
        for result in (stored, sampled, whole):
            assert (result.moved_bytes, result.bad_blocks) == (5 * SIZE, 0)
            assert result.operation_count == 5 * self.operations(SIZE)
            assert result.latency is not None
            assert result.latency.count == result.operation_count
            assert before_ns <= result.start_ns < result.end_ns <= time.monotonic_ns()
            assert result.latency.sum_ns > 0
            assert (result.latency.maximum_ns or 0) <= result.end_ns - result.start_ns
            assert result.cpu_s > 0
            before_ns = result.end_ns
        ends = 2 * UNIT + SIZE % UNIT
        assert [result.compared_bytes for result in (stored, sampled, whole)] == [
            0, 5 * ends, 5 * SIZE,
        ]  # fmt: skip
        assert [result.synced_files for result in (stored, sampled, whole)] == [5, 0, 0]
        assert transfers.submit(replace(plan, fsync=False)).result().synced_files == 0

    @pytest.mark.parametrize("size", [100, UNIT, UNIT + 100, 3 * UNIT])
    def test_small_extents_are_compared_whole(
        self, transfers: BlockTransfers, tmp_path: Path, size: int
    ) -> None:
        plan = store(block_files(tmp_path, 2, size))
        transfers.submit(plan).result()
        result = transfers.submit(restore(plan)).result()
        assert (result.compared_bytes, result.bad_blocks) == (2 * size, 0)

    def test_another_block_in_a_blocks_place_is_found(
        self, transfers: BlockTransfers, tmp_path: Path
    ) -> None:
        plan = store(block_files(tmp_path, 3))
        transfers.submit(plan).result()
        first, second, _ = (extent.path for extent in plan.extents)
        first.rename(tmp_path / "aside")
        second.rename(first)
        (tmp_path / "aside").rename(second)
        assert transfers.submit(restore(plan)).result().bad_blocks == 2 * 3
        assert transfers.submit(restore(plan, sampled=False)).result().bad_blocks == 2 * UNITS

    def test_a_torn_unit_is_found_where_it_is_sampled_and_always_by_the_whole_comparison(
        self, transfers: BlockTransfers, tmp_path: Path
    ) -> None:
        plan = store(block_files(tmp_path, 2))
        transfers.submit(plan).result()
        path, word = plan.extents[1].path, words(2)[1]
        content = path.read_bytes()
        seeds = range(5, 8)
        drawn = {seed: sampled_blocks(SIZE, seed, word)[1] for seed in seeds}
        assert len(set(drawn.values())) > 1
        for unit in (0, *drawn.values(), UNITS - 1):
            whole_unit = content[unit * UNIT : (unit + 1) * UNIT]
            change(path, unit, bytes(len(whole_unit)))
            found = [transfers.submit(restore(plan, seed=seed)).result() for seed in seeds]
            is_sampled = [unit in (0, drawn[seed], UNITS - 1) for seed in seeds]
            assert [result.bad_blocks for result in found] == is_sampled
            assert transfers.submit(restore(plan, sampled=False)).result().bad_blocks == 1
            change(path, unit, whole_unit)

    def test_what_is_stored_after_bad_restores_does_not_compress(
        self, transfers: BlockTransfers, tmp_path: Path
    ) -> None:
        plan = store(block_files(tmp_path, 4))
        for extent in plan.extents:
            extent.path.write_bytes(bytes(SIZE))
        assert transfers.submit(restore(plan)).result().bad_blocks == 4 * 3
        transfers.submit(plan).result()
        content = plan.extents[0].path.read_bytes()
        assert len(zlib.compress(content, 1)) > 0.99 * len(content)

    def test_blocks_in_layers_are_pieces_of_files_that_exist(
        self, transfers: BlockTransfers, tmp_path: Path
    ) -> None:
        """A block is a piece of each of 40 files; its neighbours are stored meanwhile and stay."""
        files, piece, room = [tmp_path / f"layer-{n}" for n in range(40)], 2 * UNIT, 8
        for path in files:
            path.write_bytes(bytes(room * piece))
        plans = []
        for block in range(room - 1):
            pieces = [Extent(path, block * piece, piece) for path in files]
            own = [block << 16 | number for number in range(len(files))]
            plans.append(store(pieces, words=own, allocation=Allocation.OVERWRITE))
        writes = [transfers.submit(plan) for plan in plans]
        for result in [write.result() for write in writes]:
            assert (result.moved_bytes, result.synced_files) == (40 * piece, 40)
        more = transfers.submit(plans[-1])
        reads = [transfers.submit(restore(plan)) for plan in plans[:-1]]
        for read in reads:
            result = read.result()
            assert (result.bad_blocks, result.compared_bytes) == (0, 40 * piece)
        more.result()
        for path in files:
            assert path.read_bytes()[-piece:] == bytes(piece)
            assert path.stat().st_size == room * piece

    def test_transfers_of_a_kind_begin_in_the_order_of_their_submission(
        self, transfers: BlockTransfers, tmp_path: Path
    ) -> None:
        plans = [store([extent]) for extent in block_files(tmp_path, 8)]
        for own in (plans, [restore(plan) for plan in plans]):
            under_way = [transfers.submit(plan) for plan in own]
            starts = [transfer.result().start_ns for transfer in under_way]
            assert all(before <= after for before, after in pairwise(starts))

    def test_each_transfer_that_ends_is_signalled(
        self, transfers: BlockTransfers, tmp_path: Path
    ) -> None:
        plan = store(block_files(tmp_path, 3))
        missing = restore(store(block_files(tmp_path / "none", 2)))
        under_way = [transfers.submit(plan), transfers.submit(missing), transfers.submit(plan)]
        ended = 0
        while ended < 3:
            assert select.select([transfers.signal], [], [], 60)[0]
            ended += os.eventfd_read(transfers.signal)
            assert sum(transfer.wait(0) for transfer in under_way) >= ended
        assert not select.select([transfers.signal], [], [], 0)[0]
        assert under_way[0].progress() == (3 * SIZE, 3 * self.operations(SIZE))
        with pytest.raises(FileNotFoundError) as caught:
            under_way[1].result()
        assert caught.value.filename in {str(extent.path) for extent in missing.extents}
        for transfer in (under_way[0], under_way[2]):
            assert transfer.result().synced_files == transfer.result().synced_files == 3

    def test_a_file_that_is_too_short_is_named(
        self, transfers: BlockTransfers, tmp_path: Path
    ) -> None:
        plan = store(block_files(tmp_path, 2))
        transfers.submit(plan).result()
        os.truncate(plan.extents[1].path, SIZE - UNIT)
        with pytest.raises(DataError, match=f"{plan.extents[1].path} is truncated"):
            transfers.submit(restore(plan)).result()

    def test_transfers_are_discarded_under_way_and_others_go_on(
        self, transfers: BlockTransfers, tmp_path: Path
    ) -> None:
        kept = store(block_files(tmp_path, 2))
        transfers.submit(kept).result()
        before = open_descriptors()
        (tmp_path / "more").mkdir()
        under_way = [transfers.submit(long_store(tmp_path / "more")) for _ in range(2)]
        good = transfers.submit(restore(kept))
        for transfer in reversed(under_way):
            transfer.discard()
            transfer.discard()
        assert good.result().bad_blocks == 0
        with pytest.raises(CancelledError):
            under_way[-1].result()
        assert transfers.submit(kept).result().synced_files == 2
        assert open_descriptors() == before

    def test_a_full_file_system_is_an_error_of_the_file_and_not_of_later_transfers(
        self, tiny_file_system: Path
    ) -> None:
        transfers = self.make(tiny_file_system)
        try:
            plan = store(block_files(tiny_file_system, 2))
            transfers.submit(plan).result()
            (tiny_file_system / "more").mkdir()
            filler = tinyfs.fill(tiny_file_system)
            late = store(block_files(tiny_file_system / "more", 3))
            with pytest.raises(OSError, match=r"failed|No space") as caught:
                transfers.submit(late).result()
            assert caught.value.errno == errno.ENOSPC
            assert Path(caught.value.filename).parent.name == "more"
            assert transfers.submit(restore(plan, sampled=False)).result().bad_blocks == 0
            filler.unlink()
            assert transfers.submit(late).result().synced_files == 3
        finally:
            transfers.close()

    def test_closing_ends_what_is_under_way(self, tmp_path: Path) -> None:
        before = open_descriptors()
        transfers = self.make(tmp_path)
        path = transfers.path()
        assert path.path_requested == (
            "o_direct" if self.config().transfers_directly else "page_cache"
        )
        under_way = [transfers.submit(long_store(tmp_path)) for _ in range(2)]
        transfers.close()
        transfers.close()
        assert open_descriptors() == before
        with pytest.raises(CancelledError):
            under_way[-1].result()
        with pytest.raises(RuntimeError, match="closed"):
            transfers.submit(store(block_files(tmp_path, 1)))
