"""Energy in the record.

One figure per phase, device and source with its evidence, and the cost of measuring.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from wattload.core.base_models import Frozen, Observed
from wattload.core.power import Evidence, PowerBin, Scope, SourceFacts

WHOLE_RUN = "whole_run"
"""The phase of the whole run's energy: all the time in which drives were read.

That is from the sampler's start to its end, without the quiet periods at either end.
"""

ENERGY_MODEL = 6
"""The version of the energy model. Records of earlier versions, which fitted a sensor to the
readings of a run, are refused."""

FOLLOWED = "came before the rest"
"""How the reason for a missing tail ends if the window of a later phase has its energy."""

RIPPLE_MOST = 0.25
"""Readings of a fast train are within this share of its mean if they are means: over the time
between them at most 0.17, over half of it 0.2."""

Moment = Literal["before", "after"]
"""Which idle baseline: before or after the run."""


class SamplerRecord(Observed):
    """The sampler of one host from its start to its finish.

    ``missed_tick_count`` counts deadlines that passed while a round was in progress,
    ``lost_sample_count`` readings that could not be written. ``cpu_s`` is the CPU time of all its
    threads. Of ``seconds``, ``quiet_s`` were quiet: no drive was read. Rates and rounds refer to
    the rest: ``cpu_share`` is CPU time per second, so 0.005 is 0.5 % of a core; ``tick_mean_s``
    and ``tick_max_s`` are the length of a round over all sources. Admin commands are those that
    the sampler sent to drives, timed from submission to completion.
    """

    host: str
    period_s: float = Field(gt=0)
    seconds: float = Field(ge=0)
    tick_count: int
    missed_tick_count: int
    sample_count: int
    lost_sample_count: int
    cpu_s: float = Field(ge=0)
    cpu_share: float | None
    quiet_s: float = Field(default=0.0, ge=0)
    tick_mean_s: float | None
    tick_max_s: float | None
    admin_command_count: int
    admin_commands_per_s: float | None
    admin_mean_s: float | None
    admin_max_s: float | None


class PowerStateShare(Observed):
    """The part of a window spent in one observed power state.

    ``state`` is ``"0"`` to ``"31"``, ``"transition"`` (both ends of a segment differ) or
    ``"unknown"`` (not observed). Over a window, shares sum to its seconds, bytes and joules.
    """

    state: str
    seconds: float
    moved_bytes: int | None
    energy_j: float | None
    lower_j: float | None
    upper_j: float | None


class PowerStatistics(Observed):
    """How the readings of one source varied in a phase.

    A reading counts if all the time that it depends on, by the sensor's response, lies in one
    active interval of the phase. Each of the ``reading_count`` readings is a mean over
    ``resolution_s`` seconds (0: the power of a moment); a counter's are means between its updates.

    * ``peak_100ms_w``, ``peak_1s_w``: the largest mean over this time, ``None`` if the readings do
      not resolve it.
    * ``p99_w``: the least reading that at least 99 % of the readings do not exceed.
    * ``histogram``: the number of readings by power, in bins of ``bin_w``.
    """

    resolution_s: float = Field(ge=0)
    reading_count: int = Field(ge=0)
    peak_100ms_w: float | None
    peak_1s_w: float | None
    p99_w: float | None
    bin_w: float | None = Field(gt=0)
    histogram: tuple[PowerBin, ...] = ()


class EnergyRecord(Observed):
    """Energy of one device in one phase, by one source.

    There are two measurands. Energy **in the window** (``energy_j``) is power over the phase's
    active intervals; ``mean_w``, states and efficiency in MB/s per W refer to it. ``start_ns`` is
    the first interval's start, ``end_ns`` the last one's end and ``seconds`` their length. Energy
    **for the work** (``work_j``) adds the net tail: power above the idle power after the job, in
    the rests after the phase's intervals, which last ``rest_s`` together.

    ``energy_j`` is gross. For bounds it is ``None`` and lies between ``lower_j`` and ``upper_j``; a
    maximum alone gives only ``upper_j``. ``coverage`` is the share of the window that the trace
    covers. ``net_j`` is ``energy_j`` minus ``idle_w`` times seconds, never clamped. Uncertainties
    are at k = 2, with their parts in ``uncertainty_parts_j`` and, for the work,
    ``work_uncertainty_parts_j``. ``tail_j`` is ``None`` if an interval was followed neither by a
    rest nor by timed work; its reason ends with ``FOLLOWED`` if all were followed by such work.
    ``is_at_least`` marks a tail at whose end power was still above idle.
    ``remarks`` are sentences, each on something that widened an uncertainty. ``chosen`` marks the
    device's best source for this window. ``change_count`` is how often the reading changed.
    ``histogram`` is the device's own histogram of power, if it keeps one (feature 25h), and
    ``max_interval_w`` the largest mean over one of its intervals (MIPWR).
    """

    host: str
    device: str
    source: str
    scope: Scope
    evidence: Evidence
    phase: str
    start_ns: int
    end_ns: int
    seconds: float = Field(ge=0)
    coverage: float | None
    energy_j: float | None
    lower_j: float | None
    upper_j: float | None
    mean_w: float | None
    idle_w: float | None
    net_j: float | None
    uncertainty_j: float | None
    uncertainty_parts_j: Mapping[str, float] = Field(default_factory=dict)
    rest_s: float = Field(default=0.0, ge=0)
    tail_j: float | None = None
    tail_uncertainty_j: float | None = None
    work_uncertainty_j: float | None = None
    work_uncertainty_parts_j: Mapping[str, float] = Field(default_factory=dict)
    is_at_least: bool = False
    remarks: tuple[str, ...] = ()
    sample_count: int
    states: tuple[PowerStateShare, ...] = ()
    chosen: bool = False
    change_count: int | None
    histogram: tuple[PowerBin, ...] = ()
    statistics: PowerStatistics | None
    max_interval_w: float | None

    @property
    def work_j(self) -> float | None:
        """Energy for the work: that in the window and the net tail, ``None`` without a rest."""
        if self.energy_j is None or self.tail_j is None:
            return None
        return self.energy_j + self.tail_j

    @property
    def least_difference_w(self) -> float | None:
        """The least difference of the mean powers of two such windows that the meter can show.

        It is at k = 2: sqrt(2) times the uncertainty in the window without gain and offset, which
        both have in common, divided by the seconds. ``None`` if that is unknown.
        """
        common = ("gain", "offset")
        own_j = [part_j for name, part_j in self.uncertainty_parts_j.items() if name not in common]
        return math.sqrt(2) * math.hypot(*own_j) / self.seconds if own_j and self.seconds else None


class IdleRecord(Observed):
    """Mean power of an idle drive before or after a run, by one source.

    ``polled`` is idle power under the sampler's reads. Otherwise the period was quiet: no command
    was sent to the drive until one read at its end. ``power_state`` was read throughout.
    """

    host: str
    device: str
    source: str
    evidence: Evidence
    moment: Moment
    polled: bool
    start_ns: int
    end_ns: int
    seconds: float = Field(ge=0)
    mean_w: float | None
    coverage: float | None
    sample_count: int
    power_state: int | None
    temperature_k: float | None


class ThrottlingRecord(Observed):
    """Thermal throttling that a drive's SMART log counted while a timed phase was active.

    ``transition_count`` counts entries into either level of thermal management, ``throttled_s`` the
    seconds in them, from the last read before each active interval to the first after it.
    """

    host: str
    device: str
    phase: str
    transition_count: int | None
    throttled_s: int | None


class WrittenRecord(Observed):
    """The bytes written in a timed phase by a drive's own counts, over its active intervals.

    ``host_written_bytes`` is the growth of SMART's data units written, ``media_written_bytes`` that
    of the count in ``media_source`` (``ocp``: log C0h; ``endurance_group``: log 09h);
    ``write_amplification`` is their quotient. Counts are interpolated between the readings around
    each edge of the phase, which are some seconds apart. A figure is missing if no reading lies
    within 60 s of an edge, if the step of the count or the possible error of the interpolation is
    too large a share of it, or if the count fell.
    """

    host: str
    device: str
    phase: str
    host_written_bytes: int | None = Field(ge=0)
    media_written_bytes: int | None = Field(ge=0)
    write_amplification: float | None = Field(ge=0)
    media_source: str | None


class CalibrationRecord(Frozen):
    """What a calibration by a known load observed of one source: its facts, without conclusions.

    ``pulses`` and ``train`` are the start and end of each interval of load, the pulses at many
    phases of an update, the train fast. These times and those of the readings (``time_ns``,
    ``values``, ``None`` for a failed read) are in ns since ``origin_ns`` of CLOCK_MONOTONIC.
    ``values`` are in watts, or in joules for a counter. ``utc`` is when it began, ``run_id`` the
    run in which it was made, empty for one made by itself. ``key`` names what it holds for: the
    source, drive, slot, firmware, power state, read period and version.
    """

    host: str
    device: str
    source: str
    utc: str
    run_id: str
    key: Mapping[str, str]
    origin_ns: int
    pulses: tuple[tuple[int, int], ...]
    train: tuple[tuple[int, int], ...]
    time_ns: tuple[int, ...]
    values: tuple[float | None, ...]


class SensorRecord(Frozen):
    """The sensor of a source as its energies use it; uncertainties are at k = 2.

    With s(t) the response to a step of power, from 0 to 1: ``tau_s`` is the integral of 1 - s over
    all time, which is the mean delay, and ``kappa_s`` that of s from 0 to ``tau_s``. ``settle_s``
    is the time until s stays at 1. ``update_s`` is the time between updates (0: at every read) and
    ``jitter_s`` its standard deviation; ``noise_w`` the standard deviation of a reading at constant
    power; ``step_w`` the least difference of two readings. ``scatter_s`` is the standard deviation
    of the delay from one edge of the pulses to another, ``None`` without pulses. ``fall_later_s``
    is how much later a fall of power shows than a rise: the drive's delay or the sensor's, so it is
    uncertainty.
    ``train_share`` is the mean power of the train of pulses between both plateaus' (0 to 1) less
    the share of time with load: far from 0 for a meter that aliases or is not linear.
    ``train_ripple`` is how far single readings of the train are from that share (RMS, without
    noise), ``None`` for readings faster than its pulses: 0.5 for samples of moments. ``responds``
    is whether readings follow the load at all. ``jump_w`` is the step of power that they show of
    it, and ``jump_most_w`` the greatest that their noise could hide, at three sigmas. ``reason`` is
    why it was not calibrated.
    """

    basis: Literal["calibrated", "declared"]
    reason: str = ""
    tau_s: float
    tau_uncertainty_s: float = Field(ge=0)
    kappa_s: float = Field(ge=0)
    kappa_uncertainty_s: float = Field(ge=0)
    settle_s: float = Field(ge=0)
    update_s: float = Field(ge=0)
    jitter_s: float = Field(default=0.0, ge=0)
    noise_w: float = Field(ge=0)
    step_w: float = Field(default=0.0, ge=0)
    scatter_s: float | None = Field(default=None, ge=0)
    fall_later_s: float = 0.0
    train_share: float | None = None
    train_share_uncertainty: float | None = None
    train_ripple: float | None = None
    responds: bool | None = None
    jump_w: float | None = None
    jump_most_w: float | None = None
    declared_tau_s: float | None = None

    @property
    def is_train_off(self) -> bool:
        """Whether the train's mean is off beyond three sigmas and 2 % of the step of power."""
        if self.train_share is None:
            return False
        sigma = (self.train_share_uncertainty or 0.0) / 2
        return abs(self.train_share) > max(3 * sigma, 0.02)

    @property
    def is_aliasing(self) -> bool:
        """Whether the train's mean is off, or its readings are samples of moments.

        Where power falls later than it rises, the train's mean is too great for that reason.
        """
        is_sampling = self.train_ripple is not None and self.train_ripple > RIPPLE_MOST
        return is_sampling or (self.is_train_off and not self.fall_later_s)


