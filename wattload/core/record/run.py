"""The run record and its file: read, write, publish the schema."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError
from pydantic_core import from_json, to_json

from wattload.core.errors import RecordError
from wattload.core.io import DataPath
from wattload.core.power import Scope
from wattload.core.record.base import Frozen, Observed
from wattload.core.record.check import Check
from wattload.core.record.controller import ControllerRecord
from wattload.core.record.energy import PowerSection
from wattload.core.record.host import HostRecord, RankRecord, SoftwareFacts
from wattload.core.record.latency import Latency
from wattload.core.record.metric import Metric
from wattload.core.record.phase import IoCounter, PhaseSpan, PhaseWindow, Total, TraceFile
from wattload.core.record.seal import BLANK, SealState, seal_of, seal_state
from wattload.core.record.target import TargetRecord
from wattload.core.record.versions import SEALED_SINCE, migrate

RECORD_FILE = "record.json"
WARM_UP_BLOCK = -1
"""The block of a warm-up; see ``Comparison``."""

Status = Literal["complete", "failed", "aborted"]
Interleave = Literal["none", "abba", "aa"]


class StartTemperature(Observed):
    """How warm a drive was when a run began, and when the session's first compared run on it did.

    Both are whole kelvins, as drives tell them.
    """

    host: str
    serial: str
    temperature_k: int | None
    reference_k: int | None


class RunStart(Frozen):
    """How a run of an interleaved session waited for its drives to be as warm as at the first.

    ``waited_s`` is how long, at most about ``limit_s``; a run may begin no more than ``allowed_k``
    off. ``drives`` is empty where no NVMe controller lies under the target.
    """

    waited_s: float = Field(ge=0)
    limit_s: float = Field(ge=0)
    allowed_k: float = Field(gt=0)
    drives: tuple[StartTemperature, ...] = ()


class Comparison(Frozen):
    """Where a run stands in an experiment of several.

    ``session_id`` is one command's, and stays when that command goes on after an interruption.
    ``arm`` is what is compared: the run's label. Where ``interleave`` is ``aa`` all runs have one
    label, and the arm is that label with ``-1`` or ``-2`` behind it.

    ``interleave`` says how runs take turns. With ``abba`` and ``aa`` runs of equal ``session_id``
    and ``block`` are a pair: one run of each arm, alike in every other setting, made one after the
    other. ``block`` counts pairs from 0 over the whole session, so that no two points of a sweep
    share one; the arm that leads in even blocks follows in odd ones. With ``none`` it is the number
    of the repetition, which many runs share: no pair.

    A run that failed, was cut off or failed a check stays in its block beside the run that took
    its place: pairs are made of valid runs, and of an arm's valid runs in one block the one that
    started last counts.
    A ``warm_up`` comes before the runs of its point, has ``block`` -1, and is never compared.

    ``order`` is the place in the session's running order, from 0, warm-ups included; a run that is
    made again keeps its place. ``pair_gap_s`` is the time from the end of the pair's first run to
    the start of its second, by the wall clock; ``None`` in the first. ``start``, and ``command``,
    the session's as it was given, are told of interleaved sessions alone.
    """

    session_id: str
    arm: str
    block: int
    order: int
    interleave: Interleave = "none"
    warm_up: bool = False
    pair_gap_s: float | None = None
    start: RunStart | None = None
    command: tuple[str, ...] = ()


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

    schema_version: Literal[2] = 2
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
    seal: str | None = None
    """SHA-256 of the file without the line of this field, set as it is written; see ``seal.py``."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecord:
    """A record as it lies on disk: what its seal says, its version then, its file's SHA-256."""

    record: RunRecord
    seal: SealState
    schema_version: int
    sha256: str


def write_record(record: RunRecord, folder: Path) -> Path:
    """Write ``record.json``, sealed, whole or not at all, fsynced; returns its path."""
    path = folder / RECORD_FILE
    temporary = folder / (RECORD_FILE + ".tmp")
    temporary.unlink(missing_ok=True)
    # "x": whatever somebody else puts there, a link or a pipe, is not written to.
    with temporary.open("xb") as file:
        file.write(_sealed(record))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return path


def _sealed(record: RunRecord) -> bytes:
    """Return the file of a record, its seal in the last line but one."""
    blank = _laid_out(record.model_copy(update={"seal": BLANK}))
    return _laid_out(record.model_copy(update={"seal": seal_of(blank)}))


def _laid_out(record: RunRecord) -> bytes:
    return record.model_dump_json(indent=1).encode() + b"\n"


def read_record(path: Path) -> RunRecord:
    """Return the record in ``path`` (a run folder, or its ``record.json``).

    Raises:
        RecordError: the file is missing, cut short, no record, or of a newer schema version.
    """
    return read_stored(path).record


def read_stored(path: Path) -> StoredRecord:
    """Return the record in ``path`` and what its file says of itself; raises as ``read_record``."""
    file = path / RECORD_FILE if path.is_dir() else path
    try:
        content = file.read_bytes()
    except FileNotFoundError as error:
        raise RecordError(
            f"{file} is a link to {file.readlink()}, which does not exist"
            if file.is_symlink()
            else f"{path} holds no {RECORD_FILE}; name a run folder such as runs/*"
        ) from error
    except OSError as error:
        raise RecordError(f"{file} can't be read as a record: {error}") from error
    document = _parsed(content, file)
    record = _validated(document, file)
    version = int(document["schema_version"])
    return StoredRecord(
        record=record,
        seal=seal_state(content, record.seal, sealed=version >= SEALED_SINCE),
        schema_version=version,
        sha256=hashlib.sha256(content).hexdigest(),
    )


def decode_record(text: str, file: Path) -> RunRecord:
    """Return the record in the text of a file; raises ``RecordError`` that names the file."""
    return _validated(_parsed(text, file), file)


def _parsed(text: str | bytes, file: Path) -> Any:  # noqa: ANN401 - JSON
    try:
        document = from_json(text)
        twin = _twin_key(text, document)
    except ValueError as error:
        raise RecordError(
            f"{file} can't be read as a record (cut short or no JSON): {error}"
        ) from error
    if twin is not None:
        raise RecordError(
            f"{file} is no valid record: it has the key {twin!r} twice in one object, of which "
            "readers keep one or the other; a record has each key once"
        )
    return document


def _twin_key(text: str | bytes, document: object) -> str | None:
    """Return a key that an object has twice; ``None`` where there is none."""
    content = text.encode() if isinstance(text, str) else text
    # What is laid out as we write it lost no key as it was read; to look at each takes ten times as
    # long, and a page may be of a thousand records.
    if content == to_json(document, indent=1) + b"\n":
        return None
    try:
        json.loads(content, object_pairs_hook=_once)
    except _TwinKeyError as error:
        return str(error)
    return None


class _TwinKeyError(Exception):
    """An object has a key twice; its text is the key."""


def _once(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _TwinKeyError(next(name for name in names if names.count(name) > 1))
    return found


def _validated(document: Any, file: Path) -> RunRecord:  # noqa: ANN401 - JSON
    migrated = migrate(document, file)
    try:
        return RunRecord.model_validate(migrated)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise RecordError(f"{file} is no valid record: {place}: {first['msg']}") from error
