"""Checkpoints by the direct loader: against fio's sequential write, torch.save and dcp."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.child import scratch
from benchmarks.engine import FIO, WRITE
from benchmarks.measure import Comparison, Figures, Row, Way, fastest
from benchmarks.wattload_run import Run
from wattload.core.units import MIB

FILE_COUNT = 2
FILE_BYTES = 512 * MIB
OURS = "direct"


def comparisons(target: Path) -> Iterator[Comparison]:
    """Compare the rate of writing; measure the memory of a rank and the generator's ceiling."""
    with scratch(target) as folder:
        options = ["workload=checkpoint", "scale=quick", "workload.checkpoint_count=2"]
        options += ["power=none", f"target.path={folder}"]
        runs = {name: Run([*options, f"loader={name}"]) for name in (OURS, "torch", "dcp")}
        notes = [runs[OURS].shown()]
        files = [folder / f"{number}.bin" for number in range(FILE_COUNT)]
        jobs = [replace(job, new_bytes=FILE_BYTES) for job in WRITE.fios(files)]
        yield Comparison(
            rows=(_rate("fio's sequential write", 0.95),),
            ways={
                OURS: runs[OURS],
                FIO: _written(fastest({job.shown(): job for job in jobs}, "bytes_per_s", notes)),
            },
            notes=notes,
        )
        yield Comparison(
            rows=(
                Row(
                    name="resident memory per rank",
                    figure="peak_memory_bytes",
                    unit="MB",
                    scale=1e-6,
                    goal=256,
                    sense="at_most",
                ),
                Row(
                    name="checkpoint generator, one thread",
                    figure="generator_ceiling_bytes_per_s",
                    unit="GB/s",
                    scale=1e-9,
                    goal=4.0,
                ),
            ),
            ways={OURS: runs[OURS]},
        )
        for other in ("torch", "dcp"):
            yield Comparison(
                rows=(_rate(other, 3.0),),
                ways={OURS: runs[OURS], other: runs[other]},
                noise=False,
                warm=True,
                notes=[runs[other].shown()],
            )


def _rate(other: str, goal: float) -> Row:
    name = f"checkpoint write, direct ÷ {other}"
    return Row(name=name, figure="write_bytes_per_s", unit="GB/s", scale=1e-9, goal=goal)


def _written(way: Way) -> Way:
    def run() -> Figures:
        return {"write_bytes_per_s": way()["bytes_per_s"]}

    return run
