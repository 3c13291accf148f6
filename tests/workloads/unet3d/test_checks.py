from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

import pytest

from tests.allocation import punch
from tests.context import context_at
from tests.unet3d import direct, live, torch, workload
from wattload.core.errors import DataError
from wattload.core.io import Batch
from wattload.loaders.direct import loader
from wattload.loaders.samples import SampleLoaderConfig
from wattload.loaders.torch import loader as torchworker

pytestmark = pytest.mark.usefixtures("short_ceiling")


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
    assert "hashed samples differ from what was written" in check.sentence


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


def test_a_sample_that_was_not_hashed_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One digest of several is lost: what came is right, and too little."""
    context = context_at(tmp_path)
    subject = workload(file_count=40)
    lost: list[int] = []
    finished = loader._Assembly.finished

    def without_one(self: loader._Assembly) -> Batch:
        if self.digests and not lost:
            lost.append(self.digests.popitem()[0])
        return finished(self)

    monkeypatch.setattr(loader._Assembly, "finished", without_one)
    _, (check,) = live(subject, context)
    assert check.verdict == "fail"
    expected = check.figures["expected_samples"]
    assert isinstance(expected, int)
    assert expected > 1
    assert check.figures["hashed_samples"] == expected - 1
    assert "the delivered bytes are unproven" in check.sentence


def test_a_hole_punched_after_it_was_prepared_ends_the_run_before_it_is_timed(
    tmp_path: Path,
) -> None:
    context = context_at(tmp_path)
    subject = workload()
    subject.plan(context)
    facts = subject.prepare(context)
    assert facts is not None
    punch(sorted(facts.folder.glob("img*"))[3])
    with pytest.raises(DataError, match=r"img_03_of_17\.npz has 16\.38 kB in holes"):
        subject.run(context)
    assert context.timed("read") == []


def test_a_file_that_was_cut_after_it_was_prepared_ends_the_run(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    subject = workload()
    subject.plan(context)
    facts = subject.prepare(context)
    for path in facts.folder.glob("img*"):
        os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(DataError, match="truncated"):
        subject.run(context)


def test_without_a_run_there_is_nothing_to_verify(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    subject = workload()
    subject.plan(context)
    subject.prepare(context)
    assert subject.verify(context) == ()
