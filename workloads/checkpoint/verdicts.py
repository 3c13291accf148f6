"""The checks that only a checkpoint run can make, and the figures that they need."""

from __future__ import annotations

from wattload.core.checks.declared import DeclaredCheck, Figures
from wattload.loaders.data.cold_cache import is_cold


def is_read_back(figures: Figures) -> bool:
    """Return whether all saved bytes were loaded, none with a wrong stamp or checksum."""
    is_whole = figures["delivered_bytes"] == figures["planned_bytes"]
    return is_whole and not figures["bad_blocks"] and not figures["bad_files"]


def is_on_target(figures: Figures) -> bool:
    """Return whether the files have at least the planned bytes; a container adds some."""
    return float(figures["file_bytes"] or 0) >= float(figures["planned_bytes"] or 0)


def is_durable(figures: Figures) -> bool:
    """Return whether every file was fsynced; without ``workload.fsync`` there are no figures."""
    return figures.get("synced_files") == figures.get("planned_files")


CHECKS = {
    "cold_cache": DeclaredCheck(since=1, holds=is_cold),
    "written_extents": DeclaredCheck(since=3, optional=True),
    "checkpoint_durable": DeclaredCheck(since=1, holds=is_durable),
    "checkpoint_bytes_on_target": DeclaredCheck(since=1, holds=is_on_target),
    "checkpoint_committed": DeclaredCheck(since=1),
    "checkpoint_read_back": DeclaredCheck(since=1, holds=is_read_back),
}
