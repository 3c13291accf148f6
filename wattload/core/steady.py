"""Steady state: SNIA's rule on rounds of a minute, and the same rule on rounds of a drive's size.

The rule is that of SNIA's Solid State Storage Performance Test Specification (PTS) 2.0.2, section
2.1.24: over a measurement window of five rounds, the tracked variable ranges over at most 20 % of
its average, and its least-squares line rises or falls by at most 10 % of that average from the
first round to the last. A round of the PTS is one minute.

Five minutes do not show a steady state of random writes. After a drive was filled in sequence, its
spare area takes random writes without any garbage collection: throughput is flat, and falls once
the spare area is used up. :class:`SteadyJudge` therefore gives a second verdict, on rounds that
grow with the capacity and that start after the spare area has been rewritten.

A workload that runs until steady state stops by these rules. The check ``steady_<phase>`` of a
record (:func:`wattload.core.checks.conditions.halves_agree`) is another one: it compares two
halves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from wattload.core.units import compared_bytes, format_percent

ROUND_S = 60
"""Seconds of a round (PTS section 7: each test point runs for one minute)."""

WINDOW_ROUNDS = 5
COMMON_ROUNDS = 4
"""Rounds of a minute that two windows share if both cover the same time: edges differ."""
RANGE_LIMIT = 0.20
SLOPE_LIMIT = 0.10
MINIMUM_S = ROUND_S * WINDOW_ROUNDS
"""Seconds of work that the first measurement window needs."""

DRIVE_ROUND_SHARE = 1 / 20
"""Share of the capacity that a round of the drive's verdict writes at least."""
LARGEST_SPARE_SHARE = 0.28
"""Spare area as a share of the capacity where it is unknown: that of a write-intensive drive."""
REST_S = 60.0
"""Seconds without a write after which a drive may have collected garbage into its spare area."""

