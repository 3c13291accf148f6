"""Each check is shown a record that it must pass and the same record tampered with."""

from __future__ import annotations

from typing import Any

import pytest

from tests.records import Scenario, make_run, of_windows
from wattload.core.checks.evaluation import evaluate
from wattload.core.record.phase import PhaseHalves
from wattload.core.record.results import NO_UTILISATION, PACED, Check, Metric
from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S, Unit


def _record(**scenario: Any) -> RunRecord:
    record, _ = make_run(Scenario(**scenario))
    return record


def _check(record: RunRecord, name: str) -> Check:
    (found,) = [check for check in evaluate(record) if check.name.startswith(name)]
    return found


def _tampered(record: RunRecord, **changes: Any) -> RunRecord:
    return record.model_copy(update=changes)


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "pass"), (1.01, "pass"), (0.5, "fail")])
def test_device_bytes_prove_a_direct_path(factor: float, verdict: str) -> None:
    record = _record(virtual=False)
    counters = tuple(
        counter.model_copy(update={"read_bytes": int((counter.read_bytes or 0) * factor)})
        for counter in record.counters
    )
    assert _check(_tampered(record, counters=counters), "device_bytes").verdict == verdict


def _with_copies(record: RunRecord, copies: float | None) -> RunRecord:
    (target,) = record.targets
    stack = target.facts.stack
    assert stack is not None
    missing = {"redundancy": "not shown"} if copies is None else {}
    lower = stack.children[0].model_copy(
        update={"redundancy": copies, "missing": {**stack.children[0].missing, **missing}}
    )
    facts = target.facts.model_copy(
        update={"stack": stack.model_copy(update={"children": (lower,)})}
    )
    return _tampered(record, targets=(target.model_copy(update={"facts": facts}),))


def _with_device_bytes(record: RunRecord, *, read: float, written: float) -> RunRecord:
    counters = tuple(
        counter.model_copy(
            update={
                "read_bytes": int((counter.read_bytes or 0) * read),
                "written_bytes": int((counter.written_bytes or 0) * written),
            }
        )
        for counter in record.counters
    )
    return _tampered(record, counters=counters)


@pytest.mark.parametrize(
    ("copies", "written", "verdict"),
    [(2.0, 2.0, "pass"), (2.0, 1.0, "fail"), (None, 2.0, "not_checked"), (1.0, 1.0, "pass")],
)
def test_an_array_writes_its_copies_and_not_fewer(
    copies: float | None, written: float, verdict: str
) -> None:
    record = _with_copies(_record(workload="checkpoint", virtual=False), copies)
    tampered = _with_device_bytes(record, read=1.0, written=written)
    assert _check(tampered, "device_bytes_write_written").verdict == verdict


def test_bytes_that_never_came_from_the_device_fail_whoever_shares_it() -> None:
    """Other load only adds bytes: on a root disk, too, a ratio below one is no direct path."""
    record = _record(virtual=True)
    (target,) = record.targets
    facts = target.facts.model_copy(update={"shared_with": ("/",)})
    shared = _tampered(record, targets=(target.model_copy(update={"facts": facts}),))
    assert (
        _check(_with_device_bytes(shared, read=0.07, written=1.0), "device_bytes").verdict == "fail"
    )
    assert (
        _check(_with_device_bytes(shared, read=3.0, written=1.0), "device_bytes").verdict == "warn"
    )


@pytest.mark.parametrize(("ratio", "verdict"), [(0.95, "warn"), (0.5, "fail"), (1.0, "pass")])
def test_the_page_cache_may_serve_what_is_read_again_and_no_more(
    ratio: float, verdict: str
) -> None:
    record = _record(virtual=False)
    paths = tuple(
        path.model_copy(update={"path_requested": "page_cache"}) for path in record.workload.paths
    )
    workload = record.workload.model_copy(update={"paths": paths})
    tampered = _with_device_bytes(_tampered(record, workload=workload), read=ratio, written=1.0)
    assert _check(tampered, "device_bytes").verdict == verdict


def test_a_ratio_in_range_proves_nothing_with_other_traffic() -> None:
    record = _record(virtual=False)
    counters = tuple(
        counter.model_copy(update={"written_bytes": counter.read_bytes})
        for counter in record.counters
    )
    found = _check(_tampered(record, counters=counters), "device_bytes")
    assert found.verdict == "warn"
    assert "other traffic" in found.sentence


@pytest.mark.parametrize(
    ("request_bytes", "weighted", "verdict"),
    [
        (4 << 20, 8.0, "pass"),
        (1 << 20, 32.0, "pass"),
        (1 << 20, 8.0, "warn"),
        (4 << 20, 20.0, "warn"),
    ],
)
def test_queue_depth_is_in_blocks_of_the_requested_size(
    request_bytes: int, weighted: float, verdict: str
) -> None:
    """Requests are blocks cut up: 32 in flight of a quarter block each are eight blocks."""
    record = _with_depth(_record(virtual=False), request_bytes, weighted)
    assert _check(record, "queue_depth").verdict == verdict


@pytest.mark.parametrize(
    ("nominal", "weighted", "verdict"),
    [(0.99, 2.0, "not_checked"), (0.99, 8.0, "pass"), (0.99, 20.0, "warn"), (0.6, 2.0, "warn")],
)
def test_a_paced_loader_needs_no_deep_queue(nominal: float, weighted: float, verdict: str) -> None:
    record = _with_depth(_record(virtual=False), 4 << 20, weighted)
    metrics = _utilisations(record, nominal, nominal)
    found = _check(_tampered(record, metrics=metrics), "queue_depth")
    assert found.verdict == verdict
    assert found.cause == (PACED if verdict == "not_checked" else "")


