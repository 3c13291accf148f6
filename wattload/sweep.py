"""Sweeps and repetitions: which runs there are, and which of them are already done and valid."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Self

from wattload.arms import labelled
from wattload.axes import read_axes
from wattload.compose import compose
from wattload.config import RunConfig
from wattload.core.errors import ConfigError, RecordError
from wattload.core.host import software_facts
from wattload.core.record.run import RECORD_FILE, Comparison, read_record
from wattload.core.resolve import resolve_targets
from wattload.core.target import Target
from wattload.life.life import Session
from wattload.run import execute, foresee, session

JOURNAL_NAME = "sweep-{key}.jsonl"
CHECK_FAILED = 3


@dataclass(frozen=True, slots=True)
class Point:
    """One run of a sweep: its overrides, and which repetition of them it is."""

    overrides: tuple[str, ...]
    repetition: int
    key: str
    """What identifies the point in the journal; see ``point_key``."""


def run_all(overrides: Sequence[str], *, multirun: bool, as_json: bool) -> int:
    """Run every point that is not done yet, or search; returns 0, or 3 when a check failed."""
    axes = read_axes(overrides, multirun=multirun)
    combinations = list(labelled(axes))
    composed = [compose(combination) for combination in combinations]  # fail before the first run
    if composed[0][0].interleaves:
        from wattload.turns import run_turns

        command = ("wattload", "run", *(["-m"] if multirun else []), *overrides)
        return run_turns(axes, composed[0][0], command, as_json=as_json)
    if any(config.interleaves for config, _ in composed):
        raise ConfigError("interleave holds for a whole session; give it one value")
    searches = [config.sweep.searches for config, _ in composed]
    if all(searches):
        from wattload.search.live import search

        return max(search(combination, as_json=as_json) for combination in combinations)
    if any(searches):
        raise ConfigError("some of the runs search and others do not; give sweep= one value")
    points = [
        Point(combination, repetition, point_key(config, plain, repetition))
        for repetition in range(max(config.repeat for config, _ in composed))
        for combination, (config, plain) in zip(combinations, composed, strict=True)
        if repetition < config.repeat
    ]
    return _run_points(points, composed[0][0], overrides, as_json=as_json)


def _run_points(
    points: Sequence[Point], first: RunConfig, overrides: Sequence[str], *, as_json: bool
) -> int:
    if len(points) == 1:
        return _run(points[0], 0, None, as_json=as_json)
    journal = Journal.of_sweep(Path(first.runs), overrides)
    here = session(first)
    done = here.communicator.broadcast([journal.done(point) for point in points])
    charge_done(here, [folder for folder in done if folder is not None])
    refuse_wear(here, [point for point, folder in zip(points, done, strict=True) if folder is None])
    worst = 0
    for order, (point, folder) in enumerate(zip(points, done, strict=True)):
        if folder is None:
            worst = max(worst, _run(point, order, journal, as_json=as_json))
        elif here.communicator.rank == 0:
            print(
                f"done and valid, not run again: {folder} (noted in {journal.path}; without that "
                "file the sweep starts afresh)",
                file=sys.stderr,
            )
    return worst


def _run(point: Point, order: int, journal: Journal | None, *, as_json: bool) -> int:
    comparison = Comparison(
        session_id=journal.session_id if journal else secrets.token_hex(4),
        arm="",
        block=point.repetition,
        order=order,
    )
    folder, status = execute(point.overrides, comparison)
    if folder is not None:
        say_outcome(folder, as_json=as_json)
        if journal:
            journal.add(point, folder)
    return status


def charge_done(here: Session, folders: Sequence[Path]) -> None:
    """Charge what the runs that are done wrote: a sweep that goes on is still one sweep."""
    if here.communicator.rank == 0:
        for folder in folders:
            here.ledger.add_record(read_record(folder))


def refuse_wear(here: Session, points: Sequence[Point]) -> None:
    """Refuse runs that together write more than one command may, before the first of them.

    Data that several of them share is generated once: it is told by the workload's settings and its
    size, which at ``full`` goes by the number of accelerators.

    Raises:
        ConfigError: the guard against wear is not lifted for so many bytes.
    """
    before, ledger, prepared = here.ledger, here.ledger.copy(), set()
    judged: list[tuple[RunConfig, Target]] = []
    for overrides, runs in Counter(point.overrides for point in points).items():
        config, targets, plan = foresee(overrides)
        data = repr((config.workload, config.target, plan.data_bytes))
        ledger.add(targets, plan.run_bytes * runs + (data not in prepared) * plan.prepare_bytes)
        prepared.add(data)
        judged.extend((config, target) for target in targets)
    failure: ConfigError | None = None
    try:
        for config, target in judged:
            planned_bytes = ledger.written_bytes(target) - before.written_bytes(target)
            before.check(config, target, planned_bytes, runs=len(points))
    except ConfigError as error:
        failure = error
    failure = here.communicator.broadcast(failure)  # rank 0 alone knows what done runs wrote
    if failure is not None:
        raise failure


def say_outcome(folder: Path, *, as_json: bool) -> None:
    """Print what a run came to, or its record's path as JSON."""
    if as_json:
        print(json.dumps({"record": str(folder / RECORD_FILE)}))
        return
    from wattload.cli.outcome import print_outcome

    print_outcome(read_record(folder), folder)


