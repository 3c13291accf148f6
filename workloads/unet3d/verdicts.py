"""The checks that only a unet3d run can make, and the figures that they need."""

from __future__ import annotations

from wattload.core.checks.declared import DeclaredCheck, Figures
from wattload.loaders.data.cold_cache import is_cold


def is_delivered(figures: Figures) -> bool:
    """Return whether nothing that was verified differs from what was written.

    Every drawn sample's row was hashed; the counts of rows are ``None`` for a harness, which owns
    the loop.
    """
    altered = [figures[f"altered_{what}"] for what in ("samples", "rows", "device_rows")]
    hashed, expected = figures["hashed_samples"], figures["expected_samples"]
    return hashed == expected != 0 and not any(altered)


CHECKS = {
    "cold_cache": DeclaredCheck(since=1, holds=is_cold),
    "written_extents": DeclaredCheck(since=3, optional=True),
    "delivered_bytes": DeclaredCheck(since=1, holds=is_delivered, not_made_by=("dlio",)),
    "step_times_close": DeclaredCheck(since=3, optional=True),
}
