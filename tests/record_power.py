"""The power section of made-up runs, from each kind of source that a real run may have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tests.record_machine import read
from tests.record_traces import IDLE_W, Bins, draw_power, integral_j, power_rows
from wattload.core.power import Accuracy, Bounds, Evidence, Instant, Scope, SourceFacts
from wattload.core.record.energy import (
    EnergyRecord,
    PowerSection,
    PowerSourceRecord,
    PowerStateRecord,
    PowerStateShare,
)
from wattload.core.record.phase import PhaseWindow

if TYPE_CHECKING:
    from tests.records import Scenario

PowerKind = Literal["none", "bounds", "upper", "declared", "estimated", "self_reported", "measured"]
STATE_MAX_W = (25.0, 20.0, 15.0)
NO_SOURCE = (
    "No drive-scope power source: the disk is virtual, its drive answers no NVMe command from here."
)


@dataclass(frozen=True, slots=True)
class Trace:
    """Power of one device: times and watts, both (samples,)."""

    time_ns: NDArray[np.int64]
    watts: NDArray[np.float64]


def make_power(
    scenario: Scenario,
    bins: Sequence[Bins],
    windows: Sequence[PhaseWindow],
    random: np.random.Generator,
) -> tuple[PowerSection, pa.Table]:
    """Return the power section and the power trace of a scenario."""
    span_ns = (windows[0].start_ns - 2_000_000_000, windows[-1].end_ns + 3_000_000_000)
    trace = Trace(*draw_power(bins, span_ns, scenario.busy_w, random))
    tables = [_block_rows(scenario, bins, trace.time_ns)]
    if scenario.power == "none":
        section = PowerSection(requested="auto", choice=NO_SOURCE, idle_s=0.0)
        return section, pa.concat_tables(tables)
    tables += _power_tables(scenario, trace)
    return _section(scenario, trace, windows), pa.concat_tables(tables)


def _section(scenario: Scenario, trace: Trace, windows: Sequence[PhaseWindow]) -> PowerSection:
    return PowerSection(
        requested="auto",
        choice=f"Took {_source(scenario)}: the best drive-scope source that this host offers.",
        idle_s=60.0 if _is_measured(scenario) else 0.0,
        rest_s=30.0 if _is_measured(scenario) else 0.0,
        sources=(
            PowerSourceRecord(
                host=scenario.host,
                facts=_facts(scenario),
                name=_source(scenario),
                device=scenario.serial,
                used=True,
                sentence=f"{_source(scenario)} was read 10 times a second.",
            ),
        ),
        states=(_state(scenario),),
        energy=tuple(_energy(scenario, trace, window) for window in windows if window.timed),
    )


def _is_measured(scenario: Scenario) -> bool:
    return scenario.power in ("measured", "self_reported", "estimated")


def _evidence(scenario: Scenario) -> Evidence:
    return Evidence.BOUNDS if scenario.power == "upper" else Evidence(scenario.power)


def _source(scenario: Scenario) -> str:
    if scenario.power == "declared":
        return "declared"
    return "meter" if scenario.power == "measured" else "nvme"


def _facts(scenario: Scenario) -> SourceFacts:
    return SourceFacts(
        name=_source(scenario),
        device=scenario.serial,
        device_name="nvme0",
        scope=Scope.DRIVE,
        evidence=_evidence(scenario),
        sensor=Instant() if _is_measured(scenario) else Bounds(),
        period_s=0.1,
        accuracy=Accuracy(reading_percent=1.0) if _is_measured(scenario) else None,
    )


def _state(scenario: Scenario) -> PowerStateRecord:
    return read(
        PowerStateRecord,
        "it was not read",
        host=scenario.host,
        serial=scenario.serial,
        requested=scenario.state,
        before=0,
        verified=scenario.state,
        after=scenario.state,
        restored=0,
        sentence=f"Set to PS{scenario.state}, verified, and put back to PS0 at the end.",
    )


def _power_tables(scenario: Scenario, trace: Trace) -> list[pa.Table]:
    common = {
        "source": _source(scenario),
        "device": scenario.serial,
        "evidence": _evidence(scenario).value,
        "host": scenario.host,
    }
    channels: dict[str, NDArray[np.float64] | float] = {"power_state": float(scenario.state)}
    if _is_measured(scenario):
        channels["power_w"] = trace.watts
    elif scenario.power == "declared":
        channels["power_w"] = 20.0
    else:
        channels["upper_w"] = STATE_MAX_W[scenario.state]
        if scenario.power == "bounds":
            channels["lower_w"] = IDLE_W
    return [
        power_rows(trace.time_ns, channel=name, values=values, **common)
        for name, values in channels.items()
    ]


def _block_rows(scenario: Scenario, bins: Sequence[Bins], time_ns: NDArray[np.int64]) -> pa.Table:
    device = "vda" if scenario.virtual else "nvme0n1"
    tables = []
    for channel in ("read_bytes", "written_bytes"):
        moved = np.zeros(time_ns.size)
        for part in bins:
            counts = part.read_bytes if channel == "read_bytes" else part.written_bytes
            index = np.searchsorted(time_ns, part.time_ns).clip(0, time_ns.size - 1)
            np.add.at(moved, index, counts * 1.001)
        tables.append(
            power_rows(
                time_ns,
                source="block",
                device=device,
                channel=channel,
                values=np.cumsum(moved) + 1e12,
                evidence="none",
                host=scenario.host,
            )
        )
    return pa.concat_tables(tables)


def _energy(scenario: Scenario, trace: Trace, window: PhaseWindow) -> EnergyRecord:
    figures: dict[str, float] = {}
    if _is_measured(scenario):
        energy_j = integral_j(trace.time_ns, trace.watts, window.start_ns, window.end_ns)
        figures = {
            "idle_w": IDLE_W,
            "net_j": energy_j - IDLE_W * window.seconds,
            "uncertainty_j": energy_j * 0.01,
            "rest_s": 30.0,
            "tail_j": 0.0,
            "tail_uncertainty_j": 0.0,
            "work_uncertainty_j": energy_j * 0.01,
        }
    elif scenario.power == "declared":
        energy_j = 20.0 * window.seconds
    if _is_measured(scenario) or scenario.power == "declared":
        figures |= {"energy_j": energy_j, "mean_w": energy_j / window.seconds}
    else:
        figures["upper_j"] = STATE_MAX_W[scenario.state] * window.seconds
        if scenario.power == "bounds":
            figures["lower_j"] = IDLE_W * window.seconds
    return read(
        EnergyRecord,
        f"{_source(scenario)} does not give it",
        host=scenario.host,
        device=scenario.serial,
        source=_source(scenario),
        scope=Scope.DRIVE,
        evidence=_evidence(scenario),
        phase=window.name,
        start_ns=window.start_ns,
        end_ns=window.end_ns,
        seconds=window.seconds,
        coverage=1.0,
        sample_count=round(window.seconds * 10),
        states=(_share(scenario, window, figures),),
        chosen=True,
        **figures,
    )


def _share(scenario: Scenario, window: PhaseWindow, figures: dict[str, float]) -> PowerStateShare:
    own = {key: figures[key] for key in ("energy_j", "lower_j", "upper_j") if key in figures}
    return read(
        PowerStateShare,
        "the source does not give it",
        state=str(scenario.state),
        seconds=window.seconds,
        moved_bytes=window.read_bytes + window.written_bytes,
        **own,
    )
