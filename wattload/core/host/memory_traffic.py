"""What a host's memory moves, by counters of its memory controllers, and the rate of its modules.

Uncore counters count every byte at the controllers: Intel's ``uncore_imc`` by the events that the
kernel names, AMD's ``amd_umc`` and ``amd_df`` by those of the kernel's event tables
(``tools/perf/pmu-events/arch/x86/amdzen*``). Without them, resctrl's ``mbm_total_bytes`` counts
what the L3 caches and memory exchange ("Memory Bandwidth Monitoring" in
``Documentation/filesystems/resctrl.rst``). Modules are those of the firmware's table (SMBIOS type
17).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from platform import machine
from typing import Literal, Protocol

from wattload.core.host.facts import cpuinfo
from wattload.core.sysfs import LIVE, Roots, explain, parse_cpus, read_int, read_text
from wattload.core.units import MIB

Kind = Literal["uncore", "resctrl"]

NEEDS_PERMISSION = "uncore counters need perf_event_paranoid 0"

_SYSCALL = {"x86_64": 298, "aarch64": 241}
_ATTRIBUTE_BYTES = 112
_TIMES = 0b11  # PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING

_INTEL_EVENT = re.compile(r"(cas_count_(read|write)(_sch\d+)?|data_(read|write)s?)")
_LINE_BYTES = 64
_UNIT_BYTES = {"MiB": float(MIB), "Bytes": 1.0, "": 1.0}

_UMC_EVENT = {"event": 0x0A}
"""``umc_cas_cmd.all``: every column access, a read or a write of one line."""
_DF_EVENTS = tuple(
    {"event": event, "umask": 0x38}
    for event in (0x07, 0x47, 0x87, 0xC7, 0x107, 0x147, 0x187, 0x1C7)
)
"""``dram_channel_data_controller_0`` to ``_7`` of Zen 1 to Zen 3, each counting lines."""
_DF_FAMILIES = {0x17: range(0x100), 0x19: (*range(0x10), *range(0x20, 0x60))}
"""Models by family whose data fabric has these events: Zen 1, 2 and 3."""


class Counter(Protocol):
    """A hardware counter that counts on."""

    def read(self) -> float:
        """Return its count since it was opened."""
        ...

    def close(self) -> None:
        """Stop it."""
        ...


OpenCounter = Callable[[int, int, int], Counter]
"""Opens a counter of a unit (perf type) for an event (config) on a CPU; raises ``OSError``."""


class TrafficMeter(Protocol):
    """Counts bytes that memory read and wrote."""

    kind: Kind

    def read_bytes(self) -> float:
        """Return the bytes since the meter was opened or earlier; raises ``OSError``."""
        ...

    def close(self) -> None:
        """Stop counting."""
        ...


@dataclass(frozen=True, slots=True)
class FoundMeter:
    """The meter that this host offers, ``None`` without one, and remarks on what is refused."""

    meter: TrafficMeter | None
    remarks: tuple[str, ...] = ()


def find_meter(roots: Roots = LIVE, open_counter: OpenCounter | None = None) -> FoundMeter:
    remarks: list[str] = []
    events: list[Event] = []
    try:
        events = list(_events(roots))
    except (OSError, ValueError, KeyError) as error:
        remarks.append(f"the uncore counters' events can't be read: {explain(error)}")
    if events:
        try:
            return FoundMeter(UncoreMeter(events, open_counter or PerfCounter))
        except OSError as error:
            refused = error.errno in (errno.EACCES, errno.EPERM)
            reason = error.strerror or str(error)
            remarks.append(NEEDS_PERMISSION if refused else f"uncore counters failed: {reason}")
    try:
        return FoundMeter(ResctrlMeter(roots), tuple(remarks))
    except (OSError, ValueError) as error:
        if (roots.sys / "fs/resctrl/mon_data").exists():
            remarks.append(f"resctrl does not count memory traffic: {explain(error)}")
    return FoundMeter(None, tuple(remarks))


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event of an uncore unit; one count is ``bytes_each`` bytes."""

    type: int
    config: int
    cpu: int
    bytes_each: float


class UncoreMeter:
    """The bytes at all memory controllers, read and written."""

    kind: Kind = "uncore"

    def __init__(self, events: Sequence[Event], open_counter: OpenCounter) -> None:
        """Start counting; raises ``OSError`` if the kernel refuses an event."""
        self._counters: list[tuple[Counter, float]] = []
        try:
            for event in events:
                counter = open_counter(event.type, event.config, event.cpu)
                self._counters.append((counter, event.bytes_each))
        except OSError:
            self.close()
            raise

    def read_bytes(self) -> float:
        return sum(counter.read() * bytes_each for counter, bytes_each in self._counters)

    def close(self) -> None:
        for counter, _ in self._counters:
            counter.close()