class PowerSourceRecord(Frozen):
    """A power source that the run used, or why it could not be used.

    ``facts`` are as declared. ``sensor`` is ``None`` for a source that was not used or has none.
    """

    host: str
    facts: SourceFacts | None
    name: str
    device: str
    used: bool
    sentence: str
    sensor: SensorRecord | None = None


class PowerSettingRecord(Observed):
    """A feature of a drive, other than its power state, that the run set.

    ``option`` is the run's setting (``power.limit_w``), ``feature`` the feature's identifier.
    Values are in ``unit``, or 1 and 0 for a switch: ``before`` as found, ``verified`` as read back,
    ``after`` at the run's end, ``restored`` at last. ``saved`` and ``saved_after`` are the drive's
    own saved values before and after the run.
    """

    option: str
    feature: int
    name: str
    unit: str
    requested: float
    before: float | None
    verified: float | None
    after: float | None
    restored: float | None
    saved: float | None
    saved_after: float | None


class PowerStateRecord(Observed):
    """A controller's power state and its other power settings during the run.

    ``knob`` is the setting that the run changed; arms may differ in it. ``saved`` and
    ``saved_after`` are the drive's own saved state before and after the run.
    """

    host: str
    serial: str
    requested: int | None
    before: int | None
    verified: int | None
    after: int | None
    restored: int | None
    sentence: str
    saved: int | None
    saved_after: int | None
    knob: str | None
    settings: tuple[PowerSettingRecord, ...] = ()


