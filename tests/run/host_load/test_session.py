"""The session of a load: which part of the workload's time is in the level during it."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from wattload.core.host.counters import ProcessTree
from wattload.run.host_load.config import Stressapptest
from wattload.run.host_load.session import LoadSession, Rank
from wattload.run.phases import PhaseRecorder

CPUS = frozenset(os.sched_getaffinity(0))
SLEEP_S, BURN_S = 0.3, 0.6


def burn() -> None:
    end_s = time.thread_time() + BURN_S
    while time.thread_time() < end_s:
        pass


def test_the_time_between_timed_phases_is_left_out(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    recorder = PhaseRecorder(host="box", rank=0, tree=ProcessTree(), read_stats=dict)
    session = LoadSession(
        Stressapptest(name="stressapptest", binary=str(program), warm_up_s=0.0, alone_s=0.01),
        host="box",
        ranks=[Rank(pid=os.getpid(), cpus=CPUS)],
        recorder=recorder,
    )

    def overlap() -> None:
        with recorder.phase("overlapping"):
            time.sleep(2 * SLEEP_S)

    try:
        session.settle()
        with recorder.phase("first"):
            other = threading.Thread(target=overlap)
            other.start()
            time.sleep(SLEEP_S)
            with recorder.phase("nested"):
                pass
        other.join()
        burn()
        with recorder.phase("last"):
            time.sleep(SLEEP_S)
        session.end()
    finally:
        session.close()
    record = session.record()
    assert record is not None
    during = record.level("during")
    assert during is not None
    assert during.end_ns - during.start_ns >= (3 * SLEEP_S + BURN_S) * 1e9
    assert during.run_cpu_share is not None
    assert during.run_cpu_share * 3 * SLEEP_S * len(CPUS) < BURN_S / 2