def point_key(config: RunConfig, plain: Mapping[str, Any], repetition: int) -> str:
    """Return what tells a run from every other: settings, drives under the targets, code.

    A swapped drive at the same mount point, another directory behind the same variable or a new
    commit makes another run of it.
    """
    targets = resolve_targets(config.target.paths(), host="", try_direct_io=False)
    where = [
        (str(target.path), target.facts.devices, target.facts.controllers)
        + ((target.facts.file_system.source,) if target.facts.file_system else ())
        for target in targets
    ]
    software = software_facts()
    code = (software.wattload, software.git_commit)
    settings = {key: value for key, value in plain.items() if key != "repeat"}
    document = json.dumps([settings, where, code, repetition], sort_keys=True, default=str)
    return hashlib.sha256(document.encode()).hexdigest()


class Journal:
    """What of a sweep or a search is done: one line per finished run, fsynced."""

    def __init__(self, runs: Path, session_id: str, path: Path) -> None:
        self.runs = runs
        self.session_id = session_id
        self.path = path
        self._done = dict(self._read())

    @classmethod
    def of_sweep(cls, runs: Path, overrides: Sequence[str]) -> Self:
        """Return the journal of the sweep that these overrides ask for."""
        key = hashlib.sha256("\x1f".join(overrides).encode()).hexdigest()[:8]
        return cls(runs, key, runs / JOURNAL_NAME.format(key=key))

    @classmethod
    def of_session(cls, runs: Path, given: Sequence[str]) -> Self:
        """Return the journal of interleaved runs that ``given`` tells from all others.

        Its session has the name that its first line gives it; where that line is torn, the one that
        its runs' records give it; else one of its own.
        """
        key = hashlib.sha256("\x1f".join(given).encode()).hexdigest()[:8]
        path = runs / JOURNAL_NAME.format(key=key)
        return cls(runs, _session_id(runs, path) or secrets.token_hex(4), path)

    def begin(self) -> bool:
        """Name the session in its journal, so that it keeps that name when it goes on.

        Returns whether it lost the name it had: there is a journal, and neither its lines nor its
        runs tell one.
        """
        if any("session" in entry for entry in _entries(self.path)):
            return False
        was_begun = self.path.exists() and self.path.stat().st_size > 0
        is_lost = was_begun and _session_id(self.runs, self.path) is None
        self._append({"session": self.session_id})
        return is_lost

    def _read(self) -> Iterator[tuple[str, str]]:
        for entry in _entries(self.path):
            if "point" in entry and "folder" in entry:
                yield entry["point"], entry["folder"]

    def done(self, point: Point) -> Path | None:
        """Return the folder of a finished, valid run of this point, or ``None``."""
        name = self._done.get(point.key)
        if name is None:
            return None
        try:
            record = read_record(self.runs / name)
        except RecordError:
            return None
        failed = any(check.verdict == "fail" for check in record.checks)
        return None if failed or record.status != "complete" else self.runs / name

    def add(self, point: Point, folder: Path) -> None:
        """Note a finished run."""
        self._append({"point": point.key, "folder": folder.name})

    def _append(self, entry: Mapping[str, str]) -> None:
        """Add a line; a torn one before it is ended first, or it would take the new one with it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab+") as file:
            line = json.dumps(entry).encode() + b"\n"
            file.write(line if _is_at_line_start(file) else b"\n" + line)
            file.flush()
            os.fsync(file.fileno())


def _is_at_line_start(file: BinaryIO) -> bool:
    """Return whether what is appended begins a line."""
    if not file.seek(0, os.SEEK_END):
        return True
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


def _session_id(runs: Path, path: Path) -> str | None:
    """Return what a journal's session is called, by its own lines or else by its runs' records."""
    entries = list(_entries(path))
    named = (entry["session"] for entry in entries if "session" in entry)
    told = (_told_session(runs / entry["folder"]) for entry in entries if "folder" in entry)
    return next((name for name in chain(named, told) if name), None)


def _told_session(run: Path) -> str | None:
    try:
        return read_record(run).comparison.session_id
    except RecordError:
        return None


def _entries(path: Path) -> Iterator[dict[str, str]]:
    """Yield the journal's entries; a line torn by a crash is none, and that run is made again."""
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and all(isinstance(text, str) for text in entry.values()):
            yield entry
