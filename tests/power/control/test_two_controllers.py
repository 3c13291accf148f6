"""Two controllers of one drive with the same serial: changed, journalled and undone separately."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.model_host.drive import NOT_CHANGEABLE, Model, ModelDrive, load, sent
from tests.model_host.power import Meter, centiwatts
from tests.power.control.recovery_host import LEFT, Host
from tests.power.sampler_bench import RUN_ID, Bench
from wattload.core.errors import PowerError
from wattload.power.config import PowerConfig
from wattload.power.control.change import PowerStateControl
from wattload.power.control.journal import Key

TWO_PORTS = {"nvme0": 1, "nvme1": 2}


@pytest.mark.parametrize("renamed", [False, True])
def test_controllers_of_one_drive_go_back_each_to_its_own_value(
    host: Host, *, renamed: bool
) -> None:
    for name, number in TWO_PORTS.items():
        host.drive(name, Model(state=number - 1, controller_id=number))
        control = PowerStateControl(ModelDrive(host.folder, name), host.journal, run_id=name)
        control.apply(PowerConfig(state=2), holds_system=lambda _: False)
    assert host.journal.changes("run") == [Key("MODEL0001", 0x02, 1), Key("MODEL0001", 0x02, 2)]
    if renamed:
        first, second = (load(host.folder / f"{name}.json") for name in TWO_PORTS)
        host.drive("nvme0", second)
        host.drive("nvme1", first)
    undone = host.undo(*TWO_PORTS)
    assert [(each.restored, each.closed) for each in undone] == [(0, True), (1, True)]
    models = [load(host.folder / f"{name}.json") for name in TWO_PORTS]
    assert {each.controller_id: each.state for each in models} == {1: 0, 2: 1}


def test_entry_of_a_controller_is_not_undone_on_the_other_one(host: Host) -> None:
    host.drive("nvme1", Model(state=1, controller_id=2))
    host.journal.write(replace(LEFT, controller_id=1))
    (leftover,) = host.undo("nvme1")
    assert not leftover.closed
    assert sent(host.folder, "nvme1") == []


def test_controller_that_was_numbered_anew_is_known_by_its_name_until_a_restart(
    host: Host,
) -> None:
    host.drive("nvme0", Model(state=1, controller_id=7))
    entry = replace(LEFT, controller_id=1)
    host.journal.write(replace(entry, boot_id="another boot"))
    assert "the host has restarted since: nothing to undo" in host.undo("nvme0")[0].sentence
    host.journal.write(entry)
    assert host.undo("nvme0")[0].restored == 0


def test_refused_change_gives_an_entry_without_a_controller_back(host: Host) -> None:
    host.drive("nvme0", Model(state=1, refuses=NOT_CHANGEABLE))
    older = replace(LEFT, owner="user")
    host.journal.write(older)
    drive = ModelDrive(host.folder, "nvme0")
    control = PowerStateControl(drive, host.journal, run_id="cli", owner="user")
    with pytest.raises(PowerError, match="refuses power state 2"):
        control.apply(PowerConfig(state=2), holds_system=lambda _: False)
    assert host.journal.changes("user") == [older.key]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    meter = Meter(measures=True, aipwr=centiwatts(9))
    bench.set_up(**{
        name: Model(controller_id=number, state=number - 1, meter=meter)
        for name, number in TWO_PORTS.items()
    })  # fmt: skip
    yield bench
    bench.clean()


def test_run_on_both_controllers_changes_and_restores_each(bench: Bench) -> None:
    client = bench.opened(PowerConfig(state=2, period_s=0.02), *TWO_PORTS)
    assert [bench.state(name) for name in TWO_PORTS] == [2, 2]
    client.start()
    client.finish()
    assert [bench.state(name) for name in TWO_PORTS] == [0, 1]
    assert not list((bench.models / "state").glob("*.json"))


def test_drive_measures_itself_once_for_both_controllers(bench: Bench) -> None:
    client = bench.spawn()
    opened = client.open(RUN_ID, PowerConfig(), devices=list(TWO_PORTS), block_devices=[])
    reported = [each for each in opened.sources if each.name == "nvme_25h"]
    assert [each.used for each in reported] == [True, False]
    assert (
        "nvme1 is another controller of a drive that already measures its whole power through nvme0"
        in reported[1].sentence
    )
    client.start()
    client.finish()
    assert sent(bench.models, "nvme0") == ["0x25 1", "0x25 0"]
    assert sent(bench.models, "nvme1") == []
