"""The run's folder: its name, the draft of its record, and the log joined from its journals."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import secrets
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from wattload.core.errors import DataError, TargetError, remedy
from wattload.core.files import (
    FOLDER_MODE,
    Folder,
    Lock,
    choose_folder,
    open_folder,
    remove_listed,
    walk_names,
)
from wattload.core.host_paths import allow_writing, is_lost, mounted
from wattload.core.record.file import (
    DRAFT_FILE,
    JOURNAL_PATTERN,
    LOCK_FILE,
    RESERVE_BYTES,
    RESERVE_FILE,
    remove_marks,
    reserve_space,
    unborn_folder,
    write_owner,
)
from wattload.core.record.run import RunRecord
from wattload.core.storage.targets import DATA_FOLDER_NAME
from wattload.core.units import format_bytes
from wattload.power.control.journal import default_state_folder
from wattload.power.sampler.samples import SAMPLES_PATTERN

CONFIGURATION_FILE = "config.yaml"
LOG_FILE = "log.jsonl"
LONGEST_NAME = 40

_FOREIGN = re.compile(r"[^A-Za-z0-9._-]+")


def new_run_id(workload: str, label: str) -> str:
    """Return ``<UTC>-<workload>-<label>-<4 hex>``, unique and sorted by time.

    The label is written in ASCII letters, digits, dots, dashes and underscores; it is left out if
    it has none of them.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    parts = (stamp, workload, ascii_name(label), secrets.token_hex(2))
    return "-".join(part for part in parts if part)


