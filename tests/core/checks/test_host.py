"""Checks on hosts: clocks of another rate, and a load that was another one after the workload."""

from __future__ import annotations

import time
from typing import Any, TypeVar

import pytest

from tests.record_machine import read
from tests.records import Scenario, make_run
from wattload.core.base_models import Observed
from wattload.core.checks.host import clocks_agree, common_clock
from wattload.core.clock import ClockAnchor, anchor
from wattload.core.record.host import ClockOffset, LoadLevel, LoadRecord, LoadWindow, MemoryMeter
from wattload.core.record.results import Check, Metric
from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S, Unit
from wattload.results import reading

S = 1_000_000_000


TIMES_S = (0.0, 2.0, 22.0, 24.0)


def checked(
    wall: tuple[float, ...],
    *,
    raw: tuple[float, ...] = TIMES_S,
    boottime: tuple[float, ...] = TIMES_S,
    between: bool = True,
) -> Check:
    """Return the check of a run whose clocks show these seconds at ``TIMES_S``."""
    moments = [
        ClockAnchor(
            monotonic_ns=round(one * S),
            realtime_ns=round(other * S),
            raw_ns=round(third * S),
            boottime_ns=round(fourth * S),
        )
        for one, other, third, fourth in zip(TIMES_S, wall, raw, boottime, strict=True)
    ]
    record, _ = make_run(Scenario())
    (host,) = record.hosts
    assert host.after is not None
    host = host.model_copy(
        update={
            "before": host.before.model_copy(update={"clock": moments[0]}),
            "after": host.after.model_copy(update={"clock": moments[-1]}),
            "clocks": tuple(moments[1:-1]) if between else (),
        }
    )
    (check,) = clocks_agree(record.model_copy(update={"hosts": (host,)}))
    return check


def scaled(factor: float) -> tuple[float, ...]:
    return tuple(factor * moment for moment in TIMES_S)


def stepped(size_s: float, at: int) -> tuple[float, ...]:
    return tuple(m + size_s * (place >= at) for place, m in enumerate(TIMES_S))


def test_clocks_of_one_rate_pass() -> None:
    assert checked(TIMES_S).verdict == "pass"
    assert checked(scaled(1.0005)).verdict == "pass"


@pytest.mark.parametrize("factor", [0.5, 2.0, 1.02, 0.98])
def test_another_rate_fails(factor: float) -> None:
    assert checked(scaled(factor)).verdict == "fail"


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("size_s", [5.0, -5.0, 3600.0, -0.3])
def test_a_step_is_a_warning_with_its_size(size_s: float, at: int) -> None:
    check = checked(stepped(size_s, at))
    assert check.verdict == "warn"
    assert f"stepped by {size_s:+.3f} s" in check.sentence


def test_a_step_on_top_of_another_rate_fails() -> None:
    wall = tuple(1.5 * m + 5.0 * (place > 1) for place, m in enumerate(TIMES_S))
    assert checked(wall).verdict == "fail"


def test_several_steps_fail() -> None:
    """A clock that is corrected again and again belongs to a host that counts time wrongly."""
    wall = tuple(m + 1.0 * (place > 0) + 1.0 * (place > 1) for place, m in enumerate(TIMES_S))
    assert checked(wall).verdict == "fail"


def test_without_reads_in_between_a_step_is_not_assumed() -> None:
    check = checked(stepped(5.0, 2), between=False)
    assert check.verdict == "fail"
    assert "not read in between" in check.sentence
    assert checked(stepped(0.1, 2), between=False).verdict == "warn"


def test_a_monotonic_clock_that_the_raw_one_denies_fails() -> None:
    check = checked(TIMES_S, raw=scaled(1.1))
    assert check.verdict == "fail"
    assert "26.400 s on the raw one" in check.sentence


@pytest.mark.parametrize(("size_s", "verdict"), [(60.0, "fail"), (0.1, "warn")])
def test_a_suspended_host_is_named(size_s: float, verdict: str) -> None:
    check = checked(stepped(size_s, 2), boottime=stepped(size_s, 2))
    assert check.verdict == verdict
    assert f"suspended for {size_s:.3f} s" in check.sentence


def test_an_anchor_reads_every_clock_at_one_moment() -> None:
    first = time.monotonic_ns()
    read = anchor()
    assert first <= read.monotonic_ns <= time.monotonic_ns()
    assert read.raw_ns is not None
    assert read.boottime_ns is not None
    assert read.boottime_ns >= read.monotonic_ns - S


Part = TypeVar("Part", bound=Observed)


