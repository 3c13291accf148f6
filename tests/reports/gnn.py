"""Runs of training on a graph: any loader, serial or ahead, with steps and traced requests.

No figure here was measured. They have the sizes of ``igb_small`` on one fast drive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests.records import Scenario, make_run, write_made_run
from tests.reports.sessions import placed, timed_span
from wattload.core.io import DataPath, PathCounts
from wattload.core.power import Channel, Scope
from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S
from wattload.reports.runs.load import Run
from wattload.reports.runs.traces import PowerTrace, Signal, Traces
from wattload.results.reading import metrics_of

PHASE = "gnn"
ROW_BYTES = 4096
DRIVE_W, GPU_W = 14.0, 250.0
STAGES = ("sampling", "aggregation", "transfer", "training", "verification")
ROWS = 245_000
"""Rows of a batch of 1024 seeds."""
RATES = {"direct": 1.05e6, "mmap": 62e3, "gpu_queue": 1.9e6, "dgl": 48e3}
"""Rows that each loader gathers in a second."""
GPU = {"address": "0000:65:00.0", "name": "NVIDIA H100 80GB HBM3"}


@dataclass(kw_only=True)
class Training:
    """What a made-up run was; a ``rate`` of ``None`` is that of its loader."""

    name: str = "run-1"
    loader: str = "direct"
    arm: str = ""
    label: str = ""
    scale: str = "quick"
    graph: str = "igb_small"
    source: str | None = None
    batch_seeds: int = 1024
    fanouts: tuple[int | list[int], ...] = (10, 5, 5)
    memory_share: float = 0.45
    steps: int = 20
    overlap: str = "serial"
    training: str = "torch"
    trainer: str = "gpu"
    sampler: str = ""
    method: str = "cgroup2"
    rate: float | None = None
    training_step_s: float = 0.0083
    steps_per_epoch: int = 586
    is_whole_epoch: bool = False
    profile: str | None = "tracefs"
    foreign_share: float = 0.0
    """The share of the bytes of the profile that other programs read."""
    repeat: int = 0
    session: str = "s1"
    serial: str = "SERIAL01"
    model: str = "MICRON_9550"
    link_gt_per_s: float = 32.0
    has_power: bool = True
    has_power_trace: bool = False
    virtual: bool = False
    scenario: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Other settings of the workload."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Other facts than those that follow from the above."""
    took_s: float | None = None
    """The seconds of all steps, if not those of their stages."""
    seed: int = 1

    @property
    def fills_gpu(self) -> bool:
        """Whether rows end in the GPU's memory without a transfer."""
        return self.loader == "gpu_queue"

    @property
    def is_mapped(self) -> bool:
        """Whether the page cache decides what the drive reads."""
        return self.loader in ("mmap", "dgl")

    @property
    def rows(self) -> int:
        """The rows of all batches."""
        return self.steps * ROWS * self.batch_seeds // 1024

    @property
    def feature_bytes(self) -> int:
        """The bytes of all features."""
        return 4_096_000_000

    @property
    def stages_s(self) -> dict[str, float]:
        """The seconds of each stage in all."""
        noise = 1 + 0.006 * np.random.default_rng(self.seed).standard_normal()
        gather_s = self.rows / ((self.rate or RATES[self.loader]) * noise)
        moves = 0.0 if self.fills_gpu or self.trainer == "cpu" else self.rows * ROW_BYTES / 55e9
        return {
            "sampling": 0.021 * self.steps,
            "aggregation": float(gather_s),
            "transfer": moves,
            "training": self.training_step_s * self.steps,
            "verification": 0.0021 * self.steps,
        }

    @property
    def wall_s(self) -> float:
        """The seconds of all steps; ahead, little more than their longest stage."""
        if self.took_s is not None:
            return self.took_s
        parts = self.stages_s
        if self.overlap == "ahead":
            return max(parts.values()) * 1.04
        return sum(parts.values()) * 1.006

    @property
    def places(self) -> dict[str, int | None]:
        """How many rows came from where; the drive's bytes."""
        if self.is_mapped:
            drive = round(self.rows * ROW_BYTES * 5.2)
            return {**dict.fromkeys(_PLACES), "storage_bytes": drive}
        if not self.fills_gpu:
            return {"storage_rows": self.rows, "host_rows": 0, "cache_rows": 0, "merged_rows": 0,
                    "storage_bytes": self.rows * ROW_BYTES}  # fmt: skip
        host, cache, merged = self.rows * 34 // 100, self.rows * 3 // 100, self.rows // 200
        storage = self.rows - host - cache - merged
        return {"storage_rows": storage, "host_rows": host, "cache_rows": cache,
                "merged_rows": merged, "storage_bytes": storage * ROW_BYTES}  # fmt: skip


