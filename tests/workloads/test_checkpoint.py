from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import tinyfs
from tests.context import Context, ThreadCommunicator, context_at, directory_target, run_ranks
from wattload.core.accelerator import Accelerator
from wattload.core.errors import ConfigError, DataError, MissingExtraError, TargetError
from wattload.core.record.check import Check
from wattload.core.target import DirectIo, TargetKind
from wattload.core.workload import Outcome
from wattload.loaders import direct, torch
from wattload.loaders.datafolder import list_folders
from wattload.workloads.checkpoint import Checkpoint, Config
from wattload.workloads.checkpoint import ceiling as ceiling_module
from wattload.workloads.checkpoint import storage as storage_module
from wattload.workloads.checkpoint.ceiling import shortened
from wattload.workloads.checkpoint.commit import complete_checkpoints
from wattload.workloads.checkpoint.cycle import Account
from wattload.workloads.checkpoint.describe import details, remarks
from wattload.workloads.checkpoint.job import plan_job
from wattload.workloads.checkpoint.metrics import Direction
from wattload.workloads.checkpoint.sharding import shard_of

RANK_BYTES = 4_000_004
DIRECT = direct.Config(block_bytes=256 << 10, queue_depth=4)


@pytest.fixture(autouse=True)
def short_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceiling_module, "LEAST_S", 0.001)


def settings(**changed: Any) -> Config:  # noqa: ANN401 - fields of Config
    return Config(**{"checkpoint_count": 3, "shrink_bytes": RANK_BYTES} | changed)


def made(loader: object = DIRECT, **changed: Any) -> Checkpoint:  # noqa: ANN401
    return Checkpoint(settings(**changed), loader, Accelerator())


def run(
    workload: Checkpoint, context: Context, *, verify: bool = True
) -> tuple[Outcome, dict[str, Check]]:
    workload.plan(context)
    workload.prepare(context)
    outcome = workload.run(context)
    found = workload.verify(context) if verify else ()
    return outcome, {check.name: check for check in (*outcome.checks, *found)}


def value(outcome: Outcome, name: str) -> float:
    (metric,) = (metric for metric in outcome.metrics if metric.name == name)
    assert metric.value is not None
    return metric.value


def remains(target: Path) -> list[Path]:
    """Return the files of data that lie on a target; the folders' own begin with a dot."""
    found = sorted((target / "wattload-data").rglob("*"))
    return [path for path in found if path.is_file() and not path.name.startswith(".")]


def data_folder(context: Context, target: int = 0) -> Path:
    path = context.targets[target].path
    assert path is not None
    (folder,) = list_folders(path)
    return folder.path


@pytest.mark.parametrize("loader", [DIRECT, torch.Config(bucket_bytes=1 << 20)])
def test_every_checkpoint_is_written_proved_read_back_and_removed(
    tmp_path: Path, loader: object
) -> None:
    context = context_at(tmp_path)
    outcome, checks = run(made(loader), context)
    assert {check.verdict for check in checks.values()} == {"pass"}
    assert set(checks) == {
        "cold_cache",
        "checkpoint_durable",
        "checkpoint_bytes_on_target",
        "checkpoint_committed",
        "checkpoint_read_back",
    }
    names = [phase.name for phase in context.phases]
    assert names == ["write", "read"] * 3 + ["harness_ceiling"]
    assert [phase.timed for phase in context.phases] == [True] * 6 + [False]
    written = sum(phase.written_bytes for phase in context.timed("write"))
    read = sum(phase.read_bytes for phase in context.timed("read"))
    assert written == read == value(outcome, "written_bytes") == value(outcome, "read_bytes")
    assert 0 <= written - 3 * RANK_BYTES <= 3 * 2048 * 60
    assert sum(context.progress.moved_bytes) == written + read
    assert list_folders(tmp_path) == ()
    assert remains(tmp_path) == []


