"""What each host of a run did, and which of them was the slowest."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.records import Scenario, cluster_of, make_cluster, make_run, write_made_run
from wattload.core.power import Channel
from wattload.core.record.host import ClockOffset
from wattload.core.record.run import RunRecord
from wattload.core.record.summary import drive_energy
from wattload.reports.runs.energy import phase_energies, whole_energy
from wattload.reports.runs.hosts import shares_of, slowest_of, whole_share
from wattload.reports.runs.load import Run, load_runs
from wattload.reports.runs.phases import leading, overlap
from wattload.reports.runs.timeline import host_rates, make_timeline

NAMES = ("ada", "bob", "cyd")
REAL: dict[str, Any] = {"power": "measured", "ranks": 2}


def record_of(**scenario: Any) -> RunRecord:
    return make_cluster(cluster_of(*NAMES, **{**REAL, **scenario}))[0]


def run_of(folder: Path, **scenario: Any) -> Run:
    record, traces = make_cluster(cluster_of(*NAMES, **{**REAL, **scenario}))
    (run,) = load_runs([write_made_run(folder / "run", record, traces)])
    return run


def test_a_run_of_one_host_has_no_shares_and_no_slowest_host() -> None:
    record, _ = make_run(Scenario(ranks=2))
    assert shares_of(record) == ()
    assert slowest_of(record) is None


def test_the_shares_of_hosts_add_up_to_the_run() -> None:
    record = record_of(workload="checkpoint", slow="cyd")
    shares, whole = shares_of(record), whole_share(record)
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


def test_the_last_host_to_end_is_the_slowest() -> None:
    found = slowest_of(record_of(slow="bob"))
    assert found is not None
    assert (found.host, found.is_last, found.phase) == ("bob", True, "read")
    assert found.behind_s == pytest.approx(8.0)
    assert found.seconds == pytest.approx(40.0)
    assert found.rates["bob"] == pytest.approx(0.8 * found.rates["ada"])
    assert found.spread == pytest.approx(0.2 / (2.8 / 3), rel=1e-3)


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
    found = slowest_of(record.model_copy(update={"spans": tuple(spans)}))
    assert found is not None
    assert (found.host, found.first, found.is_last, found.parts) == ("bob", "ada", True, 3)
    assert found.behind_s == pytest.approx(4.0)
    assert found.seconds == pytest.approx(19.0)


def test_of_hosts_that_wait_for_each_other_the_one_whose_drive_is_slow_is_the_slowest() -> None:
    """Its share of the work may be smaller or larger: its drive is busy for longer with it."""
    first, second, third = cluster_of(*NAMES, **REAL)
    small = replace(second, rate_bytes_per_s=1e9)
    record, _ = make_cluster([first, small, third])
    counters = tuple(
        each.model_copy(
            update={"busy_s": (each.busy_s or 0.0) * {"bob": 0.3, "cyd": 1.02}[each.host]}
        )
        if each.host != "ada"
        else each
        for each in record.counters
    )
    found = slowest_of(record.model_copy(update={"counters": counters}))
    assert found is not None
    assert (found.host, found.is_last) == ("cyd", False)
    assert found.behind_s == pytest.approx(0.0, abs=1e-6)
    assert set(found.busy_rates) == {*NAMES}
    uncounted = slowest_of(record.model_copy(update={"counters": counters[:3]}))
    assert uncounted is not None
    assert (uncounted.host, uncounted.busy_rates) == ("bob", {})


def test_ends_are_compared_only_as_well_as_the_clocks_are_known() -> None:
    record = record_of(slow="cyd")
    offsets = (ClockOffset(monotonic_ns=0, offset_ns=2 * 10**12, bound_ns=9 * 10**9),)
    last = record.hosts[-1].model_copy(update={"offsets": offsets})
    found = slowest_of(record.model_copy(update={"hosts": (*record.hosts[:-1], last)}))
    assert found is not None
    assert not found.is_last


def test_a_host_without_the_energy_of_its_drive_leaves_none_of_the_run() -> None:
    *others, last = cluster_of(*NAMES, **REAL)
    record, _ = make_cluster([*others, replace(last, power="none")])
    known = [
        share.energy is not None and share.energy.work_j is not None for share in shares_of(record)
    ]
    assert known == [True, True, False]
    whole = whole_share(record).energy
    assert whole is not None
    assert whole.work_j is None
    assert f"{last.serial} of cyd" in whole.reason


def test_hosts_in_different_phases_do_not_share_time_twice() -> None:
    """A host may enter a phase before another one has left that before, by the clocks at least."""
    first, second = cluster_of("ada", "bob", workload="checkpoint", **REAL)
    early = replace(second, seconds=second.seconds / 2)
    record, _ = make_cluster([first, early])
    assert not overlap(leading(record))
    assert whole_energy(record) is not None
    total = drive_energy(record.power, record.windows, ())
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
