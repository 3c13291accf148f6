from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.allocation import punch
from tests.context import context_at
from tests.damage import (
    DAMAGES,
    Damage,
    copy_sparsely,
    flip_at_the_start,
    flip_bit,
    flip_in_the_middle,
)
from tests.unet3d import BATCH, EPOCHS, FILES, direct, facts_of, live, torch, workload
from wattload.core.errors import DataError
from wattload.core.record.results import amount
from wattload.core.workload import RunContext
from wattload.loaders.dali.config import Config as DaliConfig
from wattload.loaders.data.data_folder import marker_of
from wattload.loaders.data.record_formats import FORMATS, file_bytes
from wattload.loaders.direct import loader
from wattload.loaders.samples import SampleLoaderConfig
from wattload.loaders.torch import loader as torchworker
from wattload.workloads.training import workload as workload_module
from wattload.workloads.training.config import Sizes
from wattload.workloads.training.dataset import Dataset
from wattload.workloads.training.loop import run_epoch
from wattload.workloads.training.workload import Unet3d

pytestmark = pytest.mark.usefixtures("short_ceiling")


LOADERS = {"direct": direct(), "torch": torch(), "dali": DaliConfig(threads=1)}
HAS_DALI = find_spec("nvidia") is not None and find_spec("nvidia.dali") is not None
without_dali = pytest.mark.skipif(not HAS_DALI, reason="NVIDIA DALI is not installed")
loaders = pytest.mark.parametrize(
    "loader",
    [
        pytest.param(config, id=name, marks=[without_dali] if name == "dali" else [])
        for name, config in LOADERS.items()
    ],
)


formats = pytest.mark.parametrize("record_format", FORMATS)


def flip_header(path: Path) -> None:
    flip_bit(path, 20, 0)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def prepared(subject: Unet3d, context: RunContext) -> list[Path]:
    """Return the files of a run's data set, in order."""
    subject.plan(context)
    facts = subject.prepare(context)
    assert facts is not None
    return sorted(Path(facts.folder).glob("img*"))


