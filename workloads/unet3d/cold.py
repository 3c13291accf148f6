"""The cold cache before each epoch: put out on every host, and proved."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from wattload.core.record.check import Check
from wattload.core.workload import Communicator
from wattload.loaders.coldcache import cold_cache_check, evict, worst_of


class ColdCache:
    """Evicts the files before each epoch and keeps the check of each; one rank per host does it."""

    def __init__(self, paths: Sequence[Path], world: Communicator) -> None:
        self._paths = paths
        self._world = world
        self._checks: list[Check] = []
        hosts = world.gather(os.uname().nodename)
        self._leads_host = hosts.index(os.uname().nodename) == world.rank

    def before_epoch(self) -> None:
        """Return when the files are out of the page cache on every host, and that was looked at.

        Raises ``OSError`` if a file can't be opened.
        """
        self._world.barrier()
        if self._leads_host:
            evict(self._paths)
            self._checks.append(cold_cache_check(self._paths))
        self._world.barrier()

    def check(self) -> Check:
        """Return the worst check of all epochs and hosts."""
        return worst_of(check for checks in self._world.gather(self._checks) for check in checks)
