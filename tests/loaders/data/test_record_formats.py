"""What numpy and Pillow write we read, what we write they read, and damage is one sentence."""

from __future__ import annotations

import io
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from wattload.core.errors import ConfigError, DataError
from wattload.loaders.data.record_formats import FORMATS, file_bytes, record_format

Bytes = NDArray[np.uint8]
NUMPY = ["npy", "npz"]
SHAPES = [(1, 1, 1), (3, 5, 1), (70, 61, 1), (1000,), (0, 4, 1), (33, 2)]


def _record(shape: tuple[int, ...]) -> Bytes:
    return np.random.default_rng(7).integers(0, 256, shape, dtype=np.uint8)


def _ours(name: str, record: Bytes) -> bytes:
    layout = FORMATS[name]
    crc32 = zlib.crc32(record.tobytes(), zlib.crc32(layout.checked_head(record.shape)))
    head, tail = (of(record.shape, crc32) for of in (layout.head, layout.tail))
    content = bytearray(head + record.tobytes() + tail)
    for position, data in layout.inside(record.shape):
        content[position : position + len(data)] = data
    return bytes(content)


def _theirs(name: str, array: NDArray[Any], **others: Any) -> bytes:
    file = io.BytesIO()
    if name == "npy":
        np.save(file, array, allow_pickle=False)
    else:
        np.savez(file, x=array, **others)
    return file.getvalue()


def _raw(data: bytes) -> Bytes:
    return np.frombuffer(data, dtype=np.uint8)


@pytest.mark.parametrize("name", NUMPY)
@pytest.mark.parametrize("shape", SHAPES)
def test_numpy_reads_what_we_write(name: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    record = _record(shape)
    path = tmp_path / f"record.{name}"
    path.write_bytes(_ours(name, record))
    loaded = np.load(path, allow_pickle=False)
    if name == "npy":
        np.testing.assert_array_equal(loaded, record)
        return
    with loaded:
        assert loaded.files == ["x", "y"]
        np.testing.assert_array_equal(loaded["x"], record)
        assert loaded["y"].tolist() == [0]
        assert loaded["y"].dtype == np.int64


@pytest.mark.parametrize("name", NUMPY)
@pytest.mark.parametrize("shape", SHAPES)
def test_we_read_what_numpy_writes(name: str, shape: tuple[int, ...]) -> None:
    record = _record(shape)
    raw = _raw(_theirs(name, record, y=[0]))
    found = FORMATS[name].payload(raw, "record", check_crc=True)
    assert found.tobytes() == record.tobytes()


@pytest.mark.parametrize("name", FORMATS)
def test_payload_is_a_view_of_the_file(name: str) -> None:
    raw = _raw(_ours(name, _record((64, 64, 1)))).copy()
    found = FORMATS[name].payload(raw, "record")
    raw[:] = 9
    assert found.shape == (64 * 64,)
    assert np.shares_memory(found, raw)
    assert set(found.tolist()) == {9}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("shape", SHAPES)
def test_file_size_is_known_before_it_is_written(name: str, shape: tuple[int, ...]) -> None:
    assert file_bytes(FORMATS[name], shape) == len(_ours(name, _record(shape)))


@pytest.mark.parametrize("name", NUMPY)
def test_payload_starts_at_a_multiple_of_64(name: str) -> None:
    assert len(FORMATS[name].head((12, 12, 1))) % 64 == 0


def test_zip_tools_find_no_fault_in_our_npz(tmp_path: Path) -> None:
    path = tmp_path / "record.npz"
    path.write_bytes(_ours("npz", _record((50, 50, 1))))
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert [entry.compress_type for entry in archive.infolist()] == [zipfile.ZIP_STORED] * 2


@pytest.mark.parametrize("name", FORMATS)
def test_every_truncation_is_an_error(name: str) -> None:
    data = _ours(name, _record((3, 5, 1)))
    for length in range(len(data)):
        with pytest.raises(DataError, match=r"^some/file"):
            FORMATS[name].payload(_raw(data[:length]), "some/file")


@settings(deadline=None)
@given(st.data())
def test_damage_never_escapes_as_another_error(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(FORMATS)))
    whole = bytearray(_ours(name, _record((3, 5, 1))))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with suppress(DataError):
        found = FORMATS[name].payload(_raw(bytes(whole)), "file", check_crc=True)
        assert found.dtype == np.uint8


