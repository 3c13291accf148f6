"""Runs of a cache of keys and values, in memory: four phases, with power, in any loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.records import Scenario, make_run
from tests.reports.sessions import EMPTY, metered, placed, timed_span
from wattload.core.histogram import Histogram
from wattload.core.power import OCP
from wattload.core.record.energy import WrittenRecord
from wattload.core.record.phase import IoCounter
from wattload.core.record.results import Latency, latencies_of
from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S
from wattload.reports.runs.load import Run
from wattload.results.kv_cache.facts import FILL, RESTORE, STEADY, STORE, Counts
from wattload.results.reading import metrics_of

BLOCK_TOKENS, BLOCK_BYTES = 256, 33_554_432
SECONDS = {FILL: 60.0, STEADY: 60.0, RESTORE: 30.0, STORE: 30.0}
PREFIXES = ((0, 1024), (1024, 4096), (4096, 16384))


@dataclass(kw_only=True)
class Cache:
    """What a made-up run was: blocks a second restored and stored alone, and watts by phase."""

    name: str = "run-1"
    label: str = "A"
    restored_per_s: float = 200.0
    stored_per_s: float = 80.0
    watts: Mapping[str, float] = field(
        default_factory=lambda: {FILL: 9.0, STEADY: 10.0, RESTORE: 12.0, STORE: 11.0}
    )
    users: int | None = 16
    request_rate: float | None = None
    target_p99_ms: float | None = None
    prefill_j_per_token: float | None = None
    added_s: float = 0.2
    """Median of the response."""
    evicted: int = 400
    backlog_start: int = 10
    backlog_end: int = 11
    reads_directly: bool = True
    layered: bool = False
    has_power: bool = True
    repeat: int = 0
    session: str = "s1"
    serial: str = "SERIAL1"
    model: str = "MICRON_9550"
    virtual: bool = False
    seed: int = 1
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Other facts than those that follow from the above."""
    counts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Other counts, by phase."""
    loop: Mapping[str, Any] = field(default_factory=dict)


def cache_run(**changes: Any) -> Run:
    """Return a run whose facts agree with its spans."""
    made = Cache(**changes)
    scenario = Scenario(
        run_id=made.name,
        label=made.label,
        workload="checkpoint",
        power="measured",
        virtual=made.virtual,
        model=made.model,
        serial=made.serial,
    )
    base, _ = make_run(scenario)
    return Run(record=_record(made, base), traces=EMPTY)


def cache_record(**changes: Any) -> RunRecord:
    return cache_run(**changes).record


def _counts(made: Cache) -> dict[str, dict[str, Any]]:
    """Return the counts of each phase, and the bytes that it moved."""
    blocks = {
        FILL: (100, 780),
        STEADY: (4000, 2200),
        RESTORE: (round(made.restored_per_s * SECONDS[RESTORE]), 0),
        STORE: (0, round(made.stored_per_s * SECONDS[STORE])),
    }
    found: dict[str, dict[str, Any]] = {}
    for phase, (restored, stored) in blocks.items():
        found[phase] = {
            "requests": 600 if phase == STEADY else 100,
            "cut_requests": 12 if phase == STEADY else 0,
            "input_tokens": 600 * 12 * BLOCK_TOKENS,
            "output_tokens": 600 * 200,
            "memory_blocks": 0,
            "drive_blocks": restored,
            "pending_blocks": 50,
            "missed_blocks": 3000,
            "restored_blocks": restored,
            "old_blocks": restored * 97 // 100,
            "stored_blocks": stored,
            "unadmitted_blocks": 0,
            "no_room_blocks": 0,
            "evicted_blocks": made.evicted if phase in (FILL, STEADY) else 0,
            "full_disk_evictions": 0,
            "read_bytes": restored * BLOCK_BYTES,
            "written_bytes": stored * BLOCK_BYTES,
            "synced_files": stored,
            "renamed_files": stored,
            "compared_bytes": restored * 3 * 4096,
            "bad_blocks": 0,
            **made.counts.get(phase, {}),
        }
    return found


def _latency(made: Cache, median_s: float, count: int) -> Latency:
    drawn = np.random.default_rng(made.seed).lognormal(0, 0.5, count) * median_s
    histogram = Histogram.of((drawn * NS_PER_S).astype(np.int64).tolist())
    (row,) = latencies_of(histogram, phase=STEADY, kind="request", operation_bytes=BLOCK_BYTES)
    return row


def _times(made: Cache) -> Sequence[dict[str, Any]]:
    rows: list[tuple[int, int | None, bool | None, float, int]] = [
        (0, None, None, 1.0, 580),
        (0, None, True, 1.3, 400),
        (0, None, False, 0.6, 180),
        *((low, high, None, 0.25 + low / 4096, 190) for low, high in PREFIXES),
        (16384, None, None, 6.0, 50),
    ]
    return [
        {
            "from_tokens": low,
            "below_tokens": high,
            "storing": storing,
            "response": _latency(made, factor * made.added_s, count),
            "service": _latency(made, 0.8 * factor * made.added_s, count),
            "first_layer": _latency(made, 0.1 * made.added_s, count) if made.layered else None,
        }
        for low, high, storing, factor, count in rows
    ]


def _facts(made: Cache) -> dict[str, Any]:
    counts = _counts(made)
    users, in_system_s = made.users, 10.0 * SECONDS[STEADY]
    requests = counts[STEADY]["requests"]
    facts: dict[str, Any] = {
        "bytes_per_token": 131_072,
        "block_bytes": BLOCK_BYTES,
        "moved_block_bytes": BLOCK_BYTES,
        "pieces": 64 if made.layered else 1,
        "mla": "",
        "capacity_blocks": 640,
        "reads_directly": made.reads_directly,
        "counts": {
            phase: {name: own[name] for name in Counts.model_fields}
            for phase, own in counts.items()
        },
        "times": _times(made),
        "hit_shares": [100, *[50] * 10],
        "loop": {
            "users": users,
            "seconds": SECONDS[STEADY],
            "arrived": requests,
            "residence_s": in_system_s,
            "think_s": (users or 0) * SECONDS[STEADY] - in_system_s if users else 0.0,
            "in_system_s": in_system_s,
            "backlog_start": made.backlog_start,
            "backlog_end": made.backlog_end,
            "ended_early": False,
            "latest_s": 0.002,
            "schedule_s": 18_000.0,
            "planned_s": None if users else 18_000.0,
            **made.loop,
        },
        "source": {
            "requests": 12_000,
            "span_s": 3537.0,
            "references": 288_000,
            "input_tokens": 288_000 * BLOCK_TOKENS,
            "most_blocks": 240,
            "lru": [
                {"blocks": blocks, "hit_blocks": hits, "stored_blocks": 288_000 - hits}
                for blocks, hits in (
                    (80, 12_000), (160, 30_000), (320, 60_000), (640, 90_000), (1280, 101_000),
                    (None, 105_000),
                )
            ],
            "gap_p50_s": 114.0,
            "gap_p90_s": 519.0,
            "gap_p99_s": 1578.0,
        },
        "drive_ceiling_bytes_per_s": 7.0e9,
        "harness_ceiling_bytes_per_s": 70.0e9,
    }  # fmt: skip
    return {**facts, **made.facts}


def _record(made: Cache, base: RunRecord) -> RunRecord:
    counts, start_ns, spans = _counts(made), int(base.windows[0].start_ns), []
    for phase, seconds in SECONDS.items():
        own = {name: counts[phase][name] for name in ("read_bytes", "written_bytes")}
        moved = sum(own.values())
        spans.append(
            timed_span(phase, start_ns, seconds, operations=moved >> 20, cpu_s=20.0, **own)
        )
        start_ns = spans[-1].end_ns + NS_PER_S
    settings = {
        "model": "llama3.1-8b",
        "bytes_per_token": None,
        "kv_dtype_bytes": 2,
        "block_tokens": BLOCK_TOKENS,
        "tp": 1,
        "layout": "layer" if made.layered else "block_file",
        "requests": "users",
        "arrivals": "closed" if made.users else "open",
        "request_rate": made.request_rate,
        "speed": 1.0,
        "admission": "all",
        "memory_tier_bytes": 0,
        "queue_depth": 32,
        "request_bytes": 1 << 20,
        "prefill_tokens_per_s": None,
        "decode_ms_per_token": None,
        "target_p99_ms": made.target_p99_ms,
        "prefill_j_per_token": made.prefill_j_per_token,
        "prefill_j_source": "a made-up GPU" if made.prefill_j_per_token else "",
    }
    command = ["wattload", "run", "workload=kv_cache"]
    if made.request_rate:
        command += [f"workload.request_rate={made.request_rate:g}"]
    record = base.model_copy(
        update={
            **placed(made.repeat, made.label, made.session),
            "command": tuple(command),
            "config": {**base.config, "workload": settings},
            "workload": base.workload.model_copy(
                update={"name": "kv_cache", "facts": _stored(_facts(made)), "data": None}
            ),
            "spans": tuple(spans),
            "power": _power(made, base),
            "metrics": (),
            "counters": tuple(_counters(made, counts)),
            "latencies": (),
            "halves": (),
            "checks": (),
        }
    )
    return record.model_copy(update={"metrics": metrics_of(record)})


def _stored(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts as a record has them."""
    times = [
        {key: own.model_dump() if isinstance(own, Latency) else own for key, own in row.items()}
        for row in facts["times"]
    ]
    return {**facts, "times": times}


