"""Write the records of runs that ended together with their sampler, as in a power cut.

A run that dies alone leaves that to its sampler; see ``aborted_record``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from wattload.core.errors import DataError, WattloadError
from wattload.core.record.unfinished import abandoned, remove_unborn, unfinished_runs
from wattload.power.sampler.aborted_record import finish_aborted

REASON = "the run and its sampler ended without a record: they were killed, or the host stopped"


def finish_abandoned(paths: Sequence[Path]) -> dict[Path, str]:
    """Write the records of those runs that nobody else will finish.

    ``paths`` are run folders, or folders of them. Runs that live, runs of other hosts and folders
    of other users are left alone. Returns each unfinished run's folder, and why it was left without
    a record; the reason is empty if it now has one.
    """
    found = {}
    for path in paths:
        remove_unborn(path)
    for folder in dict.fromkeys(unfinished_runs(paths)):
        with abandoned(folder) as why_not:
            found[folder] = why_not or _finish(folder)
    return found


def _finish(folder: Path) -> str:
    """Write the record of a run; return why that is impossible."""
    try:
        finish_aborted(folder, "aborted", REASON)
    except (DataError, OSError) as error:
        return f"it was interrupted, and its record can't be written: {error}"
    except (WattloadError, ValueError, RecursionError) as error:
        return f"it was interrupted, and its draft is unusable: {error}; delete its folder"
    return ""
