"""Commands Supported and Effects (log 05h): which admin commands stop I/O while they run.

Linux freezes a controller's I/O queues around a passthrough command that changes data or must run
alone, and identifies the drive or its namespaces anew after one that changes them: sampling by such
a command would slow the run that it measures. See ``nvme_passthru_start`` and
``nvme_passthru_end`` of ``drivers/nvme/host/core.c``.
Layout: NVMe Base Specification 2.0, figure "Commands Supported and Effects Log Page".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from wattload.power.nvme.admin import AdminDevice, fetch
from wattload.power.nvme.identify import Controller
from wattload.power.nvme.layout import require_bytes
from wattload.power.nvme.logs import log_command

EFFECTS_LOG = 0x05
EFFECTS_BYTES = 4096

_OPCODES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEffects:
    """What one command does beside its work.

    ``relaxations`` (CSER) and ``restriction`` (CSE) are the codes of the log: a restriction of 1
    allows no other command in the same namespace, 2 none in any.
    """

    supported: bool
    changes_data: bool
    changes_namespace: bool
    changes_namespace_list: bool
    changes_controller: bool
    relaxations: int
    restriction: int
    takes_uuid: bool

    @property
    def disturbs_io(self) -> bool:
        """Whether Linux stops I/O or scans the drive anew around this command.

        Relaxations are not counted in: kernels before 6.3 do not know them.
        """
        return self.restriction != 0 or any(
            (
                self.changes_data,
                self.changes_namespace,
                self.changes_namespace_list,
                self.changes_controller,
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectsLog:
    """The effects of every admin and I/O command, 256 each, by opcode."""

    admin: tuple[CommandEffects, ...]
    io: tuple[CommandEffects, ...]


def read_freezing_commands(device: AdminDevice, controller: Controller) -> frozenset[int]:
    """Return the opcodes of admin commands that would stop I/O; none where there is no such log.

    Of a drive without the log Linux assumes that reading logs and features has no effects.
    """
    if not controller.effects_log:
        return frozenset()
    log = decode_effects(fetch(device, log_command(EFFECTS_LOG, EFFECTS_BYTES)).data)
    return freezing_commands(log)


def freezing_commands(log: EffectsLog) -> frozenset[int]:
    """Return the opcodes of the admin commands that must not be used for sampling."""
    return frozenset(opcode for opcode, effects in enumerate(log.admin) if effects.disturbs_io)


def decode_effects(data: bytes) -> EffectsLog:
    """Return the fields of an effects log of 4096 bytes."""
    require_bytes(data, EFFECTS_BYTES, "the effects log")
    effects = tuple(map(_decode, struct.unpack_from(f"<{2 * _OPCODES}I", data)))
    return EffectsLog(admin=effects[:_OPCODES], io=effects[_OPCODES:])


def _decode(raw: int) -> CommandEffects:
    return CommandEffects(
        supported=bool(raw & 1),
        changes_data=bool(raw >> 1 & 1),
        changes_namespace=bool(raw >> 2 & 1),
        changes_namespace_list=bool(raw >> 3 & 1),
        changes_controller=bool(raw >> 4 & 1),
        relaxations=raw >> 14 & 3,
        restriction=raw >> 16 & 7,
        takes_uuid=bool(raw >> 19 & 1),
    )
