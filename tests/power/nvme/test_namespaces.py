from __future__ import annotations

import struct
from dataclasses import dataclass, field

import pytest

from wattload.core.errors import PowerError
from wattload.power.nvme.admin import AdminCommand, Completion
from wattload.power.nvme.identify import IDENTIFY_BYTES, decode_namespace
from wattload.power.nvme.namespaces import (
    FORMAT_NVM,
    format_namespace,
    read_allocated_namespaces,
    read_controller_count,
)

INVALID_FIELD = 0x4002


@dataclass
class Drive:
    """A drive with these namespaces, FNA and CMIC; it keeps the commands that change it."""

    allocated: tuple[int, ...] | None = (1,)
    attributes: int = 0
    multiple: int = 0
    controllers: int | None = 1
    name: str = "nvme0"
    sent: list[AdminCommand] = field(default_factory=list)

    def submit(self, command: AdminCommand) -> Completion:
        data = bytearray(command.data_bytes)
        status = 0
        if command.opcode == FORMAT_NVM:
            self.sent.append(command)
        elif command.cdw10 == 0x10:
            listed = [each for each in self.allocated or () if each > command.namespace][:1024]
            data[: 4 * len(listed)] = struct.pack(f"<{len(listed)}I", *listed)
            status = INVALID_FIELD if self.allocated is None else 0
        elif command.cdw10 == 0x13:
            data[:2] = struct.pack("<H", self.controllers or 0)
            status = INVALID_FIELD if self.controllers is None else 0
        elif command.cdw10 == 0x01:
            data[76], data[524] = self.multiple, self.attributes
        else:
            data[:] = namespace()
        return Completion(status=status, result=0, data=bytes(data))

    def close(self) -> None:
        pass


def namespace(*, flbas: int = 0, protection: int = 0, shared: int = 0, resv: int = 0) -> bytes:
    data = bytearray(IDENTIFY_BYTES)
    data[130:194:4] = bytes([9]) * 16  # blocks of 512 bytes in every format
    data[26], data[29], data[30], data[31] = flbas, protection, shared, resv
    return bytes(data)


def test_a_format_keeps_the_format_and_erases() -> None:
    drive = Drive()
    format_namespace(drive, 1)
    (command,) = drive.sent
    assert command.namespace == 1
    assert command.cdw10 == 1 << 9
    assert command.timeout_ms > 3600_000


def test_the_current_format_is_that_of_identify_namespace() -> None:
    use = decode_namespace(namespace(flbas=0x71, protection=0x0A, shared=1, resv=1))
    assert use.format_dword == 0x11 | 2 << 5 | 1 << 8 | 3 << 12
    assert use.is_shareable
    assert use.has_reservations


@pytest.mark.parametrize("attributes", [1, 2, 3, 7])
def test_a_format_that_would_reach_another_namespace_is_not_sent(attributes: int) -> None:
    drive = Drive(allocated=(1, 2), attributes=attributes)
    with pytest.raises(PowerError, match="1 more namespaces, whose data a format would erase too"):
        format_namespace(drive, 1)
    assert not drive.sent


@pytest.mark.parametrize(("allocated", "attributes"), [((1,), 3), ((1, 2), 0), ((1, 2), 4)])
def test_a_format_that_reaches_one_namespace_is_sent(
    allocated: tuple[int, ...], attributes: int
) -> None:
    drive = Drive(allocated=allocated, attributes=attributes)
    format_namespace(drive, 1)
    assert len(drive.sent) == 1


def test_namespaces_that_can_not_be_listed_refuse() -> None:
    drive = Drive(allocated=None)
    with pytest.raises(PowerError, match="refused Identify Allocated Namespaces"):
        format_namespace(drive, 1)
    assert not drive.sent


@pytest.mark.parametrize("number", [0, 0xFFFFFFFF])
def test_all_namespaces_are_never_formatted(number: int) -> None:
    drive = Drive()
    with pytest.raises(PowerError, match="a format needs one namespace"):
        format_namespace(drive, number)
    assert not drive.sent


def test_a_list_of_more_than_a_page_is_read_whole() -> None:
    many = tuple(range(1, 3001))
    assert read_allocated_namespaces(Drive(allocated=many)) == many


@pytest.mark.parametrize(
    ("controllers", "multiple", "count"), [(1, 0, 1), (2, 2, 2), (None, 0, 1), (None, 2, None)]
)
def test_the_controllers_of_the_subsystem_are_counted(
    controllers: int | None, multiple: int, count: int | None
) -> None:
    drive = Drive(controllers=controllers, multiple=multiple)
    assert read_controller_count(drive) == count
