"""Energies recomputed from the samples of real runs, which an older energy model had made."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wattload.__main__ import main
from wattload.cli.check import recompute
from wattload.core.files import Folder
from wattload.core.record.energy import ENERGY_MODEL, EnergyRecord, PowerSection
from wattload.core.record.file import read_stored, write_record
from wattload.core.record.summary import drive_energy
from wattload.run.energy import recomputed_section

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "lab" / "unet3d-ps0"
pytestmark = pytest.mark.slow
KEPT = "record-energy-model-1.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a run with energies as of version 1 of the energy model: a little different ones."""
    copy = shutil.copytree(EXAMPLE, tmp_path / EXAMPLE.name)
    record = read_stored(copy).record
    power = record.power.model_copy(update={"energy_model": 1})
    power = with_energies(power, energy_j=lambda each: each.energy_j and each.energy_j * 1.002)
    write_record(record.model_copy(update={"power": power}), copy)
    return copy


@pytest.fixture(scope="module")
def section(tmp_path_factory: pytest.TempPathFactory) -> PowerSection:
    copy = shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("runs") / EXAMPLE.name)
    return recomputed_section(read_stored(copy).record, copy)


@pytest.fixture
def remembered(section: PowerSection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recompute once for all tests, which takes seconds: the samples are the same in all."""
    monkeypatch.setattr("wattload.run.record.recomputed_section", lambda *_: section)


def check(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    status = main(["check", *map(str, arguments)])
    done = capsys.readouterr()
    return status, done.out + done.err


def recomputed(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    """Return what was recomputed; the other checks of the run are not looked at."""
    _, said = check(capsys, "--recompute", "--json", *arguments)
    found: dict[str, Any] = json.loads(said)[0]["recomputed"]
    return found


def energies(folder: Path) -> dict[tuple[str, str], float | None]:
    record = read_stored(folder).record
    return {(each.phase, each.source): each.energy_j for each in record.power.energy}


def test_energies_of_an_older_model_are_made_again_and_nothing_is_written(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    again = recomputed(capsys, folder)
    assert (again["energy_models"], again["reason"]) == ([1, ENERGY_MODEL], "")
    found = {
        (each["phase"], each["source"]): (
            each["stored"]["energy_j"],
            each["recomputed"]["energy_j"],
        )
        for each in again["energies"]
    }
    stored_j, again_j = found["read", "nvme_ipm"]
    assert stored_j == energies(folder)["read", "nvme_ipm"]
    assert again_j == pytest.approx(stored_j, rel=0.01)
    assert again_j != stored_j
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.usefixtures("remembered")
def test_write_keeps_the_runs_own_record_beside_the_new_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = (folder / "record.json").read_bytes()
    assert recomputed(capsys, "--write", folder)["kept_as"] == KEPT
    assert (folder / KEPT).read_bytes() == own
    stored = read_stored(folder)
    power = stored.record.power
    assert (stored.seal, power.energy_model) == ("holds", ENERGY_MODEL)
    assert power.recomputed is not None
    assert power.recomputed.energy_model == 1
    assert power.recomputed.sha256 == hashlib.sha256(own).hexdigest()
    assert "has those of version 1." in stored.record.limits[0]
    total = drive_energy(power, stored.record.windows)
    assert total == pytest.approx(energies(folder)["read", "nvme_ipm"])

    # What was recomputed follows from the samples; a changed energy does not, whatever its seal.
    again = recomputed(capsys, "--write", folder)
    assert (again["energy_models"], again["reason"], again["kept_as"]) == (
        [ENERGY_MODEL, ENERGY_MODEL],
        "",
        "",
    )
    assert all(each["is_same"] for each in again["energies"])
    edited = [
        each
        if each.energy_j is None
        else each.model_copy(update={"energy_j": each.energy_j * 0.999})
        for each in power.energy
    ]
    power = power.model_copy(update={"energy": tuple(edited)})
    write_record(stored.record.model_copy(update={"power": power}), folder)
    edited_bytes = (folder / "record.json").read_bytes()
    status, said = check(capsys, "--recompute", "--write", folder)
    assert status == 3
    assert "The stored energies are not those of the samples" in said
    assert (folder / "record.json").read_bytes() == edited_bytes


def idle(power: PowerSection) -> PowerSection:
    return with_energies(power, idle_w=lambda each: each.idle_w and each.idle_w * 1.3)


def parts(power: PowerSection) -> PowerSection:
    def in_gain(each: EnergyRecord) -> dict[str, float]:
        total_j = math.hypot(*each.uncertainty_parts_j.values())
        return {name: total_j * (name == "gain") for name in each.uncertainty_parts_j}

    return with_energies(power, uncertainty_parts_j=in_gain)


def slew(power: PowerSection) -> PowerSection:
    return with_energies(
        power,
        statistics=lambda each: (
            each.statistics and each.statistics.model_copy(update={"slew_w_per_s": 1.0})
        ),
    )


def lag(power: PowerSection) -> PowerSection:
    sources = tuple(
        each.model_copy(
            update={"found": each.found and each.found.model_copy(update={"lag_s": 3.0})}
        )
        for each in power.sources
    )
    return power.model_copy(update={"sources": sources})


def baseline(power: PowerSection) -> PowerSection:
    rest = tuple(
        each.model_copy(update={"mean_w": each.mean_w and each.mean_w / 2}) for each in power.idle
    )
    return power.model_copy(update={"idle": rest})


def with_energies(power: PowerSection, **changes: Callable[[EnergyRecord], object]) -> PowerSection:
    edited = tuple(
        each.model_copy(update={name: change(each) for name, change in changes.items()})
        for each in power.energy
    )
    return power.model_copy(update={"energy": edited})


@pytest.mark.usefixtures("remembered")
def test_whatever_follows_from_the_samples_is_compared(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recomputed(capsys, "--write", folder)
    record = read_stored(folder).record
    power = record.power
    for change in (idle, parts, slew, lag, baseline):
        power = change(power)
    write_record(record.model_copy(update={"power": power}), folder)
    again = recomputed(capsys, folder)
    assert again["reason"]
    (read,) = (
        each
        for each in again["energies"]
        if (each["phase"], each["source"]) == ("read", "nvme_ipm")
    )
    assert not read["is_same"]
    assert set(read["differing"]) >= {
        "idle_w",
        "uncertainty_parts_j.quantisation",
        "statistics.slew_w_per_s",
    }
    assert set(again["others"]) == {"sources.found.lag_s", "idle.mean_w"}


def own_records(folder: Path, own: bytes) -> list[str]:
    """Return the files that have a content."""
    return [path.name for path in sorted(folder.iterdir()) if path.read_bytes() == own]


@pytest.mark.usefixtures("remembered")
@pytest.mark.parametrize("is_replaced", [False, True])
def test_runs_own_record_survives_an_interrupt_at_any_point(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    is_replaced: bool,
) -> None:
    own = (folder / "record.json").read_bytes()
    sync = Folder.sync

    def interrupted(opened: Folder) -> None:
        if ((opened.path / "record.json").read_bytes() != own) == is_replaced:
            raise KeyboardInterrupt
        sync(opened)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "sync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            recompute([folder / "record.json"], write=True)
    assert own_records(folder, own) == [KEPT if is_replaced else "record.json"]
    check(capsys, "--recompute", "--write", folder)
    assert own_records(folder, own) == [KEPT]


@pytest.mark.usefixtures("remembered")
def test_copy_that_a_killed_process_has_left_is_no_obstacle(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = (folder / "record.json").read_bytes()
    (folder / KEPT).write_bytes(own)
    assert recomputed(capsys, "--write", folder)["kept_as"] == KEPT
    assert own_records(folder, own) == [KEPT]


def newer(folder: Path) -> None:
    record = read_stored(folder).record
    power = record.power.model_copy(update={"energy_model": 9})
    write_record(record.model_copy(update={"power": power}), folder)


def cut(folder: Path) -> None:
    file = folder / "power.parquet"
    file.write_bytes(file.read_bytes()[:-1000])


def edit(folder: Path) -> None:
    file = folder / "record.json"
    file.write_text(file.read_text().replace('"label": "PS0"', '"label": "PS9"', 1))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / "power.parquet").unlink(), "No such file"),
        (cut, "is not the power trace that the run wrote"),
        (lambda folder: (folder / "throughput.parquet").unlink(), "No such file"),
        (newer, "version 9 of the energy model"),
    ],
    ids=["no trace", "cut", "no throughput", "newer model"],
)
def test_what_prevents_it_is_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], damage: Any, said: str
) -> None:
    refused(folder, capsys, damage, said)


@pytest.mark.usefixtures("remembered")
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / KEPT).write_text("-"), f"{KEPT} exists already, and is not"),
        (edit, "its seal is broken"),
    ],
    ids=["name taken", "edited"],
)
def test_what_prevents_writing_is_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], damage: Any, said: str
) -> None:
    refused(folder, capsys, damage, said)


def refused(
    folder: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], object], said: str
) -> None:
    damage(folder)
    before = (folder / "record.json").read_bytes()
    status, out = check(capsys, "--recompute", "--write", folder)
    assert status == 3
    assert len([line for line in out.splitlines() if said in line]) == 1
    assert (folder / "record.json").read_bytes() == before


def test_write_needs_recompute(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, said = check(capsys, "--write", folder)
    assert status == 2
    assert "--write needs --recompute" in said
