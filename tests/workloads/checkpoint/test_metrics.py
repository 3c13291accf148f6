"""How long training stands still for checkpoints that drain: which stalls count, and whose."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.context import context_at
from tests.workloads.checkpointing import BESIDE, BESIDE_STEPS, STEP_S, made, run, value
from wattload.loaders.checkpoint_store import Saved
from wattload.loaders.direct.checkpoint import DirectStore
from wattload.workloads.checkpoint.cycle import RankTotals, Stall, Step
from wattload.workloads.checkpoint.metrics import overlap_metrics

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
    outcome, _ = run(made(checkpoint_count=4, **BESIDE), context)
    (waits_s,) = outcome.details["drain_wait_seconds_by_rank"]
    assert value(outcome, "drain_wait_seconds_per_checkpoint") == (waits_s[1] + waits_s[3]) / 2
    copies_s = outcome.details["snapshot_seconds_by_rank"][0]
    stalled_s = waits_s[1] + waits_s[3] + copies_s[1] + copies_s[3]
    assert value(outcome, "stall_seconds_per_checkpoint") == pytest.approx(stalled_s / 2)
    trained_s = stalled_s / value(outcome, "stall_share") - stalled_s
    assert trained_s >= 2 * BESIDE_STEPS * STEP_S
    assert trained_s < sum(phase.seconds for phase in context.phases if phase.name == "train") / 2


def test_stalls_that_meet_no_drain_are_missing_not_short(tmp_path: Path) -> None:
    outcome, _ = run(made(keep=1, **BESIDE), context_at(tmp_path))
    found = {metric.name: metric for metric in outcome.metrics}
    for name in (
        "stall_seconds_per_checkpoint",
        "stall_share",
        "drain_wait_seconds_per_checkpoint",
    ):
        assert found[name].value is None
        assert "workload.keep=2" in found[name].missing["value"]
    assert found["snapshot_seconds_per_checkpoint"].value


def test_stalls_are_the_slowest_ranks_and_steps_are_told_apart() -> None:
    ms = 1_000_000
    one = RankTotals(host="a", stalls=[Stall(0, 4 * ms, None), Stall(6 * ms, 4 * ms, 12 * ms)])
    other = RankTotals(host="a", stalls=[Stall(0, 5 * ms, None), Stall(1 * ms, 5 * ms, 12 * ms)])
    one.durable_ns = [250 * ms, 450 * ms]
    one.steps = [Step(10 * ms, draining=False), Step(12 * ms, draining=True)]
    found = {metric.name: metric.value for metric in overlap_metrics([one, other], [0.2, 0.4])}
    assert found == {
        "stall_seconds_per_checkpoint": pytest.approx(10e-3),
        "drain_seconds_per_checkpoint": pytest.approx(0.3),
        "durable_seconds_per_checkpoint": pytest.approx(0.35),
        "stall_share": pytest.approx(10 / (10 + 12)),
        "drain_wait_seconds_per_checkpoint": pytest.approx(6e-3),
        "snapshot_seconds_per_checkpoint": pytest.approx(5e-3),
        "steps_during_drain": 1,
        "step_slowdown": pytest.approx(1.2),
    }


@pytest.mark.parametrize(("draining", "message"), [(True, "without a drain"), (False, "during a")])
def test_a_slowdown_needs_steps_of_both_kinds(draining: bool, message: str) -> None:
    rank_totals = RankTotals(
        host="a", stalls=[Stall(0, 1, None)], steps=[Step(10, draining=draining)]
    )
    (slowdown,) = (m for m in overlap_metrics([rank_totals], [1.0]) if m.name == "step_slowdown")
    assert slowdown.value is None
    assert message in slowdown.missing["value"]
