"""What a rule of MLPerf Storage is asked about, and how it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from wattload.core.record.run import RunRecord

Standing = Literal["closed", "open", "invalid", "not_checked"]
Figures = Mapping[str, float | int | str | None]
Answer = tuple[Standing, str, Figures]


@dataclass(frozen=True, slots=True)
class Case:
    """A run, and those beside it that had the same settings, itself included."""

    record: RunRecord
    alike: Sequence[RunRecord]

    def detail(self, name: str) -> Any:  # noqa: ANN401 - whatever the workload says of itself
        """Return what the workload says of itself; raises ``UnknownError`` if it does not."""
        value = self.record.workload.details.get(name)
        if value is None:
            raise UnknownError(f"the record has no {name}")
        return value

    def setting(self, group: str, name: str) -> Any:  # noqa: ANN401 - whatever is configured
        """Return a setting; raises ``UnknownError`` if the record has none of the name."""
        settings = self.record.config.get(group)
        if not isinstance(settings, Mapping) or name not in settings:
            raise UnknownError(f"the record has no {group}.{name}")
        return settings[name]

    def memory_bytes(self) -> dict[str, int]:
        """Return each host's memory; raises ``UnknownError`` if one's is not known."""
        found = {host.facts.name: host.facts.memory_bytes for host in self.record.hosts}
        known = {name: size for name, size in found.items() if size is not None}
        if not found or len(known) < len(found):
            raise UnknownError("the memory of a host is not known")
        return known


class UnknownError(Exception):
    """The record does not hold what a rule asks for; the message says what."""


def same(what: str, got: object, asked: object, otherwise: Standing = "invalid") -> Answer:
    """Return whether something is as the rules fix it."""
    figures = {"got": _plain(got), "asked": _plain(asked)}
    if got == asked:
        return "closed", f"{what} is {got}.", figures
    return otherwise, f"{what} is {got}; the rules ask for {asked}.", figures


def at_least(what: str, got: float, asked: float) -> Answer:
    """Return whether a figure reaches what the rules ask for."""
    standing: Standing = "closed" if got >= asked else "invalid"
    return standing, f"{what}: {got:g} of at least {asked:g}.", {"got": got, "asked": asked}


def _plain(value: object) -> float | int | str | None:
    return value if isinstance(value, int | float | str) or value is None else str(value)


def faults(record: RunRecord) -> list[str]:
    """Return why a run's figures can't be trusted: its status, its failed checks but of power."""
    found = [] if record.status == "complete" else [f"it is {record.status}"]
    return found + [
        f"{check.name} failed"
        for check in record.checks
        if check.verdict == "fail" and not check.name.startswith(("power_", "energy_"))
    ]


def sound(case: Case) -> Answer:
    """Judge whether the run itself is good: complete, and no check of it failed."""
    bad = faults(case.record)
    figures = {"checks": len(case.record.checks), "faults": len(bad)}
    if bad:
        return "invalid", f"The run's figures can't be trusted: {', '.join(bad)}.", figures
    return "closed", "The run is complete, and none of its checks failed.", figures


def cold(case: Case) -> Answer:
    """Judge the page cache before each epoch: MLPerf drops it, here its absence is proved."""
    return made(case, "cold_cache")


def made(case: Case, name: str) -> Answer:
    """Judge by a check that the run itself made; raises ``UnknownError`` if it made none."""
    check = next((c for c in case.record.checks if c.name.startswith(name)), None)
    if check is None or check.verdict == "not_checked":
        raise UnknownError(check.sentence if check else f"the record has no check {name}")
    return "closed" if check.verdict == "pass" else "invalid", check.sentence, check.figures
