"""A drive's own counts of the bytes written to it and to its media, read every few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from wattload.core.errors import PowerError
from wattload.core.power import SMART, Channel, Evidence, Sample
from wattload.core.units import NS_PER_S
from wattload.power.nvme.admin import GET_LOG_PAGE, AdminDevice, OpenDevice
from wattload.power.nvme.admin_timeout import DeviceWithTimeout
from wattload.power.nvme.identify import identify_controller
from wattload.power.nvme.logs import read_freezing_commands
from wattload.power.nvme.smart import media_counter, read_smart

PERIOD_S = 10.0
"""Two commands in so many seconds; more often, the sampler reads other logs ten times a second."""

_Count = Callable[[], int]


class WrittenCounter:
    """The counts of one controller by its name (``nvme0``); its samples have ``key`` as device.

    Host bytes are SMART's data units written. Media bytes come from OCP's log C0h, which counts
    single bytes, or else from the endurance group of the controller's first namespace. The log is
    the source of a sample.
    """

    def __init__(self, name: str, *, key: str, open_device: OpenDevice) -> None:
        self.name = name
        self._key = key
        self._open_device = open_device
        self._device: AdminDevice | None = None
        self._counts: list[tuple[Channel, str, _Count]] = []
        self._due_ns = 0

    def open(self) -> None:
        """Find out which logs the controller has.

        Raises:
            PowerError: it can't be read, or Linux would stop its I/O at every read of a log.
        """
        device = self._device = DeviceWithTimeout(self._open_device(self.name))
        try:
            self._prepare(device)
        except PowerError:
            self.close()
            raise

    def read(self) -> Sequence[Sample]:
        """Return the counts if they are due, else nothing; a failed read is without value."""
        now_ns = time.monotonic_ns()
        if now_ns < self._due_ns:
            return ()
        self._due_ns = now_ns + round(PERIOD_S * NS_PER_S)
        return [self._sample(*each) for each in self._counts]

    def finish(self) -> None:
        """Let the counts be due at the next read, which is the last one."""
        self._due_ns = 0

    def close(self) -> None:
        """Close the controller; safe to call twice."""
        if self._device is not None:
            self._device.close()

    def _prepare(self, device: AdminDevice) -> None:
        controller = identify_controller(device)
        if GET_LOG_PAGE in read_freezing_commands(device, controller):
            raise PowerError(
                f"{self.name} reports that Get Log Page holds up other commands (effects log "
                "05h), so its counts of bytes written are not sampled"
            )
        read_smart(device)
        self._counts = [
            (Channel.HOST_WRITTEN_BYTES, SMART, lambda: read_smart(device).written_bytes)
        ]
        with suppress(PowerError):  # a drive without such a log
            log, count = media_counter(device, controller)
            self._counts.append((Channel.MEDIA_WRITTEN_BYTES, log, count))

    def _sample(self, channel: Channel, log: str, count: _Count) -> Sample:
        start_ns = time.monotonic_ns()
        value: int | None
        try:
            value = count()
        except PowerError:
            value = None
        end_ns = time.monotonic_ns()
        return Sample(
            time_ns=(start_ns + end_ns) // 2,
            spread_ns=end_ns - start_ns,
            source=log,
            device=self._key,
            channel=channel,
            value=value,
            evidence=Evidence.SELF_REPORTED,
        )
