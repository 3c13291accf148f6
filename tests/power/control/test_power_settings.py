"""The three power limits of a drive, the switch of APST and the clock, on a model drive."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.model_host.drive import INVALID_FIELD, Model, ModelDrive, load, sent, store
from tests.model_host.settings import Knobs
from tests.power.control.recovery_host import KEY, Bench, no_system
from wattload.core.errors import PowerError, PowerStateError
from wattload.core.record.energy import PowerSettingRecord
from wattload.power.config import PowerConfig
from wattload.power.control.change import PowerStateControl, set_clock
from wattload.power.control.host import PowerHost
from wattload.power.control.journal import Setting
from wattload.power.control.undo import recover_changes
from wattload.power.nvme.admin import (
    GET_FEATURES,
    SET_FEATURES,
    AdminCommand,
    Completion,
    DeviceWithTimeout,
)
from wattload.power.nvme.identify import identify_controller

CENTIWATTS = 2 << 16


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("dword", [11, 13])
def test_limit_is_set_in_the_dword_that_get_confirms(
    bench: Bench, dword: int, strict: bool
) -> None:
    knobs = Knobs(limits=True, limit_dword=dword, limit_strict=strict)
    control = bench.apply(Model(knobs=knobs), PowerConfig(limit_w=12.5))
    (made,) = control.changes
    assert (made.plan.option, made.before, made.verified) == ("power.limit_w", None, 12.5)
    assert bench.knobs.limit == 1250 | CENTIWATTS
    control.restore()
    assert (made.after, made.restored, made.is_restored) == (12.5, None, True)
    assert bench.knobs.limit == 0
    assert bench.is_clean()


@pytest.mark.parametrize("dword", [11, 13])
def test_limit_that_is_not_read_back_as_asked_is_undone_and_refused(
    bench: Bench, dword: int
) -> None:
    before = 2000 | CENTIWATTS
    knobs = Knobs(limits=True, limit_dword=dword, limit_step=500, limit=before)
    with pytest.raises(
        PowerStateError, match=r"accepted power limit 12\.5 W but reports power limit"
    ):
        bench.apply(Model(knobs=knobs), PowerConfig(limit_w=12.5))
    assert bench.knobs.limit == before
    assert bench.is_clean()


class Dying(ModelDrive):
    """A drive whose host process dies at the second read after a limit was set."""

    reads = -1

    def submit(self, command: AdminCommand) -> Completion:
        if command.opcode == SET_FEATURES:
            self.reads = 0
        elif self.reads >= 0 and command.opcode == GET_FEATURES:
            self.reads += 1
            if self.reads > 1:
                raise KeyboardInterrupt
        return super().submit(command)


def test_rounded_limit_is_restored_after_a_kill(bench: Bench) -> None:
    before = 2000 | CENTIWATTS
    store(bench.path, Model(knobs=Knobs(limits=True, limit_step=500, limit=before)))
    drive = Dying(bench.folder, "nvme0")
    control = bench.control(drive=drive)
    with pytest.raises(KeyboardInterrupt):
        control.apply(PowerConfig(limit_w=12.5), holds_system=no_system)
    assert bench.knobs.limit == 1000 | CENTIWATTS
    host = PowerHost(
        journal=bench.journal,
        open_device=lambda name: DeviceWithTimeout(ModelDrive(bench.folder, name), limit_s=10),
        list_names=lambda: ["nvme0"],
        serial_of=lambda name: name,
    )
    (recovery,) = recover_changes(host)
    assert recovery.closed, recovery.sentence
    assert bench.knobs.limit == before
    assert bench.is_clean()


class Watched(ModelDrive):
    """A drive that notes the limit in effect after each Set Features, in units of 10 mW.

    It refuses the limit ``refused`` as an invalid field, whichever dword carries it.
    """

    def __init__(self, folder: Path, *, refused: int = -1) -> None:
        super().__init__(folder, "nvme0")
        self.refused = refused
        self.limits: list[int] = []

    def submit(self, command: AdminCommand) -> Completion:
        if command.opcode != SET_FEATURES:
            return super().submit(command)
        if self.refused in (command.cdw11, command.cdw13):
            return Completion(status=INVALID_FIELD, result=0, data=b"")
        completion = super().submit(command)
        self.limits.append(load(self.path).knobs.limit & 0xFFFF)
        return completion


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("dword", [11, 13])
def test_limit_in_effect_is_never_above_both_the_old_and_the_new_one(
    bench: Bench, dword: int, strict: bool
) -> None:
    found = 1500 | CENTIWATTS
    knobs = Knobs(limits=True, limit_dword=dword, limit_strict=strict, limit=found)
    store(bench.path, Model(knobs=knobs))
    drive = Watched(bench.folder)
    for watts in (10, 12.5):
        control = PowerStateControl(drive, bench.journal, run_id="cli", owner="user")
        control.apply(PowerConfig(limit_w=watts), holds_system=no_system)
    control.restore()
    assert [limit for limit, _ in itertools.groupby([1500, *drive.limits])] == [
        1500, 1000, 1250, 1500,
    ]  # fmt: skip


def test_limit_that_the_drive_refuses_does_not_lift_the_one_in_effect(bench: Bench) -> None:
    found = 1000 | CENTIWATTS
    store(bench.path, Model(knobs=Knobs(limits=True, limit_dword=13, limit=found)))
    drive = Watched(bench.folder, refused=1250 | CENTIWATTS)
    control = bench.control(drive=drive)
    with pytest.raises(PowerStateError, match=r"refuses power limit 12\.5 W: Invalid Field"):
        control.apply(PowerConfig(limit_w=12.5), holds_system=no_system)
    assert set(drive.limits) == {1000}
    assert bench.is_clean()


def test_limit_that_leaves_no_state_is_reported(bench: Bench) -> None:
    knobs = Knobs(limits=True, lowest_limit=800)
    with pytest.raises(PowerStateError, match=r"refuses power limit 5 W: Invalid Power Limit"):
        bench.apply(Model(knobs=knobs), PowerConfig(limit_w=5))
    assert bench.is_clean()


def test_drive_without_a_limit_is_sent_nothing(bench: Bench) -> None:
    with pytest.raises(PowerStateError, match=r"has no power limit \(bit 20 of CTRATT is 0\)"):
        bench.apply(Model(), PowerConfig(limit_w=5))
    assert sent(bench.folder) == []


def test_limit_between_two_steps_is_refused(bench: Bench) -> None:
    with pytest.raises(PowerStateError, match=r"power\.limit_w: 12\.345 W can't be encoded"):
        bench.apply(Model(knobs=Knobs(limits=True)), PowerConfig(limit_w=12.345))


@pytest.mark.parametrize("index", [1, 3])
def test_ocp_watts_are_set_by_ocp_s_index(bench: Bench, index: int) -> None:
    knobs = Knobs(ocp_index=index, dssd_watts=25)
    control = bench.apply(Model(knobs=knobs), PowerConfig(dssd_watts=16))
    (made,) = control.changes
    assert (made.before, made.verified, made.plan.feature.uuid_index) == (25, 16, index)
    assert bench.knobs.dssd_watts == 16
    control.restore()
    assert bench.knobs.dssd_watts == 25


def test_vendor_s_c7h_is_left_alone(bench: Bench) -> None:
    with pytest.raises(PowerStateError, match=r"does not list OCP's UUID"):
        bench.apply(Model(), PowerConfig(dssd_watts=16))
    assert sent(bench.folder) == []


def test_drive_that_does_not_report_its_watts_is_left_alone(bench: Bench) -> None:
    control = bench.control(Model(knobs=Knobs(ocp_index=1), failing=(0x0A,)))
    with pytest.raises(PowerStateError, match=r"power\.dssd_watts can't be set: .*Internal Error"):
        control.apply(PowerConfig(dssd_watts=16), holds_system=no_system)
    assert sent(bench.folder) == []


def test_apst_is_switched_off_and_its_table_comes_back(bench: Bench) -> None:
    table = Knobs().apst_table
    control = bench.apply(Model(apst=True), PowerConfig(apst=False, state=1))
    assert [made.plan.option for made in control.changes] == ["power.apst", "power.state"]
    assert (bench.knobs.apste, bench.knobs.apst_table, bench.model.state) == (0, table, 1)
    control.restore()
    assert (bench.knobs.apste, bench.knobs.apst_table, bench.model.state) == (1, table, 0)
    assert [line.split()[0] for line in sent(bench.folder)] == ["0xc", "0x2", "0x2", "0xc"]


def test_drive_without_apst_is_reported(bench: Bench) -> None:
    with pytest.raises(PowerStateError, match="has no autonomous power state transitions"):
        bench.apply(Model(), PowerConfig(apst=False))


def test_second_change_s_refusal_leaves_the_first_to_be_undone(bench: Bench) -> None:
    control = bench.control(Model(apst=True))
    with pytest.raises(PowerStateError, match="no power state 9"):
        control.apply(PowerConfig(apst=False, state=9), holds_system=no_system)
    assert bench.knobs.apste == 0
    control.restore()
    assert bench.knobs.apste == 1
    assert bench.is_clean()


def test_change_that_cannot_be_undone_does_not_keep_others_from_it(bench: Bench) -> None:
    control = bench.apply(Model(apst=True), PowerConfig(apst=False, state=1))
    model = bench.model
    model.knobs.late_s = 60.0
    store(bench.path, model)
    with pytest.raises(PowerError, match="accepted power state 0 but reports power state 1"):
        control.restore()
    assert bench.knobs.apste == 1
    assert bench.journal.changes("run") == [KEY]


class Broken(ModelDrive):
    """A drive whose power state can't be undone because of a bug in our own code."""

    def submit(self, command: AdminCommand) -> Completion:
        if (command.opcode, command.cdw10, command.cdw11) == (0x09, 0x02, 0):
            raise ZeroDivisionError("a bug")
        return super().submit(command)


