"""The KV cache on a virtual drive: its joules against the truth, and the runs of the example.

`make lab-all` judges one run. `make lab-example` makes the runs of docs/examples/kv-cache, which
come to ``kv-cache`` in the lab's ``out``: users in a closed loop in two power states, then both
states at rates of requests.
"""

from __future__ import annotations

import pytest

from tests.lab.truth_table import edge_j, lines
from tests.lab.virtual_runs import (
    CHECK_FAILED,
    FINISHED,
    INTERVAL_POWER,
    OUT,
    VIRTUAL,
    Ran,
    mount,
    run,
    wattload,
)
from wattload.core.record.file import RECORD_FILE, read_record
from wattload.reports.runs.energy import phase_energies
from wattload.results.kv_cache.facts import FILL, RESTORE, STEADY, STORE

in_guest = pytest.mark.skipif(not VIRTUAL, reason="runs in the guest of `make lab-all`")

BYTES_PER_TOKEN = 2048
KV_CACHE = (
    "workload=kv_cache",
    "scale=demo",
    f"workload.bytes_per_token={BYTES_PER_TOKEN}",
    "workload.block_tokens=64",
    "workload.capacity_bytes=48000000",
    "workload.users=60",
    "workload.length_factor=0.03125",
    "workload.most_input_tokens=1024",
    "workload.system_prompt_tokens=128",
    "workload.request_bytes=131072",
    "workload.queue_depth=8",
)
"""Blocks of 131 kB and prompts a quarter as long as those of scale=demo: a request restores 0.6 MB
and stores 0.4 MB. 60 users keep the drive busy for two fifths of the time in PS0."""
EXAMPLE_POWER = (
    "power.allow_system_drive=true",
    "power.period_s=0.25",
    "power.idle_s=2",
    "power.quiet_s=1",
    "power.rest_max_s=4",
    "power.idle_after_s=6",
)
RATES = ("2.5", "3", "3.5", "4.5")
EXAMPLE = {
    "closed": (
        "workload.duration_s=34",
        "workload.saturation_s=10",
        "interleave=abba",
        "repeat=6",
    ),
    "open": (
        "workload.duration_s=45",
        "workload.saturation_s=5",
        "workload.arrivals=open",
        f"workload.request_rate={','.join(RATES)}",
        "workload.target_p99_ms=500",
    ),
}
"""Six pairs give a ratio its interval; a p99 takes a hundred requests."""
MOST_BYTES = 10**12
"""The plan allows for a drive that stores 10 GB/s; this one stores 10 GB in all."""
COUNTS = {"closed": 12, "open": 2 * len(RATES)}
RUNS = OUT / "kv-cache"


WITHIN, OF_THE_MIX = 0.005, 0.01
"""The largest error over 10 s and more; the mix is bursts of a tenth of a second."""


@pytest.fixture(scope="module")
def ran() -> Ran:
    """A run with just as long a mix as its reuse is checked in."""
    short = ("workload.duration_s=21", "workload.saturation_s=11")
    allowed = f"target.max_write_bytes={MOST_BYTES}"
    return run(*KV_CACHE, *short, allowed, state=1, label="kv-cache")


@in_guest
@pytest.mark.lab
@pytest.mark.lab_long
def test_energy_of_each_phase_is_the_drives(ran: Ran) -> None:
    assert ran.record.status == "complete"
    assert ran.verdict("reuse") == "pass"
    found = {each.phase: each for each in lines(ran, "sliding") if each.source == INTERVAL_POWER}
    for phase in (FILL, STEADY, RESTORE, STORE):
        line = found[phase]
        assert line.energy_j is not None
        assert abs(line.energy_j - line.truth_j) <= line.without_gain_j + edge_j(line), line
        limit = OF_THE_MIX if phase == STEADY else WITHIN
        assert line.error == pytest.approx(0, abs=limit), line


@in_guest
@pytest.mark.lab
@pytest.mark.lab_long
def test_joules_per_restored_token_are_the_drives(ran: Ran) -> None:
    """Against the drive's true energy, and the tokens in the bytes that the kernel counted."""
    (shown,) = [each for each in phase_energies(ran.record) if each.phase == RESTORE]
    (counter,) = [each for each in ran.record.counters if each.phase == RESTORE]
    assert shown.amount_per_j is not None
    assert counter.read_bytes
    true_j = ran.truth_j(ran.energy(RESTORE)) / (counter.read_bytes / BYTES_PER_TOKEN)
    assert 1 / shown.amount_per_j == pytest.approx(true_j, rel=0.02)


@in_guest
@pytest.mark.lab_example
@pytest.mark.parametrize("name", EXAMPLE)
def test_runs_of_the_example_are_complete(name: str) -> None:
    wattload(
        "run", "-m", *KV_CACHE, *EXAMPLE_POWER, *EXAMPLE[name], "power.state=0,1",
        f"target.path={mount()}", f"target.max_write_bytes={MOST_BYTES}", f"runs={RUNS / name}",
        status=(FINISHED, CHECK_FAILED),
    )  # fmt: skip
    records = [read_record(path) for path in (RUNS / name).glob(f"*/{RECORD_FILE}")]
    counted = [record for record in records if not record.comparison.warm_up]
    assert [record.status for record in counted] == ["complete"] * COUNTS[name]
