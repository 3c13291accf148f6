"""A controller that may hang: commands are waited for only so long, and the run goes on.

Linux keeps whoever sent an admin command in an uninterruptible wait until the drive answers or the
driver resets it, 60 s later by default. A sampler that waits as long loses every other sensor.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection

from wattload.core.errors import PowerError
from wattload.power.nvme.admin import (
    SET_FEATURES,
    AdminCommand,
    AdminDevice,
    Completion,
    NvmeAdmin,
)

LIMIT_S = 2.0
"""Longer than a busy drive takes to gather a log, shorter than a silence that counts as a gap."""

OBEY_LIMIT_S = 10.0
"""Longer than a drive takes to obey; one that hangs at the end must not keep a run's record."""


class PatientDevice:
    """An ``AdminDevice`` whose ``submit`` returns or raises within ``limit_s`` seconds.

    The command itself is not taken back: nothing can. Until it has ended every further command
    fails at once; then the device is as good as before. For reading: whether a Set Features that
    was given up has been obeyed is not known (``when_settled`` tells when it is over). Not for
    several threads at a time.
    """

    def __init__(self, device: AdminDevice, *, limit_s: float = LIMIT_S) -> None:
        self._device = device
        self._limit_s = limit_s
        self._command: AdminCommand | None = None
        self._answer: Completion | BaseException = PowerError("nothing was asked")
        # Bare locks, each released by the other side: a future costs twice the time of a command.
        self._asked, self._answered = threading.Lock(), threading.Lock()
        self._asked.acquire()
        self._answered.acquire()
        self._late: tuple[AdminCommand, float] | None = None
        self._is_setting = False
        self._then: deque[Callable[[], None]] = deque()
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
            PowerError: it could not be sent, or this or an earlier one has not been answered.
        """
        if self._closed:
            raise PowerError(f"{self.name} is closed, so {command.name} was not sent")
        self._refuse_while_late()
        # Late until it is answered: a signal may end the wait too, and the next answer is not its.
        self._late = (command, time.monotonic())
        self._command = command
        self._is_setting = command.opcode == SET_FEATURES
        self._asked.release()
        if not self._answered.acquire(timeout=self._limit_s):
            raise PowerError(f"{self.name} has not answered {command.name} for {self._limit_s:g} s")
        self._late = None
        if isinstance(self._answer, BaseException):
            raise self._answer
        return self._answer

    def close(self) -> None:
        """Give the device back, if it hangs as soon as it answers; safe to call twice."""
        if self._closed:
            return
        self._closed = True
        self._command = None
        if self._asked.locked():  # else the thread has not come to the last command, and won't
            self._asked.release()
        if self._late is None or not self._answered.locked():
            self._worker.join(self._limit_s)

    def postpone(self, step: Callable[[], None]) -> bool:
        """Have ``step`` done when a Set Features under way has ended; false where there is none."""
        if not self._is_setting:
            return False
        self._then.append(step)
        if not self._is_setting:  # it has ended just now, and its thread may have seen no step
            self._do_postponed()
        return True

    def _do_postponed(self) -> None:
        while self._then:
            try:
                step = self._then.popleft()
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
            self._asked.acquire()
            command = self._command
            if command is None:
                break
            try:
                self._answer = self._device.submit(command)
            except BaseException as error:
                self._answer = error
            self._is_setting = False
            self._answered.release()
            self._do_postponed()
        self._is_setting = False
        self._do_postponed()
        self._device.close()
        _OPEN.discard(self)


_OPEN: set[PatientDevice] = set()
"""Every device of this process that has a thread."""


def when_settled(names: Collection[str], step: Callable[[], None]) -> None:
    """Do ``step`` once no Set Features of this process to these controllers is under way.

    At once where there is none, else in the thread of the last one: after one that was given up a
    drive may still change, and who comes next must not take what he reads for settled.
    """
    for device in tuple(_OPEN):
        if device.name in names and device.postpone(lambda: when_settled(names, step)):
            return
    step()


def open_patient(name: str) -> PatientDevice:
    """Open a controller for reading that must not hang its reader; see ``NvmeAdmin``."""
    return PatientDevice(NvmeAdmin(name))


def open_to_obey(name: str) -> PatientDevice:
    """Open a controller whose settings are changed or undone, with the patience that takes."""
    return PatientDevice(NvmeAdmin(name), limit_s=OBEY_LIMIT_S)
