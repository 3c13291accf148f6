"""Which sources a run uses: as asked for, or the best there are, and a sentence that says why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from wattload.core.errors import MissingExtraError, PowerError
from wattload.core.power import Evidence, PowerSource, SourceFacts
from wattload.core.record.energy import PowerSourceRecord
from wattload.power.config import AUTO, NONE, PowerConfig
from wattload.power.sources import (
    AUTO_BESIDE,
    AUTO_DRIVE_SOURCES,
    PowerDevice,
    find_sources,
)

_LADDER = tuple(Evidence)


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

    ``auto`` takes for each device the drive-scope source of the strongest evidence, never a data
    sheet, and adds GPUs beside it; what it can't read it tells in ``records``. A source that was
    named is taken or refused.

    Raises:
        PowerError: the source that was named can't be read on any device.
        MissingExtraError: the source that was named needs a module that is not installed.
    """
    candidates = _Candidates(host=host)
    try:
        if config.source == AUTO:
            return _automatic(candidates, devices, config)
        return _named(candidates, devices, config)
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
        device = facts.device if facts else ""
        self.refused.append(self._record(name, device, facts, used=False, sentence=sentence))

    def drop(self, source: PowerSource, sentence: str) -> None:
        """Close a source that another one is better than."""
        self.opened.remove(source)
        source.close()
        self.refuse(source.facts().name, source.facts(), sentence)

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


def _named(
    candidates: _Candidates, devices: Sequence[PowerDevice], config: PowerConfig
) -> Selection:
    name = config.source
    candidates.try_all(name, devices, config)
    if not candidates.opened:
        reasons = "; ".join(record.sentence for record in candidates.refused)
        raise PowerError(
            f"power={name} can't be had: {reasons or _no_device(name, devices)}; "
            f"power={AUTO} takes what there is, power={NONE} measures nothing"
        )
    if name == NONE:
        return candidates.selection("power=none was asked for: nothing is measured.")
    taken = "; ".join(_taken(source.facts()) for source in candidates.opened)
    not_taken = "".join(f"; but {record.sentence}" for record in candidates.refused)
    return candidates.selection(f"power={name} was asked for: {taken}{not_taken}.")


def _automatic(
    candidates: _Candidates, devices: Sequence[PowerDevice], config: PowerConfig
) -> Selection:
    for name in AUTO_DRIVE_SOURCES:
        _try_or_tell(candidates, name, devices, config)
    _keep_the_best(candidates)
    told = [f"took {_taken(source.facts())}" for source in candidates.opened]
    read = {source.facts().device for source in candidates.opened}
    told += [
        f"nothing for {device.name}: {_why_not(device, candidates)}"
        for device in devices
        if device.key not in read
    ]
    drive_count = len(candidates.opened)
    for name in AUTO_BESIDE:
        _try_or_tell(candidates, name, devices, config)
    told += [
        f"beside it {_taken(source.facts())}, never added to a drive's"
        for source in candidates.opened[drive_count:]
    ]
    if not devices:
        told.insert(0, "no drive is known under the target")
    return candidates.selection(f"power=auto: {'; '.join(told)}.")


def _try_or_tell(
    candidates: _Candidates, name: str, devices: Sequence[PowerDevice], config: PowerConfig
) -> None:
    """Open what there is of one kind; that there is none is told, not raised."""
    try:
        candidates.try_all(name, devices, config)
    except (PowerError, MissingExtraError) as error:
        candidates.refuse(name, None, str(error))


def _keep_the_best(candidates: _Candidates) -> None:
    """Close all sources of a device but the one of the strongest evidence, the most accurate."""
    best: dict[str, PowerSource] = {}
    for source in sorted(candidates.opened, key=_order):
        better = best.setdefault(source.facts().device, source)
        if better is not source:
            name = better.facts().name
            candidates.drop(source, f"{name} knows {source.facts().device_name} better.")


def _order(source: PowerSource) -> tuple[int, float]:
    facts = source.facts()
    accuracy = facts.accuracy_percent
    return _LADDER.index(facts.evidence), float("inf") if accuracy is None else accuracy


def _taken(facts: SourceFacts) -> str:
    detail = f": {facts.detail}" if facts.detail else ""
    return (
        f"{facts.name} for {facts.device_name or facts.device or 'no device'} "
        f"({facts.scope}, {facts.evidence}){detail}"
    )


def _why_not(device: PowerDevice, candidates: _Candidates) -> str:
    reasons = [record.sentence for record in candidates.refused if record.device == device.key]
    if reasons:
        return "; ".join(reasons)
    if not device.is_nvme:
        return "it is no NVMe controller, and only those tell of their power"
    general = [record.sentence for record in candidates.refused if not record.device]
    return "; ".join(general) or "no source knows it"


def _no_device(name: str, devices: Sequence[PowerDevice]) -> str:
    names = ", ".join(device.name for device in devices) or "no drive that is known"
    return f"there is nothing for {name} to read (under the target: {names})"
