"""What the drive itself reports: bounds by power state, interval power, lifetime energy.

The bounds are those of the state's descriptor, not a measurement: an idle drive in state 0 reads
the same as a busy one. Every other figure, including estimates of the firmware, is a separate
source on the same device handle.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wattload.core.errors import PowerError
from wattload.core.power import (
    Accuracy,
    Bounds,
    Boxcar,
    Channel,
    Counter,
    Evidence,
    Instant,
    PowerSource,
    Sample,
    Scope,
)
from wattload.core.record.target import PowerStateFacts
from wattload.core.units import NS_PER_S
from wattload.power.config import PowerConfig
from wattload.power.control.host import HoldsSystem, holds_system_here
from wattload.power.nvme.admin import (
    GET_FEATURES,
    GET_LOG_PAGE,
    AdminDevice,
    OpenDevice,
    open_with_timeout,
)
from wattload.power.nvme.features import read_power_state, read_transitions
from wattload.power.nvme.identify import Controller
from wattload.power.nvme.logs import SmartLog
from wattload.power.nvme.measurement import SUBSYSTEM_TOTAL
from wattload.power.nvme.vendor import VendorPage, find_vendor_page, read_vendor_power
from wattload.power.registry import Meter
from wattload.power.sources import nvme_drive
from wattload.power.sources.base import PowerDevice
from wattload.power.sources.nvme_drive import NvmeTier, SharedDrive, stated_accuracy, timed
from wattload.power.sources.nvme_measurement import PowerMeasurementSource

METER = Meter(scope=Scope.DRIVE, auto_rank=0, is_companion=True)

OCP_WINDOW_S = 1.0
"""SMART-47: the average over the last second."""

OCP_STEP_W = 1.0

_MAX_RATIO = 2.0
"""A figure above this many times the maximum of power state 0 is discarded as implausible."""

WINDOW_S = 1.0
"""IPM: "the most recent one second" (TP4199)."""

FIRST_MEAN_S = 1.5
"""How long a drive may need after a reset until it reports a mean."""

_POLL_S = 0.1
_COARSE_W = 0.01

_FINE_LIMIT_W = 6.5535
"""Up to this power a drive may count in steps of 0.0001 W, above it in 0.01 W: the value has 16
bits."""

JOULES_PER_WH = 3600.0


def find(
    devices: Sequence[PowerDevice],
    config: PowerConfig,
    *,
    open_device: OpenDevice = open_with_timeout,
    holds_system: HoldsSystem = holds_system_here,
) -> Sequence[PowerSource]:
    """Return every source that each NVMe controller among the devices may be.

    The sources of one controller share its handle and its logs. If a controller lacks a figure,
    ``open`` of that source fails.
    """
    found: list[PowerSource] = []
    claims: dict[str, str] = {}
    for device in devices:
        if not device.is_nvme:
            continue
        drive = SharedDrive(device, open_device)
        period_s = config.period_s
        found += [
            # Sources that read a log in every round come first; the others reuse what they read.
            IntervalPowerSource(drive, period_s=period_s),
            OcpPowerSource(drive, period_s=period_s),
            VendorPowerSource(drive, period_s=period_s),
            LifetimeEnergySource(drive, period_s=period_s),
            NvmeSource(drive, period_s=period_s),
            PowerMeasurementSource(
                drive,
                period_s=period_s,
                holds_system=holds_system,
                allow_system_drive=config.allow_system_drive,
                claims=claims,
            ),
        ]
    return found


class NvmeSource(NvmeTier):
    """Power state by Get Features 02h at every read, temperature and thermal counts once a second.

    ``UPPER_W`` and ``LOWER_W`` limit the power until the next read of the same state; see
    ``state_bounds``. A figure that the drive does not report is a sample without value.
    """

    name = "nvme"
    evidence = Evidence.BOUNDS
    sensor = Bounds()

    def __init__(self, drive: SharedDrive, *, period_s: float) -> None:
        super().__init__(drive, period_s=period_s)
        self._bounds = StateBounds(lower_w={}, upper_w={}, sensor=Bounds())
        self._reads_smart = self._counts_changes = False
        self._due_ns = 0

    def read(self) -> Sequence[Sample]:
        """Return power state and bounds, and once a second the other figures."""
        state = timed(lambda: read_power_state(self._drive.admin))
        samples = [self._figure(state, Channel.POWER_STATE, state.value)]
        limits = {
            Channel.UPPER_W: self._bounds.upper_w,
            Channel.LOWER_W: self._bounds.lower_w,
        }
        for channel, watts in limits.items():
            if watts:
                limit_w = None if state.value is None else watts.get(state.value)
                samples.append(self._figure(state, channel, limit_w))
        if state.end_ns >= self._due_ns:
            self._due_ns = state.end_ns + int(nvme_drive.SLOW_PERIOD_S * NS_PER_S)
            samples += self._slow_samples()
        return samples

    def _slow_samples(self) -> Sequence[Sample]:
        """Return temperature and the drive's counts of throttling and power state changes."""
        samples: list[Sample] = []
        if self._reads_smart:
            smart = self._drive.smart.take(self)
            log = smart.value
            moves = None if log is None else log.thermal_transitions_1 + log.thermal_transitions_2
            throttled_s = None if log is None else log.thermal_seconds_1 + log.thermal_seconds_2
            kelvin = None if log is None else log.temperature_k
            samples += [
                self._figure(smart, Channel.TEMPERATURE_K, kelvin),
                self._figure(smart, Channel.THERMAL_TRANSITIONS, moves),
                self._figure(smart, Channel.THROTTLED_S, throttled_s),
            ]
        if self._counts_changes:
            ocp = self._drive.ocp.take(self)
            count = None if ocp.value is None else ocp.value.power_state_changes
            samples.append(self._figure(ocp, Channel.POWER_STATE_CHANGES, count))
        return samples

    def _prepare(self) -> Mapping[str, object]:
        drive = self._drive
        if drive.freezes(GET_FEATURES):
            raise PowerError(
                f"{drive.device.name} reports that Get Features holds up other commands "
                "(effects log 05h): Linux would stop its I/O at every sample, so its power "
                "state is not sampled"
            )
        read_power_state(drive.admin)
        self._reads_smart = not drive.freezes(GET_LOG_PAGE)
        self._counts_changes = self._reads_smart and drive.ocp.take(self).value is not None
        self._due_ns = 0
        self._bounds = state_bounds(
            drive.controller.power_states,
            is_autonomous=_is_autonomous(drive.admin, drive.controller),
        )
        return {"sensor": self._bounds.sensor, "detail": self._describe(drive.controller)}

    def _describe(self, controller: Controller) -> str:
        known = [
            text
            for text, there in (
                ("maximum", self._bounds.upper_w),
                ("idle", self._bounds.lower_w),
            )
            if there
        ]
        watts = f"{' and '.join(known)} watts" if known else "no watts"
        detail = f"{watts} from the descriptors of {len(controller.power_states)} power states"
        if not self._reads_smart:
            detail += "; no temperature, because reading the SMART log would stop I/O"
        return detail


