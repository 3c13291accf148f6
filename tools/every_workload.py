"""Every workload once with its defaults, on one GPU and on all of them: one line for each run.

For machines that the tests don't have. Run it by hand, on an idle machine:

    .venv/bin/python -m tools.every_workload /mnt/ssd --repeat 5

A demo run takes 11 to 173 s. Runs are made with one GPU, and where there are several, with all of
them. A workload that wattload refuses is named, left out and counted: one that needs a GPU where
there is none, or one that uses a single GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from wattload.core.host.gpus import list_gpus
from wattload.core.record.file import read_record
from wattload.core.record.run import RunRecord
from wattload.core.units import format_bytes, format_seconds
from wattload.reports.sections.wording import check_counts
from wattload.results.labels import label
from wattload.results.quantity import counted, quantity
from wattload.results.reading import judged
from wattload.run.config_groups import options

GOOD, REFUSED = 0, 2
RUN_S = (11, 173)
"""How long the shortest and the longest demo run took."""
WATTLOAD = (sys.executable, "-m", "wattload", "run", "--json")


def main(argv: Sequence[str] | None = None) -> int:
    """Run what was asked for; 1 if a run did not end with exit status 0, or if none did."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("target", type=Path, help="a folder on the drive under test")
    parser.add_argument("settings", nargs="*", help="settings of each run, such as loader=mmap")
    parser.add_argument(
        "--workloads",
        default=",".join(options("workload")),
        metavar="A,B",
        help="the workloads to run; default: all",
    )
    parser.add_argument("--repeat", type=int, default=1, help="runs of each workload; default: 1")
    parser.add_argument("--runs", default="runs", help="the folder of the records; default: runs")
    parser.add_argument(
        "--gpus",
        type=int,
        default=len(list_gpus()),
        help="run with one GPU, and with this number; default: all of the machine",
    )
    arguments = parser.parse_args(argv)
    if not arguments.target.is_dir():
        parser.error(
            f"{arguments.target} is no folder; create it on the drive under test, or mount that"
        )
    workloads = arguments.workloads.split(",")
    counts = sorted({1, max(arguments.gpus, 1)})
    run_count = len(counts) * len(workloads) * arguments.repeat
    least_s, most_s = (seconds * run_count for seconds in RUN_S)
    free = format_bytes(shutil.disk_usage(arguments.target).free)
    print(
        f"target {arguments.target} with {free} free, scale demo, {counted(run_count, 'run')} in "
        f"about {format_seconds(least_s)} to {format_seconds(most_s)}; {arguments.gpus} GPUs, "
        f"{os.cpu_count()} CPUs, Linux {platform.release()}"
    )
    good = bad = left_out = 0
    for count in counts:
        for workload in workloads:
            for _ in range(arguments.repeat):
                text, status = _run(arguments, workload, count)
                print(f"{workload:<22}{text}", flush=True)
                if status is None and (count > 1 or not arguments.gpus):
                    left_out += 1
                    break  # it would be refused again
                good += status == GOOD
                bad += status != GOOD
    print(
        f"{counted(good, 'run')} ended with exit status 0, {bad} did not, {left_out} were left out"
    )
    return int(bad > 0 or good == 0)


def _run(arguments: argparse.Namespace, workload: str, count: int) -> tuple[str, int | None]:
    """Run a workload on so many GPUs and return its line and exit status, ``None`` if refused.

    There are a process and a folder for each. A workload that is one process gets the folders.
    """
    target = arguments.target.absolute()
    folders = [target / str(number) for number in range(count)] if count > 1 else [target]
    for folder in folders:
        folder.mkdir(exist_ok=True)
    paths = ",".join(map(str, folders))
    command = [
        *(*WATTLOAD, f"workload={workload}", "scale=demo", f"runs={arguments.runs}"),
        *(f"target.path=[{paths}]", *arguments.settings),
    ]
    starts: list[tuple[str, list[str]]] = [("1 process", command)]
    if count > 1 and (mpirun := _mpirun()):
        starts.insert(0, (f"{count} processes", [mpirun, "-n", str(count), *command]))
    refusals = []
    for where, words in starts:
        start_s = time.monotonic()
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        spent_s = time.monotonic() - start_s
        status = done.returncode if done.returncode >= 0 else 128 - done.returncode
        record = _record(done.stdout)
        if record is None and status == REFUSED:
            refusals.append(f"{where}: {_last_words(done.stderr)}")
            continue
        found = _last_words(done.stderr) if record is None else "; ".join(_findings(record))
        loader = record.workload.loader if record and record.workload.uses_loader else "-"
        return f"{loader:<11}{where}, exit {status}, {spent_s:.0f} s; {found}", status
    return f"refused: {'; '.join(refusals)}", None


def _mpirun() -> str | None:
    """Return the mpirun beside this Python, whose MPI is mpi4py's, else the first one."""
    return shutil.which("mpirun", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


def _record(stdout: str) -> RunRecord | None:
    """Return the record that a run names on its last line, with what follows from its facts."""
    lines = [line for line in stdout.splitlines() if line.startswith("{")]
    return judged(read_record(Path(json.loads(lines[-1])["record"]).parent)) if lines else None


def _findings(record: RunRecord) -> Iterator[str]:
    """Yield the headline figures, how many checks had each verdict, and which did not pass."""
    heads = [metric for metric in record.metrics if metric.headline and metric.value is not None]
    if heads:
        yield ", ".join(f"{label(m.name, m.unit)} {quantity(m.value, m.unit)}" for m in heads)
    yield f"checks: {check_counts(record.checks, causes=False)}"
    for verdict in ("fail", "warn", "not_checked"):
        named = [c.name for c in record.checks if c.verdict == verdict and not c.cause]
        if named:
            yield f"{verdict.replace('_', ' ')}: {', '.join(named)}"


def _last_words(text: str) -> str:
    """Return wattload's own error, or the last line of another program."""
    lines = [line for line in text.splitlines() if line.strip()]
    own = [line for line in lines if line.startswith("wattload: ")]
    return next(reversed(own or lines), "no message")


if __name__ == "__main__":
    sys.exit(main())
