"""The native engine does what every engine does, over files and over the caller's memory."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path

import numpy as np
import pytest

from tests.contracts.engine import BLOCK, DEPTH, EngineContract, open_descriptors, plan
from wattload.core.errors import ConfigError, DataError, TargetError
from wattload.core.io import Allocation, Engine, Extent, IOPlan, IOResult
from wattload.loaders.aligned import aligned_buffer
from wattload.loaders.coldcache import evict, resident_fraction
from wattload.loaders.native.backend import backends, choose, unavailable
from wattload.loaders.native.engine import NativeEngine
from wattload.loaders.native.library import library_path
from wattload.loaders.native.plan import needed_bytes

pytestmark = pytest.mark.skipif(
    not library_path().exists(), reason="the native engine is not built: make setup builds it"
)

MEMORY_BYTES = 4 << 20
FILE_BACKENDS = ("io_uring", "pread")


class NativeContract(EngineContract):
    """The contract, with blocks filled and shown by way of the caller's memory."""

    backend: str

    def make(self) -> Engine:
        reason = unavailable(self.backend)
        if reason is not None:
            pytest.skip(f"{self.backend} can't run here: {reason}")
        self.memory = aligned_buffer(MEMORY_BYTES)
        return NativeEngine(
            backend=self.backend, block_bytes=BLOCK, depth=DEPTH, regions=[self.memory]
        )

    def write(self, engine: Engine, written: IOPlan, contents: dict[Path, bytes]) -> IOResult:
        for extent, place, size in pieces(written):
            start = extent.offset_bytes
            part = contents[extent.path][start : start + size]
            self.memory[place : place + size] = np.frombuffer(part, dtype=np.uint8)
        assert isinstance(engine, NativeEngine)
        return engine.submit(written, destination=self.memory).result()

    def read(self, engine: Engine, read: IOPlan) -> tuple[IOResult, dict[Path, bytes]]:
        self.memory[:] = 0
        assert isinstance(engine, NativeEngine)
        result = engine.submit(read, destination=self.memory).result()
        return result, {
            extent.path: self.memory[place : place + size].tobytes()
            for extent, place, size in pieces(read)
        }


