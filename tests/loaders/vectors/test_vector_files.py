"""Files of vectors, as others write them, and damage."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from wattload.core.errors import DataError
from wattload.loaders.vectors.layout import VectorType
from wattload.loaders.vectors.vector_files import VectorFile

FLOATS = np.arange(21, dtype=np.float32).reshape(7, 3) / 8
BYTES = np.arange(21, dtype=np.uint8).reshape(7, 3)
ROWS = b"".join(struct.pack("<i3f", 3, *row) for row in FLOATS.tolist())
BYTE_ROWS = b"".join(struct.pack("<i3B", 3, *row) for row in BYTES.tolist())
HEAD = struct.pack("<2i", 7, 3)


def stored(folder: Path, suffix: str, data: bytes) -> VectorFile:
    path = folder / f"vectors{suffix}"
    path.write_bytes(data)
    return VectorFile(path)


@pytest.mark.parametrize(
    ("suffix", "data", "expected"),
    [
        (".fvecs", ROWS, FLOATS),
        (".bvecs", BYTE_ROWS, BYTES),
        (".fbin", HEAD + FLOATS.tobytes(), FLOATS),
        (".u8bin", HEAD + BYTES.tobytes(), BYTES),
        (".u8bin", struct.pack("<2i", 1, 1) + b"a", np.array([[97]], np.uint8)),
    ],
)
def test_vectors_are_read_from_any_place(
    tmp_path: Path, suffix: str, data: bytes, expected: np.ndarray
) -> None:
    file = stored(tmp_path, suffix, data)
    assert (file.count, file.dim) == expected.shape
    assert file.vector_type.dtype == expected.dtype
    for first in range(file.count):
        found = file.read(first, file.count - first)
        assert found.dtype == expected.dtype
        assert np.array_equal(found, expected[first:])
    assert np.array_equal(file.read(0, 1), expected[:1])


@pytest.mark.parametrize(
    ("suffix", "data"),
    [
        (".fvecs", b""),
        (".fvecs", ROWS[:4]),
        (".fvecs", ROWS[:-1]),
        (".bvecs", ROWS[16:]),
        (".fbin", b""),
        (".fbin", HEAD),
        (".fbin", struct.pack("<2i", 0, 3)),
        (".fbin", struct.pack("<2i", 7, 0)),
        (".fbin", HEAD + FLOATS.tobytes()[:-12]),
        (".fbin", HEAD + BYTES.tobytes()),
        (".u8bin", HEAD + FLOATS.tobytes()),
        (".u8bin", struct.pack("<2i", -7, 3) + BYTES.tobytes()),
        (".u8bin", struct.pack("<2i", -1, -1) + b"a"),
    ],
)
def test_a_size_that_does_not_fit_is_refused(tmp_path: Path, suffix: str, data: bytes) -> None:
    with pytest.raises(DataError, match=rf"vectors\{suffix} has {len(data)} bytes, .*copy it"):
        stored(tmp_path, suffix, data)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no\.fbin does not exist"):
        VectorFile(tmp_path / "no.fbin")


def test_a_vector_of_another_dim_is_named(tmp_path: Path) -> None:
    row = struct.calcsize("<i3f")
    file = stored(tmp_path, ".fvecs", ROWS[: 5 * row] + struct.pack("<i", 2) + ROWS[5 * row + 4 :])
    assert len(file.read(0, 5)) == 5
    with pytest.raises(DataError, match="vector 5 of dim 2 after others of 3"):
        file.read(3, 4)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_vector_that_is_not_finite_is_named(tmp_path: Path, value: float) -> None:
    vectors = FLOATS.copy()
    vectors[4, 1] = value
    file = stored(tmp_path, ".fbin", HEAD + vectors.tobytes())
    with pytest.raises(DataError, match=r"has NaN or a number above 1e\+15 in vector 4"):
        file.read(2, 5)


def test_a_file_that_became_shorter_is_found(tmp_path: Path) -> None:
    file = stored(tmp_path, ".fbin", HEAD + FLOATS.tobytes())
    file.path.write_bytes(HEAD + FLOATS.tobytes()[:-12])
    assert VectorType.f32 is file.vector_type
    with pytest.raises(DataError, match="ends before vector 7"):
        file.read(0, 7)