def test_rates_are_total_bytes_over_total_time(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    outcome, _ = run(made(), context)
    for phase, verb in (("write", "written"), ("read", "read")):
        (seconds,) = outcome.details[f"{phase}_seconds_by_rank"]
        total = value(outcome, f"{verb}_bytes")
        assert value(outcome, f"{phase}_bytes_per_s") == pytest.approx(total / sum(seconds))
        each = value(outcome, f"{phase}_seconds_per_checkpoint")
        assert each == pytest.approx(sum(seconds) / 3)
        inside = [span.seconds for span in context.timed(phase)]
        assert all(own <= span for own, span in zip(seconds, inside, strict=True))
        name = {"write": "save", "read": "load"}[phase]
        mean = sum(total / 3 / s for s in seconds) / 3
        assert value(outcome, f"dlio_{name}_mean_of_rates_bytes_per_s") == pytest.approx(mean)
        assert value(outcome, f"{phase}_cpu_seconds_per_byte") > 0
    headline = [metric.name for metric in outcome.metrics if metric.headline]
    assert headline == [metric.name for metric in outcome.metrics[:4]]
    assert headline[:2] == ["write_bytes_per_s", "read_bytes_per_s"]


def account(host: str, *windows_ns: tuple[int, int]) -> Account:
    made = Account(host=host)
    for window_ns in windows_ns:
        made.write.windows_ns.append(window_ns)
        made.write.moved_bytes.append(1000)
    return made


def test_a_checkpoint_takes_from_the_first_start_to_the_last_end() -> None:
    """The rank that leaves the barrier late and the one that ends late are not the same."""
    accounts = [account("a", (0, 10), (100, 150)), account("a", (4, 13), (90, 140))]
    found = Direction("write", accounts)
    assert found.seconds == [13e-9, 60e-9]
    assert found.rate == pytest.approx(4000 / 73e-9)


def test_clocks_of_two_hosts_are_not_subtracted() -> None:
    accounts = [account("a", (0, 10)), account("b", (5000, 5020)), account("b", (5004, 5021))]
    assert Direction("write", accounts).seconds == [21e-9]
    job = plan_job(settings(), Context(targets=(), communicator=ThreadCommunicator.world(3)[0]))
    for one in accounts:
        one.read = one.write
    assert "2 hosts" in details(job, accounts, 0)["seconds_taken"]


def test_ceilings_are_metrics(tmp_path: Path) -> None:
    outcome, _ = run(made(), context_at(tmp_path))
    for name in ("harness_write", "harness_read", "generator"):
        assert value(outcome, f"{name}_ceiling_bytes_per_s") > 0


@pytest.mark.parametrize(
    ("keep", "order"),
    [(1, "wrwrwr"), (2, "wwrrwr"), (3, "wwwrrr"), (9, "wwwrrr")],
)
def test_keep_says_how_many_lie_on_the_target(tmp_path: Path, keep: int, order: str) -> None:
    context = context_at(tmp_path)
    workload = made(keep=keep)
    run(workload, context, verify=False)
    assert "".join(p.name[0] for p in context.phases if p.timed) == order
    assert len(complete_checkpoints(data_folder(context))) == min(keep, 3)
    assert workload.plan(context).peak_bytes == min(keep + 1, 3) * RANK_BYTES


def test_no_two_blocks_of_a_run_are_equal(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    run(made(keep=3), context, verify=False)
    blocks: list[bytes] = []
    for path in data_folder(context).rglob("*.bin"):
        content = path.read_bytes()
        blocks += [content[start : start + 4096] for start in range(0, len(content), 4096)]
    assert len(blocks) == 3 * -(-RANK_BYTES // 4096)
    assert len(set(blocks)) == len(blocks)


def test_two_runs_with_one_seed_share_no_block(tmp_path: Path) -> None:
    found: list[set[bytes]] = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        context = context_at(tmp_path / name)
        run(made(checkpoint_count=1), context, verify=False)
        (path,) = data_folder(context).rglob("*.bin")
        content = path.read_bytes()
        found.append({content[start : start + 4096] for start in range(0, len(content), 4096)})
    assert not found[0] & found[1]


def ranks(path: Path, count: int, targets: int = 1) -> list[Context]:
    made_targets = []
    for index in range(targets):
        (path / str(index)).mkdir()
        made_targets.append(directory_target(path / str(index), index=index))
    return [
        Context(targets=tuple(made_targets), communicator=communicator)
        for communicator in ThreadCommunicator.world(count)
    ]


@pytest.mark.parametrize("targets", [1, 2])
def test_ranks_divide_the_checkpoint(tmp_path: Path, targets: int) -> None:
    contexts = ranks(tmp_path, 3, targets)
    results = run_ranks(contexts, lambda context: run(made(), context))
    outcome, checks = results[0]
    assert {check.verdict for check in checks.values()} == {"pass"}
    assert value(outcome, "written_bytes") == 3 * 3 * RANK_BYTES
    for context in contexts:
        assert sum(p.written_bytes for p in context.timed("write")) == 3 * RANK_BYTES
    seconds = outcome.details["write_seconds"]
    assert value(outcome, "write_seconds_per_checkpoint") == pytest.approx(sum(seconds) / 3)
    for rank_seconds in outcome.details["write_seconds_by_rank"]:
        assert all(own <= whole for own, whole in zip(rank_seconds, seconds, strict=True))
    assert any("has 8 ranks; the first 3 of them ran" in remark for remark in outcome.remarks)
    assert all(remains(tmp_path / str(index)) == [] for index in range(targets))


def test_ranks_commit_one_checkpoint_per_target(tmp_path: Path) -> None:
    contexts = ranks(tmp_path, 3, 2)
    run_ranks(contexts, lambda context: run(made(), context, verify=False))
    names = []
    for target in (0, 1):
        (folder,) = complete_checkpoints(data_folder(contexts[0], target))
        names.append(sorted(path.name for path in folder.iterdir()))
    assert names == [
        ["manifest.json", "rank-00000.bin", "rank-00002.bin"],
        ["manifest.json", "rank-00001.bin"],
    ]


def test_more_ranks_than_the_model_has_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has 8 ranks, got 9"):
        made().plan(ranks(tmp_path, 9)[0])


def test_more_targets_than_ranks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="2 targets need as many ranks, got 1"):
        made().plan(ranks(tmp_path, 1, 2)[0])


def test_a_slice_keeps_tensor_sizes_and_says_how_much(tmp_path: Path) -> None:
    workload = made(shrink_bytes=RANK_BYTES, slice_bytes=200_000)
    outcome, checks = run(workload, context_at(tmp_path))
    assert checks["checkpoint_bytes_on_target"].verdict == "pass"
    size = outcome.details["checkpoint_bytes"]
    assert 0 < size <= 200_000
    assert any(f"sliced: {size} of {RANK_BYTES} bytes" in remark for remark in outcome.remarks)


def test_quick_slices_and_full_writes_all(tmp_path: Path) -> None:
    quick = Checkpoint(Config(slice_bytes=1_110_000_000), DIRECT, Accelerator())
    plan = quick.plan(context_at(tmp_path, scale="quick"))
    assert plan.peak_bytes <= 2.21e9
    assert plan.run_bytes == plan.peak_bytes * 5
    whole = Checkpoint(Config(), DIRECT, Accelerator())
    contexts = ranks(tmp_path, 8)
    for context in contexts:
        context.scale = "full"
    assert whole.plan(contexts[0]).run_bytes == 10 * 415_000_000_000


def test_demo_alone_may_shrink_and_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must be null at scale=quick"):
        made().plan(context_at(tmp_path, scale="quick"))
    outcome, _ = run(made(), context_at(tmp_path))
    assert any("shrunken for a demonstration" in remark for remark in outcome.remarks)


def test_the_preset_says_that_no_real_stage_is_like_it(tmp_path: Path) -> None:
    outcome, _ = run(made(), context_at(tmp_path))
    assert any("unpublished" in remark and "355.1 GB" in remark for remark in outcome.remarks)


@pytest.mark.parametrize(
    ("model", "said", "gib"),
    [
        ("8b", "105 is published in GB, is in fact GiB", 104.705),
        ("70b", "912 is published in GB", 911.212),
        ("405b", "5.29 TB is published in GB", 5292.249),
        ("1t", "18 TB is wrong", 15426.589),
    ],
)
def test_published_labels_stand_beside_the_sizes(
    tmp_path: Path, model: str, said: str, gib: float
) -> None:
    outcome, _ = run(made(model=model, checkpoint_count=1), context_at(tmp_path))
    assert any(said in remark for remark in outcome.remarks)
    assert outcome.details["model_gib"] == gib


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"model": "7b"}, "workload.model must be one of"),
        ({"checkpoint_count": 0}, "workload.checkpoint_count must be 1 or more, got 0"),
        ({"keep": 0}, "workload.keep must be 1 or more"),
        ({"slice_bytes": 10}, "workload.slice_bytes must be at least"),
        ({"shrink_bytes": 7}, "can't share 7 bytes"),
    ],
)
def test_settings_out_of_range_are_named(
    tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        made(**changed).plan(context_at(tmp_path))


def test_a_loader_without_checkpoints_is_refused() -> None:
    with pytest.raises(ConfigError, match="writes no checkpoints"):
        made(object())


def test_steps_out_of_order_are_refused(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    with pytest.raises(RuntimeError, match="plan is called"):
        made().prepare(context)
    workload = made()
    workload.plan(context)
    with pytest.raises(RuntimeError, match="prepare is called"):
        workload.run(context)


def test_without_fsync_the_record_warns(tmp_path: Path) -> None:
    _, checks = run(made(fsync=False), context_at(tmp_path))
    assert checks["checkpoint_durable"].verdict == "warn"


def test_verify_before_run_gives_the_space_back(tmp_path: Path) -> None:
    workload = made()
    context = context_at(tmp_path)
    workload.plan(context)
    workload.prepare(context)
    assert workload.verify(context) == ()
    assert remains(tmp_path) == []


def test_another_run_on_the_same_target_is_refused(tmp_path: Path) -> None:
    first, second = made(), made()
    for workload in (first, second):
        workload.plan(context_at(tmp_path))
    first.prepare(context_at(tmp_path))
    with pytest.raises(DataError, match="in use by another run"):
        second.prepare(context_at(tmp_path))
    first.verify(context_at(tmp_path))
    second.prepare(context_at(tmp_path))
    second.verify(context_at(tmp_path))


def test_bytes_that_changed_on_the_target_fail_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wattload.loaders.coldcache import evict

    def tamper(paths: list[Path]) -> None:
        with paths[0].open("r+b") as file:
            file.seek(70_000)
            file.write(b"changed")
        evict(paths)

    monkeypatch.setattr("wattload.workloads.checkpoint.cycle.evict", tamper)
    _, checks = run(made(), context_at(tmp_path))
    assert checks["checkpoint_read_back"].verdict == "fail"
    assert checks["checkpoint_read_back"].figures["bad_files"] == 3
    assert "rank-00000.bin" in checks["checkpoint_read_back"].sentence
    assert checks["checkpoint_bytes_on_target"].verdict == "pass"


def test_a_checkpoint_of_another_time_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drive or cache that gave back the last checkpoint's blocks is found by their stamps."""
    from wattload.loaders.coldcache import evict

    kept: list[bytes] = []

    def stale(paths: list[Path]) -> None:
        kept.append(paths[0].read_bytes())
        paths[0].write_bytes(kept[0])
        evict(paths)

    monkeypatch.setattr("wattload.workloads.checkpoint.cycle.evict", stale)
    _, checks = run(made(checkpoint_count=2), context_at(tmp_path))
    assert checks["checkpoint_read_back"].figures["bad_blocks"] == -(-RANK_BYTES // 4096)


def test_file_sizes_off_the_plan_fail_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wattload.workloads.checkpoint.storage import Storage

    real_adopt = Storage.adopt
    monkeypatch.setattr(
        Storage, "adopt", lambda self, number, names: real_adopt(self, number, names) - 4096
    )
    _, checks = run(made(), context_at(tmp_path))
    assert checks["checkpoint_bytes_on_target"].verdict == "fail"


def forged(text: str) -> str:
    """Return the text of a manifest of the same checkpoint of another run."""
    body = json.loads(text)["body"] | {"nonce": "1"}
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return json.dumps({"sha256": digest, "body": body})


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: path.unlink(), "is no complete checkpoint"),
        (lambda path: os.truncate(path, 100), "is no complete checkpoint"),
        (lambda path: path.write_text(forged(path.read_text())), "which wrote another"),
        (lambda path: path.parent.rename(f"{path.parent}.partial"), "is no complete checkpoint"),
    ],
    ids=["missing", "torn", "foreign", "partial"],
)
def test_a_read_takes_only_what_the_manifest_on_the_target_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], object], said: str
) -> None:
    monkeypatch.setattr(storage_module, "evict", lambda paths: damage(paths[0]))
    workload, context = made(), context_at(tmp_path)
    workload.plan(context)
    workload.prepare(context)
    with pytest.raises(DataError, match=said):
        workload.run(context)
    assert context.timed("read") == []


