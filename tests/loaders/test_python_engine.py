from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from concurrent.futures import Future, wait
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.contracts.engine import BLOCK, DEPTH, EngineContract, open_descriptors, plan
from wattload.core.errors import DataError
from wattload.core.io import Engine, Extent
from wattload.loaders.coldcache import evict, resident_fraction
from wattload.loaders.python.engine import REMARK, PythonEngine


def small(*, diskless: bool = False) -> PythonEngine:
    return PythonEngine(block_bytes=BLOCK, depth=DEPTH, diskless=diskless)


class TestPythonEngine(EngineContract):
    def make(self) -> Engine:
        return small()


def test_direct_reads_leave_the_page_cache_cold(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(1 << 20))
    evict([path])
    engine = small()
    result = engine.run(plan("read", Extent(path, 0, 1 << 20)))
    engine.close()
    assert result.path.path_requested == "o_direct"
    assert resident_fraction([path]) == 0.0


def test_an_interrupt_stops_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait for the threads is what a SIGINT breaks; the threads end before it goes on."""
    calls: list[int] = []

    def interrupted(futures: Sequence[Future[float]]) -> object:
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return wait(futures)

    monkeypatch.setattr("wattload.loaders.python.engine.wait", interrupted)
    engine = small()
    with pytest.raises(KeyboardInterrupt):
        engine.run(plan("write", Extent(tmp_path / "file", 0, 64 << 20)))
    assert len(calls) == 2
    engine.close()


def test_an_interrupt_does_not_wait_for_blocks_that_are_not_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(4 * BLOCK))
    left: list[int] = []

    def interrupted(futures: Sequence[Future[float]]) -> object:
        if not left:
            left.append(len(wait(futures, timeout=0.2).not_done))
            raise KeyboardInterrupt
        left.append(len(wait(futures, timeout=5).not_done))
        return wait(futures)

    monkeypatch.setattr("wattload.loaders.python.engine.wait", interrupted)
    engine = small()
    with pytest.raises(KeyboardInterrupt):  # the second block is due after 8 s
        engine.run(plan("read", Extent(path, 0, 4 * BLOCK), rate_bytes_per_s=BLOCK / 8))
    engine.close()
    assert left == [DEPTH, 0]


def test_a_full_target_is_found_when_the_file_is_preallocated(tiny_file_system: Path) -> None:
    engine = small()
    with pytest.raises(OSError, match="preallocation at offset 1073741824 failed"):
        engine.run(plan("write", Extent(tiny_file_system / "file", 0, 1 << 30)))
    engine.close()


def test_a_target_that_fills_up_meanwhile_names_file_and_offset(
    tiny_file_system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without preallocation, as on file systems that have none, the write itself finds it."""

    def unsupported(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "posix_fallocate", unsupported)
    engine = small()
    with pytest.raises(OSError, match=r"write at offset \d+ failed: No space left") as caught:
        engine.run(plan("write", Extent(tiny_file_system / "file", 0, 1 << 28)))
    engine.close()
    assert caught.value.errno == errno.ENOSPC


@pytest.mark.parametrize("verb", ["preadv", "pwritev"])
def test_what_the_kernel_refuses_names_file_and_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """A medium error, which no healthy drive gives."""

    def broken(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    path = tmp_path / "file"
    path.write_bytes(b"x" * 4096)
    monkeypatch.setattr(os, verb, broken)
    engine = small()
    kind = "read" if verb == "preadv" else "write"
    with pytest.raises(OSError, match=rf"{kind} at offset 0 failed: Input/output") as caught:
        engine.run(plan(kind, Extent(path, 0, 4096)))
    engine.close()
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, str(path))


def test_a_write_that_stops_off_a_block_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pwritev", lambda *_: 100)
    engine = small()
    with pytest.raises(OSError, match="wrote 100 bytes, no multiple of 4096"):
        engine.run(plan("write", Extent(tmp_path / "file", 0, 8192)))
    engine.close()


def test_short_reads_and_writes_are_taken_up_where_they_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preadv, pwritev = os.preadv, os.pwritev
    monkeypatch.setattr(os, "preadv", lambda d, b, o: preadv(d, [b[0][:8192]], o))
    monkeypatch.setattr(os, "pwritev", lambda d, b, o: pwritev(d, [b[0][:4096]], o))
    path = tmp_path / "file"
    engine = small()
    for kind in ("write", "read"):
        assert engine.run(plan(kind, Extent(path, 0, 100_001))).moved_bytes == 100_001
    engine.close()
    assert path.stat().st_size == 100_001


def test_a_failed_fsync_is_an_error_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    engine = small()
    with pytest.raises(OSError, match="fsync at offset 4096 failed"):
        engine.run(plan("write", Extent(tmp_path / "file", 0, 4096)))
    engine.close()


def test_a_failing_visitor_stops_the_plan(tmp_path: Path) -> None:
    def refuse(block: NDArray[np.uint8], extent: Extent, offset: int) -> None:
        raise DataError("bad block")

    path = tmp_path / "file"
    path.write_bytes(b"x" * (1 << 20))
    engine = small()
    before = open_descriptors()
    with pytest.raises(DataError, match="bad block"):
        engine.run(plan("read", Extent(path, 0, 1 << 20)), visit=refuse)
    assert open_descriptors() == before
    engine.close()


def test_every_page_says_that_it_is_the_reference(tmp_path: Path) -> None:
    engine = small()
    assert engine.path().data_path == "o_direct by the pure-Python reference"
    assert engine.path().remarks == (REMARK,)
    assert "loader.engine=python" in REMARK
    engine.close()


def test_diskless_runs_the_same_loop_and_touches_no_file(tmp_path: Path) -> None:
    engine = small(diskless=True)
    extent = Extent(tmp_path / "file", 0, 1_000_000)
    wrote = engine.run(plan("write", extent))
    read = engine.run(plan("read", extent))
    engine.close()
    assert wrote.moved_bytes == read.moved_bytes == 1_000_000
    assert wrote.path.path_requested == "null"
    assert engine.capabilities().diskless
    assert not engine.capabilities().direct
    assert list(tmp_path.iterdir()) == []
