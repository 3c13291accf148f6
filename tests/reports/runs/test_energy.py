from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.record_power import PowerKind
from tests.records import Scenario, make_run, write_made_run
from tests.reports.random_reads import GPUS, random_run
from wattload.cli.summary import energy_lines
from wattload.core.checks.evaluation import evaluate
from wattload.core.power import Evidence, Scope
from wattload.core.record.energy import FOLLOWED
from wattload.core.record.run import RunRecord
from wattload.reports.blocks import Table
from wattload.reports.runs.energy import (
    ALL_PHASES,
    Energy,
    energy_text,
    is_simulated,
    phase_energies,
    power_text,
    scope_energy_j,
    tail_text,
    whole_energy,
)
from wattload.reports.runs.load import load_runs
from wattload.reports.sections.energy import energy_blocks
from wattload.reports.stats.subject import make_subject
from wattload.reports.stats.summary import first_screen
from wattload.results.quantity import MISSING
from wattload.run.record import limits_of

CHECKPOINT = Scenario(workload="checkpoint", seconds=10.0, virtual=False)


def record(power: PowerKind, **changes: Any) -> RunRecord:
    return make_run(replace(CHECKPOINT, power=power, **changes))[0]


def plain(text: str) -> str:
    return text.replace("\u00a0", " ")


def energy(**figures: float | None) -> Energy:
    values: dict[str, Any] = {
        "phase": "write",
        "seconds": 100.0,
        "moved_bytes": 50_000_000_000,
        "evidence": Evidence.MEASURED,
    }
    return Energy(**(values | figures))


def test_energy_is_watt_hours_and_rate_per_watt_is_bytes_over_joules() -> None:
    figure = energy(energy_j=1800.0, mean_w=18.0)
    assert plain(energy_text(figure)) == "0.5000 Wh"
    assert plain(power_text(figure)) == "18.00 W"
    assert figure.bytes_per_j == pytest.approx(50e9 / 1800)  # 500 MB/s over 18 W is 27.8 MB/s per W


def test_a_lone_maximum_is_printed_with_the_sign_for_at_most() -> None:
    figure = energy(upper_j=2500.0, upper_w=25.0)
    assert plain(energy_text(figure)) == "≤ 0.6944 Wh"
    assert plain(power_text(figure)) == "≤ 25.00 W"
    assert figure.bytes_per_j is None
    assert not figure.ranks


def test_bounds_are_printed_with_both_ends_in_one_unit() -> None:
    figure = energy(lower_j=10.0, upper_j=2500.0, lower_w=0.1, upper_w=25.0)
    assert plain(energy_text(figure)) == "0.002778 to 0.6944 Wh"
    assert plain(power_text(figure)) == "0.1000 to 25.00 W"


def test_nothing_known_is_a_dash_and_no_zero() -> None:
    assert energy_text(energy()) == power_text(energy()) == MISSING
    assert energy(energy_j=0.0).bytes_per_j is None


@pytest.mark.parametrize(
    ("power", "evidence", "ranks"),
    [
        ("measured", Evidence.MEASURED, True),
        ("self_reported", Evidence.SELF_REPORTED, True),
        ("declared", Evidence.DECLARED, False),
        ("bounds", Evidence.BOUNDS, False),
        ("upper", Evidence.BOUNDS, False),
        ("none", Evidence.NONE, False),
    ],
)
def test_evidence_decides_what_may_rank(power: PowerKind, evidence: Evidence, ranks: bool) -> None:
    for figure in phase_energies(record(power)):
        assert figure.evidence is evidence
        assert figure.ranks is ranks


def test_without_a_source_the_reason_is_the_choice() -> None:
    own = record("none")
    assert {figure.reason for figure in phase_energies(own)} == {own.power.choice}


def test_the_whole_is_the_sum_of_the_leading_phases() -> None:
    own = record("measured")
    parts = phase_energies(own)
    total = whole_energy(own)
    assert total is not None
    assert total.phase == ALL_PHASES
    assert total.energy_j == pytest.approx(sum(part.energy_j or 0.0 for part in parts))
    assert total.seconds == pytest.approx(16.0)
    assert total.moved_bytes == sum(part.moved_bytes for part in parts)


def test_one_phase_is_its_own_whole() -> None:
    assert whole_energy(record("measured", workload="unet3d")) is None


