"""Power in the life of a run: the sources opened, the idle baseline, the tail."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from wattload.core.errors import PowerError
from wattload.core.power import Evidence, Scope, SourceFacts
from wattload.core.units import NS_PER_S
from wattload.life.phases import PhaseRecorder
from wattload.life.sampling import Sampling
from wattload.power.client import SamplerClient
from wattload.power.config import IDLE_DEFAULT_S, PowerConfig
from wattload.power.sampler.reports import ControllerReading, FinishReport, OpenReport

IDLE_PHASE, TAIL_PHASE = "idle", "tail"
MEASURING = (Evidence.MEASURED, Evidence.SELF_REPORTED, Evidence.ESTIMATED)
FIRST_LOOK_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerReport:
    """What a host's leader hands in: the sampler's answers, or why there are none.

    ``devices`` are all drives under the targets, sampled or not. ``tail_s`` is how long
    the drive took to calm down after the last phase, ``None`` where that
    was not watched or it did not within ``power.tail_max_s``.
    """

    host: str
    devices: tuple[str, ...]
    opened: OpenReport
    finished: FinishReport | None
    lost: str | None
    idle_s: float
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
        self._idle_s = config.idle_s
        if self._idle_s is None:
            self._idle_s = IDLE_DEFAULT_S if self._measuring else 0.0
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
        """
        client = sampling.client(folder.name)
        opened = client.open(config, devices=devices, block_devices=block_devices)
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
    def _samples(self) -> Path:
        (path,) = self._folder.glob("samples-*.jsonl")
        return path

    @property
    def controllers(self) -> Mapping[str, ControllerReading]:
        """What the admin queue says of the controllers before the run, by name."""
        return self._opened.controllers

    def up(self, recorder: PhaseRecorder) -> None:
        """Start sampling and take the idle baseline."""
        self._client.start()
        if self._idle_s:
            start_ns = time.monotonic_ns()
            with recorder.phase(IDLE_PHASE, timed=False):
                time.sleep(self._idle_s)
            self._idle_window = (start_ns, time.monotonic_ns())

    def down(self, recorder: PhaseRecorder) -> PowerReport:
        """Wait for the tail, stop sampling, undo what was set; a lost sampler is only told."""
        finished: FinishReport | None = None
        lost: str | None = None
        try:
            if self._idle_window is not None and self._measuring and self._config.tail_max_s:
                start_ns = recorder.last_timed_end_ns() or time.monotonic_ns()
                self._tail_s = self._wait_for_tail(self._idle_window, start_ns)
                recorder.add_span(TAIL_PHASE, start_ns)
            finished = self._client.finish()
        except PowerError as error:
            lost = str(error)
            print(f"warning: {lost}", file=sys.stderr)
        if lost is not None:
            self._sampling.lost(self._folder.name)
        return PowerReport(
            host=self._host,
            devices=self._devices,
            opened=self._opened,
            finished=finished,
            lost=lost,
            idle_s=self._idle_s or 0.0,
            tail_s=self._tail_s,
        )

    def _wait_for_tail(self, idle_window: tuple[int, int], start_ns: int) -> float | None:
        """Return how many seconds after ``start_ns`` the drives were calm, ``None`` if never.

        The tail begins with the end of the last timed phase: what the drive still writes out while
        ceilings are measured and data is verified belongs to it.
        """
        look_s = min(FIRST_LOOK_S, self._config.tail_max_s)
        while True:
            time.sleep(max(0.0, look_s - (time.monotonic_ns() - start_ns) / NS_PER_S))
            calm_ns = self._calm_ns(idle_window, start_ns)
            if calm_ns is not None:
                return (calm_ns - start_ns) / NS_PER_S
            if look_s >= self._config.tail_max_s:
                return None
            look_s = min(2 * look_s, self._config.tail_max_s)

    def _calm_ns(self, idle_window: tuple[int, int], start_ns: int) -> int | None:
        from wattload.life.calm import calm_since

        return calm_since(self._samples, self._measuring, idle_window, start_ns)


def measuring_drive_sources(opened: OpenReport) -> tuple[SourceFacts, ...]:
    """Return the drive-scope sources in use that measure; only they have an idle and a tail."""
    return tuple(
        source.facts
        for source in opened.sources
        if source.used
        and source.facts is not None
        and source.facts.scope is Scope.DRIVE
        and source.facts.evidence in MEASURING
    )
