"""The checks that only a unet3d run can make, and the figures that they need."""

from __future__ import annotations

from wattload.core.checks.declared import DeclaredCheck, Figures
from wattload.loaders.data.cold_cache import is_cold


def is_delivered(figures: Figures) -> bool:
    """Return whether every sample to hash was hashed, and none differs from what was written."""
    altered = [figures[f"altered_{what}"] for what in ("samples", "rows", "device_rows")]
    return figures["hashed_samples"] == figures["expected_samples"] != 0 and not any(altered)


CHECKS = {
    "cold_cache": DeclaredCheck(since=1, holds=is_cold),
    "written_extents": DeclaredCheck(since=3),
    "delivered_bytes": DeclaredCheck(since=1, holds=is_delivered),
    "step_times_close": DeclaredCheck(since=3),
}
