"""The records of a phase: which figures it has, of which intervals, and which source is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.power.energy.simulated_runs import phase_window
from tests.power.energy_facts import facts, times_of, window
from tests.power.energy_traces import ns, samples_of, traces
from tests.records import Scenario, make_run, of_windows
from wattload.core.power import Bounds, Channel, Counter, Evidence, Sample, Scope, SourceFacts
from wattload.core.record.energy import EnergyRecord, PowerSection
from wattload.core.record.summary import drive_energy
from wattload.power.energy.ledger import EnergyLedger
from wattload.power.energy.source_ledger import ENERGIES
from wattload.power.energy.trace import Times, Values

TIMES_S = np.round(np.arange(-700, 660) / 10, 6)
READ = window("read", 0, 60)
IDLE = (ns(-65), ns(-5))
NVME = facts("nvme", Evidence.BOUNDS, Bounds())
DECLARED = facts("declared", Evidence.DECLARED, Bounds())


def power(source: str, watts: float, **options: Any) -> list[Sample]:
    """Return readings of 5 W until just before second 0, then ``watts``."""
    return samples_of(TIMES_S, np.where(TIMES_S < -0.05, 5.0, watts), source=source, **options)


def bounds(
    source: str = "nvme", *, state: float | None = 0, lower_w: float | None = 5.0
) -> list[Sample]:
    limits = {Channel.UPPER_W: 25.0, Channel.POWER_STATE: state, Channel.LOWER_W: lower_w}
    options: Any = {"source": source, "evidence": Evidence.BOUNDS}
    return [
        sample
        for channel, value in limits.items()
        if value is not None
        for sample in samples_of(TIMES_S, [value] * TIMES_S.size, channel=channel, **options)
    ]


def account(
    samples: Sequence[Sample],
    *sources: SourceFacts,
    idle: tuple[int, int] | None = IDLE,
    resets_ns: dict[str, list[int]] | None = None,
    **options: Any,
) -> tuple[EnergyRecord, ...]:
    ledger = EnergyLedger(
        traces(samples),
        sources,
        host="host1",
        times=times_of(READ, before=idle),
        resets_ns=resets_ns,
    )
    return ledger.phase_records([READ], **options)


def test_measured_window_has_gross_net_and_mean() -> None:
    (record,) = account(power("meter", 20), facts("meter", accuracy_percent=1.0))
    assert record.energy_j == pytest.approx(1200, rel=1e-9)
    assert record.mean_w == pytest.approx(20, rel=1e-9)
    assert record.idle_w == pytest.approx(5, rel=1e-9)
    assert record.net_j == pytest.approx(900, rel=1e-9)
    assert record.uncertainty_j is not None
    assert record.uncertainty_parts_j["gain"] == pytest.approx(12, rel=1e-9)
    assert (record.coverage, record.evidence) == (1, Evidence.SELF_REPORTED)
    assert record.chosen
    assert record.missing["tail_j"] == "no rest followed it"


@pytest.mark.parametrize(
    ("idle", "reason"),
    [
        (None, "no idle baseline was taken"),
        ((ns(-300), ns(-200)), "in the idle baseline, no reading covers the time"),
    ],
)
def test_no_idle_baseline_leaves_net_empty_with_its_reason(
    idle: tuple[int, int] | None, reason: str
) -> None:
    (record,) = account(power("meter", 20), facts("meter"), idle=idle)
    assert (record.idle_w, record.net_j) == (None, None)
    assert record.missing["idle_w"] == record.missing["net_j"] == reason


def test_bounds_are_an_interval_without_a_figure() -> None:
    (record,) = account(bounds(), NVME)
    assert (record.energy_j, record.mean_w) == (None, None)
    assert record.lower_j == pytest.approx(300, rel=1e-9)
    assert record.upper_j == pytest.approx(1500, rel=1e-9)
    assert record.evidence is Evidence.BOUNDS
    assert record.missing["energy_j"] == "nvme reports bounds only"
    assert record.missing["uncertainty_j"] == "nvme has no power sensor"
    assert record.coverage == 1
    assert record.chosen


def test_source_without_samples_has_no_figure() -> None:
    (record,) = account([], facts("meter"))
    assert (record.energy_j, record.coverage, record.sample_count) == (None, None, 0)
    assert record.evidence is Evidence.NONE
    assert record.missing["energy_j"] == "meter has no samples"
    assert not record.chosen


COARSE_J = np.floor((TIMES_S + 70) * 20 / 3600) * 3600
COARSE_COUNTS = samples_of(TIMES_S, COARSE_J, source="lifetime", channel=Channel.ENERGY_J)


@pytest.mark.parametrize(
    ("samples", "sources"),
    [
        (
            power("coarse", 20) + power("fine", 20.5),
            [facts("coarse", accuracy_percent=2.0), facts("fine", accuracy_percent=0.5)],
        ),
        (
            power("silent", 20, evidence=Evidence.MEASURED) + power("stated", 20),
            [facts("silent", Evidence.MEASURED), facts("stated", accuracy_percent=5.0)],
        ),
        (
            power("estimate", 20, evidence=Evidence.ESTIMATED) + power("report", 20),
            [facts("estimate", Evidence.ESTIMATED), facts("report")],
        ),
        (bounds() + power("meter", 20), [NVME, facts("meter")]),
        (
            bounds("wide", lower_w=None) + bounds("nvme"),
            [facts("wide", Evidence.BOUNDS, Bounds()), NVME],
        ),
        (
            COARSE_COUNTS + power("meter", 20),
            [facts("lifetime", sensor=Counter(quantum_j=3600)), facts("meter")],
        ),
    ],
    ids=["smallest U", "stated U", "stronger evidence", "measured", "interval", "fine counter"],
)
def test_the_better_source_is_chosen(samples: list[Sample], sources: list[SourceFacts]) -> None:
    assert [record.chosen for record in account(samples, *sources)] == [False, True]


@pytest.mark.parametrize(
    ("evidence", "coverage"), [(Evidence.SELF_REPORTED, 59.9 / 60), (Evidence.MEASURED, 1.0)]
)
def test_restart_of_a_drive_interrupts_its_own_counter_only(
    evidence: Evidence, coverage: float
) -> None:
    samples = samples_of(TIMES_S, 20 * TIMES_S + 5000, source="count", channel=Channel.ENERGY_J)
    source = facts("count", evidence, sensor=Counter(quantum_j=0.001))
    (record,) = account(samples, source, resets_ns={"SERIAL1": [ns(30.04)]})
    assert record.coverage == pytest.approx(coverage, rel=1e-9)


def test_data_sheet_is_chosen_only_on_request() -> None:
    samples = bounds("declared", state=None, lower_w=None)
    samples += power("declared", 12, evidence=Evidence.DECLARED)
    (unasked,) = account(samples, DECLARED)
    assert not unasked.chosen
    (requested,) = account(samples, DECLARED, requested="declared")
    assert requested.chosen
    assert requested.energy_j == pytest.approx(720, rel=1e-9)
    assert requested.evidence is Evidence.DECLARED
    assert requested.missing["lower_j"] == "declared reports no lower bound"
    assert requested.missing["idle_w"] == "declared has no power sensor"
    assert requested.missing["uncertainty_j"] == "declared has no power sensor"


def test_energies_of_gpu_and_node_are_reported_in_addition() -> None:
    """They have no tail and no net, and are never part of the drive's, whatever their names."""
    sources = [
        facts("hwmon", accuracy_percent=5.0),
        facts("redfish_power", scope=Scope.NODE, accuracy_percent=0.1),
        facts("nvml_power", device="GPU-1", scope=Scope.GPU, accuracy_percent=0.1),
    ]
    samples = [
        sample
        for each, watts in zip(sources, (12.0, 400.0, 70.0), strict=True)
        for sample in power(each.name, watts, device=each.device)
    ]
    records = account(samples, *sources)
    assert [record.chosen for record in records] == [True, True, True]
    assert [record.energy_j for record in records] == pytest.approx([720, 24000, 4200])
    section = PowerSection(requested="auto", choice="", idle_s=0, energy=records)
    run, _ = make_run(Scenario())
    changes = {**of_windows([READ]), "targets": (), "power": section}
    assert drive_energy(run.model_copy(update=changes))["energy_in_window_j"] == pytest.approx(720)
    changes["power"] = section.model_copy(update={"energy": records[1:]})
    assert drive_energy(run.model_copy(update=changes))["energy_in_window_j"] is None
    for record in records[1:]:
        assert "for drives only" in record.missing["net_j"]
        assert record.missing["tail_j"] == "only drives have a tail"


