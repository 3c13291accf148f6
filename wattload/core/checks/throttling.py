"""Check whether heat throttled a drive, by the growth of its own counters over the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from wattload.core.record.energy import ThrottlingRecord
from wattload.core.record.results import NO_DRIVE, Check
from wattload.core.record.run import RunRecord
from wattload.core.record.target import ControllerRecord, ControllerState

_THERMAL = (
    "thermal_transitions_1",
    "thermal_transitions_2",
    "thermal_seconds_1",
    "thermal_seconds_2",
)
_OCP_COUNTER = "throttle_events"
_HOT_COUNTER = "warning_temperature_minutes"
"""Above this temperature a drive may still run at full speed: a warning, not proof."""

_COUNTED = {
    "thermal_transitions_1": "{} entries into light throttling",
    "thermal_transitions_2": "{} entries into heavy throttling",
    "thermal_seconds_1": "{} s of light throttling",
    "thermal_seconds_2": "{} s of heavy throttling",
    "critical_temperature_minutes": "{} min above the critical temperature",
    "warning_temperature_minutes": "{} min above the warning temperature",
    "throttle_events": "{} throttling events by the OCP counter",
}


def throttled(record: RunRecord) -> Sequence[Check]:
    """Fail a run in which a drive throttled; warn of one in which it was hot.

    The counters before and after the run include the heat of data generation. If they were also
    sampled in the timed phases, those samples decide.
    """
    if not record.controllers:
        return [
            Check(
                name="throttled",
                verdict="not_checked",
                sentence="There is no NVMe controller under the target, so throttling is unknown.",
                cause=NO_DRIVE,
            )
        ]
    return [_throttled(record, controller) for controller in record.controllers]


def _throttled(record: RunRecord, controller: ControllerRecord) -> Check:
    name, drive = f"throttled_{controller.facts.serial}", controller.facts.name
    before, after = controller.before, controller.after
    if before is None or after is None:
        return _unknown(name, f"Whether {drive} throttled is unknown: the run did not finish.")
    pairs = {counter: (_count(before, counter), _count(after, counter)) for counter in _COUNTED}
    grown = dict(_grown(pairs))
    if not any(counter in grown for counter in _THERMAL) and _OCP_COUNTER not in grown:
        return _unknown(
            name, f"Whether {drive} throttled is unknown: {_why_unknown(before, after)}."
        )
    fell = [counter for counter, count in grown.items() if count < 0]
    if fell:
        counters = " and ".join(fell)
        return _unknown(
            name, f"Whether {drive} throttled is unknown: {counters} fell, so it was reset."
        )
    timed = _timed(record, controller)
    if timed is not None and any(grown.get(counter) for counter in _THERMAL):
        return _judged_by_phase(controller, grown, timed, after.throttle_status)
    return _judged(controller, grown, after.throttle_status)


def _timed(record: RunRecord, controller: ControllerRecord) -> Sequence[ThrottlingRecord] | None:
    """Return the counts of each timed phase, ``None`` if those of any phase are unknown."""
    facts = controller.facts
    counted = {
        each.phase: each
        for each in record.power.throttling
        if (each.host, each.device) == (facts.host, facts.serial) and not each.missing
    }
    phases = [window.name for window in record.timed_windows() if window.host == facts.host]
    return [counted[phase] for phase in phases] if phases and counted.keys() >= {*phases} else None


def _judged_by_phase(
    controller: ControllerRecord,
    grown: Mapping[str, int],
    timed: Sequence[ThrottlingRecord],
    status: int | None,
) -> Check:
    """Judge a drive that throttled in the run by its timed phases.

    A counter that is known only over the whole run may concern a timed phase: it warns.
    """
    hot = [each for each in timed if each.transition_count or each.throttled_s]
    others = [
        _COUNTED[counter].format(count)
        for counter, count in grown.items()
        if count and counter not in _THERMAL
    ]
    if status:
        others.append("throttling in progress at the end")
    counts = _hot(hot) if hot else _cool(grown, others)
    return Check(
        name=f"throttled_{controller.facts.serial}",
        verdict="fail" if hot else "warn" if others else "pass",
        sentence=f"{controller.facts.name} counted {counts}.",
        figures={**grown, **{f"{each.phase}_throttled_s": each.throttled_s for each in timed}},
    )


def _hot(phases: Sequence[ThrottlingRecord]) -> str:
    counted = ", ".join(
        f"{each.transition_count} entries into throttling and {each.throttled_s} s of throttling "
        f"in {each.phase}"
        for each in phases
    )
    return f"{counted}: it was throttled"


def _cool(grown: Mapping[str, int], others: Sequence[str]) -> str:
    counted = (
        _COUNTED[counter].format(grown[counter]) for counter in _THERMAL if grown.get(counter)
    )
    text = f"{', '.join(counted)} during the run, none in a timed phase"
    return f"{text}; whether {', '.join(others)} were in one is unknown" if others else text


def _judged(controller: ControllerRecord, grown: Mapping[str, int], status: int | None) -> Check:
    name, drive = f"throttled_{controller.facts.serial}", controller.facts.name
    found = [_COUNTED[counter].format(count) for counter, count in grown.items() if count]
    proved = any(count for counter, count in grown.items() if counter != _HOT_COUNTER)
    if status:
        found.append("throttling in progress at the end")
        proved = True
    counts = f"{drive} counted {', '.join(found)} during the run" if found else ""
    if proved:
        sentence = f"{counts}: it was throttled."
    elif found:
        sentence = f"{counts}: it was hot and may have been slower."
    else:
        sentence = (
            f"{drive} counted no throttling during the run{_by_heat_alone(controller, grown)}."
        )
    return Check(
        name=name,
        verdict="fail" if proved else "warn" if found else "pass",
        sentence=sentence,
        figures={**grown, **({} if status is None else {"throttle_status": status})},
    )


def _by_heat_alone(controller: ControllerRecord, grown: Mapping[str, int]) -> str:
    """Return a remark if the drive has no throttling counter, so that zeros prove nothing."""
    power = controller.facts.power
    if power is None or power.thermal_management or _OCP_COUNTER in grown:
        return ""
    return "; it has no such counter, but never exceeded its warning temperature"


def _grown(pairs: Mapping[str, tuple[int | None, int | None]]) -> Iterator[tuple[str, int]]:
    """Yield the growth of each counter that was read both before and after the run."""
    for counter, (before, after) in pairs.items():
        if before is not None and after is not None:
            yield counter, after - before


def _count(state: ControllerState, counter: str) -> int | None:
    if counter == _OCP_COUNTER:
        return state.throttle_events
    value: int | None = None if state.smart is None else getattr(state.smart, counter)
    return value


def _why_unknown(before: ControllerState, after: ControllerState) -> str:
    for state, when in ((before, "before"), (after, "after")):
        if state.smart is None:
            return f"its SMART log was not read {when} the run ({state.missing['smart']})"
    return "its SMART log has no such counters"


def _unknown(name: str, sentence: str) -> Check:
    return Check(name=name, verdict="not_checked", sentence=sentence)
