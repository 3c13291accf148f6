"""A published tree of MLPerf Storage: its sets and runs, in whatever folders they lie.

A run is a folder with a ``summary.json``, or with other files that DLIO writes of a run. A set is
the runs of one model and accelerator whose paths differ only from the run's own folder on, such as
``run3``, ``unet3d_h100_run_1`` or ``20260720_165752``; a run may have folders below that one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast, get_args

from pydantic import Field, ValidationError

from wattload.core.base_models import first_fault
from wattload.core.errors import DataError
from wattload.core.mlperf.dlio_run import UNKNOWN, read_training
from wattload.core.mlperf.files import SUMMARY, Part, RunFolder, UnreadableError
from wattload.core.mlperf.published import (
    AnyFacts,
    Division,
    PublishedRun,
    PublishedSet,
    ReportedSet,
    Unread,
)

Reader = Callable[[RunFolder], PublishedRun]

READERS: tuple[tuple[str, Reader], ...] = ((r"train_.*", read_training),)
"""Readers by a member that only summaries of their kind have, in themselves or in ``metric``."""

_MARKS = re.compile(r"\d+_output\.json|(\d+_)?per_epoch_stats\.json")
_RUN = re.compile(r"(.*[_-])?(run|iter|trial)[_-]?\d+|\d{8}[_-]?\d{6}|\d{4}-\d\d-\d\d\D.*", re.I)
_NOT_RESULTS = re.compile(r"(v[\d.]+_)?code|datagen|datasize")
"""Code has runs of DLIO's own tests; data sets are generated before a run."""
_LITTER = re.compile(r"\._.*|\.DS_Store")
"""What macOS leaves in folders."""
_STAMP = re.compile(r"\d{8}_\d{6}")
_REPORT = "mlperf_storage_report.json"


@dataclass(frozen=True, slots=True)
class Tree:
    """What a tree holds.

    ``absent`` are files of a run that this copy lacks, as its siblings or the set's report show.
    ``passed_over`` counts runs in folders of code and of data sets, ``litter`` files of macOS.
    """

    sets: tuple[PublishedSet, ...]
    unread: tuple[Unread, ...]
    absent: tuple[str, ...]
    passed_over: int
    litter: int


class _Overall(Part):
    train_throughput_mean_samples_per_second: float | None = None


class _ReportedRun(Part):
    train_throughput_samples_per_second: float


class _Report(Part):
    overall: _Overall = _Overall()
    runs: dict[str, _ReportedRun] = Field(min_length=1)


@dataclass(slots=True)
class _Scan:
    """What one walk over a tree found: the files of each run, reports, and system descriptions."""

    runs: dict[str, list[str]] = field(default_factory=dict)
    reports: set[str] = field(default_factory=set)
    systems: dict[str, set[str]] = field(default_factory=dict)
    unread: list[Unread] = field(default_factory=list)
    passed_over: int = 0
    litter: int = 0


def is_tree(path: Path) -> bool:
    """Return whether a folder holds a run that MLPerf Storage or DLIO wrote."""
    return bool(_scan(path).runs)


def read_tree(root: Path) -> Tree:
    """Return what a tree holds; what can't be read is listed with its reason.

    Raises:
        DataError: it is not a folder.
    """
    if not root.is_dir():
        raise DataError(f"{root} is not a folder; name a tree of MLPerf Storage's results")
    scan = _scan(root)
    absent: list[str] = []
    above = root.resolve().parts
    found: dict[tuple[str, ...], list[tuple[RunFolder, PublishedRun]]] = {}
    for path, names in sorted(scan.runs.items()):
        parts = Path(path).parts
        at = max((i for i, part in enumerate(parts) if _RUN.fullmatch(part)), default=-1)
        at = at if at >= 0 else max(len(parts) - 1, 0)
        folder = RunFolder(root, path, str(Path(*parts[at:])), names)
        try:
            run = _reader(folder)(folder)
        except UnreadableError as error:
            scan.unread.append(Unread(path=error.path, reason=error.reason))
        except ValidationError as error:
            place, fault, _ = first_fault(error)
            scan.unread.append(Unread(path=path, reason=f"{place}: {fault}"))
        except (RecursionError, OverflowError):
            scan.unread.append(Unread(path=path, reason="a value is too large or too deep"))
        else:
            key = (str(Path(*parts[:at])), *subject_of(run.facts))
            found.setdefault(key, []).append((folder, run))
    sets = []
    for (path, *_), members in found.items():
        folders = [folder for folder, _ in members]
        runs = tuple(run for _, run in members)
        unread = [each for each in scan.unread if Path(path) in Path(each.path).parents]
        reported = _reported(root, path, scan, unread)
        scan.unread.extend(each for each in unread if each not in scan.unread)
        absent.extend(_absent(folders))
        if reported is not None and len(reported.runs) > len(runs):
            here = {Path(run.name).parts[0] for run in runs}
            absent.extend(str(Path(path, name)) for name in reported.runs if name not in here)
        division, organisation, system = _origin(above, path, runs[0].facts, scan.systems)
        edition = re.findall(r"v\d+\.\d+", str(root.resolve()))
        sets.append(
            PublishedSet(
                tree=root.resolve().name,
                path=path,
                edition=edition[-1] if edition else None,
                division=division,
                organisation=organisation,
                system=system,
                runs=runs,
                reported=reported,
                unread=tuple(unread),
            )
        )
    return Tree(tuple(sets), tuple(scan.unread), tuple(absent), scan.passed_over, scan.litter)