def test_only_timed_windows_of_this_host_are_counted() -> None:
    windows = [
        READ,
        window("prepare", 0, 10, timed=False),
        window("elsewhere", 0, 10, host="host2"),
        window("write", 20, 30),
    ]
    ledger = EnergyLedger(
        traces(power("meter", 20)), [facts("meter")], host="host1", times=times_of(*windows)
    )
    records = ledger.phase_records(windows)
    assert [record.phase for record in records] == ["read", "write"]
    assert "it includes the energy of write, which ran at the same time" in records[0].remarks


def moved_bytes(time_ns: Times) -> Values:
    """Return bytes at 100 MB a second."""
    return np.rint((time_ns - ns(0)) / 10)


def test_states_of_the_device_divide_the_figure_of_another_source() -> None:
    moved = {("read", "SERIAL1"): moved_bytes}
    samples = bounds(state=1) + power("meter", 20)
    records = account(samples, NVME, facts("meter"), moved_bytes=moved)
    for record in records:
        (share,) = record.states
        assert (share.state, share.seconds, share.moved_bytes) == ("1", 60, 6_000_000_000)
        for name in ENERGIES:
            assert getattr(share, name) == pytest.approx(getattr(record, name))


def test_a_phase_counts_over_its_intervals_only() -> None:
    """There are 20 W in the intervals, else 5 W; the power state is 0 until second 10, then 1."""
    phase = phase_window("read", ((8.0, 9.0), (11.0, 14.0)))
    times_s = np.round(np.arange(0, 20.05, 0.1), 6)
    is_busy = (np.abs(times_s - 8.5) <= 0.5) | (np.abs(times_s - 12.5) <= 1.5)
    samples = samples_of(times_s, np.where(is_busy, 20.0, 5.0))
    samples += samples_of(times_s, np.where(times_s < 10, 0.0, 1.0), channel=Channel.POWER_STATE)
    times = times_of(phase, before=(ns(0), ns(1)))
    ledger = EnergyLedger(traces(samples), [facts("meter")], host="host1", times=times)
    (record,) = ledger.phase_records([phase], moved_bytes={("read", "SERIAL1"): moved_bytes})
    assert record.energy_j == pytest.approx(80.0, rel=0.03)
    assert (record.start_ns, record.end_ns, record.seconds) == (ns(8.0), ns(14.0), 4.0)
    assert record.net_j == pytest.approx((record.energy_j or 0) - 4 * 5.0)
    assert {each.state: each.seconds for each in record.states} == {"0": 1.0, "1": 3.0}
    assert sum(share.moved_bytes or 0 for share in record.states) == 400_000_000
    assert sum(share.energy_j or 0 for share in record.states) == pytest.approx(record.energy_j)
