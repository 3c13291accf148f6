"""The subject of a page: runs, grouped by workload, in the arms of a comparison.

Arms differ in a property of the runs or in a configuration key. Single runs that do not belong to
the comparison of the others, such as one on another path, are left out: they would make a point,
or an arm, of their own, and leave the other runs without a counterpart.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from wattload.core.errors import ConfigError
from wattload.core.mlperf.published import PublishedSet
from wattload.core.record.energy import PowerStateRecord
from wattload.core.record.results import Check
from wattload.core.record.run import RunRecord
from wattload.reports.runs.hosts import names_text
from wattload.reports.runs.load import LeftOut, Run
from wattload.reports.runs.validity import checks_of_files, counted_checks, energy_faults, faults
from wattload.reports.stats.effects import MINIMUM_RUNS
from wattload.results.identity_cache import cache_by_identity
from wattload.results.quantity import counted, listed
from wattload.results.reading import asked, view_of
from wattload.results.view import Served

NOT_SET = "not set"
LOAD = "load"
NO_LOAD = "none"
"""The load that kept a run's host busy, and its name where there was none."""

_NOT_CONDITIONS = frozenset({"_target_", "label", "runs", "ranks", "seed", "repeat", "scales"})
"""Settings that name a run or a class and not its work, and tables for all scales. The ``ranks``
that a run had are counted in its record."""

_NOT_AXES = (
    "sweep",
    "interleave",
    "interleave_by",
    "start_wait_max_s",
    "target.max_write_bytes",
    "target.overwrite",
    "target.serial",
    "target.shared",
    "power.allow_system_drive",
)
"""Settings for the order of runs or for guards: they do not define a point."""

_BELOW_NOT_AXES = tuple(f"{name}." for name in _NOT_AXES)

LETTERS = ("A", "B", "C", "D", "E", "F")
"""The letters of the arms on a page, in order; two are compared, more are shown side by side."""

UNKNOWN_STATE = "power state unknown"
CAPS = ("power.dssd_watts", "power.limit_w")
"""The settings other than the power state that cap a drive's power."""

_NAME_MAX = 24
"""Characters of an arm's name that a cell has room for."""

_USUAL_SHARE = 3
"""A setting is usual in an arm if at least this many times as many runs have it as do not."""

NEAREST = 5
"""How many valid keys an error names."""


def flat(
    value: Any,  # noqa: ANN401 - JSON
    key: str = "",
    *,
    without: frozenset[str] = frozenset(),
) -> Iterator[tuple[str, Any]]:
    """Yield every leaf of nested mappings with its dotted key; a list is a leaf.

    Names in ``without`` are skipped at any level.
    """
    if isinstance(value, Mapping):
        for name, part in value.items():
            if name not in without:
                yield from flat(part, f"{key}.{name}" if key else str(name), without=without)
    else:
        yield key, value


def load_name(record: RunRecord) -> str:
    """Return the name of the load of a run, ``none`` where nothing kept its host busy."""
    return next((load.name for load in record.loads), NO_LOAD)


@cache_by_identity
def settings(record: RunRecord) -> Mapping[str, str]:
    """Return a run's settings as dotted keys and texts, without keys that only name the run.

    A run without a load has ``none``. Settings that follow from others if they are not set have the
    value in effect.
    """
    found = {key: str(value) for key, value in flat(record.config, without=_NOT_CONDITIONS)}
    found.pop(f"{LOAD}.name", None)
    found[LOAD] = load_name(record)
    return {**found, **asked(record, view_of(record).settings, {})}


