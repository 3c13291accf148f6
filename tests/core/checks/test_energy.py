"""Whether an energy is of this run and of all of it, and agrees with its readings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.core.checks.changed_records import (
    changed,
    check,
    checks,
    record_of,
    with_energy,
    with_power,
    with_source,
)
from tests.records import cluster_of, make_cluster
from wattload.core.power import Evidence, PowerBin, Scope
from wattload.core.record.energy import (
    EnergyRecord,
    HostPower,
    IdleRecord,
    LostReadings,
    PowerStatistics,
)
from wattload.core.record.run import RunRecord
from wattload.reports.runs.energy import phase_energies


@pytest.mark.parametrize(("coverage", "verdict"), [(1.0, "pass"), (0.97, "warn"), (0.9, "fail")])
def test_coverage_is_judged_at_99_and_95_percent(coverage: float, verdict: str) -> None:
    record = record_of(power="measured", virtual=False)
    energy = tuple(e.model_copy(update={"coverage": coverage}) for e in record.power.energy)
    power = record.power.model_copy(update={"energy": energy})
    assert check(changed(record, power=power), "power_coverage").verdict == verdict


def test_readings_that_were_refused_do_not_pass_for_their_coverage() -> None:
    record = record_of(power="measured", virtual=False)
    reason = "the times of meter run back by 0.6 s"
    refused = {"energy_j": None, "chosen": False, "missing": {"energy_j": reason}, "coverage": 1.0}
    energy = tuple(each.model_copy(update=refused) for each in record.power.energy)
    power = record.power.model_copy(update={"energy": energy})
    found = check(changed(record, power=power), "power_coverage")
    assert found.verdict == "warn"
    assert found.sentence.endswith(f"It gives no energy: {reason}.")


def test_a_host_whose_drive_has_no_source_leaves_the_energy_unchecked() -> None:
    """Of three hosts, one has a virtual disk and no meter: a sum would be of two drives."""
    *others, last = cluster_of("ada", "bob", "cyd", power="measured")
    record, _ = make_cluster([*others, replace(last, virtual=True, power="none")])
    (found,) = [each for each in checks(record, "power_coverage") if each.verdict != "pass"]
    assert (found.verdict, found.mandatory) == ("not_checked", True)
    assert found.sentence.startswith("On cyd: ")
    (energy,) = phase_energies(record)
    assert energy.energy_j is None
    assert "vda of cyd" in energy.reason


def test_power_without_a_source_is_not_checked_and_bars_a_verdict() -> None:
    found = check(record_of(power="none"), "power_coverage")
    assert found.verdict == "not_checked"
    assert found.mandatory


def test_a_recording_of_another_run_bars_the_energy() -> None:
    found = check(with_source(record_of(), is_recorded=True), "power_of_this_run")
    assert (found.verdict, found.mandatory) == ("not_checked", True)
    assert "so its energy is not compared" in found.sentence


def test_a_recording_of_this_run_and_a_live_meter_need_no_check() -> None:
    assert checks(record_of(), "power_of_this_run") == []
    attached = with_source(record_of(), is_recorded=True, is_attached=True)
    assert checks(attached, "power_of_this_run") == []
    other = with_source(record_of(), is_recorded=True, scope=Scope.NODE)
    assert checks(other, "power_of_this_run") == []


def _meter_and_bounds(record: RunRecord, coverage: float) -> tuple[EnergyRecord, EnergyRecord]:
    (energy,) = record.power.energy
    lost = energy.model_copy(update={"coverage": coverage, "chosen": False})
    bound = energy.model_copy(
        update={"source": "nvme", "evidence": Evidence.BOUNDS, "coverage": 1.0}
    )
    return lost, bound


def test_the_check_of_a_meter_that_failed_is_mandatory_with_bounds() -> None:
    record = record_of()
    found = checks(with_power(record, energy=_meter_and_bounds(record, 0.6)), "power_coverage")
    assert [(each.verdict, each.mandatory) for each in found] == [("pass", True), ("fail", True)]
    assert found[1].name.endswith("_meter")


def test_a_counter_that_covers_all_does_not_hide_the_meter_that_failed() -> None:
    record = record_of()
    lost, bound = _meter_and_bounds(record, 0.6)
    counter = lost.model_copy(update={"source": "nvme_olec", "coverage": 1.0})
    both = with_power(record, energy=(lost, counter, bound))
    assert sorted(each.verdict for each in checks(both, "power_coverage")) == [
        "fail",
        "pass",
        "pass",
    ]
    alone = with_power(record, energy=(lost, counter))
    assert check(alone, "power_coverage").verdict == "fail"


def test_remarks_on_a_chosen_energy_are_a_warning_that_says_each_once() -> None:
    record = record_of(workload="checkpoint")
    first, *others = record.power.energy
    remarks = ("idle power was 5 W before the job and 6 W after", "no reading covers 2 s of it")
    power = with_power(
        record,
        energy=(
            first.model_copy(update={"remarks": remarks}),
            *(each.model_copy(update={"remarks": remarks[:1]}) for each in others),
        ),
    )
    found = check(power, "energy_remarks")
    assert found.verdict == "warn"
    assert found.sentence.count(remarks[0]) == 1
    everywhere = ", ".join(each.phase for each in record.power.energy)
    assert f"{remarks[0]} ({everywhere}); {remarks[1]} ({first.phase})." in found.sentence
    assert check(record, "energy_remarks").verdict == "pass"
    assert checks(with_energy(power, chosen=False), "energy_remarks") == []


def test_a_drive_that_is_not_back_at_idle_used_at_least_so_much() -> None:
    record = with_energy(record_of(), energy_j=1000.0, tail_j=20.0, is_at_least=True)
    found = check(record, "energy_tail")
    assert found.verdict == "warn"
    assert found.sentence == (
        "The drive had not returned to idle power 30 s after the job: its energy for the work is "
        "at least 1020 J."
    )
    assert check(record_of(), "energy_tail").verdict == "pass"


@pytest.mark.parametrize(("after_w", "verdict"), [(10.8, "not_checked"), (5.4, "pass")])
def test_a_return_to_another_idle_power_than_before_is_not_checked(
    after_w: float, verdict: str
) -> None:
    record = record_of()
    first = record.power.energy[0]
    before = IdleRecord(
        host=first.host,
        device=first.device,
        source=first.source,
        evidence=first.evidence,
        moment="before",
        polled=True,
        start_ns=0,
        end_ns=60,
        seconds=60.0,
        mean_w=5.0,
        coverage=1.0,
        sample_count=600,
        power_state=0,
        temperature_k=300.0,
    )
    after = before.model_copy(update={"moment": "after", "mean_w": after_w})
    found = check(with_power(record, idle=(before, after)), "energy_tail")
    assert found.verdict == verdict
    if verdict == "not_checked":
        assert "was 5 W before the job and 10.8 W after it" in found.sentence


@pytest.mark.parametrize("changes", [{"scope": Scope.NODE}, {"chosen": False}, {"tail_j": None}])
def test_an_energy_without_a_tail_of_its_own_says_nothing_of_idle_power(
    changes: dict[str, Any],
) -> None:
    record = with_energy(record_of(), is_at_least=True, **changes)
    assert checks(record, "energy_tail") == []


def with_statistics(**changes: Any) -> RunRecord:
    """Return a record whose sensor was read ten times a second; 100 of 1000 readings are high."""
    record = record_of(seconds=100.0)
    mean_w = record.power.energy[0].mean_w or 0.0
    values: dict[str, Any] = {
        "resolution_s": 0.1,
        "reading_count": 1000,
        "peak_100ms_w": mean_w + 8.5,
        "peak_1s_w": mean_w + 8.0,
        "p99_w": mean_w + 8.0,
        "bin_w": 5.0,
        "histogram": (
            PowerBin(lower_w=mean_w - 2.0, count=900),
            PowerBin(lower_w=mean_w + 3.0, count=0),
            PowerBin(lower_w=mean_w + 8.0, count=100),
        ),
    }
    values |= {name: mean_w + shift for name, shift in changes.items() if name.endswith("_w")}
    values |= {name: value for name, value in changes.items() if not name.endswith("_w")}
    return with_energy(record, statistics=PowerStatistics(**values))


def test_peaks_that_agree_with_the_mean_pass() -> None:
    assert check(with_statistics(), "power_statistics").verdict == "pass"
    assert checks(record_of(), "power_statistics") == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"peak_1s_w": -3.0}, "the mean power is"),
        ({"peak_100ms_w": 2.0}, "a mean over 1 s reached"),
    ],
)
def test_a_peak_below_a_longer_mean_fails(changes: dict[str, Any], says: str) -> None:
    found = check(with_statistics(**changes), "power_statistics")
    assert found.verdict == "fail"
    assert says in found.sentence


def attached(align: str = "wall", **sync: float | None) -> RunRecord:
    """Return a run of 100 s with a meter's own log, on a host whose clock NTP judges so."""
    record = with_source(record_of(seconds=100.0), is_recorded=True, is_attached=True)
    (host,) = record.hosts
    reason = "the kernel's clock is not synchronised (no NTP)"
    missing = {**host.before.missing} | {name: reason for name in sync if sync[name] is None}
    state = host.before.model_copy(update={**sync, "missing": missing})
    return record.model_copy(
        update={
            "hosts": (host.model_copy(update={"before": state, "after": state}),),
            "config": {**record.config, "power": {"replay": {"align": align}}},
        }
    )


