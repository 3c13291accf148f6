"""Log pages: supported pages, SMART, firmware, effects, power measurement 25h, OCP C0h.

Layouts: NVMe Base Specification 2.3; OCP Datacenter NVMe SSD Specification 2.5 for C0h.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from tests.lab.virtual_ssd.design import Design
from tests.lab.virtual_ssd.engine import Engine
from tests.lab.virtual_ssd.meters import BIN_W, PowerMeasurement, power_field

OCP_GUID = bytes.fromhex("c5af1028eabff2a49c4f6f7cc914d5af")

_DATA_UNIT_BYTES = 512_000
_J_PER_WH = 3600
_HEADER_25H = 64


def smart(engine: Engine, *, ipm_w: float, power_on_hours: int) -> bytes:
    """Return the SMART log, 512 bytes; ``ipm_w`` is the interval power that it states."""
    design, thermal = engine.design, engine.thermal
    kelvin = round(thermal.temperature_k)
    data = bytearray(512)
    warning = 2 if kelvin >= design.warning_k else 0
    struct.pack_into("<BHBBB", data, 0, warning, kelvin, 100, 10, 1)
    counters = (
        -(-engine.read_bytes // _DATA_UNIT_BYTES),
        -(-engine.written_bytes // _DATA_UNIT_BYTES),
        engine.read_count,
        engine.write_count,
        engine.busy_ns // 60_000_000_000,
        1,
        power_on_hours,
    )
    for index, count in enumerate(counters):
        data[32 + 16 * index : 48 + 16 * index] = count.to_bytes(16, "little")
    struct.pack_into("<I", data, 192, int(thermal.warning_s // 60))
    struct.pack_into("<H", data, 200, kelvin)
    struct.pack_into(
        "<4I", data, 216, *thermal.entries[1:], *(int(each) for each in thermal.seconds[1:])
    )
    energy_wh = design.energy_before_wh + engine.curve.total_j / _J_PER_WH
    struct.pack_into("<QI", data, 232, -int(-energy_wh // 1), power_field(ipm_w))
    return bytes(data)


def supported_pages(design: Design) -> bytes:
    """Return log 00h: one bit for each page that is answered."""
    words = [0] * 256
    for page in (0x00, 0x02, 0x03, 0x05, 0x25, *([0xC0] if design.has_ocp_log else [])):
        words[page] = 1
    return struct.pack("<256I", *words)


def firmware(design: Design) -> bytes:
    """Return log 03h: one slot, active."""
    data = bytearray(512)
    data[0] = 1
    data[8:16] = design.firmware.encode("ascii").ljust(8)
    return bytes(data)


def effects(design: Design) -> bytes:
    """Return log 05h: every command that is answered, none of which holds up another."""
    words = [0] * 512
    for opcode in (0x02, 0x06, 0x09, 0x0A, 0x0C, 0x18):
        words[opcode] = 1
    for opcode in (0x00, 0x01, 0x02, *([] if design.spare_share is None else [0x09])):
        words[256 + opcode] = 1
    return struct.pack("<512I", *words).ljust(4096, b"\0")


def power_measurement(
    measurement: PowerMeasurement, design: Design, milliseconds: Callable[[int], int]
) -> bytes:
    """Return log 25h with its histogram; ``milliseconds`` tells the drive's clock for a time."""
    measurement.update()
    bins = measurement.histogram()
    size = _HEADER_25H + 8 * len(bins)
    data = bytearray(size)
    attributes = (
        int(measurement.enabled)
        | int(design.estimates) << 2
        | 1 << 3  # MIPWRT is given
        | measurement.type << 12
    )
    data[1] = measurement.generation
    struct.pack_into("<HIIHH", data, 2, attributes, size, measurement.count, len(bins),
                     measurement.remaining_minutes)  # fmt: skip
    struct.pack_into("<HHH", data, 24, 8, round(BIN_W * 1000), 65_535)
    struct.pack_into("<II", data, 40, power_field(measurement.mean_w),
                     power_field(measurement.highest_w))  # fmt: skip
    if measurement.highest_ns:
        struct.pack_into("<Q", data, 48, milliseconds(measurement.highest_ns))
    data[56] = design.error_percent
    for index, count in enumerate(bins):
        lower = round(index * BIN_W * 100) | 2 << 16
        struct.pack_into("<II", data, _HEADER_25H + 8 * index, count, lower)
    return bytes(data)


def ocp_smart(engine: Engine, highest_second_w: float) -> bytes:
    """Return log C0h, version 5."""
    data = bytearray(512)
    written = round(engine.destaged_bytes * engine.design.media_bytes_per_byte)
    data[0:16] = written.to_bytes(16, "little")
    data[16:32] = engine.read_bytes.to_bytes(16, "little")
    data[96] = min(sum(engine.thermal.entries[1:]), 255)
    data[97] = engine.thermal.level
    struct.pack_into("<BHHB", data, 98, 0, 0, 5, 2)  # specification 2.5.0
    struct.pack_into("<Q", data, 200, engine.change_count)
    data[222] = min(round(engine.thermal.highest_k) - 273, 255)
    struct.pack_into("<HH", data, 260, round(engine.design.states[0].max_w),
                     round(highest_second_w))  # fmt: skip
    energy_wh = engine.design.energy_before_wh + engine.curve.total_j / _J_PER_WH
    data[264:270] = int(energy_wh / 1000).to_bytes(6, "little")
    struct.pack_into("<H", data, 494, 5)
    data[496:512] = OCP_GUID
    return bytes(data)