@cache_by_identity
def facts_of(record: RunRecord) -> Mapping[str, str]:
    """Return what identifies the work of a run: settings, loader, scale and process count."""
    workload = record.workload
    found = {
        key: value
        for key, value in settings(record).items()
        if key not in _NOT_AXES and not key.startswith(_BELOW_NOT_AXES)
    }
    return found | {
        "loader": workload.loader,
        "scale": workload.scale,
        "processes": str(workload.rank_count),
    }


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class Group:
    """The runs of one workload, by arm; an arm without a run of it is left out.

    ``page`` names all arms of the page, in their order; empty if these are all. ``ceilings`` are
    runs that read no storage, by name: they bound the rates of the arms, and are none themselves.
    """

    workload: str
    arms: Mapping[str, tuple[Run, ...]]
    page: tuple[str, ...] = ()
    ceilings: Mapping[str, tuple[Run, ...]] = field(default_factory=dict)

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs of the group, arm by arm."""
        return tuple(run for runs in self.arms.values() for run in runs)

    @property
    def letters(self) -> tuple[str, ...]:
        """The letters of its arms on the page, in the order of its arms."""
        named = zip(LETTERS, self.page or self.arms, strict=False)
        return tuple(letter for letter, arm in named if arm in self.arms)

    @property
    def is_pair(self) -> bool:
        """Whether it has both arms of a page of two: they are then compared."""
        return len(self.arms) == len(self.page or self.arms) == 2  # noqa: PLR2004 - A and B


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class Subject:
    """Everything that the sections of a page show.

    ``arms`` are in order of the first run of each: the first is A. ``file_checks`` and
    ``run_faults`` are by run id.
    ``groups`` leave out warm-ups, ``strays``, which are single runs that do not belong to the
    others, by id with the reason, and A/A runs if there are others. ``forced`` is whether the user
    forced excluded comparisons. ``left_out`` are run folders without a usable record. ``merged``
    has the arms of runs by id, where labels name lists of targets that are points of one arm, or
    where runs of one label differ in what a workload sets apart, such as an engine. ``published``
    are results of others, which are shown and never compared.
    """

    runs: tuple[Run, ...]
    by: str
    arms: tuple[str, ...]
    groups: tuple[Group, ...]
    file_checks: Mapping[str, tuple[Check, ...]]
    run_faults: Mapping[str, tuple[str, ...]]
    strays: Mapping[str, str] = field(default_factory=dict)
    forced: bool = False
    left_out: tuple[LeftOut, ...] = ()
    merged: Mapping[str, str] = field(default_factory=dict)
    published: tuple[PublishedSet, ...] = ()

    def arm(self, run: Run) -> str:
        return self.merged.get(run.id) or arm_name(run.record, self.by)

    @property
    def compares(self) -> bool:
        """Whether there are two arms, and a workload that both ran."""
        return any(group.is_pair for group in self.groups)

    @property
    def distinction(self) -> str:
        """What distinguishes the arms: ``by``, or for labels the settings that they stand for.

        These are settings named in the runs' commands that are the same in all runs of an arm and
        differ between any two arms.
        """
        runs = [run for group in self.groups for run in group.runs]
        named = {word.partition("=")[0].lstrip("+") for run in runs for word in run.record.command}
        facts = [(self.arm(run), facts_of(run.record)) for run in runs]
        found = []
        for key in dict.fromkeys(key for _, each in facts for key in each):
            pairs = {(arm, each.get(key)) for arm, each in facts}
            is_told = len(pairs) == len({value for _, value in pairs}) == len(self.arms) > 1
            if key.removesuffix(".name") in named and is_told:
                found.append(key.removesuffix(".name"))
        names = found if self.by == "label" and found else [self.by.replace("_", " ")]
        return listed(names)

    def faults(self, run: Run) -> tuple[str, ...]:
        """Return why a run is not compared as valid; empty for a valid one."""
        return self.run_faults[run.id]

    def checks(self, run: Run) -> list[Check]:
        """Return the checks of a run that are counted."""
        return counted_checks(run, self.file_checks[run.id])

    @property
    def all_checks(self) -> list[Check]:
        """The checks of all runs that are counted."""
        return [check for run in self.runs for check in self.checks(run)]

    def energy_faults(self, run: Run) -> tuple[str, ...]:
        """Return why a run's energy is not compared, in addition to the faults of the run."""
        return energy_faults(run, self.file_checks[run.id])


