"""Power in the life of a run: the sources opened, the idle baseline, the tail."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from wattload.core.errors import DataError, PowerError
from wattload.core.power import MEASURING, Boxcar, Integral, Scope, SourceFacts
from wattload.core.units import NS_PER_S
from wattload.life.phases import PhaseRecorder
from wattload.life.sampling import Sampling
from wattload.power.client import SamplerClient
from wattload.power.config import IDLE_DEFAULT_S, PowerConfig
from wattload.power.replay.staging import stage, stage_again
from wattload.power.sampler.reports import ControllerReading, FinishReport, OpenReport
from wattload.power.samples import samples_of_host

QUIET_PHASE, IDLE_PHASE, TAIL_PHASE = "quiet", "idle", "tail"
IDLE_AFTER_PHASE, QUIET_AFTER_PHASE = "idle_after", "quiet_after"
FIRST_LOOK_S = 2.0
LEAD_S = 2.0
"""What a trace must have before the first and after the last phase, for the edges of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleTimes:
    """How long a run is idle for the sake of its baselines, in seconds; 0 leaves one out."""

    idle_s: float
    idle_after_s: float
    quiet_s: float

    @classmethod
    def of(cls, config: PowerConfig, opened: OpenReport) -> IdleTimes:
        """Return the times that are asked for, or what becomes the sources that there are.

        Nothing is waited for where no drive is measured, and no quiet where no read goes to a
        drive: a meter outside of it costs its sleep nothing.
        """
        if not measuring_drive_sources(opened):
            return cls(idle_s=config.idle_s or 0.0, idle_after_s=0.0, quiet_s=0.0)
        idle_s = IDLE_DEFAULT_S if config.idle_s is None else config.idle_s
        quiet_s = idle_s if config.quiet_s is None else config.quiet_s
        return cls(
            idle_s=idle_s,
            idle_after_s=idle_s if config.idle_after_s is None else config.idle_after_s,
            quiet_s=quiet_s if any(facts.asks_drive for facts in _used(opened)) else 0.0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerReport:
    """What a host's leader hands in: the sampler's answers, or why there are none.

    ``devices`` are all drives under the targets, sampled or not. ``samples_file`` is what the
    sampler has written, whether it is still there or not. ``tail_s`` is how long the drive took to
    calm down after the last phase, ``None`` where that was not watched or it did not within
    ``power.tail_max_s``.
    """

    host: str
    devices: tuple[str, ...]
    opened: OpenReport
    finished: FinishReport | None
    lost: str | None
    samples_file: str | None
    times: IdleTimes
    tail_s: float | None


class Powering:
    """Power of one run, on one host's leader."""

    def __init__(
        self,
        *,
        sampling: Sampling,
        client: SamplerClient,
        folder: Path,
        host: str,
        devices: Sequence[str],
        config: PowerConfig,
        opened: OpenReport,
    ) -> None:
        self._sampling = sampling
        self._client = client
        self._folder = folder
        self._host = host
        self._devices = tuple(devices)
        self._config = config
        self._opened = opened
        self._measuring = measuring_drive_sources(opened)
        self._times = IdleTimes.of(config, opened)
        self._has_sensor = any(_is_read(facts) for facts in _used(opened))
        self._late_s = max(
            (_late_s(facts) for facts in self._measuring if facts.asks_drive), default=0.0
        )
        self._tail_s: float | None = None
        self._idle_window: tuple[int, int] | None = None

    @classmethod
    def open(
        cls,
        sampling: Sampling,
        config: PowerConfig,
        folder: Path,
        *,
        host: str,
        devices: Sequence[str],
        block_devices: Sequence[str],
    ) -> Self:
        """Open the sources and set the power state that is asked for.

        Raises:
            PowerError: a source that was named can't be read, or the state can't be set; nothing
                is left changed.
            DataError: a trace that is to be replayed is none.
        """
        client = sampling.client(folder.name)
        asked = stage(config, folder)
        opened = client.open(asked, devices=devices, block_devices=block_devices)
        for sentence in opened.leftovers:
            print(f"warning: {sentence}", file=sys.stderr)
        return cls(
            sampling=sampling,
            client=client,
            folder=folder,
            host=host,
            devices=devices,
            config=config,
            opened=opened,
        )

    @property
    def _samples(self) -> Path | None:
        """Return the file that this host's sampler has made, ``None`` before it has."""
        return samples_of_host(self._folder, self._opened.host)

    @property
    def controllers(self) -> Mapping[str, ControllerReading]:
        """What the admin queue says of the controllers before the run, by name."""
        return self._opened.controllers

    def up(self, recorder: PhaseRecorder) -> None:
        """Start sampling and take the idle baselines, quiet first: the drive sleeps by then."""
        if self._times.quiet_s:
            self._client.quiet(is_on=True)
        self._client.start()
        self._wait_quietly(QUIET_PHASE, recorder)
        if self._times.idle_s:
            start_ns = time.monotonic_ns()
            with recorder.phase(IDLE_PHASE, timed=False):
                time.sleep(self._times.idle_s)
            self._idle_window = (start_ns, time.monotonic_ns())
        if self._has_sensor:
            time.sleep(max(0.0, LEAD_S - self._times.idle_s))

    def down(self, recorder: PhaseRecorder) -> PowerReport:
        """Wait for tail and idle, stop sampling, undo what was set; a lost sampler is only told."""
        finished: FinishReport | None = None
        lost: str | None = None
        try:
            self._watch_tail(recorder)
            if self._times.idle_after_s:
                with recorder.phase(IDLE_AFTER_PHASE, timed=False):
                    time.sleep(self._times.idle_after_s)
                if self._times.quiet_s:
                    time.sleep(self._late_s)  # the last means of that time are read beyond its end
            self._wait_quietly(QUIET_AFTER_PHASE, recorder)
            self._bring_log()
            finished = self._client.finish()
        except PowerError as error:
            lost = str(error)
            print(f"warning: {lost}", file=sys.stderr)
        if lost is not None:
            self._sampling.lost(self._folder.name)
        samples = self._samples
        return PowerReport(
            host=self._host,
            devices=self._devices,
            opened=self._opened,
            finished=finished,
            lost=lost,
            samples_file=samples.name if samples is not None else None,
            times=self._times,
            tail_s=self._tail_s,
        )

    def _bring_log(self) -> None:
        """Give the sampler what a meter has written into its log during the run."""
        try:
            stage_again(self._config, self._folder)
        except DataError as error:
            print(f"warning: {error}", file=sys.stderr)

    def _wait_quietly(self, phase: str, recorder: PhaseRecorder) -> None:
        """Wait without a command to the drive; what the sampler reads first afterwards tells."""
        if not self._times.quiet_s:
            return
        self._client.quiet(is_on=True)
        with recorder.phase(phase, timed=False):
            time.sleep(self._times.quiet_s)
        self._client.quiet(is_on=False)

    def _watch_tail(self, recorder: PhaseRecorder) -> None:
        """Wait until the drives are calm, and for what the trace needs beyond the last phase."""
        start_ns = recorder.last_timed_end_ns() or time.monotonic_ns()
        if self._idle_window is not None and self._measuring and self._config.tail_max_s:
            self._tail_s = self._wait_for_tail(self._idle_window, start_ns)
            recorder.add_span(TAIL_PHASE, start_ns)
        if self._has_sensor:
            time.sleep(max(0.0, LEAD_S - (time.monotonic_ns() - start_ns) / NS_PER_S))

    def _wait_for_tail(self, idle_window: tuple[int, int], start_ns: int) -> float | None:
        """Return how many seconds after ``start_ns`` the drives were calm, ``None`` if never.

        The tail begins with the end of the last timed phase: what the drive still writes out while
        ceilings are measured and data is verified belongs to it.
        """
        from wattload.life.calm import Calm

        samples = self._samples
        if samples is None:
            return None
        calm: Calm | None = None
        look_s = min(FIRST_LOOK_S, self._config.tail_max_s)
        while True:
            time.sleep(max(0.0, look_s - (time.monotonic_ns() - start_ns) / NS_PER_S))
            calm = calm or Calm(samples, self._measuring, idle_window)
            calm_ns = calm.since(start_ns)
            if calm_ns is not None:
                return (calm_ns - start_ns) / NS_PER_S
            if look_s >= self._config.tail_max_s:
                return None
            look_s = min(2 * look_s, self._config.tail_max_s)


def measuring_drive_sources(opened: OpenReport) -> tuple[SourceFacts, ...]:
    """Return the drive-scope sources in use that measure; only they have an idle and a tail."""
    return tuple(facts for facts in _used(opened) if facts.scope is Scope.DRIVE and _is_read(facts))


def _is_read(facts: SourceFacts) -> bool:
    """Return whether there is a sensor behind the source, and samples of it."""
    return facts.evidence in MEASURING and not isinstance(facts.sensor, Integral)


def _late_s(facts: SourceFacts) -> float:
    """Return how long after a moment what a sensor tells of it is read at the latest, in seconds.

    A mean comes as long after the moment as it is long, or as its updates are apart; then it takes
    a read to see it, and another one if that came just before.
    """
    sensor = facts.sensor
    if not isinstance(sensor, Boxcar):
        return 2 * facts.period_s
    return max(sensor.window_s, sensor.update_period_s or 0.0) + 2 * facts.period_s


def _used(opened: OpenReport) -> Sequence[SourceFacts]:
    return [source.facts for source in opened.sources if source.used and source.facts is not None]
