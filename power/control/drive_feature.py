"""One feature of one drive: read it, set it, and wait until the drive has made the change."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from wattload.core.errors import PowerRefusedError, PowerStateError
from wattload.power.control.journal import Setting
from wattload.power.control.power_settings import Feature, Saved, read_saved, read_setting
from wattload.power.nvme.admin import (
    CODE_MASK,
    INVALID_FIELD,
    SUCCESS,
    AdminDevice,
    describe_status,
)
from wattload.power.nvme.features import set_command
from wattload.power.nvme.identify import Controller

GRACE_S = 1.0
"""How long a drive may exceed its stated latencies before its answer counts as final."""

_LONGEST_WAIT_S = 60.0
_POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class DriveFeature:
    """A feature of a drive that this process has open."""

    device: AdminDevice
    controller: Controller
    feature: Feature

    @property
    def drive_name(self) -> str:
        return f"{self.device.name} ({self.controller.serial})"

    def read(self, assumed: Setting | None = None) -> Setting:
        """Return the drive's value; ``assumed`` if the feature can't be read."""
        if assumed is not None and not self.feature.readable:
            return assumed
        return read_setting(self.device, self.feature)

    def read_saved(self) -> Saved:
        return read_saved(self.device, self.controller, self.feature)

    def send(
        self, current: Setting, new: Setting, *, note: Callable[[Setting], None] | None = None
    ) -> Setting:
        """Send a value, valid until the drive's next reset, and return the value read back.

        ``note`` is called with each value read back that is not ``new``.

        The value is in all dwords that may carry it. A drive that reads a dword which does not
        carry it would see 0, and a power limit of 0 is none. So a value goes into one dword alone
        only if that lifts no limit. After the drive has accepted one dword, a refusal of the next
        is ignored: the first may have taken effect.

        Raises:
            PowerRefusedError: the drive refuses the value.
            PowerStateError: it reports another value afterwards.
            PowerError: it does not answer.
        """
        dwords = self.feature.dwords
        status, settled = self._send_in(dwords, current, new, note)
        if status & CODE_MASK == INVALID_FIELD and self._may_be_apart(current, new):
            for dword in dwords:
                status, last = self._send_in((dword,), current, new, note)
                settled = last or settled
                is_set = last is not None and self.feature.same(last, new)
                if is_set or status & CODE_MASK not in (SUCCESS, INVALID_FIELD):
                    break
        if settled is None:
            what = f"refuses {self.feature.describe(new)}: {describe_status(status)}"
            raise PowerRefusedError(f"{self.drive_name} {what}")
        if not self.feature.same(settled, new):
            raise PowerStateError(
                f"{self.drive_name} accepted {self.feature.describe(new)} "
                f"but reports {self.feature.describe(settled)} {GRACE_S:g} s after its stated "
                "latency: it does not follow the host"
            )
        return settled

    def _send_in(
        self,
        dwords: Collection[int],
        current: Setting,
        new: Setting,
        note: Callable[[Setting], None] | None,
    ) -> tuple[int, Setting | None]:
        """Return the status, and the value read back unless it was refused."""
        status = self._submit(new, dwords)
        if status & CODE_MASK != SUCCESS:
            return status, None
        return status, self._settle(current, new, note)

    def _submit(self, setting: Setting, dwords: Collection[int]) -> int:
        """Send Set Features; return the status."""
        command = set_command(
            self.feature.identifier,
            self.feature.describe(setting),
            value=setting.value,
            dwords=dwords,
            uuid_index=self.feature.uuid_index,
            payload=setting.data,
        )
        return self.device.submit(command).status

    def _may_be_apart(self, current: Setting, new: Setting) -> bool:
        """Return whether a value that was refused in several dwords may go into each alone.

        It may if no limit is in effect, or if the drive refuses even its present value in several
        dwords: it then requires those that it does not read to be 0, and refuses a value in them.
        """
        dwords = self.feature.dwords
        if len(dwords) == 1 or new.value == 0:
            return False
        return current.value == 0 or self._submit(current, dwords) & CODE_MASK == INVALID_FIELD

    def _settle(
        self, old: Setting, new: Setting, note: Callable[[Setting], None] | None
    ) -> Setting:
        """Wait for the transition's latency and a grace period; return the value read back."""
        wait_s = self.feature.latency_s(self.controller, old.value, new.value)
        time.sleep(min(wait_s, _LONGEST_WAIT_S))
        if not self.feature.readable:
            return new
        deadline_s = time.monotonic() + GRACE_S
        while not self.feature.same(current := self.read(), new):
            if note is not None:
                note(current)
            if time.monotonic() >= deadline_s:
                break
            time.sleep(_POLL_S)
        return current
