"""Checkpoints that drain while training goes on: what overlaps, what stalls, what is left."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.context import Context, context_at, run_ranks
from tests.workloads.checkpointing import (
    BESIDE,
    LOADERS,
    RANK_BYTES,
    STEP_S,
    data_folder,
    facts_of,
    interrupt,
    made,
    ranks,
    remains,
    run,
    value,
)
from wattload.core.errors import ConfigError, TargetError
from wattload.core.workload import Accelerator
from wattload.loaders.checkpoint_store import CheckpointLoader, Saved
from wattload.loaders.data.data_folder import list_folders
from wattload.loaders.direct.checkpoint import DirectStore
from wattload.workloads.checkpoint.config import Config
from wattload.workloads.checkpoint.cycle import (
    SNAPSHOT_BUFFER_BYTES,
    Snapshot,
    snapshot_memory_bytes,
    step_seconds,
)
from wattload.workloads.checkpoint.storage import complete_checkpoints

pytestmark = pytest.mark.usefixtures("short_ceilings")


@pytest.mark.parametrize("loader", LOADERS.values(), ids=LOADERS)
def test_drained_checkpoints_are_proved_like_written_ones(
    tmp_path: Path, loader: CheckpointLoader
) -> None:
    context = context_at(tmp_path)
    record, checks = run(made(loader, **BESIDE), context)
    assert {check.verdict for check in checks.values()} == {"pass"}
    assert value(record, "written_bytes") == sum(p.written_bytes for p in context.timed("write"))
    assert value(record, "written_bytes") == value(record, "read_bytes")
    assert remains(tmp_path) == []
    assert any("The copy is not kept" in remark for remark in record.workload.remarks)


def test_training_goes_on_under_a_drain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The save ends only after steps have been made beside it, or this test would not end."""
    context, stepped = context_at(tmp_path), threading.Semaphore(0)
    real_save = DirectStore.save

    def all_gather(value: object) -> list[object]:
        stepped.release()
        return [value]

    def save(store: DirectStore, *given: Any, **named: Any) -> Saved:
        if given[0] == Path("memory"):  # the ceilings, measured when training is over
            return real_save(store, *given, **named)
        while stepped.acquire(blocking=False):
            pass  # what came before this drain
        for _ in range(2):
            assert stepped.acquire(timeout=60)
        return real_save(store, *given, **named)

    monkeypatch.setattr(context.communicator, "all_gather", all_gather)
    monkeypatch.setattr(DirectStore, "save", save)
    record, _ = run(made(checkpoint_count=1, **BESIDE), context, verify=False)
    assert value(record, "steps_during_drain") >= 2
    (write, commit) = context.timed("write")
    trains = [phase for phase in context.phases if phase.name == "train"]
    assert any(t.start_ns < write.end_ns and write.start_ns < t.end_ns for t in trains)
    assert commit.written_bytes == 0
    assert not any(phase.timed for phase in context.phases if phase.name in ("train", "snapshot"))


