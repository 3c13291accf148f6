"""``wattload power calibrate``: what it prints and keeps, and what it refuses in one sentence."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from wattload.cli import calibrate as command
from wattload.cli.doctor import meter_calibrated
from wattload.cli.power import add_arguments, run
from wattload.core.errors import ConfigError, PowerError
from wattload.core.power import (
    Boxcar,
    Channel,
    Evidence,
    PowerSource,
    Sample,
    Scope,
    Sensor,
    SourceFacts,
    WindowEnergy,
)
from wattload.core.units import NS_PER_S
from wattload.power.config import PowerConfig
from wattload.power.control.calibrations import CalibrationCache
from wattload.power.control.host import PowerHost
from wattload.power.control.journal import ChangeJournal
from wattload.power.sources import hwmon
from wattload.power.sources.base import PowerDevice
from wattload.run.pulses import KnownLoad, PulsePlan


class Meter:
    """A meter of a drive that shows 5 W."""

    def __init__(self, device: PowerDevice, sensor: Sensor) -> None:
        self._facts = SourceFacts(
            name="hwmon",
            device=device.key,
            device_name=device.name,
            scope=Scope.DRIVE,
            evidence=Evidence.MEASURED,
            sensor=sensor,
            period_s=0.1,
        )

    def facts(self) -> SourceFacts:
        return self._facts

    def open(self) -> None:
        pass

    def start(self) -> None:
        pass

    def read(self) -> Sequence[Sample]:
        return (self.sample(time.monotonic_ns(), 5.0),)

    def sample(self, time_ns: int, watts: float) -> Sample:
        return Sample(
            time_ns=time_ns,
            spread_ns=0,
            source=self._facts.name,
            device=self._facts.device,
            channel=Channel.POWER_W,
            value=watts,
            evidence=Evidence.MEASURED,
        )

    def stop(self) -> Sequence[WindowEnergy]:
        return ()

    def restore(self) -> None:
        pass

    def close(self) -> None:
        pass


def simulated(
    plan: PulsePlan, sources: Sequence[PowerSource], files: Sequence[Path], period_s: float
) -> tuple[KnownLoad, list[Sample]]:
    """Return a load as planned, and readings of 5 W and 9 W that are a mean over 0.5 s."""
    assert files
    load = KnownLoad(
        utc="2026-01-01T00:00:00+00:00",
        origin_ns=0,
        end_ns=round(plan.seconds * NS_PER_S),
        pulses=tuple((round(s * NS_PER_S), round(e * NS_PER_S)) for s, e in plan.pulses),
        train=tuple((round(s * NS_PER_S), round(e * NS_PER_S)) for s, e in plan.train),
    )
    samples = []
    for source in sources:
        assert isinstance(source, Meter)
        for number, time_ns in enumerate(range(0, load.end_ns, NS_PER_S // 10)):
            since_ns = time_ns - NS_PER_S // 2
            on_ns = sum(
                max(0, min(end_ns, time_ns) - max(start_ns, since_ns))
                for start_ns, end_ns in (*load.pulses, *load.train)
            )
            watts = 5.0 + 8.0 * on_ns / NS_PER_S + 0.01 * (number % 3)
            samples.append(source.sample(time_ns, watts))
    return load, samples


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PowerHost:
    monkeypatch.setenv("WATTLOAD_STATE_DIR", str(tmp_path / "state"))
    use_meter(monkeypatch, Boxcar(window_s=0.5))
    monkeypatch.setattr(command, "measure", simulated)
    monkeypatch.setattr(command, "SETTLE_S", 0.0)
    monkeypatch.setattr(command, "FILE_BYTES", 8 << 20)
    return PowerHost(
        journal=ChangeJournal(tmp_path / "state"), name="box", list_names=lambda: ["nvme0"]
    )


def use_meter(monkeypatch: pytest.MonkeyPatch, sensor: Sensor) -> None:
    def find(devices: Sequence[PowerDevice], config: PowerConfig) -> Sequence[PowerSource]:
        return [Meter(device, sensor) for device in devices]

    monkeypatch.setattr(hwmon, "find", find)


def power(host: PowerHost, *words: str) -> int:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run(parser.parse_args(["calibrate", *words]), host)


def test_chart_is_beside_the_declared_and_the_file_is_removed(
    host: PowerHost, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "target"
    target.mkdir()
    assert power(host, f"target.path={target}", "power=hwmon") == 0
    printed = capsys.readouterr()
    assert "0.5" in printed.out.splitlines()[0]
    assert "s mean" in printed.out.splitlines()[0]
    assert "calibrated" in printed.out.splitlines()[0]
    row = next(line for line in printed.out.splitlines() if "delay (tau)" in line)
    assert [float(word) for word in row.split() if word.startswith("0.")][:2] == pytest.approx(
        [0.25, 0.25], abs=0.02
    )
    assert "####" in printed.out
    assert "removed afterwards" in printed.err
    assert list(target.iterdir()) == []
    assert meter_calibrated(CalibrationCache(), "2026-01-01T00:12:00+00:00")[1].endswith(
        "s late, calibrated 12 min before"
    )
    (stored,) = CalibrationCache().all()
    assert stored.record.source == "hwmon"
    assert stored.record.run_id == ""


def test_json_has_the_sensor_and_the_response(
    host: PowerHost, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert power(host, f"target.path={tmp_path}", "power=hwmon", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["sensor"]["basis"] == "calibrated"
    assert document["sensor"]["tau_s"] == pytest.approx(0.25, abs=0.01)
    assert document["declared"]["tau_s"] == pytest.approx(0.25)
    assert len(document["response"]["time_s"]) == len(document["response"]["share"])
    assert document["key"]["host"] == "box"


def test_meter_that_shows_no_load_is_not_calibrated(
    host: PowerHost,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def constant(plan: PulsePlan, *others: object) -> tuple[KnownLoad, list[Sample]]:
        load, samples = simulated(plan, *others)  # type: ignore[arg-type]
        meter = Meter(
            PowerDevice(key=samples[0].device, name="", is_nvme=False), Boxcar(window_s=1)
        )
        return load, [meter.sample(each.time_ns, 5.0) for each in samples]

    assert power(host, f"target.path={tmp_path}", "power=hwmon") == 0
    capsys.readouterr()
    (kept,) = CalibrationCache().all()
    monkeypatch.setattr(command, "measure", constant)
    assert power(host, f"target.path={tmp_path}", "power=hwmon") == 1
    printed = capsys.readouterr().out
    assert "not calibrated" in printed
    assert "   calibrated" not in printed  # no head of a table without rows
    assert CalibrationCache().all() == [kept]


def test_slow_meter_is_refused_before_anything_is_written(
    host: PowerHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_meter(monkeypatch, Boxcar(window_s=30.0))
    with pytest.raises(PowerError, match="hwmon is too slow: its pulses would take longer"):
        power(host, f"target.path={tmp_path}", "power=hwmon")
    assert not (tmp_path / "wattload-data").exists()


def test_bad_input_is_one_sentence(host: PowerHost, tmp_path: Path) -> None:
    with pytest.raises(PowerError, match="no sensor measures the drive"):
        power(host, f"target.path={tmp_path}", "power=none")
    with pytest.raises(ConfigError, match="nvme7"):
        power(host, "nvme7")
    with pytest.raises(ConfigError, match="not both"):
        power(host, "nvme0", "power=hwmon")
    with pytest.raises(ConfigError, match="power set"):
        power(host, f"target.path={tmp_path}", "power=hwmon", "power.state=1")
    with pytest.raises(ConfigError, match=r"can't be calibrated: use power.replay.align=wall or"):
        power(host, f"target.path={tmp_path}", "power=replay", "power.replay.path=a.csv")
    with pytest.raises(ConfigError, match="target=block"):
        power(host, "target=block", "target.path=/dev/null", "power=hwmon")


def test_meter_is_read_while_the_drive_is(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(8 << 20))
    device = PowerDevice(key="S1", name="vda", is_nvme=False)
    plan = PulsePlan(
        sources=(), pulses=((0.05, 0.1),), train=((0.15, 0.2), (0.25, 0.3)), settle_s=0.1
    )
    meter = Meter(device, Boxcar(window_s=0.5))
    load, samples = command.measure(plan, [meter], [path], 0.02)
    assert len(load.pulses) == 1
    assert samples
    with pytest.raises(PowerError, match="could not be read"):
        command.measure(plan, [meter], [tmp_path], 0.02)


def test_interruption_ends_the_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(8 << 20))
    meter = Meter(PowerDevice(key="S1", name="vda", is_nvme=False), Boxcar(window_s=0.5))

    def interrupted() -> Sequence[Sample]:
        raise KeyboardInterrupt

    monkeypatch.setattr(meter, "read", interrupted)
    # A load that is not ended would last for a day.
    plan = PulsePlan(sources=(), pulses=((0.0, 0.1),), train=((86400.0, 86400.1),), settle_s=0.1)
    with pytest.raises(KeyboardInterrupt):
        command.measure(plan, [meter], [path], 0.02)
