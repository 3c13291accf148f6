"""What the sampler reads in each round of a run, when, and at what cost.

Fast sources are read in the main loop, slow ones in their own threads. A BMC takes tens of
milliseconds to answer and seconds to fail, which must not delay a drive that is sampled ten times
a second. Deadlines count from the start, so lateness does not add up. Samples keep the times at
which they were samples.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from wattload.core.errors import PowerDataLostError, PowerError, TargetError
from wattload.core.host.counters import read_block_stat
from wattload.core.power import (
    SMART,
    Channel,
    Evidence,
    Integral,
    PowerSource,
    Sample,
    SourceFacts,
    WindowEnergy,
)
from wattload.core.record.energy import LostReadings, SamplerRecord
from wattload.core.sysfs import LIVE, SECTOR_BYTES, Roots
from wattload.core.units import NS_PER_S
from wattload.power.nvme.admin import (
    ADMIN_COST,
    GET_LOG_PAGE,
    AdminDevice,
    DeviceWithTimeout,
    OpenDevice,
)
from wattload.power.nvme.identify import identify_controller
from wattload.power.nvme.logs import media_counter, read_freezing_commands, read_smart
from wattload.power.sources.base import PolledSource

_LOG = logging.getLogger(__name__)

LAST_READING_S = 3.0
"""Timeout for the last readings of all slow sources together, at the end of a run."""

COUNTS_PERIOD_S = 10.0
"""Two commands in so many seconds; more often, the sampler reads other logs ten times a second."""

SOURCE = "block"
_STAT_BYTES = 512

_READ, _WRITTEN = 2, 6
"""Sectors read and written (Linux ``Documentation/block/stat.rst``)."""


class Schedule:
    """Absolute deadlines, ``period_s`` apart, first at ``start_ns``; missed ones are skipped."""

    def __init__(self, period_s: float, start_ns: int) -> None:
        self._period_ns = round(period_s * NS_PER_S)
        self.due_ns = start_ns
        self.tick_count = 0
        self.missed_count = 0
        """Deadlines that passed during a read."""

    def advance(self, now_ns: int) -> None:
        """Set the next deadline after a read that ended at ``now_ns``."""
        self.tick_count += 1
        self.due_ns += self._period_ns
        if self.due_ns <= now_ns:
            missed = (now_ns - self.due_ns) // self._period_ns + 1
            self.missed_count += missed
            self.due_ns += missed * self._period_ns


class SourceReader:
    """Starts, reads and stops the sources of a run.

    A drive's own energy measurement and its samples must cover the same time, so that both can be
    compared. The measurement starts after a quiet time at the start, and ends before one at the
    end. It starts only after every drive has been read, so that the sample is the first command
    after the quiet time.
    """

    def __init__(self, sources: Sequence[PowerSource]) -> None:
        self._sampled = [each for each in sources if not isinstance(each.facts().sensor, Integral)]
        self._integrals = [each for each in sources if isinstance(each.facts().sensor, Integral)]
        self._paused: frozenset[int] = frozenset()
        self._is_quiet = self._has_started = self._is_integrating = self._starts_integrals = False
        self._energies: list[WindowEnergy] = []
        self._lost: dict[int, LostReadings] = {}

    @property
    def is_quiet(self) -> bool:
        return self._is_quiet

    @property
    def data_lost(self) -> tuple[LostReadings, ...]:
        """The sources that reported lost readings; they are not read any more."""
        return tuple(self._lost.values())

    def start(self) -> None:
        """Start the sources; a quiet time requested earlier is in effect from now on."""
        self._has_started = True
        for source in self._sampled:
            source.start()
        if not self._is_quiet:
            self._start_integrals()

    def quiet(self, *, is_on: bool) -> None:
        """Pause or resume reading the drives; meters outside of them are always read."""
        self._is_quiet = is_on
        self._starts_integrals = self._has_started and not is_on
        drive_sources = [source for source in self._sampled if source.facts().asks_drive]
        self._paused = frozenset(map(id, drive_sources)) if is_on else frozenset()
        if is_on:
            self.end_integrals()

    def end_integrals(self) -> bool:
        """End the drives' own measurements; return whether there were any. May take a second."""
        if not self._is_integrating:
            return False
        self._is_integrating = False
        for source in self._integrals:
            self._energies += self._stop_source(source)
        return True

    def read(self) -> list[Sample]:
        samples: list[Sample] = []
        for source in self._sampled:
            if id(source) in self._lost or id(source) in self._paused:
                continue
            try:
                samples.extend(source.read())
            except PowerDataLostError as error:
                self._lose(source, error)
        if self._starts_integrals:
            self._starts_integrals = False
            self._start_integrals()
        return samples

    def stop(self) -> Sequence[WindowEnergy]:
        """Stop; return the energies that the drives measured themselves."""
        for source in self._sampled:
            self._energies += self._stop_source(source)
        self.end_integrals()
        return self._energies

    def _start_integrals(self) -> None:
        """Start the drives' own measurements, only once: each covers a single window."""
        if not self._is_integrating and not self._energies:
            self._is_integrating = bool(self._integrals)
            for source in self._integrals:
                source.start()

    def _stop_source(self, source: PowerSource) -> Sequence[WindowEnergy]:
        try:
            return source.stop()
        except PowerDataLostError as error:
            self._lose(source, error)
            return ()

    def _lose(self, source: PowerSource, error: PowerDataLostError) -> None:
        """Note the first loss of a source."""
        facts = source.facts()
        lost = LostReadings(
            source=facts.name, device=facts.device, scope=facts.scope, sentence=str(error)
        )
        self._lost.setdefault(id(source), lost)


