"""The parts of a step: they make up the whole, and a check says so by another clock."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.context import context_at
from tests.unet3d import EPOCHS, direct, live, named, torch, verdict, workload
from wattload.core.record.results import Metric
from wattload.loaders.samples import SampleLoaderConfig
from wattload.workloads.unet3d.loop import StepClock, StepPart
from wattload.workloads.unet3d.metrics import (
    SERIES_STEPS,
    EpochTimes,
    JobTimes,
    closure_check,
    device_metrics,
    step_metrics,
    step_series,
)

pytestmark = pytest.mark.usefixtures("short_ceiling")


def epoch(steps: int = 4) -> EpochTimes:
    """Return steps of 0.1 + 0.05 + 0.3 + 0.04 + 0.01 s, and 0.2 s of decoding for each."""
    return EpochTimes(
        duration_s=0.5 * steps,
        load_s=(0.1,) * steps,
        copy_s=(0.05,) * steps,
        compute_s=(0.3,) * steps,
        processed_s=(0.46,) * steps,
        barrier_s=(0.04,) * steps,
        rest_s=(0.01,) * steps,
        step_s=(0.5,) * steps,
        decode_s=(0.2,) * steps,
        payload_bytes=10,
        read_bytes=10,
        cpu_s=0.0,
        hash_cpu_s=0.0,
        copied_bytes=1000,
        device_copy_s=0.25,
    )


def job_times(*ranks: EpochTimes) -> JobTimes:
    return JobTimes(
        ranks=[[rank] for rank in ranks],
        per_rank=1,
        batch_samples=7,
        step_s=0.3,
        missing={"decode_s": "the library does both in one", "copy_s": "no device"},
    )


def figures(subject: JobTimes) -> dict[str, Metric]:
    return {m.name: m for m in (*step_metrics(subject), *device_metrics(subject))}


def test_seconds_are_those_of_one_accelerator_and_shares_sum_to_one() -> None:
    found = figures(job_times(epoch(), epoch()))
    assert found["load_wait_s"].value == pytest.approx(0.4)
    assert found["copy_wait_s"].value == pytest.approx(0.2)
    assert found["compute_s"].value == pytest.approx(1.2)
    assert found["barrier_s"].value == pytest.approx(0.16)
    assert found["rest_s"].value == pytest.approx(0.04)
    shares = [metric.value for name, metric in found.items() if name.endswith("_fraction")]
    assert sum(share or 0.0 for share in shares) == pytest.approx(1.0)
    assert found["barrier_fraction"].value == pytest.approx(0.08)
    assert found["step_p50_s"].value == pytest.approx(0.5)


def test_decoding_is_summed_over_all_workers() -> None:
    found = figures(job_times(epoch(), epoch()))
    assert found["decode_s"].value == pytest.approx(1.6)
    assert found["decode_p50_s"].value == pytest.approx(0.2)


def test_the_device_rate_is_bytes_over_its_own_seconds() -> None:
    found = figures(job_times(epoch(), epoch()))
    assert found["copied_bytes"].value == 2000
    assert found["device_copy_bytes_per_s"].value == pytest.approx(4000.0)


@pytest.mark.parametrize(
    ("field", "name", "reason"),
    [
        ("decode_s", "decode_s", "the library does both in one"),
        ("decode_s", "decode_p50_s", "the library does both in one"),
        ("copy_s", "copy_wait_s", "no device"),
        ("copy_s", "copied_bytes", "no device"),
        ("barrier_s", "barrier_fraction", "not reported"),
        ("step_s", "step_max_s", "not reported"),
    ],
)
def test_what_one_rank_did_not_measure_is_absent_with_a_reason(
    field: str, name: str, reason: str
) -> None:
    changes: dict[str, Any] = {field: None}
    found = figures(job_times(epoch(), replace(epoch(), **changes)))
    assert found[name].value is None
    assert reason in found[name].missing["value"]


def test_parts_that_make_up_the_steps_pass() -> None:
    check = closure_check(job_times(epoch(), epoch()))
    assert check.verdict == "pass"
    assert check.figures["parts_s"] == pytest.approx(2.0)
    assert check.figures["epochs_checked"] == 2


@pytest.mark.parametrize("field", ["load_s", "copy_s", "compute_s", "barrier_s", "rest_s"])
def test_a_part_that_was_made_up_fails_the_check(field: str) -> None:
    changes: dict[str, Any] = {field: (0.3, 0.3, 0.31, 0.32)}
    altered = replace(epoch(), **changes)
    check = closure_check(job_times(epoch(), altered))
    assert check.verdict == "fail"
    assert "the times of this run are inconsistent" in check.sentence


def test_a_loop_that_does_not_tell_its_parts_is_not_checked() -> None:
    check = closure_check(job_times(replace(epoch(), barrier_s=None)))
    assert check.verdict == "not_checked"


def test_series_of_long_epochs_are_thinned_and_say_how() -> None:
    series = step_series(job_times(epoch(3 * SERIES_STEPS), epoch(3 * SERIES_STEPS)))
    assert series["every"] == 3
    assert series["load_wait_us"] == [[100_000] * SERIES_STEPS]
    short = step_series(job_times(replace(epoch(), copy_s=None)))
    assert short["every"] == 1
    assert "copy_wait_us" not in short


def test_every_moment_of_a_step_belongs_to_a_part() -> None:
    clock = StepClock()
    clock.start()
    for _ in range(3):
        for part in StepPart:
            time.sleep(0.001)
            clock.lap(part)
        clock.end_step()
    parts_s = [sum(step) for step in zip(*(clock.seconds(part) for part in StepPart), strict=True)]
    assert sum(parts_s) == pytest.approx(clock.duration_ns / 1e9, rel=1e-9)
    assert all(min(clock.seconds(part)) >= 0.001 for part in StepPart)
    barrier_s = clock.seconds(StepPart.BARRIER)
    for whole_s, wait_s, processed_s in zip(parts_s, barrier_s, clock.processed_s(), strict=True):
        assert processed_s == pytest.approx(whole_s - wait_s)
    assert len(clock.steps_s()) == 3


@pytest.mark.parametrize("loader", [direct(), torch()], ids=["direct", "torch"])
@pytest.mark.parametrize("record_format", ["npz", "npy"])
def test_a_run_tells_its_parts_with_every_loader(
    tmp_path: Path, loader: SampleLoaderConfig, record_format: str
) -> None:
    outcome, _ = live(workload(loader, record_format=record_format), context_at(tmp_path))
    found, details = named(outcome), outcome.details
    assert verdict(list(outcome.checks), "step_times_close") == "pass"
    parts = ("load_wait_s", "compute_s", "barrier_s", "rest_s")
    assert sum(found[name].value or 0.0 for name in parts) == pytest.approx(
        sum(details["epoch_s"]), rel=1e-6
    )
    assert found["decode_s"].value
    assert details["decode_timed"] == loader.sample_decode_timed
    assert len(details["steps"]["load_wait_us"]) == EPOCHS
    assert len(details["steps"]["compute_us"][0]) == details["steps_per_epoch"]
    json.dumps(dict(details), allow_nan=False)
