"""A run by the checkpoint rules of MLPerf Storage: its plan, and what the run alone can see."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.context import context_at, run_ranks
from tests.workloads.checkpointing import STEP_S, made, ranks, run
from wattload.core.mlperf import rules as mlperf
from wattload.core.mlperf.edition import LAST_EDITION, editions
from wattload.run.compose import compose
from wattload.workloads.checkpoint.config import plan_job

pytestmark = pytest.mark.usefixtures("short_ceilings")


def test_the_preset_is_a_run_by_the_rules(tmp_path: Path) -> None:
    overrides = ["workload=checkpoint_mlperf", "scale=full", f"target.path={tmp_path}"]
    config, _ = compose(overrides)
    asked = editions()[LAST_EDITION].checkpoints[config.workload.model].ranks
    contexts = ranks(tmp_path, asked)
    for context in contexts:
        context.scale = "full"
    job = run_ranks(contexts, lambda context: plan_job(config.workload, context))[0]
    assert len(job.shards) == job.model_ranks == asked
    assert job.checkpoint_bytes == job.rank_bytes
    assert job.config.checkpoint_count == job.config.kept == mlperf.CHECKPOINT_COUNT
    assert job.config.training_s == mlperf.CHECKPOINT_INTERVAL_S
    assert (job.config.is_async, job.config.fsync) == (False, True)


def test_the_start_of_reads_is_judged_when_the_rules_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "mlperf").mkdir()
    _, plain = run(made(), context_at(tmp_path / "plain"))
    assert not any(name.startswith("mlperf") for name in plain)
    _, judged = run(
        made(protocol="mlperf", keep=3, interval_s=STEP_S), context_at(tmp_path / "mlperf")
    )
    assert judged["mlperf_read_start"].verdict == "pass"