def _with_depth(record: RunRecord, request_bytes: int, weighted: float) -> RunRecord:
    """Return a record of depth 8 whose devices counted ``weighted`` requests in flight."""
    workload = record.workload.model_copy(
        update={"queue_depth_asked": 8, "block_bytes_asked": 4 << 20}
    )
    counters = tuple(
        counter.model_copy(
            update={
                "read_operations": (counter.read_bytes or 0) // request_bytes,
                "write_operations": 0,
                "busy_s": 10.0,
                "weighted_s": 10.0 * weighted,
            }
        )
        for counter in record.counters
    )
    return _tampered(record, workload=workload, counters=counters)


def test_device_bytes_without_a_device_counter_are_not_checked() -> None:
    record = _record()
    counters = ()
    found = _check(_tampered(record, counters=counters), "device_bytes")
    assert found.verdict == "not_checked"
    assert found.mandatory


def _utilisations(
    record: RunRecord, dlio: float | None, nominal: float | None
) -> tuple[Metric, ...]:
    (window,) = record.timed_windows()
    return tuple(
        Metric.of(
            name, value, Unit.FRACTION, "higher", "Made up.", phase=window.name, reason="unpaced"
        )
        for name, value in (("au_dlio", dlio), ("au_nominal", nominal))
    )


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
    record = _record(seconds=24.0)
    record = _tampered(record, metrics=_utilisations(record, dlio, nominal))
    assert _check(record, "utilisations_agree").verdict == verdict


def test_without_an_emulated_accelerator_utilisations_do_not_apply() -> None:
    record = _record()
    for nominal, cause in ((None, NO_UTILISATION), (0.9, "")):
        metrics = _utilisations(record, None, nominal)
        assert _check(_tampered(record, metrics=metrics), "utilisations_agree").cause == cause


def test_a_run_without_utilisations_has_none_to_compare() -> None:
    record = _record(workload="checkpoint")
    assert not [c for c in evaluate(record) if c.name == "utilisations_agree"]


@pytest.mark.parametrize(("seconds", "verdict"), [(32.0, "pass"), (5.0, "warn")])
def test_a_short_window_warns(seconds: float, verdict: str) -> None:
    assert _check(_record(seconds=seconds), "short_run").verdict == verdict


@pytest.mark.parametrize(("second", "verdict"), [(0.95, "pass"), (0.8, "warn"), (1.3, "warn")])
def test_halves_more_than_ten_percent_apart_are_not_steady(second: float, verdict: str) -> None:
    record = _record()
    windows = tuple(
        window.model_copy(update={"half_rates_bytes_per_s": (1e9, second * 1e9)})
        if window.timed
        else window
        for window in record.windows
    )
    assert _check(_tampered(record, **of_windows(windows)), "steady").verdict == verdict


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
    return _tampered(record, spans=spans, halves=(halves,))


@pytest.mark.parametrize(
    ("lengths_s", "verdict"),
    [([2.0, 2.0, 2.0], "pass"), ([2.0, 2.0, 2.5], "warn"), ([2.0, 3.0], "warn"), ([4.0], "warn")],
)
def test_epochs_are_halved_by_their_number(lengths_s: list[float], verdict: str) -> None:
    record = _epochs(_record(), lengths_s)
    assert _check(record, "steady").verdict == verdict


def test_a_single_paced_epoch_has_no_halves_to_compare() -> None:
    """Its loader reads ahead at once and then waits for the accelerator."""
    record = _epochs(_record(), [4.0])
    paced = _tampered(record, metrics=_utilisations(record, 0.99, 0.99))
    found = _check(paced, "steady")
    assert (found.verdict, found.cause) == ("not_checked", PACED)


@pytest.mark.parametrize(("factor", "verdict"), [(3.0, "pass"), (1.5, "warn")])
def test_a_ceiling_under_twice_the_result_reports_that_the_host_was_measured(
    factor: float, verdict: str
) -> None:
    record = _record()
    rate = Metric(
        name="throughput_bytes_per_s",
        value=1e9,
        unit=Unit.BYTES_PER_SECOND,
        better="higher",
        meaning="a rate",
        headline=True,
    )
    ceiling = Metric(
        name="harness_ceiling_bytes_per_s",
        value=factor * 1e9,
        unit=Unit.BYTES_PER_SECOND,
        better="higher",
        meaning="a ceiling",
    )
    found = _check(_tampered(record, metrics=(rate, ceiling)), "bottleneck")
    assert found.verdict == verdict


@pytest.mark.parametrize(("coverage", "verdict"), [(1.0, "pass"), (0.97, "warn"), (0.9, "fail")])
def test_coverage_is_judged_at_99_and_95_percent(coverage: float, verdict: str) -> None:
    record = _record(power="measured", virtual=False)
    energy = tuple(e.model_copy(update={"coverage": coverage}) for e in record.power.energy)
    power = record.power.model_copy(update={"energy": energy})
    assert _check(_tampered(record, power=power), "power_coverage").verdict == verdict


def test_power_without_a_source_is_not_checked_and_bars_a_verdict() -> None:
    found = _check(_record(power="none"), "power_coverage")
    assert found.verdict == "not_checked"
    assert found.mandatory


def test_a_lost_power_state_fails() -> None:
    record = _record(power="measured", virtual=False, state=1)
    assert _check(record, "power_state_held").verdict == "pass"
    states = tuple(s.model_copy(update={"after": 0}) for s in record.power.states)
    power = record.power.model_copy(update={"states": states})
    assert _check(_tampered(record, power=power), "power_state_held").verdict == "fail"
