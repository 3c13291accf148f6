"""A host with model drives and a journal, for tests of recovery after a run that died."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.model_host.drive import Model, ModelDrive, store
from wattload.core.clock import boot_id
from wattload.power.control.host import PowerHost
from wattload.power.control.journal import ChangeJournal, Entry, Owner, Setting
from wattload.power.control.undo import Recovery, recover_changes
from wattload.power.nvme.admin import DeviceWithTimeout

LEFT = Entry(
    serial="MODEL0001",
    controller_id=1,
    device_name="nvme0",
    owner="run",
    old=Setting(value=0),
    new=Setting(value=1),
    run_id="run-1",
    boot_id=boot_id(),
    time_utc="2026-11-21T00:00:00.000+00:00",
)


class Host:
    """A host with model drives and a journal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal = ChangeJournal(folder / "state")
        self.requested: list[str] = []

    def drive(self, name: str, model: Model) -> None:
        store(self.folder / f"{name}.json", model)

    def undo(
        self,
        *names: str,
        owner: Owner = "run",
        serial: str | None = None,
        serials: Mapping[str, str] | None = None,
        patience_s: float = 10.0,
        devices: frozenset[str] | None = None,
        keep: bool = False,
    ) -> list[Recovery]:
        def opened(name: str) -> DeviceWithTimeout:
            self.requested.append(name)
            return DeviceWithTimeout(ModelDrive(self.folder, name), limit_s=patience_s)

        host = PowerHost(
            journal=self.journal,
            open_device=opened,
            list_names=lambda: names,
            serial_of=lambda name: (serials or {}).get(name, name),
            devices=devices,
        )
        return recover_changes(host, owner=owner, serial=serial, keep=keep)
