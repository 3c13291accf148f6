"""The samples file: a line that names the columns, then one JSON array per sample.

Each round is written with one ``write()`` and no fsync. So the file survives the death of every
process of the run, and only its last line may be truncated. Rounds are written in a thread: a
sampler must restore a drive even if a disk or a client hangs. The run reads the file while it is
under way and after it.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from pydantic_core import from_json

from wattload.core.clock import anchor
from wattload.core.errors import DataError, PowerError, RecordError
from wattload.core.files import open_folder
from wattload.core.power import EVIDENCE_RANK, Channel, Evidence, Sample, SourceFacts
from wattload.core.units import KIB, NS_PER_S

SAMPLES_PATTERN = "samples-*.jsonl"
"""A host's samples in a run's folder."""

SCHEMA_VERSION = 1
SAMPLE_COLUMNS = ("time_ns", "spread_ns", "source", "device", "channel", "value", "evidence")

_MAX_WAITING_ROUNDS = 3000
"""Rounds that a slow disk or client has not taken yet: five minutes of them at the usual period."""

_CLOSE_LIMIT_S = 10.0
"""How long to wait for the last rounds at the end of a run."""

TAIL_BYTES = 16 * KIB
FRESH_S, FRESH_PERIODS = 5.0, 3.0
"""Older readings, and those from before so many periods of a slow sensor, are not current."""

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
    return SAMPLES_PATTERN.replace("*", in_file_name(host))


def in_file_name(host: str) -> str:
    """Return a host's name as a part of the name of a file."""
    return _UNSAFE.sub("_", host)


class BackgroundWriter:
    """Passes rounds of samples to a target in a thread, and counts samples written and lost.

    Rounds are lost while too many wait; those that are still waiting at the end count as lost.
    """

    def __init__(self, target: RoundTarget) -> None:
        self._target = target
        self._rounds: queue.Queue[Sequence[str]] = queue.Queue(_MAX_WAITING_ROUNDS)
        self._passed_count = 0
        self._written_count = 0
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="samples", daemon=True)
        self._thread.start()

    def write(self, lines: Sequence[str]) -> None:
        """Pass on a round; never waits."""
        self._passed_count += len(lines)
        with contextlib.suppress(queue.Full):
            self._rounds.put_nowait(lines)

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
            if lines and self._target.write(lines):
                self._written_count += len(lines)
        self._target.close()


def read_samples(path: Path, *, since_ns: int = 0) -> Iterator[Sample]:
    """Yield the samples of a file in the order they were taken, without a truncated last line.

    Samples before ``since_ns`` are skipped, at a tenth of the cost.

    Raises:
        RecordError: the file is missing, has another schema, or is damaged before its last line.
    """
    try:
        with path.open(encoding="utf-8") as file:
            yield from _decoded(path, file, since_ns)
    except OSError as error:
        raise RecordError(f"{path} can't be read: {error.strerror}") from error


def last_samples(path: Path) -> list[Sample]:
    """Return the samples in the last 16 KiB of a file; empty if it can't be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            lines = file.read().splitlines(keepends=True)[1:]
        return [_sample(json.loads(line)) for line in lines if line.endswith(b"\n")]
    except (OSError, ValueError, TypeError, RecursionError):
        return []


def samples_of_host(folder: Path, host: str) -> Path | None:
    """Return the samples file of ``host`` in a run's folder, ``None`` if there is none."""
    for path in sorted(folder.glob(SAMPLES_PATTERN)):
        with path.open(encoding="utf-8") as file:
            head = file.readline()
        if head.endswith("\n") and from_json(head)["host"] == host:
            return path
    return None


def _decoded(path: Path, lines: Iterable[str], since_ns: int) -> Iterator[Sample]:
    for number, line in enumerate(lines, start=1):
        if not line.endswith("\n"):
            return
        try:
            if number > 1 and since_ns and int(line[1 : line.index(",")]) < since_ns:
                continue
            row = from_json(line)
            if number == 1:
                _check_head(path, row)
                continue
            yield _sample(row)
        except (ValueError, TypeError, KeyError) as error:
            if isinstance(error, RecordError):
                raise
            raise RecordError(f"{path}, line {number}: not a sample: {error}") from error


def _check_head(path: Path, head: dict[str, object]) -> None:
    if head["schema_version"] != SCHEMA_VERSION or head["columns"] != list(SAMPLE_COLUMNS):
        raise RecordError(
            f"{path} has schema version {head['schema_version']!r}; this wattload reads "
            f"version {SCHEMA_VERSION}"
        )


def _sample(row: list[object]) -> Sample:
    time_ns, spread_ns, source, device, channel, value, evidence = row
    if not isinstance(time_ns, int) or not isinstance(spread_ns, int):
        raise TypeError("time_ns and spread_ns must be whole numbers")
    if value is not None and not isinstance(value, int | float):
        raise TypeError("value must be a number or null")
    return Sample(
        time_ns=time_ns,
        spread_ns=spread_ns,
        source=str(source),
        device=str(device),
        channel=Channel(str(channel)),
        value=value,
        evidence=Evidence(str(evidence)),
    )


@dataclass(frozen=True, slots=True)
class Reading:
    """The current power of all drives, and the highest temperature; ``None`` if unknown."""

    power_w: float | None
    temperature_k: float | None


class LatestReadings:
    """Reads the power of drives while a run is under way; the sampler writes the samples."""

    def __init__(self, find: Callable[[], Path | None], sources: Sequence[SourceFacts]) -> None:
        """Prepare to read.

        Args:
            find: returns the samples file, ``None`` before the sampler has created it.
            sources: the sources that measure drives; of those of one drive, the best is shown, and
                of equal ones one of power: a counter of a drive's life stands still for minutes.
        """
        self._find = find
        self._path: Path | None = None
        best_last = sorted(sources, key=_best_last)
        self._sources = {facts.device: facts for facts in best_last}

    def read(self) -> Reading:
        """Return the current readings; a file that can't be read has none."""
        self._path = self._path or self._find()
        samples = last_samples(self._path) if self._path is not None else []
        watts = [_power_w(facts, _current(facts, samples)) for facts in self._sources.values()]
        known = [each for each in watts if each is not None]
        kelvins = {
            each.device: each.value
            for facts in self._sources.values()
            for each in _current(facts, samples)
            if each.channel is Channel.TEMPERATURE_K and each.value is not None
        }
        is_whole = bool(known) and len(known) == len(watts)
        return Reading(sum(known) if is_whole else None, max(kelvins.values(), default=None))


def _best_last(facts: SourceFacts) -> tuple[int, bool]:
    return -EVIDENCE_RANK[facts.evidence], facts.figure_channel is Channel.POWER_W


def _current(facts: SourceFacts, samples: Sequence[Sample]) -> list[Sample]:
    fresh_s = max(FRESH_S, FRESH_PERIODS * facts.period_s)
    since_ns = time.monotonic_ns() - round(fresh_s * NS_PER_S)
    return [each for each in samples if each.device == facts.device and each.time_ns >= since_ns]


def _power_w(facts: SourceFacts, samples: Sequence[Sample]) -> float | None:
    """Return the last power of a source; of an energy counter, that over the last seconds."""
    own = [
        (each.time_ns, each.value)
        for each in samples
        if (each.source, each.channel) == (facts.name, facts.figure_channel)
        if each.value is not None
    ]
    if not own:
        return None
    (first_ns, first), (last_ns, last) = own[0], own[-1]
    if facts.figure_channel is Channel.POWER_W:
        return last
    return (last - first) * NS_PER_S / (last_ns - first_ns) if last_ns > first_ns else None
