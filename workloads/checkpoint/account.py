"""What one rank counts and times: bytes, windows, stalls and training steps."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from wattload.core.record.check import Check
from wattload.core.workload import RunContext


@dataclass(slots=True)
class Side:
    """One direction on one rank: windows per checkpoint, bytes that moved, CPU seconds.

    A window is start and end in ns on CLOCK_MONOTONIC, which the ranks of one host share.
    ``own_ns`` is what this rank took for its own shard, without waiting for others. ``commit_ns``
    is what it took to commit the checkpoint, where the window does not hold that.
    """

    windows_ns: list[tuple[int, int]] = field(default_factory=list)
    moved_bytes: list[int] = field(default_factory=list)
    own_ns: list[int] = field(default_factory=list)
    commit_ns: list[int] = field(default_factory=list)
    cpu_s: float = 0.0

    def add(self, window_ns: tuple[int, int], moved_bytes: int, own_ns: int, cpu_s: float) -> None:
        """Add one checkpoint whose window holds all of it."""
        self.windows_ns.append(window_ns)
        self.moved_bytes.append(moved_bytes)
        self.own_ns.append(own_ns)
        self.commit_ns.append(0)
        self.cpu_s += cpu_s


@dataclass(frozen=True, slots=True)
class Stall:
    """How long training stood still for one checkpoint: for the drain before it, and its copy.

    ``trained_ns`` are the steps between the checkpoint before it and this one. It is ``None`` where
    there is none before, or where that one was read back in between: its drain had ended by then,
    however long it was, so this stall is shorter than one of training that only goes on.
    """

    wait_ns: int
    snapshot_ns: int
    trained_ns: int | None


@dataclass(frozen=True, slots=True)
class Step:
    """One step of training; ``draining`` says whether it began while bytes drained."""

    duration_ns: int
    draining: bool


@dataclass(slots=True)
class Account:
    """What one rank did on ``host``; ``file_bytes`` are its files' sizes, per checkpoint.

    ``payload_bytes`` counts delivered tensor bytes; ``bad_blocks`` and ``bad_files`` what was wrong
    with them. ``memory_bytes`` is the host's. ``durable_ns`` is the time from the start of a drain
    to the end of its commit, whatever lay between, on the slowest target's leader. A checkpoint is
    ``file_count`` files of this rank; ``synced_counts`` is how many of them its store fsynced, per
    checkpoint.
    """

    host: str
    memory_bytes: int = 0
    file_count: int = 0
    synced_counts: list[int] = field(default_factory=list)
    write: Side = field(default_factory=Side)
    read: Side = field(default_factory=Side)
    durable_ns: list[int] = field(default_factory=list)
    stalls: list[Stall] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    file_bytes: list[int] = field(default_factory=list)
    payload_bytes: int = 0
    bad_blocks: int = 0
    bad_files: list[str] = field(default_factory=list)
    cold: list[Check] = field(default_factory=list)


class StoppedError(Exception):
    """The run has ended, and with it a save that was under way on a thread."""


class Count:
    """Tells phase and progress of bytes that moved, and keeps their sum.

    Once ``stopped`` is set it ends whoever moves bytes by ``StoppedError``.
    """

    def __init__(
        self,
        context: RunContext,
        stopped: threading.Event | None = None,
        *,
        tell: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.moved_bytes = 0
        self.tell = tell
        self._advance = context.progress.advance
        self._stopped = stopped
        self._lock = threading.Lock()

    def __call__(self, moved_bytes: int) -> None:
        """Count bytes that have just moved; on several threads at once."""
        if self._stopped is not None and self._stopped.is_set():
            raise StoppedError
        with self._lock:
            self.moved_bytes += moved_bytes
        self.tell(moved_bytes)
        self._advance(moved_bytes)
