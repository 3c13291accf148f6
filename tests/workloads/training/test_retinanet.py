"""retinanet: its published job, its batch by accelerator, and whole runs on JPEG files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.context import context_at, directory_target
from tests.unet3d import direct, facts_of, live, torch, verdict
from wattload.core.errors import ConfigError
from wattload.core.mlperf.edition import published_accelerators, published_job
from wattload.core.workload import Accelerator
from wattload.loaders.samples import SampleLoaderConfig
from wattload.run.compose import build_workload, compose
from wattload.workloads.retinanet import Config
from wattload.workloads.training.dataset import Dataset
from wattload.workloads.training.workload import Retinanet

JOB = published_job("retinanet")
PLAN = ("workload=retinanet", "target.path=/tmp", "power=none")


def settings(*overrides: str) -> Config:
    config, _ = compose([*PLAN, *overrides])
    assert isinstance(build_workload(config), Retinanet)
    assert isinstance(config.workload, Config)
    return config.workload


@pytest.mark.parametrize("accelerator", ["b200", "mi355"])
def test_the_published_job_is_that_of_the_last_edition(accelerator: str) -> None:
    config, _ = compose([*PLAN, f"accelerator={accelerator}", "scale=full"])
    own, published = config.workload, published_accelerators("retinanet")[accelerator]
    assert own.batch_samples == published.batch_samples
    assert config.accelerator.step_s["retinanet"] == published.step_s
    assert (own.epochs, own.au_threshold) == (JOB.epochs, JOB.au)
    assert (own.record_mean_bytes, own.record_stdev_bytes) == (JOB.record_bytes, 0)
    assert (own.record_format, own.resize_bytes) == (JOB.record_format, JOB.resize_bytes)
    assert own.least_file_count * own.record_mean_bytes == pytest.approx(378e9, rel=1e-3)


def test_the_batch_is_the_accelerators_unless_it_is_given() -> None:
    assert settings().batch_samples == 24
    assert settings("accelerator=mi355").batch_samples == 32
    assert settings("accelerator=mi355", "workload.batch_samples=5").batch_samples == 5
    assert settings("accelerator=unpaced").batch_samples == 24


def test_an_accelerator_without_a_published_job_is_refused_with_those_that_have_one(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError, match=r"no value for 'h100'; there is one for b200, mi355, un"):
        compose([*PLAN, "accelerator=h100"])
    subject = Retinanet(
        settings("workload.file_count=48"), direct(), Accelerator(name="mine", step_s={})
    )
    with pytest.raises(ConfigError, match=r"use accelerator=b200, mi355 or unpaced$"):
        subject.plan(context_at(tmp_path))


@pytest.mark.parametrize(("sizes", "payload"), [("matched", 322_957), ("dlio", 568 * 568)])
def test_all_records_have_the_published_size(tmp_path: Path, sizes: str, payload: int) -> None:
    """DLIO makes squares: of 322,957 bytes the largest is 568 x 568."""
    config = settings(f"workload.sizes={sizes}")
    data = Dataset(config, 30, (directory_target(tmp_path),))
    (found,) = {first * second for first, second, _ in data.shapes}
    assert abs(found - payload) <= (2 if sizes == "matched" else 0)  # of about 500 pairs of sides
    assert set(data.file_bytes) == {found + 173}


def job(loader: SampleLoaderConfig, **changes: Any) -> Retinanet:
    """Return a job of 16 records of 100 kB and more, whose payloads span two segments."""
    config = Config(
        record_format="jpeg",
        record_mean_bytes=100_000,
        record_stdev_bytes=2_000,
        resize_bytes=None,
        batch_samples=4,
        file_count=16,
        epochs=2,
        **changes,
    )
    return Retinanet(config, loader, Accelerator(name="b200", step_s={"retinanet": 0.002}))


@pytest.mark.usefixtures("short_ceiling")
@pytest.mark.parametrize("loader", [direct(), torch()], ids=["direct", "torch"])
def test_a_run_reads_and_verifies_all_bytes_on_disk(
    tmp_path: Path, loader: SampleLoaderConfig
) -> None:
    context = context_at(tmp_path)
    outcome, checks = live(job(loader), context)
    facts = facts_of(outcome)
    files = list(tmp_path.rglob("img_*.jpeg"))
    assert facts.read_bytes == 2 * sum(path.stat().st_size for path in files)
    assert len({path.stat().st_size for path in files}) > 10
    assert verdict(checks, "delivered_bytes") == "pass"
    assert {check.verdict for check in outcome.checks} == {"pass"}
    (remark,) = (each for each in outcome.remarks if "not the published retinanet job" in each)
    assert "record_mean_bytes is 100000 instead of 322957" in remark
    assert "batch_samples is 4 instead of 24" in remark
    assert "accelerator.step_s.retinanet is 0.002 s instead of 0.04755 s" in remark
