"""Reading the samples file while a run is under way and after it; ``sample_writer`` writes it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic_core import from_json

from wattload.core.errors import RecordError
from wattload.core.power import EVIDENCE_RANK, Channel, Evidence, Sample, SourceFacts
from wattload.core.units import KIB, NS_PER_S
from wattload.power.sampler.sample_writer import SAMPLE_COLUMNS, SCHEMA_VERSION

TAIL_BYTES = 16 * KIB


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
    for path in sorted(folder.glob("samples-*.jsonl")):
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


FRESH_S, FRESH_PERIODS = 5.0, 3.0
"""Older readings, and those from before so many periods of a slow sensor, are not current."""


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
            sources: the sources that measure drives; of those of one drive, the best is shown.
        """
        self._find = find
        self._path: Path | None = None
        best_last = sorted(sources, key=lambda facts: -EVIDENCE_RANK[facts.evidence])
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
