"""A step of the wall clock and a clock of another rate are distinguished."""

from __future__ import annotations

import time

import pytest

from tests.records import Scenario, make_run
from wattload.core.checks.clocks import clocks_agree
from wattload.core.clock import ClockAnchor, anchor
from wattload.core.record.results import Check

S = 1_000_000_000
TIMES_S = (0.0, 2.0, 22.0, 24.0)
"""Start, before the workload, after it, end."""


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
