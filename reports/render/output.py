"""Reports in their formats, and as files that are written completely or not at all."""

from __future__ import annotations

import errno
import gc
import os
import secrets
import select
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic_core import from_json

from wattload.core.errors import ForeignFileError, TargetError
from wattload.core.files import choose_folder, read_bounded
from wattload.core.mlperf.published import SET_FILE
from wattload.core.mlperf.store import holds_published, read_sets
from wattload.core.record.file import RECORD_FILE
from wattload.reports.render.card import card
from wattload.reports.render.fio_job import fio_job
from wattload.reports.render.json_export import FORMAT, json_report
from wattload.reports.render.page import page_of, relative_link
from wattload.reports.render.text_export import csv_report, markdown_report, ratios_report
from wattload.reports.runs.compact import Compactor
from wattload.reports.runs.load import LeftOut, LoadedRuns, Run, load_readable
from wattload.reports.stats.subject import Subject, make_subject

FORMS: Mapping[str, Callable[[Subject], str]] = {
    "html": page_of,
    "json": json_report,
    "csv": csv_report,
    "markdown": markdown_report,
    "svg": card,
}
"""The formats of a report of any runs, by their names on the command line."""

_OF_OWN_RUNS = frozenset({"svg", "fio"})
"""Formats that have nothing of published results."""

_LARGEST_REPORT_BYTES = 1 << 30

_OF_RUNS = frozenset({".json", ".jsonl", ".parquet", ".yaml"})
"""Suffixes of files of runs and sessions: records, drafts, journals, traces, configurations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A report, and the run folders that are left out of it.

    ``ratios`` is a second table, of the ratios of two arms; only CSV has one.
    """

    text: str
    left_out: Sequence[LeftOut]
    ratios: str = ""


def make_report(
    paths: Sequence[Path],
    *,
    form: str = "html",
    by: str = "label",
    redact: bool = False,
    forced: bool = False,
    full: bool = False,
    claims: bool = False,
    output: Path | None = None,
) -> Report:
    """Return the report of the runs under ``paths``.

    Args:
        paths: run folders, records, folders of run folders, or of published sets.
        form: a key of ``FORMS``, or ``fio`` for a job with the requests of one run.
        by: what defines the arms: see ``make_subject``.
        redact: mask host names, serials and paths.
        forced: also compare runs and figures that are excluded.
        full: also have a table of each workload's headline figures, in Markdown, or the record of
            each run, in JSON.
        claims: also have published figures next to measured ones, on a page and in JSON.
        output: where the report will be; a page then links to records that are not masked.

    Raises:
        RecordError: there is no readable record.
        ConfigError: ``by`` does not name a property or a configuration key of these runs, or fio
            can't repeat them.
    """
    keep = None if full and form == "json" else Compactor()
    sets, unread = read_sets(paths)
    published = tuple({each.model_dump_json(): each for each in sets}.values())
    with _loaded_runs(paths, redact=redact, keep=keep) as loaded:
        if not published or form in _OF_OWN_RUNS:
            loaded.require_run()
        left_out = tuple(each for each in loaded.left_out if not holds_published(each.path))
        left_out += tuple(
            LeftOut(name="a published set", reason=each.reason, path=Path(each.path))
            for each in unread
        )
        runs = [
            replace(run, link=relative_link(run.file, output)) if run.file and output else run
            for run in loaded.runs
        ]
        subject = make_subject(runs, by, forced=forced, left_out=left_out, published=published)
        if form == "html":
            text = page_of(subject, claims=claims)
        elif form == "json":
            text = json_report(subject, claims=claims, full=full)
        elif form == "fio":
            text = fio_job(loaded.runs)
        else:
            text = markdown_report(subject, full=True) if full else FORMS[form](subject)
        ratios = ratios_report(subject) if form == "csv" and subject.compares else ""
        return Report(text=text, left_out=left_out, ratios=ratios)


@contextmanager
def _loaded_runs(
    paths: Sequence[Path], *, redact: bool, keep: Callable[[Run], Run] | None
) -> Iterator[LoadedRuns]:
    """Yield the runs, exempt from garbage collection, which took a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        loaded = load_readable(paths, redact=redact, keep=keep)
        gc.freeze()
    finally:
        if was_enabled:
            gc.enable()
    try:
        yield loaded
    finally:
        gc.unfreeze()


def refuse_input(output: Path, paths: Sequence[Path]) -> None:
    """Refuse to overwrite the inputs of a report.

    Args:
        output: the path of the report.
        paths: its inputs: run folders, records, or folders of run folders.

    Raises:
        TargetError: ``output`` is data of those runs or of their session, by any path, or has the
            name of a record.
    """
    names = {output.name, Path(os.path.realpath(output)).name}
    if names & {RECORD_FILE, SET_FILE}:
        raise TargetError(
            f"{output} has the name of a run record or of a published set, which a report must not "
            "replace; use another -o, such as report.html"
        )
    own = _identity(output)
    if own is None or not any(own == _identity(file) for file in _data(paths)):
        return
    if not _is_report(output):
        raise TargetError(
            f"{output} belongs to the input runs and would be lost; use another -o, such as "
            "report.html"
        )


def _data(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the named paths and all files that a run or a session may have written there."""
    yield from paths
    for folder in _folders(paths):
        yield from (file for file in _listed(folder) if file.suffix in _OF_RUNS)


