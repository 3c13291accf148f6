"""Write the records of runs that ended together with their sampler, as in a power cut.

A run that dies alone leaves that to its sampler; see ``aborted_record``.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from wattload.core.errors import WattloadError
from wattload.core.record.unfinished import abandoned, remove_unborn, unfinished_runs
from wattload.power.sampler.aborted_record import finish_aborted

REASON = "the run and its sampler ended without a record: they were killed, or the host stopped"

_LOG = logging.getLogger(__name__)


def finish_abandoned(paths: Sequence[Path]) -> list[Path]:
    """Write the records of those runs that nobody else will finish, and return their folders.

    ``paths`` are run folders, or folders of them. Runs that live, runs of other hosts and folders
    of other users are left alone.
    """
    finished = []
    for path in paths:
        remove_unborn(path)
    for folder in unfinished_runs(paths):
        with abandoned(folder) as is_abandoned:
            if not is_abandoned:
                continue
            try:
                finish_aborted(folder, "aborted", REASON)
            except (WattloadError, OSError, ValueError, RecursionError) as error:
                _LOG.warning("the run %s can't be finished: %s", folder, error)
            else:
                finished.append(folder)
    return finished
