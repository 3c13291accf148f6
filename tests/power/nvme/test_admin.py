from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.model_host.drive import FIVE_STATES, Model, ModelDrive, store
from wattload.core.errors import PowerError, PowerPermissionError
from wattload.power.nvme.admin import (
    IOCTL_ADMIN_CMD,
    AdminCommand,
    Completion,
    NvmeAdmin,
    describe_status,
    fetch,
)
from wattload.power.nvme.features import get_command


def test_ioctl_number_is_that_of_a_72_byte_read_write_command() -> None:
    read_write, size, kind, number = 3, 72, ord("N"), 0x41
    assert read_write << 30 | size << 16 | kind << 8 | number == IOCTL_ADMIN_CMD


@pytest.mark.parametrize("name", ["", "vda", "nvme0n1", "../nvme0", "nvme", "nvme0\n", "nvme٣"])
def test_names_that_are_no_controller_are_refused(name: str) -> None:
    with pytest.raises(PowerError, match="not an NVMe controller"):
        NvmeAdmin(name)


def test_missing_controller_says_what_lists_them(tmp_path: Path) -> None:
    with pytest.raises(PowerError, match="wattload devices"):
        NvmeAdmin("nvme9", tmp_path)


def test_what_is_no_controller_is_named(tmp_path: Path) -> None:
    (tmp_path / "nvme0").write_bytes(b"")
    device = NvmeAdmin("nvme0", tmp_path)
    with pytest.raises(PowerError, match="nvme0 is not an NVMe controller"):
        device.submit(get_command(0x02))
    device.close()


def test_command_that_a_reset_cancelled_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cancelled(*_: object) -> int:
        raise InterruptedError(errno.EINTR, "Interrupted system call")

    (tmp_path / "nvme0").write_bytes(b"")
    device = NvmeAdmin("nvme0", tmp_path)
    monkeypatch.setattr("fcntl.ioctl", cancelled)
    with pytest.raises(PowerError, match=r"nvme0 was reset during Get Features 02h"):
        device.submit(get_command(0x02))
    device.close()


def test_closed_device_sends_nothing(tmp_path: Path) -> None:
    (tmp_path / "nvme0").write_bytes(b"")
    device = NvmeAdmin("nvme0", tmp_path)
    device.close()
    device.close()
    with pytest.raises(PowerError, match="is closed"):
        device.submit(get_command(0x02))


def test_device_of_another_user_says_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(
        PowerPermissionError, match=rf"can't be opened by user {os.geteuid()}.*udev rule"
    ):
        NvmeAdmin("nvme0", tmp_path)


def test_refusal_spells_out_the_status(tmp_path: Path) -> None:
    store(tmp_path / "nvme0.json", Model(states=FIVE_STATES))
    device = ModelDrive(tmp_path, "nvme0")
    with pytest.raises(PowerError, match=r"nvme0 refused .* Invalid Field in Command .*0x4002"):
        fetch(device, get_command(0x0C))


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (0x410E, "Feature Not Changeable (NVMe status 0x410E)"),
        (0x2002, "Invalid Field in Command (NVMe status 0x2002)"),
        (0x0001, "Invalid Command Opcode (NVMe status 0x0001)"),
        (0x47C1, "status code type 7, code C1h (NVMe status 0x47C1)"),
    ],
)
def test_status_is_named_without_more_and_do_not_retry(status: int, text: str) -> None:
    assert describe_status(status) == text
    assert Completion(status=status, result=0, data=b"").code == status & 0x7FF


def test_command_is_72_bytes_in_the_kernel_s_order() -> None:
    from wattload.power.nvme.admin import _pack

    block = _pack(
        AdminCommand(
            name="x", opcode=0x0A, namespace=1, cdw10=10, cdw11=11, cdw12=12, cdw13=13, cdw14=14,
            data_bytes=256,
        ),
        0x1122334455667788,
    )  # fmt: skip
    assert len(block) == 72
    assert block[0] == 0x0A
    assert block[4:8] == b"\x01\0\0\0"
    assert block[24:32] == bytes.fromhex("8877665544332211")
    assert block[36:40] == b"\0\x01\0\0"
    assert [block[at] for at in (40, 44, 48, 52, 56)] == [10, 11, 12, 13, 14]
    assert block[60:72] == bytes(12)