def _without(own: RunRecord, phase: str) -> RunRecord:
    kept = tuple(part for part in own.power.energy if part.phase != phase)
    return own.model_copy(update={"power": own.power.model_copy(update={"energy": kept})})


def test_a_whole_with_a_missing_part_is_unknown_and_not_shortened() -> None:
    total = whole_energy(_without(record("measured"), "read"))
    assert total is not None
    assert total.energy_j is None
    assert total.evidence is Evidence.NONE


def _second_drive(own: RunRecord, **changes: Any) -> RunRecord:
    more = tuple(
        part.model_copy(update={"device": "OTHER", **changes}) for part in own.power.energy
    )
    energy = (*own.power.energy, *more)
    return own.model_copy(update={"power": own.power.model_copy(update={"energy": energy})})


def test_two_drives_are_summed_and_named() -> None:
    own = record("measured")
    single, double = phase_energies(own)[0], phase_energies(_second_drive(own))[0]
    assert double.energy_j == pytest.approx(2 * (single.energy_j or 0.0))
    assert double.keys == ("S4EVNX0R900001 (meter)", "OTHER (meter)")


def _unread_drive(own: RunRecord) -> RunRecord:
    (drive,) = own.controllers
    unread = drive.model_copy(update={"facts": drive.facts.model_copy(update={"serial": "UNREAD"})})
    return own.model_copy(update={"controllers": (drive, unread)})


def test_a_drive_that_nobody_reads_leaves_the_energy_of_all_unknown() -> None:
    """All bytes divided by half of the drives' joules would be twice what they did."""
    own = _unread_drive(record("measured"))
    for figure in (*phase_energies(own), whole_energy(own)):
        assert figure is not None
        assert figure.energy_j is figure.lower_j is figure.upper_j is figure.bytes_per_j is None
        assert not figure.ranks
        assert figure.reason == f"no energy figure for UNREAD: {own.power.choice}"


def test_two_drives_have_the_weaker_evidence() -> None:
    own = _second_drive(record("measured"), evidence=Evidence.DECLARED)
    assert {figure.evidence for figure in phase_energies(own)} == {Evidence.DECLARED}


def test_a_source_that_was_not_chosen_or_is_no_drive_adds_nothing() -> None:
    own = record("measured")
    expected = [figure.energy_j for figure in phase_energies(own)]
    for changes in ({"chosen": False}, {"scope": "gpu"}):
        assert [f.energy_j for f in phase_energies(_second_drive(own, **changes))] == expected


def test_an_emulated_controller_is_known_by_name_or_vendor() -> None:
    own = record("measured")
    (controller,) = own.controllers
    facts = controller.facts.model_copy(update={"vendor_id": "0x1b36"})
    emulated = own.model_copy(
        update={"controllers": (controller.model_copy(update={"facts": facts}),)}
    )
    assert not is_simulated(own)
    assert is_simulated(emulated)
    assert is_simulated(record("measured", model="QEMU NVMe Ctrl"))
    assert is_simulated(record("measured", model="wattload virtual drive"))
    assert not phase_energies(emulated)[0].ranks


@pytest.mark.parametrize(
    ("power", "words"),
    [
        ("measured", "simulated readings"),
        ("self_reported", "simulated readings"),
        ("bounds", "bounds from power states, not measured"),
    ],
)
def test_readings_of_a_simulated_drive_are_called_so(power: PowerKind, words: str) -> None:
    figure = phase_energies(record(power, model="wattload virtual drive"))[0]
    assert figure.words == words


def recorded(own: RunRecord, **facts: bool) -> RunRecord:
    sources = tuple(
        source.model_copy(update={"facts": source.facts.model_copy(update=facts)})
        for source in own.power.sources
        if source.facts is not None
    )
    return own.model_copy(update={"power": own.power.model_copy(update={"sources": sources})})


def test_a_recording_of_another_run_ranks_nothing_and_is_no_measurement() -> None:
    replayed = recorded(record("measured"), is_recorded=True)
    total = whole_energy(replayed)
    assert total is not None
    for figure in (*phase_energies(replayed), total):
        assert not figure.ranks
        assert figure.words == "replayed from another run, not measured here"


def test_a_recording_of_this_run_ranks_and_says_that_it_is_one() -> None:
    attached = recorded(record("measured"), is_recorded=True, is_attached=True)
    for figure in phase_energies(attached):
        assert figure.ranks
        assert figure.words == "measured by a meter or a rail sensor (recorded trace)"


