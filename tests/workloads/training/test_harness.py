"""unet3d run by an outside program; here by one in this process that really reads the files."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.context import Context, context_at
from tests.damage import DAMAGES, Damage, flip_in_the_middle
from tests.loaders.dlio.job import needs_dlio
from tests.unet3d import facts_of, named
from tests.workloads.outside import (
    BATCH,
    EPOCHS,
    FILES,
    OutsideConfig,
    check,
    live,
    value,
    workload,
)
from wattload.core.errors import ConfigError, DataError, RunError
from wattload.core.record.results import Check
from wattload.core.workload import Device
from wattload.loaders.data.cold_cache import resident_fraction
from wattload.loaders.dlio import config
from wattload.loaders.samples import Training
from wattload.workloads.training import harness


@pytest.fixture
def context(tmp_path: Path) -> Context:
    target = tmp_path / "target"
    target.mkdir()
    return context_at(target)


def test_epochs_are_timed_phases_with_all_bytes_and_a_cold_cache(context: Context) -> None:
    loader = OutsideConfig()
    outcome = live(workload(loader), context)
    phases = context.timed("read")
    epoch_bytes = sum(loader.trainings[0].samples.file_bytes)
    assert [phase.read_bytes for phase in phases] == [epoch_bytes] * EPOCHS
    assert check(outcome, "cold_cache").verdict == "pass"
    assert check(outcome, "cold_cache").figures["times_checked"] == EPOCHS
    assert value(outcome, "read_bytes_per_s") == pytest.approx(
        EPOCHS * epoch_bytes / sum(phase.seconds for phase in phases), rel=0.2
    )


def test_every_accelerator_gets_the_shard_that_a_rank_of_ours_would(context: Context) -> None:
    loader = OutsideConfig()
    subject = workload(loader, count=2)
    live(subject, context)
    assert subject._job is not None
    for epoch, training in enumerate(loader.trainings[:EPOCHS]):
        assert training.accelerators == 2
        both = subject._job.order(0, context.seed, epoch)
        for accelerator, order in enumerate(training.orders):
            mine = [
                both[start : start + BATCH]
                for start in range(accelerator * BATCH, len(both), 2 * BATCH)
            ]
            assert list(order) == [index for batch in mine for index in batch]


def test_its_own_figures_stand_under_its_own_name(context: Context) -> None:
    outcome = live(workload(OutsideConfig()), context)
    assert value(outcome, "dlio_reported_au")
    assert value(outcome, "dlio_reported_samples_per_s")
    assert value(outcome, "dlio_reported_nominal_bytes_per_s") == 2 * 1024**2
    assert value(outcome, "harness_peak_bytes") == 100 << 20
    assert value(outcome, "hash_cpu_s") is None
    assert value(outcome, "barrier_s") is None
    assert value(outcome, "harness_ceiling_bytes_per_s")
    program = facts_of(outcome).program
    assert program is not None
    assert (program.version, program.command) == ("1.2", ("outside", "--train"))
    assert check(outcome, "harness_summary").verdict == "pass"
    assert check(outcome, "harness_bytes").verdict == "warn"


def test_delivered_bytes_are_never_called_checked(context: Context) -> None:
    delivered = check(live(workload(OutsideConfig()), context), "delivered_bytes")
    assert delivered.verdict == "not_checked"
    assert "does not hand over bytes" in delivered.sentence


def test_files_that_a_program_read_are_verified_afterwards(context: Context) -> None:
    outcome = live(workload(OutsideConfig()), context)
    files = check(outcome, "files_verified")
    assert (files.verdict, files.figures["file_count"]) == ("pass", FILES)
    assert files.figures["verified_bytes"] == files.figures["file_bytes"]
    assert files.sentence.endswith("does not show which bytes the program received.")


def restore_later(path: Path, other: Path) -> None:
    """Change a byte, and undo that as well as the time of the change."""
    status = path.stat()
    flip_in_the_middle(path, other)
    flip_in_the_middle(path, other)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def swap_files(path: Path, other: Path) -> None:
    third = path.with_suffix(".third")
    for source, target in ((path, third), (other, path), (third, other)):
        source.rename(target)


def replace_by_pipe(path: Path, other: Path) -> None:
    path.unlink()
    os.mkfifo(path)


BEFORE = {**DAMAGES, "swapped": swap_files}
MEANWHILE: dict[str, Damage] = {
    "one bit flipped": flip_in_the_middle,
    "changed and restored": restore_later,
    "swapped": swap_files,
    "removed": lambda path, _: path.unlink(),
    "emptied": lambda path, _: os.truncate(path, 0),
    "replaced by a pipe": replace_by_pipe,
}


REFUSED = {
    DAMAGES["hole punched"]: "holes or unwritten blocks",
    DAMAGES["truncated and extended"]: "holes or unwritten blocks",
    swap_files: "was changed: expected|is truncated: expected",
}
"""Damage that ends the run before it is timed, and how it is reported."""


@pytest.mark.parametrize(
    ("moment", "damage"),
    [
        *(pytest.param("before", damage, id=f"before-{name}") for name, damage in BEFORE.items()),
        *(
            pytest.param("during", damage, id=f"during-{name}")
            for name, damage in MEANWHILE.items()
        ),
    ],
)
def test_files_are_verified_after_a_program_that_hands_over_no_bytes(
    context: Context, moment: str, damage: Damage
) -> None:
    loader = OutsideConfig()
    subject = workload(loader)
    subject.plan(context)
    subject.prepare(context)
    if moment == "before":
        damage(*subject._prepared().paths[:2])
    else:

        def change(training: Training) -> None:
            if len(loader.trainings) == EPOCHS:  # an epoch after it would refuse some of it
                damage(*training.samples.paths[:2])

        loader.after = change
    if moment == "before" and damage in REFUSED:
        with pytest.raises(DataError, match=REFUSED[damage]):
            subject.run(context)
        return
    subject.run(context)
    (files,) = subject.verify(context)
    assert (files.name, files.verdict, files.mandatory) == ("files_verified", "fail", True)


def test_unpaced_there_is_no_utilisation(context: Context) -> None:
    outcome = live(workload(OutsideConfig(), step_s=0.0), context)
    assert value(outcome, "dlio_reported_au") is None
    assert value(outcome, "au_nominal") is None
    assert check(outcome, "harness_summary").verdict == "pass"
    assert check(outcome, "harness_step_times").verdict == "pass"


def test_warm_epochs_are_not_called_cold(context: Context) -> None:
    loader = OutsideConfig(cold_epochs=False)
    outcome = live(workload(loader), context)
    assert [training.epochs for training in loader.trainings] == [EPOCHS, 2]
    epoch_bytes = sum(loader.trainings[0].samples.file_bytes)
    assert [phase.read_bytes for phase in context.timed("read")] == [epoch_bytes] * EPOCHS
    assert len(facts_of(outcome).by_epoch) == EPOCHS
    assert any("all epochs in one call" in text for text in outcome.remarks)
    cold = check(outcome, "cold_cache")
    assert cold.verdict == "not_checked"
    # Most of them, not all: a kernel that reclaims idle memory (DAMON) may take a page at once.
    assert re.search(r"After the last epoch it held (100|9\d)\.\d % of the files", cold.sentence)
    assert (resident_fraction(loader.trainings[0].samples.paths) or 0) > 0.5
    assert any("not verified to be cold before every epoch" in text for text in outcome.remarks)


@pytest.mark.parametrize(
    ("epochs", "left", "verdict"),
    [(1, 1.0, "pass"), (2, 0.0, "pass"), (2, 0.5, "not_checked"), (2, None, "not_checked")],
)
def test_what_an_epoch_leaves_in_the_cache_decides(
    epochs: int, left: float | None, verdict: str
) -> None:
    first = Check(name="cold_cache", verdict="pass", sentence="It was cold.", mandatory=True)
    loader = config.Config(cold_epochs=False)
    assert harness.cold_check(first, epochs, loader, left).verdict == verdict
    warm = first.model_copy(update={"verdict": "fail"})
    assert harness.cold_check(warm, epochs, loader, left).verdict == "fail"


def test_a_failure_closes_the_phase_and_is_raised(context: Context) -> None:
    subject = workload(OutsideConfig(fails="no more"))
    subject.plan(context)
    subject.prepare(context)
    with pytest.raises(RunError, match="the program failed: no more"):
        subject.run(context)
    assert context.timed("read")[0].end_ns


def test_a_ceiling_that_fails_is_unknown_with_its_reason(context: Context) -> None:
    outcome = live(workload(OutsideConfig(ceiling_fails="no room")), context)
    ceiling = named(outcome)["harness_ceiling_bytes_per_s"]
    assert ceiling.value is None
    assert "no room" in ceiling.missing["value"]


def test_copies_to_a_device_can_not_be_insisted_on(context: Context) -> None:
    subject = workload(OutsideConfig())
    subject._accelerator.device = Device.cuda
    with pytest.raises(ConfigError, match="loader=dlio, which does not copy to a GPU"):
        subject.plan(context)


def test_it_runs_on_one_rank_alone(context: Context) -> None:
    assert workload(OutsideConfig()).plan(context).maximum_ranks == 1
    with pytest.raises(ConfigError, match=r"without mpirun and with accelerator\.count=2"):
        harness.check_harness(OutsideConfig(), Device.auto, 2)


@needs_dlio
@pytest.mark.slow
@pytest.mark.parametrize(
    ("reader", "cold_epochs", "record_format"), [("dlio", True, "npz"), ("wattload", False, "npy")]
)
def test_dlio_itself_runs_the_whole_workload(
    context: Context, reader: str, cold_epochs: bool, record_format: str
) -> None:
    loader = config.Config(workers=1, reader=reader, cold_epochs=cold_epochs)
    subject = workload(loader)
    subject.config.record_format = record_format
    outcome = live(subject, context)
    figures = check(outcome, "harness_bytes").figures
    if reader == "wattload":
        assert figures["plugged_bytes"] == figures["file_bytes"]
    else:  # with its code, settings and messages
        file_bytes, called_bytes = figures["file_bytes"], figures["called_bytes"]
        assert isinstance(file_bytes, int)
        assert isinstance(called_bytes, int)
        assert file_bytes <= called_bytes < 2 * file_bytes
    assert check(outcome, "cold_cache").verdict == "pass"
    assert check(outcome, "harness_summary").verdict == "pass"
    assert check(outcome, "harness_step_times").verdict == "pass"
    assert check(outcome, "files_verified").verdict == "pass"
    assert check(outcome, "harness_bytes").verdict == ("pass" if reader == "wattload" else "warn")
    assert value(outcome, "harness_ceiling_bytes_per_s")
    last = "epoch2" if cold_epochs else "epochs"
    assert (context.output_folder("dlio") / last / "output" / "summary.json").exists()
    assert len(context.timed("read")) == EPOCHS


def test_every_figure_that_it_adds_is_explained(context: Context) -> None:
    page = (Path(__file__).parents[3] / "docs" / "loaders.md").read_text("utf-8")
    names = named(live(workload(OutsideConfig()), context))
    added = [name for name in names if name.startswith(("dlio_reported", "harness_peak"))]
    assert len(added) == 4
    assert all(f"| `{name}` |" in page for name in added)
