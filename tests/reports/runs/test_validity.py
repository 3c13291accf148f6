"""Each test alters one figure of a consistent record; the check of that figure must fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.records import Scenario, write_run
from tests.reports.conftest import one
from wattload.core.base_models import NOT_RECORDED
from wattload.core.checks.evaluation import evaluate
from wattload.core.histogram import Histogram
from wattload.core.record.energy import EnergyRecord, SensorRecord
from wattload.core.record.file import read_record, write_record
from wattload.core.record.phase import PhaseWindow, Total
from wattload.core.record.results import Check, VerifiedBytes, latencies_of
from wattload.core.record.run import RunRecord
from wattload.reports.runs.load import Run, load_runs
from wattload.reports.runs.traces import Signal
from wattload.reports.runs.validity import closure_checks, trapezoid_j
from wattload.reports.stats.subject import make_subject

MEASURED = Scenario(
    run_id="run-a", workload="checkpoint", seconds=4.0, power="measured", virtual=False, ranks=2
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return one(tmp_path_factory.mktemp("closure"), MEASURED)


def failed(run: Run) -> set[str]:
    checks = (*evaluate(run.record), *closure_checks(run))
    return {check.name for check in checks if check.verdict == "fail"}


def altered(run: Run, **changes: object) -> Run:
    return replace(run, record=run.record.model_copy(update=changes))


def with_window(run: Run, name: str, **changes: object) -> Run:
    windows = tuple(
        window.model_copy(update=changes) if window.name == name else window
        for window in run.record.windows
    )
    return altered(run, windows=windows)


def with_energy(run: Run, phase: str, **changes: object) -> Run:
    energy = tuple(
        part.model_copy(update=changes) if part.phase == phase else part
        for part in run.record.power.energy
    )
    return altered(run, power=run.record.power.model_copy(update={"energy": energy}))


def window(run: Run, name: str) -> PhaseWindow:
    return next(one for one in run.record.windows if one.name == name)


def energy(run: Run, phase: str) -> EnergyRecord:
    return next(part for part in run.record.power.energy if part.phase == phase)


def test_an_untouched_run_closes(run: Run) -> None:
    assert failed(run) == set()
    names = {check.name for check in closure_checks(run)}
    assert {"traced_bytes_write_box", "spans_write_box", "counters_write_box"} <= names
    assert {"trace_digest_power", "traced_energy_write_S4EVNX0R900001_meter"} <= names


def test_other_bytes_in_a_phase_are_found_by_every_counter(run: Run) -> None:
    written = window(run, "write").written_bytes
    tampered = with_window(run, "write", written_bytes=written * 2)
    assert {
        "bytes_add_up",
        "spans_write_box",
        "counters_write_box",
        "traced_bytes_write_box",
    } <= failed(tampered)


def test_other_seconds_are_found(run: Run) -> None:
    own = window(run, "write")
    assert "seconds_write_box" in failed(with_window(run, "write", seconds=own.seconds * 0.9))
    assert "seconds_write_box" in failed(with_window(run, "write", active_s=own.active_s * 0.9))


def test_a_moved_end_is_found(run: Run) -> None:
    tampered = with_window(run, "write", end_ns=window(run, "write").end_ns + 1_000_000_000)
    assert {"seconds_write_box", "spans_write_box"} <= failed(tampered)


@pytest.mark.parametrize(
    "name", ["start_spread_s", "end_spread_s", "rank_count", "operations", "cpu_s"]
)
def test_a_figure_of_a_phase_that_its_spans_deny_is_found(run: Run, name: str) -> None:
    value = getattr(window(run, "write"), name)
    assert failed(with_window(run, "write", **{name: value + 1})) == {"spans_write_box"}


def test_bytes_exchanged_between_reading_and_writing_are_found(run: Run) -> None:
    own = window(run, "write")
    assert own.written_bytes > 0
    exchanged = {"read_bytes": own.read_bytes + 1, "written_bytes": own.written_bytes - 1}
    found = failed(with_window(run, "write", **exchanged))
    assert {"spans_write_box", "counters_write_box"} <= found


def test_a_span_that_ends_before_it_starts_contradicts_its_phase(run: Run) -> None:
    spans = tuple(
        span.model_copy(update={"end_ns": span.start_ns - 1}) if span.name == "write" else span
        for span in run.record.spans
    )
    assert "spans_write_box" in failed(altered(run, spans=spans))


def with_latency(run: Run, **changes: object) -> Run:
    histogram = Histogram.of(range(10_000, 3_000_000, 2_000))
    (row,) = latencies_of(histogram, phase="write", kind="write", operation_bytes=4096)
    return altered(run, latencies=(row.model_copy(update=changes),))


def test_latencies_of_their_histogram_hold(run: Run) -> None:
    assert failed(with_latency(run)) == set()


def test_a_percentile_that_an_older_version_did_not_record_is_no_contradiction(run: Run) -> None:
    many = Histogram.of([10_000])
    whole = replace(many, counts=many.counts * np.uint64(2_000_000), sum_ns=20_000_000_000)
    (row,) = latencies_of(whole, phase="write", kind="write", operation_bytes=4096)
    older = {"p99999_s": None, "missing": {"p99999_s": NOT_RECORDED}}
    assert failed(altered(run, latencies=(row.model_copy(update=older),))) == set()
    lost = {"p99999_s": None, "missing": {"p99999_s": "too few"}}
    edited = altered(run, latencies=(row.model_copy(update=lost),))
    assert failed(edited) == {"latencies_write_write_4096"}


def test_only_an_old_record_lacks_the_buckets_of_a_latency(run: Run) -> None:
    without = with_latency(run, buckets=())
    assert failed(without) == set()
    (host,) = run.record.hosts
    new = host.model_copy(update={"clocks": (host.before.clock,)})
    assert failed(altered(without, hosts=(new,))) == {"latencies_write_write_4096"}


def test_the_latencies_of_a_rank_are_in_those_of_all(run: Run) -> None:
    histogram = Histogram.of(range(10_000, 3_000_000, 2_000))
    (own,) = latencies_of(histogram, phase="write", kind="write", operation_bytes=4096)
    merged = histogram.merged(histogram)
    (both,) = latencies_of(merged, phase="write", kind="write", operation_bytes=4096)
    both = both.model_copy(update={"ranks": (0, 1)})
    ranks = [own.model_copy(update={"ranks": (rank,), "buckets": ()}) for rank in (0, 1)]
    (host,) = run.record.hosts
    new = {"hosts": (host.model_copy(update={"clocks": (host.before.clock,)}),)}
    assert failed(altered(run, latencies=(both, *ranks), **new)) == set()
    elsewhere = [row.model_copy(update={"ranks": (row.ranks[0] + 2,)}) for row in ranks]
    found = failed(altered(run, latencies=(both, *elsewhere), **new))
    assert found == {"latencies_write_write_4096"}


@pytest.mark.parametrize(
    "changes",
    [
        {"p50_s": 0.001},
        {"p99_s": 0.002},
        {"p9999_s": 0.003},
        {"count": 1},
        {"mean_s": 0.0016},
        {"min_s": 0.0},
        {"max_s": 1e308},
        {"buckets": ((2, 3),)},
        {"buckets": ((-1, 3), (10**30, 10**30))},
        {"buckets": ((900, 2), (800, 1))},
    ],
)
def test_a_latency_that_its_histogram_denies_is_found(run: Run, changes: dict[str, object]) -> None:
    assert failed(with_latency(run, **changes)) == {"latencies_write_write_4096"}


def test_another_rate_is_found(run: Run) -> None:
    metrics = tuple(
        metric.model_copy(update={"value": (metric.value or 0) * 1.35})
        if metric.name == "write_bytes_per_s"
        else metric
        for metric in run.record.metrics
    )
    found = failed(altered(run, metrics=metrics))
    assert any("write_bytes_per_s" in name for name in found)


def test_another_energy_is_found_by_power_times_time_and_by_the_trace(run: Run) -> None:
    own = energy(run, "write").energy_j or 0.0
    found = failed(with_energy(run, "write", energy_j=own * 0.65))
    assert "traced_energy_write_S4EVNX0R900001_meter" in found
    assert "net_energy_write_S4EVNX0R900001_meter" in found
    assert any(name.startswith("energy_closure_write") for name in found)
    assert any(name.startswith("power_state_shares_write") for name in found)


def test_a_trace_is_integrated_as_late_as_its_sensor_was_found(run: Run) -> None:
    sensor = SensorRecord(
        shape="instant",
        window_s=0.0,
        window_uncertainty_s=0.0,
        lag_s=0.0,
        lag_uncertainty_s=0.01,
        is_declared=True,
        is_known=True,
        is_explained=True,
        residual_w=0.1,
    )
    name = "traced_energy_write_S4EVNX0R900001_meter"

    def verdicts(**changes: object) -> list[str]:
        power, found = run.record.power, sensor.model_copy(update=changes)
        sources = tuple(each.model_copy(update={"found": found}) for each in power.sources)
        late = altered(run, power=power.model_copy(update={"sources": sources}))
        return [check.verdict for check in closure_checks(late) if check.name == name]

    assert verdicts() == ["pass"]
    assert verdicts(lag_s=2.0) == ["fail"]
    assert verdicts(is_known=False) == []
    assert verdicts(shape="boxcar", window_s=1.0) == []


def test_another_net_energy_is_found(run: Run) -> None:
    own = energy(run, "write").net_j or 0.0
    assert failed(with_energy(run, "write", net_j=own - 1)) == {
        "net_energy_write_S4EVNX0R900001_meter"
    }


def test_a_total_that_is_not_its_parts_is_found(run: Run) -> None:
    parts = run.record.power.energy
    keys = tuple(f"{p.host}/{p.device}/{p.source}/{p.phase}" for p in parts)
    whole_j = sum(part.energy_j or 0.0 for part in parts)

    def total(value: float, names: tuple[str, ...]) -> set[str]:
        stated = Total(name="drive_energy", value=value, unit="J", keys=names)
        return failed(altered(run, totals=(*run.record.totals, stated)))

    assert total(whole_j, keys) == set()
    assert total(whole_j * 1.01, keys) == {"total_drive_energy"}
    assert total(whole_j, (*keys, "box/other/meter/write")) == {"total_drive_energy"}


def test_an_altered_trace_file_is_found(tmp_path: Path) -> None:
    folder = write_run(tmp_path, MEASURED)
    other = write_run(tmp_path / "other", replace(MEASURED, seed=9))
    (folder / "power.parquet").write_bytes((other / "power.parquet").read_bytes())
    (run,) = load_runs([folder])
    assert "trace_digest_power" in failed(run)


def test_a_run_whose_figures_do_not_close_is_not_compared_as_valid(run: Run) -> None:
    tampered = with_window(run, "write", written_bytes=1)
    faults = make_subject([tampered]).faults(tampered)
    assert any(fault.startswith("its figures are inconsistent, spans_write") for fault in faults)
    assert make_subject([run]).faults(run) == ()


@pytest.mark.parametrize("named", [True, False])
def test_a_run_without_its_traces_is_not_failed_and_gets_no_verdict(
    tmp_path: Path, named: bool
) -> None:
    folder = write_run(tmp_path, MEASURED)
    for name in ("power", "throughput"):
        (folder / f"{name}.parquet").unlink()
    if not named:
        write_record(read_record(folder).model_copy(update={"traces": ()}), folder)
    (run,) = load_runs([folder])
    assert failed(run) == set()
    subject = make_subject([run])
    (fault,) = subject.faults(run)
    assert fault.startswith("the mandatory check trace_digest_throughput is missing")
    (fault,) = subject.energy_faults(run)
    assert fault.startswith("the check trace_digest_power was not checked")


@pytest.mark.parametrize(("mandatory", "count"), [(False, 0), (True, 1)])
def test_sensor_that_is_not_the_one_declared_never_fails_the_run(
    run: Run,
    mandatory: bool,
    count: int,
) -> None:
    check = Check(
        name="sensor_model_SERIAL1_meter", verdict="fail", sentence="Late.", mandatory=mandatory
    )
    subject = make_subject([altered(run, checks=(*run.record.checks, check))])
    (bad,) = subject.runs
    assert not subject.faults(bad)
    assert len(subject.energy_faults(bad)) == count


def test_traces_swapped_between_two_runs_fail_in_both(tmp_path: Path) -> None:
    first = write_run(tmp_path, MEASURED)
    second = write_run(tmp_path, replace(MEASURED, run_id="run-b", order=1, seed=9))
    (first / "throughput.parquet").rename(tmp_path / "held")
    (second / "throughput.parquet").rename(first / "throughput.parquet")
    (tmp_path / "held").rename(second / "throughput.parquet")
    for run in load_runs([first, second]):
        assert "trace_digest_throughput" in failed(run)


def test_a_damaged_trace_is_named_as_the_reason(tmp_path: Path) -> None:
    folder = write_run(tmp_path, MEASURED)
    file = folder / "throughput.parquet"
    file.write_bytes(file.read_bytes()[:-20])
    subject = make_subject(load_runs([folder]))
    (fault,) = subject.faults(subject.runs[0])
    assert fault == (
        "its trace throughput.parquet was damaged or changed after the run: its digest differs."
    )


def test_a_phase_that_only_the_trace_still_has_is_found(run: Run) -> None:
    record = run.record
    left = {
        "windows": tuple(each for each in record.windows if each.name != "read"),
        "spans": tuple(each for each in record.spans if each.name != "read"),
        "counters": tuple(each for each in record.counters if each.phase != "read"),
    }
    assert left["windows"] != record.windows
    assert "traced_phases" in failed(altered(run, **left))


def test_a_verified_share_of_other_bytes_than_the_phases_is_found(run: Run) -> None:
    moved_bytes = window(run, "write").written_bytes

    def verified(stated_bytes: int) -> Run:
        share = VerifiedBytes(
            phase="write", kind="written", moved_bytes=stated_bytes, verified_bytes=1
        )
        check = Check(name="stamps", verdict="pass", sentence="Compared.", verified=(share,))
        return altered(run, checks=(*run.record.checks, check))

    assert failed(verified(moved_bytes)) == set()
    assert failed(verified(moved_bytes - 1)) == {"verified_bytes_stamps_write_written"}


def _signal(watts: Callable[[float], float], times_s: list[float]) -> Signal:
    import numpy as np

    from wattload.core.power import Channel

    return Signal(
        source="meter",
        device="d",
        channel=Channel.POWER_W,
        time_ns=np.array([round(t * 1e9) for t in times_s], dtype=np.int64),
        value=np.array([watts(t) for t in times_s], dtype=np.float64),
    )


def test_the_trapezoid_of_a_ramp_between_samples() -> None:
    # 2 W/s from 0: over [0.25, 1.75] s that is 1.75^2 - 0.25^2 = 3 J, with samples at 0, 0.5, 2 s.
    ramp = _signal(lambda t: 2 * t, [0.0, 0.5, 2.0])
    assert trapezoid_j(ramp, 250_000_000, 1_750_000_000) == pytest.approx(3.0, rel=1e-12)


def test_the_trapezoid_bridges_a_hole_and_of_nothing_is_nothing() -> None:
    holed = _signal(lambda t: float("nan") if t == 1.0 else 5.0, [0.0, 1.0, 2.0])
    assert trapezoid_j(holed, 0, 2_000_000_000) == pytest.approx(10.0)
    assert trapezoid_j(_signal(lambda t: float("nan"), [0.0, 1.0]), 0, 1_000_000_000) == 0.0


def test_late_times_cost_no_digits() -> None:
    start_ns = 9_000_000 * 1_000_000_000  # a hundred days after boot
    late = _signal(lambda t: 7.0, [9_000_000.0, 9_000_001.0])
    assert trapezoid_j(late, start_ns, start_ns + 1_000_000) == pytest.approx(0.007, rel=1e-9)


def _drop(record: RunRecord) -> RunRecord:
    return record.model_copy(update={"windows": (), "spans": (), "counters": (), "totals": ()})


def test_a_run_that_never_began_has_nothing_to_close(run: Run) -> None:
    empty = replace(run, record=_drop(run.record))
    assert "bytes_add_up" not in failed(empty)