def test_bug_in_one_undoing_does_not_keep_others_from_it(bench: Bench) -> None:
    store(bench.path, Model(apst=True))
    control = bench.control(drive=Broken(bench.folder, "nvme0"))
    control.apply(PowerConfig(apst=False, state=1), holds_system=no_system)
    with pytest.raises(PowerError, match="ZeroDivisionError: a bug"):
        control.restore()
    assert bench.knobs.apste == 1
    assert bench.journal.changes("run") == [KEY]


def test_workload_hint_stays_as_it_is(bench: Bench) -> None:
    control = bench.apply(Model(knobs=Knobs(hint=2)), PowerConfig(state=1))
    assert (bench.model.state, bench.knobs.hint) == (1, 2)
    control.restore()
    assert (bench.model.state, bench.knobs.hint) == (0, 2)


def test_change_that_follows_too_late_does_not_stay(bench: Bench) -> None:
    with pytest.raises(PowerStateError, match="it does not follow the host"):
        bench.apply(Model(knobs=Knobs(late_s=0.2)), PowerConfig(state=1))
    assert sent(bench.folder) == ["0x2 1", "0x2 0"]
    assert bench.is_clean()
    model = bench.model
    assert model.knobs.pending is not None
    assert model.knobs.pending[0] == 0


def test_refused_state_that_was_taken_anyway_is_undone(bench: Bench) -> None:
    control = bench.control(Model(refuses=INVALID_FIELD, knobs=Knobs(takes_refused=True)))
    with pytest.raises(
        PowerStateError, match=r"and the old value is not restored: .*Invalid Field"
    ):
        control.apply(PowerConfig(state=1), holds_system=no_system)
    assert bench.journal.changes("run") == [KEY]
    model = bench.model
    model.refuses = 0
    store(bench.path, model)
    control.restore()
    assert bench.model.state == 0
    assert bench.is_clean()


