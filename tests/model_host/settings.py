"""What caps a model drive's power beside its power states: APST, the power limit, OCP's watts.

Packed and read as the specification has them, like the rest of it.
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass
from uuid import UUID

from tests.model_host import packing
from wattload.power.nvme.admin import AdminCommand

INVALID_FIELD = 0x4002
INVALID_LIMIT = 0x403E
OTHER_UUID = UUID("00000000-0000-4000-8000-000000000001").bytes

Answer = tuple[int, int, bytes]

APST_TABLE = struct.pack("<3Q", 0, 0, 3 << 3 | 200 << 8).ljust(256, b"\0")


@dataclass(kw_only=True)
class Knobs:
    """The settings and how they behave; raw where a name of the specification stands."""

    hint: int = 0
    """Workload hint, beside the power state in feature 02h."""
    saved: int | None = None
    """The power state that is saved, where one can be; by itself the default one."""
    late_s: float = 0.0
    """How long after it has accepted a power state the drive makes the change."""
    pending: tuple[int, float] | None = None
    """The power state that it will change to, and when (CLOCK_MONOTONIC)."""
    takes_refused: bool = False
    """A power state that is refused is taken all the same."""
    apste: int = 1
    apst_table: str = APST_TABLE.hex()
    limits: bool = False
    limit: int = 0
    limit_dword: int = 11
    """Which dword of Set Features 23h this drive reads."""
    limit_strict: bool = False
    """Whether a value in the other dword is an invalid field."""
    limit_step: int = 1
    """The drive rounds a limit down to multiples of it."""
    threshold: int | None = None
    """Feature 24h, where the drive has it."""
    lowest_limit: int = 0
    """Below it no operational state is left."""
    ocp_index: int = 0
    """Where OCP's UUID stands in the list of UUIDs; 0: nowhere, and there is no list."""
    dssd_watts: int = 25
    clock: bool = False
    clock_offset_ms: int = 0
    clock_deaf: bool = False


def get(knobs: Knobs, command: AdminCommand, *, apst: bool) -> Answer | None:
    """Answer Get Features, ``None`` for a feature that is not one of these."""
    feature, select = command.cdw10 & 0xFF, command.cdw10 >> 8 & 7
    if select == 3:
        return (0, 4, b"") if feature in (0x0C, 0x23, 0xC7) else None
    if feature == 0x0C and apst:
        return 0, knobs.apste, bytes.fromhex(knobs.apst_table)
    caps = {0x23: knobs.limit if knobs.limits else None, 0x24: knobs.threshold}
    if (value := caps.get(feature)) is not None:
        return 0, value, b""
    if feature == 0xC7 and knobs.ocp_index and command.cdw14 & 0x7F == knobs.ocp_index:
        return 0, knobs.dssd_watts, b""
    if feature == 0x0E and knobs.clock:
        now_ms = time.time_ns() // 1_000_000 + knobs.clock_offset_ms
        return 0, 0, struct.pack("<Q", now_ms & (1 << 48) - 1)
    return None


def set_(knobs: Knobs, command: AdminCommand, *, apst: bool) -> Answer | None:
    """Obey Set Features, ``None`` for a feature that is not one of these."""
    feature = command.cdw10 & 0xFF
    if feature == 0x0C and apst:
        knobs.apste, knobs.apst_table = command.cdw11 & 1, command.payload.hex()
        return 0, 0, b""
    if feature == 0x23 and knobs.limits:
        return _set_limit(knobs, command)
    if feature == 0xC7 and knobs.ocp_index and command.cdw14 & 0x7F == knobs.ocp_index:
        knobs.dssd_watts = command.cdw11 & 0xFF
        return 0, 0, b""
    if feature == 0x0E and knobs.clock:
        if not knobs.clock_deaf:
            wanted_ms = struct.unpack("<Q", command.payload)[0]
            knobs.clock_offset_ms = wanted_ms - time.time_ns() // 1_000_000
        return 0, 0, b""
    return None


def _set_limit(knobs: Knobs, command: AdminCommand) -> Answer:
    dwords = {11: command.cdw11, 13: command.cdw13}
    value = dwords.pop(knobs.limit_dword)
    if knobs.limit_strict and any(dwords.values()):
        return INVALID_FIELD, 0, b""
    if 0 < (value & 0xFFFF) < knobs.lowest_limit:
        return INVALID_LIMIT, 0, b""
    knobs.limit = value - (value & 0xFFFF) % knobs.limit_step
    return 0, 0, b""


def attributes(knobs: Knobs) -> int:
    """Return the bits of CTRATT: power limit (20), UUID list (9)."""
    return knobs.limits << 20 | bool(knobs.ocp_index) << 9


def uuid_list(knobs: Knobs) -> bytes:
    """Return the UUID list with OCP's at its place, others before it."""
    others = [OTHER_UUID] * (knobs.ocp_index - 1)
    return packing.uuid_list([*others, *[packing.OCP_UUID] * bool(knobs.ocp_index)])
