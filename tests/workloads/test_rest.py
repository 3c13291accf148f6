"""The rest behind a job: every workload says when its job has ended, and nothing lies between."""

from __future__ import annotations

import signal
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.run.running import DEADLINE_S, launched, record_of, run, run_here, until
from wattload.core.record.phase import PhaseWindow
from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S
from wattload.run.config_groups import options
from wattload.run.phases import REST_PHASE

SMALL: dict[str, tuple[str, ...]] = {
    "checkpoint": ("workload.shrink_bytes=4000000",),
    "checkpoint_mlperf": ("workload.shrink_bytes=4000000", "workload.interval_s=0"),
    "dlrm": ("workload.row_count=2000", "workload.workers=2"),
    "gnn": (
        "loader=gpu_queue",
        "loader.requester=cpu",
        "accelerator.device=none",
        "workload.hidden=8",
        "workload.fanouts=[2,2,2]",
    ),
    "gpu_random_read": (
        "loader.requester=cpu",
        "workload.file_bytes=1048576",
        "workload.duration_s=0.3",
        "workload.requesters=64",
    ),
    "gpu_read": (
        "loader=gpu_queue",
        "loader.requester=cpu",
        "workload.file_bytes=1048576",
        "workload.duration_s=0.3",
        "workload.requesters=64",
    ),
    "kv_cache": (
        "workload.capacity_bytes=134217728",
        "workload.duration_s=0.5",
        "workload.warm_up_s=0",
        "workload.saturation_s=0.3",
    ),
    "kv_cache_conversation": (
        "workload.capacity_bytes=67108864",
        "workload.duration_s=0.5",
        "workload.warm_up_s=0",
        "workload.saturation_s=0.3",
    ),
    "model_load": ("workload.model=tiny", "workload.vocabulary_divisor=1"),
    "null": (),
    "random_write": ("workload.range_bytes=33554432",),
    "retinanet": ("workload.file_count=48", "workload.epochs=1", "accelerator=unpaced"),
    "unet3d": ("workload.record_divisor=640", "accelerator=unpaced"),
    "vector_search": (
        "workload.vectors=2000",
        "workload.dim=16",
        "workload.pq_bytes=8",
        "workload.duration_s=0.5",
        "workload.threads=2",
    ),
    "weight_stream": ("workload.model=tiny-moe",),
}
"""Settings of a small run of every workload; a new one needs an entry."""
REST_S = 0.25


def measured(folder: Path) -> list[str]:
    """Return the settings by which a file measures the drive."""
    meter = folder / "meter.csv"
    rows = "".join(f"{row / 10},12.5\n" for row in range(2000))
    meter.write_text(f"# evidence: measured\n# device: SERIAL\ntime_s,power_w\n{rows}")
    return ["power=replay", f"power.replay.path={meter}", "power.idle_s=0.1"]


def journals(folder: Path) -> list[str]:
    return [path.read_text() for path in folder.glob("runs/*/*.jsonl")]


def record_with_a_rest(folder: Path, *words: str, ranks: int = 1) -> RunRecord:
    """Return the record of a small run whose drive a file measures."""
    times = [f"power.rest_max_s={REST_S}", "power.idle_after_s=0.5"]
    given = ("scale=demo", *words, *measured(folder), *times)
    done = run(folder, *given, ranks=ranks) if ranks > 1 else run_here(folder, *given)
    assert done.returncode in (0, 3), done.stderr
    return record_of(folder)


def rest_of(record: RunRecord) -> PhaseWindow:
    (rest,) = [window for window in record.windows if window.name == REST_PHASE]
    return rest


