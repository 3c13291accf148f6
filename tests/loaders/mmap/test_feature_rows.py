from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.contracts.feature_rows import COUNT, ROW, FeatureRowsContract, write_rows
from tests.loaders.faults import breaking_file
from wattload.core.errors import DataError
from wattload.loaders.aligned_io import aligned_buffer
from wattload.loaders.data.cold_cache import evict
from wattload.loaders.feature_rows import FeatureFile, FeaturePlan
from wattload.loaders.mmap.config import Config


class TestMapped(FeatureRowsContract):
    def config(self, **changed: Any) -> Config:
        return Config(threads=2, **changed)


def test_storage_is_counted_once_and_threads_stay_as_they_were(tmp_path: Path) -> None:
    plan, rows = write_rows(tmp_path, 1)
    (memory,) = plan.memories
    assert isinstance(memory, np.ndarray)
    before = torch.get_num_threads()
    gatherer = Config(threads=3, advice="random").row_gatherer(plan)
    numbers = np.arange(COUNT, dtype=np.uint64)
    cold, warm = (gatherer.gather(numbers, memory[: COUNT * ROW]) for _ in range(2))
    gatherer.release_pages()
    evict(plan.paths)
    again = gatherer.gather(numbers, memory[: COUNT * ROW])
    gatherer.close()
    assert cold.storage_bytes == again.storage_bytes == rows.nbytes
    assert cold.major_faults is not None
    assert cold.major_faults > 0
    assert warm.storage_bytes == warm.major_faults == 0
    assert torch.get_num_threads() == before
    assert "MADV_RANDOM" in gatherer.path().engine


def test_a_file_that_is_cut_during_a_gather_is_an_error(tmp_path: Path) -> None:
    """What lies beyond the end of a file is SIGBUS, as are failed reads."""
    plan, rows = write_rows(tmp_path, 2)
    (memory,) = plan.memories
    assert isinstance(memory, np.ndarray)
    gatherer = Config(threads=3).row_gatherer(plan)
    numbers = np.arange(COUNT, dtype=np.uint64)
    with plan.paths[1].open("r+b") as file:
        file.truncate(20 * ROW)
    with pytest.raises(DataError, match=r"features-1.bin has 81920 bytes instead of the 204800"):
        gatherer.gather(numbers, memory[: COUNT * ROW])
    kept = np.array([0, 1, 2, 100], dtype=np.uint64)
    gatherer.gather(kept[::3], memory[: 2 * ROW])  # of the other file, which is as it was
    assert np.array_equal(memory[: 2 * ROW].reshape(-1, ROW), rows[[0, 100]])
    gatherer.close()


def test_a_failed_read_of_the_drive_is_an_error(tmp_path: Path) -> None:
    count = (8 << 20) // ROW
    with breaking_file(tmp_path, count * ROW) as path:
        memory = aligned_buffer(count * ROW)
        plan = FeaturePlan(
            files=(FeatureFile(path=path, row_count=count),),
            row_count=count,
            row_bytes=ROW,
            outstanding=1,
            batch_rows=count,
            memories=(memory,),
        )
        gatherer = Config(threads=4).row_gatherer(plan)
        for _ in range(2):  # it stays an error: nothing of the zeros is kept
            with pytest.raises(OSError, match=r"Input/output error near offset \d+: '.*file'"):
                gatherer.gather(np.arange(count, dtype=np.uint64), memory)
        gatherer.close()