@pytest.mark.parametrize(
    ("offset_s", "verdict"), [(0.002, "pass"), (-0.6, "warn"), (0.6, "warn"), (-8.0, "fail")]
)
def test_the_wall_clock_that_attaches_a_log_is_judged(offset_s: float, verdict: str) -> None:
    record = attached(ntp_offset_s=offset_s, ntp_error_s=0.001, ntp_max_error_s=0.02)
    found = check(record, "wall_clock")
    assert found.verdict == verdict
    assert found.figures["shift_s"] == pytest.approx(abs(offset_s) + 0.001)


@pytest.mark.parametrize(
    ("offset_s", "error_s", "verdict"),
    [(8.0, 0.9, "fail"), (8.0, 1.1, "not_checked"), (0.001, 16.0, "not_checked")],
)
def test_a_clock_fails_only_beyond_three_of_its_estimated_errors(
    offset_s: float, error_s: float, verdict: str
) -> None:
    record = attached(ntp_offset_s=offset_s, ntp_error_s=error_s, ntp_max_error_s=16.0)
    found = check(record, "wall_clock")
    assert (found.verdict, found.mandatory) == (verdict, True)


@pytest.mark.parametrize(("over_w", "verdict"), [(1.9, "pass"), (2.9, "warn"), (3.1, "fail")])
def test_a_mean_above_its_peak_fails_only_beyond_three_sigmas(over_w: float, verdict: str) -> None:
    record = with_statistics()
    (energy,) = record.power.energy
    assert energy.statistics is not None
    peak_w = energy.statistics.peak_1s_w
    assert peak_w is not None
    most_w = peak_w * (1.03 + 0.01)  # one interval of 100 s, and the tolerance of peaks
    doubtful = with_energy(
        record,
        mean_w=most_w + over_w,
        statistics=energy.statistics.model_copy(update={"peak_100ms_w": None}),
        uncertainty_parts_j={"noise": 2.0 * energy.seconds},
    )
    assert check(doubtful, "power_statistics").verdict == verdict


