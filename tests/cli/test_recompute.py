"""Energies of stored runs recomputed from their samples, and compared with the record's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.records import Scenario, write_run
from wattload.__main__ import main
from wattload.core.record.energy import EnergyRecord, HostPower, PowerSection
from wattload.core.record.file import read_record, write_record
from wattload.run.energy import recomputed_section

ROUNDED = 1e-9
"""A share of a figure by which another processor may round it."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a run whose energies are those of its samples."""
    run = write_run(tmp_path, Scenario(power="measured", virtual=False))
    record = read_record(run)
    host = HostPower(host=record.hosts[0].facts.name, choice="a meter", idle_s=0.0, rest_s=0.0)
    power = record.power.model_copy(update={"hosts": (host,)})
    record = record.model_copy(update={"power": power})
    power = recomputed_section(record, run)
    write_record(record.model_copy(update={"power": power}), run)
    return run


def with_section(folder: Path, change: Callable[[PowerSection], PowerSection]) -> None:
    record = read_record(folder)
    write_record(record.model_copy(update={"power": change(record.power)}), folder)


def with_energies(power: PowerSection, **changes: Callable[[EnergyRecord], object]) -> PowerSection:
    edited = tuple(
        each.model_copy(update={name: change(each) for name, change in changes.items()})
        for each in power.energy
    )
    return power.model_copy(update={"energy": edited})


def check(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    status = main(["check", *map(str, arguments)])
    done = capsys.readouterr()
    return status, done.out + done.err


def recomputed(capsys: pytest.CaptureFixture[str], folder: Path) -> dict[str, Any]:
    """Return what was recomputed; the other checks of the run are not looked at."""
    _, said = check(capsys, "--recompute", "--json", folder)
    found: dict[str, Any] = json.loads(said)[0]["recomputed"]
    return found


def test_energies_of_the_samples_are_the_records_and_nothing_is_written(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    again = recomputed(capsys, folder)
    assert (again["reason"], again["others"]) == ("", [])
    assert [each["is_same"] for each in again["energies"]] == [True, True]
    phase, whole = (each["recomputed"] for each in again["energies"])
    assert phase["energy_j"] > 0
    assert phase["energy_j"] == read_record(folder).power.energy[0].energy_j
    assert whole["energy_j"] > phase["energy_j"]
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    _, said = check(capsys, "--recompute", folder)
    assert "2 energies recomputed from the samples, 0 differ" in said


def test_an_energy_that_was_changed_is_found_whatever_the_seal(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with_section(
        folder,
        lambda power: with_energies(
            power, energy_j=lambda each: each.energy_j and 1.001 * each.energy_j
        ),
    )
    status, said = check(capsys, "--recompute", folder)
    assert status == 3
    assert "2 energies recomputed from the samples, 1 differ" in said
    assert "(-0.100 %); differs in energy_j" in said
    assert "The stored energies are not those of the samples" in said


def test_figures_that_another_processor_rounds_are_the_same(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with_section(
        folder,
        lambda power: with_energies(
            power,
            energy_j=lambda each: each.energy_j and each.energy_j * (1 + ROUNDED),
            uncertainty_parts_j=lambda each: {
                name: part_j + ROUNDED * (each.energy_j or 0.0)
                for name, part_j in each.uncertainty_parts_j.items()
            },
        ),
    )
    again = recomputed(capsys, folder)
    assert (again["reason"], again["others"]) == ("", [])


def parts(power: PowerSection) -> PowerSection:
    return with_energies(
        power,
        uncertainty_parts_j=lambda each: {**each.uncertainty_parts_j, "gain": 0.0},
    )


def peak(power: PowerSection) -> PowerSection:
    return with_energies(
        power,
        statistics=lambda each: (
            each.statistics and each.statistics.model_copy(update={"p99_w": 1.0})
        ),
    )


def remarks(power: PowerSection) -> PowerSection:
    return with_energies(power, remarks=lambda each: () if each.remarks else ("it ran alone",))


def delay(power: PowerSection) -> PowerSection:
    sources = tuple(
        each.model_copy(
            update={"sensor": each.sensor and each.sensor.model_copy(update={"tau_s": 3.0})}
        )
        for each in power.sources
    )
    return power.model_copy(update={"sources": sources})


@pytest.mark.parametrize(
    ("change", "energies", "others"),
    [
        (parts, {"uncertainty_parts_j.gain"}, set()),
        (peak, {"statistics.p99_w"}, set()),
        (remarks, {"remarks"}, set()),
        (delay, set(), {"sources.sensor.tau_s"}),
    ],
)
def test_whatever_follows_from_the_samples_is_compared(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[PowerSection], PowerSection],
    energies: set[str],
    others: set[str],
) -> None:
    with_section(folder, change)
    again = recomputed(capsys, folder)
    assert again["reason"]
    assert {name for each in again["energies"] for name in each["differing"]} == energies
    assert set(again["others"]) == others


def cut(folder: Path) -> None:
    file = folder / "power.parquet"
    file.write_bytes(file.read_bytes()[:-1000])


def without_hosts(folder: Path) -> None:
    with_section(folder, lambda power: power.model_copy(update={"hosts": ()}))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / "power.parquet").unlink(), "No such file"),
        (cut, "is not the power trace that the run wrote"),
        (lambda folder: (folder / "throughput.parquet").unlink(), "No such file"),
        (without_hosts, "has no energies to recompute"),
    ],
    ids=["no trace", "cut", "no throughput", "no sampler"],
)
def test_what_prevents_it_is_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], None], said: str
) -> None:
    damage(folder)
    before = (folder / "record.json").read_bytes()
    status, out = check(capsys, "--recompute", folder)
    assert status == 3
    assert len([line for line in out.splitlines() if said in line]) == 1
    assert (folder / "record.json").read_bytes() == before


def test_a_record_of_another_energy_model_is_bad_input(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = folder / "record.json"
    document = json.loads(file.read_text())
    document["power"]["energy_model"] = 5
    file.write_text(json.dumps(document))
    status, out = check(capsys, "--recompute", folder)
    assert status == 2
    sentence = (
        "left out: has energies of version 5 of the energy model, and this wattload reads version "
        "6; repeat the run"
    )
    assert len([line for line in out.splitlines() if sentence in line]) == 1
