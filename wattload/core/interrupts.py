"""How a command ends: by a signal, and as a rank of MPICH.

A signal is one exception in the main thread, then silence while the command ends. A terminal's
Ctrl-C reaches a rank twice, once by way of its launcher, and users press it again when nothing
seems to happen. What restores a drive or ends child processes must not be cut off by that: after
the first signal, further ones are ignored for ``SILENCE_S``, and for as long as a block of
``ignored`` runs. SIGKILL always works; the sampler then cleans up.

``MPI_Abort`` makes MPICH's launcher kill every rank; what it has not yet read from a rank's stderr
pipe is lost. A rank therefore waits until the launcher has read the error.
"""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Literal

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

SILENCE_S = 10.0
"""Longer than child processes are given to end. A signal after it is obeyed again, because code
of a library may have swallowed the first exception."""

_BREAK = signal.SIGUSR1
"""What ``break_off`` sends: a signal also ends a system call that the main thread waits in."""

_SET_PARENT_DEATH_SIGNAL = 1  # prctl(2), PR_SET_PDEATHSIG

RETRY_S = 0.02
"""Longer than the callbacks that no exception leaves: those of weak references, and finalizers."""


@dataclass(slots=True)
class _State:
    reason: str | None = None
    number: int = signal.SIGINT
    is_pending: bool = False
    is_broken_off: bool = False
    holds: int = 0
    silent_until_s: float = 0.0


_state = _State()


def interruption() -> str | None:
    """Return ``interrupted`` or ``interrupted by SIGTERM`` once a signal came, else ``None``.

    An error that follows is a consequence: libraries turn the exception into others.
    """
    return _state.reason


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise ``KeyboardInterrupt`` for the ending signals while the block runs.

    A signal that this process was started to ignore, as by ``nohup``, stays ignored. After an
    interruption the signals are ignored from the end of the block on: the process is ending.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    global _state  # noqa: PLW0603 - signals belong to the process
    outer, _state = _state, _State()
    heeded = [number for number in ENDING_SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, _interrupt) for number in heeded}
    before[_BREAK] = signal.signal(_BREAK, _break)
    outer_hook = sys.unraisablehook
    sys.unraisablehook = partial(_retry_unraisable, outer_hook)
    try:
        yield
    finally:
        sys.unraisablehook = outer_hook
        for number, handler in before.items():
            signal.signal(number, handler if _state.reason is None else signal.SIG_IGN)
        _state = outer


def break_off() -> None:
    """Raise ``KeyboardInterrupt`` in the main thread, from another one, as a signal would.

    It is raised when code in C returns to Python, and not while signals are held back or where
    they are not heeded. ``interruption`` stays ``None``: the caller has to know why it came.
    """
    main = threading.main_thread().ident
    if main is not None and signal.getsignal(_BREAK) is _break:
        _state.is_broken_off = True
        signal.pthread_kill(main, _BREAK)


def end_with(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel signal this process when ``parent``, which started it, ends for any reason.

    ``execve`` keeps the request. A process that is started by this one does not inherit it.

    Raises:
        SystemExit: the parent has ended already.
    """
    import ctypes

    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, number)
    if os.getppid() != parent:
        raise SystemExit(1)


def hold() -> None:
    """Remember signals until ``release``, which then raises."""
    _state.holds += 1


def release() -> None:
    """End a ``hold``; raises ``KeyboardInterrupt`` if a signal came meanwhile."""
    _state.holds = max(0, _state.holds - 1)
    if _state.is_pending and not _state.holds:
        _raise()


@contextmanager
def held() -> Iterator[None]:
    """Hold signals back while the block runs; one that came is raised at its end."""
    hold()
    try:
        yield
    finally:
        release()


@contextmanager
def ignored() -> Iterator[None]:
    """Ignore signals while the block runs: it ends what a signal or an error has interrupted."""
    hold()
    try:
        yield
    finally:
        _state.holds -= 1
        _state.is_pending = False


@contextmanager
def blocked() -> Iterator[None]:
    """Have the kernel hold signals back, for calls that no signal may interrupt.

    Threads and programs that start meanwhile never get them.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _interrupt(number: int, frame: FrameType | None) -> None:
    name = "" if number == signal.SIGINT else f" by {signal.Signals(number).name}"
    _state.reason = _state.reason or f"interrupted{name}"
    if time.monotonic() < _state.silent_until_s:
        return
    _state.number = number
    _state.is_pending = True
    if not _state.holds:
        _raise()


def _break(number: int, frame: FrameType | None) -> None:
    if _state.is_broken_off:  # else somebody else sent it, who asks for nothing
        _state.number = number
        _state.is_pending = True
        if not _state.holds:
            _raise()


def _retry_unraisable(
    outer_hook: Callable[[sys.UnraisableHookArgs], object], unraisable: sys.UnraisableHookArgs
) -> None:
    """Send a signal again whose exception no code can catch, such as one that came in a callback.

    ``import`` has such a callback for every module, so a signal meets one now and then.
    """
    if not isinstance(unraisable.exc_value, KeyboardInterrupt):
        outer_hook(unraisable)
        return
    _state.silent_until_s = 0.0
    main = threading.main_thread().ident
    retry = threading.Timer(RETRY_S, signal.pthread_kill, (main, _state.number))
    retry.daemon = True
    retry.start()


def _raise() -> None:
    _state.is_pending = False
    _state.silent_until_s = time.monotonic() + SILENCE_S
    raise KeyboardInterrupt(_state.reason)


def _use_defaults_in_child() -> None:
    """Let a forked worker be ended by a signal at once: it has nothing to clean up."""
    for number in ENDING_SIGNALS:
        if signal.getsignal(number) is _interrupt:
            default = number == signal.SIGINT
            signal.signal(number, signal.default_int_handler if default else signal.SIG_DFL)
    if signal.getsignal(_BREAK) is _break:
        signal.signal(_BREAK, signal.SIG_DFL)


os.register_at_fork(after_in_child=_use_defaults_in_child)


SHARED_MEMORY = "/dev/shm/mpich_shm_"

FLUSH_TIMEOUT_S = 2.0

FLUSH_POLL_S = 0.005


def unlink_shared_memory(pid: int | Literal["self"] = "self") -> None:
    """Unlink MPICH's shared memory of a rank's job; call it once every rank has mapped it.

    MPICH unlinks it in ``MPI_Finalize`` alone, so a job that is ended would leave it in memory.
    """
    for line in Path(f"/proc/{pid}/maps").read_text("utf-8", "replace").splitlines():
        if SHARED_MEMORY in line:
            Path(line[line.index(SHARED_MEMORY) :]).unlink(missing_ok=True)


def wait_for_reader() -> None:
    """Return when stderr was read if it is a pipe, or after 2 seconds."""
    sys.stderr.flush()
    try:
        descriptor = sys.stderr.fileno()
    except OSError:  # a stream without a file: there is no reader to wait for
        return
    deadline_s = time.monotonic() + FLUSH_TIMEOUT_S
    while unread_bytes(descriptor) and time.monotonic() < deadline_s:
        time.sleep(FLUSH_POLL_S)


def unread_bytes(descriptor: int) -> int:
    """Return the number of unread bytes in a pipe, from either end; 0 if it is not a pipe."""
    if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        return 0
    count = bytearray(4)
    fcntl.ioctl(descriptor, termios.FIONREAD, count)
    return int.from_bytes(count, sys.byteorder)
