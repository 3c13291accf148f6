"""A published tree of MLPerf Storage: its sets and runs, in whatever folders they lie.

A run is a folder with a ``summary.json``, or with other files that DLIO writes of a run. A set is
the runs of one model and accelerator whose paths differ only from the run's own folder on, such as
``run3``, ``unet3d_h100_run_1`` or ``20260720_165752``; a run may have folders below that one.
Folders ``epoch1``, ``epoch2`` and so on are one run: ``loader=dlio`` calls DLIO for each epoch.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, cast, get_args

from pydantic import ValidationError

from wattload.core.base_models import first_fault
from wattload.core.errors import DataError
from wattload.core.mlperf.checkpoint_run import read_checkpoints
from wattload.core.mlperf.dlio_run import UNKNOWN, joined_epochs, read_training
from wattload.core.mlperf.files import STATISTICS, SUMMARY, RunFolder, UnreadableError, Values
from wattload.core.mlperf.kv_cache_run import read_cache
from wattload.core.mlperf.published import (
    AnyFacts,
    Division,
    PublishedRun,
    PublishedSet,
    ReportedSet,
    Unread,
)
from wattload.core.mlperf.vector_run import read_vectors
from wattload.core.record.file import RECORD_FILE

Reader = Callable[[RunFolder], PublishedRun]

READERS: tuple[tuple[str, Reader], ...] = (
    (r"train_.*", read_training),
    (r"(save|load)_checkpoint_.*", read_checkpoints),
    (r"trials_per_option", read_cache),
    (r"throughput_qps", read_vectors),
)
"""Readers by a member that only summaries of their kind have, in themselves or in ``metric``."""

_MARKS = re.compile(
    rf"\d+_output\.json|(\d+_)?per_epoch_stats\.json|\w+_metadata\.json|{re.escape(STATISTICS)}"
)
_RUN = re.compile(
    r"(.*[_-])?(run|iter|trial|epoch)[_-]?\d+|\d{8}[_-]?\d{6}|\d{4}-\d\d-\d\d\D.*", re.I
)
_EPOCH = re.compile(r"epoch\d+(/.*)?")
_NOT_RESULTS = re.compile(r"(v[\d.]+_)?code(-\w+)?|datagen|datasize|dlio-ceiling")
"""Code has runs of DLIO's own tests, data sets are generated before a run, and the ceiling of a run
with ``loader=dlio`` reads from memory."""
_LITTER = re.compile(r"\._.*|\.DS_Store")
"""What macOS leaves in folders."""
_PRUNED = b"PRUNED BY STAFF\n"
"""What v3.0's results have in place of a file that was too large to be published."""
_REPORT = "mlperf_storage_report.json"
_RATE = "train_throughput_samples_per_second"


class Tree(NamedTuple):
    """What a tree holds.

    ``absent`` are files of a run that this copy lacks, as its siblings or the set's report show.
    ``passed_over`` counts runs in folders of code and of data sets, ``litter`` files of macOS.
    """

    sets: tuple[PublishedSet, ...]
    unread: tuple[Unread, ...]
    absent: tuple[str, ...]
    passed_over: int
    litter: int


class _Scan(NamedTuple):
    """What a walk found: the files of each run, folders of reports, descriptions of systems."""

    runs: dict[str, list[str]]
    reports: set[str]
    systems: list[Path]
    unread: list[Unread]
    absent: list[str]
    counts: Counter[str]


def is_tree(path: Path) -> bool:
    """Return whether a folder holds a run of DLIO or MLPerf Storage outside of runs of ours."""
    above = ((path / folder for folder in Path(run).parents) for run in _scan(path, Path()).runs)
    return any(not any((each / RECORD_FILE).exists() for each in folders) for folders in above)


