"""Change a drive's power settings, prove that they were taken, and undo them whatever happens.

Order of one change: refuse what can't be run in, lock the controller, journal the old value, send
Set Features without the Save bit, wait the latencies that the drive states, read the value back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass, field

from wattload.core.errors import PowerError, PowerStateError
from wattload.power.change import FeatureChange
from wattload.power.config import PowerConfig
from wattload.power.journal import Journal, Owner
from wattload.power.knobs import Plan, Saved, plans, read_saved
from wattload.power.nvme.admin import AdminDevice
from wattload.power.nvme.identify import identify_controller
from wattload.power.nvme.patience import when_settled
from wattload.power.settings import Feature, Figure, read_setting

_LOG = logging.getLogger(__name__)

HoldsSystem = Callable[[str], bool | None]
"""Whether root or swap lies on a controller, by its name; ``None``: can't be told."""


_NOT_READ: Saved = (None, "the run has not ended")


@dataclass(slots=True, kw_only=True)
class Change:
    """A setting that was changed: what it was, what was asked for, what was read back since.

    ``verified`` is ``None`` where the drive did not take it, ``after`` until it was read before the
    undoing, ``restored`` until it was put back; ``trouble`` says why it could not be. ``saved`` and
    ``saved_after`` are what the drive itself has saved, which no change may touch.
    """

    option: str
    feature: Feature
    before: Figure | None
    requested: Figure
    verified: Figure | None = None
    restored: Figure | None = None
    is_restored: bool = False
    trouble: str = ""
    after: Figure | None = None
    saved: Saved = _NOT_READ
    saved_after: Saved = _NOT_READ
    undo: FeatureChange = field(repr=False)


class PowerStateControl:
    """The power settings of one controller, from their change until they are undone."""

    def __init__(
        self, device: AdminDevice, journal: Journal, *, run_id: str, owner: Owner = "run"
    ) -> None:
        self._device = device
        self._journal = journal
        self._run_id = run_id
        self._owner: Owner = owner
        self._locks = ExitStack()
        self._locked_names: tuple[str, ...] = ()
        self.controller = identify_controller(device)
        self.changes: list[Change] = []

    def hold(self, *, needed: bool, beside: Collection[str] = ()) -> None:
        """Take the controller's lock until ``close``; see ``Journal.lock``.

        ``beside`` are the names of other controllers of the same drive, which the lock holds too.
        """
        self._locks.enter_context(self._journal.lock(self.controller.serial, needed=needed))
        self._locked_names = (self._device.name, *beside)

    def set(
        self, state: int, *, holds_system: HoldsSystem, allow_system_drive: bool = False
    ) -> Change:
        """Put the drive into an operational power state and return what was read back.

        Takes the latencies that the drive states for the transition; raises as ``apply`` does.
        """
        config = PowerConfig(state=state, allow_system_drive=allow_system_drive)
        self.apply(config, holds_system=holds_system)
        return self.changes[-1]

    def apply(self, config: PowerConfig, *, holds_system: HoldsSystem) -> None:
        """Make every change that is asked for, verified; they are told by ``changes``.

        Raises:
            PowerStateError: out of range, non-operational, the system's drive, or refused.
            PowerError: the journal can't be written or the drive can't be asked.
        """
        for plan in plans(self._device, self.controller, config):
            if not config.allow_system_drive:
                check_no_system(self._device.name, self.controller.serial, holds_system)
            self._make(plan)

    def restore(self) -> None:
        """Undo every change, the last one first; safe to call twice.

        One that can't be undone does not keep the others from it, whatever breaks in it.

        Raises:
            PowerError: a drive does not go back; that entry stays for the next start.
        """
        for change in reversed(self.changes):
            try:
                self._undo(change)
            except Exception as error:
                change.trouble = f"{type(error).__name__}: {error}"
                _LOG.exception("%s: a bug in undoing %s", self._device.name, change.option)
        troubles = [change.trouble for change in self.changes if change.trouble]
        if troubles:
            raise PowerError("; ".join(troubles))

    def close(self) -> None:
        """Give the lock and the device back; safe to call twice.

        The lock stays while a Set Features that was given up is under way: it may yet be obeyed.
        """
        self._device.close()
        when_settled(self._locked_names, self._locks.close)

    def _make(self, plan: Plan) -> None:
        undo = FeatureChange(
            self._device,
            self.controller,
            self._journal,
            plan.feature,
            run_id=self._run_id,
            owner=self._owner,
        )
        feature = plan.feature
        change = Change(
            option=plan.option,
            feature=feature,
            before=feature.decode(plan.before.value),
            requested=plan.requested,
            saved=read_saved(self._device, self.controller, feature),
            undo=undo,
        )
        self.changes.append(change)
        change.verified = feature.decode(undo.set(plan.new, old=plan.old).value)

    def _undo(self, change: Change) -> None:
        """Put one change back, having read what has become of it; what prevents that is noted."""
        try:
            if change.verified is not None and change.after is None:
                change.after = change.feature.decode(
                    read_setting(self._device, change.feature).value
                )
        except PowerError:
            pass  # an unread end is told as such; the undoing is tried all the same
        try:
            back = change.undo.restore()
        except PowerError as error:
            change.trouble = str(error)
            return
        change.trouble = ""
        if back is not None:
            change.restored = change.feature.decode(back.value)
            change.is_restored = True
            change.saved_after = read_saved(self._device, self.controller, change.feature)


def check_no_system(name: str, serial: str, holds_system: HoldsSystem) -> None:
    """Raise ``PowerStateError`` where root or swap lies on the drive, or it can't be told."""
    holds = holds_system(name)
    if holds is False:
        return
    why = "holds root or swap" if holds else "may hold root or swap, which can't be told here"
    raise PowerStateError(
        f"{name} ({serial}) {why}, so its power state is left alone; "
        "power.allow_system_drive=true (or --allow-system-drive) permits it"
    )
