"""Whole runs of wattload as child processes, and the figures of their own records."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.measure import NotMeasuredError, Result, Rounds, rounds
from wattload.core.record.file import read_record
from wattload.core.record.run import RunRecord

FAILED_CHECK = 3
PEAK_MEMORY = "peak_memory_bytes"
"""The largest resident set of any rank (``VmHWM``), beside the metrics of the record."""
LATER_EPOCHS = "later_epochs_read_bytes_per_s"
"""The read rate of all epochs but the first, where a run has several."""

Figures = Mapping[str, float]
Take = Callable[[], Figures]


def run(options: Sequence[str]) -> RunRecord:
    """Run once and return the record; its folder is thrown away.

    Raises:
        NotMeasuredError: the run failed; its last words, which name what to install, are in the
            message.
    """
    with tempfile.TemporaryDirectory() as runs:
        command = [sys.executable, "-m", "wattload", "run", "--json", *options, f"runs={runs}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode not in (0, FAILED_CHECK):
            words = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            raise NotMeasuredError(words[-1].removeprefix("wattload: "))
        return read_record(Path(json.loads(done.stdout.splitlines()[-1])["record"]))


def figures(record: RunRecord) -> Figures:
    """Return the metrics of a record that have a value, and what is worked out beside them.

    That is the peak memory of its ranks, and the read rate of its later epochs.
    """
    found = {metric.name: metric.value for metric in record.metrics if metric.value is not None}
    seconds = record.workload.details.get("epoch_s", ())
    if len(seconds) > 1 and "read_bytes_per_s" in found:
        epoch_bytes = found["read_bytes_per_s"] * sum(seconds) / len(seconds)
        found[LATER_EPOCHS] = epoch_bytes * (len(seconds) - 1) / sum(seconds[1:])
    peaks = [rank.peak_memory_bytes for rank in record.ranks]
    known = [peak for peak in peaks if peak is not None]
    return found | ({PEAK_MEMORY: float(max(known))} if known and len(known) == len(peaks) else {})


def take(options: Sequence[str]) -> Figures:
    return figures(run(options))


def of(name: str, scale: float = 1.0) -> Callable[[Figures], float]:
    """Return a function that finds a figure by name and multiplies it by ``scale``.

    The function raises ``NotMeasuredError`` where the record has none of that name.
    """

    def find(found: Figures) -> float:
        if name not in found:
            raise NotMeasuredError(f"the record has no {name}")
        return found[name] * scale

    return find


def versus(loaders: Sequence[str], options: Sequence[str], pairs: int) -> Rounds[Figures]:
    """Run the same options with one loader and the other, interleaved, after a warm-up of each.

    The last loader goes first: it is the one that may be missing.
    """
    ways = {loader: partial(take, [*options, f"loader={loader}"]) for loader in reversed(loaders)}
    return rounds(ways, pairs, warm=True)


def ratio(
    taken: Rounds[Figures],
    measured: Callable[[Figures], float],
    loaders: Sequence[str],
    empty: Result,
    again: str | None = None,
) -> Result:
    """Return ``empty`` with the ratios of one way's figure to the other's.

    ``again`` is the other one's second run, whose ratios to the first are the noise.
    """
    upper, lower = loaders
    return replace(
        empty,
        values=taken.ratios(measured, upper, lower),
        noise=taken.ratios(measured, again, lower) if again else (),
        figures=taken.values(measured),
        order=taken.order,
        raw=taken.as_json(dict),
    )
