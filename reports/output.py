"""Reports in their forms, and as files that are written whole or not at all."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from wattload.core.errors import TargetError
from wattload.reports.exports.comma import csv_report
from wattload.reports.exports.document import json_report
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


def write_whole(text: str, output: Path) -> Path:
    """Write a text to a file that has all of it or stays as it was; returns its path.

    Raises:
        TargetError: it can't be written there.
    """
    temporary = output.with_name(output.name + ".tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(output)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise TargetError(
            f"{output} can't be written: {error.strerror}; name another -o"
        ) from error
    return output
