"""The figures against hand-computed cases, and against DLIO's own lines written out once more."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattload.core.io import Batch, DataPath, VerifiedSamples
from wattload.core.record.results import Metric
from wattload.core.units import MIB
from wattload.workloads.unet3d.loop import DeliveredRow, run_epoch
from wattload.workloads.unet3d.metrics import (
    EpochTimes,
    JobTimes,
    ceiling_metric,
    dlio_samples_per_s,
    dlio_summary,
    dlio_utilisation,
    metrics,
)

RECORD = 146_600_628.0


def epoch(
    load_s: Sequence[float], compute_s: Sequence[float], *, barrier_s: float = 0.0
) -> EpochTimes:
    """Return an epoch whose steps follow each other with nothing but the barrier between."""
    processed = [load + compute for load, compute in zip(load_s, compute_s, strict=True)]
    return EpochTimes(
        duration_s=sum(processed) + barrier_s * len(processed),
        load_s=tuple(load_s),
        compute_s=tuple(compute_s),
        processed_s=tuple(processed),
        payload_bytes=1000 * len(processed),
        read_bytes=1100 * len(processed),
        cpu_s=0.5,
        hash_cpu_s=0.25,
    )


def job_times(*ranks: Sequence[EpochTimes], step_s: float = 0.3, per_rank: int = 1) -> JobTimes:
    return JobTimes(ranks=ranks, per_rank=per_rank, batch_samples=7, step_s=step_s)


def dlio(epochs_of_ranks: Sequence[Sequence[EpochTimes]], batch_size: int) -> dict[str, object]:
    """Compute the summary as DLIO's statscounter.py does, from the same lists."""
    train_au, train_throughput = [], []
    for rank in epochs_of_ranks:
        rank_au, rank_throughput = [], []
        for one in rank:
            output = {"compute": list(one.compute_s), "proc": list(one.processed_s)}
            metric_start_step = 1
            metric_end_step = len(output["compute"]) - 1 - 0
            start_timestamp, end_timestamp = 100.0, 100.0 + one.duration_s
            total_compute_time = np.sum(output["compute"][metric_start_step : metric_end_step + 1])
            total_time = (
                end_timestamp
                - start_timestamp
                - np.sum(output["proc"][:metric_start_step])
                - np.sum(output["proc"][metric_end_step + 1 :])
            )
            au = 0.0 if total_compute_time == 0 else total_compute_time / total_time
            rank_au.append(au * 100)
            rank_throughput.append((len(output["compute"]) - 2) / total_time * batch_size)
        train_au.append(rank_au)
        train_throughput.append(rank_throughput)
    au_of_epochs = np.sum(train_au, axis=0) / len(train_au)
    throughput_of_epochs = np.sum(train_throughput, axis=0)
    return {
        "train_au_percentage": list(au_of_epochs),
        "train_au_mean_percentage": np.mean(au_of_epochs),
        "train_au_stdev_percentage": np.std(au_of_epochs),
        "train_throughput_samples_per_second": list(throughput_of_epochs),
        "train_throughput_mean_samples_per_second": np.mean(throughput_of_epochs),
        "train_throughput_stdev_samples_per_second": np.std(throughput_of_epochs),
        "train_io_mean_MB_per_second": np.mean(throughput_of_epochs) * RECORD / 1024.0 / 1024.0,
        "train_io_stdev_MB_per_second": np.std(throughput_of_epochs) * RECORD / 1024.0 / 1024.0,
    }


def test_the_first_step_is_in_no_window() -> None:
    # Step 1 loads 10 s; steps 2 to 5 load 0.1 and compute 0.3: the window is 4 x 0.4 s.
    one = epoch([10.0, 0.1, 0.1, 0.1, 0.1], [0.3] * 5)
    assert one.window_s == pytest.approx(1.6)
    assert dlio_utilisation(one) == pytest.approx(1.2 / 1.6)
    assert job_times([one]).nominal_utilisation() == pytest.approx(0.75)


def test_dlio_counts_two_steps_less_than_there_were() -> None:
    one = epoch([0.1] * 5, [0.3] * 5)
    assert dlio_samples_per_s(one, 7) == pytest.approx(3 / 1.6 * 7)