_PLACES = ("storage_rows", "host_rows", "cache_rows", "merged_rows")


def gnn_run(**changes: Any) -> Run:
    """Return a run of training on a graph, with its tables in memory."""
    made = Training(**changes)
    record = gnn_record(made)
    tables = gnn_tables(made, record)
    traces = Traces(
        throughput=None,
        power=_signals(made, record) if made.has_power and made.has_power_trace else None,
        notes=(),
        digests={},
        tables={
            name: {column: table.column(column).to_numpy() for column in table.column_names}
            for name, table in tables.items()
        },
    )
    return Run(record=record, traces=traces)


def write_gnn_run(folder: Path, **changes: Any) -> Path:
    """Write the folder of a run, with power over time and its own tables, and return it."""
    made = Training(**changes)
    record = gnn_record(made)
    power = {"power": _samples(made, record)} if made.has_power else {}
    return write_made_run(folder / made.name, record, {**gnn_tables(made, record), **power})


def pairs(count: int = 6, **changes: Any) -> list[Run]:
    """Return alternating runs of ``gpu_queue`` and ``mmap``."""
    runs: list[Run] = []
    for index in range(count):
        for loader in ("gpu_queue", "mmap") if index % 2 == 0 else ("mmap", "gpu_queue"):
            place = len(runs)
            name = f"{loader}-{index}"
            runs.append(gnn_run(name=name, loader=loader, repeat=place, seed=place + 1, **changes))
    return runs


def gnn_record(made: Training) -> RunRecord:
    """Return the record of a made-up run."""
    scenario = Scenario(
        run_id=made.name,
        label=made.label or made.arm or made.loader,
        loader=made.loader,
        workload="checkpoint",
        scale=made.scale,
        virtual=made.virtual,
        serial=made.serial,
        model=made.model,
        power="measured",
        path="/mnt/0",
    )
    base, _ = make_run(scenario)
    start_ns = int(base.windows[0].start_ns)
    span = timed_span(
        PHASE,
        start_ns,
        made.wall_s,
        read_bytes=made.places["storage_bytes"] or 0,
        operations=made.places["storage_rows"] or made.rows,
        cpu_s=_cpu_s(made),
    )
    record = base.model_copy(
        update={
            **placed(made.repeat, made.arm or made.loader, made.session),
            "command": ("wattload", "run", f"workload={PHASE}", f"loader={made.loader}",
                        "target.path=/mnt/0"),
            "config": {**base.config, "workload": dict(_settings(made)),
                       "loader": {"name": made.loader}, "target": {"path": "/mnt/0"},
                       "scale": {"name": made.scale}},
            "controllers": tuple(
                each.model_copy(
                    update={
                        state: getattr(each, state).model_copy(
                            update={"link_speed_gt_per_s": made.link_gt_per_s}
                        )
                        for state in ("before", "after")
                        if getattr(each, state) is not None
                    }
                )
                for each in base.controllers
            ),
            "workload": base.workload.model_copy(
                update={
                    "name": PHASE,
                    "loader": made.loader,
                    "facts": {**_facts(made), **made.facts},
                    "paths": (_path(made),),
                    "data": None,
                }
            ),
            "spans": (span,),
            "power": _power(made, base),
            "metrics": (),
            "latencies": (),
            "counters": tuple(_counters(made)),
            "checks": (),
        }
    )  # fmt: skip
    return record.model_copy(update={"metrics": metrics_of(record)})


