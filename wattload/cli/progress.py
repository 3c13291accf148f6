"""Progress of long work: one live line on a terminal, otherwise a line every ten seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

from wattload.core.units import Unit, format_percent, format_seconds
from wattload.results.labels import label
from wattload.results.quantity import quantity
from wattload.run.progress import Board, Standing

TICK_S = 0.5
LINE_PERIOD_S = 10.0

RATE_WINDOW_S = 5.0
"""A rate is over so many of the last seconds in which a timed phase was open."""

ESTIMATE_AFTER_S = 1.0
"""A time left is shown from then on; before, it would jump."""

BAR_WIDTH = 16
ZERO_CELSIUS_K = 273.15

PHASES = {
    "idle": "idle power before the run",
    "quiet": "idle power of the undisturbed drive",
    "idle_after": "idle power after the run",
    "quiet_after": "idle power of the undisturbed drive",
    "rest": "resting, so that the drive can finish",
    "harness_ceiling": "measuring without the drive",
    "train": "computing",
    "drain_wait": "waiting for the last checkpoint",
}
"""What a reader calls the phases in which no data moves."""


class _Point(NamedTuple):
    clock_s: float
    read_bytes: int
    written_bytes: int


class Rates:
    """The current rates of a task, reads and writes apart, from readings of its counters.

    Time without an open timed phase is no part of a rate. A task without any timed phase, such as
    the generation of data, has the rate of its wall time.
    """

    def __init__(self) -> None:
        self._task = ("", 0.0)
        self._points: deque[_Point] = deque()
        self._is_timed = False

    def add(self, standing: Standing, now_s: float) -> tuple[float | None, float | None]:
        """Return the current rates in bytes per second, ``None`` where nothing moved."""
        is_timed = standing.active_s > 0
        if (standing.task, standing.since_s) != self._task or is_timed != self._is_timed:
            self._task, self._is_timed = (standing.task, standing.since_s), is_timed
            self._points = deque([_Point(0.0, 0, 0)])
        clock_s = standing.active_s if is_timed else now_s - standing.since_s
        if clock_s > self._points[-1].clock_s:
            self._points.append(_Point(clock_s, standing.read_bytes, standing.written_bytes))
        last = self._points[-1]
        while len(self._points) > 2 and last.clock_s - self._points[1].clock_s >= RATE_WINDOW_S:  # noqa: PLR2004 - a rate needs two points
            self._points.popleft()
        first = self._points[0]
        seconds = last.clock_s - first.clock_s
        read, written = last.read_bytes - first.read_bytes, last.written_bytes - first.written_bytes
        if seconds <= 0:
            return None, None
        return read / seconds if read else None, written / seconds if written else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What is shown at one moment; texts are empty if unknown."""

    name: str
    share: float | None
    rates: str
    power: str
    temperature: str
    left: str

    def line(self) -> str:
        share = "" if self.share is None else format_percent(self.share)
        parts = [share, self.rates, self.power, self.temperature, self.left]
        shown = ", ".join(part for part in parts if part)
        return f"{self.name}: {shown}" if shown else self.name

    def fitted(self, width: int, *, is_unicode: bool) -> str:
        """Return the frame in at most ``width`` columns: a narrow terminal shows less."""
        share = "" if self.share is None else f"{format_percent(self.share):>5}"
        bar = "" if self.share is None else _bar(self.share, is_unicode=is_unicode)
        tail = [self.rates, self.power, self.temperature, self.left]
        choices = [
            [self.name, bar, share, *tail],
            [self.name, share, *tail],
            [self.name, share, self.rates, self.power, self.left],
            [self.name, share, self.rates, self.left],
            [self.name, share, self.left],
        ]
        lines = ["  ".join(part for part in parts if part) for parts in choices]
        return next((line for line in lines if len(line) <= width), lines[-1][:width])


def _bar(share: float, *, is_unicode: bool) -> str:
    full, empty = ("█", "░") if is_unicode else ("#", ".")
    done = round(min(share, 1.0) * BAR_WIDTH)
    return full * done + empty * (BAR_WIDTH - done)