def in_background(sources: Iterable[PowerSource]) -> list[PowerSource]:
    """Return the sources, with slow ones wrapped so that ``read`` never waits."""
    return [
        BackgroundSource(source) if isinstance(source, PolledSource) and source.is_slow else source
        for source in sources
    ]


def take_last_readings(sources: Iterable[PowerSource], *, wait_s: float = LAST_READING_S) -> None:
    """Read each slow source once more, so that its trace extends past the end of the work."""
    slow = [source for source in sources if isinstance(source, BackgroundSource)]
    for source in slow:
        source.finish()
    deadline_s = time.monotonic() + wait_s
    for source in slow:
        source.wait(max(0.0, deadline_s - time.monotonic()))


class BackgroundSource:
    """A source that a thread reads from ``start`` on, every ``period_s`` of its facts.

    ``read`` returns what the thread has read since the last call. While a reading hangs it returns
    nothing, and the trace has a gap. A thread that still hangs at the end closes its source itself,
    later.
    """

    def __init__(self, source: PowerSource) -> None:
        self._source = source
        self._samples: deque[Sample] = deque()
        self._trouble: PowerDataLostError | None = None
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._is_reading = False
        self._is_closing = False
        self._is_abandoned = False

    def facts(self) -> SourceFacts:
        return self._source.facts()

    def open(self) -> None:
        """Open the source; this blocks."""
        self._source.open()
        self._wake.clear()
        self._is_closing = False

    def start(self) -> None:
        self._source.start()
        self._is_reading = True
        self._thread = threading.Thread(target=self._run, name="slow power source", daemon=True)
        self._thread.start()

    def read(self) -> Sequence[Sample]:
        """Return the samples taken since the last call, possibly none; never waits.

        Raises:
            PowerDataLostError: the source lost readings or failed; it is not read any more.
        """
        samples = [self._samples.popleft() for _ in range(len(self._samples))]
        if self._trouble is not None and not samples:
            trouble, self._trouble = self._trouble, None
            raise trouble
        return samples

    def finish(self) -> None:
        """Request one last reading, at once."""
        self._wake.set()

    def wait(self, wait_s: float) -> None:
        """Wait for the last reading, at most ``wait_s``."""
        if self._thread is not None:
            self._thread.join(wait_s)

    def stop(self) -> Sequence[WindowEnergy]:
        """Stop reading; return the source's own energies, none while a reading hangs."""
        self.finish()
        return () if self._is_reading else self._source.stop()

    def restore(self) -> None:
        self._source.restore()

    def close(self) -> None:
        """Close the source, or let a hanging thread do that later; safe to call twice."""
        self._is_closing = True
        self._wake.set()
        with self._lock:
            if self._is_reading:
                self._is_abandoned = True
                return
        self._source.close()

    def _run(self) -> None:
        is_last = False
        try:
            schedule = Schedule(self.facts().period_s, time.monotonic_ns())
            while not is_last and not self._is_closing:
                is_last = self._wake.is_set()
                self._samples.extend(self._source.read())
                schedule.advance(time.monotonic_ns())
                self._wake.wait(max(0.0, (schedule.due_ns - time.monotonic_ns()) / NS_PER_S))
        except PowerDataLostError as error:
            self._trouble = error
        except Exception as error:
            # Without this, the trace would end silently and its source would stay open.
            self._trouble = PowerDataLostError(self._failure_text(error))
            _LOG.exception("bug while reading a slow power source")
        finally:
            with self._lock:
                self._is_reading = False
                if self._is_abandoned:
                    self._source.close()

    def _failure_text(self, error: Exception) -> str:
        facts = self.facts()
        return (
            f"{facts.name} of {facts.device} is not read any more, because its reading "
            f"failed ({type(error).__name__}: {error}); see the sampler's log"
        )


