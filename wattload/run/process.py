"""What lasts over the runs of one process: its MPI world, its host's sampler, the bytes written.

The sampler is exec'ed before MPI is imported, and both are started once: a session hands one
``ProcessContext`` to all of its runs.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from wattload.core.workload import Communicator
from wattload.run.config import RunConfig
from wattload.run.power_session import Sampling
from wattload.run.preflight import WriteLedger
from wattload.run.progress import Board, RankProgress, gather_board
from wattload.run.ranks import connect, is_host_leader


class Reporter(Protocol):
    """Where a run reports to while it is under way; called on rank 0 alone."""

    def note(self, text: str) -> None:
        """Show one or more lines on what happens."""
        ...

    def live(self, board: Board) -> AbstractContextManager[None]:
        """Show the progress on the board while the block runs."""
        ...


@dataclass(slots=True, kw_only=True)
class ProcessContext:
    """One rank's process, over all runs of a command.

    ``sampling`` is this host's sampler on the host's leader, ``None`` elsewhere and where only
    data is generated. ``ledger`` holds what the runs write to each drive. ``board`` is the progress
    of all ranks, on rank 0.
    """

    communicator: Communicator
    sampling: Sampling | None
    host: str
    reporter: Reporter
    ledger: WriteLedger = field(default_factory=WriteLedger)
    progress: RankProgress = field(default_factory=RankProgress)
    board: Board | None = None
    _noted: set[str] = field(default_factory=set)

    @property
    def is_root(self) -> bool:
        """Whether this is rank 0, which keeps the records and reports."""
        return self.communicator.rank == 0

    def note(self, text: str) -> None:
        """Show one or more lines, once for all ranks."""
        if self.is_root:
            self.reporter.note(text)

    def note_once(self, lines: Sequence[str]) -> None:
        """Show the lines that no earlier run of this process has shown."""
        for line in lines:
            if line not in self._noted:
                self._noted.add(line)
                self.note(line)

    def live(self) -> AbstractContextManager[None]:
        """Show the progress of all ranks while the block runs, on rank 0."""
        return nullcontext() if self.board is None else self.reporter.live(self.board)


def unsampled_process(reporter: Reporter) -> ProcessContext:
    """Return the context of a process that measures no power."""
    world, host, progress = connect(), socket.gethostname(), RankProgress()
    return ProcessContext(
        communicator=world,
        sampling=None,
        host=host,
        reporter=reporter,
        progress=progress,
        board=gather_board(progress, world, host),
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
