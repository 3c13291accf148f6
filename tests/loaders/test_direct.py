from __future__ import annotations

import errno
import os
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from wattload.core.errors import ConfigError, DataError, TargetError
from wattload.core.io import Extent, IOKind, IOPlan
from wattload.loaders.aligned import aligned_buffer, round_up
from wattload.loaders.coldcache import evict, resident_fraction
from wattload.loaders.direct import Config, DirectEngine
from wattload.loaders.directreader import DirectReader

SMALL = Config(block_bytes=64 << 10, queue_depth=3)


def plan(kind: str, *extents: Extent, block: int = 64 << 10, depth: int = 3) -> IOPlan:
    return IOPlan(kind=IOKind(kind), extents=extents, block_bytes=block, depth=depth, fsync=True)


def filler(contents: dict[Path, bytes]) -> Callable[[NDArray[np.uint8], Extent, int], None]:
    def fill(block: NDArray[np.uint8], extent: Extent, offset: int) -> None:
        block[:] = np.frombuffer(contents[extent.path][offset : offset + block.size], np.uint8)

    return fill


class Collector:
    """Puts what a visitor was shown together again, by file."""

    def __init__(self, sizes: dict[Path, int]) -> None:
        self.contents = {path: bytearray(size) for path, size in sizes.items()}

    def __call__(self, block: NDArray[np.uint8], extent: Extent, offset: int) -> None:
        self.contents[extent.path][offset : offset + block.size] = block.tobytes()


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.integers(0, 300_000), min_size=1, max_size=4),
    depth=st.integers(1, 3),
    block=st.sampled_from([4096, 12288, 65536]),
)
def test_what_is_written_is_read_back_at_any_size_depth_and_block(
    tmp_path: Path, sizes: list[int], depth: int, block: int
) -> None:
    contents = {tmp_path / str(i): os.urandom(size) for i, size in enumerate(sizes)}
    extents = [Extent(path, 0, len(content)) for path, content in contents.items()]
    engine = DirectEngine(SMALL)
    try:
        wrote = engine.run(
            plan("write", *extents, block=block, depth=depth), visit=filler(contents)
        )
        collector = Collector({path: len(content) for path, content in contents.items()})
        read = engine.run(plan("read", *extents, block=block, depth=depth), visit=collector)
    finally:
        engine.close()
    assert {path: path.read_bytes() for path in contents} == contents
    assert collector.contents == contents
    assert wrote.moved_bytes == read.moved_bytes == sum(sizes)
    assert wrote.operation_count == sum(-(-size // block) for size in sizes)


def test_bytes_are_counted_where_they_move(tmp_path: Path) -> None:
    path = tmp_path / "file"
    lock, counts = threading.Lock(), []

    def moved(count: int) -> None:
        with lock:
            counts.append(count)

    engine = DirectEngine(SMALL)
    result = engine.run(plan("write", Extent(path, 0, 200_001)), moved=moved)
    engine.close()
    assert sum(counts) == result.moved_bytes == path.stat().st_size == 200_001
    assert result.operation_count == len(counts) == 4
    assert result.path.path_requested == "o_direct"
    assert result.path.path_effective == "unverified"
    assert result.cpu_s > 0


def test_direct_reads_leave_the_page_cache_cold(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(1 << 20))
    evict([path])
    engine = DirectEngine(SMALL)
    engine.run(plan("read", Extent(path, 0, 1 << 20)))
    engine.close()
    assert resident_fraction([path]) == 0.0


def test_extents_of_one_file_share_a_descriptor_and_keep_what_lies_between(tmp_path: Path) -> None:
    path = tmp_path / "file"
    before = os.urandom(40960)
    path.write_bytes(before)
    content = os.urandom(40960)
    engine = DirectEngine(SMALL)
    engine.run(
        plan("write", Extent(path, 8192, 4096), Extent(path, 32768, 8192)),
        visit=filler({path: content}),
    )
    engine.close()
    expected = before[:8192] + content[8192:12288] + before[12288:32768] + content[32768:40960]
    assert path.read_bytes() == expected


def test_a_longer_file_is_cut_to_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100_000)
    engine = DirectEngine(SMALL)
    engine.run(plan("write", Extent(path, 0, 5_000)))
    engine.close()
    assert path.stat().st_size == 5_000


def test_a_truncated_file_is_named_with_the_offset(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100_000)
    engine = DirectEngine(SMALL)
    with pytest.raises(DataError, match=re.escape(f"{path} is truncated: at offset 65536")):
        engine.run(plan("read", Extent(path, 0, 100_001)))
    engine.close()


def test_a_missing_file_is_an_error_and_the_engine_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 4096)
    engine = DirectEngine(SMALL)
    open_before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(FileNotFoundError, match="none"):
        engine.run(plan("read", Extent(path, 0, 4096), Extent(tmp_path / "none", 0, 4096)))
    assert len(list(Path("/proc/self/fd").iterdir())) == open_before
    assert engine.run(plan("read", Extent(path, 0, 4096))).moved_bytes == 4096
    engine.close()


