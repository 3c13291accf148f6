"""The cost of sampling is counted; meters and traces work with a real sampler."""

from __future__ import annotations

import fcntl
import time
from pathlib import Path

import pytest

from tests.power.sampler_bench import Bench, wait_for
from tests.power.sources.qis_mock import MODULE, Module, qis
from wattload.core.errors import PowerError
from wattload.core.power import Channel, Scope
from wattload.core.units import NS_PER_S
from wattload.power.config import PowerConfig, QuarchConfig
from wattload.power.nvme.admin import ADMIN_COST, NvmeAdmin
from wattload.power.nvme.features import get_command
from wattload.power.sampler.polling import CostMeter, Schedule
from wattload.power.sampler.samples import read_samples

PERIOD_S = 0.02


def test_every_command_that_is_sent_is_counted_also_one_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nvme0").write_bytes(b"")
    device = NvmeAdmin("nvme0", tmp_path)
    ADMIN_COST.reset()
    with pytest.raises(PowerError):
        device.submit(get_command(0x02))
    monkeypatch.setattr(fcntl, "ioctl", lambda *_: 0)
    device.submit(get_command(0x02))
    device.close()
    assert ADMIN_COST.count == 2
    assert 0 < ADMIN_COST.max_ns <= ADMIN_COST.total_ns
    ADMIN_COST.reset()


def test_cost_of_a_run_without_rounds_or_commands_has_reasons() -> None:
    record = CostMeter().record(host="h", period_s=0.1, schedule=Schedule(0.1, 0))
    assert (record.tick_mean_s, record.admin_mean_s) == (None, None)
    assert record.missing["admin_mean_s"] == "no admin command was sent"
    assert record.missing["tick_max_s"] == "nothing was sampled"
    assert record.admin_commands_per_s == 0


def test_rounds_and_missed_deadlines_are_in_the_cost() -> None:
    meter, schedule = CostMeter(), Schedule(0.1, 0)
    for start_ns, end_ns in ((0, 10_000_000), (100_000_000, 350_000_000)):
        meter.add_tick(start_ns, end_ns)
        schedule.advance(end_ns)
    ADMIN_COST.add(2_000_000)
    record = meter.record(host="h", period_s=0.1, schedule=schedule)
    ADMIN_COST.reset()
    assert (record.tick_count, record.missed_tick_count) == (2, 2)
    assert (record.tick_mean_s, record.tick_max_s) == (0.13, 0.25)
    assert (record.admin_command_count, record.admin_mean_s, record.admin_max_s) == (
        1,
        0.002,
        0.002,
    )


def test_quiet_does_not_dilute_what_is_reported_per_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0, 0.0]
    monkeypatch.setattr(time, "monotonic_ns", lambda: round(clock[0] * NS_PER_S))
    monkeypatch.setattr(time, "process_time", lambda: clock[1])
    meter = CostMeter(is_quiet=True)
    clock[:] = 60, 0.5
    meter.add_tick(0, NS_PER_S)
    meter.quiet(is_on=False)
    meter.add_tick(0, 2_000_000)
    clock[:] = 100, 0.9
    for _ in range(800):
        ADMIN_COST.add(1_000_000)
    meter.quiet(is_on=True)
    clock[:] = 160, 1.5
    record = meter.record(host="h", period_s=0.1, schedule=Schedule(0.1, 0))
    ADMIN_COST.reset()
    assert (record.seconds, record.quiet_s, record.cpu_s) == (160, 120, 1.5)
    assert record.admin_commands_per_s == 20
    assert record.cpu_share == pytest.approx(0.4 / 40)
    assert (record.tick_mean_s, record.tick_max_s) == (0.002, 0.002)


def test_finish_reports_what_the_run_has_cost(bench: Bench) -> None:
    client = bench.opened(PowerConfig(period_s=PERIOD_S))
    client.start()
    wait_for(lambda: bench.round_count() >= 3)
    finished = client.finish()
    assert finished.cost is not None
    assert finished.cost.tick_count >= 3
    assert finished.cost.period_s == PERIOD_S
    assert finished.cost.cpu_s > 0
    assert finished.cost.cpu_share == pytest.approx(finished.cost.cpu_s / finished.cost.seconds)


def test_run_that_was_never_sampled_has_cost_nothing(bench: Bench) -> None:
    assert bench.opened(PowerConfig(period_s=PERIOD_S)).finish().cost is None


def test_overrun_of_a_meter_is_in_the_report_and_the_others_go_on(bench: Bench) -> None:
    with qis(Module(), real_time=True) as mock:
        meter = QuarchConfig(module=MODULE, port=mock.port)
        client = bench.opened(PowerConfig(source="quarch", period_s=PERIOD_S, quarch=meter))
        client.start()
        wait_for(lambda: bench.round_count() > 5)
        mock.state = "Stopped: Overrun"
        seen = bench.round_count()
        wait_for(lambda: bench.round_count() > seen + 3)
        finished = client.finish()
    (lost,) = finished.data_lost
    assert (lost.source, lost.scope) == ("quarch", Scope.DRIVE)
    assert "Stopped: Overrun" in lost.sentence
    samples = list(read_samples(bench.samples))
    assert {s.channel for s in samples if s.source == "quarch"} == {
        Channel.ENERGY_J,
        Channel.MIN_W,
        Channel.MAX_W,
    }
    assert {s.source for s in samples[-4:]} >= {"nvme"}
