"""All benchmarks, or some groups of them: ``make bench``. Prints a table and keeps it as JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import (
    ceilings,
    checkpoint,
    dlrm,
    engine,
    gnn,
    gpu,
    gpu_queue,
    harness,
    host_load,
    random_write,
    report,
    sampler,
    unet3d,
)
from benchmarks.measure import LEAST_PAIRS, NOISE_LIMIT, PAIRS, TOLERANCE, Result, Verdict
from benchmarks.table import table


@dataclass(frozen=True, slots=True)
class Group:
    """Benchmarks that run together: ``measure(target, pairs)``, ``seconds(pairs)`` to expect."""

    measure: Callable[[Path, int], Iterator[Result]]
    seconds: Callable[[int], float]


GROUPS = {
    "engine": Group(engine.measure, engine.seconds),
    "random_write": Group(random_write.measure, random_write.seconds),
    "ceilings": Group(ceilings.measure, ceilings.seconds),
    "unet3d": Group(unet3d.measure, unet3d.seconds),
    "checkpoint": Group(checkpoint.measure, checkpoint.seconds),
    "dlrm": Group(dlrm.measure, dlrm.seconds),
    "gpu": Group(gpu.measure, gpu.seconds),
    "gpu_queue": Group(gpu_queue.measure, gpu_queue.seconds),
    "gnn": Group(gnn.measure, gnn.seconds),
    "load": Group(host_load.measure, host_load.seconds),
    "harness": Group(harness.measure, harness.seconds),
    "sampler": Group(sampler.measure, sampler.seconds),
    "report": Group(report.measure, report.seconds),
}

MISSED = (Verdict.MISSED, Verdict.WIDE)


def main() -> int:
    """Measure, print and keep; returns 1 when a goal was missed."""
    arguments = _arguments()
    arguments.target.mkdir(exist_ok=True)
    expected_s = sum(GROUPS[name].seconds(arguments.pairs) for name in arguments.only)
    print(
        f"{', '.join(arguments.only)}: about {expected_s / 60:.0f} minutes, "
        f"{arguments.pairs} pairs each, load average {os.getloadavg()[0]:.1f} "
        f"on {os.cpu_count()} cores",
        flush=True,
    )
    start_s = time.monotonic()
    results: list[Result] = []
    load_averages = [os.getloadavg()]
    for name in arguments.only:
        for result in GROUPS[name].measure(arguments.target.absolute(), arguments.pairs):
            print(f"{result.name}: {result.missing or result.verdict or 'done'}", flush=True)
            results.append(result)
        load_averages.append(os.getloadavg())
    print(f"\n{table(results)}\n{_legend(arguments.pairs)}")
    path = _keep(results, arguments.runs, arguments.pairs, load_averages)
    print(f"- {time.monotonic() - start_s:.0f} s; kept in {path}")
    return 1 if any(result.verdict in MISSED for result in results) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("--target", type=Path, required=True, help="the directory to run against")
    parser.add_argument("--runs", type=Path, required=True, help="where the figures are kept")
    parser.add_argument(
        "--only", type=_groups, default=list(GROUPS), help=f"of {','.join(GROUPS)}; empty: all"
    )
    parser.add_argument(
        "--pairs",
        type=int,
        default=PAIRS,
        help=f"rounds of each comparison (default {PAIRS}; under {LEAST_PAIRS} nothing is judged)",
    )
    return parser.parse_args()


def _groups(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in GROUPS]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"there is no group {unknown[0]!r}; there are {', '.join(GROUPS)}"
        )
    return names or list(GROUPS)


def _legend(pairs: int) -> str:
    return (
        f"- {pairs} interleaved rounds each, their order turning; medians; intervals by order "
        "statistics (binomial), at least 95 % from 6 rounds on\n"
        f"- met: the median reaches the goal, and its interval lies within {TOLERANCE} of it "
        f"({TOLERANCE:.0%} where the goal is no ratio)\n"
        "- noise floor: half the interval of the yardstick against itself in the same rounds; "
        f"over {NOISE_LIMIT:.0%} nothing is called met or missed"
    )


def _keep(
    results: Sequence[Result],
    runs: Path,
    pairs: int,
    load_averages: Sequence[tuple[float, float, float]],
) -> Path:
    runs.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC)
    path = runs / f"bench-{now:%Y%m%dT%H%M%SZ}.json"
    document = {
        "measured_utc": now.isoformat(timespec="seconds"),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "cpu_count": os.cpu_count(),
        "pairs": pairs,
        "load_averages": load_averages,
        "results": [result.as_json() for result in results],
    }
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return path


if __name__ == "__main__":
    sys.exit(main())