def _counters(made: Cache, counts: Mapping[str, Any]) -> list[IoCounter]:
    share = 1.0 if made.reads_directly else 0.7
    return [
        IoCounter(
            host="box",
            device="nvme0n1",
            phase=phase,
            read_bytes=round(own["read_bytes"] * share),
            written_bytes=own["written_bytes"],
            read_operations=own["read_bytes"] >> 20,
            write_operations=own["written_bytes"] >> 20,
            busy_s=SECONDS[phase],
            weighted_s=30 * SECONDS[phase],
        )
        for phase, own in counts.items()
    ]


def _power(made: Cache, base: RunRecord) -> Any:
    if not made.has_power:
        return base.power.model_copy(update={"energy": (), "requested": "none", "sources": ()})
    (first, *_) = base.power.energy
    return base.power.model_copy(
        update={
            "energy": tuple(
                metered(first, phase, seconds, made.watts[phase], device=made.serial,
                        net_j=(made.watts[phase] - 5.0) * seconds)
                for phase, seconds in SECONDS.items()
            ),
            "written": tuple(
                WrittenRecord(
                    host="box",
                    device=made.serial,
                    phase=phase,
                    host_written_bytes=1_000_000_000,
                    media_written_bytes=1_400_000_000,
                    write_amplification=1.4,
                    media_source=OCP,
                )
                for phase in (FILL, STEADY, STORE)
            ),
        }
    )  # fmt: skip


