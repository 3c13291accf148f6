"""The admin queue: opening, errors, command layout; and time limits for drives that hang."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.model_host.drive import FIVE_STATES, Model, ModelDrive, store
from wattload.core.errors import PowerError, PowerPermissionError
from wattload.power.nvme.admin import (
    IOCTL_ADMIN_CMD,
    AdminCommand,
    Completion,
    DeviceWithTimeout,
    NvmeAdmin,
    describe_status,
    fetch,
    open_with_timeout,
    when_settled,
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


COMMAND = get_command(0x02)
CHANGE = AdminCommand(name="x", opcode=0x09)
SOON_S = 0.05
NEVER_S = 60.0


class Slow:
    """A device whose commands wait for ``gate``."""

    name = "nvme0"

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.entered = threading.Event()
        self.closed = threading.Event()
        self.sent = 0

    def submit(self, command: AdminCommand) -> Completion:
        self.sent += 1
        self.entered.set()
        assert self.gate.wait(NEVER_S)
        if command.opcode != 0x0A:
            raise PowerError("refused")
        return Completion(status=0, result=self.sent, data=b"")

    def close(self) -> None:
        self.closed.set()


def when(ready: Callable[[], bool]) -> None:
    """Wait until another thread has come so far."""
    pause = threading.Event()
    for _ in range(2000):
        if ready():
            return
        pause.wait(0.005)
    raise AssertionError("it did not come so far")


def serves(device: DeviceWithTimeout) -> bool:
    """Whether it takes commands again, and answers with the second's own answer."""
    with suppress(PowerError):
        return device.submit(COMMAND).result == 2
    return False


def test_answer_in_time_is_the_device_s_own() -> None:
    slow = Slow()
    slow.gate.set()
    device = DeviceWithTimeout(slow, limit_s=NEVER_S)
    assert device.name == "nvme0"
    assert [device.submit(COMMAND).result for _ in range(3)] == [1, 2, 3]
    device.close()
    assert slow.closed.is_set()


def test_refusal_is_the_device_s_own() -> None:
    slow = Slow()
    slow.gate.set()
    device = DeviceWithTimeout(slow, limit_s=NEVER_S)
    with pytest.raises(PowerError, match=r"^refused$"):
        device.submit(AdminCommand(name="x", opcode=0x09))
    assert device.submit(COMMAND).result == 2
    device.close()


def test_hung_command_is_given_up_and_no_other_is_sent_behind_it() -> None:
    slow = Slow()
    device = DeviceWithTimeout(slow, limit_s=SOON_S)
    with pytest.raises(PowerError, match=r"has not answered Get Features 02h \(current\) for"):
        device.submit(COMMAND)
    for _ in range(3):
        with pytest.raises(PowerError, match="has not answered"):
            device.submit(COMMAND)
    assert slow.sent == 1
    slow.gate.set()
    device.close()


def test_device_serves_again_after_the_late_answer() -> None:
    slow = Slow()
    device = DeviceWithTimeout(slow, limit_s=SOON_S)
    with pytest.raises(PowerError, match="has not answered"):
        device.submit(COMMAND)
    slow.gate.set()
    when(lambda: serves(device))
    device.close()
    assert slow.closed.is_set()


class StopError(Exception):
    """What a signal's handler raises."""


def test_wait_that_a_signal_ends_leaves_no_answer_for_the_next_command() -> None:
    stopped = threading.Event()

    def stop(*_: object) -> None:
        if not stopped.is_set():
            stopped.set()
            raise StopError

    slow = Slow()
    device = DeviceWithTimeout(slow, limit_s=NEVER_S)
    former = signal.signal(signal.SIGUSR1, stop)
    main = threading.get_ident()

    def interrupt() -> None:
        assert slow.entered.wait(NEVER_S)
        # A signal just before the wait begins ends nothing: it is sent until one does.
        while not stopped.wait(0.01):
            signal.pthread_kill(main, signal.SIGUSR1)

    helper = threading.Thread(target=interrupt)
    try:
        helper.start()
        with pytest.raises(StopError):
            device.submit(COMMAND)
    finally:
        helper.join()
        signal.signal(signal.SIGUSR1, former)
    with pytest.raises(PowerError, match="has not answered"):
        device.submit(COMMAND)
    assert slow.sent == 1
    slow.gate.set()
    when(lambda: serves(device))
    device.close()
    assert slow.closed.is_set()


def test_close_does_not_wait_for_a_hung_command() -> None:
    slow = Slow()
    device = DeviceWithTimeout(slow, limit_s=SOON_S)
    with pytest.raises(PowerError, match="has not answered"):
        device.submit(COMMAND)
    device.close()
    device.close()
    assert not slow.closed.is_set()
    slow.gate.set()
    assert slow.closed.wait(NEVER_S)


def test_step_after_changes_is_done_at_once_where_none_is_under_way() -> None:
    slow = Slow()
    device = DeviceWithTimeout(slow, limit_s=SOON_S)
    with pytest.raises(PowerError, match="has not answered"):
        device.submit(COMMAND)  # a read changes nothing
    done: list[str] = []
    when_settled(["nvme0"], lambda: done.append("now"))
    assert done == ["now"]
    slow.gate.set()
    device.close()


def test_step_after_changes_waits_for_every_device_of_these_names() -> None:
    slows = [Slow(), Slow()]
    devices = [DeviceWithTimeout(slow, limit_s=SOON_S) for slow in slows]
    for device in devices:
        with pytest.raises(PowerError, match="has not answered"):
            device.submit(CHANGE)
        device.close()
    done = threading.Event()
    elsewhere: list[str] = []
    when_settled(["nvme0", "nvme7"], done.set)
    when_settled(["nvme7"], lambda: elsewhere.append("now"))
    assert elsewhere == ["now"]
    for slow in slows:
        assert not done.is_set()
        slow.gate.set()
        assert slow.closed.wait(NEVER_S)
    assert done.wait(NEVER_S)


def test_closed_device_sends_nothing() -> None:
    slow = Slow()
    slow.gate.set()
    device = DeviceWithTimeout(slow, limit_s=NEVER_S)
    device.close()
    with pytest.raises(PowerError, match="is closed"):
        device.submit(COMMAND)
    assert slow.sent == 0


def test_only_controllers_are_opened() -> None:
    with pytest.raises(PowerError, match="not an NVMe controller"):
        open_with_timeout("../mem")
