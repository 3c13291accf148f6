"""Runs of small random reads, in memory: over queue pairs, targets and GPUs, by any requester."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.records import Scenario, make_run
from tests.reports.gpu_reads import of_count, rank_reads, read_facts
from tests.reports.sessions import metered, placed, timed_span
from wattload.core.host.gpus import Gpu
from wattload.core.io import DataPath, PathCounts
from wattload.core.power import Scope
from wattload.core.record.results import Latency, latencies_of
from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S
from wattload.reports.runs.load import Run
from wattload.reports.runs.traces import Categories, OperationTrace, Traces
from wattload.results.gpu_read.facts import (
    FailedReads,
    FileReads,
    Poller,
    ReadSettings,
)
from wattload.results.reading import metrics_of

PHASE = "gpu_random_read"
SECONDS = 10
PULL_PER_S = 97e6
DRIVE_W, GPU_W = 14.0, 120.0
GPUS = ("0000:18:00.0", "0000:65:00.0", "0000:9a:00.0")
QUEUE_PAIRS = (1, 2, 4, 8, 16, 32)


@dataclass(kw_only=True)
class Reads:
    """What a made-up run was; a rate of ``None`` follows from loader, pairs, targets and GPUs."""

    name: str = "run-1"
    loader: str = "gpu_queue"
    requester: str = "gpu"
    engine: str = "storage"
    arm: str = ""
    queue_pairs: int = 8
    targets: int = 1
    gpus: int = 1
    block_bytes: int = 512
    read_bytes: int = 512
    repeat: int = 0
    rate: float | None = None
    cores: float | None = None
    failures: Sequence[Mapping[str, Any]] = ()
    has_shared_drive: bool = False
    """Whether all targets are on the first drive."""
    cached: float | None = None
    """The share of pages that the page cache served, of mapped files."""
    latency_of_pollers: float = 0.95
    """What pollers and drive take of a request's latency."""
    label: str = ""
    session: str = "s1"
    interleave: str = "abba"
    lost: int = 0
    """Requests that no poller answered."""
    cache_bytes: int = 0
    """With a cache, three of four requests are hits, and one in 1000 of the others is merged."""
    link_gt_per_s: float = 32.0
    serial: str = "SERIAL01"
    has_power: bool = True
    virtual: bool = False
    traced: int = 0
    seed: int = 1


def rate_of(made: Reads) -> float:
    """Return a plausible rate: saturating in pairs, then by the link of each GPU."""
    if made.rate is not None:
        return made.rate
    one_drive = 6.92e6 * made.queue_pairs / (made.queue_pairs + 1.2)
    drives = one_drive * made.targets * (1 - 0.003 * made.targets)
    asked_by = {"direct": 0.5, "mmap": 0.01}.get(made.loader, 1.0)
    noise = 1 + 0.004 * np.random.default_rng(made.seed).standard_normal()
    return float(min(drives * asked_by, 0.97 * PULL_PER_S * made.gpus) * noise)


def random_run(**changes: Any) -> Run:
    """Return a run of small random reads; its operations are traced if ``traced`` is above 0."""
    made = Reads(**changes)
    scenario = Scenario(
        run_id=made.name,
        label=made.label or made.arm or made.loader,
        loader=made.loader,
        workload="checkpoint",
        virtual=made.virtual,
        serial=made.serial,
        model="SAMSUNG PM1763",
        power="measured",
        path="/mnt/0",
    )
    base, _ = make_run(scenario)
    record = _record(made, base)
    traces = Traces(
        throughput=None, power=None, notes=(), digests={}, operations=_trace(made, record)
    )
    return Run(record=record, traces=traces)


def _record(made: Reads, base: RunRecord) -> RunRecord:
    reads = round(rate_of(made) * SECONDS)
    start_ns = int(base.windows[0].start_ns)
    cores = made.cores or {"direct": 6.0, "mmap": 16.0}.get(made.loader, 2.1 * made.targets)
    moved = reads * made.read_bytes if made.engine == "storage" else 0
    span = timed_span(
        PHASE, start_ns, SECONDS, read_bytes=moved, operations=reads, cpu_s=cores * SECONDS
    )
    paths = [f"/mnt/{index}" for index in range(made.targets)]
    record = base.model_copy(
        update={
            **placed(made.repeat, made.arm or made.loader, made.session, made.interleave),
            "command": (
                "wattload", "run", f"workload={PHASE}", f"loader={made.loader}",
                f"workload.queue_pairs={made.queue_pairs}", f"target.path={_paths(paths)}",
            ),
            "config": {
                **base.config,
                "workload": {
                    "block_bytes": made.block_bytes,
                    "queue_pairs": made.queue_pairs,
                    "queue_size": 1024,
                    "requesters": 512,
                    "pattern": "uniform",
                    "duration_s": SECONDS,
                },
                "loader": {"name": made.loader, "engine": made.engine,
                           "requester": made.requester, "cache_bytes": made.cache_bytes},
                "target": {"path": _paths(paths)},
            },
            "targets": tuple(_target(made, base, index, path) for index, path in enumerate(paths)),
            "controllers": tuple(_controllers(made, base)),
            "workload": base.workload.model_copy(
                update={
                    "name": PHASE,
                    "loader": made.loader,
                    "rank_count": made.gpus,
                    "facts": _facts(made, reads, cores, paths),
                    "paths": (_path(made, reads),),
                    "data": None,
                }
            ),
            "spans": (span,),
            "power": _power(made, base),
            "latencies": tuple(_latencies(made, reads)),
            "counters": (),
            "checks": (),
        }
    )  # fmt: skip
    return record.model_copy(update={"metrics": metrics_of(record)})