def test_an_unsynchronised_clock_is_not_checked_and_without_need_not_named() -> None:
    unknown = attached(ntp_offset_s=None, ntp_error_s=None, ntp_max_error_s=None)
    found = check(unknown, "wall_clock")
    assert found.verdict == "not_checked"
    assert "not synchronised (no NTP)" in found.sentence
    assert checks(attached("monotonic"), "wall_clock") == []
    assert checks(record_of(), "wall_clock") == []


def host_power(**changes: Any) -> HostPower:
    return HostPower.model_validate(
        {"host": "box", "choice": "nothing was read", "idle_s": 0, **changes}
    )


def with_lost(record: RunRecord, sentence: str) -> RunRecord:
    """Return a record in which the first source lost readings."""
    facts = record.power.sources[0].facts
    assert facts is not None
    lost = LostReadings(
        source=facts.name, device=facts.device, scope=facts.scope, sentence=sentence
    )
    host = host_power(host=record.power.sources[0].host, data_lost=(lost,))
    return with_power(record, hosts=(host,))


def test_a_meter_of_the_drive_that_lost_readings_fails_the_run() -> None:
    record = record_of()
    (found,) = checks(with_lost(record, "the stream overran"), "power_data_lost")
    assert (found.verdict, found.mandatory) == ("fail", True)
    assert found.sentence == "A meter's readings were lost: the stream overran."