def _counters(made: Training) -> Iterator[Any]:
    from wattload.core.record.phase import IoCounter

    busy = 0.99 if made.is_mapped else 0.97
    seconds = made.stages_s["aggregation"]
    yield IoCounter(
        host="box", phase=PHASE, device="nvme0n1",
        read_bytes=made.places["storage_bytes"], written_bytes=0,
        read_operations=(made.places["storage_bytes"] or 0) // (
            ROW_BYTES if not made.is_mapped else 43_000
        ),
        write_operations=0, busy_s=busy * seconds, weighted_s=seconds * 220,
    )  # fmt: skip


def _cpu_s(made: Training) -> float:
    per_million = {"direct": 3.4, "mmap": 92.0, "gpu_queue": 1.9, "dgl": 118.0}
    return per_million[made.loader] * made.rows / 1e6


def _settings(made: Training) -> Iterator[tuple[str, Any]]:
    yield from {
        "graph": made.graph, "source": made.source, "layers": len(made.fanouts),
        "fanouts": list(made.fanouts), "batch_seeds": made.batch_seeds, "hidden": 512,
        "learning_rate": 0.01, "steps": made.steps, "warmup_steps": 5, "overlap": made.overlap,
        "training": "auto", "sampler": "auto", "sampler_threads": None, "outstanding": 512,
        "memory_share": made.memory_share, "compare_every": 16, "profile_steps": 2,
        "train_share": 0.6, "gpus": None, **made.settings,
    }.items()  # fmt: skip


def _facts(made: Training) -> dict[str, Any]:
    batch_bytes = made.rows // made.steps * ROW_BYTES
    on_gpu = made.trainer == "gpu" or made.fills_gpu
    is_limited = made.method.startswith("cgroup")
    losses = [float(2.94 * np.exp(-step / 14) + 0.4) for step in range(made.steps)]
    return {
        "graph": made.graph,
        "nodes": {"paper": 1_000_000},
        "edges": {"cites": 12_070_502},
        "largest_degree": 4292,
        "row_bytes": ROW_BYTES,
        "training_seeds": made.steps_per_epoch * made.batch_seeds,
        "trainer": made.trainer,
        "emulated_step_s": made.training_step_s if made.trainer == "emulated" else None,
        "gpu": GPU if on_gpu else None,
        "sampler": made.sampler or ("dgl" if made.loader == "dgl" else "c"),
        "sampler_threads": 16,
        "torch": "2.13.0",
        "memory": {
            "share": made.memory_share,
            "method": made.method,
            "reason": None if is_limited else "no right to make a cgroup",
            "budget_bytes": round(made.memory_share * made.feature_bytes),
            "limit_bytes": round(made.memory_share * made.feature_bytes) + 102_506_496,
            "own_bytes": 102_506_496,
            "peak_bytes": 1_790_000_000 if is_limited else None,
            "page_cache_bytes": 1_650_000_000 if is_limited else None,
            "topology_bytes": 56_282_016,
            "batch_bytes": 0 if made.fills_gpu else batch_bytes,
            "host_rows_bytes": 819_200_000 if made.fills_gpu else 0,
            "working_bytes": 41_000_000,
            "gpu_cache_bytes": 7_782_400 if made.fills_gpu else 0,
            "gpu_batch_bytes": batch_bytes if on_gpu else 0,
            "gpu_topology_bytes": 0,
        },
        "steps": made.steps,
        "stages_s": made.stages_s,
        "transfer_gpu_s": None,
        "training_gpu_s": None,
        "eviction_s": 0.0,
        "rows": made.rows,
        **made.places,
        "operations": made.places["storage_rows"] or made.rows,
        "read_bytes": None if made.is_mapped else ROW_BYTES,
        "read_bytes_per_row": ROW_BYTES,
        "major_faults": 310_000 if made.is_mapped else 0,
        "cpu_s": _cpu_s(made),
        "losses": losses if made.trainer != "emulated" else [],
        "compared_rows": made.rows // 16,
        "ceilings": {
            "engine_rows_per_s": 1.1e6 if made.loader == "direct" else None,
            "host_rows_per_s": 5e6 if made.loader == "direct" else None,
            "pull_rows_per_s": 12.3e6 if made.fills_gpu else None,
        },
        "ceiling_reason": "" if not made.is_mapped else "the engine reads nothing here",
        "profile": _profile(made),
    }