def _folders(paths: Sequence[Path]) -> set[Path]:
    """Return the named folders, their content, and the parent folders of named runs."""
    found: set[Path] = set()
    for path in paths:
        own = Path(os.path.realpath(path if path.is_dir() else path.parent))
        within = _listed(own)
        found |= {own, *within}  # also a run without a record: it may get one later
        if own / RECORD_FILE in within:
            found.add(own.parent)  # with the journal of its session
    return found


def _listed(folder: Path) -> list[Path]:
    """Return the content of a folder; nothing if it is not a folder or unreadable."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _is_report(file: Path) -> bool:
    """Return whether a file is a JSON report, which can be generated again."""
    try:
        found = from_json(read_bounded(file, _LARGEST_REPORT_BYTES))
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and found.get("format") == FORMAT


def _identity(file: Path) -> tuple[int, int] | None:
    """Return the device and inode of a regular file; ``None`` for anything else."""
    try:
        found = file.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def write_whole(text: str | bytes, output: Path) -> Path:
    """Write a text to a file completely or leave the file unchanged; returns its path.

    A link stays, and its target is replaced. A pipe or a character device is written to.

    Raises:
        TargetError: it can't be written.
    """
    try:
        if _is_replaced(output):
            _replace(_encoded(text), Path(os.path.realpath(output)))
        else:
            _write_into(_encoded(text), output)
    except OSError as error:
        raise TargetError(f"can't write {output}: {error.strerror}; use another -o") from error
    return output


def write_own(text: str | bytes, output: Path) -> Path:
    """Write a text as ``write_whole``, under a name that the user did not choose.

    Others may have planted something there: only a regular file of ours is replaced.

    Raises:
        ForeignFileError: a link, a pipe or somebody else's file has the name.
        TargetError: it can't be written.
    """
    try:
        with choose_folder(output.parent) as folder:
            folder.write(output.name, text, _mode_of(output))
    except ForeignFileError as error:
        raise ForeignFileError(f"{error}; -o FILE writes the report to another file") from error
    except OSError as error:
        raise TargetError(f"can't write {output}: {error.strerror}; use -o") from error
    return output


def _encoded(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _mode_of(output: Path) -> int:
    with suppress(FileNotFoundError):
        return stat.S_IMODE(output.lstat().st_mode)
    return 0o666


def _is_replaced(output: Path) -> bool:
    """Return whether to replace the file; pipes and character devices are written to."""
    try:
        mode = output.stat().st_mode
    except FileNotFoundError:
        return True
    if stat.S_ISBLK(mode):
        raise OSError(errno.EINVAL, "it is a block device, whose data would be lost")
    return stat.S_ISREG(mode)


def _replace(content: bytes, file: Path) -> None:
    """Replace a file atomically, keeping its mode; a new file gets the default mode."""
    temporary = file.with_name(f".wattload-{secrets.token_hex(8)}.tmp")
    # Not with ``tempfile``: its files are private to their owner, whatever the umask.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            with suppress(FileNotFoundError):
                os.fchmod(stream.fileno(), stat.S_IMODE(file.stat().st_mode))
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(file)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def _write_into(content: bytes, output: Path) -> None:
    """Write into an existing pipe or device, which has no content to replace."""
    descriptor = os.open(output, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)


def write_out(text: str | bytes) -> None:
    """Write a text to standard output completely.

    Raises:
        TargetError: it can't be written, for example because the disk is full.
    """
    if sys.stdout is None:
        raise TargetError("standard output is closed; use -o to write to a file")
    try:
        sys.stdout.flush()
        stream = sys.stdout.buffer
        raw = getattr(stream, "raw", stream)  # its write() returns the number of bytes written
        rest = memoryview(_encoded(text))
        while rest:
            count = raw.write(rest)
            if count is None:  # a full non-blocking pipe
                select.select([], [raw], [])
            rest = rest[count or 0 :]
    except OSError as error:
        raise TargetError(
            f"standard output failed: {error.strerror}; the report written so far is truncated"
        ) from error
