"""Power measurement during a run: sampler, sources, idle baselines, and the rest after the job."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Self

from wattload.core.errors import DataError, PowerError, RecordError, WattloadError
from wattload.core.power import Boxcar, Sample, Scope, SourceFacts
from wattload.core.record.energy import CalibrationRecord, PowerStateRecord
from wattload.core.units import NS_PER_S
from wattload.power.config import IDLE_DEFAULT_S, PowerConfig
from wattload.power.control.calibrations import SessionCalibrations
from wattload.power.control.undo import recover_changes
from wattload.power.energy.calibration import calibrate
from wattload.power.sampler.client import SamplerClient
from wattload.power.sampler.protocol import ControllerReading, FinishReply, OpenReply
from wattload.power.sampler.samples import (
    LatestReadings,
    in_file_name,
    read_samples,
    samples_of_host,
)
from wattload.run.calibration_records import calibration_key, calibration_records
from wattload.run.folder import make_runs_folder
from wattload.run.phases import REST_PHASE, PhaseRecorder
from wattload.run.pulses import (
    BASELINE_S,
    KnownLoad,
    load_drives,
    plan_pulses,
)

REPLAY = "replay"
"""The meter whose readings are in a file."""
QUIET_PHASE, IDLE_PHASE = "quiet", "idle"
CALIBRATION_PHASE = "calibration"
IDLE_AFTER_PHASE, QUIET_AFTER_PHASE = "idle_after", "quiet_after"
LEAD_S = 2.0
"""Seconds of a trace needed before the first and after the last phase, for their edges."""
COMPARED = "a run that is compared makes none; `wattload power calibrate` does, before it"
"""Why a run that may not calibrate is not calibrated."""
AS_EARLIER = "earlier runs of this session were not calibrated either"
"""Why a run that may calibrate does not, if its session uses no calibration of a source."""
SLACK_S = 0.2
"""Two reads at the usual period."""


class Sampling:
    """The sampler of this host, for all runs of this process, one after the other.

    ``calibrations`` are those of the meters that these runs use.
    The process starts a sampler, which ends with it. If ``service`` names the
    socket of a sampler service, that reads and sets the drives.
    """

    def __init__(self, runs: Path, service: str | None) -> None:
        self._runs = runs
        self._service = service
        self._client: SamplerClient | None = None
        self.note: Callable[[str], None] = partial(print, file=sys.stderr)
        """Shows a line about this host."""
        self.calibrations = SessionCalibrations()

    @classmethod
    def begin(cls, runs: Path, service: str | None = None) -> Self:
        """Start the sampler now, before loading libraries that do not survive a fork.

        It waits: nothing is changed on this host before ``confirm``.
        """
        sampling = cls(runs.absolute(), service)
        sampling._client = sampling._spawn(waits=True)
        return sampling

    def confirm(self) -> None:
        """Let the sampler serve runs: this process is the leader of its host.

        Raises:
            TargetError: there is no folder for the runs.
        """
        make_runs_folder(self._runs)
        if self._client is not None:
            self._client.begin()

    @property
    def pid(self) -> int | None:
        """The sampler's process ID, ``None`` while there is none."""
        return self._client.pid if self._client is not None else None

    def client(self) -> SamplerClient:
        """Return the client; a lost sampler is restarted."""
        if self._client is None:
            make_runs_folder(self._runs)
            self._client = self._spawn(waits=False)
        return self._client

    def _spawn(self, *, waits: bool) -> SamplerClient:
        service = Path(self._service) if self._service else None
        return SamplerClient.spawn(self._runs, service=service, waits=waits)

    def lost(self, run_id: str) -> None:
        """Restore from the journal what a lost sampler had set for this run.

        This needs the same permission as setting a power state. A service does it itself at its
        next run.
        """
        self.close()
        for recovery in recover_changes():
            if recovery.run_id == run_id:
                self.note(f"warning: {recovery.sentence}")

    def close(self) -> None:
        """End the sampler."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def abort(self, run_id: str) -> tuple[PowerStateRecord, ...]:
        """Restore all settings of an unfinished run and return the drives' power states.

        The sampler goes on: it writes the record if this process is killed before it has.
        """
        try:
            if self._client is not None and self._client.has_run:
                return self._client.abort()
        except PowerError as error:
            self.note(f"warning: {error}")
            self.lost(run_id)
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleTimes:
    """The lengths of a run's rest and idle baselines in seconds; 0 omits one.

    ``idle_after_s`` is what remains of ``power.idle_after_s`` behind the rest, which counts in it.
    """

    idle_s: float
    rest_s: float
    idle_after_s: float
    quiet_s: float

    @property
    def total_s(self) -> float:
        """The seconds that they add to a run, with the quiet times before and after it."""
        return self.idle_s + self.rest_s + self.idle_after_s + 2 * self.quiet_s

    @classmethod
    def of(cls, config: PowerConfig, opened: OpenReply) -> Self:
        """Return the configured times, or defaults that suit the opened sources.

        There is no rest and no further baseline if no drive is measured, and no quiet times if no
        source sends commands to a drive: an external meter does not keep it from sleeping.
        """
        if not measuring_drive_sources(opened):
            return cls(idle_s=config.idle_s or 0.0, rest_s=0.0, idle_after_s=0.0, quiet_s=0.0)
        return cls.measured(config, asks_drive=any(facts.asks_drive for facts in _used(opened)))

    @classmethod
    def measured(cls, config: PowerConfig, *, asks_drive: bool) -> Self:
        """Return the times where a drive is measured, by sources that send commands to it or not.

        See ``of``.
        """
        idle_s = IDLE_DEFAULT_S if config.idle_s is None else config.idle_s
        quiet_s = idle_s if config.quiet_s is None else config.quiet_s
        after_s = idle_s if config.idle_after_s is None else config.idle_after_s
        return cls(
            idle_s=idle_s,
            rest_s=config.rest_max_s,
            idle_after_s=max(0.0, after_s - config.rest_max_s),
            quiet_s=quiet_s if asks_drive else 0.0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerReport:
    """The power report of a host's leader: the sampler's replies, or why there are none.

    ``devices`` are all drives under the targets, sampled or not. ``samples_file`` is the sampler's
    file, even if the sampler was lost. ``not_calibrated`` is why this run made no calibration that
    it was to make.
    """

    host: str
    devices: tuple[str, ...]
    opened: OpenReply
    finished: FinishReply | None
    lost: str | None
    samples_file: str | None
    times: IdleTimes
    calibrations: tuple[CalibrationRecord, ...] = ()
    not_calibrated: str = ""


class PowerSession:
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
        opened: OpenReply,
        calibrates: bool,
    ) -> None:
        self._sampling = sampling
        self._client = client
        self._folder = folder
        self._host = host
        self._devices = tuple(devices)
        self._config = config
        self._opened = opened
        self._calibrates = calibrates
        self._measuring = measuring_drive_sources(opened)
        self._times = IdleTimes.of(config, opened)
        self._has_sensor = any(facts.measures for facts in _used(opened))
        measuring = [facts for facts in _used(opened) if facts.measures]
        asking = [facts for facts in measuring if facts.asks_drive]
        self._before_quiet_s = max((_delay_s(facts) for facts in asking), default=0.0)
        self._at_end_s = max(
            (
                _delay_s(facts)
                for facts in measuring
                if isinstance(facts.sensor, Boxcar)
                and not (self._times.quiet_s and facts.asks_drive)
            ),
            default=0.0,
        )
        self._idle_end_ns: int | None = None
        self._load: KnownLoad | None = None
        self._pulsed: tuple[SourceFacts, ...] = ()
        self._not_calibrated = "" if calibrates else COMPARED

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
        calibrates: bool = False,
    ) -> Self:
        """Open the sources and apply the requested power settings.

        ``calibrates`` is whether meters may be calibrated within the idle time of this run.

        Raises:
            PowerError: a selected source can't be read, or a setting can't be applied; nothing
                remains changed.
            DataError: the file to replay is not a trace.
        """
        staged = config
        if config.source == REPLAY:
            from wattload.power.sources.replay import stage

            staged = stage(config, _log_folder(folder, host))
        client = sampling.client()
        opened = client.open(folder.name, staged, devices=devices, block_devices=block_devices)
        for sentence in opened.recovered:
            sampling.note(f"warning: {sentence}")
        return cls(
            sampling=sampling,
            client=client,
            folder=folder,
            host=host,
            devices=devices,
            config=config,
            opened=opened,
            calibrates=calibrates,
        )

    @property
    def _samples(self) -> Path | None:
        """The samples file of this host, ``None`` before the sampler has created it."""
        return samples_of_host(self._folder, self._opened.host)

    @property
    def controllers(self) -> Mapping[str, ControllerReading]:
        """The state of each controller before the run, by name."""
        return self._opened.controllers

    @property
    def rest_s(self) -> float:
        """The length of the rest after the job in seconds, 0 without one."""
        return self._times.rest_s

    @property
    def rests(self) -> bool:
        """Whether the drives rest after the job, for their tail or an idle baseline."""
        return self._times.rest_s > 0 or self._times.idle_after_s > 0

    def up(self, recorder: PhaseRecorder, data_files: Sequence[Path]) -> None:
        """Start sampling and take the idle baselines, first the quiet one so the drive sleeps.

        ``data_files`` are the run's written files on this host's targets, none if it has no data
        yet.
        """
        if self._times.quiet_s:
            self._client.quiet(is_on=True)
        self._client.start()
        recorder.progress.power = LatestReadings(lambda: self._samples, self._measuring)
        self._wait_quietly(QUIET_PHASE, recorder)
        start_ns = time.monotonic_ns()
        if self._calibrates:
            self._calibrate(recorder, data_files)
        idle_s = self._times.idle_s - (time.monotonic_ns() - start_ns) / NS_PER_S
        if self._pulsed:  # even if the load failed, it came before the baseline
            idle_s = max(idle_s, BASELINE_S)
        if idle_s > 0:
            with recorder.phase(IDLE_PHASE, timed=False, expected_s=idle_s):
                time.sleep(idle_s)
        if self._has_sensor:
            time.sleep(max(0.0, LEAD_S - self._times.idle_s))

    def _calibrate(self, recorder: PhaseRecorder, data_files: Sequence[Path]) -> None:
        """Calibrate the meters of the drives under ``data_files`` by a known load, if one is not.

        The quiet baseline is over, sampling runs, and the idle baseline follows. A calibration that
        can't be made does not fail the run.
        """
        plan = plan_pulses(self._measuring, data_files, idle_s=self._times.idle_s)
        if isinstance(plan, str):
            self._not_calibrated = plan
            return
        if all(self._is_settled(facts) for facts in plan.sources):
            if any(map(self._sampling.calibrations.uses_none, plan.sources)):
                self._not_calibrated = AS_EARLIER
            return
        self._pulsed = plan.sources
        with recorder.phase(CALIBRATION_PHASE, timed=False, expected_s=plan.seconds):
            try:
                self._load = load_drives(plan, data_files)
            except (OSError, WattloadError) as error:
                self._not_calibrated = f"the drive could not be loaded: {error}"

    def _is_settled(self, facts: SourceFacts) -> bool:
        """Return whether it is known what a source uses; a log does not name its meter."""
        if facts.is_recorded:
            return False
        key = calibration_key(facts, self._opened)
        return self._sampling.calibrations.is_settled(facts, key)

    def _calibrations(self) -> tuple[CalibrationRecord, ...]:
        """Return the calibrations of the drives' meters: this run's own, or else earlier ones.

        One that failed does not replace an earlier one, unless the meter ignored the load.
        """
        kept = self._sampling.calibrations
        own = dict(zip(self._pulsed, self._own_calibrations(), strict=False))
        found = []
        for facts in self._measuring:
            record = own.get(facts)
            if facts.is_recorded:
                found.append(record)
                continue
            sensor = calibrate(record, facts) if record is not None else None
            is_made = sensor is not None and sensor.basis == "calibrated"
            used = kept.use(
                facts,
                calibration_key(facts, self._opened),
                record if is_made else None,
                is_of_any_state=not self._calibrates,
            )
            is_silent = sensor is not None and sensor.responds is False
            found.append(used if is_made or (used is not None and not is_silent) else record)
        return tuple(record for record in found if record is not None)

    def _own_calibrations(self) -> tuple[CalibrationRecord, ...]:
        """Return what the sources of this run's known load read under it, nothing without one."""
        if self._load is None or self._samples is None:
            return ()
        samples: Iterator[Sample] = read_samples(self._samples, since_ns=self._load.origin_ns)
        if not any(facts.is_recorded for facts in self._pulsed):  # a log is read at the end
            last_ns = self._load.end_ns + NS_PER_S
            samples = takewhile(lambda sample: sample.time_ns <= last_ns, samples)
        try:
            return calibration_records(
                self._load,
                samples,
                {facts: calibration_key(facts, self._opened) for facts in self._pulsed},
                host=self._opened.host,
                run_id=self._folder.name,
            )
        except RecordError as error:
            self._sampling.note(f"warning: the meters are not calibrated: {error}")
            return ()

    def rest(self, recorder: PhaseRecorder, job_end_ns: int) -> None:
        """Leave the drives alone after the job, which ended at ``job_end_ns``.

        The rest, in which they end the job's work, begins there whenever this is called. It has a
        fixed length, so that it is the same in all runs. The idle baseline follows.
        """
        rest_s, idle_s = self._times.rest_s, self._times.idle_after_s
        if rest_s:
            end_ns = job_end_ns + round(rest_s * NS_PER_S)
            left_s = max(0.0, (end_ns - time.monotonic_ns()) / NS_PER_S)
            with recorder.phase(REST_PHASE, timed=False, expected_s=left_s) as phase:
                phase.set_edges(job_end_ns, end_ns)
                time.sleep(left_s)
        if idle_s:
            with recorder.phase(IDLE_AFTER_PHASE, timed=False, expected_s=idle_s):
                time.sleep(idle_s)
        self._idle_end_ns = time.monotonic_ns()

    def down(self, recorder: PhaseRecorder) -> PowerReport:
        """Stop sampling and restore; a lost sampler only gives a warning."""
        finished: FinishReply | None = None
        lost: str | None = None
        try:
            if self._has_sensor:
                _sleep_until(recorder.last_timed_end_ns(), LEAD_S)
            if self._times.quiet_s:
                time.sleep(self._before_quiet_s)  # the last means of the time before
            self._wait_quietly(QUIET_AFTER_PHASE, recorder)
            _sleep_until(self._idle_end_ns, self._at_end_s)
            self._stage_log()
            recorder.progress.power = None
            finished = self._client.finish()
        except PowerError as error:
            lost = str(error)
            self._sampling.note(f"warning: {lost}")
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
            calibrations=self._calibrations(),
            not_calibrated=self._not_calibrated,
        )

    def _stage_log(self) -> None:
        """Pass the log that a meter wrote during the run to the sampler."""
        if self._config.source != REPLAY:
            return
        from wattload.power.sources.replay import stage_again

        try:
            read = stage_again(self._config, _log_folder(self._folder, self._host))
        except DataError as error:
            self._sampling.note(f"warning: {error}")
            return
        sources = tuple(
            each.model_copy(update={"sentence": f"{each.sentence} {read}"})
            if read and each.facts is not None and each.facts.is_recorded
            else each
            for each in self._opened.sources
        )
        self._opened = self._opened.model_copy(update={"sources": sources})

    def _wait_quietly(self, phase: str, recorder: PhaseRecorder) -> None:
        """Wait without commands to the drive; the first read afterwards gives its power."""
        if not self._times.quiet_s:
            return
        self._client.quiet(is_on=True)
        with recorder.phase(phase, timed=False, expected_s=self._times.quiet_s):
            time.sleep(self._times.quiet_s)
        self._client.quiet(is_on=False)


