"""Bytes written to the media, for write amplification: OCP log C0h, else Endurance Group log 09h.

Layouts: OCP Datacenter NVMe SSD Specification, "SMART / Health Information Extended" (exact bytes);
NVMe Base Specification 2.0, figure "Endurance Group Information Log Page" (steps of 10^9 bytes).
"""

from __future__ import annotations

from wattload.core.errors import PowerError
from wattload.core.units import GB
from wattload.power.nvme.admin import AdminDevice, fetch
from wattload.power.nvme.logs import log_command

OCP_LOG = 0xC0
ENDURANCE_GROUP_LOG = 0x09
LOG_BYTES = 512

OCP_GUID = bytes.fromhex("c5af1028eabff2a49c4f6f7cc914d5af")
"""Bytes 496 to 511 of the OCP log, as stored: other vendors use C0h for other things."""


def read_media_written_bytes(device: AdminDevice, endurance_group: int) -> int:
    """Return the bytes that the drive has written to its media in its life.

    ``endurance_group`` is the namespace's group, 0 where the drive has none.

    Raises:
        PowerError: the drive has neither log.
    """
    ocp = device.submit(log_command(OCP_LOG, LOG_BYTES))
    if ocp.code == 0 and ocp.data[496:512] == OCP_GUID:
        return decode_ocp_media_written(ocp.data)
    if endurance_group == 0:
        raise PowerError("the drive has neither the OCP log C0h nor endurance groups")
    command = log_command(ENDURANCE_GROUP_LOG, LOG_BYTES, specific=endurance_group)
    return decode_group_media_written(fetch(device, command).data)


def decode_ocp_media_written(data: bytes) -> int:
    """Return Physical Media Units Written, bytes 0 to 15, in bytes."""
    return int.from_bytes(data[0:16], "little")


def decode_group_media_written(data: bytes) -> int:
    """Return Media Units Written, bytes 80 to 95, counted in 10^9 bytes and rounded up."""
    return int.from_bytes(data[80:96], "little") * GB
