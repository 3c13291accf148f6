"""Proof that a device holds all bytes of files: holes and unwritten blocks are read without it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from wattload.core.errors import DataError
from wattload.core.record.results import Check
from wattload.core.storage.extents import extent_map
from wattload.core.units import format_bytes

NAME = "written_extents"


def written_extents_check(paths: Iterable[Path], *, remedy: str) -> Check:
    """Return the check that files have neither holes nor unwritten extents, before a timed read.

    ``remedy`` ends the sentence of the error. The check is not made where the file system can't
    say.

    Raises:
        DataError: bytes of a file are on no device.
        OSError: a file can't be opened.
    """
    file_count = 0
    unknown: list[Path] = []
    for path in paths:
        file_count += 1
        unwritten_bytes = extent_map(path).unwritten_bytes
        if unwritten_bytes is None:
            unknown.append(path)
        elif unwritten_bytes:
            raise DataError(
                f"{path} has {format_bytes(unwritten_bytes)} in holes or unwritten blocks, which "
                f"would be read as zeros without the drive; {remedy}"
            )
    if unknown:
        return Check(
            name=NAME,
            verdict="not_checked",
            sentence=(
                f"The file system of {unknown[0]} does not report unwritten extents (FIEMAP), so "
                "reads of them can't be excluded. The files have no holes."
            ),
            figures={"file_count": file_count, "unknown_count": len(unknown)},
        )
    return Check(
        name=NAME,
        verdict="pass",
        sentence=(
            f"All bytes of the {file_count} files were written to the device before the timed "
            "read: no holes, no unwritten extents."
        ),
        figures={"file_count": file_count, "unwritten_bytes": 0},
    )
