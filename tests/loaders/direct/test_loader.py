from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.context import directory_target
from tests.contracts.loader import Counter, LoaderContract, make_samples
from wattload.core.errors import ConfigError, DataError
from wattload.core.io import IOPlan
from wattload.core.storage.file_system import DirectIo
from wattload.loaders.data.cold_cache import evict, residency
from wattload.loaders.direct.config import Config, slot_count
from wattload.loaders.direct.loader import DirectSampleLoader
from wattload.loaders.engine.engine import IOEngine, Ticket


def config(
    *,
    prefetch_bytes: int = 1 << 20,
    prefetch_batches: int = 4,
    workers: int = 2,
    queue_depth: int = 3,
) -> Config:
    return Config(
        block_bytes=16 << 10,
        queue_depth=queue_depth,
        workers=workers,
        prefetch_batches=prefetch_batches,
        prefetch_bytes=prefetch_bytes,
    )


class TestDirectSampleLoader(LoaderContract):
    def config(self) -> Config:
        return config()


class TestDirectSampleLoaderWithOneSlot(LoaderContract):
    def config(self) -> Config:
        return config(prefetch_bytes=320 << 10, prefetch_batches=1, workers=1, queue_depth=1)


def test_nothing_passes_through_the_page_cache(tmp_path: Path) -> None:
    samples = make_samples(tmp_path)
    evict(samples.paths)
    loader = DirectSampleLoader(config(), samples, Counter())
    assert len(list(loader.epoch(range(9)))) == 3
    loader.close()
    assert residency(samples.paths).resident_bytes == 0
    assert loader.path().path_requested == "o_direct"


def test_threads_end_with_the_loader(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    loader = DirectSampleLoader(config(), make_samples(tmp_path), Counter())
    next(loader.epoch(list(range(9))))
    assert set(threading.enumerate()) > before
    loader.close()
    assert set(threading.enumerate()) == before


def test_no_more_files_are_read_ahead_than_batches_are_allowed(tmp_path: Path) -> None:
    samples, counter = make_samples(tmp_path), Counter()
    loader = DirectSampleLoader(config(prefetch_batches=1, workers=1), samples, counter)
    next(loader.epoch([1, 2, 3, 4, 5, 6, 7, 8, 9]))
    loader.close()  # waits for whatever was begun
    assert counter.read_bytes <= sum(samples.file_bytes[index] for index in range(1, 7))


def test_an_epoch_that_was_replaced_yields_no_more(tmp_path: Path) -> None:
    loader = DirectSampleLoader(config(), make_samples(tmp_path), Counter())
    old = loader.epoch(list(range(9)))
    next(old)
    assert len(list(loader.epoch([1, 2, 3]))) == 1
    with pytest.raises(RuntimeError, match="ended"):
        next(old)
    loader.close()


def test_slots_are_no_more_than_the_batches_ahead_need(tmp_path: Path) -> None:
    samples = make_samples(tmp_path)
    assert slot_count(config(prefetch_bytes=1 << 30, prefetch_batches=2), samples) == 9
    two = replace(samples, accelerators=2)
    assert slot_count(config(prefetch_bytes=1 << 30, prefetch_batches=2), two) == 15
    assert slot_count(config(prefetch_bytes=640 << 10), samples) == 2


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    samples = make_samples(tmp_path)
    samples.paths[2].unlink()
    loader = DirectSampleLoader(config(), samples, Counter())
    with pytest.raises(FileNotFoundError, match=r"2\.npz"):
        list(loader.epoch([1, 2, 3]))
    loader.close()


def test_a_file_that_changes_while_it_is_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples, submit = make_samples(tmp_path), IOEngine.submit

    def with_a_write_behind(engine: IOEngine, plan: IOPlan, **more: Any) -> Ticket:
        """Read slowly enough for a write between the first block and the last."""
        (extent,) = plan.extents
        rate = extent.length_bytes / 0.2
        ticket = submit(engine, replace(plan, rate_bytes_per_s=rate), **more)
        if extent.path == samples.paths[3]:
            while not ticket.progress()[1]:
                ticket.wait(0.001)
            with extent.path.open("r+b") as file:
                file.write(b"P")
        return ticket

    monkeypatch.setattr(IOEngine, "submit", with_a_write_behind)
    loader = DirectSampleLoader(config(), samples, Counter())
    with pytest.raises(DataError, match=r"3\.npz changed while it was read"):
        list(loader.epoch([1, 2, 3]))
    loader.close()


def test_targets_with_larger_blocks_than_files_end_in_are_refused(tmp_path: Path) -> None:
    samples, target = make_samples(tmp_path), directory_target(tmp_path)
    config().check_samples(samples, (target,))
    large = DirectIo(memory_align_bytes=4, offset_align_bytes=32768, found_by="test")
    with pytest.raises(ConfigError, match=r"multiples of 32768 bytes"):
        config().check_samples(samples, (target, replace(target, direct_io=large)))
    refused = replace(target, direct_io=None, direct_io_missing="the test says so")
    config().check_samples(samples, (refused,))  # the preflight's to judge


def test_memory_too_small_is_known_before_there_is_a_file(tmp_path: Path) -> None:
    samples = make_samples(tmp_path)
    with pytest.raises(ConfigError, match="prefetch_bytes must hold the largest file"):
        config(prefetch_bytes=100_000).check_samples(samples, ())
