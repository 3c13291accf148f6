"""Comparisons of random writes: what is compared, with which energy, and what is never."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.reports.random_writes import writes_run
from wattload.core.histogram import Histogram
from wattload.core.record.results import latencies_of
from wattload.reports.runs.energy import phase_energies, whole_energy
from wattload.reports.runs.load import Run
from wattload.reports.stats.conditions import exclusions
from wattload.reports.stats.figures import quantities
from wattload.reports.stats.subject import Subject, facts_of, make_subject
from wattload.reports.stats.summary import VerdictRow, first_screen
from wattload.reports.stats.sweeps import load_curves, scalings

A: dict[str, Any] = {"label": "A", "rate": 1.9e9, "serial": "SERIALA", "watts": 16.0}
B: dict[str, Any] = {"label": "B", "rate": 1.3e9, "serial": "SERIALB", "watts": 15.0}
FILL = {"until": "fill", "draw": "each_once"}


def pair(a: dict[str, Any], b: dict[str, Any]) -> Subject:
    runs = [writes_run(name="run-a", **(A | a)), writes_run(name="run-b", **(B | b))]
    return make_subject(runs, "label")


def row_of(subject: Subject) -> VerdictRow:
    (row,) = first_screen(subject).rows
    return row


def test_what_may_be_overwritten_is_no_axis_of_a_sweep() -> None:
    run = writes_run()
    target = {"path": "/dev/x", "serial": "S", "overwrite": ["gpt:1"]}
    config = {**run.record.config, "target": target}
    found = facts_of(run.record.model_copy(update={"config": config}))
    assert not {"target.serial", "target.overwrite"} & set(found)


def test_drives_of_other_sizes_are_compared_by_their_steady_rates_alone() -> None:
    steady = pair({}, {"range_bytes": 5_000_000_000_000})
    assert not exclusions(steady, steady.groups[0]).work
    fill = pair(FILL, FILL | {"range_bytes": 5_000_000_000_000})
    found = exclusions(fill, fill.groups[0])
    quantity, _ = quantities(fill.runs[0].record)["fill_seconds"]
    assert "different bytes in random_write" in found.reasons(quantity)[0]


def test_joules_per_gb_of_a_steady_state_are_of_its_window() -> None:
    subject = make_subject([writes_run(rate=1e9, watts=10.0)], "label")
    (bar,) = row_of(subject).energies.bars
    assert bar.value == pytest.approx(10.0 / 1.02, rel=0.01)


def test_joules_per_gb_of_a_fill_are_of_all_its_writes() -> None:
    run = writes_run(rate=1e9, watts=10.0, **FILL)
    (bar,) = row_of(make_subject([run], "label")).energies.bars
    (energy,) = phase_energies(run.record)
    assert energy.energy_j is not None
    assert bar.value == pytest.approx(energy.energy_j / (energy.moved_bytes / 1e9))


def test_the_energy_of_a_steady_state_is_in_no_sum() -> None:
    record = writes_run().record
    assert [each.phase for each in phase_energies(record)] == ["random_write", "steady"]
    assert whole_energy(record) is None


def test_the_joules_of_a_steady_state_have_no_better_direction() -> None:
    found = quantities(writes_run().record)
    assert found["energy in the window, steady"][0].better == "neither"
    asking = "energy per byte for the work, steady"
    assert found[asking][0].asked_by == ""
    assert found["rate per watt, steady"][0].asked_by == asking
    assert found["energy in the window, random_write"][0].asked_by == asking


def with_latencies(run: Run) -> Run:
    """Return a run with the latencies of all writes, and with slower ones in the steady state."""
    found = [
        latency
        for phase, value_ns in (("random_write", 200_000), ("steady", 400_000))
        for latency in latencies_of(
            Histogram.of([value_ns] * 5000), phase=phase, kind="write", operation_bytes=16384
        )
    ]
    return replace(run, record=run.record.model_copy(update={"latencies": tuple(found)}))


def test_latency_over_rate_steps_is_that_of_the_steady_state() -> None:
    runs = [
        with_latencies(writes_run(name=f"run-{limit}", rate=limit, limit_bytes_per_s=limit))
        for limit in (5e8, 1e9)
    ]
    subject = make_subject(runs, "label")
    (curves,) = load_curves(subject, subject.groups[0])
    assert (curves.phase, curves.kind) == ("steady", "write")
    assert [at.value for at in curves.curves[0].points] == ["500\u00a0MB/s", "1.00\u00a0GB/s"]
    rates = [at.rate for at in curves.curves[0].points]
    assert rates == pytest.approx([5.1e8, 1.02e9], rel=0.01)
    assert curves.curves[0].points[0].percentiles_s["p50"] == pytest.approx(4e-4, rel=0.05)
    assert not scalings(subject, subject.groups[0])
