"""The cost of sampling: the sampler's share of a core, and the speed of reads with it and without.

``power=replay`` needs no hardware. Where the target is a real NVMe drive, ``power=nvme`` shows what
its SMART log and its power state cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.engine import operations_per_s
from benchmarks.files import scratch
from benchmarks.measure import Comparison, Row
from benchmarks.wattload_run import Run

SECONDS = 5
TRACE_S = 3600
READS = (
    "workload=gpu_random_read",
    f"workload.duration_s={SECONDS}",
    "workload.file_bytes=268435456",
)
MEMORY = ("loader=gpu_queue", "loader.engine=memory", "loader.requester=cpu")
"""Reads that wait for no drive: they show what sampling takes from the host, without its noise."""


def comparisons(target: Path) -> Iterator[Comparison]:
    """Measure the sampler at 10 Hz and 100 Hz, then reads with and without it."""
    with scratch(target) as folder:
        trace = folder / "trace.csv"
        rows = "".join(f"{second},{5 + second % 7}\n" for second in range(TRACE_S))
        trace.write_text(f"# evidence: declared\ntime_s,power_w\n{rows}")
        common = [*READS, f"target.path={folder}"]
        replay = ["power=replay", f"power.replay.path={trace}"]
        for source, options in {"replay": replay, "nvme": ["power=nvme"]}.items():
            yield Comparison(
                rows=(_share(f"sampler, 10 Hz, {source}", 0.005),),
                ways={source: Run([*common, *MEMORY, *options, "power.period_s=0.1"])},
            )
        lost = Row(
            name="readings lost at 100 Hz",
            figure="lost_readings",
            unit="",
            goal=0.0,
            sense="at_most",
        )
        fast = Run([*common, *MEMORY, *replay, "power.period_s=0.01"])
        yield Comparison(
            rows=(_share("sampler, 100 Hz, replay", None), lost), ways={"replay": fast}
        )
        for name, loader in {"memory": MEMORY, "a drive": ("loader=direct",)}.items():
            row = operations_per_s(
                name=f"random reads of {name}, sampled ÷ not", figure="reads_per_s", goal=0.99
            )
            yield Comparison(
                rows=(row,),
                ways={
                    "sampled": Run([*common, *loader, *replay, "power.period_s=0.1"]),
                    "not sampled": Run([*common, *loader, "power=none"]),
                },
            )


def _share(name: str, goal: float | None) -> Row:
    return Row(name=name, figure="sampler_cpu_share", unit="of a core", goal=goal, sense="at_most")
