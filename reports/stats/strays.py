"""Single runs that do not belong to the comparison of the others, such as one on another path.

In the arms they would make a point, or an arm, of their own, and leave the other runs without a
counterpart.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from wattload.core.record.run import RunRecord
from wattload.reports.runs.load import Run
from wattload.reports.stats.effects import MINIMUM_RUNS
from wattload.reports.stats.settings import NOT_SET, facts_of
from wattload.results.quantity import counted

SHARE = 3
"""A setting is usual in an arm if at least this many times as many runs have it as do not."""

Arms = Mapping[str, Sequence[Run]]


def find_strays(
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


def _of_stray_arms(arms: Arms, valid: Mapping[str, int]) -> Iterator[tuple[str, str]]:
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


def _of_settings(arms: Arms) -> Iterator[tuple[str, str]]:
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
        is_point = own[most] < SHARE * (own.total() - own[most]) or own[most] < SHARE
        for run, value in arms[arm]:
            is_failed = run.record.status != "complete" and not own[value]
            if value == most or (not is_failed and (is_point or len(arms) == 1)):
                continue
            if tells_arms_apart or not any(complete[name][value] for name in arms if name != arm):
                rest = counted(own[most], "other run")
                yield run.id, f"{key} is {value}; it is {most} in {rest} of {arm}"
