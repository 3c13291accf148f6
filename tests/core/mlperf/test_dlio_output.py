from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wattload.core.errors import RunError
from wattload.core.mlperf.dlio_output import Output, read_output

RECORDED = Path(__file__).parents[2] / "data" / "dlio"
"""Files of dlio-benchmark 2.0.0: two processes, 16 files, batch 2, 3 epochs, step 0.02 s."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(RECORDED, tmp_path / "output"))


def read(folder: Path) -> Output:
    return read_output(folder, ranks=2, epochs=3, steps=4, batch_samples=2)


def change(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(path.read_text())
    edit(document)
    path.write_text(json.dumps(document))


def test_lists_of_every_rank_and_epoch_are_read(folder: Path) -> None:
    output = read(folder)
    assert [len(rank) for rank in output.ranks] == [3, 3]
    first = output.ranks[0][0]
    assert first.load_s[0] == 0.7773838043212891
    assert first.processed_s[0] == 0.7977521419525146
    assert first.nominal_s == (0.02,) * 4
    assert first.duration_s(2) == pytest.approx(4 * 2 / 7.1379499452226725)


def test_recomputed_figures_are_those_of_the_summary(folder: Path) -> None:
    output = read(folder)
    assert output.au_percentage() == pytest.approx(output.metric["train_au_percentage"], rel=1e-9)
    assert output.samples_per_s() == pytest.approx(
        output.metric["train_throughput_samples_per_second"], rel=1e-9
    )


@pytest.mark.parametrize(
    "name", ["summary.json", "per_epoch_stats.json", "0_output.json", "1_output.json"]
)
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(RunError, match=f"ended without {name}"):
        read(folder)


@pytest.mark.parametrize("text", ["", "{", '{"metric": '])
def test_a_summary_that_is_cut_short_is_no_result(folder: Path, text: str) -> None:
    (folder / "summary.json").write_text(text)
    with pytest.raises(RunError, match="is no JSON"):
        read(folder)


def test_a_summary_that_is_no_object_is_no_result(folder: Path) -> None:
    (folder / "summary.json").write_text("[1]")
    with pytest.raises(RunError, match="must hold a JSON object"):
        read(folder)


def test_a_summary_without_metrics_is_no_result(folder: Path) -> None:
    change(folder / "summary.json", lambda document: document.pop("metric"))
    with pytest.raises(RunError, match="needs metric as dict, got None"):
        read(folder)


def test_a_summary_of_fewer_epochs_is_no_result(folder: Path) -> None:
    change(
        folder / "summary.json", lambda document: document["metric"]["train_au_percentage"].pop()
    )
    with pytest.raises(RunError, match="needs 3 numbers in train_au_percentage"):
        read(folder)


def test_an_epoch_without_its_list_of_steps_is_no_result(folder: Path) -> None:
    change(folder / "1_output.json", lambda document: document["2"]["load"].pop("block1"))
    with pytest.raises(RunError, match="needs 4 numbers in block1, got None"):
        read(folder)


def test_a_step_that_is_no_number_is_no_result(folder: Path) -> None:
    change(
        folder / "0_output.json",
        lambda document: document["1"]["proc"]["block1"].__setitem__(2, float("nan")),
    )
    with pytest.raises(RunError, match="needs 4 numbers in block1"):
        read(folder)


def test_an_epoch_that_is_missing_is_no_result(folder: Path) -> None:
    change(folder / "0_output.json", lambda document: document.pop("3"))
    with pytest.raises(RunError, match="needs 3 as dict"):
        read(folder)


def test_a_throughput_that_is_no_number_is_no_result(folder: Path) -> None:
    change(
        folder / "0_output.json",
        lambda document: document["1"]["throughput"].__setitem__("block1", True),
    )
    with pytest.raises(RunError, match="needs block1 as a number, got True"):
        read(folder)


def test_a_throughput_of_nothing_is_no_result(folder: Path) -> None:
    change(
        folder / "0_output.json",
        lambda document: document["1"]["throughput"].__setitem__("block1", 0.0),
    )
    with pytest.raises(RunError, match="needs a throughput above 0"):
        read(folder)


def test_a_summary_without_its_means_is_no_result(folder: Path) -> None:
    change(
        folder / "summary.json",
        lambda document: document["metric"].pop("train_au_mean_percentage"),
    )
    with pytest.raises(RunError, match="needs train_au_mean_percentage as a number, got None"):
        read(folder)