def test_a_checkpoint_that_is_not_whole_at_the_end_fails_the_run(tmp_path: Path) -> None:
    workload, context = made(keep=2), context_at(tmp_path)
    run(workload, context, verify=False)
    (data_folder(context) / "checkpoint-000002" / "manifest.json").unlink()
    checks = {check.name: check for check in workload.verify(context)}
    assert checks["checkpoint_committed"].verdict == "fail"
    assert "[['checkpoint-000001']]" in checks["checkpoint_committed"].sentence


def test_a_warm_cache_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def warm(paths: list[Path]) -> None:
        for path in paths:
            path.read_bytes()

    monkeypatch.setattr("wattload.workloads.checkpoint.cycle.evict", warm)
    _, checks = run(made(), context_at(tmp_path))
    assert checks["cold_cache"].verdict == "fail"
    assert checks["cold_cache"].figures["times_checked"] == 3


@pytest.fixture
def tiny_file_system(tmp_path: Path) -> Iterator[Path]:
    with tinyfs.tiny_file_system(tmp_path) as mount_point:
        yield mount_point


@pytest.mark.parametrize("loader", [DIRECT, torch.Config(bucket_bytes=1 << 20)])
def test_a_target_that_fills_up_is_one_sentence_and_no_checkpoint(
    tiny_file_system: Path, loader: object
) -> None:
    context = context_at(tiny_file_system)
    workload = made(loader, shrink_bytes=20_000_000)
    workload.plan(context)
    workload.prepare(context)
    with pytest.raises(TargetError, match=r"writing checkpoint 1 failed: .*No space left"):
        workload.run(context)
    assert list_folders(tiny_file_system) == ()
    assert remains(tiny_file_system) == []


