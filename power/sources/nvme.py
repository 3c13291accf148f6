"""What the drive itself says: its power state, the watts its descriptors allow in it, temperature.

Bounds, no measurement: an idle drive in state 0 reads the same as a busy one. ``find`` adds what
else a drive may tell of its power, each a source of its own on the same device handle.
"""

from __future__ import annotations

from collections.abc import Sequence

from wattload.core.errors import PowerError
from wattload.core.power import (
    Bounds,
    Channel,
    Evidence,
    PowerSource,
    Sample,
    Sensor,
)
from wattload.core.units import NS_PER_S
from wattload.power.bounds import StateBounds, state_bounds
from wattload.power.config import PowerConfig
from wattload.power.control import HoldsSystem
from wattload.power.host import holds_system_here
from wattload.power.nvme.admin import GET_FEATURES, GET_LOG_PAGE, AdminDevice, OpenDevice
from wattload.power.nvme.features import read_power_state, read_transitions
from wattload.power.nvme.identify import Controller
from wattload.power.nvme.patience import open_patient
from wattload.power.sources import PowerDevice, nvme_drive
from wattload.power.sources.nvme_drive import NvmeTier, SharedDrive, timed
from wattload.power.sources.nvme_firmware import OcpPowerSource, VendorPowerSource
from wattload.power.sources.nvme_interval import IntervalPowerSource
from wattload.power.sources.nvme_lifetime import LifetimeEnergySource
from wattload.power.sources.nvme_measurement import PowerMeasurementSource


def find(
    devices: Sequence[PowerDevice],
    config: PowerConfig,
    *,
    open_device: OpenDevice = open_patient,
    holds_system: HoldsSystem = holds_system_here,
) -> Sequence[PowerSource]:
    """Return every source that an NVMe controller may be, for each one among the devices.

    Those of one controller share its handle and its logs; what a controller does not tell, its
    source refuses when it is opened.
    """
    found: list[PowerSource] = []
    claims: dict[str, str] = {}
    for device in devices:
        if not device.is_nvme:
            continue
        drive = SharedDrive(device, open_device)
        period_s = config.period_s
        found += [
            # A log is read by whoever asks in every round; the others take it from there.
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

    ``UPPER_W`` and ``LOWER_W`` are what may be drawn until the next read that says the same state;
    see ``state_bounds``. A figure that the drive does not report is a sample without value.
    """

    name = "nvme"
    evidence = Evidence.BOUNDS

    def __init__(self, drive: SharedDrive, *, period_s: float) -> None:
        super().__init__(drive, period_s=period_s)
        self._bounds = StateBounds(lower_w={}, upper_w={}, sensor=Bounds())
        self._reads_smart = self._counts_changes = False
        self._due_ns = 0

    def read(self) -> Sequence[Sample]:
        """Return power state and bounds, and what is read once a second when it is due."""
        state = timed(lambda: read_power_state(self._drive.admin))
        taken = [self._sample(state, Channel.POWER_STATE, state.value)]
        limits = {
            Channel.UPPER_W: self._bounds.upper_w,
            Channel.LOWER_W: self._bounds.lower_w,
        }
        for channel, watts in limits.items():
            if watts:
                limit_w = None if state.value is None else watts.get(state.value)
                taken.append(self._sample(state, channel, limit_w))
        if state.end_ns >= self._due_ns:
            self._due_ns = state.end_ns + int(nvme_drive.SLOW_PERIOD_S * NS_PER_S)
            taken += self._slow()
        return taken

    def _slow(self) -> Sequence[Sample]:
        """Return temperature and what the drive counted: throttling, changes of power state."""
        taken: list[Sample] = []
        if self._reads_smart:
            smart = self._drive.smart.take(self)
            log = smart.value
            moves = None if log is None else log.thermal_transitions_1 + log.thermal_transitions_2
            throttled_s = None if log is None else log.thermal_seconds_1 + log.thermal_seconds_2
            kelvin = None if log is None else log.temperature_k
            taken += [
                self._sample(smart, Channel.TEMPERATURE_K, kelvin),
                self._sample(smart, Channel.THERMAL_TRANSITIONS, moves),
                self._sample(smart, Channel.THROTTLED_S, throttled_s),
            ]
        if self._counts_changes:
            ocp = self._drive.ocp.take(self)
            count = None if ocp.value is None else ocp.value.power_state_changes
            taken.append(self._sample(ocp, Channel.POWER_STATE_CHANGES, count))
        return taken

    def _prepare(self) -> None:
        drive = self._drive
        if drive.freezes(GET_FEATURES):
            raise PowerError(
                f"{drive.device.name} says that Get Features holds up other commands (effects log "
                "05h): Linux would stop its I/O at every sample, so its power state is not sampled"
            )
        read_power_state(drive.admin)
        self._reads_smart = not drive.freezes(GET_LOG_PAGE)
        self._counts_changes = self._reads_smart and drive.ocp.take(self).value is not None
        self._due_ns = 0
        self._bounds = state_bounds(
            drive.controller.power_states,
            is_autonomous=_is_autonomous(drive.admin, drive.controller),
        )
        self._detail = self._described(drive.controller)

    def _sensor(self) -> Sensor:
        return self._bounds.sensor

    def _described(self, controller: Controller) -> str:
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
            detail += "; no temperature, as reading the SMART log would stop I/O"
        return detail


def _is_autonomous(admin: AdminDevice, controller: Controller) -> bool:
    """Return whether the drive may change its state by itself; yes where it does not tell."""
    if not controller.apst_supported:
        return False
    try:
        return read_transitions(admin).enabled
    except PowerError:
        return True
