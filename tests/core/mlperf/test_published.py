"""MLPerf Storage's data set rule, by hand and against published submissions."""

from __future__ import annotations

import pytest

from wattload.core.mlperf import UNET3D, DataSetRule
from wattload.core.units import GIB

RECORD = UNET3D.record_mean_bytes


def rule(memory_bytes: int, accelerators: int = 1) -> DataSetRule:
    return DataSetRule(
        accelerators=accelerators, batch_samples=7, record_bytes=RECORD, memory_bytes=memory_bytes
    )


def test_500_steps_rule_while_memory_is_small() -> None:
    # 4 accelerators of a Micron 9550's host with 256 GB: 14,000 files were used.
    assert rule(256 * 10**9, 4).files == 14_000
    assert rule(256 * 10**9, 4).steps == 500


def test_five_times_memory_rules_beyond_95_gib_for_each_accelerator() -> None:
    assert rule(95 * GIB).files == 3500
    assert rule(96 * GIB).files == rule(96 * GIB).by_memory == 5 * 96 * GIB // RECORD > 3500


def test_pages_that_a_kernel_keeps_for_itself_change_no_data_set() -> None:
    memories = (252 * GIB - 5_000_000, 252 * GIB - 1, 252 * GIB)
    assert len({rule(memory).files for memory in memories}) == 1


@pytest.mark.parametrize("accelerators", [1, 3, 8])
@pytest.mark.parametrize("memory_gib", [8, 377, 1024])
def test_so_many_steps_take_in_the_files_and_one_less_would_not(
    accelerators: int, memory_gib: int
) -> None:
    found = rule(memory_gib * GIB, accelerators)
    batch = 7 * accelerators
    assert (found.steps - 1) * batch < found.files <= found.steps * batch
