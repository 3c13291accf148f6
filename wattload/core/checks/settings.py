"""Whether a drive kept the power settings that a run gave it, and its own saved ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from wattload.core.record.check import Check, Verdict
from wattload.core.record.controller import ControllerRecord
from wattload.core.record.energy import PowerSettingRecord, PowerStateRecord
from wattload.core.record.run import RunRecord

_NOT_CAPS = ("power.set_timestamp",)
"""Settings that cap no power and are not held to a value."""

_Kept = PowerStateRecord | PowerSettingRecord


def power_state_held(record: RunRecord) -> Sequence[Check]:
    """Compare the power state asked for with what was read back before, in and after the run.

    Timed seconds in another state that does I/O fail it: the joules are of that state.
    A drive that sleeps after its last I/O tells its sleep: that is no proof that it left the state
    while it worked, nor that it kept it.
    """
    return [_state_held(record, each) for each in record.power.states if each.requested is not None]


def power_setting_held(record: RunRecord) -> Sequence[Check]:
    """Compare the other settings asked for with what was read back before and after the run."""
    return [
        _setting_held(state, setting)
        for state in record.power.states
        for setting in state.settings
        if setting.option not in _NOT_CAPS
    ]


def saved_settings_kept(record: RunRecord) -> Sequence[Check]:
    """Compare what a drive itself has saved before the run and after it: no run may change that."""
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
            ", in which it does no I/O: it had fallen asleep by its own rules; power.apst=false "
            "keeps it awake."
        )
    return Check(
        name=f"power_state_held_{state.serial}",
        verdict=verdict,
        sentence=(
            f"PS{state.requested} was asked for, PS{state.verified} read back before and "
            f"PS{state.after} after the run{end}"
        ),
        figures={"requested": state.requested, "before": state.verified, "after": state.after},
        mandatory=True,
    )


def _strayed_s(record: RunRecord, state: PowerStateRecord) -> dict[str, float]:
    """Return the timed seconds that were read in operational states other than the one asked for.

    By the source that saw the most of them; transitions and what was not read count for nothing.
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
    told = " and ".join(f"{seconds:.6g} s of it in PS{name}" for name, seconds in strayed.items())
    return Check(
        name=f"power_state_held_{state.serial}",
        verdict="fail",
        sentence=(
            f"PS{state.requested} was asked for, and the drive spent timed work elsewhere: {told}."
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
    """Return the states of the drive in which it does no I/O."""
    return {
        each.index
        for controller in record.controllers
        if (controller.facts.host, controller.facts.serial) == (state.host, state.serial)
        for each in controller.facts.power_states or ()
        if not each.operational
    }


def _is_asleep(record: RunRecord, state: PowerStateRecord) -> bool:
    """Return whether the drive was found in a state that only its own transitions lead to."""
    for controller in record.controllers:
        if (controller.facts.host, controller.facts.serial) != (state.host, state.serial):
            continue
        transits = _transits(state, controller)
        return transits and state.after in _sleeping(record, state)
    return False


def _transits(state: PowerStateRecord, controller: ControllerRecord) -> bool:
    """Return whether the drive went by its own rules in the run: as the run set, else as found."""
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
            f"{setting.option}={setting.requested:g} was asked for, "
            f"{_text(setting.verified, unit)} read back before and {_text(setting.after, unit)} "
            f"after the run" + ("." if held else ": the drive did not keep it.")
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
        sentence=f"It was read back before the run, and not after it: {reason}.",
    )


def _text(figure: float | None, unit: str) -> str:
    return "nothing" if figure is None else f"{figure:g}{unit}"


def _saved_kept(serial: str, asked: Mapping[str, _Kept]) -> Check:
    """Judge the values that are known on both sides; those that are not are named with the reason.

    A drive that saves nothing has nothing that a run could change, and no proof of it either.
    """
    known: dict[str, tuple[float, float]] = {}
    unknown = []
    for name, kept in asked.items():
        if kept.saved is None or kept.saved_after is None:
            why = kept.missing["saved" if kept.saved is None else "saved_after"]
            unknown.append(f"{name} ({why})")
        else:
            known[name] = kept.saved, kept.saved_after
    changed = [name for name, (before, after) in known.items() if before != after]
    told = [
        f"The drive's own saved {' and '.join(changed)} changed during the run." * bool(changed),
        f"What the drive has saved ({', '.join(known)}) is as it was before the run."
        * bool(known and not changed),
        f"Its saved values are not known of {' and '.join(unknown)}." * bool(unknown),
    ]
    return Check(
        name=f"saved_settings_kept_{serial}",
        verdict="fail" if changed else "pass" if known else "not_checked",
        sentence=" ".join(filter(None, told)),
        figures={
            f"{name.replace(' ', '_')}_{when}": value
            for name, pair in known.items()
            for when, value in zip(("before", "after"), pair, strict=True)
        },
    )


def _saved(state: PowerStateRecord) -> Iterator[tuple[str, _Kept]]:
    """Yield what a run has changed of a drive and the drive may have saved, by name."""
    if state.knob:
        yield "power state", state
    for setting in state.settings:
        if setting.option not in _NOT_CAPS:
            yield setting.name, setting
