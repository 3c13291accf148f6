"""All benchmarks in one go: ``make bench``. Prints a table and keeps it as JSON with the host."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import blockio, dlrm, harness, jobs
from benchmarks.measure import ROUND_COUNT, Result, table


def main() -> int:
    """Measure, print and keep; returns 1 when a goal was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", type=Path, required=True, help="the directory to run against")
    parser.add_argument("--runs", type=Path, required=True, help="where the figures are kept")
    arguments = parser.parse_args()
    arguments.target.mkdir(exist_ok=True)
    start_s = time.monotonic()
    results: list[Result] = []
    for result in _all(arguments.target.absolute()):
        print(f"{result.name}: {'done' if result.missing is None else result.missing}", flush=True)
        results.append(result)
    print(f"\n{table(results)}\n- {ROUND_COUNT} rounds each, {time.monotonic() - start_s:.0f} s")
    print(f"- kept in {_keep(results, arguments.runs)}")
    return 1 if any(result.is_met is False for result in results) else 0


def _all(target: Path) -> Iterator[Result]:
    yield from blockio.measure(target)
    yield from jobs.measure(target)
    yield from dlrm.measure(target)
    yield from harness.measure(target)


def _keep(results: list[Result], runs: Path) -> Path:
    runs.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC)
    path = runs / f"bench-{now:%Y%m%dT%H%M%SZ}.json"
    document = {
        "measured_utc": now.isoformat(timespec="seconds"),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "cpu_count": os.cpu_count(),
        "load_average": os.getloadavg(),
        "results": [result.as_json() for result in results],
    }
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return path


if __name__ == "__main__":
    sys.exit(main())
