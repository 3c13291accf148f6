"""UUID List (Identify, CNS 17h): whose log or feature a vendor's identifier means.

Layout: NVMe Base Specification 2.0, figure "UUID List": entries of 32 bytes from byte 32 on, the
UUID in the second half of each; indexes count from 1 and an empty UUID ends the list.
"""

from __future__ import annotations

from uuid import UUID

from wattload.power.nvme.admin import AdminDevice, fetch
from wattload.power.nvme.identify import IDENTIFY_BYTES, Controller, identify_command
from wattload.power.nvme.layout import require_bytes

OCP_UUID = UUID("c194d55b-e094-4794-a21d-29998f56be6f")

_CNS_UUID_LIST = 0x17
_ENTRY_BYTES = 32
_UUID_BYTES = 16


def read_ocp_uuid_index(device: AdminDevice, controller: Controller) -> int:
    """Return the index that names OCP's logs and features, 0 where the drive lists none.

    0 asks for the drive's own meaning of the identifier, which on a drive without UUIDs may be
    OCP's all the same: logs prove it by their GUID.
    """
    if not controller.uuid_list:
        return 0
    command = identify_command(_CNS_UUID_LIST, "Identify UUID List")
    listed = decode_uuid_list(fetch(device, command).data)
    return listed.index(OCP_UUID) + 1 if OCP_UUID in listed else 0


def decode_uuid_list(data: bytes) -> tuple[UUID, ...]:
    """Return the UUIDs of a list of 4096 bytes; the first has index 1."""
    require_bytes(data, IDENTIFY_BYTES, "Identify UUID List")
    listed = []
    for start in range(_ENTRY_BYTES, IDENTIFY_BYTES, _ENTRY_BYTES):
        raw = data[start + _UUID_BYTES : start + _ENTRY_BYTES]
        if not any(raw):
            break
        listed.append(UUID(bytes=raw))
    return tuple(listed)