def pieces(moved: IOPlan) -> Iterator[tuple[Extent, int, int]]:
    """Yield the extents of a plan, each with its place in a destination and its size."""
    block = 0
    for extent in moved.extents:
        yield extent, block * moved.block_bytes, extent.length_bytes
        block += -(-extent.length_bytes // moved.block_bytes)


class TestUring(NativeContract):
    backend = "io_uring"


class TestPread(NativeContract):
    backend = "pread"


class TestSeveralPollers(NativeContract):
    backend = "io_uring"

    def make(self) -> Engine:
        super().make().close()
        return NativeEngine(
            backend=self.backend, block_bytes=BLOCK, depth=DEPTH, pollers=3, regions=[self.memory]
        )


@pytest.fixture(params=FILE_BACKENDS)
def engine(request: pytest.FixtureRequest) -> Iterator[NativeEngine]:
    reason = unavailable(request.param)
    if reason is not None:
        pytest.skip(f"{request.param} can't run here: {reason}")
    made = NativeEngine(backend=request.param, block_bytes=BLOCK, depth=DEPTH)
    yield made
    made.close()


@pytest.mark.parametrize("backend", ["null", "memory"])
def test_a_diskless_backend_touches_no_file(tmp_path: Path, backend: str) -> None:
    engine = NativeEngine(backend=backend, block_bytes=BLOCK, depth=DEPTH)
    for kind in ("write", "read"):
        result = engine.run(plan(kind, Extent(tmp_path / "none", 0, 1_000_000)))
        assert result.moved_bytes == 1_000_000
        assert result.path.path_requested == backend
    assert engine.capabilities().diskless
    assert not engine.capabilities().direct
    engine.close()
    assert list(tmp_path.iterdir()) == []


def test_direct_reads_leave_the_page_cache_cold(engine: NativeEngine, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(1 << 20))
    evict([path])
    result = engine.run(plan("read", Extent(path, 0, 1 << 20)))
    assert result.path.path_requested == "o_direct"
    assert resident_fraction([path]) == 0.0


def test_without_direct_files_pass_through_the_page_cache(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(1 << 20))
    evict([path])
    engine = NativeEngine(block_bytes=BLOCK, depth=DEPTH, direct=False)
    result = engine.run(plan("read", Extent(path, 0, 1 << 20)))
    engine.close()
    assert result.path.path_requested == "page_cache"
    assert not engine.capabilities().direct
    # Most of it, not all: a kernel that reclaims idle memory (DAMON) may take a page at once.
    assert (resident_fraction([path]) or 0) > 0.5


def test_plans_in_a_queue_keep_their_own_results(engine: NativeEngine, tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(5)]
    for number, path in enumerate(paths):
        path.write_bytes(os.urandom(BLOCK * (number + 1)))
    tickets = [
        engine.submit(plan("read", Extent(path, 0, BLOCK * (number + 1))))
        for number, path in enumerate(paths)
    ]
    bad = engine.submit(plan("read", Extent(tmp_path / "none", 0, BLOCK)))
    for number, ticket in reversed(list(enumerate(tickets))):
        result = ticket.result()
        assert result.moved_bytes == BLOCK * (number + 1)
        assert result is ticket.result()
        assert ticket.progress() == (0, 0) or ticket.progress()[0] <= result.moved_bytes
    with pytest.raises(FileNotFoundError, match="open failed"):
        bad.result()


def test_two_destinations_are_filled_at_once(tmp_path: Path) -> None:
    memory = aligned_buffer(MEMORY_BYTES)
    engine = NativeEngine(block_bytes=BLOCK, depth=DEPTH, regions=[memory])
    contents = [os.urandom(500_000), os.urandom(700_001)]
    parts = [memory[: 1 << 20], memory[1 << 20 :]]
    tickets = []
    for number, content in enumerate(contents):
        (tmp_path / str(number)).write_bytes(content)
        extent = Extent(tmp_path / str(number), 0, len(content))
        tickets.append(engine.submit(plan("read", extent), destination=parts[number]))
    for ticket, part, content in zip(tickets, parts, contents, strict=True):
        assert ticket.result().moved_bytes == len(content)
        assert part[: len(content)].tobytes() == content
    engine.close()


def test_a_destination_elsewhere_is_refused(tmp_path: Path) -> None:
    memory = aligned_buffer(1 << 20)
    engine = NativeEngine(block_bytes=BLOCK, depth=DEPTH, regions=[memory])
    read = plan("read", Extent(tmp_path / "f", 0, 100_000))
    with pytest.raises(ConfigError, match="none of the engine's regions"):
        engine.submit(read, destination=aligned_buffer(1 << 20))
    with pytest.raises(ConfigError, match=r"hold the plan's 102400 bytes, got 98304"):
        engine.submit(read, destination=memory[:98304])
    assert engine.holds(memory[4096:])
    engine.close()


def test_memory_that_is_no_plain_run_of_bytes_is_refused() -> None:
    with pytest.raises(ConfigError, match="contiguous uint8 of one dimension"):
        NativeEngine(block_bytes=BLOCK, depth=1, regions=[np.zeros((2, 4096), dtype=np.uint8)])


def test_a_destination_needs_whole_units_of_the_last_block_only() -> None:
    def needed(*sizes: int, alignment: int = 4096) -> int:
        extents = [Extent(Path("f"), 0, size) for size in sizes]
        return needed_bytes(plan("read", *extents, block=65536), alignment)

    assert needed(0) == 0
    assert needed(1) == 4096
    assert needed(65536) == 65536
    assert needed(65537, 5) == 2 * 65536 + 4096
    assert needed(65537, alignment=16384) == 65536 + 16384


def test_a_stopped_plan_is_no_result(engine: NativeEngine, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(BLOCK))
    before = open_descriptors()
    ticket = engine.submit(plan("read", Extent(path, 0, BLOCK), duration_s=60))
    assert not ticket.wait(0.01)
    ticket.stop()
    with pytest.raises(CancelledError, match="stopped after"):
        ticket.result()
    ticket.stop()
    thrown = engine.submit(plan("read", Extent(path, 0, BLOCK), duration_s=60))
    thrown.discard()
    with pytest.raises(CancelledError, match="thrown away"):
        thrown.result()
    assert open_descriptors() == before


def test_closing_ends_what_is_under_way(engine: NativeEngine, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(BLOCK))
    engine.submit(plan("read", Extent(path, 0, BLOCK), duration_s=60))
    engine.close()
    engine.close()
    with pytest.raises(RuntimeError, match="closed"):
        engine.submit(plan("read", Extent(path, 0, BLOCK)))


def test_closing_from_another_thread_ends_a_wait(engine: NativeEngine, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(BLOCK))
    ended: list[BaseException] = []

    def wait() -> None:
        try:
            engine.run(plan("read", Extent(path, 0, BLOCK), duration_s=60))
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.1)
    engine.close()
    thread.join()
    assert isinstance(ended[0], CancelledError)