def subject_of(facts: AnyFacts) -> tuple[str, str, str]:
    """Return kind, model and accelerator; of a vector database its name and its index."""
    if facts.kind == "vector_database":
        return facts.kind, facts.database, facts.index
    accelerator = facts.accelerator if facts.kind == "training" else None
    return facts.kind, facts.model, accelerator or ""


def _reader(folder: RunFolder) -> Reader:
    metric = folder.summary.get("metric")
    members = [*folder.summary, *(metric if isinstance(metric, dict) else ())]
    for mark, reader in READERS:
        if any(re.fullmatch(mark, member) for member in members):
            return reader
    return folder.refuse(SUMMARY, "no summary of a benchmark of MLPerf Storage")


def _scan(root: Path) -> _Scan:
    """Walk over a tree once; links are listed, not followed."""
    scan = _Scan()
    todo: list[tuple[str, str | None]] = [("", None)]
    while todo:
        path, owner = todo.pop()
        parts = Path(path).parts
        is_result = not any(map(_NOT_RESULTS.fullmatch, parts))
        try:
            entries = sorted(os.scandir(root / path), key=lambda entry: entry.name)
        except OSError as error:
            scan.unread.append(Unread(path=path, reason=f"can't be read: {error.strerror}"))
            continue
        names = []
        folders = []
        for entry in entries:
            if _LITTER.fullmatch(entry.name):
                scan.litter += 1
            elif entry.is_symlink() and is_result:
                reason = "a symbolic link; links are not followed"
                scan.unread.append(Unread(path=str(Path(path, entry.name)), reason=reason))
            elif entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            elif entry.is_file(follow_symlinks=False):
                names.append(entry.name)
        if SUMMARY in names or (owner is None and any(map(_MARKS.fullmatch, names))):
            scan.passed_over += not is_result
            owner = path
        if not is_result:
            owner = None
        elif owner is not None:
            below = Path(path).relative_to(owner)
            scan.runs.setdefault(owner, []).extend(str(below / name) for name in names)
        elif _REPORT in names:
            scan.reports.add(path)
        elif parts and parts[-1] == "systems":
            stems = {Path(name).stem for name in names if name.lower().endswith((".json", ".yaml"))}
            scan.systems[str(Path(path).parent)] = stems
        todo.extend((str(Path(path, name)), owner) for name in folders if name != ".git")
    return scan


def _origin(
    above: Sequence[str], path: str, facts: AnyFacts, systems: Mapping[str, set[str]]
) -> tuple[Division | None, str, str]:
    """Return division, organisation and system: ``DIVISION/ORGANISATION/results/SYSTEM/...``.

    A folder that names only the job is no system; then the only system described there is meant.
    """
    parts = (*above, *Path(path).parts)
    for index in range(len(parts) - 3, -1, -1):
        division = parts[index].lower()
        if division not in get_args(Division) or parts[index + 2] != "results":
            continue
        system = parts[index + 3] if len(parts) > index + 3 else ""
        words = re.split(r"[-_]", system.lower())
        kind, model, accelerator = subject_of(facts)
        if all(model.startswith(word) or word in (kind, accelerator) for word in words):
            described = systems.get(str(Path(*parts[len(above) : index + 2])), ())
            system = next(iter(described)) if len(described) == 1 else UNKNOWN
        return cast("Division", division), parts[index + 1], system
    return None, UNKNOWN, UNKNOWN


def _reported(root: Path, path: str, scan: _Scan, unread: list[Unread]) -> ReportedSet | None:
    """Return what the report in a set's folder prints; one that can't be read is listed."""
    if path not in scan.reports and Path(path).name in ("run", "runs"):
        path = str(Path(path).parent)
    if path not in scan.reports:
        return None
    folder = RunFolder(root, path, "", [_REPORT])
    try:
        report = folder.part(_REPORT, _Report, folder.json(_REPORT))
    except UnreadableError as error:
        unread.append(Unread(path=error.path, reason=error.reason))
        return None
    return ReportedSet(
        runs={name: each.train_throughput_samples_per_second for name, each in report.runs.items()},
        samples_per_s_mean=report.overall.train_throughput_mean_samples_per_second,
        source=folder.sources[0],
    )


def _absent(folders: Sequence[RunFolder]) -> Iterator[str]:
    """Yield the files that a run lacks and another run of its set has."""
    files = [
        {_STAMP.sub("*", name) for name in folder.files if name.endswith((".json", ".yaml"))}
        for folder in folders
    ]
    every: set[str] = set().union(*files)
    for folder, own in zip(folders, files, strict=True):
        yield from (str(Path(folder.path, name)) for name in sorted(every - own))