@pytest.mark.parametrize(
    ("attached", "reported"), [(False, "replayed"), (True, "measured, recorded trace")]
)
def test_the_table_of_energies_names_a_recording(
    tmp_path: Path, attached: bool, reported: str
) -> None:
    own = recorded(record("measured"), is_recorded=True, is_attached=attached)
    folder = write_made_run(tmp_path / own.run_id, own, make_run(CHECKPOINT)[1])
    (run,) = load_runs([folder])
    (table,) = [
        block
        for block in energy_blocks(run)
        if isinstance(block, Table) and block.caption.startswith("Energy by phase, device")
    ]
    shown = [cell.text for line in table.rows for cell in line]
    assert reported in shown
    assert "measured" not in shown


@pytest.mark.parametrize("recorded_j", [0.0, -5.0])
def test_no_device_works_for_nothing_or_less(recorded_j: float) -> None:
    made = record("measured")
    energies = tuple(each.model_copy(update={"energy_j": recorded_j}) for each in made.power.energy)
    power = made.power.model_copy(update={"energy": energies})
    for each in phase_energies(made.model_copy(update={"power": power})):
        assert each.energy_j is None
        assert "energy must be positive" in each.reason


def test_drives_that_worked_make_no_figure_of_one_that_cannot_have() -> None:
    own = record("measured")
    for each in phase_energies(_second_drive(own, energy_j=-0.008)):
        assert each.energy_j is None
        assert not each.ranks
        assert each.reason.startswith("the record has -0.008 J for OTHER; energy must")


def with_gpus(made: RunRecord, *joules: float, addresses: bool = True) -> RunRecord:
    """Return the record with the energies of so many GPUs, whose sources may have addresses."""
    power = made.power
    drives = [part for part in power.energy if part.scope is Scope.DRIVE]
    [first, *_] = [part for part in power.energy if part.scope is Scope.GPU]
    known, parts = list(power.sources), []
    for number, energy_j in enumerate(joules):
        device = f"GPU-{number}"
        parts.append(first.model_copy(update={"device": device, "energy_j": energy_j}))
        source = known[0]
        assert source.facts is not None
        facts = source.facts.model_copy(
            update={
                "name": first.source,
                "device": device,
                "scope": Scope.GPU,
                "pci_address": GPUS[number] if addresses else "",
            }
        )
        update = {"name": first.source, "device": device, "facts": facts}
        known.append(source.model_copy(update=update))
    changed = {"energy": (*drives, *parts), "sources": tuple(known)}
    return made.model_copy(update={"power": power.model_copy(update=changed)})


def test_gpus_that_asked_for_nothing_are_not_in_the_energy_of_reads() -> None:
    made = random_run(name="reads").record
    idle = with_gpus(made, 1200.0, 700.0, 800.0)
    assert scope_energy_j(idle, Scope.GPU, "gpu_random_read") == 1200.0
    both = with_gpus(random_run(gpus=2, targets=2).record, 1200.0, 700.0, 800.0)
    both = both.model_copy(
        update={
            "ranks": tuple(both.ranks[0].model_copy(update={"rank": rank}) for rank in range(2))
        }
    )
    assert scope_energy_j(both, Scope.GPU, "gpu_random_read") == 1900.0


def test_all_gpus_count_where_their_addresses_are_not_known() -> None:
    made = random_run(name="reads").record
    unknown = with_gpus(made, 1200.0, 700.0, addresses=False)
    assert scope_energy_j(unknown, Scope.GPU, "gpu_random_read") == 1900.0


def test_readings_of_a_meter_without_accuracy_are_not_called_a_data_sheet() -> None:
    made = record("measured")
    power = made.power
    sources = tuple(
        each.model_copy(
            update={"facts": each.facts.model_copy(update={"evidence": Evidence.DECLARED})}
        )
        for each in power.sources
        if each.facts is not None
    )
    parts = tuple(each.model_copy(update={"evidence": Evidence.DECLARED}) for each in power.energy)
    power = power.model_copy(update={"sources": sources, "energy": parts})
    made = made.model_copy(update={"power": power})
    words = "declared by the user, as scope or accuracy is not stated"
    assert {each.words for each in phase_energies(made)} == {words}
    limits = limits_of(made)
    assert f"Drive energy is {words}; it ranks nothing." in limits
    assert not [text for text in limits if "data sheet" in text]