def test_the_barrier_is_in_the_window_but_in_no_step() -> None:
    one = epoch([0.0] * 4, [0.3] * 4, barrier_s=0.1)
    # DLIO takes the first step's load and computation out of the time, not its barrier.
    assert one.window_s == pytest.approx(1.6 - 0.3)
    assert dlio_utilisation(one) == pytest.approx(0.9 / 1.3)


def test_oversleeping_raises_dlios_utilisation_and_lowers_the_nominal() -> None:
    one = epoch([0.1] * 5, [0.4] * 5)
    assert dlio_utilisation(one) == pytest.approx(0.4 / 0.5)
    assert job_times([one]).nominal_utilisation() == pytest.approx(0.3 / 0.5)
    assert job_times([one]).sleep_overshoots_s() == pytest.approx([0.1] * 5)


def test_means_are_over_ranks_then_epochs_and_rates_are_summed() -> None:
    fast, slow = epoch([0.1] * 3, [0.3] * 3), epoch([0.3] * 3, [0.3] * 3)
    job = job_times([fast, slow], [fast, fast])
    assert job.dlio_epoch_utilisations() == pytest.approx([0.75, (0.5 + 0.75) / 2])
    of_one = 7 * 1 / 0.8
    assert job.dlio_epoch_samples_per_s() == pytest.approx([2 * of_one, 7 / 1.2 + of_one])
    assert job.active_s() == pytest.approx(1.2 + 1.8)  # an epoch ends with its slowest rank
    assert job.sample_count() == 2 * 2 * 3 * 7
    assert job.nominal_utilisation() == pytest.approx(4 * 2 * 0.3 / (3 * 0.8 + 1.2))


def test_several_accelerators_on_a_rank_deliver_as_many_times_the_samples() -> None:
    one = epoch([0.1] * 3, [0.3] * 3)
    single, triple = job_times([one]), job_times([one], per_rank=3)
    assert triple.sample_count() == 3 * single.sample_count()
    assert triple.dlio_epoch_samples_per_s() == pytest.approx(
        [3 * rate for rate in single.dlio_epoch_samples_per_s()]
    )
    assert triple.dlio_epoch_utilisations() == single.dlio_epoch_utilisations()


seconds = st.floats(0.001, 10.0)


@settings(deadline=None)
@given(st.data())
def test_summary_is_dlios_for_any_times(data: st.DataObject) -> None:
    steps = data.draw(st.integers(2, 12))
    shape = (data.draw(st.integers(1, 3)), data.draw(st.integers(1, 4)))
    times = st.lists(seconds, min_size=steps, max_size=steps)
    ranks = [
        [
            epoch(data.draw(times), data.draw(times), barrier_s=data.draw(st.floats(0, 1)))
            for _ in range(shape[1])
        ]
        for _ in range(shape[0])
    ]
    ours, theirs = dlio_summary(job_times(*ranks), RECORD), dlio(ranks, 7)
    assert ours.keys() == theirs.keys()
    for name, figure in theirs.items():
        assert ours[name] == pytest.approx(figure, rel=1e-9, abs=1e-9), name


def figures(job: JobTimes) -> dict[str, Metric]:
    return {metric.name: metric for metric in metrics(job, RECORD)}


def test_metrics_are_totals_over_totals() -> None:
    job = job_times([epoch([0.1] * 4, [0.3] * 4), epoch([0.3] * 4, [0.3] * 4)])
    found = figures(job)
    assert found["read_bytes_per_s"].value == pytest.approx(8 * 1100 / 4.0)
    assert found["samples_per_s"].value == pytest.approx(56 / 4.0)
    assert found["au_dlio"].value == pytest.approx((0.75 + 0.5) / 2)
    assert found["au_nominal"].value == pytest.approx(6 * 0.3 / (1.2 + 1.8))
    rate = (2 / 1.2 * 7 + 2 / 1.8 * 7) / 2
    assert found["dlio_samples_per_s"].value == pytest.approx(rate)
    assert found["dlio_nominal_bytes_per_s"].value == pytest.approx(rate * RECORD)
    assert dlio_summary(job, RECORD)["train_io_mean_MB_per_second"] == pytest.approx(
        rate * RECORD / MIB
    )
    assert found["load_wait_s"].value == pytest.approx(1.6)
    assert found["load_wait_p50_s"].value == pytest.approx(0.2)
    assert found["load_wait_max_s"].value == pytest.approx(0.3)
    assert found["sleep_overshoot_max_s"].value == pytest.approx(0.0, abs=1e-12)
    assert found["read_cpu_s_per_byte"].value == pytest.approx(1.0 / 8800)
    assert found["hash_cpu_s"].value == pytest.approx(0.5)


