"""The cost of a page of a thousand runs: seconds and peak memory of ``wattload report``."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.child import ROOT
from benchmarks.files import scratch
from benchmarks.measure import Comparison, Figures, NotMeasuredError, Row
from wattload.core.record.file import RECORD_FILE, read_record, write_record
from wattload.core.record.phase import TraceFile
from wattload.core.record.run import RunRecord

EXAMPLES = ROOT / "docs/examples/lab"
RUN_COUNT = 1000
FORMS = {"page": (), "index": ("--index",)}


def comparisons(target: Path) -> Iterator[Comparison]:
    """Measure the comparison page and the index of a thousand runs."""
    with scratch(target) as folder:
        write_runs(folder / "runs", RUN_COUNT)
        for form, options in FORMS.items():
            command = [sys.executable, "-m", "wattload", "report", *options, str(folder / "runs")]
            what = f"{form} of {RUN_COUNT} runs"
            yield Comparison(
                rows=(
                    _most(f"{what}, wall time", "seconds", "s", goal=10.0),
                    _most(f"{what}, peak memory", "peak_bytes", "MB", scale=1e-6, goal=500.0),
                    _most(f"{what}, size", "written_bytes", "MB", scale=1e-6),
                ),
                ways={form: partial(_cost, command, folder / f"{form}.html")},
                warm=True,
            )


def _most(
    name: str, figure: str, unit: str, *, scale: float = 1.0, goal: float | None = None
) -> Row:
    return Row(name=name, figure=figure, unit=unit, scale=scale, goal=goal, sense="at_most")


def _cost(command: Sequence[str], output: Path) -> Figures:
    """Return wall time, the peak memory of the largest process, and the size of the page."""
    start_s = time.monotonic()
    # wait4 covers this child and its own; getrusage(RUSAGE_CHILDREN) also all earlier ones.
    with subprocess.Popen([*command, "-o", str(output)], stdout=subprocess.DEVNULL) as child:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise NotMeasuredError(f"wattload report ended with status {child.returncode}")
    return {
        "seconds": time.monotonic() - start_s,
        "peak_bytes": usage.ru_maxrss * 1024,
        "written_bytes": output.stat().st_size,
    }


def write_runs(folder: Path, count: int) -> None:
    """Write copies of the examples in turn, each with a name and a time of its own."""
    examples = sorted(EXAMPLES.glob(f"*/{RECORD_FILE}"))
    records = [read_record(example) for example in examples]
    for index in range(count):
        number = index % len(examples)
        record = records[number]
        document: dict[str, Any] = json.loads(record.model_dump_json())
        moment = datetime.fromisoformat(record.started_utc) + timedelta(minutes=3 * index)
        document["started_utc"] = moment.isoformat(timespec="milliseconds")
        finished = moment + timedelta(minutes=2)
        document["finished_utc"] = finished.isoformat(timespec="milliseconds")
        document["run_id"] = f"{moment:%Y%m%dT%H%M%SZ}-{record.workload.name}-{index:04x}"
        document["comparison"] |= {"block": index // 4, "order": index}
        document["config"]["seed"] = index
        run = folder / document["run_id"]
        run.mkdir(parents=True)
        document["traces"] = [
            _named(examples[number].parent, trace, run).model_dump() for trace in record.traces
        ]
        write_record(RunRecord.model_validate(document), run)


def _named(example: Path, trace: TraceFile, run: Path) -> TraceFile:
    """Copy a trace with the run's name in its metadata: equal traces show that a run is a copy."""
    table = pq.read_table(example / trace.file)
    metadata = {**(table.schema.metadata or {}), b"run": run.name.encode()}
    pq.write_table(table.replace_schema_metadata(metadata), run / trace.file)
    digest = hashlib.sha256((run / trace.file).read_bytes()).hexdigest()
    return trace.model_copy(update={"sha256": digest})
