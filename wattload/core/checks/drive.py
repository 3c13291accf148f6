"""Checks on a drive: its link and the size of its writes, its power settings, and its heat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from wattload.core.checks.verdicts import judged, no_drive, of_host, on_host, unknown
from wattload.core.record.energy import PowerSettingRecord, PowerStateRecord, ThrottlingRecord
from wattload.core.record.results import Check, Verdict
from wattload.core.record.run import RunRecord
from wattload.core.record.target import ControllerRecord, ControllerState

_NOT_CAPS = ("power.set_timestamp",)
"""Settings that do not limit power and are not checked."""

_Kept = PowerStateRecord | PowerSettingRecord

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


def link_at_maximum(record: RunRecord) -> Sequence[Check]:
    """Compare each controller's current PCIe link with the drive's maximum."""
    if record.controllers:
        return [on_host(record, each.facts.host, _link(each)) for each in record.controllers]
    return [no_drive("link_at_maximum", "the link")]


def _link(controller: ControllerRecord) -> Check:
    facts, state = controller.facts, controller.before
    name = f"link_at_maximum_{facts.serial}"
    now = (state.link_speed_gt_per_s, state.link_width) if state else (None, None)
    best = (facts.link_speed_max_gt_per_s, facts.link_width_max)
    if None in now or None in best:
        reasons = {**facts.missing, **(state.missing if state else {})}
        found = [reason for field, reason in reasons.items() if field.startswith("link_")]
        reason = next(iter(found), "its state was not read")
        return unknown(name, f"The PCIe link of {facts.name} is unknown: {reason}.")
    return judged(
        name,
        f"{facts.name} runs at {now[0]} GT/s x{now[1]}; its maximum is {best[0]} GT/s x{best[1]}",
        ": the slot limits the drive",
        holds=now == best,
        figures={
            "speed_gt_per_s": now[0],
            "width": now[1],
            "speed_max_gt_per_s": best[0],
            "width_max": best[1],
        },
    )


def write_granularity(record: RunRecord) -> Sequence[Check]:
    """Compare the size of writes with what each drive prefers; only for drives that report it."""
    block_bytes = record.workload.block_bytes_asked
    if not block_bytes or not any(window.written_bytes for window in record.timed_windows()):
        return ()
    states = [(each.facts, each.before) for each in record.controllers]
    return [
        judged(
            f"write_granularity_{facts.serial}{of_host(record, facts.host)}",
            f"Writes of {block_bytes} bytes went to {facts.name}, which prefers multiples of "
            f"{state.preferred_write_bytes}",
            ": it writes more to its media than it is given",
            holds=block_bytes % state.preferred_write_bytes == 0,
            figures={"block_bytes": block_bytes, "preferred_bytes": state.preferred_write_bytes},
        )
        for facts, state in states
        if state is not None and state.preferred_write_bytes is not None
    ]


def power_state_held(record: RunRecord) -> Sequence[Check]:
    """Compare the requested power state with those read before, during and after the run.

    Timed seconds in another operational state fail the check: the energy is of that state. A drive
    that has entered a sleep state after its last I/O proves neither that it left the requested
    state during the work nor that it kept it.
    """
    return [
        on_host(record, each.host, _state_held(record, each))
        for each in record.power.states
        if each.requested is not None
    ]


def power_setting_held(record: RunRecord) -> Sequence[Check]:
    """Compare the other requested settings with the values read before and after the run."""
    return [
        on_host(record, state.host, _setting_held(state, setting))
        for state in record.power.states
        for setting in state.settings
        if setting.option not in _NOT_CAPS
    ]


def saved_settings_kept(record: RunRecord) -> Sequence[Check]:
    """Compare a drive's saved values before and after the run: no run may change them."""
    return [
        on_host(record, state.host, _saved_kept(state.serial, kept))
        for state in record.power.states
        if (kept := dict(_saved(state)))
    ]


def _state_held(record: RunRecord, state: PowerStateRecord) -> Check:
    strayed = _strayed_s(record, state)
    if strayed:
        return _left(state, strayed)
    if state.after is None and state.verified == state.requested:
        return _unread(f"power_state_held_{state.serial}", state.missing["after"])
    read_back = state.verified == state.requested
    asleep = read_back and state.after != state.requested and _is_asleep(record, state)
    verdict: Verdict = "fail"
    end = ": the drive did not keep it."
    if read_back and state.after == state.requested:
        verdict, end = "pass", "."
    elif asleep:
        verdict = "warn"
        end = (
            ", a non-operational state that the drive entered by itself (APST); power.apst=false "
            "keeps it awake."
        )
    return Check(
        name=f"power_state_held_{state.serial}",
        verdict=verdict,
        sentence=(
            f"PS{state.requested} was requested; PS{state.verified} was read before the run and "
            f"PS{state.after} after it{end}"
        ),
        figures={"requested": state.requested, "before": state.verified, "after": state.after},
        mandatory=True,
    )


def _strayed_s(record: RunRecord, state: PowerStateRecord) -> dict[str, float]:
    """Return timed seconds in operational states other than the requested one, by state.

    The source that saw the most of them decides. Transitions and unread intervals do not count.
    """
    timed = {(window.name, window.host) for window in record.timed_windows()}
    allowed = {str(state.requested), *map(str, _sleeping(record, state))}
    seen: dict[str, dict[str, float]] = {}
    for energy in record.power.energy:
        if energy.device != state.serial or energy.host != state.host:
            continue
        if (energy.phase, energy.host) not in timed:
            continue
        strayed = seen.setdefault(energy.source, {})
        for share in energy.states:
            if share.state.isdigit() and share.state not in allowed and share.seconds > 0:
                strayed[share.state] = strayed.get(share.state, 0.0) + share.seconds
    return max(seen.values(), key=lambda strayed: sum(strayed.values()), default={})


