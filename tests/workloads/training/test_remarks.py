from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.context import context_at
from tests.unet3d import direct, facts_of, live, torch, workload
from wattload.core.record.results import Check, Verdict
from wattload.core.workload import Accelerator
from wattload.loaders.samples import SampleSet
from wattload.workloads.training.config import Config, Sizes
from wattload.workloads.training.facts import remarks
from wattload.workloads.training.job import plan_job

pytestmark = pytest.mark.usefixtures("short_ceiling")


def departures(name: str, step_s: float, **settings: Any) -> list[str]:
    config = Config(file_count=28, **settings)
    accelerator = Accelerator(name=name, step_s={"unet3d": step_s})
    subject = plan_job(config, accelerator, context_at(Path("/tmp"), scale="quick"))
    samples = SampleSet(
        paths=(), file_bytes=(), record_format="npz", batch_samples=7, resize_bytes=1
    )
    cold = Check(name="cold_cache", verdict="pass", sentence="It was cold.")
    found = remarks(subject, samples, direct(), cold=cold)
    return [remark for remark in found if "not the published unet3d job" in remark]


@pytest.mark.parametrize(("name", "step_s"), [("a100", 0.636), ("h100", 0.323), ("b200", 0.162)])
def test_the_published_job_needs_no_remark(name: str, step_s: float) -> None:
    assert departures(name, step_s) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"record_mean_bytes": 140_000_000}, "workload.record_mean_bytes is 140000000 instead of"),
        ({"record_stdev_bytes": 10_000_000}, "workload.record_stdev_bytes is 10000000 instead of"),
        ({"resize_bytes": 4096}, "workload.resize_bytes is 4096 instead of 2097152"),
        ({"batch_samples": 4}, "workload.batch_samples is 4 instead of 7"),
    ],
)
def test_other_records_or_batches_are_remarked(settings: dict[str, object], message: str) -> None:
    (remark,) = departures("h100", 0.323, **settings)
    assert message in remark


@pytest.mark.parametrize(
    ("name", "step_s", "message"),
    [
        ("h100", 0.1, "accelerator.step_s.unet3d is 0.1 s instead of 0.323 s for 'h100'"),
        (
            "unpaced",
            0.0,
            "accelerator 'unpaced' with a step of 0.0 s is not one of",
        ),
    ],
)
def test_other_step_times_are_remarked(name: str, step_s: float, message: str) -> None:
    (remark,) = departures(name, step_s)
    assert message in remark


def test_remarks_say_what_makes_the_figures_special(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    outcome, _ = live(workload(torch(), sizes=Sizes.dlio), context)
    text = " ".join(outcome.remarks)
    assert "Records are shrunk to 1/640 of MLPerf's" in text
    assert "Each epoch read 17 files. MLPerf Storage requires " in text
    assert "drawn as in DLIO" in text
    assert "loader=torch computes the CRC-32 of every npz record (as np.load does)" in text
    assert facts_of(outcome).crc_checked


def test_a_crc_that_was_asked_for_is_no_remark(tmp_path: Path) -> None:
    outcome, _ = live(workload(check_crc=True), context_at(tmp_path))
    assert facts_of(outcome).crc_checked
    assert not any("CRC" in remark for remark in outcome.remarks)


@pytest.mark.parametrize("verdict", ["pass", "fail", "not_checked"])
def test_the_page_says_what_stands_in_for_the_data_set_rule(verdict: Verdict) -> None:
    cold = Check(name="cold_cache", verdict=verdict, sentence="It was looked at.", mandatory=True)
    accelerator = Accelerator(name="h100", step_s={"unet3d": 0.323})
    job = plan_job(Config(file_count=28), accelerator, context_at(Path("/tmp"), scale="quick"))
    samples = SampleSet(
        paths=(), file_bytes=(), record_format="npz", batch_samples=7, resize_bytes=1
    )
    (remark,) = remarks(job, samples, direct(), cold=cold)
    assert f"Each epoch read 28 files. MLPerf Storage requires {job.rule.files}" in remark
    verified = "Instead, the page cache was verified to be cold before every epoch" in remark
    assert verified == (verdict == "pass")
    assert ("Reads may have come from memory" in remark) != verified
