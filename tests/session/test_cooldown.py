"""The wait for drives to cool: on made-up thermometers, by a clock that does not run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.context import NoReporter, process_of
from tests.data.sysfs.tree import expand
from tests.records import Scenario, make_run
from wattload.core.record.run import RunStart
from wattload.core.storage.targets import Target, resolve_targets
from wattload.core.units import NS_PER_S
from wattload.run.ranks import LocalCommunicator
from wattload.session.interleaving import POLL_S, Cooldown, DriveTemperature, read_temperatures


@dataclass
class Bench:
    """A drive that tells one temperature after the other, and the last one for ever."""

    readings: list[int | None]
    now_s: float = 0.0
    slept: list[float] = field(default_factory=list)
    reporter: NoReporter = field(default_factory=NoReporter)

    def read(self, targets: Sequence[Target], host: str) -> Sequence[DriveTemperature]:
        assert (targets, host) == ((), "box")
        kelvin = self.readings[0] if len(self.readings) == 1 else self.readings.pop(0)
        reason = "" if kelvin is not None else "no thermometer"
        return [DriveTemperature(host="box", serial="S1", temperature_k=kelvin, reason=reason)]

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds

    def clock_ns(self) -> int:
        return int(self.now_s * NS_PER_S)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench([310])
    monkeypatch.setattr("wattload.session.interleaving.time.sleep", made.sleep)
    monkeypatch.setattr("wattload.session.interleaving.time.monotonic_ns", made.clock_ns)
    return made


def session(bench: Bench, limit_s: float = 900.0) -> Cooldown:
    return Cooldown(process_of(LocalCommunicator(), bench.reporter), limit_s, bench.read)


def start_of(found: RunStart) -> tuple[int | None, int | None]:
    (drive,) = found.drives
    return drive.temperature_k, drive.reference_k


def test_the_first_run_sets_what_later_ones_wait_for(bench: Bench) -> None:
    waits = session(bench)
    assert start_of(waits.wait(())) == (310, 310)
    bench.readings = [330, 320, 313]
    found = waits.wait(())
    assert start_of(found) == (313, 310)
    assert found.waited_s == sum(bench.slept) == 2 * POLL_S


def test_a_drive_within_three_degrees_is_not_waited_for(bench: Bench) -> None:
    waits = session(bench)
    waits.wait(())
    bench.readings = [313]
    assert waits.wait(()).waited_s == 0.0
    assert bench.slept == []


def test_a_colder_drive_is_not_waited_for_as_rest_warms_none(bench: Bench) -> None:
    waits = session(bench)
    waits.wait(())
    bench.readings = [290]
    found = waits.wait(())
    assert (found.waited_s, start_of(found)) == (0.0, (290, 310))


def test_a_limit_ends_the_wait_and_is_reported(
    bench: Bench,
) -> None:
    waits = session(bench, limit_s=12.0)
    waits.wait(())
    bench.readings = [340]
    found = waits.wait(())
    assert (found.waited_s, found.limit_s, start_of(found)) == (12.0, 12.0, (340, 310))
    notes = "\n".join(bench.reporter.notes)
    assert "30 °C warmer than at the session's first run: waiting, 12 s at most" in notes
    assert "the limit of 12 s has passed, continuing" in notes


def test_no_limit_is_no_wait(bench: Bench) -> None:
    waits = session(bench, limit_s=0.0)
    waits.wait(())
    bench.readings = [340]
    assert waits.wait(()).waited_s == 0.0
    assert bench.slept == []


def test_an_unknown_temperature_is_a_gap_with_its_reason_said_once(
    bench: Bench,
) -> None:
    bench.readings = [None]
    waits = session(bench)
    for _ in range(3):
        (drive,) = waits.wait(()).drives
        assert drive.temperature_k is None
        assert drive.missing == {"temperature_k": "no thermometer", "reference_k": "no thermometer"}
    assert "\n".join(bench.reporter.notes).count("no thermometer") == 1


def test_a_temperature_that_comes_late_is_the_reference(bench: Bench) -> None:
    waits = session(bench)
    bench.readings = [None, 320, 321]
    waits.wait(())
    assert start_of(waits.wait(())) == (320, 320)
    assert start_of(waits.wait(())) == (321, 320)


def test_a_session_that_goes_on_keeps_its_reference(bench: Bench) -> None:
    first = session(bench).wait(())
    record, _ = make_run(Scenario())
    comparison = record.comparison.model_copy(update={"start": first})
    later = session(bench)
    later.recall(record)  # a run of no session tells nothing
    later.recall(record.model_copy(update={"comparison": comparison}))
    bench.readings = [330, 312]
    found = later.wait(())
    assert (found.waited_s, start_of(found)) == (POLL_S, (312, 310))


class TwoHosts(LocalCommunicator):
    """Rank 0 of two; the other host's drive is the hot one, until it is not."""

    def __init__(self, other: list[int]) -> None:
        self.other = other

    def gather(self, value: Any) -> list[Any]:
        kelvin = self.other[0] if len(self.other) == 1 else self.other.pop(0)
        return [value, [DriveTemperature(host="far", serial="S2", temperature_k=kelvin)]]


def test_the_hottest_drive_of_all_hosts_is_waited_for(bench: Bench) -> None:
    waits = Cooldown(process_of(TwoHosts([300, 310, 301])), 900.0, bench.read)
    waits.wait(())
    found = waits.wait(())
    assert found.waited_s == POLL_S
    assert [(d.host, d.temperature_k, d.reference_k) for d in found.drives] == [
        ("box", 310, 310),
        ("far", 301, 300),
    ]


def test_temperatures_are_those_of_the_drives_under_the_target(tmp_path: Path) -> None:
    roots = expand("lvm_md_nvme", tmp_path / "machine", tmp_path)
    targets = resolve_targets([tmp_path], host="box", roots=roots)
    found = read_temperatures(targets, "box", roots)
    assert [(each.temperature_k, each.reason) for each in found] == [(323, ""), (323, "")]
    assert len({each.serial for each in found}) == 2


def test_a_kernel_that_shows_no_temperature_is_named_as_the_reason(tmp_path: Path) -> None:
    roots = expand("gen5_in_gen4_slot", tmp_path / "machine", tmp_path)
    targets = resolve_targets([tmp_path], host="box", roots=roots)
    (found,) = read_temperatures(targets, "box", roots)
    assert (found.temperature_k, found.serial) == (None, "S7ABCD0X000001")
    assert "no temperature for nvme0" in found.reason