def read_tree(folder: Path) -> Tree:
    """Return what a tree, or a part of one, holds; what can't be read is listed with its reason.

    All paths are relative to the whole tree: the folder that holds divisions.

    Raises:
        DataError: it is not a folder.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; name a tree of MLPerf Storage's results")
    part = folder.resolve()
    divisions = (each for each in (part, *part.parents) if each.name.lower() in get_args(Division))
    root = next((each.parent for each in divisions if any(each.glob("*/results"))), part)
    scan = _scan(root, part.relative_to(root))
    for file in scan.systems:
        with _listing(scan.unread, file):
            RunFolder(root, str(file.parent), "", [file.name]).json(file.name)
    found: dict[tuple[str, ...], list[tuple[RunFolder, PublishedRun]]] = {}
    for path, names in sorted(scan.runs.items()):
        parts = Path(path).parts
        own = [index for index, part in enumerate(parts) if _RUN.fullmatch(part)]
        at = own[-1] if own else max(len(parts) - 1, 0)
        files = RunFolder(root, path, str(Path(*parts[at:])), names)
        with _listing(scan.unread, Path(path)):
            run = _reader(files)(files)
            key = (str(Path(*parts[:at])), *subject_of(run.facts))
            found.setdefault(key, []).append((files, run))
        scan.unread.extend(files.lost)
    sets = tuple(_set(root, key[0], members, scan) for key, members in found.items())
    passed_over, litter = scan.counts["passed over"], scan.counts["litter"]
    return Tree(sets, tuple(scan.unread), tuple(scan.absent), passed_over, litter)


def subject_of(facts: AnyFacts) -> tuple[str, str, str]:
    """Return kind, model and accelerator; of a vector database its name and its index."""
    if facts.kind == "vector_database":
        return facts.kind, facts.database, facts.index
    accelerator = facts.accelerator if facts.kind == "training" else None
    return facts.kind, facts.model, accelerator or ""


@contextmanager
def _listing(unread: list[Unread], path: Path) -> Iterator[None]:
    """List what the block can't read."""
    try:
        yield
    except UnreadableError as error:
        unread.append(error.unread)
    except ValidationError as error:
        place, fault, _ = first_fault(error)
        unread.append(Unread(path=str(path), reason=f"{place}: {fault}"))
    except (RecursionError, OverflowError):
        unread.append(Unread(path=str(path), reason="a value is too large or nested too deep"))


def _reader(folder: RunFolder) -> Reader:
    metric = folder.summary.get("metric")
    members = [*folder.summary, *(metric if isinstance(metric, dict) else ())]
    for mark, reader in READERS:
        if any(re.fullmatch(mark, member) for member in members):
            return reader
    return folder.refuse(folder.summary_name, "not the summary of a benchmark of MLPerf Storage")


def _scan(root: Path, part: Path) -> _Scan:  # noqa: PLR0912 - a branch for each kind of entry
    """Walk once over a part of a tree; links are listed, not followed."""
    scan = _Scan({}, set(), [], [], [], Counter())
    todo: list[tuple[Path, Path | None]] = [(part, None)]
    while todo:
        path, owner = todo.pop()
        is_result = not any(map(_NOT_RESULTS.fullmatch, path.parts))
        names: list[str] = []
        folders: list[Path] = []
        try:
            entries = sorted(os.scandir(root / path), key=lambda entry: entry.name)
        except OSError as error:
            scan.unread.append(Unread(path=str(path), reason=f"can't be read: {error.strerror}"))
            continue
        for entry in entries:
            shown = entry.name.encode(errors="replace").decode()
            if shown != entry.name:
                reason = "its name is not UTF-8"
                scan.unread.append(Unread(path=str(path / shown), reason=reason))
            elif _LITTER.fullmatch(entry.name):
                scan.counts["litter"] += 1
            elif entry.is_symlink() and is_result:
                reason = "a symbolic link; links are not followed"
                scan.unread.append(Unread(path=str(path / entry.name), reason=reason))
            elif entry.is_dir(follow_symlinks=False) and entry.name != ".git":
                folders.append(path / entry.name)
            elif not entry.is_file(follow_symlinks=False):
                continue
            elif _is_pruned(entry):
                scan.absent.append(str(path / entry.name))
            else:
                names.append(entry.name)
        if SUMMARY in names or (owner is None and any(map(_MARKS.fullmatch, names))):
            scan.counts["passed over"] += not is_result
            owner = path if is_result else None
        if owner is not None and is_result:
            below = path.relative_to(owner)
            scan.runs.setdefault(str(owner), []).extend(str(below / name) for name in names)
        elif _REPORT in names:
            scan.reports.add(str(path))
        elif path.name == "systems":
            scan.systems.extend(path / each for each in names if each.lower().endswith(".json"))
        todo.extend((folder, owner) for folder in folders)
    return scan