@pytest.mark.parametrize("name", NUMPY)
@pytest.mark.parametrize("dtype", ["i1", "<f4", ">u2", "S1"])
def test_another_dtype_is_refused(name: str, dtype: str) -> None:
    raw = _raw(_theirs(name, np.zeros((3, 4), dtype=dtype)))
    with pytest.raises(DataError, match="uint8"):
        FORMATS[name].payload(raw, "file")


@pytest.mark.parametrize("name", NUMPY)
def test_column_order_is_refused(name: str) -> None:
    raw = _raw(_theirs(name, np.asfortranarray(_record((3, 4)))))
    with pytest.raises(DataError, match="fortran_order=True"):
        FORMATS[name].payload(raw, "file")


def test_pickled_objects_are_refused() -> None:
    file = io.BytesIO()
    np.save(file, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match=r"'\|O'"):
        FORMATS["npy"].payload(_raw(file.getvalue()), "file")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"{'descr': '|u1', 'fortran_order': False, 'shape': (-1,)}", "shape"),
        (b"{'descr': '|u1', 'fortran_order': False, 'shape': (True,)}", "shape"),
        (b"{'descr': '|u1', 'fortran_order': False, 'shape': 3}", "shape"),
        (b"{'descr': '|u1', 'fortran_order': False}", "header is not"),
        (b"['descr']", "header is not"),
        (b"__import__('os').getcwd()", "not a dict"),
        (b"{'descr'", "not a dict"),
        (b"(" * 900, "not a dict"),
    ],
)
def test_a_header_that_is_no_header_is_an_error(header: bytes, message: str) -> None:
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"123"
    with pytest.raises(DataError, match=message):
        FORMATS["npy"].payload(_raw(data), "file")


@pytest.mark.parametrize("version", [2, 3])
def test_headers_with_a_long_length_field_are_read(version: int) -> None:
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }"
    start = b"\x93NUMPY" + bytes([version, 0]) + len(header).to_bytes(4, "little")
    assert FORMATS["npy"].payload(_raw(start + header + b"abc"), "file").tobytes() == b"abc"


def test_an_unknown_npy_version_is_an_error() -> None:
    with pytest.raises(DataError, match="unknown npy version"):
        FORMATS["npy"].payload(_raw(b"\x93NUMPY\x09\x00" + bytes(100)), "file")


def test_bytes_after_the_array_are_an_error() -> None:
    with pytest.raises(DataError, match="followed by other bytes"):
        FORMATS["npy"].payload(_raw(_ours("npy", _record((2, 2))) + b"!"), "file")


def test_a_compressed_member_is_refused() -> None:
    file = io.BytesIO()
    np.savez_compressed(file, x=np.zeros((40, 40), dtype=np.uint8))
    with pytest.raises(DataError, match="compressed by method 8"):
        FORMATS["npz"].payload(_raw(file.getvalue()), "file")


def test_an_archive_without_x_is_an_error() -> None:
    file = io.BytesIO()
    np.savez(file, z=np.zeros((4, 4), dtype=np.uint8))
    with pytest.raises(DataError, match=r"no readable x\.npy"):
        FORMATS["npz"].payload(_raw(file.getvalue()), "file")


def _patched(offset_in_entry: int, value: bytes) -> Bytes:
    """Return one of our files with a field of the first directory entry replaced."""
    data = bytearray(_ours("npz", _record((8, 8, 1))))
    start = bytes(data).index(b"PK\x01\x02") + offset_in_entry
    data[start : start + len(value)] = value
    return _raw(bytes(data))