def _left(state: PowerStateRecord, strayed: dict[str, float]) -> Check:
    elsewhere = " and ".join(f"{seconds:.6g} s in PS{name}" for name, seconds in strayed.items())
    return Check(
        name=f"power_state_held_{state.serial}",
        verdict="fail",
        sentence=(
            f"PS{state.requested} was requested, but the drive spent timed work in other states: "
            f"{elsewhere}."
        ),
        figures={
            "requested": state.requested,
            "before": state.verified,
            "after": state.after,
            **{f"ps{name}_s": seconds for name, seconds in strayed.items()},
        },
        mandatory=True,
    )


def _sleeping(record: RunRecord, state: PowerStateRecord) -> set[int]:
    return {
        each.index
        for controller in record.controllers
        if (controller.facts.host, controller.facts.serial) == (state.host, state.serial)
        for each in controller.facts.power_states or ()
        if not each.operational
    }


def _is_asleep(record: RunRecord, state: PowerStateRecord) -> bool:
    """Return whether the drive was left in a state that only APST enters."""
    for controller in record.controllers:
        if (controller.facts.host, controller.facts.serial) != (state.host, state.serial):
            continue
        return _has_apst(state, controller) and state.after in _sleeping(record, state)
    return False


def _has_apst(state: PowerStateRecord, controller: ControllerRecord) -> bool:
    """Return whether APST was enabled in the run: as the run set it, else as found."""
    for setting in state.settings:
        if setting.option == "power.apst" and setting.verified is not None:
            return bool(setting.verified)
    return controller.before is not None and bool(controller.before.apst_enabled)


def _setting_held(state: PowerStateRecord, setting: PowerSettingRecord) -> Check:
    name = f"power_setting_held_{setting.option.removeprefix('power.')}_{state.serial}"
    if setting.after is None and setting.verified == setting.requested:
        return _unread(name, setting.missing["after"])
    unit = f" {setting.unit}" if setting.unit else ""
    return judged(
        name,
        f"{setting.option}={setting.requested:g} was requested; {_text(setting.verified, unit)} "
        f"was read before the run and {_text(setting.after, unit)} after it",
        ": the drive did not keep it",
        holds=setting.verified == setting.requested == setting.after,
        figures={
            "requested": setting.requested,
            "before": setting.verified,
            "after": setting.after,
        },
        worst="fail",
        mandatory=True,
    )


def _unread(name: str, reason: str) -> Check:
    sentence = f"It was read before the run but not after it: {reason}."
    return unknown(name, sentence, mandatory=True)


def _text(figure: float | None, unit: str) -> str:
    return "nothing" if figure is None else f"{figure:g}{unit}"


def _saved_kept(serial: str, settings: Mapping[str, _Kept]) -> Check:
    """Judge the values known before and after the run; name the others with the reason."""
    known: dict[str, tuple[float, float]] = {}
    unknown = []
    for name, kept in settings.items():
        if kept.saved is None or kept.saved_after is None:
            reason = kept.missing["saved" if kept.saved is None else "saved_after"]
            unknown.append(f"{name} ({reason})")
        else:
            known[name] = kept.saved, kept.saved_after
    changed = [name for name, (before, after) in known.items() if before != after]
    sentences = [
        f"The drive's own saved {' and '.join(changed)} changed during the run." * bool(changed),
        f"The drive's saved values ({', '.join(known)}) did not change during the run."
        * bool(known and not changed),
        f"Unknown saved values: {' and '.join(unknown)}." * bool(unknown),
    ]
    return Check(
        name=f"saved_settings_kept_{serial}",
        verdict="fail" if changed else "pass" if known else "not_checked",
        sentence=" ".join(filter(None, sentences)),
        figures={
            f"{name.replace(' ', '_')}_{when}": value
            for name, pair in known.items()
            for when, value in zip(("before", "after"), pair, strict=True)
        },
    )


def _saved(state: PowerStateRecord) -> Iterator[tuple[str, _Kept]]:
    """Yield, by name, the settings that a run changed and the drive may have saved."""
    if state.knob:
        yield "power state", state
    for setting in state.settings:
        if setting.option not in _NOT_CAPS:
            yield setting.name, setting


def throttled(record: RunRecord) -> Sequence[Check]:
    """Fail a run in which a drive throttled; warn of one in which it was hot.

    The counters before and after the run include the heat of data generation. If they were also
    sampled in the timed phases, those samples decide.
    """
    if not record.controllers:
        return [no_drive("throttled", "throttling")]
    return [
        on_host(record, each.facts.host, _throttled(record, each)) for each in record.controllers
    ]


def _throttled(record: RunRecord, controller: ControllerRecord) -> Check:
    name, drive = f"throttled_{controller.facts.serial}", controller.facts.name
    before, after = controller.before, controller.after
    if before is None or after is None:
        return unknown(name, f"Whether {drive} throttled is unknown: the run did not finish.")
    pairs = {counter: (_count(before, counter), _count(after, counter)) for counter in _COUNTED}
    grown = dict(_grown(pairs))
    if not any(counter in grown for counter in _THERMAL) and _OCP_COUNTER not in grown:
        return unknown(
            name, f"Whether {drive} throttled is unknown: {_why_unknown(before, after)}."
        )
    fell = [counter for counter, count in grown.items() if count < 0]
    if fell:
        counters = " and ".join(fell)
        return unknown(
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
