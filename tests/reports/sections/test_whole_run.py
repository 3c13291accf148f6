"""The page says what the whole run took by each source, what idle took, and what polling costs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.record_machine import read
from tests.reports.conftest import arm, one, render_page
from tests.reports.parsing import Page
from wattload.core.power import Boxcar, Evidence, Integral, Scope, Sensor, SourceFacts
from wattload.core.record.energy import (
    WHOLE_RUN,
    EnergyRecord,
    HostPower,
    IdleRecord,
    Moment,
    PollingCost,
    PowerSourceRecord,
)
from wattload.core.record.run import RunRecord
from wattload.reports.blocks import Table
from wattload.reports.runs.load import Run
from wattload.reports.sections.runs import hosts_table, idle_table, whole_run_table, whole_tables
from wattload.results.quantity import MISSING

HOST, DEVICE = "box", "SERIALA01"
OWN, INTERVAL = "nvme_25h", "nvme_ipm"
COARSE = "the counter's step of 3600 J is too coarse"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return one(tmp_path, arm("A", 0))


def altered(record: RunRecord, **changes: object) -> RunRecord:
    return record.model_copy(update={"power": record.power.model_copy(update=changes)})


def source(name: str, sensor: Sensor) -> PowerSourceRecord:
    facts = SourceFacts(
        name=name,
        device=DEVICE,
        device_name="nvme0",
        scope=Scope.DRIVE,
        evidence=Evidence.SELF_REPORTED,
        sensor=sensor,
        period_s=1.0,
    )
    return PowerSourceRecord(
        host=HOST, facts=facts, name=name, device=DEVICE, used=True, sentence="it is there"
    )


def whole_run(name: str, energy_j: float | None, reason: str = "it has none") -> EnergyRecord:
    figures: dict[str, float] = {}
    if energy_j is not None:
        figures = {"energy_j": energy_j, "mean_w": energy_j / 100.0, "uncertainty_j": 12.5}
    return read(
        EnergyRecord,
        reason,
        host=HOST,
        device=DEVICE,
        source=name,
        scope=Scope.DRIVE,
        evidence=Evidence.SELF_REPORTED,
        phase=WHOLE_RUN,
        start_ns=0,
        end_ns=100_000_000_000,
        seconds=100.0,
        coverage=0.99,
        sample_count=1,
        **figures,
    )


def idle(name: str, *, polled: bool, mean_w: float | None, moment: Moment = "before") -> IdleRecord:
    known: dict[str, object] = {"power_state": 1, "temperature_k": 308.0} if polled else {}
    if mean_w is not None:
        known["mean_w"] = mean_w
    return read(
        IdleRecord,
        COARSE,
        host=HOST,
        device=DEVICE,
        source=name,
        evidence=Evidence.SELF_REPORTED,
        moment=moment,
        polled=polled,
        start_ns=0,
        end_ns=60_000_000_000,
        seconds=60.0,
        sample_count=600 if polled else 1,
        **known,
    )


def cost(name: str, difference_w: float | None, moment: Moment = "before") -> PollingCost:
    known = {} if difference_w is None else {"difference_w": difference_w}
    return read(PollingCost, COARSE, host=HOST, device=DEVICE, source=name, moment=moment, **known)


def watched(**changes: object) -> HostPower:
    values: dict[str, object] = {"host": HOST, "choice": "took it", "idle_s": 60.0, "tail_s": 3.0}
    return HostPower(**(values | changes))


def rows(table: Table | None) -> list[list[str]]:
    assert table is not None
    return [
        [f"{cell.text} | {cell.remark}".rstrip("| ").replace("\u00a0", " ") for cell in cells]
        for cells in table.rows
    ]


def test_a_run_without_any_of_it_has_no_such_section(run: Run) -> None:
    assert whole_tables(run.record) == []


def test_every_source_stands_beside_what_the_drive_integrated_itself(run: Run) -> None:
    record = altered(
        run.record,
        sources=(source(OWN, Integral()), source(INTERVAL, Boxcar(window_s=1.0))),
        whole_run=(whole_run(OWN, 1250.0), whole_run(INTERVAL, 1256.25)),
    )
    own, interval = rows(whole_run_table(record))
    assert own[1:5] == ["100.0 s", "0.3472 Wh", "12.50 J", "own count"]
    assert interval[0] == f"{DEVICE} | {INTERVAL}, drive"
    assert interval[4] == "+0.500 % | +6.25 J"
    assert interval[6] == "99.0 % | 1 sample"
    assert interval[7] == "measured and reported by the device"


def test_a_source_without_a_figure_says_why_and_is_compared_with_nothing(run: Run) -> None:
    record = altered(
        run.record,
        sources=(source(OWN, Integral()),),
        whole_run=(whole_run(OWN, None, "the drive's clock jumped"), whole_run(INTERVAL, 1250.0)),
    )
    own, interval = rows(whole_run_table(record))
    assert own[2:4] == [f"{MISSING} | the drive's clock jumped", MISSING]
    assert own[4] == "own count"
    assert interval[4] == MISSING


def test_a_smaller_figure_is_told_with_its_sign(run: Run) -> None:
    record = altered(
        run.record,
        sources=(source(OWN, Integral()),),
        whole_run=(whole_run(OWN, 1250.0), whole_run(INTERVAL, 1243.75)),
    )
    assert rows(whole_run_table(record))[1][4] == "-0.500 % | -6.25 J"


def test_an_uncertainty_that_is_not_known_says_why(run: Run) -> None:
    energy = whole_run(INTERVAL, 1250.0)
    gap = {**energy.missing, "uncertainty_j": "no accuracy is stated"}
    vague = energy.model_copy(update={"uncertainty_j": None, "missing": gap})
    (cells,) = rows(whole_run_table(altered(run.record, whole_run=(vague,))))
    assert cells[3] == f"{MISSING} | no accuracy is stated"


def test_idle_polled_and_quiet_stand_side_by_side_with_their_difference(run: Run) -> None:
    record = altered(
        run.record,
        idle=(
            idle(INTERVAL, polled=False, mean_w=4.5),
            idle(INTERVAL, polled=True, mean_w=5.0),
            idle(INTERVAL, polled=True, mean_w=5.0, moment="after"),
        ),
        polling=(cost(INTERVAL, 0.5),),
    )
    before, after = rows(idle_table(record))
    assert before == [
        f"{DEVICE} | {INTERVAL}",
        "before the run",
        "5.000 W | 60.0 s, 600 samples",
        "4.500 W | 60.0 s, 1 sample",
        "0.5000 W",
        "PS1 | 35 °C",
        "measured and reported by the device",
    ]
    assert after[1:5] == [
        "after the run",
        "5.000 W | 60.0 s, 600 samples",
        f"{MISSING} | not measured",
        MISSING,
    ]


def test_what_is_left_of_two_equal_floats_is_no_difference(run: Run) -> None:
    record = altered(
        run.record,
        idle=(idle(INTERVAL, polled=False, mean_w=5.0), idle(INTERVAL, polled=True, mean_w=5.0)),
        polling=(cost(INTERVAL, -8.9e-16),),
    )
    assert rows(idle_table(record))[0][4] == "0 W"


def test_idle_without_a_figure_says_why_once(run: Run) -> None:
    record = altered(
        run.record,
        idle=(idle(INTERVAL, polled=False, mean_w=5.0), idle(INTERVAL, polled=True, mean_w=None)),
        polling=(cost(INTERVAL, None),),
    )
    (cells,) = rows(idle_table(record))
    assert cells[2:5] == [f"{MISSING} | {COARSE}", "5.000 W | 60.0 s, 1 sample", MISSING]


def test_a_source_that_tells_no_idle_power_is_named_under_the_table(run: Run) -> None:
    record = altered(
        run.record,
        idle=(
            idle(INTERVAL, polled=False, mean_w=5.0),
            idle("nvme_olec", polled=True, mean_w=None),
            idle("nvme_olec", polled=True, mean_w=None, moment="after"),
        ),
    )
    table = idle_table(record)
    assert len(rows(table)) == 1
    assert table is not None
    assert table.note.count(f"No figure from nvme_olec: {COARSE}.") == 1


def test_hosts_say_how_long_they_watched_and_what_was_lost(run: Run) -> None:
    record = altered(
        run.record,
        hosts=(
            watched(),
            watched(
                host="other",
                idle_after_s=60.0,
                quiet_s=30.0,
                tail_s=None,
                lost="it was killed",
                data_lost=("QTL1999: overrun",),
            ),
        ),
    )
    first, second = rows(hosts_table(record))
    assert first == [
        f"{HOST} | took it",
        f"{MISSING} | not measured",
        "60.0 s",
        "3.00 s",
        f"{MISSING} | not measured",
        "completed",
        "none reported",
    ]
    assert second[3:] == [
        f"{MISSING} | not sampled, or it did not end",
        "60.0 s",
        "lost | it was killed",
        "by 1 meter | QTL1999: overrun",
    ]


def test_a_host_of_which_nothing_was_watched_needs_no_table(run: Run) -> None:
    record = altered(run.record, hosts=(watched(idle_s=0.0, tail_s=None),))
    assert hosts_table(record) is None


def test_the_page_shows_them_between_energy_and_checks(run: Run) -> None:
    record = altered(run.record, whole_run=(whole_run(INTERVAL, 1250.0),), hosts=(watched(),))
    text = Page(render_page([Run(record=record, traces=run.traces)])).text()
    place = text.rindex("Energy of the whole run by source")
    assert text.rindex("Energy by phase, device and source") < place < text.rindex("Checks of")