def test_meters_that_kept_all_readings_pass_and_none_is_not_checked() -> None:
    record = record_of()
    (source,) = record.power.sources
    kept = with_power(record, hosts=(host_power(host=source.host),))
    assert check(kept, "power_data_lost").verdict == "pass"
    gone = with_power(record, hosts=(host_power(host=source.host, lost="it was killed"),))
    found = check(gone, "power_data_lost")
    assert (found.verdict, "it was killed" in found.sentence) == ("not_checked", True)
    found = check(with_power(record, hosts=(host_power(host="other"),)), "power_data_lost")
    assert (found.verdict, found.sentence) == ("not_checked", "nothing was read")
    found = check(with_power(record, hosts=()), "power_data_lost")
    assert (found.verdict, found.sentence) == ("not_checked", record.power.choice)


def test_a_figure_that_was_refused_for_its_coverage_still_fails() -> None:
    """Under 95 % there is no figure and nothing is chosen, yet the check must not vanish."""
    record = record_of()
    (energy,) = record.power.energy
    gone = dict.fromkeys(("energy_j", "mean_w", "net_j", "uncertainty_j"), "readings cover 90 %")
    refused = energy.model_copy(
        update={
            **dict.fromkeys(gone),
            "coverage": 0.9,
            "chosen": False,
            "missing": {**energy.missing, **gone},
        }
    )
    assert check(with_power(record, energy=(refused,)), "power_coverage").verdict == "fail"


@pytest.mark.parametrize(("scope", "bars"), [(Scope.DRIVE, True), (Scope.NODE, False)])
def test_a_coverage_that_is_not_known_bars_the_figure_of_a_drive_alone(
    scope: Scope, bars: bool
) -> None:
    record = record_of()
    (energy,) = record.power.energy
    missing = {**energy.missing, "coverage": "no window was read"}
    unknown = with_energy(record, scope=scope, coverage=None, missing=missing)
    (found,) = [
        each
        for each in checks(unknown, "power_coverage")
        if each.sentence.endswith("no window was read")
    ]
    assert (found.verdict, found.mandatory) == ("not_checked", bars)


@pytest.mark.parametrize(("requested", "verdict"), [("replay", "fail"), ("auto", "not_checked")])
def test_a_requested_source_that_read_nothing_fails_the_run(requested: str, verdict: str) -> None:
    record = record_of()
    (energy,) = record.power.energy
    gone = dict.fromkeys(("coverage", "energy_j"), "meter has no samples")
    changes = {**dict.fromkeys(gone), "sample_count": 0, "chosen": False}
    record = with_energy(record, **changes, missing={**energy.missing, **gone})
    record = with_power(record, requested=requested)
    found = check(record, f"power_coverage_{energy.phase}")
    assert found.verdict == verdict
    if verdict == "fail":
        sentence = record.power.sources[0].sentence
        assert found.sentence == f"No reading of meter lies in {energy.phase} (0 %). {sentence}"
    assert record.power.unmeasured_text == "meter has no samples."


def test_a_gpu_does_not_stand_for_a_drive() -> None:
    found = checks(with_energy(record_of(), scope=Scope.GPU), "power_coverage")
    assert [each.name for each in found if each.verdict == "not_checked"] == ["power_coverage"]


def test_an_unread_drive_next_to_a_read_one_bars_a_verdict() -> None:
    record = record_of()
    (drive,) = record.controllers
    unread = drive.model_copy(update={"facts": drive.facts.model_copy(update={"serial": "UNREAD"})})
    found = checks(record.model_copy(update={"controllers": (drive, unread)}), "power_coverage")
    of_unread = [each for each in found if each.name.endswith("UNREAD")]
    phases = [window.name for window in record.timed_windows()]
    assert [each.name for each in of_unread] == [f"power_coverage_{name}_UNREAD" for name in phases]
    assert all(each.verdict == "not_checked" and each.mandatory for each in of_unread)
    assert not [each for each in checks(record, "power_coverage") if each.verdict != "pass"]
