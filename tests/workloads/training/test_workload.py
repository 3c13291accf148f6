from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.context import (
    Context,
    ThreadCommunicator,
    context_at,
    contexts_on_hosts,
    directory_target,
    run_ranks,
)
from tests.unet3d import (
    BATCH,
    EPOCHS,
    FILES,
    direct,
    facts_of,
    live,
    named,
    torch,
    verdict,
    workload,
)
from wattload.core.record.results import Check
from wattload.core.record.run import DataRecord
from wattload.core.workload import Outcome, WorkloadPlan
from wattload.loaders.direct.config import Config as DirectConfig
from wattload.loaders.samples import SampleLoaderConfig

pytestmark = pytest.mark.usefixtures("short_ceiling")


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
    metrics, facts = named(outcome), facts_of(outcome)
    assert facts.steps_per_epoch == steps
    active_s = sum(facts.epochs_s)
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
    (first, checks), (second, others) = results
    steps = FILES // (2 * BATCH)
    facts = facts_of(first)
    assert (facts.steps_per_epoch, facts.accelerators, len(facts.ranks)) == (steps, 2, 2)
    moved = sum(span.read_bytes for context in contexts for span in context.timed("read"))
    active_s = sum(facts.epochs_s)
    assert named(first)["read_bytes_per_s"].value == pytest.approx(moved / active_s)
    assert named(first)["au_dlio"].value is not None
    assert (second.facts, second.checks, others) == (None, (), [])
    assert "Each of the 2 ranks emulates one accelerator." in first.remarks
    assert 1 <= int(checks[0].figures["hashed_samples"] or 0) <= EPOCHS
    assert verdict(checks, "delivered_bytes") == "pass"


def test_each_host_has_all_files_and_reads_its_ranks_share(tmp_path: Path) -> None:
    folders = [tmp_path / host for host in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    prepared = workload()
    prepared.plan(context_at(folders[0]))
    prepared.prepare(context_at(folders[0]))  # the drive of one host has the data already
    contexts = contexts_on_hosts(folders, 2)

    def divided(context: Context) -> tuple[WorkloadPlan, DataRecord, Outcome, list[Check]]:
        subject = workload()
        plan, data = subject.plan(context), subject.prepare(context)
        return plan, data, subject.run(context), list(subject.verify(context))

    results = run_ranks(contexts, divided)
    _, data, outcome, checks = results[0]
    assert [plan.prepare_bytes > 0 for plan, *_ in results] == [False, False, True, True]
    assert not data.reused
    assert len({plan.data_bytes for plan, *_ in results}) == 1
    assert [len(list(folder.rglob("*.npz"))) for folder in folders] == [FILES, FILES]
    facts = facts_of(outcome)
    assert (facts.accelerators, facts.steps_per_epoch) == (4, FILES // (4 * BATCH))
    assert verdict(checks, "delivered_bytes") == "pass"
    moved = [sum(span.read_bytes for span in context.timed("read")) for context in contexts]
    (cold,) = (check for check in outcome.checks if check.name == "cold_cache")
    assert (cold.verdict, cold.figures["times_checked"]) == ("pass", 2 * EPOCHS)
    assert min(moved) > 0
    of_host = results[0][0].read_bytes
    assert of_host == results[2][0].read_bytes
    assert 2 * of_host == pytest.approx(sum(moved), abs=2)


def test_a_rank_may_feed_several_accelerators(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    outcome, checks = live(workload(count=4), context)
    facts = facts_of(outcome)
    assert (facts.per_rank, facts.steps_per_epoch) == (4, 2)
    assert named(outcome)["samples_per_s"].value == pytest.approx(
        EPOCHS * 2 * 4 * BATCH / sum(facts.epochs_s)
    )
    assert verdict(checks, "delivered_bytes") == "pass"


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


def test_unpaced_runs_have_no_utilisation(tmp_path: Path) -> None:
    outcome, _ = live(workload(step_s=0.0), context_at(tmp_path))
    assert named(outcome)["au_nominal"].value is None
    assert named(outcome)["read_bytes_per_s"].value