PEAK = 20e9


REASON = "it was not read"


def made(kind: type[Part], values: dict[str, Any]) -> Part:
    return read(kind, REASON, **{name: each for name, each in values.items() if each is not None})


def level(window: LoadWindow, cpu: float = 0.86, memory: float = 0.5, **other: Any) -> LoadLevel:
    start_s = {"alone": 0, "during": 10, "after": 20}[window]
    values: dict[str, Any] = {
        "start_ns": start_s * NS_PER_S,
        "end_ns": (start_s + 10) * NS_PER_S,
        "cpu_share": cpu,
        "steal_share": 0.0,
        "load_cpu_share": cpu - 0.03,
        "run_cpu_share": 0.01,
        "other_cpu_share": 0.02,
        "memory_bytes_per_s": memory * PEAK,
        "memory_share": memory,
        "copied_bytes_per_s": memory * PEAK / 2,
        "work_fraction": 0.6 if window == "during" else 1.0,
    }
    return made(LoadLevel, {"host": "box", "window": window} | values | other)


def load(*levels: LoadLevel, **changes: Any) -> LoadRecord:
    meter: MemoryMeter = "uncore"
    values: dict[str, Any] = {
        "name": "busy",
        "program": "non-temporal copies (AVX2)",
        "cpus": "0-15",
        "thread_count": 16,
        "cpu_share_asked": 0.86,
        "memory_share_asked": 0.5,
        "meter": meter,
        "peak_of": "measured",
        "peak_bytes_per_s": PEAK,
        "measured_peak_bytes_per_s": PEAK,
        "settle_s": 15.0,
        "copy_bytes_per_s_quota": PEAK / 4,
        "arithmetic_per_s_quota": 1e6,
        "kept_fraction": 0.6,
        "levels": levels or (level("alone"), level("during"), level("after")),
    }
    return made(LoadRecord, {"host": "box"} | values | changes)


def busy(*loads: LoadRecord, kept: float | None = 0.6, name: str = "busy") -> RunRecord:
    record, _ = make_run(Scenario(power="measured", virtual=False))
    (host,) = {host.facts.name for host in record.hosts}
    shares = {} if name == "stressapptest" else {"cpu_share": 0.86, "memory_share": 0.5}
    metric = Metric.of(
        "load_kept_fraction", kept, Unit.FRACTION, "higher", "what it kept", reason=REASON
    )

    windows = record.timed_windows()
    first_ns = min(window.start_ns for window in windows)
    last_ns = max(window.end_ns for window in windows)

    def placed(found: LoadLevel) -> LoadLevel:
        length_ns = found.end_ns - found.start_ns
        start_ns = {"alone": first_ns - length_ns, "during": first_ns, "after": last_ns}
        edges = {"start_ns": start_ns[found.window], "end_ns": start_ns[found.window] + length_ns}
        return found.model_copy(update={"host": host, **edges})

    def named(each: LoadRecord) -> LoadRecord:
        levels = tuple(map(placed, each.levels))
        return each.model_copy(update={"host": host, "levels": levels})

    return record.model_copy(
        update={
            "config": {**record.config, "load": {"name": name, **shares}},
            "loads": tuple(map(named, loads)),
            "metrics": (*record.metrics, metric),
        }
    )


def judged(record: RunRecord) -> Check:
    (check,) = [each for each in reading.judged(record).checks if each.name == "load_level"]
    return check


def test_levels_within_the_bands_pass() -> None:
    check = judged(busy(load(level("alone", 0.875, 0.475), level("during", 0.99), level("after"))))
    assert check.verdict == "pass"
    assert check.sentence.startswith("Load busy: CPU 0.875, memory 0.475 before the workload and")


@pytest.mark.parametrize("window", ["alone", "after"])
@pytest.mark.parametrize(("cpu", "memory"), [(0.83, 0.5), (0.89, 0.5), (0.86, 0.46), (0.86, 0.54)])
def test_a_level_outside_of_a_band_fails(window: LoadWindow, cpu: float, memory: float) -> None:
    levels = [level("alone"), level("during"), level("after")]
    levels[0 if window == "alone" else 2] = level(window, cpu, memory)
    check = judged(busy(load(*levels)))
    assert check.verdict == "fail"
    assert check.fails_run


def test_another_load_after_the_workload_is_named() -> None:
    after = level("after", 0.95, load_cpu_share=0.64, other_cpu_share=0.3)
    check = judged(busy(load(level("alone"), level("during"), after)))
    assert check.sentence == (
        "Load busy: its CPU share was 0.950 after the workload, 0.860 asked, with at most 0.02 "
        "between them; other processes took 0.300 of the CPUs."
    )