class LostReadings(Frozen):
    """A source whose readings were lost from some time on, and how, as a sentence."""

    source: str
    device: str
    scope: Scope
    sentence: str


class HostPower(Frozen):
    """Power on one of the run's hosts.

    ``rest_s`` is the length of the rest after the job's last timed interval, 0 without one.
    ``lost`` is how the sampler was lost, ``data_lost`` which meters lost readings.
    ``idle_after_s`` is the length of the idle period after the run, ``quiet_s`` that of the periods
    without polling. ``not_calibrated`` is why the run made no calibration that it was to make.
    """

    host: str
    choice: str
    idle_s: float
    rest_s: float = 0.0
    idle_after_s: float = 0.0
    quiet_s: float = 0.0
    not_calibrated: str = ""
    lost: str = ""
    data_lost: tuple[LostReadings, ...] = ()


class Recomputation(Frozen):
    """How the energies of a recorded run were computed again from its samples, and by what.

    ``sha256`` is the digest of the record's file before, whose energies were of ``energy_model``.
    """

    utc: str
    wattload: str
    energy_model: int
    sha256: str


class PowerSection(Frozen):
    """Everything a run knows about power; ``choice`` says which source was chosen and why.

    ``idle_s`` is the shortest idle baseline of all hosts, ``rest_s`` the shortest rest after the
    job. ``energy_model`` is the version of the model that made energies from samples; records of
    other versions are refused. ``recomputed`` is set if that was after the run; ``recomputed_text``
    says so. ``whole_run`` is the energy from the sampler's start to its end without quiet periods,
    by every measuring source and by drives that integrate it themselves; it is never split into
    phases or added to a total. ``throttling`` is empty if no drive's thermal counters were sampled,
    ``written`` if no drive's counts of bytes written were. ``calibrations`` are those that the run
    used, made in it or before.
    """

    requested: str
    choice: str
    idle_s: float
    rest_s: float = 0.0
    energy_model: int = ENERGY_MODEL
    recomputed: Recomputation | None = None
    sources: tuple[PowerSourceRecord, ...] = ()
    states: tuple[PowerStateRecord, ...] = ()
    energy: tuple[EnergyRecord, ...] = ()
    whole_run: tuple[EnergyRecord, ...] = ()
    idle: tuple[IdleRecord, ...] = ()
    hosts: tuple[HostPower, ...] = ()
    samplers: tuple[SamplerRecord, ...] = ()
    calibrations: tuple[CalibrationRecord, ...] = ()
    throttling: tuple[ThrottlingRecord, ...] = ()
    written: tuple[WrittenRecord, ...] = ()

    def calibration_of(self, source: PowerSourceRecord) -> CalibrationRecord | None:
        """Return the latest calibration of a source that the run had, ``None`` if it had none."""
        facts = source.facts
        found = [
            each
            for each in self.calibrations
            if facts is not None
            and (each.host, each.source, each.device) == (source.host, facts.name, facts.device)
        ]
        return found[-1] if found else None

    @property
    def unmeasured_text(self) -> str:
        """Why no energy of a drive was chosen: what its sources lack, else how they were chosen."""
        lacking = [
            energy.missing["energy_j"]
            for energy in self.energy
            if energy.scope is Scope.DRIVE and energy.energy_j is None and energy.upper_j is None
        ]
        return f"{'; '.join(dict.fromkeys(lacking))}." if lacking else self.choice

    @property
    def recomputed_text(self) -> str:
        """Which models recomputed the energies, as a sentence; empty if they are the run's own."""
        if self.recomputed is None:
            return ""
        return (
            f"Energies were recomputed from the samples by version {self.energy_model} of the "
            f"energy model; the run's own record has those of version "
            f"{self.recomputed.energy_model}."
        )