def test_bytes_are_told_while_they_move(engine: NativeEngine, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(10 * BLOCK))
    told: list[tuple[int, int]] = []

    def moved(count: int) -> None:
        told.append((time.monotonic_ns(), count))

    rate = 10 * BLOCK / 0.5
    result = engine.run(
        plan("read", Extent(path, 0, 10 * BLOCK), rate_bytes_per_s=rate), moved=moved
    )
    assert [count for _, count in told] == [BLOCK] * 10
    assert len({at // 20_000_000 for at, _ in told}) > 3
    assert result.operation_count == 10


def test_a_visitor_is_refused(engine: NativeEngine, tmp_path: Path) -> None:
    assert not engine.capabilities().visits
    with pytest.raises(ConfigError, match="shows its blocks to nobody"):
        engine.run(plan("read", Extent(tmp_path / "f", 0, 1)), visit=lambda *_: None)


def test_one_operation_in_so_many_is_traced(engine: NativeEngine, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(20 * BLOCK))
    start_ns = time.monotonic_ns()
    trace = engine.run(plan("read", Extent(path, 0, 20 * BLOCK), trace_every=4)).trace
    assert trace is not None
    assert len(trace) == 5
    assert set(trace["offset_bytes"]) <= {number * BLOCK for number in range(20)}
    assert start_ns <= trace["submit_ns"].min() <= trace["submit_ns"].max() <= time.monotonic_ns()
    assert list(trace["submit_ns"]) == sorted(trace["submit_ns"])
    assert engine.run(plan("read", Extent(path, 0, BLOCK))).trace is None


def test_a_file_that_grows_while_it_is_read_is_no_result(
    engine: NativeEngine, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(8 * BLOCK))
    rate = 8 * BLOCK / 0.4
    ticket = engine.submit(plan("read", Extent(path, 0, 8 * BLOCK), rate_bytes_per_s=rate))
    while ticket.progress()[1] < 2:
        ticket.wait(0.001)
    with path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(DataError, match=re.escape(f"{path} changed while it was read")):
        ticket.result()


def test_a_file_system_without_direct_io_is_named(engine: NativeEngine) -> None:
    with pytest.raises(TargetError, match=r"/proc/self/status: this file system refuses O_DIRECT"):
        engine.run(plan("read", Extent(Path("/proc/self/status"), 0, 100)))


@pytest.mark.parametrize("alignment", [4096, 16384])
def test_ends_are_moved_in_whole_units_of_the_drives_blocks(
    engine: NativeEngine, tmp_path: Path, alignment: int
) -> None:
    """A file of a drive with blocks of 16 KiB: its end is moved in those, and cut after."""
    path = tmp_path / "file"
    written = plan("write", Extent(path, 0, BLOCK + 5000))
    assert engine.run(written, alignment_bytes=alignment).moved_bytes == BLOCK + 5000
    assert path.stat().st_size == BLOCK + 5000
    read = plan("read", Extent(path, 0, BLOCK + 5000))
    assert engine.run(read, alignment_bytes=alignment).moved_bytes == BLOCK + 5000
    if alignment > 4096:
        with pytest.raises(ConfigError, match=r"block_bytes must be a multiple of 16384"):
            engine.run(plan("read", Extent(path, 0, 1), block=4096), alignment_bytes=alignment)
        with pytest.raises(ConfigError, match="are multiples of 16384"):
            engine.run(plan("read", Extent(path, 4096, 1)), alignment_bytes=alignment)


def test_other_python_threads_run_meanwhile(engine: NativeEngine, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(BLOCK))
    turns = 0
    ended = threading.Event()

    def count() -> None:
        nonlocal turns
        while not ended.wait(0.01):
            turns += 1

    thread = threading.Thread(target=count)
    thread.start()
    engine.run(plan("read", Extent(path, 0, BLOCK), duration_s=0.3))
    ended.set()
    thread.join()
    assert turns >= 5


def test_what_a_backend_is_stands_in_its_flags() -> None:
    found = backends()
    assert set(found) == {"io_uring", "pread", "memory", "null"}
    assert [name for name, flags in found.items() if flags & flags.DISKLESS] == ["memory", "null"]


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no engine 'cufile'; there are io_uring"):
        choose("cufile")


def test_numbers_out_of_range_are_the_librarys_to_refuse() -> None:
    with pytest.raises(ConfigError, match="poller"):
        NativeEngine(
            backend="null",
            block_bytes=4096,
            depth=1,
            pollers=65,
            slots=aligned_buffer(65 * 4096),
        )


def test_cpu_time_of_the_kernels_workers_is_counted(tmp_path: Path) -> None:
    """Writes that extend a file are done by them, not by the poller."""
    engine = NativeEngine(block_bytes=BLOCK, depth=DEPTH, direct=False)
    written = plan("write", Extent(tmp_path / "file", 0, 64 << 20), allocation=Allocation.EXTENDING)
    before_s = time.process_time()
    result = engine.run(written)
    whole_s = time.process_time() - before_s
    engine.close()
    assert whole_s / 2 < result.cpu_s <= whole_s * 1.05
