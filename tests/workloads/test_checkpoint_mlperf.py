"""A run held against the checkpoint rules of MLPerf Storage."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.context import context_at
from tests.workloads.checkpointing import RANK_BYTES, STEP_S, account, made, ranks, run, settings
from wattload.compose import compose
from wattload.workloads.checkpoint.account import Account
from wattload.workloads.checkpoint.job import Job, plan_job
from wattload.workloads.checkpoint.mlperf import departures, mlperf_checks

pytestmark = pytest.mark.usefixtures("short_ceilings")

RULES = {"model": "8b", "checkpoint_count": 10, "keep": 10, "interval_s": 5.0}
S = 1_000_000_000


def job_of(path: Path, *, count: int = 8, **changed: object) -> Job:
    whole = {"shrink_bytes": None, "protocol": "mlperf"} | RULES | changed
    return plan_job(settings(**whole), ranks(path, count)[0])


def accounts(job: Job, tmp_path: Path, *, read_s: int, memory_bytes: int) -> list[Account]:
    from wattload.loaders.coldcache import cold_cache_check

    made = []
    for _ in job.shards:
        one = account("a", (0, 10 * S))
        one.read.windows_ns.append((read_s * S, (read_s + 1) * S))
        one.memory_bytes = memory_bytes
        one.cold.append(cold_cache_check([]))
        made.append(one)
    return made


def test_the_preset_is_a_run_by_the_rules(tmp_path: Path) -> None:
    overrides = ["workload=checkpoint_mlperf", "scale=full", f"target.path={tmp_path}"]
    config, _ = compose(overrides)
    context = ranks(tmp_path, 8)[0]
    context.scale = "full"
    assert departures(plan_job(config.workload, context)) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"model": "405b_server"}, "405b_server is none of 8b, 70b, 405b, 1t"),
        ({"count": 2}, "2 of 8 ranks ran"),
        ({"slice_bytes": 1_110_000_000}, "bytes were written"),
        ({"checkpoint_count": 4}, "4 checkpoints in place of 10"),
        ({"keep": 2}, "reads began before all checkpoints were written"),
        ({"interval_s": 1.0}, "1 s between checkpoints, not 5"),
        ({"mode": "async"}, "checkpoints drained while training went on"),
        ({"fsync": False}, "files were not fsynced"),
    ],
)
def test_each_departure_from_the_rules_is_named(
    tmp_path: Path, changed: dict[str, object], said: str
) -> None:
    job = job_of(tmp_path, **changed)  # type: ignore[arg-type]
    assert any(said in departure for departure in departures(job))
    rules, *_ = mlperf_checks(job, accounts(job, tmp_path, read_s=11, memory_bytes=1))
    assert rules.verdict == "warn"
    assert said in rules.sentence


@pytest.mark.parametrize(("read_s", "verdict"), [(11, "pass"), (41, "pass"), (9, "fail")])
def test_reads_begin_after_the_last_write_in_one_command_at_any_time(
    tmp_path: Path, read_s: int, verdict: str
) -> None:
    job = job_of(tmp_path)
    _, _, found = mlperf_checks(job, accounts(job, tmp_path, read_s=read_s, memory_bytes=1))
    assert found.verdict == verdict
    assert found.figures["seconds"] == read_s - 10


def test_caches_must_be_cold_under_three_times_the_memory(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    small, large = job.checkpoint_bytes // 3, job.checkpoint_bytes
    _, found, _ = mlperf_checks(job, accounts(job, tmp_path, read_s=11, memory_bytes=small))
    assert (found.verdict, "does not apply" in found.sentence) == ("pass", True)
    warm = accounts(job, tmp_path, read_s=11, memory_bytes=large)
    _, found, _ = mlperf_checks(job, warm)
    assert found.verdict == "pass"
    assert "proved cold" in found.sentence
    warm[3].cold[0] = warm[3].cold[0].model_copy(update={"verdict": "fail"})
    _, found, _ = mlperf_checks(job, warm)
    assert found.verdict == "fail"
    assert "the proof is lacking" in found.sentence


def test_the_rules_are_judged_when_they_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "mlperf").mkdir()
    _, plain = run(made(), context_at(tmp_path / "plain"))
    assert not any(name.startswith("mlperf") for name in plain)
    _, judged = run(
        made(protocol="mlperf", keep=3, interval_s=STEP_S), context_at(tmp_path / "mlperf")
    )
    assert judged["mlperf_checkpoint_rules"].verdict == "warn"
    assert judged["mlperf_read_start"].verdict == "pass"
    assert judged["mlperf_cache_rule"].verdict == "pass"
    assert judged["mlperf_cache_rule"].figures["client_bytes"] == RANK_BYTES
