from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.loaders.dlio.job import make_training
from wattload.core.errors import RunError
from wattload.loaders.dlio.output import read_output
from wattload.loaders.samples import Reported, TrainedRank, Training

RECORDED = Path(__file__).parents[2] / "data" / "dlio"
"""Files of dlio-benchmark 2.0.0: two processes, 16 files, batch 2, 3 epochs, step 0.02 s."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(RECORDED, tmp_path / "output"))


def job(folder: Path) -> Training:
    training = make_training(folder, accelerators=2, step_s=0.02)
    return replace(training, orders=[range(8)] * 2, epochs=3)


def read(folder: Path) -> list[tuple[Sequence[TrainedRank], Reported]]:
    return read_output(folder, job(folder))


def change(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(path.read_text())
    edit(document)
    path.write_text(json.dumps(document))


def test_lists_of_every_rank_are_read(folder: Path) -> None:
    epochs = read(folder)
    assert [len(ranks) for ranks, _ in epochs] == [2, 2, 2]
    first = epochs[0][0][0]
    assert first.load_s[0] == 0.7773838043212891
    assert first.processed_s[0] == 0.7977521419525146
    assert first.duration_s == pytest.approx(4 * 2 / 7.1379499452226725)


def test_reported_figures_are_those_of_the_summary_in_si_units(folder: Path) -> None:
    summary = json.loads((folder / "summary.json").read_text())["metric"]
    reported = [figures for _, figures in read(folder)]
    assert [100 * each.au for each in reported] == pytest.approx(summary["train_au_percentage"])
    rates = [each.samples_per_s for each in reported]
    assert rates == summary["train_throughput_samples_per_second"]
    assert reported[0].nominal_bytes_per_s == summary["train_io_mean_MB_per_second"] * 1024**2


def test_a_summary_of_other_epochs_is_no_result(folder: Path) -> None:
    with pytest.raises(RunError, match=r"has 3 epochs; expected 2"):
        read_output(folder, replace(job(folder), epochs=2))


@pytest.mark.parametrize("name", ["summary.json", "0_output.json", "1_output.json"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(RunError, match=f"ended without {name}"):
        read(folder)


@pytest.mark.parametrize("text", ["", "{", '{"metric": ', "[1]", "{}", '{"metric": {}}'])
def test_a_summary_without_metrics_is_no_result(folder: Path, text: str) -> None:
    (folder / "summary.json").write_text(text)
    with pytest.raises(RunError, match=r"summary\.json of dlio-benchmark, metric"):
        read(folder)


@pytest.mark.parametrize("value", [None, 90.0, [float("nan")], "90"])
def test_a_summary_without_a_figure_is_no_result(folder: Path, value: object) -> None:
    change(
        folder / "summary.json",
        lambda document: document["metric"].update(train_au_percentage=value),
    )
    with pytest.raises(RunError, match=r"metric\.train_au_percentage"):
        read(folder)


@pytest.mark.parametrize(
    ("times", "says"),
    [
        (None, r"3\.proc\.block1: "),
        ([0.1] * 3 + [float("nan")], r"3\.proc\.block1\.3: .*finite"),
        ([0.1] * 3, "has 4 load times and 3 step times; expected 4 of each"),
    ],
)
def test_times_that_are_not_of_every_step_are_no_result(
    folder: Path, times: object, says: str
) -> None:
    change(folder / "1_output.json", lambda document: document["3"]["proc"].update(block1=times))
    with pytest.raises(RunError, match=says):
        read(folder)


def test_an_epoch_that_is_missing_is_no_result(folder: Path) -> None:
    change(folder / "0_output.json", lambda document: document.pop("3"))
    with pytest.raises(RunError, match=r"0_output\.json of dlio-benchmark, 3: "):
        read(folder)


@pytest.mark.parametrize("value", [True, 0.0, "fast"])
def test_a_throughput_that_is_no_number_above_0_is_no_result(folder: Path, value: object) -> None:
    change(
        folder / "0_output.json",
        lambda document: document["3"]["throughput"].update(block1=value),
    )
    with pytest.raises(RunError, match=r"3\.throughput\.block1"):
        read(folder)