def rate_sweep(
    rates: Sequence[float] = (1, 2, 4, 8), *, knee: float = 5.0, place: int = 0, **changes: Any
) -> list[Run]:
    """Return the runs of an open loop over rates of requests; those over ``knee`` overload."""
    return [
        cache_run(
            **{
                "name": f"rate-{changes.get('label', 'A')}-{rate:g}",
                "users": None,
                "request_rate": float(rate),
                "added_s": 0.1 / (1 - min(rate / knee, 0.9)),
                "backlog_end": 60 if rate > knee else 11,
                "repeat": 2 * index + place,
                **changes,
            }
        )
        for index, rate in enumerate(rates)
    ]


def cache_turns(count: int = 6) -> list[Run]:
    """Return runs of two drives that alternate, with rates that scatter by under 1.5 %."""
    sides: Sequence[Mapping[str, Any]] = (
        {"label": "A", "serial": "SERIALA", "restored_per_s": 200.0},
        {"label": "B", "serial": "SERIALB", "restored_per_s": 150.0, "added_s": 0.3},
    )
    runs: list[Run] = []
    for block in range(count):
        for side in sides if block % 2 == 0 else reversed(sides):
            place = len(runs)
            own = dict(side)
            own["restored_per_s"] *= 1 + 0.003 * (place * 7 % 5)
            runs.append(cache_run(name=f"{own['label']}-{block}", repeat=place, seed=place, **own))
    return runs
