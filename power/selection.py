"""Which sources a run uses: as asked for, or the best there are, and a sentence that says why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from wattload.core.errors import MissingExtraError, PowerError
from wattload.core.power import PowerSource, Scope, SourceFacts
from wattload.core.record.energy import PowerSourceRecord
from wattload.power.config import AUTO, NONE, PowerConfig
from wattload.power.sources import (
    AUTO_BESIDE,
    AUTO_DRIVE_SOURCES,
    PowerDevice,
    find_sources,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The sources that a run reads, open; ``records`` also tells of those it does not.

    ``choice`` is one sentence for the reader of the report. The caller closes the sources.
    """

    sources: tuple[PowerSource, ...]
    records: tuple[PowerSourceRecord, ...]
    choice: str


def select(devices: Sequence[PowerDevice], config: PowerConfig, *, host: str) -> Selection:
    """Return the sources for the devices under the targets of this host, opened.

    ``auto`` takes for each device every drive-scope source that it has, never a data sheet, and
    adds those of other scopes beside them; what it can't read it tells in ``records``. Which source
    stands for a device is judged window by window (``wattload.power.choice``). A source that was
    named is taken or refused.

    Raises:
        PowerError: the source that was named can't be read on any device.
        MissingExtraError: the source that was named needs a module that is not installed.
    """
    candidates = _Candidates(host=host)
    try:
        choose = _automatic if config.source == AUTO else _named
        choice = choose(candidates, devices, config)
        for name in config.beside:
            choice += _beside(candidates, name, devices, config)
        return candidates.selection(f"{choice}.")
    except BaseException:
        candidates.close_all()
        raise


@dataclass(slots=True, kw_only=True)
class _Candidates:
    """Sources tried so far: open ones, and the records of those that are not used."""

    host: str
    opened: list[PowerSource] = field(default_factory=list)
    refused: list[PowerSourceRecord] = field(default_factory=list)

    def try_all(self, name: str, devices: Sequence[PowerDevice], config: PowerConfig) -> None:
        """Open what there is of one kind; raises what ``find`` raises."""
        for source in find_sources(name, devices, config):
            try:
                source.open()
            except PowerError as error:
                self.refuse(name, source.facts(), str(error))
            else:
                self.opened.append(source)

    def refuse(self, name: str, facts: SourceFacts | None, sentence: str) -> None:
        device, name = (facts.device, facts.name) if facts else ("", name)
        self.refused.append(self._record(name, device, facts, used=False, sentence=sentence))

    def selection(self, choice: str) -> Selection:
        used = [
            self._record(facts.name, facts.device, facts, used=True, sentence=_taken(facts) + ".")
            for facts in (source.facts() for source in self.opened)
        ]
        return Selection(sources=tuple(self.opened), records=(*used, *self.refused), choice=choice)

    def close_all(self) -> None:
        for source in self.opened:
            source.close()

    def _record(
        self, name: str, device: str, facts: SourceFacts | None, *, used: bool, sentence: str
    ) -> PowerSourceRecord:
        return PowerSourceRecord(
            host=self.host, facts=facts, name=name, device=device, used=used, sentence=sentence
        )


def _named(candidates: _Candidates, devices: Sequence[PowerDevice], config: PowerConfig) -> str:
    name = config.source
    taken, not_taken = _must(candidates, name, devices, config)
    if name == NONE:
        return "power=none was asked for: nothing is measured"
    return f"power={name} was asked for: {taken}{not_taken}"


def _beside(
    candidates: _Candidates, name: str, devices: Sequence[PowerDevice], config: PowerConfig
) -> str:
    taken, not_taken = _must(candidates, name, devices, config)
    return f"; beside it {name} was asked for: {taken}{not_taken}"


def _must(
    candidates: _Candidates, name: str, devices: Sequence[PowerDevice], config: PowerConfig
) -> tuple[str, str]:
    """Open what there is of a kind that was named; returns what was taken and what was not.

    Raises:
        PowerError: nothing was.
    """
    opened, refused = len(candidates.opened), len(candidates.refused)
    candidates.try_all(name, devices, config)
    not_taken = candidates.refused[refused:]
    if len(candidates.opened) == opened:
        raise PowerError(
            f"power={name} can't be had: {_reasons(not_taken) or _no_device(name, devices)}; "
            f"power={AUTO} takes what there is, power={NONE} measures nothing"
        )
    facts = [source.facts() for source in candidates.opened[opened:]]
    read = {each.device for each in facts}
    reasons = _reasons([record for record in not_taken if record.device not in read])
    return "; ".join(map(_taken, facts)), reasons and f"; but {reasons}"


def _automatic(candidates: _Candidates, devices: Sequence[PowerDevice], config: PowerConfig) -> str:
    for name in (*AUTO_DRIVE_SOURCES, *AUTO_BESIDE):
        if name not in config.beside:
            _try_or_tell(candidates, name, devices, config)
    facts = [source.facts() for source in candidates.opened]
    drives = [each for each in facts if each.scope is Scope.DRIVE]
    read = {each.device for each in drives}
    told = [f"took {_taken(each)}" for each in drives]
    told += [
        f"nothing for {device.name}: {_why_not(device, candidates)}"
        for device in devices
        if device.key not in read
    ]
    told += [
        f"beside it {_taken(each)}, never added to a drive's"
        for each in facts
        if each.scope is not Scope.DRIVE
    ]
    if not devices:
        told.insert(0, "no drive is known under the target")
    return f"power=auto: {'; '.join(told)}"


def _try_or_tell(
    candidates: _Candidates, name: str, devices: Sequence[PowerDevice], config: PowerConfig
) -> None:
    """Open what there is of one kind; that there is none is told, not raised."""
    try:
        candidates.try_all(name, devices, config)
    except (PowerError, MissingExtraError) as error:
        candidates.refuse(name, None, str(error))


def _taken(facts: SourceFacts) -> str:
    detail = f": {facts.detail}" if facts.detail else ""
    return (
        f"{facts.name} for {facts.device_name or facts.device or 'no device'} "
        f"({facts.scope}, {facts.evidence}){detail}"
    )


def _why_not(device: PowerDevice, candidates: _Candidates) -> str:
    reasons = _reasons([record for record in candidates.refused if record.device == device.key])
    if reasons:
        return reasons
    if not device.is_nvme:
        return "it is no NVMe controller, and only those tell of their power"
    general = [
        record
        for record in candidates.refused
        if not record.device and record.name in AUTO_DRIVE_SOURCES
    ]
    return _reasons(general) or "no source knows it"


def _reasons(refused: Sequence[PowerSourceRecord]) -> str:
    """Return why sources were not taken, each reason once."""
    return "; ".join(dict.fromkeys(record.sentence for record in refused))


def _no_device(name: str, devices: Sequence[PowerDevice]) -> str:
    names = ", ".join(device.name for device in devices) or "no drive that is known"
    return f"there is nothing for {name} to read (under the target: {names})"
