"""What a page is about: runs, grouped by workload, in the arms of a comparison."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from wattload.core.record.check import Check
from wattload.core.record.energy import PowerStateRecord
from wattload.core.record.run import RunRecord
from wattload.reports.closure import SEAL_CHECK, close
from wattload.reports.keys import require_key, setting
from wattload.reports.load import Run
from wattload.reports.memo import once_each
from wattload.reports.quantity import listed

LETTERS = ("A", "B", "C", "D", "E", "F")
"""What the arms on a page are called, in their order; two are compared, more stand side by side."""


WARM_UP = "it is a warm-up, made before the runs that are compared"
UNKNOWN_STATE = "power state unknown"
CAPS = ("power.dssd_watts", "power.limit_w")
"""The settings beside the power state that cap a drive's power."""


def lettered(letter: str, arm: str) -> str:
    """Return an arm with the letter it has on this page; one called by it needs no more."""
    return arm if arm == letter else f"{letter} ({arm})"


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class Group:
    """The runs of one workload, by arm; an arm without a run of it is left out.

    ``page`` names all arms of the page, in their order; empty where these are all.
    """

    workload: str
    arms: Mapping[str, tuple[Run, ...]]
    page: tuple[str, ...] = ()

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs of the group, arm by arm."""
        return tuple(run for runs in self.arms.values() for run in runs)

    @property
    def letters(self) -> tuple[str, ...]:
        """The letters that its arms have on the whole page, in the order of its arms."""
        named = zip(LETTERS, self.page or self.arms, strict=False)
        return tuple(letter for letter, arm in named if arm in self.arms)

    @property
    def is_pair(self) -> bool:
        """Whether it has both arms of a page of two: they are then compared."""
        return len(self.arms) == len(self.page or self.arms) == 2  # noqa: PLR2004 - A and B


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class Subject:
    """All that the sections of a page draw from.

    ``arms`` are in order of the first run of each: the first is A. ``closures`` are by run id.
    ``groups`` leave out warm-ups, and runs of one setting against itself where there are others.
    ``forced`` says that the user asked for a comparison whatever bars it; the page says so too.
    """

    runs: tuple[Run, ...]
    by: str
    arms: tuple[str, ...]
    groups: tuple[Group, ...]
    closures: Mapping[str, tuple[Check, ...]]
    forced: bool = False

    def arm(self, run: Run) -> str:
        """Return the name of the arm that a run belongs to."""
        return arm_name(run.record, self.by)

    @property
    def compares(self) -> bool:
        """Whether there are two arms, and a workload that both ran."""
        return any(group.is_pair for group in self.groups)

    def faults(self, run: Run) -> tuple[str, ...]:
        """Return why a run is not compared as valid; empty for a valid one."""
        return (*_faults(run.record), *_broken(self.closures[run.id]))

    def energy_faults(self, run: Run) -> tuple[str, ...]:
        """Return why a run's energy is not compared, beyond what bars the run."""
        return tuple(
            f"{check.name} was not checked: {check.sentence}"
            for check in run.record.checks
            if _open(check) and _is_of_power(check)
        )


def _open(check: Check) -> bool:
    return check.mandatory and check.verdict == "not_checked"


def _is_of_power(check: Check) -> bool:
    """Return whether a check is about power alone: unmade, it bars energy and not throughput."""
    return check.name.startswith(("power_", "energy_"))


@once_each
def _faults(record: RunRecord) -> tuple[str, ...]:
    faults = []
    if record.comparison.warm_up:
        faults.append(WARM_UP)
    if record.status != "complete":
        faults.append(f"it is {record.status}: {record.status_reason or 'no reason was recorded'}")
    for check in record.checks:
        if check.verdict == "fail":
            faults.append(f"the check {check.name} failed: {check.sentence}")
        elif _open(check) and not _is_of_power(check):
            faults.append(f"the mandatory check {check.name} was not made: {check.sentence}")
    return tuple(faults)


def _broken(closures: Sequence[Check]) -> list[str]:
    return [
        f"it was edited: {check.sentence}"
        if check.name == SEAL_CHECK
        else f"its figures do not close, {check.name}: {check.sentence}"
        for check in closures
        if check.verdict == "fail"
    ]


