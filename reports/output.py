"""Reports as files: runs read, one form of them made, written whole or not at all."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from wattload.core.errors import TargetError
from wattload.reports.load import Run, load_runs
from wattload.reports.many import lightened
from wattload.reports.page import page_of
from wattload.reports.subject import Subject, make_subject

FORMS: Mapping[str, Callable[[Subject], str]] = {
    "html": page_of,
}
"""What a report can be, by the word for it on the command line."""


def write_report(
    paths: Sequence[Path],
    output: Path,
    *,
    form: str = "html",
    by: str = "label",
    redact: bool = False,
    forced: bool = False,
) -> Path:
    """Write the report of the runs under ``paths`` to ``output``, whole or not at all.

    Raises:
        RecordError: a run is missing, cut short, or named twice.
        ConfigError: ``by`` is nothing that these runs can be told apart by.
        TargetError: the report can't be written there.
    """
    with _held(paths, redact=redact) as runs:
        text = FORMS[form](make_subject(runs, by, forced=forced))
    return write_whole(text, output)


@contextmanager
def _held(paths: Sequence[Path], *, redact: bool) -> Iterator[tuple[Run, ...]]:
    """Yield the runs, which no search for garbage goes through: that took a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        runs = load_runs(paths, redact=redact, keep=lightened)
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