@loaders
@formats
def test_every_payload_byte_of_a_run_is_verified(
    tmp_path: Path, loader: SampleLoaderConfig, record_format: str
) -> None:
    """What surrounds the payloads is verified by loader=direct alone; the share says so."""
    context = context_at(tmp_path)
    _, (check,) = live(workload(loader, record_format=record_format), context)
    assert check.verdict == "pass"
    read_bytes = sum(span.read_bytes for span in context.timed("read"))
    assert check.figures["read_bytes"] == read_bytes
    verified_bytes = amount(check.figures, "verified_bytes")
    around_bytes = file_bytes(FORMATS[record_format], (100, 100)) - 100 * 100
    around_bytes *= EPOCHS * (FILES // BATCH * BATCH)
    assert read_bytes - verified_bytes == (0 if loader.name == "direct" else around_bytes)
    assert f"{verified_bytes} of {read_bytes} bytes read were verified" in check.sentence
    assert loader.sample_verified in check.sentence


@loaders
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_files_fail_the_run(
    tmp_path: Path, loader: SampleLoaderConfig, damage: Damage
) -> None:
    """Of the 17 files of the data set, all but two are damaged."""
    context = context_at(tmp_path)
    subject = workload(loader, record_format="npy", epochs=1)
    *paths, other, _ = prepared(subject, context)
    for path in paths:
        damage(path, other)
    try:
        subject.run(context)
        (check,) = subject.verify(context)
    except DataError as error:
        assert "img_" in str(error)  # noqa: PT017 - or its check fails
        return
    if damage is flip_at_the_start and loader.name == "dali":
        # DALI takes shape and type on trust; the share says that headers were not verified.
        figures = check.figures
        assert amount(figures, "verified_bytes") < amount(figures, "read_bytes")
        return
    assert check.verdict == "fail"
    altered = check.figures["altered_samples"]
    assert isinstance(altered, int)
    assert altered >= len(paths) - 1  # an incomplete batch is not read
    assert "blocks that differ from what was written" in check.sentence


@loaders
def test_one_bit_flipped_in_one_file_fails_the_run(
    tmp_path: Path, loader: SampleLoaderConfig
) -> None:
    context = context_at(tmp_path)
    subject = workload(loader, record_format="npy", file_count=16)
    paths = prepared(subject, context)
    flip_bit(paths[11], paths[11].stat().st_size - 1, 0)  # beyond what is copied into a batch
    subject.run(context)
    (check,) = subject.verify(context)
    assert check.verdict == "fail"
    assert (check.figures["altered_samples"], check.figures["bad_blocks"]) == (1, EPOCHS)
    assert paths[11].name in check.sentence


def test_a_changed_header_that_readers_skip_fails_a_direct_run(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    subject = workload(file_count=16)
    paths = prepared(subject, context)
    flip_bit(paths[3], 12, 0)  # the date in the archive
    flip_bit(paths[4], paths[4].stat().st_size - 2, 0)  # the length of its comment
    subject.run(context)
    (check,) = subject.verify(context)
    assert (check.verdict, check.figures["altered_samples"]) == ("fail", 2)


@loaders
@formats
def test_files_of_another_seed_fail_the_run(
    tmp_path: Path, loader: SampleLoaderConfig, record_format: str
) -> None:
    """They are valid records of the same names and sizes."""
    context = context_at(tmp_path)
    job: dict[str, Any] = {"record_format": record_format, "sizes": Sizes.dlio, "file_count": 8}
    others = prepared(workload(data_seed=11, **job), context)
    subject = workload(loader, **job)
    for path, other in zip(prepared(subject, context), others, strict=True):
        assert path.stat().st_size == other.stat().st_size
        path.write_bytes(other.read_bytes())
    subject.run(context)
    (check,) = subject.verify(context)
    assert (check.verdict, check.figures["altered_samples"]) == ("fail", 8)


@loaders
@formats
@pytest.mark.parametrize("added_bytes", [1, -1])
def test_a_byte_more_or_less_ends_the_run(
    tmp_path: Path, loader: SampleLoaderConfig, record_format: str, added_bytes: int
) -> None:
    context = context_at(tmp_path)
    subject = workload(loader, record_format=record_format, file_count=8, epochs=1)
    for path in prepared(subject, context):
        os.truncate(path, path.stat().st_size + added_bytes)
    with pytest.raises(DataError, match=rf"img_\d_of_8\.{record_format}"):
        subject.run(context)


@loaders
def test_a_copy_without_its_zeros_is_still_the_data(
    tmp_path: Path, loader: SampleLoaderConfig
) -> None:
    context = context_at(tmp_path)
    subject = workload(loader, file_count=8, epochs=1)
    for path in prepared(subject, context):
        copy_sparsely(path)
    subject.run(context)
    (check,) = subject.verify(context)
    assert check.verdict == "pass"


@loaders
@formats
def test_damage_during_the_timed_phase_is_seen_by_the_next_epoch(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    loader: SampleLoaderConfig,
    record_format: str,
) -> None:
    context = context_at(tmp_path)
    subject = workload(loader, record_format=record_format, file_count=8)
    paths = prepared(subject, context)

    whole = [paths[2]]

    def read_then_flip(*arguments: Any, **named: Any) -> Any:
        read = run_epoch(*arguments, **named)
        while whole:  # at the end of the first epoch's span
            flip_in_the_middle(whole.pop(), paths[0])
        return read

    monkeypatch.setattr(workload_module, "run_epoch", read_then_flip)
    if loader.name == "torch" and record_format == "npz":  # np.load compares the CRC-32
        with pytest.raises(DataError, match=r"img_2_of_8\.npz .*: Bad CRC-32"):
            subject.run(context)
        return
    subject.run(context)
    (check,) = subject.verify(context)
    assert (check.verdict, check.figures["bad_blocks"]) == ("fail", 1)
    assert paths[2].name in check.sentence


@loaders
@pytest.mark.parametrize("damage", [flip_header, empty, Path.unlink])
def test_files_that_are_no_longer_records_fail_the_check_and_keep_the_measurement(
    tmp_path: Path, loader: SampleLoaderConfig, damage: Callable[[Path], object]
) -> None:
    context = context_at(tmp_path)
    subject = workload(loader, record_format="npy", file_count=8, epochs=1)
    paths = prepared(subject, context)
    subject.run(context)
    for path in paths:
        damage(path)
    (check,) = subject.verify(context)
    assert (check.verdict, check.figures["altered_samples"]) == ("fail", 0)
    assert check.figures["altered_rows"] == check.figures["expected_samples"] != 0
    assert "rows in the batches have no valid file to be compared with: " in check.sentence
    assert "\n" not in check.sentence


def test_data_without_seals_is_not_reused(tmp_path: Path) -> None:
    """Its parameters had no word of blocks, so its key was another."""
    dataset = Dataset(workload().config, FILES, context_at(tmp_path).targets)
    before = {name: value for name, value in dataset.parameters.items() if name != "blocks"}
    keys = {marker_of("unet3d", found, 10)["key"] for found in (before, dataset.parameters)}
    assert len(keys) == 2


def test_what_is_drawn_is_new_in_every_run_and_recorded(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    draws = {facts_of(live(workload(), context)[0]).draw for _ in range(2)}
    assert len(draws) == 2


def no_copy(payload: object, row: object) -> None:
    """Stand in for the copy into the batch: the row stays as it was."""


@pytest.mark.parametrize(
    ("loader", "module"),
    [(direct(), loader), (torch(), torchworker)],
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
    assert "rows in the batches differ from their samples" in check.sentence


def test_a_hole_punched_after_it_was_prepared_ends_the_run_before_it_is_timed(
    tmp_path: Path,
) -> None:
    context = context_at(tmp_path)
    subject = workload()
    subject.plan(context)
    facts = subject.prepare(context)
    assert facts is not None
    punch(sorted(Path(facts.folder).glob("img*"))[3])
    with pytest.raises(DataError, match=r"img_03_of_17\.npz has 16\.38 kB in holes"):
        subject.run(context)
    assert context.timed("read") == []


def test_a_file_that_was_cut_after_it_was_prepared_ends_the_run(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    subject = workload()
    subject.plan(context)
    facts = subject.prepare(context)
    for path in Path(facts.folder).glob("img*"):
        os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(DataError, match="truncated"):
        subject.run(context)


def test_without_a_run_there_is_nothing_to_verify(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    subject = workload()
    subject.plan(context)
    subject.prepare(context)
    assert subject.verify(context) == ()
