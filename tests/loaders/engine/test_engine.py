"""The I/O engine does what every engine does, over files and over the caller's memory."""

from __future__ import annotations

import os
import re
import select
import threading
import time
from concurrent.futures import CancelledError
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.contracts.engine import (
    BLOCK,
    DEPTH,
    EngineContract,
    open_descriptors,
    plan,
)
from tests.loop_devices import identity_of, loop_device
from tests.stamped import bad_blocks
from wattload.core.errors import ConfigError, DataError, TargetError
from wattload.core.io import (
    Allocation,
    Extent,
    IOOrder,
    Stamps,
)
from wattload.loaders.aligned_io import aligned_buffer
from wattload.loaders.data.cold_cache import evict, resident_fraction
from wattload.loaders.engine.engine import IOEngine
from wattload.loaders.engine.library import (
    backend_unavailable,
    choose_backend,
)
from wattload.loaders.engine.plan import needed_bytes

FILE_BACKENDS = ("io_uring", "pread")


class BackendContract(EngineContract):
    """The contract over one of the engine's backends."""

    backend: str

    pollers = 1

    def make(self, memory: NDArray[np.uint8]) -> IOEngine:
        reason = backend_unavailable(self.backend)
        if reason is not None:
            pytest.skip(f"{self.backend} can't run here: {reason}")
        return IOEngine(
            backend=self.backend,
            block_bytes=BLOCK,
            depth=DEPTH,
            pollers=self.pollers,
            regions=[memory],
        )


class TestUring(BackendContract):
    backend = "io_uring"


class TestPread(BackendContract):
    backend = "pread"


class TestSeveralPollers(BackendContract):
    backend = "io_uring"
    pollers = 3


@pytest.mark.parametrize("backend", ["null", "memory"])
def test_a_diskless_backend_touches_no_file(tmp_path: Path, backend: str) -> None:
    engine = IOEngine(backend=backend, block_bytes=BLOCK, depth=DEPTH)
    for kind in ("write", "read"):
        result = engine.run(plan(kind, Extent(tmp_path / "none", 0, 1_000_000)))
        assert result.moved_bytes == 1_000_000
        assert result.path.path_requested == backend
    engine.close()
    assert list(tmp_path.iterdir()) == []


