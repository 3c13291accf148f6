"""The run record and its file: read, write, publish the schema.

History of the format:

* 1 (2026-11): first version.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from wattload.core.errors import RecordError
from wattload.core.io import DataPath
from wattload.core.power import Scope
from wattload.core.record.base import Frozen
from wattload.core.record.check import Check
from wattload.core.record.controller import ControllerRecord
from wattload.core.record.energy import PowerSection
from wattload.core.record.host import HostRecord, RankRecord, SoftwareFacts
from wattload.core.record.latency import Latency
from wattload.core.record.metric import Metric
from wattload.core.record.phase import IoCounter, PhaseSpan, PhaseWindow, Total, TraceFile
from wattload.core.record.target import TargetRecord

SCHEMA_VERSION = 1
RECORD_FILE = "record.json"

Status = Literal["complete", "failed", "aborted"]


class Comparison(Frozen):
    """Where a run stands in an experiment of several."""

    session_id: str
    arm: str
    block: int
    order: int


class DataRecord(Frozen):
    """The data a run worked on. ``folder`` is masked by ``wattload report --redact``."""

    key: str
    folder: str
    file_count: int
    data_bytes: int
    reused: bool
    parameters: Mapping[str, Any]


class WorkloadSection(Frozen):
    """What was run, and what it says of itself. ``remarks`` are sentences the page must print."""

    name: str
    loader: str
    scale: str
    accelerator: str
    rank_count: int
    queue_depth_asked: int | None = None
    block_bytes_asked: int | None = None
    paths: tuple[DataPath, ...] = ()
    details: Mapping[str, Any] = Field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    data: DataRecord | None = None


class RunRecord(Frozen):
    """One run, in SI base units. Missing is ``None`` with a reason, never zero."""

    schema_version: Literal[1] = 1
    run_id: str
    status: Status
    status_reason: str
    label: str
    started_utc: str
    finished_utc: str | None
    command: tuple[str, ...]
    config: Mapping[str, Any]
    comparison: Comparison
    software: SoftwareFacts
    workload: WorkloadSection
    hosts: tuple[HostRecord, ...]
    ranks: tuple[RankRecord, ...]
    targets: tuple[TargetRecord, ...]
    controllers: tuple[ControllerRecord, ...]
    spans: tuple[PhaseSpan, ...]
    windows: tuple[PhaseWindow, ...]
    metrics: tuple[Metric, ...]
    counters: tuple[IoCounter, ...]
    totals: tuple[Total, ...]
    power: PowerSection
    checks: tuple[Check, ...]
    limits: tuple[str, ...]
    """What could not be measured and why, a sentence each; the page opens with them."""
    traces: tuple[TraceFile, ...]
    latencies: tuple[Latency, ...] = ()
    """By phase, kind and size of operation, over all ranks; ``()`` where no loader took any."""

    def metric(self, name: str) -> Metric | None:
        """Return the metric of that name, or ``None``."""
        return next((metric for metric in self.metrics if metric.name == name), None)

    def unread_drives(self, phase: str) -> Sequence[str]:
        """Return the serials of the targets' drives that no source stands for in a timed phase.

        A drive belongs to the phase if its host took part in it.
        """
        hosts = {window.host for window in self.timed_windows() if window.name == phase}
        drives = {(each.facts.host, each.facts.serial) for each in self.controllers}
        for target in self.targets:
            drives |= {(target.facts.host, serial) for serial in target.facts.controllers}
        read = {
            (energy.host, energy.device)
            for energy in self.power.energy
            if energy.phase == phase and energy.chosen and energy.scope is Scope.DRIVE
        }
        return sorted({serial for host, serial in drives - read if host in hosts})

    def timed_windows(self) -> Sequence[PhaseWindow]:
        """Return the windows that enter metrics and energy."""
        return [window for window in self.windows if window.timed]


def write_record(record: RunRecord, folder: Path) -> Path:
    """Write ``record.json`` whole or not at all, fsynced; returns its path."""
    path = folder / RECORD_FILE
    temporary = folder / (RECORD_FILE + ".tmp")
    temporary.unlink(missing_ok=True)
    # "x": whatever somebody else puts there, a link or a pipe, is not written to.
    with temporary.open("x", encoding="utf-8") as file:
        file.write(record.model_dump_json(indent=1))
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return path


def read_record(path: Path) -> RunRecord:
    """Return the record in ``path`` (a run folder, or its ``record.json``).

    Raises:
        RecordError: the file is missing, cut short, no record, or of another schema version.
    """
    file = path / RECORD_FILE if path.is_dir() else path
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise RecordError(
            f"{path} holds no {RECORD_FILE}; name a run folder such as runs/*"
        ) from error
    except (OSError, ValueError) as error:
        raise RecordError(f"{file} can't be read as a record: {error}") from error
    return decode_record(text, file)


def decode_record(text: str, file: Path) -> RunRecord:
    """Return the record in the text of a file; raises ``RecordError`` that names the file."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordError(
            f"{file} can't be read as a record (cut short or no JSON): {error}"
        ) from error
    version = document.get("schema_version") if isinstance(document, dict) else None
    if version != SCHEMA_VERSION:
        raise RecordError(
            f"{file} has schema version {version!r}; this wattload reads version {SCHEMA_VERSION}"
        )
    try:
        return RunRecord.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise RecordError(f"{file} is no valid record: {place}: {first['msg']}") from error