class ResctrlMeter:
    """The bytes between L3 caches and memory, over all groups of resctrl."""

    kind: Kind = "resctrl"

    def __init__(self, roots: Roots = LIVE) -> None:
        """Find the counters; raises ``OSError`` or ``ValueError`` if one gives no number."""
        top = roots.sys / "fs/resctrl"
        groups = (top, *top.glob("*/"), *top.glob("*/mon_groups/*/"), *top.glob("mon_groups/*/"))
        self._files = [
            file
            for group in dict.fromkeys(groups)
            for file in sorted(group.glob("mon_data/mon_L3_*/mbm_total_bytes"))
        ]
        if not self._files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "mbm_total_bytes")
        self.read_bytes()

    def read_bytes(self) -> float:
        return float(sum(read_int(file) for file in self._files))

    def close(self) -> None:
        """Do nothing: the files are opened for each reading."""


class PerfCounter:
    """A counter of ``perf_event_open(2)`` over all processes."""

    def __init__(self, kind: int, config: int, cpu: int) -> None:
        """Start counting; raises ``OSError``."""
        number = _SYSCALL.get(machine())
        if number is None:
            raise OSError(errno.ENOSYS, f"perf_event_open has no known number on {machine()}")
        attribute = struct.pack("=IIQQQQ", kind, _ATTRIBUTE_BYTES, config, 0, 0, _TIMES)
        buffer = ctypes.create_string_buffer(attribute, _ATTRIBUTE_BYTES)
        library = ctypes.CDLL(None, use_errno=True)
        self._descriptor = library.syscall(
            ctypes.c_long(number), buffer, *map(ctypes.c_long, (-1, cpu, -1, 0))
        )
        if self._descriptor < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFD)
        fcntl.fcntl(self._descriptor, fcntl.F_SETFD, flags | fcntl.FD_CLOEXEC)

    def read(self) -> float:
        """Return the count, scaled up if the kernel let events take turns on one counter."""
        value, enabled_ns, running_ns = struct.unpack("=QQQ", os.read(self._descriptor, 24))
        return float(value) * (enabled_ns / running_ns) if running_ns else 0.0

    def close(self) -> None:
        os.close(self._descriptor)


def _events(roots: Roots) -> Iterator[Event]:
    """Yield the events that together count each byte once, of all memory controllers."""
    units = roots.sys / "bus/event_source/devices"
    intel = sorted(units.glob("uncore_imc*"))
    if intel:
        # The free-running counters of some CPUs count the same bytes as the others.
        own = [unit for unit in intel if "free_running" not in unit.name] or intel
        for unit in own:
            yield from _named_events(unit)
        return
    umc = sorted(units.glob("amd_umc_*"))
    for unit in umc:
        yield from _coded_events(unit, (_UMC_EVENT,))
    fabric = [] if umc else sorted(units.glob("amd_df"))
    if fabric and _has_known_fabric(roots):
        for unit in fabric:
            yield from _coded_events(unit, _DF_EVENTS)


def _named_events(unit: Path) -> Iterator[Event]:
    for file in sorted((unit / "events").glob("*")):
        if _INTEL_EVENT.fullmatch(file.name):
            terms = dict(_term(word) for word in read_text(file).split(","))
            yield from _on_cpus(unit, terms, _bytes_each(file))


def _coded_events(unit: Path, events: Sequence[dict[str, int]]) -> Iterator[Event]:
    for terms in events:
        yield from _on_cpus(unit, terms, float(_LINE_BYTES))


def _on_cpus(unit: Path, terms: dict[str, int], bytes_each: float) -> Iterator[Event]:
    config = 0
    for name, value in terms.items():
        config |= _placed(read_text(unit / "format" / name), value)
    for cpu in sorted(parse_cpus(read_text(unit / "cpumask"))):
        yield Event(type=read_int(unit / "type"), config=config, cpu=cpu, bytes_each=bytes_each)


def _term(word: str) -> tuple[str, int]:
    name, _, value = word.partition("=")
    return name.strip(), int(value or "1", 0)


def _placed(form: str, value: int) -> int:
    """Return a value in its bits of the config, such as ``config:0-7,32-35``."""
    placed = 0
    for bits in form.removeprefix("config:").split(","):
        first, _, last = bits.partition("-")
        low, high = int(first), int(last or first)
        width = high - low + 1
        placed |= (value & ((1 << width) - 1)) << low
        value >>= width
    return placed