def test_a_missing_level_fails() -> None:
    check = judged(busy(load(level("alone"), level("during"))))
    assert (check.verdict, "after the workload is missing" in check.sentence) == ("fail", True)


def test_a_load_that_was_asked_for_and_is_not_recorded_fails() -> None:
    assert judged(busy()).verdict == "fail"


def test_a_run_without_a_load_has_no_such_check() -> None:
    record, _ = make_run(Scenario())
    assert not [check for check in reading.judged(record).checks if check.name == "load_level"]


def test_a_short_measurement_warns() -> None:
    after = level("after", end_ns=22 * NS_PER_S)
    check = judged(busy(load(level("alone"), level("during"), after)))
    assert check.verdict == "warn"
    assert check.sentence.endswith("it was measured over 2.0 s, less than 10 s.")


@pytest.mark.parametrize(
    "found",
    [
        load(level("alone"), level("during", load_cpu_share=2.0), level("after")),
        load(level("alone", run_cpu_share=0.05), level("during"), level("after")),
        load(level("alone"), level("after"), kept_fraction=None),
    ],
)
def test_processes_that_took_more_than_all_cpus_or_were_not_measured_fail(
    found: LoadRecord,
) -> None:
    assert judged(busy(found)).verdict == "fail"


def test_ticks_and_stolen_time_may_be_counted_twice() -> None:
    alone = level("alone", run_cpu_share=0.03)
    stolen = level("after", run_cpu_share=0.06, steal_share=0.03)
    assert judged(busy(load(alone, level("during"), stolen))).verdict == "pass"


@pytest.mark.parametrize(("after", "verdict"), [(0.99, "pass"), (0.9, "fail")])
def test_a_program_without_shares_is_compared_with_itself(after: float, verdict: str) -> None:
    unknown: dict[str, Any] = {
        "memory_share": None,
        "memory_bytes_per_s": None,
        "work_fraction": None,
    }
    levels = (
        level("alone", 1.0, **unknown),
        level("during", 1.0, **unknown),
        level("after", after, **unknown),
    )
    program = load(
        *levels,
        name="stressapptest",
        cpu_share_asked=None,
        memory_share_asked=None,
        kept_fraction=None,
    )
    check = judged(busy(program, kept=None, name="stressapptest"))
    assert check.verdict == verdict


def two_clocks(drift_ns: int) -> RunRecord:
    """Return a run on two hosts whose clocks drift apart in the 20 s of its job."""
    record, _ = make_run(Scenario())
    (first,) = record.hosts
    offsets = [
        ClockOffset(monotonic_ns=at_s * S, offset_ns=offset_ns, bound_ns=50_000)
        for at_s, offset_ns in ((1, 7 * S), (2, 7 * S), (22, 7 * S + drift_ns))
    ]
    facts = first.facts.model_copy(update={"name": "two"})
    second = first.model_copy(update={"facts": facts, "offsets": tuple(offsets)})
    return record.model_copy(update={"hosts": (first, second)})


@pytest.mark.parametrize(
    ("drift_ns", "verdict"),
    [(0, "pass"), (10_100_000, "pass"), (-10_100_000, "pass"), (10_100_001, "warn")],
)
def test_clocks_may_drift_apart_by_500_ppm(drift_ns: int, verdict: str) -> None:
    (check,) = common_clock(two_clocks(drift_ns))
    assert (check.name, check.verdict) == ("common_clock_two", verdict)
    assert "clock of two drifted by" in check.sentence


def test_a_step_names_its_host() -> None:
    record = two_clocks(0)
    first, second = record.hosts
    assert second.after is not None
    clock = second.after.clock
    stepped = clock.model_copy(update={"realtime_ns": clock.realtime_ns + 5 * S})
    after = second.after.model_copy(update={"clock": stepped})
    clocks = tuple(
        ClockAnchor(
            monotonic_ns=second.before.clock.monotonic_ns + at_s * S,
            realtime_ns=second.before.clock.realtime_ns + at_s * S,
        )
        for at_s in (1, 4)
    )
    second = second.model_copy(update={"after": after, "clocks": clocks})
    checks = clocks_agree(record.model_copy(update={"hosts": (first, second)}))
    assert [check.verdict for check in checks] == ["pass", "warn"]
    assert f"on the wall clock of {second.facts.name}: " in checks[1].sentence
    assert "stepped by +5.000 s" in checks[1].sentence
