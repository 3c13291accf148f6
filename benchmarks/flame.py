"""Where the last per cent goes: a flame graph of the I/O engine and one of fio, side by side.

``python -m benchmarks.flame --target DIR --runs runs`` runs random 4 KiB reads under ``perf``, each
side with the settings of the bench, and writes for each the folded stacks (one line per stack, as
flamegraph.pl takes them), a self-contained SVG, and the top of the table of functions. Only the
thread that moves bytes is drawn: start-up is not. CPU time is sampled by the clock where a virtual
machine has no hardware counters.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from benchmarks import engine, fio
from benchmarks.engine_child import ROOT
from benchmarks.files import written_files
from benchmarks.measure import NotMeasuredError

HERTZ = 1999
TOP_COUNT = 12
WIDTH_PX = 1200
ROW_PX = 17
LEAST_PX = 0.5
"""Frames that are narrower are left out of the drawing; the folded stacks have them."""
CASE = engine.CASES[3]
MOVES = re.compile("io_uring_enter|wl_|poller")
"""Frames of the thread that moves bytes: it calls the ring, or is the engine's own code."""

Stack = tuple[str, ...]


def main() -> int:
    """Record both sides, write the files and print the tables; returns 1 where perf can't run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flame", description=__doc__)
    parser.add_argument("--target", type=Path, required=True, help="the directory to run against")
    parser.add_argument("--runs", type=Path, required=True, help="where the files are kept")
    arguments = parser.parse_args()
    for folder in (arguments.target, arguments.runs):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        with written_files(arguments.target.absolute(), 1, engine.FILE_BYTES) as files:
            for name, job in _jobs(files).items():
                stacks = recorded(job.command())
                print(_kept(name, stacks, arguments.runs), flush=True)
    except NotMeasuredError as error:
        print(error)
        return 1
    return 0


def _jobs(files: Sequence[Path]) -> dict[str, engine.Job]:
    """Return a job of each side, fio's with its largest batch."""
    ours, fios = CASE.ours(files), CASE.fios(files)
    return {"wattload": list(ours.values())[-1], "fio": list(fios.values())[-1]}


def recorded(command: Sequence[str]) -> Counter[Stack]:
    """Run a command under perf and return how often each stack of its moving thread was seen.

    Raises:
        NotMeasuredError: perf is not installed, may not record, or saw nothing of that thread.
    """
    if shutil.which("perf") is None:
        raise NotMeasuredError("perf is not installed (apt-get install linux-perf)")
    with tempfile.TemporaryDirectory() as folder:
        data = f"{folder}/perf.data"
        record = ["perf", "record", "-q", "-F", str(HERTZ), "-g", "-o", data, "--", *command]
        done = subprocess.run(
            record, capture_output=True, text=True, check=False, cwd=ROOT, env=fio.environment()
        )
        if done.returncode:
            raise NotMeasuredError(f"perf record failed: {done.stderr.strip()[-300:]}")
        script = ["perf", "script", "-i", data, "--fields", "tid,ip,sym,dso"]
        said = subprocess.run(script, capture_output=True, text=True, check=False)
    stacks = moving(folded(said.stdout.splitlines()))
    if not stacks:
        raise NotMeasuredError(
            "perf saw no thread that moves bytes; is perf_event_paranoid over 1?"
        )
    return stacks


def folded(lines: Iterable[str]) -> Iterator[tuple[int, Stack]]:
    """Yield the thread and the stack, outermost frame first, of each sample of ``perf script``."""
    thread: int | None = None
    frames: list[str] = []
    for line in [*lines, ""]:
        words = line.split()
        if not words:
            if thread is not None and frames:
                yield thread, tuple(reversed(frames))
            thread, frames = None, []
        elif thread is None:
            thread = int(words[0])
        elif words[1:] != ["[unknown]", "([unknown])"]:  # no frame pointer, no frame
            frames.append(_frame(words, is_leaf=not frames))


def _frame(words: Sequence[str], *, is_leaf: bool) -> str:
    """Return a frame's symbol, a leaf's with the library it is in: where the time was spent."""
    symbol, library = " ".join(words[1:-1]), Path(words[-1].strip("()[]")).name
    if symbol in {"", "[unknown]"}:
        symbol = library
    return f"{symbol} [{library}]" if is_leaf else symbol


