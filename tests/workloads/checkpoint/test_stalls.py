"""How long training stands still for checkpoints that drain: which stalls count."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.context import context_at
from tests.workloads.checkpointing import BESIDE, BESIDE_STEPS, STEP_S, facts_of, made, run, value
from wattload.loaders.checkpoint_store import Saved
from wattload.loaders.direct.checkpoint import DirectStore

pytestmark = pytest.mark.usefixtures("short_ceilings")


def test_a_drain_that_reads_waited_for_shortens_no_stall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two kept, reads follow the 2nd and 4th: the 3rd meets no drain, and says nothing."""
    context, real_save = context_at(tmp_path), DirectStore.save

    def save(store: DirectStore, *given: Any, **named: Any) -> Saved:
        time.sleep(20 * STEP_S)
        return real_save(store, *given, **named)

    monkeypatch.setattr(DirectStore, "save", save)
    record, _ = run(made(checkpoint_count=4, **BESIDE), context)
    _, second, _, fourth = facts_of(record).ranks[0].stalls
    waited_s = second.wait_s + fourth.wait_s
    assert value(record, "drain_wait_seconds_per_checkpoint") == waited_s / 2
    stalled_s = waited_s + second.snapshot_s + fourth.snapshot_s
    assert value(record, "stall_seconds_per_checkpoint") == pytest.approx(stalled_s / 2)
    trained_s = stalled_s / value(record, "stall_share") - stalled_s
    assert trained_s >= 2 * BESIDE_STEPS * STEP_S
    assert trained_s < sum(phase.seconds for phase in context.phases if phase.name == "train") / 2


def test_stalls_that_meet_no_drain_are_missing_not_short(tmp_path: Path) -> None:
    record, _ = run(made(keep=1, **BESIDE), context_at(tmp_path))
    found = {metric.name: metric for metric in record.metrics}
    for name in (
        "stall_seconds_per_checkpoint",
        "stall_share",
        "drain_wait_seconds_per_checkpoint",
    ):
        assert found[name].value is None
        assert "workload.keep=2" in found[name].missing["value"]
    assert found["snapshot_seconds_per_checkpoint"].value