def test_a_device_is_written_by_its_identity_only(engine: IOEngine, tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_bytes(bytes(1 << 20))
    with loop_device(image) as device:
        identity = identity_of(device)
        major, minor = identity.major_minor.split(":")
        other = f"{major}:{int(minor) + 1}"
        written = plan("write", Extent(device, 0, 1 << 20), device=identity)
        result = engine.run(written)
        assert (result.moved_bytes, result.synced_files) == (1 << 20, 1)
        seen = image.read_bytes()
        assert seen != bytes(1 << 20)
        message = f"^{device} is another device \\({other}, now {identity.major_minor}\\)$"
        changed = replace(identity, major_minor=other)
        with pytest.raises(TargetError, match=message):
            engine.run(replace(written, device=changed))
        with pytest.raises(TargetError, match=f"^{device} is a block device, and the plan"):
            engine.run(replace(written, device=None))
        assert image.read_bytes() == seen


@pytest.mark.parametrize("pollers", [1, 3])
def test_readings_under_way_add_up_to_the_result(tmp_path: Path, pollers: int) -> None:
    engine = IOEngine(backend="null", block_bytes=BLOCK, depth=DEPTH, pollers=pollers)
    ticket = engine.submit(plan("read", Extent(tmp_path / "none", 0, BLOCK), duration_s=0.3))
    readings = [ticket.reading()]
    while not ticket.wait(0.02):
        readings.append(ticket.reading())
    before = ticket.reading()
    result = ticket.result()
    engine.close()
    readings.append(ticket.reading())
    assert before.time_ns == readings[-1].time_ns
    assert len(readings) > 3
    latencies = [late.latency.since(early.latency) for early, late in pairwise(readings)]
    assert (
        sum(each.count for each in latencies) + readings[0].latency.count == result.operation_count
    )
    assert result.latency is not None
    assert np.array_equal(readings[-1].latency.counts, result.latency.counts)
    assert readings[-1].moved_bytes == result.moved_bytes
    assert readings[-1].operation_count == result.operation_count
    for early, late in pairwise(readings):
        assert early.time_ns <= late.time_ns
        assert early.operation_count <= late.operation_count
        assert early.moved_bytes <= late.moved_bytes


def test_a_discarded_plan_keeps_its_last_reading(tmp_path: Path) -> None:
    engine = IOEngine(backend="null", block_bytes=BLOCK, depth=DEPTH)
    ticket = engine.submit(plan("read", Extent(tmp_path / "none", 0, BLOCK), duration_s=60.0))
    while not ticket.reading().operation_count:
        time.sleep(0.001)
    ticket.discard()
    assert ticket.reading().operation_count == ticket.reading().latency.count > 0
    engine.close()


def test_without_direct_files_pass_through_the_page_cache(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(1 << 20))
    evict([path])
    engine = IOEngine(block_bytes=BLOCK, depth=DEPTH, direct=False)
    result = engine.run(plan("read", Extent(path, 0, 1 << 20)))
    engine.close()
    assert result.path.path_requested == "page_cache"
    # Most of it, not all: a kernel that reclaims idle memory (DAMON) may take a page at once.
    assert (resident_fraction([path]) or 0) > 0.5


def test_plans_in_a_queue_keep_their_own_results(engine: IOEngine, tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"blocks": np.array([0, 1])}, "must be uint64"),
        ({"blocks": np.zeros((1, 1), dtype=np.uint64)}, "of one dimension"),
        ({"blocks": np.array([1], dtype=np.uint64)}, "number 1, but the plan has only 1 blocks"),
        ({"duration_s": 1.0}, "read once in their order"),
        ({"order": IOOrder.RANDOM}, "read once in their order"),
    ],
)
def test_a_list_that_a_plan_cannot_have_is_refused(
    engine: IOEngine, tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    listed = {"blocks": np.array([0], dtype=np.uint64)} | changed
    with pytest.raises(ConfigError, match=message):
        engine.submit(replace(plan("read", Extent(tmp_path / "f", 0, BLOCK)), **listed))


def test_a_destination_elsewhere_is_refused(tmp_path: Path) -> None:
    memory = aligned_buffer(1 << 20)
    engine = IOEngine(block_bytes=BLOCK, depth=DEPTH, regions=[memory])
    read = plan("read", Extent(tmp_path / "f", 0, 100_000))
    with pytest.raises(ConfigError, match="not in any of the engine's regions"):
        engine.submit(read, destination=aligned_buffer(1 << 20))
    with pytest.raises(ConfigError, match=r"at least the plan's 102400 bytes, got 98304"):
        engine.submit(read, destination=memory[:98304])
    assert engine.holds(memory[4096:])
    engine.close()


def test_memory_that_is_no_plain_run_of_bytes_is_refused() -> None:
    with pytest.raises(ConfigError, match="contiguous uint8 of one dimension"):
        IOEngine(block_bytes=BLOCK, depth=1, regions=[np.zeros((2, 4096), dtype=np.uint8)])


def test_a_destination_needs_whole_units_of_the_last_block_only() -> None:
    def needed(*sizes: int, alignment: int = 4096) -> int:
        extents = [Extent(Path("f"), 0, size) for size in sizes]
        return needed_bytes(plan("read", *extents, block=65536), alignment)

    assert needed(0) == 0
    assert needed(1) == 4096
    assert needed(65536) == 65536
    assert needed(65537, 5) == 2 * 65536 + 4096
    assert needed(65537, alignment=16384) == 65536 + 16384


def test_each_plan_that_ends_adds_one_to_the_signal(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(BLOCK))
    signal = os.eventfd(0, os.EFD_NONBLOCK)
    engine = IOEngine(block_bytes=BLOCK, depth=DEPTH, signal=signal)
    tickets = [engine.submit(plan("read", Extent(path, 0, BLOCK))) for _ in range(3)]
    tickets.append(engine.submit(plan("read", Extent(tmp_path / "none", 0, BLOCK))))
    endless = engine.submit(plan("read", Extent(path, 0, BLOCK), duration_s=60))
    ended = 0
    while ended < 4:
        assert select.select([signal], [], [], 60)[0] == [signal]
        ended += os.eventfd_read(signal)
    assert (ended, all(ticket.wait(0) for ticket in tickets), endless.wait(0)) == (4, True, False)
    endless.discard()
    assert os.eventfd_read(signal) == 1
    engine.close()
    os.close(signal)


def test_extents_with_words_of_their_own_may_change_meanwhile(
    engine: IOEngine, tmp_path: Path
) -> None:
    """A plan writes one extent of a file while another one, of the same file, is read."""
    path, stamps = tmp_path / "file", Stamps(nonce=5, word=0)
    first, second = Extent(path, 0, 4 * BLOCK), Extent(path, 4 * BLOCK, BLOCK)
    engine.run(plan("write", first, second, stamps=stamps, words=[1, 2]))
    rate = 4 * BLOCK / 0.4
    read = plan("read", first, stamps=stamps, words=[1], rate_bytes_per_s=rate)
    ticket = engine.submit(read)
    while ticket.progress()[1] < 2:
        ticket.wait(0.001)
    with path.open("r+b") as file:
        file.seek(4 * BLOCK)
        file.write(b"changed")
    result = ticket.result()
    assert (result.bad_blocks, result.compared_bytes) == (0, 4 * BLOCK)
    both = engine.run(plan("read", first, second, stamps=stamps, words=[1, 2], sampled=True))
    assert (both.bad_blocks, both.compared_bytes) == (1, 6 * 4096)
    assert 0 < both.start_ns < both.end_ns <= time.monotonic_ns()


def test_slots_that_are_filled_again_are_summed_again(tmp_path: Path) -> None:
    path, stamps = tmp_path / "file", Stamps(nonce=5, word=6)
    engine = IOEngine(block_bytes=BLOCK, depth=DEPTH)
    for seed in (1, 2, 3):
        engine.fill(seed=seed)
        engine.run(plan("write", Extent(path, 0, 4 * BLOCK), stamps=stamps))
        assert bad_blocks(np.frombuffer(path.read_bytes(), dtype=np.uint8), stamps) == 0
    engine.close()


def test_a_stopped_plan_is_no_result(engine: IOEngine, tmp_path: Path) -> None:
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
    with pytest.raises(CancelledError, match="discarded"):
        thrown.result()
    assert open_descriptors() == before


def test_closing_ends_what_is_under_way(engine: IOEngine, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(BLOCK))
    engine.submit(plan("read", Extent(path, 0, BLOCK), duration_s=60))
    engine.close()
    engine.close()
    with pytest.raises(RuntimeError, match="closed"):
        engine.submit(plan("read", Extent(path, 0, BLOCK)))


def test_closing_from_another_thread_ends_a_wait(engine: IOEngine, tmp_path: Path) -> None:
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


def test_bytes_are_told_while_they_move(engine: IOEngine, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(10 * BLOCK))
    reported: list[tuple[int, int]] = []

    def moved(count: int) -> None:
        reported.append((time.monotonic_ns(), count))

    rate = 10 * BLOCK / 0.5
    result = engine.run(
        plan("read", Extent(path, 0, 10 * BLOCK), rate_bytes_per_s=rate), moved=moved
    )
    assert [count for _, count in reported] == [BLOCK] * 10
    assert len({at // 20_000_000 for at, _ in reported}) > 3
    assert result.operation_count == 10


def test_one_operation_in_so_many_is_traced(engine: IOEngine, tmp_path: Path) -> None:
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


def test_a_file_that_grows_while_it_is_read_is_no_result(engine: IOEngine, tmp_path: Path) -> None:
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


def test_a_file_system_without_direct_io_is_named(engine: IOEngine) -> None:
    with pytest.raises(TargetError, match=r"/proc/self/status: this file system refuses O_DIRECT"):
        engine.run(plan("read", Extent(Path("/proc/self/status"), 0, 100)))


@pytest.mark.parametrize("alignment", [4096, 16384])
def test_ends_are_moved_in_whole_units_of_the_drives_blocks(
    engine: IOEngine, tmp_path: Path, alignment: int
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


def test_other_python_threads_run_meanwhile(engine: IOEngine, tmp_path: Path) -> None:
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


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown engine 'cufile'; available: io_uring"):
        choose_backend("cufile")


def test_cpu_time_of_the_kernels_workers_is_counted(tmp_path: Path) -> None:
    """Writes that extend a file are done by them, not by the poller."""
    engine = IOEngine(block_bytes=BLOCK, depth=DEPTH, direct=False)
    written = plan("write", Extent(tmp_path / "file", 0, 64 << 20), allocation=Allocation.EXTENDING)
    before_s = time.process_time()
    result = engine.run(written)
    whole_s = time.process_time() - before_s
    engine.close()
    assert whole_s / 2 < result.cpu_s <= whole_s * 1.05


@pytest.mark.parametrize("backend", FILE_BACKENDS)
def test_cpu_time_of_plans_under_way_together_is_counted_once(tmp_path: Path, backend: str) -> None:
    path, stamps, block = tmp_path / "file", Stamps(nonce=5, word=6), 1 << 20
    path.write_bytes(os.urandom(16 * block))
    engine = IOEngine(backend=backend, block_bytes=block, depth=8)
    reads = [
        plan("read", Extent(path, number * block, block), block=block, depth=8, stamps=stamps)
        for number in range(16)
    ]
    before_s = time.process_time()
    tickets = [engine.submit(read) for read in 20 * reads]
    counted_s = sum(ticket.result().cpu_s for ticket in tickets)
    whole_s = time.process_time() - before_s
    engine.close()
    # Counted for each of the plans, it would be a multiple. The kernel adds the time of a thread
    # that runs to that of the process with the next tick only.
    assert 0 < counted_s <= 1.5 * whole_s
