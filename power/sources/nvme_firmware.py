"""What firmware says of a drive's power in OCP's log C0h or a vendor's own: estimates, in steps."""

from __future__ import annotations

from collections.abc import Sequence

from wattload.core.errors import PowerError
from wattload.core.power import Boxcar, Channel, Evidence, Instant, Sample, Sensor
from wattload.power.nvme.vendor import VendorPage, find_vendor_page, read_vendor_power
from wattload.power.sources.nvme_drive import NvmeTier, SharedDrive, timed

OCP_WINDOW_S = 1.0
"""SMART-47: the average over the last second."""
OCP_STEP_W = 1.0

_BELIEVABLE = 2.0
"""A figure above this many times the maximum of power state 0 is none."""


class OcpPowerSource(NvmeTier):
    """The average power of the last second in whole watts: OCP C0h, bytes 262 and 263."""

    name = "nvme_ocp"
    evidence = Evidence.ESTIMATED

    def read(self) -> Sequence[Sample]:
        """Return the mean power of the last second, rounded to a watt."""
        reading = self._drive.ocp.take(self)
        watts = None if reading.value is None else reading.value.average_power_w
        return [self._sample(reading, Channel.POWER_W, self._believed(watts))]

    def _prepare(self) -> None:
        drive = self._drive
        drive.check_logs("average power (OCP)")
        reading = drive.ocp.take(self)
        if reading.value is None:
            raise PowerError(f"no OCP log: {reading.trouble}")
        told = reading.value.average_power_w
        # A sleeping drive rounds to 0 W, which is also "not reported": its peak tells them apart.
        has_figure = told is not None or reading.value.peak_power_w is not None
        if not has_figure or (told is not None and self._believed(told) is None):
            raise PowerError(
                f"{drive.device.name} reports no believable average power in its OCP log C0h: "
                f"{'nothing' if told is None else f'{told} W'}"
            )
        self._resolution_w = OCP_STEP_W
        self._detail = "the firmware's mean of the last second in whole watts (OCP log C0h)"

    def _sensor(self) -> Sensor:
        return Boxcar(window_s=OCP_WINDOW_S)

    def _believed(self, watts: float | None) -> float | None:
        limit_w = self._drive.controller.power_states[0].max_w
        if watts is None or (limit_w is not None and watts > _BELIEVABLE * limit_w):
            return None
        return watts


class VendorPowerSource(NvmeTier):
    """The figure of a log that is known for the drive's vendor, within twice its maximum.

    A mean over a time that the vendor does not state is no power of any phase, and is refused.
    """

    name = "nvme_vendor"
    evidence = Evidence.ESTIMATED

    def __init__(self, drive: SharedDrive, *, period_s: float) -> None:
        super().__init__(drive, period_s=period_s)
        self._page: VendorPage | None = None

    def read(self) -> Sequence[Sample]:
        """Return the vendor's figure; none where it is not to be believed."""
        page = self._page
        if page is None:
            raise PowerError(f"{self._drive.device.name} is read before it was opened")
        reading = timed(lambda: read_vendor_power(self._drive.admin, self._drive.controller, page))
        watts = None if reading.value is None else reading.value.power_w
        return [self._sample(reading, Channel.POWER_W, watts)]

    def _prepare(self) -> None:
        drive = self._drive
        drive.check_logs("power in the vendor's log")
        page = find_vendor_page(drive.admin, drive.controller)
        power = None if page is None else read_vendor_power(drive.admin, drive.controller, page)
        if page is None or power is None:
            raise PowerError(
                f"{drive.device.name} has no vendor log that is known to hold its power (vendor "
                f"{drive.controller.vendor_id:04X}h)"
            )
        if power.averaged:
            raise PowerError(
                f"{drive.device.name} tells a mean over a time that is not stated in "
                f"{page.vendor}'s log {page.page:02X}h: it is the power of no phase"
            )
        self._page = page
        self._resolution_w = power.step_w
        part = f"; {power.part}" if power.part else ""
        self._detail = (
            f"the latest figure of the firmware, in {page.vendor}'s log {page.page:02X}h{part}"
        )

    def _sensor(self) -> Sensor:
        return Instant()