def _log_folder(run_folder: Path, host: str) -> Path:
    """Return where a host's trace to replay is kept."""
    return run_folder / f"replay-{in_file_name(host)}"


def _sleep_until(start_ns: int | None, seconds: float) -> None:
    """Return ``seconds`` after ``start_ns``, at once if that is over or there is no such time."""
    if start_ns is not None:
        time.sleep(max(0.0, seconds - (time.monotonic_ns() - start_ns) / NS_PER_S))


def measuring_drive_sources(opened: OpenReply) -> tuple[SourceFacts, ...]:
    """Return the used drive-scope sources that measure; only they have a tail."""
    return tuple(facts for facts in _used(opened) if facts.scope is Scope.DRIVE and facts.measures)


def _delay_s(facts: SourceFacts) -> float:
    """Return how many seconds after a time its power is still read, with two reads to spare.

    For a mean, these are two of its windows, or of the times between its updates if longer: a mean
    that is updated once per window and late by as much ends with the second one.
    """
    sensor = facts.sensor
    if not isinstance(sensor, Boxcar):
        return 2 * facts.period_s
    widest_s = max(sensor.window_s, sensor.update_period_s or 0.0)
    return 2 * widest_s + max(SLACK_S, 2 * facts.period_s)


def _used(opened: OpenReply) -> Sequence[SourceFacts]:
    return [source.facts for source in opened.sources if source.used and source.facts is not None]
