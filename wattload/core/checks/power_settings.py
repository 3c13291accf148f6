"""Checks that a drive kept the run's power settings and its own saved settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from wattload.core.record.energy import PowerSettingRecord, PowerStateRecord
from wattload.core.record.results import Check, Verdict
from wattload.core.record.run import RunRecord
from wattload.core.record.target import ControllerRecord

_NOT_CAPS = ("power.set_timestamp",)
"""Settings that do not limit power and are not checked."""

_Kept = PowerStateRecord | PowerSettingRecord


def power_state_held(record: RunRecord) -> Sequence[Check]:
    """Compare the requested power state with those read before, during and after the run.

    Timed seconds in another operational state fail the check: the energy is of that state. A drive
    that has entered a sleep state after its last I/O proves neither that it left the requested
    state during the work nor that it kept it.
    """
    return [_state_held(record, each) for each in record.power.states if each.requested is not None]


def power_setting_held(record: RunRecord) -> Sequence[Check]:
    """Compare the other requested settings with the values read before and after the run."""
    return [
        _setting_held(state, setting)
        for state in record.power.states
        for setting in state.settings
        if setting.option not in _NOT_CAPS
    ]


def saved_settings_kept(record: RunRecord) -> Sequence[Check]:
    """Compare a drive's saved values before and after the run: no run may change them."""
    return [
        _saved_kept(state.serial, kept)
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

    The source that saw the most of them decides. Transitions and unread stretches do not count.
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
    held = setting.verified == setting.requested == setting.after
    unit = f" {setting.unit}" if setting.unit else ""
    return Check(
        name=name,
        verdict="pass" if held else "fail",
        sentence=(
            f"{setting.option}={setting.requested:g} was requested; "
            f"{_text(setting.verified, unit)} was read before the run and "
            f"{_text(setting.after, unit)} after it"
            + ("." if held else ": the drive did not keep it.")
        ),
        figures={
            "requested": setting.requested,
            "before": setting.verified,
            "after": setting.after,
        },
        mandatory=True,
    )


def _unread(name: str, reason: str) -> Check:
    return Check(
        name=name,
        verdict="not_checked",
        mandatory=True,
        sentence=f"It was read before the run but not after it: {reason}.",
    )


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
