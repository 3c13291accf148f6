"""What a page of a thousand runs costs: seconds and peak memory of ``wattload report``.

``python -m benchmarks.report FOLDER`` only writes the thousand runs, for a profiler.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.measure import NotMeasuredError, Result
from wattload.core.record.run import RECORD_FILE, RunRecord, read_record, write_record
from wattload.core.units import MB

EXAMPLES = Path(__file__).parents[1] / "docs/examples/lab"
RUN_COUNT = 1000
GOAL_S, GOAL_MB = 10.0, 500.0
JITTER = 0.015
"""How far a figure is moved from the example's: less than the closure checks let pass."""
SECONDS_EACH = 12.0
FORMS: Mapping[str, Sequence[str]] = {"page": (), "index": ("--index",)}
POWER_UNITS = frozenset({"J", "W", "B/J", "J/B"})


@dataclass(frozen=True, slots=True)
class Cost:
    """One call: wall time, the largest resident set (``getrusage(2)``), and what was written."""

    seconds: float
    peak_mb: float
    written_mb: float


def seconds(pairs: int) -> float:
    """Return about how long the group takes."""
    return 15 + pairs * SECONDS_EACH * len(FORMS)


def measure(target: Path, pairs: int) -> Iterator[Result]:
    """Yield time and peak memory of the comparison page and of the index of a thousand runs."""
    with tempfile.TemporaryDirectory(dir=target) as folder:
        runs = Path(folder) / "runs"
        write_runs(runs, RUN_COUNT)
        for form, options in FORMS.items():
            output = Path(folder) / f"{form}.html"
            command = [sys.executable, "-m", "wattload", "report", *options, str(runs)]
            costs = [_cost([*command, "-o", str(output)], output) for _ in range(pairs + 1)][1:]
            yield from _results(form, costs)


def _results(form: str, costs: Sequence[Cost]) -> Iterator[Result]:
    what = f"{form} of {RUN_COUNT} runs"
    written = f"{what}: {costs[-1].written_mb:.2f} MB written"
    for name, unit, goal, values in (
        ("wall time", "s", GOAL_S, [cost.seconds for cost in costs]),
        ("peak memory", "MB", GOAL_MB, [cost.peak_mb for cost in costs]),
    ):
        yield Result(
            name=f"{what}, {name}",
            unit=unit,
            goal=goal,
            sense="at_most",
            values=values,
            value_unit=unit,
            notes=[written],
        )


def _cost(command: Sequence[str], output: Path) -> Cost:
    """Return what one call cost.

    Raises:
        NotMeasuredError: it failed.
    """
    start_s = time.monotonic()
    # wait4 tells of this child alone; getrusage(RUSAGE_CHILDREN) keeps the largest of them all.
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as child:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - start_s
    if child.returncode:
        raise NotMeasuredError(f"{command[3:]} ended with status {child.returncode}")
    return Cost(seconds, usage.ru_maxrss * 1024 / MB, output.stat().st_size / MB)


def write_runs(folder: Path, count: int) -> None:
    """Write that many runs, made of the examples in turn: each with figures of its own.

    Rates and times are moved by less than the closure checks allow; bytes, energy and traces stay,
    so that every run is as valid as the one it was made of. The traces are links to one file.
    """
    examples = sorted(EXAMPLES.glob(f"*/{RECORD_FILE}"))
    records = [read_record(example) for example in examples]
    chance = random.Random(1)
    for index in range(count):
        number = index % len(examples)
        record = _varied(records[number], index, chance)
        run = folder / record.run_id
        run.mkdir(parents=True)
        for trace in record.traces:
            os.link(_copied(examples[number].parent / trace.file, folder), run / trace.file)
        write_record(record, run)


def _copied(trace: Path, folder: Path) -> Path:
    """Return a copy of a trace in the folder, made once: links can't cross file systems."""
    copy = folder / f".{trace.parent.name}-{trace.name}"
    if not copy.exists():
        copy.write_bytes(trace.read_bytes())
    return copy


def _varied(record: RunRecord, index: int, chance: random.Random) -> RunRecord:
    document: dict[str, Any] = json.loads(record.model_dump_json())
    moment = datetime.fromisoformat(record.started_utc) + timedelta(minutes=3 * index)
    document["started_utc"] = moment.isoformat(timespec="milliseconds")
    document["finished_utc"] = (moment + timedelta(minutes=2)).isoformat(timespec="milliseconds")
    document["run_id"] = f"{moment:%Y%m%dT%H%M%SZ}-{record.workload.name}-{index:04x}"
    document["comparison"] |= {"block": index // 4, "order": index}
    document["config"]["seed"] = index
    for metric in document["metrics"]:
        if metric["value"] is not None and metric["unit"] not in POWER_UNITS:
            metric["value"] *= 1 + chance.uniform(-JITTER, JITTER)
    return RunRecord.model_validate(document)


if __name__ == "__main__":
    write_runs(Path(sys.argv[1]), RUN_COUNT)
