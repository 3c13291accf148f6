"""Made-up traces for made-up runs: bytes per 100 ms, and the power that such traffic would take.

Test data throughout: no drive was read. The numbers are drawn from a seed, so that the same
scenario gives the same bytes every time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tests.records import Scenario

BIN_NS = 100_000_000
IDLE_W = 4.0
START_NS = 5_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasePlan:
    """One phase of a made-up run: when, how long, and how many bytes a second go which way."""

    name: str
    timed: bool
    seconds: float
    read_bytes_per_s: float = 0.0
    written_bytes_per_s: float = 0.0
    bursty: bool = False
    start_ns: int = 0

    @property
    def end_ns(self) -> int:
        """When the phase ends."""
        return self.start_ns + round(self.seconds * 1e9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bins:
    """Bytes of one phase per 100 ms bin; the arrays have shape (bins,)."""

    phase: PhasePlan
    time_ns: NDArray[np.int64]
    read_bytes: NDArray[np.int64]
    written_bytes: NDArray[np.int64]


def phase_plans(scenario: Scenario) -> tuple[PhasePlan, ...]:
    """Return the phases of a scenario, one after the other."""
    rate = scenario.rate_bytes_per_s
    steps: list[tuple[str, bool, float, float, float, bool]] = [
        ("prepare", False, 4.0, 0.0, rate * 0.8, False)
    ]
    if scenario.workload == "unet3d":
        steps.append(("warm_up", False, 2.0, rate, 0.0, True))
        steps.append(("read", True, scenario.seconds, rate, 0.0, True))
    elif scenario.workload == "checkpoint":
        steps.append(("write", True, scenario.seconds, 0.0, rate, False))
        steps.append(("read", True, scenario.seconds * 0.6, rate * 1.5, 0.0, False))
    else:
        steps.append(("tsv_to_parquet", True, scenario.seconds, rate * 0.12, rate * 0.05, False))
        steps.append(
            ("parquet_to_binary", True, scenario.seconds / 2, rate * 0.1, rate * 0.2, True)
        )
    plans, start_ns = [], START_NS + scenario.boot_ns
    for name, timed, seconds, read_rate, write_rate, bursty in steps:
        plan = PhasePlan(
            name=name,
            timed=timed,
            seconds=seconds,
            read_bytes_per_s=read_rate,
            written_bytes_per_s=write_rate,
            bursty=bursty,
            start_ns=start_ns,
        )
        plans.append(plan)
        start_ns += round(seconds * (scenario.pace if timed else 1.0) * 1e9) + 300_000_000
    return tuple(plans)


def draw_bins(phase: PhasePlan, random: np.random.Generator) -> Bins:
    """Return a phase's traffic: noisy, and with a pause in each second where it is bursty."""
    first = phase.start_ns - phase.start_ns % BIN_NS
    time_ns = np.arange(first, phase.end_ns, BIN_NS, dtype=np.int64)
    shape = random.normal(1.0, 0.04, time_ns.size).clip(0.05)
    if phase.bursty:
        shape = shape * np.where(np.arange(time_ns.size) % 10 < 3, 0.35, 1.28)
    shape = shape / shape.mean() * phase.seconds / time_ns.size
    return Bins(
        phase=phase,
        time_ns=time_ns,
        read_bytes=(shape * phase.read_bytes_per_s).astype(np.int64),
        written_bytes=(shape * phase.written_bytes_per_s).astype(np.int64),
    )


def throughput_table(bins: Sequence[Bins], scenario: Scenario) -> pa.Table:
    """Return the throughput trace; the first rank has what does not divide by their number."""
    host, ranks = scenario.host, scenario.ranks
    columns: dict[str, list[object]] = {name: [] for name in _THROUGHPUT.names}
    for part in bins:
        for rank in range(ranks):
            columns["time_ns"] += part.time_ns.tolist()
            columns["host"] += [host] * part.time_ns.size
            columns["rank"] += [scenario.first_rank + rank] * part.time_ns.size
            columns["phase"] += [part.phase.name] * part.time_ns.size
            columns["read_bytes"] += share(part.read_bytes, rank, ranks).tolist()
            columns["written_bytes"] += share(part.written_bytes, rank, ranks).tolist()
    return pa.table(columns, schema=_THROUGHPUT)


def share(total: NDArray[np.int64], rank: int, ranks: int) -> NDArray[np.int64]:
    """Return one rank's part of integer totals; the parts sum to them exactly."""
    equal = total // ranks
    return total - equal * (ranks - 1) if rank == 0 else equal


def draw_power(
    bins: Sequence[Bins], span_ns: tuple[int, int], busy_w: float, random: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return (times, watts), both (samples,): idle, and up to ``busy_w`` with the traffic."""
    time_ns = np.arange(span_ns[0], span_ns[1], BIN_NS, dtype=np.int64)
    moved = np.zeros(time_ns.size)
    for part in bins:
        index = np.searchsorted(time_ns, part.time_ns).clip(0, time_ns.size - 1)
        np.add.at(moved, index, part.read_bytes + part.written_bytes)
    load = moved / max(moved.max(), 1.0)
    watts = IDLE_W + (busy_w - IDLE_W) * load + random.normal(0, 0.08, time_ns.size)
    return time_ns, watts


def integral_j(
    time_ns: NDArray[np.int64], watts: NDArray[np.float64], start_ns: int, end_ns: int
) -> float:
    """Return the trapezoid over exactly [start, end] in joules, the ends interpolated."""
    inside = (time_ns > start_ns) & (time_ns < end_ns)
    edges_w = np.interp([start_ns, end_ns], time_ns, watts)
    times = np.concatenate(([start_ns], time_ns[inside], [end_ns]))
    values = np.concatenate((edges_w[:1], watts[inside], edges_w[1:]))
    return float(np.trapezoid(values, times) / 1e9)


def power_rows(
    time_ns: NDArray[np.int64],
    *,
    source: str,
    device: str,
    channel: str,
    values: NDArray[np.float64] | float,
    evidence: str,
    host: str,
) -> pa.Table:
    """Return the samples of one channel of one device."""
    count = time_ns.size
    return pa.table(
        {
            "time_ns": time_ns,
            "spread_ns": np.full(count, 40_000, dtype=np.int64),
            "source": [source] * count,
            "device": [device] * count,
            "channel": [channel] * count,
            "value": np.broadcast_to(np.asarray(values, dtype=np.float64), (count,)),
            "evidence": [evidence] * count,
            "host": [host] * count,
        },
        schema=_POWER,
    )


def write_table(table: pa.Table, file: Path) -> None:
    """Write a trace as the run writes it."""
    pq.write_table(table, file)


_THROUGHPUT = pa.schema(
    [
        ("time_ns", pa.int64()),
        ("host", pa.string()),
        ("rank", pa.int32()),
        ("phase", pa.string()),
        ("read_bytes", pa.int64()),
        ("written_bytes", pa.int64()),
    ]
)
_POWER = pa.schema(
    [
        ("time_ns", pa.int64()),
        ("spread_ns", pa.int64()),
        ("source", pa.string()),
        ("device", pa.string()),
        ("channel", pa.string()),
        ("value", pa.float64()),
        ("evidence", pa.string()),
        ("host", pa.string()),
    ]
)
