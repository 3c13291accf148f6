"""A host with model drives whose runs have a draft of their record, as real runs do."""

from __future__ import annotations

import os
from pathlib import Path

from tests.model_host.drive import load, store
from tests.model_host.host import ROOT, RUN_ID, ModelHost, wait_for
from tests.records import Scenario, make_run
from wattload.power.sampler.client import SamplerClient

__all__ = ["ROOT", "RUN_ID", "Bench", "is_running", "restore_slowly", "wait_for"]


def is_running(client: SamplerClient) -> bool:
    """Return whether the process of a sampler that was started here still runs."""
    try:
        return os.waitid(os.P_PID, client.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except ChildProcessError:
        return False  # it ended, and was waited for


def restore_slowly(bench: Bench) -> None:
    """Make the drive take a while for its next change of state."""
    model = load(bench.models / "nvme0.json")
    model.knobs.late_s = 0.5
    store(bench.models / "nvme0.json", model)


class Bench(ModelHost):
    """A model host with drafts, for what the sampler does after a run was killed."""

    def add_run(self, run_id: str) -> Path:
        folder = super().add_run(run_id)
        record, _ = make_run(Scenario(run_id=run_id))
        empty = {"spans": (), "metrics": (), "checks": (), "limits": ()}
        draft = record.model_copy(update=empty)
        (folder / "draft.json").write_text(draft.model_dump_json())
        return folder
