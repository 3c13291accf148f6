"""Ranks of unet3d over three hosts, which are namespaces of this machine, against one host."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import Comparison, NotMeasuredError, Row
from benchmarks.wattload_run import Run
from tools.cluster.hosts import DRIVE, NAMES, launcher, missing, running_hosts

RANKS = 3
PACE_S = 0.2
"""The step that keeps the ranks to about half a core in all, so that no CPU is short."""


def comparisons(_: Path) -> Iterator[Comparison]:
    """Compare the rates of the same ranks, on a host each or all on one; drives are in memory."""
    reason = missing()
    if reason is not None:
        raise NotMeasuredError(reason)
    with running_hosts() as cluster:
        for pace, step_s, goal in (("paced", PACE_S, 0.95), ("unpaced", 0.0, None)):
            options = [
                *("workload=unet3d", "scale=demo", "workload.file_count=84", "workload.epochs=10"),
                *("accelerator=h100", f"accelerator.step_s.unet3d={step_s}", "power=none"),
                f"target.path={DRIVE}",
            ]
            runs = {
                f"{len(names)} hosts": Run(
                    options,
                    cluster.words(NAMES[0], *launcher(ranks=RANKS, hosts=names)),
                    cluster.folder,
                )
                for names in (NAMES, NAMES[:1])
            }
            row = Row(
                name=f"unet3d {pace}, {RANKS} ranks on {len(NAMES)} hosts ÷ on 1",
                figure="read_bytes_per_s",
                unit="GB/s",
                scale=1e-9,
                goal=goal,
            )
            notes = [run.shown() for run in runs.values()][:1]
            yield Comparison(rows=(row,), ways=runs, warm=True, noise=False, notes=notes)
