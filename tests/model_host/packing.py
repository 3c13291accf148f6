"""Structures packed by ``struct`` from offset tables of the specifications, for round trips.

Nothing here comes from the decoders: each table gives offset, format and name as the figure of the
specification has them, and whatever no table names stays filled with ``fill``, so that a decoder
that reads a reserved bit is caught.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence

Table = Sequence[tuple[int, str, str]]

OCP_SMART_GUID = bytes.fromhex("C5AF1028EABFF2A49C4F6F7CC914D5AF")
OCP_UUID = bytes.fromhex("c194d55be0944794a21d29998f56be6f")

PSD: Table = (
    (0, "H", "mp"),
    (3, "B", "flags"),
    (4, "I", "enlat"),
    (8, "I", "exlat"),
    (12, "B", "rrt"),
    (13, "B", "rrl"),
    (14, "B", "rwt"),
    (15, "B", "rwl"),
    (16, "H", "idlp"),
    (18, "B", "ips"),
    (20, "H", "actp"),
    (22, "B", "apw_aps"),
    (23, "B", "epfrt"),
    (24, "B", "fqvt"),
    (25, "B", "epfvt"),
    (26, "B", "epfrts_fqvts"),
    (27, "B", "epfvts"),
    (28, "B", "mbw"),
    (29, "B", "mbws"),
    (30, "H", "miiell"),
)

CONTROLLER: Table = (
    (0, "H", "vid"),
    (4, "20s", "sn"),
    (24, "40s", "mn"),
    (64, "8s", "fr"),
    (78, "H", "cntlid"),
    (80, "I", "ver"),
    (96, "I", "ctratt"),
    (261, "B", "lpa"),
    (263, "B", "npss"),
    (265, "B", "apsta"),
    (266, "H", "wctemp"),
    (268, "H", "cctemp"),
    (280, "16s", "tnvmcap"),
    (296, "16s", "unvmcap"),
    (322, "H", "hctma"),
    (324, "H", "mntmt"),
    (326, "H", "mxtmt"),
    (385, "B", "mupa"),
    (390, "H", "mup"),
    (392, "H", "ipmsr"),
    (394, "H", "msmt"),
    (516, "I", "nn"),
    (520, "H", "oncs"),
    (525, "B", "vwc"),
)

SMART: Table = (
    (0, "B", "warning"),
    (1, "H", "temperature"),
    (3, "B", "spare"),
    (4, "B", "threshold"),
    (5, "B", "used"),
    (32, "16s", "units_read"),
    (48, "16s", "units_written"),
    (64, "16s", "reads"),
    (80, "16s", "writes"),
    (96, "16s", "busy"),
    (112, "16s", "cycles"),
    (128, "16s", "hours"),
    (144, "16s", "unsafe"),
    (160, "16s", "media_errors"),
    (176, "16s", "log_entries"),
    (192, "I", "warning_minutes"),
    (196, "I", "critical_minutes"),
    *((200 + 2 * index, "H", f"sensor{index + 1}") for index in range(8)),
    (216, "I", "tmt1_count"),
    (220, "I", "tmt2_count"),
    (224, "I", "tmt1_seconds"),
    (228, "I", "tmt2_seconds"),
    (232, "Q", "olec"),
    (240, "I", "ipm"),
)

ENDURANCE: Table = (
    (0, "B", "warning"),
    (3, "B", "spare"),
    (4, "B", "threshold"),
    (5, "B", "used"),
    (32, "16s", "estimate"),
    (48, "16s", "read"),
    (64, "16s", "written"),
    (80, "16s", "media_written"),
    (96, "16s", "reads"),
    (112, "16s", "writes"),
    (128, "16s", "media_errors"),
    (144, "16s", "log_entries"),
    (160, "16s", "capacity"),
    (176, "16s", "unallocated"),
)

MEASUREMENT: Table = (
    (0, "B", "ver"),
    (1, "B", "pmgn"),
    (2, "H", "pma"),
    (4, "I", "sze"),
    (8, "I", "pmc"),
    (12, "H", "nphd"),
    (14, "H", "smtr"),
    (16, "8s", "smts"),
    (24, "H", "phds"),
    (26, "H", "phbs"),
    (28, "H", "nphds"),
    (30, "H", "vss"),
    (32, "I", "phdoc"),
    (40, "I", "aipwr"),
    (44, "I", "mipwr"),
    (48, "8s", "mipwrt"),
    (56, "B", "ipwrpe"),
)

OCP_SMART: Table = (
    (0, "16s", "written"),
    (16, "16s", "read"),
    (96, "B", "throttle_events"),
    (97, "B", "throttle_status"),
    (99, "H", "point"),
    (101, "H", "minor"),
    (103, "B", "major"),
    (200, "Q", "state_changes"),
    (222, "B", "highest_c"),
    (260, "H", "peak"),
    (262, "H", "average"),
    (264, "6s", "lifetime"),
    (494, "H", "version"),
    (496, "16s", "guid"),
)

WORKLOAD: Table = (
    (0, "H", "major"),
    (2, "H", "minor"),
    (4, "I", "count"),
    (16, "I", "period_ms"),
    (20, "Q", "last_tick"),
    (36, "I", "config"),
)


def wide(value: int, size: int = 16) -> bytes:
    """Return a little-endian number of ``size`` bytes, for the formats ``16s`` and ``6s``."""
    return value.to_bytes(size, "little")


def pack(table: Table, size: int, values: Mapping[str, int | bytes], *, fill: int = 0) -> bytes:
    """Return ``size`` bytes with the named values at their offsets, the rest ``fill``."""
    known = {name for _, _, name in table}
    if set(values) - known:
        raise KeyError(f"no such field: {sorted(set(values) - known)}")
    data = bytearray([fill]) * size
    for offset, code, name in table:
        value = values.get(name, b"" if code.endswith("s") else 0)
        struct.pack_into(f"<{code}", data, offset, value)
    return bytes(data)


def controller(states: Sequence[bytes] = (), *, fill: int = 0, **values: int | bytes) -> bytes:
    """Return Identify Controller with these power state descriptors."""
    names = {"sn": b" " * 20, "mn": b" " * 40, "fr": b" " * 8}
    values = {**names, "npss": max(len(states), 1) - 1, **values}
    data = bytearray(pack(CONTROLLER, 4096, values, fill=fill))
    data[2048 : 2048 + 32 * len(states)] = b"".join(states)
    return bytes(data)


def psd(*, fill: int = 0, **values: int) -> bytes:
    """Return one power state descriptor."""
    return pack(PSD, 32, values, fill=fill)


def measurement(
    bins: Iterable[tuple[int, int]] = (),
    *,
    stride: int = 8,
    tail: bytes = b"",
    **values: int | bytes,
) -> bytes:
    """Return log 25h with bins of (count, lower threshold), each ``stride`` bytes, and a tail."""
    packed = b"".join(struct.pack("<II", *each).ljust(stride, b"\xff") for each in bins)
    count = len(packed) // stride if stride else 0
    defaults = {"nphd": count, "phds": stride, "sze": 64 + len(packed), "phbs": 250}
    return pack(MEASUREMENT, 64, {**defaults, **values}) + packed + tail


def words(values: Mapping[int, int], count: int, size: int) -> bytes:
    """Return ``count`` double words, those of ``values`` set, padded with zeros to ``size``."""
    numbers = [values.get(index, 0) for index in range(count)]
    return struct.pack(f"<{count}I", *numbers).ljust(size, b"\0")


def uuid_list(uuids: Sequence[bytes]) -> bytes:
    """Return Identify CNS 17h: a header of 32 bytes, then entries of 32 with the UUID at 16."""
    entries = b"".join(bytes(16) + uuid for uuid in uuids)
    return (bytes(32) + entries).ljust(4096, b"\0")


def workload(entries: Sequence[Sequence[int]] = (), **values: int) -> bytes:
    """Return log F9h with entries of eight double words each, the newest first."""
    header = pack(WORKLOAD, 48, {"count": len(entries), **values})
    return (header + b"".join(struct.pack("<8I", *entry) for entry in entries)).ljust(4080, b"\0")


def item(key: int, *numbers: int) -> bytes:
    """Return an attribute of 12 bytes as several vendors have it: three words from byte 5 on."""
    return struct.pack("<BHBB3HB", key, 0, 100, 0, *numbers, 0)
