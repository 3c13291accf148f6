"""A run through a sampler service: the settings of external meters are the service's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.run.running import environment, run, until
from tests.run.test_replay_run import record_of
from wattload.core.power import Evidence

METER = "import time\nwhile True: print(time.time(), 9.5, flush=True); time.sleep(0.02)\n"


@pytest.mark.slow
def test_a_run_names_a_meter_whose_settings_are_the_service_s(tmp_path: Path) -> None:
    meter, socket = tmp_path / "meter.py", tmp_path / "socket"
    meter.write_text(METER)
    service = subprocess.Popen(
        [
            sys.executable, "-m", "wattload", "sampler", "--socket", str(socket),
            f"power.command.run={sys.executable} {meter}", "power.command.scope=drive",
            "power.command.accuracy.reading_percent=1",
        ],
        env=environment(tmp_path), text=True,
    )  # fmt: skip
    words = ["workload=null", f"power.sampler_socket={socket}", "power.idle_s=0"]
    try:
        until(socket.exists, service)
        done = run(tmp_path, "--json", *words, "power=command", "power.rest_max_s=1")
        record = record_of(done)
        refused = run(tmp_path, *words, "power=snmp")
    finally:
        service.terminate()
        service.wait()
    (energy,) = [each for each in record.power.whole_run if each.source == "command"]
    assert energy.evidence is Evidence.MEASURED
    assert energy.mean_w == pytest.approx(9.5)
    said = [line for line in refused.stderr.splitlines() if line.startswith("wattload: ")]
    assert len(said) == 1, refused.stderr
    assert "in the settings of the sampler service: power=snmp needs the outlets" in said[0]
