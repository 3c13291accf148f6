"""What the suite's own integration makes of a load on the virtual drive."""

from __future__ import annotations

from dataclasses import dataclass

from tests.lab.virtual_ssd.meters import Updates
from tests.lab_unit.loads import DEVICE, SOURCE, Load, Recorded
from tests.lab_unit.virtual import NS, Bench, VirtualAdmin
from tests.power.energy_facts import facts, times_of, window
from tests.power.energy_traces import traces
from wattload.core.power import Bounds, Boxcar, Evidence
from wattload.core.record.energy import EnergyRecord
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


def account(recorded: Recorded) -> dict[str, EnergyRecord]:
    """Return the records of the window and of the rest behind it, by source."""
    edges = {"start_ns": recorded.start_ns, "end_ns": recorded.end_ns}
    seconds = (recorded.end_ns - recorded.start_ns) / NS
    load = window("load", 0, seconds, host="h").model_copy(
        update={**edges, "intervals": (tuple(edges.values()),)}
    )
    sources = [
        facts(SOURCE, sensor=Boxcar(window_s=1.0), device=DEVICE, accuracy_percent=0.0),
        facts("bounds", Evidence.BOUNDS, Bounds(), device=DEVICE),
    ]
    ledger = EnergyLedger(
        traces(recorded.samples),
        sources,
        host="h",
        times=times_of(
            load, before=recorded.before_ns, after=recorded.after_ns, rests=[recorded.rest_ns]
        ),
    )
    records = ledger.phase_records([load])
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
