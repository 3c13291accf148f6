"""Vector search on a virtual drive: its joules and bytes against the truth, and an example's runs.

`make lab-all` judges one run. `make lab-example` makes the runs of docs/examples/vector-search,
which come to ``vector-search`` in the lab's ``out``: five lengths of the list in two power states,
of which the one that leads the page has pairs.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.truth_table import edge_j, lines
from tests.lab.virtual_runs import (
    CHECK_FAILED,
    FINISHED,
    INTERVAL_POWER,
    OUT,
    VIRTUAL,
    Ran,
    drive,
    mount,
    prepare,
    run,
    wattload,
)
from wattload.core.record.file import RECORD_FILE, read_record
from wattload.reports.runs.energy import phase_energies
from wattload.results.reading import run_of
from wattload.results.vector_search.facts import SEARCH

in_guest = pytest.mark.skipif(not VIRTUAL, reason="runs in the guest of `make lab-all`")

VECTOR_SEARCH = (
    "workload=vector_search",
    "scale=demo",
    "workload.vectors=4000",
    "workload.dim=64",
    "workload.degree=32",
    "workload.build_list=64",
    "workload.pq_bytes=16",
    "workload.query_count=200",
    "workload.threads=1",
    "workload.inflight_per_thread=4",
)
"""With 16 bytes of code for 64 numbers, recall is 0.86 to 0.996 at the lists of the example."""
SLOWED = 0.125
"""Reads of one sector are many: at this share of its rates the drive is slower than the emulated
processor, which asks for at most 16 at the same time."""
EXAMPLE_POWER = (
    "power.allow_system_drive=true",
    "power.period_s=0.25",
    "power.idle_s=2",
    "power.quiet_s=1",
    "power.rest_max_s=4",
    "power.idle_after_s=6",
)
LISTS = {
    "curve": ("workload.search_list=20,24,28,60",),
    "pairs": ("workload.search_list=40", "interleave=abba", "repeat=6"),
}
COUNTS = {"curve": 8, "pairs": 12}
RUNS = OUT / "vector-search"
WITHIN = 0.005
"""The largest error of an energy over 10 s and more."""


@pytest.fixture(scope="module")
def slow_drive() -> Iterator[None]:
    """The index on a drive that is slower than the processor."""
    prepare(*VECTOR_SEARCH)
    drive("speed", factor=SLOWED)
    yield
    drive("speed", factor=1.0)


@pytest.fixture(scope="module")
def ran(slow_drive: None) -> Ran:
    words = ("workload.search_list=20", "workload.duration_s=12")
    return run(*VECTOR_SEARCH, *words, state=1, label="vector-search")


@in_guest
@pytest.mark.lab
@pytest.mark.lab_long
def test_joules_per_query_are_the_drives(ran: Ran) -> None:
    assert ran.record.status == "complete"
    found = run_of(ran.record)
    assert found is not None
    queries = found.facts.passes[SEARCH].queries
    (line,) = [
        each
        for each in lines(ran, "sliding")
        if (each.phase, each.source) == (SEARCH, INTERVAL_POWER)
    ]
    assert line.energy_j is not None
    assert abs(line.energy_j - line.truth_j) <= line.without_gain_j + edge_j(line), line
    assert line.error == pytest.approx(0, abs=WITHIN), line
    (shown,) = [each for each in phase_energies(ran.record) if each.phase == SEARCH]
    assert shown.amount_per_j is not None
    assert 1 / shown.amount_per_j == pytest.approx(line.truth_j / queries, rel=0.02)


@in_guest
@pytest.mark.lab
@pytest.mark.lab_long
def test_kernel_counts_each_read_of_a_node_and_no_other(ran: Ran) -> None:
    found = run_of(ran.record)
    assert found is not None
    (counter,) = [each for each in ran.record.counters if each.phase == SEARCH]
    assert counter.read_bytes == found.facts.passes[SEARCH].reads * found.facts.index.read_bytes


@in_guest
@pytest.mark.lab_example
@pytest.mark.parametrize("name", LISTS)
def test_runs_of_the_example_are_complete(slow_drive: None, name: str) -> None:
    wattload(
        "run", "-m", *VECTOR_SEARCH, *EXAMPLE_POWER, *LISTS[name], "workload.duration_s=30",
        "power.state=0,1", f"target.path={mount()}", f"runs={RUNS / name}",
        status=(FINISHED, CHECK_FAILED),
    )  # fmt: skip
    records = [read_record(path) for path in (RUNS / name).glob(f"*/{RECORD_FILE}")]
    counted = [record for record in records if not record.comparison.warm_up]
    assert [record.status for record in counted] == ["complete"] * COUNTS[name]
