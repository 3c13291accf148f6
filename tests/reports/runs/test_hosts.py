"""What each host of a run did, and which of them ended last."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.records import Scenario, cluster_of, make_cluster, make_run, write_made_run
from wattload.core.checks.energy import power_coverage
from wattload.core.power import Channel
from wattload.core.record.host import ClockOffset
from wattload.core.record.run import RunRecord
from wattload.core.record.summary import drive_energy, summary_of
from wattload.reports.runs.energy import phase_energies, whole_energy
from wattload.reports.runs.hosts import ends_of, shares_of
from wattload.reports.runs.load import Run, load_runs
from wattload.reports.runs.phases import leading, overlap
from wattload.reports.runs.timeline import host_rates, make_timeline
from wattload.reports.sections.hosts import ends_text, shared_text
from wattload.reports.stats.subject import make_subject
from wattload.reports.stats.summary import first_screen

NAMES = ("ada", "bob", "cyd")
REAL: dict[str, Any] = {"power": "measured", "ranks": 2}


def record_of(**scenario: Any) -> RunRecord:
    return make_cluster(cluster_of(*NAMES, **{**REAL, **scenario}))[0]


def text_of(record: RunRecord) -> str:
    return ends_text(record).replace("\N{NO-BREAK SPACE}", " ")


def run_of(folder: Path, **scenario: Any) -> Run:
    record, traces = make_cluster(cluster_of(*NAMES, **{**REAL, **scenario}))
    (run,) = load_runs([write_made_run(folder / "run", record, traces)])
    return run


def test_a_run_of_one_host_has_no_shares_and_no_ends() -> None:
    record, _ = make_run(Scenario(ranks=2))
    assert shares_of(record) == ()
    assert ends_of(record) is None


def test_the_shares_of_hosts_add_up_to_the_run() -> None:
    record = record_of(workload="checkpoint", slow="cyd")
    *shares, whole = shares_of(record)
    assert [share.name for share in shares] == [*NAMES]
    assert [share.rank_count for share in shares] == [2, 2, 2]
    assert [share.drives for share in shares] == [
        (f"MICRON_6550_MTFDLAL61T4TGA S4EVNX0R90000{n}",) for n in range(3)
    ]
    for direction in ("read", "written"):
        total = sum(record.moved_bytes(phase.name, direction) for phase in leading(record))
        assert sum(getattr(share, f"{direction}_bytes") for share in shares) == total
        assert getattr(whole, f"{direction}_bytes") == total
    assert whole.energy == whole_energy(record)
    joules = [share.energy.work_j for share in shares if share.energy is not None]
    assert whole.energy is not None
    assert math.fsum(j or 0.0 for j in joules) == pytest.approx(whole.energy.work_j)
    assert [share.clock_bound_s for share in (*shares, whole)] == [None, 1e-4, 1e-4, 1e-4]


def test_the_read_and_the_write_rate_of_a_host_are_those_of_its_phases() -> None:
    record = record_of(workload="checkpoint", slow="cyd")
    for share in shares_of(record)[:-1]:
        rates = {
            window.name: (window.read_bytes + window.written_bytes) / window.active_s
            for window in record.windows
            if window.host == share.name and window.timed
        }
        assert share.reading_bytes_per_s == pytest.approx(rates["read"])
        assert share.writing_bytes_per_s == pytest.approx(rates["write"])


def test_the_last_host_to_end_is_named() -> None:
    record = record_of(slow="bob")
    found = ends_of(record)
    assert found is not None
    assert (found.late_host, found.phase) == ("bob", "read")
    assert found.behind_s == pytest.approx(8.0)
    assert found.seconds == pytest.approx(40.0)
    assert found.rates["bob"] == pytest.approx(0.8 * found.rates["ada"])
    assert text_of(record) == (
        "bob ended last, 8.00 s after ada (20 % of read). "
        "The rate of the fastest host was 25 % above that of the slowest."
    )


def test_of_a_run_that_was_interrupted_no_ends_are_compared() -> None:
    record = record_of(slow="bob").model_copy(update={"status": "aborted"})
    assert text_of(record) == ""


def test_the_bytes_of_hosts_with_more_and_with_fewer_ranks_are_named() -> None:
    """The host with twice the work has the higher rate and ends last."""
    first, second = cluster_of("ada", "bob", power="measured")
    twice = replace(first, ranks=2, rate_bytes_per_s=2.4e9, seconds=40.0)
    record, _ = make_cluster([twice, replace(second, first_rank=2)])
    assert text_of(record).startswith(
        "ada ended last, 8.00 s after bob (20 % of read), having moved 96.00 GB to bob's 48.00 GB. "
    )


def test_the_lateness_of_a_host_adds_up_over_the_parts_of_a_phase() -> None:
    """The last part alone would name another host."""
    record = record_of(ranks=1)
    spans = []
    for span in record.spans:
        for part, late_s in enumerate(
            {"ada": (0, 0, 0), "bob": (2, 2, 0), "cyd": (0, 0, 1)}[span.host]
        ):
            if span.timed:
                start_ns = span.start_ns + part * 10**10
                times = {"start_ns": start_ns, "end_ns": start_ns + (5 + late_s) * 10**9}
                spans.append(span.model_copy(update=times))
    record = record.model_copy(update={"spans": tuple(spans)})
    found = ends_of(record)
    assert found is not None
    assert (found.late_host, found.first, found.parts) == ("bob", "ada", 3)
    assert found.behind_s == pytest.approx(4.0)
    assert found.seconds == pytest.approx(19.0)
    assert text_of(record).startswith(
        "bob ended last, 4.00 s after ada (21 % of read, summed over its 3 parts)"
    )


def with_busy_times(record: RunRecord, factors: dict[str, float]) -> RunRecord:
    counters = tuple(
        each.model_copy(update={"busy_s": (each.busy_s or 0.0) * factors[each.host]})
        for each in record.counters
    )
    return record.model_copy(update={"counters": counters})


@pytest.mark.parametrize(
    ("factors", "slow"),
    [
        ((1.0, 1.0, 1.1), "cyd"),
        ((1.0, 0.99, 0.9), None),  # the slowest is as fast as the next
        ((0.5, 0.5, 0.6), None),  # something else set the pace: it had nothing to do for long
    ],
)
def test_of_hosts_that_end_together_the_one_with_slow_drives_is_named(
    factors: tuple[float, ...], slow: str | None
) -> None:
    record = with_busy_times(record_of(), dict(zip(NAMES, factors, strict=True)))
    found = ends_of(record)
    assert found is not None
    assert (found.late_host, found.slow_drives_host) == (None, slow)
    text = text_of(record)
    assert text.startswith("All hosts ended within ")
    assert ("The drives of cyd were the slowest while busy, at " in text) == (slow is not None)
    assert "fastest" not in text


def test_drives_are_not_compared_if_hosts_had_different_work_or_some_were_not_counted() -> None:
    factors = {"ada": 1.0, "bob": 1.0, "cyd": 1.1}
    first, second, third = cluster_of(*NAMES, **REAL)
    uneven = [
        make_cluster([first, second, replace(third, ranks=3)])[0],
        make_cluster([first, replace(second, rate_bytes_per_s=1.2e9), third])[0],
    ]
    record = record_of()
    counters = tuple(each for each in record.counters if each.host != "ada")
    uncounted = record.model_copy(update={"counters": counters})
    for each in (*uneven, uncounted):
        found = ends_of(with_busy_times(each, factors))
        assert found is not None
        assert (found.late_host, found.slow_drives_host) == (None, None)


def test_ends_are_compared_only_as_well_as_the_clocks_are_known() -> None:
    record = record_of(slow="cyd")
    offsets = (ClockOffset(monotonic_ns=0, offset_ns=2 * 10**12, bound_ns=9 * 10**9),)
    last = record.hosts[-1].model_copy(update={"offsets": offsets})
    record = record.model_copy(update={"hosts": (*record.hosts[:-1], last)})
    found = ends_of(record)
    assert found is not None
    assert found.late_host is None
    assert text_of(record).startswith(
        "All hosts ended within 8.00 s (20 % of read), as far as their clocks are known."
    )


def test_a_host_without_the_energy_of_its_drive_leaves_none_of_the_run() -> None:
    *others, last = cluster_of(*NAMES, **REAL)
    record, _ = make_cluster([*others, replace(last, power="none")])
    known = [
        share.energy is not None and share.energy.work_j is not None
        for share in shares_of(record)[:-1]
    ]
    assert known == [True, True, False]
    whole = shares_of(record)[-1].energy
    assert whole is not None
    assert whole.work_j is None
    assert f"{last.serial} of cyd" in whole.reason


@pytest.mark.parametrize("workload", ["unet3d", "checkpoint"])
def test_mean_powers_of_hosts_that_end_apart_add_up(workload: str) -> None:
    """A host's drive has no joules after its end, so they are no watts of the time until then."""
    record = record_of(workload=workload, slow="cyd", power="measured")
    *shares, whole = shares_of(record)
    powers = []
    for share in shares:
        own = [e for e in record.power.energy if e.host == share.name]
        powers.append(sum(e.energy_j or 0 for e in own) / sum(e.seconds for e in own))
        assert share.energy is not None
        assert share.energy.mean_w == pytest.approx(powers[-1])
        moved_bytes = share.read_bytes + share.written_bytes
        assert moved_bytes / (share.reading_s + share.writing_s) / powers[-1] == pytest.approx(
            share.energy.bytes_per_j
        )
    assert whole.energy is not None
    assert whole.energy.mean_w == pytest.approx(sum(powers))
    joules = sum(e.energy_j or 0 for e in record.power.energy)
    moved_bytes = whole.read_bytes + whole.written_bytes
    assert whole.energy.bytes_per_j == pytest.approx(moved_bytes / joules)


