"""Epochs by a program that logs and writes what dlio-benchmark does."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.loaders.dlio.job import FILES, Window, make_training, processes_that_say
from wattload.core.errors import RunError
from wattload.loaders.dlio import harness
from wattload.loaders.dlio.config import Config
from wattload.loaders.samples import Training, TrainingResult

DLIO = """
import datetime, json, os, pathlib, sys, time

name, ranks, way = sys.argv[1], int(sys.argv[2]), sys.argv[3]
job = json.load(open(f"config/workload/{name}.yaml"))
files = sorted(pathlib.Path(job["dataset"]["data_folder"], "train").iterdir())
batch, step_s = job["reader"]["batch_size"], job["train"]["computation_time"]
steps = len(files) // batch // ranks

def log(text):
    now = datetime.datetime.now().isoformat(timespec="microseconds")
    print(f"[INFO] {now} {text} [main.py:1]", file=sys.stderr, flush=True)

log(f"Running DLIO with {ranks} process(es)")
log(f"Max steps per epoch: {steps} = 1 * {len(files)} / {batch} / {ranks} (samples per file)")
time.sleep(0.2)
outputs, au, rates = [{} for _ in range(ranks)], [], []
for epoch in range(1, job["train"]["epochs"] + 1):
    if way != "silent":
        log("Starting block 1")
    begin, load, proc = time.time(), [], []
    time.sleep(0.1)  # as long as workers take to start
    for step in range(steps):
        start = time.time()
        for rank in range(ranks):
            first = (rank * steps + step) * batch
            for path in files[first : first + batch]:
                path.read_bytes()
                with open("order", "a") as order:
                    print(path.resolve(), file=order)
        load.append(time.time() - start)
        time.sleep(step_s)
        proc.append(time.time() - start)
        for rank in range(ranks - (step == steps - 1)):
            log(f"Rank {rank} step {step + 1} processed {batch} samples in {proc[-1]} s")
        if way == "dies":
            raise ValueError("no more")
    end = time.time()
    if way != "silent":
        log(f"Ending block 1 - {steps} steps completed in 1.00 s")
    samples_per_s = steps * batch / (end - begin)
    for output in outputs:
        output[str(epoch)] = {
            "load": {"block1": load},
            "proc": {"block1": proc},
            "throughput": {"block1": samples_per_s},
        }
    au.append(100 * step_s * (steps - 1) / (end - begin - proc[0]))
    rates.append(ranks * samples_per_s)
    time.sleep(0.2)
metric = {
    "train_au_percentage": au,
    "train_throughput_samples_per_second": rates,
    "train_io_mean_MB_per_second": 1.0,
}
os.mkdir("output")
json.dump({"metric": metric}, open("output/summary.json", "w"))
for rank, output in enumerate(outputs):
    json.dump(output, open(f"output/{rank}_output.json", "w"))
"""


@pytest.fixture(autouse=True)
def program(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, "lives")
    monkeypatch.setattr(harness, "version", lambda _: "2.0.0")


def play(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.setattr(
        harness,
        "command_line",
        lambda job, ranks: [sys.executable, "-c", DLIO, job, str(ranks), way],
    )


def train(training: Training, folder: Path, window: Window) -> TrainingResult:
    return harness.train(Config(), training, folder, window)


@pytest.mark.parametrize(("accelerators", "epochs"), [(1, 1), (2, 3)])
def test_a_timed_window_is_a_block_of_the_program_with_all_its_bytes(
    tmp_path: Path, accelerators: int, epochs: int
) -> None:
    training = make_training(tmp_path, accelerators=accelerators, epochs=epochs)
    window = Window()
    result = train(training, tmp_path / "output", window)
    total_bytes = sum(training.samples.file_bytes)
    last_ns = 0
    for phase, epoch in zip(window.phases, result.epochs, strict=True):
        assert phase.read_bytes == total_bytes
        start_ns, end_ns = phase.edges_ns
        # It sleeps 0.2 s before and after its blocks.
        assert last_ns <= phase.opened_ns < start_ns < end_ns < phase.closed_ns
        last_ns = phase.closed_ns
        assert epoch.window_s == (end_ns - start_ns) / 1e9
        assert epoch.window_s == pytest.approx(epoch.ranks[0].duration_s, abs=0.05)
        assert sum(epoch.ranks[0].processed_s) <= epoch.ranks[0].duration_s
        assert len(epoch.ranks) == accelerators
        assert {len(rank.load_s) for rank in epoch.ranks} == {training.steps}
        assert epoch.counts.cpu_s > 0
        assert total_bytes <= (epoch.counts.called_bytes or 0) < 1.1 * total_bytes
    assert len(result.epochs) == epochs


def test_it_reads_the_files_in_our_order_by_links_that_are_removed(tmp_path: Path) -> None:
    training = make_training(tmp_path, accelerators=2)
    folder = tmp_path / "output"
    result = train(training, folder, Window())
    read = [Path(line) for line in (folder / "order").read_text().splitlines()]
    first, second = (
        [training.samples.paths[index] for index in order] for order in training.orders
    )
    assert len(read) == FILES
    assert [path for path in read if path in first] == first
    assert [path for path in read if path in second] == second
    assert not list(folder.glob("wattload-*"))
    assert all(path.exists() for path in training.samples.paths)
    assert result.command[1] == "-c"
    assert (folder / harness.COMMAND).read_text()


def test_from_memory_it_reads_copies_of_the_files(tmp_path: Path) -> None:
    training = make_training(tmp_path, epochs=2)
    training = replace(training, samples=replace(training.samples, in_memory=True))
    folder = tmp_path / "output"
    result = harness.train(Config(), training, folder, None)
    read = [Path(line) for line in (folder / "order").read_text().splitlines()]
    assert len(read) == 2 * FILES
    assert all(path.is_relative_to("/dev/shm") and not path.exists() for path in read)
    second = json.loads((folder / "output/0_output.json").read_text())["2"]
    assert list(result.epochs[1].ranks[0].load_s) == second["load"]["block1"]


def test_memory_without_room_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = make_training(tmp_path)
    training = replace(training, samples=replace(training.samples, in_memory=True))
    monkeypatch.setattr(harness, "MEMORY", tmp_path / "absent")
    with pytest.raises(RunError, match="can't hold the files"):
        harness.train(Config(), training, tmp_path / "output", None)


def test_a_program_that_dies_ends_it_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(monkeypatch, "dies")
    window = Window()
    with pytest.raises(RunError, match=r"failed with status 1: ValueError: no more; .*stderr\.log"):
        train(make_training(tmp_path), tmp_path / "output", window)
    assert window.phases[0].closed_ns
    assert not list((tmp_path / "output").glob("wattload-*"))
    assert processes_that_say(str(tmp_path / "output")) == []


def test_a_log_without_a_block_is_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(monkeypatch, "silent")
    with pytest.raises(RunError, match="logged 0 of 1 blocks"):
        train(make_training(tmp_path), tmp_path / "output", Window())