def test_load_wait_is_that_of_one_accelerator() -> None:
    one = epoch([0.2] * 4, [0.3] * 4)
    assert figures(job_times([one], [one]))["load_wait_s"].value == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("steps", "step_s", "reason"), [(4, 0.0, "step time is 0"), (1, 0.3, "one step has no window")]
)
def test_utilisation_without_computation_or_window_is_unknown(
    steps: int, step_s: float, reason: str
) -> None:
    found = figures(
        job_times([epoch([0.1] * steps, [step_s] * steps, barrier_s=0.1)], step_s=step_s)
    )
    for name in ("au_dlio", "au_nominal"):
        assert found[name].value is None
        assert reason in found[name].missing["value"]


def test_the_ceiling_is_a_rate_that_belongs_to_no_phase() -> None:
    assert ceiling_metric(5e9).value == 5e9
    assert ceiling_metric(5e9).phase == ""


class Instant:
    """A loader whose batches are there at once; the wait of each step can be set."""

    def __init__(self, waits_s: Sequence[float]) -> None:
        self.waits_s = waits_s
        self.swapped = False

    def epoch(self, order: Sequence[int]) -> Iterator[Batch]:
        if self.swapped:
            order = order[::-1]
        for index, wait_s in zip(order, self.waits_s, strict=True):
            time.sleep(wait_s)
            yield Batch(
                tensor=np.zeros((1, 1), dtype=np.uint8),
                indices=(index,),
                payload_bytes=10,
                read_bytes=11,
                verified=VerifiedSamples(verified_bytes=9, bad_blocks={index: 2}, cpu_s=0.5),
                worker_cpu_s=2.0,
            )

    def path(self) -> DataPath:
        return DataPath(data_path="memory", path_requested="memory")

    def close(self) -> None:
        pass


def test_the_loop_loads_then_sleeps_then_meets_the_others() -> None:
    barriers: list[int] = []
    times, delivered = run_epoch(
        Instant([0.05, 0.0, 0.0]),
        [4, 5, 6],
        steps=3,
        per_rank=1,
        step_s=0.02,
        barrier=lambda: barriers.append(time.monotonic_ns()),
        drawn=frozenset({4, 6}),
    )
    assert len(barriers) == len(times.load_s) == len(times.compute_s) == 3
    assert times.load_s[0] >= 0.05
    assert min(times.compute_s) >= 0.02
    for load, compute, processed in zip(
        times.load_s, times.compute_s, times.processed_s, strict=True
    ):
        assert processed >= load + compute
    assert times.duration_s >= sum(times.processed_s)
    assert (times.payload_bytes, times.read_bytes) == (30, 33)
    assert times.hash_cpu_s > 1.5  # the loader's, and that of the rows
    assert times.cpu_s >= 6.0
    row = hashlib.sha256(b"\0").hexdigest()
    assert delivered.rows == [DeliveredRow(4, row), DeliveredRow(6, row)]
    assert (delivered.read_bytes, delivered.verified.verified_bytes) == (33, 27)
    assert delivered.verified.bad_blocks == {4: 2, 5: 2, 6: 2}


def test_a_row_counts_for_the_sample_that_was_asked_for() -> None:
    loader = Instant([0.0] * 2)
    loader.swapped = True
    _, delivered = run_epoch(
        loader,
        [4, 5],
        steps=2,
        per_rank=1,
        step_s=0.0,
        barrier=lambda: None,
        drawn=frozenset({4}),
    )
    assert [row.index for row in delivered.rows] == [4]


def test_a_rank_sleeps_once_for_all_its_accelerators() -> None:
    times, delivered = run_epoch(
        Instant([0.0] * 6),
        range(6),
        steps=2,
        per_rank=3,
        step_s=0.01,
        barrier=lambda: None,
        drawn=frozenset(range(6)),
    )
    assert len(times.compute_s) == 2
    assert len(delivered.rows) == 6


def test_without_a_step_time_nothing_is_slept(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = Instant([0.0] * 2)
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    run_epoch(loader, range(2), steps=2, per_rank=1, step_s=0.0, barrier=lambda: None)
    assert slept == [0.0, 0.0]  # the loader's own