def test_write_seconds_are_those_of_the_drain_alone(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    record, _ = run(made(**BESIDE), context)
    spans = [phase.seconds for phase in context.timed("write")]
    assert len(spans) == 6  # a save and a commit each
    drain_s = value(record, "drain_seconds_per_checkpoint")
    total = value(record, "write_seconds_per_checkpoint")
    assert drain_s == total == pytest.approx(sum(spans) / 3)
    assert value(record, "durable_seconds_per_checkpoint") >= drain_s


def test_the_next_checkpoint_waits_for_the_drain_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, waiting = context_at(tmp_path), threading.Event()
    real_phase, real_save = context.phase, DirectStore.save

    def phase(name: str, *, timed: bool = True) -> object:
        if name == "drain_wait":
            waiting.set()
        return real_phase(name, timed=timed)

    def save(store: DirectStore, *given: Any, **named: Any) -> Saved:
        assert waiting.wait(60)
        return real_save(store, *given, **named)

    monkeypatch.setattr(context, "phase", phase)
    monkeypatch.setattr(DirectStore, "save", save)
    record, checks = run(made(checkpoint_count=2, **BESIDE), context)
    assert {check.verdict for check in checks.values()} == {"pass"}
    first_s, second_s = (stall.wait_s for stall in facts_of(record).ranks[0].stalls)
    assert second_s > 100 * first_s
    assert value(record, "drain_wait_seconds_per_checkpoint") == second_s


@pytest.mark.parametrize(("keep", "order"), [(1, "srsrsr"), (None, "ssrrsr"), (3, "sssrrr")])
def test_reads_begin_when_all_drains_have_ended(
    tmp_path: Path, keep: int | None, order: str
) -> None:
    context = context_at(tmp_path)
    workload = made(keep=keep, **BESIDE)
    run(workload, context, verify=False)
    names = [phase.name for phase in context.phases if phase.name in ("snapshot", "read")]
    assert "".join(name[0] for name in names) == order
    for read in context.timed("read"):
        assert not any(
            write.start_ns < read.end_ns and read.start_ns < write.end_ns
            for write in context.timed("write")
        )
    kept = min(keep or 2, 3)
    assert len(complete_checkpoints(data_folder(context))) == kept
    assert workload.plan(context).peak_bytes == min(kept + 1, 3) * RANK_BYTES


@pytest.mark.parametrize("targets", [1, 2])
def test_ranks_drain_side_by_side(tmp_path: Path, targets: int) -> None:
    contexts = ranks(tmp_path, 3, targets)
    results = run_ranks(contexts, lambda context: run(made(**BESIDE), context, contexts))
    record, checks = results[0]
    assert {check.verdict for check in checks.values()} == {"pass"}
    assert value(record, "written_bytes") == 9 * RANK_BYTES
    assert all(len(counts.stalls) == 3 for counts in facts_of(record).ranks)
    steps = [len([p for p in c.phases if p.name == "train"]) for c in contexts]
    assert len(set(steps)) == 1
    assert all(remains(tmp_path / str(index)) == [] for index in range(targets))


@pytest.mark.parametrize("loader", LOADERS.values(), ids=LOADERS)
def test_a_target_that_fills_up_under_training_is_one_sentence_and_no_checkpoint(
    tiny_file_system: Path, loader: CheckpointLoader
) -> None:
    context = context_at(tiny_file_system)
    workload = made(loader, shrink_bytes=20_000_000, **BESIDE)
    workload.plan(context)
    workload.prepare(context)
    with pytest.raises(TargetError, match=r"draining checkpoint 1 failed: .*No space left"):
        workload.run(context)
    assert list_folders(tiny_file_system) == ()
    assert remains(tiny_file_system) == []


def interrupt_training(context: Context, after_bytes: int) -> None:
    """Have the first step that ends beyond ``after_bytes`` be interrupted, as Ctrl-C would."""
    all_gather = context.communicator.all_gather

    def interrupted(value: Any) -> list[Any]:
        if sum(context.progress.moved_bytes) > after_bytes:
            raise KeyboardInterrupt
        return all_gather(value)

    context.communicator.all_gather = interrupted  # type: ignore[method-assign]  # a spy


@pytest.mark.parametrize("loader", LOADERS.values(), ids=LOADERS)
def test_an_interrupt_under_a_drain_leaves_nothing(
    tmp_path: Path, loader: CheckpointLoader
) -> None:
    workload, context = made(loader, **BESIDE), context_at(tmp_path)
    interrupt_training(context, RANK_BYTES // 4)
    workload.plan(context)
    workload.prepare(context)
    with pytest.raises(KeyboardInterrupt):
        workload.run(context)
    assert not [t.name for t in threading.enumerate() if t.name.startswith("drain")]
    assert list_folders(tmp_path) == ()
    assert remains(tmp_path) == []


def test_an_interrupt_on_the_drain_itself_ends_the_run(tmp_path: Path) -> None:
    workload, context = made(**BESIDE), context_at(tmp_path)
    interrupt(context, RANK_BYTES // 4)
    workload.plan(context)
    workload.prepare(context)
    with pytest.raises(KeyboardInterrupt):
        workload.run(context)
    assert remains(tmp_path) == []


def test_a_snapshot_of_any_shard_takes_bounded_memory() -> None:
    whole = 3 * SNAPSHOT_BUFFER_BYTES + 5
    assert snapshot_memory_bytes(52 * 10**9) == 2 * SNAPSHOT_BUFFER_BYTES
    snapshot = Snapshot(whole)
    snapshot._source[:] = 7
    snapshot.take()
    assert bool((snapshot._copy == 7).all())
    small = Snapshot(5)
    small._source[:] = 3
    small.take()
    assert small._copy.tolist() == [3] * 5


def test_the_plan_counts_the_snapshots_memory(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    synchronous, asynchronous = (made(**changed).plan(context) for changed in ({}, BESIDE))
    assert asynchronous.memory_bytes_per_rank - synchronous.memory_bytes_per_rank == 2 * RANK_BYTES


MEMORY = """
import sys
from pathlib import Path
from tests.context import context_at
from wattload.core.workload import Accelerator
from wattload.loaders.direct import config as direct
from wattload.workloads.checkpoint import ceilings
from wattload.workloads.checkpoint.config import Config
from wattload.workloads.checkpoint.workload import Checkpoint

ceilings.LEAST_S = 0.01
config = Config(
    mode="async", checkpoint_count=1, slice_bytes=700_000_000, interval_s=0.02, step_s=0.01
)
context = context_at(Path(sys.argv[1]), scale="quick")
workload = Checkpoint(config, direct.Config(), Accelerator())
workload.plan(context)
workload.prepare(context)
workload.run(context)
workload.verify(context)
moved = sum(phase.written_bytes for phase in context.timed("write"))
# ru_maxrss would be the parent's, from before exec
peak = Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]
print(moved, int(peak) * 1024)
"""


def test_a_rank_stays_under_256_mb_whatever_its_slice(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path)],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    moved_bytes, resident_bytes = map(int, done.stdout.split())
    assert moved_bytes > 600_000_000
    assert resident_bytes < 256_000_000


@pytest.mark.parametrize(
    ("setting", "steps", "expected"),
    [
        (0.5, {"checkpoint": 2.0}, 0.5),
        (None, {"checkpoint": 2.0, "unet3d": 0.3}, 2.0),
        (None, {"unet3d": 0.3}, 0.3),
        (None, {}, 0.0),
    ],
)
def test_the_step_is_the_settings_or_the_accelerators(
    setting: float | None, steps: dict[str, float], expected: float
) -> None:
    assert step_seconds(Config(step_s=setting), Accelerator(step_s=steps)) == expected


def test_training_in_steps_of_no_time_is_refused() -> None:
    unpaced = Accelerator(name="unpaced", step_s={"unet3d": 0.0})
    with pytest.raises(ConfigError, match=r"accelerator=unpaced has 0 s; set workload"):
        step_seconds(Config(mode="async"), unpaced)


def test_a_synchronous_run_trains_between_checkpoints_and_not_after_the_last(
    tmp_path: Path,
) -> None:
    context = context_at(tmp_path)
    record, _ = run(made(keep=3, interval_s=3 * STEP_S), context)
    names = [phase.name for phase in context.phases if phase.name != "harness_ceiling"]
    assert names == ["write", "train", "write", "train", "write", "read", "read", "read"]
    assert not any(metric.name.startswith("stall") for metric in record.metrics)
