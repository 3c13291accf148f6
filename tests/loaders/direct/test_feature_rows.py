from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.contracts.feature_rows import (
    COUNT,
    LAYOUTS,
    ROW,
    FeatureRowsContract,
    refuse_outstanding,
    write_rows,
)
from wattload.core.io import DataPath, IOPlan, IOResult
from wattload.loaders.direct import feature_rows
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


class EngineOf3000Reads:
    """An engine that has read 3000 blocks within a second, and notes which."""

    def __init__(self, *, block_bytes: int, **_: object) -> None:
        self.block_bytes = block_bytes

    def run(self, plan: IOPlan) -> IOResult:
        assert plan.block_bytes == self.block_bytes == ROW
        path = DataPath(data_path="host_memory", path_requested="memory", engine="none")
        return IOResult(
            moved_bytes=3000 * ROW,
            operation_count=3000,
            start_ns=0,
            end_ns=10**9,
            cpu_s=0.0,
            path=path,
        )

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("layout", "rows_per_s"),
    [
        ("by type", 3000),
        ("behind a block", 3000),
        ("behind a header", 1500),
        # 50 rows of two blocks, and 51 of one.
        ("by type, one behind a header", 3000 * COUNT / (2 * 50 + 51)),
    ],
)
def test_the_ceiling_is_in_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str, rows_per_s: float
) -> None:
    monkeypatch.setattr(feature_rows, "IOEngine", EngineOf3000Reads)
    plan, _ = write_rows(tmp_path, **LAYOUTS[layout])
    found = feature_rows.random_rows_per_s(plan, pollers=None, seconds=0.1)
    assert found == pytest.approx(rows_per_s)


@pytest.mark.parametrize(("pollers", "outstanding"), [(3, 32), (1, 8192), (2, 0)])
def test_reads_that_pollers_cannot_share_are_refused(
    tmp_path: Path, pollers: int, outstanding: int
) -> None:
    refuse_outstanding(Config(pollers=pollers), tmp_path, outstanding)
