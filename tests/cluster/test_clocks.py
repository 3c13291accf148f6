"""The clocks of three hosts, which are days apart; one is stepped during a run."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from tests.cluster.conftest import need
from tests.run.running import SLOW, run_folders, until
from tests.run.test_clocks import compile_shim
from tools.cluster.hosts import CLOCK_STEP_NS, DRIVE, NAMES, RUNS, Cluster
from wattload.core.record.file import read_record

DEADLINE_S = 300.0
STEP_S = 5.0


def test_a_host_whose_clock_steps_is_named_and_times_stay_on_one_clock(cluster: Cluster) -> None:
    need(None if shutil.which("cc") else "needs a C compiler (apt-get install gcc)")
    step = Path("/tmp/step")
    variables = {
        "LD_PRELOAD": str(compile_shim(cluster.folder)),
        "SHIM_CLOCK": str(time.CLOCK_REALTIME),
        "SHIM_START": str(time.time()),
        "SHIM_FACTOR": "1.0",
        "SHIM_STEP": str(STEP_S),
        "SHIM_FILE": str(step),
        "WATTLOAD_TEST_STOP": "nap",
    }
    waiting = [cluster.files(name, DRIVE) / f"waiting-{rank}" for rank, name in enumerate(NAMES)]
    with cluster.started(*SLOW, ranks=len(NAMES), **variables) as process:
        until(lambda: all(path.exists() for path in waiting), process, DEADLINE_S)
        cluster.files("node2", str(step)).touch()
        for name in NAMES:
            (cluster.files(name, DRIVE) / "go-on").touch()
        _, said = process.communicate(timeout=DEADLINE_S)
    assert process.returncode in (0, 3), said
    (folder,) = run_folders(cluster.files("node1", RUNS))
    record = read_record(folder)
    checks = {check.name: check for check in record.checks}
    assert [checks[f"clocks_agree_{name}"].verdict for name in NAMES] == ["pass", "warn", "pass"]
    stepped = checks["clocks_agree_node2"].sentence
    assert f"the wall clock of node2: the wall clock was stepped by +{STEP_S:g}." in stepped
    assert [len(host.offsets) for host in record.hosts] == [0, 3, 3]
    for number, host in enumerate(record.hosts[1:], start=1):
        ahead_ns = number * CLOCK_STEP_NS
        assert all(abs(each.offset_ns - ahead_ns) <= each.bound_ns for each in host.offsets)
        assert checks[f"common_clock_{host.facts.name}"].verdict == "pass"
