"""Runs of random writes, in memory: a fast start on spare blocks, then a constant rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.records import Scenario, make_run
from tests.reports.sessions import metered, timed_span
from wattload.core.power import OCP, SMART, Channel
from wattload.core.record.energy import EnergyRecord, WrittenRecord
from wattload.core.record.phase import PhaseSpan, PhaseWindow, phase_windows
from wattload.core.record.run import Comparison, RunRecord
from wattload.core.units import NS_PER_S
from wattload.reports.runs.load import Run
from wattload.reports.runs.traces import PowerTrace, Signal, Traces
from wattload.results.random_write.facts import PERCENTILES
from wattload.results.random_write.rounds import Rounds
from wattload.results.reading import metrics_of

CAPACITY_BYTES = 10_000_000_000_000
FRESH_SHARE = 0.28
FRESH_FACTOR = 2.4
ROUND_S = 60


@dataclass(kw_only=True)
class Writes:
    """What a made-up run was: its steady rate in bytes per second, watts and amplification."""

    name: str = "run-1"
    label: str = "A"
    rate: float = 1e9
    until: str = "steady"
    draw: str = "uniform"
    condition: str = "sequential"
    where: str = "block"
    range_bytes: int = CAPACITY_BYTES
    is_whole: bool = True
    block_bytes: int = 16384
    limit_bytes_per_s: float | None = None
    is_steady: bool = True
    watts: float = 14.0
    amplification: float = 2.5
    comparison: Comparison | None = None
    model: str = "MICRON_9550"
    serial: str = "SERIAL1"
    seed: int = 1


def writes_run(**changes: Any) -> Run:
    """Return a run of random writes with its rounds, power, temperature and drive counts."""
    made = Writes(**changes)
    scenario = Scenario(
        run_id=made.name,
        label=made.label,
        workload="checkpoint",
        power="measured",
        virtual=False,
        model=made.model,
        serial=made.serial,
        seed=made.seed,
    )
    base, _ = make_run(scenario)
    rounds = _rounds(made, int(base.windows[0].start_ns))
    return Run(record=_record(made, base, rounds), traces=_traces(made, base, rounds))


def _rounds(made: Writes, start_ns: int) -> Rounds:
    most = made.range_bytes * (1.3 if made.until == "steady" else 2.0)
    written: list[int] = []
    while sum(written) < most:
        is_fresh = sum(written) < FRESH_SHARE * made.range_bytes
        rate = made.rate * (FRESH_FACTOR if is_fresh else 1 + 0.02 * (len(written) % 3))
        written.append(round(rate * ROUND_S))
    count = len(written)
    edges = start_ns + np.arange(count + 1, dtype=np.int64) * ROUND_S * NS_PER_S
    moved = np.array(written, dtype=np.float64)
    latency = 32 * made.block_bytes * ROUND_S / moved
    return Rounds(
        edges_ns=edges,
        written_bytes=moved,
        slowest=moved / ROUND_S * 0.8,
        fastest=moved / ROUND_S * 1.15,
        percentiles_s={
            name: latency * factor for name, factor in zip(PERCENTILES, (0.8, 4, 20), strict=True)
        },
        are_seconds=False,
    )


def _steady(made: Writes, rounds: Rounds) -> tuple[int, int, int] | None:
    """Return the bytes, start and end of the steady window: a quarter of the range after one."""
    if made.until == "fill" or not made.is_steady:
        return None
    edges = rounds.edges_bytes
    first = int(np.searchsorted(edges, made.range_bytes))
    last = int(np.searchsorted(edges, 1.25 * made.range_bytes))
    start_ns = int(rounds.edges_ns[0])
    start, end = (start_ns + round(float(rounds.edges_s[i]) * NS_PER_S) for i in (first, last))
    return int(edges[last] - edges[first]), start, end


def _record(made: Writes, base: RunRecord, rounds: Rounds) -> RunRecord:
    start_ns, end_ns = int(rounds.edges_ns[0]), int(rounds.edges_ns[-1])
    total = int(rounds.edges_bytes[-1])
    spans = [_span("random_write", None, start_ns, end_ns, total)]
    if (steady := _steady(made, rounds)) is not None:
        spans.append(_span("steady", "random_write", steady[1], steady[2], steady[0]))
    windows = phase_windows(spans)
    power = base.power.model_copy(
        update={
            "energy": tuple(_energy(made, base.power.energy[0], each) for each in windows),
            "written": tuple(_written(made, each) for each in windows),
        }
    )
    record = base.model_copy(
        update={
            "config": _config(made, base),
            "comparison": made.comparison or base.comparison,
            "workload": base.workload.model_copy(
                update={
                    "name": "random_write",
                    "facts": _facts(made, rounds, steady),
                    "data": None,
                }
            ),
            "targets": tuple(
                each.model_copy(
                    update={"facts": each.facts.model_copy(update={"kind": made.where})}
                )
                for each in base.targets
            ),
            "spans": tuple(spans),
            "power": power,
            "metrics": (),
            "counters": (),
            "checks": (),
        }
    )
    return record.model_copy(update={"metrics": metrics_of(record)})


def _config(made: Writes, base: RunRecord) -> dict[str, Any]:
    workload = {
        "until": made.until,
        "draw": None,
        "condition": None,
        "block_bytes": made.block_bytes,
        "queue_depth": 32,
        "range_bytes": None,
        "rate_bytes_per_s": made.limit_bytes_per_s,
    }
    return {**base.config, "workload": workload, "target": {"path": f"/dev/{made.serial}"}}


def _facts(made: Writes, rounds: Rounds, steady: tuple[int, int, int] | None) -> dict[str, Any]:
    start_ns, edges, ends_s = int(rounds.edges_ns[0]), rounds.edges_bytes, rounds.edges_s
    verdict: dict[str, Any] = {"window": None, "reason": "the last 5 rounds range over 31 %"}
    if steady is not None:
        ends = np.linspace(steady[1] - start_ns, steady[2] - start_ns, 6) / NS_PER_S
        window_rounds = [
            {"start_s": first, "end_s": last, "start_bytes": 0, "end_bytes": steady[0] // 5}
            for first, last in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)
        ]
        spread = {
            "first": 0,
            "average": made.rate,
            "slope_per_round": 0.0,
            "range_fraction": 0.04,
            "excursion_fraction": 0.01,
        }
        verdict = {"window": {"rounds": window_rounds, "spread": spread}, "reason": ""}
    half = edges.size // 2
    passes = [
        {
            "end_s": float(ends_s[at]),
            "written_bytes": int(edges[at]),
            "operations": int(edges[at]) // made.block_bytes,
        }
        for at in (half, -1)
    ]
    drive_bytes = made.range_bytes if made.is_whole else 4 * made.range_bytes
    return {
        "range_bytes": made.range_bytes,
        "drive_bytes": drive_bytes if made.where == "block" else None,
        "draw": made.draw,
        "draw_seed": "0" * 16,
        "condition": made.condition,
        "rest_s": 1.0,
        "purged": {},
        "ended_by": "steady state" if steady is not None else "all passes",
        "passes": passes,
        "first_round_bytes_per_s": float(rounds.rates[0]),
        "slowest_second_bytes_per_s": float(rounds.slowest.min()),
        "steady": None
        if made.draw == "each_once"
        else {"five_minutes": verdict, "drive": verdict, "headline": verdict},
    }


def _span(name: str, parent: str | None, start_ns: int, end_ns: int, written: int) -> PhaseSpan:
    counts = {"written_bytes": written, "operations": written // 16384}
    seconds = (end_ns - start_ns) / NS_PER_S
    return timed_span(
        name, start_ns, seconds, end_ns=end_ns, parent=parent, is_part=parent is not None, **counts
    )


def _energy(made: Writes, base: EnergyRecord, window: PhaseWindow) -> EnergyRecord:
    net_j = (made.watts - (base.idle_w or 0.0)) * window.seconds
    return metered(base, window.name, window.seconds, made.watts, net_j=net_j, device=made.serial)


def _written(made: Writes, window: PhaseWindow) -> WrittenRecord:
    host = window.written_bytes
    return WrittenRecord(
        host="box",
        device=made.serial,
        phase=window.name,
        host_written_bytes=host,
        media_written_bytes=round(host * made.amplification),
        write_amplification=made.amplification,
        media_source=OCP,
    )


def _traces(made: Writes, base: RunRecord, rounds: Rounds) -> Traces:
    edges_ns = rounds.edges_ns
    time_ns = np.arange(edges_ns[0] - NS_PER_S, edges_ns[-1] + 11 * NS_PER_S, 10 * NS_PER_S)
    host = np.interp(time_ns, edges_ns, rounds.edges_bytes.astype(np.float64))
    fresh = FRESH_SHARE * made.range_bytes
    media = np.minimum(host, fresh) + np.maximum(host - fresh, 0) * made.amplification
    source = base.power.energy[0].source
    wave = 1 + 0.03 * np.sin(np.arange(time_ns.size) / 9)

    def signal(name: str, channel: Channel, value: Any) -> Signal:
        return Signal(
            host=base.hosts[0].facts.name,
            source=name,
            device=made.serial,
            channel=channel,
            time_ns=time_ns,
            value=value,
        )

    signals = (
        signal(source, Channel.POWER_W, made.watts * wave),
        signal(SMART, Channel.TEMPERATURE_K, 318 + 6 * wave),
        signal(SMART, Channel.HOST_WRITTEN_BYTES, host),
        signal(OCP, Channel.MEDIA_WRITTEN_BYTES, media),
    )
    return Traces(
        throughput=None,
        power=PowerTrace(signals=signals),
        notes=(),
        digests={},
        tables=_tables(rounds),
    )


def _tables(rounds: Rounds) -> dict[str, dict[str, Any]]:
    """Return both tables; of the seconds of a round one is slower and one faster than the rest."""
    start_ns = rounds.edges_ns[:-1]
    second_ns = (start_ns[:, None] + np.arange(ROUND_S) * NS_PER_S).ravel()
    rates = np.repeat(rounds.rates[:, None], ROUND_S, axis=1)
    rates[:, 20], rates[:, 40] = rounds.slowest, rounds.fastest
    return {
        "rounds": {
            "start_ns": start_ns,
            "end_ns": rounds.edges_ns[1:],
            "written_bytes": rounds.written_bytes,
            **rounds.percentiles_s,
        },
        "seconds": {
            "start_ns": second_ns,
            "end_ns": second_ns + NS_PER_S,
            "written_bytes": rates.ravel(),
        },
    }
