"""The idle baselines, the rest and a lost sampler, with a client that says what a test decides."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from tests.power.control.recovery_host import LEFT
from tests.power.energy_facts import facts
from tests.power.energy_traces import traces
from tests.run.test_energy import section_of
from wattload.core.errors import PowerError
from wattload.core.host.counters import BlockStat, ProcessTree
from wattload.core.power import Boxcar, Channel, Evidence, Instant, Sample, Scope, Sensor
from wattload.core.record.energy import PowerSourceRecord
from wattload.core.record.phase import phase_windows
from wattload.core.units import NS_PER_S
from wattload.power.config import PowerConfig
from wattload.power.control.calibrations import SessionCalibrations
from wattload.power.control.journal import ChangeJournal
from wattload.power.sampler.client import SamplerClient
from wattload.power.sampler.protocol import FinishReply, OpenReply
from wattload.power.sampler.samples import SampleFile, SampleLines, read_samples
from wattload.run import power_session
from wattload.run.energy import HostTraces, energy_of_host, power_section
from wattload.run.phases import PhaseRecorder
from wattload.run.power_session import IdleTimes, PowerReport, PowerSession, Sampling

SAMPLES = "samples-box.jsonl"


class Client:
    """Answers as a sampler does; its trace calms down in the rest."""

    def __init__(
        self, folder: Path, evidence: Evidence, sensor: Sensor | None, *, lost: bool
    ) -> None:
        self._folder = folder
        self._lost = lost
        self.source = facts("meter", evidence, sensor, accuracy_percent=1.0)
        self.quiet_calls: list[bool] = []
        self.started_ns = 0

    def open(self, run_id: str, config: PowerConfig, **devices: Any) -> OpenReply:
        source = PowerSourceRecord(
            host="box", facts=self.source, name="meter", device="SERIAL1", used=True, sentence="-"
        )
        return OpenReply(
            host="box",
            choice="a meter",
            sources=(source,),
            states=(),
            controllers={},
            recovered=("PS1 was left by an earlier run",),
        )

    def start(self) -> None:
        """Write a trace of ten seconds: 5 W when idle, 20 W when busy."""
        import os

        now_ns = self.started_ns = time.monotonic_ns()
        descriptor = os.open(self._folder / SAMPLES, os.O_WRONLY | os.O_CREAT)
        file = SampleFile(descriptor, host="box", period_s=0.1)
        for step in range(100):
            time_ns = now_ns - NS_PER_S // 2 + step * NS_PER_S // 10
            busy = now_ns + 6 * NS_PER_S // 10 < time_ns < now_ns + 11 * NS_PER_S // 10
            file.write(
                SampleLines().of(
                    [
                        Sample(
                            time_ns=time_ns,
                            spread_ns=0,
                            source="meter",
                            device="SERIAL1",
                            channel=Channel.POWER_W,
                            value=20.0 if busy else 5.0,
                            evidence=Evidence.MEASURED,
                        )
                    ]
                )
            )
        file.close()

    def quiet(self, *, is_on: bool) -> None:
        self.quiet_calls.append(is_on)

    def finish(self) -> FinishReply:
        if self._lost:
            raise PowerError("the sampler ended")
        return FinishReply(
            states=(),
            controllers={},
            own_energies=(),
        )


class Sampler:
    """Hands out the client and notes what became of it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.said = client
        self.recovered: list[str] = []
        self.calibrations = SessionCalibrations()

    def client(self) -> SamplerClient:
        return cast("SamplerClient", self._client)

    def lost(self, run_id: str) -> None:
        self.recovered.append(run_id)

    def note(self, text: str) -> None:
        print(text, file=sys.stderr)


@pytest.fixture(autouse=True)
def _short_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most tests don't need what a trace must have around its phases."""
    monkeypatch.setattr(power_session, "LEAD_S", 0.0)


def _recorder() -> PhaseRecorder:
    stats: Mapping[str, BlockStat] = {}
    return PhaseRecorder(host="box", rank=0, tree=ProcessTree(), read_stats=lambda: stats)


