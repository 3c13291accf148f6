"""Finish what a process that died has left: power states that a run set and could not undo."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from wattload.core.errors import PowerError
from wattload.power.control import go_back
from wattload.power.host import PowerHost
from wattload.power.journal import Entry, Journal, Owner, boot_id
from wattload.power.nvme.admin import AdminDevice
from wattload.power.nvme.features import read_power_state
from wattload.power.nvme.identify import Controller, identify_controller


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """What became of one open entry; ``restored`` is the state read back, else ``None``.

    ``closed`` is false where the entry stays for a later start.
    """

    serial: str
    run_id: str
    restored: int | None
    closed: bool
    sentence: str


def undo_leftovers(
    host: PowerHost | None = None, *, owner: Owner = "run", serial: str | None = None
) -> list[Leftover]:
    """Restore every power state whose run has ended; a running one's lock protects its own.

    With ``owner="user"`` what ``power set`` has set; with ``serial`` of that controller alone.
    Never raises for a drive: what can't be undone keeps its entry and says why.
    """
    here = host or PowerHost()
    serials = [each for each in here.journal.serials(owner) if serial in (None, each)]
    return [leftover for each in serials if (leftover := _undo(here, each, owner)) is not None]


def _undo(host: PowerHost, serial: str, owner: Owner) -> Leftover | None:
    try:
        entry = host.journal.read(serial, owner)
    except PowerError as error:
        return Leftover(serial=serial, run_id="", restored=None, closed=False, sentence=str(error))
    return _undo_entry(host, entry) if entry is not None else None


def _undo_entry(host: PowerHost, entry: Entry) -> Leftover:
    journal = host.journal
    if entry.boot_id and entry.boot_id != boot_id():
        journal.remove(entry)
        return _report(
            entry, None, "the host has restarted since, which put the drive in its default state"
        )
    try:
        with (
            journal.lock(entry.serial, exclusive=True),
            _opened(host, entry.serial) as (device, controller),
        ):
            return _undo_open(journal, entry, device, controller)
    except PowerError as error:
        return _report(entry, None, str(error), closed=False)


def _undo_open(
    journal: Journal, entry: Entry, device: AdminDevice, controller: Controller
) -> Leftover:
    if journal.read(entry.serial, entry.owner) != entry:
        return _report(entry, None, "another process has undone it in the meantime")
    current = read_power_state(device)
    descriptor = controller.state(current)
    awake = descriptor is not None and descriptor.operational
    untouched = current in (entry.new_state, entry.old_state)
    if entry.owner == "run" and awake and not untouched:
        journal.remove(entry)
        return _report(
            entry, None, f"left in power state {current}, which somebody else has set since"
        )
    restored = go_back(device, controller, entry.old_state)
    journal.remove(entry)
    return _report(entry, restored, f"put back into power state {restored}")


@contextmanager
def _opened(host: PowerHost, serial: str) -> Iterator[tuple[AdminDevice, Controller]]:
    """Yield the controller of that serial, under whatever name it has now."""
    refusal = ""
    for name in host.list_names():
        try:
            device = host.open_device(name)
        except PowerError as error:
            refusal = f": {error}"
            continue
        try:
            controller = identify_controller(device)
            if controller.serial == serial:
                yield device, controller
                return
        finally:
            device.close()
    raise PowerError(f"no controller of that serial can be opened here{refusal}")


def _report(entry: Entry, restored: int | None, what: str, *, closed: bool = True) -> Leftover:
    who = f"run {entry.run_id}" if entry.owner == "run" else "`power set`"
    sentence = (
        f"{entry.device_name} ({entry.serial}), whose power state {who} had set from "
        f"{entry.old_state} to {entry.new_state}: {what}"
    )
    return Leftover(
        serial=entry.serial,
        run_id=entry.run_id,
        restored=restored,
        closed=closed,
        sentence=sentence,
    )
