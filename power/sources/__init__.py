"""The power sources by name, each in a module of its own that is imported when it is asked for.

A source's module offers ``find``: the sources of that kind on this host, one per device, not yet
opened. Adding a source is one module, one line in ``SOURCES``, one YAML file and one test that
subclasses ``tests.contracts.power_source.PowerSourceContract``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, cast

from wattload.core.errors import ConfigError
from wattload.core.power import PowerSource
from wattload.power.config import PowerConfig
from wattload.power.journal import Journal

SOURCES: dict[str, str] = {
    "nvme": "wattload.power.sources.nvme:find",
    "nvml": "wattload.power.sources.nvml:find",
    "declared": "wattload.power.sources.declared:find",
    "quarch": "wattload.power.sources.quarch:find",
    "replay": "wattload.power.sources.replay:find",
    "hwmon": "wattload.power.sources.hwmon:find",
    "rapl": "wattload.power.sources.rapl:find",
    "ipmi": "wattload.power.sources.ipmi:find",
    "redfish": "wattload.power.sources.redfish:find",
    "none": "wattload.power.sources.none:find",
}
"""Name to ``module:function``; the function is a ``Find``."""

AUTO_DRIVE_SOURCES: tuple[str, ...] = ("nvme",)
"""Drive-scope sources that ``auto`` tries, in this order; never ``declared``."""

AUTO_BESIDE: tuple[str, ...] = ("nvml", "hwmon", "rapl")
"""Sources of another scope that ``auto`` adds beside the drive's where the device is there.

Those that ask a BMC (``ipmi``, ``redfish``) are read only where they are named: a BMC is slow, and
the kernel polls its bus meanwhile. ``hwmon`` gives a drive's figure for rails that are named its.
"""

BESIDE: tuple[str, ...] = ("nvme", "nvml", "hwmon", "rapl", "ipmi", "redfish")
"""What may be named in ``power.beside``: sources of what is there, none of which needs a choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerDevice:
    """A leaf of a target's block stack: what a drive-scope source may read.

    ``key`` names it in every sample and record: the controller's serial, else the kernel's name.
    ``name`` is the kernel's (``nvme0``, ``vda``). ``is_nvme`` is true for an NVMe controller.
    ``journal`` and ``run_id`` are for a source that changes a feature of the drive, which it does
    by ``wattload.power.change.FeatureChange`` alone; without a journal it may change nothing.
    ``rights`` are those of the run's user: a source touches what lies in the run's folder in them.
    """

    key: str
    name: str
    is_nvme: bool
    journal: Journal | None = None
    run_id: str = ""
    rights: Callable[[], AbstractContextManager[None]] = nullcontext


class Find(Protocol):
    """What each source's module offers under ``SOURCES``."""

    def __call__(
        self, devices: Sequence[PowerDevice], config: PowerConfig
    ) -> Sequence[PowerSource]:
        """Return the sources of one kind, unopened; empty where there is no device for it.

        Raises:
            PowerError: the host lacks what the source needs (a driver).
            MissingExtraError: a module is not installed; the message names the extra.
        """
        ...


def find_sources(
    name: str, devices: Sequence[PowerDevice], config: PowerConfig
) -> Sequence[PowerSource]:
    """Return the sources called ``name``, unopened; see ``Find``.

    Raises:
        ConfigError: there is no source of that name.
    """
    if name not in SOURCES:
        raise ConfigError(f"power source {name!r} is unknown; there are {', '.join(SOURCES)}")
    module, _, function = SOURCES[name].partition(":")
    find = cast("Find", getattr(import_module(module), function))
    return find(devices, config)
