"""A training run's folder: facts from the best data there is, and refusals that name the file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.mlperf_trees import (
    ACCELERATORS,
    BATCH,
    BLOCK_S,
    COMPUTE_S,
    EPOCHS,
    SAMPLES_PER_S,
    STEP_S,
    STEPS,
    at,
    output,
    per_epoch,
    write,
    write_run,
    write_set,
)
from wattload.core.mlperf.formulas import au, samples_per_s
from wattload.core.mlperf.published import PublishedRun, TrainingFacts
from wattload.core.mlperf.tree import read_tree
from wattload.core.units import GIB

Edit = Callable[[dict[str, Any]], object]


def read(folder: Path) -> PublishedRun:
    tree = read_tree(folder)
    assert not tree.unread
    ((run,),) = [each.runs for each in tree.sets]
    return run


def training(folder: Path) -> TrainingFacts:
    facts = read(folder).facts
    assert isinstance(facts, TrainingFacts)
    return facts


def test_block_times_give_the_reported_rate_and_no_utilisation(tmp_path: Path) -> None:
    facts = training(write_run(tmp_path / "run1"))
    assert facts.source == "blocks"
    assert samples_per_s(facts, "v1.0").value == pytest.approx(SAMPLES_PER_S)
    assert au(facts).value is None
    assert facts.reported is not None
    assert facts.reported.au == (0.9,) * EPOCHS


def test_step_lists_of_all_ranks_give_every_figure(tmp_path: Path) -> None:
    facts = training(write_run(tmp_path / "run1", ranks=range(ACCELERATORS)))
    assert facts.source == "steps"
    window_s = BLOCK_S - STEP_S - 2
    assert au(facts).value == pytest.approx((STEPS - 1) * COMPUTE_S / window_s)
    expected = (STEPS - 1) * BATCH * ACCELERATORS / window_s
    assert samples_per_s(facts, "v3.0").value == pytest.approx(expected)


def test_a_run_with_lists_of_some_ranks_is_from_blocks(tmp_path: Path) -> None:
    facts = training(write_run(tmp_path / "run1", ranks=[1]))
    assert facts.source == "blocks"
    blocks = facts.epochs[0]
    assert [(block.rank, block.steps) for block in blocks] == [(0, None), (1, STEPS)]


def test_without_block_times_only_the_summary_is_left(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run1")
    (folder / "per_epoch_stats.json").unlink()
    assert training(folder).source == "summary"


def test_each_rank_has_its_own_block_times_where_they_are_there(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run1")
    (folder / "per_epoch_stats.json").unlink()
    for rank in range(ACCELERATORS):
        times = per_epoch()
        times["1"]["block1"]["end"] = at(200 + rank)
        write(folder / f"{rank}_per_epoch_stats.json", times)
    blocks = training(folder).epochs[0]
    assert [block.duration_s for block in blocks] == pytest.approx([89, 90])


def test_blocks_that_a_checkpoint_divides_are_in_order(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run1")
    times = per_epoch()
    for block in range(2, 12):
        span = {"start": at(220 + 2 * block), "end": at(221 + 2 * block)}
        times["1"] |= {f"block{block}": span, f"ckpt{block}": span}
    times["2"]["block1"] = {"start": at(300), "end": at(400)}
    write(folder / "per_epoch_stats.json", times)
    durations = [block.duration_s for block in training(folder).epochs[0]]
    assert durations == pytest.approx([BLOCK_S] + [1] * 10)


def test_settings_overrides_and_sources(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run1")
    run = read(folder)
    assert run.settings["reader.batch_size"] == BATCH
    assert run.settings["train.computation_time"] == COMPUTE_S
    assert run.overrides["workload"] == "unet3d_h100"
    assert run.overrides["dataset.data_folder"] == "/data/a=b"
    read_files = ("summary.json", "per_epoch_stats.json", "configs/config.yaml")
    assert run.sources.keys() == {*read_files, "configs/overrides.yaml"}
    for name, digest in run.sources.items():
        assert digest == hashlib.sha256((folder / name).read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("hosts", "slots", "expected"),
    [
        (1, [4.0], [4]),
        (2, [4.0, 6.0], [4, 6]),  # a host a slot
        (4, [8.0, 8.0, 0, 0], [4] * 4),  # ranks dealt in turn: two hosts a slot
        (5, [20.0, 0, 0, 0, 0], [4] * 5),
        (2, [0, 0], [None, None]),
        (0, [], [None]),
    ],
)
def test_memory_of_hosts_sums_up_in_whatever_slots_it_is(
    tmp_path: Path, hosts: int, slots: list[float], expected: list[int | None]
) -> None:
    run = read(write_run(tmp_path / "run1", num_hosts=hosts, host_memory_GB=slots))
    sizes = [None if each is None else each * GIB for each in expected]
    assert list(run.host_memory_bytes) == sizes


def test_without_its_configuration_a_run_is_of_its_set_by_its_folder(tmp_path: Path) -> None:
    folder = write_set(tmp_path, "unet3d_h100")
    for name in ("config", "overrides"):
        (folder / f"run3/configs/{name}.yaml").unlink()
    (found,) = read_tree(tmp_path).sets
    assert len(found.runs) == 5
    facts = found.runs[2].facts
    assert isinstance(facts, TrainingFacts)
    assert (facts.model, facts.accelerator, facts.batch_samples) == ("unet3d", "h100", None)


def edited(name: str, edit: Edit) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        document = json.loads((folder / name).read_text())
        edit(document)
        write(folder / name, document)

    return change


def replaced(name: str, old: str, new: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return change


def large(folder: Path) -> None:
    with (folder / "summary.json").open("wb") as file:
        file.truncate(1 << 30)


SUMMARY, TIMES, LISTS = "summary.json", "per_epoch_stats.json", "1_output.json"
CONFIG = "configs/config.yaml"

BAD: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "NaN": (replaced(SUMMARY, "90.0", "NaN"), SUMMARY, "NaN is not a number of JSON"),
    "infinity": (replaced(SUMMARY, "90.0", "1e999"), SUMMARY, "finite"),
    "twin keys": (replaced(SUMMARY, '"epochs"', '"end": 1, "epochs"'), SUMMARY, "'end' appears"),
    "trailing comma": (replaced(SUMMARY, '"epochs"', ', "epochs"'), SUMMARY, "not JSON"),
    "listed epochs": (
        lambda folder: write(folder / TIMES, {"1": [1], "2": 5}),
        TIMES,
        "0 epochs",
    ),
    "no object": (lambda folder: write(folder / SUMMARY, []), SUMMARY, "not a JSON object"),
    "bytes": (lambda folder: (folder / SUMMARY).write_bytes(b"\xff{"), SUMMARY, "not JSON"),
    "nested": (lambda folder: (folder / SUMMARY).write_text("[" * 200_000), SUMMARY, "not JSON"),
    "1 GB": (large, SUMMARY, "larger than 64 MiB"),
    "another type": (edited(SUMMARY, lambda d: d.update(num_hosts="1")), SUMMARY, "num_hosts"),
    "text for number": (edited(SUMMARY, lambda d: d.update(epochs="2")), SUMMARY, "epochs"),
    "no accelerators": (edited(SUMMARY, lambda d: d.update(num_accelerators=0)), SUMMARY, "0"),
    "no epochs": (edited(SUMMARY, lambda d: d.update(epochs=0)), SUMMARY, "epochs"),
    "negative rate": (
        edited(
            SUMMARY,
            lambda d: d["metric"].update(train_throughput_mean_samples_per_second=-1.0),
        ),
        SUMMARY,
        "-1.0",
    ),
    "too many hosts": (
        edited(SUMMARY, lambda d: d.update(num_hosts=10**12)),
        SUMMARY,
        "num_hosts",
    ),
    "too few files": (
        edited(SUMMARY, lambda d: d.update(num_files_train=9)),
        SUMMARY,
        "zero steps",
    ),
    "no files": (edited(SUMMARY, lambda d: d.pop("num_files_train")), SUMMARY, "Field required"),
    "endless memory": (
        edited(SUMMARY, lambda d: d.update(host_memory_GB=[1e308, 1e308])),
        "",
        "too large",
    ),
    "negative memory": (edited(SUMMARY, lambda d: d.update(host_memory_GB=[-1.0])), SUMMARY, "-1"),
    "ends first": (edited(SUMMARY, lambda d: d.update(end=at(-1))), SUMMARY, "before its start"),
    "no time": (edited(SUMMARY, lambda d: d.update(end="noon")), SUMMARY, "end"),
    "list lengths": (
        edited(SUMMARY, lambda d: d["metric"]["train_au_percentage"].append(90.0)),
        SUMMARY,
        "3 utilisations and 2 rates of 2",
    ),
    "fewer epochs": (
        edited(TIMES, lambda d: d.pop("2")),
        TIMES,
        "times of 1 epochs; summary.json has 2",
    ),
    "backwards": (
        edited(TIMES, lambda d: d["2"]["block1"].update(end=at(1))),
        TIMES,
        "epoch 2, block1: its times run backwards",
    ),
    "epochs swapped": (
        edited(TIMES, lambda d: d.update({"1": d["2"], "2": d["1"]})),
        TIMES,
        "epoch 2, block1: its times run backwards",
    ),
    "no end": (edited(TIMES, lambda d: d["2"]["block1"].pop("end")), TIMES, "end"),
    "zero steps": (lambda folder: write(folder / LISTS, output(0)), LISTS, "at least one"),
    "negative step": (replaced(LISTS, "2.5", "-2.5"), LISTS, "proc"),
    "uneven lists": (
        edited(LISTS, lambda d: d["1"]["compute"]["block1"].pop()),
        LISTS,
        "12 steps and 11 times",
    ),
    "an epoch more": (lambda folder: write(folder / LISTS, output(epochs=3)), LISTS, "blocks"),
    "a rank more": (lambda folder: write(folder / "2_output.json", output()), "2_output", "rank"),
    "no YAML": (lambda folder: (folder / CONFIG).write_text("a: [}"), CONFIG, "not YAML"),
    "no mapping": (lambda folder: (folder / CONFIG).write_text("5"), CONFIG, "configuration"),
    "endless YAML": (
        lambda folder: (folder / CONFIG).write_text("workload: &a {b: *a}"),
        "",
        "nested too deep",
    ),
    "too many settings": (
        lambda folder: (folder / CONFIG).write_text(
            "workload:\n" + "".join(f"  a{number}: 1\n" for number in range(10_001))
        ),
        CONFIG,
        "more than 10000 settings",
    ),
    "model a number": (replaced(CONFIG, "unet3d", "5"), "configuration", "model"),
    "no batch": (replaced(CONFIG, "batch_size: 7", "batch_size: 0"), "configuration", "batch"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_run_is_left_out_by_one_sentence_and_the_others_imported(
    tmp_path: Path, name: str
) -> None:
    spoil, file, words = BAD[name]
    folder = write_set(tmp_path, "set")
    for rank in range(ACCELERATORS):
        write(folder / f"run3/{rank}_output.json", output())
    assert len(read_tree(tmp_path).sets[0].runs) == 5
    spoil(folder / "run3")
    tree = read_tree(tmp_path)
    assert len(tree.sets[0].runs) == 4
    (left,) = tree.unread
    assert left.path.startswith(f"set/run3/{file}".rstrip("/"))
    assert words in left.reason
    assert "\n" not in left.reason


def test_a_run_of_ten_thousand_ranks(tmp_path: Path) -> None:
    ranks = 10_000
    changes: dict[str, Any] = {"num_accelerators": ranks, "num_files_train": BATCH * ranks}
    folder = write_run(
        tmp_path / "run1", epochs=1, metric={"train_io_mean_MB_per_second": 1}, **changes
    )
    write(folder / "per_epoch_stats.json", per_epoch(1))
    write(folder / "0_output.json", output(steps=1, epochs=1))
    for rank in range(1, ranks):
        (folder / f"{rank}_output.json").hardlink_to(folder / "0_output.json")
    facts = training(folder)
    assert facts.source == "steps"
    assert len(facts.epochs[0]) == ranks
