"""Facts and windows for the tests of the account."""

from __future__ import annotations

from collections.abc import Sequence

from tests.power.energy_traces import ns
from wattload.core.power import Accuracy, Evidence, Instant, Scope, Sensor, SourceFacts
from wattload.core.record.phase import PhaseWindow
from wattload.power.energy.activity import Activity, RunTimes
from wattload.power.energy.integration import Window


def facts(
    name: str,
    evidence: Evidence = Evidence.SELF_REPORTED,
    sensor: Sensor | None = None,
    *,
    device: str = "SERIAL1",
    scope: Scope = Scope.DRIVE,
    accuracy_percent: float | None = None,
    resolution_w: float | None = 0.01,
    range_w: float | None = None,
) -> SourceFacts:
    return SourceFacts(
        name=name,
        device=device,
        device_name="nvme0",
        scope=scope,
        evidence=evidence,
        sensor=Instant() if sensor is None else sensor,
        period_s=0.1,
        resolution_w=resolution_w,
        accuracy=None if accuracy_percent is None else Accuracy(reading_percent=accuracy_percent),
        range_w=range_w,
    )


def window(
    name: str, start_s: float, end_s: float, *, timed: bool = True, host: str = "host1"
) -> PhaseWindow:
    return PhaseWindow(
        name=name,
        host=host,
        timed=timed,
        start_ns=ns(start_s),
        end_ns=ns(end_s),
        seconds=end_s - start_s,
        active_s=end_s - start_s,
        start_spread_s=0,
        end_spread_s=0,
        rank_count=1,
        read_bytes=0,
        written_bytes=0,
        operations=0,
        cpu_s=0,
        intervals=((ns(start_s), ns(end_s)),),
    )


def times_of(
    *windows: PhaseWindow,
    before: Window | None = None,
    after: Window | None = None,
    rests: Sequence[Window] = (),
    others: Sequence[Activity] = (),
    loads: Sequence[Window] = (),
) -> RunTimes:
    """Return the times of a run with some phases, other activity and loads that calibrate."""
    activity = [
        Activity(start_ns=start_ns, end_ns=end_ns, name=each.name)
        for each in windows
        for start_ns, end_ns in each.intervals
    ]
    return RunTimes(
        activity=[*activity, *others], loads=loads, before=before, after=after, rests=rests
    )
