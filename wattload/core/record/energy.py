"""Energy in the record: one figure per phase, device and source, with its evidence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from wattload.core.power import Evidence, PowerBin, Scope, SourceFacts
from wattload.core.record.base import Frozen, Observed
from wattload.core.record.sampler import SamplerRecord

WHOLE_RUN = "whole_run"
"""The phase of an energy that is of the run as a whole: of all the time in which drives were read.

That is from the sampler's start to its end, less a quiet at the start and one at the end.
"""

Moment = Literal["before", "after"]
"""Which idle baseline: that before the run, or that after it."""

Freshness = Literal["", "fresh", "stale", "unjudged"]
"""Whether a sensor went on measuring in a window; empty where that was not asked."""


class PowerStateShare(Observed):
    """What of a window was spent in one observed power state.

    ``state`` is ``"0"`` to ``"31"``, ``"transition"`` (both ends of a segment differ) or
    ``"unknown"`` (not observed). Over a window, shares sum to its seconds, bytes and joules.
    """

    state: str
    seconds: float
    moved_bytes: int | None
    energy_j: float | None
    lower_j: float | None
    upper_j: float | None


class EnergyRecord(Observed):
    """Energy of one device in one phase, by one source, over the phase's active intervals.

    ``start_ns`` and ``end_ns`` are the first interval's start and the last one's end; ``seconds``
    is the intervals' length, so that joules, seconds and bytes are of the same time.

    ``energy_j`` is gross. For bounds it is ``None`` and ``lower_j`` to ``upper_j`` holds it; a lone
    maximum gives ``upper_j`` only. ``coverage`` is the share of the window that the trace covers.
    ``net_j`` is gross minus ``idle_w`` times seconds, never clamped. ``uncertainty_j`` is at k = 2,
    its parts in ``uncertainty_parts_j``. ``chosen`` marks the device's best source for this window.
    ``change_count`` is how often the power that was read changed. ``histogram`` is the device's own
    measurements by power, where it keeps any (feature 25h). ``stale_s`` is for how long one reading
    was repeated while other accounts of the drive moved: it is not covered. ``freshness_reason``
    says what decided that, or why it could not be told.
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
    change_count: int | None = None
    histogram: tuple[PowerBin, ...] = ()
    stale_s: float = Field(default=0.0, ge=0)
    freshness: Freshness = ""
    freshness_reason: str = ""


class IdleRecord(Observed):
    """Mean power of an idle drive before or after a run, by one source.

    ``polled`` is idle under the sampler's reads; the other is quiet: nothing was sent to the drive
    until one read at its end. ``power_state`` is what was read throughout.
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
    """What the sampler's reads cost a drive at idle: ``difference_w`` is polled minus quiet."""

    host: str
    device: str
    source: str
    moment: Moment
    polled_w: float | None
    quiet_w: float | None
    difference_w: float | None


class ThrottlingRecord(Observed):
    """What a drive's SMART log counted of its own throttling while a timed phase was active.

    ``transition_count`` are the entries into either level of thermal management, ``throttled_s``
    the seconds in them. They run from the last read before each active interval to the first after
    it.
    """

    host: str
    device: str
    phase: str
    transition_count: int | None
    throttled_s: int | None


class PowerSourceRecord(Frozen):
    """A source that the run used, or why it could not."""

    host: str
    facts: SourceFacts | None
    name: str
    device: str
    used: bool
    sentence: str


class PowerSettingRecord(Observed):
    """A feature of a drive, other than its power state, that the run set.

    ``option`` is the setting that asked for it (``power.limit_w``), ``feature`` the feature's
    identifier. Values are in ``unit``, 1 and 0 where it is a switch: as found, read back, read at
    the run's end and put back. ``saved`` and ``saved_after`` are what the drive itself has saved.
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
    """What became of a controller's power state, and of its other power settings, during the run.

    ``knob`` is the setting that the run changed, and that its arms may differ in. ``saved`` and
    ``saved_after`` are the state that the drive itself has saved, before the run and after it.
    """

    host: str
    serial: str
    requested: int | None
    before: int | None
    verified: int | None
    after: int | None
    restored: int | None
    sentence: str
    saved: int | None = None
    saved_after: int | None = None
    knob: str | None = None
    settings: tuple[PowerSettingRecord, ...] = ()


class HostPower(Frozen):
    """Power on one of the run's hosts.

    ``tail_s`` is ``None`` where no tail was watched or it did not end. ``lost`` says how the
    sampler was lost, ``data_lost`` which meters said that they dropped readings. ``idle_after_s``
    and ``quiet_s`` are the lengths of the idle times after the run and without polling.
    """

    host: str
    choice: str
    idle_s: float
    tail_s: float | None
    idle_after_s: float = 0.0
    quiet_s: float = 0.0
    lost: str = ""
    data_lost: tuple[str, ...] = ()


class PowerSection(Frozen):
    """All that a run knows of power; ``choice`` says which source was taken and why.

    ``idle_s`` is the shortest idle baseline of all hosts, ``tail_s`` the longest tail, ``None``
    where one did not end or was not watched. ``whole_run`` has the energy from the sampler's start
    to its end, both quiets left out, by every source that measures, also by drives that integrate
    it themselves; it is never split into phases, and no total holds it. ``throttling`` is empty
    where no drive's thermal counters were sampled.
    """

    requested: str
    choice: str
    idle_s: float
    tail_s: float | None
    sources: tuple[PowerSourceRecord, ...] = ()
    states: tuple[PowerStateRecord, ...] = ()
    energy: tuple[EnergyRecord, ...] = ()
    whole_run: tuple[EnergyRecord, ...] = ()
    idle: tuple[IdleRecord, ...] = ()
    polling: tuple[PollingCost, ...] = ()
    hosts: tuple[HostPower, ...] = ()
    samplers: tuple[SamplerRecord, ...] = ()
    throttling: tuple[ThrottlingRecord, ...] = ()
