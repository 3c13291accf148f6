"""Progress of long work: a live bar on a terminal, otherwise a line every ten seconds."""

from __future__ import annotations

import sys
import threading
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from wattload.core.units import format_bytes, format_rate, format_seconds

LINE_PERIOD_S = 10.0


class LineProgress:
    """Prints a line at the start, every ten seconds and at the end of a task, to standard error."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._task = ""
        self._total_bytes: int | None = None
        self._moved_bytes = 0
        self._start_s = 0.0
        self._next_s = 0.0

    def begin(self, task: str, total_bytes: int | None) -> None:
        """Begin a task; its size in bytes may be unknown."""
        with self._lock:
            self._task, self._total_bytes, self._moved_bytes = task, total_bytes, 0
            self._start_s = time.monotonic()
            self._next_s = self._start_s + LINE_PERIOD_S
        size = "" if total_bytes is None else f" ({format_bytes(total_bytes)})"
        print(f"{task}{size}", file=sys.stderr, flush=True)

    def advance(self, moved_bytes: int) -> None:
        """Add bytes that have moved."""
        with self._lock:
            self._moved_bytes += moved_bytes
            now_s = time.monotonic()
            if now_s < self._next_s:
                return
            self._next_s = now_s + LINE_PERIOD_S
            line = self._line(now_s)
        print(line, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Print the total of the task."""
        with self._lock:
            seconds = max(time.monotonic() - self._start_s, 1e-9)
            line = f"{self._task}: {format_bytes(self._moved_bytes)} in {format_seconds(seconds)}"
            if self._moved_bytes:
                line += f", {format_rate(self._moved_bytes / seconds)}"
        print(line, file=sys.stderr, flush=True)

    def _line(self, now_s: float) -> str:
        rate = self._moved_bytes / max(now_s - self._start_s, 1e-9)
        line = f"{self._task}: {format_bytes(self._moved_bytes)}, {format_rate(rate)}"
        if self._total_bytes and rate > 0:
            left_bytes = max(self._total_bytes - self._moved_bytes, 0)
            line += f", {format_seconds(left_bytes / rate)} left"
        return line


class _RateColumn(TextColumn):
    """Bytes moved and their rate, in decimal units."""

    def render(self, task: object) -> Text:
        completed = float(getattr(task, "completed", 0))
        elapsed = getattr(task, "elapsed", None) or 0.0
        rate = f", {format_rate(completed / elapsed)}" if elapsed > 0 and completed else ""
        return Text(f"{format_bytes(completed)}{rate}")


class BarProgress:
    """A live bar with a rate and a time left, on a terminal."""

    def __init__(self, console: Console) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            _RateColumn(""),
            TimeRemainingColumn(),
        )
        self._bars = Progress(*columns, console=console)
        self._current: TaskID | None = None

    def begin(self, task: str, total_bytes: int | None) -> None:
        """Show a bar for the task."""
        self.end()
        self._bars.start()
        self._current = self._bars.add_task(task, total=total_bytes)

    def advance(self, moved_bytes: int) -> None:
        """Move the bar."""
        if self._current is not None:
            self._bars.advance(self._current, moved_bytes)

    def end(self) -> None:
        """Leave the finished bar on the screen."""
        if self._current is not None:
            self._bars.update(self._current, total=self._bars.tasks[-1].completed)
            self._bars.stop()
            self._current = None


def terminal_progress() -> LineProgress | BarProgress:
    """Return a bar where standard error is a terminal, else lines."""
    console = Console(stderr=True)
    return BarProgress(console) if console.is_terminal else LineProgress()
