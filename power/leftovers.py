"""Finish what a process that died has left: features of drives that a run could not put back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from wattload.core.errors import PowerError, PowerStateError
from wattload.power import change
from wattload.power.change import go_back
from wattload.power.host import PowerHost
from wattload.power.journal import Entry, Journal, Key, Owner, Setting, boot_id
from wattload.power.nvme.admin import AdminDevice
from wattload.power.nvme.features import POWER_MANAGEMENT
from wattload.power.nvme.identify import Controller, identify_controller
from wattload.power.nvme.patience import when_settled
from wattload.power.nvme.timestamp import TIMESTAMP
from wattload.power.settings import Feature, Figure, feature_of, read_setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """What became of one open entry; ``restored`` is the value read back, else ``None``.

    ``feature`` is the identifier of the feature that ``restored`` is a value of. ``closed`` is
    false where the entry stays for a later start.
    """

    serial: str
    run_id: str
    feature: int
    restored: Figure | None
    closed: bool
    sentence: str


def undo_leftovers(
    host: PowerHost | None = None, *, owner: Owner = "run", serial: str | None = None
) -> list[Leftover]:
    """Undo every change whose run has ended; a running one's lock protects its own.

    With ``owner="user"`` what ``power set`` has set; with ``serial`` of that drive alone.
    Never raises for a drive: what can't be undone keeps its entry and says why.
    """
    here = host or PowerHost()
    changes = [each for each in here.journal.changes(owner) if serial in (None, each.serial)]
    undone = (_undo(here, each, owner) for each in changes)
    return [leftover for leftover in undone if leftover is not None]


def _undo(host: PowerHost, key: Key, owner: Owner) -> Leftover | None:
    try:
        entry = host.journal.read(key, owner)
    except PowerError as error:
        return Leftover(
            serial=key.serial,
            run_id="",
            feature=key.feature,
            restored=None,
            closed=False,
            sentence=str(error),
        )
    return _undo_entry(host, entry) if entry is not None else None


def _undo_entry(host: PowerHost, entry: Entry) -> Leftover:
    lock, names = ExitStack(), list[str]()
    try:
        lock.enter_context(host.journal.lock(entry.serial, needed=True))
        with _opened(host, entry) as (device, controller):
            names.append(device.name)
            return _undo_open(host.journal, entry, device, controller)
    except _AbsentError as error:
        if not _has_restarted(entry):
            return _report(entry, None, str(error), closed=False)
        host.journal.remove(entry)
        return _report(entry, None, f"{error}, and the host has restarted since: nothing to undo")
    except PowerError as error:
        return _report(entry, None, str(error), closed=False)
    finally:
        when_settled(names, lock.close)


def _undo_open(
    journal: Journal, entry: Entry, device: AdminDevice, controller: Controller
) -> Leftover:
    if journal.read(entry.key, entry.owner) != entry:
        return _report(entry, None, "another process has undone it in the meantime")
    feature = feature_of(entry)
    if entry.feature == TIMESTAMP:
        journal.remove(entry)
        return _report(entry, None, "a clock that was set to the host's is left as it is")
    current = read_setting(device, feature) if feature.readable else entry.new
    is_back = feature.same(current, entry.old)
    if is_back and _has_restarted(entry):
        journal.remove(entry)
        return _report(entry, current, f"it is back at {feature.describe(current)} by itself")
    if (
        not is_back
        and not feature.same(current, entry.new)
        and _is_kept(entry, controller, current)
    ):
        journal.remove(entry)
        return _report(entry, None, f"left at {feature.describe(current)}, {_by_whom(entry)}")
    try:
        restored = go_back(device, controller, feature, entry.old, current)
    except PowerStateError:
        if not (is_back and _stays_back(entry, device, feature)):
            raise
        journal.remove(entry)
        return _report(entry, current, f"it is back at {feature.describe(current)} and stays")
    journal.remove(entry)
    return _report(entry, restored, f"put back into {feature.describe(restored)}")


def _stays_back(entry: Entry, device: AdminDevice, feature: Feature) -> bool:
    """Return whether a drive that refuses the value it has keeps it for as long as it may be late.

    Such a drive will have refused the new value too, or the run died before it was sent.
    """
    time.sleep(change.GRACE_S)
    return feature.readable and feature.same(read_setting(device, feature), entry.old)


def _is_kept(entry: Entry, controller: Controller, current: Setting) -> bool:
    """Return whether a value that is neither the old nor the new one is left as it is.

    A drive that sleeps tells its sleep, not what it will wake to. What ``power set`` has set goes
    back from anywhere, for the user asks for it; but not past a reset, which has undone it.
    """
    if entry.feature == POWER_MANAGEMENT:
        descriptor = controller.state(current.value & 0x1F)
        if descriptor is None or not descriptor.operational:
            return False
    return entry.owner == "run" or _has_restarted(entry)


def _has_restarted(entry: Entry) -> bool:
    return bool(entry.boot_id) and entry.boot_id != boot_id()


def _by_whom(entry: Entry) -> str:
    if _has_restarted(entry):
        return "where the restart of the host since has put it"
    return "which somebody else has set since"


class _AbsentError(PowerError):
    """Every controller of this host can be asked, and none is the one."""


@contextmanager
def _opened(host: PowerHost, entry: Entry) -> Iterator[tuple[AdminDevice, Controller]]:
    """Yield the controller that an entry is about, under whatever name it has now.

    The likeliest is asked first, so that one which hangs keeps no other waiting without need.
    """
    refusal, renumbered = "", ""
    names = _likeliest_first(host, entry)
    while names:
        name = names.pop(0)
        with ExitStack() as stack:
            try:
                device = host.open_device(name)
                stack.callback(device.close)
                controller = identify_controller(device)
            except PowerError as error:
                refusal = f": {error}"
                continue
            if controller.serial != entry.serial:
                continue
            if name == renumbered or entry.controller_id in (None, controller.controller_id):
                yield device, controller
                return
            if name == entry.device_name and not _has_restarted(entry):
                # A controller on a network may get another identifier when it is connected anew.
                renumbered = name
                names.append(name)
    kind = PowerError if refusal else _AbsentError
    raise kind(f"no controller of that serial can be opened here{refusal}")


def _likeliest_first(host: PowerHost, entry: Entry) -> list[str]:
    def unlikeliness(name: str) -> tuple[bool, bool]:
        return host.serial_of(name) != entry.serial, name != entry.device_name

    return sorted(host.list_names(), key=unlikeliness)


def _report(entry: Entry, restored: Setting | None, what: str, *, closed: bool = True) -> Leftover:
    feature = feature_of(entry)
    who = f"run {entry.run_id}" if entry.owner == "run" else "`power set`"
    when = ", before the host restarted" if _has_restarted(entry) else ""
    sentence = (
        f"{entry.device_name} ({entry.serial}), which {who} had set from "
        f"{feature.describe(entry.old)} to {feature.describe(entry.new)}{when}: {what}"
    )
    return Leftover(
        serial=entry.serial,
        run_id=entry.run_id,
        feature=entry.feature,
        restored=None if restored is None else feature.decode(restored.value),
        closed=closed,
        sentence=sentence,
    )
