"""The random writes themselves: passes without a pause between them, read once a second."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import suppress

from wattload.core.histogram import Histogram
from wattload.core.io import (
    Allocation,
    Extent,
    IOKind,
    IOOrder,
    IOPlan,
    IOReading,
    Stamps,
    TracedFile,
    TracedOperations,
)
from wattload.core.steady import ROUND_S, SteadyJudge
from wattload.core.units import NS_PER_S
from wattload.core.workload import Mark, Phase
from wattload.loaders.aligned_io import direct_alignment
from wattload.loaders.engine.engine import IOEngine, Ticket
from wattload.results.random_write.facts import (
    PHASE,
    STEADY,
    Draw,
    Pass,
    SteadyVerdicts,
    Until,
)
from wattload.workloads.random_write.config import WSAT_S, Config
from wattload.workloads.random_write.series import Series, empty_reading, summed
from wattload.workloads.random_write.write_area import WriteArea, sync

FIRST_WORD = 16
"""The stamp's word of the first random pass; smaller ones are sequential passes."""

READ_EVERY_S = 1.0
TRACED_OPERATIONS = 16_384


def plans(config: Config, area: WriteArea, seed: int) -> Iterator[IOPlan]:
    """Yield the plan of each pass, every one with a new order.

    A drive that writes the same order again erases whole blocks at once, so it amplifies nothing.
    """
    for number in range(config.most_passes):
        digest = hashlib.sha256(f"{seed} {number}".encode()).digest()
        count = area.range_bytes // config.block_bytes
        yield IOPlan(
            kind=IOKind.WRITE,
            extents=[Extent(area.path, 0, area.range_bytes)],
            block_bytes=config.block_bytes,
            depth=config.queue_depth,
            order=IOOrder.RANDOM,
            operation_count=None if config.drawn is Draw.each_once else count,
            rate_bytes_per_s=config.rate_bytes_per_s,
            allocation=Allocation.OVERWRITE,
            stamps=Stamps(area.nonce, FIRST_WORD + number),
            seed=int.from_bytes(digest[:8], "little"),
            trace_every=max(count * config.most_passes // TRACED_OPERATIONS, 1),
            device=area.device,
        )


class Writing:
    """Random writes under way, and then what they did.

    One job follows the other in the engine's queue, so that the depth is kept between passes.
    ``steady_latency`` are the latencies in the steady window, ``None`` without one.
    """

    def __init__(
        self,
        config: Config,
        area: WriteArea,
        phase: Phase,
        engine: IOEngine,
        *,
        seed: int,
        judge: SteadyJudge | None,
    ) -> None:
        self._config = config
        self._area = area
        self._phase = phase
        self._engine = engine
        self.seed = seed
        self.judge = judge
        self._plans = plans(config, area, seed)
        self._alignment_bytes = direct_alignment(area.path)
        self._start = empty_reading(time.monotonic_ns())
        self._done: IOReading | None = None
        self._tickets: list[Ticket] = []
        self._due_s = time.monotonic() + READ_EVERY_S
        self._edges: dict[float, tuple[Mark, IOReading]] = {}
        self.seconds = Series(self._start)
        self.rounds = Series(self._start, ROUND_S)
        self.path = engine.path()
        self.passes: list[Pass] = []
        self.steady_latency: Histogram | None = None
        self.traced: list[TracedOperations] = []
        self.ended_by = "all passes"

    @property
    def total(self) -> IOReading:
        return self.seconds.last

    @property
    def verdicts(self) -> SteadyVerdicts | None:
        judge = self.judge
        if judge is None:
            return None
        return SteadyVerdicts(
            five_minutes=judge.five_minutes, drive=judge.drive, headline=judge.headline
        )

    def run(self) -> None:
        """Write until the configured end, then make it all durable.

        Raises:
            OSError: the drive or the file system refuses a write.
            TargetError: the device is no longer the one that was released to this run.
        """
        if self.judge is not None:
            self.judge.read(0.0, 0)
        self._submit()
        self._submit()
        try:
            while self._tickets:
                is_over = self._follow(self._tickets[0])
                if is_over:
                    # The next pass first, or it would go on. It may have begun already.
                    for ticket in reversed(self._tickets):
                        ticket.stop()
                    while self._tickets:
                        self._end_pass(self._tickets[0])
                else:
                    self._end_pass(self._tickets[0])
                    self._submit()
        finally:
            for ticket in self._tickets:
                ticket.discard()
        if self._done is not None:
            self._note(self._done, at_end=True)
            self._is_over(self._done)
        self._find_steady()
        sync(self._area)

    def _submit(self) -> None:
        """Queue the next pass, if there is one."""
        plan = next(self._plans, None)
        if plan is not None:
            ticket = self._engine.submit(
                plan, moved=self._count, alignment_bytes=self._alignment_bytes
            )
            self._tickets.append(ticket)

    def _count(self, moved_bytes: int) -> None:
        self._phase.moved(
            written_bytes=moved_bytes, operations=moved_bytes // self._config.block_bytes
        )

    def _follow(self, ticket: Ticket) -> bool:
        """Read the passes under way until one ends; return whether the writes end here."""
        while not ticket.wait(max(self._due_s - time.monotonic(), 0.0)):
            reading = self._done
            for each in self._tickets:  # the next one begins before this one ends
                reading = summed(reading, each.reading())
            assert reading is not None
            self._note(reading)
            if self._is_over(reading):
                return True
            self._due_s = max(self._due_s + READ_EVERY_S, time.monotonic())
        return False

    def _note(self, reading: IOReading, *, at_end: bool = False) -> None:
        self.seconds.add(reading, at_end=at_end)
        self.rounds.add(reading, at_end=at_end)

    def _is_over(self, reading: IOReading) -> bool:
        """Judge a reading; return whether the writes end here."""
        elapsed_s = self._elapsed_s(reading)
        if self.judge is not None:
            self.judge.read(elapsed_s, reading.moved_bytes)
            edge_s = self.judge.drive_round_start_s
            if edge_s is not None and edge_s not in self._edges:
                self._edges[edge_s] = self._phase.mark(), reading
            if self._config.until is Until.steady and self.judge.headline.is_steady:
                self.ended_by = "steady state"
                return True
        if self._config.until is Until.wsat and elapsed_s >= WSAT_S:
            self.ended_by = "24 hours"
            return True
        return False

    def _elapsed_s(self, reading: IOReading) -> float:
        return (reading.time_ns - self._start.time_ns) / NS_PER_S

    def _end_pass(self, ticket: Ticket) -> None:
        """Close a pass that is done, or was stopped; raises what made it fail."""
        while not ticket.wait(READ_EVERY_S):
            pass
        self._tickets.remove(ticket)
        reading = ticket.reading()
        if reading.operation_count:
            self._done = summed(self._done, reading)
            self.passes.append(
                Pass(
                    end_s=self._elapsed_s(self._done),
                    written_bytes=self._done.moved_bytes,
                    operations=self._done.operation_count,
                )
            )
        rows = ticket.trace()
        if rows is not None:
            file = TracedFile(self._area.path, self._area.range_bytes)
            self.traced.append(
                TracedOperations(phase=PHASE, kind=IOKind.WRITE, rows=rows, files=(file,))
            )
        with suppress(CancelledError):
            ticket.result()

    def _find_steady(self) -> None:
        """Make a part of the phase of the steady window, between the marks at its edges."""
        window = None if self.judge is None else self.judge.headline.window
        if window is None:
            return
        first, start = self._edges[window.start_s]
        last, end = self._edges[window.end_s]
        self._phase.add_part(STEADY, first, last)
        self.steady_latency = end.latency.since(start.latency)