def moving(samples: Iterable[tuple[int, Stack]]) -> Counter[Stack]:
    """Return the stacks of the thread that was seen most often in the code that moves bytes."""
    by_thread: dict[int, Counter[Stack]] = {}
    moves: Counter[int] = Counter()
    for thread, stack in samples:
        by_thread.setdefault(thread, Counter())[stack] += 1
        moves[thread] += any(MOVES.search(frame) for frame in stack)
    thread, count = moves.most_common(1)[0] if moves else (0, 0)
    return by_thread[thread] if count else Counter()


def top(stacks: Counter[Stack]) -> list[tuple[str, float]]:
    """Return the functions in which most samples fell, with their share of all."""
    leaves = _summed((stack[-1], count) for stack, count in stacks.items())
    return [(name, count / stacks.total()) for name, count in leaves.most_common(TOP_COUNT)]


def libraries(stacks: Counter[Stack]) -> list[tuple[str, float]]:
    """Return the libraries (the kernel is one) in which samples fell, with their share of all."""
    found = _summed((stack[-1].rpartition(" ")[2], count) for stack, count in stacks.items())
    return [(name, count / stacks.total()) for name, count in found.most_common()]


def _summed(counts: Iterable[tuple[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for name, count in counts:
        total[name] += count
    return total


def svg(title: str, stacks: Counter[Stack]) -> str:
    """Return a flame graph: callers below, their callees on them, as wide as their samples."""
    depth = max(map(len, stacks))
    height = (depth + 2) * ROW_PX
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH_PX} {height}" '
        f'font-family="monospace" font-size="11">\n'
        f'<rect width="100%" height="100%" fill="#fff"/>\n'
        f'<text x="4" y="{ROW_PX - 4}">{escape(title)}, {stacks.total()} samples</text>'
    )
    scale = WIDTH_PX / stacks.total()
    boxes = _boxes(sorted(stacks.items()), 0, 0.0, scale, height)
    return "\n".join([head, *boxes, "</svg>\n"])


def _boxes(
    stacks: Sequence[tuple[Stack, int]], level: int, left: float, scale: float, height: int
) -> Iterator[str]:
    """Yield the boxes of one level and of all above it, ``left`` in px."""
    groups: dict[str, list[tuple[Stack, int]]] = {}
    for stack, count in stacks:
        if len(stack) > level:
            groups.setdefault(stack[level], []).append((stack, count))
    for name, members in groups.items():
        count = sum(number for _, number in members)
        width = count * scale
        if width >= LEAST_PX:
            yield _box(name, left, height - (level + 1) * ROW_PX, width, width / WIDTH_PX)
            yield from _boxes(members, level + 1, left, scale, height)
        left += width


def _box(name: str, left: float, above: float, width: float, share: float) -> str:
    label = name[: int(width / 7)]
    hue = sum(name.encode()) % 60
    return (
        f'<g><title>{escape(name)} {share:.1%}</title><rect x="{left:.1f}" y="{above}" '
        f'width="{width:.1f}" height="{ROW_PX - 1}" fill="hsl({hue} 80% 70%)"/>'
        f'<text x="{left + 2:.1f}" y="{above + 12}">{escape(label)}</text></g>'
    )


def _kept(name: str, stacks: Counter[Stack], runs: Path) -> str:
    """Write the files of one side and return its table."""
    lines = [f"{';'.join(stack)} {count}" for stack, count in sorted(stacks.items())]
    (runs / f"flame-{name}.folded").write_text("\n".join(lines) + "\n", encoding="utf-8")
    drawing = runs / f"flame-{name}.svg"
    drawing.write_text(svg(f"{name}: {CASE.name}", stacks), encoding="utf-8")
    rows = [f"{share:7.1%}  {where}" for where, share in [*libraries(stacks), *top(stacks)]]
    return "\n".join([f"{name}, {CASE.name}: {drawing}", *rows])


if __name__ == "__main__":
    sys.exit(main())