def _is_autonomous(admin: AdminDevice, controller: Controller) -> bool:
    """Return whether the drive may change its state autonomously; true if unknown."""
    if not controller.capabilities.autonomous_transitions:
        return False
    try:
        return read_transitions(admin).enabled
    except PowerError:
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class StateBounds:
    """Watts by power state, and the sensor that describes their changes.

    A state without a limit has ``None``; a mapping is empty if no state has one.
    """

    lower_w: Mapping[int, float | None]
    upper_w: Mapping[int, float | None]
    sensor: Bounds


def state_bounds(states: Sequence[PowerStateFacts], *, is_autonomous: bool) -> StateBounds:
    """Return the limits that hold from one read of a state to the next read of the same state.

    Between two reads a drive may have been in other states (NVMe Base, "Non-Operational Power
    States", "Autonomous Power State Transitions"). I/O moves it from a non-operational state to an
    operational one. With ``is_autonomous`` (APST is on or unknown), idle time moves it from any
    state to a non-operational one. The limits cover all states it may have been in.

    Upper is the sustained maximum MP, which holds for means over 1 s and more. Lower is the typical
    idle power IDLP, 0 W for a state that does not report it while others do.
    """
    uppers = {state.index: _upper_w(state, states) for state in states}
    lowers = {state.index: _lower_w(state, states, is_autonomous) for state in states}
    latencies_s = [(state.exit_latency_s or 0.0, state.entry_latency_s or 0.0) for state in states]
    has_lower = any(state.idle_w is not None for state in states)
    has_upper = any(state.max_w is not None for state in states)
    return StateBounds(
        lower_w=lowers if has_lower else {},
        upper_w=uppers if has_upper else {},
        sensor=Bounds(
            settle_s=max(out for out, _ in latencies_s) + max(into for _, into in latencies_s),
            lowest_w=min(lowers.values()) if has_lower else None,
            highest_w=_greatest(list(uppers.values())),
        ),
    )