def interrupt(context: Context, after_bytes: int) -> None:
    """Have the first count beyond ``after_bytes`` interrupt the run, on the thread that counts."""
    advance = context.progress.advance

    def told(count: int) -> None:
        advance(count)
        if sum(context.progress.moved_bytes) > after_bytes:
            raise KeyboardInterrupt

    context.progress.advance = told  # type: ignore[method-assign, assignment]


@pytest.mark.parametrize("after_bytes", [1, RANK_BYTES + 1, 5 * RANK_BYTES])
def test_an_interrupted_run_leaves_nothing_on_the_target(tmp_path: Path, after_bytes: int) -> None:
    workload, context = made(keep=2), context_at(tmp_path)
    interrupt(context, after_bytes)
    workload.plan(context)
    workload.prepare(context)
    with pytest.raises(KeyboardInterrupt):
        workload.run(context)
    assert list_folders(tmp_path) == ()
    assert remains(tmp_path) == []


def test_a_rank_that_fails_empties_the_target_and_leaves_the_lists(tmp_path: Path) -> None:
    """Another rank may still make a file that it has announced, so it must stay listed."""
    contexts = ranks(tmp_path, 2)
    interrupt(contexts[1], 2 * RANK_BYTES + 1)
    with pytest.raises((KeyboardInterrupt, threading.BrokenBarrierError)):
        run_ranks(contexts, lambda context: run(made(), context))
    folder = data_folder(contexts[0])
    assert [path for path in folder.rglob("*") if path.suffix in (".bin", ".json")] == [
        folder / ".wattload-marker.json"
    ]
    list_folders(tmp_path / "0")[0].remove()
    assert remains(tmp_path / "0") == []


