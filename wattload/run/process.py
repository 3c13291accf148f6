"""What lasts over the runs of one process: its MPI world, its host's sampler, the bytes written.

The sampler is exec'ed before MPI is imported, and both are started once: a session hands one
``ProcessContext`` to all of its runs.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from wattload.core.workload import Communicator, Progress
from wattload.run.config import RunConfig
from wattload.run.power_session import Sampling
from wattload.run.preflight import WriteLedger
from wattload.run.ranks import connect, is_host_leader


class Reporter(Protocol):
    """Where a run reports to while it is under way; called on rank 0 alone."""

    def note(self, text: str) -> None:
        """Show one or more lines on what happens."""
        ...

    def progress(self) -> Progress:
        """Return what shows how far long work is."""
        ...


class SilentProgress:
    """Shows nothing; for ranks other than 0, whose lines would only repeat."""

    def begin(self, task: str, total_bytes: int | None) -> None:
        """Ignore the task."""

    def advance(self, moved_bytes: int) -> None:
        """Ignore the bytes."""

    def end(self) -> None:
        """Ignore the end."""


@dataclass(slots=True, kw_only=True)
class ProcessContext:
    """One rank's process, over all runs of a command.

    ``sampling`` is this host's sampler on the host's leader, ``None`` elsewhere and where only
    data is generated. ``ledger`` holds what the runs write to each drive.
    """

    communicator: Communicator
    sampling: Sampling | None
    host: str
    reporter: Reporter
    ledger: WriteLedger = field(default_factory=WriteLedger)

    @property
    def is_root(self) -> bool:
        """Whether this is rank 0, which keeps the records and reports."""
        return self.communicator.rank == 0

    def note(self, text: str) -> None:
        """Show one or more lines, once for all ranks."""
        if self.is_root:
            self.reporter.note(text)

    def progress(self) -> Progress:
        """Return what shows how far this rank's long work is."""
        return self.reporter.progress() if self.is_root else SilentProgress()


def unsampled_process(reporter: Reporter) -> ProcessContext:
    """Return the context of a process that measures no power."""
    return ProcessContext(
        communicator=connect(), sampling=None, host=socket.gethostname(), reporter=reporter
    )


@contextmanager
def start_process(config: RunConfig, reporter: Reporter) -> Iterator[ProcessContext]:
    """Start or reach the sampler, connect the ranks, and yield the context of this process.

    Raises:
        MissingExtraError: a launcher started several processes and mpi4py is not installed.
        PowerError: the sampler can't be started or reached.
    """
    sampling = None
    if is_host_leader():
        sampling = Sampling.begin(Path(config.runs), config.power.sampler_socket)
    try:
        process = unsampled_process(reporter)
        process.sampling = sampling
        yield process
    finally:
        if sampling is not None:
            sampling.close()
