"""Model drives with a journal: changed by one process, or left behind by one that died."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.model_host.drive import Model, ModelDrive, load, store
from tests.model_host.settings import Knobs
from wattload.core.clock import boot_id
from wattload.power.config import PowerConfig
from wattload.power.control.change import PowerStateControl
from wattload.power.control.host import PowerHost
from wattload.power.control.journal import ChangeJournal, Entry, Key, Owner, Setting
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


KEY = Key("MODEL0001", 0x02, 1)


def no_system(_: str) -> bool | None:
    return False


class Bench:
    """A model drive with its journal, and the control of its power settings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "nvme0.json"
        self.journal = ChangeJournal(folder / "state")

    def control(
        self, model: Model | None = None, *, drive: ModelDrive | None = None, owner: Owner = "run"
    ) -> PowerStateControl:
        if model is not None or not self.path.exists():
            store(self.path, model or Model())
        device = drive or ModelDrive(self.folder, "nvme0")
        return PowerStateControl(device, self.journal, run_id="run-1", owner=owner)

    def apply(self, model: Model, config: PowerConfig) -> PowerStateControl:
        control = self.control(model)
        control.apply(config, holds_system=no_system)
        return control

    @property
    def model(self) -> Model:
        return load(self.path)

    @property
    def knobs(self) -> Knobs:
        return self.model.knobs

    def state(self) -> int:
        return self.model.state

    def entry(self, owner: Owner = "run") -> Entry | None:
        return self.journal.read(KEY, owner)

    def is_clean(self) -> bool:
        return self.journal.changes("run") == []


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