def make_subject(
    runs: Sequence[Run],
    by: str = "label",
    *,
    forced: bool = False,
    left_out: tuple[LeftOut, ...] = (),
    published: tuple[PublishedSet, ...] = (),
) -> Subject:
    """Return the runs in their groups and arms, with file checks.

    Args:
        runs: the runs of the page; the first run that is in an arm decides which is A.
        by: one of ``ARMS``, or a dotted configuration key such as ``workload.workers``.
        forced: also compare runs and figures that are excluded.
        left_out: run folders without a usable record, to be listed.
        published: results of others, to be shown next to the runs.

    Raises:
        ConfigError: ``by`` does not name a property or a configuration key of these runs.
    """
    if by not in ARMS:
        require_key([run.record for run in runs], by, tuple(ARMS))
    sided = _arm_runs(runs)
    file_checks = {
        run.id: checks_of_files(run) if run.file_checks is None else run.file_checks for run in runs
    }
    run_faults = {run.id: faults(run, file_checks[run.id]) for run in runs}
    merged = (_merged_targets(runs) or _by_split(runs)) if by == "label" else {}

    def arm_of(run: Run) -> str:
        return merged.get(run.id) or arm_name(run.record, by)

    groups, ceilings = _grouped(sided, arm_of), {}
    for workload, members in groups.items():
        served = {arm: all(map(_reads_no_storage, own)) for arm, own in members.items()}
        if not all(served.values()):
            ceilings[workload] = {arm: members[arm] for arm, is_one in served.items() if is_one}
    bounds = {run.id for own in ceilings.values() for runs in own.values() for run in runs}
    sided = [run for run in sided if run.id not in bounds]
    strays = _strays(sided, arm_of, run_faults)
    sided = [run for run in sided if run.id not in strays]
    arms = _arms([arm_of(run) for run in sided])
    return Subject(
        runs=tuple(runs),
        by=by,
        arms=arms,
        groups=tuple(
            Group(
                workload=workload,
                arms={arm: _in_time(members[arm]) for arm in arms if arm in members},
                page=arms,
                ceilings={name: _in_time(own) for name, own in ceilings.get(workload, {}).items()},
            )
            for workload, members in _grouped(sided, arm_of).items()
        ),
        file_checks=file_checks,
        run_faults=run_faults | {name: (why, *run_faults[name]) for name, why in strays.items()},
        strays=strays,
        forced=forced,
        left_out=left_out,
        merged=merged,
        published=published,
    )


