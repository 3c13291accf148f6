"""What the drive itself says: its power state, the watts its descriptors allow in it, temperature.

Bounds, no measurement: an idle drive in state 0 reads the same as a busy one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from wattload.core.errors import PowerError
from wattload.core.power import (
    Bounds,
    Channel,
    Evidence,
    PowerSource,
    Sample,
    Scope,
    SourceFacts,
    WindowEnergy,
)
from wattload.core.units import NS_PER_S
from wattload.power.config import PowerConfig
from wattload.power.nvme.admin import (
    GET_FEATURES,
    GET_LOG_PAGE,
    AdminDevice,
    NvmeAdmin,
    OpenDevice,
)
from wattload.power.nvme.effects import read_freezing_commands
from wattload.power.nvme.features import read_power_state
from wattload.power.nvme.identify import Controller, identify_controller
from wattload.power.nvme.smart import read_temperature_k
from wattload.power.sources import PowerDevice

NAME = "nvme"

TEMPERATURE_PERIOD_S = 1.0
"""SMART is read no oftener: some drives gather it slowly, and temperature moves in seconds."""


def find(devices: Sequence[PowerDevice], config: PowerConfig) -> Sequence[PowerSource]:
    """Return one source per NVMe controller among the devices."""
    return [NvmeSource(device, period_s=config.period_s) for device in devices if device.is_nvme]


class NvmeSource:
    """Power state by Get Features 02h at every read, temperature by SMART once a second.

    ``UPPER_W`` is the state's sustained maximum (MP), ``LOWER_W`` its typical idle power (IDLP); a
    figure that the drive does not report for the state it is in is a sample without value.
    """

    def __init__(
        self, device: PowerDevice, *, period_s: float, open_device: OpenDevice = NvmeAdmin
    ) -> None:
        self._device = device
        self._period_s = period_s
        self._open_device = open_device
        self._admin: AdminDevice | None = None
        self._detail = ""
        self._upper_w: dict[int, float | None] = {}
        self._lower_w: dict[int, float | None] = {}
        self._reads_temperature = False
        self._temperature_due_ns = 0

    def facts(self) -> SourceFacts:
        """Return what the source is; valid after ``open``."""
        return SourceFacts(
            name=NAME,
            device=self._device.key,
            device_name=self._device.name,
            scope=Scope.DRIVE,
            evidence=Evidence.BOUNDS,
            sensor=Bounds(),
            period_s=self._period_s,
            detail=self._detail,
        )

    def open(self) -> None:
        """Open the admin queue and read the power state table.

        Raises:
            PowerPermissionError: CAP_SYS_ADMIN or the device node is missing.
            PowerError: the drive would stop I/O at every read, or refuses to tell its state.
        """
        self._admin = self._open_device(self._device.name)
        try:
            self._prepare(self._admin)
        except PowerError:
            self.close()
            raise

    def start(self) -> None:
        """Nothing to begin: the drive records nothing by itself here."""

    def read(self) -> Sequence[Sample]:
        """Return power state and bounds, and the temperature when it is due."""
        admin = self._admin
        if admin is None:
            raise PowerError(f"{self._device.name} is read before it was opened")
        start_ns = time.monotonic_ns()
        state = _value_or_none(read_power_state, admin)
        end_ns = time.monotonic_ns()
        taken = [self._sample(start_ns, end_ns, Channel.POWER_STATE, state)]
        if self._upper_w:
            upper_w = None if state is None else self._upper_w.get(state)
            taken.append(self._sample(start_ns, end_ns, Channel.UPPER_W, upper_w))
        if self._lower_w:
            lower_w = None if state is None else self._lower_w.get(state)
            taken.append(self._sample(start_ns, end_ns, Channel.LOWER_W, lower_w))
        if self._reads_temperature and end_ns >= self._temperature_due_ns:
            self._temperature_due_ns = end_ns + int(TEMPERATURE_PERIOD_S * NS_PER_S)
            kelvin = _value_or_none(read_temperature_k, admin)
            taken.append(self._sample(end_ns, time.monotonic_ns(), Channel.TEMPERATURE_K, kelvin))
        return taken

    def stop(self) -> Sequence[WindowEnergy]:
        """Return nothing: bounds are integrated from the samples."""
        return ()

    def restore(self) -> None:
        """Nothing to undo: this source only reads."""

    def close(self) -> None:
        """Give the device back; safe to call twice."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def _prepare(self, admin: AdminDevice) -> None:
        controller = identify_controller(admin)
        freezing = read_freezing_commands(admin, controller)
        if GET_FEATURES in freezing:
            raise PowerError(
                f"{admin.name} says that Get Features holds up other commands (effects log 05h): "
                "Linux would stop its I/O at every sample, so its power state is not sampled"
            )
        self._reads_temperature = GET_LOG_PAGE not in freezing
        self._temperature_due_ns = 0
        read_power_state(admin)
        states = controller.power_states
        if any(state.max_w is not None for state in states):
            self._upper_w = {state.index: state.max_w for state in states}
        if any(state.idle_w is not None for state in states):
            self._lower_w = {state.index: state.idle_w for state in states}
        self._detail = self._describe(controller)

    def _describe(self, controller: Controller) -> str:
        known = [
            text for text, there in (("maximum", self._upper_w), ("idle", self._lower_w)) if there
        ]
        watts = f"{' and '.join(known)} watts" if known else "no watts"
        detail = f"{watts} from the descriptors of {len(controller.power_states)} power states"
        if not self._reads_temperature:
            detail += "; no temperature, as reading the SMART log would stop I/O"
        return detail

    def _sample(self, start_ns: int, end_ns: int, channel: Channel, value: float | None) -> Sample:
        return Sample(
            time_ns=(start_ns + end_ns) // 2,
            spread_ns=end_ns - start_ns,
            source=NAME,
            device=self._device.key,
            channel=channel,
            value=value,
            evidence=Evidence.BOUNDS,
        )


def _value_or_none(read: Callable[[AdminDevice], int | None], admin: AdminDevice) -> int | None:
    """Return a reading, ``None`` where it failed: a hole in the trace, never a figure."""
    try:
        return read(admin)
    except PowerError:
        return None