def _samples(folder: Path, report: PowerReport) -> HostTraces:
    """Return what the sampler has written, as traces."""
    return traces(read_samples(folder / str(report.samples_file)))


def _session(folder: Path, sampler: Sampler, **config: Any) -> PowerSession:
    return PowerSession.open(
        cast("Sampling", sampler),
        PowerConfig(**config),
        folder,
        host="box",
        devices=["nvme0"],
        block_devices=[],
    )


def _opened_session(folder: Path, evidence: Evidence, **config: Any) -> PowerSession:
    return _session(folder, Sampler(Client(folder, evidence, None, lost=False)), **config)


def _live(
    folder: Path,
    evidence: Evidence,
    *,
    lost: bool = False,
    sensor: Sensor | None = None,
    **config: Any,
) -> tuple[PhaseRecorder, PowerReport, Sampler]:
    client = Client(folder, evidence, sensor, lost=lost)
    recorder, sampler = _recorder(), Sampler(client)
    power = _session(folder, sampler, **config)
    power.up(recorder, ())
    with recorder.phase("work") as phase:
        # The trace is written in advance, so work ends where its power has begun to count.
        time.sleep(max(0.0, 0.9 - (time.monotonic_ns() - client.started_ns) / NS_PER_S))
        phase.moved(read_bytes=1000)
    ended_ns = recorder.last_timed_end_ns()
    assert ended_ns is not None
    power.rest(recorder, ended_ns)
    with recorder.phase("ceiling", timed=False):
        pass
    return recorder, power.down(recorder), sampler


def test_a_measuring_source_gets_its_idle_baselines_and_a_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorder, report, _ = _live(
        tmp_path, Evidence.MEASURED, idle_s=0.2, rest_max_s=1.0, idle_after_s=1.1
    )
    assert "PS1 was left by an earlier run" in capsys.readouterr().err
    windows = phase_windows([item.span for item in recorder.spans])
    assert [(w.name, w.timed) for w in windows] == [
        ("idle", False),
        ("work", True),
        ("rest", False),
        ("idle_after", False),
        ("ceiling", False),
    ]
    work, rest = windows[1:3]
    assert rest.intervals == ((work.end_ns, work.end_ns + NS_PER_S),)
    assert report.times.rest_s == 1.0
    assert report.times.idle_after_s == pytest.approx(0.1)
    section = section_of(report, windows, _samples(tmp_path, report), recorder.traffic_of_phases())
    energy = next(each for each in section.energy if each.phase == "work")
    assert energy.idle_w == pytest.approx(5.0, rel=0.2)
    assert energy.energy_j is not None
    assert energy.net_j is not None
    assert 5.0 * energy.seconds < energy.energy_j < 20.0 * energy.seconds
    idle = {(each.moment, each.polled): each for each in section.idle}
    assert set(idle) == {("before", True), ("after", True)}
    assert idle["after", True].mean_w == pytest.approx(5.0, rel=0.05)
    (whole,) = section.whole_run
    assert whole.energy_j is not None
    assert whole.energy_j > energy.energy_j


@pytest.mark.parametrize("evidence", [Evidence.BOUNDS, Evidence.DECLARED])
def test_a_source_that_measures_nothing_has_neither(tmp_path: Path, evidence: Evidence) -> None:
    recorder, report, _ = _live(tmp_path, evidence)
    assert [item.span.name for item in recorder.spans] == ["work", "ceiling"]
    assert report.times == IdleTimes(idle_s=0.0, rest_s=0.0, idle_after_s=0.0, quiet_s=0.0)


def test_a_lost_sampler_is_reported_and_its_state_recovered(tmp_path: Path) -> None:
    recorder, report, sampler = _live(tmp_path, Evidence.BOUNDS, lost=True)
    assert (report.finished, report.lost) == (None, "the sampler ended")
    assert sampler.recovered == [tmp_path.name]
    windows = phase_windows([item.span for item in recorder.spans])
    section = section_of(report, windows, {})
    assert "the sampler was lost" in section.choice
    (energy,) = section.energy
    assert energy.missing["energy_j"] == "meter has no samples"


