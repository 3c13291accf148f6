"""Training on a graph, by whole runs: gathers, sampling, and how stages add up and overlap.

Gathers are compared with fio's random reads of blocks of a row's size, and loaders with each other;
the limit of memory is the workload's own. Each run of the last comparisons writes its graph anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.child import scratch, written_files
from benchmarks.fio import Job
from benchmarks.measure import Comparison, Figures, NotMeasuredError, Row, Way
from benchmarks.wattload_run import Run
from wattload.core.io import IOKind, IOOrder
from wattload.core.units import KIB, MIB

ROW_BYTES = 4 * KIB
FILE_BYTES = 512 * MIB
OUTSTANDING = 128
TRAINING = (
    *("workload=gnn", "workload.graph=igb_tiny", "workload.batch_seeds=256"),
    *("workload.hidden=64", "workload.steps=20", "workload.warmup_steps=2"),
    *("workload.profile_steps=0", f"workload.outstanding={OUTSTANDING}", "power=none"),
)
NO_LIMIT = "workload.memory_share=2"
SMALL_BATCHES = "workload.batch_seeds=64"
"""Batches that fit beside the page cache into the workload's own limit of memory."""
STAGES = ("sampling_s", "aggregation_s", "transfer_s", "training_s", "verification_s")

_rows = partial(Row, figure="storage_rows_per_s", unit="M/s", scale=1e-6)


def comparisons(target: Path) -> Iterator[Comparison]:
    """Compare gathers, sampling and whole steps, then measure stages and the writing of a graph."""
    with scratch(target) as folder, written_files(target, 1, FILE_BYTES) as files:
        direct = _run(folder, "loader=direct", "loader.pollers=1", NO_LIMIT)
        reads = Job(
            kind=IOKind.READ,
            order=IOOrder.RANDOM,
            files=files,
            block_bytes=ROW_BYTES,
            depth=OUTSTANDING,
            seconds=1.0,
        )
        yield Comparison(
            rows=(
                _rows(name="gathers of direct ÷ fio", goal=0.9),
                Row(
                    name="gathers of direct, CPU ÷ fio's",
                    figure="cpu_s_per_million_rows",
                    unit="CPU s per M",
                    goal=1.1,
                    sense="at_most",
                ),
            ),
            ways={"direct": direct, "fio": _gathers(reads)},
            notes=[reads.shown()],
        )
        for name, requester in {"CPU threads ask": "cpu", "a GPU asks": "gpu"}.items():
            queue = ("loader=gpu_queue", f"loader.requester={requester}", "loader.host_share=0")
            yield Comparison(
                rows=(_rows(name=f"gathers of gpu_queue ÷ direct, {name}", goal=0.95),),
                ways={
                    "gpu_queue": _run(folder, *queue, "loader.pollers=1", NO_LIMIT),
                    "direct": direct,
                },
            )
        yield Comparison(
            rows=(
                Row(
                    name="gpu_queue from host memory ÷ bare pull",
                    figure="rows_per_s",
                    per="pull_rows_per_s",
                    unit="x",
                    goal=0.95,
                ),
            ),
            ways={"host memory": _run(folder, "loader=gpu_queue", "loader.host_share=1", NO_LIMIT)},
        )
        for advice in ("normal", "random"):
            mapped = _run(folder, "loader=mmap", f"loader.advice={advice}", SMALL_BATCHES)
            yield Comparison(
                rows=(
                    Row(name=f"step, mmap {advice} ÷ direct", figure="step_s", unit="s"),
                    Row(
                        name=f"read amplification, mmap {advice} ÷ direct",
                        figure="read_amplification",
                        unit="",
                    ),
                ),
                ways={
                    f"mmap {advice}": mapped,
                    "direct": _run(folder, "loader=direct", SMALL_BATCHES),
                },
                notes=[mapped.shown()],
            )
        one_thread = "workload.sampler_threads=1"
        yield Comparison(
            rows=(
                Row(
                    name="sampling, DGL ÷ ours, one thread", figure="sampling_s", unit="s", goal=2.0
                ),
            ),
            ways={
                "DGL": _run(folder, "loader=dgl", NO_LIMIT, one_thread),
                "ours": _run(folder, "loader=direct", NO_LIMIT, one_thread, "workload.sampler=cpu"),
            },
        )
    yield from _stages(target)


def _stages(target: Path) -> Iterator[Comparison]:
    graph = Row(
        name="writing of the graph",
        figure="generate_bytes_per_s",
        unit="GB/s",
        scale=1e-9,
        goal=1.0,
    )
    serial = Row(name="serial stages ÷ wall", figure="stages_s", per="wall_s", unit="x", goal=0.98)
    ahead = Row(
        name="overlapped step ÷ longest stage",
        figure="wall_s",
        per="longest_s",
        unit="x",
        goal=1.1,
        sense="at_most",
    )
    for overlap, rows in {"serial": (serial, graph), "ahead": (ahead,)}.items():
        yield Comparison(rows=rows, ways={overlap: partial(_anew, target, overlap)})


def _anew(target: Path, overlap: str) -> Figures:
    """Run in a new folder, so that the run writes the graph; add up its stages."""
    with scratch(target) as folder:
        options = ("loader=direct", NO_LIMIT, f"workload.overlap={overlap}")
        found = _run(folder, *options)()
    stages = [found[name] for name in STAGES if name in found]
    if not stages:
        raise NotMeasuredError("the record has no stages")
    return {**found, "stages_s": sum(stages), "longest_s": max(stages)}


def _run(folder: Path, *options: str) -> Run:
    return Run([*TRAINING, *options, f"target.path={folder}"])


def _gathers(way: Way) -> Way:
    """Return a way with the names of the workload's figures."""

    def run() -> Figures:
        figures = way()
        return {
            "storage_rows_per_s": figures["operations_per_s"],
            "cpu_s_per_million_rows": figures["cpu_s_per_operation"] * 1e6,
        }

    return run
