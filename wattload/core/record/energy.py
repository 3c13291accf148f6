"""Energy in the record.

One figure per phase, device and source with its evidence, and the cost of measuring.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from wattload.core.base_models import Frozen, Observed
from wattload.core.power import Evidence, PowerBin, Scope, Sensor, SourceFacts

WHOLE_RUN = "whole_run"
"""The phase of the whole run's energy: all the time in which drives were read.

That is from the sampler's start to its end, without the quiet periods at either end.
"""

ENERGY_MODEL = 5
"""The version of the energy model: 1 integrated readings, 2 fits the sensor, 3 also how work begins
and ends, 4 also whether power rests after it, 5 also where the drive begins or stops to move bytes.
"""

WINDOW_SHARE = 0.1
"""A window that differs from the declared one by at most this, beyond its uncertainty, is that. The
uncertainty counts for no more than this."""
LAG_ALLOWED_S = 0.1
"""A sensor that is certainly later than this is not the one declared."""

Moment = Literal["before", "after"]
"""Which idle baseline: before or after the run."""

Freshness = Literal["", "fresh", "stale", "unjudged"]
"""Whether a sensor kept measuring in a window; empty if this was not judged."""


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
    """How power varied in a phase, by one source: by its readings, not by the fit of its energy.

    A reading counts if all the time that it depends on lies in one active interval of the phase.
    That time is the sensor's window, moved by its lag and widened by the lag's uncertainty, as
    found (``SensorRecord``), else as declared. Each of the ``reading_count`` readings is a mean
    over ``resolution_s`` seconds (0: the power of a moment). For a counter it is a moving mean,
    over at least 10 of its updates and steps.

    * ``peak_100us_w``, ``peak_100ms_w``, ``peak_1s_w``: the largest mean over this time. Means move
      by one reading at a time; a meter that reads every 0.1 s may miss what two of its means share.
      A sensor resolves a mean if its windows add up to that time within 10 %, without pauses, or
      if it has ten readings in it. Otherwise the peak is ``None``.
    * ``p99_w``: the least reading that at least 99 % of the readings do not exceed.
    * ``slew_w_per_s``: the largest change, up or down, between two successive readings whose
      windows adjoin, divided by the time between them, about ``slew_over_s``. It includes noise.
    * ``fifths_w``: the mean of the readings in each fifth of the phase, in order of time.
    * ``histogram``: the number of readings by power, in bins of ``bin_w``.
    """

    resolution_s: float = Field(ge=0)
    reading_count: int = Field(ge=0)
    peak_100us_w: float | None
    peak_100ms_w: float | None
    peak_1s_w: float | None
    p99_w: float | None
    slew_w_per_s: float | None = Field(ge=0)
    slew_over_s: float | None = Field(ge=0)
    fifths_w: tuple[float, ...] | None
    bin_w: float | None = Field(gt=0)
    histogram: tuple[PowerBin, ...] = ()


class EnergyRecord(Observed):
    """Energy of one device in one phase, by one source, over the phase's active intervals.

    ``start_ns`` is the first interval's start and ``end_ns`` the last one's end. ``seconds`` is the
    length of the intervals, so joules, seconds and bytes refer to the same time.

    ``energy_j`` is gross. For bounds it is ``None`` and lies between ``lower_j`` and ``upper_j``; a
    maximum alone gives only ``upper_j``. ``coverage`` is the share of the window that the trace
    covers. ``net_j`` is gross minus ``idle_w`` times seconds, never clamped. ``uncertainty_j`` is
    at k = 2, with its parts in ``uncertainty_parts_j``. ``chosen`` marks the device's best source
    for this window. ``change_count`` is how often the reading changed. ``histogram`` is the
    device's own histogram of power, if it keeps one (feature 25h), and ``max_interval_w`` the
    largest mean over one of its intervals (MIPWR). ``stale_s`` is how long a
    reading was repeated while the drive's activity changed; this time is not covered.
    ``freshness_reason`` is what decided this, or why it could not be judged.
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
    sample_count: int
    states: tuple[PowerStateShare, ...] = ()
    chosen: bool = False
    change_count: int | None
    histogram: tuple[PowerBin, ...] = ()
    stale_s: float = Field(default=0.0, ge=0)
    freshness: Freshness = ""
    freshness_reason: str = ""
    statistics: PowerStatistics | None
    max_interval_w: float | None


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


