"""Checks on the conditions of a run, each made to warn by one changed figure."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.checks.changed_records import changed, check, record_of, utilisations
from tests.records import Scenario, cluster_of, make_cluster, make_run, of_windows
from wattload.core.checks.conditions import (
    LONGEST_GAP_S,
    pair_together,
    start_temperature,
)
from wattload.core.checks.evaluation import evaluate
from wattload.core.record.phase import PhaseHalves
from wattload.core.record.results import NO_UTILISATION, PACED, Check, Metric
from wattload.core.record.run import RunRecord, RunStart, StartTemperature
from wattload.core.units import NS_PER_S, Unit


@pytest.mark.parametrize(
    ("dlio", "nominal", "verdict"),
    [
        (0.9996, 0.128, "fail"),
        (0.95, 0.92, "fail"),
        (0.92, 0.95, "fail"),
        (0.95, 0.94, "pass"),
        (None, None, "not_checked"),
        (0.95, None, "not_checked"),
    ],
)
def test_utilisations_more_than_two_points_apart_fail(
    dlio: float | None, nominal: float | None, verdict: str
) -> None:
    record = record_of(seconds=24.0)
    record = changed(record, metrics=utilisations(record, dlio, nominal))
    assert check(record, "utilisations_agree").verdict == verdict


def test_without_an_emulated_accelerator_utilisations_do_not_apply() -> None:
    record = record_of()
    for nominal, cause in ((None, NO_UTILISATION), (0.9, "")):
        metrics = utilisations(record, None, nominal)
        assert check(changed(record, metrics=metrics), "utilisations_agree").cause == cause


def test_a_run_without_utilisations_has_none_to_compare() -> None:
    record = record_of(workload="checkpoint")
    assert not [c for c in evaluate(record) if c.name == "utilisations_agree"]


@pytest.mark.parametrize(("seconds", "verdict"), [(32.0, "pass"), (5.0, "warn")])
def test_a_short_window_warns(seconds: float, verdict: str) -> None:
    assert check(record_of(seconds=seconds), "short_run").verdict == verdict


@pytest.mark.parametrize(("second", "verdict"), [(0.95, "pass"), (0.8, "warn"), (1.3, "warn")])
def test_halves_more_than_ten_percent_apart_are_not_steady(second: float, verdict: str) -> None:
    record = record_of()
    windows = tuple(
        window.model_copy(update={"half_rates_bytes_per_s": (1e9, second * 1e9)})
        if window.timed
        else window
        for window in record.windows
    )
    assert check(changed(record, **of_windows(windows)), "steady").verdict == verdict


def _epochs(record: RunRecord, lengths_s: list[float]) -> RunRecord:
    """Return a record whose timed phase is these epochs, 1 s apart, of equal bytes.

    Its halves by time are 2 : 1, as three epochs have them that each begin with a burst.
    """
    (span,) = [each for each in record.spans if each.timed]
    (window,) = record.timed_windows()
    starts_ns = [
        window.start_ns + int((sum(lengths_s[:n]) + n) * NS_PER_S) for n in range(len(lengths_s))
    ]
    intervals = tuple(
        (start_ns, start_ns + int(length_s * NS_PER_S))
        for start_ns, length_s in zip(starts_ns, lengths_s, strict=True)
    )
    spans = tuple(
        span.model_copy(update={"start_ns": start_ns, "end_ns": end_ns})
        for start_ns, end_ns in intervals
    )
    halves = PhaseHalves(phase=span.name, host=span.host, first_bytes=2, second_bytes=1)
    return changed(record, spans=spans, halves=(halves,))


@pytest.mark.parametrize(
    ("lengths_s", "verdict"),
    [([2.0, 2.0, 2.0], "pass"), ([2.0, 2.0, 2.5], "warn"), ([2.0, 3.0], "warn"), ([4.0], "warn")],
)
def test_epochs_are_halved_by_their_number(lengths_s: list[float], verdict: str) -> None:
    record = _epochs(record_of(), lengths_s)
    assert check(record, "steady").verdict == verdict


def test_a_single_paced_epoch_has_no_halves_to_compare() -> None:
    """Its loader reads ahead at once and then waits for the accelerator."""
    record = _epochs(record_of(), [4.0])
    paced = changed(record, metrics=utilisations(record, 0.99, 0.99))
    found = check(paced, "steady")
    assert (found.verdict, found.cause) == ("not_checked", PACED)


@pytest.mark.parametrize(
    ("result", "verdict"), [(1e9, "pass"), (2e9, "warn"), (5e-304, "not_checked")]
)
def test_a_ceiling_under_twice_the_result_reports_that_the_host_was_measured(
    result: float, verdict: str
) -> None:
    record = record_of()
    rate = Metric(
        name="throughput_bytes_per_s",
        value=result,
        unit=Unit.BYTES_PER_SECOND,
        better="higher",
        meaning="a rate",
        headline=True,
    )
    ceiling = Metric(
        name="harness_ceiling_bytes_per_s",
        value=3e9,
        unit=Unit.BYTES_PER_SECOND,
        better="higher",
        meaning="a ceiling",
    )
    found = check(changed(record, metrics=(rate, ceiling)), "bottleneck")
    assert found.verdict == verdict


def drive(temperature_k: int | None, reference_k: int | None = 310) -> StartTemperature:
    gaps = {"temperature_k": temperature_k, "reference_k": reference_k}
    return StartTemperature(
        host="box",
        serial="S1",
        temperature_k=temperature_k,
        reference_k=reference_k,
        missing={name: "no thermometer" for name, value in gaps.items() if value is None},
    )


def run(*drives: StartTemperature, waited_s: float = 0.0, gap_s: float | None = None) -> RunRecord:
    record, _ = make_run(Scenario())
    update: dict[str, Any] = {
        "interleave": "abba",
        "pair_gap_s": gap_s,
        "start": RunStart(waited_s=waited_s, limit_s=900, allowed_k=3, drives=drives),
    }
    comparison = record.comparison.model_copy(update=update)
    return record.model_copy(update={"comparison": comparison})


def only(checks: object) -> Check:
    assert isinstance(checks, list)
    (check,) = checks
    assert isinstance(check, Check)
    return check


@pytest.mark.parametrize(
    ("temperature_k", "verdict", "words"),
    [
        (310, "pass", "as warm as"),
        (313, "pass", "3 °C warmer than"),
        (314, "warn", "4 °C warmer than"),
        (307, "pass", "3 °C colder than"),
        (306, "warn", "4 °C colder than"),
        (None, "not_checked", "no thermometer"),
    ],
)
def test_a_drive_begins_as_warm_as_at_first(
    temperature_k: int | None, verdict: str, words: str
) -> None:
    reference_k = None if temperature_k is None else 310
    check = only(start_temperature(run(drive(temperature_k, reference_k))))
    assert (check.name, check.verdict) == ("start_temperature_S1", verdict)
    assert words in check.sentence


def test_a_wait_in_vain_is_reported() -> None:
    check = only(start_temperature(run(drive(330), waited_s=900.0)))
    assert check.sentence == (
        "Drive S1 started 20 °C warmer than at the session's first run on it, after 900 s of "
        "cooling; the limit is 3 °C."
    )


def test_each_drive_of_a_run_has_its_own_check() -> None:
    other = drive(340).model_copy(update={"serial": "S2"})
    names = {check.name: check.verdict for check in start_temperature(run(drive(310), other))}
    assert names == {"start_temperature_S1": "pass", "start_temperature_S2": "warn"}


def test_no_drive_under_the_target_is_no_pass() -> None:
    assert only(start_temperature(run())).verdict == "not_checked"


def test_a_run_that_takes_no_turns_has_no_such_check() -> None:
    record, _ = make_run(Scenario())
    assert start_temperature(record) == []
    assert pair_together(record) == []


@pytest.mark.parametrize(
    ("gap_s", "waited_s", "verdict"),
    [
        (1.0, 0.0, "pass"),
        (LONGEST_GAP_S, 0.0, "pass"),
        (LONGEST_GAP_S + 1, 0.0, "warn"),
        (LONGEST_GAP_S + 800, 900.0, "pass"),
        (86400.0, 900.0, "warn"),
        (-5.0, 0.0, "not_checked"),
    ],
)
def test_a_pair_that_an_interruption_parted_is_warned_of(
    gap_s: float, waited_s: float, verdict: str
) -> None:
    assert only(pair_together(run(gap_s=gap_s, waited_s=waited_s))).verdict == verdict


def test_the_first_of_a_pair_waits_for_nobody() -> None:
    assert pair_together(run()) == []


def stopped_for(record: RunRecord, *seconds: float | None) -> RunRecord:
    """Return the record with so many ranks, each of which did not run for that long."""
    spans = [
        span.model_copy(update={"rank": rank, "stopped_s": each})
        for rank, each in enumerate(seconds)
        for span in record.spans
    ]
    return changed(record, spans=tuple(spans))


@pytest.mark.parametrize(
    ("seconds", "verdict", "words"),
    [
        (
            (30.1,),
            "fail",
            "the rank's own process did not run for 30.1 s of 34.0 s: stopped, frozen or",
        ),
        ((30.1, 30.0), "fail", "the ranks' own processes did not run for 30.1 s"),
        ((0.0, 30.1), "fail", "the own process of rank 1 did not run for 30.1 s"),
        ((1.6,), "pass", "did not run for 1.6 s of 34.0 s."),
        ((0.0,), "pass", "did not run for 0.0 s"),
    ],
)
def test_processes_that_did_not_run_fail(
    seconds: tuple[float, ...], verdict: str, words: str
) -> None:
    found = check(stopped_for(record_of(seconds=34.0), *seconds), "ran_throughout")
    assert found.verdict == verdict
    assert words in found.sentence


def test_the_host_of_a_process_that_did_not_run_is_named() -> None:
    record, _ = make_cluster(cluster_of("ada", "bob", ranks=2, seconds=34.0))
    spans = tuple(
        span.model_copy(update={"stopped_s": 30.0 if span.rank == 3 else 0.0})
        for span in record.spans
    )
    found = check(changed(record, spans=spans), "ran_throughout")
    assert found.verdict == "fail"
    assert "the own process of rank 3 on bob did not run for 30.0 s" in found.sentence
    assert "the most of 2 hosts" in found.sentence


def test_under_a_second_is_no_finding_in_a_short_phase() -> None:
    assert check(stopped_for(record_of(seconds=2.0), 0.9), "ran_throughout").verdict == "pass"


@pytest.mark.parametrize("order", [1, -1])
def test_a_stopped_phase_is_not_hidden_by_a_short_one_with_a_larger_share(order: int) -> None:
    record = record_of(seconds=100.0)
    (timed,) = (span for span in record.spans if span.timed)
    span = timed.model_copy(update={"stopped_s": 30.0})
    later_ns = span.end_ns + NS_PER_S
    changes = {"name": "short", "start_ns": later_ns, "end_ns": later_ns + 9 * NS_PER_S // 10}
    short = span.model_copy(update={**changes, "stopped_s": 0.6})
    found = check(changed(record, spans=(span, short)[::order]), "ran_throughout")
    assert found.verdict == "fail"
    assert f"In the phase {span.name}, the rank's own process did not run for 30.0 s" in (
        found.sentence
    )


def throttled_for(record: RunRecord, *seconds: float, limit: float | None = 1.5) -> RunRecord:
    """Return the record of a host with a CPU quota, which stopped its ranks for so long."""
    (host,) = record.hosts
    missing = {**host.facts.missing}
    missing.pop("cgroup_cpu_limit")
    facts = host.facts.model_copy(update={"cgroup_cpu_limit": limit, "missing": missing})
    spans = tuple(
        span.model_copy(update={"rank": rank, "throttled_s": each})
        for rank, each in enumerate(seconds)
        for span in record.spans
    )
    return changed(record, hosts=(host.model_copy(update={"facts": facts}),), spans=spans)


@pytest.mark.parametrize(
    ("seconds", "verdict", "ending"),
    [
        ((0.0,), "pass", "stopped processes for 0.00 of 51.0 CPU seconds in 34.0 s."),
        ((0.5,), "pass", "0.50 of 51.0 CPU seconds in 34.0 s."),
        (
            (0.1, 0.6),
            "warn",
            "in 34.0 s: the quota limits the result as well.",
        ),
    ],
)
def test_a_quota_that_stopped_a_phase_is_warned_of(
    seconds: tuple[float, ...], verdict: str, ending: str
) -> None:
    found = check(throttled_for(record_of(seconds=34.0), *seconds), "cpu_throttled")
    assert found.verdict == verdict
    assert "the quota of 1.5 CPUs" in found.sentence
    assert found.sentence.endswith(ending)


def test_without_a_quota_there_is_no_throttling_to_check() -> None:
    record = throttled_for(record_of(seconds=34.0), 0.0, limit=None)
    assert not [c for c in evaluate(record) if c.name == "cpu_throttled"]


def test_a_record_that_did_not_count_it_has_no_such_check() -> None:
    record = stopped_for(record_of(), None)
    assert not [c for c in evaluate(record) if c.name == "ran_throughout"]
