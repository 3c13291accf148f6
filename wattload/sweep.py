"""Sweeps and repetitions: which runs there are, and which of them are already done and valid."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import secrets
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from wattload.arms import labelled
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
    combinations = list(expand(overrides)) if multirun else [tuple(overrides)]
    composed = [compose(combination) for combination in combinations]  # fail before the first run
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
    _charge_done(here, [folder for folder in done if folder is not None])
    _refuse_wear(
        here, [point for point, folder in zip(points, done, strict=True) if folder is None]
    )
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
        _say(folder, as_json=as_json)
        if journal:
            journal.add(point, folder)
    return status


def _charge_done(here: Session, folders: Sequence[Path]) -> None:
    """Charge what the runs that are done wrote: a sweep that goes on is still one sweep."""
    if here.communicator.rank == 0:
        for folder in folders:
            here.ledger.add_record(read_record(folder))


def _refuse_wear(here: Session, points: Sequence[Point]) -> None:
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


def _say(folder: Path, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"record": str(folder / RECORD_FILE)}))
        return
    from wattload.cli.outcome import print_outcome

    print_outcome(read_record(folder), folder)


def expand(overrides: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the product of all swept values, in the order given, with the labels of arms.

    Raises:
        ConfigError: an override can't be read, or sweeps what can't be swept.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
        axes = [
            [f"{override.get_key_element()}={value}" for value in override.sweep_string_iterator()]
            if override.is_sweep_override()
            else [override.input_line or ""]
            for override in parsed
        ]
    except HydraException as error:
        raise ConfigError(str(error).splitlines()[0]) from error
    swept = {each.get_key_element() for each in parsed if each.is_sweep_override()}
    for combination in itertools.product(*axes):
        yield labelled(combination, swept)


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

    def _read(self) -> Iterator[tuple[str, str]]:
        if not self.path.exists():
            return
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                entry = json.loads(line)
                yield entry["point"], entry["folder"]
            except (ValueError, KeyError, TypeError):
                continue  # a line torn by a crash: that run is made again

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
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"point": point.key, "folder": folder.name}) + "\n")
            file.flush()
            os.fsync(file.fileno())
