"""The cost of the suite itself: a command, sampling, a page of a thousand runs, a busy host.

``power=replay`` needs no hardware. Where the target is a real NVMe drive, ``power=nvme`` shows what
its SMART log and its power state cost. Shares of a load need an idle host: other work counts.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.child import ROOT, output, scratch
from benchmarks.engine import operations_per_s
from benchmarks.measure import Comparison, Figures, NotMeasuredError, Row
from benchmarks.wattload_run import Run
from wattload.core.record.file import RECORD_FILE, read_record, write_record
from wattload.core.record.phase import TraceFile
from wattload.core.record.run import RunRecord

WATTLOAD = (sys.executable, "-m", "wattload")
EXAMPLES = ROOT / "docs/examples/lab"
RUN_COUNT = 1000
FORMS = {"page": (), "index": ("--index",)}
TRACE_S = 3600
READS = ("workload=gpu_random_read", "workload.duration_s=5", "workload.file_bytes=268435456")
MEMORY = ("loader=gpu_queue", "loader.engine=memory", "loader.requester=cpu")
"""Reads that wait for no drive: they show what sampling takes from the host, without its noise."""

_most = partial(Row, sense="at_most")


def harness(target: Path) -> Iterator[Comparison]:
    """Measure ``--help`` and a run of ``workload=null``, each from start to end of its process."""
    yield Comparison(
        rows=(_most(figure="seconds", unit="s", name="wattload --help", goal=0.3),),
        ways={"help": partial(timed, [*WATTLOAD, "--help"])},
        warm=True,
    )
    with tempfile.TemporaryDirectory() as runs:
        options = ["workload=null", "power=none", f"target.path={target}", f"runs={runs}"]
        yield Comparison(
            rows=(_most(figure="seconds", unit="s", name="null run, power=none", goal=2.0),),
            ways={"null run": partial(timed, [*WATTLOAD, "run", *options])},
            warm=True,
        )


def timed(command: Sequence[str]) -> Figures:
    """Return the wall time of a command."""
    start_s = time.monotonic()
    output(command)
    return {"seconds": time.monotonic() - start_s}


def sampler(target: Path) -> Iterator[Comparison]:
    """Measure the sampler at 10 Hz and 100 Hz, then reads with and without it."""
    share = partial(_most, figure="sampler_cpu_share", unit="of a core")
    with scratch(target) as folder:
        trace = folder / "trace.csv"
        rows = "".join(f"{second},{5 + second % 7}\n" for second in range(TRACE_S))
        trace.write_text(f"# evidence: declared\ntime_s,power_w\n{rows}")
        common = [*READS, f"target.path={folder}"]
        replay = ["power=replay", f"power.replay.path={trace}"]
        for source, options in {"replay": replay, "nvme": ["power=nvme"]}.items():
            yield Comparison(
                rows=(share(name=f"sampler, 10 Hz, {source}", goal=0.005),),
                ways={source: Run([*common, *MEMORY, *options, "power.period_s=0.1"])},
            )
        lost = _most(name="readings lost at 100 Hz", figure="lost_readings", unit="", goal=0.0)
        fast = Run([*common, *MEMORY, *replay, "power.period_s=0.01"])
        yield Comparison(rows=(share(name="sampler, 100 Hz, replay"), lost), ways={"replay": fast})
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


def report(target: Path) -> Iterator[Comparison]:
    """Measure the comparison page and the index of a thousand runs."""
    megabytes = partial(_most, unit="MB", scale=1e-6)
    with scratch(target) as folder:
        write_runs(folder / "runs", RUN_COUNT)
        for form, options in FORMS.items():
            command = [*WATTLOAD, "report", *options, str(folder / "runs")]
            what = f"{form} of {RUN_COUNT} runs"
            yield Comparison(
                rows=(
                    _most(name=f"{what}, wall time", figure="seconds", unit="s", goal=10.0),
                    megabytes(name=f"{what}, peak memory", figure="peak_bytes", goal=500.0),
                    megabytes(name=f"{what}, size", figure="written_bytes"),
                ),
                ways={form: partial(_cost, command, folder / f"{form}.html")},
                warm=True,
            )


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


def host_load(target: Path) -> Iterator[Comparison]:
    """Measure the shares of a load that runs before a workload of reads."""
    distance = partial(_most, unit="of all")
    with scratch(target) as folder:
        options = ["workload=gpu_random_read", "loader=direct", "scale=demo"]
        run = Run([*options, "load=busy", "power=none", f"target.path={folder}"])
        yield Comparison(
            rows=(
                distance(name="load alone, CPU share - target", figure="cpu", goal=0.02),
                distance(
                    name="load alone, memory share - target",
                    figure="memory",
                    goal=0.03,
                ),
            ),
            ways={"alone": partial(_distances, run)},
            notes=[run.shown()],
        )


def _distances(run: Run) -> Figures:
    """Return how far the shares were from their targets before the workload began."""
    found = {}
    for load in run.record().loads:
        for level in load.levels:
            pairs = {
                "cpu": (level.cpu_share, load.cpu_share_asked),
                "memory": (level.memory_share, load.memory_share_asked),
            }
            for name, (share, target) in pairs.items():
                if level.window == "alone" and share is not None and target is not None:
                    found[name] = abs(share - target)
    if not found:
        raise NotMeasuredError("the record has no shares of the load")
    return found