def _grouped(
    runs: Sequence[Run], arm_of: Callable[[Run], str]
) -> Mapping[str, Mapping[str, list[Run]]]:
    """Return runs by workload and arm."""
    found: dict[str, dict[str, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        found[run.record.workload.name][arm_of(run)].append(run)
    return found


def _reads_no_storage(run: Run) -> bool:
    return bool(asked(run.record, view_of(run.record).served, Served()).instead)


def _in_time(runs: Sequence[Run]) -> tuple[Run, ...]:
    return tuple(sorted(runs, key=lambda run: (run.record.started_utc, run.id)))


def _arm_runs(runs: Sequence[Run]) -> Sequence[Run]:
    """Return the runs that make arms: no warm-ups, and A/A runs only if there are no others."""
    warm = [run for run in runs if not run.record.comparison.warm_up]
    others = [run for run in warm if run.record.comparison.interleave != "aa"]
    return others or warm or runs


def _merged_targets(runs: Sequence[Run]) -> dict[str, str]:
    """Return the arm of each run, by its id, where a sweep has lists of targets.

    A sweep labels each list. Lists of different lengths of otherwise equal runs are points of one
    arm, which has the name of its loader where that tells the arms apart. In alternating runs the
    lists are what is compared.
    """
    labels: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        labels[run.record.label].append(run)
    alike: dict[Hashable, dict[int, list[Run]]] = defaultdict(dict)
    for own in labels.values():
        counts = {len(run.record.targets) for run in own}
        is_swept = all(
            view_of(run.record).has_swept_targets and run.record.comparison.interleave == "none"
            for run in own
        )
        if not is_swept or len(counts) > 1:
            return {}
        work = frozenset(map(_without_targets, own))
        of_count = alike[work]
        if counts & of_count.keys():
            return {}
        of_count[counts.pop()] = own
    if all(len(of_count) == 1 for of_count in alike.values()):
        return {}
    merged = [[run for own in of_count.values() for run in own] for of_count in alike.values()]
    loaders = [{run.record.workload.loader for run in own} for own in merged]
    by_loader = len(set(map(frozenset, loaders))) == len(merged)
    return {
        run.id: run.record.workload.loader if by_loader else own[0].record.label
        for own in merged
        for run in own
    }


def _by_split(runs: Sequence[Run]) -> dict[str, str]:
    """Return the arm of each run, by its id, whose label has runs that a workload tells apart."""
    splits = {run.id: asked(run.record, view_of(run.record).splits, "") for run in runs}
    of_label: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        of_label[run.record.label].add(splits[run.id])
    name = "{label} ({split})" if len(of_label) > 1 else "{split}"
    return {
        run.id: name.format(label=run.record.label, split=splits[run.id])
        for run in runs
        if len(of_label[run.record.label] - {""}) > 1 and splits[run.id]
    }


def _without_targets(run: Run) -> Hashable:
    """Return the session of a run and its settings except the paths of its targets."""
    facts = {key: value for key, value in facts_of(run.record).items() if key != "target.path"}
    return run.record.comparison.session_id, frozenset(facts.items())


def _strays(
    runs: Sequence[Run], arm_of: Callable[[Run], str], faults: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """Return the runs that are left out of the arms, by id, with the reason.

    Args:
        runs: the runs that would make arms.
        arm_of: the arm of a run.
        faults: why each run is not valid, by id; empty for a valid run.
    """
    arms: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        arms[arm_of(run)].append(run)
    valid = {arm: sum(not faults[run.id] for run in own) for arm, own in arms.items()}
    found = dict(_of_stray_arms(arms, valid))
    workloads: dict[str, dict[str, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for arm, own in arms.items():
        for run in own:
            if run.id not in found:
                workloads[run.record.workload.name][arm].append(run)
    for of_workload in workloads.values():
        found.update(_of_settings(of_workload))
    return found


def _of_stray_arms(
    arms: Mapping[str, Sequence[Run]], valid: Mapping[str, int]
) -> Iterator[tuple[str, str]]:
    """Yield the runs of arms without a valid run, and a single run beside two full arms.

    In a search for the number of accelerators each number is an arm, and none of them is a stray.
    """
    known = [arm for arm in arms if valid[arm]]
    every = [run.record for own in arms.values() for run in own]
    if len(known) < 2 or any(map(_is_of_search, every)):  # noqa: PLR2004 - no comparison to save
        return
    for arm in arms:
        if not valid[arm]:
            yield from ((run.id, f"no run of {arm} is valid") for run in arms[arm])
    full = [arm for arm in known if valid[arm] >= MINIMUM_RUNS]
    single = [arm for arm in known if len(arms[arm]) == 1]
    if (len(full), len(single), len(known)) == (2, 1, 3):
        yield arms[single[0]][0].id, f"it is the only run of {single[0]}"


def _is_of_search(record: RunRecord) -> bool:
    sweep = record.config.get("sweep")
    return isinstance(sweep, Mapping) and sweep.get("name", "none") != "none"


def _of_settings(arms: Mapping[str, Sequence[Run]]) -> Iterator[tuple[str, str]]:
    """Yield the runs with a setting, a drive or a host that no other run of their arm has."""
    facts = {
        run.id: {**facts_of(run.record), **_machine_of(run.record)}
        for own in arms.values()
        for run in own
    }
    every = [run for own in arms.values() for run in own]
    named = [word.partition("=")[0].lstrip("+") for run in every for word in run.record.command]
    keys = sorted(
        dict.fromkeys(key for each in facts.values() for key in each),
        key=lambda key: key not in named,
    )
    for key in keys:
        values = {
            arm: [(run, facts[run.id].get(key, NOT_SET)) for run in own]
            for arm, own in arms.items()
        }
        yield from _of_key(key, values)


def _machine_of(record: RunRecord) -> Mapping[str, str]:
    """Return the drives and the hosts of a run, as far as known."""
    found = {
        "drive": ", ".join(sorted(filter(None, (c.facts.serial for c in record.controllers)))),
        "host": ", ".join(sorted(host.facts.name for host in record.hosts)),
    }
    return {name: value for name, value in found.items() if value}


def _of_key(key: str, arms: Mapping[str, Sequence[tuple[Run, str]]]) -> Iterator[tuple[str, str]]:
    """Yield the runs whose value of a setting is neither usual in their arm nor a point of both.

    Of a failed run, any value is unusual that no complete run of its arm has.
    """
    complete = {
        arm: Counter(value for run, value in own if run.record.status == "complete")
        for arm, own in arms.items()
    }
    usual = {arm: max(values, key=values.__getitem__) for arm, values in complete.items() if values}
    tells_arms_apart = 1 < len(usual) == len(set(usual.values()))
    for arm, most in usual.items():
        own = complete[arm]
        is_point = own[most] < _USUAL_SHARE * (own.total() - own[most]) or own[most] < _USUAL_SHARE
        for run, value in arms[arm]:
            is_failed = run.record.status != "complete" and not own[value]
            if value == most or (not is_failed and (is_point or len(arms) == 1)):
                continue
            if tells_arms_apart or not any(complete[name][value] for name in arms if name != arm):
                rest = counted(own[most], "other run")
                yield run.id, f"{key} is {value}; it is {most} in {rest} of {arm}"


def _arms(names: Sequence[str]) -> tuple[str, ...]:
    """Return the arms in order of their first run; arms called A, B, C keep their letters."""
    arms = tuple(dict.fromkeys(names))
    return tuple(sorted(arms)) if set(arms) == set(LETTERS[: len(arms)]) else arms


def lettered(letter: str, arm: str) -> str:
    """Return an arm with its letter on this page, or the letter alone if that is its name."""
    return arm if arm == letter else f"{letter} ({arm})"


def named(letter: str, arm: str) -> str:
    """Return an arm's name for a cell or a sentence; its letter if the name is long or a letter."""
    return letter if letter and (len(arm) > _NAME_MAX or arm in LETTERS) else arm


def arm_name(record: RunRecord, by: str) -> str:
    """Return the arm of a run: by ``ARMS``, or by a configuration key."""
    return ARMS[by](record) if by in ARMS else setting(record, by)


def setting(record: RunRecord, key: str) -> str:
    """Return ``workers=8`` for the key ``workload.workers``; ``not set`` if the run has none.

    A load is ``load busy``.
    """
    value = dict(flat(record.config)).get(key, NOT_SET)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if key == f"{LOAD}.name":
        return f"{LOAD} {text}"
    return f"{key.rpartition('.')[2]}={text}"


def require_key(records: Sequence[RunRecord], key: str, named: Sequence[str]) -> None:
    """Refuse a key that is missing from the configuration of all runs, naming similar ones.

    ``named`` are the other allowed words.

    Raises:
        ConfigError: no run was configured with this key, or it names a group of keys.
    """
    known = sorted({each for record in records for each, _ in flat(record.config)})
    if key not in known:
        raise ConfigError(
            f"--by must be one of {', '.join(named)}, or a configuration key of the runs, "
            f"got {key!r}; {_nearest(key, known)}"
        )


def _nearest(key: str, known: Sequence[str]) -> str:
    """Return the keys under this one, or similar ones, as the end of a sentence."""
    below = [each for each in known if each.startswith(f"{key}.")]
    same_end = [each for each in known if each.rpartition(".")[2] == key]
    near = below or same_end or get_close_matches(key, known, n=NEAREST, cutoff=0.6)
    if not near:
        return f"none of the {len(known)} keys of the runs has a similar name"
    return f"did you mean {', '.join(near[:NEAREST])}?"


def _target(record: RunRecord) -> str:
    models = [c.facts.model for c in record.controllers if c.facts.model]
    paths = [target.facts.path for target in record.targets if target.facts.path]
    return listed([*dict.fromkeys(models)]) or listed([*dict.fromkeys(paths)]) or "no target"


def _power_state(record: RunRecord) -> str:
    states = [power_state_text(record, state) for state in record.power.states]
    return listed([*dict.fromkeys(states)]) or UNKNOWN_STATE


def power_state_text(record: RunRecord, state: PowerStateRecord) -> str:
    """Return the power state of a drive during a run, with the other power caps that were set.

    If the run set no state, it is the state found before the run, unless that was an idle state.
    """
    number = state.verified
    if state.requested is None and state.before not in _idle_states(record, state.serial):
        number = state.before
    text = UNKNOWN_STATE if number is None else f"PS{number}"
    caps = [each for each in state.settings if each.option in CAPS and each.verified is not None]
    return ", ".join([text, *(f"{each.name} {each.verified:g} {each.unit}" for each in caps)])


def _idle_states(record: RunRecord, serial: str) -> set[int]:
    return {
        each.index
        for controller in record.controllers
        if controller.facts.serial == serial
        for each in controller.facts.power_states or ()
        if not each.operational
    }


def _system(record: RunRecord) -> str:
    """Return the label if the command has one, else the hosts and the models of the drives."""
    if any(word.lstrip("+").startswith("label=") for word in record.command):
        return record.label
    models = [each.facts.model for each in record.controllers if each.facts.model]
    hosts = list(dict.fromkeys(host.facts.name for host in record.hosts))
    return ", ".join([names_text(hosts), *dict.fromkeys(models)])


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
    "system": _system,
}
"""The properties that can define the arms, in addition to configuration keys."""
