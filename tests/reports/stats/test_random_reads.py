"""Comparing small random reads: reads per joule, points by targets, ceilings, requests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.reports.random_reads import DRIVE_W, PULL_PER_S, random_run, target_sweep
from wattload.core.units import Unit
from wattload.reports.runs.energy import SIMULATED, phase_energies
from wattload.reports.runs.load import Run
from wattload.reports.stats.figures import quantities
from wattload.reports.stats.subject import make_subject
from wattload.reports.stats.sweeps import load_curves, points, scalings

PER_JOULE = "reads per joule, gpu_random_read"
ENGINES = ("memory", "storage")


def simulated(run: Run) -> Run:
    controllers = tuple(
        each.model_copy(update={"facts": each.facts.model_copy(update={"vendor_id": "0x1b36"})})
        for each in run.record.controllers
    )
    return replace(run, record=run.record.model_copy(update={"controllers": controllers}))


def test_reads_per_joule_are_reads_over_the_energy_of_all_drives() -> None:
    quantity, figure = quantities(random_run(targets=2, rate=14e6).record)[PER_JOULE]
    assert (quantity.unit, quantity.better, quantity.headline) == (Unit.PER_JOULE, "higher", True)
    assert figure.value == pytest.approx(14e6 / (2 * DRIVE_W))
    assert figure.ranks


def test_reads_per_joule_count_blocks_and_not_the_bytes_that_drives_read() -> None:
    small, large = (random_run(rate=1e6, read_bytes=size).record for size in (512, 4096))
    assert quantities(small)[PER_JOULE][1].value == quantities(large)[PER_JOULE][1].value


@pytest.mark.parametrize("engine", ["null", "memory"])
def test_without_storage_there_are_no_reads_per_joule(engine: str) -> None:
    assert PER_JOULE not in quantities(random_run(engine=engine).record)


def test_readings_of_a_simulated_drive_rank_nothing() -> None:
    run = simulated(random_run())
    _, figure = quantities(run.record)[PER_JOULE]
    assert not figure.ranks
    assert figure.illustrates
    assert figure.evidence == phase_energies(run.record)[0].words == SIMULATED


def test_reads_per_joule_ask_what_energy_costs_and_nothing_asks_it_twice() -> None:
    found = [each for each, _ in quantities(random_run().record).values() if each.headline]
    asked = {each.name: each.asked_by for each in found}
    assert asked["reads per joule for the work"] == ""
    assert asked["reads per joule"].startswith("reads per joule for the work")
    assert asked["reads_per_s"] == ""
    assert "rate per watt" not in asked


def test_lists_of_equal_length_stay_lists() -> None:
    runs = target_sweep((2,), repeats=2)
    config = {**runs[0].record.config, "target": {"path": ["/mnt/x", "/mnt/y"]}}
    record = runs[0].record.model_copy(update={"config": config})
    subject = make_subject([replace(runs[0], record=record), runs[1]], "loader")
    found = points(subject.groups[0])
    assert {point.axis for point in found} == {"path"}
    assert {point.number for point in found} == {None}


def test_a_rate_has_the_pull_ceiling_and_the_power_of_the_drives() -> None:
    subject = make_subject(target_sweep((1, 2), repeats=2), "loader")
    (rates,) = scalings(subject, subject.groups[0])
    assert rates.label == "reads per second"
    assert rates.ceilings == ((1.0, PULL_PER_S), (2.0, PULL_PER_S))
    assert [point.mean for point in rates.watts[0].points] == [DRIVE_W, 2 * DRIVE_W]


def test_the_ideal_over_targets_is_the_best_rate_of_a_single_drive() -> None:
    rates = {(1, 1): 3e6, (2, 1): 6e6, (4, 1): 9e6, (1, 8): 6e6, (2, 8): 9e6, (4, 8): 12e6}
    runs = [
        random_run(name=f"{t}-{q}", targets=t, queue_pairs=q, repeat=place, rate=rate)
        for place, ((t, q), rate) in enumerate(rates.items())
    ]
    subject = make_subject(runs, "loader")
    found = scalings(subject, subject.groups[0])
    assert [(each.axis, each.panel.name) for each in found] == [
        ("targets", "1 queue pair"),
        ("targets", "8 queue pairs"),
    ]
    assert [each.curves[0].ideal(2) for each in found] == pytest.approx([12e6, 12e6])


def test_a_sweep_without_a_single_drive_is_measured_against_the_best_rate_per_drive() -> None:
    runs = [
        random_run(name=f"t{targets}", targets=targets, repeat=targets, rate=rate)
        for targets, rate in ((2, 10e6), (4, 16e6))
    ]
    subject = make_subject(runs, "loader")
    (scaling,) = scalings(subject, subject.groups[0])
    assert scaling.curves[0].ideal(4) == pytest.approx(20e6)


def test_queue_pairs_are_no_workers_and_pollers_are() -> None:
    pairs = [random_run(name=f"q{n}", queue_pairs=n, repeat=n) for n in (1, 8)]
    subject = make_subject(pairs, "loader")
    (scaling,) = scalings(subject, subject.groups[0])
    assert (scaling.axis, scaling.is_count) == ("queue_pairs", False)


def test_requests_and_reads_of_drives_are_curves_over_the_same_reads_per_second() -> None:
    subject = make_subject(target_sweep((1, 2), repeats=1), "loader")
    curves = load_curves(subject, subject.groups[0])
    assert {each.unit for each in curves} == {Unit.SAMPLES_PER_SECOND}
    found = {each.kind: each.curves[0] for each in curves}
    assert set(found) == {"read", "request"}
    reads, requests = found["read"].points[0], found["request"].points[0]
    (rates,) = scalings(subject, subject.groups[0])
    assert reads.rate == requests.rate == rates.curves[0].points[0].mean
    assert reads.mean_s < requests.mean_s


def test_runs_of_one_label_that_read_a_table_are_a_ceiling_of_those_that_read_drives() -> None:
    runs = [
        random_run(name=engine, engine=engine, label="A", repeat=n)
        for n, engine in enumerate(ENGINES)
    ]
    subject = make_subject(runs)
    assert subject.arms == ("storage",)
    assert [*subject.groups[0].ceilings] == ["memory"]
    assert make_subject(runs[:1]).arms == ("A",)
    other = random_run(name="other", label="B", repeat=2)
    assert make_subject([*runs, other]).arms == ("A (storage)", "B")
