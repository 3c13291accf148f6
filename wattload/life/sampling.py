"""The run's end of the sampler: exec'ed before MPI is imported, or reached in another container."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Self

from wattload.core.errors import PowerError
from wattload.core.record.run import Status
from wattload.life.folder import make_runs_folder
from wattload.power.client import SOCKET_VARIABLE, SamplerClient
from wattload.power.sampler.aftermath import DRAFT_FILE, finish_aborted


class Sampling:
    """The sampler of this host, for one run after the other of this process.

    A sampler that this process starts serves its runs and ends with it; a service that
    ``service``, else ``WATTLOAD_SAMPLER_SOCKET``, names is only talked to.
    """

    def __init__(self, runs: Path, service: str | None) -> None:
        self._runs = runs
        self._service = service or os.environ.get(SOCKET_VARIABLE)
        self._client: SamplerClient | None = None

    @classmethod
    def begin(cls, runs: Path, service: str | None = None) -> Self:
        """Start or reach the sampler now, before what must not be forked with is loaded."""
        sampling = cls(runs.absolute(), service)
        sampling._client = sampling._connect()
        return sampling

    def _connect(self) -> SamplerClient:
        if self._service:
            return SamplerClient.connect(Path(self._service))
        make_runs_folder(self._runs)
        return SamplerClient.spawn(self._runs)

    @property
    def pid(self) -> int | None:
        """The sampler's process, where this process started it."""
        return self._client.pid if self._client is not None else None

    def client(self, run_id: str) -> SamplerClient:
        """Return the client, introduced as this run; one that was lost is started anew."""
        if self._client is None:
            self._client = self._connect()
        self._client.hello(run_id)
        return self._client

    def lost(self, run_id: str) -> None:
        """Undo by the journal what a sampler that is gone had set for this run."""
        self._close()
        for leftover in SamplerClient.recover(run_id):
            print(f"warning: {leftover.sentence}", file=sys.stderr)

    def _close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def abort(self, folder: Path, status: Status, reason: str) -> None:
        """Have everything undone and the record of an unfinished run written.

        The sampler does both; where it is gone, this process writes the record.
        """
        try:
            if self._client is not None:
                self._client.abort(status, reason)
        except PowerError as error:
            print(f"wattload: {error}", file=sys.stderr)
        self._close()
        if (folder / DRAFT_FILE).exists():
            finish_aborted(folder, status, reason)
