"""What a command that was killed leaves on a host, and the next command of any kind removes."""

from __future__ import annotations

from pathlib import Path

from wattload.core.host.memory_group import remove_left_groups
from wattload.core.record.file import remove_unborn


def remove_leftovers(runs: Path) -> None:
    """Remove hidden folders in a folder of runs, and control groups, whose processes have ended."""
    remove_unborn(runs)
    remove_left_groups()