def _paths(paths: Sequence[str]) -> Any:
    return paths[0] if len(paths) == 1 else list(paths)


def _target(made: Reads, base: RunRecord, index: int, path: str) -> Any:
    (target,) = base.targets
    serial = made.serial if index == 0 or made.has_shared_drive else f"{made.serial}-{index}"
    facts = target.facts.model_copy(update={"index": index, "path": path, "controllers": (serial,)})
    return target.model_copy(update={"facts": facts})


def _serials(made: Reads) -> list[str]:
    count = 1 if made.has_shared_drive else made.targets
    return [made.serial, *(f"{made.serial}-{index}" for index in range(1, count))]


def _controllers(made: Reads, base: RunRecord) -> Iterator[Any]:
    for controller in base.controllers:
        for serial in _serials(made):
            states = {
                name: state.model_copy(update={"link_speed_gt_per_s": made.link_gt_per_s})
                for name in ("before", "after")
                if (state := getattr(controller, name)) is not None
            }
            facts = controller.facts.model_copy(
                update={
                    "serial": serial,
                    "link_speed_max_gt_per_s": made.link_gt_per_s,
                    "model": {32.0: "SAMSUNG PM1753"}.get(made.link_gt_per_s, "SAMSUNG PM1763"),
                }
            )
            yield controller.model_copy(update={"facts": facts, **states})


def _power(made: Reads, base: RunRecord) -> Any:
    if not made.has_power:
        return base.power.model_copy(update={"energy": (), "requested": "none", "sources": ()})
    (first, *_) = base.power.energy
    watts = DRIVE_W if made.engine == "storage" else 5.0
    gross = {"net_j": None, "missing": {**first.missing, "net_j": "no baseline"}}
    drives = [
        metered(first, PHASE, SECONDS, watts, device=serial, **gross) for serial in _serials(made)
    ]
    gpus = [
        metered(
            first, PHASE, SECONDS, GPU_W, scope=Scope.GPU, device=address, source="nvml", **gross
        )
        for address in GPUS[: made.gpus if made.requester == "gpu" else 0]
    ]
    return base.power.model_copy(update={"energy": (*drives, *gpus)})


def _path(made: Reads, reads: int) -> DataPath:
    if made.loader != "gpu_queue":
        word = "o_direct" if made.loader == "direct" else "page_cache"
        return DataPath(data_path="host memory", path_requested=word, path_effective=word)
    is_gpu = made.requester == "gpu"
    failed = sum(each["count"] for each in made.failures)
    counts = PathCounts(
        reads=reads,
        read_bytes=reads * made.read_bytes,
        requester="gpu" if is_gpu else "cpu",
        asked=reads + failed + made.lost,
        taken=reads + failed + made.lost,
        answered=reads + failed,
        delivered=0 if made.engine == "null" else reads + _met(made, reads),
        **(
            {"requests": reads + _met(made, reads), **_cache(made, reads)}
            if made.cache_bytes
            else {}
        ),
    )
    return DataPath(
        initiator="gpu" if counts.word == "gpu_pull" else "cpu",
        data_path="queue",
        path_requested="queue",
        path_effective=counts.word,
        path_evidence=counts.evidence,
        engine="io_uring",
        counts=counts,
    )