def test_bounds_of_power_of_hosts_that_end_apart_add_up() -> None:
    energy = shares_of(record_of(slow="cyd", power="bounds"))[-1].energy
    alone = shares_of(record_of(power="bounds"))[-1].energy
    assert energy is not None
    assert alone is not None
    assert energy.upper_w == pytest.approx(alone.upper_w)


def shared_drive(**changes: Any) -> RunRecord:
    """Return a run of two hosts on one drive, on which the second one needs more time."""
    first, second = cluster_of("ada", "bob", slow="bob", **REAL)
    return make_cluster([first, replace(second, serial=first.serial, **changes)])[0]


def test_the_energy_of_a_drive_of_two_hosts_counts_once() -> None:
    record = shared_drive()
    one, other, both = shares_of(record)
    whole = both.energy
    assert whole is not None
    assert other.energy is not None
    assert one.energy is not None
    assert whole.energy_j == other.energy.energy_j  # that of the longer one
    assert whole.energy_j != one.energy.energy_j
    assert (whole.mean_w, whole.keys) == (other.energy.mean_w, other.energy.keys)
    assert summary_of(record)["drive_energy"]["energy_in_window_j"] == whole.energy_j
    assert shared_text(record) == (
        "ada and bob use the same drive, S4EVNX0R900000: the total has its energy once."
    )
    assert shared_text(record_of()) == ""


