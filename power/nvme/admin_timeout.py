"""Admin commands with a time limit, so that a hung controller does not delay other readings.

Linux keeps the sender of an admin command in an uninterruptible wait until the drive answers or the
driver resets it, by default after 60 s. A sampler that waits for it loses the other sensors.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection

from wattload.core.errors import PowerError
from wattload.power.nvme.admin import SET_FEATURES, AdminCommand, AdminDevice, Completion, NvmeAdmin

LIMIT_S = 2.0
"""Longer than a busy drive needs for a log, and shorter than a gap in the readings."""

CHANGE_LIMIT_S = 10.0
"""Longer than a drive needs for a change. A drive that hangs must not delay a run's record more."""


class DeviceWithTimeout:
    """An ``AdminDevice`` whose ``submit`` returns or raises within ``limit_s`` seconds.

    A command cannot be cancelled. Until it has ended, every further command fails immediately;
    then the device works as before. If a Set Features times out, it is unknown whether the drive
    will execute it; ``when_settled`` waits until it has ended. Not thread-safe.
    """

    def __init__(self, device: AdminDevice, *, limit_s: float = LIMIT_S) -> None:
        self._device = device
        self._limit_s = limit_s
        self._command: AdminCommand | None = None
        self._answer: Completion | BaseException = PowerError("no command was sent")
        # Locks, each released by the other thread: a future would take twice a command's time.
        self._requested, self._answered = threading.Lock(), threading.Lock()
        self._requested.acquire()
        self._answered.acquire()
        self._late: tuple[AdminCommand, float] | None = None
        self._is_setting = False
        self._postponed: deque[Callable[[], None]] = deque()
        self._closed = False
        self._worker = threading.Thread(target=self._work, name=f"{device.name}-admin", daemon=True)
        _OPEN.add(self)
        self._worker.start()

    @property
    def name(self) -> str:
        """The kernel's name, e.g. ``nvme0``."""
        return self._device.name

    def submit(self, command: AdminCommand) -> Completion:
        """Send one command and wait for it, at most ``limit_s``.

        Raises:
            PowerError: it could not be sent, or there is no answer yet to it or an earlier command.
        """
        if self._closed:
            raise PowerError(f"{self.name} is closed, so {command.name} was not sent")
        self._refuse_while_late()
        # Late until answered: a signal may also end the wait, and its answer would come next.
        self._late = (command, time.monotonic())
        self._command = command
        self._is_setting = command.opcode == SET_FEATURES
        self._requested.release()
        if not self._answered.acquire(timeout=self._limit_s):
            raise PowerError(f"{self.name} has not answered {command.name} for {self._limit_s:g} s")
        self._late = None
        if isinstance(self._answer, BaseException):
            raise self._answer
        return self._answer

    def close(self) -> None:
        """Close the device, if it hangs as soon as it answers; safe to call twice."""
        if self._closed:
            return
        self._closed = True
        self._command = None
        if self._requested.locked():  # else the thread is still busy, and will see no command
            self._requested.release()
        if self._late is None or not self._answered.locked():
            self._worker.join(self._limit_s)

    def postpone(self, step: Callable[[], None]) -> bool:
        """Call ``step`` when a running Set Features has ended; return false if none is running."""
        if not self._is_setting:
            return False
        self._postponed.append(step)
        if not self._is_setting:  # it has just ended, and its thread may not have seen the step
            self._run_postponed()
        return True

    def _run_postponed(self) -> None:
        while self._postponed:
            try:
                step = self._postponed.popleft()
            except IndexError:  # the other thread has taken it
                return
            step()

    def _refuse_while_late(self) -> None:
        if self._late is None:
            return
        command, sent_s = self._late
        if not self._answered.acquire(blocking=False):
            raise PowerError(
                f"{self.name} has not answered {command.name} for {time.monotonic() - sent_s:.0f} s"
            )
        self._late = None

    def _work(self) -> None:
        while True:
            self._requested.acquire()
            command = self._command
            if command is None:
                break
            try:
                self._answer = self._device.submit(command)
            except BaseException as error:
                self._answer = error
            self._is_setting = False
            self._answered.release()
            self._run_postponed()
        self._is_setting = False
        self._run_postponed()
        self._device.close()
        _OPEN.discard(self)


_OPEN: set[DeviceWithTimeout] = set()
"""All devices of this process with a running thread."""


def when_settled(names: Collection[str], step: Callable[[], None]) -> None:
    """Call ``step`` when no Set Features of this process to these controllers is running.

    It is called immediately, or in the thread of the last such command. A drive may still change
    after a command that timed out, so its settings are not final before.
    """
    for device in tuple(_OPEN):
        if device.name in names and device.postpone(lambda: when_settled(names, step)):
            return
    step()


def open_with_timeout(name: str) -> DeviceWithTimeout:
    """Open a controller for reading without blocking; see ``NvmeAdmin``."""
    return DeviceWithTimeout(NvmeAdmin(name))


def open_for_changes(name: str) -> DeviceWithTimeout:
    """Open a controller to change or restore its settings, with the longer limit."""
    return DeviceWithTimeout(NvmeAdmin(name), limit_s=CHANGE_LIMIT_S)
