"""The features that change a drive's power: what each value means, how it is got, sent and told.

Layouts: ``wattload.power.nvme``; here is what a change and its undoing need to know of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from wattload.power.journal import Entry, Setting
from wattload.power.nvme import limits, measurement, timestamp
from wattload.power.nvme.admin import AdminDevice, fetch
from wattload.power.nvme.features import (
    AUTONOMOUS_TRANSITIONS,
    POWER_MANAGEMENT,
    Select,
    get_command,
)
from wattload.power.nvme.identify import Controller
from wattload.power.nvme.watts import decode_power

Figure = int | float
"""What a feature's value means: a state's number, watts, or 1 and 0 for on and off."""


def _no_latency(controller: Controller, old: int, new: int) -> float:
    return 0.0


def _state_latency_s(controller: Controller, old: int, new: int) -> float:
    leaving, entering = controller.state(_state(old)), controller.state(_state(new))
    exit_s = leaving.exit_latency_s if leaving else None
    entry_s = entering.entry_latency_s if entering else None
    return (exit_s or 0.0) + (entry_s or 0.0)


def _state(value: int) -> int:
    return value & 0x1F


def _switch(value: int) -> int:
    return value & 1


def _limit_w(value: int) -> float | None:
    return decode_power(value).watts


def _action(value: int) -> int:
    """Return ACT, bits 3:0, alone: the stop time beside it counts down by itself."""
    return value & 0xF


def _measures(device: AdminDevice) -> int:
    """Return 1 while a measurement runs, else 0: PME of log 25h, which its figures come from."""
    return int(measurement.read_measurement_header(device).active)


def _dword(value: int) -> int:
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """How one feature is got and set.

    ``dwords`` (11 to 15) may carry the value in Set Features: where sources disagree, each is tried
    until Get Features, which answers in dword 0, tells the value that was sent. ``uuid_index`` says
    whose feature it is, 0 the specification's. ``decode`` is what a value means, and two values of
    one meaning and the same buffer are the same; ``unit`` is the meaning's. A feature that is not
    ``readable`` is taken for what was last sent; ``current`` tells the value of one by another way
    than Get Features, which a drive may refuse for it. ``latency_s`` is how long a transition takes
    by the drive's word.
    """

    identifier: int
    name: str
    unit: str = ""
    dwords: tuple[int, ...] = (11,)
    uuid_index: int = 0
    decode: Callable[[int], Figure | None] = _dword
    is_switch: bool = False
    readable: bool = True
    current: Callable[[AdminDevice], int] | None = None
    latency_s: Callable[[Controller, int, int], float] = _no_latency

    def same(self, one: Setting, other: Setting) -> bool:
        """Return whether two values are the same in what a change is about."""
        return self.decode(one.value) == self.decode(other.value) and one.data == other.data

    def describe(self, setting: Setting) -> str:
        """Return a value as a sentence needs it: ``power state 1``, ``power limit 9 W``."""
        return f"{self.name} {self.text(self.decode(setting.value))}"

    def text(self, figure: Figure | None) -> str:
        """Return what a value means in words: ``1``, ``9 W``, ``on``; ``none`` for ``None``."""
        if figure is None:
            return "none"
        if self.is_switch:
            return "on" if figure else "off"
        return f"{figure:g} {self.unit}".strip()


POWER_STATE = Feature(
    identifier=POWER_MANAGEMENT, name="power state", decode=_state, latency_s=_state_latency_s
)
TRANSITIONS = Feature(
    identifier=AUTONOMOUS_TRANSITIONS,
    name="APST",
    decode=_switch,
    is_switch=True,
)
POWER_LIMIT = Feature(
    identifier=limits.POWER_LIMIT,
    name="power limit",
    unit="W",
    dwords=tuple(limits.LimitDword),
    decode=_limit_w,
)
POWER_MEASUREMENT = Feature(
    identifier=measurement.POWER_MEASUREMENT,
    name="power measurement",
    decode=_action,
    is_switch=True,
    current=_measures,
)
DSSD_POWER = Feature(
    identifier=limits.DSSD_POWER_STATE,
    name="OCP power state",
    unit="W",
    decode=limits.decode_dssd_power_w,
)
CLOCK = Feature(identifier=timestamp.TIMESTAMP, name="timestamp", readable=False)

_KNOWN = {
    feature.identifier: feature
    for feature in (POWER_STATE, TRANSITIONS, POWER_LIMIT, POWER_MEASUREMENT, DSSD_POWER, CLOCK)
}


def feature_of(entry: Entry) -> Feature:
    """Return the feature that a journal entry is about; an unknown one can't be read back."""
    known = _KNOWN.get(entry.feature)
    if known is None:
        name = f"feature {entry.feature:02X}h"
        known = Feature(identifier=entry.feature, name=name, readable=False)
    return replace(known, uuid_index=entry.uuid_index)


def read_setting(device: AdminDevice, feature: Feature, select: Select = Select.CURRENT) -> Setting:
    """Return the current, default or saved value of a feature.

    Raises:
        PowerError: the drive has no such feature, or can't be asked.
    """
    if feature.current is not None and select is Select.CURRENT:
        return Setting(value=feature.current(device))
    command = get_command(feature.identifier, select, uuid_index=feature.uuid_index)
    completion = fetch(device, command)
    return Setting(value=completion.result, data=completion.data)