class Vanishing(ModelDrive):
    """A drive that disappears at its first Set Features, as in a surprise removal."""

    def submit(self, command: AdminCommand) -> Completion:
        if command.opcode == 0x09:
            model = load(self.path)
            model.gone = True
            store(self.path, model)
        return super().submit(command)


def test_drive_that_vanishes_during_a_change_keeps_its_entry(bench: Bench) -> None:
    store(bench.path, Model())
    control = bench.control(drive=Vanishing(bench.folder, "nvme0"))
    with pytest.raises(
        PowerStateError, match=r"No such device; and the old value is not restored: .*such"
    ):
        control.apply(PowerConfig(state=1), holds_system=no_system)
    assert bench.journal.changes("run") == [KEY]
    back = bench.model
    back.gone = False
    store(bench.path, back)
    PowerStateControl(ModelDrive(bench.folder, "nvme0"), bench.journal, run_id="s").apply(
        PowerConfig(state=2), holds_system=no_system
    )
    entry = bench.journal.read(KEY, "run")
    assert entry is not None
    assert (entry.old, entry.new, entry.run_id) == (Setting(value=0), Setting(value=2), "s")


class Mute(ModelDrive):
    """A drive that refuses Set Features and then reports no feature."""

    def submit(self, command: AdminCommand) -> Completion:
        completion = super().submit(command)
        if command.opcode == 0x09:
            model = load(self.path)
            model.failing = (0x0A,)
            store(self.path, model)
        return completion


