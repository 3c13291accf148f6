"""In the guest: the experiment on power states, on a drive whose power state the kernel can set."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.virtual_runs import CHECK_FAILED, FINISHED, POWER, VIRTUAL, mount, wattload
from wattload.core.record.file import RECORD_FILE, read_record

pytestmark = [
    pytest.mark.lab,
    pytest.mark.lab_long,
    pytest.mark.skipif(not VIRTUAL, reason="runs in the guest of `make lab-all`"),
]


def test_the_experiment_on_power_states_alternates_them(tmp_path: Path) -> None:
    small = ("scale=demo", "workload.epochs=1", "repeat=2", f"runs={tmp_path}")
    target = f"target.path={mount()}"
    wattload(
        "run", "experiment=power_states", target, *small, *POWER, status=(FINISHED, CHECK_FAILED)
    )
    records = [read_record(path) for path in tmp_path.glob(f"*/{RECORD_FILE}")]
    arms = [
        record.label
        for record in sorted(records, key=lambda each: each.comparison.order)
        if not record.comparison.warm_up
    ]
    assert arms == ["PS0", "PS1", "PS1", "PS0"]
    for record in records:
        assert f"PS{record.config['power']['state']}" == record.label
        assert record.status == "complete"