def _upper_w(state: PowerStateFacts, states: Sequence[PowerStateFacts]) -> float | None:
    if state.operational:
        return state.max_w
    return _greatest([state.max_w, *(other.max_w for other in states if other.operational)])


def _lower_w(
    state: PowerStateFacts, states: Sequence[PowerStateFacts], is_autonomous: bool
) -> float:
    reachable = [other for other in states if is_autonomous and not other.operational]
    return min(other.idle_w or 0.0 for other in (state, *reachable))


def _greatest(watts: Sequence[float | None]) -> float | None:
    """Return the greatest value; ``None`` if one is unknown, since it may be greater."""
    known = [value for value in watts if value is not None]
    return max(known) if known and len(known) == len(watts) else None


class IntervalPowerSource(NvmeTier):
    """IPM, bytes 240 to 243 of the SMART log, at every read.

    The accuracy is the error that the drive states for its own measurement (IPWRPE of log 25h), if
    it has one. Evidence drops to ``estimated`` if that log reports estimates (EPF) or could not be
    read.
    """

    name = "nvme_ipm"
    evidence = Evidence.SELF_REPORTED
    sensor = Boxcar(window_s=WINDOW_S)

    def read(self) -> Sequence[Sample]:
        reading = self._drive.smart.take(self)
        watts = None if reading.value is None else _subsystem_w(reading.value)
        return [self._figure(reading, Channel.POWER_W, watts)]

    def _prepare(self) -> Mapping[str, object]:
        drive = self._drive
        drive.check_logs("interval power")
        log = self._first_log()
        if _subsystem_w(log) is None:
            raise PowerError(
                f"{drive.device.name} reports no interval power in its SMART log (bytes 240 to "
                "243, NVMe 2.3)"
            )
        accuracy = stated_accuracy(drive.measurement)
        return {
            "resolution_w": self._coarsest_w(log),
            "accuracy": accuracy,
            "detail": self._describe(accuracy),
        }

    def _first_log(self) -> SmartLog:
        """Return a log with power in it, waiting if the drive samples power but has no mean yet."""
        samples_power = self._drive.controller.capabilities.power_sample_interval_s is not None
        deadline_s = time.monotonic() + (FIRST_MEAN_S if samples_power else 0.0)
        while True:
            reading = self._drive.smart.take(self)
            if reading.value is None:
                raise PowerError(reading.trouble)
            if _subsystem_w(reading.value) is not None or time.monotonic() >= deadline_s:
                return reading.value
            time.sleep(_POLL_S)

    def _coarsest_w(self, log: SmartLog) -> float | None:
        """Return the step of the largest power expected: an idle drive's may be finer."""
        limit_w = self._drive.controller.power_states[0].max_w
        step_w = log.interval_power_step_w
        if step_w is None or (limit_w is not None and limit_w <= _FINE_LIMIT_W):
            return step_w
        return max(step_w, _COARSE_W)

    def _describe(self, accuracy: Accuracy | None) -> str:
        interval_s = self._drive.controller.capabilities.power_sample_interval_s
        often = "" if interval_s is None else f", taken every {interval_s:g} s or more often"
        stated = "error not stated" if accuracy is None else f"error at most {accuracy.text}"
        note = ""
        if self._drive.is_estimated and self._drive.measurement is None:
            note = ", treated as estimates because its log 25h was not readable"
        elif self._drive.is_estimated:
            note = ", estimates according to the drive"
        return f"mean of the drive's own samples of the last second{often}{note}; {stated}"


def _subsystem_w(log: SmartLog) -> float | None:
    """Return the power of the whole NVM subsystem; a vendor's type has no known meaning."""
    return log.interval_power_w if log.interval_power_type == SUBSYSTEM_TOTAL else None