class View:
    """Makes frames from the board."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._rates = Rates()

    def frame(self, now_s: float) -> Frame | None:
        """Return what to show now, ``None`` for nothing; call it at every tick, for the rates."""
        standing = self._board.read()
        if standing is None:
            return None
        if standing.phase is not None and standing.phase.expected_s is not None:
            standing = replace(standing, task="")  # it waits, whatever the task
        reading = self._board.power.read() if self._board.power is not None else None
        watts = reading.power_w if reading is not None else None
        kelvins = reading.temperature_k if reading is not None else None
        return Frame(
            name=self._board.of_hosts + self._name(standing),
            share=_share(standing),
            rates=self._rate_text(standing, now_s) if standing.task else "",
            power="" if watts is None else quantity(watts, Unit.WATTS, 3),
            temperature="" if kelvins is None else f"{kelvins - ZERO_CELSIUS_K:.0f} °C",
            left=_left(standing, now_s),
        )

    def _name(self, standing: Standing) -> str:
        phase = standing.phase.name if standing.phase else ""
        words = PHASES.get(phase, label(phase))
        if not standing.task:
            return words
        unseen = self._board.rank_count - self._board.seen_count
        ranks = f" ({self._board.seen_count} of {self._board.rank_count} ranks)" if unseen else ""
        # A task of one phase is named after it: "reading" is the phase "read".
        is_told = not words or (phase not in PHASES and words[:4].lower() in standing.task.lower())
        return standing.task + ("" if is_told else f", {words}") + ranks

    def _rate_text(self, standing: Standing, now_s: float) -> str:
        rates = zip(("read", "write"), self._rates.add(standing, now_s), strict=True)
        return ", ".join(
            f"{what} {quantity(rate, Unit.BYTES_PER_SECOND, 3)}"
            for what, rate in rates
            if rate is not None
        )


def _share(standing: Standing) -> float | None:
    """Return the share of the task that is done, by the bytes whose total is known."""
    if not standing.task:
        return None
    known = [
        (moved, total)
        for moved, total in (
            (standing.read_bytes, standing.read_total_bytes),
            (standing.written_bytes, standing.written_total_bytes),
        )
        if total
    ]
    whole = sum(total for _, total in known)
    return sum(min(moved, total) for moved, total in known) / whole if whole else None


def _left(standing: Standing, now_s: float) -> str:
    """Return the time left of a task, at its mean pace so far, or of a phase of known length."""
    if not standing.task:
        phase = standing.phase
        if phase is None:
            return ""
        if phase.expected_s is None:
            return _whole(now_s - phase.start_s)
        left_s = phase.expected_s - (now_s - phase.start_s)
        return _left_text(left_s) if left_s >= 1 else ""  # it may last longer than expected
    share, elapsed_s = _share(standing), now_s - standing.since_s
    if not share or elapsed_s < ESTIMATE_AFTER_S:
        return ""
    return _left_text((1 - share) / share * elapsed_s)


def _left_text(seconds: float) -> str:
    return f"{_whole(seconds)} left"


def _whole(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 10 else format_seconds(seconds)  # noqa: PLR2004 - no decimals


@contextmanager
def live_progress(board: Board) -> Iterator[None]:
    """Show the progress on standard error while the block runs: on a terminal, or in lines."""
    stop = threading.Event()
    follow = _on_terminal if _is_terminal() else _in_lines
    thread = threading.Thread(target=follow, args=(View(board), stop), name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _is_terminal() -> bool:
    from wattload.cli.console import Console

    return sys.stderr.isatty() and not Console(stderr=True).is_dumb_terminal


def _in_lines(view: View, stop: threading.Event) -> None:
    next_s = time.monotonic() + LINE_PERIOD_S
    while not stop.wait(TICK_S):
        now_s = time.monotonic()
        frame = view.frame(now_s)
        if frame is not None and now_s >= next_s:
            next_s = now_s + LINE_PERIOD_S
            print(frame.line(), file=sys.stderr, flush=True)


def _on_terminal(view: View, stop: threading.Event) -> None:
    from rich.live import Live
    from rich.text import Text

    from wattload.cli.console import Console

    console = Console(stderr=True)
    is_unicode = console.encoding.lower().startswith("utf")
    live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False)
    with live:
        while not stop.wait(TICK_S):
            frame = view.frame(time.monotonic())
            text = frame.fitted(console.width - 1, is_unicode=is_unicode) if frame else ""
            live.update(Text(text, no_wrap=True, overflow="crop"), refresh=True)
