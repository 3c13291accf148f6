"""What every loader of feature rows does alike: the same bytes in the order of the list."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.context import directory_target
from wattload.core.errors import ConfigError, DataError
from wattload.loaders.aligned_io import aligned_buffer
from wattload.loaders.data.cold_cache import evict
from wattload.loaders.feature_rows import (
    FeatureFile,
    FeatureLoaderConfig,
    FeaturePlan,
    RowGatherer,
)

ROW = 4096
COUNT = 101


def write_rows(
    folder: Path, files: int, *, offset: int = 0, striped: bool = True, bare: int = 0
) -> tuple[FeaturePlan, NDArray[np.uint8]]:
    """Write rows, striped or one part after the other, behind ``offset`` bytes.

    The last ``bare`` files have no such bytes.
    Returns their plan with room for 1000 of them, and the rows in order.
    """
    rows = np.random.default_rng(files).integers(0, 256, (COUNT, ROW), dtype=np.uint8)
    paths = tuple(folder / f"features-{number}.bin" for number in range(files))
    firsts = [number if striped else COUNT * number // files for number in range(files)]
    ends = [COUNT] * files if striped else [*firsts[1:], COUNT]
    step = files if striped else 1
    parts = [rows[first:end:step] for first, end in zip(firsts, ends, strict=True)]
    offsets = [0 if number >= files - bare else offset for number in range(files)]
    for path, part, header_bytes in zip(paths, parts, offsets, strict=True):
        path.write_bytes(bytes(header_bytes) + part.tobytes())
        evict([path])
    memory = aligned_buffer(1000 * ROW)
    plan = FeaturePlan(
        files=tuple(
            FeatureFile(
                path=path,
                row_count=len(part),
                first_row=first,
                step=step,
                offset_bytes=header_bytes,
            )
            for path, part, first, header_bytes in zip(paths, parts, firsts, offsets, strict=True)
        ),
        row_count=COUNT,
        row_bytes=ROW,
        outstanding=32,
        batch_rows=1000,
        memories=(memory,),
    )
    return plan, rows


LAYOUTS: dict[str, dict[str, Any]] = {
    "one file": {"files": 1},
    "two files": {"files": 2},
    "three files": {"files": 3},
    "behind a header": {"files": 1, "offset": 128},
    "striped, behind headers": {"files": 2, "offset": 128},
    "behind a block": {"files": 1, "offset": ROW},
    "by type": {"files": 3, "striped": False},
    "by type, behind headers": {"files": 2, "offset": 128, "striped": False},
    "by type, one behind a header": {"files": 2, "offset": 128, "striped": False, "bare": 1},
}


class FeatureRowsContract(ABC):
    @abstractmethod
    def config(self, **changed: Any) -> FeatureLoaderConfig:
        """Return the loader's configuration."""

    @contextmanager
    def gatherer(self, plan: FeaturePlan) -> Iterator[RowGatherer]:
        made = self.config().row_gatherer(plan)
        try:
            yield made
        finally:
            made.close()
            made.close()

    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_rows_come_in_the_order_of_the_list(self, tmp_path: Path, layout: str) -> None:
        plan, rows = write_rows(tmp_path, **LAYOUTS[layout])
        (memory,) = plan.memories
        assert isinstance(memory, np.ndarray)
        generator = np.random.default_rng(1)
        with self.gatherer(plan) as gatherer:
            for count, place in ((1000, 0), (1, 999), (0, 0), (COUNT, 7)):
                numbers = generator.integers(0, COUNT, count).astype(np.uint64)
                if count == COUNT:
                    numbers = np.arange(COUNT, dtype=np.uint64)
                into = memory[place * ROW :][: count * ROW]
                result = gatherer.gather(numbers, into)
                assert np.array_equal(into.reshape(-1, ROW), rows[numbers.astype(int)])
                assert result.rows == count
                assert result.end_ns >= result.start_ns
                assert result.cpu_s >= 0
                parts = (result.storage_rows, result.host_rows, result.cache_rows,
                         result.merged_rows)  # fmt: skip
                if None not in parts:
                    assert sum(each or 0 for each in parts) == count
                    assert result.storage_rows == count  # nothing is kept
                    blocks = [2 if file.offset_bytes % ROW else 1 for file in plan.files]
                    found, _ = plan.places(numbers)
                    assert result.storage_bytes == ROW * np.array(blocks)[found].sum()
                    assert result.operations is not None
                    if len(set(blocks)) == 1 or result.operation_bytes is not None:
                        moved_bytes = result.operations * (result.operation_bytes or 0)
                        assert moved_bytes == result.storage_bytes
                    assert result.latency is not None
                    assert result.latency.count == result.operations
                else:
                    assert (result.operations, result.operation_bytes) == (None, None)
            assert gatherer.path().path_effective == "unverified"

    def test_rows_that_do_not_exist_are_refused(self, tmp_path: Path) -> None:
        plan, _ = write_rows(tmp_path, 2)
        (memory,) = plan.memories
        assert isinstance(memory, np.ndarray)
        with self.gatherer(plan) as gatherer:
            with pytest.raises(ValueError, match="row 101 does not exist"):
                gatherer.gather(np.array([5, COUNT], dtype=np.uint64), memory[: 2 * ROW])
            with pytest.raises(ValueError, match="2 rows need 8192 bytes, got 4096"):
                gatherer.gather(np.array([5, 6], dtype=np.uint64), memory[:ROW])
            with pytest.raises(ValueError, match="uint64"):
                gatherer.gather(np.array([5]), memory[:ROW])

    def test_a_short_file_is_an_error(self, tmp_path: Path) -> None:
        plan, _ = write_rows(tmp_path, 2)
        plan = replace(plan, remedy="download it again")
        (memory,) = plan.memories
        assert isinstance(memory, np.ndarray)
        last = np.array([COUNT - 2], dtype=np.uint64)
        message = r"features-1\.bin .*; download it again$"
        with self.gatherer(plan) as gatherer:
            os.truncate(plan.paths[1], 20 * ROW)
            with pytest.raises(DataError, match=message):
                gatherer.gather(last, memory[:ROW])
        with pytest.raises(DataError, match=message):
            self.config().row_gatherer(plan)

    def test_a_good_plan_passes_the_check(self, tmp_path: Path) -> None:
        plan, _ = write_rows(tmp_path, 1)
        config = self.config()
        assert isinstance(config, FeatureLoaderConfig)
        config.check_feature_rows(plan, [directory_target(tmp_path)])
        assert config.feature_bytes(plan).working_bytes >= 0


def refuse_outstanding(config: FeatureLoaderConfig, folder: Path, outstanding: int) -> None:
    plan, _ = write_rows(folder, 1)
    with pytest.raises(ConfigError, match=f"the {outstanding} outstanding reads"):
        config.check_feature_rows(
            replace(plan, outstanding=outstanding), [directory_target(folder)]
        )
