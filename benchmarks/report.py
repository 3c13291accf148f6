"""What a page of a thousand runs costs: seconds and peak memory of ``wattload report``.

``python -m benchmarks.report FOLDER`` only writes the thousand runs, for a profiler.
"""

from __future__ import annotations

import hashlib
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

import pyarrow.parquet as pq

from benchmarks.measure import NotMeasuredError, Result
from wattload.core.record.file import RECORD_FILE, read_record, write_record
from wattload.core.record.phase import TraceFile
from wattload.core.record.run import RunRecord
from wattload.core.units import MB

EXAMPLES = Path(__file__).parents[1] / "docs/examples/lab"
RUN_COUNT = 1000
GOAL_S, GOAL_MB = 10.0, 500.0
JITTER = 0.015
"""How far a figure is moved from the example's: less than the checks of rates let pass."""
SECONDS_EACH = 12.0
WATCHED_EVERY_S = 0.02
"""How often the processes' peaks are read; the kernel keeps them, so that none is missed."""
FORMS: Mapping[str, Sequence[str]] = {"page": (), "index": ("--index",)}
POWER_UNITS = frozenset({"J", "W", "B/J", "J/B"})


@dataclass(frozen=True, slots=True)
class Cost:
    """One call: wall time, memory, and what was written.

    ``peak_mb`` is the largest sum, at any time, of what each process alive then had held at most:
    never less than all of them held at once, and pages that two share count twice.
    """

    seconds: float
    peak_mb: float
    written_mb: float


def seconds(pairs: int) -> float:
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
    # wait4 covers this child and its own; getrusage(RUSAGE_CHILDREN) also all earlier ones.
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as child:
        peak_bytes = _watched(child.pid)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - start_s
    if child.returncode:
        raise NotMeasuredError(f"{command[3:]} ended with status {child.returncode}")
    # A process begins in the memory of the one that starts it, and what wait4 tells begins there.
    if usage.ru_maxrss * 1024 > _peak_bytes(os.getpid()):
        peak_bytes = max(peak_bytes, usage.ru_maxrss * 1024)
    return Cost(seconds, peak_bytes / MB, output.stat().st_size / MB)


def _watched(pid: int) -> int:
    """Return the largest sum of peaks of a process and its children, once it has ended."""
    largest = 0
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        largest = max(largest, sum(map(_peak_bytes, [pid, *_children(pid)])))
        time.sleep(WATCHED_EVERY_S)
    return largest


def _children(pid: int) -> list[int]:
    """Return a process's children, less those that are yet to run their program in its memory."""
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [int(each) for each in found if _command(int(each)) != _command(pid)]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _peak_bytes(pid: int) -> int:
    """Return the largest resident set that a process had so far; 0 for one that has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    found = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(next(found, "0")) * 1024


def write_runs(folder: Path, count: int) -> None:
    """Write that many runs, made of the examples in turn: each with figures of its own.

    Rates and times are moved by less than the checks of rates allow; bytes, energy and samples
    stay, so that every run is as valid as the one it was made of. Traces name their run, because
    equal ones would show that a run is a copy.
    """
    examples = sorted(EXAMPLES.glob(f"*/{RECORD_FILE}"))
    records = [read_record(example) for example in examples]
    chance = random.Random(1)
    for index in range(count):
        number = index % len(examples)
        document = _varied(records[number], index, chance)
        run = folder / str(document["run_id"])
        run.mkdir(parents=True)
        document["traces"] = [
            _named(examples[number].parent, trace, run).model_dump()
            for trace in records[number].traces
        ]
        write_record(RunRecord.model_validate(document), run)


def _named(example: Path, trace: TraceFile, run: Path) -> TraceFile:
    """Write a trace of an example into a run's folder, with the run's name in its metadata."""
    table = pq.read_table(example / trace.file)
    metadata = {**(table.schema.metadata or {}), b"run": run.name.encode()}
    pq.write_table(table.replace_schema_metadata(metadata), run / trace.file)
    digest = hashlib.sha256((run / trace.file).read_bytes()).hexdigest()
    return trace.model_copy(update={"sha256": digest})


def _varied(record: RunRecord, index: int, chance: random.Random) -> dict[str, Any]:
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
    return document


if __name__ == "__main__":
    write_runs(Path(sys.argv[1]), RUN_COUNT)
