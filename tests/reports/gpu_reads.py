"""Runs of reads into GPU memory, in memory: two loaders, idle and busy, over threads and blocks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.records import Scenario, make_run
from tests.reports.sessions import EMPTY, metered, placed, timed_span
from wattload.core.histogram import Histogram
from wattload.core.io import DataPath, PathCounts
from wattload.core.record.host import LoadLevel, LoadRecord, LoadWindow, MemoryMeter
from wattload.core.record.results import latencies_of
from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S
from wattload.reports.runs.load import Run
from wattload.results.gpu_read.facts import (
    STORAGE,
    Connection,
    FailedReads,
    RankReads,
    ReadFacts,
    ReadSettings,
)
from wattload.results.reading import checks_of, metrics_of

SECONDS = 30
BLOCKS = (4096, 131_072, 1_048_576)
THREADS = (8, 32, 128, 512, 2048)
NEAR = "0000:65:00.0"


@dataclass(kw_only=True)
class Reads:
    """What a made-up run was; a rate of ``None`` follows from blocks, threads, loader and load."""

    name: str = "run-1"
    loader: str = "bounce"
    load: str = "none"
    block_bytes: int = 4096
    threads: int = 8
    repeat: int = 0
    rate: float | None = None
    word: str = "host_bounce"
    meter: MemoryMeter = "self_reported"
    failed: int = 0
    in_latency: float = 1.0
    """The part of a thread's time that is in a latency."""
    load_at: float = 0.86
    serial: str = "SERIAL01"
    seed: int = 1


