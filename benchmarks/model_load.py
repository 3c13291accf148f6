"""Loads of a model by the direct loader: against the engine's sequential reads, and packages."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.child import scratch
from benchmarks.measure import Comparison, Figures, Row
from benchmarks.wattload_run import Run, figures

OURS = "direct"
MODEL = ("workload.model=llama3.1-8b", "workload.layers=5", "workload.vocabulary_divisor=8")
"""2.4 GB."""
TIMES = {"mmap": 1.0, "torch": 1.5, "runai": 1.0}
CPU = {"mmap": 0.5, "torch": 0.5, "runai": 0.8}

_most = partial(Row, sense="at_most")


def comparisons(target: Path) -> Iterator[Comparison]:
    """Compare cold loads of the same files into host memory."""
    with scratch(target) as folder:
        options = ["workload=model_load", *MODEL, "workload.loads=2", "workload.destination=host"]
        options += ["power=none", f"target.path={folder}"]
        ways = {name: partial(_loads, Run([*options, f"loader={name}"])) for name in (OURS, *TIMES)}
        yield Comparison(
            rows=(
                Row(
                    name="load ÷ engine's reads",
                    figure="drive_ceiling_fraction",
                    unit="",
                    goal=0.97,
                ),
                _most(name="memory ÷ model", figure="memory_per_model", unit=""),
            ),
            ways={OURS: ways[OURS]},
            notes=[Run([*options, f"loader={OURS}"]).shown()],
        )
        for other, goal in TIMES.items():
            rate = partial(Row, unit="GB/s", scale=1e-9, figure="delivered_bytes_per_s")
            yield Comparison(
                rows=(
                    rate(name=f"load ÷ {other}", goal=goal),
                    _most(
                        name=f"load ÷ {other}, CPU",
                        figure="load_cpu_s_per_byte",
                        unit="s/GB",
                        scale=1e9,
                        goal=CPU[other],
                    ),
                ),
                ways={OURS: ways[OURS], other: ways[other]},
            )


def _loads(run: Run) -> Figures:
    found = figures(run.record())
    return {
        **found,
        "delivered_bytes_per_s": found["load_delivered_bytes"] / found["load_s"],
        "memory_per_model": found["load_peak_memory_bytes"] / found["load_needed_bytes"],
    }