def _is_pruned(entry: os.DirEntry[str]) -> bool:
    is_short = entry.stat(follow_symlinks=False).st_size == len(_PRUNED)
    return is_short and Path(entry.path).read_bytes() == _PRUNED


def _set(
    root: Path,
    path: str,
    members: Sequence[tuple[RunFolder, PublishedRun]],
    scan: _Scan,
) -> PublishedSet:
    """Return the set of some runs; files that this copy lacks are added to ``scan.absent``."""
    runs = tuple(run for _, run in members)
    if all(_EPOCH.fullmatch(run.name) for run in runs):
        runs = (joined_epochs(runs),)
    files = [frozenset(map(_unstamped, folder.files)) for folder, _ in members]
    for (folder, _), own in zip(members, files, strict=True):
        lacking = sorted(frozenset[str]().union(*files) - own)
        scan.absent.extend(f"{folder.path}/{name}" for name in lacking if name.endswith("json"))
    reported = None
    home = path if path in scan.reports else str(Path(path).parent)
    counts = [sum(_is_below(each, place) for each in scan.runs) for place in (path, home)]
    if home in scan.reports and counts[0] == counts[1]:  # the one above is of this set alone
        folder = RunFolder(root, home, "", [_REPORT])
        with _listing(scan.unread, Path(home, _REPORT)):
            report = Values(folder, _REPORT, folder.json(_REPORT))
            rates = {
                name: rate
                for name, each in (report.get("runs", dict) or {}).items()
                if (rate := Values(folder, _REPORT, each).number(_RATE)) is not None
            }
            mean = report.number("overall.train_throughput_mean_samples_per_second")
            reported = ReportedSet(runs=rates, samples_per_s_mean=mean)
            if len(rates) > len(runs):
                here = {Path(run.name).parts[0] for run in runs}
                scan.absent.extend(f"{path}/{name}" for name in rates if name not in here)
    editions = re.findall(r"v\d+\.\d+", str(root))
    division, organisation, system = _origin(root, path, runs[0].facts)
    return PublishedSet(
        tree=root.name,
        path=path,
        edition=editions[-1] if editions else None,
        division=division,
        organisation=organisation,
        system=system,
        runs=runs,
        reported=reported,
        unread=tuple(each for each in scan.unread if _is_below(each.path, path)),
    )


def _is_below(path: str, folder: str) -> bool:
    return folder == "." or path.startswith(f"{folder}/")


def _unstamped(name: str) -> str:
    """Return a file's name without a time, which differs by run."""
    return re.sub(r"\d{8}_\d{6}", "*", name)


def _origin(root: Path, path: str, facts: AnyFacts) -> tuple[Division | None, str, str]:
    """Return division, organisation and system: ``DIVISION/ORGANISATION/results/SYSTEM/...``.

    A folder that names only the job is no system; then the only system described there is meant.
    """
    division, organisation, results, system, *_ = (*Path(path).parts, *[""] * 4)
    if division.lower() not in get_args(Division) or results != "results":
        return None, UNKNOWN, UNKNOWN
    kind, model, accelerator = subject_of(facts)
    words = re.split(r"[-_]", system.lower())
    if all(model.startswith(word) or word in (kind, accelerator) for word in words):
        files = (root / division / organisation / "systems").glob("[!.]*")
        described = {each.stem for each in files if each.suffix.lower() in (".json", ".yaml")}
        system = described.pop() if len(described) == 1 else UNKNOWN
    return cast("Division", division.lower()), organisation, system
