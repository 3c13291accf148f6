from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from wattload.core.errors import PowerError
from wattload.power.nvme.admin import (
    AdminCommand,
    Completion,
    DeviceWithTimeout,
    open_with_timeout,
    when_settled,
)
from wattload.power.nvme.features import get_command

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