def test_a_failing_visitor_stops_the_plan_and_closes_its_files(tmp_path: Path) -> None:
    def refuse(block: NDArray[np.uint8], extent: Extent, offset: int) -> None:
        raise DataError("bad block")

    path = tmp_path / "file"
    path.write_bytes(b"x" * (1 << 20))
    engine = DirectEngine(SMALL)
    open_before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(DataError, match="bad block"):
        engine.run(plan("read", Extent(path, 0, 1 << 20)), visit=refuse)
    assert len(list(Path("/proc/self/fd").iterdir())) == open_before
    engine.close()


def test_an_interrupt_stops_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait for the threads is what a SIGINT breaks; the threads end before it goes on."""
    calls: list[int] = []

    def interrupted(futures: Sequence[Future[float]]) -> object:
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return wait(futures)

    monkeypatch.setattr("wattload.loaders.direct.wait", interrupted)
    engine = DirectEngine(SMALL)
    with pytest.raises(KeyboardInterrupt):
        engine.run(plan("write", Extent(tmp_path / "file", 0, 64 << 20)))
    assert len(calls) == 2
    engine.close()


def test_a_full_target_is_found_when_the_file_is_preallocated(tiny_file_system: Path) -> None:
    engine = DirectEngine(SMALL)
    with pytest.raises(OSError, match="preallocation at offset 1073741824 failed") as caught:
        engine.run(plan("write", Extent(tiny_file_system / "file", 0, 1 << 30)))
    engine.close()
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == str(tiny_file_system / "file")


def test_a_target_that_fills_up_meanwhile_names_file_and_offset(
    tiny_file_system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without preallocation, as on file systems that have none, the write itself finds it."""

    def unsupported(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "posix_fallocate", unsupported)
    engine = DirectEngine(SMALL)
    with pytest.raises(OSError, match=r"write at offset \d+ failed: No space left") as caught:
        engine.run(plan("write", Extent(tiny_file_system / "file", 0, 1 << 28)))
    engine.close()
    assert caught.value.errno == errno.ENOSPC


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(b"precious")
    (tmp_path / "link").symlink_to(tmp_path / "outside")
    engine = DirectEngine(SMALL)
    with pytest.raises(OSError, match="symbolic"):
        engine.run(plan("write", Extent(tmp_path / "link", 0, 4096)))
    engine.close()
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
    tmp_path: Path, kind: str, extents: list[tuple[int, int]]
) -> None:
    engine = DirectEngine(SMALL)
    with pytest.raises(ConfigError, match="can't be moved by O_DIRECT"):
        engine.run(plan(kind, *(Extent(tmp_path / "f", *extent) for extent in extents)))
    engine.close()


@pytest.mark.parametrize(("block", "depth"), [(128 << 10, 1), (512, 1), (4096, 0), (4096, 4)])
def test_a_plan_beyond_the_engine_is_refused(tmp_path: Path, block: int, depth: int) -> None:
    engine = DirectEngine(SMALL)
    with pytest.raises(ConfigError, match="the plan's"):
        engine.run(plan("read", Extent(tmp_path / "f", 0, 1), block=block, depth=depth))
    engine.close()