_ROUNDING = 1e-9
"""Relative rounding of rates and of their spread: a window at a limit is steady."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementWindow:
    """Five consecutive rounds, starting at round ``first`` (from 0), and how far they spread.

    ``range_fraction`` is (maximum - minimum) / average. ``excursion_fraction`` is
    abs(slope per round) x 4 / average: what the fitted line covers from the first round to the
    fifth. Both are infinite if the average is not positive.
    """

    first: int
    average: float
    slope_per_round: float
    range_fraction: float
    excursion_fraction: float

    @property
    def is_steady(self) -> bool:
        """Whether both conditions hold; the limits themselves are allowed."""
        return self.range_fraction <= RANGE_LIMIT * (
            1 + _ROUNDING
        ) and self.excursion_fraction <= SLOPE_LIMIT * (1 + _ROUNDING)

    def fitted(self, place: int) -> float:
        """Return the fitted line at a round of the window, ``place`` from 0 to 4."""
        return self.average + self.slope_per_round * (place - (WINDOW_ROUNDS - 1) / 2)


def measurement_window(rounds: Sequence[float] | NDArray[np.float64]) -> MeasurementWindow | None:
    """Return the first steady window of ``rounds``, or the last window if none is steady.

    ``rounds`` has one value of the tracked variable per round, in order, shape (n,). With fewer
    than five rounds there is no window and the result is ``None``.
    """
    window = None
    for first in range(len(rounds) - WINDOW_ROUNDS + 1):
        window = _window(first, rounds[first : first + WINDOW_ROUNDS])
        if window.is_steady:
            break
    return window


def _window(first: int, rounds: Sequence[float] | NDArray[np.float64]) -> MeasurementWindow:
    values = [float(each) for each in rounds]
    average = sum(values) / WINDOW_ROUNDS
    # The least-squares slope of five equidistant values, in closed form.
    slope = (2 * (values[4] - values[0]) + (values[3] - values[1])) / 10
    is_positive = average > 0
    return MeasurementWindow(
        first=first,
        average=average,
        slope_per_round=slope,
        range_fraction=(max(values) - min(values)) / average if is_positive else np.inf,
        excursion_fraction=abs(slope) * (WINDOW_ROUNDS - 1) / average if is_positive else np.inf,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What was written from ``start_s`` to ``end_s``; bytes are cumulative counts."""

    start_s: float
    end_s: float
    start_bytes: int
    end_bytes: int

    @property
    def bytes_per_s(self) -> float:
        return (self.end_bytes - self.start_bytes) / (self.end_s - self.start_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyWindow:
    """The five consecutive rounds of a steady state, and how far their rates (bytes/s) spread."""

    rounds: tuple[Round, ...]
    spread: MeasurementWindow

    @property
    def start_s(self) -> float:
        return self.rounds[0].start_s

    @property
    def end_s(self) -> float:
        return self.rounds[-1].end_s

    @property
    def bytes_per_s(self) -> float:
        """Bytes written in the window ÷ its seconds.

        Differs from ``spread.average``, the rule's unweighted mean of the rounds, as rounds of
        equal bytes differ in length.
        """
        written_bytes = self.rounds[-1].end_bytes - self.rounds[0].start_bytes
        return written_bytes / (self.end_s - self.start_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyVerdict:
    """Steady with a window, or not yet: then ``window`` is ``None`` and ``reason`` says why."""

    window: SteadyWindow | None
    reason: str

    @property
    def is_steady(self) -> bool:
        return self.window is not None


@dataclass(slots=True)
class _Rounds:
    """Rounds that end once both ``least_s`` and ``least_bytes`` have passed, and their verdict."""

    least_s: float
    least_bytes: float
    rounds: list[Round] = field(default_factory=list)
    window: SteadyWindow | None = None
    latest: SteadyWindow | None = None
    """The last steady window; ``window`` is the first."""
    _spread: MeasurementWindow | None = None
    _first: int = 0
    """Windows begin at this round or later: the rounds before it belong to an earlier interval."""
    _start: tuple[float, int] | None = None

    @property
    def start_s(self) -> float | None:
        return None if self._start is None else self._start[0]

    def restart(self, time_s: float, written_bytes: int) -> None:
        """Drop the round under way and look for windows from here on only."""
        self._start = time_s, written_bytes
        self._first, self._spread, self.latest = len(self.rounds), None, None

    def read(self, time_s: float, written_bytes: int) -> None:
        """End the round under way if it is complete; the first call begins the first round."""
        if self._start is None:
            self._start = time_s, written_bytes
        start_s, start_bytes = self._start
        if time_s - start_s < self.least_s or written_bytes - start_bytes < self.least_bytes:
            return
        self.rounds.append(
            Round(start_s=start_s, end_s=time_s, start_bytes=start_bytes, end_bytes=written_bytes)
        )
        self._start = time_s, written_bytes
        first = len(self.rounds) - WINDOW_ROUNDS
        if first < self._first:
            return
        last = tuple(self.rounds[first:])
        self._spread = _window(first, [each.bytes_per_s for each in last])
        if self._spread.is_steady:
            self.latest = SteadyWindow(rounds=last, spread=self._spread)
            self.window = self.window or self.latest

    def verdict(self) -> SteadyVerdict:
        """Return the first steady window, or why there is none yet."""
        return SteadyVerdict(window=self.window, reason="" if self.window else self._reason())

    def last_reason(self) -> str:
        """Say why the last five rounds are not steady, or are not the ones that are needed."""
        is_steady = self._spread is not None and self._spread.is_steady
        return "the steady ones are not among the drive's" if is_steady else self._reason()

    def _reason(self) -> str:
        if self._spread is None:
            return f"{len(self.rounds) - self._first} of {WINDOW_ROUNDS} rounds are complete"
        if self._spread.average <= 0:
            return f"nothing was written in the last {WINDOW_ROUNDS} rounds"
        found = []
        if self._spread.range_fraction > RANGE_LIMIT:
            found.append(_above("range over", self._spread.range_fraction, RANGE_LIMIT))
        if self._spread.excursion_fraction > SLOPE_LIMIT:
            found.append(_above("drift by", self._spread.excursion_fraction, SLOPE_LIMIT))
        return f"the last {WINDOW_ROUNDS} rounds {' and '.join(found)}"


def _above(what: str, share: float, limit: float) -> str:
    return f"{what} {format_percent(share, 1)} (at most {format_percent(limit)})"


class SteadyJudge:
    """Judge a run of uniform random writes by its cumulative bytes, read about once a second.

    It forms rounds itself and keeps nothing but rounds: some 3,000 in 49 hours. Rounds end at a
    reading, so that readings far apart make longer rounds. Draws without replacement have no
    steady state; whether to ask for a verdict is up to the caller.

    ``five_minutes`` is SNIA's verdict on rounds of a minute from the first reading on.

    ``drive`` is the same rule on rounds of at least a minute and a twentieth of the capacity. Its
    rounds begin after one capacity of random bytes has been written since the sequential
    preconditioning, ``already_random_bytes`` of an earlier run included. After a rest they begin
    after the spare area has been rewritten, since idle garbage collection may have refilled it. A
    rest is more than 60 s without a written byte, whether nothing was asked of the drive or it
    stalled; a rest in a run ends the sequence of rounds.

    ``headline`` needs both: it is the drive's first steady window that shares four minutes with a
    steady window of five minutes. Other steady minutes prove nothing.

    All of the capacity must have been written before the first reading. The unwritten part of a
    drive is spare area, so a partly filled one amplifies far less.

    Args:
        capacity_bytes: Bytes that the random writes are drawn from. At least 1.
        already_random_bytes: Random bytes written in earlier runs since the sequential
            preconditioning. At least 0.
        rest_s: Seconds between the last write of the earlier run and the first reading; ``None``
            if unknown, which counts as a rest.
        spare_share: Spare area ÷ capacity, if known. More than 0.

    Raises:
        ValueError: An argument is out of its range.
    """

    def __init__(
        self,
        capacity_bytes: int,
        *,
        already_random_bytes: int = 0,
        rest_s: float | None = None,
        spare_share: float = LARGEST_SPARE_SHARE,
    ) -> None:
        if capacity_bytes < 1:
            raise ValueError(f"capacity_bytes must be at least 1, got {capacity_bytes}")
        if already_random_bytes < 0:
            raise ValueError(f"already_random_bytes must be at least 0, got {already_random_bytes}")
        if not spare_share > 0:
            raise ValueError(f"spare_share must be more than 0, got {spare_share}")
        self._capacity_bytes = capacity_bytes
        self._spare_bytes = spare_share * capacity_bytes
        self._minutes = _Rounds(ROUND_S, 0)
        self._drive = _Rounds(ROUND_S, DRIVE_ROUND_SHARE * capacity_bytes)
        self._settled_minutes = _Rounds(ROUND_S, 0)
        self._conditioned_at = max(0.0, float(capacity_bytes - already_random_bytes))
        rested = rest_s is None or rest_s > REST_S
        self._rewritten_at = self._spare_bytes if rested else 0.0
        self._is_settled = False
        self._headline: SteadyWindow | None = None
        self._first: tuple[float, int] | None = None
        self._last: tuple[float, int] = (0.0, 0)
        self._progress_s = 0.0

    def read(self, time_s: float, written_bytes: int) -> None:
        """Take in a reading: the bytes written since the run began, on any monotonic clock.

        Raises:
            ValueError: Time or bytes fell since the last reading.
        """
        if self._first is None:
            self._first = self._last = (time_s, written_bytes)
            self._progress_s = time_s
        last_s, last_bytes = self._last
        if time_s < last_s or written_bytes < last_bytes:
            raise ValueError(
                f"readings must not fall: {written_bytes} bytes at {time_s} s came after "
                f"{last_bytes} bytes at {last_s} s"
            )
        self._last = time_s, written_bytes
        self._minutes.read(time_s, written_bytes)
        if written_bytes > last_bytes:
            self._progress_s = time_s
        elif time_s - self._progress_s > REST_S:
            self._rewritten_at = self._written + self._spare_bytes
            self._is_settled = False
        if self._is_settled:
            self._drive.read(time_s, written_bytes)
            self._settled_minutes.read(time_s, written_bytes)
            self._find_headline()
        elif self._written >= max(self._conditioned_at, self._rewritten_at):
            self._is_settled = True
            self._drive.restart(time_s, written_bytes)
            self._settled_minutes.restart(time_s, written_bytes)

    @property
    def drive_round_start_s(self) -> float | None:
        """The reading at which the drive's round under way began, ``None`` before the first."""
        return self._drive.start_s if self._is_settled else None

    @property
    def five_minutes(self) -> SteadyVerdict:
        """SNIA's verdict: the first steady window of five rounds of a minute."""
        return self._minutes.verdict()

    @property
    def drive(self) -> SteadyVerdict:
        """The drive's verdict: the first steady window of five rounds that count."""
        if self._drive.window is None and not self._is_settled:
            return SteadyVerdict(window=None, reason=self._unsettled())
        return self._drive.verdict()

    @property
    def headline(self) -> SteadyVerdict:
        """The first steady window of the drive in which rounds of a minute are steady as well."""
        if self._headline is not None:
            return SteadyVerdict(window=self._headline, reason="")
        if not self._is_settled:
            return SteadyVerdict(window=None, reason=self._unsettled())
        if self._drive.latest is None:
            return SteadyVerdict(window=None, reason=self._drive.last_reason())
        reason = self._settled_minutes.last_reason()
        return SteadyVerdict(window=None, reason=f"rounds of a minute: {reason}")

    def _find_headline(self) -> None:
        drive, minutes = self._drive.latest, self._settled_minutes.latest
        if self._headline is not None or drive is None or minutes is None:
            return
        common_s = min(drive.end_s, minutes.end_s) - max(drive.start_s, minutes.start_s)
        if common_s >= COMMON_ROUNDS * ROUND_S:
            self._headline = drive

    @property
    def _written(self) -> int:
        return self._last[1] - self._first[1] if self._first else 0

    def _unsettled(self) -> str:
        """Say how far the drive is from its first round that counts."""
        if self._conditioned_at >= self._rewritten_at:
            before = self._capacity_bytes - self._conditioned_at
            done, needed = before + self._written, float(self._capacity_bytes)
            what = "of random bytes written since sequential preconditioning"
        else:
            done = self._written - self._rewritten_at + self._spare_bytes
            needed = self._spare_bytes
            what = "of the spare area rewritten after a rest"
        return f"{' of '.join(compared_bytes(done, needed))} {what}"
