"""The idle baseline, the tail and a lost sampler, with a client that says what the test decides."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from tests.power.energy_facts import facts
from wattload.core.blockstat import BlockStat
from wattload.core.errors import PowerError
from wattload.core.power import Channel, Evidence, Sample
from wattload.core.record.energy import PowerSourceRecord
from wattload.core.units import NS_PER_S
from wattload.life.account import power_section, read_all
from wattload.life.cpu import ProcessTree
from wattload.life.phases import PhaseRecorder
from wattload.life.powering import Powering, PowerReport
from wattload.life.sampling import Sampling
from wattload.life.windows import phase_windows
from wattload.power.client import SamplerClient
from wattload.power.config import PowerConfig
from wattload.power.sampler.reports import FinishReport, OpenReport
from wattload.power.samples import SampleFile

SAMPLES = "samples-box.jsonl"


class Client:
    """Answers as a sampler does; its trace calms down in the tail, or never does."""

    def __init__(self, folder: Path, evidence: Evidence, *, lost: bool, calms: bool) -> None:
        self._folder = folder
        self._lost = lost
        self._calms = calms
        self.source = facts("meter", evidence, accuracy_percent=1.0)

    def open(self, config: PowerConfig, **devices: object) -> OpenReport:
        source = PowerSourceRecord(
            host="box", facts=self.source, name="meter", device="SERIAL1", used=True, sentence="-"
        )
        return OpenReport(
            host="box",
            choice="a meter",
            sources=(source,),
            states=(),
            controllers={},
            leftovers=("PS1 was left by an earlier run",),
            not_counted={},
        )

    def start(self) -> None:
        """Write a trace of ten seconds: 5 W when idle, 20 W when busy."""
        import os

        now_ns = time.monotonic_ns()
        descriptor = os.open(self._folder / SAMPLES, os.O_WRONLY | os.O_CREAT)
        file = SampleFile(descriptor, host="box", period_s=0.1)
        for step in range(100):
            time_ns = now_ns - NS_PER_S // 2 + step * NS_PER_S // 10
            ends_ns = now_ns + (7 if self._calms else 700) * NS_PER_S // 10
            busy = now_ns + 2 * NS_PER_S // 10 < time_ns < ends_ns
            file.write(
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
        file.close()

    def finish(self) -> FinishReport:
        if self._lost:
            raise PowerError("the sampler ended")
        return FinishReport(
            host="box",
            samples_file=SAMPLES,
            states=(),
            controllers={},
            own_energies=(),
            tick_count=100,
            missed_tick_count=0,
            sample_count=100,
            lost_sample_count=0,
            cpu_s=0.0,
        )


class Sampler:
    """Hands out the client and notes what became of it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.recovered: list[str] = []

    def client(self, run_id: str) -> SamplerClient:
        return cast("SamplerClient", self._client)

    def lost(self, run_id: str) -> None:
        self.recovered.append(run_id)


def _recorder() -> PhaseRecorder:
    stats: Mapping[str, BlockStat] = {}
    return PhaseRecorder(host="box", rank=0, tree=ProcessTree(), read_stats=lambda: stats)


def _live(
    folder: Path,
    evidence: Evidence,
    *,
    lost: bool = False,
    calms: bool = True,
    **config: Any,  # noqa: ANN401 - any field
) -> tuple[PhaseRecorder, PowerReport, Sampler]:
    recorder, sampler = _recorder(), Sampler(Client(folder, evidence, lost=lost, calms=calms))
    powering = Powering.open(
        cast("Sampling", sampler),
        PowerConfig(**config),
        folder,
        host="box",
        devices=["nvme0"],
        block_devices=[],
    )
    powering.up(recorder)
    with recorder.phase("work") as phase:
        time.sleep(0.3)
        phase.moved(read_bytes=1000)
    return recorder, powering.down(recorder), sampler


def test_a_measuring_source_gets_its_idle_baseline_and_its_tail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorder, report, _ = _live(tmp_path, Evidence.MEASURED, idle_s=0.2, tail_max_s=4.0)
    assert "PS1 was left by an earlier run" in capsys.readouterr().err
    windows = phase_windows([item.span for item in recorder.spans])
    assert [(w.name, w.timed) for w in windows] == [
        ("idle", False),
        ("work", True),
        ("tail", False),
    ]
    assert report.tail_s is not None
    assert 0 < report.tail_s < 1.5
    section = power_section(
        PowerConfig(), [report], windows, read_all(tmp_path, [report]), recorder.traffic_rows()
    )
    phases = {energy.phase: energy for energy in section.energy}
    assert set(phases) == {"work", "tail"}
    work = phases["work"]
    assert work.idle_w == pytest.approx(5.0, rel=0.2)
    assert work.energy_j is not None
    assert work.net_j is not None
    assert 5.0 * work.seconds < work.energy_j < 20.0 * work.seconds


@pytest.mark.parametrize("evidence", [Evidence.BOUNDS, Evidence.DECLARED])
def test_a_source_that_measures_nothing_has_neither(tmp_path: Path, evidence: Evidence) -> None:
    recorder, report, _ = _live(tmp_path, evidence)
    assert [item.span.name for item in recorder.spans] == ["work"]
    assert (report.idle_s, report.tail_s) == (0.0, None)


def test_a_tail_that_does_not_end_is_missing(tmp_path: Path) -> None:
    _, report, _ = _live(tmp_path, Evidence.MEASURED, idle_s=0.2, tail_max_s=2.5, calms=False)
    assert report.tail_s is None


def test_a_lost_sampler_is_told_and_its_state_recovered(tmp_path: Path) -> None:
    recorder, report, sampler = _live(tmp_path, Evidence.BOUNDS, lost=True)
    assert (report.finished, report.lost) == (None, "the sampler ended")
    assert sampler.recovered == [tmp_path.name]
    windows = phase_windows([item.span for item in recorder.spans])
    section = power_section(PowerConfig(), [report], windows, {}, [])
    assert "the sampler was lost" in section.choice
    assert section.energy == ()
