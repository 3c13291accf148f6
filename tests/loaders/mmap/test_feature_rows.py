from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.contracts.feature_rows import COUNT, ROW, FeatureRowsContract, write_rows
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
    gatherer.close()
    assert cold.storage_bytes == rows.nbytes
    assert cold.major_faults is not None
    assert cold.major_faults > 0
    assert warm.storage_bytes == warm.major_faults == 0
    assert torch.get_num_threads() == before
    assert "MADV_RANDOM" in gatherer.path().engine
