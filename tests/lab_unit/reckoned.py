"""What the suite's own integration makes of a load on the virtual drive; as a table if asked.

``python -m tests.lab_unit.reckoned FILE`` writes the truth table: source by load, error in %.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.lab.virtual_ssd.meters import Updates
from tests.lab_unit.loads import DEVICE, LOADS, SOURCE, Load, Recorded, record
from tests.lab_unit.virtual import NS, Bench, VirtualAdmin
from tests.power.energy_facts import activity_of
from wattload.core.power import Bounds, Boxcar, Evidence, Scope, SourceFacts
from wattload.core.record.energy import EnergyRecord
from wattload.core.record.phase import PhaseWindow
from wattload.power.energy.ledger import EnergyLedger
from wattload.power.nvme.admin import fetch
from wattload.power.nvme.features import set_command
from wattload.power.nvme.measurement import (
    POWER_MEASUREMENT,
    START,
    PowerMeasurementLog,
    read_power_measurement,
)

UPDATES: tuple[Updates, ...] = ("sliding", "tumbling")
MINUTE_S, MEASURED_S = 60.0, 300


def facts(name: str, evidence: Evidence, sensor: Boxcar | Bounds) -> SourceFacts:
    return SourceFacts(
        name=name,
        device=DEVICE,
        device_name="nvme7",
        scope=Scope.DRIVE,
        evidence=evidence,
        sensor=sensor,
        period_s=0.1,
        resolution_w=0.01,
    )


def account(recorded: Recorded) -> dict[str, EnergyRecord]:
    """Return the records of the window by source."""
    seconds = (recorded.end_ns - recorded.start_ns) / NS
    window = PhaseWindow(
        name="load",
        host="h",
        timed=True,
        start_ns=recorded.start_ns,
        end_ns=recorded.end_ns,
        seconds=seconds,
        active_s=seconds,
        start_spread_s=0,
        end_spread_s=0,
        rank_count=1,
        read_bytes=0,
        written_bytes=0,
        operations=0,
        cpu_s=0,
        intervals=((recorded.start_ns, recorded.end_ns),),
    )
    sources = [
        facts(SOURCE, Evidence.SELF_REPORTED, Boxcar(window_s=1.0)),
        facts("bounds", Evidence.BOUNDS, Bounds()),
    ]
    ledger = EnergyLedger(recorded.samples, sources, host="h", activity=activity_of(window))
    records = ledger.phase_records([window])
    return {each.source: each for each in records}


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Log 25h after a measurement, and what was really used in its seconds."""

    log: PowerMeasurementLog
    truth_j: float

    @property
    def energy_j(self) -> float:
        return (self.log.average.watts or 0.0) * self.log.count


def measure(load: Load, state: int = 0) -> Measured:
    """Run a load for five minutes with the drive's own measurement on, and no polling."""
    bench = Bench()
    admin = VirtualAdmin(bench)
    bench.engine.force_state(state, bench.now_ns)
    bench.wait(1.3)
    fetch(admin, set_command(POWER_MEASUREMENT, "start", value=START | 10 << 16))
    start_ns = bench.now_ns
    while bench.now_ns < start_ns + (MEASURED_S + 0.6) * NS:
        action = load((bench.now_ns - start_ns) / NS)
        while action != "idle" and bench.outstanding < 4:
            bench.give(is_write=action == "write")
        bench.wait(0.05)
    truth_j = bench.energy_j(start_ns, start_ns + MEASURED_S * NS)
    return Measured(log=read_power_measurement(admin), truth_j=truth_j)


def rows() -> Iterator[tuple[str, ...]]:
    """Yield the truth table, row by row."""
    for name, load in LOADS.items():
        for state in (0, 1):
            told = f"{name.replace('_', ' ')}, PS{state}"
            for updates in UPDATES:
                recorded = record(load, MINUTE_S, updates, state=state)
                found = account(recorded)
                yield _row(told, f"IPM, {updates}", "60", recorded.truth_j, found[SOURCE].energy_j)
            bounds = found["bounds"]
            within = f"{bounds.lower_j:.1f} to {bounds.upper_j:.1f}"
            yield told, "bounds", "60", f"{recorded.truth_j:.1f}", within, "holds"
            measured = measure(load, state)
            yield _row(told, "log 25h", "300", measured.truth_j, measured.energy_j)


def _row(
    load: str, source: str, seconds: str, truth_j: float, energy_j: float | None
) -> tuple[str, ...]:
    if energy_j is None:
        return load, source, seconds, f"{truth_j:.1f}", "none", ""
    return (
        load,
        source,
        seconds,
        f"{truth_j:.1f}",
        f"{energy_j:.1f}",
        f"{energy_j / truth_j - 1:+.3%}",
    )


def main() -> int:
    """Write the table as Markdown."""
    head = ("load", "source", "window, s", "truth, J", "told, J", "error")
    lines = [f"| {' | '.join(cells)} |" for cells in (head, ("---",) * len(head), *rows())]
    text = (
        "# The virtual drive's true energy, and what each source makes of it\n\n"
        "Reckoned: a virtual drive lives through each load on a clock of its own, is polled ten "
        "times a second with jitter, and its bytes are decoded and integrated as a run does. No "
        "drive was measured.\n\n"
    )
    Path(sys.argv[1]).write_text(text + "\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
