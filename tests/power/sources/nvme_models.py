"""Model drives for the tests of the NVMe sources."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from tests.contracts.power_source import PowerSourceContract
from tests.model_host.drive import Model, ModelDrive, load, store
from tests.model_host.power import Meter
from wattload.core.power import Channel, PowerSource, Sample
from wattload.power.config import PowerConfig
from wattload.power.control.journal import ChangeJournal
from wattload.power.nvme.admin import OpenDevice
from wattload.power.sources.base import PowerDevice
from wattload.power.sources.nvme import find

SERIAL = "MODEL0001"


class ModelDriveContract(PowerSourceContract):
    """The contract of a source that reads a model drive in ``self.folder``."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def break_reads(self, source: PowerSource) -> None:
        change(self.folder, gone=True)


S = TypeVar("S")


def device(folder: Path | None = None) -> PowerDevice:
    """Return the model as a device under a target; with a folder, its changes are journalled."""
    journal = None if folder is None else ChangeJournal(folder / "state")
    return PowerDevice(key=SERIAL, name="nvme0", is_nvme=True, journal=journal, run_id="run-1")


def sources(
    folder: Path,
    model: Model,
    *,
    period_s: float = 0.1,
    journalled: bool = True,
    open_device: OpenDevice | None = None,
    holds_system: bool | None = False,
) -> dict[str, PowerSource]:
    """Return every source of a model drive, unopened, by name."""
    store(folder / "nvme0.json", model)
    found = find(
        [device(folder if journalled else None)],
        PowerConfig(period_s=period_s),
        open_device=open_device or (lambda name: ModelDrive(folder, name)),
        holds_system=lambda name: holds_system,
    )
    return {source.facts().name: source for source in found}


def change(folder: Path, **fields: Any) -> None:
    """Change fields of the model, or of its meter if the model lacks them."""
    model = load(folder / "nvme0.json")
    own = {name: value for name, value in fields.items() if hasattr(model, name)}
    other = {name: value for name, value in fields.items() if name not in own}
    for name, value in own.items():
        setattr(model, name, value)
    model.meter = replace(model.meter, **other)
    store(folder / "nvme0.json", model)


def meter(folder: Path) -> Meter:
    """Return the model's meter."""
    return load(folder / "nvme0.json").meter


def values(samples: Iterable[Sample]) -> dict[Channel, float | None]:
    """Return the values of samples by channel."""
    return {sample.channel: sample.value for sample in samples}


def opened(source: PowerSource, kind: type[S]) -> S:
    """Return the source, open and with its type."""
    source.open()
    assert isinstance(source, kind)
    return cast("S", source)
