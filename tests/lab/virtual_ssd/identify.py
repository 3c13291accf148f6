"""Identify structures, packed from the design. Layouts: NVMe Base Specification 2.3."""

from __future__ import annotations

import struct

from tests.lab.virtual_ssd.design import BLOCK_BYTES, Design, PowerState

BYTES = 4096
CONTROLLER_ID = 1
IN_CAPSULE_BYTES = 8192
"""Data that a write command may bring along: small writes need no second turn."""
LARGEST_SHIFT = 8
"""MDTS: 2^8 pages of 4 KiB, 1 MiB a command."""
LONGEST_MEASUREMENT_MINUTES = 1440
SELECTS_AND_TIMESTAMP = 1 << 4 | 1 << 6
DATASET_MANAGEMENT = 1 << 2

_SCALE_10MW = 2
_PERMISSIVE, _POWER_LIMIT, _POWER_MEASUREMENT = 1 << 1, 1 << 20, 1 << 21


def descriptor(state: PowerState, rank: int) -> bytes:
    """Return the 32 bytes of a power state descriptor."""
    fine = state.max_w < 1
    data = bytearray(32)
    struct.pack_into("<H", data, 0, round(state.max_w * (10_000 if fine else 100)))
    data[3] = int(fine) | (0 if state.operational else 2)
    struct.pack_into("<II", data, 4, state.entry_us, state.exit_us)
    data[12:16] = bytes([rank] * 4)
    struct.pack_into("<H", data, 16, round(state.idle_w * 100))
    data[18] = _SCALE_10MW << 6
    if state.operational:
        struct.pack_into("<H", data, 20, round(state.max_w * 90))
        data[22] = _SCALE_10MW << 6 | 2
    return bytes(data)


def controller(design: Design) -> bytes:
    """Return Identify Controller."""
    data = bytearray(BYTES)
    _names(data, design)
    _capabilities(data, design)
    _fabrics(data, design)
    for index, state in enumerate(design.states):
        data[2048 + 32 * index : 2080 + 32 * index] = descriptor(state, index)
    return bytes(data)


def _names(data: bytearray, design: Design) -> None:
    struct.pack_into("<HH", data, 0, design.vendor_id, design.vendor_id)
    for offset, size, text in (
        (4, 20, design.serial),
        (24, 40, design.model),
        (64, 8, design.firmware),
    ):
        data[offset : offset + size] = text.encode("ascii").ljust(size)


def _capabilities(data: bytearray, design: Design) -> None:
    data[77] = LARGEST_SHIFT
    struct.pack_into("<HI", data, 78, CONTROLLER_ID, 0x00020300)
    struct.pack_into("<I", data, 96, _PERMISSIVE | _POWER_LIMIT | _POWER_MEASUREMENT)
    data[111] = 1  # CNTRLTYPE: an I/O controller
    data[260] = 1 << 1  # FRMW: one slot
    data[261] = 1 << 1 | 1 << 2  # LPA: effects log, extended Get Log Page
    data[263] = len(design.states) - 1
    data[265] = 1  # APSTA
    struct.pack_into("<HH", data, 266, design.warning_k, design.critical_k)
    data[280:296] = design.capacity_bytes.to_bytes(16, "little")
    struct.pack_into("<HHH", data, 322, 1, 273, design.critical_k)  # HCTMA, MNTMT, MXTMT
    data[385] = _SCALE_10MW  # MUPA
    struct.pack_into("<H", data, 390, round(design.states[0].max_w * 100))
    struct.pack_into("<HH", data, 392, 1 | 4 << 8, LONGEST_MEASUREMENT_MINUTES)  # IPMSR: 1 ms
    data[512:514] = b"\x66\x44"  # queue entries of 64 and 16 bytes
    struct.pack_into("<H", data, 514, 128)  # MAXCMD
    struct.pack_into("<I", data, 516, 1)  # NN
    deallocates = 0 if design.spare_share is None else DATASET_MANAGEMENT
    struct.pack_into("<H", data, 520, SELECTS_AND_TIMESTAMP | deallocates)


def _fabrics(data: bytearray, design: Design) -> None:
    struct.pack_into("<H", data, 320, 10)  # KAS, in 100 ms
    struct.pack_into("<I", data, 536, 1 | 1 << 20)  # SGLS, with offsets into the capsule
    name = design.subsystem.encode("ascii")
    data[768 : 768 + len(name)] = name
    struct.pack_into("<II", data, 1792, (64 + IN_CAPSULE_BYTES) // 16, 1)


def namespace(design: Design, used_bytes: int) -> bytes:
    """Return Identify Namespace of the only one."""
    data = bytearray(BYTES)
    blocks = design.capacity_bytes // BLOCK_BYTES
    struct.pack_into("<QQQ", data, 0, blocks, blocks, used_bytes // BLOCK_BYTES)
    if design.spare_share is not None:
        data[24] = 1 << 4  # NSFEAT: the preferred sizes below
        data[33] = 1  # DLFEAT: deallocated blocks read as zeros
        preferred = design.page_bytes // BLOCK_BYTES - 1
        struct.pack_into("<5H", data, 64, *[preferred] * 5)  # NPWG, NPWA, NPDG, NPDA, NOWS
    data[104:120] = design.namespace_id
    data[130] = BLOCK_BYTES.bit_length() - 1
    return bytes(data)


def active_namespaces(after: int) -> bytes:
    """Return the list of namespaces with an identifier greater than ``after``."""
    return struct.pack("<I", 1 if after < 1 else 0).ljust(BYTES, b"\0")


def namespace_descriptors(design: Design) -> bytes:
    """Return one descriptor: the NGUID."""
    return (b"\x02\x10\0\0" + design.namespace_id).ljust(BYTES, b"\0")
