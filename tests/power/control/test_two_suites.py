"""Two suites with state folders of their own on one drive, and an administrator besides.

What their locks don't prevent is judged by the drive's value alone: it is the worst case, as in
containers that may not use the kernel's own device nodes.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from tests.model_host.drive import Model, ModelDrive, load, sent, store
from tests.model_host.settings import Knobs
from tests.power.control.recovery_host import Host
from wattload.core.errors import PowerError, PowerStateError
from wattload.power.config import PowerConfig
from wattload.power.control.change import PowerStateControl
from wattload.power.control.journal import ChangeJournal, Owner, Setting

FOUND, FIRST = 0, 1


class Suite(Host):
    """A suite whose journal nobody else sees, on the drive that it shares with others."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder)
        self.journal = ChangeJournal(folder / name)

    def run(self, state: int, owner: Owner = "run") -> PowerStateControl:
        drive = ModelDrive(self.folder, "nvme0")
        control = PowerStateControl(drive, self.journal, run_id="r", owner=owner)
        control.apply(PowerConfig(state=state), holds_system=lambda _: False)
        return control

    @property
    def is_clean(self) -> bool:
        return self.journal.changes("run") == []


@pytest.fixture
def suites(tmp_path: Path) -> tuple[Suite, Suite]:
    store(tmp_path / "nvme0.json", Model(state=FOUND))
    return Suite(tmp_path, "first"), Suite(tmp_path, "second")


def state(suite: Suite) -> int:
    return load(suite.folder / "nvme0.json").state


def set_by_another(suite: Suite, value: int) -> None:
    path = suite.folder / "nvme0.json"
    model = load(path)
    model.state = value
    store(path, model)


def end(control: PowerStateControl) -> None:
    with suppress(PowerError):
        control.restore()


@pytest.mark.parametrize("second", [0, 1, 2])
@pytest.mark.parametrize("last_ends_first", [False, True])
def test_drive_is_back_or_a_journal_says_that_it_is_not(
    suites: tuple[Suite, Suite], second: int, *, last_ends_first: bool
) -> None:
    one, other = suites
    controls = [one.run(FIRST), other.run(second)]
    for control in controls[::-1] if last_ends_first else controls:
        end(control)
    assert state(one) == FOUND or not (one.is_clean and other.is_clean)
    for suite in suites:
        suite.undo("nvme0")
    assert state(one) == FOUND


def test_first_suite_that_ends_first_leaves_the_second_one_s_state(
    suites: tuple[Suite, Suite],
) -> None:
    one, other = suites
    control = one.run(FIRST)
    other.run(2)
    with pytest.raises(PowerError, match="is left at power state 2, which something else"):
        control.restore()
    (change,) = control.changes
    assert (change.after, change.restored, change.is_restored) == (2, None, False)
    assert "left at power state 2" in change.trouble
    (key,) = one.journal.changes("run")
    entry = one.journal.read(key, "run")
    assert entry is not None
    assert entry.left == Setting(value=2)


def test_state_that_was_put_back_by_another_is_looked_at_again(
    suites: tuple[Suite, Suite],
) -> None:
    """A second suite that has found our state and set the old one will set ours again."""
    one, _ = suites
    control = one.run(FIRST)
    set_by_another(one, FOUND)
    control.restore()
    assert control.changes[0].was_put_back
    assert not one.is_clean
    one.undo("nvme0")
    assert (state(one), one.is_clean) == (FOUND, True)


def test_administrator_s_state_is_left_at_the_end_and_by_later_runs(
    suites: tuple[Suite, Suite],
) -> None:
    one, _ = suites
    control = one.run(FIRST)
    set_by_another(one, 2)
    end(control)
    (leftover,) = one.undo("nvme0")
    assert not leftover.closed
    with pytest.raises(PowerStateError, match="left at power state 2, which something else"):
        one.run(FIRST)
    assert sent(one.folder) == ["0x2 1"]
    (kept,) = one.undo("nvme0", keep=True)
    assert kept.closed
    one.run(FIRST).restore()
    assert (state(one), one.is_clean) == (2, True)


def test_administrator_s_state_is_not_overwritten_by_a_second_set(
    suites: tuple[Suite, Suite],
) -> None:
    one, _ = suites
    one.run(FIRST, owner="user")
    set_by_another(one, 2)
    with pytest.raises(PowerStateError, match=r"`power set` had set .* left at power state 2"):
        one.run(0, owner="user")
    assert state(one) == 2


def test_administrator_s_limit_is_left(tmp_path: Path) -> None:
    suite = Suite(tmp_path, "first")
    path = tmp_path / "nvme0.json"
    store(path, Model(knobs=Knobs(limits=True)))
    control = PowerStateControl(ModelDrive(tmp_path, "nvme0"), suite.journal, run_id="r")
    control.apply(PowerConfig(limit_w=12.5), holds_system=lambda _: False)
    model = load(path)
    model.knobs.limit = 900 | 2 << 16
    store(path, model)
    with pytest.raises(PowerError, match="left at power limit 9 W"):
        control.restore()
    assert load(path).knobs.limit == 900 | 2 << 16


def test_drive_asleep_at_the_end_is_restored(suites: tuple[Suite, Suite]) -> None:
    one, _ = suites
    control = one.run(FIRST)
    set_by_another(one, 4)
    control.restore()
    assert (state(one), one.is_clean) == (FOUND, True)