def test_the_power_of_a_drive_of_two_hosts_is_drawn_once(tmp_path: Path) -> None:
    first, second = cluster_of("ada", "bob", slow="bob", **REAL)
    record, traces = make_cluster([first, replace(second, serial=first.serial)])
    (run,) = load_runs([write_made_run(tmp_path / "run", record, traces)])
    assert [line.drive[0] for line in make_timeline(run).watts] == ["bob"]


def test_a_drive_of_two_hosts_that_limits_the_rate_is_one_drive(tmp_path: Path) -> None:
    first, second = cluster_of("ada", "bob", **REAL)
    limits: list[str] = []
    for name, serial in (("same", first.serial), ("own", second.serial)):
        record, traces = make_cluster([first, replace(second, serial=serial)])
        runs = load_runs([write_made_run(tmp_path / name, record, traces)])
        (row,) = first_screen(make_subject(runs)).rows
        limits += row.limits.values()
    assert [limit.partition(", busy")[0] for limit in limits] == [
        "limited by the drive",
        "limited by the busiest of 2 drives",
    ]


def test_one_host_can_read_the_power_of_a_drive_of_two() -> None:
    record = shared_drive(power="none")
    one, other, both = shares_of(record)
    whole = both.energy
    assert one.energy is not None
    assert whole is not None
    assert whole.energy_j == one.energy.energy_j
    assert other.energy is not None
    assert other.energy.energy_j is None
    assert power_coverage(record)[-1].verdict == "pass"