def assert_last_rest_follows_the_job(record: RunRecord) -> None:
    job_end_ns = max(window.end_ns for window in record.timed_windows())
    rest = rest_of(record)
    assert rest.intervals[-1] == (job_end_ns, job_end_ns + round(REST_S * NS_PER_S))
    assert not rest.timed
    inside = [
        window.name
        for window in record.windows
        for start_ns, end_ns in window.intervals
        if window is not rest and end_ns > job_end_ns and start_ns < rest.end_ns
    ]
    assert inside == []
    (idle_after,) = [window for window in record.windows if window.name == "idle_after"]
    behind = [window for window in record.windows if window.start_ns >= rest.end_ns]
    assert behind[0] is idle_after


@pytest.mark.thorough
@pytest.mark.parametrize("workload", options("workload"))
def test_every_workload_rests_directly_behind_its_job(tmp_path: Path, workload: str) -> None:
    record = record_with_a_rest(tmp_path, f"workload={workload}", *SMALL[workload])
    assert_last_rest_follows_the_job(record)
    assert len(rest_of(record).intervals) == 1
    assert record.power.rest_s == REST_S


@pytest.mark.thorough
@pytest.mark.skipif(find_spec("dlio_benchmark") is None, reason="dlio-benchmark is not installed")
def test_a_program_that_owns_the_loop_is_followed_by_a_rest(tmp_path: Path) -> None:
    words = (*SMALL["unet3d"], "workload.epochs=1")
    record = record_with_a_rest(tmp_path, "workload=unet3d", "loader=dlio", *words)
    assert_last_rest_follows_the_job(record)


@pytest.mark.thorough
def test_checkpoints_that_drain_are_complete_before_the_rest(tmp_path: Path) -> None:
    words = ("workload.mode=async", "workload.interval_s=0.2", "workload.step_s=0.1")
    record = record_with_a_rest(tmp_path, "workload=checkpoint", *SMALL["checkpoint"], *words)
    assert_last_rest_follows_the_job(record)
    assert len(rest_of(record).intervals) == 1, "what drains under training is no rest"


@pytest.mark.thorough
def test_training_between_saves_that_is_long_enough_is_a_rest(tmp_path: Path) -> None:
    words = ("workload.interval_s=0.5", "workload.step_s=0.1", "workload.checkpoint_count=3")
    record = record_with_a_rest(tmp_path, "workload=checkpoint", *SMALL["checkpoint"], *words)
    assert_last_rest_follows_the_job(record)
    (write,) = [window for window in record.windows if window.name == "write"]
    starts = [start_ns for start_ns, _ in rest_of(record).intervals]
    assert starts[:-1] == [end_ns for _, end_ns in write.intervals[:-1]]
    tails = {each.phase: each for each in record.power.energy}
    assert {name: each.tail_j is not None for name, each in tails.items()} == {
        "write": True,
        "read": True,
    }
    assert tails["write"].rest_s == pytest.approx(2 * REST_S, rel=0.01)


@pytest.mark.thorough
def test_all_ranks_rest_together(tmp_path: Path) -> None:
    record = record_with_a_rest(tmp_path, "workload=checkpoint", *SMALL["checkpoint"], ranks=2)
    assert_last_rest_follows_the_job(record)
    assert rest_of(record).rank_count == 1


def test_a_run_that_is_ended_in_its_rest_says_what_it_had_done(tmp_path: Path) -> None:
    words = ("workload=null", "scale=demo", *measured(tmp_path), "power.rest_max_s=600")
    with launched(tmp_path, *words) as process:
        begun = f'"name":"{REST_PHASE}"'
        until(lambda: any(begun in text for text in journals(tmp_path)), process)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130
    record = record_of(tmp_path)
    assert record.status == "aborted"
    assert [window.name for window in record.windows] == ["idle", "nothing"]
    assert any("with rank 0 in phase rest" in limit for limit in record.limits)


def test_without_a_meter_there_is_no_rest(tmp_path: Path) -> None:
    done = run_here(tmp_path, "workload=null", "scale=demo", "power=none")
    assert done.returncode == 0, done.stderr
    assert [window.name for window in record_of(tmp_path).windows] == ["nothing"]
