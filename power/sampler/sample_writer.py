"""Writing the samples file: a line that names the columns, then one JSON array per sample.

Each round is written with one ``write()`` and no fsync. So the file survives the death of every
process of the run, and only its last line may be truncated. ``samples`` reads it. Rounds are
written in a thread: a sampler must restore a drive even if a disk or a client hangs.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import re
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

from wattload.core.clock import anchor
from wattload.core.errors import DataError, PowerError
from wattload.core.files import open_folder

if TYPE_CHECKING:
    from wattload.core.power import Channel, Sample

SCHEMA_VERSION = 1
SAMPLE_COLUMNS = ("time_ns", "spread_ns", "source", "device", "channel", "value", "evidence")

_MAX_WAITING_ROUNDS = 3000
"""Rounds that a slow disk or client has not taken yet: five minutes of them at the usual period."""

_CLOSE_LIMIT_S = 10.0
"""How long to wait for the last rounds at the end of a run."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


class SampleLines:
    """Formats samples as lines of the file."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str, Channel], str] = {}

    def of(self, samples: Iterable[Sample]) -> list[str]:
        return [self._line(sample) for sample in samples]

    def _line(self, sample: Sample) -> str:
        key = (sample.source, sample.device, sample.channel)
        names = self._names.get(key)
        if names is None:
            names = ",".join(json.dumps(part) for part in key)
            self._names[key] = names
        value = sample.value
        text = "null" if value is None or not math.isfinite(value) else repr(value)
        return f'[{sample.time_ns},{sample.spread_ns},{names},{text},"{sample.evidence}"]\n'


class RoundTarget(Protocol):
    """Where rounds of samples go; ``write`` returns whether the round arrived."""

    def write(self, lines: Sequence[str]) -> bool: ...

    def close(self) -> None: ...


class SampleFile:
    """Appends rounds of samples to a descriptor that it owns.

    Raises:
        PowerError: the first line can't be written.
    """

    def __init__(self, descriptor: int, *, host: str, period_s: float) -> None:
        self._descriptor = descriptor
        self._size_bytes = 0
        head = {
            "schema_version": SCHEMA_VERSION,
            "host": host,
            "period_s": period_s,
            "clock": anchor().model_dump(),
            "columns": SAMPLE_COLUMNS,
        }
        if not self.write([json.dumps(head, separators=(",", ":")) + "\n"]):
            self.close()
            raise PowerError(
                "the samples file can't be written; is the disk of the runs folder full?"
            )

    @classmethod
    def create(cls, run_folder: Path, *, host: str, period_s: float) -> Self:
        """Create the samples file of a host in a run's folder.

        Raises:
            PowerError: it exists already or can't be created.
        """
        path = run_folder / samples_name(host)
        try:
            with open_folder(run_folder) as folder:
                descriptor = folder.create(path.name, os.O_WRONLY | os.O_APPEND)
        except (OSError, DataError) as error:
            raise PowerError(f"the samples file {path} can't be created: {error}") from error
        return cls(descriptor, host=host, period_s=period_s)

    def write(self, lines: Sequence[str]) -> bool:
        """Append a whole round, or nothing if that fails, as on a full disk."""
        data = "".join(lines).encode()
        try:
            written = os.write(self._descriptor, data)
        except OSError:
            written = 0
        if written == len(data):
            self._size_bytes += written
            return True
        if written:
            # A truncated line in the middle of the file would damage the next one.
            os.ftruncate(self._descriptor, self._size_bytes)
        return False

    def close(self) -> None:
        """Close the file; safe to call twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def samples_name(host: str) -> str:
    """Return the name of a host's samples file in a run's folder."""
    return f"samples-{_UNSAFE.sub('_', host)}.jsonl"


class BackgroundWriter:
    """Passes rounds of samples to a target in a thread, and counts samples written and lost.

    Rounds are lost while too many wait; those that are still waiting at the end count as lost.
    """

    def __init__(self, target: RoundTarget) -> None:
        self._target = target
        self._rounds: queue.Queue[Sequence[str]] = queue.Queue(_MAX_WAITING_ROUNDS)
        self._passed_count = 0
        self._written_count = 0
        self._dropped_count = 0  # by the caller; the thread counts those that it could not write
        self._failed_count = 0
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="samples", daemon=True)
        self._thread.start()

    def write(self, lines: Sequence[str]) -> None:
        """Pass on a round; never waits."""
        self._passed_count += len(lines)
        try:
            self._rounds.put_nowait(lines)
        except queue.Full:
            self._dropped_count += len(lines)

    @property
    def counts(self) -> tuple[int, int]:
        """The samples written or waiting, and those lost."""
        lost_count = self._dropped_count + self._failed_count
        return self._passed_count - lost_count, lost_count

    def close(self) -> tuple[int, int]:
        """Write what waits, for a limited time; return the samples written and lost."""
        self._is_closing.set()
        with contextlib.suppress(queue.Full):
            self._rounds.put_nowait(())  # wakes the thread
        self._thread.join(_CLOSE_LIMIT_S)
        return self._written_count, self._passed_count - self._written_count

    def _run(self) -> None:
        while not (self._is_closing.is_set() and self._rounds.empty()):
            lines = self._rounds.get()
            if not lines:
                continue
            if self._target.write(lines):
                self._written_count += len(lines)
            else:
                self._failed_count += len(lines)
        self._target.close()