def _cache(made: Reads, reads: int) -> dict[str, int]:
    if not made.cache_bytes:
        return {}
    counts = {"hits": 3 * reads, "merged": reads // 1000, "coalesced": 0}
    return {**counts, "misses": reads - 5, "bypassed": 5}


def _met(made: Reads, reads: int) -> int:
    return sum(_cache(made, reads).get(name, 0) for name in ("hits", "merged", "coalesced"))


def _facts(made: Reads, reads: int, cores: float, paths: Sequence[str]) -> dict[str, Any]:
    is_queue = made.loader == "gpu_queue"
    has_gpu = made.requester == "gpu" and is_queue
    pages = (1000, round(1000 * (1 - made.cached))) if made.cached is not None else (None, None)
    ranks = [
        rank_reads(
            rank=number,
            gpu=Gpu(address=GPUS[number], name="NVIDIA H200", node=number % 2) if has_gpu else None,
            seconds=SECONDS,
            operations=round(reads / made.gpus * (1 + 0.005 * (made.gpus - 1 - 2 * number))),
            in_flight=512 * len(paths[number :: made.gpus]),
            cpu_s=cores * SECONDS / made.gpus,
            compared_bytes=64 * made.block_bytes,
            touched_pages=pages[0],
            major_faults=pages[1],
            files=tuple(
                FileReads(
                    target=index,
                    path=path,
                    operations=reads // made.targets,
                    p50_s=74e-6,
                    p99_s=210e-6 + 1e-6 * index,
                )
                for index, path in list(enumerate(paths))[number :: made.gpus]
            ),
            pollers=tuple(
                Poller(answered=reads // made.targets, busy_s=8.1)
                for _ in range(number, made.targets, made.gpus)
            )
            if is_queue
            else (),
            failures=tuple(FailedReads(**each) for each in made.failures) if not number else (),
            queue=_path(made, reads // made.gpus).counts,
            pull_per_s=PULL_PER_S if has_gpu else None,
            queue_per_s=140e6 if is_queue else None,
        )
        for number in range(made.gpus)
    ]
    return read_facts(
        settings=ReadSettings(block_bytes=made.block_bytes, duration_s=SECONDS),
        by_threads=False,
        engine=made.engine,
        read_bytes=made.read_bytes,
        file_bytes=8_000_000_000,
        table_bytes=32 << 20,
        cache_bytes=made.cache_bytes,
        shared_targets=made.targets if made.has_shared_drive and made.targets > 1 else 0,
        software={"cuda": "13.0", "nvidia_driver": "580.65", "nvrtc": "13.0"} if has_gpu else {},
        ranks=tuple(ranks),
    )


def _latencies(made: Reads, reads: int) -> Iterator[Latency]:
    mean_s = 512 * made.targets / (reads / SECONDS)
    drawn = np.random.default_rng(made.seed).lognormal(0, 0.35, 1000)
    drawn *= mean_s / drawn.mean()
    for kind in ("request",) if made.loader == "mmap" else ("read", "request"):
        is_of_poller = kind == "read" and made.loader == "gpu_queue"
        factor = made.latency_of_pollers if is_of_poller else 1.0
        values_ns = [round(value * factor * NS_PER_S) for value in drawn]
        histogram = of_count(values_ns, reads if kind == "read" else max(reads // 64, 1000))
        yield from latencies_of(
            histogram,
            phase=PHASE,
            kind="read" if kind == "read" else "request",
            operation_bytes=made.block_bytes,
        )


def _trace(made: Reads, record: RunRecord) -> OperationTrace | None:
    if not made.traced:
        return None
    random = np.random.default_rng(made.seed)
    count, size = made.traced, 8_000_000_000
    start_ns = record.windows[0].start_ns
    zeros = np.zeros(count, dtype=np.int64)
    return OperationTrace(
        time_ns=np.sort(random.integers(start_ns, start_ns + SECONDS * NS_PER_S, count)),
        host=Categories(words=("box",), numbers=zeros),
        phase=Categories(words=(PHASE,), numbers=zeros),
        kind=Categories(words=("read",), numbers=zeros),
        target=random.integers(0, made.targets, count),
        file=Categories(words=("block.bin",), numbers=zeros),
        file_bytes=np.full(count, size, dtype=np.int64),
        offset_bytes=random.integers(0, size // 512, count) * 512,
        latency_ns=random.integers(60_000, 200_000, count),
    )


def pair_sweep(
    *,
    arms: Sequence[Mapping[str, Any]] = (
        {"arm": "gpu_queue"},
        {"arm": "direct", "loader": "direct"},
    ),
    queue_pairs: Sequence[int] = QUEUE_PAIRS,
    repeats: int = 2,
    **changes: Any,
) -> list[Run]:
    """Return the runs of a sweep over queue pairs, with the arms in turn."""
    runs = []
    for place, (repeat, count) in enumerate(itertools.product(range(repeats), queue_pairs)):
        turn = arms if repeat % 2 == 0 else tuple(reversed(arms))
        for side, own in enumerate(turn):
            name = f"q-{own.get('arm', 'gpu_queue')}-{count}-{repeat}"
            runs.append(
                random_run(
                    name=name,
                    queue_pairs=count,
                    repeat=len(arms) * place + side,
                    seed=len(arms) * place + side + 1,
                    **{**changes, **own},
                )
            )
    return runs


def target_sweep(
    targets: Sequence[int] = (1, 2, 4, 8, 14), *, repeats: int = 2, **changes: Any
) -> list[Run]:
    """Return the runs of a sweep over lists of targets; the last ones are limited by the link."""
    return [
        random_run(
            name=f"t-{count}-{repeat}",
            targets=count,
            repeat=place,
            seed=place + 1,
            **changes,
        )
        for place, (repeat, count) in enumerate(itertools.product(range(repeats), targets))
    ]