def test_refusal_by_a_drive_that_then_says_nothing_is_not_taken_for_unchanged(
    bench: Bench,
) -> None:
    store(bench.path, Model(refuses=INVALID_FIELD))
    control = bench.control(drive=Mute(bench.folder, "nvme0"))
    with pytest.raises(PowerStateError, match=r"and the old value is not restored"):
        control.apply(PowerConfig(state=1), holds_system=no_system)
    assert bench.journal.changes("run") == [KEY]


def test_saved_values_are_read_before_and_after(bench: Bench) -> None:
    control = bench.apply(Model(saveable=True, knobs=Knobs(saved=2)), PowerConfig(state=1))
    (made,) = control.changes
    assert made.saved == (2, "")
    control.restore()
    assert made.saved_after == (2, "")


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (Model(selects=False), "reports the current value only"),
        (Model(), "can't save this setting"),
    ],
)
def test_drive_without_saved_values_says_so(bench: Bench, model: Model, why: str) -> None:
    (made,) = bench.apply(model, PowerConfig(state=1)).changes
    assert made.saved[0] is None
    assert why in made.saved[1]


def clocked(bench: Bench) -> PowerSettingRecord:
    drive = ModelDrive(bench.folder, "nvme0")
    return set_clock(drive, identify_controller(drive), bench.journal, run_id="r")


def test_save_bit_is_never_set(bench: Bench) -> None:
    knobs = Knobs(limits=True, ocp_index=1, clock=True)
    for config in (
        PowerConfig(state=1, apst=False),
        PowerConfig(limit_w=9),
        PowerConfig(dssd_watts=9),
    ):
        bench.apply(Model(apst=True, knobs=knobs), config).restore()
    clocked(bench)
    dwords = [int(line.split()[0], 16) for line in sent(bench.folder)]
    assert {dword & 0xFF for dword in dwords} == {0x02, 0x0C, 0x23, 0xC7, 0x0E}
    assert all(dword < 1 << 31 for dword in dwords)


def test_clock_is_set_and_read_back(bench: Bench) -> None:
    store(bench.path, Model(knobs=Knobs(clock=True, clock_offset_ms=-5_000_000)))
    reported = clocked(bench)
    assert (reported.verified or 0) - (reported.before or 0) == pytest.approx(5_000_000, abs=1000)
    assert bench.is_clean()


def test_clock_that_does_not_take_the_time_is_reported(bench: Bench) -> None:
    knobs = Knobs(clock=True, clock_offset_ms=-5_000_000, clock_deaf=True)
    store(bench.path, Model(knobs=knobs))
    with pytest.raises(PowerStateError, match=r"accepted the time .* leave power\.set_timestamp"):
        clocked(bench)


def test_drive_without_a_clock_is_sent_nothing(bench: Bench) -> None:
    store(bench.path, Model())
    with pytest.raises(PowerStateError, match=r"power\.set_timestamp is not available"):
        clocked(bench)
    assert sent(bench.folder) == []
    assert bench.is_clean()
