"""What alignment O_DIRECT needs, asked of the kernel and tried out, on real files."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
from pathlib import Path

import pytest

from wattload.core.storage import file_system
from wattload.core.storage.file_system import find_direct_io, scratch_file, statx_alignment


def test_the_alignment_found_is_enough_for_a_direct_read_and_write(tmp_path: Path) -> None:
    found, reason = find_direct_io(tmp_path)
    if found is None:
        pytest.skip(f"no O_DIRECT under the tests: {reason}")
    size = max(found.offset_align_bytes, found.memory_align_bytes)
    with scratch_file(tmp_path, os.O_DIRECT) as descriptor, mmap.mmap(-1, size) as memory:
        memory[:] = b"w" * size
        assert os.pwritev(descriptor, [memory], size) == size
        memory[:] = bytes(size)
        assert os.preadv(descriptor, [memory], size) == size
        assert memory[:] == b"w" * size


def test_trying_out_agrees_with_statx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from_statx, _ = find_direct_io(tmp_path)
    if from_statx is None or from_statx.found_by != "statx":
        pytest.skip("statx does not tell alignments here")
    monkeypatch.setattr(file_system, "statx_alignment", lambda _: None)
    tried, reason = find_direct_io(tmp_path)
    assert tried is not None, reason
    assert tried.found_by == "probe"
    assert tried.offset_align_bytes == max(512, from_statx.offset_align_bytes)


def test_a_file_system_that_refuses_is_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_system, "statx_alignment", lambda _: (0, 0))
    assert find_direct_io(tmp_path) == (
        None,
        "the file system does not support O_DIRECT (statx)",
    )


def test_proc_allows_no_file() -> None:
    found, reason = find_direct_io(Path("/proc"))
    assert found is None
    assert reason is not None
    assert reason.startswith("no file can be created there")


def test_a_kernel_without_an_answer_gives_none() -> None:
    with Path("/proc/self/status").open("rb") as file:
        assert statx_alignment(file.fileno()) is None


def test_a_c_library_without_statx_gives_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
    assert statx_alignment(0) is None


def test_a_closed_descriptor_gives_none() -> None:
    assert statx_alignment(-1) is None


@pytest.mark.parametrize("flags", [0, os.O_DIRECT])
def test_without_nameless_files_a_named_one_is_made_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: int
) -> None:
    real_open = os.open

    def no_tmpfile(path: Path, wanted: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if wanted & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return real_open(path, wanted, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", no_tmpfile)
    with scratch_file(tmp_path, flags) as descriptor:
        assert list(tmp_path.iterdir()) == []
        assert os.fstat(descriptor).st_nlink == 0


def test_a_refused_open_is_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_open = os.open

    def no_direct(path: Path, wanted: int, mode: int = 0o777) -> int:
        if wanted & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real_open(path, wanted, mode)

    monkeypatch.setattr(os, "open", no_direct)
    monkeypatch.setattr(file_system, "statx_alignment", lambda _: None)
    assert find_direct_io(tmp_path) == (None, "open with O_DIRECT: Invalid argument")


def test_a_dropped_flag_is_no_direct_io(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "fcntl", lambda *_: os.O_RDWR)
    monkeypatch.setattr(file_system, "statx_alignment", lambda _: None)
    found, reason = find_direct_io(tmp_path)
    assert found is None
    assert reason is not None
    assert "ignored O_DIRECT" in reason


def test_a_larger_block_is_tried_where_512_bytes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_write = os.pwritev

    def only(least: int) -> None:
        def write(descriptor: int, buffers: list[memoryview], offset: int) -> int:
            if len(buffers[0]) < least:
                raise OSError(errno.EINVAL, "Invalid argument")
            return real_write(descriptor, buffers, offset)

        monkeypatch.setattr(os, "pwritev", write)

    monkeypatch.setattr(file_system, "statx_alignment", lambda _: None)
    if find_direct_io(tmp_path)[0] is None:
        pytest.skip("no O_DIRECT under the tests")
    only(4096)
    found, _ = find_direct_io(tmp_path)
    assert found is not None
    assert (found.memory_align_bytes, found.offset_align_bytes) == (4096, 4096)
    only(8192)
    assert find_direct_io(tmp_path) == (None, "direct I/O of 4096 bytes: Invalid argument")
