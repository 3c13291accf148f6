from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.contracts.loader import make_samples, payload_of
from wattload.core.errors import DataError
from wattload.loaders.torch import loader as torchworker
from wattload.loaders.torch.loader import TimedFile, read_payload


@pytest.mark.parametrize("record_format", ["npz", "npy"])
def test_reading_is_a_part_of_loading(tmp_path: Path, record_format: str) -> None:
    samples = make_samples(tmp_path, record_format)
    start_ns = time.monotonic_ns()
    payload, read_ns = read_payload(samples.paths[9], samples.file_bytes[9])
    assert 0 < read_ns <= time.monotonic_ns() - start_ns
    assert payload.tobytes() == payload_of(9).tobytes()


def test_the_reads_of_a_file_are_timed_as_they_are_made(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(1 << 20))
    with TimedFile(path) as raw, io.BufferedReader(raw) as file:
        assert raw.read_ns == 0
        assert len(file.read(100)) == 100
        first_ns = raw.read_ns
        assert first_ns > 0
        assert len(file.read(100)) == 100  # from the buffer
        assert raw.read_ns == first_ns


@pytest.mark.parametrize(("size", "what"), [(100, "was changed"), (10**6, "is truncated")])
def test_a_file_of_another_size_is_an_error(tmp_path: Path, size: int, what: str) -> None:
    path = make_samples(tmp_path).paths[1]
    with pytest.raises(DataError, match=f"{what}: expected {size} bytes"):
        read_payload(path, size)


def test_a_file_that_changes_while_it_is_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = make_samples(tmp_path)
    path, load = samples.paths[3], torchworker.load_payload

    def with_a_write_behind(*arguments: Any) -> NDArray[np.uint8]:
        payload = load(*arguments)
        path.write_bytes(path.read_bytes())
        return payload

    monkeypatch.setattr(torchworker, "load_payload", with_a_write_behind)
    with pytest.raises(DataError, match=r"3\.npz changed while it was read"):
        read_payload(path, samples.file_bytes[3])


@pytest.mark.parametrize("record_format", ["npz", "npy"])
def test_whatever_a_damaged_header_makes_of_a_record_is_one_sentence(
    tmp_path: Path, record_format: str
) -> None:
    """NumPy's and zipfile's parsers raise a dozen kinds of error, some only for one bit."""
    path = make_samples(tmp_path, record_format).paths[0]
    whole = path.read_bytes()
    for place in (*range(256), *range(len(whole) - 512, len(whole))):
        for bit in range(0, 8, 2):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            try:
                torchworker.load_payload(path, io.BytesIO(damaged))
            except DataError as error:
                said = str(error).splitlines()
                assert [path.name in line for line in said] == [True]
            except MemoryError:
                pass  # the header claims an array that no host holds
