"""What every engine that reads and writes files does alike: bytes, counts, errors, clean ends."""

from __future__ import annotations

import errno
import os
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.stamped import bad_blocks
from wattload.core.errors import ConfigError, DataError
from wattload.core.io import (
    Allocation,
    Extent,
    IOKind,
    IOOrder,
    IOPlan,
    IOResult,
    Stamps,
)
from wattload.loaders.aligned_io import aligned_buffer
from wattload.loaders.engine.engine import IOEngine

BLOCK = 64 << 10
DEPTH = 3
MEMORY_BYTES = 4 << 20


def plan(
    kind: str,
    *extents: Extent,
    block: int = BLOCK,
    depth: int = DEPTH,
    **more: Any,
) -> IOPlan:
    return IOPlan(
        kind=IOKind(kind), extents=extents, block_bytes=block, depth=depth, fsync=True, **more
    )


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def pieces(moved: IOPlan) -> Iterator[tuple[Extent, int, int]]:
    """Yield the extents of a plan, each with its place in a destination and its size."""
    block = 0
    for extent in moved.extents:
        yield extent, block * moved.block_bytes, extent.length_bytes
        block += -(-extent.length_bytes // moved.block_bytes)


class EngineContract(ABC):
    """Subclass it, give ``make``; the engine offers at least ``BLOCK`` bytes and ``DEPTH``."""

    @abstractmethod
    def make(self, memory: NDArray[np.uint8]) -> IOEngine:
        """Return an engine with blocks up to ``BLOCK``, a depth up to ``DEPTH``, and that memory.

        The memory is what plans are given as their destination.
        """

    def write(self, engine: IOEngine, written: IOPlan, contents: dict[Path, bytes]) -> IOResult:
        """Write what files shall hold, from memory."""
        for extent, place, size in pieces(written):
            start = extent.offset_bytes
            part = contents[extent.path][start : start + size]
            self.memory[place : place + size] = np.frombuffer(part, dtype=np.uint8)
        return engine.run(written, destination=self.memory)

    def read(self, engine: IOEngine, read: IOPlan) -> tuple[IOResult, dict[Path, bytes]]:
        """Read into memory, and return what is there of each file's extent."""
        self.memory[:] = 0
        result = engine.run(read, destination=self.memory)
        return result, {
            extent.path: self.memory[place : place + size].tobytes()
            for extent, place, size in pieces(read)
        }

    @pytest.fixture
    def engine(self) -> Iterator[IOEngine]:
        self.memory = aligned_buffer(MEMORY_BYTES)
        engine = self.make(self.memory)
        yield engine
        engine.close()

    @settings(
        max_examples=25,
        deadline=None,
        suppress_health_check=[
            HealthCheck.function_scoped_fixture,
            HealthCheck.differing_executors,
        ],
    )
    @given(
        sizes=st.lists(st.integers(0, 300_000), min_size=1, max_size=4),
        depth=st.integers(1, DEPTH),
        block=st.sampled_from([4096, 12288, BLOCK]),
    )
    def test_what_is_written_is_read_back_at_any_size_depth_and_block(
        self, engine: IOEngine, tmp_path: Path, sizes: list[int], depth: int, block: int
    ) -> None:
        contents = {tmp_path / str(i): os.urandom(size) for i, size in enumerate(sizes)}
        extents = [Extent(path, 0, len(content)) for path, content in contents.items()]
        written = plan("write", *extents, block=block, depth=depth)
        wrote = self.write(engine, written, contents)
        read, seen = self.read(engine, plan("read", *extents, block=block, depth=depth))
        assert {path: path.read_bytes() for path in contents} == contents
        assert seen == contents
        assert wrote.moved_bytes == read.moved_bytes == sum(sizes)
        assert wrote.operation_count == sum(-(-size // block) for size in sizes)

    def test_bytes_are_counted_where_they_move(self, engine: IOEngine, tmp_path: Path) -> None:
        path = tmp_path / "file"
        lock, counts = threading.Lock(), list[int]()

        def moved(count: int) -> None:
            with lock:
                counts.append(count)

        result = engine.run(plan("write", Extent(path, 0, 200_001)), moved=moved)
        assert sum(counts) == result.moved_bytes == path.stat().st_size == 200_001
        assert result.operation_count == len(counts) == 4
        assert result.path.path_effective == "unverified"
        assert result.cpu_s > 0
        assert result.seconds > 0

    def test_extents_of_one_file_keep_what_lies_between(
        self, engine: IOEngine, tmp_path: Path
    ) -> None:
        path = tmp_path / "file"
        before, content = os.urandom(40960), os.urandom(40960)
        path.write_bytes(before)
        written = plan("write", Extent(path, 8192, 4096), Extent(path, 32768, 8192))
        self.write(engine, written, {path: content})
        expected = before[:8192] + content[8192:12288] + before[12288:32768] + content[32768:40960]
        assert path.read_bytes() == expected

    def test_a_longer_file_is_cut_to_the_plan(self, engine: IOEngine, tmp_path: Path) -> None:
        path = tmp_path / "file"
        path.write_bytes(b"x" * 100_000)
        engine.run(plan("write", Extent(path, 0, 5_000)))
        assert path.stat().st_size == 5_000

    def test_a_truncated_file_is_named(self, engine: IOEngine, tmp_path: Path) -> None:
        path = tmp_path / "file"
        path.write_bytes(b"x" * 100_000)
        with pytest.raises(
            DataError, match=re.escape(f"{path} is truncated: ") + r".*at offset \d+"
        ):
            engine.run(plan("read", Extent(path, 0, 100_001)))

    def test_a_failed_plan_leaves_nothing_open_and_the_engine_usable(
        self, engine: IOEngine, tmp_path: Path
    ) -> None:
        path = tmp_path / "file"
        path.write_bytes(b"x" * 4096)
        engine.run(plan("read", Extent(path, 0, 4096)))
        before = open_descriptors()
        with pytest.raises(FileNotFoundError, match="none"):
            engine.run(plan("read", Extent(path, 0, 4096), Extent(tmp_path / "none", 0, 4096)))
        assert open_descriptors() == before
        assert engine.run(plan("read", Extent(path, 0, 4096))).moved_bytes == 4096

    def test_a_full_target_names_the_file(self, engine: IOEngine, tiny_file_system: Path) -> None:
        path = tiny_file_system / "file"
        with pytest.raises(OSError, match="offset") as caught:
            engine.run(plan("write", Extent(path, 0, 1 << 30)))
        assert caught.value.errno == errno.ENOSPC
        assert caught.value.filename == str(path)

    def test_latencies_are_one_per_operation(self, engine: IOEngine, tmp_path: Path) -> None:
        result = engine.run(plan("write", Extent(tmp_path / "file", 0, 10 * BLOCK)))
        latency = result.latency
        assert latency is not None
        assert latency.count == result.operation_count == 10
        assert latency.minimum_ns is not None
        assert latency.maximum_ns is not None
        assert 0 < latency.minimum_ns <= latency.maximum_ns <= latency.sum_ns
        assert latency.maximum_ns <= result.seconds * 1e9

    def test_stamps_are_those_of_the_definition_and_are_checked(
        self, engine: IOEngine, tmp_path: Path
    ) -> None:
        """Stamp and sum are defined by ``wattload.loaders.stamps``; any engine makes them."""
        path, size = tmp_path / "file", 3 * BLOCK + 4096 + 30
        stamps = Stamps(nonce=0xDEAD_BEEF_0000_0001, word=7 << 32 | 3, first_block=11)
        extent = Extent(path, 0, size)
        engine.run(plan("write", extent, stamps=stamps))
        content = np.frombuffer(path.read_bytes(), dtype=np.uint8)
        assert bad_blocks(content, stamps, first=stamps.first_block) == 0
        read = engine.run(plan("read", extent, stamps=stamps))
        assert read.bad_blocks == 0
        stale = engine.run(plan("read", extent, stamps=replace(stamps, word=7 << 32 | 2)))
        assert stale.bad_blocks == -(-size // 4096)
        assert engine.run(plan("read", extent)).bad_blocks == 0

    @pytest.mark.parametrize("order", IOOrder)
    def test_a_count_of_operations_is_kept_whatever_the_extents_hold(
        self, engine: IOEngine, tmp_path: Path, order: IOOrder
    ) -> None:
        path = tmp_path / "file"
        path.write_bytes(os.urandom(5 * BLOCK))
        for count in (3, 23):
            counted = plan("read", Extent(path, 0, 5 * BLOCK), order=order, operation_count=count)
            result = engine.run(counted)
            assert (result.operation_count, result.moved_bytes) == (count, count * BLOCK)

    def test_random_order_without_a_count_moves_every_block_once(
        self, engine: IOEngine, tmp_path: Path
    ) -> None:
        paths = [tmp_path / "a", tmp_path / "b"]
        contents = {path: os.urandom(5 * BLOCK + 5000) for path in paths}
        extents = [Extent(path, 0, 5 * BLOCK + 5000) for path in paths]
        wrote = self.write(engine, plan("write", *extents, order=IOOrder.RANDOM), contents)
        _, seen = self.read(engine, plan("read", *extents, order=IOOrder.RANDOM, seed=9))
        assert {path: path.read_bytes() for path in paths} == contents == seen
        assert wrote.operation_count == 12

    def test_a_duration_ends_a_plan_that_would_go_on(
        self, engine: IOEngine, tmp_path: Path
    ) -> None:
        path = tmp_path / "file"
        path.write_bytes(os.urandom(2 * BLOCK))
        result = engine.run(plan("read", Extent(path, 0, 2 * BLOCK), duration_s=0.2))
        assert result.operation_count > 2
        assert result.seconds >= 0.19

    def test_a_rate_is_not_exceeded(self, engine: IOEngine, tmp_path: Path) -> None:
        path = tmp_path / "file"
        path.write_bytes(os.urandom(10 * BLOCK))
        rate = 10 * BLOCK / 0.4
        result = engine.run(plan("read", Extent(path, 0, 10 * BLOCK), rate_bytes_per_s=rate))
        assert result.moved_bytes == 10 * BLOCK
        assert result.moved_bytes <= (result.seconds + 0.1) * rate

    @pytest.mark.parametrize("allocation", Allocation)
    def test_files_get_their_size_however_they_are_allocated(
        self, engine: IOEngine, tmp_path: Path, allocation: Allocation
    ) -> None:
        path = tmp_path / "file"
        path.write_bytes(b"x" * (3 if allocation is Allocation.OVERWRITE else 5) * BLOCK)
        written = plan("write", Extent(path, 0, 3 * BLOCK + 5), allocation=allocation)
        content = os.urandom(3 * BLOCK + 5)
        self.write(engine, written, {path: content})
        assert path.read_bytes() == content

    def test_overwriting_keeps_what_lies_behind_the_plan(
        self, engine: IOEngine, tmp_path: Path
    ) -> None:
        path = tmp_path / "file"
        before, content = os.urandom(5 * BLOCK + 77), os.urandom(2 * BLOCK)
        path.write_bytes(before)
        over = plan("write", Extent(path, 0, 2 * BLOCK), allocation=Allocation.OVERWRITE)
        self.write(engine, over, {path: content})
        assert path.read_bytes() == content + before[2 * BLOCK :]
        # its last block would be written padded, over what is not in the plan
        torn = plan("write", Extent(path, 0, BLOCK + 5), allocation=Allocation.OVERWRITE)
        with pytest.raises(
            OSError, match=f"open at offset {BLOCK + 5} failed: .* continues after"
        ) as caught:
            engine.run(torn)
        assert (caught.value.errno, caught.value.filename) == (errno.EINVAL, str(path))
        assert path.read_bytes() == content + before[2 * BLOCK :]

    def test_a_link_is_not_written_through(self, engine: IOEngine, tmp_path: Path) -> None:
        (tmp_path / "outside").write_bytes(b"precious")
        (tmp_path / "link").symlink_to(tmp_path / "outside")
        with pytest.raises(OSError, match="symbolic"):
            engine.run(plan("write", Extent(tmp_path / "link", 0, 4096)))
        assert (tmp_path / "outside").read_bytes() == b"precious"

    @pytest.mark.parametrize(
        ("kind", "extents"),
        [
            ("read", [(100, 4096)]),
            ("read", [(-4096, 4096)]),
            ("read", [(0, -1)]),
            ("write", [(0, 100), (4096, 4096)]),
        ],
    )
    def test_extents_that_direct_io_cannot_do_are_refused(
        self, engine: IOEngine, tmp_path: Path, kind: str, extents: list[tuple[int, int]]
    ) -> None:
        with pytest.raises(ConfigError, match="be moved by O_DIRECT"):
            engine.run(plan(kind, *(Extent(tmp_path / "f", *extent) for extent in extents)))

    @pytest.mark.parametrize(
        ("block", "depth"), [(BLOCK * 2, 1), (512, 1), (6000, 1), (4096, 0), (4096, DEPTH + 1)]
    )
    def test_a_plan_beyond_the_engine_is_refused(
        self, engine: IOEngine, tmp_path: Path, block: int, depth: int
    ) -> None:
        with pytest.raises(ConfigError, match="the plan's"):
            engine.run(plan("read", Extent(tmp_path / "f", 0, 1), block=block, depth=depth))
