"""The result of a search: its verdict, what limits it, its sentence, and what it must not hide."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.session.curves import DEMAND, record_of
from wattload.cli.outcome import print_result, run_line
from wattload.core.record.results import Check
from wattload.session.search_result import (
    Measurement,
    Question,
    SearchResult,
    conclude,
    measured,
    pooled,
)

QUESTION = Question(
    workload="unet3d",
    loader="direct",
    scale="quick",
    accelerator="h100",
    threshold=0.9,
    start=1,
    maximum=8,
    unit=1,
    confirmations=0,
)


def run(count: int, au: float | None, repetition: int = 0, **settings: Any) -> Measurement:
    record = record_of(count, au, run_id=f"n{count}-{repetition}", **settings)
    return measured(record, count, repetition)


def result(runs: Sequence[Measurement], found: int | None, **changes: Any) -> SearchResult:
    question = QUESTION.model_copy(update=changes)
    return conclude(question, runs, found, session_id="s", command=("wattload", "run"))


def test_the_score_is_the_count_and_the_throughput_there() -> None:
    done = result([run(1, 0.99), run(2, 0.97), run(4, 0.5), run(3, 0.93)], 3)
    assert (done.verdict, done.accelerators, done.limited_by) == ("found", 3, "target")
    assert done.at is not None
    assert done.at.read_bytes_per_s == pytest.approx(0.93 * 3 * DEMAND)
    assert done.above is not None
    assert done.above.accelerators == 4
    assert [count.accelerators for count in done.counts] == [1, 2, 3, 4]
    assert "3 h100 hold AU >= 90 %, with AU 93.0 %" in done.sentence
    assert "4 do not (50.0 %); the drive is the limit" in done.sentence
    assert SearchResult.model_validate_json(done.model_dump_json()) == done


def test_a_ceiling_below_the_demand_makes_the_host_the_limit() -> None:
    done = result([run(2, 0.95), run(3, 0.6, ceiling=2.9 * DEMAND)], 2)
    assert done.limited_by == "host"
    assert "the host, not the drive, is the limit" in done.sentence
    done = result([run(2, 0.95), run(3, 0.6, ceiling=3.1 * DEMAND)], 2)
    assert done.limited_by == "target"


def test_a_ceiling_near_the_result_is_reported() -> None:
    done = result([run(2, 0.95), run(3, 0.8, ceiling=3.1 * DEMAND)], 2)
    assert "the host was measured as well" in done.sentence
    assert "only 1.3 times" in done.sentence


def test_the_maximum_is_a_lower_bound_of_the_result() -> None:
    done = result([run(4, 0.99), run(8, 0.98)], 8)
    assert (done.verdict, done.limited_by, done.above) == ("at_least", "maximum", None)
    assert "at least 8 h100" in done.sentence
    assert "sweep.maximum=8 is the limit" in done.sentence


def test_no_count_that_holds_is_a_result_too() -> None:
    done = result([run(1, 0.4)], 0)
    assert (done.verdict, done.accelerators, done.at) == ("none_holds", 0, None)
    assert "not even 1 h100 holds AU >= 90 % (AU 40.0 %" in done.sentence


def test_a_failed_check_gives_no_score() -> None:
    warm = Check(name="cold_cache", verdict="fail", sentence="It was warm.", mandatory=True)
    done = result([run(1, 0.99, checks=(warm,))], None)
    assert (done.verdict, done.accelerators, done.limited_by) == ("invalid", None, "unknown")
    assert "has no score" in done.sentence
    assert "Run n1-0 failed cold_cache: It was warm." in done.notes


def unmade(name: str) -> Check:
    return Check(name=name, verdict="not_checked", sentence="No one looked.", mandatory=True)


def test_a_result_that_lacks_a_mandatory_check_is_no_score() -> None:
    done = result([run(8, 0.99, checks=(unmade("cold_cache"), unmade("power_coverage")))], 8)
    assert (done.verdict, done.accelerators) == ("unproved", 8)
    assert "has no score: 8 h100 held AU >= 90 %" in done.sentence
    assert done.notes == ("Run n8-0 lacks the mandatory check cold_cache: No one looked.",)


def test_an_unmade_check_of_power_alone_bars_no_score() -> None:
    assert result([run(8, 0.99, checks=(unmade("power_coverage"),))], 8).verdict == "at_least"


def test_what_another_count_lacks_bars_no_score() -> None:
    runs = [run(1, 0.99, checks=(unmade("cold_cache"),)), run(2, 0.95), run(3, 0.5)]
    assert result(runs, 2).verdict == "found"


def test_the_smaller_utilisation_decides() -> None:
    slept = run(8, 0.9996, nominal=0.128)
    assert slept.au == 0.128
    assert not slept.holds(0.9)
    assert not run(8, 0.128, nominal=0.9996).holds(0.9)
    done = result([run(7, 0.95), slept], 7)
    assert (done.verdict, done.counts[-1].held) == ("found", False)
    assert "8 do not (12.8 %)" in done.sentence
    assert any("counts oversleep as computation" in note for note in done.notes)


def test_several_ranks_say_what_the_result_is_a_multiple_of() -> None:
    done = result([run(2, 0.99), run(4, 0.5)], 2, unit=2, start=2)
    assert done.above is not None
    assert done.above.accelerators == 4
    assert "multiple of 2" in done.notes[0]


def test_disagreeing_runs_are_in_the_notes() -> None:
    done = result([run(1, 0.99), run(2, 0.95), run(2, 0.85, 1)], 1)
    assert "The runs with 2 accelerators disagree" in done.notes[0]


def test_a_run_without_a_ceiling_leaves_the_limit_unknown() -> None:
    record = record_of(2, 0.5)
    bare = record.model_copy(
        update={"metrics": tuple(m for m in record.metrics if "ceiling" not in m.name)}
    )
    done = result([run(1, 0.99), measured(bare, 2, 0)], 1)
    assert done.limited_by == "unknown"
    assert "no harness ceiling" in done.sentence


def test_a_run_without_a_step_time_demands_nothing_known() -> None:
    found = measured(record_of(2, None, step_s=0.0), 2, 0)
    assert found.demand_bytes_per_s is None
    assert found.au_dlio is None
    assert "one step" in found.missing["au_dlio"]
    assert not found.holds(0.0)


def test_rates_of_several_runs_are_totals_over_total_seconds() -> None:
    runs = [
        run(1, 1.0).model_copy(update={"seconds": 10.0, "read_bytes_per_s": 1e9}),
        run(1, 0.9, 1).model_copy(update={"seconds": 30.0, "read_bytes_per_s": 2e9}),
    ]
    together = pooled(runs, 0.9)
    assert together.read_bytes_per_s == pytest.approx((10e9 + 60e9) / 40)
    assert together.au_dlio == pytest.approx(0.95)
    assert together.drive_w is None
    assert pooled([runs[0].model_copy(update={"seconds": 0.0})], 0.9).read_bytes_per_s is None


def test_watts_are_the_drives_mean_in_the_timed_phase() -> None:
    found = measured(record_of(1, 0.99, power="self_reported"), 1, 0)
    assert found.drive_w is not None
    assert 5 < found.drive_w < 25
    assert found.drive_w_evidence == "self_reported"
    bounds = measured(record_of(1, 0.99, power="bounds"), 1, 0)
    assert (bounds.drive_w, bounds.drive_w_evidence) == (None, "bounds")


def test_what_is_printed_holds_the_score(capsys: pytest.CaptureFixture[str]) -> None:
    done = result([run(2, 0.95), run(3, 0.8)], 2)
    folder = Path("/runs/search-s")
    print_result(done, folder / "result.json", folder / "journal.jsonl", "ada")
    text = capsys.readouterr().out
    assert done.sentence in text
    assert "does not hold" in text
    assert "result  ada:/runs/search-s/result.json" in text
    assert "report  on ada: wattload report /runs/search-s/journal.jsonl" in text
    line = run_line(run(3, 0.8), 0.9, reused=True)
    assert "does not hold 90 %; finished earlier" in line
