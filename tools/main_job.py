"""The main job: three AI workloads on one target, and their report. ``make run`` calls it."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

WORKLOADS = ("unet3d", "checkpoint", "dlrm")
GOOD, CHECK_FAILED, INTERRUPTED = 0, 3, 130
WATTLOAD = (sys.executable, "-m", "wattload")
DEFAULT_TARGET = "target"
PAGE_NAME = "report.html"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the three workloads, write the page, and return the worst exit status.

    A workload that can't be run ends the job, but what was recorded before it still gets its page.
    """
    arguments = _parse(argv)
    if str(arguments.target) == DEFAULT_TARGET:
        arguments.target.mkdir(exist_ok=True)
    try:
        shown = subprocess.run([*WATTLOAD, "devices", str(arguments.target)], check=False)
        if shown.returncode != GOOD:
            return shown.returncode
        records, status = run_workloads(arguments)
        return max(status, report(records, arguments.runs)) if records else status
    except KeyboardInterrupt:
        return INTERRUPTED


def run_workloads(arguments: argparse.Namespace) -> tuple[list[Path], int]:
    """Return the folders of the runs that left a record, and the worst exit status."""
    folders: list[Path] = []
    worst = GOOD
    for number, workload in enumerate(WORKLOADS, start=1):
        print(f"\n[{number}/{len(WORKLOADS)}] {workload}", flush=True)
        command = [
            *(*WATTLOAD, "run", "--json", f"workload={workload}", f"scale={arguments.scale}"),
            *(f"target.path={arguments.target.absolute()}", f"label={arguments.label}"),
            f"runs={arguments.runs}",
        ]
        # Progress and errors go to stderr, which the reader sees; stdout is one line of JSON.
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.stdout.strip():
            folders.append(Path(json.loads(done.stdout.splitlines()[-1])["record"]).parent)
        worst = max(worst, done.returncode)
        if done.returncode not in (GOOD, CHECK_FAILED):
            break
    return folders, worst


def report(folders: Sequence[Path], runs: Path) -> int:
    """Write the page of these runs and say where it is; returns the exit status."""
    page = runs / PAGE_NAME
    done = subprocess.run([*WATTLOAD, "report", *map(str, folders), "-o", str(page)], check=False)
    if done.returncode == GOOD:
        print(f"\nThe report: {page.absolute().as_uri()}")
    return done.returncode


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", type=Path, required=True, help="the directory to run against")
    parser.add_argument("--scale", required=True, help="demo, quick or full")
    parser.add_argument("--label", required=True, help="the arm's name in a comparison")
    parser.add_argument("--runs", type=Path, required=True, help="where records and page go")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
