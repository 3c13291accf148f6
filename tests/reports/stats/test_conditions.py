"""Exclusions from a comparison: only valid runs count, and an arm must be one configuration."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest

from tests.records import of_windows
from tests.reports.random_reads import random_run
from tests.reports.sessions import run
from wattload.core.record.energy import SensorRecord
from wattload.core.record.results import Check
from wattload.reports.blocks import Table
from wattload.reports.runs.load import Run
from wattload.reports.sections.machine import conditions_section
from wattload.reports.stats.comparison import Row, compare
from wattload.reports.stats.conditions import (
    compared_group,
    conditions,
    differences,
    different_bytes,
    different_watches,
)
from wattload.reports.stats.subject import Subject, make_subject

FAILED = Check(name="verify", verdict="fail", sentence="It failed.", mandatory=True)


def made(label: str, index: int, seconds: float, **changes: Any) -> Run:
    """Return a run at 1 GB/s that so moves as many gigabytes as it has seconds."""
    values: dict[str, Any] = {
        "label": label,
        "workload": "checkpoint",
        "rate_bytes_per_s": 1e9,
        "seconds": seconds * (1 + 0.0005 * (index % 3)),
        "order": 2 * index + (label == "B"),
        "seed": index + 2,
    }
    return run(f"{label}{index}", **(values | changes))


def arm(label: str, seconds: float, count: int = 5, **changes: Any) -> list[Run]:
    return [made(label, index, seconds, **changes) for index in range(count)]


def rows(runs: list[Run], **keys: Any) -> dict[str, Row]:
    subject = make_subject(runs, **keys)
    (group,) = subject.groups
    return {row.quantity.key: row for row in compare(subject, group)}


def seconds_of(found: dict[str, Row]) -> list[Row]:
    return [row for row in found.values() if row.quantity.unit.value == "s" and row.effect]


def test_failed_runs_do_not_make_the_bytes_of_two_arms_alike() -> None:
    failed = [made("A", 20 + index, 6.0, checks=(FAILED,)) for index in range(6)]
    found = seconds_of(rows([*arm("A", 3.0), *failed, *arm("B", 6.0)]))
    assert found
    assert any(row.reason.startswith("different bytes in write: 3.0") for row in found)


def test_a_minority_of_valid_runs_of_other_bytes_bars_though_the_medians_are_alike() -> None:
    a = [*arm("A", 5.85, 6), *(made("A", 10 + index, 3.0) for index in range(5))]
    b = arm("B", 5.85, 11)
    found = seconds_of(rows([*a, *b]))
    assert {row.call for row in found} == {"derived"}
    reported = [row.reason for row in found if row.reason.startswith("different bytes in write")]
    assert reported
    assert "3.0" in reported[0]
    assert " to " in reported[0]


def test_a_run_without_a_phase_moved_nothing_in_it() -> None:
    def without_read(each: Run) -> Run:
        windows = tuple(window for window in each.record.windows if window.name != "read")
        return replace(each, record=each.record.model_copy(update=of_windows(windows)))

    subject = make_subject([*arm("A", 3.0), *(without_read(each) for each in arm("B", 3.0))])
    (group,) = subject.groups
    assert different_bytes(group)["read"].startswith("different bytes in read: ")
    assert different_bytes(group)["read"].endswith(" and 0\u00a0B")


def test_bytes_within_one_percent_bar_nothing() -> None:
    found = rows([*arm("A", 5.85), *arm("B", 5.85)])
    assert not [row for row in found.values() if "bytes" in row.reason]


def test_what_read_no_storage_is_a_ceiling_of_what_did() -> None:
    def answered(engine: str, label: str) -> list[Run]:
        return [
            random_run(name=f"{label}-{n}", label=label, engine=engine, repeat=2 * n)
            for n in range(5)
        ]

    for engine in ("null", "memory"):
        subject = make_subject([*answered("storage", "A"), *answered(engine, "B")])
        assert (subject.arms, [*subject.groups[0].ceilings]) == (("A",), ["B"])
    alike = rows([*answered("storage", "A"), *answered("storage", "B")])
    assert not [row for row in alike.values() if "storage" in row.reason]


def on_data(made_run: Run, key: str) -> Run:
    """Return a run that worked on other data."""
    workload = made_run.record.workload
    assert workload.data is not None
    other = workload.model_copy(update={"data": workload.data.model_copy(update={"key": key})})
    return replace(made_run, record=made_run.record.model_copy(update={"workload": other}))


def test_other_data_of_a_run_that_does_not_count_bars_nothing() -> None:
    odd = on_data(made("A", 30, 3.0, checks=(FAILED,)), "checkpoint-other")
    found = rows([*arm("A", 3.0), odd, *arm("B", 3.0)])
    assert not [row for row in found.values() if row.reason.startswith("different work")]


def test_failed_runs_are_no_witness_that_two_arms_worked_on_the_same_data() -> None:
    a = [*arm("A", 3.0), on_data(made("A", 30, 3.0, checks=(FAILED,)), "checkpoint-other")]
    b = [on_data(each, "checkpoint-other") for each in arm("B", 3.0)]
    found = rows([*a, *b, made("B", 30, 3.0, checks=(FAILED,))])
    assert {row.reason for row in found.values()} == {"different work: data set differs"}


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"serial": "OTHER"}, "serial"),
        ({"model": "RIVAL"}, "drive"),
        ({"host": "otherbox"}, "host"),
        ({"state": 1}, "power state"),
    ],
)
def test_an_arm_of_several_things_is_not_called_unless_forced(
    changes: dict[str, Any], name: str
) -> None:
    own: dict[str, Any] = {"virtual": False, "power": "measured"}
    faster = {"rate_bytes_per_s": 2e9}
    mixed = [made("A", index, 3.0, **own, **(changes if index % 2 else {})) for index in range(6)]
    b = [made("B", index, 1.5, **own, **faster) for index in range(6)]
    found = rows([*mixed, *b])
    assert {row.call for row in found.values()} == {"barred", "derived"}
    assert {row.reason for row in found.values()} == {
        f"not repeats of one configuration: the runs of A differ in {name}"
    }
    let_through = rows([*mixed, *b], forced=True)
    assert any(row.call == "b" for row in let_through.values())
    assert all(f"the runs of A differ in {name}" in row.forced for row in let_through.values())


def test_a_state_that_half_of_the_runs_do_not_tell_is_no_one_state() -> None:
    own: dict[str, Any] = {"virtual": False}
    mixed = [
        made("A", index, 3.0, **own, power="measured" if index % 2 else "none")
        for index in range(6)
    ]
    found = rows([*mixed, *arm("B", 3.0, 6, power="measured", **own)])
    assert "the runs of A differ in power state" in found["write_bytes_per_s"].reason


def test_what_was_swept_may_vary_within_an_arm() -> None:
    def at(loader: str, label: str, rate: float) -> list[Run]:
        return [
            run(f"{label}-{loader}-{index}", label=label, loader=loader, order=2 * index,
                rate_bytes_per_s=rate * (1 + 0.001 * index), seconds=3e9 / rate, seed=index + 2)
            for index in range(5)
        ]  # fmt: skip

    runs = [each for loader in ("direct", "torch") for label, rate in (("A", 1e9), ("B", 2e9))
            for each in at(loader, label, rate)]  # fmt: skip
    subject = make_subject(runs)
    (group,) = subject.groups
    rates = [row for row in compare(subject, group) if row.quantity.key == "read_bytes_per_s"]
    assert [(row.at, row.call) for row in rates] == [("direct", "b"), ("torch", "b")]


def conditions_of(subject: Subject) -> list[list[str]]:
    tables = [each for each in conditions_section(subject).blocks if isinstance(each, Table)]
    return [
        [cell.text for cell in row]
        for table in tables
        if table.caption.endswith("conditions that differ")
        for row in table.rows
    ]


def test_conditions_are_told_of_the_runs_that_count() -> None:
    odd = made("A", 30, 3.0, host="oddbox", checks=(FAILED,))
    subject = make_subject([*arm("A", 3.0), odd, *arm("B", 3.0)])
    assert not [row for row in conditions_of(subject) if "oddbox" in " ".join(row)]


def test_an_arm_without_a_run_that_counts_differs_in_nothing() -> None:
    subject = make_subject([*arm("A", 3.0), *arm("B", 3.0, checks=(FAILED,), host="elsewhere")])
    (group,) = subject.groups
    assert differences(compared_group(subject, group)) == ()
    assert {len(runs) for runs in compared_group(subject, group).arms.values()} == {5, 0}
    assert conditions_of(subject) == []


def test_only_valid_figures_of_weak_evidence_bar_energy() -> None:
    own: dict[str, Any] = {"virtual": False, "serial": "S"}
    weak = made("A", 30, 3.0, power="declared", checks=(FAILED,), **own)
    a, b = arm("A", 3.0, power="measured", **own), arm("B", 3.0, power="measured", **own)
    reason = rows([*a, weak, *b])["energy in the window, write"].reason
    assert not reason.startswith("ranks nothing")


def test_an_arm_of_two_firmwares_is_not_called() -> None:
    own: dict[str, Any] = {"virtual": False, "power": "measured"}
    a = [made("A", index, 3.0, **own) for index in range(6)]
    updated = [on_firmware(each, "NEWER") if index % 2 else each for index, each in enumerate(a)]
    b = [made("B", index, 1.5, rate_bytes_per_s=2e9, **own) for index in range(6)]
    assert {row.reason for row in rows([*updated, *b]).values()} == {
        "not repeats of one configuration: the runs of A differ in firmware"
    }


def on_firmware(made_run: Run, firmware: str) -> Run:
    """Return a run whose drives had this firmware."""
    controllers = tuple(
        each.model_copy(update={"before": each.before.model_copy(update={"firmware": firmware})})
        for each in made_run.record.controllers
        if each.before is not None
    )
    assert controllers
    return replace(made_run, record=made_run.record.model_copy(update={"controllers": controllers}))


def measured(label: str, *, count: int = 2, **changes: Any) -> list[Run]:
    """Return runs with a meter, whose power section has other values."""
    found = arm(label, 3.0, count, power="measured", virtual=False)
    return [
        replace(
            each,
            record=each.record.model_copy(
                update={"power": each.record.power.model_copy(update=changes)}
            ),
        )
        for each in found
    ]


def watches(*runs: Run) -> str:
    (group,) = make_subject(list(runs)).groups
    return different_watches(group)


def test_energy_for_the_work_is_compared_between_equal_rests_alone() -> None:
    a, b = measured("A", rest_s=30.0), measured("B", rest_s=10.0)
    assert conditions(a[0].record)["rest"] == "30 s"
    assert watches(*a, *measured("B", rest_s=30.0)) == ""
    assert watches(*a, *b) == (
        "the drives rested for 30 s and 10 s after the job, so energy is compared in the window "
        "only"
    )
    assert watches(*a, *arm("B", 3.0, 2)) == "", "a run without power has no energy to compare"


def test_energy_for_the_work_is_compared_between_equal_rests_behind_a_phase_alone() -> None:
    def resting(label: str, rest_s: float) -> list[Run]:
        parts = measured(label, count=1)[0].record.power.energy
        return measured(
            label,
            energy=tuple(
                each.model_copy(update={"tail_j": 1.0, "rest_s": rest_s, "missing": {}})
                for each in parts
            ),
        )

    assert watches(*resting("A", 30.0), *resting("B", 29.1)) == ""
    found = watches(*resting("A", 30.0), *resting("B", 60.0))
    assert found == (
        "the drives rested for 30.0\N{NO-BREAK SPACE}s and 60.0\N{NO-BREAK SPACE}s behind write, "
        "so energy is compared in the window only"
    )


def test_energy_for_the_work_is_compared_between_meters_of_one_kind_alone() -> None:
    def by(label: str, basis: Literal["calibrated", "declared"]) -> list[Run]:
        sources = measured(label, count=1)[0].record.power.sources
        sensor = SensorRecord(
            basis=basis,
            tau_s=0.5,
            tau_uncertainty_s=0.1,
            kappa_s=0.1,
            kappa_uncertainty_s=0.1,
            settle_s=1.0,
            update_s=0.1,
            noise_w=0.1,
        )
        found = tuple(each.model_copy(update={"sensor": sensor}) for each in sources)
        return measured(label, sources=found)

    assert watches(*by("A", "declared"), *by("B", "declared")) == ""
    assert watches(*by("A", "calibrated"), *by("B", "declared")) == (
        "the meter of A is calibrated and the meter of B is as declared, so energy is compared in "
        "the window only"
    )


def limited(each: Run, cpus: float) -> Run:
    (host,) = each.record.hosts
    missing = {name: why for name, why in host.facts.missing.items() if name != "cgroup_cpu_limit"}
    bounds = {"cgroup_cpu_limit": cpus, "cgroup_io_limits": {"259:0 rbps": 1000}}
    missing.pop("cgroup_io_limits", None)
    facts = host.facts.model_copy(update={**bounds, "missing": missing})
    hosts = (host.model_copy(update={"facts": facts}),)
    return replace(each, record=each.record.model_copy(update={"hosts": hosts}))


def test_what_bounds_one_arm_is_a_difference() -> None:
    (group,) = make_subject([*arm("A", 3.0), *(limited(e, 0.5) for e in arm("B", 3.0))]).groups
    found = {each.name: [*each.values.values()] for each in differences(group)}
    assert found["CPU quota"] == ["none seen", "0.5 CPUs"]
    assert found["I/O limits"] == ["none seen", "259:0 rbps 1,000"]
    assert "memory limit" not in found
