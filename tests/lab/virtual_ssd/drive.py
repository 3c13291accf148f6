"""The virtual drive behind its transport: it answers admin commands and acts out faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.lab.virtual_ssd import identify, logs
from tests.lab.virtual_ssd.curve import NS_PER_S
from tests.lab.virtual_ssd.design import Design
from tests.lab.virtual_ssd.engine import Engine, Operation
from tests.lab.virtual_ssd.faults import Faults
from tests.lab.virtual_ssd.features import Features
from tests.lab.virtual_ssd.meters import PowerMeasurement, Updates, interval_power_w
from tests.lab.virtual_ssd.reply import (
    INVALID_FIELD,
    INVALID_LOG,
    INVALID_OPCODE,
    Command,
    Reply,
)

GET_LOG_PAGE, IDENTIFY, SET_FEATURES, GET_FEATURES, KEEP_ALIVE = 0x02, 0x06, 0x09, 0x0A, 0x18

_EPOCH_MS = 1_700_000_000_000
"""Where the drive's clock stands at its start, until the host tells it better."""
NOISE_W = 0.01
"""The steps in which interval power that does not follow the load varies."""


class VirtualSsd:
    """One drive; ``now_ns`` of every call is CLOCK_MONOTONIC."""

    def __init__(self, design: Design, now_ns: int, updates: Updates = "sliding") -> None:
        self.design = design
        self.updates: Updates = updates
        self.window_s = 1.0
        """The time over which interval power is a mean: not 1 s in a drive that breaks the rule."""
        self.engine = Engine(design, now_ns)
        self.measurement = PowerMeasurement(self.engine.curve)
        self.faults = Faults()
        self.features = Features(self.engine, self.measurement, self._clock_ms)
        self._jumped_s = 0
        self._old_pages: dict[int, bytes] = {}

    def submit(self, operation: Operation, now_ns: int) -> None:
        """Queue a read or a write."""
        self.engine.submit(operation, now_ns)

    def admin(self, command: Command, now_ns: int) -> Reply:
        """Answer one admin command."""
        self.engine.advance(now_ns)
        fault = self.faults.take(command.opcode, command.subject)
        if fault is None:
            return self._answer(command)
        if fault.status is not None:
            return Reply(status=fault.status)
        if fault.hold_s is None:
            return Reply(delay_ns=None)
        reply = self._answer(command)
        late_ns = round(fault.hold_s * NS_PER_S)
        return replace(reply, delay_ns=late_ns + (reply.delay_ns or 0))

    def reset(self, now_ns: int) -> None:
        """Be as after a controller reset: default state, default features, nothing measuring."""
        self.measurement.stop()
        self.engine.drop_queue()
        self.features.forget()
        self.engine.force_state(0, now_ns)

    def lose_state(self, now_ns: int) -> None:
        """Fall back to the default power state without a word."""
        self.engine.force_state(0, now_ns)

    def jump(self, seconds: int, now_ns: int) -> None:
        """Let the drive's clock jump: its time, its hours, and the intervals that it counts."""
        self.engine.advance(now_ns)
        self.features.clock_offset_ms += seconds * 1000
        self.measurement.jumped_s += seconds
        self._jumped_s += seconds

    def go_stale(self, *, stale: bool, now_ns: int) -> None:
        """Tell log pages as they are now from here on, or as they are again."""
        self.engine.advance(now_ns)
        self._old_pages = {page: self._page(page) or b"" for page in (0x02, 0x25, 0xC0)}
        self.faults.is_stale = stale

    def stick_ipm(self, *, stuck: bool, now_ns: int) -> None:
        """State the interval power as it is now from here on, with noise, or measure again."""
        self.engine.advance(now_ns)
        self.faults.stuck_ipm_w = self._ipm_w() if stuck else None

    def _answer(self, command: Command) -> Reply:
        if command.opcode == IDENTIFY:
            return self._identify(command)
        if command.opcode == GET_LOG_PAGE:
            return self._log(command)
        if command.opcode == SET_FEATURES:
            return self.features.set(command)
        if command.opcode == GET_FEATURES:
            return self.features.get(command)
        return Reply() if command.opcode == KEEP_ALIVE else Reply(status=INVALID_OPCODE)

    def _identify(self, command: Command) -> Reply:
        cns = command.subject
        if cns == 0x00 and command.namespace == 1:
            return Reply(data=identify.namespace(self.design, self.engine.used_bytes))
        if cns == 0x01:
            return Reply(data=identify.controller(self.design))
        if cns == 0x02:
            return Reply(data=identify.active_namespaces(command.namespace))
        if cns == 0x03:
            return Reply(data=identify.namespace_descriptors(self.design))
        return Reply(status=INVALID_FIELD)

    def _log(self, command: Command) -> Reply:
        """Answer Get Log Page: the bytes asked for from the offset on, zeros beyond the end."""
        page = command.subject
        stale = self.faults.is_stale and page in self._old_pages
        data = self._old_pages[page] if stale else self._page(page)
        if data is None:
            return Reply(status=INVALID_LOG)
        size = ((command.cdw10 >> 16 | (command.cdw11 & 0xFFFF) << 16) + 1) * 4
        start = command.cdw12
        if start > len(data):
            return Reply(status=INVALID_FIELD)
        return Reply(data=data[start : start + size].ljust(size, b"\0"))

    def _page(self, page: int) -> bytes | None:
        pages: dict[int, Callable[[], bytes]] = {
            0x00: lambda: logs.supported_pages(self.design),
            0x02: self._smart,
            0x03: lambda: logs.firmware(self.design),
            0x05: lambda: logs.effects(self.design),
            0x25: lambda: logs.power_measurement(self.measurement, self.design, self._milliseconds),
            0xC0: lambda: logs.ocp_smart(
                self.engine, interval_power_w(self.engine.curve, "tumbling")
            ),
        }
        is_there = page in pages and (page != 0xC0 or self.design.has_ocp_log)
        return pages[page]() if is_there else None

    def _smart(self) -> bytes:
        return logs.smart(self.engine, ipm_w=self._ipm_w(), power_on_hours=self._power_on_hours())

    def _ipm_w(self) -> float:
        if self.faults.stuck_ipm_w is not None:
            return self.faults.stuck_ipm_w + NOISE_W * (self.engine.curve.end_ns // 1_000_000 % 5)
        return interval_power_w(self.engine.curve, self.updates, self.window_s)

    def _power_on_hours(self) -> int:
        alive_ns = self.engine.now_ns - self.engine.curve.start_ns
        return max(0, 1000 + (alive_ns // NS_PER_S + self._jumped_s) // 3600)

    def _clock_ms(self) -> int:
        return self._milliseconds(self.engine.now_ns)

    def _milliseconds(self, time_ns: int) -> int:
        alive_ms = (time_ns - self.engine.curve.start_ns) // 1_000_000
        return _EPOCH_MS + self.features.clock_offset_ms + alive_ms
