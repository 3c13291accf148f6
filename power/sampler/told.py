"""What has become of a drive's power settings in a run, as the record tells it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from wattload.core.record.energy import PowerSettingRecord, PowerStateRecord
from wattload.power.control import Change
from wattload.power.drive_clock import ClockChange
from wattload.power.knobs import Saved
from wattload.power.nvme.features import POWER_MANAGEMENT
from wattload.power.nvme.timestamp import TIMESTAMP

_NOT_ASKED = "no power state was asked for"
_NOT_ENDED = "the run has not ended"


@dataclass(slots=True, kw_only=True)
class DriveStory:
    """What is known of one drive so far: found, asked for, changed, put back, and what failed."""

    name: str
    serial: str
    refusal: str = ""
    knob: str | None = None
    requested: int | None = None
    before: int | None = None
    after: int | None = None
    unread: str = ""
    trouble: str = ""
    saved: Saved = (None, "it was not read")
    saved_after: Saved = (None, _NOT_ENDED)
    clock: ClockChange | None = None
    changes: Sequence[Change] = field(default_factory=list)

    def record(self, host: str) -> PowerStateRecord:
        """Return it as the record keeps it."""
        state = self._change(POWER_MANAGEMENT)
        values: Mapping[str, tuple[float | None, str]] = {
            "requested": (self.requested, _NOT_ASKED),
            "before": (self.before, self.refusal),
            "verified": (
                state.verified if state else None,
                _NOT_ASKED if self.requested is None else "it was not set",
            ),
            "after": (self.after, self.refusal or self.unread or _NOT_ENDED),
            "restored": (state.restored if state else None, self._why_not_restored(state)),
            "saved": (self.saved[0], self.refusal or self.saved[1]),
            "saved_after": (
                self.saved_after[0],
                self.refusal or self.trouble or self.saved_after[1],
            ),
        }
        missing = {name: reason for name, (value, reason) in values.items() if value is None}
        if self.knob is None:
            missing["knob"] = "no setting was asked for"
        return PowerStateRecord(
            host=host,
            serial=self.serial,
            knob=self.knob,
            settings=tuple(self._settings()),
            sentence=self._sentence(state),
            missing=missing,
            **{name: value for name, (value, _) in values.items()},
        )

    def _change(self, feature: int) -> Change | None:
        found = (each for each in self.changes if each.feature.identifier == feature)
        return next(found, None)

    def _why_not_restored(self, change: Change | None) -> str:
        if change is None:
            return self.trouble or "nothing was changed"
        if change.trouble:
            return f"not put back: {change.trouble}"
        return _NOT_ENDED if change.verified is not None else "it was not set"

    def _settings(self) -> list[PowerSettingRecord]:
        others = [each for each in self.changes if each.feature.identifier != POWER_MANAGEMENT]
        told = [self._setting(change) for change in others]
        return [*told, _clock(self.clock)] if self.clock else told

    def _setting(self, change: Change) -> PowerSettingRecord:
        none = "the drive has none"
        values = {
            "before": (change.before, none),
            "verified": (change.verified, "it was not set"),
            "after": (change.after, self.trouble or _NOT_ENDED),
            "restored": (
                change.restored,
                none if change.is_restored else self._why_not_restored(change),
            ),
            "saved": change.saved,
            "saved_after": change.saved_after,
        }
        return PowerSettingRecord(
            option=change.option,
            feature=change.feature.identifier,
            name=change.feature.name,
            unit=change.feature.unit,
            requested=change.requested,
            missing={name: reason for name, (value, reason) in values.items() if value is None},
            **{name: value for name, (value, _) in values.items()},
        )

    def _sentence(self, state: Change | None) -> str:
        if self.refusal:
            return f"{self.name}: {self.refusal}"
        others = [_told(each) for each in self.changes if each is not state]
        if self.clock is not None:
            others.append("its clock was set to the host's, and stays so")
        beside = "".join(f" {sentence[0].upper()}{sentence[1:]}." for sentence in others)
        if state is None or state.verified is None:
            why = f"; {self.trouble}" if self.trouble and not others else ""
            return (
                f"{self.name} ran in the power state it was found in, {self.before}{why}.{beside}"
            )
        text = f"{self.name} was set from power state {self.before} to {state.verified}"
        if state.restored is not None:
            return f"{text} and put back into {state.restored}.{beside}"
        return f"{text}; {self.trouble or 'it is not put back yet'}.{beside}"


def _told(change: Change) -> str:
    feature = change.feature
    if change.verified is None:
        return f"its {feature.name} was not set"
    text = (
        f"its {feature.name} was set from {feature.text(change.before)} to "
        f"{feature.text(change.verified)}"
    )
    if change.is_restored:
        return f"{text} and put back to {feature.text(change.restored)}"
    return f"{text}; not put back: {change.trouble}" if change.trouble else text


def _clock(clock: ClockChange) -> PowerSettingRecord:
    stays = "a clock that was set to the host's is left as it is"
    names = ("after", "restored", "saved", "saved_after")
    return PowerSettingRecord(
        option="power.set_timestamp",
        feature=TIMESTAMP,
        name="timestamp",
        unit="ms",
        requested=clock.requested_ms,
        before=clock.before_ms,
        verified=clock.verified_ms,
        after=None,
        restored=None,
        saved=None,
        saved_after=None,
        missing=dict.fromkeys(names, stays),
    )
