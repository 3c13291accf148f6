"""Reads into GPU memory: through host memory and by cuFile, against KvikIO.

All read the same files, on one GPU, with one read in flight per thread. Without GPUDirect Storage
cuFile takes its path through host memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.child import scratch
from benchmarks.measure import Comparison, Row
from benchmarks.wattload_run import Run
from wattload.core.units import KIB, MIB

BLOCKS = {"4 KiB": 4 * KIB, "128 KiB": 128 * KIB, "1 MiB": MIB}
GOALS = {"4 KiB": 1.5, "128 KiB": 1.0, "1 MiB": 1.0}
THREADS = 64

_rate = partial(Row, figure="read_bytes_per_s", unit="GB/s", scale=1e-9)
_cpu = partial(
    Row, figure="cpu_s_per_gb", unit="CPU s per GB", scale=1e9, goal=1.0, sense="at_most"
)


def comparisons(target: Path) -> Iterator[Comparison]:
    """Compare the rate and the CPU time per byte of each loader with KvikIO's."""
    with scratch(target) as folder:
        for size, block_bytes in BLOCKS.items():
            options = [
                *("workload=gpu_read", "workload.duration_s=1", "workload.file_bytes=2147483648"),
                *(f"workload.block_bytes={block_bytes}", f"workload.threads={THREADS}"),
                *("power=none", f"target.path={folder}"),
            ]
            kvikio = Run([*options, "loader=kvikio"])
            for loader in ("bounce", "bounce_ring", "cufile_auto"):
                name = f"{loader} ÷ kvikio, {size} x {THREADS} threads"
                run = Run([*options, f"loader={loader}"])
                yield Comparison(
                    rows=(_rate(name=name, goal=GOALS[size]), _cpu(name=f"{name}, CPU per GB")),
                    ways={loader: run, "kvikio": kvikio},
                    notes=[run.shown()],
                )
