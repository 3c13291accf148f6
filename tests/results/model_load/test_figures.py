"""Figures of model loading: times over ranks, bytes by who counted them, memory, ceilings."""

from __future__ import annotations

from typing import Any

import pytest

from tests.results.model_load.making import GPU, MODEL_BYTES, load_record
from wattload.core.record.run import RunRecord
from wattload.results.reading import metrics_of


def values(record: RunRecord) -> dict[str, float | None]:
    return {each.name: each.value for each in metrics_of(record)}


def ranks(*times: tuple[int, int, int]) -> list[dict[str, Any]]:
    """Return ranks of a load with these starts, first layers and ends, in seconds."""
    names = ("start_ns", "first_layer_ns", "end_ns")
    own = {"delivered_bytes": 50, "compared_bytes": 50,
           "peak_memory_bytes": 60, "wrong_bytes": 0, "first_wrong": None}  # fmt: skip
    return [
        {**own, **{name: at * 10**9 for name, at in zip(names, each, strict=True)}}
        for each in times
    ]


def test_a_load_takes_from_the_first_start_to_the_last_end_over_ranks() -> None:
    """The rank that starts first and the one that ends last are not the same."""
    loads = [{"ranks": ranks((0, 2, 10), (1, 4, 12)), "resident_bytes": 0},
             {"ranks": ranks((20, 21, 28), (20, 22, 26)), "resident_bytes": 0}]  # fmt: skip
    found = values(load_record(facts={"loads": loads, "needed_bytes": [50, 50]}))
    assert found["load_s"] == (12 + 8) / 2
    assert found["first_layer_s"] == (4 + 2) / 2
    assert found["load_delivered_bytes"] == 100
    assert found["load_peak_memory_bytes"] == 120


def test_read_bytes_are_those_of_drives_and_not_those_that_were_delivered() -> None:
    found = values(load_record(tp=8, ranks=8, access="sliced", from_drive=1.5, seconds=4.0))
    assert found["load_read_amplification"] == pytest.approx(1.5)
    assert found["drive_bytes_per_s"] == pytest.approx(1.5 * MODEL_BYTES / 4)
    assert found["load_delivered_bytes"] == MODEL_BYTES
    assert found["drive_ceiling_fraction"] == pytest.approx(1.5 * MODEL_BYTES / 4 / 4.2e9)


@pytest.mark.parametrize(
    "changes",
    [{"from_drive": None}, {"temperature": "warm", "loader": "mmap", "from_drive": 0.0},
     {"from_drive": 1.06}, {"from_drive": 1.06, "loader": "mmap", "tp": 2, "ranks": 2}],
    ids=["without counters", "warm", "other readers", "other readers of cached files"],
)  # fmt: skip
def test_a_rate_of_the_drive_needs_bytes_that_loads_read(changes: dict[str, Any]) -> None:
    found = values(load_record(**changes))
    assert found["drive_bytes_per_s"] is found["drive_ceiling_fraction"] is None
    assert found["load_s"] == 4.0


def test_what_was_not_read_of_memory_is_missing() -> None:
    found = values(load_record(peak_memory_bytes=None, resident_after=None))
    assert found["load_peak_memory_bytes"] is found["resident_fraction"] is None


@pytest.mark.parametrize(("seconds", "is_judged"), [(0.19, False), (4.0, True)])
def test_too_small_a_load_is_not_judged_by_a_ceiling(seconds: float, is_judged: bool) -> None:
    found = values(load_record(seconds=seconds, first_layer_s=0.1))
    assert (found["drive_ceiling_fraction"] is not None) is is_judged
    assert found["drive_bytes_per_s"]


def test_tensors_of_other_names_have_no_first_layer() -> None:
    [rank] = ranks((0, 2, 10))
    loads = [{"ranks": [rank | {"first_layer_ns": None}], "resident_bytes": 0}]
    found = values(load_record(loads=1, facts={"loads": loads, "needed_bytes": [50]}))
    assert (found["load_s"], found["first_layer_s"]) == (10, None)


def test_cpu_time_needs_a_megabyte_and_copies_a_gpu() -> None:
    assert values(load_record())["load_cpu_s_per_byte"] == pytest.approx(6 / 3 / MODEL_BYTES)
    assert "copy_ceiling_fraction" not in values(load_record())
    loads = [{"ranks": ranks((0, 2, 10)), "resident_bytes": 0}]
    found = values(load_record(device=GPU, copy_ceiling=1e9,
                               facts={"loads": loads, "needed_bytes": [50]}))  # fmt: skip
    assert found["load_cpu_s_per_byte"] is None
    assert found["copy_ceiling_fraction"] == pytest.approx(5e-9)


def test_seconds_lead() -> None:
    assert [each.name for each in metrics_of(load_record()) if each.headline] == ["load_s"]