class LifetimeEnergySource(NvmeTier):
    """OLEC, bytes 232 to 239 of the SMART log, once a second.

    It counts whole watt-hours, at 20 W one in three minutes, so it is too coarse for short runs.
    """

    name = "nvme_olec"
    evidence = Evidence.SELF_REPORTED
    sensor = Counter(quantum_j=JOULES_PER_WH)

    def __init__(self, drive: SharedDrive, *, period_s: float) -> None:
        super().__init__(drive, period_s=max(period_s, nvme_drive.SLOW_PERIOD_S))
        self._due_ns = 0

    def read(self) -> Sequence[Sample]:
        """Return the energy counted so far, once a second."""
        if time.monotonic_ns() < self._due_ns:
            return ()
        reading = self._drive.smart.take(self)
        self._due_ns = reading.start_ns + int(nvme_drive.SLOW_PERIOD_S * NS_PER_S)
        count = None if reading.value is None else reading.value.lifetime_energy_wh
        joules = None if count is None else count * JOULES_PER_WH
        return [self._figure(reading, Channel.ENERGY_J, joules)]

    def _prepare(self) -> Mapping[str, object]:
        self._drive.check_logs("lifetime energy")
        reading = self._drive.smart.take(self)
        if reading.value is None:
            raise PowerError(reading.trouble)
        if reading.value.lifetime_energy_wh is None:
            raise PowerError(
                f"{self._drive.device.name} reports no lifetime energy in its SMART log (bytes "
                "232 to 239, NVMe 2.3)"
            )
        self._due_ns = 0
        return {"detail": "the drive's count of its lifetime energy, in steps of 1 Wh (3600 J)"}


class OcpPowerSource(NvmeTier):
    """The average power of the last second in whole watts: OCP C0h, bytes 262 and 263."""

    name = "nvme_ocp"
    evidence = Evidence.ESTIMATED
    sensor = Boxcar(window_s=OCP_WINDOW_S)

    def read(self) -> Sequence[Sample]:
        """Return the mean power of the last second, rounded to a watt."""
        reading = self._drive.ocp.take(self)
        watts = None if reading.value is None else reading.value.average_power_w
        return [self._figure(reading, Channel.POWER_W, self._plausible(watts))]

    def _prepare(self) -> Mapping[str, object]:
        drive = self._drive
        drive.check_logs("average power (OCP)")
        reading = drive.ocp.take(self)
        if reading.value is None:
            raise PowerError(f"no OCP log: {reading.trouble}")
        reported_w = reading.value.average_power_w
        # A sleeping drive rounds to 0 W, which also means "not reported"; its peak distinguishes
        # both.
        has_figure = reported_w is not None or reading.value.peak_power_w is not None
        if not has_figure or (reported_w is not None and self._plausible(reported_w) is None):
            raise PowerError(
                f"{drive.device.name} reports no plausible average power in its OCP log C0h: "
                f"{'nothing' if reported_w is None else f'{reported_w} W'}"
            )
        return {
            "resolution_w": OCP_STEP_W,
            "detail": "the firmware's mean of the last second in whole watts (OCP log C0h)",
        }

    def _plausible(self, watts: float | None) -> float | None:
        limit_w = self._drive.controller.power_states[0].max_w
        if watts is None or (limit_w is not None and watts > _MAX_RATIO * limit_w):
            return None
        return watts


class VendorPowerSource(NvmeTier):
    """The figure of a log known for the drive's vendor, if within twice the drive's maximum.

    A mean over an unstated time can't be assigned to a phase, and is refused.
    """

    name = "nvme_vendor"
    evidence = Evidence.ESTIMATED
    sensor = Instant()

    def __init__(self, drive: SharedDrive, *, period_s: float) -> None:
        super().__init__(drive, period_s=period_s)
        self._page: VendorPage | None = None

    def read(self) -> Sequence[Sample]:
        """Return the vendor's figure; without value if it is implausible."""
        page = self._page
        if page is None:
            raise PowerError(f"{self._drive.device.name} was read before it was opened")
        reading = timed(lambda: read_vendor_power(self._drive.admin, self._drive.controller, page))
        watts = None if reading.value is None else reading.value.power_w
        return [self._figure(reading, Channel.POWER_W, watts)]

    def _prepare(self) -> Mapping[str, object]:
        drive = self._drive
        drive.check_logs("power in the vendor's log")
        page = find_vendor_page(drive.admin, drive.controller)
        power = None if page is None else read_vendor_power(drive.admin, drive.controller, page)
        if page is None or power is None:
            raise PowerError(
                f"{drive.device.name} has no vendor log with a known power figure (vendor "
                f"{drive.controller.vendor_id:04X}h)"
            )
        if power.averaged:
            raise PowerError(
                f"{drive.device.name} reports a mean over an unstated time in {page.vendor}'s "
                f"log {page.page:02X}h, which can't be assigned to a phase"
            )
        self._page = page
        part = f"; {power.part}" if power.part else ""
        return {
            "resolution_w": power.step_w,
            "detail": f"the latest figure of the firmware, in {page.vendor}'s log "
            f"{page.page:02X}h{part}",
        }
