"""Set a drive's clock (Timestamp, feature 0Eh) to the host's, for stamps in its logs.

The one change that is not undone: a clock that was set back would be wrong by the run's length. It
is journalled all the same, so that a host that died amid it tells what it did.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from wattload.core.clock import utc_text
from wattload.core.errors import PowerError, PowerStateError
from wattload.power.journal import Entry, Journal, Setting, boot_id
from wattload.power.nvme.admin import AdminDevice, fetch
from wattload.power.nvme.features import set_command
from wattload.power.nvme.identify import Controller
from wattload.power.nvme.timestamp import TIMESTAMP, TIMESTAMP_BYTES, read_timestamp

TOLERANCE_MS = 1000
"""How far the clock that is read back may be from the host's: two admin commands, and no more."""

_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockChange:
    """A drive's clock in ms since 1970 (since its reset, before a host has set it)."""

    before_ms: int
    requested_ms: int
    verified_ms: int


def set_clock(
    device: AdminDevice, controller: Controller, journal: Journal, *, run_id: str
) -> ClockChange:
    """Set the drive's clock to the host's and read it back.

    Raises:
        PowerStateError: the drive has no clock, refuses, or does not take the time.
        PowerError: the journal can't be written.
    """
    try:
        before_ms = read_timestamp(device).ms
        requested_ms = time.time_ns() // _NS_PER_MS
        entry = _entry(device.name, controller, run_id, before_ms, requested_ms)
        journal.write(entry)
        fetch(device, set_command(TIMESTAMP, "timestamp", payload=entry.new.data))
        verified_ms = read_timestamp(device).ms
        journal.remove(entry)
    except PowerError as error:
        raise PowerStateError(f"power.set_timestamp can't be had: {error}") from error
    if abs(verified_ms - time.time_ns() // _NS_PER_MS) > TOLERANCE_MS:
        raise PowerStateError(
            f"{device.name} ({controller.serial}) accepted the time {requested_ms} ms and tells "
            f"{verified_ms} ms; leave power.set_timestamp=false"
        )
    return ClockChange(before_ms=before_ms, requested_ms=requested_ms, verified_ms=verified_ms)


def _entry(
    name: str, controller: Controller, run_id: str, before_ms: int, requested_ms: int
) -> Entry:
    old, new = (
        Setting(value=0, data=ms.to_bytes(TIMESTAMP_BYTES, "little"))
        for ms in (before_ms, requested_ms)
    )
    return Entry(
        serial=controller.serial,
        controller_id=controller.controller_id,
        device_name=name,
        owner="run",
        feature=TIMESTAMP,
        old=old,
        new=new,
        run_id=run_id,
        boot_id=boot_id(),
        time_utc=utc_text(),
    )
