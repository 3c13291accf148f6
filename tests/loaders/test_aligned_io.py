from __future__ import annotations

import errno
import fcntl
import os
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattload.core.errors import ForeignFileError, TargetError
from wattload.core.files import Folder, choose_folder
from wattload.core.storage.file_system import find_direct_io
from wattload.loaders import aligned_io
from wattload.loaders.aligned_io import (
    aligned_buffer,
    aligned_buffers,
    create_direct,
    direct_alignment,
    fill_random,
    round_down,
    round_up,
)


@given(st.integers(0, 1 << 60), st.sampled_from([1, 512, 4096, 1 << 20]))
def test_rounding_brackets_the_count_by_less_than_one_alignment(count: int, alignment: int) -> None:
    low, high = round_down(count, alignment), round_up(count, alignment)
    assert low <= count <= high
    assert low % alignment == high % alignment == 0
    assert high - low == (0 if count % alignment == 0 else alignment)


@pytest.mark.parametrize("alignment", [512, 4096, 1 << 16, 1 << 21])
@pytest.mark.parametrize("size", [1, 4096, 5_000_001])
def test_buffer_starts_at_its_alignment_and_is_zero(size: int, alignment: int) -> None:
    buffer = aligned_buffer(size, alignment)
    assert buffer.shape == (size,)
    assert buffer.dtype == np.uint8
    assert buffer.ctypes.data % alignment == 0
    assert not buffer.any()
    buffer[-1] = 7
    assert buffer[-1] == 7


def test_buffer_is_resident_on_return() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    before = resident()
    buffer = aligned_buffer(64 << 20)
    assert resident() - before >= buffer.size * 0.9


@pytest.mark.parametrize(("size", "alignment"), [(0, 4096), (-1, 4096), (1, 0), (1, 3000)])
def test_buffer_refuses_sizes_and_alignments_that_are_none(size: int, alignment: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        aligned_buffer(size, alignment)


def test_direct_descriptor_carries_the_flag_and_moves_bytes(tmp_path: Path) -> None:
    written = aligned_buffer(8192)
    written[:] = np.arange(8192) % 251
    with choose_folder(tmp_path) as folder:
        descriptor = create_direct(folder, "file")
    try:
        assert fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT
        assert os.pwritev(descriptor, [written.data], 0) == 8192
    finally:
        os.close(descriptor)
    assert (tmp_path / "file").read_bytes() == written.tobytes()


def test_a_file_system_without_direct_io_is_a_target_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file system of every machine refuses the flag and takes files."""

    def refuse(folder: Folder, name: str, flags: int) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(Folder, "create", refuse)
    with choose_folder(tmp_path) as folder, pytest.raises(TargetError, match="refuses O_DIRECT"):
        create_direct(folder, "file")


def test_a_file_that_exists_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with choose_folder(tmp_path) as folder, pytest.raises(ForeignFileError, match="exists"):
        create_direct(folder, "file")


def test_a_flag_that_was_dropped_is_a_target_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some stacked file systems open the file and forget the flag; no machine here has one."""
    create = Folder.create
    monkeypatch.setattr(Folder, "create", lambda folder, name, flags: create(folder, name))
    before = len(list(Path("/proc/self/fd").iterdir()))
    with choose_folder(tmp_path) as folder, pytest.raises(TargetError, match="refuses O_DIRECT"):
        create_direct(folder, "file")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_random_bytes_do_not_compress_and_follow_the_seed() -> None:
    one, two, other = aligned_buffers(3, 1 << 20)
    fill_random([one], seed=1, rank=0)
    fill_random([two], seed=1, rank=0)
    fill_random([other], seed=1, rank=1)
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)
    assert len(zlib.compress(one.tobytes())) > one.size * 0.999


def test_the_kernels_own_alignment_is_given_to_those_who_need_it(tmp_path: Path) -> None:
    needs, _ = find_direct_io(tmp_path)
    if needs is None:
        pytest.skip("the file system of the tests has no O_DIRECT")
    own = max(needs.offset_align_bytes, needs.memory_align_bytes)
    assert direct_alignment(tmp_path, 512) == max(own, 512)
    assert direct_alignment(tmp_path) == max(own, 4096)
    assert direct_alignment(tmp_path / "missing", 512) == 4096


@pytest.mark.parametrize(
    ("answer", "least", "page"),
    [((4, 512), 512, 4096), ((512, 4096), 4096, 4096), ((4, 65536), 65536, 65536),
     ((0, 0), 4096, 4096)],
)  # fmt: skip
def test_larger_blocks_of_a_drive_are_never_undercut(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: tuple[int, int],
    least: int,
    page: int,
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(aligned_io, "_alignments", {})
    monkeypatch.setattr(aligned_io, "statx_alignment", lambda _: answer)
    assert direct_alignment(tmp_path / "file", 512) == least
    assert direct_alignment(tmp_path / "file") == page
