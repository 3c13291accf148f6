"""Commands Supported and Effects (log 05h): which admin commands stop I/O while they run.

Linux freezes a controller's I/O queues around every passthrough command whose effects name a
submission restriction; sampling by such a command would slow the run that it measures.
Layout: NVMe Base Specification 2.0, figure "Commands Supported and Effects Log Page".
"""

from __future__ import annotations

import struct

from wattload.core.errors import PowerError
from wattload.power.nvme.admin import AdminDevice, fetch
from wattload.power.nvme.identify import Controller
from wattload.power.nvme.logs import log_command

EFFECTS_LOG = 0x05
EFFECTS_BYTES = 4096

_ADMIN_COMMANDS = 256


def read_freezing_commands(device: AdminDevice, controller: Controller) -> frozenset[int]:
    """Return the opcodes of admin commands that would stop I/O; none where there is no such log.

    A drive without the log has no restriction on Get Features and Get Log Page.
    """
    if not controller.effects_log:
        return frozenset()
    return decode_freezing_commands(fetch(device, log_command(EFFECTS_LOG, EFFECTS_BYTES)).data)


def decode_freezing_commands(data: bytes) -> frozenset[int]:
    """Return the admin opcodes whose Command Submission and Execution bits (18:16) are not 0."""
    if len(data) != EFFECTS_BYTES:
        raise PowerError(f"the effects log has {EFFECTS_BYTES} bytes, got {len(data)}")
    effects = struct.unpack_from(f"<{_ADMIN_COMMANDS}I", data)
    return frozenset(opcode for opcode, effect in enumerate(effects) if effect >> 16 & 7)
