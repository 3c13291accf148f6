"""Whole workloads with one loader against the other, as their own records tell it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.measure import NotMeasuredError, Result, ratios, rounds
from wattload.core.record.run import read_record

LOADERS = ("direct", "torch")
FAILED_CHECK = 3


def measure(target: Path) -> Iterator[Result]:
    """Yield checkpoint writing and unet3d reading, direct ÷ torch."""
    yield _compare(
        "checkpoint write, direct ÷ torch.save + fsync",
        goal=3.0,
        metric="write_bytes_per_s",
        options=["workload=checkpoint", "scale=quick", "workload.checkpoint_count=4"],
        target=target,
    )
    yield _compare(
        "unet3d unpaced, direct ÷ DataLoader, 4 workers each",
        goal=1.5,
        metric="read_bytes_per_s",
        options=[
            *("workload=unet3d", "scale=quick", "workload.epochs=2"),
            *("accelerator=unpaced", "loader.workers=4"),
        ],
        target=target,
    )


def _compare(
    name: str, *, goal: float, metric: str, options: Sequence[str], target: Path
) -> Result:
    with tempfile.TemporaryDirectory() as runs:
        common = [*options, "power=none", f"target.path={target}", f"runs={runs}"]
        ways = {
            loader: partial(_figure, [*common, f"loader={loader}"], metric) for loader in LOADERS
        }
        try:
            figures = rounds(ways)
        except NotMeasuredError as error:
            return Result(name=name, unit="GB/s", goal=goal, sense="at_least", missing=str(error))
    return Result(
        name=name,
        unit="GB/s",
        goal=goal,
        sense="at_least",
        values=ratios(figures["direct"], figures["torch"]),
        figures={way: [rate / 1e9 for rate in rates] for way, rates in figures.items()},
        notes=[f"`wattload run {' '.join(options)} loader=...`, metric {metric}"],
    )


def _figure(options: Sequence[str], metric: str) -> float:
    """Run once and return a metric of the record.

    Raises:
        NotMeasuredError: the run failed, or its record has no such figure.
    """
    command = [sys.executable, "-m", "wattload", "run", "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, FAILED_CHECK):
        raise NotMeasuredError(done.stderr.strip().splitlines()[-1])
    record = read_record(Path(json.loads(done.stdout.splitlines()[-1])["record"]))
    found = record.metric(metric)
    if found is None or found.value is None:
        raise NotMeasuredError(f"the record of {record.run_id} has no {metric}")
    return found.value
