from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.model_host.drive import (
    NOT_CHANGEABLE,
    Model,
    ModelDrive,
    RawState,
    load,
    sent,
    store,
)
from tests.power.control.recovery_host import Bench, no_system
from wattload.core.errors import PowerError, PowerPermissionError, PowerStateError
from wattload.power.config import PowerConfig
from wattload.power.control.change import PowerStateControl
from wattload.power.control.journal import Entry, Setting
from wattload.power.nvme.admin import AdminCommand, Completion


def test_state_is_set_verified_and_restored(bench: Bench) -> None:
    control = bench.control()
    control.apply(PowerConfig(state=1), holds_system=no_system)
    (change,) = control.changes
    assert (change.before, change.plan.requested, change.verified) == (0, 1, 1)
    assert bench.state() == 1
    control.restore()
    assert (change.after, change.restored) == (1, 0)
    assert bench.state() == 0
    assert bench.entry() is None
    assert sent(bench.folder) == ["0x2 1", "0x2 0"]


def test_restore_is_done_once(bench: Bench) -> None:
    control = bench.control()
    control.restore()
    control.apply(PowerConfig(state=2), holds_system=no_system)
    control.restore()
    control.restore()
    assert sent(bench.folder) == ["0x2 2", "0x2 0"]


class Spy(ModelDrive):
    """Records the journal's content when Set Features arrives."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench.folder, "nvme0")
        self.bench = bench
        self.seen: list[Entry | None] = []

    def submit(self, command: AdminCommand) -> Completion:
        if command.opcode == 0x09:
            self.seen.append(self.bench.entry())
        return super().submit(command)


def test_old_state_is_on_disk_before_the_drive_is_asked(bench: Bench) -> None:
    store(bench.path, Model(state=2))
    spy = Spy(bench)
    control = bench.control(drive=spy)
    control.apply(PowerConfig(state=1), holds_system=no_system)
    (entry,) = spy.seen
    assert entry is not None
    assert (entry.old, entry.new) == (Setting(value=2), Setting(value=1))
    assert entry.run_id == "run-1"


def test_nothing_is_sent_if_the_journal_cannot_be_written(bench: Bench) -> None:
    bench.journal.folder.write_text("a file where the folder should be")
    with pytest.raises(PowerError, match="WATTLOAD_STATE_DIR"):
        bench.apply(Model(), PowerConfig(state=1))
    assert sent(bench.folder) == []


@pytest.mark.parametrize(
    ("state", "why"), [(5, "has no power state 5"), (31, "no power state 31"), (3, "non-oper")]
)
def test_states_it_cannot_run_in_are_refused_with_those_it_can(
    bench: Bench, state: int, why: str
) -> None:
    with pytest.raises(PowerStateError, match=why) as caught:
        bench.control().apply(PowerConfig(state=state), holds_system=no_system)
    assert "0 (25 W), 1 (18 W), 2 (11 W)" in str(caught.value)
    assert sent(bench.folder) == []
    assert bench.entry() is None


@pytest.mark.parametrize(
    ("holds", "why"), [(True, "holds root or swap"), (None, "can't be determined")]
)
def test_system_drive_is_left_alone_unless_allowed(
    bench: Bench, holds: bool | None, why: str
) -> None:
    control = bench.control()
    with pytest.raises(PowerStateError, match=why) as caught:
        control.apply(PowerConfig(state=1), holds_system=lambda _: holds)
    assert "allow_system_drive=true" in str(caught.value)
    assert sent(bench.folder) == []
    control.apply(PowerConfig(state=1, allow_system_drive=True), holds_system=lambda _: holds)
    assert bench.state() == 1


def test_refusal_names_the_status_and_leaves_no_entry(bench: Bench) -> None:
    control = bench.control(Model(refuses=NOT_CHANGEABLE))
    with pytest.raises(PowerStateError, match=r"Feature Not Changeable \(NVMe status 0x410E\)"):
        control.apply(PowerConfig(state=0), holds_system=no_system)
    assert bench.entry() is None
    control.restore()
    assert len(sent(bench.folder)) == 1


def test_drive_that_does_not_follow_is_an_error(bench: Bench) -> None:
    control = bench.control(Model(stuck=True))
    with pytest.raises(PowerStateError, match="accepted power state 1 but reports power state 0"):
        control.apply(PowerConfig(state=1), holds_system=no_system)
    assert bench.entry() is None


def test_entry_stays_when_the_drive_does_not_go_back(bench: Bench) -> None:
    control = bench.control()
    control.apply(PowerConfig(state=1), holds_system=no_system)
    model = load(bench.path)
    model.refuses = NOT_CHANGEABLE
    store(bench.path, model)
    with pytest.raises(PowerError, match="refuses power state 0"):
        control.restore()
    assert bench.entry() is not None
    assert "refuses power state 0" in control.changes[0].trouble
    model.refuses = 0
    store(bench.path, model)
    control.restore()
    assert (bench.state(), control.changes[0].trouble) == (0, "")
    assert bench.entry() is None


def test_drive_found_asleep_goes_back_to_its_default(bench: Bench) -> None:
    control = bench.control(Model(state=4, default_state=1))
    control.apply(PowerConfig(state=2), holds_system=no_system)
    assert control.changes[0].before == 4
    control.restore()
    assert bench.state() == 1


def test_sleeping_drive_that_has_no_defaults_goes_back_to_0(bench: Bench) -> None:
    control = bench.control(Model(state=4, default_state=1, selects=False))
    control.apply(PowerConfig(state=2), holds_system=no_system)
    control.restore()
    assert bench.state() == 0


def test_asking_needs_the_permission(bench: Bench) -> None:
    control = bench.control(Model(privileged=False))
    with pytest.raises(PowerPermissionError, match="CAP_SYS_ADMIN"):
        control.apply(PowerConfig(state=1), holds_system=no_system)


def test_drive_without_operational_state_says_none(bench: Bench) -> None:
    control = bench.control(Model(states=(RawState(nops=1),)))
    with pytest.raises(PowerStateError, match="operational states: none"):
        control.apply(PowerConfig(state=0), holds_system=no_system)


@pytest.fixture
def two_controls(bench: Bench) -> Iterator[tuple[PowerStateControl, PowerStateControl]]:
    first, second = bench.control(), bench.control()
    yield first, second
    first.close()
    second.close()


def test_one_run_at_a_time_holds_a_drive(
    two_controls: tuple[PowerStateControl, PowerStateControl],
) -> None:
    first, second = two_controls
    first.hold(needed=False)
    for needed in (False, True):
        with pytest.raises(PowerError, match="MODEL0001 is in use by run run-1"):
            second.hold(needed=needed)
    first.close()
    second.hold(needed=True)


def test_user_s_change_keeps_the_oldest_state(bench: Bench) -> None:
    for state in (1, 2):
        control = bench.control(owner="user")
        control.apply(PowerConfig(state=state), holds_system=no_system)
    entry = bench.entry("user")
    assert entry is not None
    assert (entry.old.value, entry.new.value) == (0, 2)


def test_refused_second_change_keeps_the_first_one_s_entry(bench: Bench) -> None:
    bench.control(owner="user").apply(PowerConfig(state=1), holds_system=no_system)
    refusing = replace(bench.model, refuses=NOT_CHANGEABLE)
    with pytest.raises(PowerStateError):
        bench.control(refusing, owner="user").apply(PowerConfig(state=2), holds_system=no_system)
    entry = bench.entry("user")
    assert entry is not None
    assert (entry.old.value, entry.new.value) == (0, 1)
