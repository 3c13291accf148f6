"""What a run with loader=dlio leaves is a run of DLIO, from which its record's figures follow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.loaders.dlio.job import needs_dlio
from wattload.__main__ import main
from wattload.core.errors import CHECK_FAILED
from wattload.core.mlperf import formulas
from wattload.core.mlperf.edition import editions
from wattload.core.mlperf.published import TrainingFacts
from wattload.core.mlperf.store import read_sets
from wattload.results.reading import read_judged, run_of
from wattload.results.training.as_published import published_facts

pytestmark = [needs_dlio, pytest.mark.slow]

LOGGED_S = 0.005
"""DLIO's times of blocks are read after those that its rates are computed from."""


# A run of the program takes 15 s, of which its start is most.
@pytest.mark.parametrize(
    ("cold_epochs", "accelerators"),
    [(True, 1), pytest.param(False, 2, marks=pytest.mark.thorough)],
)
def test_an_import_gives_the_figures_of_the_record(
    tmp_path: Path, cold_epochs: bool, accelerators: int, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "target"
    target.mkdir()
    words = ["workload=unet3d", "loader=dlio", "scale=demo", "power=none", "loader.workers=1"]
    words += [f"loader.cold_epochs={cold_epochs}", f"accelerator.count={accelerators}"]
    words += [
        "workload.epochs=2",
        "workload.batch_samples=2",
        f"target.path={target}",
        f"runs={tmp_path}/runs",
    ]
    assert main(["run", *words]) in {0, CHECK_FAILED}  # later epochs may come from memory
    [run] = (tmp_path / "runs").glob("*-unet3d-*")
    imported = tmp_path / "imported"
    capsys.readouterr()
    assert main(["import", str(run), f"runs={imported}", "--json"]) == 0
    [tree] = json.loads(capsys.readouterr().out)["trees"]
    assert tree["passed_over"] == 1  # the ceiling
    assert tree["unread"] == tree["not_in_this_copy"] == []
    [found], unread = read_sets([imported])
    assert not unread
    [theirs] = found.runs
    assert isinstance(theirs.facts, TrainingFacts)
    assert theirs.facts.source == "steps"
    record = read_judged(run / "record.json").record
    ours = run_of(record)
    assert ours is not None
    facts, their = ours.facts, theirs.facts
    assert their.model == record.workload.name
    assert their.accelerator == record.workload.accelerator
    assert their.accelerators == accelerators == facts.accelerators
    assert their.step_s == facts.step_s
    assert their.batch_samples == facts.settings.batch_samples
    assert their.record_bytes == pytest.approx(facts.settings.record_bytes, abs=1)
    assert len(their.epochs) == 2
    assert {block.steps for blocks in their.epochs for block in blocks} == {facts.steps_per_epoch}
    for blocks, epochs in zip(their.epochs, facts.by_epoch, strict=True):
        assert blocks[0].duration_s == pytest.approx(epochs[0].duration_s, abs=LOGGED_S)
        for block, epoch in zip(blocks, epochs, strict=True):
            assert block.first_step_s == pytest.approx(epoch.first_step_s, abs=1e-9)
    named = {metric.name: metric.value for metric in record.metrics}
    # DLIO logs the times of rank 0 alone, and every rank begins and ends its block by its own.
    spread_s = max(
        abs(epoch.duration_s - epochs[0].duration_s)
        for epochs in facts.by_epoch
        for epoch in epochs
    )
    within = (LOGGED_S + spread_s) / min(epoch.window_s for epoch in facts.all_epochs)
    mine = published_facts(ours)
    for edition in editions():
        assert formulas.samples_per_s(their, edition).value == pytest.approx(
            formulas.samples_per_s(mine, edition).value, rel=within
        )
    # The computation that DLIO 2.0.0 lists is nominal.
    for name, value in (
        ("dlio_reported_samples_per_s", formulas.samples_per_s(their, "v1.0").value),
        ("dlio_samples_per_s", formulas.samples_per_s(their, "v2.0").value),
        ("dlio_reported_au", formulas.au(their).value),
        ("au_nominal", formulas.au(their).value),
    ):
        assert value == pytest.approx(named[name], rel=within)
    reported = their.reported
    assert reported is not None
    assert reported.au_mean == pytest.approx(named["dlio_reported_au"])
    assert reported.samples_per_s_mean == pytest.approx(named["dlio_reported_samples_per_s"])
    assert reported.nominal_bytes_per_s == pytest.approx(named["dlio_reported_nominal_bytes_per_s"])
