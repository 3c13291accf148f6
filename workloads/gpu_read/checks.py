"""The check that reads did not go through the page cache."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from wattload.core.record.results import Check
from wattload.core.units import format_percent
from wattload.loaders.data.cold_cache import RESIDENT_LIMIT, is_cold, residency


def still_cold(paths: Sequence[Path]) -> Check:
    """Return the check that the reads left nothing in the page cache: they did not go through it.

    Raises:
        OSError: a file can't be opened.
    """
    name, found = "cold_cache_after", residency(paths)
    if found.fraction is None:
        return Check(
            name=name,
            verdict="not_checked",
            sentence=f"Whether reads used the page cache is unknown: {found.missing}.",
            mandatory=True,
        )
    figures = {
        "resident_bytes": found.resident_bytes,
        "total_bytes": found.total_bytes,
        "limit_fraction": RESIDENT_LIMIT,
    }
    good = is_cold(figures)
    return Check(
        name=name,
        verdict="pass" if good else "fail",
        sentence=(
            f"{format_percent(found.fraction, 2)} of the files' {found.total_bytes} bytes were in "
            "the page cache after the reads"
            + ("." if good else ": reads went through it, or another program read the files.")
        ),
        figures=figures,
        mandatory=True,
    )