def test_a_host_without_a_known_device_leaves_no_energy_of_the_run() -> None:
    *others, last = cluster_of(*NAMES, **REAL)
    record, _ = make_cluster([*others, replace(last, power="none")])
    facts = record.targets[-1].facts.model_copy(update={"devices": (), "controllers": ()})
    target = record.targets[-1].model_copy(update={"facts": facts})
    changes = {"targets": (*record.targets[:-1], target), "controllers": record.controllers[:-1]}
    whole = shares_of(record.model_copy(update=changes))[-1].energy
    assert whole is not None
    assert whole.energy_j is None
    assert "no energy figure for the target of cyd" in whole.reason


def test_hosts_are_in_the_order_of_the_record_in_each_phase() -> None:
    """Clocks are known to 0.1 ms only, and who starts first says nothing."""
    record = record_of(workload="checkpoint")
    late = {"ada": 2_000_000, "bob": 1_000_000, "cyd": 0}
    spans = tuple(
        span.model_copy(update={"start_ns": span.start_ns + late[span.host]})
        for span in record.spans
    )
    windows = record.model_copy(update={"spans": spans}).windows
    assert [each.host for each in windows] == [*NAMES] * (len(windows) // 3)
    assert [each.name for each in windows] == [each.name for each in record.windows]


def test_hosts_in_different_phases_do_not_share_time_twice() -> None:
    """A host may enter a phase before another one has left that before, by the clocks at least."""
    first, second = cluster_of("ada", "bob", workload="checkpoint", **REAL)
    early = replace(second, seconds=second.seconds / 2)
    record, _ = make_cluster([first, early])
    assert not overlap(leading(record))
    assert whole_energy(record) is not None
    total = drive_energy(record)
    assert total["energy_in_window_j"] == pytest.approx(
        sum(energy.energy_j or 0.0 for energy in phase_energies(record))
    )


def test_devices_of_one_name_are_told_apart_by_their_hosts(tmp_path: Path) -> None:
    run = run_of(tmp_path, virtual=True)
    assert run.traces.power is not None
    assert {s.host for s in run.traces.power.of(Channel.READ_BYTES)} == {*NAMES}
    rates = make_timeline(run).rates
    (devices,) = (line for line in rates if line.role == "device")
    assert devices.name == "3 devices"
    moved = sum(float(line.value.sum()) for line in rates if line is not devices)
    assert float(devices.value.sum()) == pytest.approx(moved, rel=0.01)


def test_the_rates_of_hosts_add_up_to_that_of_the_run(tmp_path: Path) -> None:
    run = run_of(tmp_path, slow="cyd")
    rates = host_rates(run)
    assert [line.name for line in rates] == [*NAMES]
    (read,) = (line for line in make_timeline(run).rates if line.role == "read")
    written = sum(
        float(line.value.sum()) for line in make_timeline(run).rates if line.role == "write"
    )
    total = sum(float(line.value.sum()) for line in rates)
    assert total == pytest.approx(float(read.value.sum()) + written)