def _profile(made: Training) -> dict[str, Any]:
    reads, sizes = 470_000, [{"bytes": 4096, "count": 470_000}]
    if made.is_mapped:
        sizes = [{"bytes": size, "count": count} for size, count in
                 ((4096, 21_000), (16_384, 32_000), (65_536, 18_500), (131_072, 9100))]  # fmt: skip
        reads = sum(each["count"] for each in sizes)
    traced = made.profile == "tracefs"
    read_bytes = sum(each["bytes"] * each["count"] for each in sizes)
    share = 0.0 if made.is_mapped else made.foreign_share
    return {
        "steps": 2,
        "own_reads": None if made.is_mapped else reads,
        "own_read_bytes": round(read_bytes * (1 - share)),
        "seen": {
            "source": made.profile,
            "reason": None if traced else "no right to read tracefs; run as root",
            "seconds": 2 * made.wall_s / made.steps,
            "reads": reads,
            "read_bytes": read_bytes,
            "mean_read_bytes": read_bytes / reads,
            "sizes": sizes if traced else [],
            "mean_depth": 14.0 if made.is_mapped else 482.0,
            "peak_depth": (31 if made.is_mapped else 512) if traced else None,
            "latency": {
                "p50_s": 310e-6 if traced else None,
                "p99_s": 1.4e-3 if traced else None,
                "mean_s": 402e-6,
            },
            "lost_events": 0,
        },
    }


def _path(made: Training) -> DataPath:
    if not made.fills_gpu:
        word = "page_cache" if made.is_mapped else "o_direct"
        return DataPath(data_path="host memory", path_requested=word, path_effective=word)
    reads = made.places["storage_rows"] or 0
    counts = PathCounts(
        reads=reads, read_bytes=reads * ROW_BYTES, requester="gpu", asked=reads, taken=reads,
        answered=reads, delivered=reads,
    )  # fmt: skip
    return DataPath(
        initiator="gpu", data_path="queue", path_requested="queue", path_effective=counts.word,
        path_evidence=counts.evidence, engine="io_uring", counts=counts,
    )  # fmt: skip


def _power(made: Training, base: RunRecord) -> Any:
    if not made.has_power:
        return base.power.model_copy(update={"energy": (), "requested": "none", "sources": ()})
    (first, *_) = base.power.energy
    common = {
        "phase": PHASE,
        "seconds": made.wall_s,
        "net_j": None,
        "uncertainty_parts_j": {"gain": 0.01 * DRIVE_W * made.wall_s},
        "uncertainty_j": 0.01 * DRIVE_W * made.wall_s,
        "states": (),
        "statistics": None,
        "missing": {**first.missing, "net_j": "no baseline"},
    }
    watts = 9.5 if made.is_mapped else DRIVE_W
    drive = first.model_copy(
        update={**common, "device": made.serial, "energy_j": watts * made.wall_s, "mean_w": watts}
    )
    gpu = first.model_copy(
        update={**common, "scope": Scope.GPU, "device": "0000:65:00.0", "source": "nvml",
                "energy_j": GPU_W * made.wall_s, "mean_w": GPU_W}
    )  # fmt: skip
    has_gpu = made.trainer == "gpu" or made.fills_gpu
    return base.power.model_copy(update={"energy": (drive, gpu) if has_gpu else (drive,)})