@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [
        (8, b"\x01\x00", "encrypted"),
        (20, b"\xff" * 4, "zip64"),
        (24, b"\x01\x00\x00\x00", "corrupt"),
        (42, b"\x07\x00\x00\x00", "no local header"),
        (46, b"w", r"no readable x\.npy"),
    ],
)
def test_a_damaged_directory_entry_is_an_error(offset: int, value: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        FORMATS["npz"].payload(_patched(offset, value), "file")


@pytest.mark.parametrize(
    ("start", "message"), [(0xFFFFFFFF, "zip64"), (0xFFFF, "after the file's end")]
)
def test_a_directory_that_lies_elsewhere_is_an_error(start: int, message: str) -> None:
    data = bytearray(_ours("npz", _record((8, 8, 1))))
    data[-6:-2] = start.to_bytes(4, "little")
    with pytest.raises(DataError, match=message):
        FORMATS["npz"].payload(_raw(bytes(data)), "file")


def test_the_crc_is_checked_only_when_asked() -> None:
    data = bytearray(_ours("npz", _record((8, 8, 1))))
    data[len(FORMATS["npz"].head((8, 8, 1))) + 3] ^= 1
    assert len(FORMATS["npz"].payload(_raw(bytes(data)), "file")) == 64
    with pytest.raises(DataError, match="CRC-32"):
        FORMATS["npz"].payload(_raw(bytes(data)), "file", check_crc=True)


def test_a_record_that_needs_zip64_is_refused_before_it_is_made() -> None:
    with pytest.raises(ConfigError, match="4 GiB"):
        FORMATS["npz"].head((1 << 16, 1 << 16, 1))


def test_an_unknown_format_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"jpeg, npy, npz, got 'tfrecord'"):
        record_format("tfrecord")


SEGMENT_BYTES = 15 * 4096
JPEG_HEAD_BYTES = len(FORMATS["jpeg"].head((1,)))
EDGES = [
    SEGMENT_BYTES * count - JPEG_HEAD_BYTES + more for count in (1, 2) for more in (-5, -1, 0, 1, 5)
]


class CountingFile(io.BytesIO):
    """A file in memory that counts the bytes that are read."""

    read_bytes = 0

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        self.read_bytes += len(found)
        return found


@pytest.mark.parametrize("size", [0, 1, 322_957, *EDGES])
def test_pillow_reads_every_byte_of_our_jpeg_once(size: int) -> None:
    image_module = pytest.importorskip("PIL.Image")
    whole = _ours("jpeg", _record((size,)))
    file = CountingFile(whole)
    image = image_module.open(file)
    assert np.unique(np.asarray(image)).tolist() == [128]
    assert image.size == (8, 8)
    assert len(whole) <= file.read_bytes <= len(whole) + 2 * JPEG_HEAD_BYTES
    payload = FORMATS["jpeg"].payload(_raw(whole), "file").tobytes()
    assert payload == whole[JPEG_HEAD_BYTES : JPEG_HEAD_BYTES + size]
    assert FORMATS["jpeg"].surrounds(_raw(whole), "file")


def test_no_header_of_a_segment_is_where_a_stamp_is() -> None:
    inside = FORMATS["jpeg"].inside((322_957,))
    assert [(at + 4) % SEGMENT_BYTES for at, _ in inside] == [0] * 5


def test_a_jpeg_of_another_program_is_all_payload() -> None:
    image_module = pytest.importorskip("PIL.Image")
    file = io.BytesIO()
    image_module.fromarray(_record((90, 70))).save(file, format="JPEG")
    raw = _raw(file.getvalue())
    assert FORMATS["jpeg"].payload(raw, "file").tobytes() == file.getvalue()
    assert not FORMATS["jpeg"].surrounds(raw, "file")


def test_random_bytes_under_the_name_of_a_jpeg_are_refused() -> None:
    with pytest.raises(DataError, match=r"^file is not JPEG"):
        FORMATS["jpeg"].payload(_record((500,)), "file")
