"""A drive that measures its own power, in a run with a real sampler: started, stopped, undone."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from tests.model_host.drive import Model, load
from tests.model_host.power import Meter, centiwatts
from tests.power.sampler_bench import RUN_ID, Bench, wait_for
from wattload.core.power import Channel, Evidence
from wattload.core.record.file import RECORD_FILE
from wattload.power.config import DeclaredProfile, PowerConfig
from wattload.power.sampler.samples import read_samples

METER = Meter(
    ipm=centiwatts(9.25),
    olec=77,
    measures=True,
    error_percent=3,
    aipwr=centiwatts(12.5),
    mipwr=centiwatts(20),
    bins=((4, centiwatts(12.5)),),
)


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    return make_bench(nvme0=Model(meter=METER))


def is_measuring(bench: Bench) -> bool:
    return load(bench.models / "nvme0.json").meter.setting == 1


def is_journalled(bench: Bench) -> bool:
    return any((bench.models / "state").glob("feature-25-*"))


def test_all_that_a_drive_reports_is_sampled_in_parallel(bench: Bench) -> None:
    client = bench.spawn()
    opened = client.open(RUN_ID, PowerConfig(period_s=0.02), devices=["nvme0"], block_devices=[])
    used = {source.name: source.used for source in opened.sources if source.device == "MODEL0001"}
    assert used == {
        "nvme_ipm": True,
        "nvme_ocp": False,
        "nvme_vendor": False,
        "nvme_olec": True,
        "nvme": True,
        "nvme_25h": True,
    }
    assert not is_measuring(bench)
    client.start()
    assert is_measuring(bench)
    assert is_journalled(bench)
    wait_for(lambda: bench.round_count() >= 3)
    finished = client.finish()
    assert not is_measuring(bench)
    assert not is_journalled(bench)
    (energy,) = finished.own_energies
    assert energy.source == "nvme_25h"
    assert energy.evidence is Evidence.SELF_REPORTED
    assert energy.energy_j == pytest.approx(12.5 * (energy.end_ns - energy.start_ns) / 1e9)
    assert [(each.lower_w, each.count) for each in energy.histogram] == [(12.5, 4)]
    samples = list(read_samples(bench.samples))
    watts = [each for each in samples if each.channel is Channel.POWER_W]
    assert {(each.source, each.value) for each in watts} == {("nvme_ipm", 9.25)}
    assert energy.start_ns < watts[0].time_ns < energy.end_ns < watts[-1].time_ns


def test_run_that_is_killed_leaves_no_measurement_running(bench: Bench) -> None:
    client = bench.killable_client()
    assert is_measuring(bench)
    os.killpg(client.pid, signal.SIGKILL)
    wait_for((bench.run / RECORD_FILE).exists)
    assert not is_measuring(bench)
    assert not is_journalled(bench)


def test_only_the_power_state_is_watched_with_another_source(bench: Bench) -> None:
    client = bench.spawn()
    profile = DeclaredProfile(name="Drive X", citation="data sheet", max_w=20)
    config = PowerConfig(source="declared", profile=profile, period_s=0.02)
    client.open(RUN_ID, config, devices=["nvme0"], block_devices=[])
    client.start()
    assert not is_measuring(bench)
    finished = client.finish()
    assert not finished.own_energies
    samples = read_samples(bench.samples)
    assert {each.source for each in samples} == {"declared", "nvme", "smart"}
