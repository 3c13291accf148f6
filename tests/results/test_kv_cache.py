"""A cache of keys and values: figures, overload, and each check with its fault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.reports.caches import BLOCK_BYTES, BLOCK_TOKENS, cache_record, cache_run, rate_sweep
from wattload.core.record.results import Check
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.runs.energy import phase_energies
from wattload.results.facts import cached_share
from wattload.results.kv_cache.facts import FILL, RESTORE, STEADY, STORE
from wattload.results.kv_cache.figures import UNPACED, holds_target, is_overloaded
from wattload.results.kv_cache.view import VIEW, break_even
from wattload.results.quantity import MISSING, number, quantity
from wattload.results.reading import checks_of, metrics_of, run_of
from wattload.results.shapes import Grid, PointLines, Sheet, Word
from wattload.results.view import Arm, Shown, ShownRun, TracedRun

NAMESPACE_BYTES = 61_440_000_000_000
"""The size of the made-up drive, which is not that of its partition."""
OPEN: dict[str, Any] = {"users": None, "request_rate": 10.0}


def values(record: RunRecord) -> Mapping[str, float | None]:
    return {each.name: each.value for each in metrics_of(record)}


def reason(record: RunRecord, name: str) -> str:
    return next(each.missing["value"] for each in metrics_of(record) if each.name == name)


def check_of(name: str, **changes: Any) -> Check:
    return next(each for each in checks_of(cache_record(**changes)) if each.name == name)


def shown_run(**changes: Any) -> ShownRun[Any]:
    run = cache_run(**changes)
    found = run_of(run.record)
    assert found is not None
    joules = {each.phase: each.energy_j for each in phase_energies(run.record)}
    return ShownRun(run.record, found.facts, lambda _, phase: joules.get(phase), lambda _: "")


def closing(run: ShownRun[Any], caption: str) -> Grid:
    """Return the grid of one run with these words in its caption."""
    traced = TracedRun("", "all runs", run, {}, 0, lambda _: ())
    grids = [each for each in VIEW.closing(Shown([], [], [traced])) if isinstance(each, Grid)]
    return next(each for each in grids if caption in each.caption)


def mix_of(run: ShownRun[Any]) -> Mapping[str, str]:
    arms = [Arm("", "A", "all runs", "", (run,))]
    sheet = next(each for each in VIEW.closing(Shown(arms, arms)) if isinstance(each, Sheet))
    return {name: text for name, (text,) in sheet.facts}


def test_tokens_a_second_are_those_of_each_kind_alone() -> None:
    found = values(cache_record(restored_per_s=200, stored_per_s=80))
    assert found["restored_tokens_per_s"] == 200 * BLOCK_TOKENS
    assert found["stored_tokens_per_s"] == 80 * BLOCK_TOKENS


def test_the_headline_is_the_rate_of_restores_and_what_they_add_to_the_first_token() -> None:
    heads = [each.name for each in metrics_of(cache_record()) if each.headline]
    assert heads == ["restored_tokens_per_s", "response_p99_s"]


def test_hits_of_either_tier_count_and_only_the_drives_are_restored() -> None:
    counts = {STEADY: {"memory_blocks": 1000, "drive_blocks": 2600, "restored_blocks": 2600}}
    run = shown_run(counts=counts)
    assert values(run.record)["hit_rate"] == 3600 / 7200
    assert mix_of(run)["restored tokens/s"] == number(2600 * BLOCK_TOKENS / 60, 3)


def test_a_joule_pays_for_tokens_that_were_restored_alone() -> None:
    record = cache_record(watts={FILL: 9.0, STEADY: 10.0, RESTORE: 12.0, STORE: 11.0})
    amounts = {each.phase: each.amount_per_j for each in phase_energies(record)}
    assert amounts[RESTORE] == pytest.approx(200 * BLOCK_TOKENS / 12)
    assert [amounts[phase] for phase in (FILL, STEADY, STORE)] == [None] * 3


def test_wear_is_that_of_the_rate_of_requests_and_unknown_in_a_closed_loop() -> None:
    a_day = 2200 * BLOCK_BYTES / 60 * 86400
    run = shown_run(**OPEN)
    assert mix_of(run)["written a day"] == quantity(a_day, Unit.BYTES, 3)
    assert values(run.record)["drive_writes_per_day"] == pytest.approx(a_day / NAMESPACE_BYTES)
    assert values(cache_record())["drive_writes_per_day"] is None
    assert "written a day" not in mix_of(shown_run())
    assert reason(cache_record(), "drive_writes_per_day") == UNPACED


@pytest.mark.parametrize(
    ("start", "end", "overloaded"),
    [(30, 61, True), (30, 42, False), (2, 10, False), (0, 14, True), (0, 13, False)],
)
def test_a_backlog_that_grows_leaves_the_rate_and_no_percentile(
    start: int, end: int, *, overloaded: bool
) -> None:
    record = cache_record(**OPEN, backlog_start=start, backlog_end=end)
    run = run_of(record)
    assert run is not None
    assert is_overloaded(run) is overloaded
    assert (values(record)["response_p99_s"] is None) is overloaded
    assert values(record)["requests_per_s"] == 10
    if overloaded:
        assert f"{end} at the end" in reason(record, "response_p99_s")


def test_a_backlog_over_its_limit_is_overloaded_and_a_closed_loop_is_not() -> None:
    ended = run_of(cache_record(**OPEN, loop={"ended_early": True}))
    closed = run_of(cache_record(backlog_start=2, backlog_end=99))
    assert ended is not None
    assert closed is not None
    assert is_overloaded(ended)
    assert not is_overloaded(closed)


def test_a_target_is_held_missed_or_not_set() -> None:
    found = {
        (target, added): holds_target(shown_run(target_p99_ms=target, added_s=added, **OPEN))
        for target in (None, 500.0)
        for added in (0.1, 0.5)
    }
    assert found == {(None, 0.1): None, (None, 0.5): None, (500.0, 0.1): True, (500.0, 0.5): False}
    overloaded = shown_run(target_p99_ms=5000.0, **OPEN, backlog_end=100)
    assert holds_target(overloaded) is False


def test_the_first_layer_needs_layers_and_an_overloaded_run_has_service_alone() -> None:
    files, layers, overloaded = (
        closing(shown_run(layered=layered, **changes), "length of the restored prefix")
        for layered, changes in ((False, {}), (True, {}), (True, {**OPEN, "backlog_end": 99}))
    )
    assert [*layers.columns] == [*files.columns, "#p99 of the first layer"]
    assert layers.rows[0][:-1] == files.rows[0]
    assert MISSING not in layers.rows[0][-3:]
    assert overloaded.rows[0][3:7] == (Word("overloaded", "warn"), *[MISSING] * 3)
    assert overloaded.rows[0][7:] == (*layers.rows[0][7:-1], MISSING)


def test_reads_that_never_reached_the_drive_are_counted_for_the_page_cache_alone() -> None:
    assert "cached_fraction" not in values(cache_record())
    record = cache_record(reads_directly=False)
    assert values(record)["cached_fraction"] == pytest.approx(0.3)
    run = run_of(record)
    assert run is not None
    assert cached_share(run, RESTORE) == pytest.approx(0.3)
    assert "the page cache served 30.0" in VIEW.served(run).from_memory


CLEAN = (
    "littles_law", "reuse", "restored_blocks", "durable_stores", "counted_bytes_restore",
    "counted_bytes_store",
)  # fmt: skip


def test_a_clean_run_passes_every_check_in_either_loop() -> None:
    for changes in ({}, OPEN):
        found = {each.name: each.verdict for each in checks_of(cache_record(**changes))}
        assert {name: found[name] for name in CLEAN} == dict.fromkeys(CLEAN, "pass")
        assert found.get("schedule") == ("pass" if changes else None)


FAULTS: Mapping[str, tuple[str, Mapping[str, Any], str]] = {
    "a request that was lost": (
        "littles_law", {"loop": {"residence_s": 500.0}}, "requests were lost or doubled"
    ),
    "a user that idles": ("littles_law", {"loop": {"think_s": 200.0}}, "16 users"),
    "a request that is counted after its end": (
        "littles_law", {**OPEN, "loop": {"in_system_s": 640.0}}, "to 640.000 s: requests were lost"
    ),
    "a schedule that slides": (
        "schedule", {**OPEN, "loop": {"schedule_s": 18_003.0}}, "the schedule slid"
    ),
    "a request that was skipped": (
        "schedule", {**OPEN, "loop": {"schedule_s": 17_950.0}}, "requests were skipped"
    ),
    "reads of own writes": (
        "reuse", {"counts": {STEADY: {"old_blocks": 3599}}}, "only just written"
    ),
    "stores that nobody reads": (
        "reuse",
        {"counts": {STEADY: {"restored_blocks": 0, "old_blocks": 0}}},
        "Nothing read the 2,200 blocks",
    ),
    "a restore that returns another block": (
        "restored_blocks", {"counts": {RESTORE: {"bad_blocks": 1}}}, "1 units of 4096 bytes"
    ),
    "blocks that were not compared": (
        "restored_blocks", {"counts": {STEADY: {"compared_bytes": 0}}}, "were compared"
    ),
    "a rename before the bytes are durable": (
        "durable_stores", {"counts": {STORE: {"synced_files": 2399}}}, "before they were durable"
    ),
    "a block that is a hit before its rename": (
        "durable_stores",
        {"counts": {STORE: {"renamed_files": 2399, "synced_files": 2399}}},
        "before they were durable",
    ),
    "restores that moved no bytes": (
        "counted_bytes_restore",
        {"counts": {RESTORE: {"read_bytes": 5800 * BLOCK_BYTES}}},
        f"{6000 * BLOCK_BYTES} bytes were read",
    ),
    "restores that read too much": (
        "counted_bytes_restore",
        {"counts": {RESTORE: {"read_bytes": 6200 * BLOCK_BYTES}}},
        f"{6200 * BLOCK_BYTES} counted as they moved",
    ),
    "stores that were not written": (
        "counted_bytes_store", {"counts": {STORE: {"written_bytes": 1}}}, "1 counted as they moved"
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fails_its_check(fault: str) -> None:
    name, changes, sentence = FAULTS[fault]
    check = check_of(name, **changes)
    assert check.verdict == "fail"
    assert sentence in check.sentence


def test_stores_that_found_the_disk_full_moved_more_than_was_stored() -> None:
    counts = {STORE: {"written_bytes": 2500 * BLOCK_BYTES, "full_disk_evictions": 3}}
    names = {each.name for each in checks_of(cache_record(counts=counts))}
    assert "counted_bytes_store" not in names


def test_reuse_needs_restores_of_the_drive_and_time() -> None:
    idle = {STEADY: {"restored_blocks": 0, "old_blocks": 0, "stored_blocks": 0}}
    memory = {STEADY: {"restored_blocks": 0, "old_blocks": 0, "memory_blocks": 10}}
    for counts in (idle, memory):
        assert check_of("reuse", counts=counts).verdict == "not_checked"


def test_a_block_in_layers_has_no_files_of_its_own() -> None:
    assert "durable_stores" not in {each.name for each in checks_of(cache_record(layered=True))}


def test_a_job_names_model_block_loop_and_cache() -> None:
    assert VIEW.job is not None
    closed = shown_run()
    assert VIEW.job([closed], [closed]).replace("\xa0", " ") == (
        "llama3.1-8b, blocks of 256 tokens (33.6 MB), closed loop of 16 users, cache of 21.5 GB"
    )
    other = shown_run(**OPEN)
    text = VIEW.job([other], [other]).replace("\xa0", " ")
    assert "open loop at 10.0 requests/s, cache of 21.5 GB" in text
    assert "requests/s" not in VIEW.job([closed, other], [closed, other])


def test_a_run_without_evictions_is_labelled() -> None:
    found = [next(iter(VIEW.conditions(shown_run(evicted=count)))) for count in (0, 400)]
    assert [(each.name, each.value) for each in found] == [
        ("evictions", "none"), ("evictions", "yes")
    ]  # fmt: skip


def test_lines_of_a_terminal_state_the_law_or_the_overload() -> None:
    closed, overloaded = VIEW.lines(shown_run()), VIEW.lines(shown_run(**OPEN, backlog_end=99))
    assert "N ÷ (R + Z) = 10.0" in closed["mix"]
    assert closed["wear"] == UNPACED
    assert overloaded["latency"].startswith("overloaded: backlog 10 at the start, 99")
    assert "drive writes a day" in overloaded["wear"]


def test_break_even_is_the_least_prefix_that_costs_less_than_computing() -> None:
    """10 W for 0.04 s of service are 0.4 J; 256 tokens computed for 28 mJ each are 7 J."""
    assert break_even(shown_run(prefill_j_per_token=0.028)) == BLOCK_TOKENS
    assert break_even(shown_run(prefill_j_per_token=0.0012)) == 1024
    assert break_even(shown_run(prefill_j_per_token=1e-6)) is None
    assert break_even(shown_run()) is None
    assert break_even(shown_run(prefill_j_per_token=0.028, has_power=False)) is None


def arms_over(target_p99_ms: float | None = 500.0, **changes: Any) -> list[Arm[Any]]:
    found = []
    for run in rate_sweep(target_p99_ms=target_p99_ms, **changes):
        facts = run_of(run.record)
        assert facts is not None
        shown: ShownRun[Any] = ShownRun(run.record, facts.facts, lambda *_: None, lambda _: "")
        found.append(Arm("", "A", "all runs", f"rate {run.record.run_id}", (shown,)))
    return found


def test_the_knee_is_between_two_measured_rates_and_overload_has_no_value() -> None:
    arms = arms_over(knee=5.0)
    shapes = list(VIEW.opening(Shown(arms, arms)))
    chart = next(each for each in shapes if isinstance(each, PointLines))
    (line,) = chart.lines
    assert list(line.xs) == [1, 2, 4, 8]
    assert line.ys[-1] is None
    assert None not in line.ys[:-1]
    assert (chart.limit, chart.unit) == (0.5, Unit.SECONDS)
    grid = next(each for each in shapes if isinstance(each, Grid))
    assert grid.rows == [("all runs", "2.00", "4.00")]


def test_a_rate_without_a_percentile_neither_holds_nor_fails() -> None:
    arms = arms_over(knee=5.0)
    few = shown_run(users=None, request_rate=2.0, target_p99_ms=500.0, facts={"times": ()})
    arms[1] = replace(arms[1], runs=(few,))
    shapes = list(VIEW.opening(Shown(arms, arms)))
    grid = next(each for each in shapes if isinstance(each, Grid))
    chart = next(each for each in shapes if isinstance(each, PointLines))
    assert grid.rows == [("all runs", "1.00", "4.00")]
    assert list(chart.lines[0].xs) == [1, 4, 8]


def test_a_sweep_without_a_target_has_its_curve_and_no_knee() -> None:
    arms = arms_over(target_p99_ms=None)
    shapes = list(VIEW.opening(Shown(arms, arms)))
    assert any(isinstance(each, PointLines) and each.limit is None for each in shapes)
    assert not any(isinstance(each, Grid) for each in shapes)


def test_a_sweep_over_another_setting_too_has_a_line_for_each_of_its_values() -> None:
    arms = [
        Arm("", "A", "all runs", f"state {state}, request rate {rate}", arm.runs)
        for state in (0, 1)
        for rate, arm in enumerate(arms_over())
    ]
    chart = next(each for each in VIEW.opening(Shown(arms, arms)) if isinstance(each, PointLines))
    assert [(line.title, list(line.xs)) for line in chart.lines] == [
        ("state 0", [1, 2, 4, 8]),
        ("state 1", [1, 2, 4, 8]),
    ]


def test_the_hit_rate_has_its_distribution_over_requests() -> None:
    run = shown_run(facts={"hit_shares": [50, *[0] * 9, 150]})
    (row,) = closing(run, "share of their blocks").rows
    assert [str(cell).replace("\xa0", " ") for cell in row] == (
        ["all runs", "25.0 %", *["0 %"] * 9, "75.0 %"]
    )