@pytest.mark.parametrize("error", [DataError("a file is torn"), KeyboardInterrupt()])
def test_what_could_not_be_removed_is_said_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(*_: object) -> None:
        raise error

    def refuse(_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    workload, context = made(), context_at(tmp_path)
    workload.plan(context)
    workload.prepare(context)
    monkeypatch.setattr("wattload.workloads.checkpoint.cycle.Cycle.run", fail)
    monkeypatch.setattr("wattload.workloads.checkpoint.storage.Storage.abandon", refuse)
    with pytest.raises((TargetError, KeyboardInterrupt)) as caught:
        workload.run(context)
    said = [str(caught.value), *getattr(caught.value, "__notes__", [])]
    assert any("Read-only" in text and "`wattload clean` removes them" in text for text in said)


def unaligned(path: Path, memory_bytes: int, offset_bytes: int) -> Context:
    needs = DirectIo(
        memory_align_bytes=memory_bytes, offset_align_bytes=offset_bytes, found_by="test"
    )
    return Context(targets=(dataclasses.replace(directory_target(path), direct_io=needs),))


@pytest.mark.parametrize(
    ("memory_bytes", "offset_bytes", "said"),
    [(4096, 16384, "offsets at multiples of 16384"), (8192, 512, "memory at multiples of 8192")],
)
def test_a_drive_of_larger_blocks_is_refused_before_anything_is_written(
    tmp_path: Path, memory_bytes: int, offset_bytes: int, said: str
) -> None:
    context = unaligned(tmp_path, memory_bytes, offset_bytes)
    with pytest.raises(TargetError, match=said):
        made().plan(context)
    made(torch.Config(bucket_bytes=1 << 20)).plan(context)
    assert list(tmp_path.iterdir()) == []


def test_finer_alignments_are_served(tmp_path: Path) -> None:
    made().plan(unaligned(tmp_path, 4, 512))
    none = dataclasses.replace(directory_target(tmp_path), direct_io=None, direct_io_missing="no")
    assert made().plan(Context(targets=(none,))).needs_direct_io


@pytest.mark.parametrize(
    ("loader", "said"),
    [
        (direct.Config(queue_depth=0), "loader.queue_depth must be 1 to"),
        (direct.Config(block_bytes=5000), "loader.block_bytes must be a multiple of 4096"),
        (torch.Config(bucket_bytes=0), "loader.bucket_bytes must be 1 or more"),
    ],
)
def test_a_loader_out_of_range_is_refused_by_the_plan(
    tmp_path: Path, loader: object, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        made(loader).plan(context_at(tmp_path))


def test_a_seed_below_zero_is_refused_by_the_plan(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="seed must be 0 or more, got -1"):
        made().plan(context_at(tmp_path, seed=-1))


def test_missing_torch_is_found_by_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match="loader=torch needs PyTorch"):
        made(torch.Config()).plan(context_at(tmp_path))


def test_the_server_preset_claims_no_pipeline(tmp_path: Path) -> None:
    for model, expected in (("405b_server", None), ("405b", 32)):
        job = plan_job(settings(model=model), context_at(tmp_path))
        found = details(job, [account("a")], 0)
        assert found["pipeline_parallel"] == expected
        assert found["tensor_parallel"] == 8
    server = plan_job(settings(), context_at(tmp_path))
    assert "8 of 126 layers" in details(server, [account("a")], 0)["sharding"]


def test_a_shortened_shard_has_exactly_the_bytes() -> None:
    shard = shard_of("405b_server", 0)
    cut = shortened(shard, 600_000_000)
    assert cut.size_bytes == 600_000_000
    assert cut.tensors[0] == shard.tensors[0]
    assert shortened(cut, 1 << 40) == cut


KILLED = """
import sys, time
from pathlib import Path
from tests.context import context_at
from wattload.core.accelerator import Accelerator
from wattload.loaders import direct, torch
from wattload.workloads.checkpoint import Checkpoint, Config

loader = {"direct": direct.Config(), "torch": torch.Config(bucket_bytes=8 << 20)}[sys.argv[2]]
context = context_at(Path(sys.argv[1]))
config = Config(checkpoint_count=1000, shrink_bytes=200_000_000)
workload = Checkpoint(config, loader, Accelerator())
workload.plan(context)
workload.prepare(context)
advance = context.progress.advance
moved = 0

def told(count):
    global moved
    moved += count
    advance(count)
    if moved > 40_000_000:  # amid the first 200 MB: stand still until killed
        print(moved, flush=True)
        time.sleep(300)

context.progress.advance = told
workload.run(context)
"""


@pytest.mark.parametrize("loader", ["direct", "torch"])
def test_a_write_killed_midway_is_never_taken_for_a_checkpoint(tmp_path: Path, loader: str) -> None:
    root = Path(__file__).parents[2]
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path), loader],
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root)},
    )
    assert child.stdout is not None
    with child.stdout:
        assert int(child.stdout.readline()) > 40_000_000
        child.send_signal(signal.SIGKILL)
        child.wait()
    (folder,) = list_folders(tmp_path)
    assert complete_checkpoints(folder.path) == []
    partial = folder.path / "checkpoint-000000.partial"
    assert partial.is_dir()
    assert folder.foreign() == ()
    outcome, checks = run(made(), context_at(tmp_path))
    assert checks["checkpoint_read_back"].verdict == "pass"
    assert value(outcome, "written_bytes") == 3 * RANK_BYTES
    assert remains(tmp_path) == []


def test_a_target_that_holds_no_files_is_refused(tmp_path: Path) -> None:
    target = dataclasses.replace(directory_target(tmp_path), kind=TargetKind.NULL, path=None)
    context = Context(targets=(target,))
    workload = made()
    workload.plan(context)
    with pytest.raises(TargetError, match="a null target holds no checkpoints"):
        workload.prepare(context)


def test_a_whole_model_run_by_all_its_ranks_needs_no_remark_on_ranks(tmp_path: Path) -> None:
    workload = made()
    job = plan_job(workload.config, ranks(tmp_path, 8)[0])
    assert not any("of them ran" in remark for remark in remarks(job))


def test_a_slice_that_holds_all_is_no_slice(tmp_path: Path) -> None:
    job = plan_job(settings(slice_bytes=RANK_BYTES), context_at(tmp_path))
    assert not any("sliced" in remark for remark in remarks(job))
