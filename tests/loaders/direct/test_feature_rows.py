from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.contracts.feature_rows import (
    COUNT,
    ROW,
    FeatureRowsContract,
    refuse_outstanding,
    write_rows,
)
from wattload.loaders.direct.config import Config


class TestDirect(FeatureRowsContract):
    def config(self, **changed: Any) -> Config:
        return Config(pollers=2, **changed)


class TestThreadPool(FeatureRowsContract):
    def config(self, **changed: Any) -> Config:
        return Config(engine="pread", **changed)


def test_each_row_is_read_from_storage(tmp_path: Path) -> None:
    plan, _ = write_rows(tmp_path, 1)
    (memory,) = plan.memories
    assert isinstance(memory, np.ndarray)
    gatherer = Config().row_gatherer(plan)
    result = gatherer.gather(np.full(500, 3, dtype=np.uint64), memory[: 500 * ROW])
    gatherer.close()
    assert (result.storage_rows, result.storage_bytes) == (500, 500 * ROW)
    assert (result.operations, result.operation_bytes) == (500, ROW)
    assert result.latency is not None
    assert result.latency.count == 500
    assert COUNT < 500


@pytest.mark.parametrize(("pollers", "outstanding"), [(3, 32), (1, 8192), (2, 0)])
def test_reads_that_pollers_cannot_share_are_refused(
    tmp_path: Path, pollers: int, outstanding: int
) -> None:
    refuse_outstanding(Config(pollers=pollers), tmp_path, outstanding)
