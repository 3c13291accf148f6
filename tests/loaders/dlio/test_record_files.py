"""Our reader, which runs inside the program's processes, without the program."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest

from tests.contracts.loader import make_samples, sealed_samples
from tests.damage import flip_bit
from tests.loaders.dlio.job import make_training
from wattload.core.errors import DataError
from wattload.loaders.data.cold_cache import evict, resident_fraction
from wattload.loaders.dlio.record_files import ReaderSettings, RecordFiles, read_summary


def settings(folder: Path, *, check_crc: bool = False, nonce: int | None = None) -> ReaderSettings:
    return ReaderSettings(
        journal=str(folder / "reads.jsonl"),
        largest_bytes=400_000,
        record_format="npz",
        block_bytes=64 << 10,
        queue_depth=3,
        check_crc=check_crc,
        nonce=nonce,
    )


def test_settings_come_through_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = settings(tmp_path, nonce=1)
    for name, value in made.environment().items():
        monkeypatch.setenv(name, value)
    assert ReaderSettings.from_environment() == made


def test_records_are_read_whole_past_the_page_cache_through_links(tmp_path: Path) -> None:
    samples = make_training(tmp_path).samples
    evict(samples.paths)
    files = RecordFiles(settings(tmp_path))
    for number, path in enumerate(samples.paths):
        link = tmp_path / f"link{number}"
        link.symlink_to(path)
        read = files.payload(str(link)).copy()
        drawn = np.random.default_rng(number).integers(0, 255, (300, 1000 + number, 1), np.uint8)
        assert np.array_equal(read, drawn.reshape(-1))
    files.close()
    said = (tmp_path / "reads.jsonl").read_text().splitlines()
    opened, *lines = [json.loads(line) for line in said]
    assert opened["engine"]
    assert [line["path"] for line in lines] == [str(path) for path in samples.paths]
    assert [line["read_bytes"] for line in lines] == list(samples.file_bytes)
    assert resident_fraction(samples.paths) == 0


def test_every_file_is_verified_and_damage_is_noted_by_its_name(tmp_path: Path) -> None:
    samples = sealed_samples(make_samples(tmp_path))
    flip_bit(samples.paths[5], 70_000, 2)
    flip_bit(samples.paths[6], 12, 0)  # the date in the archive, which no reader looks at
    files = RecordFiles(settings(tmp_path, nonce=samples.nonce))
    starts_ns = []
    for epoch in (samples.paths[3:6], samples.paths[6:8]):
        starts_ns.append(time.monotonic_ns())
        for path in epoch:
            files.payload(str(path))
    files.close()
    summary = read_summary(tmp_path / "reads.jsonl", starts_ns)
    of_epochs = (sum(samples.file_bytes[3:6]), sum(samples.file_bytes[6:8]))
    assert summary.read_bytes == of_epochs
    assert summary.verified_bytes == sum(of_epochs)
    assert summary.bad_blocks == {"5.npz": 1, "6.npz": 1}


def test_a_damaged_record_is_refused_where_the_crc_was_asked_for(tmp_path: Path) -> None:
    path = make_training(tmp_path).samples.paths[0]
    with path.open("r+b") as file:
        file.seek(100_000)
        file.write(b"\0" * 8)
    loose = RecordFiles(settings(tmp_path))
    assert len(loose.payload(str(path))) == 300_000
    loose.close()
    strict = RecordFiles(settings(tmp_path, check_crc=True))
    with pytest.raises(DataError, match="CRC-32"):
        strict.payload(str(path))
    strict.close()