def ascii_name(text: str) -> str:
    """Return a text as a name that every file system and shell takes: ``Grün 1`` as ``Grun-1``."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return _FOREIGN.sub("-", plain)[:LONGEST_NAME].strip("-._")


def make_runs_folder(runs: Path) -> None:
    """Create the folder for run folders if it does not exist.

    Raises:
        TargetError: it can't be created, is where the data of targets is, or is deleted together
            with its container.
    """
    if DATA_FOLDER_NAME in runs.resolve().parts:
        raise TargetError(
            f"{runs} is in {DATA_FOLDER_NAME}, which holds only the data of a target; use "
            "runs=FOLDER for another folder"
        )
    if is_lost(runs):
        raise TargetError(
            f"the folder {runs} for results is in the container and is deleted with it; leave out "
            "runs=, and put RUNS=FOLDER before docker compose for another folder of the host"
        )
    try:
        runs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TargetError(
            f"can't create the folder {runs} for results: {error.strerror}; {_ways_on(runs, error)}"
        ) from error


def _ways_on(runs: Path, error: OSError) -> str:
    """Return what to do about an error in the folder of the runs, or in one that must hold it."""
    other = "use runs=FOLDER for another one"
    if mounted():
        other = "put RUNS=FOLDER before docker compose for another one"
    if not isinstance(error, PermissionError):
        return f"{remedy(error.errno)}, or {other}"
    # Path.exists() raises an error below a folder that this user may not enter.
    places = (runs, *runs.parents)
    existing = next(each for each in places if os.path.exists(each))  # noqa: PTH110 - never raises
    return f"{allow_writing(existing)}, or {other}"


def make_run_folder(folder: Path, config_values: Mapping[str, Any], draft: str) -> Lock:
    """Create a run's folder with its configuration and the draft of its record, all at once.

    Whatever ends this process, there is either no folder, or one from which a record can be made.
    Returns the lock that shows that the run lives; the caller keeps it until the record is written.

    Raises:
        TargetError: it can't be created, or there is no space for the record.
    """
    new = unborn_folder(folder)
    try:
        with choose_folder(folder.parent) as runs:
            with runs.make(new.name) as opened:
                try:
                    lock = opened.lock(LOCK_FILE)
                    write_owner(opened)
                    write_configuration(opened, config_values)
                    opened.write(DRAFT_FILE, draft)
                    reserve_space(opened)
                    opened.sync()
                    runs.rename(new.name, folder.name)
                except BaseException:
                    opened.remove(*opened.names())
                    runs.remove_empty(new.name)
                    raise
            runs.sync()
    except OSError as error:
        raise _no_run_folder(folder.parent, error) from error
    return lock


def try_run_folder(runs: Path) -> None:
    """Make a folder among the runs, with the space of a record, and remove it.

    Raises:
        TargetError: as for ``make_run_folder``.
    """
    name = unborn_folder(runs / "trial").name
    try:
        with choose_folder(runs) as above, above.make(name) as opened:
            try:
                reserve_space(opened)
            finally:
                opened.remove(RESERVE_FILE)
                above.remove_empty(name)
    except OSError as error:
        raise _no_run_folder(runs, error) from error


def _no_run_folder(runs: Path, error: OSError) -> TargetError:
    return TargetError(
        f"can't create the folder of a run in {runs}, with {format_bytes(RESERVE_BYTES)} reserved "
        f"for the record: {error.strerror}; {_ways_on(runs, error)}"
    )


def spare_folder(run_id: str) -> Path:
    """Create and return a folder of this user for a record that has no place among the runs.

    In a container without a state folder of the host it is on the target.

    Raises:
        OSError: it can't be created.
    """
    state = default_state_folder()
    folder = (next(iter(mounted())) if is_lost(state) else state) / "records" / run_id
    folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    return folder


def write_configuration(folder: Folder, config_values: Mapping[str, Any]) -> None:
    from omegaconf import OmegaConf

    folder.write(CONFIGURATION_FILE, OmegaConf.to_yaml(OmegaConf.create(dict(config_values))))


def settle(record: RunRecord, folders: Sequence[Path], place: Path) -> None:
    """Merge the ranks' journals into ``log.jsonl`` in ``place``, where the record is.

    Lines are in order of the hosts' common clock; each has the time of its own host.

    In the ``folders`` of the run and its hosts, delete what only an unfinished run needs. What
    can't be read or deleted is left out: the record is complete without it.
    """
    with ExitStack() as held:
        lines, found = list[tuple[int, str]](), dict[Folder, list[str]]()
        for folder in folders:
            with suppress(OSError, DataError):
                opened = held.enter_context(open_folder(folder))
                found[opened] = opened.names()
                journals = fnmatch.filter(found[opened], JOURNAL_PATTERN)
                lines += [line for name in journals for line in _events(record, opened, name)]
        own = held.enter_context(open_folder(place))
        own.write(LOG_FILE, "".join(f"{line}\n" for _, line in sorted(lines)))
        for opened, names in found.items():
            journals = fnmatch.filter(names, JOURNAL_PATTERN)
            opened.remove(DRAFT_FILE, *journals, *fnmatch.filter(names, SAMPLES_PATTERN))
            remove_marks(opened)
        for folder in folders:
            if folder.parent == place:
                own.remove_empty(folder.name)


def remove_run_folder(folder: Path) -> None:
    """Remove the folder that a run has made on this host; its files are in the record's folder."""
    with (
        suppress(OSError, DataError),
        choose_folder(folder.parent) as runs,
        runs.enter(folder.name) as opened,
    ):
        remove_listed(opened, [name for name in walk_names(opened) if name[-1] != "/"])
        runs.remove_empty(folder.name)


def _events(record: RunRecord, folder: Folder, journal: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a journal with their times, without those that a full disk has torn."""
    hosts = {rank.rank: rank.host for rank in record.ranks}
    with suppress(OSError, DataError):
        with os.fdopen(folder.update(journal, os.O_RDONLY), encoding="utf-8") as file:
            text = file.read()
        for line in text.splitlines():
            with suppress(ValueError, KeyError, TypeError):
                event = json.loads(line)
                yield record.clock.ns(hosts[event["rank"]], int(event["time_ns"])), line
