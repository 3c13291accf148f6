from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.power.energy_facts import facts, window
from tests.power.energy_traces import samples_of, traces
from wattload.core.errors import RecordError
from wattload.core.power import Channel, Counter, Sample
from wattload.core.record.energy import PowerSection, PowerSourceRecord
from wattload.core.record.phase import PhaseWindow, TraceFile
from wattload.power.config import PowerConfig
from wattload.power.energy.trace import Trace, TraceKey
from wattload.power.sampler.protocol import ControllerReading, FinishReply, OpenReply
from wattload.power.sampler.samples import SAMPLE_COLUMNS
from wattload.run.energy import HostTraces, Measured, energy_of_host, power_section
from wattload.run.phases import PhaseTraffic
from wattload.run.power_session import IdleTimes, PowerReport
from wattload.run.traces import RunTraces, read_power

TIMES_S = np.round(np.arange(-20, 640) / 10, 6)


def reading(power_cycles: int | None) -> dict[str, ControllerReading]:
    smart = None if power_cycles is None else {"power_cycles": power_cycles}
    return {
        "nvme0": ControllerReading(
            serial="SERIAL1",
            fields={"smart": smart},
            missing={},
            nvme_version=None,
            power_states=None,
        )
    }


def report(before: int | None, after: int | None, *, finished: bool = True) -> PowerReport:
    source = PowerSourceRecord(
        host="box",
        facts=facts("meter", sensor=Counter(quantum_j=0.001)),
        name="meter",
        device="SERIAL1",
        used=True,
        sentence="-",
    )
    opened = OpenReply(
        host="box",
        choice="a meter",
        sources=(source,),
        states=(),
        controllers=reading(before),
        recovered=(),
    )
    ended = FinishReply(
        states=(),
        controllers=reading(after),
        own_energies=(),
    )
    return PowerReport(
        host="box",
        devices=("nvme0",),
        opened=opened,
        finished=ended if finished else None,
        lost=None,
        samples_file=None,
        times=IdleTimes(idle_s=0.0, rest_s=0.0, idle_after_s=0.0, quiet_s=0.0),
    )


def section_of(
    report: PowerReport,
    windows: Sequence[PhaseWindow],
    samples: HostTraces,
    traffic: Sequence[PhaseTraffic] = (),
) -> PowerSection:
    """Return the power section of a run on one host."""
    config = PowerConfig()
    return power_section(config, [energy_of_host(config, report, windows, samples, traffic)])


def write_power(folder: Path, samples: Mapping[str, Sequence[Sample]]) -> TraceFile:
    with RunTraces(folder) as written:
        for host, own in samples.items():
            written.add_power(host, own)
    return next(file for file in written.files() if file.name == "power")


FAILED = [None if 20 <= time_s < 22 else 10 * (time_s + 3) for time_s in TIMES_S]
SAMPLES = samples_of(TIMES_S, FAILED, channel=Channel.ENERGY_J)


def test_a_drive_with_more_power_cycles_than_before_was_restarted() -> None:
    assert Measured.of_report(report(7, 8)).restarted == {"SERIAL1"}
    for before, after in ((7, 7), (None, 8), (7, None)):
        assert not Measured.of_report(report(before, after)).restarted
    assert not Measured.of_report(report(7, 8, finished=False)).restarted


def test_what_a_counter_grew_by_over_a_reset_is_not_covered() -> None:
    work, samples = window("work", 0, 60, host="box"), traces(SAMPLES)
    for cycles, coverage in ((7, 1.0), (8, 57.9 / 60)):
        section = section_of(report(7, cycles), [work], samples)
        (energy,) = section.energy
        assert energy.coverage is not None
        assert abs(energy.coverage - coverage) < 1e-3


def test_a_reset_reaches_the_whole_run_and_idleness_too() -> None:
    windows = [
        window("idle", 10, 30, timed=False, host="box"),
        window("work", 32, 60, host="box"),
    ]
    samples = traces(SAMPLES)
    for cycles, missed_s in ((7, 0.0), (8, 2.1)):
        section = section_of(report(7, cycles), windows, samples)
        (whole,), (idle,) = section.whole_run, section.idle
        assert whole.coverage is not None
        assert idle.coverage is not None
        assert abs((1 - whole.coverage) * whole.seconds - missed_s) < 1e-3
        assert abs((1 - idle.coverage) * idle.seconds - missed_s) < 1e-3


def test_a_rest_may_overlap_the_phase_of_its_pause_and_no_other() -> None:
    windows = [
        window("idle", -2, -1, timed=False, host="box"),
        window("work", 0, 10, host="box"),
        window("train", 10, 40, timed=False, host="box"),
        window("rest", 10, 35, timed=False, host="box").model_copy(
            update={"parents": frozenset({"train"})}
        ),
    ]
    scrub = window("scrub", 20, 25, timed=False, host="box")
    reasons = [
        section_of(report(7, 7), each, traces(SAMPLES)).energy[0].missing.get("tail_j", "")
        for each in (windows, [*windows, scrub])
    ]
    assert "ran in its rest" not in reasons[0]
    assert reasons[1] == "scrub ran in its rest"


def _readings(found: Mapping[str, HostTraces]) -> dict[tuple[str, TraceKey], list[Any]]:
    """Return the samples of each trace in a form that can be compared."""
    return {
        (host, key): [trace.back_ns.tolist(), *map(str, zip(*_columns(trace), strict=True))]
        for host, own in found.items()
        for key, trace in own.items()
    }


def _columns(trace: Trace) -> list[list[Any]]:
    columns = (trace.time_ns, trace.spread_ns, trace.value, trace.evidence_rank)
    return [column.tolist() for column in columns]


def test_samples_are_read_back_by_host_as_they_were_written(tmp_path: Path) -> None:
    by_host = {"box": SAMPLES, "other": SAMPLES[5:]}
    expected = {host: traces(own) for host, own in by_host.items()}
    found = read_power(tmp_path, [write_power(tmp_path, by_host)], ["box", "other"])
    assert _readings(found) == _readings(expected)
    alone = read_power(tmp_path, [write_power(tmp_path, {"box": SAMPLES})], ["box"])
    assert _readings(alone) == _readings({"box": traces(SAMPLES)})


def test_a_trace_that_does_not_say_whose_its_samples_are_is_refused(tmp_path: Path) -> None:
    write_power(tmp_path, {"box": SAMPLES})
    file = tmp_path / "power.parquet"
    pq.write_table(pq.read_table(file).drop_columns(["host"]), file)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    named = TraceFile(name="power", file=file.name, sha256=digest, rows=1, columns=SAMPLE_COLUMNS)
    with pytest.raises(RecordError, match="missing columns: host"):
        read_power(tmp_path, [named], ["box"])
