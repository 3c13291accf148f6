"""The main job: three AI workloads on one target, and their report. ``make run`` calls it."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from wattload.cli.summary import print_line
from wattload.core.host_paths import in_container, mounted, on_host
from wattload.results.reading import read_judged

WORKLOADS = ("unet3d", "checkpoint", "dlrm")
GOOD, CHECK_FAILED, INTERRUPTED = 0, 3, 130
WATTLOAD = (sys.executable, "-m", "wattload")
DEFAULT_TARGET = "target"
PAGE_NAME = "report.html"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the three workloads, write the page, and return the exit status.

    A workload that can't be run ends the job, but what was recorded before it still gets its page.
    A check that failed is no failure of the job: the page is there to show it.
    """
    arguments = _parse(argv)
    if str(arguments.target) == DEFAULT_TARGET:
        arguments.target.mkdir(exist_ok=True)
    try:
        shown = subprocess.run([*WATTLOAD, "devices", str(arguments.target)], check=False)
        if shown.returncode != GOOD:
            return shown.returncode
        folders, status = run_workloads(arguments)
        return (report(folders, arguments.runs) if folders else GOOD) or status
    except KeyboardInterrupt:
        return INTERRUPTED


def run_workloads(arguments: argparse.Namespace) -> tuple[list[Path], int]:
    """Return the folders of the runs that left a record, and what ended the job early, or 0."""
    folders: list[Path] = []
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
            record = in_container(json.loads(done.stdout.splitlines()[-1])["record"])
            folders.append(Path(record).parent)
            print_line(read_judged(folders[-1]).record)
        if done.returncode == CHECK_FAILED:
            print(f"A check of the {workload} run failed: the page says which, and why.")
        elif done.returncode != GOOD:
            return folders, done.returncode
    return folders, GOOD


def report(folders: Sequence[Path], runs: Path) -> int:
    """Write the page of these runs and say where it is; returns the exit status."""
    page = runs / PAGE_NAME
    command = [*WATTLOAD, "report", *map(str, folders), "-o", str(page)]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    if done.returncode == GOOD:
        # In a container, the page's address is of no use to the reader.
        print(f"\nThe report: {on_host(page) if mounted() else page.absolute().as_uri()}")
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
