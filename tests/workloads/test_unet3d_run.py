from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.allocation import punch
from tests.context import Context, ThreadCommunicator, context_at, directory_target, run_ranks
from wattload.compose import compose
from wattload.core.accelerator import Accelerator
from wattload.core.errors import ConfigError, DataError, MissingExtraError, TargetError
from wattload.core.io import Batch
from wattload.core.record.check import Check, Verdict
from wattload.core.record.metric import Metric
from wattload.core.target import DirectIo
from wattload.core.workload import Outcome, RunContext
from wattload.life.build import build_workload
from wattload.loaders import readahead, torchworker
from wattload.loaders.direct import Config as DirectConfig
from wattload.loaders.samples import SampleLoaderConfig, SampleSet
from wattload.loaders.torch import Config as TorchConfig
from wattload.workloads.unet3d import Config, Sizes, Unet3d, ceiling
from wattload.workloads.unet3d.describe import remarks
from wattload.workloads.unet3d.job import data_set_rule, hosts_memory_bytes, plan_job

FILES, BATCH, EPOCHS = 17, 2, 2


@pytest.fixture(autouse=True)
def short_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceiling, "SECONDS", 0.05)
    monkeypatch.setattr(ceiling, "BATCHES_LEAST", 2)


def direct() -> DirectConfig:
    return DirectConfig(block_bytes=64 << 10, queue_depth=3, workers=2, prefetch_bytes=4 << 20)


def torch() -> TorchConfig:
    return TorchConfig(workers=1, start_method="fork")


def workload(
    loader: object | None = None, *, step_s: float = 0.002, count: int = 1, **changes: object
) -> Unet3d:
    settings: dict[str, object] = {
        "record_divisor": 640,
        "file_count": FILES,
        "batch_samples": BATCH,
        "epochs": EPOCHS,
        **changes,
    }
    accelerator = Accelerator(name="test", count=count, step_s={"unet3d": step_s})
    return Unet3d(Config(**settings), loader or direct(), accelerator)  # type: ignore[arg-type]


def live(subject: Unet3d, context: RunContext) -> tuple[Outcome, list[Check]]:
    subject.plan(context)
    subject.prepare(context)
    return subject.run(context), list(subject.verify(context))


def named(outcome: Outcome) -> dict[str, Metric]:
    return {metric.name: metric for metric in outcome.metrics}


def verdict(checks: list[Check], name: str) -> str:
    (check,) = (check for check in checks if check.name == name)
    return check.verdict


@pytest.mark.parametrize("loader", [direct(), torch()], ids=["direct", "torch"])
@pytest.mark.parametrize("record_format", ["npz", "npy"])
def test_a_run_reads_every_batch_of_every_epoch(
    tmp_path: Path, loader: SampleLoaderConfig, record_format: str
) -> None:
    context = context_at(tmp_path)
    subject = workload(loader, record_format=record_format)
    outcome, checks = live(subject, context)
    spans = context.timed("read")
    assert len(spans) == EPOCHS
    steps = FILES // BATCH
    metrics, details = named(outcome), outcome.details
    assert details["steps_per_epoch"] == steps
    active_s = sum(details["epoch_s"])
    assert metrics["read_bytes_per_s"].value == pytest.approx(
        sum(span.read_bytes for span in spans) / active_s
    )
    assert metrics["samples_per_s"].value == pytest.approx(EPOCHS * steps * BATCH / active_s)
    assert metrics["harness_ceiling_bytes_per_s"].value
    assert outcome.paths[0].path_requested == (
        "o_direct" if isinstance(loader, DirectConfig) else "page_cache"
    )
    assert verdict(checks, "delivered_bytes") == "pass"
    assert verdict(list(outcome.checks), "cold_cache") == "pass"
    assert outcome.checks[0].figures["times_checked"] == EPOCHS
    json.dumps(dict(details), allow_nan=False)


