"""MLPerf's loop: what follows from its facts, with faults in them, and what a page says of it."""

from __future__ import annotations

import pytest

from tests.reports.mlperf_loops import GB, client, lookups, loop_record
from wattload.results.facts import Run
from wattload.results.figures import evaluated
from wattload.results.kv_cache_mlperf import PUBLISHED, RESULTS, ClientFacts, LoopFacts, Origin
from wattload.results.reading import run_of as read_run
from wattload.results.shapes import Grid
from wattload.results.view import Shown, ShownRun, TracedRun


def run_of(*clients: ClientFacts, divisor: int = 1) -> Run[LoopFacts]:
    found = read_run(loop_record(*clients, divisor=divisor))
    assert found is not None
    return found


def values(run: Run[LoopFacts]) -> dict[str, float | None]:
    return {each.name: each.value for each in evaluated(RESULTS.figures, run)}


def verdicts(run: Run[LoopFacts]) -> dict[str, str]:
    return {each.name: each.verdict for rule in RESULTS.checks for each in rule(run)}


def test_rates_count_the_time_of_requests_in_progress_and_mlperfs_do_not() -> None:
    found = values(run_of(client()))
    assert found["read_bytes_per_s"] == pytest.approx(46 * GB / 320)
    assert found["write_bytes_per_s"] == pytest.approx(10 * GB / 320)
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
