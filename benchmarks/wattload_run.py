"""Whole runs of wattload as child processes, and the figures of their records."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.child import output
from benchmarks.measure import Figures
from wattload.core.record.run import RunRecord
from wattload.results.reading import read_judged, run_of
from wattload.results.training.facts import TrainingFacts

FAILED_CHECK = 3


@dataclass(frozen=True, slots=True)
class Run:
    """A run with some options, as ranks of ``launcher``; its folder, in ``runs``, is removed."""

    options: Sequence[str]
    launcher: Sequence[str] = ()
    runs: Path | None = None

    def shown(self) -> str:
        return f"`wattload run {' '.join(self.options)}`"

    def record(self) -> RunRecord:
        """Run once and return the record.

        Raises:
            NotMeasuredError: the run failed; the message is the run's.
        """
        with tempfile.TemporaryDirectory(dir=self.runs) as runs:
            command = [sys.executable, "-m", "wattload", "run", "--json"]
            printed = output(
                [*self.launcher, *command, *self.options, f"runs={runs}"],
                accepted=(0, FAILED_CHECK),
            )
            return read_judged(Path(json.loads(printed.splitlines()[-1])["record"])).record

    def __call__(self) -> Figures:
        return figures(self.record())


def figures(record: RunRecord) -> dict[str, float]:
    """Return the metrics of a record, the numbers among its facts, and some figures beside them.

    Those are the peak memory of a rank (``VmHWM``), the rate of an epoch after the first, the rate
    at which data was generated, and what the samplers did.
    """
    facts = record.workload.facts
    found = {name: float(value) for name, value in facts.items() if isinstance(value, int | float)}
    found |= {each.name: each.value for each in record.metrics if each.value is not None}
    peaks = [rank.peak_memory_bytes for rank in record.ranks]
    known = [peak for peak in peaks if peak is not None]
    if len(known) == len(peaks):
        found["peak_memory_bytes"] = float(max(known))
    run = run_of(record)
    seconds = run.facts.epochs_s if run and isinstance(run.facts, TrainingFacts) else ()
    if len(seconds) > 1:
        epoch_bytes = found["read_bytes_per_s"] * sum(seconds) / len(seconds)
        found["later_epochs_bytes_per_s"] = epoch_bytes * (len(seconds) - 1) / sum(seconds[1:])
    for window in record.windows:
        if window.name == "generate" and window.written_bytes:
            found["generate_bytes_per_s"] = window.written_bytes / window.seconds
    for sampler in record.power.samplers:
        found["sampler_cpu_share"] = sampler.cpu_share or 0.0
        due = sampler.seconds / sampler.period_s
        found["lost_readings"] = float(sampler.lost_sample_count)
        found["sampler_ticks_per_due"] = sampler.tick_count / due
    return found
