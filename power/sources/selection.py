"""Select the sources that a run reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from wattload.core.errors import MissingExtraError, PowerError
from wattload.core.power import PowerSource, Scope, SourceFacts
from wattload.core.record.energy import PowerSourceRecord
from wattload.power.config import PowerConfig
from wattload.power.registry import AUTO, NONE, auto_meters, meter
from wattload.power.sources.base import PowerDevice, find_sources

STATE_SOURCE = "nvme"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The sources that a run reads, open; ``records`` also lists those it does not use.

    ``choice`` is one sentence for the reader of the report. The caller closes the sources.
    """

    sources: tuple[PowerSource, ...]
    records: tuple[PowerSourceRecord, ...]
    choice: str


def select(
    devices: Sequence[PowerDevice],
    config: PowerConfig,
    *,
    host: str,
    elsewhere: Mapping[str, Sequence[PowerSource]] = {},
) -> Selection:
    """Return the sources for the devices under the targets of this host, opened.

    ``auto`` opens every drive-scope source of each device except data sheets, and adds sources of
    other scopes; ``records`` lists those that can't be read. Which source gives a device's energy
    is decided for each window (``power.energy.ledger``). A source that was requested by name must
    be readable. ``elsewhere`` has the sources of meters that another process reads, by meter.

    Raises:
        PowerError: the requested source can't be read on any device.
        MissingExtraError: the requested source needs a module that is not installed.
    """
    candidates = _Candidates(host=host, elsewhere=elsewhere)
    try:
        if config.source == AUTO:
            choice = _open_automatic(candidates, devices, config)
        else:
            opened = _open_required(candidates, config.source, devices, config)
            choice = f"power={config.source} was requested and took {opened}"
        if config.source == NONE:
            choice = "power=none was requested: nothing is measured"
        for name in config.beside:
            opened = _open_required(candidates, name, devices, config)
            choice += f"; {name} was requested in addition: {opened}"
        return candidates.selection(f"{choice}.")
    except BaseException:
        candidates.close_all()
        raise


@dataclass(slots=True, kw_only=True)
class _Candidates:
    """Sources tried so far: the open ones, and the records of those that are not used."""

    host: str
    elsewhere: Mapping[str, Sequence[PowerSource]]
    opened: list[PowerSource] = field(default_factory=list)
    refused: list[PowerSourceRecord] = field(default_factory=list)

    def try_all(self, name: str, devices: Sequence[PowerDevice], config: PowerConfig) -> None:
        """Open all sources of one kind; raises what ``find`` raises."""
        found = self.elsewhere.get(name)
        for source in find_sources(name, devices, config) if found is None else found:
            try:
                source.open()
            except PowerError as error:
                self.refuse(name, source.facts(), str(error))
            else:
                self.opened.append(source)

    def refuse(self, name: str, facts: SourceFacts | None, sentence: str) -> None:
        device, name = (facts.device, facts.name) if facts else ("", name)
        self.refused.append(
            PowerSourceRecord(
                host=self.host, facts=facts, name=name, device=device, used=False, sentence=sentence
            )
        )

    def selection(self, choice: str) -> Selection:
        used = [
            PowerSourceRecord(
                host=self.host,
                facts=facts,
                name=facts.name,
                device=facts.device,
                used=True,
                sentence=f"{describe(facts)}.",
            )
            for facts in (source.facts() for source in self.opened)
        ]
        return Selection(sources=tuple(self.opened), records=(*used, *self.refused), choice=choice)

    def close_all(self) -> None:
        for source in self.opened:
            source.close()


def _open_required(
    candidates: _Candidates, name: str, devices: Sequence[PowerDevice], config: PowerConfig
) -> str:
    """Open the sources of a requested kind; return a text of those opened and those not.

    Raises:
        PowerError: none could be opened.
    """
    opened, refused = len(candidates.opened), len(candidates.refused)
    candidates.try_all(name, devices, config)
    not_taken = candidates.refused[refused:]
    if len(candidates.opened) == opened:
        names = ", ".join(device.name for device in devices) or "no known drive"
        nothing = f"{name} has nothing to read (under the target: {names})"
        raise PowerError(
            f"power={name} is not available: {_reasons(not_taken) or nothing}; "
            f"power={AUTO} uses what is available, power={NONE} measures nothing"
        )
    facts = [source.facts() for source in candidates.opened[opened:]]
    read = {each.device for each in facts}
    reasons = _reasons([record for record in not_taken if record.device not in read])
    return "; ".join([*map(describe, facts), *([f"but {reasons}"] if reasons else [])])


def _open_automatic(
    candidates: _Candidates, devices: Sequence[PowerDevice], config: PowerConfig
) -> str:
    for name in auto_meters():
        if name in config.beside:
            continue
        try:
            candidates.try_all(name, devices, config)
        except (PowerError, MissingExtraError) as error:
            candidates.refuse(name, None, str(error))
    facts = [source.facts() for source in candidates.opened]
    drives = [each for each in facts if each.scope is Scope.DRIVE]
    read = {each.device for each in drives}
    parts = [f"took {describe(each)}" for each in drives]
    parts += [
        f"found no source for {device.name} ({_missing_reason(device, candidates)})"
        for device in devices
        if device.key not in read
    ]
    parts += [
        f"also took {describe(each)}, never added to a drive's"
        for each in facts
        if each.scope is not Scope.DRIVE
    ]
    if not devices:
        parts.insert(0, "found no known drive under the target")
    return f"power={AUTO} {'; '.join(parts)}"


def describe(facts: SourceFacts) -> str:
    """Return what a source reads, how it is known, and its detail."""
    detail = f": {facts.detail}" if facts.detail else ""
    return (
        f"{facts.name} for {facts.device_name or facts.device or 'no device'} "
        f"({facts.scope}, {facts.evidence}){detail}"
    )


def _missing_reason(device: PowerDevice, candidates: _Candidates) -> str:
    reasons = _reasons([record for record in candidates.refused if record.device == device.key])
    if reasons:
        return reasons
    if not device.is_nvme:
        return "not an NVMe drive, so it has no power telemetry"
    general = [
        record
        for record in candidates.refused
        if record.facts is None and meter(record.name).scope is Scope.DRIVE
    ]
    return _reasons(general) or "no source supports it"


def _reasons(refused: Sequence[PowerSourceRecord]) -> str:
    """Return why sources are not used, each reason once."""
    return "; ".join(dict.fromkeys(record.sentence for record in refused))


def watch_states(
    selection: Selection, devices: Sequence[PowerDevice], config: PowerConfig
) -> list[PowerSource]:
    """Return open sources of power states, for drives whose power comes from another source.

    Returns none if nothing is to be measured. A drive that does not answer is left out: the
    selection has recorded the reason, or the user has requested another source.
    """
    if config.source == NONE:
        return []
    facts = [source.facts() for source in selection.sources]
    seen = {each.device for each in facts if each.name == STATE_SOURCE}
    unseen = [device for device in devices if device.is_nvme and device.key not in seen]
    watchers = []
    for source in find_sources(STATE_SOURCE, unseen, config):
        if source.facts().name != STATE_SOURCE:
            continue
        try:
            source.open()
        except PowerError:
            continue
        watchers.append(source)
    return watchers