def _bytes_each(event: Path) -> float:
    scale, unit = event.with_name(f"{event.name}.scale"), event.with_name(f"{event.name}.unit")
    if not scale.exists():
        return float(_LINE_BYTES)
    return float(read_text(scale)) * _UNIT_BYTES[read_text(unit) if unit.exists() else ""]


def _has_known_fabric(roots: Roots) -> bool:
    fields = cpuinfo(roots)
    family, model = int(fields.get("cpu family", "0")), int(fields.get("model", "0"))
    return model in _DF_FAMILIES.get(family, ())


_TYPE, _HEADER_BYTES = 17, 4
_SIZE, _DATA_WIDTH, _LOCATOR, _BANK = 0x0C, 0x0A, 0x10, 0x11
_SPEED, _LONG_SPEED = 0x20, 0x58
_LONG = 0xFFFF
_TRANSFERS = 1_000_000
"""A speed is in millions of transfers per second."""

_CHANNEL = re.compile(r"(.*?CHANNEL[ _-]?[0-9A-Z]+)(?![0-9A-Z])|(.*?CHANNEL[ _-]?[A-Z])(?=[0-9])")
_LETTERED = re.compile(r"(.*?DIMM[ _-]?[A-Z])[0-9]*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryModule:
    """An installed module: where it is, its configured transfers per second, its data width."""

    locator: str
    bank: str
    transfers_per_s: int
    width_bytes: int

    @property
    def channel(self) -> str | None:
        """The name of the module's channel, with its socket's; ``None`` if none is named.

        Boards name channels in the locator of the device or of the bank: ``P0 CHANNEL A``,
        ``CPU1_DIMM_B2``, ``P0_Node1_Channel3_Dimm0``.
        """
        for text in (self.bank.upper(), self.locator.upper()):
            found = _CHANNEL.match(text)
            if found:
                return found[1] or found[2]
        found = _LETTERED.match(self.locator.upper())
        return found[1] if found else None


def memory_rate(roots: Roots = LIVE) -> tuple[float | None, str]:
    """Return the bytes per second that all memory channels can move, or ``None`` and the reason.

    It is the sum over channels of configured transfers per second times data width.
    """
    try:
        modules = list(_modules(roots))
    except (OSError, ValueError, IndexError) as error:
        return None, f"the firmware's table of memory modules can't be read: {explain(error)}"
    if not modules:
        return None, "the firmware's table has no memory modules"
    rates: dict[str, int] = {}
    for module in modules:
        channel = module.channel
        if channel is None:
            return None, f"the locators of memory modules, {module.locator!r}, name no channel"
        if not module.transfers_per_s or not module.width_bytes:
            return None, f"the firmware does not say how fast module {module.locator!r} runs"
        rate = module.transfers_per_s * module.width_bytes
        rates[channel] = min(rate, rates.get(channel, rate))
    return float(sum(rates.values())), ""


def _modules(roots: Roots) -> Iterator[MemoryModule]:
    table = (roots.sys / "firmware/dmi/tables/DMI").read_bytes()
    at = 0
    while at + _HEADER_BYTES <= len(table):
        kind, length = table[at], table[at + 1]
        if length < _HEADER_BYTES:
            raise ValueError("a structure of it is too short")
        body = table[at : at + length]
        end = table.find(b"\0\0", at + length)
        if end < 0:
            raise ValueError("it is cut short")
        texts = table[at + length : end].split(b"\0")
        if kind == _TYPE and length > _SPEED and int.from_bytes(body[_SIZE : _SIZE + 2], "little"):
            yield _module(body, [text.decode("latin-1").strip() for text in texts])
        at = end + 2


def _module(body: bytes, texts: list[str]) -> MemoryModule:
    def text(place: int) -> str:
        number = body[place]
        return texts[number - 1] if number else ""

    speed = int.from_bytes(body[_SPEED : _SPEED + 2], "little")
    if speed == _LONG:
        speed = int.from_bytes(body[_LONG_SPEED : _LONG_SPEED + 4], "little")
    width = int.from_bytes(body[_DATA_WIDTH : _DATA_WIDTH + 2], "little")
    return MemoryModule(
        locator=text(_LOCATOR),
        bank=text(_BANK),
        transfers_per_s=speed * _TRANSFERS,
        width_bytes=0 if width == _LONG else width // 8,
    )