@pytest.mark.parametrize(
    "config",
    [
        Config(block_bytes=0),
        Config(block_bytes=1000),
        Config(block_bytes=2 << 30),
        Config(queue_depth=0),
        Config(queue_depth=5000),
    ],
)
def test_sizes_that_no_drive_takes_are_refused(config: Config) -> None:
    with pytest.raises(ConfigError, match=r"loader\.(block_bytes|queue_depth) must be"):
        DirectEngine(config)


def test_diskless_runs_the_same_loop_and_touches_no_file(tmp_path: Path) -> None:
    engine = DirectEngine(SMALL, diskless=True)
    extent = Extent(tmp_path / "file", 0, 1_000_000)
    wrote = engine.run(plan("write", extent))
    read = engine.run(plan("read", extent))
    engine.close()
    assert wrote.moved_bytes == read.moved_bytes == 1_000_000
    assert wrote.path.path_requested == "null"
    assert engine.capabilities().diskless
    assert not engine.capabilities().direct
    assert list(tmp_path.iterdir()) == []


def test_reader_keeps_several_files_in_flight_and_reuses_buffers(tmp_path: Path) -> None:
    sizes = [1, 4096, 300_001, 65536 * 3, 1_000_000]
    paths = [tmp_path / str(size) for size in sizes]
    for path, size in zip(paths, sizes, strict=True):
        path.write_bytes(os.urandom(size))
    buffers = [aligned_buffer(round_up(max(sizes), 4096)) for _ in range(2)]
    counts: list[int] = []
    reader = DirectReader(SMALL)
    for _ in range(3):
        for first in range(0, len(sizes) - 1, 2):
            pair = list(zip(paths[first:][:2], sizes[first:][:2], buffers, strict=False))
            tickets = [reader.submit(p, b, s, moved=counts.append) for p, s, b in pair]
            for (path, size, buffer), ticket in zip(pair, tickets, strict=True):
                assert ticket.result() == size
                assert buffer[:size].tobytes() == path.read_bytes()
    reader.close()
    assert sum(counts) == 3 * sum(sizes[:4])
    assert reader.path().path_requested == "o_direct"


def test_reader_gives_each_ticket_its_own_error(tmp_path: Path) -> None:
    good, short = tmp_path / "good", tmp_path / "short"
    good.write_bytes(os.urandom(200_000))
    short.write_bytes(b"x" * 70_000)
    buffers = [aligned_buffer(200_704) for _ in range(3)]
    reader = DirectReader(SMALL)
    open_before = len(list(Path("/proc/self/fd").iterdir()))
    bad = reader.submit(short, buffers[0], 200_000)
    none = reader.submit(tmp_path / "none", buffers[1], 200_000)
    fine = reader.submit(good, buffers[2], 200_000)
    with pytest.raises(DataError, match=r"is truncated: at offset \d+ it holds (4464|0) bytes"):
        bad.result()
    with pytest.raises(FileNotFoundError, match="none"):
        none.result()
    assert fine.result() == 200_000
    assert len(list(Path("/proc/self/fd").iterdir())) == open_before
    reader.close()


def test_reader_reads_the_first_part_of_a_longer_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(100_000))
    buffer = aligned_buffer(8192)
    reader = DirectReader(SMALL)
    assert reader.submit(path, buffer, 5000).result() == 5000
    assert reader.submit(path, buffer, 0).result() == 0
    reader.close()
    assert buffer[:5000].tobytes() == path.read_bytes()[:5000]


def test_reader_refuses_buffers_that_do_not_fit(tmp_path: Path) -> None:
    reader = DirectReader(SMALL)
    buffer = aligned_buffer(8192)
    with pytest.raises(ValueError, match="must hold 4097 bytes"):
        reader.submit(tmp_path / "f", buffer[:4096], 4097)
    with pytest.raises(ValueError, match="must be contiguous"):
        reader.submit(tmp_path / "f", buffer[1:], 100)
    reader.close()
    reader.close()
    with pytest.raises(RuntimeError, match="closed"):
        reader.submit(tmp_path / "f", buffer, 100)


def test_a_file_system_without_direct_io_is_the_tickets_error() -> None:
    reader = DirectReader(SMALL)
    with pytest.raises(TargetError, match="refuses O_DIRECT"):
        reader.submit(Path("/proc/self/status"), aligned_buffer(4096), 100).result()
    reader.close()
