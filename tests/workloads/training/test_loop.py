"""The loop: what a step does, in parts that make up the whole."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.context import context_at
from tests.unet3d import checks_of, direct, facts_of, live, named, torch, verdict, workload
from wattload.core.io import Batch, DataPath, VerifiedSamples
from wattload.loaders.samples import SampleLoaderConfig
from wattload.results.training.facts import BARRIER, COMPUTE, LOAD, PARTS
from wattload.workloads.training.loop import DeliveredRow, StepClock, run_epoch

pytestmark = pytest.mark.usefixtures("short_ceiling")


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
    load_s, compute_s = times.parts_s[LOAD], times.parts_s[COMPUTE]
    assert len(barriers) == len(load_s) == len(compute_s) == 3
    assert load_s[0] >= 0.05
    assert min(compute_s) >= 0.02
    for load, compute, processed in zip(load_s, compute_s, times.processed_s, strict=True):
        assert processed >= load + compute
    assert times.duration_s >= sum(times.processed_s)
    assert times.read_bytes == 33
    assert (times.hash_cpu_s or 0.0) > 1.5  # the loader's, and that of the rows
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
    assert len(times.parts_s[COMPUTE]) == 2
    assert len(delivered.rows) == 6


def test_without_a_step_time_nothing_is_slept(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = Instant([0.0] * 2)
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    run_epoch(loader, range(2), steps=2, per_rank=1, step_s=0.0, barrier=lambda: None)
    assert slept == [0.0, 0.0]  # the loader's own


def test_every_moment_of_a_step_belongs_to_a_part() -> None:
    clock = StepClock()
    clock.start()
    for _ in range(3):
        for part in PARTS:
            time.sleep(0.001)
            clock.lap(part)
        clock.end_step()
    parts_s = [sum(step) for step in zip(*(clock.seconds(part) for part in PARTS), strict=True)]
    assert sum(parts_s) == pytest.approx(clock.duration_ns / 1e9, rel=1e-9)
    assert all(min(clock.seconds(part)) >= 0.001 for part in PARTS)
    barrier_s = clock.seconds(BARRIER)
    for whole_s, wait_s, processed_s in zip(parts_s, barrier_s, clock.processed_s(), strict=True):
        assert processed_s == pytest.approx(whole_s - wait_s)
    assert len(clock.steps_s()) == 3


@pytest.mark.parametrize("loader", [direct(), torch()], ids=["direct", "torch"])
@pytest.mark.parametrize("record_format", ["npz", "npy"])
def test_the_parts_of_a_run_make_up_its_epochs_with_every_loader(
    tmp_path: Path, loader: SampleLoaderConfig, record_format: str
) -> None:
    outcome, _ = live(workload(loader, record_format=record_format), context_at(tmp_path))
    found, facts = named(outcome), facts_of(outcome)
    assert verdict(checks_of(outcome), "step_times_close") == "pass"
    parts = ("load_wait_s", "compute_s", "barrier_s", "rest_s")
    assert sum(found[name].value or 0.0 for name in parts) == pytest.approx(
        sum(facts.epochs_s), rel=1e-6
    )
    assert found["decode_s"].value
