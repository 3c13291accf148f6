"""A run of many hours on a simulated clock, recorded and concluded; prints its memory as JSON.

``python -m tests.run.long_run FOLDER HOURS SENSOR``: application bytes every 100 ms, and ten times
a second the power state and its upper bound, or with ``SENSOR`` ``meter`` a measured power.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from wattload.core.host.counters import ProcessTree, rank_facts
from wattload.core.power import (
    SMART,
    Accuracy,
    Bounds,
    Boxcar,
    Channel,
    Evidence,
    Sample,
    Scope,
    Sensor,
    SourceFacts,
)
from wattload.core.record.energy import PowerSourceRecord
from wattload.core.record.run import Comparison
from wattload.core.units import NS_PER_S
from wattload.power.sampler.protocol import FinishReply, OpenReply
from wattload.power.sampler.samples import SampleFile, SampleLines
from wattload.run import phases
from wattload.run.compose import compose
from wattload.run.phases import BIN_NS, PhaseRecorder
from wattload.run.power_session import IdleTimes, PowerReport
from wattload.run.record import Findings, Header, HostReport, Order, RankReport, conclude

START_NS = 1_000 * NS_PER_S
LEAD_S = 60
ROUND = 36_000
"""Bins between two marks of a part: an hour."""
SERIAL = "SERIAL1"
SAMPLES = "samples-box.jsonl"


def memory_bytes(name: str) -> int:
    """Return a figure of this process's memory; ``ru_maxrss`` would include the parent's."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise ValueError(name)


def _facts(name: str, evidence: Evidence, sensor: Sensor) -> SourceFacts:
    return SourceFacts(
        name=name,
        device=SERIAL,
        device_name="nvme0",
        scope=Scope.DRIVE,
        evidence=evidence,
        sensor=sensor,
        period_s=0.1,
        resolution_w=0.01,
        accuracy=Accuracy(reading_percent=3.0),
    )


def write_samples(folder: Path, bin_count: int, sensor: str) -> None:
    """Write the samples of the run and of a minute around it."""
    rng = np.random.default_rng(1)
    descriptor = os.open(folder / SAMPLES, os.O_CREAT | os.O_WRONLY, 0o600)
    file, lines = SampleFile(descriptor, host="box", period_s=0.1), SampleLines()
    lead = LEAD_S * 10
    for tick in range(-lead, bin_count + lead):
        time_ns = START_NS + tick * BIN_NS + 3_000_000
        is_busy = 0 <= tick < bin_count
        watts = (18.0 if is_busy else 5.0) + float(rng.normal(0, 0.2))
        rows: list[tuple[str, Channel, float]] = [
            ("nvme", Channel.POWER_STATE, 0),
            (
                ("nvme_ipm", Channel.POWER_W, round(watts, 2))
                if sensor == "meter"
                else ("nvme", Channel.UPPER_W, 25.0)
            ),
        ]
        if tick % 100 == 0:
            rows.append((SMART, Channel.HOST_WRITTEN_BYTES, max(0, tick) * 500_000_000))
        samples = [
            Sample(
                time_ns=time_ns,
                spread_ns=200_000,
                source=source,
                device=SERIAL,
                channel=channel,
                value=value,
                evidence=Evidence.SELF_REPORTED,
            )
            for source, channel, value in rows
        ]
        file.write(lines.of(samples))
    file.close()


def recorded(bin_count: int) -> PhaseRecorder:
    """Return the recorder of a phase with parts of an hour each."""
    now_ns = START_NS - LEAD_S * NS_PER_S
    clock = SimpleNamespace(monotonic_ns=lambda: now_ns)
    setattr(phases, "time", clock)  # noqa: B010 - the module does not export it
    recorder = PhaseRecorder(host="box", rank=0, tree=ProcessTree(), read_stats=dict)
    with recorder.phase("idle", timed=False):
        now_ns = START_NS
    with recorder.phase("random_write") as phase:
        marks = [phase.mark()]
        for tick in range(bin_count):
            now_ns = START_NS + tick * BIN_NS + 50_000_000
            phase.moved(written_bytes=500_000_000, operations=30_000)
            if tick % ROUND == ROUND - 1:
                marks.append(phase.mark())
        now_ns = START_NS + bin_count * BIN_NS
        phase.add_part("steady", marks[len(marks) * 2 // 3], phase.mark())
    setattr(phases, "time", time)  # noqa: B010 - as above
    return recorder


def report(sensor: str) -> PowerReport:
    """Return what the sampler reported of the run."""
    sources = tuple(
        PowerSourceRecord(
            host="box", facts=facts, name=facts.name, device=SERIAL, used=True, sentence="-"
        )
        for facts in (
            _facts("nvme", Evidence.BOUNDS, Bounds(highest_w=25.0)),
            _facts("nvme_ipm", Evidence.SELF_REPORTED, Boxcar(window_s=1.0)),
        )[: 2 if sensor == "meter" else 1]
    )
    common: dict[str, Any] = {"states": (), "controllers": {}}
    return PowerReport(
        host="box",
        devices=("nvme0",),
        opened=OpenReply(host="box", choice="a model", sources=sources, recovered=(), **common),
        finished=FinishReply(
            own_energies=(),
            **common,
        ),
        samples_file=SAMPLES,
        lost=None,
        times=IdleTimes(idle_s=LEAD_S, rest_s=0.0, idle_after_s=0.0, quiet_s=0.0),
    )


def main(folder: Path, hours: float, sensor: str) -> None:
    """Record and conclude the run in ``folder``, and print its memory and its figures."""
    bin_count = round(hours * 3600 * NS_PER_S / BIN_NS)
    before = memory_bytes("VmRSS")
    recorder = recorded(bin_count)
    counted = memory_bytes("VmHWM")
    write_samples(folder, bin_count, sensor)
    config, config_values = compose(["workload=checkpoint", f"target.path={folder}"])
    order = Order(
        config=config,
        config_values=config_values,
        config_files=(),
        comparison=Comparison(session_id="", arm="", block=0, order=0),
        command=("wattload", "run"),
    )
    header = Header(
        order=order,
        folder=folder,
        started_utc="2026-11-20T23:00:00+00:00",
        workload="checkpoint",
        world_size=1,
    )
    rank = RankReport(
        rank=rank_facts(0, "box", 1.0),
        marked=recorder.spans,
        traffic=recorder.traffic_of_phases(),
    )
    own = HostReport(folder=folder, ranks=[rank], capture=None, power=report(sensor), load=None)
    began_s = time.monotonic()
    record, _, _ = conclude(header, lambda place: [own], Findings())
    energies = {e.phase: e.energy_j or e.upper_j for e in record.power.energy if e.chosen}
    found = {
        "before_bytes": before,
        "counted_bytes": counted,
        "peak_bytes": memory_bytes("VmHWM"),
        "conclude_s": time.monotonic() - began_s,
        "rows": {each.name: each.rows for each in record.traces},
        "written": {each.name: each.written_bytes for each in record.windows},
        "energy_j": energies,
        "host_written": {each.phase: each.host_written_bytes for each in record.power.written},
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