def counts_of(word: str, reads: int, block_bytes: int) -> PathCounts:
    """Return counters that prove a path."""
    common: dict[str, Any] = {"reads": reads, "read_bytes": reads * block_bytes}
    if word == "host_bounce":
        return PathCounts(**common, pinned_copies=reads, pinned_bytes=reads * block_bytes)
    if word == "unverified":
        return PathCounts(**common)
    own: dict[str, int] = {"p2p_reads": 0, "nvfs_reads": 0, "posix_reads": 0, "peer_reads": 0}
    if word == "mixed":
        own |= {"p2p_reads": reads // 2, "posix_reads": reads - reads // 2}
    elif word == "p2p_nvfs":
        own["nvfs_reads"] = common["nvidia_fs_reads"] = reads
    else:
        own["posix_reads" if word == "posix_bounce" else "p2p_reads"] = reads
        own["peer_reads"] = reads if word == "p2p_via_peer_gpu" else 0
    return PathCounts(**common, **own, library_reads=reads)


def rate_of(made: Reads) -> float:
    """Return a plausible rate: saturating in threads, slower when busy, most so by the host."""
    if made.rate is not None:
        return made.rate
    most = {4096: 2.6e9, 131_072: 5.2e9, 1_048_576: 6.6e9}[made.block_bytes]
    half = {4096: 160.0, 131_072: 40.0, 1_048_576: 12.0}[made.block_bytes]
    by_host = 0.75 if made.loader == "bounce" else 1.0
    busy = {"bounce": 0.45, "cufile": 0.93}.get(made.loader, 0.6) if made.load != "none" else 1.0
    noise = 1 + 0.01 * np.random.default_rng(made.seed).standard_normal()
    return float(most * by_host * busy * made.threads / (made.threads + half) * noise)


def reads_run(**changes: Any) -> Run:
    """Return a run of reads into GPU memory without traces."""
    made = Reads(**changes)
    scenario = Scenario(
        run_id=made.name,
        label=made.loader,
        loader=made.loader,
        workload="checkpoint",
        virtual=False,
        serial=made.serial,
        model="MICRON_9400",
        power="measured",
        path="/mnt/n0",
    )
    base, _ = make_run(scenario)
    return Run(record=_record(made, base), traces=EMPTY)


def _record(made: Reads, base: RunRecord) -> RunRecord:
    moved = int(rate_of(made) * SECONDS) // made.block_bytes * made.block_bytes
    start_ns = int(base.windows[0].start_ns)
    reads = moved // made.block_bytes
    span = timed_span(
        "gpu_read", start_ns, SECONDS, read_bytes=moved, operations=reads, cpu_s=SECONDS * 4.0
    )
    mean_s = made.in_latency * made.threads * SECONDS / reads
    counts = counts_of(made.word, reads + 16, made.block_bytes)
    latency = of_count(
        [round(mean_s * factor * NS_PER_S) for factor in _latencies(made.seed, 1000)], reads
    )
    known = {"net_j": 10.0 * SECONDS, "uncertainty_j": 4.0, "uncertainty_parts_j": {"gain": 4.0}}
    energy = metered(base.power.energy[0], "gpu_read", SECONDS, 14.0, **known)
    record = base.model_copy(
        update={
            **placed(made.repeat, made.loader),
            "command": (
                "wattload", "run", "workload=gpu_read", f"loader={made.loader}",
                f"load={made.load}", f"workload.block_bytes={made.block_bytes}",
                f"workload.threads={made.threads}",
            ),
            "config": _config(made, base),
            "workload": base.workload.model_copy(
                update={
                    "name": "gpu_read",
                    "loader": made.loader,
                    "facts": _facts(made, moved),
                    "paths": (_path(made, counts),),
                    "data": None,
                }
            ),
            "spans": (span,),
            "power": base.power.model_copy(update={"energy": (energy,)}),
            "latencies": latencies_of(
                latency, phase="gpu_read", kind="read", operation_bytes=made.block_bytes
            ),
            "counters": (),
            "checks": (),
            "loads": (_load(made),) if made.load != "none" else (),
        }
    )  # fmt: skip
    return record.model_copy(update={"metrics": metrics_of(record), "checks": checks_of(record)})


def of_count(values_ns: Sequence[int], count: int) -> Histogram:
    """Return the latencies of so many operations, spread as these values."""
    one = Histogram.of(values_ns)
    counts = one.counts * np.uint64(count // one.count)
    counts[one.counts.argmax()] += np.uint64(count % one.count)
    return Histogram(counts, round(one.sum_ns * count / one.count), one.minimum_ns, one.maximum_ns)


def _latencies(seed: int, count: int) -> np.ndarray[Any, Any]:
    drawn = np.random.default_rng(seed).lognormal(0, 0.35, count)
    drawn[:3] *= 6
    found: np.ndarray[Any, Any] = drawn / drawn.mean()
    return found


def _config(made: Reads, base: RunRecord) -> dict[str, Any]:
    load: dict[str, Any] = {"name": made.load}
    if made.load != "none":
        load |= {"cpu_share": 0.86, "memory_share": 0.5}
    return {
        **base.config,
        "workload": {
            "block_bytes": made.block_bytes,
            "threads": made.threads,
            "duration_s": SECONDS,
            "file_bytes": 5_000_000_000,
            "files": "per_target",
        },
        "loader": {"name": made.loader},
        "load": load,
        "target": {"path": "/mnt/n0"},
    }


def _path(made: Reads, counts: PathCounts) -> DataPath:
    word = counts.word
    return DataPath(
        data_path="gpu",
        path_requested="direct" if word.startswith("p2p") else "auto",
        path_effective=word,
        path_evidence=f"{counts.reads} reads",
        engine=f"{made.threads} threads",
        counts=counts,
    )


def rank_reads(**changes: Any) -> RankReads:
    """Return what a rank counted of whose reads none failed, was cut short or went wrong."""
    values: dict[str, Any] = {
        "rank": 0, "host": "box", "gpu": None, "cut_s": 0.0, "bad_blocks": 0, "bad_files": (),
        "wrong_blocks": 0, "first_wrong": "", "drive_bytes": None, "touched_pages": None,
        "major_faults": None, "files": (), "pollers": (), "failures": (), "queue": None,
        "pull_per_s": None, "queue_per_s": None, "clock_step_s": None,
    }  # fmt: skip
    return RankReads(**(values | changes))


def read_facts(**changes: Any) -> dict[str, Any]:
    """Return the facts of reads of storage that may take any path."""
    values: dict[str, Any] = {
        "must_be_direct": False, "engine": STORAGE, "table_bytes": 0, "cache_bytes": 0,
        "shared_targets": 0, "connections": (), "reported_latency_s": None, "latency_missing": "",
        "reported": {},
    }  # fmt: skip
    return ReadFacts(**(values | changes)).model_dump(mode="json")


def _facts(made: Reads, moved: int) -> dict[str, Any]:
    cores = 4.0 if made.loader == "bounce" else 1.5
    connection = Connection(
        target=0, path="/mnt/n0", gpu=NEAR, gpu_name="NVIDIA H100 80GB HBM3", gpu_node=0,
        drive_node=0, link="same switch",
    )  # fmt: skip
    failure = FailedReads(
        reason="cuFileRead returned 5011", count=made.failed, file=None, offset_bytes=None
    )
    rank = rank_reads(
        seconds=SECONDS,
        operations=moved // made.block_bytes,
        in_flight=made.threads,
        cpu_s=cores * SECONDS,
        compared_bytes=16 * made.block_bytes,
        failures=(failure,) * bool(made.failed),
    )
    return read_facts(
        settings=ReadSettings(block_bytes=made.block_bytes, duration_s=SECONDS),
        by_threads=True,
        read_bytes=made.block_bytes,
        file_bytes=5_000_000_000,
        connections=(connection,),
        software={"cuda": "12.8", "nvidia_driver": "570.86", "cufile": "1.15"},
        ranks=(rank,),
    )


def _load(made: Reads) -> LoadRecord:
    lost = 0.93 if made.loader == "cufile" else 0.81
    levels = [
        _level(window, cpu, work, made)
        for window, cpu, work in (
            ("alone", made.load_at, 1.0),
            ("during", min(1.0, made.load_at + 0.1), lost),
            ("after", made.load_at, 1.0),
        )
    ]
    return LoadRecord(
        host="box",
        name=made.load,
        program="wattload",
        cpus="0-15",
        thread_count=16,
        cpu_share_asked=0.86,
        memory_share_asked=0.5,
        meter=made.meter,
        peak_of="measured",
        peak_bytes_per_s=169e9,
        measured_peak_bytes_per_s=169e9,
        theoretical_peak_bytes_per_s=None,
        settle_s=31.0,
        copy_bytes_per_s_quota=84e9,
        arithmetic_per_s_quota=1e9,
        kept_fraction=lost,
        levels=tuple(levels),
        missing={"theoretical_peak_bytes_per_s": "DMI has no memory modules"},
    )


def _level(window: Any, cpu: float, work: float, made: Reads) -> LoadLevel:
    known: LoadWindow = window
    return LoadLevel(
        host="box",
        window=known,
        start_ns=0,
        end_ns=10 * NS_PER_S,
        cpu_share=cpu,
        steal_share=0.0,
        load_cpu_share=0.86 * work,
        run_cpu_share=max(0.0, cpu - 0.86 * work),
        other_cpu_share=0.004,
        memory_bytes_per_s=84e9 * work,
        memory_share=0.5 * work,
        copied_bytes_per_s=84e9 * work,
        work_fraction=work,
        pressure_cpu_share=0.3,
        pressure_io_share=0.1,
        pressure_memory_share=0.0,
    )


def reads_sweep(
    *,
    words: tuple[str, str] = ("posix_bounce", "host_bounce"),
    loaders: tuple[str, str] = ("cufile", "bounce"),
    blocks: Sequence[int] = BLOCKS,
    loads: Sequence[str] = ("none", "busy"),
    threads: Sequence[int] = THREADS,
    pairs: int = 6,
    serials: tuple[str, str] = ("SERIAL01", "SERIAL01"),
    **changes: Any,
) -> list[Run]:
    """Return a session in which two loaders alternate at every point."""
    runs = []
    place = 0
    for pair, block, load, count in itertools.product(range(pairs), blocks, loads, threads):
        order = (0, 1) if pair % 2 == 0 else (1, 0)
        for side in order:
            runs.append(
                reads_run(
                    name=f"r-{loaders[side]}-{load}-{block}-{count}-{pair}",
                    loader=loaders[side],
                    load=load,
                    block_bytes=block,
                    threads=count,
                    repeat=place,
                    word=words[side],
                    serial=serials[side],
                    seed=place + 1,
                    **changes,
                )
            )
            place += 1
        place += place % 2
    return runs