def gnn_tables(made: Training, record: RunRecord) -> dict[str, pa.Table]:
    """Return the tables of a run by name."""
    start_ns = record.windows[0].start_ns
    step_ns = made.wall_s / made.steps * NS_PER_S
    starts = (start_ns + np.arange(made.steps) * step_ns).astype(np.int64)
    steps = np.arange(made.steps)
    places, stages = made.places, made.stages_s
    jitter = 1 + 0.03 * np.random.default_rng(made.seed).standard_normal(made.steps)
    table: dict[str, Any] = {
        "step": steps,
        "start_ns": starts,
        "end_ns": (starts + step_ns * 0.995).astype(np.int64),
        **{f"{name}_s": np.full(made.steps, stages[name] / made.steps) for name in STAGES},
        "rows": _parts(made.rows, np.ones(made.steps)),
        **{
            name: pa.nulls(made.steps, pa.int64())
            if (count := places[name]) is None
            else _parts(count, np.ones(made.steps))
            for name in _PLACES
        },
        "storage_bytes": _parts(places["storage_bytes"] or 0, jitter),
        "loss": np.array(_facts(made)["losses"] or [np.nan] * made.steps),
    }
    tables = {"steps": pa.table(table)}
    if made.profile == "tracefs":
        tables["io_requests"] = _requests(made, start_ns - 20 * NS_PER_S)
    return tables


def _parts(total: int, weights: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return whole numbers in proportion to weights, whose sum is the total."""
    ends = np.round(np.cumsum(weights) / weights.sum() * total).astype(np.int64)
    return np.diff(ends, prepend=0)


def _requests(made: Training, start_ns: int) -> pa.Table:
    """Return the requests of two steps: while rows are gathered, and none between."""
    random = np.random.default_rng(made.seed)
    count = 6000
    depth = 14 if made.is_mapped else 482
    gather_s = made.stages_s["aggregation"] / made.steps
    step_s = made.wall_s / made.steps
    at_s = np.sort(random.uniform(0, 2 * gather_s, count))
    at_s += (at_s > gather_s) * (step_s - gather_s)
    latency_s = random.lognormal(0, 0.4, count) * depth * 2 * gather_s / count
    issued = start_ns + (at_s * NS_PER_S).astype(np.int64)
    sizes = [4096, 16_384, 65_536, 131_072] if made.is_mapped else [4096]
    shares = [0.26, 0.40, 0.23, 0.11] if made.is_mapped else [1.0]
    return pa.table(
        {
            "issued_ns": issued,
            "completed_ns": issued + (latency_s * NS_PER_S).astype(np.int64),
            "bytes": random.choice(sizes, count, p=shares),
            "device": ["nvme0n1"] * count,
            "is_read": [True] * count,
        }
    )


def _signals(made: Training, record: RunRecord) -> PowerTrace:
    samples = _samples(made, record)
    (source,) = samples.column("source").unique().to_pylist()
    signal = Signal(
        host=record.hosts[0].facts.name,
        source=source,
        device=made.serial,
        channel=Channel.POWER_W,
        time_ns=samples.column("time_ns").to_numpy(),
        value=samples.column("value").to_numpy(),
    )
    return PowerTrace(signals=(signal,))


def _samples(made: Training, record: RunRecord) -> pa.Table:
    """Return samples of the drive's power every 100 ms: busy while rows are gathered."""
    window = record.windows[0]
    times = np.arange(window.start_ns - NS_PER_S, window.end_ns + NS_PER_S, NS_PER_S // 10)
    inside = (times >= window.start_ns) & (times < window.end_ns)
    noise = np.random.default_rng(made.seed).normal(0, 0.12, times.size)
    watts = np.where(inside, 9.5 if made.is_mapped else DRIVE_W, 5.0) + noise
    (source, *_) = [each for each in record.power.energy if each.scope is Scope.DRIVE]
    count = times.size
    return pa.table(
        {
            "time_ns": times,
            "spread_ns": np.zeros(count, dtype=np.int64),
            "source": [source.source] * count,
            "device": [made.serial] * count,
            "channel": ["power_w"] * count,
            "value": watts,
            "evidence": [str(source.evidence)] * count,
            "host": [source.host] * count,
        }
    )
