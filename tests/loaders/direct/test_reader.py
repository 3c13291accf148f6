from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.contracts.engine import open_descriptors
from wattload.core.errors import ConfigError, DataError, TargetError
from wattload.loaders.aligned_io import aligned_buffer, aligned_buffers, round_up
from wattload.loaders.direct.config import Config
from wattload.loaders.direct.loader import FileReader
from wattload.loaders.engine.library import backend_unavailable


@pytest.fixture(params=["io_uring", "pread"])
def config(request: pytest.FixtureRequest) -> Config:
    reason = backend_unavailable(request.param)
    if reason is not None:
        pytest.skip(f"{request.param} can't run here: {reason}")
    return Config(engine=request.param, block_bytes=64 << 10, queue_depth=3)


def test_reader_keeps_several_files_in_flight_and_reuses_buffers(
    config: Config, tmp_path: Path
) -> None:
    sizes = [1, 4096, 300_001, 65536 * 3, 1_000_000]
    paths = [tmp_path / str(size) for size in sizes]
    for path, size in zip(paths, sizes, strict=True):
        path.write_bytes(os.urandom(size))
    buffers = [aligned_buffer(round_up(max(sizes), 4096)) for _ in range(2)]
    counts: list[int] = []
    reader = FileReader(config, buffers=buffers)
    for _ in range(3):
        for first in range(0, len(sizes) - 1, 2):
            pair = list(zip(paths[first:][:2], sizes[first:][:2], buffers, strict=False))
            tickets = [reader.submit([(p, s)], b[None], moved=counts.append) for p, s, b in pair]
            for (path, size, buffer), ticket in zip(pair, tickets, strict=True):
                assert ticket.result().moved_bytes == size
                assert buffer[:size].tobytes() == path.read_bytes()
    reader.close()
    assert sum(counts) == 3 * sum(sizes[:4])
    assert reader.latency().count == 3 * (1 + 1 + 5 + 3)
    assert reader.path().path_requested == "o_direct"


def test_a_buffer_larger_than_all_blocks_in_flight_is_registered_whole(tmp_path: Path) -> None:
    """The kernel lists what a ring has registered; what is not is read at more CPU time."""
    if backend_unavailable("io_uring") is not None:
        pytest.skip("io_uring can't run here")
    path, buffer = tmp_path / "file", aligned_buffer(4 << 20)
    path.write_bytes(os.urandom(4 << 20))
    config = Config(engine="io_uring", block_bytes=64 << 10, queue_depth=3, pollers=2)
    rings_before = rings()  # an engine may outlive the test that opened it
    reader = FileReader(config, buffers=[buffer])
    assert reader.submit([(path, 4 << 20)], buffer[None]).result().moved_bytes == 4 << 20
    assert "buffers registered" in reader.path().engine
    listed = [registered_bytes(ring) for ring in rings() - rings_before]
    reader.close()
    if None in listed:
        pytest.skip("this kernel does not list what a ring has registered")
    assert listed == [4 << 20] * 2


def test_any_number_of_buffers_of_one_piece_of_memory_is_taken(tmp_path: Path) -> None:
    """Small samples for many accelerators: more buffers than an engine has regions."""
    path = tmp_path / "file"
    path.write_bytes(os.urandom(5000))
    buffers = aligned_buffers(1100, 8192)
    reader = FileReader(Config(block_bytes=4096, queue_depth=2), buffers=buffers)
    tickets = [reader.submit([(path, 5000)], buffer[None]) for buffer in buffers]
    assert [ticket.result().moved_bytes for ticket in tickets] == [5000] * 1100
    reader.close()
    assert {buffer[:5000].tobytes() for buffer in buffers} == {path.read_bytes()}


def rings() -> set[str]:
    """Return the descriptors of this process that are rings."""
    links = list(Path("/proc/self/fd").iterdir())
    return {link.name for link in links if link.is_symlink() and "io_uring" in str(link.readlink())}


def registered_bytes(ring: str) -> int | None:
    """Return how much memory a ring has registered, ``None`` where the kernel does not say."""
    reported = Path("/proc/self/fdinfo", ring).read_text(encoding="ascii")
    found = re.search(r"UserBufs:\s*\d+\n((?: *\d+: .*\n)*)", reported)
    return found and sum(int(line.rpartition("/")[2]) for line in found.group(1).splitlines())


def test_reader_gives_each_ticket_its_own_error(config: Config, tmp_path: Path) -> None:
    good, short = tmp_path / "good", tmp_path / "short"
    good.write_bytes(os.urandom(200_000))
    short.write_bytes(b"x" * 70_000)
    buffers = [aligned_buffer(200_704) for _ in range(3)]
    reader = FileReader(config, buffers=buffers)
    open_before = open_descriptors()
    bad = reader.submit([(short, 200_000)], buffers[0][None])
    none = reader.submit([(tmp_path / "none", 200_000)], buffers[1][None])
    fine = reader.submit([(good, 200_000)], buffers[2][None])
    with pytest.raises(DataError, match="short is truncated: "):
        bad.result()
    with pytest.raises(FileNotFoundError, match="none"):
        none.result()
    assert fine.result().moved_bytes == 200_000
    assert open_descriptors() == open_before
    reader.close()


def test_reader_reads_the_first_part_of_a_longer_file(config: Config, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(100_000))
    buffer = aligned_buffer(8192)
    reader = FileReader(config, buffers=[buffer])
    assert reader.submit([(path, 5000)], buffer[None]).result().moved_bytes == 5000
    assert reader.submit([(path, 0)], buffer[None]).result().moved_bytes == 0
    reader.close()
    assert buffer[:5000].tobytes() == path.read_bytes()[:5000]


def test_reader_refuses_buffers_that_do_not_fit(config: Config, tmp_path: Path) -> None:
    buffer = aligned_buffer(8192)
    reader = FileReader(config, buffers=[buffer])
    (tmp_path / "f").write_bytes(bytes(5000))
    with pytest.raises(ConfigError, match="at least the plan's 8192 bytes, got 4096"):
        reader.submit([(tmp_path / "f", 4097)], buffer[:4096][None])
    with pytest.raises(ConfigError, match="destination offset must be a multiple"):
        reader.submit([(tmp_path / "f", 100)], buffer[1:][None])
    reader.close()
    reader.close()
    with pytest.raises(RuntimeError, match="closed"):
        reader.submit([(tmp_path / "f", 100)], buffer[None])


def test_a_file_system_without_direct_io_is_the_tickets_error(config: Config) -> None:
    buffer = aligned_buffer(4096)
    reader = FileReader(config, buffers=[buffer])
    with pytest.raises(TargetError, match="refuses O_DIRECT"):
        reader.submit([(Path("/proc/self/status"), 100)], buffer[None]).result()
    reader.close()


def test_a_buffer_that_is_not_the_readers_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(4096))
    reader = FileReader(Config(block_bytes=4096, queue_depth=1), buffers=[aligned_buffer(4096)])
    with pytest.raises(ConfigError, match="not in any of the engine's regions"):
        reader.submit([(path, 4096)], aligned_buffer(4096)[None])
    reader.close()