class PollingCost(Observed):
    """Extra idle power caused by the sampler's reads: ``difference_w`` is polled minus quiet."""

    host: str
    device: str
    source: str
    moment: Moment
    polled_w: float | None
    quiet_w: float | None
    difference_w: float | None


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


class SensorRecord(Frozen):
    """The sensor of a source as found in its readings; uncertainties are at k = 2.

    A reading is the power of ``window_s`` seconds that ended ``lag_s`` before it: their mean
    (``boxcar``), a filtered value with this time constant (``rc``), the power of one moment
    (``instant``), or the mean between two counts (``mean``). ``is_declared``: the shape is the
    declared one, and so is the window, within a tenth beyond its uncertainty. ``is_known``: power
    changed enough to show the lag. ``edge_residual_w`` and ``residual_w`` are the root mean squares
    of the readings around the fit, near the beginnings and ends of work and elsewhere. If they are
    much larger there, no sensor explains the readings (``is_explained``).
    """

    shape: Literal["instant", "boxcar", "rc", "mean"]
    window_s: float = Field(ge=0)
    window_uncertainty_s: float = Field(ge=0)
    lag_s: float
    lag_uncertainty_s: float = Field(ge=0)
    is_declared: bool
    is_known: bool
    is_explained: bool
    edge_residual_w: float | None = None
    residual_w: float = Field(ge=0)

    @property
    def is_as_declared(self) -> bool:
        """Whether it is the sensor declared: of its shape and window, and not certainly late."""
        is_late = self.is_known and self.lag_s - self.lag_uncertainty_s > LAG_ALLOWED_S
        return self.is_declared and not is_late


class PowerSourceRecord(Frozen):
    """A power source that the run used, or why it could not be used.

    The sensor in ``facts`` has its updates as the readings showed them; ``declared`` is the sensor
    without them, ``None`` in older records. ``found`` is ``None`` for a source without a sensor, or
    with too few readings.
    """

    host: str
    facts: SourceFacts | None
    name: str
    device: str
    used: bool
    sentence: str
    found: SensorRecord | None = None
    declared: Sensor | None = None


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


class HostPower(Frozen):
    """Power on one of the run's hosts.

    ``tail_s`` is ``None`` if the tail was not watched or did not end. ``lost`` is how the sampler
    was lost, ``data_lost`` which meters reported dropped readings. ``idle_after_s`` is the length
    of the idle period after the run, ``quiet_s`` that of the periods without polling.
    """

    host: str
    choice: str
    idle_s: float
    tail_s: float | None
    idle_after_s: float = 0.0
    quiet_s: float = 0.0
    lost: str = ""
    data_lost: tuple[str, ...] = ()


class Recomputation(Frozen):
    """How energies were recomputed from a run's samples: by which wattload, and from what.

    ``sha256`` is the digest of the record's file before, whose energies were of ``energy_model``.
    """

    utc: str
    wattload: str
    energy_model: int
    sha256: str


class PowerSection(Frozen):
    """Everything a run knows about power; ``choice`` says which source was chosen and why.

    ``idle_s`` is the shortest idle baseline of all hosts. ``tail_s`` is the longest tail, ``None``
    if one did not end or was not watched. ``energy_model`` is the version of the model that made
    energies from samples; figures of different versions are not compared. ``recomputed`` is set if
    that was after the run; ``recomputed_text`` says so. ``whole_run`` is the energy from the
    sampler's start to its end without quiet periods, by every measuring source and by drives that
    integrate it themselves; it is never split into phases or added to a total. ``throttling`` is
    empty if no drive's thermal counters were sampled, ``written`` if no drive's counts of bytes
    written were.
    """

    requested: str
    choice: str
    idle_s: float
    tail_s: float | None
    energy_model: int = 1
    recomputed: Recomputation | None = None
    sources: tuple[PowerSourceRecord, ...] = ()
    states: tuple[PowerStateRecord, ...] = ()
    energy: tuple[EnergyRecord, ...] = ()
    whole_run: tuple[EnergyRecord, ...] = ()
    idle: tuple[IdleRecord, ...] = ()
    polling: tuple[PollingCost, ...] = ()
    hosts: tuple[HostPower, ...] = ()
    samplers: tuple[SamplerRecord, ...] = ()
    throttling: tuple[ThrottlingRecord, ...] = ()
    written: tuple[WrittenRecord, ...] = ()

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
