"""All benchmarks, or some groups of them: ``make bench``. Prints a table and keeps it as JSON.

Rows are kept as soon as they are measured: a session that is interrupted loses only the comparison
under way.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import (
    checkpoint,
    dlrm,
    engine,
    gnn,
    gpu,
    gpu_queue,
    hosts,
    kv_cache,
    model_load,
    random_read,
    random_write,
    retinanet,
    suite,
    unet3d,
    vector_search,
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
    "random_read": random_read.comparisons,
    "random_write": random_write.comparisons,
    "ceilings": engine.ceilings,
    "unet3d": unet3d.comparisons,
    "retinanet": retinanet.comparisons,
    "checkpoint": checkpoint.comparisons,
    "dlrm": dlrm.comparisons,
    "gpu": gpu.comparisons,
    "gpu_queue": gpu_queue.comparisons,
    "gnn": gnn.comparisons,
    "kv_cache": kv_cache.comparisons,
    "model_load": model_load.comparisons,
    "vector_search": vector_search.comparisons,
    "vector_build": vector_search.builds,
    "hosts": hosts.comparisons,
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
INTERRUPTED = 130


def main() -> int:
    """Measure, print and keep; returns 1 when a goal was missed, 130 after an interrupt."""
    arguments = _arguments()
    arguments.target.mkdir(exist_ok=True)
    session = Session(folder=arguments.runs, pairs=arguments.pairs)
    is_interrupted = False
    try:
        for name in arguments.only:
            for comparison in _comparisons(name, arguments.target.absolute()):
                session.add(comparison.measure(arguments.pairs))
            session.load_averages.append(os.getloadavg())
    except KeyboardInterrupt:
        is_interrupted = True
    session.keep(is_complete=not is_interrupted)
    print(f"\n{table(session.results)}\n{_legend(arguments.pairs)}")
    ended = "interrupted after" if is_interrupted else "measured in"
    print(f"- {ended} {time.monotonic() - session.start_s:.0f} s; kept in {session.path}")
    if is_interrupted:
        return INTERRUPTED
    return 1 if any(result.verdict in MISSED for result in session.results) else 0


def _comparisons(name: str, target: Path) -> Iterator[Comparison]:
    """Yield a group's comparisons; one that states the reason where the group cannot be set up."""
    try:
        yield from GROUPS[name](target)
    except UNAVAILABLE as error:
        yield absent(name, str(error))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.run",
        usage=argparse.SUPPRESS,
        description=__doc__.replace("``", ""),
    )
    parser.add_argument("--target", type=Path, required=True, help="the directory to run against")
    parser.add_argument("--runs", type=Path, required=True, help="where the figures are kept")
    parser.add_argument(
        "--only", type=_groups, default=list(GROUPS), help=f"of {','.join(GROUPS)}; empty: all"
    )
    parser.add_argument(
        "--pairs",
        type=pairs,
        default=PAIRS,
        help=f"rounds of each comparison, at least {LEAST_PAIRS} (default {PAIRS})",
    )
    return parser.parse_args()


def pairs(text: str) -> int:
    """Return how many rounds are wanted; fewer than the least are refused before any is run."""
    count = int(text)
    if count < LEAST_PAIRS:
        raise argparse.ArgumentTypeError(
            f"{count} rounds can't be judged: a median of fewer than {LEAST_PAIRS} has no 95 % "
            f"interval; use --pairs {LEAST_PAIRS} or more, or make bench PAIRS={LEAST_PAIRS} "
            f"(the default is {PAIRS})"
        )
    return count


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
        "statistics (binomial), at least 95 %\n"
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
        f"{bounds.low:.3g} to {bounds.high:.3g}" if bounds.coverage else "one round",
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


@dataclass(kw_only=True)
class Session:
    """What was measured so far, and the file in ``folder`` that it is kept in."""

    folder: Path
    pairs: int
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    start_s: float = field(default_factory=time.monotonic)
    results: list[Result] = field(default_factory=list)
    load_averages: list[tuple[float, float, float]] = field(
        default_factory=lambda: [os.getloadavg()]
    )

    @property
    def path(self) -> Path:
        return self.folder / f"bench-{self.started:%Y%m%dT%H%M%SZ}.json"

    def add(self, results: Sequence[Result]) -> None:
        """Print what the rows of a comparison came to, and keep them."""
        for result in results:
            said = result.missing or result.verdict or "done"
            print(f"{result.row.name}: {said}", flush=True)
        self.results += results
        self.keep(is_complete=False)

    def keep(self, *, is_complete: bool) -> None:
        """Write the file anew; a reader finds the rows of before or of now, never a part."""
        self.folder.mkdir(parents=True, exist_ok=True)
        document = {
            "measured_utc": self.started.isoformat(timespec="seconds"),
            "is_complete": is_complete,
            "kernel": platform.release(),
            "python": platform.python_version(),
            "cpu_count": os.cpu_count(),
            "pairs": self.pairs,
            "load_averages": self.load_averages,
            "results": [result.as_json() for result in self.results],
        }
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        new.replace(self.path)


if __name__ == "__main__":
    sys.exit(main())