class BlockCounter:
    """The counters in ``/sys/class/block/<name>/stat``, kept open; a read takes about 5 us."""

    def __init__(self, name: str, roots: Roots = LIVE) -> None:
        self.name = name
        self._roots = roots
        self._descriptor = -1

    def open(self) -> None:
        """Try a first read; raises ``PowerError`` if the device has no counters."""
        try:
            read_block_stat(self.name, self._roots)
        except TargetError as error:
            raise PowerError(str(error)) from error

    def read(self) -> Sequence[Sample]:
        """Return bytes read and written since the device appeared; without value if it is gone."""
        start_ns = time.monotonic_ns()
        counts = self._counts()
        end_ns = time.monotonic_ns()
        return [
            Sample(
                time_ns=(start_ns + end_ns) // 2,
                spread_ns=end_ns - start_ns,
                source=SOURCE,
                device=self.name,
                channel=channel,
                value=count,
                evidence=Evidence.MEASURED,
            )
            for channel, count in zip(
                (Channel.READ_BYTES, Channel.WRITTEN_BYTES), counts, strict=True
            )
        ]

    def close(self) -> None:
        """Close the file; safe to call twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _counts(self) -> tuple[int | None, int | None]:
        """Return bytes read and written; reopens a device that came back."""
        try:
            if self._descriptor < 0:
                path = self._roots.sys / "class/block" / self.name / "stat"
                self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            fields = os.pread(self._descriptor, _STAT_BYTES, 0).split()
            return int(fields[_READ]) * SECTOR_BYTES, int(fields[_WRITTEN]) * SECTOR_BYTES
        except (OSError, ValueError, IndexError):
            self.close()
            return None, None


class WrittenCounter:
    """The counts of one controller by its name (``nvme0``); its samples have ``key`` as device.

    Host bytes are SMART's data units written. Media bytes come from OCP's log C0h, which counts
    single bytes, or else from the endurance group of the controller's first namespace. The log is
    the source of a sample.
    """

    def __init__(self, name: str, *, key: str, open_device: OpenDevice) -> None:
        self.name = name
        self._key = key
        self._open_device = open_device
        self._device: AdminDevice | None = None
        self._counts: list[tuple[Channel, str, Callable[[], int]]] = []
        self._due_ns = 0

    def open(self) -> None:
        """Find out which logs the controller has.

        Raises:
            PowerError: it can't be read, or Linux would stop its I/O at every read of a log.
        """
        device = self._device = DeviceWithTimeout(self._open_device(self.name))
        try:
            self._prepare(device)
        except PowerError:
            self.close()
            raise

    def read(self) -> Sequence[Sample]:
        """Return the counts if they are due, else nothing; a failed read is without value."""
        now_ns = time.monotonic_ns()
        if now_ns < self._due_ns:
            return ()
        self._due_ns = now_ns + round(COUNTS_PERIOD_S * NS_PER_S)
        return [self._sample(*each) for each in self._counts]

    def finish(self) -> None:
        """Let the counts be due at the next read, which is the last one."""
        self._due_ns = 0

    def close(self) -> None:
        """Close the controller; safe to call twice."""
        if self._device is not None:
            self._device.close()

    def _prepare(self, device: AdminDevice) -> None:
        controller = identify_controller(device)
        if GET_LOG_PAGE in read_freezing_commands(device, controller):
            raise PowerError(
                f"{self.name} reports that Get Log Page holds up other commands (effects log "
                "05h), so its counts of bytes written are not sampled"
            )
        read_smart(device)
        self._counts = [
            (Channel.HOST_WRITTEN_BYTES, SMART, lambda: read_smart(device).written_bytes)
        ]
        with suppress(PowerError):  # a drive without such a log
            log, count = media_counter(device, controller)
            self._counts.append((Channel.MEDIA_WRITTEN_BYTES, log, count))

    def _sample(self, channel: Channel, log: str, count: Callable[[], int]) -> Sample:
        start_ns = time.monotonic_ns()
        value: int | None
        try:
            value = count()
        except PowerError:
            value = None
        end_ns = time.monotonic_ns()
        return Sample(
            time_ns=(start_ns + end_ns) // 2,
            spread_ns=end_ns - start_ns,
            source=log,
            device=self._key,
            channel=channel,
            value=value,
            evidence=Evidence.SELF_REPORTED,
        )


class CostMeter:
    """The cost of sampling since this was created; rates leave out the quiet time."""

    def __init__(self, *, is_quiet: bool = False) -> None:
        ADMIN_COST.reset()
        self._start_ns = time.monotonic_ns()
        self._cpu_start_s = time.process_time()
        self._quiet_since = (self._start_ns, self._cpu_start_s) if is_quiet else None
        self._quiet_ns = 0
        self._quiet_cpu_s = 0.0
        self._tick_count = 0
        self._tick_total_ns = 0
        self._tick_max_ns = 0

    def quiet(self, *, is_on: bool) -> None:
        """Start or end a quiet time, in which the drives are not read and cause no cost."""
        now = time.monotonic_ns(), time.process_time()
        if self._quiet_since is not None:
            self._quiet_ns += now[0] - self._quiet_since[0]
            self._quiet_cpu_s += now[1] - self._quiet_since[1]
        self._quiet_since = now if is_on else None

    def add_tick(self, start_ns: int, end_ns: int) -> None:
        """Count a round over all sources; rounds in a quiet time skip most and don't count."""
        if self._quiet_since is not None:
            return
        self._tick_count += 1
        self._tick_total_ns += end_ns - start_ns
        self._tick_max_ns = max(self._tick_max_ns, end_ns - start_ns)

    def record(self, *, host: str, period_s: float, schedule: Schedule) -> SamplerRecord:
        """Return the cost so far; the samples are counted when all have been written."""
        self.quiet(is_on=self._quiet_since is not None)  # counts the quiet time up to now
        seconds = (time.monotonic_ns() - self._start_ns) / NS_PER_S
        quiet_s = self._quiet_ns / NS_PER_S
        polled_s = seconds - quiet_s
        ticks, commands = self._tick_count, ADMIN_COST.count
        cpu_s = time.process_time() - self._cpu_start_s
        figures = {
            "cpu_share": (cpu_s - self._quiet_cpu_s) / polled_s if polled_s else None,
            "tick_mean_s": self._tick_total_ns / NS_PER_S / ticks if ticks else None,
            "tick_max_s": self._tick_max_ns / NS_PER_S if ticks else None,
            "admin_commands_per_s": commands / polled_s if polled_s else None,
            "admin_mean_s": ADMIN_COST.total_ns / NS_PER_S / commands if commands else None,
            "admin_max_s": ADMIN_COST.max_ns / NS_PER_S if commands else None,
        }
        return SamplerRecord(
            host=host,
            period_s=period_s,
            seconds=seconds,
            quiet_s=quiet_s,
            tick_count=schedule.tick_count,
            missed_tick_count=schedule.missed_count,
            sample_count=0,
            lost_sample_count=0,
            cpu_s=cpu_s,
            admin_command_count=commands,
            missing={
                name: "no admin command was sent"
                if name.startswith("admin_m")
                else "nothing was sampled"
                for name, value in figures.items()
                if value is None
            },
            **figures,
        )
