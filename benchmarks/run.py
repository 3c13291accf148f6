"""All benchmarks, or some groups of them: ``make bench``. Prints a table and keeps it as JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import (
    checkpoint,
    dlrm,
    engine,
    gnn,
    gpu,
    gpu_queue,
    random_write,
    suite,
    unet3d,
)
from benchmarks.measure import (
    LEAST_PAIRS,
    NOISE_LIMIT,
    PAIRS,
    TOLERANCE,
    UNAVAILABLE,
    Comparison,
    Result,
    Row,
    Verdict,
    absent,
)

Group = Callable[[Path], Iterator[Comparison]]

GROUPS: dict[str, Group] = {
    "engine": engine.comparisons,
    "random_write": random_write.comparisons,
    "ceilings": engine.ceilings,
    "unet3d": unet3d.comparisons,
    "checkpoint": checkpoint.comparisons,
    "dlrm": dlrm.comparisons,
    "gpu": gpu.comparisons,
    "gpu_queue": gpu_queue.comparisons,
    "gnn": gnn.comparisons,
    "load": suite.host_load,
    "harness": suite.harness,
    "sampler": suite.sampler,
    "report": suite.report,
}

_HEAD = (
    "| benchmark | median | 95 % interval | noise floor | goal | verdict | measured, medians |",
    "|---|---|---|---|---|---|---|",
)

MISSED = (Verdict.MISSED, Verdict.WIDE)


def main() -> int:
    """Measure, print and keep; returns 1 when a goal was missed."""
    arguments = _arguments()
    arguments.target.mkdir(exist_ok=True)
    start_s = time.monotonic()
    results: list[Result] = []
    load_averages = [os.getloadavg()]
    for name in arguments.only:
        for comparison in _comparisons(name, arguments.target.absolute()):
            for result in comparison.measure(arguments.pairs):
                said = result.missing or result.verdict or "done"
                print(f"{result.row.name}: {said}", flush=True)
                results.append(result)
        load_averages.append(os.getloadavg())
    print(f"\n{table(results)}\n{_legend(arguments.pairs)}")
    path = _keep(results, arguments.runs, arguments.pairs, load_averages)
    print(f"- {time.monotonic() - start_s:.0f} s; kept in {path}")
    return 1 if any(result.verdict in MISSED for result in results) else 0


def _comparisons(name: str, target: Path) -> Iterator[Comparison]:
    """Yield a group's comparisons; one that states the reason where the group cannot be set up."""
    try:
        yield from GROUPS[name](target)
    except UNAVAILABLE as error:
        yield absent(name, str(error))


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
            f"unknown group {unknown[0]!r}; choose from {', '.join(GROUPS)}"
        )
    return names or list(GROUPS)


def _legend(pairs: int) -> str:
    return (
        f"- {pairs} interleaved rounds each, their order turning; medians; intervals by order "
        "statistics (binomial), at least 95 % from 6 rounds on\n"
        f"- met: the median reaches the goal, and its interval lies within {TOLERANCE} of it "
        f"({TOLERANCE:.0%} where the goal is not a ratio)\n"
        "- noise floor: half the interval of the yardstick against itself in the same rounds; "
        f"over {NOISE_LIMIT:.0%} there is no verdict"
    )


def table(results: Sequence[Result]) -> str:
    """Return a table of all results, then their notes, each once."""
    notes = dict.fromkeys(f"- {note}" for result in results for note in result.notes)
    return "\n".join([*_HEAD, *map(_line, results), "", *notes])


def _line(result: Result) -> str:
    row, unit = result.row, "x" if result.is_ratio else result.row.unit
    if result.missing is not None:
        return f"| {row.name} | | | | {_goal(row)} | {result.verdict} | {result.missing} |"
    measured = ", ".join(
        f"{way} {statistics.median(values):.3g} {row.unit}"
        for way, values in (result.measured or {}).items()
    )
    floor, bounds = result.noise_floor, result.interval
    cells = (
        row.name,
        f"{result.median:.3g} {unit}",
        f"{bounds.low:.3g} to {bounds.high:.3g}",
        "" if floor is None else f"± {floor:.1%}",
        _goal(row),
        _verdict(result),
        measured,
    )
    return f"| {' | '.join(cells)} |"


def _goal(row: Row) -> str:
    if row.goal is None:
        return "none"
    return f"{'≥' if row.sense == 'at_least' else '≤'} {row.goal:.3g}"


def _verdict(result: Result) -> str:
    """Return the verdict; if noise forbids one, also the side of the goal of the interval."""
    if result.verdict is not Verdict.NOISY:
        return str(result.verdict)
    bounds, goal = result.interval, result.row.goal or 0.0
    sides = [bounds.low >= goal, bounds.high <= goal]
    if result.row.sense == "at_most":
        sides.reverse()
    side = "good side" if sides[0] else "bad side" if sides[1] else "both sides of the goal"
    return f"{result.verdict} (noise over {NOISE_LIMIT:.0%}), {side}"


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
