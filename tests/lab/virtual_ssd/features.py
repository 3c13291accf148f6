"""Get and Set Features: what each value is, and what it does to the drive.

Layouts: NVMe Base Specification 2.3, power features by TP4199; OCP Datacenter NVMe SSD
Specification 2.5 for C7h. 23h is taken from dword 11, as 24h and 25h are.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from tests.lab.virtual_ssd.engine import Engine
from tests.lab.virtual_ssd.identify import LONGEST_MEASUREMENT_MINUTES
from tests.lab.virtual_ssd.meters import PowerMeasurement
from tests.lab.virtual_ssd.reply import (
    INVALID_FIELD,
    LIMIT_TOO_LOW,
    NOT_SAVEABLE,
    Command,
    Reply,
)

POWER_MANAGEMENT, TRANSITIONS, THERMAL, ASLEEP = 0x02, 0x0C, 0x10, 0x11
POWER_LIMIT, MEASUREMENT, OCP_STATE = 0x23, 0x25, 0xC7
QUEUES, TIMESTAMP = 0x07, 0x0E
PLAIN = (0x04, 0x06, 0x0B, 0x0F)
"""Stored and reported, without effect: temperature threshold, cache, events, keep alive."""

_CURRENT, _CAPABILITIES = 0, 3
_CHANGEABLE = 4
_UNITS_PER_WATT = {1: 10_000, 2: 100}
_MS_BITS = 48


class Features:
    """The features of one drive, by number; ``clock_ms`` tells the drive's own time."""

    def __init__(
        self, engine: Engine, measurement: PowerMeasurement, clock_ms: Callable[[], int]
    ) -> None:
        self._engine = engine
        self._measurement = measurement
        self._clock_ms = clock_ms
        self.clock_offset_ms = 0
        self._setters: dict[int, Callable[[Command], Reply]] = {
            POWER_MANAGEMENT: self._set_power_state,
            TRANSITIONS: self._set_transitions,
            THERMAL: self._set_thermal,
            ASLEEP: self._set_asleep,
            TIMESTAMP: self._set_timestamp,
            POWER_LIMIT: self._set_power_limit,
            MEASUREMENT: self._set_measurement,
            OCP_STATE: self._set_watts,
        }
        self.forget()

    def forget(self) -> None:
        """Go back to the defaults, as a controller reset does."""
        self._plain = {0x04: self._engine.design.warning_k}
        self._hint = self._limit = 0
        self._watts = round(self._engine.design.states[0].max_w)
        self._rules = bytes(256)
        self._rules_enabled = 0
        thermal = self._engine.thermal
        thermal.light_k = thermal.heavy_k = 0
        self._engine.background_while_asleep = False
        self._engine.idle_rules = {}
        self._engine.limit_w = None

    def set(self, command: Command) -> Reply:
        """Answer Set Features. Nothing can be saved."""
        if command.cdw10 >> 31:
            return Reply(status=NOT_SAVEABLE)
        feature = command.subject
        if feature in self._setters:
            return self._setters[feature](command)
        if feature in PLAIN:
            self._plain[feature] = command.cdw11
            return Reply()
        return Reply() if feature == QUEUES else Reply(status=INVALID_FIELD)

    def get(self, command: Command) -> Reply:
        """Answer Get Features; default and saved values are those after a reset."""
        feature, select = command.subject, command.cdw10 >> 8 & 7
        if feature not in self._setters and feature not in PLAIN:
            return Reply(status=INVALID_FIELD)
        if select == _CAPABILITIES:
            return Reply(result=_CHANGEABLE)
        if feature == TRANSITIONS:
            data = self._rules if select == _CURRENT else bytes(256)
            return Reply(result=self._rules_enabled if select == _CURRENT else 0, data=data)
        if feature == TIMESTAMP:
            milliseconds = self._clock_ms() % (1 << _MS_BITS)
            return Reply(data=milliseconds.to_bytes(6, "little") + b"\x02\0")
        current = self._current(feature)
        return Reply(result=current if select == _CURRENT else self._default(feature))

    def _current(self, feature: int) -> int:
        thermal, measurement = self._engine.thermal, self._measurement
        values = {
            POWER_MANAGEMENT: self._engine.state | self._hint << 5,
            THERMAL: thermal.light_k << 16 | thermal.heavy_k,
            ASLEEP: int(self._engine.background_while_asleep),
            POWER_LIMIT: self._limit,
            MEASUREMENT: int(measurement.enabled)
            | measurement.type << 4
            | measurement.stop_minutes << 16,
            OCP_STATE: self._watts,
        }
        return values[feature] if feature in values else self._plain.get(feature, 0)

    def _default(self, feature: int) -> int:
        if feature == OCP_STATE:
            return round(self._engine.design.states[0].max_w)
        return self._engine.design.warning_k if feature == 0x04 else 0

    def _set_power_state(self, command: Command) -> Reply:
        state, hint = command.cdw11 & 0x1F, command.cdw11 >> 5 & 7
        if state >= len(self._engine.design.states):
            return Reply(status=INVALID_FIELD)
        self._hint = hint
        now_ns = self._engine.now_ns
        return Reply(delay_ns=self._engine.request_state(state, now_ns) - now_ns)

    def _set_transitions(self, command: Command) -> Reply:
        if len(command.data) != len(self._rules):
            return Reply(status=INVALID_FIELD)
        self._rules, self._rules_enabled = command.data, command.cdw11 & 1
        rules = {}
        for state, entry in enumerate(struct.unpack("<32Q", command.data)):
            target, idle_ms = entry >> 3 & 0x1F, entry >> 8 & 0xFFFFFF
            if idle_ms and target < len(self._engine.design.states):
                rules[state] = (target, idle_ms * 1_000_000)
        self._engine.idle_rules = rules if self._rules_enabled else {}
        return Reply()

    def _set_thermal(self, command: Command) -> Reply:
        light_k, heavy_k = command.cdw11 >> 16, command.cdw11 & 0xFFFF
        if light_k and heavy_k and light_k >= heavy_k:
            return Reply(status=INVALID_FIELD)
        self._engine.thermal.light_k, self._engine.thermal.heavy_k = light_k, heavy_k
        return Reply()

    def _set_asleep(self, command: Command) -> Reply:
        self._engine.background_while_asleep = bool(command.cdw11 & 1)
        return Reply()

    def _set_timestamp(self, command: Command) -> Reply:
        told_ms = int.from_bytes(command.data[:6], "little")
        self.clock_offset_ms += told_ms - self._clock_ms()
        return Reply()

    def _set_power_limit(self, command: Command) -> Reply:
        value, scale = command.cdw11 & 0xFFFF, command.cdw11 >> 16 & 3
        if value and scale not in _UNITS_PER_WATT:
            return Reply(status=INVALID_FIELD)
        limit_w = value / _UNITS_PER_WATT[scale] if value else None
        lowest_w = min(each.idle_w for each in self._engine.design.states if each.operational)
        if limit_w is not None and limit_w <= lowest_w:
            return Reply(status=LIMIT_TOO_LOW)
        self._limit = command.cdw11 & 0x3FFFF
        self._limit_power()
        return Reply()

    def _set_watts(self, command: Command) -> Reply:
        watts = command.cdw11 & 0xFF
        usable = [each for each in self._engine.design.states if each.operational]
        if not usable[-1].max_w <= watts <= usable[0].max_w:
            return Reply(status=INVALID_FIELD)
        self._watts = watts
        self._limit_power()
        return Reply()

    def _limit_power(self) -> None:
        """Hold to the lower of the two limits."""
        limit_w = float(self._watts)
        if self._limit:
            limit_w = min(limit_w, (self._limit & 0xFFFF) / _UNITS_PER_WATT[self._limit >> 16])
        self._engine.limit_w = limit_w

    def _set_measurement(self, command: Command) -> Reply:
        action, type_, minutes = (
            command.cdw11 & 0xF,
            command.cdw11 >> 4 & 0xF,
            command.cdw11 >> 16,
        )
        if action > 1 or type_ or minutes > LONGEST_MEASUREMENT_MINUTES:
            return Reply(status=INVALID_FIELD)
        if action:
            self._measurement.start(minutes, type_)
        else:
            self._measurement.stop()
        return Reply()
