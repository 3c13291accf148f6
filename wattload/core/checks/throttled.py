"""Whether a drive was held back by heat: its own counters after the run, less those before it.

Five accounts, for a drive keeps those it likes: entries into and seconds in the two levels of host
controlled thermal management (SMART bytes 216 to 231), minutes above the warning and the critical
temperature (bytes 192 to 199), and OCP's count of throttling events (log C0h, byte 96).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from wattload.core.record.check import Check
from wattload.core.record.controller import ControllerRecord, ControllerState
from wattload.core.record.energy import ThrottlingRecord
from wattload.core.record.run import RunRecord

_THERMAL = (
    "thermal_transitions_1",
    "thermal_transitions_2",
    "thermal_seconds_1",
    "thermal_seconds_2",
)
_OCP_COUNTER = "throttle_events"
_HOT_COUNTER = "warning_temperature_minutes"
"""Above it a drive is hot and may still run at full speed: a warning, no proof."""

_SPOKEN = {
    "thermal_transitions_1": "{} entries into light throttling",
    "thermal_transitions_2": "{} entries into heavy throttling",
    "thermal_seconds_1": "{} s of light throttling",
    "thermal_seconds_2": "{} s of heavy throttling",
    "critical_temperature_minutes": "{} min above the critical temperature",
    "warning_temperature_minutes": "{} min above the warning temperature",
    "throttle_events": "{} throttling events by OCP's count",
}


def throttled(record: RunRecord) -> Sequence[Check]:
    """Fail a run in which a drive throttled itself, warn of one in which it was hot.

    The counters before and after the run hold the heat of generating data as well. Where they were
    sampled in the timed phases, those decide.
    """
    if not record.controllers:
        return [
            Check(
                name="throttled",
                verdict="not_checked",
                sentence="No NVMe controller lies under the target, so nothing counts throttling.",
            )
        ]
    return [_throttled(record, controller) for controller in record.controllers]


def _throttled(record: RunRecord, controller: ControllerRecord) -> Check:
    name, drive = f"throttled_{controller.facts.serial}", controller.facts.name
    before, after = controller.before, controller.after
    if before is None or after is None:
        return _unknown(name, f"Whether {drive} throttled is unknown: the run did not end.")
    pairs = {counter: (_count(before, counter), _count(after, counter)) for counter in _SPOKEN}
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
    """Return what was counted in each timed phase, ``None`` where one of them is not known."""
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
    """Judge a drive that throttled in the run by the phases that are timed.

    What is counted over the whole run only may be of the phases or not: it warns.
    """
    hot = [each for each in timed if each.transition_count or each.throttled_s]
    others = [
        _SPOKEN[counter].format(count)
        for counter, count in grown.items()
        if count and counter not in _THERMAL
    ]
    if status:
        others.append("throttling going on at its end")
    told = _hot(hot) if hot else _cool(grown, others)
    return Check(
        name=f"throttled_{controller.facts.serial}",
        verdict="fail" if hot else "warn" if others else "pass",
        sentence=f"{controller.facts.name} counted {told}.",
        figures={**grown, **{f"{each.phase}_throttled_s": each.throttled_s for each in timed}},
    )


def _hot(phases: Sequence[ThrottlingRecord]) -> str:
    counted = ", ".join(
        f"{each.transition_count} entries into throttling and {each.throttled_s} s of it in "
        f"{each.phase}"
        for each in phases
    )
    return f"{counted}: it was throttled"


def _cool(grown: Mapping[str, int], others: Sequence[str]) -> str:
    counted = (
        _SPOKEN[counter].format(grown[counter]) for counter in _THERMAL if grown.get(counter)
    )
    told = f"{', '.join(counted)} during the run, and none in a timed phase"
    return f"{told}; whether {', '.join(others)} are of one is not known" if others else told


def _judged(controller: ControllerRecord, grown: Mapping[str, int], status: int | None) -> Check:
    name, drive = f"throttled_{controller.facts.serial}", controller.facts.name
    found = [_SPOKEN[counter].format(count) for counter, count in grown.items() if count]
    proved = any(count for counter, count in grown.items() if counter != _HOT_COUNTER)
    if status:
        found.append("throttling going on at its end")
        proved = True
    told = f"{drive} counted {', '.join(found)} during the run" if found else ""
    if proved:
        sentence = f"{told}: it was throttled."
    elif found:
        sentence = f"{told}: it was hot, and may have been slower for it."
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
    """Say so where a drive keeps no count of throttling, whose zeros then prove nothing."""
    power = controller.facts.power
    if power is None or power.thermal_management or _OCP_COUNTER in grown:
        return ""
    return "; it keeps no such count, but no minute was above its warning temperature"


def _grown(pairs: Mapping[str, tuple[int | None, int | None]]) -> Iterator[tuple[str, int]]:
    """Yield what each counter grew by; one that was not read on both sides is left out."""
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