def test_what_this_run_had_set_is_recovered_after_its_sampler_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WATTLOAD_STATE_DIR", str(tmp_path))
    ChangeJournal(tmp_path).write(LEFT)  # of a drive that this machine does not have
    sampling = Sampling(tmp_path, None)
    sampling.lost("another-run")
    assert capsys.readouterr().err == ""
    sampling.lost(LEFT.run_id)
    assert "no controller with this serial" in capsys.readouterr().err


def test_what_a_lost_sampler_has_written_is_used(tmp_path: Path) -> None:
    recorder, report, _ = _live(tmp_path, Evidence.MEASURED, lost=True, idle_s=0.2, rest_max_s=0)
    windows = phase_windows([item.span for item in recorder.spans])
    written = list(read_samples(tmp_path / str(report.samples_file)))
    ends_ns = next(window.end_ns for window in windows if window.name == "work")
    samples, early = (
        traces(each) for each in (written, [s for s in written if s.time_ns < ends_ns - 80_000_000])
    )
    for known, has_figure in ((samples, True), (early, False)):
        section = section_of(report, windows, known)
        (work,) = [energy for energy in section.energy if energy.phase == "work"]
        assert (work.energy_j is not None) == has_figure
        assert work.coverage is not None
        assert (work.coverage == 1) == has_figure


def test_a_drive_is_left_alone_in_the_quiet_before_and_after(tmp_path: Path) -> None:
    recorder, report, sampler = _live(
        tmp_path, Evidence.SELF_REPORTED, idle_s=0.2, quiet_s=0.1, rest_max_s=0.1
    )
    assert sampler.said.quiet_calls == [True, True, False, True, False]
    windows = phase_windows([item.span for item in recorder.spans])
    names = [window.name for window in windows]
    assert names == ["quiet", "idle", "work", "rest", "idle_after", "ceiling", "quiet_after"]
    section = section_of(report, windows, _samples(tmp_path, report))
    assert {(idle.moment, idle.polled) for idle in section.idle} == {
        ("before", False),
        ("before", True),
        ("after", False),
        ("after", True),
    }


@pytest.mark.parametrize(
    ("evidence", "sensor", "waits"),
    [
        (Evidence.SELF_REPORTED, Boxcar(window_s=1.0), [7.0, 2.2, True, 3.0, False]),
        (Evidence.SELF_REPORTED, Instant(), [7.0, 0.2, True, 3.0, False]),
        (Evidence.MEASURED, Boxcar(window_s=1.0), [7.0, 2.2]),
        (Evidence.MEASURED, Boxcar(window_s=0.5, update_period_s=2.0), [7.0, 4.2]),
        (Evidence.MEASURED, Instant(), [7.0]),
    ],
)
def test_means_are_read_for_two_windows_beyond_the_last_idle_time(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    evidence: Evidence,
    sensor: Sensor,
    waits: list[float | bool],
) -> None:
    events: list[float | bool] = []
    monkeypatch.setattr(time, "sleep", events.append)
    monkeypatch.setattr(Client, "quiet", lambda _, *, is_on: events.append(is_on))
    config: dict[str, Any] = {"idle_s": 0.2, "idle_after_s": 7.0, "quiet_s": 3.0, "rest_max_s": 0}
    _live(tmp_path, evidence, sensor=sensor, **config)
    slept = [event for event in events[events.index(7.0) :] if event is False or event > 0]
    assert slept == pytest.approx(waits, abs=0.05)


def test_phases_have_a_trace_on_both_sides_whatever_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(power_session, "LEAD_S", 0.4)
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    _live(tmp_path, Evidence.MEASURED, idle_s=0, rest_max_s=0)
    before, _work, after = [seconds for seconds in slept if seconds]
    assert before == 0.4
    assert after == pytest.approx(0.4, abs=0.1)


