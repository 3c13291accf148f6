"""The EFI system partition, as partition tables on a disk show it.

Layouts: UEFI Specification 2.10, sections 5.2.1 (MBR) and 5.3 (GPT).
"""

from __future__ import annotations

import os
import struct
from typing import BinaryIO
from uuid import UUID

EFI_TYPE = "c12a7328-f81f-11d2-ba4b-00a0c93ec93b"
"""The type of the partition in a GPT, as udev and libblkid write it."""

_STORED_TYPE = UUID(EFI_TYPE).bytes_le
_MBR_TYPE = 0xEF
_FIRST_BYTES = 4096
_MBR_TABLE, _MBR_ENTRY_BYTES = 446, 16
_GPT_SIGNATURE = b"EFI PART"
_GPT_HEADER_BYTES = 92
_MOST_ENTRIES, _MOST_ENTRY_BYTES = 1024, 4096
_GUID_BYTES = 16


def has_efi_partition(disk: BinaryIO, block_bytes: int) -> bool:
    """Return whether the partition table of an open disk has an EFI system partition.

    A GPT is laid out by logical blocks of ``block_bytes``; its backup is looked at where the GPT
    itself is gone. Raises ``OSError`` if the disk can't be read.
    """
    first = disk.read(_FIRST_BYTES)
    table = first[_MBR_TABLE : _MBR_TABLE + 4 * _MBR_ENTRY_BYTES]
    is_table = first[510:512] == b"\x55\xaa" and set(table[::_MBR_ENTRY_BYTES]) <= {0, 0x80}
    if is_table and _MBR_TYPE in table[4::_MBR_ENTRY_BYTES]:
        return True
    for header_at in (block_bytes, disk.seek(0, os.SEEK_END) - block_bytes):
        disk.seek(header_at)
        header = disk.read(_GPT_HEADER_BYTES)
        if header[:8] != _GPT_SIGNATURE:
            continue
        start, count, entry_bytes = struct.unpack_from("<QII", header, 72)
        if count > _MOST_ENTRIES or not _GUID_BYTES <= entry_bytes <= _MOST_ENTRY_BYTES:
            continue
        disk.seek(start * block_bytes)
        entries = disk.read(count * entry_bytes)
        return any(
            entries[at : at + _GUID_BYTES] == _STORED_TYPE
            for at in range(0, len(entries), entry_bytes)
        )
    return False
