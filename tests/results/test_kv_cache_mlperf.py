"""MLPerf's loop: what follows from its facts, with faults in them, and what a page says of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.records import Scenario, make_run
from wattload.core.histogram import Histogram
from wattload.core.record.phase import PhaseSpan
from wattload.core.record.results import Latency, latencies_of
from wattload.core.units import NS_PER_S
from wattload.results.facts import Run
from wattload.results.figures import evaluated
from wattload.results.kv_cache_mlperf import (
    PHASE,
    PUBLISHED,
    RESULTS,
    ClientFacts,
    Lookups,
    LoopFacts,
    LoopSettings,
    Origin,
)
from wattload.results.shapes import Grid
from wattload.results.view import Shown, ShownRun, TracedRun

GB = 10**9


def latency(kind: Any, seconds: float) -> Latency:
    values_ns = [round(seconds * NS_PER_S)] * 40
    (row,) = latencies_of(Histogram.of(values_ns), phase=PHASE, kind=kind, operation_bytes=GB)
    return row


def client(**changed: Any) -> ClientFacts:
    """Return a process that read 40 + 6 GB and wrote 10 GB."""
    values: dict[str, Any] = {
        "drawn": 500, "answered": 100, "decoded": 80, "generated_tokens": 16_000,
        "own_drawn_bytes": 42 * GB, "io_s": 4000.0, "written_bytes": 10 * GB,
        "demoted_bytes": 2 * GB, "evicted": 0, "file_reads": 600, "compared_blocks": 1800,
        "bad_blocks": 0, "is_full": False,
        "reads": {
            Origin.system_prompt: lookups(20, 20, 0),
            Origin.earlier_turn: lookups(60, 50, 6 * GB),
            Origin.own_entry: lookups(600, 0, 40 * GB, 2 * GB),
        },
        "read_latency": latency("read", 5.0),
        "save_latency": latency("write", 2.0),
        "sync_latency": latency("write", 0.02),
    }  # fmt: skip
    return ClientFacts(**values | changed)


def lookups(count: int, misses: int, drive_bytes: int, memory_bytes: int = 0) -> Lookups:
    return Lookups(lookups=count, misses=misses, drive_bytes=drive_bytes, memory_bytes=memory_bytes)


def run_of(*clients: ClientFacts, seconds: float = 320.0, divisor: int = 1) -> Run[LoopFacts]:
    """Return a run whose requests in progress took 20 s after the 300 s were over."""
    record, _ = make_run(Scenario(workload="checkpoint"))
    span = PhaseSpan(
        name=PHASE, parent=None, host="box", rank=0, timed=True, start_ns=0,
        end_ns=round(seconds * NS_PER_S), read_bytes=0, written_bytes=0, operations=0, cpu_s=0.0,
    )  # fmt: skip
    settings = LoopSettings(option=1, length_divisor=divisor, duration_s=300.0)
    facts = LoopFacts(settings=settings, model="llama3.1-8b", users=200, clients=clients)
    return Run(record.model_copy(update={"spans": (span,)}), facts)


def values(run: Run[LoopFacts]) -> dict[str, float | None]:
    return {each.name: each.value for each in evaluated(RESULTS.figures, run)}


def verdicts(run: Run[LoopFacts]) -> dict[str, str]:
    return {each.name: each.verdict for rule in RESULTS.checks for each in rule(run)}


def test_rates_count_the_time_of_requests_in_progress_and_mlperfs_do_not() -> None:
    found = values(run_of(client()))
    assert found["read_bytes_per_s"] == pytest.approx(46 * GB / 320)
    assert found["write_bytes_per_s"] == pytest.approx(12 * GB / 320)
    assert found["mlperf_read_bytes_per_s"] == pytest.approx(46 * GB / 300)
    assert found["mlperf_write_bytes_per_s"] == pytest.approx(10 * GB / 300)
    assert found["read_over_written"] == pytest.approx(4.6)
    assert found["storage_tokens_per_s"] == pytest.approx(4.0)


def test_the_bytes_of_each_reason_are_apart() -> None:
    found = values(run_of(client(), client()))
    assert found["system_prompt_read_bytes"] == 0
    assert found["earlier_turn_read_bytes"] == 12 * GB
    assert found["own_entry_read_bytes"] == 80 * GB
    assert found["storage_tokens_per_s"] == pytest.approx(4.0)


def test_the_latencies_of_a_write_are_apart() -> None:
    found = values(run_of(client(), client(sync_latency=None)))
    assert found["read_p95_s"] == pytest.approx(5.0, rel=0.02)
    assert found["write_device_p95_s"] == pytest.approx(0.02, rel=0.02)
    assert found["write_host_p95_s"] == pytest.approx(2.0, rel=0.02)
    assert values(run_of(client(sync_latency=None)))["write_device_p95_s"] is None


def test_a_run_as_mlperf_makes_it_passes() -> None:
    assert verdicts(run_of(client())) == {"own_rereads": "pass", "entry_content": "pass"}


@pytest.mark.parametrize("byte_count", [-1, 1])
def test_one_byte_more_or_less_of_own_entries_fails(byte_count: int) -> None:
    own = lookups(600, 0, 40 * GB + byte_count, 2 * GB)
    found = client(reads={**client().reads, Origin.own_entry: own})
    assert verdicts(run_of(found))["own_rereads"] == "fail"


@pytest.mark.parametrize("changed", [{"bad_blocks": 1}, {"compared_blocks": 1799}])
def test_a_wrong_block_and_one_that_was_not_compared_fail(changed: dict[str, int]) -> None:
    assert verdicts(run_of(client(), client(**changed)))["entry_content"] == "fail"
    assert verdicts(run_of(client(file_reads=0, compared_blocks=0)))["entry_content"] == (
        "not_checked"
    )


def test_a_ratio_far_from_the_published_ones_is_judged_by_nothing() -> None:
    reads = {**client().reads, Origin.earlier_turn: lookups(60, 50, 600 * GB)}
    assert set(verdicts(run_of(client(reads=reads))).values()) == {"pass"}


def test_a_page_has_the_published_ratios_and_says_what_was_shortened() -> None:
    run = run_of(client(), divisor=64)
    assert RESULTS.view.job is not None
    assert RESULTS.view.job([run], [run]).endswith("entries of 1/64")
    shown = ShownRun(run.record, run.facts, joules=lambda *_: None, evidence=lambda _: "")
    traced = TracedRun("", "all runs", shown, {}, 0, lambda _: [])
    (grid,) = RESULTS.view.closing(Shown(arms=(), every=(), traced=[traced]))
    assert isinstance(grid, Grid)
    cells = {str(title): cell for title, cell in grid.rows}
    assert cells["read: own entry"] == "40.00\xa0GB, missed 0 of 600"
    assert cells["read ÷ written"] == "4.60"
    assert all(str(ratio) in grid.note for ratio in PUBLISHED.values())