def _opened(
    *evidence: Evidence,
    used: bool = True,
    is_recorded: bool = False,
    scope: Scope = Scope.DRIVE,
) -> OpenReply:
    return OpenReply(
        host="box",
        choice="-",
        sources=tuple(
            PowerSourceRecord(
                host="box",
                facts=facts(each, each).model_copy(
                    update={"is_recorded": is_recorded, "scope": scope}
                ),
                name=each,
                device="SERIAL1",
                used=used,
                sentence="-",
            )
            for each in evidence
        ),
        states=(),
        controllers={},
        recovered=(),
    )


@pytest.mark.parametrize(
    ("opened", "settings", "times"),
    [
        (_opened(Evidence.BOUNDS), {}, (0, 0, 0, 0)),
        (_opened(Evidence.MEASURED), {}, (60, 30, 30, 0)),
        (_opened(Evidence.MEASURED, Evidence.BOUNDS), {}, (60, 30, 30, 60)),
        (_opened(Evidence.SELF_REPORTED), {}, (60, 30, 30, 60)),
        (_opened(Evidence.SELF_REPORTED), {"idle_s": 5}, (5, 30, 0, 5)),
        (_opened(Evidence.SELF_REPORTED), {"idle_s": 0}, (0, 30, 0, 0)),
        (_opened(Evidence.SELF_REPORTED), {"idle_after_s": 37, "quiet_s": 0}, (60, 30, 7, 0)),
        (_opened(Evidence.SELF_REPORTED), {"rest_max_s": 0}, (60, 0, 60, 60)),
        (_opened(Evidence.SELF_REPORTED, used=False), {}, (0, 0, 0, 0)),
        (_opened(Evidence.DECLARED), {"idle_s": 3}, (3, 0, 0, 0)),
        (_opened(Evidence.SELF_REPORTED, scope=Scope.GPU), {}, (0, 0, 0, 0)),
        (_opened(Evidence.SELF_REPORTED, is_recorded=True), {}, (60, 30, 30, 0)),
    ],
)
def test_idle_is_waited_for_only_where_it_is_used(
    opened: OpenReply, settings: dict[str, Any], times: tuple[float, float, float, float]
) -> None:
    found = IdleTimes.of(PowerConfig(**settings), opened)
    assert (found.idle_s, found.rest_s, found.idle_after_s, found.quiet_s) == times


def test_a_rest_is_counted_from_the_end_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a workload takes to close is in it, so that it is as long in all runs."""
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    power, recorder = _opened_session(tmp_path, Evidence.MEASURED, rest_max_s=30), _recorder()
    ended_ns = time.monotonic_ns() - 20 * NS_PER_S
    power.rest(recorder, ended_ns)
    (rest, _) = recorder.spans
    assert (rest.span.start_ns, rest.span.end_ns) == (ended_ns, ended_ns + 30 * NS_PER_S)
    assert slept == [pytest.approx(10, abs=1), 30]


def test_a_rest_that_is_interrupted_is_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    power, recorder = _opened_session(tmp_path, Evidence.MEASURED), _recorder()
    monkeypatch.setattr(time, "sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        power.rest(recorder, time.monotonic_ns())
    assert recorder.spans == []


def _host_report(host: str, *, lost: str | None = None) -> PowerReport:
    return PowerReport(
        host=host,
        devices=("nvme0",),
        opened=_opened(Evidence.BOUNDS).model_copy(update={"host": host, "choice": f"of {host}"}),
        finished=None,
        lost=lost,
        samples_file=None,
        times=IdleTimes(idle_s=5.0, rest_s=3.0, idle_after_s=0.0, quiet_s=0.0),
    )


def test_every_host_of_a_run_is_reported() -> None:
    reports = [_host_report("a"), _host_report("b", lost="it was killed")]
    config = PowerConfig()
    of_hosts = [energy_of_host(config, report, [], {}, []) for report in reports]
    section = power_section(config, of_hosts)
    assert [host.host for host in section.hosts] == ["a", "b"]
    assert section.choice == "a: of a b: the sampler was lost: it was killed; of b"
    assert (section.idle_s, section.rest_s) == (5.0, 3.0)
