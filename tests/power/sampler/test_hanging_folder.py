"""A run folder on a file system that hangs: the drive is restored all the same."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from tests.power.hanging_fuse import HangingFolder, hanging
from tests.power.sampler_bench import Bench, is_running, wait_for
from wattload.power.config import PowerConfig


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    bench.set_up()
    yield bench
    bench.clean()


@pytest.fixture
def hung(bench: Bench) -> Iterator[HangingFolder]:
    folder = bench.runs / "mine"
    folder.mkdir()
    with hanging(folder, owner=0) as mounted:
        yield mounted


@pytest.mark.parametrize("has_service", [False, True])
def test_a_run_on_a_file_system_that_hangs_is_restored_and_its_samples_count_as_lost(
    bench: Bench, hung: HangingFolder, has_service: bool
) -> None:
    client = bench.spawn(bench.service() if has_service else None)
    config = PowerConfig(state=1, period_s=0.02)
    client.open("mine", config, devices=["nvme0"], block_devices=[])
    client.start()
    time.sleep(0.2)
    hung.hang()
    time.sleep(0.2)
    finished = client.finish()
    assert finished.states[0].restored == 0
    assert finished.cost is not None
    assert finished.cost.lost_sample_count > 0
    assert bench.state() == 0
    hung.unmount()


def test_the_end_of_a_run_on_a_file_system_that_hangs_restores_the_drive(
    bench: Bench, hung: HangingFolder
) -> None:
    client = bench.spawn()
    config = PowerConfig(state=1, period_s=0.02)
    client.open("mine", config, devices=["nvme0"], block_devices=[])
    client.start()
    hung.hang()
    Thread(target=client.close, daemon=True).start()  # waits for the sampler
    wait_for(lambda: bench.state() == 0)
    hung.unmount()
    wait_for(lambda: not is_running(client))