def test_ceiling_and_eviction_are_in_no_timed_phase(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    live(workload(), context)
    assert [(phase.name, phase.timed) for phase in context.phases] == [
        ("generate", False),
        ("read", True),
        ("read", True),
        ("harness_ceiling", False),
    ]
    assert context.phases[-1].read_bytes == 0


def test_progress_ends_at_all_bytes(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    live(workload(), context)
    (_, generated), (task, expected) = context.progress.tasks
    assert task == "reading"
    assert context.progress.moved_bytes == [generated, expected]
    assert expected == sum(span.read_bytes for span in context.timed("read"))


@pytest.mark.parametrize("loader", [direct(), torch()], ids=["direct", "torch"])
def test_ranks_read_disjoint_shards_and_account_together(
    tmp_path: Path, loader: SampleLoaderConfig
) -> None:
    targets = (directory_target(tmp_path),)
    contexts = [Context(targets=targets, communicator=c) for c in ThreadCommunicator.world(2)]
    results = run_ranks(contexts, lambda context: live(workload(loader), context))
    (first, checks), (second, _) = results
    steps = FILES // (2 * BATCH)
    assert first.details["steps_per_epoch"] == steps
    assert first.details["accelerators"] == 2
    moved = sum(span.read_bytes for context in contexts for span in context.timed("read"))
    active_s = sum(first.details["epoch_s"])
    assert named(first)["read_bytes_per_s"].value == pytest.approx(moved / active_s)
    assert named(first)["au_dlio"] == named(second)["au_dlio"]
    assert "Each of the 2 ranks emulates one accelerator." in first.remarks
    assert first.details["hashed_samples"] == 1
    assert 1 <= int(checks[0].figures["hashed_samples"] or 0) <= EPOCHS
    assert verdict(checks, "delivered_bytes") == "pass"


def test_a_rank_may_feed_several_accelerators(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    outcome, checks = live(workload(count=4), context)
    assert outcome.details["accelerators_per_rank"] == 4
    assert outcome.details["steps_per_epoch"] == 2
    assert named(outcome)["samples_per_s"].value == pytest.approx(
        EPOCHS * 2 * 4 * BATCH / sum(outcome.details["epoch_s"])
    )
    assert verdict(checks, "delivered_bytes") == "pass"


@pytest.mark.parametrize("loader", [direct(), torch()], ids=["direct", "torch"])
def test_bytes_that_were_altered_in_place_fail_the_run(
    tmp_path: Path, loader: SampleLoaderConfig
) -> None:
    context = context_at(tmp_path)
    subject = workload(loader, record_format="npy")
    subject.plan(context)
    facts = subject.prepare(context)
    for path in facts.folder.glob("img*"):
        content = bytearray(path.read_bytes())
        content[-1] ^= 1  # beyond what is copied into a batch
        path.write_bytes(content)
    subject.run(context)
    (check,) = subject.verify(context)
    assert check.verdict == "fail"
    assert check.figures["altered_samples"] == check.figures["hashed_samples"] != 0
    assert "with other bytes than were written" in check.sentence


def no_copy(payload: object, row: object) -> None:
    """Stand in for the copy into the batch: the row stays as it was."""


@pytest.mark.parametrize(
    ("loader", "module"),
    [(direct(), readahead), (torch(), torchworker)],
    ids=["direct", "torch"],
)
def test_batches_that_hold_other_bytes_than_were_read_fail_the_run(
    tmp_path: Path,
    loader: SampleLoaderConfig,
    module: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = context_at(tmp_path)
    subject = workload(loader)
    subject.plan(context)
    subject.prepare(context)
    monkeypatch.setattr(module, "copy_resized", no_copy)
    subject.run(context)
    (check,) = subject.verify(context)
    assert check.verdict == "fail"
    assert check.figures["altered_samples"] == 0
    assert check.figures["altered_rows"] == check.figures["expected_samples"] != 0
    assert "rows in the batches hold other bytes" in check.sentence


def test_a_sample_that_was_not_hashed_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One digest of several is lost: what came is right, and too little."""
    context = context_at(tmp_path)
    subject = workload(file_count=40)
    lost: list[int] = []
    finished = readahead._Assembly.finished

    def without_one(self: readahead._Assembly) -> Batch:
        if self.digests and not lost:
            lost.append(self.digests.popitem()[0])
        return finished(self)

    monkeypatch.setattr(readahead._Assembly, "finished", without_one)
    _, (check,) = live(subject, context)
    assert check.verdict == "fail"
    expected = check.figures["expected_samples"]
    assert isinstance(expected, int)
    assert expected > 1
    assert check.figures["hashed_samples"] == expected - 1
    assert "nothing proves" in check.sentence


def test_what_was_generated_is_counted_in_an_untimed_phase(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    subject = workload()
    plan = subject.plan(context)
    subject.prepare(context)
    (phase,) = context.phases
    assert (phase.name, phase.timed) == ("generate", False)
    blocks = FILES * 2 * 4096  # the last block filled up, and the first written again
    assert plan.prepare_bytes < phase.written_bytes <= plan.prepare_bytes + blocks
    subject.prepare(context)
    assert len(context.phases) == 1


def test_hollow_files_are_made_again_and_the_page_says_so(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    subject = workload()
    subject.plan(context)
    facts = subject.prepare(context)
    assert facts is not None
    for path in sorted(facts.folder.glob("img*"))[:3]:
        punch(path)
    outcome, checks = live(workload(), context)
    assert (
        "3 of the 17 data files that were there had holes or blocks that were never written, which "
        "read as zeros without the drive; they were made again before the run."
    ) in outcome.remarks
    assert verdict(checks, "delivered_bytes") == "pass"


def test_a_file_that_was_cut_after_it_was_prepared_ends_the_run(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    subject = workload()
    subject.plan(context)
    facts = subject.prepare(context)
    for path in facts.folder.glob("img*"):
        os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(DataError, match="truncated"):
        subject.run(context)


@pytest.fixture
def memory_folder() -> Iterator[Path]:
    """A folder on tmpfs, whose pages nothing puts out of memory."""
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder)


def test_a_cache_that_does_not_get_cold_fails_the_run(memory_folder: Path) -> None:
    outcome, _ = live(workload(torch()), context_at(memory_folder))
    assert verdict(list(outcome.checks), "cold_cache") == "fail"


def test_without_a_run_there_is_nothing_to_verify(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    subject = workload()
    subject.plan(context)
    subject.prepare(context)
    assert subject.verify(context) == ()


def test_the_plan_knows_what_is_written_and_makes_nothing(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    subject = workload()
    plan = subject.plan(context)
    assert not any(tmp_path.iterdir())
    assert plan.prepare_bytes == plan.data_bytes == plan.peak_bytes
    assert plan.run_bytes == 0
    assert plan.needs_direct_io
    facts = subject.prepare(context)
    assert facts.data_bytes == plan.data_bytes
    again = workload().plan(context)
    assert again.prepare_bytes == 0
    assert again.memory_bytes_per_rank < plan.memory_bytes_per_rank
    assert not workload(torch()).plan(context).needs_direct_io


def test_steps_out_of_order_are_a_bug_of_the_caller(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    with pytest.raises(RuntimeError, match="plan"):
        workload().prepare(context)
    subject = workload()
    subject.plan(context)
    with pytest.raises(RuntimeError, match="prepare"):
        subject.run(context)


def test_a_loader_without_samples_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="loader=direct or loader=torch"):
        workload(Accelerator())


@pytest.mark.parametrize("step_s", [{}, {"unet3d": -1.0}])
def test_an_accelerator_needs_a_step_time(tmp_path: Path, step_s: dict[str, float]) -> None:
    accelerator = Accelerator(name="other", step_s=step_s)
    subject = Unet3d(Config(record_divisor=640, file_count=FILES), direct(), accelerator)
    with pytest.raises(ConfigError, match=r"accelerator\.step_s\.unet3d .* for 'other'"):
        subject.plan(context_at(tmp_path))


@pytest.mark.parametrize(
    ("loader", "changes", "message"),
    [
        (DirectConfig(queue_depth=0), {}, "loader.queue_depth must be 1 to 1024, got 0"),
        (TorchConfig(start_method="foo"), {}, "loader.start_method must be one of .* got 'foo'"),
        (direct(), {"step_s": float("nan")}, "step_s.unet3d must be 0 or more seconds, got nan"),
        (direct(), {"step_s": float("inf")}, "step_s.unet3d must be 0 or more seconds, got inf"),
        (direct(), {"step_s": -0.1}, "step_s.unet3d must be 0 or more seconds, got -0.1"),
        (direct(), {"data_seed": -1}, "workload.data_seed must be 0 or more, got -1"),
    ],
)
def test_settings_that_would_fail_later_are_refused_before_a_byte_is_written(
    tmp_path: Path, loader: object, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        workload(loader, **changes).plan(context_at(tmp_path))
    assert not any(tmp_path.iterdir())


def test_a_negative_seed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="seed must be 0 or more, got -1"):
        workload().plan(context_at(tmp_path, seed=-1))


def test_a_host_or_target_that_the_loader_cant_use_is_refused_by_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = DirectIo(memory_align_bytes=4, offset_align_bytes=16384, found_by="test")
    target = replace(directory_target(tmp_path), direct_io=large)
    with pytest.raises(TargetError, match="multiples of 16384 bytes"):
        workload().plan(Context(targets=(target,)))
    workload(torch()).plan(Context(targets=(target,)))
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match="needs PyTorch"):
        workload(torch()).plan(context_at(tmp_path))


def departures(name: str, step_s: float, **settings: object) -> list[str]:
    config = Config(file_count=28, **settings)  # type: ignore[arg-type]
    accelerator = Accelerator(name=name, step_s={"unet3d": step_s})
    subject = plan_job(config, accelerator, context_at(Path("/tmp"), scale="quick"))
    samples = SampleSet(
        paths=(), file_bytes=(), record_format="npz", batch_samples=7, resize_bytes=1
    )
    cold = Check(name="cold_cache", verdict="pass", sentence="It was cold.")
    found = remarks(subject, samples, direct(), cold=cold, hollow_count=0)
    return [remark for remark in found if "not the published unet3d job" in remark]


@pytest.mark.parametrize(("name", "step_s"), [("a100", 0.636), ("h100", 0.323), ("b200", 0.162)])
def test_the_published_job_needs_no_remark(name: str, step_s: float) -> None:
    assert departures(name, step_s) == []


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"record_mean_bytes": 140_000_000}, "workload.record_mean_bytes is 140000000 instead of"),
        ({"record_stdev_bytes": 10_000_000}, "workload.record_stdev_bytes is 10000000 instead of"),
        ({"resize_bytes": 4096}, "workload.resize_bytes is 4096 instead of 2097152"),
        ({"batch_samples": 4}, "workload.batch_samples is 4 instead of 7"),
    ],
)
def test_other_records_or_batches_are_told(settings: dict[str, object], told: str) -> None:
    (remark,) = departures("h100", 0.323, **settings)
    assert told in remark


@pytest.mark.parametrize(
    ("name", "step_s", "told"),
    [
        ("h100", 0.1, "accelerator.step_s.unet3d is 0.1 s instead of 0.323 s for 'h100'"),
        ("unpaced", 0.0, "accelerator 'unpaced' with a step of 0.0 s stands for none"),
    ],
)
def test_other_step_times_are_told(name: str, step_s: float, told: str) -> None:
    (remark,) = departures(name, step_s)
    assert told in remark


def test_fewer_files_than_ranks_are_refused(tmp_path: Path) -> None:
    targets = (directory_target(tmp_path),)
    contexts = [Context(targets=targets, communicator=c) for c in ThreadCommunicator.world(3)]
    with pytest.raises(ConfigError, match="file_count is 2, fewer than the 3 ranks"):
        run_ranks(contexts, workload(file_count=2, sizes=Sizes.dlio).plan)


def test_memory_that_holds_no_file_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    loader = direct()
    loader.prefetch_bytes = 4096
    with pytest.raises(ConfigError, match="prefetch_bytes"):
        workload(loader).plan(context_at(tmp_path))


def test_remarks_say_what_makes_the_figures_special(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    outcome, _ = live(workload(torch(), sizes=Sizes.dlio), context)
    text = " ".join(outcome.remarks)
    assert "Records are shrunk to 1/640 of MLPerf's" in text
    assert "17 files were read in an epoch where MLPerf Storage asks for " in text
    assert "as DLIO draws them" in text
    assert "np.load computes the CRC-32" in text
    assert outcome.details["crc_checked"]
    assert not outcome.details["crc_asked"]


def test_a_crc_that_was_asked_for_is_no_remark(tmp_path: Path) -> None:
    outcome, _ = live(workload(check_crc=True), context_at(tmp_path))
    assert outcome.details["crc_checked"]
    assert not any("CRC" in remark for remark in outcome.remarks)


def test_unpaced_runs_have_no_utilisation(tmp_path: Path) -> None:
    outcome, _ = live(workload(step_s=0.0), context_at(tmp_path))
    assert named(outcome)["au_nominal"].value is None
    assert named(outcome)["read_bytes_per_s"].value


@pytest.mark.parametrize(
    ("scale", "files", "divisor"), [("demo", 28, 64), ("quick", 28, 1), ("full", None, 1)]
)
def test_scales_change_counts_and_demo_alone_shrinks(
    scale: str, files: int | None, divisor: int
) -> None:
    config, _ = compose([f"scale={scale}", "target.path=/tmp", "power=none", "loader=torch"])
    assert isinstance(config.workload, Config)
    assert config.workload.file_count == files
    assert config.workload.record_divisor == divisor
    assert config.workload.batch_samples == 7
    assert isinstance(build_workload(config), Unet3d)
    config.workload.check(scale)


def test_a_count_on_the_command_line_wins_over_the_scales() -> None:
    config, _ = compose(["workload.file_count=99", "target.path=/tmp", "power=none"])
    assert config.workload.file_count == 99


def full_scale(path: Path, *overrides: str) -> Unet3d:
    config, _ = compose(["scale=full", f"target.path={path}", "power=none", *overrides])
    subject = build_workload(config)
    assert isinstance(subject, Unet3d)
    return subject


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("workload.file_count=28", ["got 28;", "workload.file_count=", "500 steps", "scale=quick"]),
        ("workload.steps_per_epoch=7", ["got 49;", "workload.steps_per_epoch=", "of host memory"]),
    ],
)
def test_a_small_data_set_at_full_scale_is_refused(
    tmp_path: Path, override: str, words: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        full_scale(tmp_path, override).plan(context_at(tmp_path, scale="full"))
    for word in words:
        assert word in str(caught.value)
    assert not any(tmp_path.iterdir())


def test_the_rules_steps_of_a_larger_data_set_are_enough_at_full_scale(tmp_path: Path) -> None:
    context = context_at(tmp_path, scale="full")
    config = compose(["scale=full", f"target.path={tmp_path}", "power=none"])[0].workload
    rule = data_set_rule(config, 1, hosts_memory_bytes(context.communicator))
    larger = (f"workload.file_count={rule.files + 999}", f"workload.steps_per_epoch={rule.steps}")
    assert full_scale(tmp_path, *larger).plan(context).data_bytes


@pytest.mark.parametrize("verdict", ["pass", "fail", "not_checked"])
def test_the_page_says_what_stands_in_for_the_data_set_rule(verdict: Verdict) -> None:
    cold = Check(name="cold_cache", verdict=verdict, sentence="It was looked at.", mandatory=True)
    accelerator = Accelerator(name="h100", step_s={"unet3d": 0.323})
    job = plan_job(Config(file_count=28), accelerator, context_at(Path("/tmp"), scale="quick"))
    samples = SampleSet(
        paths=(), file_bytes=(), record_format="npz", batch_samples=7, resize_bytes=1
    )
    (said,) = remarks(job, samples, direct(), cold=cold, hollow_count=0)
    assert f"28 files were read in an epoch where MLPerf Storage asks for {job.rule.files}" in said
    proved = "in the rule's stead the page cache was proved cold before every epoch" in said
    assert proved == (verdict == "pass")
    assert ("nothing stands in for the rule" in said) != proved


def test_the_rule_and_its_figures_are_in_the_record(tmp_path: Path) -> None:
    outcome, _ = live(workload(steps_per_epoch=3), context_at(tmp_path))
    rule = outcome.details["data_set_rule"]
    assert rule["files"] == max(rule["files_by_memory"], rule["files_by_steps"])
    assert (rule["epoch_files"], rule["holds"]) == (3 * BATCH, False)
    assert outcome.details["steps_per_epoch"] == 3


def test_a_bound_of_no_steps_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="steps_per_epoch must be 1 or more, got 0"):
        workload(steps_per_epoch=0).plan(context_at(tmp_path))


def test_full_scale_follows_mlperfs_rule(tmp_path: Path) -> None:
    config, _ = compose(["scale=full", f"target.path={tmp_path}", "power=none"])
    plan = build_workload(config).plan(context_at(tmp_path, scale="full"))
    assert plan.data_bytes >= 3500 * 146_000_000
    assert plan.maximum_ranks is not None
    assert plan.maximum_ranks >= 500