def _target(record: RunRecord) -> str:
    models = [c.facts.model for c in record.controllers if c.facts.model]
    paths = [target.facts.path for target in record.targets if target.facts.path]
    return listed([*dict.fromkeys(models)]) or listed([*dict.fromkeys(paths)]) or "no target"


def _power_state(record: RunRecord) -> str:
    states = [power_state_text(record, state) for state in record.power.states]
    return listed([*dict.fromkeys(states)]) or UNKNOWN_STATE


def power_state_text(record: RunRecord, state: PowerStateRecord) -> str:
    """Return the power state that a drive ran in, and what else the run had set to cap its power.

    Where the run set no state it is the one that was found, unless the drive then slept.
    """
    number = state.verified
    if state.requested is None and state.before not in _sleeping(record, state.serial):
        number = state.before
    text = UNKNOWN_STATE if number is None else f"PS{number}"
    caps = [each for each in state.settings if each.option in CAPS and each.verified is not None]
    return ", ".join([text, *(f"{each.name} {each.verified:g} {each.unit}" for each in caps)])


def _sleeping(record: RunRecord, serial: str) -> set[int]:
    return {
        each.index
        for controller in record.controllers
        if controller.facts.serial == serial
        for each in controller.facts.power_states or ()
        if not each.operational
    }


def _firmware(record: RunRecord) -> str:
    before = [controller.before for controller in record.controllers]
    found = [state.firmware for state in before if state is not None and state.firmware]
    return listed([*dict.fromkeys(found)]) or "firmware unknown"


ARMS: Mapping[str, Callable[[RunRecord], str]] = {
    "label": lambda record: record.label,
    "target": _target,
    "power_state": _power_state,
    "loader": lambda record: record.workload.loader,
    "firmware": _firmware,
}
"""What runs can be told apart by beside any key of their configuration, to the name of the arm."""


def arm_name(record: RunRecord, by: str) -> str:
    """Return the arm of a run: as ``ARMS`` names it, else by a configuration key."""
    return ARMS[by](record) if by in ARMS else setting(record, by)


def make_subject(runs: Sequence[Run], by: str = "label", *, forced: bool = False) -> Subject:
    """Return the runs in their groups and arms, closure checks made.

    Args:
        runs: those of the page, the first that makes an arm decides which is A.
        by: one of ``ARMS``, or a dotted configuration key such as ``workload.workers``.
        forced: compare even what is barred from it.

    Raises:
        ConfigError: ``by`` is nothing that these runs can be told apart by.
    """
    if by not in ARMS:
        require_key([run.record for run in runs], by, tuple(ARMS))
    sided = _sided(runs)
    arms = _arms(sided, by)
    groups: dict[str, dict[str, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for run in sided:
        groups[run.record.workload.name][arm_name(run.record, by)].append(run)
    return Subject(
        runs=tuple(runs),
        by=by,
        arms=arms,
        groups=tuple(
            Group(
                workload=workload,
                arms={arm: _by_start(members[arm]) for arm in arms if arm in members},
                page=arms,
            )
            for workload, members in groups.items()
        ),
        closures={run.id: close(run) if run.closures is None else run.closures for run in runs},
        forced=forced,
    )


def _sided(runs: Sequence[Run]) -> Sequence[Run]:
    """Return the runs that make arms: no warm-up, and no setting against itself beside others."""
    warm = [run for run in runs if not run.record.comparison.warm_up]
    others = [run for run in warm if run.record.comparison.interleave != "aa"]
    return others or warm or runs


def _arms(runs: Sequence[Run], by: str) -> tuple[str, ...]:
    """Return the arms in order of their first run; arms called A and B keep their letters."""
    arms = tuple(dict.fromkeys(arm_name(run.record, by) for run in runs))
    return tuple(sorted(arms)) if set(arms) == {"A", "B"} else arms


def _by_start(runs: Sequence[Run]) -> tuple[Run, ...]:
    return tuple(sorted(runs, key=lambda run: (run.record.started_utc, run.id)))
