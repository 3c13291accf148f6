"""Files taken in one call of the library are what the decoding of each by itself makes of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.contracts.loader import NONCE, write_record
from wattload.core.io import VerifiedSamples
from wattload.loaders.data.equal_records import EqualRecords
from wattload.loaders.direct.config import Config
from wattload.loaders.direct.loader import DirectSampleLoader
from wattload.loaders.samples import SampleSet

PAYLOAD_BYTES = 70_001
COUNT = 5


def made(
    folder: Path, *, nonce: int | None = NONCE, resize_bytes: int = PAYLOAD_BYTES
) -> SampleSet:
    random = np.random.default_rng(1)
    paths = [folder / f"{number}.jpeg" for number in range(COUNT)]
    payloads = [random.integers(0, 256, PAYLOAD_BYTES, dtype=np.uint8) for _ in paths]
    sizes = [
        write_record(path, payload, "jpeg", nonce)
        for path, payload in zip(paths, payloads, strict=True)
    ]
    return SampleSet(
        paths=tuple(paths),
        file_bytes=tuple(sizes),
        record_format="jpeg",
        batch_samples=COUNT,
        resize_bytes=resize_bytes,
        nonce=nonce,
    )


def read(samples: SampleSet) -> tuple[np.ndarray, VerifiedSamples]:
    """Return the one batch of the samples by the direct loader, and what was verified of it."""
    loader = DirectSampleLoader(Config(), samples, lambda _: None)
    (batch,) = loader.epoch(range(COUNT))
    tensor = batch.tensor.copy()
    loader.close()
    assert batch.read_bytes == sum(samples.file_bytes)
    assert batch.decode_s
    return tensor, batch.verified


@pytest.mark.parametrize("resize_bytes", [1000, PAYLOAD_BYTES, PAYLOAD_BYTES + 500])
@pytest.mark.parametrize("nonce", [NONCE, None])
def test_rows_and_sums_are_those_of_one_file_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resize_bytes: int, nonce: int | None
) -> None:
    samples = made(tmp_path, nonce=nonce, resize_bytes=resize_bytes)
    assert EqualRecords.fit(samples)
    together, verified = read(samples)
    monkeypatch.setattr(EqualRecords, "fit", lambda _: False)
    alone, verified_alone = read(samples)
    assert together.any()
    assert np.array_equal(together, alone)
    assert replace(verified, cpu_s=0.0) == replace(verified_alone, cpu_s=0.0)
    assert verified.verified_bytes == (sum(samples.file_bytes) if nonce else 0)


@pytest.mark.parametrize("position", [3, 5000, 65_538, -40])
def test_a_changed_byte_is_one_bad_block_of_its_file(tmp_path: Path, position: int) -> None:
    """In the head, in a block, in the header of a segment, and in the image at the end."""
    samples = made(tmp_path)
    content = bytearray(samples.paths[3].read_bytes())
    content[position] ^= 1
    samples.paths[3].write_bytes(content)
    _, verified = read(samples)
    assert verified.bad_blocks.keys() == {3}


def test_files_of_several_sizes_or_with_other_edges_do_not_fit(tmp_path: Path) -> None:
    samples = made(tmp_path)
    first, *others = samples.file_bytes
    assert not EqualRecords.fit(replace(samples, file_bytes=(first - 1, *others)))
    assert not EqualRecords.fit(replace(samples, record_format="npz"))
