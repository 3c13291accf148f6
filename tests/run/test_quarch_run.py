"""A run whose drive hangs on a meter: its joules are the rails', and an overrun fails it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests.power.sources.qis_mock import MODULE, QisMock, qis
from tests.run.test_replay_run import record_of, run
from wattload.core.power import Evidence

TRUE_W = 13.0


def metered(mock: QisMock) -> list[str]:
    return [
        "power=quarch",
        f"power.quarch.module={MODULE}",
        f"power.quarch.port={mock.port}",
        "power.quarch.accuracy.reading_percent=0.5",
        "power.period_s=0.02",
        "power.idle_s=0",
    ]


@pytest.mark.slow
def test_joules_of_a_metered_run_are_those_of_the_rails(tmp_path: Path) -> None:
    with qis(real_time=True) as mock:
        record = record_of(run(tmp_path, *metered(mock)))
    (energy,) = [each for each in record.power.whole_run if each.source == "quarch"]
    assert energy.evidence is Evidence.MEASURED
    assert energy.sample_count > 10
    assert energy.mean_w == pytest.approx(TRUE_W, rel=1e-3)
    assert energy.uncertainty_j is not None
    assert energy.coverage == pytest.approx(1.0, abs=0.02)


@pytest.mark.slow
def test_overrun_fails_the_run_that_it_met(tmp_path: Path) -> None:
    with qis(real_time=True) as mock:

        def overrun() -> None:
            while sum("stream text all" in command for command in mock.commands) < 5:
                time.sleep(0.01)
            mock.state = "Stopped: Overrun"

        threading.Thread(target=overrun, daemon=True).start()
        done = run(tmp_path, *metered(mock))
    assert done.returncode == 3, done.stderr
    record = record_of(done)
    failed = [check for check in record.checks if check.verdict == "fail"]
    assert any("Overrun" in check.sentence for check in failed)
