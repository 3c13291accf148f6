"""Reports in their forms, and as files that are written whole or not at all."""

from __future__ import annotations

import errno
import gc
import json
import os
import secrets
import select
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from wattload.core.errors import TargetError
from wattload.core.record.run import RECORD_FILE
from wattload.reports.exports.comma import csv_report
from wattload.reports.exports.document import FORMAT, json_report
from wattload.reports.exports.markdown import markdown_report
from wattload.reports.load import Run, load_runs
from wattload.reports.many import Lightener
from wattload.reports.page import page_of
from wattload.reports.subject import Subject, make_subject

FORMS: Mapping[str, Callable[[Subject], str]] = {
    "html": page_of,
    "json": json_report,
    "csv": csv_report,
    "markdown": markdown_report,
}
"""What a report can be, by the word for it on the command line."""


def report_text(
    paths: Sequence[Path],
    *,
    form: str = "html",
    by: str = "label",
    redact: bool = False,
    forced: bool = False,
) -> str:
    """Return the report of the runs under ``paths``.

    Args:
        paths: run folders, records, or folders of run folders.
        form: a key of ``FORMS``.
        by: what tells the arms apart: see ``make_subject``.
        redact: mask host names, serials and paths.
        forced: compare even what is barred from it.

    Raises:
        RecordError: a run is missing, cut short, or named twice.
        ConfigError: ``by`` is nothing that these runs can be told apart by.
    """
    with _held(paths, redact=redact) as runs:
        return FORMS[form](make_subject(runs, by, forced=forced))


@contextmanager
def _held(paths: Sequence[Path], *, redact: bool) -> Iterator[tuple[Run, ...]]:
    """Yield the runs, which no search for garbage goes through: that took a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        runs = load_runs(paths, redact=redact, keep=Lightener())
        gc.freeze()
    finally:
        if was_enabled:
            gc.enable()
    try:
        yield runs
    finally:
        gc.unfreeze()


def refuse_input(output: Path, paths: Sequence[Path]) -> None:
    """Refuse to write over what a report is made from.

    Args:
        output: where the report is to go.
        paths: what it is made from: run folders, records, or folders of run folders.

    Raises:
        TargetError: ``output`` is data of those runs or of the session that they were made in, by
            whatever path, or has the name of a record.
    """
    if RECORD_FILE in (output.name, Path(os.path.realpath(output)).name):
        raise TargetError(
            f"{output} has the name of a run's record, which no report may replace; name another "
            "-o, such as report.html"
        )
    own = _identity(output)
    if own is None or not any(own == _identity(file) for file in _data(paths)):
        return
    if not _is_report(output):
        raise TargetError(
            f"{output} is with the runs that the report is made from and would be lost; name "
            "another -o, such as report.html"
        )


_OF_RUNS = frozenset({".json", ".jsonl", ".parquet", ".yaml"})
"""Ends of what runs and their sessions write: records, drafts, journals, traces, configurations."""


def _data(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield what was named and all that a run or a session may have written around it."""
    yield from paths
    for folder in _folders(paths):
        yield from (file for file in _listed(folder) if file.suffix in _OF_RUNS)


def _folders(paths: Sequence[Path]) -> set[Path]:
    """Return the folders that were named, what is in them, and those that named runs stand in."""
    found: set[Path] = set()
    for path in paths:
        own = Path(os.path.realpath(path if path.is_dir() else path.parent))
        within = _listed(own)
        found |= {own, *within}  # a run without a record too: one may yet be made of it
        if own / RECORD_FILE in within:
            found.add(own.parent)  # where the journal of its session is
    return found


def _listed(folder: Path) -> list[Path]:
    """Return what is in a folder; nothing where it is none or can't be listed."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _is_report(file: Path) -> bool:
    """Return whether a file is a report as JSON, which can be made again."""
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("format") == FORMAT


def _identity(file: Path) -> tuple[int, int] | None:
    """Return what a file has in common with itself under other names; ``None`` without a file."""
    try:
        found = file.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def write_whole(text: str, output: Path) -> Path:
    """Write a text to a file that has all of it or stays as it was; returns its path.

    A link stays, and what it leads to is replaced. A pipe or a character device is written to.

    Raises:
        TargetError: it can't be written there.
    """
    try:
        if _is_replaced(output):
            _replace(text.encode(), Path(os.path.realpath(output)))
        else:
            _pour(text.encode(), output)
    except OSError as error:
        raise TargetError(
            f"{output} can't be written: {error.strerror}; name another -o"
        ) from error
    return output


def _is_replaced(output: Path) -> bool:
    """Return whether a new file takes the place of what is there; no pipe or device is replaced."""
    try:
        mode = output.stat().st_mode
    except FileNotFoundError:
        return True
    if stat.S_ISBLK(mode):
        raise OSError(errno.EINVAL, "it is a block device, whose data would be lost")
    return stat.S_ISREG(mode)


def _replace(content: bytes, file: Path) -> None:
    """Put a new file in the place of the one before, with its mode, or that of any new file."""
    temporary = file.with_name(f".wattload-{secrets.token_hex(8)}.tmp")
    # Not by ``tempfile``, whose files only their owner may read whatever the umask says.
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


def _pour(content: bytes, output: Path) -> None:
    """Write into what is there: it has no content that could be replaced."""
    descriptor = os.open(output, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)


def write_out(text: str) -> None:
    """Write a text to standard output to its last byte.

    Raises:
        BrokenPipeError: the reader has left.
        TargetError: it can't be written, as onto a disk that is full.
    """
    if sys.stdout is None:
        raise TargetError("standard output is closed; name a file with -o")
    try:
        sys.stdout.flush()
        stream = sys.stdout.buffer
        raw = getattr(stream, "raw", stream)  # of each write it says how much was taken
        rest = memoryview(text.encode())
        while rest:
            count = raw.write(rest)
            if count is None:  # a pipe that takes no more for now and does not wait
                select.select([], [raw], [])
            rest = rest[count or 0 :]
    except BrokenPipeError:
        raise
    except OSError as error:
        raise TargetError(
            f"standard output can't be written to the end: {error.strerror}; what is there of the "
            "report is cut short"
        ) from error