def test_a_gpu_is_not_counted_again_by_a_meter_without_an_address() -> None:
    made = with_gpus(random_run(name="reads").record, 1200.0)
    [part] = [each for each in made.power.energy if each.scope is Scope.GPU]
    wall = part.model_copy(update={"source": "command", "device": "meter.py", "energy_j": 1300.0})
    power = made.power.model_copy(update={"energy": (*made.power.energy, wall)})
    twice = made.model_copy(update={"power": power})
    assert scope_energy_j(twice, Scope.GPU, "gpu_random_read") == 1200.0


@pytest.mark.parametrize(("coverage", "is_doubted"), [(1.0, False), (0.8, True), (0.97, False)])
def test_the_energy_of_a_gpu_whose_meter_is_in_doubt_is_shown_as_not_checked(
    coverage: float, is_doubted: bool
) -> None:
    run = random_run(name="reads")
    made = with_gpus(run.record, 1200.0)
    parts = tuple(
        each.model_copy(update={"coverage": coverage}) if each.scope is Scope.GPU else each
        for each in made.power.energy
    )
    power = made.power.model_copy(update={"energy": parts})
    made = made.model_copy(update={"power": power})
    checks = (each for each in evaluate(made) if "GPU-0" in each.name)
    made = made.model_copy(update={"checks": (*made.checks, *checks)})
    lines = [plain(line.text) for line in energy_lines(made) if "GPU" in line.text]
    doubt = "; not checked: its meter is in doubt" if is_doubted else ""
    assert lines == [f"GPU: 0.3333 Wh, not part of the drive's{doubt}"]

    changed = replace(run, record=made)
    tables = [block for block in energy_blocks(changed) if isinstance(block, Table)]
    remarks = {cells[1].text: cells[-1].remark for cells in tables[0].rows}
    assert remarks["GPU-0"] == doubt.removeprefix("; ")
    assert all(not remark for device, remark in remarks.items() if device != "GPU-0")

    (shown,) = first_screen(make_subject([changed])).rows
    titles = [bars.title for bars in shown.devices if bars.title.startswith("GPU")]
    assert [title.startswith("GPU (not checked), ") for title in titles] == [is_doubted]


def with_tail(
    own: RunRecord, phase: str, why: str = f"no tail of its own: read {FOLLOWED}", **update: object
) -> RunRecord:
    """Return a run in which only one phase has a tail, as the last one before the rest has."""
    parts = tuple(
        part.model_copy(update=update)
        if part.phase == phase
        else part.model_copy(update={"tail_j": None, "missing": {**part.missing, "tail_j": why}})
        for part in own.power.energy
    )
    return own.model_copy(update={"power": own.power.model_copy(update={"energy": parts})})


def test_a_job_has_the_tail_of_its_last_phase() -> None:
    own = with_tail(record("measured"), "read", tail_j=12.0, tail_uncertainty_j=1.0)
    write, read = phase_energies(own)
    total = whole_energy(own)
    assert total is not None
    assert (write.work_j, write.no_tail) == (None, f"no tail of its own: read {FOLLOWED}")
    assert total.tail_j == read.tail_j == 12.0
    assert total.work_j == pytest.approx((total.energy_j or 0.0) + 12.0)
    assert total.work_uncertainty_j == pytest.approx(
        (write.uncertainty_j or 0.0) + (read.work_uncertainty_j or 0.0)
    )
    why = "readings cover 80% of the rest"
    other = whole_energy(with_tail(own, "read", why, tail_j=12.0))
    assert other is not None
    assert (other.work_j, other.no_tail) == (None, why)


def test_a_tail_is_printed_with_its_time_and_whether_it_went_on() -> None:
    tail = {"energy_j": 100.0, "tail_j": 12.0, "tail_uncertainty_j": 1.0, "rest_s": 30.0}
    assert plain(tail_text(energy(**tail))) == "12.0 ± 1.0 J within 30.0 s"
    more = energy(**{**tail, "is_at_least": True})
    assert plain(tail_text(more)) == "at least 12.0 ± 1.0 J within 30.0 s"
    assert tail_text(energy(energy_j=100.0)) == MISSING
