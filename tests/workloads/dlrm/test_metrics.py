"""Metrics of hand-made phases, computed by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from wattload.workloads.dlrm.conversion import TO_BINARY, TO_PARQUET, Step
from wattload.workloads.dlrm.metrics import RunMeasurement, phase_total
from wattload.workloads.dlrm.workers import Cost


def step(name: str, seconds: float, *costs: Cost, read: int = 1000, written: int = 400) -> Step:
    return Step(name=name, seconds=seconds, read_bytes=read, written_bytes=written, costs=costs)


def cost(wall_s: float, cpu_s: float, run_queue_s: float | None = 0.0, peak: int = 10) -> Cost:
    return Cost(wall_s=wall_s, cpu_s=cpu_s, run_queue_s=run_queue_s, peak_bytes=peak)


def measured(run_queue_s: float | None = 0.5) -> RunMeasurement:
    """Two ranks of one worker each, two rounds."""
    first = [
        step(TO_PARQUET, 2.0, cost(2.0, 1.0, run_queue_s, peak=30)),
        step(TO_BINARY, 1.0, cost(1.0, 1.0)),
        step(TO_PARQUET, 4.0, cost(4.0, 3.0)),
        step(TO_BINARY, 1.0, cost(1.0, 1.0)),
    ]
    second = [
        step(TO_PARQUET, 3.0, cost(2.0, 2.0)),
        step(TO_BINARY, 1.0, cost(1.0, 1.0)),
        step(TO_PARQUET, 3.0, cost(3.0, 3.0)),
        step(TO_BINARY, 2.0, cost(1.0, 1.0)),
    ]
    ranks = [first, second]
    return RunMeasurement(
        phases=(phase_total(TO_PARQUET, ranks), phase_total(TO_BINARY, ranks)),
        tsv_bytes=2000,
        gz_bytes=0,
        row_count=8,
        workers=2,
        ceiling_bytes_per_s=5000.0,
    )


def values(found: RunMeasurement) -> dict[str, float | None]:
    return {metric.name: metric.value for metric in found.metrics()}


def test_a_round_takes_as_long_as_its_slowest_rank() -> None:
    found = measured()
    assert found.phases[0].seconds == (3.0, 4.0)
    assert found.phases[1].seconds == (1.0, 2.0)
    assert values(found)["conversion_s"] == 5.0
    assert values(found)["tsv_to_parquet_s"] == 3.5


def test_rates_are_total_bytes_over_total_seconds() -> None:
    figures = values(measured())
    assert figures["tsv_bytes_per_s"] == 4000 / 10
    assert figures["rows_per_s"] == 16 / 10
    assert figures["tsv_to_parquet_input_bytes_per_s"] == 4000 / 7
    assert figures["tsv_to_parquet_output_bytes_per_s"] == 1600 / 7
    assert figures["cpu_s_per_byte"] == 13 / 4000
    assert figures["tsv_to_parquet_tsv_bytes_per_cpu_s"] == pytest.approx(4000 / 9)
    assert figures["worker_peak_bytes"] == 30
    assert figures["harness_ceiling_bytes_per_s"] == 5000


def test_shares_of_worker_time_sum_to_one() -> None:
    shares = measured().phases[0].shares(2)
    assert shares is not None
    assert shares.on_core == 9 / 14  # two workers for 3 s and for 4 s
    assert shares.for_core == 0.5 / 14
    assert shares.for_storage == 1.5 / 14  # 11 s of tasks less 9 on a core, 0.5 in the queue
    assert shares.idle == pytest.approx(3 / 14)
    total_share = shares.on_core + shares.for_core + shares.for_storage + shares.idle
    assert total_share == pytest.approx(1)


def test_without_a_run_queue_the_shares_are_missing_with_a_reason() -> None:
    found = measured(run_queue_s=None)
    metric = next(
        m for m in found.metrics() if m.name == "tsv_to_parquet_worker_for_storage_fraction"
    )
    assert metric.value is None
    assert "schedstat" in metric.missing["value"]
    assert "unknown" in found.bottleneck()


def test_threads_that_unpack_are_no_time_of_the_workers() -> None:
    steps = [[replace(step(TO_PARQUET, 2.0, cost(2.0, 3.0)), unpack_cpu_s=1.5)]]
    total = phase_total(TO_PARQUET, steps)
    shares = total.shares(1)
    assert (total.cpu_s, total.unpack_cpu_s) == (3.0, 1.5)
    assert shares is not None
    assert (shares.on_core, shares.for_storage) == (0.75, 0.25)


def test_the_sentence_names_what_set_the_pace() -> None:
    assert "the bottleneck was the cores" in measured().bottleneck()
    waiting = [[step(TO_PARQUET, 10.0, cost(10.0, 1.0)), step(TO_BINARY, 10.0, cost(10.0, 1.0))]]
    found = RunMeasurement(
        phases=(phase_total(TO_PARQUET, waiting), phase_total(TO_BINARY, waiting)),
        tsv_bytes=1,
        gz_bytes=0,
        row_count=1,
        workers=1,
        ceiling_bytes_per_s=1.0,
    )
    assert "90 % waiting for storage: the bottleneck was the storage" in found.bottleneck()


@pytest.mark.parametrize(
    ("workers", "opening"),
    [(1, "The worker spent 72 % of its time"), (2, "The 2 workers spent 36 % of their time")],
)
def test_the_sentence_counts_its_workers(workers: int, opening: str) -> None:
    steps = [[step(TO_PARQUET, 9.0, cost(9.0, 9.0)), step(TO_BINARY, 9.0, cost(9.0, 4.0))]]
    found = RunMeasurement(
        phases=(phase_total(TO_PARQUET, steps), phase_total(TO_BINARY, steps)),
        tsv_bytes=1,
        gz_bytes=0,
        row_count=1,
        workers=workers,
        ceiling_bytes_per_s=1.0,
    )
    assert found.bottleneck().startswith(opening)


def test_details_are_of_one_round() -> None:
    details = measured().details()
    assert details["parquet_bytes"] == 800
    assert details["tsv_to_parquet_round_s"] == [3.0, 4.0]
